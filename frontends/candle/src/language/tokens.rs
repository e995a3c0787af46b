//! The tokenizer of a GGUF file's own vocabulary.

use super::Gguf;
use candle_core::quantized::tokenizer::TokenizerFromGguf;
use candle_core::{Error, Result};
use tokenizers::Tokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;

/// The tokenizer, as candle-core makes it, with the cuts that the file names: those of SmolLM, which takes digits one by one and puts no space
/// before a text, candle-core does not have.
///
/// ```no_run
/// let tokenizer = openmps_candle::tokenizer(&openmps_candle::Gguf::open("model.gguf")?)?;
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn tokenizer(file: &Gguf) -> Result<Tokenizer> {
    let mut tokenizer = Tokenizer::from_gguf(file.content())?;
    if file.text("tokenizer.ggml.pre").is_ok_and(|cuts| cuts == "smollm") {
        let cuts = Sequence::new(vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()]);
        tokenizer.with_pre_tokenizer(Some(cuts));
    }
    Ok(tokenizer)
}

/// The token of this text, for those that end a turn.
pub(super) fn token(file: &Gguf, setting: &str) -> Result<u32> {
    u32::try_from(file.number(setting)?).map_err(Error::wrap)
}
