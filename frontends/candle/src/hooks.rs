//! What `cargo openmps patch-candle` calls from candle-nn's functions, under their names and with their parameters: a result, or none where
//! Candle's own text is to go on, which then computes or says what is wrong.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! let x = Tensor::ones((16, 16), candle_core::DType::F32, &Device::Cpu)?;
//! assert!(openmps_candle::hooks::softmax(&x, &1)?.is_some());
//! assert!(openmps_candle::hooks::softmax(&x.to_dtype(candle_core::DType::U32)?, &1)?.is_none());
//! # Ok::<(), candle_core::Error>(())
//! ```

mod caches;

use crate::path::{Operation, Path, path};
use crate::reduce::mixed;
use crate::{AttentionOptions, attention};
use candle_core::shape::Dim;
use candle_core::{D, DType, Result, Tensor};
use std::cell::Cell;

#[doc(hidden)]
pub use caches::{concat_kv_cache, interleaved_kv_cache, kv_cache, rotating_cache, scattered_kv_cache};

thread_local! {
    static CANDLES_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Has this thread compute with candle-nn's own functions while `f` runs: for comparisons.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::ones((16, 16), candle_core::DType::F32, &Device::Cpu)?;
/// openmps_candle::hooks::candles_own(|| assert!(openmps_candle::hooks::softmax(&x, &1).unwrap().is_none()));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn candles_own<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            CANDLES_OWN.set(self.0);
        }
    }
    let _restore = Restore(CANDLES_OWN.replace(true));
    f()
}

/// Whether tensors are computed with here. Of tensors of different types, those are that the operator brings to one.
fn takes(operation: Operation, tensors: &[&Tensor], work: usize) -> bool {
    let types = mixed(tensors).is_some() || tensors.iter().all(|tensor| tensor.dtype() == tensors[0].dtype());
    let devices = tensors.iter().all(|tensor| tensor.device().same_device(tensors[0].device()));
    !CANDLES_OWN.get() && types && devices && path(operation, tensors, work) == Path::Openmps
}

/// Whether Candle's fused operator is the quicker one, on dense tensors of one type of which none wants a gradient: it computes a few numbers in some 0.2 us,
/// and rows of a few elements without a step for each row. With nothing in them it would end the thread.
fn better_there(operation: Operation, tensors: &[&Tensor]) -> bool {
    let x = tensors[0];
    let (elements, row) = (x.elem_count(), x.dims().last().copied().unwrap_or(1));
    let small = match operation {
        // Of half precision, Candle's softmax rounds every step.
        Operation::Softmax => elements < 128 && matches!(x.dtype(), DType::F32 | DType::F64),
        Operation::Norm => (elements < 512 || row < 16) && x.dtype() != DType::F64,
        Operation::Rope => elements < 512,
        _ => false,
    };
    let plain = |tensor: &&Tensor| tensor.dtype() == x.dtype() && tensor.is_contiguous() && !tensor.track_op();
    small && elements > 0 && tensors.iter().all(plain)
}

/// `candle_nn::ops::softmax` and `softmax_last_dim`.
#[doc(hidden)]
pub fn softmax(xs: &Tensor, dim: &impl Dim) -> Result<Option<Tensor>> {
    let taken = takes(Operation::Softmax, &[xs], xs.elem_count()) && !better_there(Operation::Softmax, &[xs]);
    taken.then(|| crate::softmax(xs, dim.to_index(xs.shape(), "softmax")?)).transpose()
}

/// `candle_nn::ops::log_softmax`.
#[doc(hidden)]
pub fn log_softmax(xs: &Tensor, dim: &impl Dim) -> Result<Option<Tensor>> {
    let taken = takes(Operation::Softmax, &[xs], xs.elem_count()) && !better_there(Operation::Softmax, &[xs]);
    taken.then(|| crate::log_softmax(xs, dim.to_index(xs.shape(), "log-softmax")?)).transpose()
}

/// `candle_nn::ops::rms_norm`.
#[doc(hidden)]
pub fn rms_norm(xs: &Tensor, alpha: &Tensor, eps: f64) -> Result<Option<Tensor>> {
    norm(xs, alpha, None, false, eps)
}

/// `candle_nn::ops::layer_norm`.
#[doc(hidden)]
pub fn layer_norm(xs: &Tensor, alpha: &Tensor, beta: &Tensor, eps: f64) -> Result<Option<Tensor>> {
    norm(xs, alpha, Some(beta), true, eps)
}

/// `candle_nn::LayerNorm`, which without its mean removed is `candle_nn::RmsNorm`.
#[doc(hidden)]
pub fn norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, centred: bool, eps: f64) -> Result<Option<Tensor>> {
    let tensors: Vec<&Tensor> = [Some(x), Some(weight), bias].into_iter().flatten().collect();
    let of_a_row = |weight: &&Tensor| x.rank() > 0 && weight.dims() == &x.dims()[x.rank() - 1..];
    let fits = tensors[1..].iter().all(of_a_row) && (centred || bias.is_none());
    if !fits || !takes(Operation::Norm, &tensors, x.elem_count()) {
        return Ok(None);
    }
    // Candle has a fused operator with a bias where the mean is removed, and without one where it is not.
    if centred == bias.is_some() && better_there(Operation::Norm, &tensors) {
        return Ok(None);
    }
    if centred { crate::layer_norm(x, weight, bias, eps) } else { crate::rms_norm(x, weight, eps) }.map(Some)
}

/// `candle_nn::rotary_emb::rope`.
#[doc(hidden)]
pub fn rope(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Option<Tensor>> {
    turned(xs, cos, sin, false)
}

/// `candle_nn::rotary_emb::rope_i`.
#[doc(hidden)]
pub fn rope_i(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Option<Tensor>> {
    turned(xs, cos, sin, true)
}

/// `candle_nn::rotary_emb::rope_thd`, whose rows come before the heads.
#[doc(hidden)]
pub fn rope_thd(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Option<Tensor>> {
    let &[batch, rows, heads, size] = xs.dims() else { return Ok(None) };
    if !turns(xs, [batch, rows, size], [cos, sin]) {
        return Ok(None);
    }
    // Each position as a batch of its own, whose heads have one row: nothing is moved.
    let of_positions = |table: &Tensor| {
        let table = table.narrow(D::Minus2, 0, rows)?;
        table.broadcast_as((batch, rows, size / 2))?.reshape((batch * rows, 1, size / 2))
    };
    let positions = xs.reshape((batch * rows, heads, 1, size))?;
    crate::rope(&positions, &of_positions(cos)?, &of_positions(sin)?, false)?.reshape(xs.shape()).map(Some)
}

/// x is [batch, heads, rows, size].
fn turned(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Option<Tensor>> {
    let &[batch, _, rows, size] = x.dims() else { return Ok(None) };
    let taken = turns(x, [batch, rows, size], [cos, sin]);
    taken.then(|| crate::rope(x, cos, sin, interleaved)).transpose()
}

/// Whether x is turned here.
fn turns(x: &Tensor, [batch, rows, size]: [usize; 3], [cos, sin]: [&Tensor; 2]) -> bool {
    let fits = |table: &Tensor| match *table.dims() {
        [of_table, pairs] => of_table >= rows && 2 * pairs == size,
        [own, of_table, pairs] => own == batch && of_table >= rows && 2 * pairs == size,
        _ => false,
    };
    let tensors = [x, cos, sin];
    fits(cos)
        && fits(sin)
        && takes(Operation::Rope, &tensors, x.elem_count())
        && !better_there(Operation::Rope, &tensors)
}

/// `candle_nn::Linear`.
#[doc(hidden)]
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Option<Tensor>> {
    let tensors: Vec<&Tensor> = [Some(x), Some(weight), bias].into_iter().flatten().collect();
    let fits = x.rank() >= 2
        && weight.rank() == 2
        && x.dim(D::Minus1)? == weight.dim(1)?
        && bias.is_none_or(|bias| bias.dims() == &weight.dims()[..1])
        && mixed(&tensors).is_none();
    let taken = fits && takes(Operation::Linear, &tensors, x.elem_count().saturating_mul(weight.dim(0)?));
    taken.then(|| crate::linear(x, weight, bias)).transpose()
}

/// `candle_nn::attention::flash_attn`: queries, keys and values are [batch, rows, heads, size], a mask is [rows, keys]. Causal masks whose last
/// query sees the last key, and no ALiBi.
#[doc(hidden)]
pub fn flash_attn(
    [q, k, v]: [&Tensor; 3],
    scale: f32,
    mask: Option<&Tensor>,
    causal_from: Option<usize>,
    alibi: bool,
    soft_cap: Option<f32>,
) -> Result<Option<Tensor>> {
    if alibi || [q, k, v].iter().any(|tensor| tensor.rank() != 4) {
        return Ok(None);
    }
    let (rows, keys) = (q.dim(1)?, k.dim(1)?);
    let fits = causal_from.is_none_or(|first| first + rows == keys)
        && mask.is_none_or(|mask| mask.elem_count() == rows * keys);
    if !fits {
        return Ok(None);
    }
    let [q, k, v] = [q.transpose(1, 2)?, k.transpose(1, 2)?, v.transpose(1, 2)?];
    let mask = mask.map(|mask| mask.reshape((rows, keys))).transpose()?;
    attended([&q, &k, &v], options(scale, mask, causal_from.is_some(), soft_cap))
}

/// `candle_nn::attention::flash_attn_varlen_cpu` and `flash_attn_varlen_unfused`: queries, keys and values are [all rows, heads, size]. No ALiBi,
/// and windows that end with the query itself.
#[doc(hidden)]
pub fn flash_attn_varlen(
    [q, k, v]: [&Tensor; 3],
    alibi: bool,
    [of_q, of_k]: [&Tensor; 2],
    scale: f32,
    causal: bool,
    window: (Option<usize>, Option<usize>),
) -> Result<Option<Tensor>> {
    let known = of_q.rank() == 1 && of_k.dims() == of_q.dims() && [of_q, of_k].iter().all(|x| x.dtype() == DType::U32);
    let thirds = [q, k, v].iter().all(|tensor| tensor.rank() == 3);
    // A window to the right alone is none of Candle's, and one beyond the query none of ours.
    let fits =
        known && thirds && !alibi && (matches!(window, (_, None) | (Some(_), Some(0))) || causal && window.0.is_some());
    if !fits || k.dim(1)? != v.dim(1)? || k.dim(1)? == 0 || q.dim(1)? % k.dim(1)? != 0 {
        return Ok(None);
    }
    let sizes = |x: &Tensor| Ok::<_, candle_core::Error>(x.to_vec1::<u32>()?.into_iter().map(|size| size as usize));
    let lengths: Vec<(usize, usize)> = sizes(of_q)?.zip(sizes(of_k)?).collect();
    let whole = |sum: usize, x: &Tensor| x.dim(0).is_ok_and(|size| size == sum);
    let (rows, keys) = (lengths.iter().map(|length| length.0).sum(), lengths.iter().map(|length| length.1).sum());
    let causal = causal || window.0.is_some();
    let legal = whole(rows, q) && whole(keys, k) && whole(keys, v) && (!causal || lengths.iter().all(|(q, k)| q <= k));
    if !legal || !takes(Operation::Attention, &[q, k, v], q.elem_count().max(1)) {
        return Ok(None);
    }
    let options =
        AttentionOptions { window: window.0.map(|left| left.saturating_add(1)), ..options(scale, None, causal, None) };
    crate::attention_of_lengths(q, k, v, &lengths, &options).map(Some)
}

fn options(scale: f32, mask: Option<Tensor>, causal: bool, soft_cap: Option<f32>) -> AttentionOptions {
    // A cap of 0 is none, as Candle has it.
    let soft_cap = soft_cap.filter(|cap| *cap != 0.0).map(f64::from);
    AttentionOptions { mask, causal, soft_cap, scale: Some(f64::from(scale)), ..AttentionOptions::default() }
}

/// `candle_nn::ops::sdpa`, of which Candle has kernels for Metal only.
#[doc(hidden)]
pub fn sdpa(
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    causal: bool,
    scale: f32,
    softcapping: f32,
) -> Result<Option<Tensor>> {
    if !q.device().is_cpu() || softcapping == 0.0 {
        return Ok(None);
    }
    // 1 is no cap there.
    let soft_cap = Some(softcapping).filter(|cap| *cap != 1.0);
    attended([q, k, v], options(scale, mask.cloned(), causal, soft_cap))
}

fn attended([q, k, v]: [&Tensor; 3], options: AttentionOptions) -> Result<Option<Tensor>> {
    let alike = [k, v].iter().all(|tensor| tensor.dtype() == q.dtype());
    let grouped = [q, k, v].iter().all(|tensor| tensor.rank() == 4) && k.dim(1)? > 0 && q.dim(1)? % k.dim(1)? == 0;
    let capped = options.soft_cap.is_none_or(|cap| cap.is_finite() && cap > 0.0);
    if !alike || !grouped || !capped || options.mask.as_ref().is_some_and(Tensor::track_op) {
        return Ok(None);
    }
    let taken = takes(Operation::Attention, &[q, k, v], q.elem_count().max(1));
    taken.then(|| attention(q, k, v, &options)).transpose()
}
