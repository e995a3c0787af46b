//! The tokenizer of a vocabulary of SentencePiece in a GGUF file (`tokenizer.ggml.model = llama`): pieces of text with scores.
//!
//! Characters are joined as SentencePiece and llama.cpp join them: of all neighbours whose text is a piece those first whose piece has the best
//! score. As merges of a BPE these are every cut of every piece in two pieces, in the order of the scores. What is no piece is spelled in bytes.

use super::Gguf;
use candle_core::quantized::gguf_file::Value;
use candle_core::{Error, Result, bail};
use std::collections::{HashMap, HashSet};
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace, Sequence as Normalizers};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, DecoderWrapper, Tokenizer};

/// What stands for a space in a piece.
const SPACE: &str = "\u{2581}";

/// What a token is, by the numbers of `tokenizer.ggml.token_type`; others are pieces that no text is cut into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Piece,
    Unknown,
    Control,
    UserDefined,
    Other,
}

impl Kind {
    fn of(number: i64) -> Kind {
        match number {
            1 => Kind::Piece,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            _ => Kind::Other,
        }
    }
}

/// The tokens of a file, one entry of each list for each.
struct Vocabulary {
    texts: Vec<String>,
    scores: Vec<f32>,
    kinds: Vec<Kind>,
}

impl Vocabulary {
    fn of(file: &Gguf) -> Result<Vocabulary> {
        let texts = file.list("tokenizer.ggml.tokens", |value| Ok(value.to_string()?.clone()))?;
        let scores = file.list("tokenizer.ggml.scores", Value::to_f32)?;
        let kind = |value: &Value| match value {
            Value::I32(number) => Ok(Kind::of(i64::from(*number))),
            other => Ok(Kind::of(i64::from(other.to_u32()?))),
        };
        let kinds = match file.content().metadata.contains_key("tokenizer.ggml.token_type") {
            true => file.list("tokenizer.ggml.token_type", kind)?,
            false => vec![Kind::Piece; texts.len()],
        };
        for (name, count) in [("scores", scores.len()), ("token_type", kinds.len())] {
            if count != texts.len() {
                bail!("tokenizer.ggml.{name} has {count} entries, expected one for each of {} tokens", texts.len());
            }
        }
        Ok(Vocabulary { texts, scores, kinds })
    }

    /// Every cut of a piece in two, those of the best piece first. Only parts as long as some token are looked up: a piece may be as long as the
    /// file, and have as many cuts.
    fn merges(&self, numbers: &HashMap<&str, u32>) -> Vec<(String, String)> {
        let mut pieces: Vec<usize> = (0..self.texts.len()).filter(|&token| self.kinds[token] == Kind::Piece).collect();
        pieces.sort_by(|&x, &y| self.scores[y].total_cmp(&self.scores[x]));
        let lengths: HashSet<usize> = self.texts.iter().map(String::len).collect();
        let cuts = |token: usize| {
            let (text, lengths) = (&self.texts[token], &lengths);
            let fits = move |at: &usize| lengths.contains(at) && lengths.contains(&(text.len() - at));
            text.char_indices().skip(1).map(|(at, _)| at).filter(fits).map(|at| text.split_at(at))
        };
        let is_known = |(left, right): &(&str, &str)| numbers.contains_key(left) && numbers.contains_key(right);
        let owned = |(left, right): (&str, &str)| (left.to_owned(), right.to_owned());
        pieces.into_iter().flat_map(cuts).filter(is_known).map(owned).collect()
    }

    /// The text of the token that a setting names, or of a token with this number where the file says nothing.
    fn named(&self, file: &Gguf, setting: &str, otherwise: usize) -> Result<(&str, u32)> {
        let number = file.optional(setting, Gguf::number)?.unwrap_or(otherwise);
        match self.texts.get(number) {
            Some(text) => Ok((text, number as u32)),
            None => bail!("{setting} is {number}, expected the number of one of {} tokens", self.texts.len()),
        }
    }
}

pub(super) fn tokenizer(file: &Gguf) -> Result<Tokenizer> {
    let vocabulary = Vocabulary::of(file)?;
    let numbers: HashMap<&str, u32> = vocabulary.texts.iter().map(String::as_str).zip(0..).collect();
    let merges = vocabulary.merges(&numbers);
    let (unknown, _) = vocabulary.named(file, "tokenizer.ggml.unknown_token_id", 0)?;
    let model = BPE::builder()
        .vocab_and_merges(numbers.iter().map(|(&text, &number)| (text.to_owned(), number)).collect::<Vocab>(), merges)
        .unk_token(unknown.to_owned())
        .fuse_unk(true)
        .byte_fallback(true)
        .build()
        .map_err(Error::wrap)?;
    let mut tokenizer = Tokenizer::new(model);
    let begins_with_space = file.optional("tokenizer.ggml.add_space_prefix", Gguf::truth)?.unwrap_or(true);
    tokenizer.with_normalizer(Some(normalizer(begins_with_space)?)).map_err(Error::wrap)?;
    tokenizer.with_decoder(Some(decoder(begins_with_space)?));
    tokenizer.with_post_processor(Some(ends(file, &vocabulary)?));
    let of_kind = |kinds: &[Kind], is_special| -> Vec<AddedToken> {
        let tokens = vocabulary.texts.iter().zip(&vocabulary.kinds).filter(|(_, kind)| kinds.contains(kind));
        tokens.map(|(text, _)| AddedToken::from(text.as_str(), is_special).normalized(false)).collect()
    };
    tokenizer.add_special_tokens(of_kind(&[Kind::Unknown, Kind::Control], true)).map_err(Error::wrap)?;
    tokenizer.add_tokens(of_kind(&[Kind::UserDefined], false)).map_err(Error::wrap)?;
    Ok(tokenizer)
}

fn normalizer(begins_with_space: bool) -> Result<NormalizerWrapper> {
    let spaces = Replace::new(" ", SPACE).map_err(Error::wrap)?;
    let first = begins_with_space.then(|| Prepend::new(SPACE.to_owned()).into());
    Ok(Normalizers::new(first.into_iter().chain([spaces.into()]).collect()).into())
}

fn decoder(begins_with_space: bool) -> Result<DecoderWrapper> {
    let spaces = Replace::new(SPACE, " ").map_err(Error::wrap)?;
    let mut steps: Vec<DecoderWrapper> = vec![spaces.into(), ByteFallback::new().into(), Fuse::new().into()];
    if begins_with_space {
        steps.push(Strip::new(' ', 1, 0).into());
    }
    Ok(Decoders::new(steps).into())
}

/// The tokens that begin and end a text.
fn ends(file: &Gguf, vocabulary: &Vocabulary) -> Result<TemplateProcessing> {
    let wanted = |name: &str, otherwise| Ok::<_, Error>(file.optional(name, Gguf::truth)?.unwrap_or(otherwise));
    let begin = match wanted("tokenizer.ggml.add_bos_token", true)? {
        true => Some(vocabulary.named(file, "tokenizer.ggml.bos_token_id", 1)?),
        false => None,
    };
    let end = match wanted("tokenizer.ggml.add_eos_token", false)? {
        true => Some(vocabulary.named(file, "tokenizer.ggml.eos_token_id", 2)?),
        false => None,
    };
    let around = |text: &str, number: u8| -> Vec<String> {
        let token = |(token, _): (&str, u32)| format!("{token}:{number}");
        begin.map(token).into_iter().chain([format!("{text}:{number}")]).chain(end.map(token)).collect()
    };
    let pair = [around("$A", 0), around("$B", 1)].concat();
    let template = TemplateProcessing::builder()
        .try_single(around("$A", 0))
        .and_then(|builder| builder.try_pair(pair))
        .map_err(Error::msg)?
        .special_tokens(begin.into_iter().chain(end).collect::<Vec<_>>())
        .build();
    template.map_err(Error::wrap)
}
