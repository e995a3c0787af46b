//! A linear layer in blocks, with or without a bias and a low-rank correction.

use super::QuantizedWeight;
use crate::adapter::AdapterError;
use crate::lora::uniform;
use crate::matmul;
use candle_core::{DType, Device, Result, Tensor, Var};

/// `x weight^T + bias + scaling * x a^T b^T`.
#[derive(Clone, Debug)]
pub(super) struct Projection {
    /// As the adapter's layout calls it.
    pub name: String,
    pub weight: QuantizedWeight,
    pub bias: Option<Tensor>,
    /// Heads, where rows lie as llama.cpp's converter permutes them: pairs that the rotary embedding turns are neighbours in a head. In Hugging
    /// Face's layout they are an element of each half.
    pub permuted_heads: Option<usize>,
    pub correction: Option<Correction>,
}

/// Matrices a [rank, inputs] and b [outputs, rank], both variables.
#[derive(Clone, Debug)]
pub(super) struct Correction {
    pub a: Tensor,
    pub b: Tensor,
    pub scaling: f64,
}

impl Projection {
    /// The result; where nothing is trained, nothing of the correction is kept for a backward pass.
    pub fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let mut y = self.weight.forward(x)?;
        if let Some(bias) = &self.bias {
            y = y.broadcast_add(bias)?;
        }
        match &self.correction {
            Some(Correction { a, b, scaling }) => {
                let (a, b) = if train { (a.clone(), b.clone()) } else { (a.detach(), b.detach()) };
                y + (matmul(&matmul(x, &a.t()?)?, &b.t()?)? * *scaling)?
            }
            None => Ok(y),
        }
    }

    /// Gives it a correction that is zero at first, of two variables.
    pub fn correct(&mut self, rank: usize, scaling: f64, seed: u64) -> Result<()> {
        let [outputs, inputs] = self.weight.dims();
        let a = Var::from_tensor(&uniform(rank, inputs, seed)?)?.as_tensor().clone();
        let b = Var::zeros((outputs, rank), DType::F32, &Device::Cpu)?.as_tensor().clone();
        self.correction = Some(Correction { a, b, scaling });
        Ok(())
    }

    /// A correction of these matrices, which PEFT has trained or will read: variables of its own, that may be trained further.
    pub fn of_peft(&self, a: &Tensor, b: &Tensor, scaling: f64) -> std::result::Result<Correction, AdapterError> {
        let [outputs, inputs] = self.weight.dims();
        let rank = a.dims()[0];
        if a.dims() != [rank, inputs] || b.dims() != [outputs, rank] {
            let (a, b) = (a.dims().to_vec(), b.dims().to_vec());
            return Err(AdapterError::Size { layer: self.name.clone(), a, b, inputs, outputs });
        }
        let (a, b) = (a.to_dtype(DType::F32)?, b.to_dtype(DType::F32)?);
        let b = self.reordered(&b, |heads, half, rank| (heads, 2, half, rank))?;
        // Of a detached tensor, since a variable of the adapter's would stay one that both have.
        let variable = |tensor: &Tensor| Var::from_tensor(&tensor.detach()).map(Var::into_inner);
        Ok(Correction { a: variable(&a)?, b: variable(&b)?, scaling })
    }

    /// A matrix b, as PEFT has it.
    pub fn to_peft(&self, b: &Tensor) -> Result<Tensor> {
        self.reordered(b, |heads, half, rank| (heads, half, 2, rank))
    }

    /// The rows of a matrix b in the other order: both are transposes of each other, head by head.
    fn reordered(
        &self,
        b: &Tensor,
        shape: impl Fn(usize, usize, usize) -> (usize, usize, usize, usize),
    ) -> Result<Tensor> {
        let Some(heads) = self.permuted_heads else { return Ok(b.clone()) };
        let (outputs, rank) = b.dims2()?;
        let shape = shape(heads, outputs / heads / 2, rank);
        b.reshape(shape)?.transpose(1, 2)?.contiguous()?.reshape((outputs, rank))
    }
}
