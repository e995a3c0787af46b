//! Connectionist temporal classification: the loss by forward and backward sums over alignments, in logarithms, and its gradient.

use super::compose::Compose;
use super::values::{SINGLE, dims, expect_len, floats, integers, lengths, required, store_floats, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_tile::DType;
use rayon::prelude::*;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("warpctc", SINGLE, warpctc);
    table.add("warpctc_grad", SINGLE, warpctc_grad);
    table.add("ctc_align", &[DType::I32, DType::I64], ctc_align);
}

/// log(e^x + e^y).
fn log_add(x: f64, y: f64) -> f64 {
    let (high, low) = if x > y { (x, y) } else { (y, x) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// One sequence: its log-probabilities, time by classes, and the labels with a blank before, between and behind them.
struct Sequence {
    classes: usize,
    scores: Vec<f64>,
    states: Vec<usize>,
}

impl Sequence {
    fn times(&self) -> usize {
        self.scores.len() / self.classes.max(1)
    }

    fn score(&self, time: usize, state: usize) -> f64 {
        self.scores[time * self.classes + self.states[state]]
    }

    /// Whether a state may follow the one two before it: a label that differs from the label before.
    fn skips(&self, state: usize) -> bool {
        state >= 3 && state % 2 == 1 && self.states[state] != self.states[state - 2]
    }

    /// Whether there is time for the labels and for the blanks between equal ones.
    fn is_possible(&self) -> bool {
        let labels = self.states.len() / 2;
        let repeats = (3..self.states.len()).step_by(2).filter(|&state| !self.skips(state)).count();
        labels + repeats <= self.times() && self.times() > 0
    }

    /// The logarithm of the sum over the ways that lead to each state at each time.
    fn forward(&self) -> Vec<f64> {
        let count = self.states.len();
        let mut table = vec![f64::NEG_INFINITY; self.times() * count];
        for state in 0..count.min(2) {
            table[state] = self.score(0, state);
        }
        for time in 1..self.times() {
            let (before, now) = table.split_at_mut(time * count);
            let before = &before[(time - 1) * count..];
            for state in 0..count {
                let mut sum = before[state];
                if state > 0 {
                    sum = log_add(sum, before[state - 1]);
                }
                if self.skips(state) {
                    sum = log_add(sum, before[state - 2]);
                }
                now[state] = sum + self.score(time, state);
            }
        }
        table
    }

    /// The logarithm of the sum over the ways that lead from each state at each time to the end.
    fn backward(&self) -> Vec<f64> {
        let (count, times) = (self.states.len(), self.times());
        let mut table = vec![f64::NEG_INFINITY; times * count];
        table[times * count - count.min(2)..].fill(0.0);
        for time in (0..times - 1).rev() {
            let (now, after) = table.split_at_mut((time + 1) * count);
            let now = &mut now[time * count..];
            let next = |state: usize| after[state] + self.score(time + 1, state);
            for (state, place) in now.iter_mut().enumerate() {
                let mut sum = next(state);
                if state + 1 < count {
                    sum = log_add(sum, next(state + 1));
                }
                if state + 2 < count && self.skips(state + 2) {
                    sum = log_add(sum, next(state + 2));
                }
                *place = sum;
            }
        }
        table
    }

    /// The loss, and its gradient by the scores before softmax. Labels for which there is no time have no loss, as on Paddle's CPU.
    fn loss(&self) -> (f64, Vec<f64>) {
        if !self.is_possible() {
            return (0.0, vec![0.0; self.scores.len()]);
        }
        let (forward, backward, count) = (self.forward(), self.backward(), self.states.len());
        let ends = &forward[forward.len() - count.min(2)..];
        let total = ends.iter().copied().fold(f64::NEG_INFINITY, log_add);
        let mut shares = vec![f64::NEG_INFINITY; self.scores.len()];
        for time in 0..self.times() {
            for state in 0..count {
                let share = &mut shares[time * self.classes + self.states[state]];
                *share = log_add(*share, forward[time * count + state] + backward[time * count + state]);
            }
        }
        let gradient = self.scores.iter().zip(shares).map(|(score, share)| score.exp() - (share - total).exp());
        (-total, gradient.collect())
    }
}

/// Scores less the logarithm of the sum of their exponentials.
fn log_softmax(scores: &[f64]) -> impl Iterator<Item = f64> {
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum = highest + scores.iter().map(|score| (score - highest).exp()).sum::<f64>().ln();
    scores.iter().map(move |score| score - sum)
}

fn warpctc(
    context: &Context,
    logits: Tensor,
    label: Tensor,
    logits_length: Option<Tensor>,
    label_length: Option<Tensor>,
    blank: i32,
    _norm_by_times: bool,
    loss: Output,
    gradient: Output,
) -> Result<()> {
    let dtype = logits.dtype()?;
    let (logits_length, label_length) =
        (required("logits_length", logits_length)?, required("labels_length", label_length)?);
    let [times, batch, classes] = dims("logits", &logits)?;
    let [rows, width] = dims("label", &label)?;
    if rows != batch || times == 0 || classes == 0 {
        let got = (logits.shape(), label.shape());
        return Err(refuse("logits, label", got, "[time, batch, classes] and [batch, labels]"));
    }
    let blank = usize::try_from(blank).ok().filter(|&blank| blank < classes);
    let blank = blank.ok_or_else(|| refuse("blank", blank, &format!("one of {classes} classes")))?;
    expect_len("logits_length", &logits_length, batch)?;
    expect_len("labels_length", &label_length, batch)?;
    let used = lengths(context, "logits_length", &logits_length, times)?;
    let counts = lengths(context, "labels_length", &label_length, width)?;
    let (scores, labels) = (floats(context, &logits)?, integers(context, &label)?);
    let sequence = |row: usize| -> Result<Sequence> {
        let mut states = vec![blank];
        for &label in &labels[row * width..][..counts[row]] {
            let class = usize::try_from(label).ok().filter(|&class| class < classes);
            states.push(class.ok_or_else(|| refuse("label", label, &format!("one of {classes} classes")))?);
            states.push(blank);
        }
        let line = |time: usize| log_softmax(&scores[(time * batch + row) * classes..][..classes]);
        Ok(Sequence { classes, scores: (0..used[row]).flat_map(line).collect(), states })
    };
    let sequences = (0..batch).map(sequence).collect::<Result<Vec<_>>>()?;
    let results: Vec<(f64, Vec<f64>)> = sequences.par_iter().map(Sequence::loss).collect();
    let mut of_logits = vec![0.0; scores.len()];
    for (row, (_, values)) in results.iter().enumerate() {
        for (time, line) in values.chunks_exact(classes).enumerate() {
            of_logits[(time * batch + row) * classes..][..classes].copy_from_slice(line);
        }
    }
    let losses: Vec<f64> = results.iter().map(|(loss, _)| *loss).collect();
    store_floats(context, &loss, dtype, &[batch, 1], &losses)?;
    store_floats(context, &gradient, dtype, &[times, batch, classes], &of_logits)
}

/// What the forward kernel has found, times the loss's gradient of each sequence.
fn warpctc_grad(
    context: &Context,
    _logits: Tensor,
    logits_length: Option<Tensor>,
    gradient: Tensor,
    upstream: Tensor,
    _blank: i32,
    norm_by_times: bool,
    dlogits: Output,
) -> Result<()> {
    let [times, batch, classes] = dims("warpctcgrad", &gradient)?;
    expect_len("loss_grad", &upstream, batch)?;
    let (c, dtype) = (Compose::new(context), gradient.dtype()?);
    let mut upstream = c.shaped(&upstream.view()?, &[batch, 1])?;
    if norm_by_times {
        let length = required("logits_length", logits_length)?;
        expect_len("logits_length", &length, batch)?;
        let length = c.cast(&c.shaped(&c.resident(&length)?, &[batch, 1])?, dtype)?;
        upstream = c.map(Elementwise::Binary(Binary::Divide), &[&upstream, &length], &[])?;
    }
    dlogits.set_dims(&[times, batch, classes]);
    c.store(&dlogits, dtype, Elementwise::Binary(Binary::Multiply), &[&gradient.view()?, &upstream], &[])
}

/// The labels that an alignment stands for: what is repeated counts once, blanks are left out.
fn ctc_align(
    context: &Context,
    x: Tensor,
    length: Option<Tensor>,
    blank: i32,
    merge_repeated: bool,
    padding: i32,
    out: Output,
    out_length: Option<Output>,
) -> Result<()> {
    let (dtype, length) = (x.dtype()?, required("input_length", length)?);
    let [batch, times] = dims("input", &x)?;
    expect_len("input_length", &length, batch)?;
    let (labels, used) = (integers(context, &x)?, lengths(context, "input_length", &length, times)?);
    let mut aligned = vec![i64::from(padding); labels.len()];
    let mut counts = vec![0; batch];
    for row in 0..batch {
        let mut before = None;
        for &label in &labels[row * times..][..used[row]] {
            if label != i64::from(blank) && !(merge_repeated && before == Some(label)) {
                aligned[row * times + counts[row] as usize] = label;
                counts[row] += 1;
            }
            before = Some(label);
        }
    }
    if let Some(out_length) = out_length {
        store_integers(context, &out_length, dtype, &[batch, 1], &counts)?;
    }
    store_integers(context, &out, dtype, &[batch, times], &aligned)
}
