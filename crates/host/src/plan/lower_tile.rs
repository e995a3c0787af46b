//! Lowers operations on tiles, element by element.

use super::lower::{Lowered, Lowering, refuse};
use super::step::{Extent, Extents, IndexOperation, Operand, Slot, Step, ViewKind, Width};
use super::value::{Affine, Filled, Form, Planned, width_of};
use crate::vector::{binary, cast, memory, unary};
use openmps_tile::{Binary, Cast, Compare, Scalar, Unary, Value};

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
    /// A value as something that steps can read.
    pub fn data(&mut self, value: Value) -> Lowered<Operand> {
        let full = self.extents_of(value)?;
        let size = self.scalar_of(value).size();
        match self.get(value)? {
            Planned::Data(operand) => Ok(operand),
            Planned::Uniform(slot) => Ok(Operand::Uniform(slot)),
            Planned::Index(affine) => {
                let target = self.target(&full, size);
                let Affine { base, row_stride, column_stride } = affine;
                self.emit_tile(Step::CountUp { target, base, row_stride, column_stride, extents: full }, &full, 0.2);
                Ok(plain(target.register))
            }
            Planned::Clip(clip) => {
                let target = self.target(&full, 1);
                self.emit_tile(Step::MaskTile { target, clip, extents: full }, &full, 0.05);
                Ok(plain(target.register))
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
                let extents = lowering.extents_of(x)?;
                lowering.map_unary(function, operands[0], extents, [4, 4], cost(operation))
            });
        };
        if let Planned::Uniform(slot) = self.get(x)? {
            return Ok(Planned::Uniform(self.scalar_unary(function, slot, width_of(scalar))));
        }
        let (operand, extents) = (self.data(x)?, self.extents_of(x)?);
        let planned = self.map_unary(Some(function), operand, extents, [scalar.size(); 2], cost(operation))?;
        let form = match (operation, self.form_of(operand)) {
            (Unary::Negate, _) => Some(Form::Negated(operand)),
            (Unary::Exp, Some(Form::Negated(of))) => Some(Form::ExponentialOfNegated(of)),
            _ => None,
        };
        self.remember(planned, form.filter(|_| scalar == Scalar::F32));
        Ok(planned)
    }

    fn form_of(&self, operand: Operand) -> Option<Form> {
        let Operand::Register { register, view: ViewKind::Plain } = operand else { return None };
        self.forms.get(&register).copied()
    }

    fn remember(&mut self, planned: Planned, form: Option<Form>) {
        if let (Planned::Data(Operand::Register { register, .. }), Some(form)) = (planned, form) {
            self.forms.insert(register, form);
        }
    }

    fn map_unary(
        &mut self,
        function: Option<unary::UnaryFunction>,
        x: Operand,
        extents: Extents,
        [x_size, size]: [usize; 2],
        ns: f64,
    ) -> Lowered<Planned> {
        let Some(function) = function else { return refuse("an operation on this number type") };
        if let Operand::Uniform(slot) = x {
            return Ok(Planned::Uniform(self.scalar_unary(function, slot, Width::Whole)));
        }
        let target = self.target(&extents, size);
        self.emit_tile(Step::MapUnary { function, target, x, x_size, extents }, &extents, ns);
        Ok(Planned::Data(plain(target.register)))
    }

    /// Arithmetic of the half types: widen, compute in float32, round.
    pub(super) fn through_single(
        &mut self,
        result: Value,
        operands: &[Value],
        compute: impl FnOnce(&mut Self, &[Operand]) -> Lowered<Planned>,
    ) -> Lowered<Planned> {
        let scalar = self.scalar_of(operands[0]);
        if !matches!(scalar, Scalar::F16 | Scalar::BF16) {
            return refuse(format!("this operation on {}", scalar.name()));
        }
        let mut wide = Vec::new();
        for &operand in operands {
            let (data, extents) = (self.data(operand)?, self.extents_of(operand)?);
            wide.push(self.convert(data, extents, Cast::Float, scalar, Scalar::F32)?);
        }
        let computed = compute(self, &wide)?;
        let to = self.scalar_of(result);
        if to == Scalar::I1 {
            return Ok(computed);
        }
        let operand = match computed {
            Planned::Data(operand) => operand,
            Planned::Uniform(slot) => Operand::Uniform(slot),
            other => return Ok(other),
        };
        let extents = self.extents_of(result)?;
        Ok(match self.convert(operand, extents, Cast::Float, Scalar::F32, to)? {
            Operand::Uniform(slot) => Planned::Uniform(slot),
            operand => Planned::Data(operand),
        })
    }

    pub(super) fn convert(
        &mut self,
        x: Operand,
        extents: Extents,
        kind: Cast,
        from: Scalar,
        to: Scalar,
    ) -> Lowered<Operand> {
        if let Operand::Uniform(slot) = x {
            return Ok(Operand::Uniform(self.scalar_cast(kind, from, to, slot)?));
        }
        let function = cast::cast(kind, from, to);
        match self.map_unary(function, x, extents, [from.size(), to.size()], 0.2)? {
            Planned::Data(operand) => Ok(operand),
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
        let (operand, extents) = (self.data(x)?, self.extents_of(x)?);
        Ok(Planned::Data(self.convert(operand, extents, kind, from, to)?))
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
                let extents = lowering.extents_of(result)?;
                lowering.map_binary(function, wide[0], wide[1], extents, [4, 4], 0.15)
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
        let extents = self.extents_of(result)?;
        // Bits that are only named otherwise are of the same register.
        if let (Binary::Divide, Scalar::F32, Some(Form::OneAndExponential(of))) = (operation, scalar, self.form_of(y)) {
            // The steps to the divisor are left out where nobody else reads them.
            return self.map_binary(Some(binary::over_one_and_exponential()), x, of, extents, [4, 4], 1.0);
        }
        let planned = self.map_binary(Some(function), x, y, extents, [scalar.size(); 2], ns)?;
        let is_one = |operand: Operand| {
            let Operand::Uniform(slot) = operand else { return false };
            self.literal(slot) == Some(u64::from(1f32.to_bits()))
        };
        let form = match (operation, self.form_of(x), self.form_of(y)) {
            (Binary::Add, Some(Form::ExponentialOfNegated(of)), _) if is_one(y) => Some(Form::OneAndExponential(of)),
            (Binary::Add, _, Some(Form::ExponentialOfNegated(of))) if is_one(x) => Some(Form::OneAndExponential(of)),
            _ => None,
        };
        self.remember(planned, form.filter(|_| scalar == Scalar::F32));
        Ok(planned)
    }

    fn map_binary(
        &mut self,
        function: Option<binary::BinaryFunction>,
        x: Operand,
        y: Operand,
        extents: Extents,
        [size, result_size]: [usize; 2],
        ns: f64,
    ) -> Lowered<Planned> {
        let Some(function) = function else { return refuse("an operation on this number type") };
        if let (Operand::Uniform(x), Operand::Uniform(y)) = (x, y) {
            return Ok(Planned::Uniform(self.scalar_binary(function, x, y, Width::Whole)));
        }
        let target = self.target(&extents, result_size);
        self.emit_tile(Step::MapBinary { function, target, x, y, size, extents }, &extents, ns);
        Ok(Planned::Data(plain(target.register)))
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
                let (function, extents) = (binary::compare(comparison, Scalar::F32), lowering.extents_of(result)?);
                lowering.map_binary(function, wide[0], wide[1], extents, [4, 1], 0.15)
            });
        };
        if let (Planned::Uniform(x), Planned::Uniform(y)) = (x, y) {
            return Ok(Planned::Uniform(self.scalar_binary(function, x, y, Width::Truth)));
        }
        let (x, y) = (self.data(operands[0])?, self.data(operands[1])?);
        let extents = self.extents_of(result)?;
        self.map_binary(Some(function), x, y, extents, [scalar.size(), 1], 0.15)
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
        let (x, y) = (self.data(operands[1])?, self.data(operands[2])?);
        let target = self.target(&full, size);
        if let Planned::Clip(clip) = planned[0] {
            let step = Step::MapClip { target, clip, inside: x, outside: y, extents: full };
            self.emit_tile(step, &full, 0.15);
            if let Operand::Uniform(rest) = y {
                self.filled.insert(target.register, Filled { inside: x, part: clip, rest });
            }
            return Ok(Planned::Data(plain(target.register)));
        }
        let condition = self.data(operands[0])?;
        let function = memory::select(size);
        self.emit_tile(Step::MapSelect { function, target, condition, x, y, extents: full }, &full, 0.2);
        Ok(Planned::Data(plain(target.register)))
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
