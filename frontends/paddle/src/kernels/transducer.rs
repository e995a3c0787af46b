//! The loss of transducers (Graves, 2012): every way through a grid of times and labels, on the host, with its gradient.

use super::compose::Compose;
use super::values::{SINGLE, dims, expect, expect_len, floats, integers, lengths, store_floats};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use rayon::prelude::*;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("warprnnt", SINGLE, warprnnt);
    table.add("warprnnt_grad", SINGLE, warprnnt_grad);
}

/// The logarithm of a sum of two numbers that are given by theirs.
fn log_sum(left: f64, right: f64) -> f64 {
    let most = left.max(right);
    if most == f64::NEG_INFINITY { most } else { most + (-(left - right).abs()).exp().ln_1p() }
}

/// One sequence: its logarithms of probabilities at each time and after each number of labels, and its labels.
struct Grid<'a> {
    numbers: &'a [f64],
    /// Columns and classes of a row in memory.
    width: usize,
    classes: usize,
    times: usize,
    labels: &'a [i64],
    blank: usize,
}

impl Grid<'_> {
    fn place(&self, time: usize, label: usize, class: usize) -> usize {
        (time * self.width + label) * self.classes + class
    }

    /// Of going to the next time.
    fn wait(&self, time: usize, label: usize) -> f64 {
        self.numbers[self.place(time, label, self.blank)]
    }

    /// Of giving the next label.
    fn give(&self, time: usize, label: usize) -> f64 {
        self.numbers[self.place(time, label, self.labels[label] as usize)]
    }

    fn at(&self, time: usize, label: usize) -> usize {
        time * (self.labels.len() + 1) + label
    }

    /// The ways to each place.
    fn before(&self) -> Vec<f64> {
        let mut ways = vec![f64::NEG_INFINITY; self.times * (self.labels.len() + 1)];
        for time in 0..self.times {
            for label in 0..=self.labels.len() {
                let waited = if time > 0 {
                    ways[self.at(time - 1, label)] + self.wait(time - 1, label)
                } else {
                    f64::NEG_INFINITY
                };
                let given = if label > 0 {
                    ways[self.at(time, label - 1)] + self.give(time, label - 1)
                } else {
                    f64::NEG_INFINITY
                };
                ways[self.at(time, label)] = if (time, label) == (0, 0) { 0.0 } else { log_sum(waited, given) };
            }
        }
        ways
    }

    /// The ways from each place to the end.
    fn after(&self) -> Vec<f64> {
        let (last_time, last) = (self.times - 1, self.labels.len());
        let mut ways = vec![f64::NEG_INFINITY; self.times * (last + 1)];
        for time in (0..self.times).rev() {
            for label in (0..=last).rev() {
                let next = match (time < last_time, label == last) {
                    (true, _) => ways[self.at(time + 1, label)],
                    (false, true) => 0.0,
                    (false, false) => f64::NEG_INFINITY,
                };
                let given = if label < last {
                    ways[self.at(time, label + 1)] + self.give(time, label)
                } else {
                    f64::NEG_INFINITY
                };
                ways[self.at(time, label)] = log_sum(next + self.wait(time, label), given);
            }
        }
        ways
    }

    /// The loss, and its gradient, where labels count a little more than they do (FastEmit: Yu et al., 2021).
    fn loss(&self, emphasis: f64, gradient: &mut [f64]) -> f64 {
        let (before, after) = (self.before(), self.after());
        let total = after[0];
        for time in 0..self.times {
            for label in 0..=self.labels.len() {
                let way = before[self.at(time, label)] - total;
                let next = match (time + 1 < self.times, label == self.labels.len()) {
                    (true, _) => after[self.at(time + 1, label)],
                    (false, true) => 0.0,
                    (false, false) => f64::NEG_INFINITY,
                };
                gradient[self.place(time, label, self.blank)] -= (way + self.wait(time, label) + next).exp();
                if label < self.labels.len() {
                    let share = (way + self.give(time, label) + after[self.at(time, label + 1)]).exp();
                    gradient[self.place(time, label, self.labels[label] as usize)] -= (1.0 + emphasis) * share;
                }
            }
        }
        -total
    }
}

/// Of logarithms of probabilities: those of blank and labels count, as on Paddle's CPU.
fn warprnnt(
    context: &Context,
    x: Tensor,
    labels: Tensor,
    times: Tensor,
    counts: Tensor,
    blank: i32,
    emphasis: f32,
    loss: Output,
    gradient: Output,
) -> Result<()> {
    let ([count, most_times, width, classes], dtype) = (dims("input", &x)?, x.dtype()?);
    if width == 0 {
        return Err(refuse("input", x.shape(), "a place more than there are labels"));
    }
    expect("label", &labels, &[count, width - 1])?;
    expect_len("input_lengths", &times, count)?;
    expect_len("label_lengths", &counts, count)?;
    let of_class = usize::try_from(blank).ok().filter(|&blank| blank < classes);
    let blank =
        of_class.ok_or_else(|| refuse("blank", blank, &format!("classes 0 to {}", classes.saturating_sub(1))))?;
    let (times, counts) = (
        lengths(context, "input_lengths", &times, most_times)?,
        lengths(context, "label_lengths", &counts, width - 1)?,
    );
    if times.contains(&0) {
        return Err(refuse("input_lengths", times, "numbers above 0"));
    }
    let (numbers, labels) = (floats(context, &x)?, integers(context, &labels)?);
    // Behind a sequence's own labels may stand anything.
    let own = |sequence: usize| &labels[sequence * (width - 1)..][..counts[sequence]];
    if let Some(label) = (0..count).flat_map(own).find(|label| !(0..classes as i64).contains(*label)) {
        return Err(refuse("label", label, &format!("classes 0 to {}", classes - 1)));
    }
    let size = most_times * width * classes;
    let mut gradients = vec![0.0; numbers.len()];
    let found = |(sequence, gradient): (usize, &mut [f64])| {
        let numbers = &numbers[sequence * size..][..size];
        Grid { numbers, width, classes, times: times[sequence], labels: own(sequence), blank }
            .loss(emphasis.into(), gradient)
    };
    let losses: Vec<f64> = gradients.par_chunks_exact_mut(size.max(1)).enumerate().map(found).collect();
    store_floats(context, &gradient, dtype, &[count, most_times, width, classes], &gradients)?;
    store_floats(context, &loss, dtype, &[count], &losses)
}

fn warprnnt_grad(
    context: &Context,
    _x: Tensor,
    _times: Tensor,
    gradient: Tensor,
    upstream: Tensor,
    _blank: i32,
    _emphasis: f32,
    dx: Output,
) -> Result<()> {
    let (c, gradient) = (Compose::new(context), gradient.view()?);
    let upstream = upstream.view()?;
    let upstream = c.shaped(&upstream, &[upstream.len(), 1, 1, 1])?;
    c.store(&dx, gradient.dtype, Elementwise::Binary(Binary::Multiply), &[&gradient, &upstream], &[])
}
