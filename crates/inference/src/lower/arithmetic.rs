//! Formulas of single elements: mathematics, activations, comparisons, conversions.

use super::{Lowering, Table, Value, number_of, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::{Activation, Binary, Call, Elementwise, Unary};
use openmps::tile::Number;
use std::slice::from_ref;

macro_rules! table {
    ($(unary $unary:ident $unary_name:literal;)* $(activation $activation:ident $activation_name:literal $numbers:expr;)* $(binary $binary:ident $binary_name:literal;)*) => {
        pub(super) const FORMULAS: Table = &[
            $(($unary_name, |lowering, operation| unary(lowering, operation, Unary::$unary)),)*
            $(($activation_name, |lowering, operation| activation(lowering, operation, Activation::$activation, $numbers)),)*
            $(($binary_name, |lowering, operation| binary(lowering, operation, Binary::$binary)),)*
        ];
    };
}

table! {
    unary Abs "abs";
    unary Negate "neg";
    unary Exp "exp";
    unary Expm1 "expm1";
    unary Log "log";
    unary Log2 "log2";
    unary Log10 "log10";
    unary Log1p "log1p";
    unary Sqrt "sqrt";
    unary Rsqrt "rsqrt";
    unary Square "square";
    unary Reciprocal "reciprocal";
    unary Sin "sin";
    unary Cos "cos";
    unary Tan "tan";
    unary Asin "asin";
    unary Acos "acos";
    unary Atan "atan";
    unary Sinh "sinh";
    unary Cosh "cosh";
    unary Tanh "tanh";
    unary Erf "erf";
    unary Floor "floor";
    unary Ceil "ceil";
    unary Round "round";
    unary Trunc "trunc";
    unary Sign "sign";
    unary IsNan "isnan";
    unary IsInf "isinf";
    unary IsFinite "isfinite";
    unary LogicalNot "logical_not";
    unary BitwiseNot "bitwise_not";
    activation Relu "relu" &[];
    activation Relu6 "relu6" &[];
    activation Sigmoid "sigmoid" &[];
    activation LogSigmoid "logsigmoid" &[];
    activation Silu "silu" &[];
    activation Softsign "softsign" &[];
    activation TanhShrink "tanh_shrink" &[];
    activation Softplus "softplus" &[("beta", 1.0), ("threshold", 20.0)];
    activation Mish "mish" &[("threshold", 20.0)];
    activation HardSigmoid "hardsigmoid" &[("slope", 0.2), ("offset", 0.5)];
    activation HardTanh "hardtanh" &[("t_min", -1.0), ("t_max", 1.0)];
    activation HardShrink "hardshrink" &[("threshold", 0.5)];
    activation SoftShrink "softshrink" &[("threshold", 0.5)];
    activation ThresholdedRelu "thresholded_relu" &[("threshold", 1.0), ("value", 0.0)];
    activation LeakyRelu "leaky_relu" &[("negative_slope", 0.02)];
    activation Elu "elu" &[("alpha", 1.0)];
    activation Celu "celu" &[("alpha", 1.0)];
    activation Selu "selu" &[("scale", 1.050_700_987_355_480_5), ("alpha", 1.673_263_242_354_377_2)];
    activation Stanh "stanh" &[("scale_a", 0.67), ("scale_b", 1.7159)];
    activation HardSwish "hardswish" &[("threshold", 6.0), ("scale", 6.0), ("offset", 3.0)];
    binary Add "add";
    binary Subtract "subtract";
    binary Multiply "multiply";
    binary Divide "divide";
    binary Maximum "maximum";
    binary Minimum "minimum";
    binary Fmax "fmax";
    binary Fmin "fmin";
    binary Power "elementwise_pow";
    binary Atan2 "atan2";
    binary FloorDivide "floor_divide";
    binary Remainder "remainder";
    binary Equal "equal";
    binary NotEqual "not_equal";
    binary LessThan "less_than";
    binary LessEqual "less_equal";
    binary GreaterThan "greater_than";
    binary GreaterEqual "greater_equal";
    binary LogicalAnd "logical_and";
    binary LogicalOr "logical_or";
    binary LogicalXor "logical_xor";
    binary BitwiseAnd "bitwise_and";
    binary BitwiseOr "bitwise_or";
    binary BitwiseXor "bitwise_xor";
}

pub(super) const OTHERS: Table = &[
    ("gelu", gelu),
    ("swish", swish),
    ("scale", scale),
    ("clip", clip),
    ("pow", pow),
    ("cast", cast),
    ("where", choose),
    ("add_n", add_n),
    ("increment", increment),
    ("dropout", dropout),
    ("assign", assign),
    ("assign_out", assign),
    ("share_data", assign),
    ("memcpy_h2d", assign),
    ("memcpy_d2h", assign),
    ("print", assign),
    ("prelu", prelu),
    ("swiglu", swiglu),
];

impl Lowering<'_> {
    pub(super) fn unary(&mut self, of: Unary, x: &Value) -> Result<Value> {
        self.one(Call::new(Elementwise::Unary(of)), from_ref(x))
    }

    pub(super) fn binary(&mut self, of: Binary, x: &Value, y: &Value) -> Result<Value> {
        self.one(Call::new(Elementwise::Binary(of)), &[x.clone(), y.clone()])
    }

    /// `x * factor + addend`.
    pub(super) fn scaled(&mut self, x: &Value, factor: f64, addend: f64) -> Result<Value> {
        if (factor, addend) == (1.0, 0.0) {
            return Ok(x.clone());
        }
        let dtype = self.data_type(x)?;
        let scalars = vec![number_of(dtype, factor), number_of(dtype, addend)];
        self.one(Call { operator: Elementwise::Unary(Unary::Scale), scalars, output: None }, from_ref(x))
    }

    pub(super) fn cast(&mut self, x: &Value, to: DataType) -> Result<Value> {
        if self.data_type(x)? == to {
            return Ok(x.clone());
        }
        let call = Call { operator: Elementwise::Unary(Unary::Cast), scalars: Vec::new(), output: Some(to) };
        self.one(call, from_ref(x))
    }

    /// Both in the type that holds them: the larger of two floats or integers, a float before an integer.
    pub(super) fn alike(&mut self, x: &Value, y: &Value) -> Result<[Value; 2]> {
        let (a, b) = (self.data_type(x)?, self.data_type(y)?);
        let common = match (a.is_float(), b.is_float()) {
            (true, false) => a,
            (false, true) => b,
            (true, true) if a != b && a.size() == b.size() => DataType::F32,
            _ if b.size() > a.size() || a == DataType::Bool => b,
            _ => a,
        };
        Ok([self.cast(x, common)?, self.cast(y, common)?])
    }
}

fn unary(lowering: &mut Lowering, operation: &Operation, of: Unary) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(vec![lowering.unary(of, &x)?])
}

/// An activation whose numbers are attributes with these defaults.
fn activation(
    lowering: &mut Lowering,
    operation: &Operation,
    of: Activation,
    numbers: &[(&str, f64)],
) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let number = |&(name, default): &(&str, f64)| operation.float(name, default).map(Number::Float);
    let scalars = numbers.iter().map(number).collect::<Result<_>>()?;
    Ok(vec![lowering.one(Call { operator: Elementwise::Activation(of), scalars, output: None }, &[x])?])
}

/// Two tensors that broadcast; in the legacy format the second one's dimensions may stand from `axis` on.
fn binary(lowering: &mut Lowering, operation: &Operation, of: Binary) -> Result<Vec<Value>> {
    let (x, mut y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let axis = operation.integer("axis", -1)?;
    let (rank, mut shape) = (lowering.shape(&x)?.len(), lowering.shape(&y)?);
    if axis >= 0 && axis as usize + shape.len() < rank {
        shape.resize(rank - axis as usize, 1);
        y = lowering.reshape(&y, &shape)?;
    }
    let [x, y] = match of {
        Binary::LogicalAnd | Binary::LogicalOr | Binary::LogicalXor => [x, y],
        _ => lowering.alike(&x, &y)?,
    };
    Ok(vec![lowering.binary(of, &x, &y)?])
}

fn gelu(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let of = if operation.flag("approximate", false)? { Activation::GeluTanh } else { Activation::Gelu };
    activation(lowering, operation, of, &[])
}

fn swish(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    if operation.float("beta", 1.0)? == 1.0 {
        return activation(lowering, operation, Activation::Silu, &[]);
    }
    activation(lowering, operation, Activation::Swish, &[("beta", 1.0)])
}

fn scale(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let bias = operation.float("bias", 0.0)?;
    let after = operation.flag("bias_after_scale", true)?;
    if let Some(factor) = lowering.optional(operation, 1)?
        && !matches!(factor, Value::Known(_))
    {
        let factor = lowering.cast(&factor, lowering.data_type(&x)?)?;
        let before = if after { x } else { lowering.scaled(&x, 1.0, bias)? };
        let product = lowering.binary(Binary::Multiply, &before, &factor)?;
        return Ok(vec![if after { lowering.scaled(&product, 1.0, bias)? } else { product }]);
    }
    let factor = lowering.number(operation, 1, "scale", 1.0)?;
    Ok(vec![lowering.scaled(&x, factor, if after { bias } else { bias * factor })?])
}

fn clip(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let dtype = lowering.data_type(&x)?;
    let bounds = [lowering.number(operation, 1, "min", f64::MIN)?, lowering.number(operation, 2, "max", f64::MAX)?];
    let scalars = bounds.map(|bound| number_of(dtype, bound)).to_vec();
    let call = Call { operator: Elementwise::Unary(Unary::Clip), scalars, output: None };
    Ok(vec![lowering.one(call, &[x])?])
}

fn pow(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let factor = lowering.number(operation, 1, "y", 1.0)?;
    let call = match factor {
        2.0 => Call::new(Elementwise::Unary(Unary::Square)),
        0.5 if lowering.data_type(&x)?.is_float() => Call::new(Elementwise::Unary(Unary::Sqrt)),
        _ => {
            let scalars = vec![Number::Float(factor)];
            Call { operator: Elementwise::Unary(Unary::PowScalar), scalars, output: None }
        }
    };
    Ok(vec![lowering.one(call, &[x])?])
}

fn cast(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let to = operation.data_type("dtype")?.ok_or_else(|| wrong(operation, "no element type that openmps has"))?;
    Ok(vec![lowering.cast(&x, to)?])
}

fn choose(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let [condition, x, y] = [0, 1, 2].map(|at| lowering.input(operation, at));
    let [x, y] = lowering.alike(&x?, &y?)?;
    Ok(vec![lowering.one(Call::new(Elementwise::Binary(Binary::Where)), &[condition?, x, y])?])
}

fn add_n(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let mut terms = lowering.list(operation, 0)?.into_iter();
    let mut sum = terms.next().ok_or_else(|| wrong(operation, "nothing to add"))?;
    for term in terms {
        sum = lowering.binary(Binary::Add, &sum, &term)?;
    }
    Ok(vec![sum])
}

fn increment(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(vec![lowering.scaled(&x, 1.0, operation.float("value", 1.0)?)?])
}

/// What dropout is where nothing is dropped.
fn dropout(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    if !operation.flag("is_test", false)? {
        return Err(wrong(
            operation,
            "it drops elements, which an inference program does not: save it in evaluation mode",
        ));
    }
    if operation.text("mode", "downgrade_in_infer")? == "upscale_in_train" {
        return Ok(vec![x]);
    }
    let dropped = lowering.number(operation, 2, "p", 0.5)?;
    Ok(vec![lowering.scaled(&x, 1.0 - dropped, 0.0)?])
}

/// The same tensor. That of `print` too: nothing is printed, which docs/inference.md and `openmps inspect` say.
fn assign(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    Ok(vec![lowering.input(operation, 0)?])
}

/// `x` where positive, else times a slope: one, or one for each channel or element.
fn prelu(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, mut slope) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let shape = lowering.shape(&x)?;
    if operation.text("mode", "all")? == "channel" {
        let channels: usize = lowering.shape(&slope)?.iter().product();
        let mut along = vec![1; shape.len()];
        let axis = if operation.text("data_format", "NCHW")?.ends_with('C') { shape.len() - 1 } else { 1 };
        along[axis] = channels;
        slope = lowering.reshape(&slope, &along)?;
    }
    let zero = lowering.scaled(&x, 0.0, 0.0)?;
    let positive = lowering.one(Call::new(Elementwise::Activation(Activation::Relu)), from_ref(&x))?;
    let negative = lowering.binary(Binary::Minimum, &x, &zero)?;
    let negative = lowering.binary(Binary::Multiply, &negative, &slope)?;
    Ok(vec![lowering.binary(Binary::Add, &positive, &negative)?])
}

/// `silu(x) * y`; where y is missing, x holds both halves.
fn swiglu(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let (x, y) = match lowering.optional(operation, 1)? {
        Some(y) => (x, y),
        None => {
            let shape = lowering.shape(&x)?;
            let half = shape.last().map_or(0, |size| size / 2);
            let halves = lowering.split(&x, shape.len().saturating_sub(1), &[half, half])?;
            let [x, y] = <[Value; 2]>::try_from(halves).map_err(|_| wrong(operation, "two halves"))?;
            (x, y)
        }
    };
    let gate = lowering.one(Call::new(Elementwise::Activation(Activation::Silu)), &[x])?;
    Ok(vec![lowering.binary(Binary::Multiply, &gate, &y)?])
}
