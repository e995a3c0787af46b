//! Lowers pointers, and sums of integers that are known by row and by column.

use super::{Lowered, Lowering};
use crate::plan::operand::{Extents, Operand, Part, Slot, Spread, Sum, ViewKind, Width, plain};
use crate::plan::step::{IndexOperation, MapKind, Step, UnaryKind};
use crate::plan::value::Planned;
use crate::vector::{binary, cast};
use openmps_tile::{Binary, Cast, Scalar, Value};

/// Along which dimension integers differ.
#[derive(Clone, Copy)]
pub(super) enum Along {
    Rows,
    Columns,
}

impl Lowering<'_> {
    pub(super) fn add_pointer(&mut self, operands: &[Value]) -> Lowered<Planned> {
        let scale = self.scalar_of(operands[0]).size() as i64;
        match (self.get(operands[0])?, self.sum_of(operands[1])?) {
            (Planned::Pointer { base, offset }, Some(further)) => {
                let offset = self.add_sums(offset, further);
                Ok(Planned::Pointer { base, offset })
            }
            (Planned::Scattered { base, offsets }, Some(sum)) if sum.is_uniform() => {
                let base = self.byte_address(base, sum.base, scale as usize);
                Ok(Planned::Scattered { base, offsets })
            }
            // What differs element by element is one tile of offsets, to which the rest is added.
            (pointer, further) => {
                let (base, now, bytes) = match pointer {
                    Planned::Pointer { base, offset } => (base, Some(offset), None),
                    Planned::Scattered { base, offsets } => (base, None, Some(offsets)),
                    _ => (self.constant(0), None, Some(self.data(operands[0])?)),
                };
                let elements = match further {
                    Some(_) => None,
                    None => Some((self.data(operands[1])?, self.element_size(operands[1]))),
                };
                let zero = Sum::uniform(self.constant(0));
                let sum = self.add_sums(now.unwrap_or(zero), further.unwrap_or(zero));
                let extents = self.extents_of(operands[1]);
                Ok(Planned::Scattered { base, offsets: self.offsets(sum, elements, scale, bytes, extents) })
            }
        }
    }

    pub(super) fn integer_to_pointer(&mut self, x: Value) -> Lowered<Planned> {
        let (addresses, zero) = (self.data(x)?, self.constant(0));
        Ok(match addresses {
            Operand::Uniform(base) => Planned::Pointer { base, offset: Sum::uniform(zero) },
            offsets => Planned::Scattered { base: zero, offsets },
        })
    }

    pub(super) fn pointer_to_integer(&mut self, x: Value) -> Lowered<Planned> {
        Ok(match self.data(x)? {
            Operand::Uniform(slot) => Planned::Uniform(slot),
            data => Planned::Data(data),
        })
    }

    /// Pointers as a base and, for each element, an offset in bytes.
    pub(super) fn scattered(&mut self, pointers: Value) -> Lowered<(Slot, Operand)> {
        Ok(match self.get(pointers)? {
            Planned::Scattered { base, offsets } => (base, offsets),
            Planned::Pointer { base, offset } => {
                let (scale, extents) = (self.scalar_of(pointers).size() as i64, self.extents_of(pointers));
                (base, self.offsets(offset, None, scale, None, extents))
            }
            _ => (self.constant(0), self.data(pointers)?),
        })
    }

    /// Pointers as addresses.
    pub(super) fn addresses(&mut self, pointers: Value) -> Lowered<Operand> {
        if let Planned::Pointer { base, offset } = self.get(pointers)?
            && offset.is_uniform()
        {
            return Ok(Operand::Uniform(self.byte_address(base, offset.base, self.scalar_of(pointers).size())));
        }
        let (base, offsets) = self.scattered(pointers)?;
        if self.known(base) == Some(0) {
            return Ok(offsets);
        }
        let extents = self.extents_of(pointers);
        Ok(self.offsets(Sum::uniform(base), None, 1, Some(offsets), extents))
    }

    fn offsets(
        &mut self,
        sum: Sum,
        elements: Option<(Operand, usize)>,
        scale: i64,
        bytes: Option<Operand>,
        extents: Extents,
    ) -> Operand {
        let target = self.target(&extents, 8);
        self.emit_tile(Step::Offsets { target, sum, elements, scale, bytes, extents }, &extents, 0.4);
        plain(target.register)
    }

    /// Integers of 32 or 64 bits as a sum, where they do not differ element by element.
    pub(super) fn sum_of(&mut self, value: Value) -> Lowered<Option<Sum>> {
        let size = self.element_size(value);
        Ok(match self.get(value)? {
            Planned::Uniform(slot) => Some(Sum::uniform(slot)),
            Planned::Index(sum) => Some(sum),
            Planned::Data(operand) if size >= 4 && self.extents_of(value).len() > 1 => {
                self.part_of(operand, value).map(|spread| {
                    let base = self.constant(0);
                    Sum { base, spread }
                })
            }
            _ => None,
        })
    }

    fn part_of(&self, operand: Operand, value: Value) -> Option<Spread> {
        let (extents, size) = (self.extents_of(value), self.element_size(value));
        Some(match self.along(operand, extents)? {
            Along::Rows => {
                let rows = Some(Part { operand, size, count: extents.rows.full });
                Spread { rows, ..Spread::NONE }
            }
            Along::Columns => {
                let columns = Some(Part { operand, size, count: extents.columns.full });
                Spread { columns, ..Spread::NONE }
            }
        })
    }

    fn along(&self, operand: Operand, extents: Extents) -> Option<Along> {
        let Operand::Register { view, .. } = operand else { return None };
        match view {
            ViewKind::Column | ViewKind::RepeatColumns => Some(Along::Rows),
            ViewKind::RepeatRows => Some(Along::Columns),
            ViewKind::Plain if extents.columns.full == 1 => Some(Along::Rows),
            ViewKind::Plain if extents.rows.full == 1 => Some(Along::Columns),
            _ => None,
        }
    }

    /// The sum of two sums of elements from an address, which are counted in 64 bits whatever each was counted in.
    fn add_sums(&mut self, x: Sum, y: Sum) -> Sum {
        let base = self.index(IndexOperation::Add, x.base, y.base, Width::Whole);
        let (left, right) = (self.widened_beside(x.spread, y.spread), self.widened_beside(y.spread, x.spread));
        Sum { base, spread: self.add_spreads(left, right) }
    }

    /// A spread whose parts are of 64 bits where those of another one will be added to them.
    fn widened_beside(&mut self, spread: Spread, other: Spread) -> Spread {
        let mut widen = |along, part: Option<Part>, other: Option<Part>| match other {
            Some(_) => part.map(|part| self.widened(along, part, 8)),
            None => part,
        };
        let rows = widen(Along::Rows, spread.rows, other.rows);
        let columns = widen(Along::Columns, spread.columns, other.columns);
        Spread { rows, columns, ..spread }
    }

    pub(super) fn add_spreads(&mut self, x: Spread, y: Spread) -> Spread {
        Spread {
            row_stride: self.stride(IndexOperation::Add, x.row_stride, y.row_stride),
            column_stride: self.stride(IndexOperation::Add, x.column_stride, y.column_stride),
            rows: self.add_parts(Along::Rows, x.rows, y.rows),
            columns: self.add_parts(Along::Columns, x.columns, y.columns),
        }
    }

    /// A spread times one number.
    pub(super) fn scale_spread(&mut self, x: Spread, by: Slot) -> Spread {
        let mut times =
            |stride: Option<Slot>| stride.map(|stride| self.index(IndexOperation::Multiply, stride, by, Width::Whole));
        let (row_stride, column_stride) = (times(x.row_stride), times(x.column_stride));
        let by = Operand::Uniform(by);
        let rows = x.rows.map(|part| self.map_part(Along::Rows, part, by, Binary::Multiply));
        let columns = x.columns.map(|part| self.map_part(Along::Columns, part, by, Binary::Multiply));
        Spread { row_stride, column_stride, rows, columns }
    }

    fn add_parts(&mut self, along: Along, x: Option<Part>, y: Option<Part>) -> Option<Part> {
        let (Some(x), Some(y)) = (x, y) else { return x.or(y) };
        let size = x.size.max(y.size);
        let [x, y] = [x, y].map(|part| self.widened(along, part, size));
        Some(self.map_part(along, x, y.operand, Binary::Add))
    }

    /// A part as integers of this size.
    fn widened(&mut self, along: Along, part: Part, size: usize) -> Part {
        let (true, Some(function)) = (part.size < size, cast::cast(Cast::Signed, Scalar::I32, Scalar::I64)) else {
            return part;
        };
        let extents = extents_along(along, part);
        let target = self.target(&extents, size);
        let step =
            Step::MapUnary { function, kind: UnaryKind::Other, target, x: part.operand, x_size: part.size, extents };
        self.emit_tile(step, &extents, 0.2);
        Part { operand: plain(target.register), size, ..part }
    }

    /// The numbers of a part with those of another one, or with one number.
    fn map_part(&mut self, along: Along, x: Part, y: Operand, operation: Binary) -> Part {
        let scalar = if x.size == 8 { Scalar::I64 } else { Scalar::I32 };
        let Some(function) = binary::binary(operation, scalar) else { return x };
        let (extents, size) = (extents_along(along, x), x.size);
        let target = self.target(&extents, size);
        self.emit_tile(
            Step::MapBinary { function, kind: MapKind::Other, target, x: x.operand, y, size, extents },
            &extents,
            0.15,
        );
        Part { operand: plain(target.register), ..x }
    }
}

/// As many rows or columns as a part has integers.
fn extents_along(along: Along, part: Part) -> Extents {
    match along {
        Along::Rows => Extents::full(part.count, 1),
        Along::Columns => Extents::full(1, part.count),
    }
}
