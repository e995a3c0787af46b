//! A layer of a recurrent network in one direction, all of its steps in one call: the weights are packed once, and a tile of a step's product goes
//! through its gates while it is in registers.
//!
//! Sequences of a batch know nothing of each other: each thread has some of them and takes them through all steps, without waiting for another. Only
//! where the sequences are fewer than threads is a step's product shared out.

mod backward;
mod forward;
mod functions;
#[cfg(test)]
mod tests;
mod tile;

pub use backward::{Backward, backward};
pub use forward::{Forward, forward};

use super::elements;
use super::lanes::lanes;
use crate::Error;
use crate::threads::{count, parallel_for};

/// What happens in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Gates i, f, g, o: `c = sigmoid(f) c + sigmoid(i) tanh(g)`, `h = sigmoid(o) tanh(c)`.
    Lstm,
    /// Gates r, z, u: `h = sigmoid(z) h + (1 - sigmoid(z)) tanh(x + sigmoid(r) (W h + b))`, where x is the input's share of u.
    Gru,
    /// `h = tanh(u)`.
    Tanh,
    /// `h = max(u, 0)`.
    Relu,
}

impl Cell {
    /// Rows of a weight for each number of the hidden state.
    pub fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }
}

/// A layer's sizes. Its tensors are dense: steps x batch x numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// What happens in one step.
    pub cell: Cell,
    /// From the last step to the first.
    pub reverse: bool,
    /// How many steps there are.
    pub steps: usize,
    /// How many sequences there are.
    pub batch: usize,
    /// Numbers of a state.
    pub hidden: usize,
}

impl Layer {
    /// Numbers of a step's gates.
    fn width(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// The step that is computed as the `number`-th.
    fn step(&self, number: usize) -> usize {
        if self.reverse { self.steps - 1 - number } else { number }
    }

    /// Numbers of a state of all sequences.
    fn state(&self) -> usize {
        self.batch * self.hidden
    }

    /// Whether a sequence has this step; all do where no lengths are given.
    fn is_active(&self, lengths: Option<&[i32]>, step: usize, row: usize) -> bool {
        lengths.is_none_or(|lengths| (step as i64) < i64::from(lengths[row]))
    }

    /// How many numbers its tensors have.
    fn lens(&self) -> Lens {
        let (gates, hidden) = (self.cell.gates(), self.hidden);
        Lens {
            gates: elements(&[self.steps, self.batch, gates, hidden]),
            states: elements(&[self.steps, self.batch, hidden]),
            state: elements(&[self.batch, hidden]),
            weight: elements(&[gates, hidden, hidden]),
            bias: elements(&[gates, hidden]),
        }
    }

    fn expect(&self, what: &'static str, got: usize, expected: usize) -> Result<(), Error> {
        if got == expected {
            return Ok(());
        }
        Err(Error::Invalid(format!("recurrent layer: {got} numbers of {what}, where {self:?} has {expected}")))
    }
}

/// How many numbers the tensors of a layer have.
struct Lens {
    gates: usize,
    states: usize,
    state: usize,
    weight: usize,
    bias: usize,
}

/// Sequences from one to before another.
type Rows = (usize, usize);

/// Rows of a tile at most: with four vectors of columns they fill the registers.
const fn most_rows(lanes: usize) -> usize {
    if lanes == 16 { 6 } else { 3 }
}

/// Rows cut evenly into tiles: the first one of each, and how many it has.
fn tiles_of((first, last): Rows, lanes: usize) -> impl Iterator<Item = (usize, usize)> {
    let (rows, tiles) = (last - first, (last - first).div_ceil(most_rows(lanes)));
    let start = move |i: usize| first + i * rows / tiles;
    (0..tiles).map(move |i| (start(i), start(i + 1) - start(i)))
}

/// Takes the sequences through their steps. For the number of each step in the order of their computation `prepare(number, rows)` is done, and then
/// `each(number, rows, blocks)` for the packed weight's blocks; all of it before the next step.
fn for_each_step(
    layer: &Layer,
    blocks: usize,
    prepare: impl Fn(usize, Rows) + Sync,
    each: impl Fn(usize, Rows, (usize, usize)) + Sync,
) {
    let parts = count().min(layer.batch.div_ceil(most_rows(lanes())));
    // Some forty multiplications in a nanosecond, and the gates.
    let ns = |rows: usize| rows * layer.width() * (layer.hidden / 40 + 1);
    if parts > 1 {
        let start = |part: usize| part * layer.batch / parts;
        return parallel_for(parts, layer.steps * ns(layer.batch) / parts, |from, to| {
            for rows in (from..to).map(|part| (start(part), start(part + 1))) {
                for number in 0..layer.steps {
                    prepare(number, rows);
                    each(number, rows, (0, blocks));
                }
            }
        });
    }
    let rows = (0, layer.batch);
    for number in 0..layer.steps {
        prepare(number, rows);
        parallel_for(blocks, ns(layer.batch) / blocks.max(1), |from, to| each(number, rows, (from, to)));
    }
}
