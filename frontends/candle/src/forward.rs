//! What a custom operator computes, said once for every device: the shape of the result, and the commands that compute it. Candle's
//! `cpu_fwd` and `metal_fwd` are made of it.

use crate::operand::{Operand, infer, produce, queue, view};
use candle_core::{CpuStorage, Error, Result, Shape, Storage, Tensor};
use openmps::operators::{Meta, Operator, Queue, View};

/// The forward pass of a custom operator. Views name tensors of any strides; the result's is dense.
pub(crate) trait Forward {
    /// Element type and dimensions of the result, or what is wrong with the inputs.
    fn result(&self, inputs: &[View]) -> Result<Meta>;

    /// Submits the commands that write the result in full.
    fn submit(&self, queue: &Queue, inputs: &[View], out: &View) -> Result<()>;

    /// The result's dimensions as Candle is told them: the same elements in the same order.
    fn dims(&self, result: &Meta) -> Vec<usize> {
        result.shape.to_vec()
    }

    /// Tensors that the operator holds itself (a frozen weight, a mask); their views follow the inputs'.
    fn held(&self) -> Vec<&Tensor> {
        Vec::new()
    }
}

/// An operator of openmps's list as it is.
pub(crate) struct Plain<O: Operator>(pub O);

impl<O: Operator> Forward for Plain<O> {
    fn result(&self, inputs: &[View]) -> Result<Meta> {
        infer(&self.0, inputs)
    }

    fn submit(&self, queue: &Queue, inputs: &[View], out: &View) -> Result<()> {
        self.0.run(queue, inputs, std::slice::from_ref(out)).map_err(Error::wrap)
    }
}

/// Runs it on the CPU.
pub(crate) fn on_host(op: &dyn Forward, inputs: &[Operand]) -> Result<(CpuStorage, Shape)> {
    let held: Vec<_> = op.held().into_iter().map(Tensor::storage_and_layout).collect();
    let mut views: Vec<View> = inputs.iter().map(|&input| view(input)).collect::<Result<_>>()?;
    for (storage, layout) in &held {
        let Storage::Cpu(storage) = &**storage else {
            candle_core::bail!("a tensor that the operator holds is not on the CPU")
        };
        views.push(view((storage, layout))?);
    }
    let result = op.result(&views)?;
    let (storage, _) = produce(result.dtype, &result.shape, |out| {
        // SAFETY: the views are of storages that are borrowed, and of a fresh one, until the host has computed in `submit`.
        op.submit(unsafe { Queue::vouched(queue()?) }, &views, out)
    })?;
    Ok((storage, Shape::from_dims(&op.dims(&result))))
}

/// `cpu_fwd` and `metal_fwd` of a custom operator of as many operands, in its implementation of Candle's trait. What is in brackets is the
/// [`Forward`], made from `self`.
macro_rules! forwards {
    ($self:ident => [$forward:expr], $($storage:ident $layout:ident),+) => {
        fn cpu_fwd(
            &$self,
            $($storage: &candle_core::CpuStorage, $layout: &candle_core::Layout),+
        ) -> candle_core::Result<(candle_core::CpuStorage, candle_core::Shape)> {
            $crate::forward::on_host(&$forward, &[$(($storage, $layout)),+])
        }

        #[cfg(feature = "metal")]
        fn metal_fwd(
            &$self,
            $($storage: &candle_core::MetalStorage, $layout: &candle_core::Layout),+
        ) -> candle_core::Result<(candle_core::MetalStorage, candle_core::Shape)> {
            $crate::metal::on_metal(&$forward, &[$(($storage, $layout)),+])
        }
    };
}
pub(crate) use forwards;
