//! RMS norm and layer norm over the last dimension.

use crate::composed;
use crate::forward::{Plain, forwards};
use crate::path::{Operation, Path, path};
use crate::reduce::{mixed, sum_to, widened};
use candle_core::{CustomOp2, CustomOp3, D, Result, Tensor};
use openmps::operators::operators::layer_norm::LayerNorm as Operator;

/// Each row over its root mean square, times a weight for each column. The result is of x's type; the weight may be float32 where x is of half
/// precision.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[3.0f32, 4.0]], &Device::Cpu)?;
/// let weight = Tensor::new(&[1.0f32, 2.0], &Device::Cpu)?;
/// let y = openmps_candle::rms_norm(&x, &weight, 0.0)?.to_vec2::<f32>()?;
/// assert!((y[0][1] - 8.0 / 12.5f32.sqrt()).abs() < 1e-5);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    if let Some(wide) = mixed(&[x, weight]) {
        return rms_norm(&x.to_dtype(wide)?, &weight.to_dtype(wide)?, epsilon)?.to_dtype(x.dtype());
    }
    check(x, weight)?;
    check_epsilon(epsilon)?;
    match path(Operation::Norm, &[x, weight], x.elem_count()) {
        Path::Openmps => x.apply_op2(weight, Norm { centred: false, epsilon }),
        Path::Candle => composed::norm(x, weight, None, false, epsilon),
    }
}

/// Each row brought to mean 0 and variance 1, times a weight and plus a bias for each column. The result is of x's type; weight and bias may be
/// float32 where x is of half precision.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[3.0f32, 5.0]], &Device::Cpu)?;
/// let (weight, bias) = (Tensor::new(&[1.0f32, 1.0], &Device::Cpu)?, Tensor::new(&[10.0f32, 20.0], &Device::Cpu)?);
/// assert_eq!(openmps_candle::layer_norm(&x, &weight, Some(&bias), 0.0)?.to_vec2::<f32>()?, [[9.0, 21.0]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, epsilon: f64) -> Result<Tensor> {
    if let Some(wide) = mixed(&[Some(x), Some(weight), bias].into_iter().flatten().collect::<Vec<_>>()) {
        let bias = bias.map(|bias| bias.to_dtype(wide)).transpose()?;
        let y = layer_norm(&x.to_dtype(wide)?, &weight.to_dtype(wide)?, bias.as_ref(), epsilon)?;
        return y.to_dtype(x.dtype());
    }
    check(x, weight)?;
    check_epsilon(epsilon)?;
    let norm = Norm { centred: true, epsilon };
    match (path(Operation::Norm, &[x, weight], x.elem_count()), bias) {
        (Path::Openmps, Some(bias)) => {
            check(x, bias)?;
            x.apply_op3(weight, bias, norm)
        }
        (Path::Openmps, None) => x.apply_op2(weight, norm),
        (Path::Candle, bias) => composed::norm(x, weight, bias, true, epsilon),
    }
}

fn check(x: &Tensor, weight: &Tensor) -> Result<()> {
    let length = x.dim(D::Minus1)?;
    if weight.dims() != [length] {
        candle_core::bail!("a norm over {length} columns has a weight or bias of shape {:?}", weight.dims());
    }
    if weight.dtype() != x.dtype() {
        candle_core::bail!("a norm of {:?} has a weight or bias of {:?}", x.dtype(), weight.dtype());
    }
    Ok(())
}

/// Refuses what no square root could be taken with.
pub(crate) fn check_epsilon(epsilon: f64) -> Result<()> {
    if epsilon.is_finite() && epsilon >= 0.0 {
        return Ok(());
    }
    candle_core::bail!("the epsilon of a norm is {epsilon}, expected a number of at least 0")
}

#[derive(Clone, Copy)]
struct Norm {
    centred: bool,
    epsilon: f64,
}

impl Norm {
    fn operator(&self, bias: bool) -> Plain<Operator> {
        let (centred, epsilon) = (self.centred, self.epsilon);
        Plain(Operator { begin: -1, epsilon, scale: true, bias, centred, statistics: false })
    }

    /// The gradients of x and the weight.
    fn backward(&self, x: &Tensor, weight: &Tensor, gradient: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (wide, gradient) = (widened(x)?, widened(gradient)?);
        let (y, inverse) = composed::normalised(&wide, self.centred, self.epsilon)?;
        let of_weight = || sum_to(&(&gradient * &y)?, weight.dims())?.to_dtype(weight.dtype());
        let of_x = || {
            let scaled = gradient.broadcast_mul(&widened(weight)?)?;
            let along = (&scaled * &y)?.mean_keepdim(D::Minus1)?;
            let mut rest = scaled.sub(&y.broadcast_mul(&along)?)?;
            if self.centred {
                rest = rest.broadcast_sub(&scaled.mean_keepdim(D::Minus1)?)?;
            }
            rest.broadcast_mul(&inverse)?.to_dtype(x.dtype())
        };
        Ok((x.track_op().then(of_x).transpose()?, weight.track_op().then(of_weight).transpose()?))
    }

    const fn title(&self) -> &'static str {
        if self.centred { "openmps-layer-norm" } else { "openmps-rms-norm" }
    }
}

impl CustomOp2 for Norm {
    fn name(&self) -> &'static str {
        self.title()
    }

    forwards!(self => [self.operator(false)], s1 l1, s2 l2);

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        self.backward(x, weight, gradient)
    }
}

impl CustomOp3 for Norm {
    fn name(&self) -> &'static str {
        self.title()
    }

    forwards!(self => [self.operator(true)], s1 l1, s2 l2, s3 l3);

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (of_x, of_weight) = self.backward(x, weight, gradient)?;
        let of_bias = || sum_to(&widened(gradient)?, bias.dims())?.to_dtype(bias.dtype());
        Ok((of_x, of_weight, bias.track_op().then(of_bias).transpose()?))
    }
}

/// Cases of the forward pass for its test on external GPUs.
#[cfg(test)]
pub(crate) fn cases(add: &mut crate::external::AddCase) {
    for centred in [false, true] {
        let norm = Norm { centred, epsilon: 1e-5 };
        add(norm.title(), Box::new(norm.operator(false)), &[&[2, 3, 40], &[40]]);
        add(norm.title(), Box::new(norm.operator(true)), &[&[5, 384], &[384], &[384]]);
    }
}
