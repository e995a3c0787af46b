//! Lowers what gives a tile other dimensions.

use super::pointer::Along;
use super::{Lowered, Lowering};
use crate::plan::operand::{Extents, Operand, Part, Spread, Sum, ViewKind, plain};
use crate::plan::step::Step;
use crate::plan::value::{Planned, compose};
use openmps_tile::Value;

impl Lowering<'_> {
    /// The same elements in the same order with other dimensions.
    pub(super) fn reshape(&mut self, x: Value, result: Value) -> Lowered<Planned> {
        let (from, to) = (self.extents_of(x).shape(), self.extents_of(result).shape());
        let planned = self.get(x)?;
        if from == to {
            return Ok(planned);
        }
        if from.0 == 1
            && to.1 == 1
            && let Some(column) = to_column(planned)
        {
            return Ok(column);
        }
        let relaid = |lowering: &mut Self, sum: Sum| {
            let spread = match (sum.spread, from, to) {
                (spread, ..) if !spread.is_affine() => return None,
                // One row is cut into several; a column becomes a row.
                (spread, (1, _), (_, columns)) => {
                    let columns = lowering.constant(columns as i64);
                    let row_stride = spread.column_stride.map(|stride| {
                        lowering.index(
                            crate::plan::step::IndexOperation::Multiply,
                            stride,
                            columns,
                            crate::plan::operand::Width::Whole,
                        )
                    });
                    Spread { row_stride, column_stride: spread.column_stride, ..Spread::NONE }
                }
                (spread, (_, 1), (1, _)) => Spread { column_stride: spread.row_stride, ..Spread::NONE },
                _ => return None,
            };
            Some(Sum { spread, ..sum })
        };
        Ok(match planned {
            Planned::Uniform(_) => planned,
            Planned::Index(sum) if let Some(sum) = relaid(self, sum) => Planned::Index(sum),
            Planned::Pointer { base, offset } if let Some(offset) = relaid(self, offset) => {
                Planned::Pointer { base, offset }
            }
            _ => {
                let operand = self.dense(x)?;
                if let Operand::Uniform(_) = operand {
                    self.as_planned(result, operand)
                } else {
                    self.copied("tt.reshape", operand, result)
                }
            }
        })
    }

    pub(super) fn broadcast(&mut self, x: Value, result: Value) -> Lowered<Planned> {
        let (from, to) = (self.extents_of(x), self.extents_of(result));
        let is_mapped = from.rows.full != 1 && from.rows.full != to.rows.full;
        let repeat_rows = from.rows.full == 1 && to.rows.full != 1;
        let repeat_columns = from.columns.full == 1 && to.columns.full != 1;
        let source = RowsOf { x, result };
        let planned = match self.get(x)? {
            Planned::Uniform(_) => return self.get(x),
            Planned::Index(sum) => Planned::Index(self.repeated(sum, from, &source)),
            Planned::Pointer { base, offset } => {
                Planned::Pointer { base, offset: self.repeated(offset, from, &source) }
            }
            Planned::Clip(clip) => {
                // A clip of what is repeated has no form of its own.
                let is_kept = (clip.rows.clip.is_none() || !is_mapped && !repeat_rows)
                    && (clip.columns.clip.is_none() || !repeat_columns);
                if is_kept {
                    let rows = if is_mapped || repeat_rows { to.rows } else { clip.rows };
                    let columns = if repeat_columns { to.columns } else { clip.columns };
                    return Ok(Planned::Clip(Extents { rows, columns }));
                }
                Planned::Data(self.data(x)?)
            }
            Planned::Data(_) => Planned::Data(self.data(x)?),
            planned @ Planned::Scattered { .. } => planned,
        };
        let (base, operand, size) = match planned {
            Planned::Data(operand) => (None, operand, self.element_size(x)),
            Planned::Scattered { base, offsets } => (Some(base), offsets, 8),
            symbolic => return Ok(symbolic),
        };
        let mut operand = operand;
        if is_mapped {
            operand = self.mapped_rows(operand, (from.shape(), size), &source);
        }
        let mut shape = (if is_mapped { to.rows.full } else { from.rows.full }, from.columns.full);
        for (is_wanted, view) in [(repeat_rows, ViewKind::RepeatRows), (repeat_columns, ViewKind::RepeatColumns)] {
            if is_wanted {
                operand = self.viewed(operand, view, shape, size);
                if view == ViewKind::RepeatRows { shape.0 = to.rows.full } else { shape.1 = to.columns.full }
            }
        }
        Ok(match base {
            Some(base) => Planned::Scattered { base, offsets: operand },
            None => Planned::Data(operand),
        })
    }

    /// An operand of this shape through one more view, by way of a copy where two views do not go together.
    fn viewed(&mut self, operand: Operand, next: ViewKind, (rows, columns): (usize, usize), size: usize) -> Operand {
        let Operand::Register { register, view } = operand else { return operand };
        match compose(view, next) {
            Some(view) => Operand::Register { register, view },
            None => {
                let kept = self.kept(operand, Extents::full(rows, columns), size);
                self.viewed(kept, next, (rows, columns), size)
            }
        }
    }

    /// A sum over more rows and columns than it was made for: where rows are not simply repeated, what differs by row is listed.
    fn repeated(&mut self, mut sum: Sum, from: Extents, source: &RowsOf) -> Sum {
        // What has one place has no distance to the next, and the same integer in all of them.
        let to = self.extents_of(source.result);
        if from.columns.full == 1 {
            sum.spread.column_stride = None;
            sum.spread.columns = sum.spread.columns.map(|part| self.spread_out(Along::Columns, part, to.columns.full));
        }
        if from.rows.full == 1 {
            sum.spread.row_stride = None;
            sum.spread.rows = sum.spread.rows.map(|part| self.spread_out(Along::Rows, part, to.rows.full));
        }
        let Spread { row_stride, rows, .. } = sum.spread;
        let is_mapped = from.rows.full != 1 && from.rows.full != to.rows.full;
        if !is_mapped || row_stride.is_none() && rows.is_none() {
            return sum;
        }
        let spread = Spread { row_stride, rows, ..Spread::NONE };
        let listed = Sum { base: self.constant(0), spread };
        let column = Extents::full(from.rows.full, 1);
        let operand = self.counted(listed, column, 8);
        let operand = self.mapped_rows(operand, ((from.rows.full, 1), 8), source);
        let rows = Some(Part { operand, size: 8, count: to.rows.full });
        Sum { spread: Spread { row_stride: None, rows, ..sum.spread }, ..sum }
    }

    /// A part of one integer as so many.
    fn spread_out(&mut self, along: Along, part: Part, count: usize) -> Part {
        if count == 1 {
            return part;
        }
        let (view, extents) = match along {
            Along::Rows => (ViewKind::RepeatRows, Extents::full(count, 1)),
            Along::Columns => (ViewKind::RepeatColumns, Extents::full(1, count)),
        };
        let one = self.viewed(part.operand, view, (1, 1), part.size);
        Part { operand: self.kept(one, extents, part.size), count, ..part }
    }

    /// Rows in the order in which a broadcast of outer dimensions repeats them.
    fn mapped_rows(&mut self, operand: Operand, (shape, size): ((usize, usize), usize), source: &RowsOf) -> Operand {
        let Operand::Register { .. } = operand else { return operand };
        let dense = self.dense_operand(operand, Extents::full(shape.0, shape.1), size);
        let (from, to) = (self.kernel.dims_of(source.x).clone(), self.kernel.dims_of(source.result).clone());
        let outer = from.len() - 1;
        let rows = row_map(&from[..outer], &to[..outer]);
        self.copied_rows(dense, rows, shape.1 * size)
    }

    pub(super) fn permute(&mut self, x: Value, order: &[usize], result: Value) -> Lowered<Planned> {
        let planned = self.get(x)?;
        if order.iter().enumerate().all(|(at, &axis)| at == axis) {
            return Ok(planned);
        }
        Ok(match planned {
            Planned::Uniform(_) => planned,
            Planned::Index(sum) if order.len() == 2 && sum.spread.is_affine() => {
                Planned::Index(Sum { spread: sum.spread.transposed(), ..sum })
            }
            Planned::Pointer { base, offset } if order.len() == 2 && offset.spread.is_affine() => {
                Planned::Pointer { base, offset: Sum { spread: offset.spread.transposed(), ..offset } }
            }
            Planned::Clip(Extents { rows, columns }) if order.len() == 2 => {
                Planned::Clip(Extents { rows: columns, columns: rows })
            }
            Planned::Data(Operand::Register { register, view: ViewKind::Plain }) if order.len() == 2 => {
                Planned::Data(Operand::Register { register, view: ViewKind::Transposed })
            }
            Planned::Data(Operand::Register { register, view: ViewKind::Transposed }) if order.len() == 2 => {
                Planned::Data(plain(register))
            }
            _ => {
                let operand = self.dense(x)?;
                self.permuted(operand, x, order, result)
            }
        })
    }

    /// A copy of a tile, one row after the other.
    pub(super) fn kept(&mut self, source: Operand, extents: Extents, size: usize) -> Operand {
        let target = self.target(&extents, size);
        self.emit_tile(Step::CopyTile { target, source, extents, direct: false }, &extents, 0.1);
        plain(target.register)
    }

    /// An operand as a tile whose rows follow each other.
    pub(super) fn dense_operand(&mut self, operand: Operand, extents: Extents, size: usize) -> Operand {
        match operand {
            Operand::Register { view: ViewKind::Plain, .. } => operand,
            _ => self.kept(operand, extents, size),
        }
    }

    /// A value's elements one row after the other, for work on whole tiles; a scalar's slot.
    pub(super) fn dense(&mut self, value: Value) -> Lowered<Operand> {
        let operand = self.data(value)?;
        if self.is_one(value) {
            return Ok(operand);
        }
        let (extents, size) = (self.extents_of(value), self.element_size(value));
        Ok(self.dense_operand(operand, extents, size))
    }
}

/// The tile that is broadcast, and what it becomes.
struct RowsOf {
    x: Value,
    result: Value,
}

/// For each row of the result the row that it repeats.
fn row_map(from: &[usize], to: &[usize]) -> Vec<usize> {
    let count: usize = to.iter().product();
    let row = |index: usize| {
        let (mut rest, mut row, mut step) = (index, 0, 1);
        for (&from, &to) in from.iter().zip(to).rev() {
            if from > 1 {
                row += rest % to * step;
            }
            rest /= to;
            step *= from;
        }
        row
    };
    (0..count).map(row).collect()
}

/// One row as a column, where that is only another way to look at it.
fn to_column(planned: Planned) -> Option<Planned> {
    let turned = |sum: Sum| {
        let columns = match sum.spread.columns {
            None => None,
            Some(part) => {
                let Operand::Register { register, view } = part.operand else { return None };
                let view = compose(view, ViewKind::Column)?;
                Some(Part { operand: Operand::Register { register, view }, ..part })
            }
        };
        let spread = Spread { row_stride: sum.spread.column_stride, rows: columns, ..Spread::NONE };
        Some(Sum { spread, ..sum })
    };
    let column = |operand: Operand| match operand {
        Operand::Uniform(_) => Some(operand),
        Operand::Register { register, view } => {
            Some(Operand::Register { register, view: compose(view, ViewKind::Column)? })
        }
    };
    Some(match planned {
        Planned::Uniform(_) => planned,
        Planned::Index(sum) => Planned::Index(turned(sum)?),
        Planned::Pointer { base, offset } => Planned::Pointer { base, offset: turned(offset)? },
        Planned::Scattered { base, offsets } => Planned::Scattered { base, offsets: column(offsets)? },
        Planned::Clip(clip) if clip.rows.clip.is_none() => {
            Planned::Clip(Extents { rows: clip.columns, columns: Extents::full(1, 1).columns })
        }
        Planned::Clip(_) => return None,
        Planned::Data(operand) => Planned::Data(column(operand)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_outer_dimensions_are_repeated_in_order() {
        assert_eq!(row_map(&[2, 1], &[2, 3]), [0, 0, 0, 1, 1, 1]);
        assert_eq!(row_map(&[1, 3], &[2, 3]), [0, 1, 2, 0, 1, 2]);
        assert_eq!(row_map(&[2, 1, 2], &[2, 2, 2]), [0, 1, 0, 1, 2, 3, 2, 3]);
    }
}
