//! Lowers what gives a tile other dimensions: reductions, products of matrices, changes of view.

use super::lower::{Lowered, Lowering, refuse};
use super::lower_tile::plain;
use super::step::{Extent, Extents, Operand, Step, ViewKind};
use super::value::{Affine, Filled, Planned, compose, width_of};
use crate::vector::{binary, reduce};
use openmps_tile::{Cast, Combine, Scalar, Value};

impl Lowering<'_> {
    pub(super) fn reduce(&mut self, combine: Combine, x: Value, axis: usize, result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(x);
        if reduce::reduce(combine, scalar).is_none() {
            return self.through_single(result, &[x], |lowering, wide| {
                lowering.reduce_data(combine, wide[0], Scalar::F32, axis, x)
            });
        }
        let operand = self.data(x)?;
        self.reduce_data(combine, operand, scalar, axis, x)
    }

    fn reduce_data(
        &mut self,
        combine: Combine,
        source: Operand,
        scalar: Scalar,
        axis: usize,
        x: Value,
    ) -> Lowered<Planned> {
        let (Some(function), Some(identity)) = (reduce::reduce(combine, scalar), reduce::identity(combine, scalar))
        else {
            return refuse(format!("a {} of {}", combine.text(), scalar.name()));
        };
        let size = scalar.size();
        let (rank, full) = (self.kernel.dims_of(x).len(), self.extents_of(x)?);
        let (source, extents) = self.without_rest(source, identity, size).unwrap_or((source, full));
        if rank == 1 {
            let destination = self.slot();
            let width = width_of(scalar);
            self.emit_tile(Step::ReduceAll { function, destination, source, size, width, extents }, &full, 0.15);
            return Ok(Planned::Uniform(destination));
        }
        let one = Extent { full: 1, clip: None };
        let result = if axis == 1 {
            Extents { rows: one, columns: full.rows }
        } else {
            Extents { rows: one, columns: full.columns }
        };
        let target = self.target(&result, size);
        let step = match (axis, binary::binary(combine.operation(), scalar)) {
            (1, _) => Step::ReduceRows { function, target, source, extents },
            (_, Some(combine)) => Step::ReduceColumns { combine, identity, target, source, extents },
            (_, None) => return refuse(format!("a {} of {} along axis 0", combine.text(), scalar.name())),
        };
        self.emit_tile(step, &full, 0.15);
        Ok(Planned::Data(plain(target.register)))
    }

    /// What is left to reduce of a tile that holds the reduction's identity outside of a part.
    fn without_rest(&self, source: Operand, identity: [u8; 8], size: usize) -> Option<(Operand, Extents)> {
        let Operand::Register { register, view: ViewKind::Plain } = source else { return None };
        let Filled { inside, part, rest } = *self.filled.get(&register)?;
        let rest = self.literal(rest)?.to_le_bytes();
        (rest[..size] == identity[..size]).then_some((inside, part))
    }

    /// Half factors are widened: their products are exact in float32.
    pub(super) fn dot(&mut self, operands: &[Value]) -> Lowered<Planned> {
        let (scalar, wide) = (self.scalar_of(operands[0]), self.scalar_of(operands[2]));
        let mut factors = Vec::new();
        for &operand in &operands[..2] {
            let (data, extents) = (self.data(operand)?, self.extents_of(operand)?);
            factors.push(if scalar == wide { data } else { self.convert(data, extents, Cast::Float, scalar, wide)? });
        }
        let (sum, extents) = (self.data(operands[2])?, self.extents_of(operands[2])?);
        let depth = self.extents_of(operands[0])?.columns.full;
        let target = self.target(&extents, wide.size());
        let (x, y) = (factors[0], factors[1]);
        // 40 multiplications a nanosecond.
        let ns = depth as f64 / 40.0;
        self.emit_tile(Step::Dot { target, x, y, sum, depth, extents }, &extents, ns);
        Ok(Planned::Data(plain(target.register)))
    }

    pub(super) fn expand_dims(&mut self, x: Value, axis: usize) -> Lowered<Planned> {
        let rank = self.kernel.dims_of(x).len();
        if rank == 0 {
            return self.get(x);
        }
        if rank != 1 {
            return refuse("tt.expand_dims to more than two dimensions");
        }
        if axis == 0 {
            return self.get(x);
        }
        let one = Extent { full: 1, clip: None };
        Ok(match self.get(x)? {
            Planned::Index(affine) => Planned::Index(to_column(affine)),
            Planned::Pointer { base, offset } => Planned::Pointer { base, offset: to_column(offset) },
            Planned::Clip(extents) => Planned::Clip(Extents { rows: extents.columns, columns: one }),
            Planned::Data(Operand::Register { register, view }) => {
                let Some(view) = compose(view, ViewKind::Column) else { return refuse("this chain of views") };
                Planned::Data(Operand::Register { register, view })
            }
            Planned::ScatteredPointer { .. } => return refuse("tt.expand_dims of scattered pointers"),
            uniform => uniform,
        })
    }

    pub(super) fn broadcast(&mut self, x: Value, result: Value) -> Lowered<Planned> {
        let (from, to) = (self.extents_of(x)?, self.extents_of(result)?);
        let repeat_rows = from.rows.full == 1 && to.rows.full != 1;
        let repeat_columns = from.columns.full == 1 && to.columns.full != 1;
        let widened = |extents: Extents| Extents {
            rows: if repeat_rows { to.rows } else { extents.rows },
            columns: if repeat_columns { to.columns } else { extents.columns },
        };
        let repeated = |operand: Operand| {
            let Operand::Register { register, view } = operand else { return Ok(operand) };
            let mut composed = Some(view);
            if repeat_rows {
                composed = composed.and_then(|view| compose(view, ViewKind::RepeatRows));
            }
            if repeat_columns {
                composed = composed.and_then(|view| compose(view, ViewKind::RepeatColumns));
            }
            let Some(view) = composed else { return refuse("this chain of views") };
            Ok(Operand::Register { register, view })
        };
        Ok(match self.get(x)? {
            Planned::Clip(extents) => Planned::Clip(widened(extents)),
            Planned::Data(operand) => Planned::Data(repeated(operand)?),
            Planned::ScatteredPointer { base, offsets, offset_size } => {
                Planned::ScatteredPointer { base, offsets: repeated(offsets)?, offset_size }
            }
            other => other,
        })
    }
}

fn to_column(affine: Affine) -> Affine {
    Affine { base: affine.base, row_stride: affine.column_stride, column_stride: None }
}
