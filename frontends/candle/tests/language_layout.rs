//! The same tiny model twice: in Hugging Face's layout for candle-transformers' Llama, in float32, and as a GGUF file, whose converter permutes
//! rows of queries and keys. Adapters of PEFT's layout and what files say of the rotary embedding's angles must mean the same to both.

use candle_core::quantized::gguf_file::{Value, write};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Error, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder};
use candle_transformers::models::llama::{self, Config, Llama3RopeConfig, Llama3RopeType};
use openmps_candle::*;
use std::collections::{BTreeMap, HashMap};
use std::f32::consts::PI;
use std::io::Cursor;

const SIZE: usize = 128;
const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
const VOCABULARY: usize = 64;
const CONTEXT: usize = 256;
const TEXT: [u32; 17] = [3, 17, 60, 2, 2, 41, 9, 33, 8, 50, 21, 5, 44, 17, 1, 28, 39];
const RANK: usize = 4;
const ALPHA: f64 = 8.0;
/// Names in Hugging Face's layout and in the file, and the shape; heads where the file's rows are permuted.
const PROJECTIONS: [(&str, &str, [usize; 2], Option<usize>); 7] = [
    ("self_attn.q_proj", "attn_q", [SIZE, SIZE], Some(HEADS)),
    ("self_attn.k_proj", "attn_k", [SIZE / 2, SIZE], Some(KEY_HEADS)),
    ("self_attn.v_proj", "attn_v", [SIZE / 2, SIZE], None),
    ("self_attn.o_proj", "attn_output", [SIZE, SIZE], None),
    ("mlp.gate_proj", "ffn_gate", [2 * SIZE, SIZE], None),
    ("mlp.up_proj", "ffn_up", [2 * SIZE, SIZE], None),
    ("mlp.down_proj", "ffn_down", [SIZE, 2 * SIZE], None),
];

fn random(dims: &[usize], scale: f32, seed: u64) -> Result<Tensor> {
    let mut numbers = fastrand::Rng::with_seed(seed);
    let data: Vec<f32> = (0..dims.iter().product()).map(|_| scale * (numbers.f32() * 2.0 - 1.0)).collect();
    Tensor::from_vec(data, dims, &Device::Cpu)
}

/// Rows as llama.cpp's converter puts them: row `h d + 2 j + half` of the file is row `h d + half d / 2 + j`.
fn permuted(weight: &Tensor, heads: usize) -> Result<Tensor> {
    let size = weight.dim(0)? / heads;
    let row = |at: usize| (at / size * size + at % 2 * (size / 2) + at % size / 2) as u32;
    let rows: Vec<u32> = (0..weight.dim(0)?).map(row).collect();
    weight.index_select(&Tensor::new(rows, &Device::Cpu)?, 0)
}

fn quantized(tensor: &Tensor) -> Result<QTensor> {
    QTensor::quantize(tensor, if tensor.rank() == 1 { GgmlDType::F32 } else { GgmlDType::Q8_0 })
}

/// The weights in Hugging Face's layout, rounded as blocks of 8 bits are.
fn weights() -> Result<HashMap<String, Tensor>> {
    let mut weights = HashMap::new();
    let mut put = |name: String, dims: &[usize], scale: f32| -> Result<()> {
        let tensor = quantized(&random(dims, scale, 1 + weights.len() as u64)?)?;
        weights.insert(name, tensor.dequantize(&Device::Cpu)?);
        Ok(())
    };
    put("model.embed_tokens.weight".into(), &[VOCABULARY, SIZE], 0.2)?;
    put("lm_head.weight".into(), &[VOCABULARY, SIZE], 0.2)?;
    put("model.norm.weight".into(), &[SIZE], 1.0)?;
    for layer in 0..2 {
        put(format!("model.layers.{layer}.input_layernorm.weight"), &[SIZE], 1.0)?;
        put(format!("model.layers.{layer}.post_attention_layernorm.weight"), &[SIZE], 1.0)?;
        for (name, _, dims, heads) in PROJECTIONS {
            // Sharp attention, so that what is turned wrongly is seen.
            let scale = if heads.is_some() { 3.0 } else { 1.7 } / (dims[1] as f32).sqrt();
            put(format!("model.layers.{layer}.{name}.weight"), &dims, scale)?;
        }
    }
    Ok(weights)
}

/// The same as a file of this architecture, with these settings and tensors more.
fn file(
    weights: &HashMap<String, Tensor>,
    architecture: &str,
    more: &[(&str, Value)],
    tensors: &[(&str, Tensor)],
) -> Result<tempfile::NamedTempFile> {
    let mut of_file = BTreeMap::new();
    let mut put = |name: String, of: &str, heads: Option<usize>| -> Result<()> {
        let weight = &weights[of];
        let weight = heads.map_or(Ok(weight.clone()), |heads| permuted(weight, heads))?;
        of_file.insert(name, quantized(&weight)?);
        Ok(())
    };
    put("token_embd.weight".into(), "model.embed_tokens.weight", None)?;
    put("output.weight".into(), "lm_head.weight", None)?;
    put("output_norm.weight".into(), "model.norm.weight", None)?;
    for layer in 0..2 {
        let of = |name: &str| format!("model.layers.{layer}.{name}.weight");
        put(format!("blk.{layer}.attn_norm.weight"), &of("input_layernorm"), None)?;
        put(format!("blk.{layer}.ffn_norm.weight"), &of("post_attention_layernorm"), None)?;
        for (name, name_of_file, _, heads) in PROJECTIONS {
            let heads = heads.filter(|_| architecture == "llama");
            put(format!("blk.{layer}.{name_of_file}.weight"), &of(name), heads)?;
        }
    }
    for (name, tensor) in tensors {
        of_file.insert((*name).to_owned(), quantized(tensor)?);
    }
    let number = |name: &str, value: usize| (format!("{architecture}.{name}"), Value::U32(value as u32));
    let mut settings = vec![
        ("general.architecture".to_owned(), Value::String(architecture.into())),
        number("block_count", 2),
        number("embedding_length", SIZE),
        number("attention.head_count", HEADS),
        number("attention.head_count_kv", KEY_HEADS),
        number("context_length", CONTEXT),
        (format!("{architecture}.attention.layer_norm_rms_epsilon"), Value::F32(1e-5)),
    ];
    settings.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let settings: Vec<(&str, &Value)> = settings.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let of_file: Vec<(&str, &QTensor)> = of_file.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut bytes = Cursor::new(Vec::new());
    write(&mut bytes, &settings, &of_file)?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bytes.into_inner())?;
    Ok(file)
}

fn model(weights: &HashMap<String, Tensor>, architecture: &str) -> Result<Llama> {
    Llama::load(&Gguf::open(file(weights, architecture, &[], &[])?.path())?, |_, _| ())
}

/// candle-transformers' scores after each token of the text.
fn truth(weights: &HashMap<String, Tensor>, rope_scaling: Option<Llama3RopeConfig>) -> Result<Tensor> {
    let config = Config {
        hidden_size: SIZE,
        intermediate_size: 2 * SIZE,
        vocab_size: VOCABULARY,
        num_hidden_layers: 2,
        num_attention_heads: HEADS,
        num_key_value_heads: KEY_HEADS,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling,
        max_position_embeddings: CONTEXT,
        tie_word_embeddings: false,
    };
    let builder = VarBuilder::from_tensors(weights.clone(), DType::F32, &Device::Cpu);
    let model = llama::Llama::load(builder, &config)?;
    let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu)?;
    let step = |(at, &token): (usize, &u32)| model.forward(&Tensor::new(&[[token]], &Device::Cpu)?, at, &mut cache);
    Tensor::cat(&TEXT.iter().enumerate().map(step).collect::<Result<Vec<_>>>()?, 0)
}

/// The root of the mean square of differences, as a part of that of the second's numbers.
fn difference(a: &Tensor, b: &Tensor) -> Result<f32> {
    let square = |x: &Tensor| x.sqr()?.mean_all()?.to_scalar::<f32>();
    Ok((square(&(a - b)?)? / square(b)?).sqrt())
}

/// What of the root mean square the rounding of activations to 8 bits may make.
const ROUNDING: f32 = 0.025;

fn targets() -> Vec<&'static str> {
    PROJECTIONS.iter().map(|(name, ..)| name.split_once('.').expect("a dot").1).collect()
}

/// Random corrections of every projection under PEFT's names, in a half type, as PEFT saves those of a model in it.
fn corrections() -> Result<HashMap<String, Tensor>> {
    let mut tensors = HashMap::new();
    for layer in 0..2 {
        for (name, _, [outputs, inputs], _) in PROJECTIONS {
            let seed = 100 + tensors.len() as u64;
            let a = random(&[RANK, inputs], 1.0 / (inputs as f32).sqrt(), seed)?;
            let b = random(&[outputs, RANK], 0.7, seed + 1)?;
            let name = format!("base_model.model.model.layers.{layer}.{name}");
            tensors.insert(format!("{name}.lora_A.weight"), a.to_dtype(DType::BF16)?);
            tensors.insert(format!("{name}.lora_B.weight"), b.to_dtype(DType::BF16)?);
        }
    }
    Ok(tensors)
}

/// The weights with a file of PEFT's merged into them, by its formula.
fn merged(weights: &HashMap<String, Tensor>, adapter: &HashMap<String, Tensor>) -> Result<HashMap<String, Tensor>> {
    let mut merged = weights.clone();
    for (name, a) in adapter.iter().filter(|(name, _)| name.ends_with(".lora_A.weight")) {
        let b = adapter[&name.replace("lora_A", "lora_B")].to_dtype(DType::F32)?;
        let name = name.trim_start_matches("base_model.model.").replace("lora_A.", "");
        let weight = (&merged[&name] + (b.matmul(&a.to_dtype(DType::F32)?)? * (ALPHA / RANK as f64))?)?;
        merged.insert(name, weight);
    }
    Ok(merged)
}

#[test]
fn an_adapter_of_peft_means_the_same_to_both_layouts() -> Result<()> {
    let weights = weights()?;
    let corrections = corrections()?;
    let (plain, want) = (truth(&weights, None)?, truth(&merged(&weights, &corrections)?, None)?);
    assert!(difference(&plain, &want)? > 0.5, "the corrections are seen");
    let folder = tempfile::tempdir()?;
    candle_core::safetensors::save(&corrections, folder.path().join("adapter_model.safetensors"))?;
    let config = format!(r#"{{"peft_type": "LORA", "r": {RANK}, "lora_alpha": {ALPHA}, "target_modules": []}}"#);
    std::fs::write(folder.path().join("adapter_config.json"), config)?;
    let adapter = LoraAdapter::load(folder.path(), &Device::Cpu).map_err(Error::wrap)?;
    for architecture in ["llama", "qwen2"] {
        let model = model(&weights, architecture)?;
        let rounding = difference(&model.scores(&[&TEXT])?.squeeze(0)?, &plain)?;
        assert!(rounding < ROUNDING, "{architecture} without an adapter: {rounding}");
        let model = model.with_adapter(&adapter).map_err(Error::wrap)?;
        let found = difference(&model.scores(&[&TEXT])?.squeeze(0)?, &want)?;
        assert!(found < ROUNDING, "{architecture} with PEFT's adapter: {found}, without one {rounding}");
    }
    Ok(())
}

#[test]
fn an_adapter_that_is_saved_is_peft_s() -> Result<()> {
    let weights = weights()?;
    for architecture in ["llama", "qwen2"] {
        let model = model(&weights, architecture)?.with_lora(RANK, ALPHA, &targets(), 5)?;
        for (seed, variable) in model.variables()?.iter().enumerate() {
            let trained = random(variable.dims(), 0.7 / (variable.dim(1)? as f32 / 4.0).sqrt(), 50 + seed as u64)?;
            variable.set(&trained)?;
        }
        let folder = tempfile::tempdir()?;
        let config = LoraConfig::new(RANK, ALPHA, 0.0, &targets());
        model.adapter(config).and_then(|adapter| adapter.save(folder.path())).map_err(Error::wrap)?;
        let saved = candle_core::safetensors::load(folder.path().join("adapter_model.safetensors"), &Device::Cpu)?;
        assert_eq!(saved.len(), 2 * 2 * PROJECTIONS.len());
        let want = truth(&merged(&weights, &saved)?, None)?;
        assert!(difference(&truth(&weights, None)?, &want)? > 0.5, "the corrections are seen");
        let found = difference(&model.scores(&[&TEXT])?.squeeze(0)?, &want)?;
        assert!(found < ROUNDING, "{architecture}: the saved adapter in Hugging Face's layout is off by {found}");
    }
    Ok(())
}

#[test]
fn an_adapter_of_another_size_is_refused() -> Result<()> {
    let model = model(&weights()?, "llama")?;
    let mut adapter = LoraAdapter::new(LoraConfig::new(RANK, ALPHA, 0.0, &["q_proj"])).map_err(Error::wrap)?;
    let (a, b) = (random(&[RANK, SIZE], 1.0, 1)?, random(&[SIZE + 2, RANK], 1.0, 2)?);
    adapter.insert("model.layers.0.self_attn.q_proj", a, b).map_err(Error::wrap)?;
    let error = model.with_adapter(&adapter).unwrap_err().to_string();
    assert!(error.contains("self_attn.q_proj") && error.contains("[130, 4]"), "{error}");
    Ok(())
}

#[test]
fn settings_that_no_model_has_are_refused() -> Result<()> {
    let weights = weights()?;
    let (base, epsilon) = ("llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon");
    for (name, value, words) in [
        (base, 0.0, "llama.rope.freq_base is 0, expected a finite number above 0"),
        (base, -1.0, "llama.rope.freq_base is -1"),
        (base, f32::NAN, "llama.rope.freq_base is NaN"),
        (base, f32::INFINITY, "llama.rope.freq_base is inf"),
        (epsilon, f32::NAN, "epsilon of a norm is NaN"),
        (epsilon, -1.0, "epsilon of a norm is -1"),
    ] {
        let file = file(&weights, "llama", &[(name, Value::F32(value))], &[])?;
        let error = LlamaConfig::read(&Gguf::open(file.path())?).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    Ok(())
}

/// Llama 3's scaling, as Hugging Face's configuration has it.
fn scaling(factor: f32, original: usize, low: f32, high: f32) -> Llama3RopeConfig {
    Llama3RopeConfig {
        factor,
        low_freq_factor: low,
        high_freq_factor: high,
        original_max_position_embeddings: original,
        rope_type: Llama3RopeType::Llama3,
    }
}

/// What llama.cpp's converter makes of it: by what each frequency is divided.
fn divisors(config: &Llama3RopeConfig) -> Result<Tensor> {
    let Llama3RopeConfig { factor, low_freq_factor: low, high_freq_factor: high, .. } = *config;
    let (original, pairs) = (config.original_max_position_embeddings as f32, SIZE / HEADS / 2);
    let divisor = |pair: usize| {
        let turns = original / (2.0 * PI * 10_000f32.powf(pair as f32 / pairs as f32));
        let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
    Tensor::from_vec((0..pairs).map(divisor).collect(), pairs, &Device::Cpu)
}

#[test]
fn frequencies_of_llama_3_and_positions_that_are_divided() -> Result<()> {
    let weights = weights()?;
    let plain = truth(&weights, None)?;
    let llama_3 = scaling(8.0, 64, 1.0, 4.0);
    // With an original context of one token every frequency is divided.
    let linear = scaling(4.0, 1, 1.0, 4.0);
    let text = |text: &str| Value::String(text.into());
    let tensors = [("rope_freqs.weight", divisors(&llama_3)?)];
    let kind = ("llama.rope.scaling.type", text("linear"));
    let factor = ("llama.rope.scaling.factor", Value::F32(4.0));
    let cases: [(&Llama3RopeConfig, &[(&str, Value)], &[(&str, Tensor)]); 4] = [
        (&llama_3, &[], &tensors),
        (&linear, &[kind, factor.clone()], &[]),
        (&linear, &[factor], &[]),
        (&linear, &[("llama.rope.scale_linear", Value::F32(4.0))], &[]),
    ];
    for (config, settings, tensors) in cases {
        let want = truth(&weights, Some(config.clone()))?;
        let seen = difference(&plain, &want)?;
        assert!(seen > 6.0 * ROUNDING, "the scaling is seen: {seen}");
        let model = Llama::load(&Gguf::open(file(&weights, "llama", settings, tensors)?.path())?, |_, _| ())?;
        let found = difference(&model.scores(&[&TEXT])?.squeeze(0)?, &want)?;
        assert!(found < ROUNDING, "{settings:?}: {found}");
    }
    Ok(())
}

#[test]
fn what_is_loaded_and_saved_again_is_the_same() -> Result<()> {
    let weights = weights()?;
    let model = model(&weights, "llama")?;
    let mut adapter = LoraAdapter::new(LoraConfig::new(RANK, ALPHA, 0.0, &["k_proj"])).map_err(Error::wrap)?;
    let name = "model.layers.1.self_attn.k_proj";
    let (a, b) = (random(&[RANK, SIZE], 1.0, 1)?, random(&[SIZE / 2, RANK], 1.0, 2)?);
    adapter.insert(name, a, b.clone()).map_err(Error::wrap)?;
    let model = model.with_adapter(&adapter).map_err(Error::wrap)?;
    let again = model.adapter(adapter.config().clone()).map_err(Error::wrap)?;
    assert_eq!(again.layer(name).expect("the layer").1.to_vec2::<f32>()?, b.to_vec2::<f32>()?);
    Ok(())
}

#[test]
fn an_adapter_that_is_loaded_is_trained_further() -> Result<()> {
    let weights = weights()?;
    let corrections = corrections()?;
    let mut adapter = LoraAdapter::new(LoraConfig::new(RANK, ALPHA, 0.0, &[])).map_err(Error::wrap)?;
    for (name, a) in corrections.iter().filter(|(name, _)| name.contains("lora_A")) {
        // In float32, which needs no conversion, and as a variable of somebody else's.
        let (a, b) = (a.to_dtype(DType::F32)?, corrections[&name.replace("lora_A", "lora_B")].to_dtype(DType::F32)?);
        let (a, b) = (Var::from_tensor(&a)?.into_inner(), Var::from_tensor(&b)?.into_inner());
        let layer = name.trim_start_matches("base_model.model.").trim_end_matches(".lora_A.weight");
        adapter.insert(layer, a, b).map_err(Error::wrap)?;
    }
    let next = Tensor::new(&TEXT[1..], &Device::Cpu)?.unsqueeze(1)?;
    let loss = |model: &Llama| -> Result<Tensor> {
        let scores = model.scores(&[&TEXT[..TEXT.len() - 1]])?.squeeze(0)?;
        log_softmax(&scores, 1)?.gather(&next, 1)?.mean_all()?.neg()
    };
    for architecture in ["llama", "qwen2"] {
        let plain = model(&weights, architecture)?;
        let model = plain.clone().with_adapter(&adapter).map_err(Error::wrap)?;
        let first = loss(&model)?.to_scalar::<f32>()?;
        let variables = model.variables()?;
        assert_eq!(variables.len(), 2 * 2 * PROJECTIONS.len());
        let mut optimizer = AdamW::new(variables.clone(), ParamsAdamW { lr: 1e-2, ..Default::default() })?;
        for _ in 0..25 {
            optimizer.backward_step(&loss(&model)?)?;
        }
        let last = loss(&model)?.to_scalar::<f32>()?;
        assert!(last < first / 3.0, "{architecture}: the loss went from {first} to {last}");
        // What goes on from a cache is of the same matrices, and keeps nothing for a backward pass.
        let next = model.forward(&TEXT, &mut model.cache())?;
        assert!(!next.track_op());
        let scores = model.scores(&[&TEXT])?;
        assert!(scores.track_op());
        assert!(difference(&next, &scores.get(0)?.get(TEXT.len() - 1)?)? < ROUNDING);
        // The adapter itself stays as it was, and zeros are no correction.
        let again = plain.clone().with_adapter(&adapter).map_err(Error::wrap)?;
        assert_eq!(loss(&again)?.to_scalar::<f32>()?, first, "{architecture}");
        for variable in &variables {
            variable.set(&variable.zeros_like()?)?;
        }
        assert!(difference(&model.scores(&[&TEXT])?, &plain.scores(&[&TEXT])?)? < 1e-6, "{architecture}");
    }
    Ok(())
}
