//! Values against Candle's own operators: every layout, half precision, special values, and what is refused.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use openmps_candle::*;

fn numbers(dims: &[usize], seed: usize) -> Result<Tensor> {
    let count = dims.iter().product();
    let value = |i: usize| ((i * 2_654_435_761 + seed * 40_503 + 12_345) % 100_003) as f32 / 25_000.0 - 2.0;
    Tensor::from_vec((0..count).map(value).collect::<Vec<f32>>(), dims, &Device::Cpu)
}

/// The same elements: dense, with swapped dimensions in memory, inside of a larger tensor.
fn layouts(x: &Tensor) -> Result<Vec<Tensor>> {
    let rank = x.rank();
    let mut list = vec![x.clone()];
    if rank >= 2 {
        list.push(x.transpose(rank - 2, rank - 1)?.contiguous()?.transpose(rank - 2, rank - 1)?);
    }
    let mut larger = x.clone();
    for axis in 0..rank {
        larger = larger.pad_with_zeros(axis, 1, 2)?;
    }
    for axis in 0..rank {
        larger = larger.narrow(axis, 1, x.dim(axis)?)?;
    }
    list.push(larger);
    Ok(list)
}

fn close(name: &str, got: &Tensor, expected: &Tensor, tolerance: f64) -> Result<()> {
    assert_eq!(got.dims(), expected.dims(), "{name}");
    let vector = |x: &Tensor| x.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>();
    for (place, (got, expected)) in vector(got)?.into_iter().zip(vector(expected)?).enumerate() {
        let same = (got - expected).abs() <= tolerance * expected.abs().max(1.0) || got == expected;
        assert!(same || (got.is_nan() && expected.is_nan()), "{name}: element {place} is {got}, expected {expected}");
    }
    Ok(())
}

const FLOATS: [(DType, f64); 4] = [(DType::F64, 1e-12), (DType::F32, 5e-6), (DType::F16, 8e-3), (DType::BF16, 6e-2)];

/// The same call on float64 tensors of the rounded values, by Candle.
fn exact(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(DType::F64)?.contiguous()
}

#[test]
fn every_type_and_layout() -> Result<()> {
    for (dtype, tolerance) in FLOATS {
        let x = numbers(&[2, 3, 17], 1)?.to_dtype(dtype)?;
        let y = numbers(&[2, 17, 9], 2)?.to_dtype(dtype)?;
        let (weight, bias) = (numbers(&[17], 3)?.to_dtype(dtype)?, numbers(&[17], 4)?.to_dtype(dtype)?);
        for (x, y) in layouts(&x)?.iter().zip(&layouts(&y)?) {
            let name = format!("{dtype:?}, {:?}", x.stride());
            close(&name, &matmul(x, y)?, &exact(x)?.matmul(&exact(y)?)?, 4.0 * tolerance)?;
            for dim in 0..3 {
                close(&name, &softmax(x, dim)?, &candle_nn::ops::softmax(&exact(x)?, dim)?, tolerance)?;
                close(&name, &log_softmax(x, dim)?, &candle_nn::ops::log_softmax(&exact(x)?, dim)?, tolerance)?;
            }
            let expected = candle_nn::ops::rms_norm_slow(&exact(x)?, &exact(&weight)?, 1e-5)?;
            close(&name, &rms_norm(x, &weight, f64::from(1e-5f32))?, &expected, tolerance)?;
            let expected = candle_nn::ops::layer_norm_slow(&exact(x)?, &exact(&weight)?, &exact(&bias)?, 1e-5)?;
            close(&name, &layer_norm(x, &weight, Some(&bias), f64::from(1e-5f32))?, &expected, 2.0 * tolerance)?;
            close(&name, &gelu(x)?, &exact(x)?.gelu_erf()?, tolerance)?;
            let layer = numbers(&[5, 17], 5)?.to_dtype(dtype)?;
            close(
                &name,
                &linear(x, &layer, None)?,
                &exact(x)?.broadcast_matmul(&exact(&layer)?.t()?)?,
                4.0 * tolerance,
            )?;
        }
        let x = numbers(&[2, 3, 5, 8], 6)?.to_dtype(dtype)?;
        let (cos, sin) = (numbers(&[5, 4], 7)?.to_dtype(dtype)?, numbers(&[5, 4], 8)?.to_dtype(dtype)?);
        for x in &layouts(&x)? {
            let expected = candle_nn::rotary_emb::rope_slow(&exact(x)?, &exact(&cos)?, &exact(&sin)?)?;
            close("rope", &rope(x, &cos, &sin, false)?, &expected, tolerance)?;
            let expected = candle_nn::rotary_emb::rope_i_slow(&exact(x)?, &exact(&cos)?, &exact(&sin)?)?;
            close("rope, interleaved", &rope(x, &cos, &sin, true)?, &expected, tolerance)?;
        }
    }
    Ok(())
}

/// Attention as Candle's models write it.
fn plain_attention(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let group = q.dim(1)? / k.dim(1)?;
    let repeat = |x: &Tensor| -> Result<Tensor> {
        let (b, h, l, d) = x.dims4()?;
        x.unsqueeze(2)?.broadcast_as((b, h, group, l, d))?.reshape((b, h * group, l, d))
    };
    let (k, v) = (repeat(&exact(k)?)?, repeat(&exact(v)?)?);
    let scale = options.scale.unwrap_or(1.0 / (q.dim(3)? as f64).sqrt());
    let mut scores = (exact(q)?.matmul(&k.t()?)? * scale)?;
    if let Some(cap) = options.soft_cap {
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    if let Some(mask) = &options.mask {
        scores = scores.broadcast_add(&exact(mask)?)?;
    }
    if options.causal || options.window.is_some() {
        let (rows, keys) = (q.dim(2)?, k.dim(2)?);
        let behind = |at: usize| options.causal && at % keys + rows > at / keys + keys;
        let before = |at: usize| options.window.is_some_and(|window| at % keys + rows + window <= at / keys + keys);
        let value = |at: usize| if behind(at) || before(at) { f64::NEG_INFINITY } else { 0.0 };
        let mask = Tensor::from_vec((0..rows * keys).map(value).collect(), (rows, keys), &Device::Cpu)?;
        scores = scores.broadcast_add(&mask)?;
    }
    candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)
}

#[test]
fn attention_of_every_kind() -> Result<()> {
    for (dtype, tolerance) in FLOATS {
        for (heads, key_heads, rows, keys, depth) in [(4, 2, 7, 19, 32), (3, 3, 30, 30, 12), (8, 1, 1, 50, 64)] {
            let make = |dims: &[usize], seed| numbers(dims, seed)?.to_dtype(dtype);
            let (q, k) = (make(&[2, heads, rows, depth], 1)?, make(&[2, key_heads, keys, depth], 2)?);
            let v = make(&[2, key_heads, keys, depth], 3)?;
            for causal in [false, true] {
                for mask in [None, Some(make(&[2, 1, 1, keys], 4)?), Some(make(&[rows, keys], 5)?)] {
                    let options = AttentionOptions { mask, causal, ..Default::default() };
                    for ((q, k), v) in layouts(&q)?.iter().zip(&layouts(&k)?).zip(&layouts(&v)?) {
                        let expected = plain_attention(q, k, v, &options)?;
                        close("attention", &attention(q, k, v, &options)?, &expected, tolerance)?;
                        let merged = AttentionOptions { merge_heads: true, ..options.clone() };
                        let expected = expected.transpose(1, 2)?.flatten_from(2)?;
                        close("attention, merged", &attention(q, k, v, &merged)?, &expected, tolerance)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Sizes of a prompt and of a step of generation, windows that begin within a block of keys and beyond the first key, large and small caps.
#[test]
fn windows_and_soft_caps() -> Result<()> {
    for (dtype, tolerance) in FLOATS {
        for (heads, key_heads, rows, keys, depth) in [(4, 2, 70, 150, 64), (8, 2, 1, 333, 64), (6, 2, 3, 40, 24)] {
            let make = |dims: &[usize], seed| numbers(dims, seed)?.to_dtype(dtype);
            let (q, k) = (make(&[2, heads, rows, depth], 1)?, make(&[2, key_heads, keys, depth], 2)?);
            let (v, mask) = (make(&[2, key_heads, keys, depth], 3)?, make(&[rows, keys], 4)?);
            for (causal, window, soft_cap) in
                [(true, Some(1), None), (true, Some(37), Some(0.7)), (false, Some(64), None), (true, None, Some(30.0))]
            {
                for mask in [None, Some(mask.clone())] {
                    let options = AttentionOptions { mask, causal, window, soft_cap, ..Default::default() };
                    for ((q, k), v) in layouts(&q)?.iter().zip(&layouts(&k)?).zip(&layouts(&v)?) {
                        let expected = plain_attention(q, k, v, &options)?;
                        let name = format!("{dtype:?} {rows} x {keys}, window {window:?}, cap {soft_cap:?}");
                        close(&name, &attention(q, k, v, &options)?, &expected, tolerance)?;
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn texts_of_several_lengths() -> Result<()> {
    let (q, k, v) = (numbers(&[9, 4, 16], 1)?, numbers(&[14, 2, 16], 2)?, numbers(&[14, 2, 12], 3)?);
    let lengths = [(3, 3), (0, 2), (1, 4), (5, 5)];
    let options = AttentionOptions { causal: true, window: Some(3), ..Default::default() };
    let all = attention_of_lengths(&q, &k, &v, &lengths, &options)?;
    let merged = AttentionOptions { merge_heads: true, ..options.clone() };
    close("merged", &attention_of_lengths(&q, &k, &v, &lengths, &merged)?, &all.flatten_from(1)?, 0.0)?;
    let (mut row, mut key) = (0, 0);
    for (rows, keys) in lengths {
        if rows > 0 {
            let part = |x: &Tensor, at, count| x.narrow(0, at, count)?.transpose(0, 1)?.unsqueeze(0);
            let (q, k, v) = (part(&q, row, rows)?, part(&k, key, keys)?, part(&v, key, keys)?);
            let expected = plain_attention(&q, &k, &v, &options)?.squeeze(0)?.transpose(0, 1)?;
            close("a text", &all.narrow(0, row, rows)?, &expected, 1e-5)?;
        }
        (row, key) = (row + rows, key + keys);
    }
    assert_eq!(
        attention_of_lengths(&q.narrow(0, 0, 0)?, &k.narrow(0, 0, 0)?, &v.narrow(0, 0, 0)?, &[], &options)?.dims(),
        [0, 4, 12]
    );
    refused(attention_of_lengths(&q, &k, &v, &[(9, 13)], &options), "lengths [(9, 13)]");
    let most = [(usize::MAX, 14), (2, 0)];
    refused(attention_of_lengths(&q, &k, &v, &most, &options), "lengths");
    Ok(())
}

/// The process is another one, whose device is an emulated GPU: Candle's CPU tensors are computed with on the CPU all the same.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn whatever_device_is_chosen() {
    let mut again = std::process::Command::new(std::env::current_exe().expect("this program"));
    let again = again.args(["--exact", "every_type_and_layout"]).env("OPENMPS_DEVICE", "metal-emulated");
    let output = again.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

/// Half precision beside float32: as if all were float32, rounded once.
#[test]
fn mixed_types() -> Result<()> {
    for dtype in [DType::F16, DType::BF16] {
        let (x, weight) = (numbers(&[2, 5, 16], 1)?.to_dtype(dtype)?, numbers(&[16], 2)?);
        let wide = x.to_dtype(DType::F32)?;
        let rounded = |y: Tensor| y.to_dtype(dtype);
        close("rms", &rms_norm(&x, &weight, 1e-5)?, &rounded(rms_norm(&wide, &weight, 1e-5)?)?, 0.0)?;
        for bias in [None, Some(&weight)] {
            let expected = rounded(layer_norm(&wide, &weight, bias, 1e-5)?)?;
            close("layer norm", &layer_norm(&x, &weight, bias, 1e-5)?, &expected, 0.0)?;
        }
        let half_weight = weight.to_dtype(dtype)?;
        assert_eq!(layer_norm(&x, &half_weight, Some(&weight), 1e-5)?.dtype(), dtype);
        // Tables of more positions than there are rows.
        let (x, cos, sin) = (x.unsqueeze(0)?, numbers(&[9, 8], 3)?, numbers(&[9, 8], 4)?);
        let expected = rounded(rope(&wide.unsqueeze(0)?, &cos.narrow(0, 0, 5)?, &sin.narrow(0, 0, 5)?, true)?)?;
        close("rope", &rope(&x, &cos, &sin, true)?, &expected, 0.0)?;
        // A mask of 1 where a key is hidden, and the same as numbers, of float32.
        let hidden = Tensor::from_vec((0..25u8).map(|at| u8::from(at % 5 > at / 5)).collect(), (5, 5), &Device::Cpu)?;
        let numbers = hidden.where_cond(
            &Tensor::full(f32::NEG_INFINITY, (5, 5), &Device::Cpu)?,
            &hidden.to_dtype(DType::F32)?.zeros_like()?,
        )?;
        let of = |mask: Option<Tensor>, causal| {
            attention(&x, &x, &x, &AttentionOptions { mask, causal, ..Default::default() })
        };
        let expected = of(None, true)?;
        close("u8 mask", &of(Some(hidden), false)?, &expected, 0.0)?;
        close("float32 mask", &of(Some(numbers), false)?, &expected, 0.0)?;
    }
    Ok(())
}

#[test]
fn special_values_travel() -> Result<()> {
    let (nan, infinite) = (f32::NAN, f32::INFINITY);
    let x = Tensor::new(
        &[[1.0f32, nan, 2.0], [infinite, 0.0, -0.0], [-infinite, 1.0, 1.0], [3e38, 3e38, -3e38]],
        &Device::Cpu,
    )?;
    let y = softmax(&x, 1)?.to_vec2::<f32>()?;
    assert!(y[0].iter().all(|x| x.is_nan()) && y[1][0].is_nan());
    assert_eq!((y[2][0], y[2][1], y[3][0]), (0.0, 0.5, 0.5));
    let empty = Tensor::zeros((0, 4), DType::F32, &Device::Cpu)?;
    assert_eq!(softmax(&empty, 1)?.dims(), [0, 4]);
    assert_eq!(matmul(&empty.t()?, &empty)?.to_vec2::<f32>()?, vec![vec![0.0; 4]; 4]);
    Ok(())
}

/// The call is refused with these words in its error.
fn refused(call: Result<Tensor>, words: &str) {
    let error = call.expect_err(words).to_string();
    assert!(error.contains(words), "{error:?} does not say {words:?}");
}

#[test]
fn what_is_refused_and_with_which_words() -> Result<()> {
    let x = numbers(&[2, 3], 1)?;
    assert!(matmul(&x, &x).is_err(), "so small that Candle says it");
    let wide = numbers(&[20, 30], 1)?;
    refused(matmul(&wide, &wide), "30 rows, as many as left [20, 30] has columns");
    refused(matmul(&wide, &numbers(&[30, 4], 1)?.to_dtype(DType::F64)?), "has dtype float64, expected float32");
    refused(softmax(&x, 2), "out of range");
    refused(rms_norm(&x, &numbers(&[2], 2)?, 1e-5), "a norm over 3 columns has a weight or bias of shape [2]");
    let double = numbers(&[3], 2)?.to_dtype(DType::F64)?;
    refused(layer_norm(&x, &double, None, 1e-5), "a norm of F32 has a weight or bias of F64");
    refused(linear(&x, &numbers(&[4, 2], 2)?, None), "a linear layer of 2 inputs was given [2, 3]");
    refused(linear(&x, &numbers(&[4, 3], 2)?, Some(&numbers(&[3], 2)?)), "a linear layer of 4 outputs has a bias of");
    let q = numbers(&[1, 3, 4, 8], 1)?;
    let k = numbers(&[1, 2, 4, 8], 1)?;
    refused(attention(&q, &k, &k, &AttentionOptions::default()), "a number of heads that divides 3");
    let mask = Some(Var::from_tensor(&numbers(&[4, 4], 1)?)?.as_tensor().clone());
    refused(attention(&q, &q, &q, &AttentionOptions { mask, ..Default::default() }), "mask no gradient");
    let none = AttentionOptions { window: Some(0), ..Default::default() };
    refused(attention(&q, &q, &q, &none), "window is 0, expected at least 1");
    for cap in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = AttentionOptions { soft_cap: Some(cap), ..Default::default() };
        refused(attention(&q, &q, &q, &options), "expected a finite number above 0");
    }
    let mask = Some(numbers(&[5, 4], 1)?);
    refused(attention(&q, &q, &q, &AttentionOptions { mask, ..Default::default() }), "what broadcasts to [1, 3, 4, 4]");
    refused(rope(&q, &numbers(&[4, 3], 1)?, &numbers(&[4, 3], 1)?, false), "cosines has shape [4, 3]");
    let matrices = (&numbers(&[2, 4], 1)?, &numbers(&[4, 2], 1)?);
    refused(lora_linear(&x, &numbers(&[4, 3], 1)?, None, matrices, 1.0), "was given LoRA matrices [2, 4] and [4, 2]");
    let (q, mask) = (numbers(&[1, 1, 2, 4], 1)?, Tensor::new(&[[0i64, 1], [1, 0]], &Device::Cpu)?);
    let options = AttentionOptions { mask: Some(mask), ..Default::default() };
    refused(attention(&q, &q, &q, &options), "a mask of I64, expected floats");
    let whole = Tensor::new(&[[1i64, 2], [3, 4]], &Device::Cpu)?;
    refused(softmax(&whole, 1), "softmax of I64: it takes floats");
    refused(gelu(&whole), "gelu of I64: it takes floats");
    refused(linear(&numbers(&[4], 1)?, &numbers(&[3, 4], 2)?, None), "which has no rows");
    let column = numbers(&[3], 1)?;
    for epsilon in [f64::NAN, -1.0, f64::INFINITY] {
        let words = format!("the epsilon of a norm is {epsilon}, expected a number of at least 0");
        refused(rms_norm(&x, &column, epsilon), &words);
        refused(layer_norm(&x, &column, None, epsilon), &words);
    }
    Ok(())
}

#[test]
fn tiny_products_go_candles_way_where_it_has_one() -> Result<()> {
    let x = Tensor::new(&[[1u32, 2], [3, 4]], &Device::Cpu)?;
    assert!(matmul(&x, &x).is_err() == x.matmul(&x).is_err());
    let tiny = numbers(&[2, 2], 1)?;
    close("tiny", &matmul(&tiny, &tiny)?, &tiny.matmul(&tiny)?, 0.0)?;
    let large = Tensor::arange(0i64, 400, &Device::Cpu)?.reshape((20, 20))?;
    let product = matmul(&large, &large.t()?)?.to_vec2::<i64>()?;
    assert_eq!(product[1][2], (20..40).zip(40..60).map(|(x, y)| x * y).sum::<i64>());
    for dtype in [DType::U8, DType::I16, DType::I32, DType::I64] {
        let small = Tensor::new(&[[1u32, 2], [3, 4]], &Device::Cpu)?.to_dtype(dtype)?;
        let product = matmul(&small, &small)?;
        assert_eq!(
            (product.dtype(), product.to_dtype(DType::I64)?.to_vec2::<i64>()?),
            (dtype, vec![vec![7, 10], vec![15, 22]])
        );
    }
    Ok(())
}

/// Candle's products take few strided operands; ours take all.
#[test]
fn tiny_products_of_strided_operands() -> Result<()> {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let (weight, bias) = (numbers(&[2, 2], 3)?, numbers(&[2], 4)?);
    for order in orders {
        let (x, y) = (numbers(&[2, 2, 2], 1)?.permute(order)?, numbers(&[2, 2, 2], 2)?);
        let (dense, name) = (x.contiguous()?, format!("{order:?}"));
        close(&name, &matmul(&x, &y)?, &dense.matmul(&y)?, 1e-6)?;
        close(&name, &matmul(&y, &x)?, &y.matmul(&dense)?, 1e-6)?;
        let product = dense.broadcast_matmul(&weight.t()?)?;
        close(&name, &linear(&x, &weight, None)?, &product, 1e-6)?;
        let shifted = product.broadcast_add(&bias)?;
        close(&name, &linear(&x, &weight, Some(&bias))?, &shifted, 1e-6)?;
        close(&name, &linear_add(&x, &weight, &bias, &y)?, &(&shifted + &y)?, 1e-6)?;
        close(&name, &linear_gelu(&x, &weight, &bias)?, &gelu(&shifted)?, 1e-6)?;
        let corrected = lora_linear(&x, &weight, None, (&weight, &weight), 0.5)?;
        let low = (product.broadcast_matmul(&weight.t()?)? * 0.5)?;
        close(&name, &corrected, &(&product + low)?, 1e-6)?;
        let variable = Var::from_tensor(&numbers(&[2, 2, 2], 1)?)?;
        let gradients = matmul(&variable.permute(order)?, &y)?.sum_all()?.backward()?;
        assert!(gradients.get(&variable).is_some(), "{name}");
    }
    for order in [[1, 0, 2, 3], [0, 2, 1, 3], [3, 1, 0, 2], [2, 3, 0, 1]] {
        let x = numbers(&[2, 2, 2, 2], 1)?.permute(order)?;
        let dense = x.contiguous()?;
        close(&format!("{order:?}"), &matmul(&x, &x)?, &dense.matmul(&dense)?, 1e-6)?;
    }
    Ok(())
}

#[test]
fn matrices_share_the_tensors_memory_and_end_with_the_call() -> Result<()> {
    let x = numbers(&[3, 4, 5], 1)?;
    let part = x.narrow(1, 1, 2)?.narrow(2, 1, 3)?;
    let mut kept = None;
    let read = with_matrix(&part, |matrix| {
        kept = Some(matrix.clone());
        assert_eq!((matrix.matrices(), matrix.rows(), matrix.columns()), (3, 2, 3));
        assert_eq!((matrix.descriptor().row_bytes(), matrix.descriptor().matrix_bytes()), (20, 80));
        matrix.read::<f32>().map_err(candle_core::Error::wrap)
    })?;
    assert_eq!(read, part.flatten_all()?.to_vec1::<f32>()?);
    assert!(matches!(kept.expect("the closure ran").read::<f32>(), Err(openmps::Error::Freed { .. })));
    assert!(with_matrix(&x.t()?, |_| Ok(())).is_err(), "columns apart");
    let (a, b) = (numbers(&[6, 4], 1)?, numbers(&[4, 3], 2)?);
    close("multiply", &multiply_matrices(&a, &b)?, &a.matmul(&b)?, 1e-6)?;
    close("columns", &multiply_matrices(&b.t()?, &a.t()?)?, &b.t()?.matmul(&a.t()?)?, 1e-6)?;
    let row = numbers(&[1, 4], 3)?.broadcast_as((6, 4))?;
    close("one row", &multiply_matrices(&row, &b)?, &row.contiguous()?.matmul(&b)?, 1e-6)?;
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let (a, b) = (a.to_dtype(dtype)?, b.to_dtype(dtype)?);
        let product = multiply_matrices(&a, &b)?;
        assert_eq!(product.dtype(), dtype);
        close(
            "types",
            &product.to_dtype(DType::F32)?,
            &a.to_dtype(DType::F32)?.matmul(&b.to_dtype(DType::F32)?)?,
            1e-2,
        )?;
    }
    let whole = Tensor::new(&[[1i64, 2], [3, 4]], &Device::Cpu)?;
    assert_eq!(multiply_matrices(&whole, &whole)?.to_vec2::<i64>()?, [[7, 10], [15, 22]]);
    Ok(())
}
