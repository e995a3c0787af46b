//! The fine-tune: corrections of rank 8 on queries and values, and a linear classifier, trained on the opinions; the curve as a picture,
//! the corrections as a PEFT adapter.

use crate::curve;
use crate::model::{self, Tokens};
use crate::opinions::{Remarks, remarks};
use candle_core::{Device, Error, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use indicatif::{ProgressBar, ProgressStyle};
use openmps_candle::{Bert, LoraAdapter, LoraConfig, linear, log_softmax};
use std::path::Path;

const RANK: usize = 8;
const ALPHA: f64 = 16.0;
const DROPOUT: f64 = 0.05;
const BATCH: usize = 16;
const STEPS: usize = 90;
const SEED: u64 = 1;

/// A model with its classifier: [2, size] and [2].
struct Classifier {
    bert: Bert,
    weight: Var,
    bias: Var,
}

impl Classifier {
    /// The logarithms of the two labels' probabilities.
    fn forward(&self, ids: &Tensor, mask: &Tensor, train: bool) -> Result<Tensor> {
        let embedding = if train { self.bert.embed_in_training(ids, mask)? } else { self.bert.embed(ids, mask)? };
        // Embeddings have length 1: the factor lets probabilities come near 0 and 1.
        let scores = linear(&(embedding * 8.0)?, self.weight.as_tensor(), Some(self.bias.as_tensor()))?;
        log_softmax(&scores, 1)
    }

    fn accuracy(&self, tokens: &Tokens, remarks: &Remarks) -> Result<f64> {
        let mut right = 0;
        for batch in remarks.chunks(48) {
            let (ids, mask, labels) = tensors(tokens, batch)?;
            let found = self.forward(&ids, &mask, false)?.argmax(1)?;
            right += found.eq(&labels)?.sum_all()?.to_scalar::<u8>()? as usize;
        }
        Ok(right as f64 / remarks.len() as f64)
    }
}

fn tensors(tokens: &Tokens, remarks: &[(String, u32)]) -> Result<(Tensor, Tensor, Tensor)> {
    let texts: Vec<&str> = remarks.iter().map(|(text, _)| text.as_str()).collect();
    let labels: Vec<u32> = remarks.iter().map(|&(_, label)| label).collect();
    let (ids, mask) = tokens.encode(&texts)?;
    Ok((ids, mask, Tensor::new(labels, &Device::Cpu)?))
}

/// Trains, and writes `adapter/` and `loss.svg` into the folder.
pub fn run(folder: &str) -> Result<()> {
    let (training, test) = remarks();
    let tokens = Tokens::load()?;
    let bert = model::openmps()?.with_lora(RANK, ALPHA, DROPOUT, &["query", "value"], SEED)?;
    let size = bert.corrections()[0].1.sizes()?.0;
    let zeros = |shape: &[usize]| Var::zeros(shape, candle_core::DType::F32, &Device::Cpu);
    let classifier = Classifier { bert, weight: zeros(&[2, size])?, bias: zeros(&[2])? };
    let mut variables = classifier.bert.variables()?;
    let trained: usize = variables.iter().map(|variable| variable.elem_count()).sum();
    variables.extend([classifier.weight.clone(), classifier.bias.clone()]);
    println!("{} remarks to learn from, {} to test; {trained} numbers in the corrections", training.len(), test.len());
    let parameters = ParamsAdamW { lr: 2e-3, weight_decay: 0.0, ..Default::default() };
    let mut optimizer = AdamW::new(variables, parameters)?;

    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {elapsed}").map_err(Error::wrap)?;
    let progress = ProgressBar::new(STEPS as u64).with_style(style);
    let mut losses = Vec::with_capacity(STEPS);
    for step in 0..STEPS {
        let batch: Vec<_> = (0..BATCH).map(|i| training[place(step * BATCH + i, training.len())].clone()).collect();
        let (ids, mask, labels) = tensors(&tokens, &batch)?;
        let probabilities = classifier.forward(&ids, &mask, true)?;
        let loss = probabilities.gather(&labels.unsqueeze(1)?, 1)?.mean_all()?.neg()?;
        optimizer.backward_step(&loss)?;
        losses.push(loss.to_scalar::<f32>()?);
        progress.set_message(format!("loss {:.3}", losses[step]));
        progress.inc(1);
    }
    progress.finish();

    let folder = Path::new(folder);
    std::fs::create_dir_all(folder)?;
    curve::draw("LoRA on MiniLM: cross entropy by step", &losses, &folder.join("loss.svg"))
        .map_err(|error| Error::msg(error.to_string()))?;
    save(&classifier.bert, &folder.join("adapter"))?;
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    println!(
        "mean loss of the first ten steps {:.3}, of the last ten {:.3}",
        mean(&losses[..10]),
        mean(&losses[STEPS - 10..])
    );
    println!("right about things and words never seen: {:.1} %", 100.0 * classifier.accuracy(&tokens, &test)?);
    println!("written: {}, {}", folder.join("loss.svg").display(), folder.join("adapter").display());
    Ok(())
}

/// A place in the training set that wanders through all of it: the stride shares no factor with its length.
fn place(number: usize, length: usize) -> usize {
    const STRIDE: usize = 10_007;
    number * STRIDE % length
}

fn save(bert: &Bert, folder: &Path) -> Result<()> {
    let config = LoraConfig::new(RANK, ALPHA, DROPOUT, &["query", "value"]);
    let mut adapter = LoraAdapter::new(config).map_err(Error::wrap)?;
    for (name, layer) in bert.corrections() {
        let (a, b) = layer.matrices();
        adapter.insert(&name, a.detach(), b.detach()).map_err(Error::wrap)?;
    }
    adapter.save(folder).map_err(Error::wrap)
}
