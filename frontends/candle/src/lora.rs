//! Linear layers with a low-rank correction (LoRA): `x weight^T + bias + scaling * dropout(x) a^T b^T`, in one operator.

use crate::forward::{Forward, Plain, forwards, on_host};
use crate::linear::{check, operator, result_of};
use crate::matmul;
use crate::operand::data_type;
use crate::path::{Operation, Path, path};
use crate::reduce::rows;
use candle_core::{CustomOp1, CustomOp3, D, Error, ModuleT, Result, Storage, Tensor, Var};
use openmps::DataType;
use openmps::operators::operators::matmul::Matmul;
use openmps::operators::operators::random::{Dropout, Source};
use openmps::operators::view::bytes;
use openmps::operators::{Meta, Operator, Queue, View};
use openmps::runtime::Buffer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `x weight^T + bias + scaling * x a^T b^T`: the weight is [outputs, inputs], a [rank, inputs], b [outputs, rank]. The weight and the bias
/// are frozen: gradients flow to x, a and b.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[1.0f32, 2.0]], &Device::Cpu)?;
/// let weight = Tensor::new(&[[1.0f32, 0.0], [0.0, 1.0]], &Device::Cpu)?;
/// let (a, b) = (Tensor::new(&[[1.0f32, 1.0]], &Device::Cpu)?, Tensor::new(&[[1.0f32], [0.0]], &Device::Cpu)?);
/// let y = openmps_candle::lora_linear(&x, &weight, None, (&a, &b), 2.0)?;
/// assert_eq!(y.to_vec2::<f32>()?, [[7.0, 2.0]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn lora_linear(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    (a, b): (&Tensor, &Tensor),
    scaling: f64,
) -> Result<Tensor> {
    forward(x, a, b, Lora { weight: weight.detach(), bias: bias.map(Tensor::detach), scaling, dropout: None })
}

fn forward(x: &Tensor, a: &Tensor, b: &Tensor, op: Lora) -> Result<Tensor> {
    check(x, &op.weight, op.bias.as_ref())?;
    let (outputs, inputs) = op.weight.dims2()?;
    let (rank, columns) = a.dims2()?;
    if columns != inputs || b.dims() != [outputs, rank] {
        let (a, b) = (a.dims(), b.dims());
        candle_core::bail!("a layer of {inputs} inputs and {outputs} outputs was given LoRA matrices {a:?} and {b:?}");
    }
    let work = x.elem_count().saturating_mul(outputs);
    let tensors: Vec<&Tensor> = [x, a, b, &op.weight].into_iter().chain(&op.bias).collect();
    match path(Operation::Lora, &tensors, work) {
        Path::Openmps => x.apply_op3(a, b, op),
        Path::Candle => {
            let dropped = op.dropout.map_or(Ok(x.clone()), |dropout| x.apply_op1(dropout))?;
            let low = (dropped.broadcast_matmul(&a.t()?)?.broadcast_matmul(&b.t()?)? * op.scaling)?;
            let y = (x.broadcast_matmul(&op.weight.t()?)? + low)?;
            op.bias.map_or(Ok(y.clone()), |bias| y.broadcast_add(&bias))
        }
    }
}

/// Which elements of x the correction does not see; the others are divided by their probability. The source alone decides, so the
/// backward pass finds the same elements again.
#[derive(Clone, Copy)]
struct Drop {
    probability: f64,
    source: Source,
}

impl Forward for Drop {
    fn result(&self, inputs: &[View]) -> Result<Meta> {
        Ok(Meta { dtype: inputs[0].dtype, shape: inputs[0].shape.clone() })
    }

    fn submit(&self, queue: &Queue, inputs: &[View], out: &View) -> Result<()> {
        let operator = Dropout { probability: self.probability, upscale: true, source: self.source };
        let mask = Temporary::new(queue, DataType::U8, &out.shape)?;
        operator.run(queue, &inputs[..1], &[out.clone(), mask.view.clone()]).map_err(Error::wrap)
    }
}

impl CustomOp1 for Drop {
    fn name(&self) -> &'static str {
        "openmps-dropout"
    }

    forwards!(self => [*self], s1 l1);

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        // Linear, and diagonal: its own transpose.
        gradient.apply_op1_no_bwd(self).map(Some)
    }
}

struct Lora {
    weight: Tensor,
    bias: Option<Tensor>,
    scaling: f64,
    dropout: Option<Drop>,
}

/// A dense tensor of the queue's device that lives as long as this.
struct Temporary {
    view: View,
    _memory: Buffer,
}

impl Temporary {
    fn new(queue: &Queue, dtype: DataType, dims: &[usize]) -> Result<Temporary> {
        let bytes = bytes(dtype, dims).map_err(Error::wrap)?;
        let memory = queue.allocate(bytes.max(1)).map_err(Error::wrap)?;
        let view = View::dense(memory.address(), dtype, dims).map_err(Error::wrap)?;
        Ok(Temporary { view, _memory: memory })
    }
}

impl Forward for Lora {
    fn result(&self, inputs: &[View]) -> Result<Meta> {
        Ok(result_of(&inputs[0], &inputs[3]))
    }

    fn submit(&self, queue: &Queue, inputs: &[View], out: &View) -> Result<()> {
        let [x, a, b, weight, bias @ ..] = inputs else { candle_core::bail!("the weight of a LoRA layer is missing") };
        let transposed = Matmul { transpose_left: false, transpose_right: true };
        let frozen: Vec<View> = [x, weight].into_iter().chain(bias).cloned().collect();
        operator(!bias.is_empty()).run(queue, &frozen, std::slice::from_ref(out)).map_err(Error::wrap)?;
        let dropped = match &self.dropout {
            Some(dropout) => {
                let dropped = Temporary::new(queue, x.dtype, &x.shape)?;
                dropout.submit(queue, std::slice::from_ref(x), &dropped.view)?;
                Some(dropped)
            }
            None => None,
        };
        let seen = dropped.as_ref().map_or(x, |dropped| &dropped.view);
        let hidden = Temporary::new(queue, x.dtype, &result_of(x, a).shape)?;
        transposed.accumulate(queue, [seen, a], &hidden.view, [1.0, 0.0]).map_err(Error::wrap)?;
        transposed.accumulate(queue, [&hidden.view, b], out, [self.scaling, 1.0]).map_err(Error::wrap)
    }

    fn held(&self) -> Vec<&Tensor> {
        std::iter::once(&self.weight).chain(&self.bias).collect()
    }
}

impl CustomOp3 for Lora {
    fn name(&self) -> &'static str {
        "openmps-lora"
    }

    forwards!(self => [*self], s1 l1, s2 l2, s3 l3);

    fn bwd(
        &self,
        x: &Tensor,
        a: &Tensor,
        b: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let drop = |x: &Tensor| self.dropout.map_or(Ok(x.clone()), |dropout| x.apply_op1_no_bwd(&dropout));
        // The gradient of what lies between a and b.
        let of_hidden = (matmul(gradient, b)? * self.scaling)?;
        let of_x = || matmul(gradient, &self.weight)? + drop(&matmul(&of_hidden, a)?)?;
        let of_x = x.track_op().then(of_x).transpose()?;
        if !a.track_op() && !b.track_op() {
            return Ok((of_x, None, None));
        }
        let dropped = rows(&drop(x)?)?;
        let of_a = || matmul(&rows(&of_hidden)?.t()?, &dropped);
        let of_b = || matmul(&rows(gradient)?.t()?, &matmul(&dropped, &a.t()?)?)? * self.scaling;
        Ok((of_x, a.track_op().then(of_a).transpose()?, b.track_op().then(of_b).transpose()?))
    }
}

/// A linear layer with a trainable low-rank correction; its weight and bias are frozen.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use openmps_candle::LoraLinear;
/// let weight = Tensor::zeros((6, 4), DType::F32, &Device::Cpu)?;
/// let layer = LoraLinear::new(weight, None, 2, 4.0, 0.1, 7)?;
/// assert_eq!(layer.scaling(), 2.0);
/// assert_eq!(layer.forward(&Tensor::ones((3, 4), DType::F32, &Device::Cpu)?)?.dims(), [3, 6]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LoraLinear {
    weight: Tensor,
    bias: Option<Tensor>,
    a: Tensor,
    b: Tensor,
    scaling: f64,
    dropout: f64,
    seed: u64,
    calls: Arc<AtomicU64>,
}

impl LoraLinear {
    /// A layer whose correction is zero at first: a is uniform within one over the root of the inputs (as Kaiming's rule has it in PEFT), b
    /// is zero, both are variables. `alpha / rank` scales the correction, `dropout` is the probability that it does not see an input.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use openmps_candle::LoraLinear;
    /// let weight = Tensor::zeros((6, 4), DType::F32, &Device::Cpu)?;
    /// assert!(LoraLinear::new(weight.clone(), None, 0, 4.0, 0.0, 7).is_err());
    /// assert!(LoraLinear::new(weight, None, 2, 4.0, 1.0, 7).is_err());
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn new(
        weight: Tensor,
        bias: Option<Tensor>,
        rank: usize,
        alpha: f64,
        dropout: f64,
        seed: u64,
    ) -> Result<LoraLinear> {
        let (outputs, inputs) = weight.dims2()?;
        if rank == 0 {
            candle_core::bail!("the rank of LoRA is 0");
        }
        let (dtype, device) = (weight.dtype(), weight.device());
        let a = uniform(rank, inputs, seed)?.to_dtype(dtype)?.to_device(device)?;
        let a = Var::from_tensor(&a)?.as_tensor().clone();
        let b = Var::zeros((outputs, rank), dtype, device)?.as_tensor().clone();
        LoraLinear::from_parts(weight, bias, (a, b), alpha / rank as f64, dropout, seed)
    }

    /// A layer of a correction that exists: an adapter's, or variables of one's own.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use openmps_candle::LoraLinear;
    /// let zeros = |rows, columns| Tensor::zeros((rows, columns), DType::F32, &Device::Cpu);
    /// LoraLinear::from_parts(zeros(6, 4)?, None, (zeros(2, 4)?, zeros(6, 2)?), 2.0, 0.0, 0)?;
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn from_parts(
        weight: Tensor,
        bias: Option<Tensor>,
        (a, b): (Tensor, Tensor),
        scaling: f64,
        dropout: f64,
        seed: u64,
    ) -> Result<LoraLinear> {
        if !(0.0..1.0).contains(&dropout) {
            candle_core::bail!("the dropout of LoRA is {dropout}, expected at least 0 and less than 1");
        }
        let (weight, bias) = (weight.detach(), bias.map(|bias| bias.detach()));
        Ok(LoraLinear { weight, bias, a, b, scaling, dropout, seed, calls: Arc::default() })
    }

    /// The factor of the correction.
    ///
    /// ```
    /// # use candle_core::{DType, Device, Tensor};
    /// # let weight = Tensor::zeros((6, 4), DType::F32, &Device::Cpu)?;
    /// assert_eq!(openmps_candle::LoraLinear::new(weight, None, 8, 16.0, 0.0, 1)?.scaling(), 2.0);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn scaling(&self) -> f64 {
        self.scaling
    }

    /// The matrices a [rank, inputs] and b [outputs, rank].
    ///
    /// ```
    /// # use candle_core::{DType, Device, Tensor};
    /// # let weight = Tensor::zeros((6, 4), DType::F32, &Device::Cpu)?;
    /// let layer = openmps_candle::LoraLinear::new(weight, None, 2, 4.0, 0.0, 1)?;
    /// assert_eq!((layer.matrices().0.dims(), layer.matrices().1.dims()), (&[2, 4][..], &[6, 2][..]));
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn matrices(&self) -> (&Tensor, &Tensor) {
        (&self.a, &self.b)
    }

    /// The frozen weight.
    ///
    /// ```
    /// # use candle_core::{DType, Device, Tensor};
    /// # let weight = Tensor::zeros((6, 4), DType::F32, &Device::Cpu)?;
    /// assert_eq!(openmps_candle::LoraLinear::new(weight, None, 2, 4.0, 0.0, 1)?.weight().dims(), [6, 4]);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The layer with the correction added to its weight: no slower than a linear layer.
    ///
    /// ```
    /// # use candle_core::{DType, Device, Tensor};
    /// # let weight = Tensor::zeros((6, 4), DType::F32, &Device::Cpu)?;
    /// let merged = openmps_candle::LoraLinear::new(weight, None, 2, 4.0, 0.0, 1)?.merged()?;
    /// assert_eq!(merged.weight().dims(), [6, 4]);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn merged(&self) -> Result<crate::Linear> {
        let weight = (&self.weight + self.correction()?)?;
        Ok(crate::Linear::new(weight.detach(), self.bias.clone()))
    }

    /// `scaling * b a`, which merging adds to the weight.
    ///
    /// ```
    /// # use candle_core::{DType, Device, Tensor};
    /// # let weight = Tensor::zeros((6, 4), DType::F32, &Device::Cpu)?;
    /// let correction = openmps_candle::LoraLinear::new(weight, None, 2, 4.0, 0.0, 1)?.correction()?;
    /// assert_eq!(correction.sqr()?.sum_all()?.to_scalar::<f32>()?, 0.0, "b is zero at first");
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn correction(&self) -> Result<Tensor> {
        matmul(&self.b, &self.a)? * self.scaling
    }

    /// The result without dropout.
    ///
    /// ```
    /// # use candle_core::{DType, Device, Tensor};
    /// # let weight = Tensor::zeros((6, 4), DType::F32, &Device::Cpu)?;
    /// let layer = openmps_candle::LoraLinear::new(weight, None, 2, 4.0, 0.5, 1)?;
    /// assert_eq!(layer.forward(&Tensor::ones((3, 4), DType::F32, &Device::Cpu)?)?.dims(), [3, 6]);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_t(x, false)
    }

    /// Inputs and outputs.
    ///
    /// ```
    /// # use candle_core::{DType, Device, Tensor};
    /// # let weight = Tensor::zeros((6, 4), DType::F32, &Device::Cpu)?;
    /// assert_eq!(openmps_candle::LoraLinear::new(weight, None, 2, 4.0, 0.0, 1)?.sizes()?, (4, 6));
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn sizes(&self) -> Result<(usize, usize)> {
        Ok((self.weight.dim(D::Minus1)?, self.weight.dim(0)?))
    }
}

/// Numbers of a counter-based generator, so that a seed gives the same layer everywhere.
pub(crate) fn uniform(rank: usize, inputs: usize, seed: u64) -> Result<Tensor> {
    use openmps::operators::operators::random::{Law, Random};
    let bound = 1.0 / (inputs.max(1) as f64).sqrt();
    let operator = Random {
        law: Law::Uniform { low: -bound, high: bound },
        source: Source { seed, offset: 0 },
        dims: [rank, inputs].into_iter().collect(),
        dtype: openmps::DataType::F32,
    };
    let (storage, shape) = on_host(&Plain(operator), &[])?;
    let none = candle_core::op::BackpropOp::none();
    Ok(Tensor::from_storage(Storage::Cpu(storage), shape, none, false))
}

impl ModuleT for LoraLinear {
    /// With dropout when training.
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let probability = self.dropout;
        let dropout = (train && probability > 0.0 && data_type(x.dtype()).is_some()).then(|| {
            // Stream 0 filled the layer's matrix.
            let offset = 1 + self.calls.fetch_add(1, Ordering::Relaxed);
            Drop { probability, source: Source { seed: self.seed, offset } }
        });
        let (weight, bias) = (self.weight.clone(), self.bias.clone());
        forward(x, &self.a, &self.b, Lora { weight, bias, scaling: self.scaling, dropout })
    }
}

/// Cases of the forward pass for its test on external GPUs.
#[cfg(test)]
pub(crate) fn cases(
    add: &mut crate::external::AddCase,
    held: &dyn Fn(&[usize], usize) -> Result<Tensor>,
) -> Result<()> {
    let dropout = Drop { probability: 0.3, source: Source { seed: 7 << 40 | 11, offset: 3 } };
    add("dropout", Box::new(dropout), &[&[3, 50, 17]]);
    for (bias, dropout) in [(None, None), (Some(held(&[9], 6)?), None), (Some(held(&[9], 6)?), Some(dropout))] {
        let op = Lora { weight: held(&[9, 20], 5)?, bias, scaling: 2.0, dropout };
        add("lora", Box::new(op), &[&[2, 5, 20], &[4, 20], &[9, 4]]);
    }
    Ok(())
}
