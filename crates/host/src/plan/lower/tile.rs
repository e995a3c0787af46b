//! Lowers operations on tiles, element by element.

use super::{Lowered, Lowering, refuse};
use crate::plan::operand::{Extent, Extents, Operand, Slot, Spread, Sum, ViewKind, Width, plain};
use crate::plan::step::{IndexOperation, MapKind, Step, UnaryKind};
use crate::plan::value::{Form, Planned, width_of};
use crate::vector::{binary, cast, fused, unary};
use openmps_tile::{Binary, Cast, Scalar, Unary, Value};

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
    /// A value as something that steps can read; pointers are addresses.
    pub fn data(&mut self, value: Value) -> Lowered<Operand> {
        let (full, size) = (self.extents_of(value), self.element_size(value));
        match self.get(value)? {
            Planned::Data(Operand::Register { register, view: ViewKind::Transposed }) => {
                Ok(self.turned(plain(register), full, size))
            }
            Planned::Data(operand) => Ok(operand),
            Planned::Uniform(slot) => Ok(Operand::Uniform(slot)),
            Planned::Index(sum) => Ok(self.counted(sum, full, size)),
            Planned::Clip(clip) => {
                let target = self.target(&full, 1);
                self.emit_tile(Step::MaskTile { target, clip, extents: full }, &full, 0.05);
                Ok(plain(target.register))
            }
            Planned::Pointer { .. } | Planned::Scattered { .. } => self.addresses(value),
        }
    }

    /// A sum as integers of this size.
    pub(super) fn counted(&mut self, sum: Sum, full: Extents, size: usize) -> Operand {
        let wide = if sum.spread.is_affine() { size } else { 8 };
        let target = self.target(&full, wide);
        if sum.spread.is_affine() {
            self.emit_tile(Step::CountUp { target, sum, extents: full }, &full, 0.2);
            return plain(target.register);
        }
        let step = Step::Offsets { target, sum, elements: None, scale: 1, bytes: None, extents: full };
        self.emit_tile(step, &full, 0.4);
        let narrow = cast::cast(Cast::Signed, Scalar::I64, Scalar::I32).filter(|_| size == 4);
        let (Some(function), x) = (narrow, plain(target.register)) else { return plain(target.register) };
        let target = self.target(&full, size);
        let kind = UnaryKind::Other;
        self.emit_tile(Step::MapUnary { function, kind, target, x, x_size: wide, extents: full }, &full, 0.2);
        plain(target.register)
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
                let extents = lowering.extents_of(x);
                let kind = UnaryKind::Operation(operation);
                lowering.map_unary(function, kind, operands[0], extents, [4, 4], cost(operation))
            });
        };
        if let Planned::Uniform(slot) = self.get(x)? {
            return Ok(Planned::Uniform(self.scalar_unary(function, slot, width_of(scalar))));
        }
        let (operand, extents) = (self.data(x)?, self.extents_of(x));
        if let (Some(Form::Difference([x, y])), Some(function)) =
            (self.form_of(operand), binary::exponential_of_difference(operation))
        {
            // The difference is left out where nobody else reads it.
            let kind = MapKind::Exponential(operation);
            return self.map_binary(Some(function), kind, x, y, extents, [4, 4], cost(operation));
        }
        let kind = UnaryKind::of(operation, scalar);
        let planned = self.map_unary(Some(function), kind, operand, extents, [scalar.size(); 2], cost(operation))?;
        let form = match (operation, self.form_of(operand)) {
            (Unary::Negate, _) => Some(Form::Negated(operand)),
            (Unary::Exp, Some(Form::Negated(of))) => Some(Form::ExponentialOfNegated(of)),
            _ => None,
        };
        self.remember(planned, form.filter(|_| scalar == Scalar::F32));
        Ok(planned)
    }

    pub(super) fn form_of(&self, operand: Operand) -> Option<Form> {
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
        kind: UnaryKind,
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
        self.emit_tile(Step::MapUnary { function, kind, target, x, x_size, extents }, &extents, ns);
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
            let (data, extents) = (self.data(operand)?, self.extents_of(operand));
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
        let extents = self.extents_of(result);
        Ok(match self.convert(operand, extents, Cast::Float, Scalar::F32, to)? {
            Operand::Uniform(slot) => Planned::Uniform(slot),
            operand => Planned::Data(operand),
        })
    }

    pub(super) fn convert(
        &mut self,
        x: Operand,
        extents: Extents,
        cast: Cast,
        from: Scalar,
        to: Scalar,
    ) -> Lowered<Operand> {
        if let Operand::Uniform(slot) = x {
            return Ok(Operand::Uniform(self.scalar_cast(cast, from, to, slot)?));
        }
        let function = cast::cast(cast, from, to);
        let kind = UnaryKind::of_cast(cast, from, to);
        match self.map_unary(function, kind, x, extents, [from.size(), to.size()], 0.2)? {
            Planned::Data(operand) => Ok(operand),
            _ => refuse(cast.text()),
        }
    }

    pub(super) fn cast(&mut self, kind: Cast, x: Value, result: Value) -> Lowered<Planned> {
        let (from, to) = (self.scalar_of(x), self.scalar_of(result));
        match (kind, self.get(x)?) {
            // The same bits; integers in slots have a sign in front of them.
            (Cast::Bits, Planned::Uniform(x)) => {
                let (y, width) = (self.constant(0), width_of(to));
                let operation = IndexOperation::Add;
                let extended =
                    self.emit_scalar(&[x], |destination| Step::Index { operation, destination, x, y, width });
                return Ok(Planned::Uniform(extended));
            }
            (Cast::Bits, Planned::Index(_) | Planned::Clip(_)) => return Ok(Planned::Data(self.data(x)?)),
            (Cast::Bits, planned) => return Ok(planned),
            (_, Planned::Uniform(slot)) => return Ok(Planned::Uniform(self.scalar_cast(kind, from, to, slot)?)),
            // What memory holds has wrapped before it is widened.
            (Cast::Signed, Planned::Index(sum)) if to.size() >= from.size() && sum.spread.is_affine() => {
                return Ok(Planned::Index(sum));
            }
            _ => {}
        }
        let (operand, extents) = (self.data(x)?, self.extents_of(x));
        Ok(Planned::Data(self.convert(operand, extents, kind, from, to)?))
    }

    pub(super) fn binary(&mut self, operation: Binary, operands: &[Value], result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(operands[0]);
        let (x, y) = (self.get(operands[0])?, self.get(operands[1])?);
        if !scalar.is_float()
            && scalar != Scalar::I1
            && let Some(planned) = self.symbolic(operation, operands, result)?
        {
            return Ok(planned);
        }
        match (operation, x, y) {
            (Binary::And, Planned::Clip(x), Planned::Clip(y)) => return Ok(Planned::Clip(self.intersection(x, y))),
            (Binary::And, Planned::Clip(clip), Planned::Uniform(truth))
            | (Binary::And, Planned::Uniform(truth), Planned::Clip(clip)) => {
                return Ok(Planned::Clip(self.where_true(truth, clip)));
            }
            _ => {}
        }
        let Some(function) = binary::binary(operation, scalar) else {
            return self.through_single(result, operands, |lowering, wide| {
                let function = binary::binary(operation, Scalar::F32);
                let extents = lowering.extents_of(result);
                let kind = MapKind::of(operation, Scalar::F32);
                lowering.map_binary(function, kind, wide[0], wide[1], extents, [4, 4], 0.15)
            });
        };
        if let (Planned::Uniform(x), Planned::Uniform(y)) = (x, y) {
            return Ok(Planned::Uniform(self.scalar_binary(function, x, y, width_of(scalar))));
        }
        let (x, y) = (self.data(operands[0])?, self.data(operands[1])?);
        let ns = match operation {
            Binary::Remainder => 15.0,
            Binary::Power | Binary::Atan2 => 3.0,
            Binary::Divide => 0.4,
            _ => 0.15,
        };
        let extents = self.extents_of(result);
        // Bits that are only named otherwise are of the same register.
        if let (Binary::Divide, Scalar::F32, Some(Form::OneAndExponential(of))) = (operation, scalar, self.form_of(y)) {
            // The steps to the divisor are left out where nobody else reads them.
            return self.map_binary(
                Some(binary::over_one_and_exponential()),
                MapKind::Logistic,
                x,
                of,
                extents,
                [4, 4],
                1.0,
            );
        }
        let kind = MapKind::of(operation, scalar);
        let planned = self.map_binary(Some(function), kind, x, y, extents, [scalar.size(); 2], ns)?;
        let is = |operand: Operand, number: f32| {
            let Operand::Uniform(slot) = operand else { return false };
            self.literal(slot) == Some(u64::from(number.to_bits()))
        };
        let is_one = |operand: Operand| is(operand, 1.0);
        let form = match (operation, self.form_of(x), self.form_of(y)) {
            (Binary::Multiply, _, _) => Some(Form::Product([x, y])),
            (Binary::Subtract, _, _) => Some(Form::Difference([x, y])),
            (Binary::Add, _, _) if is(x, 0.0) => Some(Form::ZeroAnd(y)),
            (Binary::Add, _, _) if is(y, 0.0) => Some(Form::ZeroAnd(x)),
            (Binary::Add, Some(Form::ExponentialOfNegated(of)), _) if is_one(y) => Some(Form::OneAndExponential(of)),
            (Binary::Add, _, Some(Form::ExponentialOfNegated(of))) if is_one(x) => Some(Form::OneAndExponential(of)),
            _ => None,
        };
        self.remember(planned, form.filter(|_| scalar == Scalar::F32));
        Ok(planned)
    }

    pub(super) fn map_binary(
        &mut self,
        function: Option<binary::BinaryFunction>,
        kind: MapKind,
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
        self.emit_tile(Step::MapBinary { function, kind, target, x, y, size, extents }, &extents, ns);
        Ok(Planned::Data(plain(target.register)))
    }

    /// Index arithmetic whose result is known by row and by column.
    fn symbolic(&mut self, operation: Binary, operands: &[Value], result: Value) -> Lowered<Option<Planned>> {
        let (Some(index), width) = (Self::index_operation(operation), width_of(self.scalar_of(result))) else {
            return Ok(None);
        };
        if let (Planned::Uniform(x), Planned::Uniform(y)) = (self.get(operands[0])?, self.get(operands[1])?) {
            return Ok(Some(Planned::Uniform(self.index(index, x, y, width))));
        }
        let (Some(x), Some(y)) = (self.index_of(operands[0], result)?, self.index_of(operands[1], result)?) else {
            return Ok(None);
        };
        let (base, spread) = match operation {
            Binary::Add => (self.index(index, x.base, y.base, width), self.add_spreads(x.spread, y.spread)),
            Binary::Subtract if y.spread.is_affine() => {
                let spread = Spread {
                    row_stride: self.stride(index, x.spread.row_stride, y.spread.row_stride),
                    column_stride: self.stride(index, x.spread.column_stride, y.spread.column_stride),
                    ..x.spread
                };
                (self.index(index, x.base, y.base, width), spread)
            }
            Binary::Multiply if y.is_uniform() => self.scale(x, y.base, width),
            Binary::Multiply if x.is_uniform() => self.scale(y, x.base, width),
            _ => return Ok(None),
        };
        let sum = Sum { base, spread };
        let wraps = width == Width::Bits32 && self.reaches_beyond_32_bits(&sum, self.extents_of(result));
        Ok((!wraps).then_some(Planned::Index(sum)))
    }

    /// Whether a tile's numbers are known to pass those of 32 bits: what is counted in 64 would not wrap as they do.
    fn reaches_beyond_32_bits(&self, sum: &Sum, extents: Extents) -> bool {
        let reach = |stride: Option<Slot>, count: usize| {
            let stride = stride.and_then(|stride| self.known(stride)).unwrap_or(0);
            i128::from(stride) * (count as i128 - 1).max(0)
        };
        let reaches =
            [reach(sum.spread.row_stride, extents.rows.full), reach(sum.spread.column_stride, extents.columns.full)];
        let base = i128::from(self.known(sum.base).unwrap_or(0));
        let least = base + reaches.map(|reach| reach.min(0)).iter().sum::<i128>();
        let most = base + reaches.map(|reach| reach.max(0)).iter().sum::<i128>();
        least < i128::from(i32::MIN) || most > i128::from(i32::MAX)
    }

    /// An operand as a sum: what registers hold for rows and columns takes part where the result has both.
    pub(super) fn index_of(&mut self, operand: Value, result: Value) -> Lowered<Option<Sum>> {
        let extents = self.extents_of(result);
        match self.get(operand)? {
            Planned::Data(_) if extents.rows.full == 1 || extents.columns.full == 1 => Ok(None),
            Planned::Scattered { .. } | Planned::Pointer { .. } => Ok(None),
            _ => self.sum_of(operand),
        }
    }

    pub(super) fn stride(&mut self, index: IndexOperation, x: Option<Slot>, y: Option<Slot>) -> Option<Slot> {
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

    fn scale(&mut self, x: Sum, by: Slot, width: Width) -> (Slot, Spread) {
        (self.index(IndexOperation::Multiply, x.base, by, width), self.scale_spread(x.spread, by))
    }

    pub(super) fn multiply_add(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        let (scalar, extents) = (self.scalar_of(result), self.extents_of(result));
        let Some(function) = fused::fused(scalar) else { return refuse(format!("math.fma of {}", scalar.name())) };
        let mut read = [Operand::Uniform(0); 3];
        for (operand, &value) in read.iter_mut().zip(operands) {
            *operand = self.data(value)?;
        }
        // A scalar is a tile of one element that goes to a slot.
        let target = self.target(&extents, scalar.size());
        self.emit_tile(Step::MapFused { function, pair: None, target, operands: read, extents }, &extents, 0.3);
        if self.is_one(result) {
            return Ok(self.copied("math.fma", plain(target.register), result));
        }
        Ok(Planned::Data(plain(target.register)))
    }
}
