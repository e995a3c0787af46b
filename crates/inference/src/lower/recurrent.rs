//! Recurrent networks: LSTM, GRU and simple cells, in layers and both directions.
//!
//! The products with the inputs of all steps are one product. On the host device all steps are one operator; elsewhere, and in other types, a step is a
//! product with the state and the gates' formulas.

use super::{Lowering, Table, Value, size_of, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::{Activation, Binary, Unary};
use openmps::operators::operators::recurrent::{Cell as Whole, Recurrent};
use openmps::operators::operators::sequence::Arange;
use openmps::runtime::Backend;
use openmps::tile::Number;

pub(super) const TABLE: Table = &[("rnn", rnn), ("legacy_rnn", legacy_rnn)];

/// What a step does with its gates.
#[derive(Clone, Copy)]
pub(super) enum Cell {
    Lstm,
    Gru(Reset),
    Simple(Nonlinearity),
}

/// What a GRU's reset gate multiplies.
#[derive(Clone, Copy)]
pub(super) enum Reset {
    /// The state, before its product with the new gate's weight.
    State,
    /// That product, with its bias.
    Product,
}

/// What a simple cell does with its sum.
#[derive(Clone, Copy)]
pub(super) enum Nonlinearity {
    Tanh,
    Relu,
}

impl Cell {
    /// The cell of the operator that takes all steps; none where there is no such operator.
    fn whole(self) -> Option<Whole> {
        match self {
            Cell::Lstm => Some(Whole::Lstm),
            Cell::Gru(Reset::Product) => Some(Whole::Gru),
            Cell::Gru(Reset::State) => None,
            Cell::Simple(Nonlinearity::Tanh) => Some(Whole::Tanh),
            Cell::Simple(Nonlinearity::Relu) => Some(Whole::Relu),
        }
    }
}

/// The weights of one layer in one direction: of inputs and states, with their biases.
pub(super) struct Weights {
    pub input: Value,
    pub state: Value,
    pub input_bias: Option<Value>,
    pub state_bias: Option<Value>,
    /// What LSTM's input, forget and output gates see of the cells, by factors.
    pub peepholes: Option<[Value; 3]>,
}

/// Inputs: x [steps, batch, inputs], states, weights (all weights of all layers and directions, then all biases), lengths. Outputs: y,
/// the state of dropout, final states.
fn rnn(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let cell = match operation.text("mode", "LSTM")? {
        "LSTM" => Cell::Lstm,
        "GRU" => Cell::Gru(Reset::Product),
        "RNN_TANH" => Cell::Simple(Nonlinearity::Tanh),
        "RNN_RELU" => Cell::Simple(Nonlinearity::Relu),
        other => return Err(wrong(operation, format!("cells of kind {other}"))),
    };
    let mut x = lowering.input(operation, 0)?;
    let lengths = lowering.optional(operation, 3)?;
    let states = lowering.list(operation, 1)?;
    let weights = lowering.list(operation, 2)?;
    let layers = size_of(operation, operation.integer("num_layers", 1)?)?;
    let directions = if operation.flag("is_bidirec", false)? { 2 } else { 1 };
    let cells = layers * directions;
    if weights.len() < 2 * cells || states.is_empty() {
        return Err(wrong(operation, format!("{} weights for {cells} cells", weights.len())));
    }
    let mut last: Vec<Vec<Value>> = vec![Vec::new(); states.len()];
    for layer in 0..layers {
        let mut outputs = Vec::with_capacity(directions);
        for direction in 0..directions {
            let at = layer * directions + direction;
            let own = Weights {
                input: weights[2 * at].clone(),
                state: weights[2 * at + 1].clone(),
                input_bias: weights.get(2 * (cells + at)).cloned(),
                state_bias: weights.get(2 * (cells + at) + 1).cloned(),
                peepholes: None,
            };
            let mut state = Vec::with_capacity(states.len());
            for all in &states {
                state.push(lowering.narrow(all, 0, at, at + 1)?);
            }
            let (y, state) = lowering.layer(cell, &x, &own, state, direction == 1, lengths.as_ref())?;
            outputs.push(y);
            last.iter_mut().zip(state).for_each(|(all, state)| all.push(state));
        }
        x = lowering.concat(&outputs, 2)?;
    }
    let mut finals = Vec::with_capacity(last.len());
    for states in last {
        finals.push(lowering.concat(&states, 0)?);
    }
    let unused = lowering.filled(&[0], DataType::U8, 0.0)?;
    Ok(vec![x, unused.clone(), Value::List(finals), unused])
}

/// The same with each final state as an output of its own.
fn legacy_rnn(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let outputs = rnn(lowering, operation)?.into_iter();
    let each = |output| if let Value::List(values) = output { values } else { vec![output] };
    Ok(outputs.flat_map(each).collect())
}

impl Lowering<'_> {
    /// Weights are [outputs, inputs].
    fn product(&mut self, x: &Value, weight: &Value, bias: Option<&Value>) -> Result<Value> {
        let product = self.by_turned(x, weight)?;
        match bias {
            Some(bias) => self.binary(Binary::Add, &product, bias),
            None => Ok(product),
        }
    }

    /// Whether each sequence has each step of x [steps, batch, inputs], as [steps, batch, 1].
    fn within(&mut self, lengths: &Value, x: &Value) -> Result<Value> {
        let shape = self.shape(x)?;
        let lengths = self.cast(lengths, DataType::I32)?;
        let lengths = self.reshape(&lengths, &[1, shape[1], 1])?;
        let (start, step) = (Number::Integer(0), Number::Integer(1));
        let step = self.one(Arange { start, step, len: shape[0], dtype: DataType::I32 }, &[])?;
        let step = self.reshape(&step, &[shape[0], 1, 1])?;
        self.binary(Binary::LessThan, &step, &lengths)
    }

    /// All steps of one layer in one direction: y [steps, batch, hidden], and the last states as [1, batch, hidden]. Where a sequence has ended, its
    /// state stays and y is 0.
    pub(super) fn layer(
        &mut self,
        cell: Cell,
        x: &Value,
        weights: &Weights,
        mut state: Vec<Value>,
        backwards: bool,
        lengths: Option<&Value>,
    ) -> Result<(Value, Vec<Value>)> {
        let [steps, batch, _] = <[usize; 3]>::try_from(self.shape(x)?).unwrap_or([0; 3]);
        let hidden = self.shape(&weights.state)?.last().copied().unwrap_or(0);
        if steps == 0 {
            return Ok((self.filled(&[0, batch, hidden], self.data_type(x)?, 0.0)?, state));
        }
        let products = self.product(x, &weights.input, weights.input_bias.as_ref())?;
        for state in &mut state {
            *state = self.reshape(state, &[batch, hidden])?;
        }
        let within = lengths.map(|lengths| self.within(lengths, x)).transpose()?;
        let is_host = self.device.properties().backend == Backend::Host;
        let is_whole = is_host && weights.peepholes.is_none() && matches!(self.data_type(x), Ok(DataType::F32));
        let (y, mut state) = match cell.whole().filter(|_| is_whole) {
            Some(cell) => self.all_steps(cell, &products, weights, state, backwards, lengths)?,
            None => self.step_by_step(cell, &products, weights, state, backwards, within.as_ref())?,
        };
        for state in &mut state {
            *state = self.reshape(state, &[1, batch, hidden])?;
        }
        let Some(within) = within else { return Ok((y, state)) };
        let nothing = self.number_like(&y, 0.0)?;
        Ok((self.choose(&within, &y, &nothing)?, state))
    }

    /// By the operator that takes all steps: the state after each, and the last ones.
    fn all_steps(
        &mut self,
        cell: Whole,
        products: &Value,
        weights: &Weights,
        state: Vec<Value>,
        reverse: bool,
        lengths: Option<&Value>,
    ) -> Result<(Value, Vec<Value>)> {
        let [steps, _, gates] = <[usize; 3]>::try_from(self.shape(products)?).unwrap_or([0; 3]);
        let bias = match &weights.state_bias {
            Some(bias) => bias.clone(),
            None => self.filled(&[gates], DataType::F32, 0.0)?,
        };
        let mut inputs = vec![products.clone(), weights.state.clone(), bias];
        let states = state.len();
        inputs.extend(state);
        inputs.extend(lengths.map(|lengths| self.cast(lengths, DataType::I32)).transpose()?);
        let outputs = self.apply(Recurrent { cell, reverse, lengths: lengths.is_some() }, &inputs)?;
        let last = if reverse { 0 } else { steps - 1 };
        // The hidden state, and LSTM's cells behind the gates.
        let all = outputs.iter().step_by(2).take(states);
        let finals = all.map(|all| self.narrow(all, 0, last, last + 1)).collect::<Result<_>>()?;
        Ok((outputs[0].clone(), finals))
    }

    /// Step by step: the state after each, and the last ones.
    fn step_by_step(
        &mut self,
        cell: Cell,
        products: &Value,
        weights: &Weights,
        mut state: Vec<Value>,
        backwards: bool,
        within: Option<&Value>,
    ) -> Result<(Value, Vec<Value>)> {
        let [steps, batch, width] = <[usize; 3]>::try_from(self.shape(products)?).unwrap_or([0; 3]);
        let hidden = self.shape(&weights.state)?.last().copied().unwrap_or(0);
        let mut outputs = vec![None; steps];
        for step in 0..steps {
            let at = if backwards { steps - 1 - step } else { step };
            let own = self.narrow(products, 0, at, at + 1)?;
            let own = self.reshape(&own, &[batch, width])?;
            let mut next = match cell {
                Cell::Lstm => self.lstm(&own, weights, &state, hidden)?,
                Cell::Gru(reset) => self.gru(&own, weights, &state, hidden, reset)?,
                Cell::Simple(activation) => self.simple(&own, weights, &state, activation)?,
            };
            if let Some(within) = within {
                let goes_on = self.narrow(within, 0, at, at + 1)?;
                let goes_on = self.reshape(&goes_on, &[batch, 1])?;
                for (next, last) in next.iter_mut().zip(&state) {
                    *next = self.choose(&goes_on, next, last)?;
                }
            }
            state = next;
            outputs[at] = Some(self.reshape(&state[0], &[1, batch, hidden])?);
        }
        let outputs: Vec<Value> = outputs.into_iter().flatten().collect();
        Ok((self.concat(&outputs, 0)?, state))
    }

    /// Gates: input, forget, cell, output.
    fn lstm(&mut self, own: &Value, weights: &Weights, state: &[Value], hidden: usize) -> Result<Vec<Value>> {
        let of_state = self.product(&state[0], &weights.state, weights.state_bias.as_ref())?;
        let gates = self.binary(Binary::Add, own, &of_state)?;
        let gates = self.split(&gates, 1, &[hidden; 4])?;
        let input = self.peeped(&gates[0], weights, 0, &state[1])?;
        let input = self.activated(&input, Activation::Sigmoid, &[])?;
        let forget = self.peeped(&gates[1], weights, 1, &state[1])?;
        let forget = self.activated(&forget, Activation::Sigmoid, &[])?;
        let new = self.unary(Unary::Tanh, &gates[2])?;
        let kept = self.binary(Binary::Multiply, &forget, &state[1])?;
        let added = self.binary(Binary::Multiply, &input, &new)?;
        let cell = self.binary(Binary::Add, &kept, &added)?;
        let output = self.peeped(&gates[3], weights, 2, &cell)?;
        let output = self.activated(&output, Activation::Sigmoid, &[])?;
        let shown = self.unary(Unary::Tanh, &cell)?;
        Ok(vec![self.binary(Binary::Multiply, &output, &shown)?, cell])
    }

    /// A gate's sum with what it sees of the cells, where it sees them.
    fn peeped(&mut self, gate: &Value, weights: &Weights, at: usize, cells: &Value) -> Result<Value> {
        let Some(factors) = &weights.peepholes else { return Ok(gate.clone()) };
        let seen = self.binary(Binary::Multiply, cells, &factors[at])?;
        self.binary(Binary::Add, gate, &seen)
    }

    /// Gates: reset, update, new; `h = (h - n) z + n`.
    fn gru(&mut self, own: &Value, weights: &Weights, state: &[Value], hidden: usize, of: Reset) -> Result<Vec<Value>> {
        let of_state = self.product(&state[0], &weights.state, weights.state_bias.as_ref())?;
        let (own, of_state) = (self.split(own, 1, &[hidden; 3])?, self.split(&of_state, 1, &[hidden; 3])?);
        let reset = self.binary(Binary::Add, &own[0], &of_state[0])?;
        let reset = self.activated(&reset, Activation::Sigmoid, &[])?;
        let update = self.binary(Binary::Add, &own[1], &of_state[1])?;
        let update = self.activated(&update, Activation::Sigmoid, &[])?;
        let new = match of {
            Reset::Product => self.binary(Binary::Multiply, &reset, &of_state[2])?,
            Reset::State => {
                let kept = self.binary(Binary::Multiply, &reset, &state[0])?;
                let weight = self.narrow(&weights.state, 0, 2 * hidden, 3 * hidden)?;
                let bias = weights.state_bias.as_ref();
                let bias = bias.map(|bias| self.narrow(bias, 0, 2 * hidden, 3 * hidden)).transpose()?;
                self.product(&kept, &weight, bias.as_ref())?
            }
        };
        let new = self.binary(Binary::Add, &own[2], &new)?;
        let new = self.unary(Unary::Tanh, &new)?;
        let distance = self.binary(Binary::Subtract, &state[0], &new)?;
        let kept = self.binary(Binary::Multiply, &distance, &update)?;
        Ok(vec![self.binary(Binary::Add, &kept, &new)?])
    }

    fn simple(
        &mut self,
        own: &Value,
        weights: &Weights,
        state: &[Value],
        activation: Nonlinearity,
    ) -> Result<Vec<Value>> {
        let of_state = self.product(&state[0], &weights.state, weights.state_bias.as_ref())?;
        let sum = self.binary(Binary::Add, own, &of_state)?;
        Ok(vec![match activation {
            Nonlinearity::Tanh => self.unary(Unary::Tanh, &sum)?,
            Nonlinearity::Relu => self.activated(&sum, Activation::Relu, &[])?,
        }])
    }
}
