//! A linear layer in blocks, with or without a bias and a low-rank correction.

use super::QuantizedWeight;
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
    pub correction: Option<Correction>,
}

/// Matrices a [rank, inputs] and b [outputs, rank].
#[derive(Clone, Debug)]
pub(super) struct Correction {
    pub a: Tensor,
    pub b: Tensor,
    pub scaling: f64,
}

impl Projection {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = self.weight.forward(x)?;
        if let Some(bias) = &self.bias {
            y = y.broadcast_add(bias)?;
        }
        match &self.correction {
            Some(Correction { a, b, scaling }) => y + (matmul(&matmul(x, &a.t()?)?, &b.t()?)? * *scaling)?,
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
}
