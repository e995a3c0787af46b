//! The tokenizer of a GGUF file's own vocabulary.

use super::Gguf;
use candle_core::quantized::tokenizer::TokenizerFromGguf;
use candle_core::{Error, Result};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

/// How Llama 3 cuts a text, and what llama.cpp takes for the same: digits by three.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// How Mistral's models with the tokenizer Tekken do.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The tokenizer of a file's own vocabulary (`tokenizer.ggml.model`):
///
/// * `gpt2`, bytes and merges, as candle-core makes it, with the cuts that the file names (`tokenizer.ggml.pre`). Names that are not known here are an
///   error, since a text cut otherwise gives other tokens.
/// * `llama`, pieces with scores, as SentencePiece cuts a text (Llama 2, TinyLlama, Mistral 7B, Gemma). A token begins the text unless
///   `tokenizer.ggml.add_bos_token` says otherwise.
///
/// Other vocabularies (`bert`, `t5`, ...) are an error: for these there is `Tokenizer::from_file` with the model's `tokenizer.json`.
///
/// ```no_run
/// let tokenizer = openmps_candle::tokenizer(&openmps_candle::Gguf::open("model.gguf")?)?;
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn tokenizer(file: &Gguf) -> Result<Tokenizer> {
    if file.text("tokenizer.ggml.model")? == "llama" {
        return super::sentence_piece::tokenizer(file);
    }
    let mut tokenizer = Tokenizer::from_gguf(file.content())?;
    if let Some(cuts) = cuts(file.text("tokenizer.ggml.pre").unwrap_or("default"))? {
        tokenizer.with_pre_tokenizer(Some(cuts));
    }
    Ok(tokenizer)
}

/// The cuts of this name; none where candle-core's own are right.
fn cuts(name: &str) -> Result<Option<PreTokenizerWrapper>> {
    // No space is put before a text.
    let whole_words = || ByteLevel::new(false, true, true);
    Ok(Some(match name {
        "qwen2" | "llama3" | "smaug-bpe" | "lfm2" => return Ok(None),
        "llama-bpe" | "llama-v3" | "falcon3" | "pixtral" => split(LLAMA_3)?,
        "tekken" => split(TEKKEN)?,
        "smollm" => Sequence::new(vec![Digits::new(true).into(), whole_words().into()]).into(),
        "gpt-2" | "default" => whole_words().into(),
        other => candle_core::bail!(
            "tokenizer.ggml.pre is {other}, known are default, gpt-2, smollm, qwen2, llama3, llama-v3, llama-bpe, smaug-bpe, lfm2, falcon3, pixtral and \
             tekken: give the model's tokenizer.json"
        ),
    }))
}

/// Pieces that an expression finds, and their bytes.
fn split(expression: &str) -> Result<PreTokenizerWrapper> {
    let pattern = SplitPattern::Regex(expression.to_owned());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(Error::wrap)?;
    Ok(Sequence::new(vec![split.into(), ByteLevel::new(false, true, false).into()]).into())
}

/// The token of this text, for those that end a turn.
pub(super) fn token(file: &Gguf, setting: &str) -> Result<u32> {
    u32::try_from(file.number(setting)?).map_err(Error::wrap)
}
