//! Formulas of single elements.

use super::refuse_training;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, wrong};
use crate::onnx::tensor::data_type;
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::{Activation, Binary, Call, Elementwise, Unary};
use openmps::tile::Number;
use std::slice::from_ref;

macro_rules! table {
    (
        unary: $($unary_name:literal $unary:ident,)*
        binary: $($binary_name:literal $binary:ident,)*
        fold: $($fold_name:literal $fold:ident,)*
        activations: $($activation_name:literal $activation:ident $numbers:expr,)*
        others: $($name:literal $function:expr,)*
    ) => {
        pub(super) const TABLE: Table = &[
            $(($unary_name, |lowering, operation| unary(lowering, operation, Unary::$unary)),)*
            $(($binary_name, |lowering, operation| binary(lowering, operation, Binary::$binary)),)*
            $(($fold_name, |lowering, operation| fold(lowering, operation, Binary::$fold)),)*
            $(($activation_name, |lowering, operation| activation(lowering, operation, Activation::$activation, $numbers)),)*
            $(($name, $function),)*
        ];
    };
}

/// A number of an activation: an attribute with a default, or one that ONNX fixes.
enum Parameter {
    Attribute(&'static str, f64),
    Fixed(f64),
}

use Parameter::{Attribute, Fixed};

/// Above it the logarithm of 1 + e^x is x in float32.
const SOFT: Parameter = Fixed(20.0);

table! {
    unary:
        "Neg" Negate, "Exp" Exp, "Log" Log, "Sqrt" Sqrt, "Reciprocal" Reciprocal, "Floor" Floor, "Ceil" Ceil, "Round" Round,
        "Sign" Sign, "Sin" Sin, "Cos" Cos, "Tan" Tan, "Asin" Asin, "Acos" Acos, "Atan" Atan, "Sinh" Sinh, "Cosh" Cosh, "Tanh" Tanh,
        "Asinh" Asinh, "Acosh" Acosh, "Atanh" Atanh, "Erf" Erf, "IsNaN" IsNan, "Not" LogicalNot, "BitwiseNot" BitwiseNot,
    binary:
        "Add" Add, "Sub" Subtract, "Mul" Multiply, "Div" Divide, "Equal" Equal, "Less" LessThan, "LessOrEqual" LessEqual,
        "Greater" GreaterThan, "GreaterOrEqual" GreaterEqual, "And" LogicalAnd, "Or" LogicalOr, "Xor" LogicalXor,
        "BitwiseAnd" BitwiseAnd, "BitwiseOr" BitwiseOr, "BitwiseXor" BitwiseXor,
    fold:
        "Sum" Add, "Max" Maximum, "Min" Minimum,
    activations:
        "Relu" Relu &[],
        "Sigmoid" Sigmoid &[],
        "Softsign" Softsign &[],
        "Softplus" Softplus &[Fixed(1.0), SOFT],
        "Mish" Mish &[SOFT],
        "HardSwish" HardSwish &[Fixed(6.0), Fixed(6.0), Fixed(3.0)],
        "HardSigmoid" HardSigmoid &[Attribute("alpha", 0.2), Attribute("beta", 0.5)],
        "LeakyRelu" LeakyRelu &[Attribute("alpha", 0.01)],
        "Elu" Elu &[Attribute("alpha", 1.0)],
        "Celu" Celu &[Attribute("alpha", 1.0)],
        "Selu" Selu &[Attribute("gamma", 1.050_700_987_355_480_5), Attribute("alpha", 1.673_263_242_354_377_2)],
        "ThresholdedRelu" ThresholdedRelu &[Attribute("alpha", 1.0), Fixed(0.0)],
        "Swish" Swish &[Attribute("alpha", 1.0)],
    others:
        "Abs" magnitude, "Gelu" gelu, "Shrink" shrink, "PRelu" prelu, "Clip" clip, "IsInf" is_infinite, "Mean" mean, "Pow" power, "Mod" remainder,
        "BitShift" shift, "Where" choose, "Cast" cast, "SwiGLU" gated, "CastLike" cast_like, "Identity" identity, "Dropout" dropout,
}

fn unary(lowering: &mut Lowering, operation: &Operation, of: Unary) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(vec![lowering.unary(of, &x)?])
}

/// Of unsigned numbers, which are their own magnitudes, too.
fn magnitude(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let is_signed = lowering.data_type(&x)?.bounds().0 < 0.0;
    Ok(vec![if is_signed { lowering.unary(Unary::Abs, &x)? } else { x }])
}

fn binary(lowering: &mut Lowering, operation: &Operation, of: Binary) -> Result<Vec<Value>> {
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    if of == Binary::Divide {
        refuse_zero(operation, &y)?;
    }
    Ok(vec![lowering.binary(of, &x, &y)?])
}

/// ONNX Runtime refuses to divide integers by 0; here what only a run computes is not looked at.
fn refuse_zero(operation: &Operation, divisor: &Value) -> Result<()> {
    match divisor {
        Value::Known(array) if !array.dtype.is_float() && array.data.contains(&0.0) => {
            Err(wrong(operation, "integers divided by 0"))
        }
        _ => Ok(()),
    }
}

/// Any number of operands, one after the other.
fn fold(lowering: &mut Lowering, operation: &Operation, of: Binary) -> Result<Vec<Value>> {
    let mut operands = lowering.inputs(operation)?.into_iter();
    let mut result = operands.next().ok_or_else(|| wrong(operation, "no input"))?;
    for operand in operands {
        result = lowering.binary(of, &result, &operand)?;
    }
    Ok(vec![result])
}

fn mean(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let sum = fold(lowering, operation, Binary::Add)?.remove(0);
    Ok(vec![lowering.scaled(&sum, 1.0 / operation.inputs.len() as f64, 0.0)?])
}

fn activation(
    lowering: &mut Lowering,
    operation: &Operation,
    of: Activation,
    parameters: &[Parameter],
) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let number = |parameter: &Parameter| match *parameter {
        Attribute(name, default) => operation.float(name, default),
        Fixed(number) => Ok(number),
    };
    let numbers = parameters.iter().map(number).collect::<Result<Vec<f64>>>()?;
    Ok(vec![lowering.activated(&x, of, &numbers)?])
}

fn gelu(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let of = if operation.text("approximate", "none")? == "tanh" { Activation::GeluTanh } else { Activation::Gelu };
    activation(lowering, operation, of, &[])
}

/// `x sigmoid(alpha x) y`
fn gated(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let gate = activation(lowering, operation, Activation::Swish, &[Attribute("alpha", 1.0)])?.remove(0);
    let y = lowering.input(operation, 1)?;
    Ok(vec![lowering.binary(Binary::Multiply, &gate, &y)?])
}

/// `x` moved towards 0 by `bias` outside `lambd`, 0 within.
fn shrink(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let (bound, bias) = (operation.float("lambd", 0.5)?, operation.float("bias", 0.0)?);
    let mut result = lowering.number_like(&x, 0.0)?;
    for (side, order) in [(-1.0, Binary::LessThan), (1.0, Binary::GreaterThan)] {
        let edge = lowering.number_like(&x, side * bound)?;
        let beyond = lowering.binary(order, &x, &edge)?;
        let moved = lowering.scaled(&x, 1.0, -side * bias)?;
        result = lowering.choose(&beyond, &moved, &result)?;
    }
    Ok(vec![result])
}

fn prelu(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, slope) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let zero = lowering.number_like(&x, 0.0)?;
    let is_negative = lowering.binary(Binary::LessThan, &x, &zero)?;
    let product = lowering.binary(Binary::Multiply, &x, &slope)?;
    Ok(vec![lowering.choose(&is_negative, &product, &x)?])
}

fn clip(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    if !lowering.data_type(&x)?.is_float() {
        return clip_integers(lowering, operation, x);
    }
    // What has no bound is left as it is, infinities too.
    let mut bounds = [f64::NEG_INFINITY, f64::INFINITY];
    for (at, (name, bound)) in ["min", "max"].into_iter().zip(&mut bounds).enumerate() {
        let given = lowering.number_at(operation, at + 1)?;
        *bound = given.map_or_else(|| operation.float(name, *bound), Ok)?;
    }
    Ok(vec![lowering.clipped(&x, bounds)?])
}

/// By bounds that are tensors: a number on the way would lose the digits of large ones.
fn clip_integers(lowering: &mut Lowering, operation: &Operation, mut x: Value) -> Result<Vec<Value>> {
    for (at, of) in [(1, Binary::Maximum), (2, Binary::Minimum)] {
        if let Some(bound) = lowering.optional(operation, at)? {
            let bound = lowering.reshape(&bound, &[])?;
            x = lowering.binary(of, &x, &bound)?;
        }
    }
    Ok(vec![x])
}

fn is_infinite(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let found = lowering.unary(Unary::IsInf, &x)?;
    let sides = [operation.flag("detect_negative", true)?, operation.flag("detect_positive", true)?];
    let order = match sides {
        [true, true] => return Ok(vec![found]),
        [true, false] => Binary::LessThan,
        [false, true] => Binary::GreaterThan,
        // Less and more than itself.
        [false, false] => return Ok(vec![lowering.binary(Binary::LessThan, &x, &x)?]),
    };
    let zero = lowering.number_like(&x, 0.0)?;
    let side = lowering.binary(order, &x, &zero)?;
    Ok(vec![lowering.binary(Binary::LogicalAnd, &found, &side)?])
}

/// The result has the base's type.
fn power(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let dtype = lowering.data_type(&x)?;
    let single =
        matches!(&y, Value::Known(array) if array.data.len() == 1 && array.shape.len() <= lowering.shape(&x)?.len());
    if single && dtype.is_float() {
        let exponent = lowering.known(&y)?.data[0];
        return Ok(vec![lowering.raised(&x, exponent)?]);
    }
    let [wide_x, wide_y] = lowering.alike(&x, &y)?;
    let power = lowering.binary(Binary::Power, &wide_x, &wide_y)?;
    Ok(vec![lowering.cast(&power, dtype)?])
}

impl Lowering<'_> {
    /// Floats to the power of a number.
    pub(super) fn raised(&mut self, x: &Value, exponent: f64) -> Result<Value> {
        let of = match exponent {
            1.0 => return Ok(x.clone()),
            2.0 => Unary::Square,
            3.0 => Unary::Cube,
            0.5 => Unary::Sqrt,
            _ => {
                let scalars = vec![Number::Float(exponent)];
                let call = Call { operator: Elementwise::Unary(Unary::PowScalar), scalars, output: None };
                return self.one(call, from_ref(x));
            }
        };
        self.unary(of, x)
    }
}

/// With the sign of the divisor, or of the dividend as C's `fmod` has it.
fn remainder(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    refuse_zero(operation, &y)?;
    if !operation.flag("fmod", false)? || lowering.data_type(&x)?.bounds().0 >= 0.0 {
        return Ok(vec![lowering.binary(Binary::Remainder, &x, &y)?]);
    }
    // The divisor's sign, or none: what has the other one than the dividend is a divisor too far.
    let rest = lowering.binary(Binary::Remainder, &x, &y)?;
    let zero = lowering.number_like(&x, 0.0)?;
    let [of_rest, of_x] =
        [lowering.binary(Binary::LessThan, &rest, &zero)?, lowering.binary(Binary::LessThan, &x, &zero)?];
    let differ = lowering.binary(Binary::LogicalXor, &of_rest, &of_x)?;
    let there = lowering.binary(Binary::NotEqual, &rest, &zero)?;
    let differ = lowering.binary(Binary::LogicalAnd, &differ, &there)?;
    let moved = lowering.binary(Binary::Subtract, &rest, &y)?;
    Ok(vec![lowering.choose(&differ, &moved, &rest)?])
}

fn shift(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let of = match operation.text("direction", "")? {
        "LEFT" => Binary::LeftShift,
        "RIGHT" => Binary::RightShift,
        other => return Err(wrong(operation, format!("a shift to {other:?}"))),
    };
    binary(lowering, operation, of)
}

fn choose(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let [condition, x, y] = [0, 1, 2].map(|at| lowering.input(operation, at));
    Ok(vec![lowering.choose(&condition?, &x?, &y?)?])
}

fn cast(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let code = operation.integer("to", 0)?;
    let to = data_type(code).ok_or_else(|| wrong(operation, format!("to the element type of number {code}")))?;
    Ok(vec![lowering.cast(&x, to)?])
}

fn cast_like(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, like) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let to = lowering.data_type(&like)?;
    Ok(vec![lowering.cast(&x, to)?])
}

fn identity(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    Ok(vec![lowering.input(operation, 0)?])
}

/// The same tensor, and a mask that keeps everything where it is wanted.
fn dropout(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let trains = lowering.number_at(operation, 2)?.is_some_and(|truth| truth != 0.0);
    let drops = lowering.number_at(operation, 1)? != Some(0.0);
    refuse_training(operation, trains && drops)?;
    if operation.outputs.get(1).is_none_or(Option::is_none) {
        return Ok(vec![x]);
    }
    let shape = lowering.shape(&x)?;
    let mask = lowering.filled(&shape, DataType::Bool, 1.0)?;
    Ok(vec![x, mask])
}
