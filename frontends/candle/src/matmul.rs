//! Matrix products of batches that broadcast.

use crate::forward::{Plain, forwards};
use crate::operand::data_type;
use crate::path::{Operation, Path, path};
use crate::reduce::{rows, sum_to};
use candle_core::{CustomOp2, Result, Tensor};
use openmps::operators::operators::matmul::Matmul as Operator;

/// The product over the last two dimensions; those before broadcast as in NumPy. Transposed and strided operands are read in place.
///
/// float16, bfloat16, float32, float64 and integers. Half precision is summed up in float32.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::arange(0f32, 6f32, &Device::Cpu)?.reshape((2, 3))?;
/// assert_eq!(openmps_candle::matmul(&x, &x.t()?)?.to_vec2::<f32>()?, [[5.0, 14.0], [14.0, 50.0]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn matmul(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let work = left.elem_count().saturating_mul(right.dims().last().copied().unwrap_or(1));
    let matrices = left.rank() >= 2 && right.rank() >= 2;
    match path(Operation::Matmul, &[left, right], work) {
        Path::Openmps if matrices => left.apply_op2(right, Matmul),
        // However small: Candle's own has no way for it.
        _ if matrices && (left.rank().max(right.rank()) > CANDLES_RANK || is_integer(left)) => {
            left.apply_op2(right, Matmul)
        }
        _ => left.broadcast_matmul(right),
    }
}

/// Whether the elements are integers that openmps computes with; Candle's products are of floats.
fn is_integer(x: &Tensor) -> bool {
    data_type(x.dtype()).is_some_and(|dtype| dtype.is_integer()) && x.device().is_cpu()
}

/// The most dimensions of a product of Candle's own: two of batches, two of matrices.
const CANDLES_RANK: usize = 4;

struct Matmul;

impl CustomOp2 for Matmul {
    fn name(&self) -> &'static str {
        "openmps-matmul"
    }

    forwards!(self => [Plain(Operator::default())], s1 l1, s2 l2);

    fn bwd(
        &self,
        left: &Tensor,
        right: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let of_left = left.track_op().then(|| sum_to(&matmul(gradient, &right.t()?)?, left.dims())).transpose()?;
        let of_right = right.track_op().then(|| right_gradient(left, right, gradient)).transpose()?;
        Ok((of_left, of_right))
    }
}

fn right_gradient(left: &Tensor, right: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    if right.rank() == 2 {
        // One product over all batches sums them up.
        return matmul(&rows(left)?.t()?, &rows(gradient)?);
    }
    sum_to(&matmul(&left.t()?, gradient)?, right.dims())
}

/// Cases of the forward pass for its test on external GPUs.
#[cfg(test)]
pub(crate) fn cases(add: &mut crate::external::AddCase) {
    let shapes: [&[&[usize]]; 6] = [
        &[&[5, 7], &[7, 3]],
        &[&[70, 100], &[100, 65]],
        &[&[3, 4, 9], &[9, 8]],
        &[&[2, 1, 4, 5], &[3, 5, 2]],
        &[&[2, 3, 2, 4, 9], &[1, 3, 1, 9, 17]],
        &[&[4, 0], &[0, 3]],
    ];
    shapes.into_iter().for_each(|shapes| add("matmul", Box::new(Plain(Operator::default())), shapes));
}
