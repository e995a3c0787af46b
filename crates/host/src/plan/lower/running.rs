//! Scans whose block is one operation, as `tl.cumsum` is written: runs of elements in registers, or one row with the row before it.

use super::{Lowered, Lowering};
use crate::plan::call::Places;
use crate::plan::fold::Axis;
use crate::vector::binary::{BinaryFunction, binary};
use crate::vector::reduce::{ScanFunction, scan};
use openmps_tile::{Combine, Instruction, Operation};
use std::sync::Arc;

impl Lowering<'_> {
    /// Lowers such a scan; whether it was one.
    pub(super) fn running(&mut self, instruction: &Instruction, axis: usize, reverse: bool) -> Lowered<bool> {
        let (&[x], block) = (&instruction.operands[..], &instruction.blocks[0]) else { return Ok(false) };
        let [one, _] = &block.instructions[..] else { return Ok(false) };
        let Operation::Binary(operation) = one.operation else { return Ok(false) };
        let is_all = one.operands == block.arguments && one.results == block.ends();
        let (scalar, axis) = (self.scalar_of(x), Axis::new(self.kernel.dims_of(x), axis));
        let along = Combine::by(operation).and_then(|combine| scan(combine, scalar));
        let (Some(along), Some(by_row), true) = (along, binary(operation, scalar), is_all) else { return Ok(false) };
        let (full, data, size) = (self.extents_of(x), self.data(x)?, self.element_size(x));
        let source = self.dense_operand(data, full, size);
        let work = Arc::new(move |places: &Places| {
            // SAFETY: both tiles have the elements of the axis' lines.
            unsafe {
                match axis.inner {
                    1 => lines(along, places, (axis, size), reverse),
                    _ => rows(by_row, places, (axis, size), reverse),
                }
            }
            Ok(())
        });
        let planned = self.emit_call("tt.scan", vec![source], instruction.results[0], 0.4, work);
        self.planned.insert(instruction.results[0], planned);
        Ok(true)
    }
}

/// # Safety
/// Operand and result have so many elements as the axis' lines have, which are neighbours.
unsafe fn lines(function: ScanFunction, places: &Places, (axis, size): (Axis, usize), reverse: bool) {
    let bytes = axis.length * size;
    for line in 0..axis.outer {
        // SAFETY: the caller's promise.
        unsafe {
            function(places.writes[0].add(line * bytes), places.reads[0].add(line * bytes), axis.length, reverse);
        }
    }
}

/// # Safety
/// Operand and result have so many elements as the axis' lines have.
unsafe fn rows(function: BinaryFunction, places: &Places, (axis, size): (Axis, usize), reverse: bool) {
    let Axis { outer, length, inner } = axis;
    for (line, step) in (0..outer).flat_map(|line| (0..length).map(move |step| (line, step))) {
        let place = |step: usize| (line * length + if reverse { length - 1 - step } else { step }) * inner * size;
        // SAFETY: the places lie within the tiles; the one before has been written.
        unsafe {
            let (from, to) = (places.reads[0].add(place(step)), places.writes[0].add(place(step)));
            match step {
                0 => from.copy_to_nonoverlapping(to, inner * size),
                _ => function(to, places.writes[0].add(place(step - 1)), false, from, false, inner),
            }
        }
    }
}
