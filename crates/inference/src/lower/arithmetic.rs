//! Formulas of single elements: mathematics, activations, comparisons, conversions.

use super::{Lower, Lowering, Table, Value, number_of, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::{Activation, Binary, Call, Elementwise, Unary};
use openmps::tile::Number;
use std::collections::HashMap;
use std::slice::from_ref;
use std::sync::LazyLock;

/// Formulas of openmps's tables that are not lowered by their name: Paddle calls them otherwise, or gives them attributes.
const NOT_BY_NAME: &[&str] = &["negate", "gelu_tanh", "logit", "bitwise_left_shift", "bitwise_right_shift"];

/// Formulas of tensors alone, by the name that both openmps's tables and Paddle have for them.
static BY_NAME: LazyLock<HashMap<&'static str, Elementwise>> = LazyLock::new(|| {
    let is_forward = |of: &Elementwise| {
        matches!(of, Elementwise::Unary(_) | Elementwise::Activation(_) | Elementwise::Binary(_)) && of.is_plain()
    };
    let named = Elementwise::all().filter(is_forward).map(|of| (of.row().name, of));
    named.filter(|(name, _)| !NOT_BY_NAME.contains(name)).collect()
});

/// A function for each of them.
pub(super) fn by_name() -> impl Iterator<Item = (&'static str, Lower)> {
    BY_NAME.keys().map(|&name| (name, formula as Lower))
}

macro_rules! activations {
    ($($activation:ident $name:literal $numbers:expr;)*) => {
        pub(super) const ACTIVATIONS: Table = &[
            $(($name, |lowering, operation| activation(lowering, operation, Activation::$activation, $numbers)),)*
        ];
    };
}

activations! {
    Softplus "softplus" &[("beta", 1.0), ("threshold", 20.0)];
    Mish "mish" &[("threshold", 20.0)];
    HardSigmoid "hardsigmoid" &[("slope", 0.2), ("offset", 0.5)];
    HardTanh "hardtanh" &[("t_min", -1.0), ("t_max", 1.0)];
    HardShrink "hardshrink" &[("threshold", 0.5)];
    SoftShrink "softshrink" &[("threshold", 0.5)];
    ThresholdedRelu "thresholded_relu" &[("threshold", 1.0), ("value", 0.0)];
    LeakyRelu "leaky_relu" &[("negative_slope", 0.02)];
    Elu "elu" &[("alpha", 1.0)];
    Celu "celu" &[("alpha", 1.0)];
    Selu "selu" &[("scale", 1.050_700_987_355_480_5), ("alpha", 1.673_263_242_354_377_2)];
    Stanh "stanh" &[("scale_a", 0.67), ("scale_b", 1.7159)];
    HardSwish "hardswish" &[("threshold", 6.0), ("scale", 6.0), ("offset", 3.0)];
}

pub(super) const OTHERS: Table = &[
    ("neg", |lowering, operation| lower(lowering, operation, Elementwise::Unary(Unary::Negate))),
    ("gelu", gelu),
    ("swish", swish),
    ("scale", scale),
    ("clip", clip),
    ("pow", pow),
    ("round", round),
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
        self.formula(Elementwise::Unary(of), from_ref(x))
    }

    pub(super) fn binary(&mut self, of: Binary, x: &Value, y: &Value) -> Result<Value> {
        self.formula(Elementwise::Binary(of), &[x.clone(), y.clone()])
    }

    /// A formula without numbers. Unsigned integers that operators do not compute with are computed in wider ones, of which what counts stays.
    fn formula(&mut self, of: Elementwise, operands: &[Value]) -> Result<Value> {
        let mut narrow = None;
        for operand in operands {
            narrow = narrow.or(Some(self.data_type(operand)?).filter(|&dtype| wider(dtype).is_some()));
        }
        let Some((narrow, wide)) = narrow.and_then(|dtype| Some((dtype, wider(dtype)?))) else {
            return self.one(Call::new(of), operands);
        };
        let operands = operands.iter().map(|operand| self.cast(operand, wide)).collect::<Result<Vec<_>>>()?;
        let result = self.one(Call::new(of), &operands)?;
        if self.data_type(&result)? == wide { self.cast(&result, narrow) } else { Ok(result) }
    }

    /// `x` where the condition holds, else `y`.
    pub(super) fn choose(&mut self, condition: &Value, x: &Value, y: &Value) -> Result<Value> {
        self.one(Call::new(Elementwise::Binary(Binary::Where)), &[condition.clone(), x.clone(), y.clone()])
    }

    /// A function with its numbers.
    pub(super) fn activated(&mut self, x: &Value, of: Activation, numbers: &[f64]) -> Result<Value> {
        let scalars = numbers.iter().map(|&number| Number::Float(number)).collect();
        self.one(Call { operator: Elementwise::Activation(of), scalars, output: None }, from_ref(x))
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

    /// Not below the first number and not above the second.
    pub(super) fn clipped(&mut self, x: &Value, bounds: [f64; 2]) -> Result<Value> {
        let dtype = self.data_type(x)?;
        let scalars = bounds.map(|bound| number_of(dtype, bound)).to_vec();
        self.one(Call { operator: Elementwise::Unary(Unary::Clip), scalars, output: None }, from_ref(x))
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

/// The type in which unsigned integers are computed that are only moved otherwise.
fn wider(dtype: DataType) -> Option<DataType> {
    match dtype {
        DataType::U16 => Some(DataType::I32),
        DataType::U32 => Some(DataType::I64),
        _ => None,
    }
}

/// What [`by_name`] finds.
fn formula(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    lower(lowering, operation, BY_NAME[&operation.name[..]])
}

fn lower(lowering: &mut Lowering, operation: &Operation, of: Elementwise) -> Result<Vec<Value>> {
    let operands = of.row().operands.len();
    if let (Elementwise::Binary(of), 2) = (of, operands) {
        return binary(lowering, operation, of);
    }
    let inputs = (0..operands).map(|at| lowering.input(operation, at)).collect::<Result<Vec<_>>>()?;
    Ok(vec![lowering.one(Call::new(of), &inputs)?])
}

/// An activation whose numbers are attributes with these defaults.
fn activation(
    lowering: &mut Lowering,
    operation: &Operation,
    of: Activation,
    numbers: &[(&str, f64)],
) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let number = |&(name, default): &(&str, f64)| operation.float(name, default);
    let numbers = numbers.iter().map(number).collect::<Result<Vec<f64>>>()?;
    Ok(vec![lowering.activated(&x, of, &numbers)?])
}

/// Two tensors that broadcast; in the legacy format the dimensions of the one that has fewer may stand from `axis` on.
fn binary(lowering: &mut Lowering, operation: &Operation, of: Binary) -> Result<Vec<Value>> {
    let (mut x, mut y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let axis = operation.integer("axis", -1)?;
    let rank = lowering.shape(&x)?.len().max(lowering.shape(&y)?.len());
    for value in [&mut x, &mut y] {
        let mut shape = lowering.shape(value)?;
        if axis >= 0 && axis as usize + shape.len() < rank {
            shape.resize(rank - axis as usize, 1);
            *value = lowering.reshape(value, &shape)?;
        }
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
    if after || bias == 0.0 {
        return Ok(vec![lowering.scaled(&x, factor, bias)?]);
    }
    let sum = lowering.scaled(&x, 1.0, bias)?;
    Ok(vec![lowering.scaled(&sum, factor, 0.0)?])
}

fn clip(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let bounds = [lowering.number(operation, 1, "min", f64::MIN)?, lowering.number(operation, 2, "max", f64::MAX)?];
    Ok(vec![lowering.clipped(&x, bounds)?])
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

/// Halves to even; after a decimal place where one is given.
fn round(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, decimals) = (lowering.input(operation, 0)?, operation.integer("decimals", 0)?);
    let dtype = lowering.data_type(&x)?;
    if decimals == 0 || !dtype.is_float() {
        return Ok(vec![lowering.unary(Unary::Round, &x)?]);
    }
    let factor = 10_f64.powf(decimals as f64);
    let wide = lowering.cast(&x, dtype.compute())?;
    let scaled = lowering.scaled(&wide, factor, 0.0)?;
    let rounded = lowering.unary(Unary::Round, &scaled)?;
    let rounded = lowering.scaled(&rounded, 1.0 / factor, 0.0)?;
    Ok(vec![lowering.cast(&rounded, dtype)?])
}

fn cast(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let to = operation.data_type("dtype")?.ok_or_else(|| wrong(operation, "no element type that openmps has"))?;
    Ok(vec![lowering.cast(&x, to)?])
}

fn choose(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let [condition, x, y] = [0, 1, 2].map(|at| lowering.input(operation, at));
    let [x, y] = lowering.alike(&x?, &y?)?;
    Ok(vec![lowering.choose(&condition?, &x, &y)?])
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
    let zero = lowering.number_like(&x, 0.0)?;
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
