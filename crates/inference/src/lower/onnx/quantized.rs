//! Integers that stand for numbers: `x = (q - zero point) * scale`.

use crate::error::Result;
use crate::lower::{Lowering, Table, Value, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::{Binary, Unary};
use openmps::operators::operators::gather::Gather;
use openmps::operators::operators::reduce::Reduction;

pub(super) const TABLE: Table = &[
    ("QuantizeLinear", quantize),
    ("DequantizeLinear", dequantize),
    ("DynamicQuantizeLinear", dynamic_quantize),
    ("MatMulInteger", matmul),
    ("ConvInteger", convolution_of_integers),
    ("QLinearMatMul", quantized_matmul),
    ("QLinearConv", quantized_convolution),
];

/// Scale or zero point under the shape in which it broadcasts: one number, one for each slice along `axis`, or one for each block along it.
fn along(lowering: &mut Lowering, operation: &Operation, part: Value, x: &Value) -> Result<Value> {
    let (shape, own) = (lowering.shape(x)?, lowering.shape(&part)?);
    let block = operation.integer("block_size", 0)?;
    if block > 0 && own.len() == shape.len() {
        let axis = lowering.axis(operation, x, 1)?;
        let blocks = super::integers((0..shape[axis] as i64).map(|at| at / block));
        return lowering.one(Gather { axis: axis as i64 }, &[part, blocks]);
    }
    match own[..] {
        [] | [1] => lowering.reshape(&part, &[]),
        [_] if block == 0 => {
            let axis = lowering.axis(operation, x, 1)?;
            lowering.spread_along(&part, x, axis)
        }
        _ => Err(wrong(operation, format!("scales of shape {own:?} of a tensor of {shape:?}"))),
    }
}

pub(super) fn dequantize(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, scale) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let dtype = lowering.data_type(&scale)?;
    let zero = lowering.optional(operation, 2)?;
    let scale = along(lowering, operation, scale, &x)?;
    let zero = zero.map(|zero| along(lowering, operation, zero, &x)).transpose()?;
    let product = lowering.dequantized(&x, &scale, zero.as_ref())?;
    Ok(vec![lowering.cast(&product, dtype)?])
}

pub(super) fn quantize(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, scale) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let zero = lowering.optional(operation, 2)?;
    let code = operation.integer("output_dtype", 0)?;
    let to = match (&zero, crate::onnx::tensor::data_type(code)) {
        (Some(zero), _) => lowering.data_type(zero)?,
        (None, Some(to)) => to,
        (None, None) => DataType::U8,
    };
    let scale = along(lowering, operation, scale, &x)?;
    let zero = zero.map(|zero| along(lowering, operation, zero, &x)).transpose()?;
    Ok(vec![lowering.quantized(&x, &scale, zero.as_ref(), to)?])
}

impl Lowering<'_> {
    /// `(x - zero) * scale` in float32.
    pub(super) fn dequantized(&mut self, x: &Value, scale: &Value, zero: Option<&Value>) -> Result<Value> {
        let mut wide = self.cast(x, DataType::F32)?;
        if let Some(zero) = zero {
            let zero = self.cast(zero, DataType::F32)?;
            wide = self.binary(Binary::Subtract, &wide, &zero)?;
        }
        let scale = self.cast(scale, DataType::F32)?;
        self.binary(Binary::Multiply, &wide, &scale)
    }

    /// The nearest integers, halves to even, within the type's bounds.
    pub(super) fn quantized(&mut self, x: &Value, scale: &Value, zero: Option<&Value>, to: DataType) -> Result<Value> {
        let (x, scale) = (self.cast(x, DataType::F32)?, self.cast(scale, DataType::F32)?);
        let quotient = self.binary(Binary::Divide, &x, &scale)?;
        let mut whole = self.unary(Unary::Round, &quotient)?;
        if let Some(zero) = zero {
            let zero = self.cast(zero, DataType::F32)?;
            whole = self.binary(Binary::Add, &whole, &zero)?;
        }
        let (least, most) = to.bounds();
        let [least, most] = [self.number_like(&whole, least)?, self.number_like(&whole, most)?];
        let above = self.binary(Binary::Fmax, &whole, &least)?;
        let within = self.binary(Binary::Fmin, &above, &most)?;
        self.cast(&within, to)
    }
}

/// To unsigned bytes of which the scale follows from the largest and smallest number, and 0 is exact.
fn dynamic_quantize(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(lowering.as_bytes(&x)?.into())
}

impl Lowering<'_> {
    /// The bytes, their scale and their zero point.
    pub(super) fn as_bytes(&mut self, x: &Value) -> Result<[Value; 3]> {
        let zero = self.filled(&[], DataType::F32, 0.0)?;
        let least = self.reduce(Reduction::Minimum, x, &[], false)?;
        let most = self.reduce(Reduction::Maximum, x, &[], false)?;
        let (least, most) = (self.binary(Binary::Minimum, &least, &zero)?, self.binary(Binary::Maximum, &most, &zero)?);
        let range = self.binary(Binary::Subtract, &most, &least)?;
        let scale = self.scaled(&range, 1.0 / 255.0, 0.0)?;
        let negative = self.unary(Unary::Negate, &least)?;
        let point = self.quantized(&negative, &scale, None, DataType::U8)?;
        Ok([self.quantized(x, &scale, Some(&point), DataType::U8)?, scale, point])
    }
}

/// Sums of at most this many products of two bytes are exact in float32.
const EXACT: usize = (1 << 24) / (255 * 255);

/// Products of bytes less their zero points, in int32: sums of float32 that are short enough to be exact, added up.
fn matmul(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let sides = [lowering.input(operation, 0)?, lowering.input(operation, 1)?];
    let [left, right] = [lowering.shape(&sides[0])?, lowering.shape(&sides[1])?];
    let (Some(along), Some(down)) = (left.len().checked_sub(1), right.len().checked_sub(right.len().min(2))) else {
        return Err(wrong(operation, "a factor that is a number"));
    };
    let depth = left[along];
    let mut sum: Option<Value> = None;
    for begin in (0..depth.max(1)).step_by(EXACT) {
        let mut parts = Vec::with_capacity(2);
        for (at, axis) in [along, down].into_iter().enumerate() {
            // Bytes are cut before they become floats: of a weight each part is then made once.
            let part = match depth > EXACT {
                true => lowering.narrow(&sides[at], axis, begin, depth.min(begin + EXACT))?,
                false => sides[at].clone(),
            };
            parts.push(lowering.less_zero(operation, &part, at)?);
        }
        let product = lowering.matmul(&parts[0], &parts[1], [false; 2])?;
        let part = lowering.cast(&product, DataType::I32)?;
        sum = Some(match sum {
            Some(sum) => lowering.binary(Binary::Add, &sum, &part)?,
            None => part,
        });
    }
    Ok(sum.into_iter().collect())
}

impl Lowering<'_> {
    /// A factor of bytes less its zero point, which rows on the left and columns on the right may have one each of, in float32.
    fn less_zero(&mut self, operation: &Operation, x: &Value, at: usize) -> Result<Value> {
        let wide = self.cast(x, DataType::F32)?;
        let Some(zero) = self.optional(operation, 2 + at)? else { return Ok(wide) };
        let zero = self.cast(&zero, DataType::F32)?;
        let zero = of_matrix(self, &zero, if at == 0 { -2 } else { -1 })?;
        self.binary(Binary::Subtract, &wide, &zero)
    }
}

/// Images of bytes less their zero points, in int32. In float32 where each sum is exact: of one tap, for which no algorithm transforms images and filters.
fn convolution_of_integers(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, weight) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let filters = lowering.shape(&weight)?;
    let has_one_tap = filters.iter().skip(2).all(|&taps| taps == 1);
    let is_exact = has_one_tap && filters.get(1).is_some_and(|&channels| channels <= EXACT);
    let dtype = if is_exact { DataType::F32 } else { DataType::F64 };
    let mut sides = Vec::with_capacity(2);
    for (at, side) in [x, weight].iter().enumerate() {
        let mut wide = lowering.cast(side, dtype)?;
        if let Some(zero) = lowering.optional(operation, 2 + at)? {
            // Of the filters one each.
            let zero = lowering.cast(&zero, dtype)?;
            let zero = lowering.spread_along(&zero, side, 0)?;
            wide = lowering.binary(Binary::Subtract, &wide, &zero)?;
        }
        sides.push(wide);
    }
    let y = lowering.convolution(operation, &sides[0], &sides[1])?;
    Ok(vec![lowering.cast(&y, DataType::I32)?])
}

/// Scales or zero points of rows on the left (`axis` -2) or of columns on the right (-1) of a product, or one number.
fn of_matrix(lowering: &mut Lowering, part: &Value, axis: i64) -> Result<Value> {
    let shape = lowering.shape(part)?;
    match shape[..] {
        [] | [1] => lowering.reshape(part, &[]),
        [count] => lowering.reshape(part, if axis == -2 { [count, 1] } else { [1, count] }.as_slice()),
        _ => Ok(part.clone()),
    }
}

/// Both sides, each with scale and zero point, then those of the result.
fn quantized_matmul(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let mut sides = Vec::with_capacity(2);
    for (at, axis) in [(0, -2), (3, -1)] {
        let [x, scale, zero] = [at, at + 1, at + 2].map(|at| lowering.input(operation, at));
        let (scale, zero) = (of_matrix(lowering, &scale?, axis)?, of_matrix(lowering, &zero?, axis)?);
        sides.push(lowering.dequantized(&x?, &scale, Some(&zero))?);
    }
    let product = lowering.matmul(&sides[0], &sides[1], [false; 2])?;
    let [scale, zero] = [6, 7].map(|at| lowering.input(operation, at));
    let (scale, zero) = (scale?, zero?);
    let to = lowering.data_type(&zero)?;
    let (scale, zero) = (of_matrix(lowering, &scale, -2)?, of_matrix(lowering, &zero, -2)?);
    Ok(vec![lowering.quantized(&product, &scale, Some(&zero), to)?])
}

/// Image and filters, each with scale and zero point, then those of the result, and a bias in int32, whose scale is the product of both.
fn quantized_convolution(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let mut sides = Vec::with_capacity(2);
    let mut scales = Vec::with_capacity(2);
    for at in [0, 3] {
        let [x, scale, zero] = [at, at + 1, at + 2].map(|at| lowering.input(operation, at));
        let (x, scale, zero) = (x?, scale?, zero?);
        let (own, zero) = (lowering.spread_along(&scale, &x, 0)?, lowering.spread_along(&zero, &x, 0)?);
        sides.push(lowering.dequantized(&x, &own, Some(&zero))?);
        let count: usize = lowering.shape(&scale)?.iter().product();
        scales.push(lowering.reshape(&scale, &[count])?);
    }
    let mut y = lowering.convolution(operation, &sides[0], &sides[1])?;
    if let Some(bias) = lowering.optional(operation, 8)? {
        let scale = lowering.binary(Binary::Multiply, &scales[0], &scales[1])?;
        let bias = lowering.dequantized(&bias, &scale, None)?;
        let bias = lowering.spread_along(&bias, &y, 1)?;
        y = lowering.binary(Binary::Add, &y, &bias)?;
    }
    let [scale, zero] = [6, 7].map(|at| lowering.input(operation, at));
    let (scale, zero) = (scale?, zero?);
    let to = lowering.data_type(&zero)?;
    let (scale, zero) = (lowering.reshape(&scale, &[])?, lowering.reshape(&zero, &[])?);
    Ok(vec![lowering.quantized(&y, &scale, Some(&zero), to)?])
}
