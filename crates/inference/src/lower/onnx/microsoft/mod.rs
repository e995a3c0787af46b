//! The operators that ONNX Runtime puts into models which it has optimised or quantised, domain `com.microsoft`
//! (<https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>).

mod attention;
mod grouped;
mod quantized;

use super::normalisation::RowNorm;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, wrong};
use crate::program::{Attribute, Operation};
use openmps::DataType;
use openmps::operators::operators::elementwise::{Activation, Binary, Unary};
use openmps::operators::operators::gather::Gather;
use openmps::operators::operators::reduce::Reduction;

pub(super) use attention::TABLE as ATTENTION;
pub(super) use grouped::TABLE as GROUPED;
pub(super) use quantized::TABLE as QUANTIZED;

pub(super) const TABLE: Table = &[
    ("com.microsoft.Gelu", |lowering, operation| with_addend(lowering, operation, Activation::Gelu)),
    ("com.microsoft.BiasGelu", |lowering, operation| with_addend(lowering, operation, Activation::Gelu)),
    ("com.microsoft.FastGelu", |lowering, operation| with_addend(lowering, operation, Activation::GeluTanh)),
    ("com.microsoft.QuickGelu", quick_gelu),
    ("com.microsoft.FusedMatMul", fused_matmul),
    ("com.microsoft.TransposeMatMul", fused_matmul),
    ("com.microsoft.FusedGemm", fused_gemm),
    ("com.microsoft.FusedConv", fused_convolution),
    ("com.microsoft.SkipLayerNormalization", |lowering, operation| skip_norm(lowering, operation, true)),
    ("com.microsoft.SkipSimplifiedLayerNormalization", |lowering, operation| skip_norm(lowering, operation, false)),
    ("com.microsoft.EmbedLayerNormalization", embedding_norm),
];

/// A function of a sum, whose second term may be missing.
fn with_addend(lowering: &mut Lowering, operation: &Operation, of: Activation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let x = lowering.plus_input(operation, x, 1)?;
    Ok(vec![lowering.activated(&x, of, &[])?])
}

/// `x sigmoid(alpha x)`
fn quick_gelu(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let alpha = operation.float("alpha", 1.702)?;
    Ok(vec![lowering.activated(&x, Activation::Swish, &[alpha])?])
}

/// `alpha x y`, each side's last two dimensions swapped where asked for.
fn fused_matmul(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    if operation.flag("transBatchA", false)? || operation.flag("transBatchB", false)? {
        return Err(wrong(operation, "batches behind the rows"));
    }
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let transpose = [operation.flag("transA", false)?, operation.flag("transB", false)?];
    let product = lowering.matmul(&x, &y, transpose)?;
    Ok(vec![lowering.scaled(&product, operation.float("alpha", 1.0)?, 0.0)?])
}

fn fused_gemm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let y = lowering.product_and_addend(operation)?;
    let numbers = ["activation_alpha", "activation_beta"].map(|name| operation.float(name, f64::NAN));
    let [alpha, beta] = numbers;
    Ok(vec![lowering.fused_function(operation, &y, &[alpha?, beta?])?])
}

/// A convolution with a bias, something added, and a function.
fn fused_convolution(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, weight) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let y = lowering.convolution(operation, &x, &weight)?;
    let y = lowering.with_bias(operation, y)?.remove(0);
    let y = lowering.plus_input(operation, y, 3)?;
    let numbers = operation.floats("activation_params")?.unwrap_or_default();
    Ok(vec![lowering.fused_function(operation, &y, &numbers)?])
}

impl Lowering<'_> {
    /// The function that an attribute names, with numbers of its own: those that are missing, or NaN, have ONNX's defaults.
    fn fused_function(&mut self, operation: &Operation, x: &Value, numbers: &[f64]) -> Result<Value> {
        let number =
            |at: usize, default: f64| numbers.get(at).copied().filter(|number| !number.is_nan()).unwrap_or(default);
        match operation.text("activation", "")? {
            "" => Ok(x.clone()),
            "Relu" => self.activated(x, Activation::Relu, &[]),
            "Sigmoid" => self.activated(x, Activation::Sigmoid, &[]),
            "Tanh" => self.unary(Unary::Tanh, x),
            "LeakyRelu" => self.activated(x, Activation::LeakyRelu, &[number(0, 0.01)]),
            "HardSigmoid" => self.activated(x, Activation::HardSigmoid, &[number(0, 0.2), number(1, 0.5)]),
            "Clip" => self.clipped(x, [number(0, f64::NEG_INFINITY), number(1, f64::INFINITY)]),
            other => Err(wrong(operation, format!("the function {other:?}"))),
        }
    }
}

/// A norm of the sum of two inputs and a bias. Outputs: the norm, means and inverses of deviations (which nobody is given), the sum.
fn skip_norm(lowering: &mut Lowering, operation: &Operation, centred: bool) -> Result<Vec<Value>> {
    let (x, skip, scale) =
        (lowering.input(operation, 0)?, lowering.input(operation, 1)?, lowering.input(operation, 2)?);
    let (bias, addend) = if centred { (lowering.optional(operation, 3)?, 4) } else { (None, 3) };
    let sum = lowering.binary(Binary::Add, &x, &skip)?;
    let sum = lowering.plus_input(operation, sum, addend)?;
    if operation.outputs.iter().skip(1).take(2).any(Option::is_some) {
        return Err(wrong(operation, "means and deviations as results"));
    }
    let parts = [Some(scale), bias];
    let y = lowering.row_norm(
        operation,
        &sum,
        parts,
        RowNorm { axis: -1, epsilon: operation.float("epsilon", 1e-12)?, centred },
    )?;
    // Nobody reads the two between.
    Ok(vec![y.clone(), y.clone(), y, sum])
}

/// The norm of the sums of rows of two or three tables: words, places, and segments. Outputs: it, how many words of each row are no padding, the sum.
fn embedding_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let words = lowering.input(operation, 0)?;
    let [batch, length] = lowering.shape(&words)?[..] else { return Err(wrong(operation, "words of one sequence")) };
    let places = match lowering.optional(operation, 8)? {
        Some(places) => places,
        None => {
            let places = lowering.counted(length, DataType::I64)?;
            lowering.reshape(&places, &[1, length])?
        }
    };
    let mut sum = None;
    for (table, rows) in [(2, Some(words)), (3, Some(places)), (4, lowering.optional(operation, 1)?)] {
        if let (Some(table), Some(rows)) = (lowering.optional(operation, table)?, rows) {
            let own = lowering.one(Gather { axis: 0 }, &[table, rows])?;
            sum = Some(lowering.added(sum, own)?);
        }
    }
    let sum = sum.ok_or_else(|| wrong(operation, "no table"))?;
    let parts = [lowering.optional(operation, 5)?, lowering.optional(operation, 6)?];
    let y = lowering.row_norm(
        operation,
        &sum,
        parts,
        RowNorm { axis: -1, epsilon: operation.float("epsilon", 1e-12)?, centred: true },
    )?;
    let counts = match lowering.optional(operation, 7)? {
        Some(mask) => {
            let mask = lowering.cast(&mask, DataType::I32)?;
            let counts = lowering.reduce(Reduction::Sum, &mask, &[1], false)?;
            lowering.cast(&counts, DataType::I32)?
        }
        None => lowering.filled(&[batch], DataType::I32, 0.0)?,
    };
    Ok(vec![y, counts, sum])
}

/// Refuses what an attribute asks for where it is not nothing.
pub(super) fn refuse(operation: &Operation, names: &[&str]) -> Result<()> {
    let asked = |name: &&&str| !matches!(operation.attributes.get(**name), None | Some(Attribute::Integer(0)));
    match names.iter().find(asked) {
        Some(name) => Err(wrong(operation, (*name).to_owned())),
        None => Ok(()),
    }
}
