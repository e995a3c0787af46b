//! What the patched candle-nn's caches of keys and values call: Candle's results, with the gradient that Candle's own lose.

use candle_core::{Device, Result, Tensor, Var};
use candle_nn::kv_cache::{InterleavedKvCache, RotatingKvCache, ScatteredCacheBuilder};
use openmps_candle::hooks;

fn variable(dims: &[usize], seed: u64) -> Result<Var> {
    let mut numbers = fastrand::Rng::with_seed(seed);
    let data: Vec<f32> = (0..dims.iter().product()).map(|_| numbers.f32() * 4.0 - 2.0).collect();
    Var::from_tensor(&Tensor::from_vec(data, dims, &Device::Cpu)?)
}

fn same(got: &Tensor, expected: &Tensor) -> Result<()> {
    assert_eq!((got.dims(), got.is_contiguous()), (expected.dims(), true));
    assert_eq!(got.flatten_all()?.to_vec1::<f32>()?, expected.flatten_all()?.to_vec1::<f32>()?);
    Ok(())
}

/// The result's elements have weights of their own; a new row's gradient is the weights of the places that it went to, found by its numbers.
fn gradient_is_of_its_places(all: &Tensor, new: &Var) -> Result<()> {
    let weights = variable(all.dims(), 99)?.as_detached_tensor();
    let gradients = (all * &weights)?.sum_all()?.backward()?;
    let got = gradients.get(new).expect("it has a gradient").flatten_all()?.to_vec1::<f32>()?;
    let (all, weights) = (all.flatten_all()?.to_vec1::<f32>()?, weights.flatten_all()?.to_vec1::<f32>()?);
    for (number, got) in new.flatten_all()?.to_vec1::<f32>()?.into_iter().zip(got) {
        let at = all.iter().position(|x| *x == number);
        assert_eq!(got, at.map_or(0.0, |at| weights[at]));
    }
    Ok(())
}

/// Rows until the ring of seven is full, around its end, and more than it holds.
#[test]
fn a_ring_keeps_the_gradient_of_new_rows() -> Result<()> {
    let mut ring = RotatingKvCache::new(2, 7);
    let mut candles = ring.clone();
    for (step, rows) in [3, 2, 1, 4, 1, 6, 7, 2, 9, 5].into_iter().enumerate() {
        let (k, v) = (variable(&[1, 2, rows, 4], step as u64)?, variable(&[1, 2, rows, 4], 50 + step as u64)?);
        let place = [ring.offset(), ring.k_cache().max_seq_len()];
        let store = |new: &Tensor| ring.k_cache_mut().append(new);
        let keys = hooks::rotating_cache(&k, 2, place, store)?.expect("it is taken");
        let values = hooks::rotating_cache(&v, 2, place, |new| ring.v_cache_mut().append(new))?.expect("it is taken");
        let (candles_keys, candles_values) = candles.append(&k, &v)?;
        same(&keys, &candles_keys)?;
        same(&values, &candles_values)?;
        assert!(ring.k()?.is_some_and(|kept| !kept.track_op()), "what is kept has none");
        gradient_is_of_its_places(&keys, &k)?;
        gradient_is_of_its_places(&values, &v)?;
    }
    Ok(())
}

#[test]
fn scattered_rows_keep_their_gradient() -> Result<()> {
    let mut places = ScatteredCacheBuilder::new(2, 5, candle_core::DType::F32, &Device::Cpu)?;
    let (mut cache, mut candles) = (places.make_cache(3, 4)?, places.make_cache(3, 4)?);
    for (step, rows) in [2, 1, 3, 1].into_iter().enumerate() {
        let (k, v) = (variable(&[2, 3, rows, 4], step as u64)?, variable(&[2, 3, rows, 4], 50 + step as u64)?);
        let first = places.positions()[0];
        let rows_of = || (0..rows as u32).map(|row| (first as u32 + row) % 5);
        let indices = Tensor::from_iter(rows_of().chain(rows_of()), &Device::Cpu)?.reshape((2, rows))?;
        let mask = places.indices_and_mask(rows, &[true, true])?;
        let store = |k: &Tensor, v: &Tensor| cache.append(k, v, &mask);
        let (keys, values) = hooks::scattered_kv_cache([&k, &v], &indices, 5, store)?.expect("it is taken");
        let (candles_keys, candles_values) = candles.append(&k.as_detached_tensor(), &v.as_detached_tensor(), &mask)?;
        same(&keys, &candles_keys)?;
        same(&values, &candles_values)?;
        gradient_is_of_its_places(&keys, &k)?;
        gradient_is_of_its_places(&values, &v)?;
    }
    Ok(())
}

#[test]
fn interleaved_keys_and_values_keep_their_gradient() -> Result<()> {
    let (mut cache, mut candles) = (InterleavedKvCache::new(4), InterleavedKvCache::new(4));
    for (step, rows) in [3, 1, 2].into_iter().enumerate() {
        let (k, v) = (variable(&[1, 2, rows, 4], step as u64)?, variable(&[1, 2, rows, 4], 50 + step as u64)?);
        let all = hooks::interleaved_kv_cache([&k, &v], |k, v| cache.append(k, v))?.expect("it is taken");
        same(&all, &candles.append(&k, &v)?)?;
        gradient_is_of_its_places(&all, &k)?;
        gradient_is_of_its_places(&all, &v)?;
    }
    Ok(())
}

#[test]
fn inference_is_candle_s() -> Result<()> {
    let k = variable(&[1, 2, 3, 4], 1)?.as_detached_tensor();
    let none = |_: &Tensor| panic!("Candle's own stores it");
    assert!(hooks::rotating_cache(&k, 2, [0, 7], none)?.is_none());
    assert!(hooks::interleaved_kv_cache([&k, &k], |_, _| panic!("Candle's own stores it"))?.is_none());
    let indices = Tensor::zeros((1, 3), candle_core::DType::U32, &Device::Cpu)?;
    assert!(hooks::scattered_kv_cache([&k, &k], &indices, 7, |_, _| panic!("Candle's own stores it"))?.is_none());
    Ok(())
}
