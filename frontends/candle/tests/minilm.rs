//! MiniLM in openmps's operators against the same model in Candle's. Needs the weights: `cargo xtask minilm` installs them, and
//! `cargo xtask test` runs these tests with `--include-ignored`.

#[path = "../examples/minilm/model.rs"]
mod model;

use candle_core::{Result, Tensor};
use openmps_candle::{LoraAdapter, LoraConfig};

const SENTENCES: &str = include_str!("data/sentences.txt");
const PAIRS: &str = include_str!("data/pairs.tsv");

fn largest_difference(a: &Tensor, b: &Tensor) -> Result<f32> {
    (a - b)?.abs()?.max_all()?.to_scalar()
}

#[test]
#[ignore = "needs MiniLM's weights: cargo xtask test runs it"]
fn two_hundred_sentences_agree_to_1e_5() -> Result<()> {
    let (tokens, ours, plain) = (model::Tokens::load()?, model::openmps()?, model::Plain::load()?);
    let sentences: Vec<&str> = SENTENCES.lines().collect();
    assert_eq!(sentences.len(), 200);
    for batch in [1, 7, 32] {
        for sentences in sentences.chunks(batch) {
            let (ids, mask) = tokens.encode(sentences)?;
            let (a, b) = (ours.embed(&ids, &mask)?, plain.embed(&ids, &mask)?);
            assert_eq!(a.dims(), [sentences.len(), 384]);
            let difference = largest_difference(&a, &b)?;
            assert!(difference < 1e-5, "{sentences:?}: {difference}");
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs MiniLM's weights: cargo xtask test runs it"]
fn held_out_pairs_are_ranked_the_same() -> Result<()> {
    let (tokens, ours, plain) = (model::Tokens::load()?, model::openmps()?, model::Plain::load()?);
    let (left, right): (Vec<&str>, Vec<&str>) = PAIRS.lines().filter_map(|line| line.split_once('\t')).unzip();
    let rank = |embed: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>| -> Result<Vec<usize>> {
        let side = |texts: &[&str]| {
            let (ids, mask) = tokens.encode(texts)?;
            embed(&ids, &mask)
        };
        let alike = (side(&left)? * side(&right)?)?.sum(1)?.to_vec1::<f32>()?;
        let mut order: Vec<usize> = (0..alike.len()).collect();
        order.sort_by(|&a, &b| alike[b].total_cmp(&alike[a]));
        Ok(order)
    };
    let (a, b) = (rank(&|ids, mask| ours.embed(ids, mask))?, rank(&|ids, mask| plain.embed(ids, mask))?);
    assert_eq!(a.len(), 24);
    assert_eq!(a, b);
    assert_ne!(a[0], 8, "a ball is no quarterly report");
    Ok(())
}

#[test]
#[ignore = "needs MiniLM's weights: cargo xtask test runs it"]
fn an_adapter_is_the_same_merged_and_unmerged() -> Result<()> {
    let tokens = model::Tokens::load()?;
    let (ids, mask) = tokens.encode(&SENTENCES.lines().take(9).collect::<Vec<_>>())?;
    let wrap = candle_core::Error::wrap;
    let mut adapter = LoraAdapter::new(LoraConfig::new(4, 8.0, 0.0, &["query", "value"])).map_err(wrap)?;
    let numbers = |rows: usize, columns: usize, seed: usize| {
        let value = |i: usize| (((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0) * 0.05;
        let values: Vec<f32> = (0..rows * columns).map(value).collect();
        Tensor::from_vec(values, (rows, columns), &candle_core::Device::Cpu)
    };
    for layer in 0..6 {
        for (part, name) in ["query", "value"].into_iter().enumerate() {
            let name = format!("encoder.layer.{layer}.attention.self.{name}");
            let seed = 4 * layer + 2 * part;
            adapter.insert(&name, numbers(4, 384, seed)?, numbers(384, 4, seed + 1)?).map_err(wrap)?;
        }
    }
    let unmerged = model::openmps()?.with_adapter(&adapter)?.embed(&ids, &mask)?;
    let folder = model::folder()?;
    let mut weights = candle_core::safetensors::load(folder.join("model.safetensors"), &candle_core::Device::Cpu)?;
    adapter.merge_into(&mut weights).map_err(wrap)?;
    let config = std::fs::read_to_string(folder.join("config.json"))?;
    let merged =
        openmps_candle::Bert::new(&weights, &serde_json::from_str(&config).map_err(candle_core::Error::wrap)?)?;
    assert!(largest_difference(&unmerged, &merged.embed(&ids, &mask)?)? < 1e-5);
    let plain = model::openmps()?.embed(&ids, &mask)?;
    assert!(largest_difference(&unmerged, &plain)? > 1e-3, "the adapter changes something");
    Ok(())
}
