//! Lowers comparisons, which are often the bounds of a tile, and what is chosen by them.

use super::{Lowered, Lowering};
use crate::plan::operand::{Extents, Operand, Slot, Sum, Width, plain};
use crate::plan::step::{IndexOperation, MapKind, Step};
use crate::plan::value::{Filled, Planned};
use crate::vector::{binary, memory};
use openmps_tile::{Compare, Scalar, Value};

impl Lowering<'_> {
    pub(super) fn compare(&mut self, comparison: Compare, operands: &[Value], result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(operands[0]);
        let (x, y) = (self.get(operands[0])?, self.get(operands[1])?);
        // Booleans are compared as the bytes that they are.
        let scalar = if scalar == Scalar::I1 { Scalar::I8 } else { scalar };
        if !scalar.is_float() {
            let bound = match (comparison, x, y) {
                (Compare::Less, Planned::Index(index), Planned::Uniform(bound)) => Some((index, bound, 0)),
                (Compare::LessEqual, Planned::Index(index), Planned::Uniform(bound)) => Some((index, bound, 1)),
                (Compare::Greater, Planned::Uniform(bound), Planned::Index(index)) => Some((index, bound, 0)),
                (Compare::GreaterEqual, Planned::Uniform(bound), Planned::Index(index)) => Some((index, bound, 1)),
                _ => None,
            };
            if let Some((index, bound, extra)) = bound {
                let full = self.extents_of(result);
                if let Some(clip) = self.clip(index, bound, extra, full) {
                    return Ok(Planned::Clip(clip));
                }
            }
        }
        let Some(function) = binary::compare(comparison, scalar) else {
            return self.through_single(result, operands, |lowering, wide| {
                let (function, extents) = (binary::compare(comparison, Scalar::F32), lowering.extents_of(result));
                lowering.map_binary(function, MapKind::Comparison(comparison), wide[0], wide[1], extents, [4, 1], 0.15)
            });
        };
        if let (Planned::Uniform(x), Planned::Uniform(y)) = (x, y) {
            return Ok(Planned::Uniform(self.scalar_binary(function, x, y, Width::Truth)));
        }
        let (x, y) = (self.data(operands[0])?, self.data(operands[1])?);
        let extents = self.extents_of(result);
        let kind = if scalar == Scalar::F32 { MapKind::Comparison(comparison) } else { MapKind::Other };
        self.map_binary(Some(function), kind, x, y, extents, [scalar.size(), 1], 0.15)
    }

    /// The extents in which an index that grows along one dimension stays below a bound, or below what is so much above it.
    fn clip(&mut self, index: Sum, bound: Slot, extra: i64, full: Extents) -> Option<Extents> {
        let (stride, along_rows) = match (index.spread.row_stride, index.spread.column_stride) {
            _ if !index.spread.is_affine() => return None,
            (Some(stride), None) => (stride, true),
            (None, Some(stride)) => (stride, false),
            _ => return None,
        };
        if self.known(stride)? <= 0 {
            return None;
        }
        // A bound may be the largest number of all.
        let less = self.constant(-extra);
        let room = self.index(IndexOperation::SaturatingSubtract, bound, index.base, Width::Whole);
        let room = self.index(IndexOperation::SaturatingSubtract, room, less, Width::Whole);
        let clip = if self.known(stride) == Some(1) {
            room
        } else {
            self.index(IndexOperation::DivideUp, room, stride, Width::Whole)
        };
        let mut extents = full;
        let dimension = if along_rows { &mut extents.rows } else { &mut extents.columns };
        dimension.clip = Some(clip);
        Some(extents)
    }

    pub(super) fn select(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        let (full, size) = (self.extents_of(result), self.element_size(result));
        let planned = [self.get(operands[0])?, self.get(operands[1])?, self.get(operands[2])?];
        let (x, y) = (self.data(operands[1])?, self.data(operands[2])?);
        if let (Planned::Uniform(condition), Operand::Uniform(x), Operand::Uniform(y)) = (planned[0], x, y) {
            let chosen = self.scalar_select(condition, x, y);
            return Ok(self.as_planned(result, Operand::Uniform(chosen)));
        }
        let target = self.target(&full, size);
        if let Planned::Clip(clip) = planned[0] {
            let step = Step::MapClip { target, clip, inside: x, outside: y, extents: full };
            self.emit_tile(step, &full, 0.15);
            if let Operand::Uniform(rest) = y {
                self.filled.insert(target.register, Filled { inside: x, part: clip, rest });
            }
            return Ok(self.as_planned(result, plain(target.register)));
        }
        let condition = self.data(operands[0])?;
        let function = memory::select(size);
        self.emit_tile(Step::MapSelect { function, target, condition, x, y, extents: full }, &full, 0.2);
        Ok(self.as_planned(result, plain(target.register)))
    }
}
