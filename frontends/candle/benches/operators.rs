//! openmps's operators beside Candle's own, the crate gemm's, and where `benches/torch_operators.py` and `benches/llama_cpp_model.py` can run,
//! PyTorch's and llama.cpp's: `cargo bench -p openmps-candle`.
//!
//! Criterion measures; the table at the end has the shortest times in microseconds and ratios. `-- FILTER` chooses, as always.

#[path = "operators/decode.rs"]
mod decode;
#[path = "../examples/minilm/model.rs"]
#[allow(dead_code, reason = "the example uses more of it")]
mod model;
#[path = "../examples/shared/smollm.rs"]
mod smollm;
#[path = "operators/table.rs"]
mod table;

use candle_core::{D, DType, Device, Result, Tensor};
use criterion::{BenchmarkGroup, Criterion, measurement::WallTime};
use openmps_candle::*;
use std::hint::black_box;
use std::time::Duration;

type Call<'a> = &'a dyn Fn() -> Result<Tensor>;

fn random(dims: &[usize]) -> Tensor {
    Tensor::randn(0f32, 1f32, dims, &Device::Cpu).expect("a random tensor")
}

/// Measures both; the CPU's operators have ended when they return, so every result is awaited.
fn compare(criterion: &mut Criterion, name: &str, ours: Call, candle: Call) {
    let mut group: BenchmarkGroup<WallTime> = criterion.benchmark_group(name);
    for (who, call) in [("openmps", ours), ("candle", candle)] {
        group.bench_function(who, |bencher| bencher.iter(|| black_box(call().expect("a legal call"))));
    }
    group.finish();
}

fn products(criterion: &mut Criterion) {
    for size in [512, 1024, 2048] {
        let (x, y) = (random(&[size, size]), random(&[size, size]));
        compare(criterion, &format!("matmul {size}"), &|| matmul(&x, &y), &|| x.matmul(&y));
    }
    for size in [512, 1024, 2048] {
        let (x, weight) = (random(&[size, size]), random(&[size, size]));
        let (a, b) = (random(&[8, size]), random(&[size, 8]));
        let unfused = || {
            let low = (x.matmul(&a.t()?)?.matmul(&b.t()?)? * 2.0)?;
            x.matmul(&weight.t()?)? + low
        };
        compare(criterion, &format!("lora {size} rank 8"), &|| lora_linear(&x, &weight, None, (&a, &b), 2.0), &unfused);
    }
}

fn rows(criterion: &mut Criterion) {
    for (count, length) in [(1024, 1024), (4096, 1024), (128, 4096)] {
        let x = random(&[count, length]);
        let (weight, bias) = (random(&[length]), random(&[length]));
        let size = format!("{count}x{length}");
        let plain = || candle_nn::ops::softmax_last_dim(&x);
        compare(criterion, &format!("softmax {size}"), &|| softmax(&x, D::Minus1), &plain);
        let plain = || candle_nn::ops::rms_norm(&x, &weight, 1e-5);
        compare(criterion, &format!("rms_norm {size}"), &|| rms_norm(&x, &weight, 1e-5), &plain);
        let plain = || candle_nn::ops::layer_norm(&x, &weight, &bias, 1e-5);
        compare(criterion, &format!("layer_norm {size}"), &|| layer_norm(&x, &weight, Some(&bias), 1e-5), &plain);
    }
}

fn attentions(criterion: &mut Criterion) {
    for (batch, heads, length, depth) in [(1, 12, 128, 64), (1, 12, 512, 64), (8, 12, 128, 32)] {
        let [q, k, v] = [0; 3].map(|_| random(&[batch, heads, length, depth]));
        let plain = || {
            let scores = (q.matmul(&k.t()?)? / (depth as f64).sqrt())?;
            candle_nn::ops::softmax_last_dim(&scores)?.matmul(&v)
        };
        let name = format!("attention {batch}x{heads}x{length}x{depth}");
        compare(criterion, &name, &|| attention(&q, &k, &v, &AttentionOptions::default()), &plain);
    }
}

/// MiniLM on sentences of twenty tokens; left out where its weights are not installed.
fn minilm(criterion: &mut Criterion) {
    let (Ok(ours), Ok(plain)) = (model::openmps(), model::Plain::load()) else {
        println!("minilm is left out: its weights are not installed (cargo xtask minilm)");
        return;
    };
    for batch in [1, 32] {
        let ids = Tensor::from_vec(
            (0..batch * 20).map(|i| 2000 + i as u32 * 7).collect::<Vec<u32>>(),
            (batch, 20),
            &Device::Cpu,
        );
        let (ids, mask) = (ids.expect("ids"), Tensor::ones((batch, 20), DType::F32, &Device::Cpu).expect("a mask"));
        compare(criterion, &format!("minilm batch {batch}"), &|| ours.embed(&ids, &mask), &|| plain.embed(&ids, &mask));
    }
}

/// A step of generation and the reading of a prompt, by SmolLM2 in 4 bits beside Candle's quantised Llama; left out where it is not installed.
fn language(criterion: &mut Criterion) {
    use candle_core::quantized::gguf_file::Content;
    use candle_transformers::models::quantized_llama::ModelWeights;
    let Some(path) = smollm::file() else {
        println!("SmolLM2 is left out: its weights are not installed (cargo xtask chat)");
        return;
    };
    let model = Llama::load(&Gguf::open(&path).expect("a GGUF file"), |_, _| ()).expect("a Llama");
    let mut file = std::fs::File::open(&path).expect("a file");
    let content = Content::read(&mut file).expect("a GGUF file");
    let plain = ModelWeights::from_gguf(content, &mut file, &Device::Cpu).expect("a Llama");
    let plain = std::cell::RefCell::new(plain);
    let prompt: Vec<u32> = (0..64).map(|i| 1000 + i * 37).collect();
    let read = |tokens: &[u32], place: usize| {
        let tokens = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        plain.borrow_mut().forward(&tokens, place)
    };
    let all = || model.forward(&prompt, &mut model.cache());
    compare(criterion, "smollm2 64 tokens read", &all, &|| read(&prompt, 0));
    // A cache of Candle's cannot be cut, so both read the prompt and then write.
    let ours = || {
        let mut cache = model.cache();
        let mut scores = model.forward(&prompt, &mut cache)?;
        for &token in &prompt {
            scores = model.forward(&[token], &mut cache)?;
        }
        Ok(scores)
    };
    let theirs = || {
        let mut scores = read(&prompt, 0)?;
        for (i, &token) in prompt.iter().enumerate() {
            scores = read(&[token], prompt.len() + i)?;
        }
        Ok(scores)
    };
    compare(criterion, "smollm2 64 tokens read, 64 written", &ours, &theirs);
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500))
        .sample_size(20)
        .output_directory(&table::folder())
        .configure_from_args();
    let of_language =
        [decode::few_rows as fn(&mut Criterion), decode::attentions_of_language, decode::lora_steps, language];
    for group in [products as fn(&mut Criterion), rows, attentions, minilm].into_iter().chain(of_language) {
        group(&mut criterion);
    }
    criterion.final_summary();
    table::print();
}
