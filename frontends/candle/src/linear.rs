//! Linear layers: `x weight^T + bias`.

use crate::activation::{gelu, gelu_gradient};
use crate::forward::{Forward, forwards};
use crate::matmul;
use crate::path::{Operation, Path, path};
use crate::reduce::{rows, sum_to, widened};
use candle_core::{CustomOp2, CustomOp3, D, Error, Module, Result, Tensor};
use openmps::operators::operators::elementwise::Activation;
use openmps::operators::operators::linear as operators;
use openmps::operators::{Meta, Operator, Queue, View};

/// `x weight^T + bias`: x is `[.., inputs]`, the weight `[outputs, inputs]`, the bias `[outputs]`.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[1.0f32, 2.0]], &Device::Cpu)?;
/// let weight = Tensor::new(&[[1.0f32, 0.0], [0.0, 1.0], [1.0, 1.0]], &Device::Cpu)?;
/// let bias = Tensor::new(&[0.5f32, 0.5, 0.5], &Device::Cpu)?;
/// assert_eq!(openmps_candle::linear(&x, &weight, Some(&bias))?.to_vec2::<f32>()?, [[1.5, 2.5, 3.5]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    check(x, weight, bias)?;
    let work = x.elem_count().saturating_mul(weight.dim(0)?);
    match (path(Operation::Linear, &[x, weight], work), bias) {
        (Path::Openmps, Some(bias)) => x.apply_op3(weight, bias, Affine { gelu: false }),
        (Path::Openmps, None) => x.apply_op2(weight, Affine { gelu: false }),
        (Path::Candle, bias) => {
            let y = x.broadcast_matmul(&weight.t()?)?;
            bias.map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
        }
    }
}

/// GELU of [`linear`], in one operator: the activation is applied while the result is in the cache.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[1.0f32, 2.0]], &Device::Cpu)?;
/// let weight = Tensor::new(&[[9.0f32, 0.0], [0.0, -9.0]], &Device::Cpu)?;
/// let bias = Tensor::new(&[1.0f32, 0.0], &Device::Cpu)?;
/// assert_eq!(openmps_candle::linear_gelu(&x, &weight, &bias)?.to_vec2::<f32>()?, [[10.0, 0.0]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn linear_gelu(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    check(x, weight, Some(bias))?;
    match path(Operation::Linear, &[x, weight, bias], x.elem_count().saturating_mul(weight.dim(0)?)) {
        Path::Openmps => x.apply_op3(weight, bias, Affine { gelu: true }),
        Path::Candle => gelu(&x.broadcast_matmul(&weight.t()?)?.broadcast_add(bias)?),
    }
}

/// `residual + x weight^T + bias`, in one operator for a frozen layer; one whose weight or bias wants a gradient is [`linear`] and an
/// addition.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[1.0f32, 2.0]], &Device::Cpu)?;
/// let weight = Tensor::new(&[[1.0f32, 0.0], [0.0, 1.0]], &Device::Cpu)?;
/// let bias = Tensor::new(&[0.5f32, 0.5], &Device::Cpu)?;
/// assert_eq!(openmps_candle::linear_add(&x, &weight, &bias, &x)?.to_vec2::<f32>()?, [[2.5, 4.5]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn linear_add(x: &Tensor, weight: &Tensor, bias: &Tensor, residual: &Tensor) -> Result<Tensor> {
    check(x, weight, Some(bias))?;
    let work = x.elem_count().saturating_mul(weight.dim(0)?);
    let frozen = !weight.track_op() && !bias.track_op();
    match path(Operation::Linear, &[x, weight, bias, residual], work) {
        Path::Openmps if frozen => x.apply_op2(residual, AffineAdd { weight: weight.clone(), bias: bias.clone() }),
        _ => linear(x, weight, Some(bias))? + residual,
    }
}

pub(crate) fn check(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<()> {
    let (outputs, inputs) = weight.dims2()?;
    if x.rank() < 2 {
        candle_core::bail!("a linear layer of rows of {inputs} inputs was given {:?}, which has no rows", x.dims());
    }
    if x.dim(D::Minus1)? != inputs {
        candle_core::bail!("a linear layer of {inputs} inputs was given {:?}", x.dims());
    }
    if bias.is_some_and(|bias| bias.dims() != [outputs]) {
        candle_core::bail!("a linear layer of {outputs} outputs has a bias of {:?}", bias.map(Tensor::dims));
    }
    Ok(())
}

/// A linear layer, as `candle_nn::Linear`.
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// let layer = openmps_candle::Linear::new(Tensor::zeros((3, 2), DType::F32, &Device::Cpu)?, None);
/// assert_eq!(layer.forward(&Tensor::zeros((5, 2), DType::F32, &Device::Cpu)?)?.dims(), [5, 3]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// A layer of a weight `[outputs, inputs]` and a bias `[outputs]`.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// openmps_candle::Linear::new(Tensor::zeros((3, 2), DType::F32, &Device::Cpu)?, None);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Linear {
        Linear { weight, bias }
    }

    /// The weight.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// let layer = openmps_candle::Linear::new(Tensor::zeros((3, 2), DType::F32, &Device::Cpu)?, None);
    /// assert_eq!(layer.weight().dims(), [3, 2]);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// assert!(openmps_candle::Linear::new(Tensor::zeros((3, 2), DType::F32, &Device::Cpu)?, None).bias().is_none());
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        linear(x, &self.weight, self.bias.as_ref())
    }
}

/// The layer as openmps's operator, for a weight of [outputs, inputs].
pub(crate) fn operator(bias: bool) -> operators::Linear {
    operators::Linear { transpose_weight: true, bias, ..operators::Linear::default() }
}

/// The result of a layer.
pub(crate) fn result_of(x: &View, weight: &View) -> Meta {
    let mut shape = x.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = weight.shape[0];
    }
    Meta { dtype: x.dtype, shape }
}

struct Affine {
    gelu: bool,
}

impl Forward for Affine {
    fn result(&self, inputs: &[View]) -> Result<Meta> {
        Ok(result_of(&inputs[0], &inputs[1]))
    }

    fn submit(&self, queue: &Queue, inputs: &[View], out: &View) -> Result<()> {
        let layer =
            operators::Linear { activation: self.gelu.then_some(Activation::Gelu), ..operator(inputs.len() > 2) };
        layer.run(queue, inputs, std::slice::from_ref(out)).map_err(Error::wrap)
    }
}

impl Affine {
    fn backward(&self, x: &Tensor, weight: &Tensor, gradient: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let of_x = x.track_op().then(|| matmul(gradient, weight)).transpose()?;
        let of_weight = || matmul(&rows(gradient)?.t()?, &rows(x)?);
        Ok((of_x, weight.track_op().then(of_weight).transpose()?))
    }
}

impl CustomOp2 for Affine {
    fn name(&self) -> &'static str {
        "openmps-linear"
    }

    forwards!(self => [*self], s1 l1, s2 l2);

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

impl CustomOp3 for Affine {
    fn name(&self) -> &'static str {
        "openmps-linear"
    }

    forwards!(self => [*self], s1 l1, s2 l2, s3 l3);

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let through = match self.gelu {
            true => gelu_gradient(&linear(&x.detach(), &weight.detach(), Some(&bias.detach()))?, gradient)?,
            false => gradient.clone(),
        };
        let gradient = &through;
        let (of_x, of_weight) = self.backward(x, weight, gradient)?;
        let of_bias = || sum_to(&widened(gradient)?, bias.dims())?.to_dtype(bias.dtype());
        Ok((of_x, of_weight, bias.track_op().then(of_bias).transpose()?))
    }
}

/// A frozen layer whose result is added to another tensor.
struct AffineAdd {
    weight: Tensor,
    bias: Tensor,
}

impl Forward for AffineAdd {
    fn result(&self, inputs: &[View]) -> Result<Meta> {
        Ok(result_of(&inputs[0], &inputs[2]))
    }

    fn submit(&self, queue: &Queue, inputs: &[View], out: &View) -> Result<()> {
        let [x, residual, weight, bias] = inputs else { candle_core::bail!("a layer's weight or bias is missing") };
        let inputs = [x, weight, bias, residual].map(Clone::clone);
        let layer = operators::Linear { residual: true, ..operator(true) };
        layer.run(queue, &inputs, std::slice::from_ref(out)).map_err(Error::wrap)
    }

    fn held(&self) -> Vec<&Tensor> {
        vec![&self.weight, &self.bias]
    }
}

impl CustomOp2 for AffineAdd {
    fn name(&self) -> &'static str {
        "openmps-linear-add"
    }

    forwards!(self => [*self], s1 l1, s2 l2);

    fn bwd(
        &self,
        x: &Tensor,
        residual: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let of_x = x.track_op().then(|| matmul(gradient, &self.weight)).transpose()?;
        let of_residual = residual.track_op().then(|| sum_to(gradient, residual.dims())).transpose()?;
        Ok((of_x, of_residual))
    }
}

/// Cases of the forward pass for its test on external GPUs.
#[cfg(test)]
pub(crate) fn cases(
    add: &mut crate::external::AddCase,
    held: &dyn Fn(&[usize], usize) -> Result<Tensor>,
) -> Result<()> {
    add("linear", Box::new(Affine { gelu: false }), &[&[2, 5, 20], &[9, 20]]);
    add("linear", Box::new(Affine { gelu: false }), &[&[2, 5, 20], &[9, 20], &[9]]);
    add("linear-gelu", Box::new(Affine { gelu: true }), &[&[33, 20], &[9, 20], &[9]]);
    let op = AffineAdd { weight: held(&[9, 20], 5)?, bias: held(&[9], 6)? };
    add("linear-add", Box::new(op), &[&[2, 5, 20], &[2, 5, 9]]);
    Ok(())
}
