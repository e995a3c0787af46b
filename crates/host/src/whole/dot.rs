//! Products of matrices, by the crate `gemm`; of integers by plain loops.

use super::always;
use super::compiler::Compiler;
use crate::error::Error;
use crate::native::memory::MAX_RANK;
use crate::plan::product::{self, Factor};
use crate::vector::cast;
use openmps_tile::kernel::Instruction;
use openmps_tile::{Cast, Scalar};

/// `x * y + sum`, for each of a batch.
pub(super) fn dot<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) -> Result<(), Error> {
    let [x, y, sum] = instruction.operands[..] else { return Err(c.unsupported("tt.dot")) };
    let result = instruction.results[0];
    debug_assert!(c.type_of(x).dims.len() <= MAX_RANK);
    let (narrow, wide) = (c.number(x), c.number(result));
    let [.., rows, depth] = c.type_of(x).dims[..] else { return Err(c.unsupported("tt.dot")) };
    let columns = c.len(y) / (c.len(x) / rows);
    let batch = c.len(x) / (rows * depth);
    let (initial, to, bytes) = (c.place(sum), c.result(result), c.bytes(result));
    let (mut left, mut right) = (c.place(x), c.place(y));
    if narrow != wide && wide.is_float() {
        left = widened(c, left, c.len(x), narrow)?;
        right = widened(c, right, c.len(y), narrow)?;
    }
    let size = wide.size();
    c.push(
        batch * rows * columns,
        0.05 * depth as f64,
        Box::new(move |frame| {
            // SAFETY: the places hold the tiles; the result overlaps neither factor.
            unsafe {
                std::ptr::copy(frame.at(initial), frame.at(to), bytes);
                for b in 0..batch {
                    let to = frame.at(to).add(b * rows * columns * size);
                    let step = if wide == Scalar::I32 { 1 } else { size };
                    let left = frame.at(left).add(b * rows * depth * step);
                    let right = frame.at(right).add(b * depth * columns * step);
                    let shape = (rows, columns, depth);
                    let target = (to, (columns * size) as isize);
                    let factors = [Factor::dense(left, depth * size), Factor::dense(right, columns * size)];
                    match wide {
                        Scalar::I32 => integers(shape, to.cast(), left.cast(), right.cast()),
                        Scalar::F64 => product::add::<f64>(shape, target, factors),
                        _ => product::add::<f32>(shape, target, factors),
                    }
                }
            }
            Ok(())
        }),
    );
    Ok(())
}

/// A copy of a tile in float32; its place.
fn widened(c: &mut Compiler, from: usize, count: usize, narrow: Scalar) -> Result<usize, Error> {
    let to = c.reserve(count * 4);
    let widen = cast::cast(Cast::Float, narrow, Scalar::F32);
    let widen = widen.ok_or_else(|| c.unsupported(format!("tt.dot of {}", narrow.name())))?;
    let step = always(move |frame| {
        // SAFETY: both places hold `count` elements of their types.
        unsafe { widen(frame.at(to), frame.at(from), count) }
    });
    c.push(count, 0.3, step);
    Ok(to)
}

/// Adds a product of i8 matrices to one of i32.
///
/// # Safety
/// Rows x columns, rows x depth and depth x columns elements.
unsafe fn integers((rows, columns, depth): (usize, usize, usize), to: *mut i32, x: *const i8, y: *const i8) {
    for row in 0..rows {
        for k in 0..depth {
            // SAFETY: the caller's promise.
            let factor = i32::from(unsafe { x.add(row * depth + k).read() });
            for column in 0..columns {
                // SAFETY: as above.
                unsafe {
                    let place = to.add(row * columns + column);
                    let term = factor.wrapping_mul(i32::from(y.add(k * columns + column).read()));
                    place.write(place.read().wrapping_add(term));
                }
            }
        }
    }
}
