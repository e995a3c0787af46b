//! Eight models of candle-transformers with small sizes, drawn from a seed: each built of given weights, and run.

use crate::random;
use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models::smol::smollm3;
use candle_transformers::models::stable_diffusion::unet_2d as unet;
use candle_transformers::models::{bert, llama, mistral, qwen2, qwen3, whisper};

/// A model's outputs, one after the other.
pub type Run = fn(VarBuilder<'static>, Sizes) -> Result<Vec<Tensor>>;

pub const MODELS: [(&str, Run); 8] = [
    ("Llama", llama),
    ("Qwen2", qwen2),
    ("Qwen3", qwen3),
    ("SmolLM3", smollm3),
    ("Mistral", mistral),
    ("BERT", bert),
    ("Whisper", whisper),
    ("Stable Diffusion's UNet", unet),
];

pub const VOCABULARY: usize = 96;

/// Sizes of a network of attention.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub heads: usize,
    pub key_heads: usize,
    pub size: usize,
    pub feed: usize,
    pub layers: usize,
    pub tokens: usize,
}

impl Sizes {
    /// Some of them.
    pub fn random(seed: u64) -> Sizes {
        let mut numbers = fastrand::Rng::with_seed(seed);
        let mut of = |list: &[usize]| list[numbers.usize(..list.len())];
        let heads = of(&[4, 8]);
        let size = heads * of(&[16, 32, 48]);
        Sizes {
            heads,
            key_heads: heads / of(&[1, 2, 4]),
            size,
            feed: of(&[96, 256, 344]),
            layers: of(&[2, 3]),
            tokens: of(&[9, 33, 64]),
        }
    }
}

/// A text, as numbers.
pub fn text(length: usize, seed: u64) -> Result<Tensor> {
    let mut numbers = fastrand::Rng::with_seed(seed);
    let tokens: Vec<u32> = (0..length).map(|_| numbers.u32(..VOCABULARY as u32)).collect();
    Tensor::from_vec(tokens, (1, length), &Device::Cpu)
}

/// What a model gives for a text of which most is read at once, then token by token with what the model remembers.
fn read(tokens: usize, mut forward: impl FnMut(&Tensor, usize) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let text = text(tokens + 3, 7)?;
    let mut outputs = vec![forward(&text.narrow(1, 0, tokens)?, 0)?];
    for at in tokens..tokens + 3 {
        outputs.push(forward(&text.narrow(1, at, 1)?, at)?);
    }
    Ok(outputs)
}

/// A configuration of one of the types that each model has for itself: the fields that all of them share, then its own.
macro_rules! config {
    ($model:ident, $sizes:expr, $($field:ident: $value:expr),* $(,)?) => {
        $model::Config {
            vocab_size: VOCABULARY,
            hidden_size: $sizes.size,
            intermediate_size: $sizes.feed,
            num_hidden_layers: $sizes.layers,
            num_attention_heads: $sizes.heads,
            num_key_value_heads: $sizes.key_heads,
            max_position_embeddings: 128,
            rope_theta: 10_000.0,
            $($field: $value),*
        }
    };
}

pub fn llama_config(sizes: Sizes) -> llama::Config {
    config!(
        llama,
        sizes,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        tie_word_embeddings: false,
    )
}

fn llama(weights: VarBuilder<'static>, sizes: Sizes) -> Result<Vec<Tensor>> {
    let config = llama_config(sizes);
    let mut cache = llama::Cache::new(true, weights.dtype(), &config, &Device::Cpu)?;
    let model = llama::Llama::load(weights, &config)?;
    read(sizes.tokens, |part, first| model.forward(part, first, &mut cache))
}

fn qwen2(weights: VarBuilder<'static>, sizes: Sizes) -> Result<Vec<Tensor>> {
    let config = config!(
        qwen2,
        sizes,
        sliding_window: 128,
        max_window_layers: 0,
        tie_word_embeddings: false,
        rms_norm_eps: 1e-6,
        use_sliding_window: false,
        hidden_act: Activation::Silu,
    );
    let mut model = qwen2::ModelForCausalLM::new(&config, weights)?;
    read(sizes.tokens, |part, first| model.forward(part, first))
}

fn qwen3(weights: VarBuilder<'static>, sizes: Sizes) -> Result<Vec<Tensor>> {
    let config = config!(
        qwen3,
        sizes,
        head_dim: sizes.size / sizes.heads,
        attention_bias: false,
        sliding_window: None,
        max_window_layers: 0,
        tie_word_embeddings: false,
        rms_norm_eps: 1e-6,
        use_sliding_window: false,
        hidden_act: Activation::Silu,
    );
    let mut model = qwen3::ModelForCausalLM::new(&config, weights)?;
    read(sizes.tokens, |part, first| model.forward(part, first))
}

fn smollm3(weights: VarBuilder<'static>, sizes: Sizes) -> Result<Vec<Tensor>> {
    let config = config!(
        smollm3,
        sizes,
        tie_word_embeddings: false,
        rms_norm_eps: 1e-6,
        hidden_act: Activation::Silu,
        attention_bias: None,
        attention_dropout: None,
        mlp_bias: None,
        sliding_window: None,
        use_sliding_window: None,
        rope_scaling: None,
        bos_token_id: None,
        eos_token_id: None,
        pad_token_id: None,
        max_window_layers: None,
        no_rope_layers: None,
        no_rope_layer_interval: None,
    );
    let mut model = smollm3::ModelForCausalLM::new(&config, weights)?;
    read(sizes.tokens, |part, first| model.forward(part, first))
}

fn mistral(weights: VarBuilder<'static>, sizes: Sizes) -> Result<Vec<Tensor>> {
    let config = config!(
        mistral,
        sizes,
        head_dim: None,
        hidden_act: Activation::Silu,
        rms_norm_eps: 1e-5,
        sliding_window: Some(16),
        use_flash_attn: false,
    );
    let mut model = mistral::Model::new(&config, weights)?;
    read(sizes.tokens, |part, first| model.forward(part, first))
}

fn bert(weights: VarBuilder<'static>, sizes: Sizes) -> Result<Vec<Tensor>> {
    let config = bert::Config {
        vocab_size: VOCABULARY,
        hidden_size: sizes.size,
        num_hidden_layers: sizes.layers,
        num_attention_heads: sizes.heads,
        intermediate_size: sizes.feed,
        max_position_embeddings: 128,
        ..bert::Config::default()
    };
    let model = bert::BertModel::load(weights, &config)?;
    let texts = Tensor::cat(&[text(sizes.tokens, 1)?, text(sizes.tokens, 2)?], 0)?;
    Ok(vec![model.forward(&texts, &texts.zeros_like()?, None)?])
}

fn whisper(weights: VarBuilder<'static>, sizes: Sizes) -> Result<Vec<Tensor>> {
    let config = whisper::Config {
        num_mel_bins: 20,
        max_source_positions: 100,
        d_model: sizes.size,
        encoder_attention_heads: sizes.heads,
        encoder_layers: sizes.layers,
        vocab_size: VOCABULARY,
        max_target_positions: 80,
        decoder_attention_heads: sizes.heads,
        decoder_layers: sizes.layers,
        suppress_tokens: Vec::new(),
    };
    let dtype = weights.dtype();
    let mut model = whisper::model::Whisper::load(&weights, config)?;
    let heard = model.encoder.forward(&random(&[1, 20, 150], 1.0, 3)?.to_dtype(dtype)?, true)?;
    let said = model.decoder.forward(&text(sizes.tokens, 4)?, &heard, true)?;
    Ok(vec![model.decoder.final_linear(&said)?])
}

fn unet(weights: VarBuilder<'static>, sizes: Sizes) -> Result<Vec<Tensor>> {
    let block = |out_channels, use_cross_attn| unet::BlockConfig {
        out_channels,
        use_cross_attn,
        attention_head_dim: sizes.heads,
    };
    let config = unet::UNet2DConditionModelConfig {
        blocks: vec![block(64, Some(1)), block(128, None)],
        layers_per_block: 1,
        norm_num_groups: 32,
        cross_attention_dim: 48,
        sliced_attention_size: None,
        ..unet::UNet2DConditionModelConfig::default()
    };
    let dtype = weights.dtype();
    let model = unet::UNet2DConditionModel::new(weights, 4, 4, false, config)?;
    let picture = random(&[1, 4, 16, 16], 1.0, 5)?.to_dtype(dtype)?;
    let words = random(&[1, sizes.tokens, 48], 1.0, 6)?.to_dtype(dtype)?;
    Ok(vec![model.forward(&picture, 300.0, &words)?])
}

/// All elements of outputs, in float64.
pub fn flat(outputs: &[Tensor]) -> Result<Vec<f64>> {
    let parts = outputs.iter().map(|output| output.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>());
    Ok(parts.collect::<Result<Vec<_>>>()?.concat())
}

/// How wrong the model's next tokens are: the mean of -log of what it gives to those that follow.
pub fn loss(scores: &Tensor, next: &Tensor) -> Result<Tensor> {
    let scores = candle_nn::ops::log_softmax(scores, D::Minus1)?;
    scores.gather(&next.unsqueeze(D::Minus1)?, D::Minus1)?.mean_all()?.neg()
}
