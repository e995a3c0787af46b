//! The angles of the rotary embedding, and how a file stretches them for texts longer than those that a model learned from first.

use super::{Gguf, LlamaConfig};
use candle_core::{Device, Result, Tensor};
use std::f32::consts::PI;
use std::ops::Range;

/// Settings under `ARCHITECTURE.rope.` that are read, here or by [`LlamaConfig`], or change nothing.
const KNOWN: [&str; 8] = [
    "dimension_count",
    "freq_base",
    "scale_linear",
    "scaling.type",
    "scaling.factor",
    "scaling.attn_factor",
    "scaling.original_context_length",
    "scaling.finetuned",
];

/// Settings of yarn that files may repeat, and the only value that is known: others mean one thing to Hugging Face and nothing to llama.cpp, which
/// does not read them for these architectures.
const FIXED: [(&str, f32); 5] = [
    ("scaling.yarn_ext_factor", 1.0),
    ("scaling.yarn_attn_factor", 1.0),
    ("scaling.yarn_beta_fast", TURNS_KEPT),
    ("scaling.yarn_beta_slow", TURNS_SCALED),
    ("scaling.yarn_log_multiplier", 0.0),
];

/// Yarn leaves a pair's angles as they are that turns so often in the original context, and divides those of one that turns less than once.
const TURNS_KEPT: f32 = 32.0;
const TURNS_SCALED: f32 = 1.0;

/// One number for each pair of elements that is turned, by which its frequency is divided: Llama 3.1 and later.
const DIVISORS: &str = "rope_freqs.weight";
/// Longrope's two sets of these, of which the length of a text chooses one.
const OF_LENGTHS: [&str; 2] = ["rope_factors_long.weight", "rope_factors_short.weight"];

/// What a file says of angles, in llama.cpp's terms.
#[derive(Debug)]
struct Scaling {
    /// Positions are divided by it.
    factor: f32,
    /// Cosines and sines are multiplied by it.
    magnitude: f32,
    /// By pair: its frequency is divided by it.
    divisors: Vec<f32>,
    /// By pair: the part of an angle that is not divided by the factor.
    kept: Vec<f32>,
}

impl Scaling {
    fn read(file: &Gguf, config: &LlamaConfig) -> Result<Scaling> {
        let architecture = file.text("general.architecture")?;
        refuse_unknown(file, &format!("{architecture}.rope."))?;
        let name = |setting: &str| format!("{architecture}.rope.{setting}");
        let kind = file.optional(&name("scaling.type"), Gguf::text)?.unwrap_or("linear");
        let magnitude = positive(file, &name("scaling.attn_factor"))?.unwrap_or(1.0);
        let stated = match positive(file, &name("scaling.factor"))? {
            Some(factor) => Some(factor),
            None => positive(file, &name("scale_linear"))?,
        };
        let factor = stated.unwrap_or(1.0);
        let pairs = config.rope_size / 2;
        let plain = Scaling { factor: 1.0, magnitude, divisors: divisors(file, pairs)?, kept: vec![0.0; pairs] };
        match kind {
            "none" => Ok(plain),
            "linear" => Ok(Scaling { factor, ..plain }),
            "yarn" => {
                let original = file.optional(&name("scaling.original_context_length"), Gguf::number)?;
                let kept = kept(config, original.filter(|&tokens| tokens > 0).unwrap_or(config.context));
                // A softmax over more keys is flatter: yarn makes queries and keys larger, by what its authors found in trials.
                let magnitude = magnitude * (1.0 + 0.1 * factor.max(1.0).ln());
                Ok(Scaling { factor, magnitude, kept, ..plain })
            }
            other => {
                candle_core::bail!(
                    "{} of the GGUF file is {other:?}, expected none, linear or yarn",
                    name("scaling.type")
                )
            }
        }
    }

    /// A pair's angle, by that of the plain embedding.
    fn angle(&self, pair: usize, plain: f32) -> f32 {
        let whole = plain / self.divisors[pair];
        let kept = self.kept[pair];
        whole * (1.0 / self.factor) * (1.0 - kept) + whole * kept
    }
}

/// The angles of the rotary embedding, computed for the tokens that are read: a file may promise any number of them.
#[derive(Debug)]
pub(super) struct Angles {
    scaling: Scaling,
    pairs: usize,
    step: f32,
}

impl Angles {
    pub fn of(file: &Gguf, config: &LlamaConfig) -> Result<Angles> {
        let pairs = config.rope_size / 2;
        let step = (config.rope_base as f32).powf(-1.0 / pairs as f32);
        Ok(Angles { scaling: Scaling::read(file, config)?, pairs, step })
    }

    /// Cosines and sines [positions, pairs]. A plain angle is a number times the one before it, in float32, as llama.cpp has it
    /// (`ggml_rope_cache_init`): a file's text is to be the same here and there.
    pub fn at(&self, positions: Range<usize>) -> Result<[Tensor; 2]> {
        let Angles { scaling, pairs, step } = self;
        let turns = |position: usize| std::iter::successors(Some(position as f32), |angle| Some(angle * step));
        let angles: Vec<f32> = positions
            .clone()
            .flat_map(|at| turns(at).take(*pairs).enumerate())
            .map(|(pair, plain)| scaling.angle(pair, plain))
            .collect();
        let table = |of: fn(f32) -> f32| {
            let numbers = angles.iter().map(|&angle| of(angle) * scaling.magnitude).collect();
            Tensor::from_vec(numbers, (positions.len(), *pairs), &Device::Cpu)
        };
        Ok([table(f32::cos)?, table(f32::sin)?])
    }
}

/// What is not known must not be passed over: the angles would be others than those the model learned.
fn refuse_unknown(file: &Gguf, prefix: &str) -> Result<()> {
    let is_known = |name: &str| {
        let Some(setting) = name.strip_prefix(prefix) else { return true };
        let number = file.float(name).ok();
        KNOWN.contains(&setting) || FIXED.iter().any(|&(of, only)| of == setting && number == Some(f64::from(only)))
    };
    let settings = &file.content().metadata;
    if let Some(name) = settings.keys().filter(|name| !is_known(name)).min() {
        candle_core::bail!("{name} of the GGUF file is {:?}, which is not known here", settings[name]);
    }
    if let Some(name) = OF_LENGTHS.iter().find(|name| file.has(name)) {
        candle_core::bail!("the GGUF file has a tensor {name}: longrope is not known here");
    }
    Ok(())
}

/// A setting by which something is divided or multiplied; 0 stands for none, as in llama.cpp.
fn positive(file: &Gguf, name: &str) -> Result<Option<f32>> {
    match file.optional(name, Gguf::float)? {
        Some(number) if number < 0.0 || !number.is_finite() => {
            candle_core::bail!("{name} of the GGUF file is {number}, expected a positive number")
        }
        number => Ok(number.filter(|&number| number > 0.0).map(|number| number as f32)),
    }
}

fn divisors(file: &Gguf, pairs: usize) -> Result<Vec<f32>> {
    if !file.has(DIVISORS) {
        return Ok(vec![1.0; pairs]);
    }
    let numbers = file.tensor(DIVISORS)?.flatten_all()?.to_vec1::<f32>()?;
    if numbers.len() != pairs {
        candle_core::bail!("{DIVISORS} of the GGUF file has {} numbers for {pairs} pairs", numbers.len());
    }
    match numbers.iter().find(|&&number| !(number.is_finite() && number > 0.0)) {
        Some(number) => candle_core::bail!("{DIVISORS} of the GGUF file has a {number}, expected positive numbers"),
        None => Ok(numbers),
    }
}

/// By pair, how much of its angle yarn keeps: all of pairs that turn often in the original context, nothing of slow ones, a ramp between.
fn kept(config: &LlamaConfig, original: usize) -> Vec<f32> {
    let size = config.rope_size as f32;
    let pair_of =
        |turns: f32| size * (original as f32 / (turns * 2.0 * PI)).ln() / (2.0 * (config.rope_base as f32).ln());
    let first = pair_of(TURNS_KEPT).floor().max(0.0);
    let last = pair_of(TURNS_SCALED).ceil().min(size - 1.0);
    let scaled = |pair: usize| ((pair as f32 - first) / (last - first).max(0.001)).clamp(0.0, 1.0);
    (0..config.rope_size / 2).map(|pair| 1.0 - scaled(pair)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::gguf_file::{Value, write};
    use candle_core::quantized::{GgmlDType, QTensor};
    use std::io::Cursor;

    const SIZE: usize = 64;
    const CONTEXT: usize = 512;

    /// The head of a file with these settings under `llama.rope.`, and these tensors.
    fn file(settings: &[(&str, Value)], tensors: &[(&str, &[f32])]) -> Gguf {
        let mut all = vec![
            ("general.architecture".to_owned(), Value::String("llama".into())),
            ("llama.block_count".to_owned(), Value::U32(1)),
            ("llama.embedding_length".to_owned(), Value::U32(SIZE as u32)),
            ("llama.attention.head_count".to_owned(), Value::U32(1)),
            ("llama.attention.layer_norm_rms_epsilon".to_owned(), Value::F32(1e-5)),
            ("llama.context_length".to_owned(), Value::U32(CONTEXT as u32)),
        ];
        all.extend(settings.iter().map(|(name, value)| (format!("llama.rope.{name}"), value.clone())));
        let all: Vec<(&str, &Value)> = all.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let tensor =
            |numbers: &[f32]| QTensor::quantize(&Tensor::new(numbers, &Device::Cpu).unwrap(), GgmlDType::F32).unwrap();
        let tensors: Vec<(&str, QTensor)> = tensors.iter().map(|&(name, numbers)| (name, tensor(numbers))).collect();
        let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
        let mut bytes = Cursor::new(Vec::new());
        write(&mut bytes, &all, &tensors).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes.into_inner()).unwrap();
        Gguf::open(file.path()).unwrap()
    }

    fn tables(file: &Gguf) -> Result<[Tensor; 2]> {
        Angles::of(file, &LlamaConfig::read(file)?)?.at(0..CONTEXT)
    }

    /// The tables are those of an angle by frequency and position, times a number, all in float64.
    fn agrees(file: &Gguf, angle: impl Fn(usize, f64) -> f64, magnitude: f64) {
        let [cosines, sines] = tables(file).unwrap();
        let (cosines, sines) = (cosines.to_vec2::<f32>().unwrap(), sines.to_vec2::<f32>().unwrap());
        let base = file.float("llama.rope.freq_base").unwrap_or(10_000.0);
        let mut largest = 0.0f64;
        for position in 0..CONTEXT {
            for pair in 0..SIZE / 2 {
                let frequency = base.powf(-2.0 * pair as f64 / SIZE as f64);
                let angle = angle(pair, position as f64 * frequency);
                for (found, want) in [(cosines[position][pair], angle.cos()), (sines[position][pair], angle.sin())] {
                    largest = largest.max((f64::from(found) - want * magnitude).abs());
                }
            }
        }
        assert!(largest < 2e-4, "{largest}");
    }

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    #[test]
    fn plain_angles_and_a_base() {
        agrees(&file(&[], &[]), |_, angle| angle, 1.0);
        agrees(&file(&[("freq_base", Value::F32(500_000.0))], &[]), |_, angle| angle, 1.0);
        let none = [("scaling.type", text("none")), ("scaling.factor", Value::F32(4.0))];
        agrees(&file(&none, &[]), |_, angle| angle, 1.0);
    }

    #[test]
    fn positions_that_are_divided() {
        let (factor, old) = (("scaling.factor", Value::F32(4.0)), ("scale_linear", Value::F32(2.5)));
        agrees(&file(std::slice::from_ref(&factor), &[]), |_, angle| angle / 4.0, 1.0);
        agrees(&file(&[("scaling.type", text("linear")), factor.clone()], &[]), |_, angle| angle / 4.0, 1.0);
        agrees(&file(std::slice::from_ref(&old), &[]), |_, angle| angle / 2.5, 1.0);
        agrees(&file(&[old, factor.clone()], &[]), |_, angle| angle / 4.0, 1.0);
        let finetuned = ("scaling.finetuned", Value::Bool(true));
        let attention = ("scaling.attn_factor", Value::F32(1.25));
        agrees(&file(&[factor, attention, finetuned], &[]), |_, angle| angle / 4.0, 1.25);
        agrees(&file(&[("scaling.factor", Value::F32(0.0))], &[]), |_, angle| angle, 1.0);
    }

    #[test]
    fn frequencies_that_are_divided() {
        let divisors: Vec<f32> = (0..SIZE / 2).map(|pair| 1.0 + pair as f32 / 4.0).collect();
        let tensors: [(&str, &[f32]); 1] = [(DIVISORS, &divisors)];
        agrees(&file(&[], &tensors), |pair, angle| angle / (1.0 + pair as f64 / 4.0), 1.0);
        let factor = [("scaling.factor", Value::F32(2.0))];
        agrees(&file(&factor, &tensors), |pair, angle| angle / (2.0 + pair as f64 / 2.0), 1.0);
    }

    #[test]
    fn yarn_keeps_what_turns_often() {
        let (base, original, factor) = (10_000.0f64, 300.0f64, 8.0f64);
        // The pairs whose wave is an n-th of the original context, from the definition of a wave's length.
        let pair = |turns: f64| SIZE as f64 / 2.0 * (original / (turns * std::f64::consts::TAU)).log(base);
        let (first, last) = (pair(32.0).floor().max(0.0), pair(1.0).ceil());
        assert!(first < last && last < SIZE as f64 / 2.0, "a ramp that ends: {first} to {last}");
        let stretched = move |pair: usize, angle: f64| {
            let divided = ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
            angle * (1.0 - divided) + angle / factor * divided
        };
        let settings = [
            ("scaling.type", text("yarn")),
            ("scaling.factor", Value::F32(factor as f32)),
            ("scaling.original_context_length", Value::U32(original as u32)),
            ("scaling.yarn_beta_fast", Value::F32(32.0)),
        ];
        let magnitude = 1.0 + 0.1 * factor.ln();
        agrees(&file(&settings, &[]), stretched, magnitude);
        let attention = [("scaling.attn_factor", Value::F32(0.5))];
        agrees(&file(&[&settings[..], &attention].concat(), &[]), stretched, magnitude * 0.5);
    }

    #[test]
    fn what_is_not_known_is_refused_by_name_and_value() {
        let refusals: [(&str, Value, &str); 7] = [
            ("scaling.type", text("longrope"), "llama.rope.scaling.type of the GGUF file is \"longrope\""),
            ("scaling.factor", Value::F32(-2.0), "llama.rope.scaling.factor of the GGUF file is -2"),
            ("scaling.attn_factor", Value::F32(f32::NAN), "llama.rope.scaling.attn_factor of the GGUF file is NaN"),
            ("scaling.factor", text("four"), "llama.rope.scaling.factor"),
            (
                "scaling.yarn_beta_fast",
                Value::F32(16.0),
                "llama.rope.scaling.yarn_beta_fast of the GGUF file is F32(16.0)",
            ),
            ("scaling.alpha", Value::F32(1000.0), "llama.rope.scaling.alpha of the GGUF file is F32(1000.0)"),
            ("dimension_sections", Value::U32(3), "llama.rope.dimension_sections of the GGUF file is U32(3)"),
        ];
        for (name, value, expected) in refusals {
            let error = tables(&file(&[(name, value)], &[])).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let numbers = [1.0f32; SIZE / 2];
        let tensors: [(&str, &[f32], &str); 4] = [
            ("rope_factors_long.weight", &numbers, "rope_factors_long.weight"),
            ("rope_factors_short.weight", &numbers, "rope_factors_short.weight"),
            (DIVISORS, &numbers[1..], "rope_freqs.weight of the GGUF file has 31 numbers for 32 pairs"),
            (DIVISORS, &[0.0; SIZE / 2], "rope_freqs.weight of the GGUF file has a 0"),
        ];
        for (name, numbers, expected) in tensors {
            let error = tables(&file(&[], &[(name, numbers)])).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
