//! Which way a call goes: openmps's kernels, or Candle's own operators. One table says from which size on ours pay.

use crate::operand::data_type;
use candle_core::Tensor;

/// The operations of this crate that have two ways.
///
/// ```
/// assert_eq!(openmps_candle::path::THRESHOLDS[0].operation, openmps_candle::path::Operation::Matmul);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Operation {
    Matmul,
    Softmax,
    Norm,
    Rope,
    Attention,
    Linear,
    Lora,
    Activation,
}

/// Which operators compute a call.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use openmps_candle::path::{Operation, Path, path};
/// let x = Tensor::zeros((64, 64), DType::F32, &Device::Cpu)?;
/// assert_eq!(path(Operation::Softmax, &[&x], 4096), Path::Openmps);
/// let x = Tensor::zeros((64, 64), DType::U32, &Device::Cpu)?;
/// assert_eq!(path(Operation::Matmul, &[&x, &x], 64 * 64 * 64), Path::Candle);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Our kernels.
    Openmps,
    /// Candle's own operators.
    Candle,
}

/// One row of the table.
///
/// ```
/// assert!(openmps_candle::path::THRESHOLDS.iter().all(|row| row.smallest <= 1024));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Threshold {
    /// The operation.
    pub operation: Operation,
    /// The work from which on openmps computes it on contiguous tensors: multiplications of products and attention, elements of the others.
    pub smallest: usize,
    /// Whether integers go there too.
    pub integers: bool,
}

/// The table. A custom operator costs one boxed call more than Candle's own, and Candle's composed softmax and norms make three to ten
/// passes; so only products have a size below which Candle's way is as good.
///
/// ```
/// use openmps_candle::path::THRESHOLDS;
/// assert!(THRESHOLDS.iter().any(|row| row.integers));
/// ```
pub const THRESHOLDS: &[Threshold] = &[
    Threshold { operation: Operation::Matmul, smallest: 64, integers: true },
    Threshold { operation: Operation::Softmax, smallest: 0, integers: false },
    Threshold { operation: Operation::Norm, smallest: 0, integers: false },
    Threshold { operation: Operation::Rope, smallest: 0, integers: false },
    Threshold { operation: Operation::Attention, smallest: 0, integers: false },
    Threshold { operation: Operation::Linear, smallest: 64, integers: false },
    Threshold { operation: Operation::Lora, smallest: 64, integers: false },
    Threshold { operation: Operation::Activation, smallest: 0, integers: false },
];

/// The way of a call on these tensors with this much work. Strided ones go openmps's way however small: Candle's products have no way for most of
/// them.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use openmps_candle::path::{Operation, Path, path};
/// let x = Tensor::zeros((2, 2), DType::F32, &Device::Cpu)?;
/// assert_eq!(path(Operation::Matmul, &[&x, &x], 8), Path::Candle, "too small to be worth it");
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn path(operation: Operation, tensors: &[&Tensor], work: usize) -> Path {
    let Some(row) = THRESHOLDS.iter().find(|row| row.operation == operation) else { return Path::Candle };
    let taken = |tensor: &&Tensor| {
        let dtype = data_type(tensor.dtype());
        let fits = dtype.is_some_and(|dtype| row.integers || dtype.is_float());
        let fits = (fits && tensor.device().is_cpu()) || on_metal(tensor);
        fits && tensor.rank() <= openmps::operators::view::MAX_RANK
    };
    let pays = work >= row.smallest || !tensors.iter().all(|tensor| tensor.is_contiguous());
    if pays && tensors.iter().all(taken) { Path::Openmps } else { Path::Candle }
}

/// Whether a tensor lies on a Metal device whose kernels take it.
#[cfg(feature = "metal")]
fn on_metal(tensor: &Tensor) -> bool {
    crate::metal::takes(tensor.device(), tensor.dtype())
}

#[cfg(not(feature = "metal"))]
fn on_metal(_: &Tensor) -> bool {
    false
}
