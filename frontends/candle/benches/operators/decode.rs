//! What a step of generation and one of training are made of: products of few rows beside Candle's and the crate gemm's, attention of one query
//! over many keys, windows, LoRA with its gradients.

use super::{Call, compare, random};
use candle_core::{DType, Result, Tensor, Var, WithDType};
use candle_nn::attention::{AttnMask, flash_attn};
use criterion::Criterion;
use openmps_candle::{AttentionOptions, attention, linear, lora_linear, matmul};
use std::hint::black_box;

/// Rows, and sides of a square weight.
const ROWS: [usize; 4] = [1, 4, 16, 64];
const SIDES: [usize; 4] = [256, 1024, 2048, 4096];
const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Few rows times a weight, as a linear layer has it ("w^T") and as a product has it ("w").
pub fn few_rows(criterion: &mut Criterion) {
    for (dtype, side) in TYPES.into_iter().flat_map(|dtype| SIDES.map(|side| (dtype, side))) {
        let cast = |x: Tensor| x.to_dtype(dtype).expect("a float");
        let weight = cast(random(&[side, side]));
        let transposed = weight.t().expect("a matrix");
        for rows in ROWS {
            let x = cast(random(&[rows, side]));
            let name = format!("{} {rows} x {side}", dtype.as_str());
            compare(criterion, &format!("{name} w^T"), &|| linear(&x, &weight, None), &|| x.matmul(&transposed));
            compare(criterion, &format!("{name} w"), &|| matmul(&x, &weight), &|| x.matmul(&weight));
            match dtype {
                DType::F32 => by_gemm::<f32>(criterion, &name, &x, &weight),
                DType::F16 => by_gemm::<half::f16>(criterion, &name, &x, &weight),
                // The crate has no bfloat16.
                _ => {}
            }
        }
    }
}

/// A number that the crate gemm multiplies, beside its 1.
trait Multiplied: WithDType {
    const ZERO: Self;
    const ONE: Self;
}

impl Multiplied for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
}

impl Multiplied for half::f16 {
    const ZERO: half::f16 = half::f16::ZERO;
    const ONE: half::f16 = half::f16::ONE;
}

/// The same products by the crate gemm alone, on its own threads.
fn by_gemm<T: Multiplied>(criterion: &mut Criterion, name: &str, x: &Tensor, weight: &Tensor) {
    let values = |x: &Tensor| x.flatten_all().and_then(|x| x.to_vec1::<T>()).expect("numbers");
    let (rows, side) = x.dims2().expect("a matrix");
    let (left, right, mut out) = (values(x), values(weight), vec![T::ZERO; rows * side]);
    let threads = openmps_settings::NUM_THREADS.get().unwrap_or(0);
    let how = if threads == 1 { gemm::Parallelism::None } else { gemm::Parallelism::Rayon(threads) };
    for (layout, [by_row, by_column]) in [("w^T", [1, side as isize]), ("w", [side as isize, 1])] {
        let mut group = criterion.benchmark_group(format!("{name} {layout}"));
        group.bench_function("gemm", |bencher| {
            bencher.iter(|| {
                // SAFETY: dense matrices of these sizes; the right one read by rows or by columns.
                unsafe {
                    gemm::gemm(
                        rows,
                        side,
                        side,
                        out.as_mut_ptr(),
                        1,
                        side as isize,
                        false,
                        left.as_ptr(),
                        1,
                        side as isize,
                        right.as_ptr(),
                        by_column,
                        by_row,
                        T::ZERO,
                        T::ONE,
                        false,
                        false,
                        false,
                        how,
                    );
                }
                black_box(&out);
            });
        });
        group.finish();
    }
}

/// Candle's own attention on [batch, rows, heads, size].
fn candles(q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<Tensor> {
    let offset = k.dim(1)? - q.dim(1)?;
    let mask = || if causal { AttnMask::causal_with_offset(offset) } else { AttnMask::None };
    let scale = 1.0 / (q.dim(3)? as f32).sqrt();
    match q.dtype() {
        DType::F16 => flash_attn::<half::f16>(q, k, v, scale, mask(), None, None),
        DType::BF16 => flash_attn::<half::bf16>(q, k, v, scale, mask(), None, None),
        _ => flash_attn::<f32>(q, k, v, scale, mask(), None, None),
    }
}

/// One query over a cache, 32 heads on 8, and a prompt; then both through a window.
pub fn attentions_of_language(criterion: &mut Criterion) {
    let of = |dtype: DType, rows: usize, keys: usize, (heads, key_heads, size): (usize, usize, usize)| {
        let make = |rows: usize, heads: usize| random(&[1, rows, heads, size]).to_dtype(dtype).expect("a float");
        [make(rows, heads), make(keys, key_heads), make(keys, key_heads)]
    };
    let swapped = |x: &Tensor| x.transpose(1, 2).and_then(|x| x.contiguous()).expect("four dimensions");
    let causal = AttentionOptions { causal: true, ..AttentionOptions::default() };
    for dtype in TYPES {
        for (rows, keys, heads) in [(1, 4096, (32, 8, 128)), (1, 1024, (9, 3, 64)), (512, 512, (8, 2, 64))] {
            let [q, k, v] = of(dtype, rows, keys, heads);
            // Each as its library keeps a cache.
            let own = [&q, &k, &v].map(swapped);
            let name = format!("attention {} {rows} x {keys}, {}/{} x {}", dtype.as_str(), heads.0, heads.1, heads.2);
            let ours = || attention(&own[0], &own[1], &own[2], &causal);
            compare(criterion, &name, &ours, &|| candles(&q, &k, &v, true));
        }
    }
    for (rows, keys, window) in [(2048, 2048, 256), (1, 16_384, 1024)] {
        let [q, k, v] = of(DType::F32, rows, keys, (8, 2, 64)).each_ref().map(swapped);
        let near = AttentionOptions { window: Some(window), ..causal.clone() };
        let mut group = criterion.benchmark_group(format!("attention {rows} x {keys}, window {window}"));
        let calls: [(&str, Call); 2] =
            [("openmps", &|| attention(&q, &k, &v, &near)), ("full", &|| attention(&q, &k, &v, &causal))];
        for (who, call) in calls {
            group.bench_function(who, |bencher| bencher.iter(|| black_box(call().expect("a legal call"))));
        }
        group.finish();
    }
}

/// Forward, and backward to both matrices of the correction, where Candle's operators have gradients, too.
pub fn lora_steps(criterion: &mut Criterion) {
    for (rows, side) in [(64, 1024), (256, 1024), (256, 2048)] {
        let (x, weight) = (random(&[rows, side]), random(&[side, side]));
        let variable = |dims: &[usize]| Var::from_tensor(&random(dims)).expect("a variable");
        let (a, b) = (variable(&[8, side]), variable(&[side, 8]));
        let step = |y: Result<Tensor>| {
            let gradients = y?.sqr()?.sum_all()?.backward()?;
            gradients.get(&a).cloned().ok_or_else(|| candle_core::Error::msg("no gradient"))
        };
        let plain = || {
            let low = (x.matmul(&a.t()?)?.matmul(&b.t()?)? * 2.0)?;
            x.matmul(&weight.t()?)? + low
        };
        let ours = || step(lora_linear(&x, &weight, None, (a.as_tensor(), b.as_tensor()), 2.0));
        compare(criterion, &format!("lora step {rows} x {side} rank 8"), &ours, &|| step(plain()));
    }
}
