//! Integers that stand for numbers, as ONNX Runtime's quantisation writes them. Computed in floats, as those of ONNX.

use super::refuse;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, size_of, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::{Activation, Binary};
use openmps::operators::operators::reduce::Reduction;
use openmps::operators::operators::softmax::Softmax;

pub(in crate::lower::onnx) const TABLE: Table = &[
    ("com.microsoft.QuantizeLinear", super::super::quantized::quantize),
    ("com.microsoft.DequantizeLinear", super::super::quantized::dequantize),
    ("com.microsoft.DynamicQuantizeMatMul", dynamic_matmul),
    ("com.microsoft.MatMulIntegerToFloat", matmul_to_float),
    ("com.microsoft.MatMulNBits", matmul_of_blocks),
    ("com.microsoft.QGemm", gemm),
    ("com.microsoft.QLinearAdd", |lowering, operation| two(lowering, operation, Binary::Add)),
    ("com.microsoft.QLinearMul", |lowering, operation| two(lowering, operation, Binary::Multiply)),
    ("com.microsoft.QLinearSigmoid", |lowering, operation| {
        one(lowering, operation, |lowering, x| lowering.activated(&x, Activation::Sigmoid, &[]))
    }),
    ("com.microsoft.QLinearLeakyRelu", |lowering, operation| {
        let alpha = operation.float("alpha", 0.01)?;
        one(lowering, operation, |lowering, x| lowering.activated(&x, Activation::LeakyRelu, &[alpha]))
    }),
    ("com.microsoft.QLinearSoftmax", |lowering, operation| {
        let axis = operation.integer("axis", -1)?;
        one(lowering, operation, |lowering, x| lowering.one(Softmax { axis, logarithm: false }, &[x]))
    }),
    ("com.microsoft.QLinearAveragePool", |lowering, operation| {
        refuse(operation, &["channels_last"])?;
        one(lowering, operation, |lowering, x| lowering.average_pool(operation, x))
    }),
    ("com.microsoft.QLinearGlobalAveragePool", |lowering, operation| {
        refuse(operation, &["channels_last"])?;
        one(lowering, operation, |lowering, x| {
            let axes: Vec<i64> = (2..lowering.shape(&x)?.len() as i64).collect();
            lowering.reduce(Reduction::Mean, &x, &axes, true)
        })
    }),
    ("com.microsoft.QLinearConcat", concat),
];

impl Lowering<'_> {
    /// A tensor of integers whose scale and zero point are the two inputs behind it, as float32.
    fn floats_at(&mut self, operation: &Operation, at: usize) -> Result<Value> {
        self.floats_of(operation, [at, at + 1, at + 2])
    }

    /// The inputs at which integers, their scale and their zero point are, as float32: of a matrix scale and zero point may be one for each column.
    fn floats_of(&mut self, operation: &Operation, [at, scale, zero]: [usize; 3]) -> Result<Value> {
        let (x, scale, zero) =
            (self.input(operation, at)?, self.input(operation, scale)?, self.optional(operation, zero)?);
        self.dequantized(&x, &scale, zero.as_ref())
    }

    /// Floats as integers by the scale and the zero point that are inputs; as the bytes of `like` where there is no zero point.
    fn integers_by(&mut self, operation: &Operation, y: &Value, at: usize, like: &Value) -> Result<Value> {
        let (scale, zero) = (self.input(operation, at)?, self.optional(operation, at + 1)?);
        let to = self.data_type(zero.as_ref().unwrap_or(like))?;
        self.quantized(y, &scale, zero.as_ref(), to)
    }
}

/// A function of one tensor: it with scale and zero point, then those of the result.
fn one(
    lowering: &mut Lowering,
    operation: &Operation,
    of: impl FnOnce(&mut Lowering, Value) -> Result<Value>,
) -> Result<Vec<Value>> {
    let like = lowering.input(operation, 0)?;
    let x = lowering.floats_at(operation, 0)?;
    let y = of(lowering, x)?;
    Ok(vec![lowering.integers_by(operation, &y, 3, &like)?])
}

fn two(lowering: &mut Lowering, operation: &Operation, of: Binary) -> Result<Vec<Value>> {
    let like = lowering.input(operation, 0)?;
    let (x, y) = (lowering.floats_at(operation, 0)?, lowering.floats_at(operation, 3)?);
    let result = lowering.binary(of, &x, &y)?;
    Ok(vec![lowering.integers_by(operation, &result, 6, &like)?])
}

/// The result's scale and zero point, then each member with its own.
fn concat(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let like = lowering.input(operation, 2)?;
    let mut members = Vec::new();
    for at in (2..operation.inputs.len()).step_by(3) {
        members.push(lowering.floats_at(operation, at)?);
    }
    let axis = lowering.axis(operation, &like, 1)?;
    let y = lowering.concat(&members, axis)?;
    Ok(vec![lowering.integers_by(operation, &y, 0, &like)?])
}

/// Both sides and an addend in int32, whose scale is the product of both; in floats where the result has no scale.
fn gemm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let like = lowering.input(operation, 0)?;
    let (x, y) = (lowering.floats_at(operation, 0)?, lowering.floats_at(operation, 3)?);
    let transpose = [operation.flag("transA", false)?, operation.flag("transB", false)?];
    let product = lowering.matmul(&x, &y, transpose)?;
    let mut product = lowering.scaled(&product, operation.float("alpha", 1.0)?, 0.0)?;
    if let Some(addend) = lowering.optional(operation, 6)? {
        let (left, right) = (lowering.input(operation, 1)?, lowering.input(operation, 4)?);
        let scale = lowering.binary(Binary::Multiply, &left, &right)?;
        let addend = lowering.dequantized(&addend, &scale, None)?;
        product = lowering.binary(Binary::Add, &product, &addend)?;
    }
    match lowering.optional(operation, 7)? {
        Some(_) => Ok(vec![lowering.integers_by(operation, &product, 7, &like)?]),
        None => Ok(vec![product]),
    }
}

/// Floats, which become bytes by their own largest and smallest number, times bytes.
fn dynamic_matmul(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let [bytes, scale, zero] = lowering.as_bytes(&x)?;
    let x = lowering.dequantized(&bytes, &scale, Some(&zero))?;
    let y = lowering.floats_of(operation, [1, 2, 3])?;
    product(lowering, operation, &x, &y, 4)
}

/// Bytes times bytes; the scales of both, then their zero points.
fn matmul_to_float(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, y) = (lowering.floats_of(operation, [0, 2, 4])?, lowering.floats_of(operation, [1, 3, 5])?);
    product(lowering, operation, &x, &y, 6)
}

fn product(lowering: &mut Lowering, operation: &Operation, x: &Value, y: &Value, bias: usize) -> Result<Vec<Value>> {
    let product = lowering.matmul(x, y, [false; 2])?;
    Ok(vec![lowering.plus_input(operation, product, bias)?])
}

/// A weight `[columns, blocks, bytes]` of which each byte holds several numbers of a row, with a scale, and perhaps a zero point, for each block.
fn matmul_of_blocks(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let [depth, columns, block] = ["K", "N", "block_size"].map(|name| size_of(operation, operation.integer(name, 0)?));
    let (depth, columns, block, bits) = (depth?, columns?, block?, operation.integer("bits", 4)?);
    if !matches!(bits, 4 | 8) || block == 0 || lowering.optional(operation, 4)?.is_some() {
        return Err(wrong(operation, format!("{bits} bits in blocks of {block}, or places of their own")));
    }
    let (blocks, dtype) = (depth.div_ceil(block), lowering.data_type(&x)?);
    let packed = lowering.input(operation, 1)?;
    let numbers = lowering.unpacked(&packed, bits, &[columns, blocks, block])?;
    let scale = lowering.input(operation, 2)?;
    let scale = lowering.reshape(&scale, &[columns, blocks, 1])?;
    let zero = match lowering.optional(operation, 3)? {
        Some(zero) if lowering.data_type(&zero)? == DataType::U8 => {
            let rows = if bits == 4 { blocks.div_ceil(2) * 2 } else { blocks };
            let all = lowering.unpacked(&zero, bits, &[columns, rows, 1])?;
            lowering.narrow(&all, 1, 0, blocks)?
        }
        Some(zero) => lowering.reshape(&zero, &[columns, blocks, 1])?,
        None => lowering.filled(&[], DataType::F32, if bits == 4 { 8.0 } else { 128.0 })?,
    };
    let weight = lowering.dequantized(&numbers, &scale, Some(&zero))?;
    let weight = lowering.reshape(&weight, &[columns, blocks * block])?;
    let weight = lowering.narrow(&weight, 1, 0, depth)?;
    let weight = lowering.cast(&weight, dtype)?;
    let y = lowering.matmul(&x, &weight, [false, true])?;
    Ok(vec![lowering.plus_input(operation, y, 5)?])
}

impl Lowering<'_> {
    /// Bytes of which each holds one number, or two: the lower four bits first.
    fn unpacked(&mut self, bytes: &Value, bits: i64, shape: &[usize]) -> Result<Value> {
        let count: usize = shape.iter().product();
        if bits == 8 {
            return self.reshape(bytes, shape);
        }
        let bytes = self.reshape(bytes, &[count / 2, 1])?;
        let bytes = self.cast(&bytes, DataType::I32)?;
        let (mask, four) = (self.number_like(&bytes, 15.0)?, self.number_like(&bytes, 4.0)?);
        let low = self.binary(Binary::BitwiseAnd, &bytes, &mask)?;
        let high = self.binary(Binary::RightShift, &bytes, &four)?;
        let numbers = self.concat(&[low, high], 1)?;
        self.reshape(&numbers, shape)
    }
}
