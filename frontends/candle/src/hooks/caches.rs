//! Caches of keys and values. Candle's are for inference: what they hand back is out of what is differentiated, the keys and values of now, too, and no error
//! says so. Here these stay in it; what a cache keeps for later does not.

use super::CANDLES_OWN;
use candle_core::{Result, Tensor};

/// `candle_nn::kv_cache::ConcatKvCache::append`.
pub fn concat_kv_cache(
    [of_keys, of_values]: [&mut Option<Tensor>; 2],
    dim: usize,
    [k, v]: [&Tensor; 2],
) -> Result<Option<(Tensor, Tensor)>> {
    if !learns(&[k, v]) {
        return Ok(None);
    }
    let (keys, values) = (behind(of_keys.as_ref(), k, dim)?, behind(of_values.as_ref(), v, dim)?);
    (*of_keys, *of_values) = (Some(keys.detach()), Some(values.detach()));
    Ok(Some((keys, values)))
}

/// `candle_nn::kv_cache::KvCache::append`; `store` keeps what it is given.
pub fn kv_cache(
    [past_keys, past_values]: [Option<Tensor>; 2],
    dim: usize,
    [k, v]: [&Tensor; 2],
    store: impl FnOnce(&Tensor, &Tensor) -> Result<()>,
) -> Result<Option<(Tensor, Tensor)>> {
    if !learns(&[k, v]) {
        return Ok(None);
    }
    store(&k.detach(), &v.detach())?;
    Ok(Some((behind(past_keys.as_ref(), k, dim)?, behind(past_values.as_ref(), v, dim)?)))
}

/// `candle_nn::kv_cache::RotatingCache::append`, a ring of `size` rows of which the next is `offset`. `store` is Candle's own.
pub fn rotating_cache(
    new: &Tensor,
    dim: usize,
    [offset, size]: [usize; 2],
    store: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    if !learns(&[new]) {
        return Ok(None);
    }
    let kept = store(&new.detach())?;
    let (rows, length) = (new.dim(dim)?, kept.dim(dim)?);
    if rows >= size {
        // More than the ring holds is handed back as it is.
        return Ok(Some(new.clone()));
    }
    // What does not fit before the ring's end goes on at its beginning.
    let until_end = rows.min(size - offset);
    let around = rows - until_end;
    let parts = [
        (new, until_end, around),
        (&kept, around, offset - around),
        (new, 0, until_end),
        (&kept, offset + until_end, length - offset - until_end),
    ];
    let parts = parts.into_iter().filter(|(_, _, rows)| *rows > 0);
    // A copy, since the ring's memory is written again.
    let parts = parts.map(|(of, first, rows)| of.narrow(dim, first, rows)).collect::<Result<Vec<_>>>()?;
    if parts.is_empty() { Ok(Some(kept)) } else { Tensor::cat(&parts, dim).map(Some) }
}

/// `candle_nn::kv_cache::ScatteredKvCache::append`: row i of batch b goes to row `indices[b, i]`. `store` is Candle's own.
pub fn scattered_kv_cache(
    [k, v]: [&Tensor; 2],
    indices: &Tensor,
    size: usize,
    store: impl FnOnce(&Tensor, &Tensor) -> Result<(Tensor, Tensor)>,
) -> Result<Option<(Tensor, Tensor)>> {
    if !learns(&[k, v]) || size <= k.dim(2)? {
        return Ok(None);
    }
    let (keys, values) = store(&k.detach(), &v.detach())?;
    let indices = indices.unsqueeze(2)?.unsqueeze(1)?.broadcast_as(k.shape())?.contiguous()?;
    Ok(Some((keys.scatter(&indices, &k.contiguous()?, 2)?, values.scatter(&indices, &v.contiguous()?, 2)?)))
}

/// `candle_nn::kv_cache::InterleavedKvCache::append`, which makes [rows, heads, size of keys + size of values] of [1, heads, rows, size].
/// `store` is Candle's own.
pub fn interleaved_kv_cache(
    [k, v]: [&Tensor; 2],
    store: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    if !learns(&[k, v]) {
        return Ok(None);
    }
    let kept = store(&k.detach(), &v.detach())?;
    let of_now = |x: &Tensor| x.squeeze(0)?.transpose(0, 1);
    let new = Tensor::cat(&[of_now(k)?, of_now(v)?], 2)?;
    let past = kept.narrow(0, 0, kept.dim(0)? - new.dim(0)?)?;
    behind((past.dim(0)? > 0).then_some(&past), &new, 0).map(Some)
}

/// Whether a cache has something to lose; else it is Candle's matter.
fn learns(new: &[&Tensor]) -> bool {
    !CANDLES_OWN.get() && new.iter().any(|tensor| tensor.track_op())
}

/// What was, and behind it what is new.
fn behind(past: Option<&Tensor>, new: &Tensor, dim: usize) -> Result<Tensor> {
    past.map_or_else(|| new.contiguous(), |past| Tensor::cat(&[past, new], dim))
}
