//! Operations element by element, through the vector primitives. Half types compute in float32 and round after each operation.

use super::compiler::Compiler;
use super::{Frame, Step, always};
use crate::error::Error;
use crate::vector::memory::select;
use crate::vector::{binary, cast, unary};
use openmps_tile::kernel::Instruction;
use openmps_tile::{Cast, Operation, Scalar};

/// An operation on the elements of its operands.
pub(super) fn elementwise<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) -> Result<(), Error> {
    let result = instruction.results[0];
    let x: Vec<usize> = instruction.operands.iter().map(|&operand| c.place(operand)).collect();
    let (scalar, to_scalar) = (c.number(instruction.operands[0]), c.number(result));
    let (to, count) = (c.result(result), c.len(result));
    let refused = || c.unsupported(format!("{} of {}", instruction.operation.name(), scalar.name()));
    let step: Step = match instruction.operation {
        Operation::AddPointer => {
            let size = c.type_of(result).target().map_or(1, Scalar::size) as i64;
            let wide = c.number(instruction.operands[1]) == Scalar::I64;
            always(move |frame| add_pointers(frame, [to, x[0], x[1]], count, size, wide))
        }
        Operation::Select => {
            let (function, [condition, a, b]) =
                (select(super::compiler::element_size(c.type_of(result))), [x[0], x[1], x[2]]);
            always(move |frame| {
                // SAFETY: every place holds `count` elements of its type.
                unsafe {
                    function(frame.at(to), frame.at(condition), false, frame.at(a), false, frame.at(b), false, count)
                }
            })
        }
        Operation::Cast(Cast::Bits) => {
            let bytes = count * scalar.size();
            always(move |frame| {
                // SAFETY: every place holds `count` elements of its type.
                unsafe { std::ptr::copy(frame.at(x[0]), frame.at(to), bytes) }
            })
        }
        Operation::Cast(kind) => {
            let function = cast::cast(kind, scalar, to_scalar).ok_or_else(refused)?;
            always(move |frame| {
                // SAFETY: every place holds `count` elements of its type.
                unsafe { function(frame.at(to), frame.at(x[0]), count) }
            })
        }
        Operation::MultiplyAdd => {
            return multiply_add(c, scalar, [x[0], x[1], x[2]], to, count);
        }
        _ if is_half(scalar) => return in_singles(c, instruction, scalar, &x, to, count),
        _ => computed(&instruction.operation, scalar, &x, to, count).ok_or_else(refused)?,
    };
    c.push(count, 0.3, step);
    Ok(())
}

fn is_half(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::F16 | Scalar::BF16)
}

/// A unary or binary operation or comparison of a type that the primitives have.
fn computed(operation: &Operation, scalar: Scalar, x: &[usize], to: usize, count: usize) -> Option<Step> {
    Some(match (operation, x) {
        (&Operation::Unary(unary), &[x]) => {
            let function = unary::unary(unary, scalar)?;
            always(move |frame| {
                // SAFETY: every place holds `count` elements of its type.
                unsafe { function(frame.at(to), frame.at(x), count) }
            })
        }
        (&Operation::Binary(binary), &[x, y]) => {
            let function = binary::binary(binary, scalar)?;
            always(move |frame| {
                // SAFETY: every place holds `count` elements of its type.
                unsafe { function(frame.at(to), frame.at(x), false, frame.at(y), false, count) }
            })
        }
        (&Operation::Compare(compare), &[x, y]) => {
            let of = if scalar == Scalar::I1 { Scalar::I8 } else { scalar };
            let function = binary::compare(compare, of)?;
            always(move |frame| {
                // SAFETY: every place holds `count` elements of its type.
                unsafe { function(frame.at(to), frame.at(x), false, frame.at(y), false, count) }
            })
        }
        _ => return None,
    })
}

/// Widens the operands of a half type, computes in float32, and rounds the result where it is of the half type too.
fn in_singles<'k>(
    c: &mut Compiler<'k>,
    instruction: &'k Instruction,
    scalar: Scalar,
    x: &[usize],
    to: usize,
    count: usize,
) -> Result<(), Error> {
    let refused = |c: &Compiler| c.unsupported(format!("{} of {}", instruction.operation.name(), scalar.name()));
    let wide: Vec<usize> = x.iter().map(|_| c.reserve(count * 4)).collect();
    let is_truth = matches!(instruction.operation, Operation::Compare(_));
    let out = if is_truth { to } else { c.reserve(count * 4) };
    let step = computed(&instruction.operation, Scalar::F32, &wide, out, count).ok_or_else(|| refused(c))?;
    let widen = cast::cast(Cast::Float, scalar, Scalar::F32).ok_or_else(|| refused(c))?;
    let narrow = cast::cast(Cast::Float, Scalar::F32, scalar).ok_or_else(|| refused(c))?;
    let pairs: Vec<(usize, usize)> = wide.into_iter().zip(x.iter().copied()).collect();
    c.push(
        count,
        1.0,
        Box::new(move |frame| {
            for &(wide, narrow) in &pairs {
                // SAFETY: both places hold `count` elements of their types.
                unsafe { widen(frame.at(wide), frame.at(narrow), count) };
            }
            step(frame)?;
            if !is_truth {
                // SAFETY: as above.
                unsafe { narrow(frame.at(to), frame.at(out), count) };
            }
            Ok(())
        }),
    );
    Ok(())
}

fn multiply_add(c: &mut Compiler, scalar: Scalar, x: [usize; 3], to: usize, count: usize) -> Result<(), Error> {
    let size = scalar.size();
    let read = move |frame: &Frame, place: usize, i: usize| -> u64 {
        let mut bits = 0_u64;
        // SAFETY: the place holds `count` elements of `size` bytes.
        unsafe { super::shape::copy_element((&raw mut bits).cast(), frame.at(place).add(i * size), size) };
        bits
    };
    c.push(
        count,
        5.0,
        Box::new(move |frame| {
            for i in 0..count {
                let [a, b, sum] = x.map(|place| read(frame, place, i));
                let bits = openmps_tile::interpret::element::multiply_add(scalar, a, b, sum);
                // SAFETY: as above.
                unsafe { super::shape::copy_element(frame.at(to).add(i * size), (&raw const bits).cast(), size) };
            }
            Ok(())
        }),
    );
    Ok(())
}

/// `to = pointers + offsets * size`, wrapping.
fn add_pointers(frame: &Frame, [to, pointers, offsets]: [usize; 3], count: usize, size: i64, wide: bool) {
    let (to, pointers) = (frame.at(to).cast::<i64>(), frame.at(pointers).cast::<i64>());
    // SAFETY: every place holds `count` elements of its type.
    unsafe {
        if wide {
            let offsets = frame.at(offsets).cast::<i64>();
            for i in 0..count {
                to.add(i).write(pointers.add(i).read().wrapping_add(offsets.add(i).read().wrapping_mul(size)));
            }
        } else {
            let offsets = frame.at(offsets).cast::<i32>();
            for i in 0..count {
                let offset = i64::from(offsets.add(i).read());
                to.add(i).write(pointers.add(i).read().wrapping_add(offset.wrapping_mul(size)));
            }
        }
    }
}
