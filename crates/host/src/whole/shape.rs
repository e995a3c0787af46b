//! Constants and ranges, and operations that move elements without computing.

use super::always;
use super::compiler::{Compiler, element_size};
use crate::error::Error;
use crate::vector::memory::fill;
use openmps_tile::interpret::element;
use openmps_tile::kernel::Instruction;
use openmps_tile::{Operation, Scalar};

/// Values that need no operand.
pub(super) fn source<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) -> Result<(), Error> {
    let result = instruction.results[0];
    let (to, count, scalar) = (c.result(result), c.len(result), c.number(result));
    match instruction.operation {
        Operation::Constant(number) => {
            let (bits, size) = (element::constant(number, scalar), scalar.size());
            c.push_once(Box::new(move |frame| {
                let bits = bits.to_le_bytes();
                // SAFETY: the place holds `count` elements of `size` bytes.
                unsafe { fill(frame.at(to), bits.as_ptr(), size, count) };
                Ok(())
            }));
        }
        Operation::Range { start } => c.push_once(Box::new(move |frame| {
            let place = frame.at(to).cast::<i32>();
            for i in 0..count {
                // SAFETY: the place holds `count` elements.
                unsafe { place.add(i).write(start.wrapping_add(i as i32)) };
            }
            Ok(())
        })),
        Operation::ProgramId(axis) | Operation::ProgramCount(axis) => {
            let is_id = matches!(instruction.operation, Operation::ProgramId(_));
            c.push(
                1,
                1.0,
                Box::new(move |frame| {
                    let of = if is_id { frame.program } else { frame.grid };
                    // SAFETY: the place holds an i32.
                    unsafe { frame.at(to).cast::<i32>().write(of[usize::from(axis).min(2)] as i32) };
                    Ok(())
                }),
            );
        }
        _ => return Err(c.unsupported(instruction.operation.name())),
    }
    Ok(())
}

/// Elements in another order, repeated, or as another type.
pub(super) fn moved<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) -> Result<(), Error> {
    let (operands, results) = (&instruction.operands, &instruction.results);
    let (x, from) = (operands[0], c.place(operands[0]));
    let size = element_size(c.type_of(x));
    let dims: Vec<usize> = c.type_of(x).dims.to_vec();
    match &instruction.operation {
        // The same elements in the same order.
        Operation::ExpandDims { .. }
        | Operation::Reshape
        | Operation::Unsplat
        | Operation::IntegerToPointer
        | Operation::PointerToInteger => c.alias(results[0], from),
        Operation::Splat => {
            let (to, count) = (c.result(results[0]), c.len(results[0]));
            let step = always(move |frame| {
                // SAFETY: the places hold `count` elements and one.
                unsafe { fill(frame.at(to), frame.at(from), size, count) }
            });
            c.push(count, 0.1, step);
        }
        Operation::Broadcast => {
            let steps: Vec<usize> =
                dense_steps(&dims).into_iter().zip(&dims).map(|(step, &d)| if d == 1 { 0 } else { step }).collect();
            strided(c, results[0], from, size, steps);
        }
        Operation::Permute { order } => {
            let steps = dense_steps(&dims);
            strided(c, results[0], from, size, order.iter().map(|&axis| steps[axis]).collect());
        }
        Operation::Join => {
            let (other, count) = (c.place(operands[1]), c.len(x));
            let to = c.result(results[0]);
            interleave(c, [from, other], [to, to + size], [size, 2 * size], size, count);
        }
        Operation::Split => {
            let count = c.len(results[0]);
            let to = [c.result(results[0]), c.result(results[1])];
            interleave(c, [from, from + size], to, [2 * size, size], size, count);
        }
        Operation::Concatenate => {
            let (other, count) = (c.place(operands[1]), c.len(x));
            let to = c.result(results[0]);
            interleave(c, [from, other], [to, to + count * size], [size, size], size, count);
        }
        Operation::Gather { axis } => gather(c, instruction, *axis)?,
        Operation::Histogram => histogram(c, instruction),
        _ => return Err(c.unsupported(instruction.operation.name())),
    }
    Ok(())
}

/// Elements from one index of each dimension to the next.
fn dense_steps(dims: &[usize]) -> Vec<usize> {
    (0..dims.len()).map(|axis| dims[axis + 1..].iter().product()).collect()
}

/// Copies every element from the place that the steps say.
fn strided(c: &mut Compiler, result: openmps_tile::Value, from: usize, size: usize, steps: Vec<usize>) {
    let (to, count) = (c.result(result), c.len(result));
    let dims: Vec<usize> = c.type_of(result).dims.to_vec();
    let offsets: Vec<u32> = (0..count)
        .map(|index| {
            let mut rest = index;
            let mut offset = 0;
            for (&d, &step) in dims.iter().zip(&steps).rev() {
                offset += rest % d * step;
                rest /= d;
            }
            (offset * size) as u32
        })
        .collect();
    c.push(
        count,
        1.0,
        Box::new(move |frame| {
            let (to, from) = (frame.at(to), frame.at(from));
            for (i, &offset) in offsets.iter().enumerate() {
                // SAFETY: offsets lie within the operand, `i` within the result.
                unsafe { copy_element(to.add(i * size), from.add(offset as usize), size) };
            }
            Ok(())
        }),
    );
}

/// Two runs of elements, each with its own steps between them.
fn interleave(
    c: &mut Compiler,
    from: [usize; 2],
    to: [usize; 2],
    [step_from, step_to]: [usize; 2],
    size: usize,
    count: usize,
) {
    c.push(
        2 * count,
        1.0,
        Box::new(move |frame| {
            for side in 0..2 {
                let (to, from) = (frame.at(to[side]), frame.at(from[side]));
                for i in 0..count {
                    // SAFETY: operand and result have `count` elements at these steps.
                    unsafe { copy_element(to.add(i * step_to), from.add(i * step_from), size) };
                }
            }
            Ok(())
        }),
    );
}

/// Copies one element of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// As for a copy of `size` bytes.
#[inline(always)]
pub(super) unsafe fn copy_element(to: *mut u8, from: *const u8, size: usize) {
    // SAFETY: the caller's promise; sizes are powers of two up to 8.
    unsafe {
        match size {
            1 => to.write(from.read()),
            2 => to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned()),
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            _ => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
        }
    }
}

fn gather<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction, axis: usize) -> Result<(), Error> {
    let [x, indices] = instruction.operands[..] else { return Err(c.unsupported("tt.gather")) };
    let result = instruction.results[0];
    let (from, at, to, count) = (c.place(x), c.place(indices), c.result(result), c.len(result));
    let (source, along) = (&c.type_of(x).dims, c.type_of(indices).dims[axis]);
    let (length, inner): (usize, usize) = (source[axis], source[axis + 1..].iter().product());
    let (size, wide) = (element_size(c.type_of(x)), c.number(indices) == Scalar::I64);
    let kernel = c.kernel.name.clone();
    c.push(
        count,
        2.0,
        Box::new(move |frame| {
            for i in 0..count {
                // SAFETY: the indices' place holds `count` of them.
                let index = unsafe {
                    if wide {
                        frame.at(at).cast::<i64>().add(i).read()
                    } else {
                        frame.at(at).cast::<i32>().add(i).read().into()
                    }
                };
                let Some(place) = usize::try_from(index).ok().filter(|&place| place < length) else {
                    return Err(Error::Invalid(format!("{kernel}: tt.gather: index {index} is outside 0 to {length}")));
                };
                let offset = (i / (along * inner) * length + place) * inner + i % inner;
                // SAFETY: the offset lies within the source.
                unsafe { copy_element(frame.at(to).add(i * size), frame.at(from).add(offset * size), size) };
            }
            Ok(())
        }),
    );
    Ok(())
}

fn histogram<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) {
    let (x, mask) = (instruction.operands[0], instruction.operands.get(1).map(|&mask| c.place(mask)));
    let result = instruction.results[0];
    let (from, count, to, bins) = (c.place(x), c.len(x), c.result(result), c.len(result));
    c.push(
        count,
        1.0,
        Box::new(move |frame| {
            // SAFETY: the places hold `bins` and `count` elements.
            let (counts, values) = unsafe {
                let counts = std::slice::from_raw_parts_mut(frame.at(to).cast::<i32>(), bins);
                (counts, std::slice::from_raw_parts(frame.at(from).cast::<i32>(), count))
            };
            counts.fill(0);
            for (i, &value) in values.iter().enumerate() {
                // SAFETY: a mask holds as many booleans.
                let counts_here = mask.is_none_or(|mask| unsafe { frame.at(mask).add(i).read() } != 0);
                if let Some(bin) = counts.get_mut(value as usize).filter(|_| counts_here && value >= 0) {
                    *bin += 1;
                }
            }
            Ok(())
        }),
    );
}
