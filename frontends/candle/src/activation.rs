//! GELU, by the error function.

use crate::forward::{Plain, forwards};
use crate::operand::expect_floats;
use crate::path::{Operation, Path, path};
use crate::reduce::widened;
use candle_core::{CustomOp1, Result, Tensor};
use openmps::operators::operators::elementwise::{Activation, Call, Elementwise};

/// x times the normal distribution's integral: `gelu_erf`.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let y = openmps_candle::gelu(&Tensor::new(&[0.0f32, 10.0], &Device::Cpu)?)?;
/// assert_eq!(y.to_vec1::<f32>()?, [0.0, 10.0]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    expect_floats("gelu", x)?;
    match path(Operation::Activation, &[x], x.elem_count()) {
        Path::Openmps => x.apply_op1(Gelu),
        Path::Candle => x.gelu_erf(),
    }
}

/// The gradient of GELU at x: the normal distribution's integral plus x times its density.
pub(crate) fn gelu_gradient(x: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    let (wide, dtype) = (widened(x)?, x.dtype());
    let integral = ((wide.affine(std::f64::consts::FRAC_1_SQRT_2, 0.0)?.erf()? + 1.0)? * 0.5)?;
    let density =
        ((wide.sqr()? * -0.5)?.exp()? * (0.5 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2))?;
    let slope = (integral + (wide * density)?)?;
    (widened(gradient)? * slope)?.to_dtype(dtype)
}

struct Gelu;

impl CustomOp1 for Gelu {
    fn name(&self) -> &'static str {
        "openmps-gelu"
    }

    forwards!(self => [Plain(Call::new(Elementwise::Activation(Activation::Gelu)))], s1 l1);

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        gelu_gradient(x, gradient).map(Some)
    }
}

/// Cases of the forward pass for its test on external GPUs.
#[cfg(test)]
pub(crate) fn cases(add: &mut crate::external::AddCase) {
    add("gelu", Box::new(Plain(Call::new(Elementwise::Activation(Activation::Gelu)))), &[&[3, 5, 41]]);
}
