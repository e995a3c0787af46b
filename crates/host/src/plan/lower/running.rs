//! Scans whose block adds, as `tl.cumsum` is written: one element after the other, or one row of them.

use super::{Lowered, Lowering};
use crate::plan::call::Places;
use crate::plan::fold::Axis;
use openmps_tile::{Binary, Instruction, Operation, Scalar};
use std::sync::Arc;

/// Running sums of a tile into another one.
type RunningFunction = unsafe fn(from: *const u8, to: *mut u8, axis: Axis, reverse: bool);

impl Lowering<'_> {
    /// Lowers such a scan; whether it was one.
    pub(super) fn running_sum(&mut self, instruction: &Instruction, axis: usize, reverse: bool) -> Lowered<bool> {
        let (&[x], block) = (&instruction.operands[..], &instruction.blocks[0]) else { return Ok(false) };
        let [sum, _] = &block.instructions[..] else { return Ok(false) };
        let adds = sum.operation == Operation::Binary(Binary::Add)
            && sum.operands == block.arguments
            && sum.results == block.ends();
        let Some(function) = running(self.scalar_of(x)).filter(|_| adds) else { return Ok(false) };
        let axis = Axis::new(self.kernel.dims_of(x), axis);
        let (full, data, size) = (self.extents_of(x), self.data(x)?, self.element_size(x));
        let source = self.dense_operand(data, full, size);
        let work = Arc::new(move |places: &Places| {
            // SAFETY: both tiles have the elements of the axis' lines.
            unsafe { function(places.reads[0], places.writes[0], axis, reverse) };
            Ok(())
        });
        let planned = self.emit_call("tt.scan", vec![source], instruction.results[0], 1.5, work);
        self.planned.insert(instruction.results[0], planned);
        Ok(true)
    }
}

/// The function for numbers of a type; none for those that are added in another one.
fn running(scalar: Scalar) -> Option<RunningFunction> {
    Some(match scalar {
        // SAFETY: the caller's promise.
        Scalar::F32 => |from, to, axis, reverse| unsafe { add_up::<f32>(from, to, axis, reverse, |x, y| x + y) },
        // SAFETY: as above.
        Scalar::F64 => |from, to, axis, reverse| unsafe { add_up::<f64>(from, to, axis, reverse, |x, y| x + y) },
        // SAFETY: as above.
        Scalar::I32 => |from, to, axis, reverse| unsafe { add_up::<i32>(from, to, axis, reverse, i32::wrapping_add) },
        // SAFETY: as above.
        Scalar::I64 => |from, to, axis, reverse| unsafe { add_up::<i64>(from, to, axis, reverse, i64::wrapping_add) },
        _ => return None,
    })
}

/// # Safety
/// Both addresses are of so many elements as the axis' lines have, apart from each other.
unsafe fn add_up<T: Copy>(from: *const u8, to: *mut u8, axis: Axis, reverse: bool, add: impl Fn(T, T) -> T) {
    let Axis { outer, length, inner } = axis;
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for line in 0..outer {
        for step in 0..length {
            let place = |step: usize| (line * length + if reverse { length - 1 - step } else { step }) * inner;
            // SAFETY: the places lie within the tiles; the one before has been written.
            unsafe {
                let (from, to, before) = (from.add(place(step)), to.add(place(step)), to.add(place(step.max(1) - 1)));
                for i in 0..inner {
                    let x = from.add(i).read_unaligned();
                    to.add(i).write_unaligned(if step == 0 { x } else { add(before.add(i).read_unaligned(), x) });
                }
            }
        }
    }
}
