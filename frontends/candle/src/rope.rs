//! Rotary position embedding.

use crate::forward::{Plain, forwards};
use crate::path::{Operation, Path, path};
use crate::reduce::{mixed, sum_to, widened};
use candle_core::{CustomOp3, D, Result, Tensor};
use openmps::operators::operators::rope::Rope as Operator;

/// Turns the pairs of the last dimension by the angles of their positions: `(x cos - y sin, x sin + y cos)`.
///
/// x is [batch, heads, rows, size]; cosines and sines are [rows, size / 2], or [batch, rows, size / 2] where batches have positions of their
/// own; rows of the tables beyond x's are not read, and tables may be float32 where x is of half precision. A pair is two neighbours when `interleaved`, otherwise one element of each half. Gradients flow to x and to both tables.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[[[1.0f32, 0.0]]]], &Device::Cpu)?;
/// let (cos, sin) = (Tensor::new(&[[0.0f32]], &Device::Cpu)?, Tensor::new(&[[1.0f32]], &Device::Cpu)?);
/// assert_eq!(openmps_candle::rope(&x, &cos, &sin, false)?.flatten_all()?.to_vec1::<f32>()?, [0.0, 1.0]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor> {
    if let Some(wide) = mixed(&[x, cos, sin]) {
        let [wide_x, cos, sin] = [x.to_dtype(wide)?, cos.to_dtype(wide)?, sin.to_dtype(wide)?];
        return rope(&wide_x, &cos, &sin, interleaved)?.to_dtype(x.dtype());
    }
    let (cos, sin) = (&of_rows(x, cos)?, &of_rows(x, sin)?);
    match path(Operation::Rope, &[x, cos, sin], x.elem_count()) {
        Path::Openmps => x.apply_op3(cos, sin, Rope { interleaved, inverse: false }),
        Path::Candle => turned(x, cos, sin, interleaved),
    }
}

/// The rows of a table that x has.
fn of_rows(x: &Tensor, angles: &Tensor) -> Result<Tensor> {
    let longer = x.rank() == 4 && angles.rank() >= 2 && angles.dim(D::Minus2)? > x.dim(2)?;
    if longer { angles.narrow(D::Minus2, 0, x.dim(2)?) } else { Ok(angles.clone()) }
}

/// The same by Candle's own operators.
fn turned(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor> {
    let (a, b) = pairs(x, interleaved)?;
    let (cos, sin) = (table(cos)?, table(sin)?);
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (a.broadcast_mul(&sin)? + b.broadcast_mul(&cos)?)?;
    let turned = Tensor::stack(&[first, second], if interleaved { x.rank() } else { x.rank() - 1 })?;
    turned.reshape(x.shape())
}

/// The first and the second elements of all pairs.
fn pairs(x: &Tensor, interleaved: bool) -> Result<(Tensor, Tensor)> {
    let half = x.dim(D::Minus1)? / 2;
    let mut dims = x.dims()[..x.rank() - 1].to_vec();
    dims.extend(if interleaved { [half, 2] } else { [2, half] });
    let (split, axis) = (x.reshape(dims)?, if interleaved { x.rank() } else { x.rank() - 1 });
    Ok((split.narrow(axis, 0, 1)?.squeeze(axis)?, split.narrow(axis, 1, 1)?.squeeze(axis)?))
}

/// A table as it broadcasts over heads.
fn table(angles: &Tensor) -> Result<Tensor> {
    if angles.rank() == 3 { angles.unsqueeze(1) } else { Ok(angles.clone()) }
}

struct Rope {
    interleaved: bool,
    inverse: bool,
}

impl CustomOp3 for Rope {
    fn name(&self) -> &'static str {
        "openmps-rope"
    }

    forwards!(self => [Plain(Operator { interleaved: self.interleaved, inverse: self.inverse })], s1 l1, s2 l2, s3 l3);

    fn bwd(
        &self,
        x: &Tensor,
        cos: &Tensor,
        sin: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let back = Rope { interleaved: self.interleaved, inverse: !self.inverse };
        let of_x = x.track_op().then(|| gradient.apply_op3_no_bwd(cos, sin, &back)).transpose()?;
        if !cos.track_op() && !sin.track_op() {
            return Ok((of_x, None, None));
        }
        let (a, b) = pairs(&widened(x)?, self.interleaved)?;
        let (c, d) = pairs(&widened(gradient)?, self.interleaved)?;
        let summed = |gradient: Tensor, of: &Tensor| {
            let gradient = sum_to(&gradient, table(of)?.dims())?;
            gradient.reshape(of.shape())?.to_dtype(of.dtype())
        };
        let of_cos = summed(((&a * &c)? + (&b * &d)?)?, cos)?;
        let of_sin = summed(((&a * &d)? - (&b * &c)?)?, sin)?;
        let of_sin = if self.inverse { of_sin.neg()? } else { of_sin };
        Ok((of_x, Some(of_cos), Some(of_sin)))
    }
}

/// Cases of the forward pass for its test on external GPUs.
#[cfg(test)]
pub(crate) fn cases(add: &mut crate::external::AddCase) {
    for (interleaved, inverse) in [(false, false), (true, false), (false, true), (true, true)] {
        let op = || Box::new(Plain(Operator { interleaved, inverse }));
        add("rope", op(), &[&[2, 3, 5, 14], &[5, 7], &[5, 7]]);
        add("rope", op(), &[&[2, 2, 40, 32], &[2, 40, 16], &[2, 40, 16]]);
    }
}
