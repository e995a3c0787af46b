//! What the patched candle-nn calls: candle-nn's results where it is taken, and none, never a panic, where it is not.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::attention::AttnMask;
use openmps_candle::hooks;

fn numbers(dims: &[usize], seed: u64) -> Result<Tensor> {
    let mut numbers = fastrand::Rng::with_seed(seed);
    let data: Vec<f32> = (0..dims.iter().product()).map(|_| numbers.f32() * 4.0 - 2.0).collect();
    Tensor::from_vec(data, dims, &Device::Cpu)
}

fn near(got: Option<Tensor>, expected: &Tensor) -> Result<()> {
    let got = got.expect("it is taken");
    assert_eq!((got.dims(), got.is_contiguous()), (expected.dims(), true));
    let difference = (got - expected)?.abs()?.max_all()?.to_scalar::<f32>()?;
    assert!(difference < 1e-5, "{difference}");
    Ok(())
}

#[test]
fn results_are_candle_s() -> Result<()> {
    let (x, weight, bias) = (numbers(&[2, 12, 24], 1)?, numbers(&[24], 2)?, numbers(&[24], 3)?);
    near(hooks::softmax(&x, &1)?, &candle_nn::ops::softmax(&x, 1)?)?;
    near(hooks::log_softmax(&x, &2)?, &candle_nn::ops::log_softmax(&x, 2)?)?;
    near(hooks::rms_norm(&x, &weight, 1e-5)?, &candle_nn::ops::rms_norm(&x, &weight, 1e-5)?)?;
    near(hooks::layer_norm(&x, &weight, &bias, 1e-5)?, &candle_nn::ops::layer_norm(&x, &weight, &bias, 1e-5)?)?;
    let layer = candle_nn::Linear::new(numbers(&[7, 24], 4)?, Some(numbers(&[7], 5)?));
    near(hooks::linear(&x, layer.weight(), layer.bias())?, &candle_nn::Module::forward(&layer, &x)?)?;
    // Candle's own product of several matrices that lie transposed reads other numbers than theirs.
    let (lying, layer) = (numbers(&[2, 24, 9], 11)?.transpose(1, 2)?, &layer);
    near(
        hooks::linear(&lying, layer.weight(), layer.bias())?,
        &candle_nn::Module::forward(layer, &lying.contiguous()?)?,
    )?;
    // Positions of their own, and more of them than rows.
    let (x, cos, sin) = (numbers(&[2, 8, 16, 8], 6)?, numbers(&[19, 4], 7)?, numbers(&[19, 4], 8)?);
    near(hooks::rope(&x, &cos, &sin)?, &candle_nn::rotary_emb::rope(&x, &cos, &sin)?)?;
    near(hooks::rope_i(&x, &cos, &sin)?, &candle_nn::rotary_emb::rope_i(&x, &cos, &sin)?)?;
    near(hooks::rope_thd(&x, &cos, &sin)?, &candle_nn::rotary_emb::rope_thd(&x, &cos, &sin)?)?;
    let (own_cos, own_sin) = (numbers(&[2, 8, 4], 9)?, numbers(&[2, 8, 4], 10)?);
    near(hooks::rope_thd(&x, &own_cos, &own_sin)?, &candle_nn::rotary_emb::rope_thd(&x, &own_cos, &own_sin)?)
}

#[test]
fn attention_is_candle_s() -> Result<()> {
    let (q, k, v) = (numbers(&[1, 4, 6, 16], 1)?, numbers(&[1, 9, 2, 16], 2)?, numbers(&[1, 9, 2, 16], 3)?);
    let additive = numbers(&[4, 9], 4)?;
    for mask in [AttnMask::None, AttnMask::causal_with_offset(5), AttnMask::Mask(additive)] {
        let (tensor, from) = match &mask {
            AttnMask::None => (None, None),
            AttnMask::Causal { kv_offset } => (None, Some(*kv_offset)),
            AttnMask::Mask(mask) => (Some(mask), None),
        };
        for cap in [None, Some(1.5)] {
            let ours = hooks::flash_attn([&q, &k, &v], 0.25, tensor, from, false, cap)?;
            near(ours, &candle_nn::attention::flash_attn::<f32>(&q, &k, &v, 0.25, mask.clone(), None, cap)?)?;
        }
    }
    let [q, k, v] = [q.transpose(1, 2)?, k.transpose(1, 2)?, v.transpose(1, 2)?];
    assert_eq!(hooks::sdpa([&q, &k, &v], None, true, 0.25, 1.0)?.expect("it is taken").dims(), [1, 6, 4, 16]);
    Ok(())
}

#[test]
fn attention_of_lengths_is_candle_s() -> Result<()> {
    use candle_nn::attention::flash_attn_varlen_cpu;
    let (q, k, v) = (numbers(&[9, 4, 16], 1)?, numbers(&[14, 2, 16], 2)?, numbers(&[14, 2, 16], 3)?);
    let sizes = |sizes: &[u32]| Tensor::new(sizes, &Device::Cpu);
    let (of_q, of_k) = (sizes(&[3, 0, 1, 5])?, sizes(&[3, 2, 4, 5])?);
    for (causal, left, right) in [
        (false, None, None),
        (true, None, None),
        (true, Some(2), None),
        (false, Some(1), Some(0)),
        (true, Some(0), Some(3)),
    ] {
        let ours = hooks::flash_attn_varlen([&q, &k, &v], false, [&of_q, &of_k], 0.25, causal, (left, right))?;
        let theirs = flash_attn_varlen_cpu(&q, &k, &v, None, &of_q, &of_k, 5, 5, 0.25, causal, left, right)?;
        near(ours, &theirs)?;
    }
    let left_to_candle = [
        hooks::flash_attn_varlen([&q, &k, &v], true, [&of_q, &of_k], 0.25, true, (None, None))?,
        hooks::flash_attn_varlen([&q, &k, &v], false, [&of_q, &of_k], 0.25, false, (Some(1), Some(2)))?,
        hooks::flash_attn_varlen([&q, &k, &v], false, [&of_q, &of_q], 0.25, true, (None, None))?,
        hooks::flash_attn_varlen([&q, &k, &v], false, [&of_k, &of_q], 0.25, true, (None, None))?,
    ];
    assert!(left_to_candle.iter().all(Option::is_none));
    Ok(())
}

#[test]
fn the_rest_is_left_to_candle() -> Result<()> {
    let x = numbers(&[2, 3, 24], 1)?;
    let integers = x.to_dtype(DType::U32)?;
    let vector = numbers(&[24], 2)?;
    let none = [
        hooks::softmax(&integers, &1)?,
        hooks::rms_norm(&x, &numbers(&[23], 2)?, 1e-5)?,
        hooks::rms_norm(&x, &vector.to_dtype(DType::F64)?, 1e-5)?,
        hooks::norm(&x, &vector, Some(&vector), false, 1e-5)?,
        hooks::linear(&vector, &x.flatten_to(1)?, None)?,
        hooks::linear(&x, &numbers(&[7, 23], 3)?, None)?,
        hooks::linear(&x, &numbers(&[7, 24], 3)?.to_dtype(DType::F16)?, None)?,
        hooks::rope(&x, &vector, &vector)?,
        hooks::rope_thd(&x, &vector, &vector)?,
        hooks::rope(&numbers(&[1, 1, 5, 8], 1)?, &numbers(&[4, 4], 1)?, &numbers(&[4, 4], 1)?)?,
        hooks::flash_attn([&x, &x, &x], 1.0, None, None, false, None)?,
        hooks::candles_own(|| hooks::softmax(&x, &1))?,
    ];
    assert!(none.iter().all(Option::is_none));
    let heads = numbers(&[1, 2, 3, 8], 1)?;
    assert!(
        hooks::flash_attn([&heads, &heads, &heads], 1.0, None, Some(1), false, None)?.is_none(),
        "another causal mask"
    );
    assert!(hooks::flash_attn([&heads, &heads, &heads], 1.0, None, None, true, None)?.is_none(), "ALiBi");
    assert!(hooks::sdpa([&heads, &heads, &heads], None, false, 1.0, -30.0)?.is_none(), "no soft cap");
    assert!(hooks::softmax(&x, &3).is_err(), "no such dimension");
    Ok(())
}

/// Of a few numbers, and of rows of a few, Candle's fused operators are the quicker ones. They have no gradient, and no result for nothing.
#[test]
fn few_numbers_are_candle_s_unless_they_learn() -> Result<()> {
    let (few, many) = (numbers(&[2, 4], 1)?, numbers(&[400, 8], 1)?);
    let (weight, wide) = (numbers(&[8], 2)?, numbers(&[64], 2)?);
    let left = [
        hooks::softmax(&few, &1)?,
        hooks::rms_norm(&many, &weight, 1e-5)?,
        hooks::norm(&many, &weight, Some(&weight), true, 1e-5)?,
        hooks::rms_norm(&numbers(&[2, 64], 1)?, &wide, 1e-5)?,
        hooks::rope(&numbers(&[1, 4, 2, 8], 1)?, &numbers(&[2, 4], 1)?, &numbers(&[2, 4], 1)?)?,
    ];
    assert!(left.iter().all(Option::is_none));
    let learning = Var::from_tensor(&weight)?;
    let nothing = numbers(&[4, 0], 1)?;
    let taken = [
        hooks::softmax(Var::from_tensor(&few)?.as_tensor(), &1)?,
        hooks::softmax(&few.to_dtype(DType::F16)?, &1)?,
        hooks::softmax(&nothing, &1)?,
        hooks::rms_norm(&many, &learning, 1e-5)?,
        hooks::norm(&many, &weight, None, true, 1e-5)?,
        hooks::rms_norm(&numbers(&[8, 400], 1)?.t()?, &weight, 1e-5)?,
        hooks::rms_norm(&nothing, &numbers(&[0], 1)?, 1e-5)?,
    ];
    assert!(taken.iter().all(Option::is_some));
    Ok(())
}

/// Candle's caches take what they hand back out of what is differentiated.
#[test]
fn keys_and_values_of_now_keep_their_gradient() -> Result<()> {
    let (k, v) = (Var::from_tensor(&numbers(&[1, 2, 3, 4], 1)?)?, Var::from_tensor(&numbers(&[1, 2, 3, 4], 2)?)?);
    let (mut kept_k, mut kept_v) = (Some(numbers(&[1, 2, 5, 4], 3)?), None);
    let past = kept_k.clone().expect("keys");
    let (all_k, all_v) =
        hooks::concat_kv_cache([&mut kept_k, &mut kept_v], 2, [k.as_tensor(), v.as_tensor()])?.expect("taken");
    near(Some(all_k.clone()), &Tensor::cat(&[&past, k.as_tensor()], 2)?)?;
    near(Some(all_v.clone()), v.as_tensor())?;
    let (kept_k, kept_v) = (kept_k.expect("keys"), kept_v.expect("values"));
    near(Some(kept_k.clone()), &all_k)?;
    assert!(!kept_k.track_op() && !kept_v.track_op(), "what is kept has none");
    let gradients = (all_k.sqr()?.sum_all()? + all_v.sum_all()?)?.backward()?;
    near(gradients.get(&k).cloned(), &(k.as_tensor() * 2.0)?)?;
    near(gradients.get(&v).cloned(), &v.as_tensor().ones_like()?)?;
    let mut stored = Vec::new();
    let store = |k: &Tensor, v: &Tensor| {
        stored.extend([k.clone(), v.clone()]);
        Ok(())
    };
    let (all_k, _) = hooks::kv_cache([Some(past), None], 2, [k.as_tensor(), v.as_tensor()], store)?.expect("taken");
    assert!(all_k.track_op() && all_k.dims() == [1, 2, 8, 4] && stored.iter().all(|stored| !stored.track_op()));
    let (k, v) = (k.as_detached_tensor(), v.as_detached_tensor());
    let left = hooks::kv_cache([None, None], 2, [&k, &v], |_, _| panic!("Candle's own stores it"))?;
    assert!(left.is_none(), "inference is Candle's");
    Ok(())
}
