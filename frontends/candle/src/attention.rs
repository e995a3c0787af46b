//! Scaled dot product attention of grouped heads, with causal and additive masks, windows and soft caps; of texts of several lengths, too.

use crate::composed::{Seen, grouped, probabilities, soft_cap_slope};
use crate::forward::{Forward, forwards};
use crate::matmul;
use crate::operand::{expect_floats, infer};
use crate::path::{Operation, Path, path};
use crate::reduce::widened;
use crate::softmax::softmax_gradient;
use candle_core::{CustomOp3, DType, Error, Result, Tensor};
use openmps::operators::operators::attention::{Attention as Operator, LARGEST_ON_TILES};
use openmps::operators::{Meta, Operator as _, Queue, View};

/// How attention is computed.
///
/// ```
/// let options = openmps_candle::AttentionOptions { causal: true, ..Default::default() };
/// assert!(options.mask.is_none() && options.scale.is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions {
    /// Added to the scores; broadcasts to [batch, heads, rows, keys]. One of u8 hides the keys where it is not 0, as masks of candle-transformers
    /// do. It gets no gradient, so one that wants it is refused.
    pub mask: Option<Tensor>,
    /// Query i sees the keys up to i + keys - rows only: the last query sees all, as a key-value cache wants it.
    pub causal: bool,
    /// Query i sees none of the keys up to i + keys - rows but the last so many, its own among them: a window that slides. What lies outside is
    /// neither read nor computed.
    pub window: Option<usize>,
    /// Scaled scores become `cap * tanh(score / cap)`, before a mask is added.
    pub soft_cap: Option<f64>,
    /// The factor of the scores; one over the root of the depth when there is none.
    pub scale: Option<f64>,
    /// Whether the result is [batch, rows, heads * columns], as the layer after it wants it, and not [batch, heads, rows, columns].
    pub merge_heads: bool,
}

/// `softmax(scale * queries * keys^T + mask) * values`.
///
/// Queries are [batch, heads, rows, depth], keys [batch, key heads, keys, depth], values [batch, key heads, keys, columns]; each head of keys
/// serves `heads / key heads` neighbouring heads of queries. float16, bfloat16 (summed up in float32), float32 and float64. A query that
/// sees no key gives zeros.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use openmps_candle::{AttentionOptions, attention};
/// let q = Tensor::ones((1, 4, 3, 8), DType::F32, &Device::Cpu)?;
/// let k = Tensor::ones((1, 2, 5, 8), DType::F32, &Device::Cpu)?;
/// let y = attention(&q, &k, &k, &AttentionOptions::default())?;
/// assert_eq!(y.dims(), [1, 4, 3, 8]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    expect_floats("attention", q)?;
    if options.mask.as_ref().is_some_and(Tensor::track_op) {
        candle_core::bail!(
            "attention gives its mask no gradient: detach it, or compose attention from matmul and softmax"
        );
    }
    let depth = q.dim(candle_core::D::Minus1)?;
    let scale = options.scale.unwrap_or(1.0 / (depth.max(1) as f64).sqrt());
    let mask = options.mask.as_ref().map(|mask| additive(mask, q.dtype())).transpose()?;
    let seen = Seen { causal: options.causal, window: options.window };
    let op = Attention { mask, seen, soft_cap: options.soft_cap, scale, merge: options.merge_heads };
    let work = q.elem_count().saturating_mul(k.dims().get(2).copied().unwrap_or(1)).max(1);
    let tensors: Vec<&Tensor> = [q, k, v].into_iter().chain(&op.mask).collect();
    let fits = q.device().is_cpu() || depth.max(v.dim(candle_core::D::Minus1)?) <= LARGEST_ON_TILES;
    match path(Operation::Attention, &tensors, work) {
        Path::Openmps if fits => q.apply_op3(k, v, op),
        _ => {
            let (weights, _) = probabilities(q, k, op.mask.as_ref(), op.seen, scale, op.soft_cap)?;
            let (batch, heads, rows, _) = q.dims4()?;
            let y = matmul(&weights, &v.unsqueeze(2)?)?.reshape((batch, heads, rows, v.dim(3)?))?;
            if op.merge { y.transpose(1, 2)?.flatten_from(2) } else { Ok(y) }
        }
    }
}

/// [`attention`] of texts of several lengths that lie one after the other, without padding: queries [all rows, heads, depth], keys [all keys,
/// key heads, depth], values [all keys, key heads, columns], and how many rows and keys each text has. The result is [all rows, heads, columns].
/// Masks are not taken; `merge_heads` makes it [all rows, heads * columns].
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use openmps_candle::{AttentionOptions, attention_of_lengths};
/// let q = Tensor::ones((5, 4, 8), DType::F32, &Device::Cpu)?;
/// let k = Tensor::ones((9, 2, 8), DType::F32, &Device::Cpu)?;
/// let options = AttentionOptions { causal: true, ..Default::default() };
/// let y = attention_of_lengths(&q, &k, &k, &[(3, 3), (2, 6)], &options)?;
/// assert_eq!(y.dims(), [5, 4, 8]);
/// assert!(attention_of_lengths(&q, &k, &k, &[(3, 3)], &options).is_err(), "two rows are of no text");
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn attention_of_lengths(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    lengths: &[(usize, usize)],
    options: &AttentionOptions,
) -> Result<Tensor> {
    let (all, heads, _) = q.dims3()?;
    let columns = v.dims3()?.2;
    let sum = |of: fn(&(usize, usize)) -> usize| lengths.iter().map(of).fold(0, usize::saturating_add);
    let (rows, keys) = (sum(|length| length.0), sum(|length| length.1));
    if options.mask.is_some() || (rows, keys) != (all, k.dim(0)?) || keys != v.dim(0)? {
        candle_core::bail!("attention of lengths {lengths:?}, without a mask, on {q:?}, {k:?} and {v:?}");
    }
    let own = AttentionOptions { merge_heads: true, ..options.clone() };
    let (mut row, mut key) = (0, 0);
    let mut texts = Vec::with_capacity(lengths.len());
    for &(rows, keys) in lengths {
        let part = |x: &Tensor, at: usize, count: usize| x.narrow(0, at, count)?.transpose(0, 1)?.unsqueeze(0);
        let (q, k, v) = (part(q, row, rows)?, part(k, key, keys)?, part(v, key, keys)?);
        if rows > 0 {
            texts.push(attention(&q, &k, &v, &own)?.squeeze(0)?);
        }
        (row, key) = (row + rows, key + keys);
    }
    let merged = match texts.len() {
        0 => Tensor::zeros((0, heads * columns), q.dtype(), q.device())?,
        _ => Tensor::cat(&texts, 0)?,
    };
    if options.merge_heads { Ok(merged) } else { merged.reshape((all, heads, columns)) }
}

/// A mask as numbers that are added to scores of this type.
fn additive(mask: &Tensor, dtype: DType) -> Result<Tensor> {
    if mask.dtype() == DType::U8 {
        let hidden = Tensor::full(f32::NEG_INFINITY, mask.shape(), mask.device())?;
        return mask.where_cond(&hidden, &hidden.zeros_like()?)?.to_dtype(dtype);
    }
    if !mask.dtype().is_float() {
        candle_core::bail!(
            "a mask of {:?}, expected floats, which are added, or u8, where 1 hides a key",
            mask.dtype()
        );
    }
    // A finite number that is beyond the narrower type's is as good as minus infinity.
    mask.to_dtype(dtype)
}

struct Attention {
    mask: Option<Tensor>,
    seen: Seen,
    soft_cap: Option<f64>,
    scale: f64,
    merge: bool,
}

impl Attention {
    fn operator(&self) -> Operator {
        let Seen { causal, window } = self.seen;
        Operator { scale: Some(self.scale), causal, window, soft_cap: self.soft_cap }
    }
}

impl Forward for Attention {
    /// With heads to be merged, the result lies as [batch, rows, heads, columns].
    fn result(&self, inputs: &[View]) -> Result<Meta> {
        let mut result = infer(&self.operator(), inputs)?;
        if self.merge {
            result.shape.swap(1, 2);
        }
        Ok(result)
    }

    fn submit(&self, queue: &Queue, inputs: &[View], out: &View) -> Result<()> {
        let out = if self.merge { out.permuted(&[0, 2, 1, 3]) } else { out.clone() };
        self.operator().run(queue, inputs, &[out]).map_err(Error::wrap)
    }

    fn dims(&self, result: &Meta) -> Vec<usize> {
        match (self.merge, &result.shape[..]) {
            (true, &[batch, rows, heads, columns]) => vec![batch, rows, heads * columns],
            (_, dims) => dims.to_vec(),
        }
    }

    fn held(&self) -> Vec<&Tensor> {
        self.mask.iter().collect()
    }
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "openmps-attention"
    }

    forwards!(self => [*self], s1 l1, s2 l2, s3 l3);

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let dtype = q.dtype();
        let key_heads = k.dim(1)?;
        let [wide_q, wide_k, wide_v] = [widened(q)?, widened(k)?, widened(v)?];
        let mask = self.mask.as_ref().map(widened).transpose()?;
        let (weights, scores) = probabilities(&wide_q, &wide_k, mask.as_ref(), self.seen, self.scale, self.soft_cap)?;
        let gradient = if self.merge {
            let (batch, rows, _) = gradient.dims3()?;
            gradient.reshape((batch, rows, q.dim(1)?, v.dim(3)?))?.transpose(1, 2)?
        } else {
            gradient.clone()
        };
        let gradient = grouped(&widened(&gradient)?, key_heads)?;
        let of_v = || matmul(&weights.t()?, &gradient)?.sum(2)?.to_dtype(dtype);
        let of_v = v.track_op().then(of_v).transpose()?;
        if !q.track_op() && !k.track_op() {
            return Ok((None, None, of_v));
        }
        let of_weights = matmul(&gradient, &wide_v.unsqueeze(2)?.t()?)?;
        let mut of_scores = (softmax_gradient(&weights, &of_weights, 4, false)? * self.scale)?;
        if let Some(cap) = self.soft_cap {
            of_scores = (of_scores * soft_cap_slope(&scores, cap)?)?;
        }
        let of_q = || matmul(&of_scores, &wide_k.unsqueeze(2)?)?.reshape(q.shape())?.to_dtype(dtype);
        let of_k = || matmul(&of_scores.t()?, &grouped(&wide_q, key_heads)?)?.sum(2)?.to_dtype(dtype);
        Ok((q.track_op().then(of_q).transpose()?, k.track_op().then(of_k).transpose()?, of_v))
    }
}

/// Cases of the forward pass for its test on external GPUs.
#[cfg(test)]
pub(crate) fn cases(
    add: &mut crate::external::AddCase,
    held: &dyn Fn(&[usize], usize) -> Result<Tensor>,
) -> Result<()> {
    let masks = [None, Some(held(&[7, 39], 9)?), Some(held(&[2, 1, 1, 39], 9)?)];
    for (number, mask) in masks.into_iter().enumerate() {
        let seen = Seen { causal: number != 2, window: (number != 0).then_some(9) };
        let op = Attention { mask, seen, soft_cap: (number == 2).then_some(1.5), scale: 0.3, merge: number == 1 };
        add("attention", Box::new(op), &[&[2, 4, 7, 24], &[2, 2, 39, 24], &[2, 2, 39, 17]]);
    }
    // Queries before the first key see nothing.
    let seen = Seen { causal: true, window: None };
    let op = Attention { mask: None, seen, soft_cap: None, scale: 0.5, merge: true };
    add("attention", Box::new(op), &[&[1, 2, 40, 64], &[1, 1, 33, 64], &[1, 1, 33, 64]]);
    Ok(())
}
