//! What follows a convolution, while its results are tiles in registers.

use super::super::Fused;
use crate::operators::elementwise::SQRT_2_OVER_PI;
use crate::program::scalar_bits;
use crate::rows::convert;
use crate::tiles::{Images, Side, load_wide, scaled};
use crate::view::View;
use openmps_host::native::Activation;
use openmps_tile::{Builder, DType, Number, Scalar, Type, Value};

/// What the kernel of an epilogue depends on: which parts there are, and the activation.
pub(super) fn key(fused: &Fused) -> [usize; 5] {
    let activation = match fused.activation {
        Activation::None => 0,
        Activation::Relu => 1,
        Activation::Relu6 => 2,
        Activation::LeakyRelu { .. } => 3,
        Activation::HardSigmoid { .. } => 4,
        Activation::HardSwish => 5,
        Activation::Sigmoid => 6,
        Activation::Swish { .. } => 7,
        Activation::Gelu => 8,
        Activation::GeluTanh => 9,
    };
    let [scale, bias, residual] = [fused.scale, fused.bias, fused.residual].map(usize::from);
    [scale, bias, residual, activation, fused.after.is_some().into()]
}

/// The arguments of [`Epilogue::parameters`]: the optional inputs, with a residual in NCHW order, and the numbers.
pub(super) fn arguments(fused: &Fused, inputs: &[View], dtype: DType) -> Vec<u64> {
    let mut arguments = Vec::new();
    for view in inputs {
        arguments.extend(Images::arguments(view));
    }
    let (slope, offset) = match fused.activation {
        Activation::LeakyRelu { slope } | Activation::Swish { beta: slope } => (slope, 0.0),
        Activation::HardSigmoid { slope, offset } => (slope, offset),
        _ => (0.0, 0.0),
    };
    let (factor, addend) = fused.after.unwrap_or((1.0, 0.0));
    let bits = |number: f32| scalar_bits(Number::Float(f64::from(number)), dtype.compute());
    arguments.extend([slope, offset, factor, addend].map(bits));
    arguments
}

/// A value of each channel: where the first one is, and the stride.
type PerChannel = (Value, Value);

/// The parameters of what follows.
pub(super) struct Epilogue {
    fused: Fused,
    dtype: DType,
    scale: Option<PerChannel>,
    bias: Option<PerChannel>,
    residual: Option<Images>,
    /// Slope and offset of the activation, then the last factor and addend.
    numbers: [Value; 4],
}

impl Epilogue {
    pub fn parameters(b: &mut Builder, fused: &Fused, dtype: DType) -> Epilogue {
        let mut vector = |there: bool, name: &str| {
            there.then(|| {
                let pointer = b.parameter(name, Type::pointer(dtype.into()));
                (pointer, b.parameter(format!("{name}_stride"), Type::scalar(Scalar::I64)))
            })
        };
        let (scale, bias) = (vector(fused.scale, "scale"), vector(fused.bias, "bias"));
        let residual = fused.residual.then(|| Images::parameter(b, "residual", dtype));
        let numbers =
            ["slope", "offset", "factor", "addend"].map(|name| b.parameter(name, Type::scalar(dtype.compute().into())));
        Epilogue { fused: *fused, dtype, scale, bias, residual, numbers }
    }

    /// The results in the output's type. `spread` brings a value of each channel to the tile's form; `places` finds the elements of
    /// other images.
    pub fn apply(
        &self,
        b: &mut Builder,
        sum: Value,
        channel: Side,
        spread: impl Fn(&mut Builder, Value) -> Value,
        places: impl FnOnce(&mut Builder, &Images) -> (Value, Value),
    ) -> Value {
        let per_channel = |b: &mut Builder, (pointer, stride): PerChannel| {
            let offset = scaled(b, channel.0, stride);
            let pointers = b.add_pointer(pointer, offset);
            let loaded = load_wide(b, pointers, channel.1, self.dtype);
            spread(b, loaded)
        };
        let mut x = sum;
        if let Some(scale) = self.scale {
            let scale = per_channel(b, scale);
            x = b.multiply(x, scale);
        }
        if let Some(bias) = self.bias {
            let bias = per_channel(b, bias);
            x = b.add(x, bias);
        }
        if let Some(residual) = &self.residual {
            let (pointers, mask) = places(b, residual);
            let residual = load_wide(b, pointers, mask, self.dtype);
            x = b.add(x, residual);
        }
        let [slope, offset, factor, addend] = self.numbers.map(|number| b.splat_like(number, x));
        x = activate(b, self.fused.activation, x, [slope, offset]);
        if self.fused.after.is_some() {
            x = b.multiply(x, factor);
            x = b.add(x, addend);
        }
        convert(b, x, self.dtype.compute(), self.dtype)
    }
}

fn clamp(b: &mut Builder, x: Value, most: f64) -> Value {
    let (low, high) = (b.constant_like(0.0, x), b.constant_like(most, x));
    let x = b.maximum(x, low);
    b.minimum(x, high)
}

fn activate(b: &mut Builder, activation: Activation, x: Value, [slope, offset]: [Value; 2]) -> Value {
    match activation {
        Activation::None => x,
        Activation::Relu => {
            let zero = b.constant_like(0.0, x);
            b.maximum(x, zero)
        }
        Activation::Relu6 => clamp(b, x, 6.0),
        Activation::LeakyRelu { .. } => {
            let scaled = b.multiply(x, slope);
            b.maximum(x, scaled)
        }
        Activation::HardSigmoid { .. } => {
            let scaled = b.multiply(x, slope);
            let shifted = b.add(scaled, offset);
            clamp(b, shifted, 1.0)
        }
        Activation::HardSwish => {
            let (three, six) = (b.constant_like(3.0, x), b.constant_like(6.0, x));
            let shifted = b.add(x, three);
            let part = clamp(b, shifted, 6.0);
            let product = b.multiply(x, part);
            b.divide(product, six)
        }
        Activation::Sigmoid => {
            let one = b.constant_like(1.0, x);
            logistic(b, one, x)
        }
        Activation::Swish { .. } => {
            let scaled = b.multiply(x, slope);
            logistic(b, x, scaled)
        }
        Activation::Gelu => {
            let scale = b.constant_like(std::f64::consts::FRAC_1_SQRT_2, x);
            let scaled = b.multiply(x, scale);
            let (erf, one, half) = (b.erf(scaled), b.constant_like(1.0, x), b.constant_like(0.5, x));
            let (part, half) = (b.add(one, erf), b.multiply(half, x));
            b.multiply(half, part)
        }
        // `x (1 + tanh u) / 2` is `x / (1 + e^-2u)`.
        Activation::GeluTanh => {
            let [linear, cubic] = [1.0, 0.044715].map(|part| b.constant_like(part * 2.0 * SQRT_2_OVER_PI, x));
            let square = b.multiply(x, x);
            let part = b.multiply(square, cubic);
            let part = b.add(part, linear);
            let u = b.multiply(x, part);
            logistic(b, x, u)
        }
    }
}

/// `x / (1 + e^-y)`
fn logistic(b: &mut Builder, x: Value, y: Value) -> Value {
    let one = b.constant_like(1.0, y);
    let negative = b.negate(y);
    let power = b.exp(negative);
    let divisor = b.add(one, power);
    b.divide(x, divisor)
}
