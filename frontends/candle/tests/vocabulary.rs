//! Tokenizers of vocabularies in GGUF files.

use candle_core::quantized::gguf_file::{Value, write};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Error, Result, Tensor};
use openmps_candle::{Gguf, tokenizer};
use std::io::Cursor;
use std::time::{Duration, Instant};

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// A file with these settings and one weight.
fn written(settings: &[(&str, Value)]) -> Result<tempfile::NamedTempFile> {
    let settings: Vec<(&str, &Value)> = settings.iter().map(|(name, value)| (*name, value)).collect();
    let weight = QTensor::quantize(&Tensor::zeros((1, 32), DType::F32, &Device::Cpu)?, GgmlDType::Q8_0)?;
    let mut bytes = Cursor::new(Vec::new());
    write(&mut bytes, &settings, &[("weight", &weight)])?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bytes.into_inner())?;
    Ok(file)
}

/// A vocabulary of the 256 bytes and of some merges, as GPT-2's letters.
fn bytes_and_merges(cuts: &str) -> Result<tempfile::NamedTempFile> {
    let plain: Vec<u32> = (33..=126).chain(161..=172).chain(174..=255).collect();
    let others = (0..256).filter(|byte| !plain.contains(byte)).enumerate().map(|(number, _)| 256 + number as u32);
    let letters = plain.iter().copied().chain(others);
    let merges = ["1 2", "12 3", "123 4", "4 5", "h e", "l l", "he ll", "hell o"];
    let mut tokens: Vec<Value> = letters.filter_map(char::from_u32).map(|letter| text(&letter.to_string())).collect();
    tokens.extend(merges.iter().map(|merge| text(&merge.replace(' ', ""))));
    written(&[
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text(cuts)),
        ("tokenizer.ggml.tokens", Value::Array(tokens)),
        ("tokenizer.ggml.merges", Value::Array(merges.into_iter().map(text).collect())),
        ("tokenizer.ggml.bos_token_id", Value::U32(0)),
        ("tokenizer.ggml.eos_token_id", Value::U32(0)),
    ])
}

#[test]
fn a_text_is_cut_as_its_file_says() -> Result<()> {
    let cut = |cuts: &str, text: &str| -> Result<Vec<String>> {
        let tokenizer = tokenizer(&Gguf::open(bytes_and_merges(cuts)?.path())?)?;
        Ok(tokenizer.encode(text, false).map_err(Error::wrap)?.get_tokens().to_vec())
    };
    for cuts in ["llama-bpe", "llama3", "llama-v3", "smaug-bpe", "falcon3", "pixtral"] {
        assert_eq!(cut(cuts, "hello")?, ["hello"], "{cuts}");
        assert_eq!(cut(cuts, "12345")?, ["123", "45"], "{cuts}");
    }
    for (cuts, digits) in
        [("tekken", &["1", "2", "3", "4", "5"][..]), ("smollm", &["1", "2", "3", "4", "5"]), ("gpt-2", &["1234", "5"])]
    {
        assert_eq!(
            (cut(cuts, "hello")?, cut(cuts, "12345")?),
            (vec!["hello".to_owned()], digits.iter().map(|&text| text.to_owned()).collect()),
            "{cuts}"
        );
    }
    let unknown = cut("deepseek-llm", "hello").unwrap_err().to_string();
    assert!(unknown.contains("tokenizer.ggml.pre is deepseek-llm"), "{unknown}");
    Ok(())
}

/// Pieces with scores, behind the tokens that SentencePiece begins with: unknown, begin, end, and the 256 bytes.
fn pieces(more: &[(&str, Value)]) -> Result<tempfile::NamedTempFile> {
    let pieces = ["\u{2581}he", "ll", "he", "ell", "\u{2581}", "o", "l", "e", "h", "\u{2581}hell", "b\u{2581}"]
        .map(str::to_owned);
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let first = ["<unk>", "<s>", "</s>"].map(str::to_owned);
    let texts: Vec<String> = first.into_iter().chain(bytes).chain(pieces).chain(["<turn>".to_owned()]).collect();
    let kind = |token: usize| match token {
        0 => 2,
        1 | 2 => 3,
        3..259 => 6,
        token if token + 1 == texts.len() => 4,
        _ => 1,
    };
    let mut settings = vec![
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.scores", Value::Array((0..texts.len()).map(|token| Value::F32(-(token as f32))).collect())),
        ("tokenizer.ggml.token_type", Value::Array((0..texts.len()).map(|token| Value::I32(kind(token))).collect())),
        ("tokenizer.ggml.tokens", Value::Array(texts.iter().map(|token| text(token)).collect())),
    ];
    settings.retain(|(name, _)| more.iter().all(|(other, _)| name != other));
    settings.extend(more.iter().cloned());
    written(&settings)
}

#[test]
fn pieces_are_joined_by_their_scores() -> Result<()> {
    let file = pieces(&[])?;
    let tokenizer = tokenizer(&Gguf::open(file.path())?)?;
    let cut = |text: &str| -> Result<Vec<String>> {
        Ok(tokenizer.encode(text, true).map_err(Error::wrap)?.get_tokens().to_vec())
    };
    // The space and "he" first, then "ll": the whole word is a piece, which these two make.
    assert_eq!(cut("hello")?, ["<s>", "\u{2581}hell", "o"]);
    // "ell" would be joined here, but "he" has the better score.
    assert_eq!(cut("ohell")?, ["<s>", "\u{2581}", "o", "he", "ll"]);
    // What is no piece is spelled in bytes, also a control character and a letter of two bytes.
    assert_eq!(cut("o\n\u{e9}")?, ["<s>", "\u{2581}", "o", "<0x0A>", "<0xC3>", "<0xA9>"]);
    // A token in the text is itself; behind it stands a space, as in front of the text.
    assert_eq!(cut("he<turn>he</s>")?, ["<s>", "\u{2581}he", "<turn>", "\u{2581}he", "</s>"]);
    assert_eq!(cut("")?, ["<s>"]);
    for text in ["hello hell", "o\n\u{e9}\u{1f600}", "  two  spaces "] {
        let tokens = tokenizer.encode(text, true).map_err(Error::wrap)?;
        assert_eq!(tokenizer.decode(tokens.get_ids(), true).map_err(Error::wrap)?, text);
    }
    Ok(())
}

#[test]
fn the_file_says_what_is_put_around_a_text() -> Result<()> {
    let flag = |name, value| (name, Value::Bool(value));
    for (more, expected) in [
        (vec![flag("tokenizer.ggml.add_bos_token", false)], &["\u{2581}he"][..]),
        (vec![flag("tokenizer.ggml.add_eos_token", true)], &["<s>", "\u{2581}he", "</s>"]),
        (vec![flag("tokenizer.ggml.add_space_prefix", false)], &["<s>", "he"]),
        (vec![("tokenizer.ggml.bos_token_id", Value::U32(2))], &["</s>", "\u{2581}he"]),
    ] {
        let file = pieces(&more)?;
        let tokenizer = tokenizer(&Gguf::open(file.path())?)?;
        let tokens = tokenizer.encode("he", true).map_err(Error::wrap)?;
        assert_eq!(tokens.get_tokens(), expected, "{more:?}");
        assert_eq!(tokenizer.decode(tokens.get_ids(), true).map_err(Error::wrap)?, "he", "{more:?}");
    }
    Ok(())
}

/// As long as a file is: a look at each of its cuts would be a look at each pair of its letters.
#[test]
fn a_piece_that_is_very_long_takes_no_time() -> Result<()> {
    let long = "ab\u{e9}".repeat(400_000);
    let longer = format!("{long}c");
    let pieces = ["<unk>", "<s>", "</s>", "a", "b", "ab", &long, &longer].map(text);
    let scores = (0..pieces.len()).map(|token| Value::F32(-(token as f32))).collect();
    let file = written(&[
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.tokens", Value::Array(pieces.into())),
        ("tokenizer.ggml.scores", Value::Array(scores)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(false)),
    ])?;
    let begin = Instant::now();
    let tokenizer = tokenizer(&Gguf::open(file.path())?)?;
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let cut = tokenizer.encode("ab", false).map_err(Error::wrap)?;
    assert_eq!(cut.get_tokens().last().map(String::as_str), Some("ab"));
    Ok(())
}

#[test]
fn tensors_at_multiples_of_no_bytes_are_refused() -> Result<()> {
    let name = "general.alignment";
    let lists = Value::Array(vec![Value::Array(vec![text("a"), text("")]), Value::Array(Vec::new())]);
    let zeros = [Value::U8(0), Value::I8(0), Value::U16(0), Value::I16(0), Value::U32(0), Value::I32(0)];
    for zero in zeros {
        let file =
            written(&[("lists", lists.clone()), ("numbers", Value::Array(vec![Value::F64(1.0)])), (name, zero)])?;
        let error = Gguf::open(file.path()).expect_err("an alignment of 0").to_string();
        assert!(error.contains("general.alignment of the GGUF file is 0"), "{error}");
    }
    for other in [Value::U32(64), Value::U32(1), text(name), Value::Array(vec![Value::U32(0)])] {
        assert!(Gguf::open(written(&[("lists", lists.clone()), (name, other)])?.path()).is_ok());
    }
    // A value that says so is no setting.
    assert!(Gguf::open(written(&[("text", text("general.alignment\u{4}\0\0\0\0\0\0\0"))])?.path()).is_ok());
    Ok(())
}

#[test]
fn a_vocabulary_that_does_not_fit_together_is_refused() -> Result<()> {
    for (wrong, expected) in [
        (
            ("tokenizer.ggml.scores", Value::Array(vec![Value::F32(0.0)])),
            "scores has 1 entries, expected one for each of 271",
        ),
        (("tokenizer.ggml.scores", text("none")), "tokenizer.ggml.scores"),
        (("tokenizer.ggml.bos_token_id", Value::U32(999)), "bos_token_id is 999"),
        (("tokenizer.ggml.model", text("bert")), "bert"),
    ] {
        let file = pieces(&[wrong])?;
        let error = tokenizer(&Gguf::open(file.path())?).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    Ok(())
}
