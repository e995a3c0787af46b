//! Several runs of elements become one: the arithmetic of reductions, on the host's vector kernels.

use crate::element::{ElementType, Reduction};
use crate::error::{Error, Result};
use openmps_host::vector::binary::{BinaryFunction, binary};
use openmps_host::vector::cast::cast;
use openmps_host::vector::unary::UnaryFunction;
use openmps_tile::{Binary, Cast, Scalar};

/// Elements that are folded at a time, so that what lies between two of them stays in the first cache.
pub(crate) const PIECE: usize = 2048;

/// In which type elements lie: the operation's own, or that in which it sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The element type.
    Whole,
    /// The type of partial results ([`ElementType::partial`]), before the last step of the reduction.
    Partial,
}

/// One operand of a fold.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub address: *const u8,
    pub form: Form,
}

/// A reduction of elements of one type, or their copy.
pub(crate) struct Fold {
    element: ElementType,
    combine: Option<Combine>,
    widen: Option<UnaryFunction>,
    narrow: Option<UnaryFunction>,
    /// What an average divides by, as an element of the partial type, and with what.
    divide: Option<(BinaryFunction, [u8; 16])>,
    /// Numbers in one element: two of complex ones, where they are combined one by one.
    numbers: usize,
    running: Vec<u64>,
    widened: Vec<u64>,
}

enum Combine {
    /// Number by number.
    Numbers(BinaryFunction),
    Complex64,
    Complex128,
}

impl Fold {
    /// How `ranks` operands of this type are reduced; without a reduction, how one is copied.
    pub fn new(element: ElementType, reduction: Option<Reduction>, ranks: usize) -> Result<Fold> {
        let scalar = scalar(element.partial());
        let half = element.partial() != element;
        let convert = |from, to| if half { cast(Cast::Float, from, to) } else { None };
        let numbers = if matches!(element, ElementType::Complex64 | ElementType::Complex128) { 2 } else { 1 };
        let mut fold = Fold {
            element,
            combine: None,
            widen: convert(self::scalar(element), Scalar::F32),
            narrow: convert(Scalar::F32, self::scalar(element)),
            divide: None,
            numbers,
            running: vec![0; PIECE * element.partial().size() / 8],
            widened: vec![0; if half { PIECE / 2 } else { 0 }],
        };
        let Some(reduction) = reduction else { return Ok(fold) };
        let refused = || Error::Argument(format!("there is no {reduction} of {element} over {ranks} ranks"));
        fold.combine = Some(match (element, reduction) {
            (ElementType::Complex64, Reduction::Product) => Combine::Complex64,
            (ElementType::Complex128, Reduction::Product) => Combine::Complex128,
            _ => Combine::Numbers(operation(element, reduction).and_then(|it| binary(it, scalar)).ok_or_else(refused)?),
        });
        if reduction == Reduction::Average {
            let divisor = divisor(element.partial(), ranks).ok_or_else(refused)?;
            let operation = if is_unsigned(element) { Binary::DivideUnsigned } else { Binary::Divide };
            fold.divide = Some((binary(operation, scalar).ok_or_else(refused)?, divisor));
        }
        Ok(fold)
    }

    /// Folds `count` elements of the operands, in their order, into `destination`. `finish` is the last step: an average is divided.
    ///
    /// # Safety
    /// The operands are readable, the destination is writable; it is one of the operands or overlaps none. No more than `PIECE` elements.
    pub unsafe fn run(&mut self, to: (*mut u8, Form), finish: bool, operands: &[Operand], count: usize) {
        debug_assert!(count <= PIECE);
        let (destination, form) = to;
        let divide = self.divide.filter(|_| finish);
        let narrow = self.narrow.filter(|_| form == Form::Whole);
        let running: *mut u8 = self.running.as_mut_ptr().cast();
        let widened: *mut u8 = self.widened.as_mut_ptr().cast();
        let Some((&first, rest)) = operands.split_first() else { return };
        // SAFETY: the caller's promise; the scratch memory holds a piece of the partial type. What is written last is the destination, and
        // when it is written every operand but the last has been read.
        unsafe {
            let wide = |operand: Operand, scratch: *mut u8| match self.widen.filter(|_| operand.form == Form::Whole) {
                Some(widen) => {
                    widen(scratch, operand.address, count);
                    scratch.cast_const()
                }
                None => operand.address,
            };
            let plain = rest.is_empty() && divide.is_none();
            if plain && first.form == form {
                std::ptr::copy(first.address, destination, count * self.size(form));
                return;
            }
            let mut value = wide(first, running);
            for (index, &operand) in rest.iter().enumerate() {
                let is_last = index + 1 == rest.len() && divide.is_none() && narrow.is_none();
                let target = if is_last { destination } else { running };
                self.combine(target, value, wide(operand, widened), count);
                value = target;
            }
            if let Some((divide, divisor)) = divide {
                let target = if narrow.is_none() { destination } else { running };
                divide(target, value, false, divisor.as_ptr(), true, count * self.numbers);
                value = target;
            }
            match narrow {
                Some(narrow) => narrow(destination, value, count),
                None if value != destination.cast_const() => {
                    std::ptr::copy(value, destination, count * self.size(form));
                }
                None => {}
            }
        }
    }

    /// Bytes of an element.
    pub fn size(&self, form: Form) -> usize {
        size(self.element, form)
    }

    /// # Safety
    /// `count` elements are readable at `x` and `y` and writable at `to`, which is one of them or overlaps neither.
    unsafe fn combine(&self, to: *mut u8, x: *const u8, y: *const u8, count: usize) {
        // SAFETY: passed on to the caller.
        unsafe {
            match self.combine {
                Some(Combine::Numbers(function)) => function(to, x, false, y, false, count * self.numbers),
                Some(Combine::Complex64) => multiply::<f32>(to.cast(), x.cast(), y.cast(), count),
                Some(Combine::Complex128) => multiply::<f64>(to.cast(), x.cast(), y.cast(), count),
                None => unreachable!("a copy has one operand"),
            }
        }
    }
}

/// Bytes of an element in this form.
pub(crate) fn size(element: ElementType, form: Form) -> usize {
    match form {
        Form::Whole => element.size(),
        Form::Partial => element.partial().size(),
    }
}

/// Products of complex numbers.
///
/// # Safety
/// `count` of them are readable at `x` and `y` and writable at `to`, which is one of them or overlaps neither.
unsafe fn multiply<T>(to: *mut [T; 2], x: *const [T; 2], y: *const [T; 2], count: usize)
where
    T: Copy + std::ops::Mul<Output = T> + std::ops::Sub<Output = T> + std::ops::Add<Output = T>,
{
    for index in 0..count {
        // SAFETY: the caller's promise; both are read before the result is written.
        unsafe {
            let ([a, b], [c, d]) = (x.add(index).read_unaligned(), y.add(index).read_unaligned());
            to.add(index).write_unaligned([a * c - b * d, a * d + b * c]);
        }
    }
}

fn scalar(element: ElementType) -> Scalar {
    match element {
        ElementType::Bool | ElementType::U8 | ElementType::I8 => Scalar::I8,
        ElementType::U16 | ElementType::I16 => Scalar::I16,
        ElementType::U32 | ElementType::I32 => Scalar::I32,
        ElementType::U64 | ElementType::I64 => Scalar::I64,
        ElementType::F16 => Scalar::F16,
        ElementType::BF16 => Scalar::BF16,
        ElementType::F32 | ElementType::Complex64 => Scalar::F32,
        ElementType::F64 | ElementType::Complex128 => Scalar::F64,
    }
}

fn is_unsigned(element: ElementType) -> bool {
    matches!(element, ElementType::U8 | ElementType::U16 | ElementType::U32 | ElementType::U64)
}

/// What combines two numbers; none where the type has no such reduction.
fn operation(element: ElementType, reduction: Reduction) -> Option<Binary> {
    let unsigned = is_unsigned(element);
    Some(match (element, reduction) {
        (ElementType::Bool, Reduction::Average) => return None,
        (ElementType::Bool, Reduction::Sum | Reduction::Maximum) => Binary::Or,
        (ElementType::Bool, Reduction::Product | Reduction::Minimum) => Binary::And,
        (ElementType::Complex64 | ElementType::Complex128, Reduction::Maximum | Reduction::Minimum) => return None,
        (_, Reduction::Sum | Reduction::Average) => Binary::Add,
        (_, Reduction::Product) => Binary::Multiply,
        (_, Reduction::Maximum) if unsigned => Binary::MaximumUnsigned,
        (_, Reduction::Maximum) => Binary::Maximum,
        (_, Reduction::Minimum) if unsigned => Binary::MinimumUnsigned,
        (_, Reduction::Minimum) => Binary::Minimum,
    })
}

/// The number of ranks as an element of this type; none where it has no such number.
fn divisor(element: ElementType, ranks: usize) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut put = |value: &[u8]| bytes[..value.len()].copy_from_slice(value);
    match element {
        ElementType::U8 => put(&u8::try_from(ranks).ok()?.to_ne_bytes()),
        ElementType::I8 => put(&i8::try_from(ranks).ok()?.to_ne_bytes()),
        ElementType::U16 => put(&u16::try_from(ranks).ok()?.to_ne_bytes()),
        ElementType::I16 => put(&i16::try_from(ranks).ok()?.to_ne_bytes()),
        ElementType::U32 | ElementType::I32 => put(&i32::try_from(ranks).ok()?.to_ne_bytes()),
        ElementType::U64 | ElementType::I64 => put(&i64::try_from(ranks).ok()?.to_ne_bytes()),
        ElementType::F32 | ElementType::Complex64 => put(&(ranks as f32).to_ne_bytes()),
        ElementType::F64 | ElementType::Complex128 => put(&(ranks as f64).to_ne_bytes()),
        ElementType::Bool | ElementType::F16 | ElementType::BF16 => return None,
    }
    Some(bytes)
}
