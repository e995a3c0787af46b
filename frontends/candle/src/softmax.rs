//! Softmax and its logarithm along a dimension.

use crate::composed;
use crate::forward::{Plain, forwards};
use crate::operand::expect_floats;
use crate::path::{Operation, Path, path};
use candle_core::shape::Dim;
use candle_core::{CustomOp1, CustomOp2, Result, Tensor};
use openmps::operators::operators::softmax::{Softmax as Operator, SoftmaxGradient as GradientOperator};

/// `e^x` over the sum of these along a dimension.
///
/// ```
/// use candle_core::{D, Device, Tensor};
/// let x = Tensor::new(&[[0.0f32, 0.0]], &Device::Cpu)?;
/// assert_eq!(openmps_candle::softmax(&x, D::Minus1)?.to_vec2::<f32>()?, [[0.5, 0.5]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn softmax(x: &Tensor, dim: impl Dim) -> Result<Tensor> {
    expect_floats("softmax", x)?;
    let dim = dim.to_index(x.shape(), "softmax")?;
    match path(Operation::Softmax, &[x], x.elem_count()) {
        Path::Openmps => rows(x, dim, false),
        Path::Candle => composed::softmax(x, dim, false),
    }
}

/// The logarithm of softmax along a dimension, without forming it.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[1e4f32, 0.0]], &Device::Cpu)?;
/// assert_eq!(openmps_candle::log_softmax(&x, 1)?.to_vec2::<f32>()?, [[0.0, -1e4]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn log_softmax(x: &Tensor, dim: impl Dim) -> Result<Tensor> {
    expect_floats("log_softmax", x)?;
    let dim = dim.to_index(x.shape(), "log_softmax")?;
    match path(Operation::Softmax, &[x], x.elem_count()) {
        Path::Openmps => rows(x, dim, true),
        Path::Candle => composed::log_softmax(x, dim),
    }
}

fn rows(x: &Tensor, dim: usize, logarithm: bool) -> Result<Tensor> {
    along([x], dim, |[x], dim| x.apply_op1(Softmax { dim, logarithm }))
}

/// A GPU wants the rows of one launch to follow each other: a dimension in the middle goes to the end and back, which moves no element.
fn along<const N: usize>(
    tensors: [&Tensor; N],
    dim: usize,
    run: impl Fn([&Tensor; N], usize) -> Result<Tensor>,
) -> Result<Tensor> {
    let last = tensors[0].rank().saturating_sub(1);
    if tensors[0].device().is_cpu() || dim == last {
        return run(tensors, dim);
    }
    let turned = tensors.iter().map(|x| x.transpose(dim, last)).collect::<Result<Vec<_>>>()?;
    run(std::array::from_fn(|i| &turned[i]), last)?.transpose(dim, last)
}

struct Softmax {
    dim: usize,
    logarithm: bool,
}

impl CustomOp1 for Softmax {
    fn name(&self) -> &'static str {
        if self.logarithm { "openmps-log-softmax" } else { "openmps-softmax" }
    }

    forwards!(self => [Plain(Operator { axis: self.dim as i64, logarithm: self.logarithm })], s1 l1);

    fn bwd(&self, _: &Tensor, y: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(softmax_gradient(y, gradient, self.dim, self.logarithm)?))
    }
}

/// `y * (gradient - sum(gradient * y))`; with a logarithm `gradient - e^y * sum(gradient)`.
pub(crate) fn softmax_gradient(y: &Tensor, gradient: &Tensor, dim: usize, logarithm: bool) -> Result<Tensor> {
    along([y, gradient], dim, |[y, gradient], dim| y.apply_op2(gradient, SoftmaxGradient { dim, logarithm }))
}

struct SoftmaxGradient {
    dim: usize,
    logarithm: bool,
}

impl CustomOp2 for SoftmaxGradient {
    fn name(&self) -> &'static str {
        if self.logarithm { "openmps-log-softmax-gradient" } else { "openmps-softmax-gradient" }
    }

    forwards!(self => [Plain(GradientOperator { axis: self.dim as i64, logarithm: self.logarithm })], s1 l1, s2 l2);

    fn bwd(
        &self,
        y: &Tensor,
        gradient: &Tensor,
        _: &Tensor,
        upstream: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let sum = |x: &Tensor| x.sum_keepdim(self.dim);
        if self.logarithm {
            let weighted = (y.exp()? * upstream)?;
            let of_gradient = upstream.broadcast_sub(&sum(&weighted)?)?;
            return Ok((Some(weighted.broadcast_mul(&sum(gradient)?.neg()?)?), Some(of_gradient)));
        }
        let centred = gradient.broadcast_sub(&sum(&(y * gradient)?)?)?;
        let of_y = ((upstream * centred)? - gradient.broadcast_mul(&sum(&(y * upstream)?)?)?)?;
        Ok((Some(of_y), Some(softmax_gradient(y, upstream, self.dim, false)?)))
    }
}

/// Cases of the forward pass for its test on external GPUs.
#[cfg(test)]
pub(crate) fn cases(add: &mut crate::external::AddCase) {
    const CASES: [(i64, &[&[usize]], &[&[usize]]); 4] = [
        (2, &[&[2, 3, 17]], &[&[2, 3, 17], &[2, 3, 17]]),
        (0, &[&[5, 9]], &[&[5, 9], &[5, 9]]),
        (1, &[&[3, 700]], &[&[3, 700], &[3, 700]]),
        (1, &[&[2, 9001]], &[&[2, 9001], &[2, 9001]]),
    ];
    for logarithm in [false, true] {
        for (axis, forward, backward) in CASES {
            let name = |plain, of_logarithm| if logarithm { of_logarithm } else { plain };
            let op = Plain(Operator { axis, logarithm });
            add(name("softmax", "log-softmax"), Box::new(op), forward);
            let op = Plain(GradientOperator { axis, logarithm });
            add(name("softmax-gradient", "log-softmax-gradient"), Box::new(op), backward);
        }
    }
}
