//! Recurrent networks: LSTM, GRU and the simple kinds, of several layers, in one direction or both, with gradients.
//!
//! What the backward pass needs of the forward one is kept in Paddle's `reserve` tensor, see [`Reserve`].

mod backward;
mod forward;
mod reserve;

use super::compose::Compose;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary, run};
use openmps_graph::operators::recurrent::{Cell, Recurrent};
use openmps_graph::operators::sequence::Arange;
use openmps_graph::{DType, Operator, View};
use openmps_tile::Number;

const TYPES: &[DType] = &[DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("rnn", TYPES, forward::rnn).output_as_inferred(1);
    table.add("rnn_grad", TYPES, backward::rnn_grad);
}

/// What happens in one step, by Paddle's name.
fn cell(mode: &str) -> Result<Cell> {
    match mode {
        "LSTM" => Ok(Cell::Lstm),
        "GRU" => Ok(Cell::Gru),
        "RNN_TANH" => Ok(Cell::Tanh),
        "RNN_RELU" => Ok(Cell::Relu),
        other => {
            let expected = "LSTM, GRU, RNN_TANH or RNN_RELU".to_owned();
            Err(Error::Attribute { attribute: "mode", got: other.to_owned(), expected })
        }
    }
}

/// How a layer is computed, which decides what the forward pass leaves to the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// All steps in one call: float32 on the CPU.
    Whole,
    /// Step by step, by formulas over tensors.
    Formulas,
}

impl Path {
    fn of(context: &Context, dtype: DType) -> Path {
        if context.queue().is_host() && dtype == DType::F32 { Path::Whole } else { Path::Formulas }
    }
}

/// The sizes of a network. Paddle's tensors are steps x batch x numbers.
#[derive(Clone, Copy, Debug)]
struct Network {
    cell: Cell,
    path: Path,
    dtype: DType,
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    layers: usize,
    directions: usize,
    /// The probability with which a number between two layers is dropped.
    dropout: f64,
}

/// A layer in one direction.
#[derive(Clone, Copy, Debug)]
struct Way {
    layer: usize,
    direction: usize,
}

impl Way {
    fn reverse(self) -> bool {
        self.direction == 1
    }
}

impl Network {
    fn ways(self) -> impl Iterator<Item = Way> {
        (0..self.layers).flat_map(move |layer| (0..self.directions).map(move |direction| Way { layer, direction }))
    }

    /// The way's number in Paddle's lists.
    fn number(self, way: Way) -> usize {
        way.layer * self.directions + way.direction
    }

    /// Numbers of an input of the layer.
    fn width(self, layer: usize) -> usize {
        if layer == 0 { self.input } else { self.hidden * self.directions }
    }

    /// Steps in the order in which they are computed.
    fn order(self, way: Way) -> Vec<usize> {
        let steps = 0..self.steps;
        if way.reverse() { steps.rev().collect() } else { steps.collect() }
    }

    /// The step before a step of [`Network::order`], none before the first.
    fn before(self, way: Way, step: usize) -> Option<usize> {
        if way.reverse() { Some(step + 1).filter(|&step| step < self.steps) } else { step.checked_sub(1) }
    }

    /// The operator of all steps of a way.
    fn whole(self, way: Way, lengths: Option<&View>) -> Recurrent {
        Recurrent { cell: self.cell, reverse: way.reverse(), lengths: lengths.is_some() }
    }

    /// The columns of a tensor of both directions that are this way's.
    fn columns(self, both: &View, way: Way) -> View {
        both.narrowed(2, way.direction * self.hidden, 1, self.hidden)
    }

    /// A way's part of a state of layers x batch x hidden.
    fn state(self, states: &View, way: Way) -> View {
        states.narrowed(0, self.number(way), 1, 1).without_axis(0)
    }
}

/// The weights of a way: (gates x hidden, input) and (gates x hidden, hidden), and their biases. Paddle lists all weights, then all biases.
struct Weights<T> {
    input: T,
    hidden: T,
    input_bias: T,
    hidden_bias: T,
}

impl<T: Clone> Weights<T> {
    fn of(list: &[T], network: Network, way: Way) -> Result<Weights<T>> {
        let number = network.number(way);
        let biases = 2 * network.layers * network.directions;
        let get = |index: usize| list.get(index).cloned().ok_or(Error::Missing { what: "weight", index });
        Ok(Weights {
            input: get(2 * number)?,
            hidden: get(2 * number + 1)?,
            input_bias: get(biases + 2 * number)?,
            hidden_bias: get(biases + 2 * number + 1)?,
        })
    }
}

/// One step of a tensor of steps x batch x numbers.
fn at(x: &View, step: usize) -> View {
    x.narrowed(0, step, 1, 1).without_axis(0)
}

/// A part of a step's columns: the `number`-th gate.
fn gate(x: &View, number: usize, hidden: usize) -> View {
    x.narrowed(x.rank() - 1, number * hidden, 1, hidden)
}

/// The sequences' lengths, where they have their own.
fn lengths(c: &Compose, given: Option<&Tensor>) -> Result<Option<View>> {
    given.map(|lengths| c.cast(&c.resident(lengths)?, DType::I32)).transpose()
}

/// Which steps belong to each sequence, as steps x batch x 1: where the sequences have lengths of their own.
fn mask(c: &Compose, lengths: Option<&View>, network: Network) -> Result<Option<View>> {
    let Some(lengths) = lengths else { return Ok(None) };
    let (start, step) = (Number::Integer(0), Number::Integer(1));
    let operator = Arange { start, step, len: network.steps, dtype: DType::I32 };
    let steps = c.apply(&operator, &[])?;
    let steps = c.shaped(&steps, &[network.steps, 1, 1])?;
    let lengths = c.shaped(lengths, &[1, network.batch, 1])?;
    c.map(Elementwise::Binary(Binary::LessThan), &[&steps, &lengths], &[]).map(Some)
}

/// Formulas written to where their results belong.
struct Writer<'a, 'c> {
    context: &'c Context,
    c: &'a Compose<'c>,
}

impl Writer<'_, '_> {
    fn write(&self, operator: Elementwise, inputs: &[&View], to: &View) -> Result<()> {
        Ok(run(operator, self.context.queue(), inputs, &[], to)?)
    }

    fn copy(&self, from: &View, to: &View) -> Result<()> {
        self.write(Elementwise::Unary(Unary::Cast), &[from], to)
    }

    fn launch(&self, operator: &dyn Operator, inputs: &[View], to: &View) -> Result<()> {
        Ok(operator.run(self.context.queue(), inputs, std::slice::from_ref(to))?)
    }

    /// A value where the mask holds, else zero; without a mask the value.
    fn masked(&self, mask: Option<&View>, value: &View) -> Result<View> {
        match mask {
            Some(mask) => self.c.map(Elementwise::Gradient(Gradient::Chosen), &[mask, value], &[]),
            None => Ok(value.clone()),
        }
    }

    /// What [`Writer::masked`] leaves out, added to a value.
    fn with_rest(&self, mask: Option<&View>, value: View, rest: &View) -> Result<View> {
        let Some(mask) = mask else { return Ok(value) };
        let rest = self.c.map(Elementwise::Gradient(Gradient::NotChosen), &[mask, rest], &[])?;
        self.c.add(&value, &rest)
    }
}
