//! Lowers operations on tiles: element by element, reductions, and changes of view.

use super::lower::{Lowered, Lowering, refuse};
use super::step::{Extent, Extents, IndexOperation, Operand, Slot, Step, ViewKind, Width};
use super::value::{Affine, Planned, compose, width_of};
use crate::vector::{binary, cast, memory, reduce, unary};
use openmps_tile::{Binary, Cast, Combine, Compare, Scalar, Unary, Value};

/// A guess at nanoseconds an element, to decide whether threads are worth waking.
fn cost(operation: Unary) -> f64 {
    match operation {
        Unary::Negate | Unary::Absolute | Unary::Not | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Truncate => {
            0.1
        }
        Unary::Sqrt | Unary::Rsqrt => 0.4,
        Unary::Exp | Unary::Exp2 | Unary::Log | Unary::Log2 | Unary::Tanh | Unary::Erf => 0.8,
        _ => 2.0,
    }
}

impl Lowering<'_> {
    /// A value as something that steps can read, with the part of it that is defined.
    pub fn data(&mut self, value: Value) -> Lowered<(Operand, Extents)> {
        let full = self.extents_of(value)?;
        let size = self.scalar_of(value).size();
        match self.get(value)? {
            Planned::Data { operand, extents } => Ok((operand, extents)),
            Planned::Uniform(slot) => Ok((Operand::Uniform(slot), full)),
            Planned::Index(affine) => {
                let target = self.target(&full, size);
                let Affine { base, row_stride, column_stride } = affine;
                self.emit_tile(Step::CountUp { target, base, row_stride, column_stride, extents: full }, &full, 0.2);
                Ok((plain(target.register), full))
            }
            Planned::Clip(clip) => {
                let target = self.target(&full, 1);
                self.emit_tile(Step::MaskTile { target, clip, extents: full }, &full, 0.05);
                Ok((plain(target.register), full))
            }
            Planned::Pointer { .. } | Planned::ScatteredPointer { .. } => refuse("arithmetic on pointers as numbers"),
        }
    }

    /// The smaller of two clips of one dimension.
    pub fn smaller(&mut self, x: Extent, y: Extent) -> Extent {
        let clip = match (x.clip, y.clip) {
            (Some(a), Some(b)) if a != b => Some(self.index(IndexOperation::Minimum, a, b, Width::Whole)),
            (a, b) => a.or(b),
        };
        Extent { full: x.full, clip }
    }

    /// Where both are defined.
    pub fn intersection(&mut self, x: Extents, y: Extents) -> Extents {
        Extents { rows: self.smaller(x.rows, y.rows), columns: self.smaller(x.columns, y.columns) }
    }

    pub(super) fn unary(&mut self, operation: Unary, x: Value, result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(x);
        let Some(function) = unary::unary(operation, scalar) else {
            return self.through_single(result, &[x], |lowering, operands| {
                let function = unary::unary(operation, Scalar::F32);
                lowering.map_unary(function, operands[0], 4, 4, cost(operation))
            });
        };
        if let Planned::Uniform(slot) = self.get(x)? {
            return Ok(Planned::Uniform(self.scalar_unary(function, slot, width_of(scalar))));
        }
        let operand = self.data(x)?;
        self.map_unary(Some(function), operand, scalar.size(), scalar.size(), cost(operation))
    }

    fn map_unary(
        &mut self,
        function: Option<unary::UnaryFunction>,
        (x, extents): (Operand, Extents),
        x_size: usize,
        size: usize,
        ns: f64,
    ) -> Lowered<Planned> {
        let Some(function) = function else { return refuse("an operation on this number type") };
        if let Operand::Uniform(slot) = x {
            return Ok(Planned::Uniform(self.scalar_unary(function, slot, Width::Whole)));
        }
        let target = self.target(&extents, size);
        self.emit_tile(Step::MapUnary { function, target, x, x_size, extents }, &extents, ns);
        Ok(Planned::Data { operand: plain(target.register), extents })
    }

    /// Arithmetic of the half types: widen, compute in float32, round.
    fn through_single(
        &mut self,
        result: Value,
        operands: &[Value],
        compute: impl FnOnce(&mut Self, &[(Operand, Extents)]) -> Lowered<Planned>,
    ) -> Lowered<Planned> {
        let scalar = self.scalar_of(operands[0]);
        if !matches!(scalar, Scalar::F16 | Scalar::BF16) {
            return refuse(format!("this operation on {}", scalar.name()));
        }
        let mut wide = Vec::new();
        for &operand in operands {
            let data = self.data(operand)?;
            wide.push(self.convert(data, Cast::Float, scalar, Scalar::F32)?);
        }
        let computed = compute(self, &wide)?;
        let to = self.scalar_of(result);
        if to == Scalar::I1 {
            return Ok(computed);
        }
        let (operand, extents) = match computed {
            Planned::Data { operand, extents } => (operand, extents),
            Planned::Uniform(slot) => (Operand::Uniform(slot), wide[0].1),
            other => return Ok(other),
        };
        Ok(match self.convert((operand, extents), Cast::Float, Scalar::F32, to)? {
            (Operand::Uniform(slot), _) => Planned::Uniform(slot),
            (operand, extents) => Planned::Data { operand, extents },
        })
    }

    fn convert(&mut self, x: (Operand, Extents), kind: Cast, from: Scalar, to: Scalar) -> Lowered<(Operand, Extents)> {
        if let Operand::Uniform(slot) = x.0 {
            return Ok((Operand::Uniform(self.scalar_cast(kind, from, to, slot)?), x.1));
        }
        let function = cast::cast(kind, from, to);
        match self.map_unary(function, x, from.size(), to.size(), 0.2)? {
            Planned::Data { operand, extents } => Ok((operand, extents)),
            _ => refuse(kind.text()),
        }
    }

    pub(super) fn cast(&mut self, kind: Cast, x: Value, result: Value) -> Lowered<Planned> {
        let (from, to) = (self.scalar_of(x), self.scalar_of(result));
        match (kind, self.get(x)?) {
            // The same bits: only the name of the type changes.
            (Cast::Bits, planned) if from.size() == to.size() => return Ok(planned),
            (_, Planned::Uniform(slot)) => return Ok(Planned::Uniform(self.scalar_cast(kind, from, to, slot)?)),
            (Cast::Signed, Planned::Index(affine)) if to.size() >= from.size() => return Ok(Planned::Index(affine)),
            _ => {}
        }
        let operand = self.data(x)?;
        let (operand, extents) = self.convert(operand, kind, from, to)?;
        Ok(Planned::Data { operand, extents })
    }

    pub(super) fn binary(&mut self, operation: Binary, operands: &[Value], result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(operands[0]);
        let (x, y) = (self.get(operands[0])?, self.get(operands[1])?);
        if !scalar.is_float()
            && scalar != Scalar::I1
            && let Some(planned) = self.symbolic(operation, scalar, x, y)
        {
            return Ok(planned);
        }
        if let (Binary::And, Planned::Clip(x), Planned::Clip(y)) = (operation, x, y) {
            return Ok(Planned::Clip(self.intersection(x, y)));
        }
        let Some(function) = binary::binary(operation, scalar) else {
            return self.through_single(result, operands, |lowering, wide| {
                let function = binary::binary(operation, Scalar::F32);
                lowering.map_binary(function, wide[0], wide[1], 4, 4, 0.15)
            });
        };
        if let (Planned::Uniform(x), Planned::Uniform(y)) = (x, y) {
            return Ok(Planned::Uniform(self.scalar_binary(function, x, y, width_of(scalar))));
        }
        let (x, y) = (self.data(operands[0])?, self.data(operands[1])?);
        let ns = match operation {
            Binary::Power | Binary::Atan2 | Binary::Remainder => 15.0,
            Binary::Divide => 0.4,
            _ => 0.15,
        };
        self.map_binary(Some(function), x, y, scalar.size(), scalar.size(), ns)
    }

    fn map_binary(
        &mut self,
        function: Option<binary::BinaryFunction>,
        (x, x_extents): (Operand, Extents),
        (y, y_extents): (Operand, Extents),
        size: usize,
        result_size: usize,
        ns: f64,
    ) -> Lowered<Planned> {
        let Some(function) = function else { return refuse("an operation on this number type") };
        if let (Operand::Uniform(x), Operand::Uniform(y)) = (x, y) {
            return Ok(Planned::Uniform(self.scalar_binary(function, x, y, Width::Whole)));
        }
        let extents = self.intersection(x_extents, y_extents);
        let target = self.target(&extents, result_size);
        self.emit_tile(Step::MapBinary { function, target, x, y, size, extents }, &extents, ns);
        Ok(Planned::Data { operand: plain(target.register), extents })
    }

    /// Index arithmetic that stays affine.
    fn symbolic(&mut self, operation: Binary, scalar: Scalar, x: Planned, y: Planned) -> Option<Planned> {
        let index = Self::index_operation(operation)?;
        let width = width_of(scalar);
        if let (Planned::Uniform(x), Planned::Uniform(y)) = (x, y) {
            return Some(Planned::Uniform(self.index(index, x, y, width)));
        }
        let (x, y) = (affine(x)?, affine(y)?);
        let combined = match operation {
            Binary::Add | Binary::Subtract => Affine {
                base: self.index(index, x.base, y.base, width),
                row_stride: self.stride(index, x.row_stride, y.row_stride),
                column_stride: self.stride(index, x.column_stride, y.column_stride),
            },
            Binary::Multiply if y.is_uniform() => self.scale(x, y.base, width),
            Binary::Multiply if x.is_uniform() => self.scale(y, x.base, width),
            _ => return None,
        };
        Some(Planned::Index(combined))
    }

    fn stride(&mut self, index: IndexOperation, x: Option<Slot>, y: Option<Slot>) -> Option<Slot> {
        match (x, y) {
            (None, None) => None,
            (Some(x), None) => Some(x),
            (None, Some(y)) if index == IndexOperation::Add => Some(y),
            (x, Some(y)) => {
                let x = x.unwrap_or_else(|| self.constant(0));
                Some(self.index(index, x, y, Width::Whole))
            }
        }
    }

    fn scale(&mut self, x: Affine, by: Slot, width: Width) -> Affine {
        let mut times = |slot: Slot, width| self.index(IndexOperation::Multiply, slot, by, width);
        Affine {
            base: times(x.base, width),
            row_stride: x.row_stride.map(|stride| times(stride, Width::Whole)),
            column_stride: x.column_stride.map(|stride| times(stride, Width::Whole)),
        }
    }

    pub(super) fn compare(&mut self, comparison: Compare, operands: &[Value], result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(operands[0]);
        let (x, y) = (self.get(operands[0])?, self.get(operands[1])?);
        if !scalar.is_float() {
            let bound = match (comparison, x, y) {
                (Compare::Less, Planned::Index(index), Planned::Uniform(bound)) => Some((index, bound, 0)),
                (Compare::LessEqual, Planned::Index(index), Planned::Uniform(bound)) => Some((index, bound, 1)),
                (Compare::Greater, Planned::Uniform(bound), Planned::Index(index)) => Some((index, bound, 0)),
                (Compare::GreaterEqual, Planned::Uniform(bound), Planned::Index(index)) => Some((index, bound, 1)),
                _ => None,
            };
            if let Some((index, bound, extra)) = bound {
                let full = self.extents_of(result)?;
                if let Some(clip) = self.clip(index, bound, extra, full) {
                    return Ok(Planned::Clip(clip));
                }
            }
        }
        let Some(function) = binary::compare(comparison, scalar) else {
            return self.through_single(result, operands, |lowering, wide| {
                lowering.map_binary(binary::compare(comparison, Scalar::F32), wide[0], wide[1], 4, 1, 0.15)
            });
        };
        if let (Planned::Uniform(x), Planned::Uniform(y)) = (x, y) {
            return Ok(Planned::Uniform(self.scalar_binary(function, x, y, Width::Truth)));
        }
        let (x, y) = (self.data(operands[0])?, self.data(operands[1])?);
        self.map_binary(Some(function), x, y, scalar.size(), 1, 0.15)
    }

    /// The extents in which an index that grows along one dimension stays below a bound.
    fn clip(&mut self, index: Affine, bound: Slot, extra: i64, full: Extents) -> Option<Extents> {
        let (stride, along_rows) = match (index.row_stride, index.column_stride) {
            (Some(stride), None) => (stride, true),
            (None, Some(stride)) => (stride, false),
            _ => return None,
        };
        if self.known(stride)? <= 0 {
            return None;
        }
        let extra = self.constant(extra);
        let room = self.index(IndexOperation::Subtract, bound, index.base, Width::Whole);
        let room = self.index(IndexOperation::Add, room, extra, Width::Whole);
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
        let size = self.scalar_of(result).size();
        let full = self.extents_of(result)?;
        let planned = [self.get(operands[0])?, self.get(operands[1])?, self.get(operands[2])?];
        if let [Planned::Uniform(condition), Planned::Uniform(x), Planned::Uniform(y)] = planned {
            return Ok(Planned::Uniform(self.scalar_select(condition, x, y)));
        }
        let (x, x_extents) = self.data(operands[1])?;
        let (y, y_extents) = self.data(operands[2])?;
        if let (Planned::Clip(clip), true) = (planned[0], y_extents == full) {
            // Outside of the clip only `y` counts, so that `x` may be undefined there.
            if x_extents == full || x_extents == clip {
                let target = self.target(&full, size);
                let step = Step::MapClip { target, clip, inside: x, outside: y, extents: full };
                self.emit_tile(step, &full, 0.15);
                return Ok(Planned::Data { operand: plain(target.register), extents: full });
            }
        }
        let (condition, condition_extents) = self.data(operands[0])?;
        let extents = self.intersection(x_extents, y_extents);
        let extents = self.intersection(extents, condition_extents);
        let target = self.target(&extents, size);
        let function = memory::select(size);
        self.emit_tile(Step::MapSelect { function, target, condition, x, y, extents }, &extents, 0.2);
        Ok(Planned::Data { operand: plain(target.register), extents })
    }

    pub(super) fn reduce(&mut self, combine: Combine, x: Value, axis: usize, result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(x);
        let Some(function) = reduce::reduce(combine, scalar) else {
            return self.through_single(result, &[x], |lowering, wide| {
                lowering.reduce_data(combine, wide[0], Scalar::F32, axis, x)
            });
        };
        let _ = function;
        let operand = self.data(x)?;
        self.reduce_data(combine, operand, scalar, axis, x)
    }

    fn reduce_data(
        &mut self,
        combine: Combine,
        (source, extents): (Operand, Extents),
        scalar: Scalar,
        axis: usize,
        x: Value,
    ) -> Lowered<Planned> {
        let (Some(function), Some(identity)) = (reduce::reduce(combine, scalar), reduce::identity(combine, scalar))
        else {
            return refuse(format!("a {} of {}", combine.text(), scalar.name()));
        };
        let size = scalar.size();
        let rank = self.kernel.dims_of(x).len();
        let reduced = if axis + 1 == rank { extents.columns } else { extents.rows };
        if reduced.clip.is_some() {
            return refuse("a reduction over elements that a mask leaves undefined (give the load an `other`)");
        }
        if rank == 1 {
            let destination = self.slot();
            let width = width_of(scalar);
            self.emit_tile(Step::ReduceAll { function, destination, source, size, width, extents }, &extents, 0.15);
            return Ok(Planned::Uniform(destination));
        }
        let one = Extent { full: 1, clip: None };
        let result = if axis == 1 {
            Extents { rows: one, columns: extents.rows }
        } else {
            Extents { rows: one, columns: extents.columns }
        };
        let target = self.target(&result, size);
        let step = match (axis, combine_function(combine, scalar)) {
            (1, _) => Step::ReduceRows { function, target, source, extents },
            (_, Some(combine)) => Step::ReduceColumns { combine, identity, target, source, extents },
            (_, None) => return refuse(format!("a {} of {} along axis 0", combine.text(), scalar.name())),
        };
        self.emit_tile(step, &extents, 0.15);
        Ok(Planned::Data { operand: plain(target.register), extents: result })
    }

    /// Half factors are widened: their products are exact in float32.
    pub(super) fn dot(&mut self, operands: &[Value]) -> Lowered<Planned> {
        let (scalar, wide) = (self.scalar_of(operands[0]), self.scalar_of(operands[2]));
        let mut factors = Vec::new();
        for &operand in &operands[..2] {
            let (data, extents) = self.data(operand)?;
            if extents != self.extents_of(operand)? {
                return refuse("a tt.dot of elements that a mask leaves undefined (give the load an `other`)");
            }
            let data = if scalar == wide { data } else { self.convert((data, extents), Cast::Float, scalar, wide)?.0 };
            factors.push(data);
        }
        let (sum, extents) = self.data(operands[2])?;
        let depth = self.extents_of(operands[0])?.columns.full;
        let target = self.target(&extents, wide.size());
        let (x, y) = (factors[0], factors[1]);
        // 40 multiplications a nanosecond.
        let ns = depth as f64 / 40.0;
        self.emit_tile(Step::Dot { target, x, y, sum, depth, extents }, &extents, ns);
        Ok(Planned::Data { operand: plain(target.register), extents })
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
            Planned::Data { operand: Operand::Register { register, view }, extents } => {
                let Some(view) = compose(view, ViewKind::Column) else { return refuse("this chain of views") };
                let operand = Operand::Register { register, view };
                Planned::Data { operand, extents: Extents { rows: extents.columns, columns: one } }
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
            Planned::Data { operand: operand @ Operand::Register { .. }, extents } => {
                Planned::Data { operand: repeated(operand)?, extents: widened(extents) }
            }
            Planned::ScatteredPointer { base, offsets, offset_size } => {
                Planned::ScatteredPointer { base, offsets: repeated(offsets)?, offset_size }
            }
            other => other,
        })
    }
}

/// A register as it was written.
pub(super) fn plain(register: usize) -> Operand {
    Operand::Register { register, view: ViewKind::Plain }
}

fn affine(planned: Planned) -> Option<Affine> {
    match planned {
        Planned::Uniform(slot) => Some(Affine::uniform(slot)),
        Planned::Index(affine) => Some(affine),
        _ => None,
    }
}

fn to_column(affine: Affine) -> Affine {
    Affine { base: affine.base, row_stride: affine.column_stride, column_stride: None }
}

/// The element-by-element form of a combination.
fn combine_function(combine: Combine, scalar: Scalar) -> Option<binary::BinaryFunction> {
    let operation = match combine {
        Combine::Sum => Binary::Add,
        Combine::Product => Binary::Multiply,
        Combine::Minimum => Binary::Minimum,
        Combine::Maximum => Binary::Maximum,
        Combine::MinimumNumber => Binary::MinimumNumber,
        Combine::MaximumNumber => Binary::MaximumNumber,
        Combine::And => Binary::And,
        Combine::Or => Binary::Or,
    };
    binary::binary(operation, scalar)
}
