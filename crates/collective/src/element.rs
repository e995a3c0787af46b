//! Element types, and how elements of several ranks become one.

use half::{bf16, f16};
use std::fmt;

/// The type of the elements that travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum ElementType {
    Bool = 1,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
    BF16,
    Complex64,
    Complex128,
}

use ElementType::*;

impl ElementType {
    /// All, in the order of their numbers.
    pub const ALL: [ElementType; 15] =
        [Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, F32, F64, BF16, Complex64, Complex128];

    /// The type with this number: 1 to 15, as in Paddle's C interface.
    pub fn from_number(number: usize) -> Option<ElementType> {
        ElementType::ALL.get(number.checked_sub(1)?).copied()
    }

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Bool | U8 | I8 => 1,
            U16 | I16 | F16 | BF16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 | Complex64 => 8,
            Complex128 => 16,
        }
    }

    /// The type in which elements are combined: float32 for the types of half its width, else the type itself.
    pub const fn partial(self) -> ElementType {
        match self {
            F16 | BF16 => F32,
            other => other,
        }
    }

    /// The name, as Python has it.
    pub const fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "uint8",
            U16 => "uint16",
            U32 => "uint32",
            U64 => "uint64",
            I8 => "int8",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            F16 => "float16",
            F32 => "float32",
            F64 => "float64",
            BF16 => "bfloat16",
            Complex64 => "complex64",
            Complex128 => "complex128",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// How elements of several ranks become one.
///
/// Of booleans the sum and the maximum are "or", the product and the minimum "and". A NaN on any rank makes a maximum or minimum NaN.
/// An average of integers is the sum divided, towards zero; sums of integers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Reduction {
    Sum = 0,
    Average,
    Maximum,
    Minimum,
    Product,
}

impl Reduction {
    /// All, in the order of their numbers.
    pub const ALL: [Reduction; 5] =
        [Reduction::Sum, Reduction::Average, Reduction::Maximum, Reduction::Minimum, Reduction::Product];

    /// The reduction with this number: 0 to 4, as in Paddle's C interface.
    pub fn from_number(number: usize) -> Option<Reduction> {
        Reduction::ALL.get(number).copied()
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Average => "average",
            Reduction::Maximum => "maximum",
            Reduction::Minimum => "minimum",
            Reduction::Product => "product",
        }
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// A Rust type whose values travel.
///
/// # Safety
/// `TYPE` has the size of `Self`, and any bytes are a value of `Self`.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The type by name.
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($ty:ty = $name:ident;)+) => {
        $(
            // SAFETY: numbers, of which every pattern of bits is one.
            unsafe impl Element for $ty { const TYPE: ElementType = ElementType::$name; }
            const _: () = assert!(size_of::<$ty>() == ElementType::$name.size());
        )+
    };
}
elements! {
    u8 = U8; u16 = U16; u32 = U32; u64 = U64; i8 = I8; i16 = I16; i32 = I32; i64 = I64;
    f16 = F16; f32 = F32; f64 = F64; bf16 = BF16;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_types_and_reductions() {
        for (index, element) in ElementType::ALL.into_iter().enumerate() {
            assert_eq!((element as usize, ElementType::from_number(index + 1)), (index + 1, Some(element)));
        }
        for (index, reduction) in Reduction::ALL.into_iter().enumerate() {
            assert_eq!((reduction as usize, Reduction::from_number(index)), (index, Some(reduction)));
        }
        assert_eq!((ElementType::from_number(0), ElementType::from_number(16)), (None, None));
        assert_eq!(Reduction::from_number(5), None);
    }
}
