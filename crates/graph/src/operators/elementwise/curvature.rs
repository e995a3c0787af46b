//! Gradients of the table's gradients. Each of its formulas is a factor times its last tensor, dy: by dy the gradient is the same formula of what
//! comes in, by the others it is the factor's slope times both.

use super::{Activation, Binary, Call, Elementwise, Gradient, SQRT_2_OVER_PI, Unary};
use crate::error::Result;
use crate::gradient::{Backward, Gradients, Node};
use crate::operators::words::Words;
use openmps_tile::Number;
use std::f64::consts::{FRAC_1_SQRT_2, LN_2, LN_10};

impl Call {
    pub(super) fn of_gradient(&self, gradient: Gradient, b: &mut Backward<'_>) -> Result<Gradients> {
        let upstream = b.dy()?;
        let (&dy, of) = b.inputs.split_last().expect("a gradient has dy");
        let mut gradients = b.nothing();
        if b.wanted[of.len()] {
            let whole = b.map(self.operator, &[of, &[upstream]].concat(), &self.scalars)?;
            gradients[of.len()] = Some(b.sum_to(whole, &b.shape(dy))?);
        }
        if !b.wanted[..of.len()].contains(&true) || is_stepped(gradient) {
            return Ok(gradients);
        }
        let both = b.multiply(upstream, dy)?;
        for index in (0..of.len()).filter(|&index| b.wanted[index]) {
            let whole = match *of {
                [z] => {
                    let slope = self.curvature(gradient, z, b)?;
                    b.multiply(both, slope)?
                }
                [x, y] => self.slope_of_two(gradient, index, [x, y], both, b)?,
                _ => return Err(self.without_gradient()),
            };
            gradients[index] = Some(b.sum_to(whole, &b.shape(of[index]))?);
        }
        Ok(gradients)
    }

    /// A number of the formula.
    fn number(&self, index: usize) -> Result<f64> {
        match self.scalars.get(index) {
            Some(&Number::Float(number)) => Ok(number),
            _ => Err(self.without_gradient()),
        }
    }

    /// The slope of a gradient's factor of dy by the tensor that it is computed from.
    fn curvature(&self, gradient: Gradient, z: Node, b: &mut Backward<'_>) -> Result<Node> {
        use Gradient as G;
        match gradient {
            G::Exp | G::Expm1 => b.full_like(z, 1.0),
            G::LerpX => b.full_like(z, -1.0),
            G::Square => b.full_like(z, 2.0),
            G::Cube => b.affine(z, 6.0, 0.0),
            G::Reciprocal | G::Tanh => b.affine(z, -2.0, 0.0),
            G::Sigmoid => b.affine(z, -2.0, 1.0),
            G::Rsqrt => scaled_power(b, z, Unary::Square, -1.5),
            G::Sqrt => inverse_square(b, z, -0.5),
            G::Log => inverse_square(b, z, -1.0),
            G::Log2 => inverse_square(b, z, -1.0 / LN_2),
            G::Log10 => inverse_square(b, z, -1.0 / LN_10),
            G::Log1p => {
                let moved = b.affine(z, 1.0, 1.0)?;
                inverse_square(b, moved, -1.0)
            }
            G::Pow => {
                let factor = self.number(0)?;
                if factor * (factor - 1.0) == 0.0 {
                    return b.zeros_like(z);
                }
                let power = b.map(Elementwise::Unary(Unary::PowScalar), &[z], &[Number::Float(factor - 2.0)])?;
                b.affine(power, factor * (factor - 1.0), 0.0)
            }
            G::Sin | G::Cos | G::Tan | G::Sinh | G::Cosh => trigonometric(gradient, z, b),
            G::Asin | G::Acos | G::Atan | G::Asinh | G::Acosh | G::Atanh => self.inverse_trigonometric(gradient, z, b),
            G::Erf | G::Gelu | G::GeluTanh | G::Silu | G::Mish => smooth_gate(gradient, z, b),
            G::LogSigmoid | G::Softplus | G::Softsign | G::TanhShrink | G::Stanh | G::Logit => {
                self.of_curve(gradient, z, b)
            }
            G::Elu | G::Celu | G::Selu | G::HardSwish => self.of_pieces(gradient, z, b),
            _ => Err(self.without_gradient()),
        }
    }

    /// The factor itself.
    fn factor(&self, z: Node, b: &mut Backward<'_>) -> Result<Node> {
        let one = b.full_like(z, 1.0)?;
        b.map(self.operator, &[z, one], &self.scalars)
    }

    /// Where the factor f is a power of a polynomial its slope is one of f and x.
    fn inverse_trigonometric(&self, gradient: Gradient, z: Node, b: &mut Backward<'_>) -> Result<Node> {
        use Gradient as G;
        let factor = self.factor(z, b)?;
        let (power, times) = match gradient {
            G::Asin | G::Acos => (Unary::Cube, 1.0),
            G::Asinh | G::Acosh => (Unary::Cube, -1.0),
            G::Atanh => (Unary::Square, 2.0),
            _ => (Unary::Square, -2.0),
        };
        let power = scaled_power(b, factor, power, times)?;
        b.multiply(z, power)
    }

    fn of_curve(&self, gradient: Gradient, z: Node, b: &mut Backward<'_>) -> Result<Node> {
        use Gradient as G;
        let factor = self.factor(z, b)?;
        match gradient {
            // s is the factor: -s (1 - s), and beta s (1 - s), which is 0 above the threshold, where s is 1.
            G::LogSigmoid => sloped(b, G::Sigmoid, factor, -1.0),
            G::Softplus => sloped(b, G::Sigmoid, factor, self.number(0)?),
            // -2 sign(x) / (1 + |x|)^3
            G::Softsign => {
                let root = b.unary(Unary::Sqrt, factor)?;
                let sign = b.unary(Unary::Sign, z)?;
                let cube = scaled_power(b, root, Unary::Cube, -2.0)?;
                b.multiply(sign, cube)
            }
            // 2 t (1 - t^2)
            G::TanhShrink => {
                let tanh = b.unary(Unary::Tanh, z)?;
                let twice = b.affine(tanh, 2.0, 0.0)?;
                b.formula(G::Tanh, &[tanh, twice])
            }
            // The factor times -2 a tanh(a x).
            G::Stanh => {
                let inner = self.number(0)?;
                let scaled = b.affine(z, inner, 0.0)?;
                let tanh = b.unary(Unary::Tanh, scaled)?;
                let times = b.affine(tanh, -2.0 * inner, 0.0)?;
                b.multiply(factor, times)
            }
            // (2 x - 1) / (x (1 - x))^2
            _ => {
                let square = b.unary(Unary::Square, factor)?;
                let line = b.affine(z, 2.0, -1.0)?;
                b.multiply(square, line)
            }
        }
    }

    /// Functions that are bent in one piece only.
    fn of_pieces(&self, gradient: Gradient, z: Node, b: &mut Backward<'_>) -> Result<Node> {
        use Gradient as G;
        let zero = b.zeros_like(z)?;
        match gradient {
            // A power of e below zero, whose slope is itself; of celu's over alpha.
            G::Elu | G::Celu => {
                let scale = if gradient == G::Elu { 1.0 } else { 1.0 / self.number(0)? };
                let positive = b.binary(Binary::GreaterThan, z, zero)?;
                let factor = self.factor(z, b)?;
                let bent = b.affine(factor, scale, 0.0)?;
                b.formula(G::NotChosen, &[positive, bent])
            }
            // By the result: 1 where it is not positive.
            G::Selu => {
                let (positive, one) = (b.binary(Binary::GreaterThan, z, zero)?, b.full_like(z, 1.0)?);
                b.formula(G::NotChosen, &[positive, one])
            }
            // 2 / scale on the parabola between the two lines.
            _ => {
                let (threshold, scale, offset) = (self.number(0)?, self.number(1)?, self.number(2)?);
                let bent = b.full_like(z, 2.0 / scale)?;
                let bounds = [Number::Float(-offset), Number::Float(threshold - offset)];
                b.map(Elementwise::Gradient(G::HardTanh), &[z, bent], &bounds)
            }
        }
    }

    /// The gradient by one of two tensors that the factor is made of; `both` is dy times what comes in.
    fn slope_of_two(
        &self,
        gradient: Gradient,
        index: usize,
        [x, y]: [Node; 2],
        both: Node,
        b: &mut Backward<'_>,
    ) -> Result<Node> {
        use Gradient as G;
        match (gradient, index) {
            // -dy out / y
            (G::DivideY, 0) => {
                let quotient = b.binary(Binary::Divide, both, y)?;
                b.unary(Unary::Negate, quotient)
            }
            (G::DivideY, _) => {
                let quotient = b.binary(Binary::Divide, both, y)?;
                let factor = b.binary(Binary::Divide, x, y)?;
                b.multiply(quotient, factor)
            }
            // dy y x^(y - 1)
            (G::PowerX, 0) => {
                let weighted = b.multiply(both, y)?;
                let below = b.affine(y, 1.0, -1.0)?;
                b.formula(G::PowerX, &[x, below, weighted])
            }
            // dy x^(y - 1) (1 + y ln x), of both.
            (G::PowerX, _) | (G::PowerY, 0) => {
                let below = b.affine(y, 1.0, -1.0)?;
                let power = b.binary(Binary::Power, x, below)?;
                let logarithm = b.unary(Unary::Log, x)?;
                let product = b.multiply(y, logarithm)?;
                let factor = b.affine(product, 1.0, 1.0)?;
                let weighted = b.multiply(both, power)?;
                b.multiply(weighted, factor)
            }
            (G::PowerY, _) => {
                let logarithm = b.unary(Unary::Log, x)?;
                let weighted = b.multiply(both, logarithm)?;
                b.formula(G::PowerY, &[x, y, weighted])
            }
            (G::Atan2X | G::Atan2Y, _) => atan2(gradient, index, [x, y], both, b),
            (G::ExpDifference, _) => {
                let whole = b.formula(G::ExpDifference, &[x, y, both])?;
                if index == 0 { Ok(whole) } else { b.unary(Unary::Negate, whole) }
            }
            _ => Err(self.without_gradient()),
        }
    }
}

/// Whether the factor is made of steps, which have no slope.
fn is_stepped(gradient: Gradient) -> bool {
    use Gradient as G;
    matches!(
        gradient,
        G::Relu
            | G::Relu6
            | G::Abs
            | G::Clip
            | G::LeakyRelu
            | G::HardTanh
            | G::HardSigmoid
            | G::HardShrink
            | G::SoftShrink
            | G::ThresholdedRelu
            | G::Chosen
            | G::NotChosen
            | G::Heaviside
            | G::WhereGreater
            | G::WhereLess
            | G::WhereEqual
            | G::FmaxX
            | G::FmaxY
            | G::FminX
            | G::FminY
            | G::RemainderY
            | G::CopySign
    )
}

/// A power of a value, times a number.
fn scaled_power(b: &mut Backward<'_>, x: Node, power: Unary, times: f64) -> Result<Node> {
    let power = b.unary(power, x)?;
    b.affine(power, times, 0.0)
}

fn inverse_square(b: &mut Backward<'_>, x: Node, times: f64) -> Result<Node> {
    let inverse = b.unary(Unary::Reciprocal, x)?;
    scaled_power(b, inverse, Unary::Square, times)
}

/// A gradient of a number.
fn sloped(b: &mut Backward<'_>, gradient: Gradient, z: Node, number: f64) -> Result<Node> {
    let number = b.full_like(z, number)?;
    b.formula(gradient, &[z, number])
}

/// With `u = y / (x^2 + y^2)` and `v = -x / (x^2 + y^2)`, the gradients by x and y: of u they are `2 u v` and `v^2 - u^2`, of v `v^2 - u^2` and `-2 u v`.
fn atan2(gradient: Gradient, index: usize, of: [Node; 2], both: Node, b: &mut Backward<'_>) -> Result<Node> {
    let [x, y] = of;
    let one = b.full_like(both, 1.0)?;
    let [u, v] = [b.formula(Gradient::Atan2X, &[x, y, one])?, b.formula(Gradient::Atan2Y, &[x, y, one])?];
    let slope = if (gradient == Gradient::Atan2X) == (index == 0) {
        let product = b.multiply(u, v)?;
        b.affine(product, if index == 0 { 2.0 } else { -2.0 }, 0.0)?
    } else {
        let [u, v] = [b.unary(Unary::Square, u)?, b.unary(Unary::Square, v)?];
        b.subtract(v, u)?
    };
    b.multiply(both, slope)
}

fn trigonometric(gradient: Gradient, z: Node, b: &mut Backward<'_>) -> Result<Node> {
    match gradient {
        Gradient::Sin => {
            let sine = b.unary(Unary::Sin, z)?;
            b.unary(Unary::Negate, sine)
        }
        Gradient::Cos => {
            let cosine = b.unary(Unary::Cos, z)?;
            b.unary(Unary::Negate, cosine)
        }
        Gradient::Sinh => b.unary(Unary::Sinh, z),
        Gradient::Cosh => b.unary(Unary::Cosh, z),
        // 2 t (1 + t^2)
        _ => {
            let tangent = b.unary(Unary::Tan, z)?;
            let square = b.unary(Unary::Square, tangent)?;
            let factor = b.affine(square, 2.0, 2.0)?;
            b.multiply(tangent, factor)
        }
    }
}

/// Functions that are x times a smooth step, or such a step.
fn smooth_gate(gradient: Gradient, z: Node, b: &mut Backward<'_>) -> Result<Node> {
    use Gradient as G;
    match gradient {
        G::Erf => {
            let factor = b.affine(z, -2.0, 0.0)?;
            b.formula(G::Erf, &[z, factor])
        }
        // s (1 - s) (2 + x (1 - 2 s))
        G::Silu => {
            let sigmoid = b.map(Elementwise::Activation(Activation::Sigmoid), &[z], &[])?;
            let slope = b.affine(sigmoid, -2.0, 1.0)?;
            let bent = b.multiply(z, slope)?;
            let bent = b.affine(bent, 1.0, 2.0)?;
            b.formula(G::Sigmoid, &[sigmoid, bent])
        }
        // (2 - x^2) times the density, which is the slope of erf(x / sqrt 2) / 2.
        G::Gelu => {
            let square = b.unary(Unary::Square, z)?;
            let factor = b.affine(square, -0.5 * FRAC_1_SQRT_2, FRAC_1_SQRT_2)?;
            let scaled = b.affine(z, FRAC_1_SQRT_2, 0.0)?;
            b.formula(G::Erf, &[scaled, factor])
        }
        G::GeluTanh => gelu_tanh(z, b),
        _ => mish(z, b),
    }
}

/// Of `x (1 + t) / 2`, where t is the tanh of u: `(1 - t^2) (u' + x u'' / 2 - x t u'^2)`.
fn gelu_tanh(z: Node, b: &mut Backward<'_>) -> Result<Node> {
    let factor = SQRT_2_OVER_PI;
    let cubic = 0.044_715 * factor;
    let square = b.unary(Unary::Square, z)?;
    let line = b.affine(square, cubic, factor)?;
    let inner = b.multiply(z, line)?;
    let tanh = b.unary(Unary::Tanh, inner)?;
    let slope = b.affine(square, 3.0 * cubic, factor)?;
    // u' + x u'' / 2
    let straight = b.affine(square, 6.0 * cubic, factor)?;
    let squares = b.unary(Unary::Square, slope)?;
    let along = b.multiply(z, tanh)?;
    let along = b.multiply(along, squares)?;
    let sum = b.subtract(straight, along)?;
    b.formula(Gradient::Tanh, &[tanh, sum])
}

/// Of `x t`, where t is the tanh of softplus and s the logistic function: `(1 - t^2) s (2 + x (1 - s - 2 t s))`.
fn mish(z: Node, b: &mut Backward<'_>) -> Result<Node> {
    let numbers = [Number::Float(1.0), Number::Float(20.0)];
    let softplus = b.map(Elementwise::Activation(Activation::Softplus), &[z], &numbers)?;
    let tanh = b.unary(Unary::Tanh, softplus)?;
    let sigmoid = b.map(Elementwise::Activation(Activation::Sigmoid), &[z], &[])?;
    let twice = b.affine(tanh, 2.0, 1.0)?;
    let product = b.multiply(sigmoid, twice)?;
    let rest = b.affine(product, -1.0, 1.0)?;
    let bent = b.multiply(z, rest)?;
    let bent = b.affine(bent, 1.0, 2.0)?;
    let weighted = b.multiply(sigmoid, bent)?;
    b.formula(Gradient::Tanh, &[tanh, weighted])
}
