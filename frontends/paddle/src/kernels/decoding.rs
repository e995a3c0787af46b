//! Sequences by dynamic programming: the best path of labels, the distance of two texts, and the texts of a beam.

use super::values::{
    SINGLE, dims, expect, expect_len, floats, integers, lengths, required, rounded, store_floats, store_integers,
};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;
use rayon::prelude::*;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("viterbi_decode", SINGLE, viterbi_decode).output(1, DType::I64);
    table.add("crf_decoding", SINGLE, crf_decoding).output(0, DType::I64);
    table.add("edit_distance", SINGLE, edit_distance).output(0, DType::I64).output(1, DType::F32);
    table.add("gather_tree", &[DType::I32, DType::I64], gather_tree);
}

/// What it costs to go from label to label, to begin with one and to end with one.
struct Transitions<'a> {
    labels: usize,
    dtype: DType,
    /// Rows of the label before, columns of the label after.
    between: &'a [f64],
    start: &'a [f64],
    stop: &'a [f64],
}

impl Transitions<'_> {
    fn sum(&self, left: f64, right: f64) -> f64 {
        rounded(left + right, self.dtype)
    }

    /// The best label before each, with its score; of equals the first.
    fn step(&self, scores: &[f64], label: usize) -> (usize, f64) {
        let score = |before: usize| self.sum(scores[before], self.between[before * self.labels + label]);
        best((0..self.labels).map(score))
    }

    /// The best path through some steps of scores, and its own score.
    fn path(&self, steps: &[f64]) -> (f64, Vec<i64>) {
        let mut before: Vec<Vec<usize>> = Vec::new();
        let count = (steps.len() / self.labels).max(1);
        let mut scores: Vec<f64> = Vec::new();
        for (at, step) in steps.chunks_exact(self.labels).enumerate() {
            scores = if at == 0 {
                step.iter().enumerate().map(|(label, &score)| self.started(label, score)).collect()
            } else {
                let found: Vec<_> = (0..self.labels).map(|label| self.step(&scores, label)).collect();
                before.push(found.iter().map(|&(place, _)| place).collect());
                found.iter().zip(step).map(|(&(_, score), &own)| self.sum(score, own)).collect()
            };
            if at + 1 == count && !self.stop.is_empty() {
                scores = scores.iter().zip(self.stop).map(|(&score, &stop)| self.sum(score, stop)).collect();
            }
        }
        let (mut label, score) = best(scores.into_iter());
        let mut path = vec![label as i64];
        for places in before.iter().rev() {
            label = places[label];
            path.push(label as i64);
        }
        path.reverse();
        (score, path)
    }

    fn started(&self, label: usize, score: f64) -> f64 {
        self.start.get(label).map_or(score, |&start| self.sum(score, start))
    }
}

/// The first of the largest numbers.
fn best(numbers: impl Iterator<Item = f64>) -> (usize, f64) {
    let better =
        |best: (usize, f64), (place, number): (usize, f64)| if number > best.1 { (place, number) } else { best };
    numbers.enumerate().fold((0, f64::NEG_INFINITY), better)
}

/// The last two labels stand for the beginning and the end, where these are included.
fn viterbi_decode(
    context: &Context,
    scores: Tensor,
    transitions: Tensor,
    length: Tensor,
    with_ends: bool,
    out: Output,
    path: Output,
) -> Result<()> {
    let ([count, steps, labels], dtype) = (dims("potentials", &scores)?, scores.dtype()?);
    expect("transition_params", &transitions, &[labels, labels])?;
    expect_len("lengths", &length, count)?;
    if labels == 0 || (with_ends && labels < 2) {
        return Err(refuse("potentials", scores.shape(), "labels, with include_bos_eos_tag two more"));
    }
    let length = lengths(context, "lengths", &length, steps)?;
    let (numbers, between) = (floats(context, &scores)?, floats(context, &transitions)?);
    let row = |row: usize| if with_ends { &between[row * labels..][..labels] } else { &[][..] };
    let (start, stop) = (row(labels - 1), row(labels.saturating_sub(2)));
    let of = Transitions { labels, dtype, between: &between, start, stop };
    let found = |sequence: usize| {
        let own = &numbers[sequence * steps * labels..][..steps * labels];
        match length[sequence] {
            // The first step counts for the score, and no label is told.
            0 => (Transitions { stop: &[], ..of }.path(&own[..labels.min(own.len())]).0, Vec::new()),
            length => of.path(&own[..length * labels]),
        }
    };
    let found: Vec<(f64, Vec<i64>)> = (0..count).into_par_iter().map(found).collect();
    let longest = length.iter().copied().max().unwrap_or(0);
    let padded = |path: &Vec<i64>| path.iter().copied().chain(std::iter::repeat(0)).take(longest).collect::<Vec<_>>();
    let paths: Vec<i64> = found.iter().flat_map(|(_, path)| padded(path)).collect();
    let scores: Vec<f64> = found.iter().map(|&(score, _)| score).collect();
    store_integers(context, &path, DType::I64, &[count, longest], &paths)?;
    store_floats(context, &out, dtype, &[count], &scores)
}

/// The first two rows of the transitions are the beginning and the end; with labels, 1 where the path is right.
fn crf_decoding(
    context: &Context,
    scores: Tensor,
    transitions: Tensor,
    label: Option<Tensor>,
    length: Option<Tensor>,
    path: Output,
) -> Result<()> {
    let length = required("Length", length)?;
    let ([count, steps, labels], dtype) = (dims("Emission", &scores)?, scores.dtype()?);
    expect("Transition", &transitions, &[labels + 2, labels])?;
    expect_len("Length", &length, count)?;
    if labels == 0 {
        return Err(refuse("Emission", scores.shape(), "labels"));
    }
    let length = lengths(context, "Length", &length, steps)?;
    let (numbers, weights) = (floats(context, &scores)?, floats(context, &transitions)?);
    let (ends, between) = weights.split_at(2 * labels);
    let of = Transitions { labels, dtype, between, start: &ends[..labels], stop: &ends[labels..] };
    let found = |sequence: usize| {
        let own = &numbers[sequence * steps * labels..][..length[sequence] * labels];
        let mut path = if own.is_empty() { Vec::new() } else { of.path(own).1 };
        path.resize(steps, 0);
        path
    };
    let mut paths: Vec<i64> = (0..count).into_par_iter().flat_map_iter(found).collect();
    if let Some(label) = label {
        expect_len("Label", &label, paths.len())?;
        let labels = integers(context, &label)?;
        let counts = |place: usize| place % steps < length[place / steps];
        for (place, (found, label)) in paths.iter_mut().zip(labels).enumerate() {
            *found = i64::from(*found == label && counts(place));
        }
    }
    store_integers(context, &path, DType::I64, &[count, steps], &paths)
}

/// How many letters have to be changed, put in or taken out (Levenshtein).
fn distance(left: &[i64], right: &[i64]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (place, other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(letter != other);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(row[place] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

fn edit_distance(
    context: &Context,
    hypotheses: Tensor,
    references: Tensor,
    hypothesis_lengths: Option<Tensor>,
    reference_lengths: Option<Tensor>,
    normalized: bool,
    number: Output,
    out: Output,
) -> Result<()> {
    let texts = |name: &'static str, x: &Tensor, lens: Option<Tensor>| -> Result<Vec<Vec<i64>>> {
        let lens = required(name, lens)?;
        let [count, longest] = dims(name, x)?;
        expect_len(name, &lens, count)?;
        let (lens, letters) = (lengths(context, name, &lens, longest)?, integers(context, x)?);
        Ok(lens.iter().enumerate().map(|(text, &len)| letters[text * longest..][..len].to_vec()).collect())
    };
    let left = texts("hyps, hypslength", &hypotheses, hypothesis_lengths)?;
    let right = texts("refs, refslength", &references, reference_lengths)?;
    if left.len() != right.len() {
        return Err(refuse("refs", references.shape(), &format!("{} texts", left.len())));
    }
    if normalized && let Some(empty) = right.iter().position(Vec::is_empty) {
        return Err(refuse("refs", format!("text {empty} is empty"), "letters, where distances are normalized"));
    }
    let pairs = left.par_iter().zip(&right);
    let distances: Vec<f64> = pairs
        .map(|(left, right)| distance(left, right) as f64 / if normalized { right.len() as f64 } else { 1.0 })
        .collect();
    store_integers(context, &number, DType::I64, &number.shape(), &[distances.len() as i64])?;
    store_floats(context, &out, DType::F32, &[distances.len(), 1], &distances)
}

/// Each beam's text from its last letter back: which beam a letter came from stands beside it.
fn gather_tree(context: &Context, letters: Tensor, parents: Tensor, out: Output) -> Result<()> {
    let ([steps, texts, beams], dtype) = (dims("ids", &letters)?, letters.dtype()?);
    expect("parents", &parents, &[steps, texts, beams])?;
    let (letters, parents) = (integers(context, &letters)?, integers(context, &parents)?);
    let mut found = vec![0; letters.len()];
    for line in 0..texts * beams {
        let mut beam = line % beams;
        for step in (0..steps).rev() {
            let row = (step * texts + line / beams) * beams;
            found[row + line % beams] = letters[row + beam];
            let parent = parents[row + beam];
            beam = usize::try_from(parent)
                .ok()
                .filter(|&parent| parent < beams || step == 0)
                .ok_or_else(|| refuse("parents", parent, &format!("beams 0 to {}", beams - 1)))?;
        }
    }
    store_integers(context, &out, dtype, &[steps, texts, beams], &found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_texts() {
        assert_eq!(distance(&[1, 2, 3], &[1, 2, 3]), 0);
        assert_eq!(distance(&[], &[1, 2]), 2);
        assert_eq!(distance(&[1, 2], &[]), 2);
        // "kitten" and "sitting".
        assert_eq!(distance(&[11, 9, 20, 20, 5, 14], &[19, 9, 20, 20, 9, 14, 7]), 3);
    }
}
