//! The forward pass of recurrent networks.

use super::reserve::{Reserve, Trace};
use super::{Cell, Network, Path, Way, Weights, Writer, at, cell, gate, lengths, mask};
use crate::error::Result;
use crate::kernels::compose::Compose;
use crate::{Context, Output, Tensor};
use openmps_graph::Operator;
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Recurrent, Unary};
use openmps_graph::operators::linear::Linear;
use openmps_graph::operators::random::{Dropout, Source};

#[allow(clippy::too_many_arguments, reason = "Paddle's parameters")]
pub(super) fn rnn(
    context: &Context,
    x: Tensor,
    states: Vec<Tensor>,
    weights: Vec<Tensor>,
    sequences: Option<Tensor>,
    dropout: f32,
    is_bidirectional: bool,
    input: i32,
    hidden: i32,
    layers: i32,
    mode: String,
    _seed: i32,
    is_test: bool,
    out: Output,
    dropout_state: Option<Output>,
    states_out: Vec<Option<Output>>,
    reserve: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let x = x.view()?;
    let dropout = if is_test { 0.0 } else { dropout.into() };
    let path = Path::of(context, x.dtype);
    let network = Network::new(&mode, &x, [input, hidden, layers], is_bidirectional, dropout, path)?;
    let weights = weights.iter().map(Tensor::view).collect::<Result<Vec<View>>>()?;
    let states = states.iter().map(Tensor::view).collect::<Result<Vec<View>>>()?;
    let lengths = lengths(&c, sequences.as_ref())?;
    let mask = mask(&c, lengths.as_ref(), network)?;
    reserve.set_dims(&[Reserve::bytes(network)? / network.dtype.size()]);
    let parts = Reserve::of(&context.allocate(&reserve, network.dtype)?, network)?;
    if let Some(dropout_state) = dropout_state {
        dropout_state.set_dims(&[0]);
        context.allocate(&dropout_state, openmps_graph::DType::U8)?;
    }
    let out = context.allocate(&out, network.dtype)?;
    let last: Vec<View> =
        states_out.iter().flatten().map(|state| context.allocate(state, network.dtype)).collect::<Result<_>>()?;
    let forward = Forward { writer: Writer { context, c: &c }, network, lengths, mask };
    let mut input = x;
    for layer in 0..network.layers {
        let is_last = layer + 1 == network.layers;
        let drops = !is_last && network.dropout > 0.0;
        let result = match (is_last, drops) {
            (true, _) => out.clone(),
            (false, true) => c.temporary(network.dtype, &out.shape)?,
            (false, false) => parts.input(layer + 1).clone(),
        };
        for direction in 0..network.directions {
            let way = Way { layer, direction };
            let weights = Weights::of(&weights, network, way)?;
            let first: Vec<View> = states.iter().map(|state| network.state(state, way)).collect();
            forward.way(way, &input, &weights, &first, parts.trace(way))?;
            forward.results(way, parts.trace(way), &first, (&result, &last))?;
        }
        if drops {
            forward.drop(&result, [parts.input(layer + 1), parts.kept(layer + 1)])?;
        }
        if !is_last {
            input = parts.input(layer + 1).clone();
        }
    }
    Ok(())
}

impl Network {
    /// From Paddle's attributes and an input of steps x batch x numbers.
    pub(super) fn new(
        mode: &str,
        x: &View,
        sizes: [i32; 3],
        is_bidirectional: bool,
        dropout: f64,
        path: Path,
    ) -> Result<Network> {
        let [input, hidden, layers] = sizes.map(|size| size.max(0) as usize);
        let [steps, batch] = [0, 1].map(|axis| x.shape.get(axis).copied().unwrap_or(1));
        let directions = if is_bidirectional { 2 } else { 1 };
        Ok(Network {
            cell: cell(mode)?,
            path,
            dtype: x.dtype,
            steps,
            batch,
            input,
            hidden,
            layers,
            directions,
            dropout,
        })
    }
}

struct Forward<'a, 'c> {
    writer: Writer<'a, 'c>,
    network: Network,
    lengths: Option<View>,
    mask: Option<View>,
}

/// `x weight' + bias`, and in a step the sum with what the input gives.
fn product(residual: bool) -> Linear {
    Linear { transpose_weight: true, bias: true, residual, activation: None }
}

impl Forward<'_, '_> {
    /// All steps of one layer in one direction. The products of the inputs are one product of matrices.
    fn way(&self, way: Way, x: &View, weights: &Weights<View>, first: &[View], trace: &Trace) -> Result<()> {
        let c = self.writer.c;
        let products = c.apply(&product(false), &[x.clone(), weights.input.clone(), weights.input_bias.clone()])?;
        if self.network.path == Path::Whole {
            let operands = [&[products, weights.hidden.clone(), weights.hidden_bias.clone()][..], first].concat();
            return self.writer.c.launch(
                &self.network.whole(way, self.lengths.as_ref()),
                &operands.into_iter().chain(self.lengths.clone()).collect::<Vec<View>>(),
                &trace.views(),
            );
        }
        let mut state: Vec<View> = first.to_vec();
        for step in self.network.order(way) {
            let product = at(&products, step);
            let next: Vec<View> =
                [Some(&trace.hidden), trace.cells.as_ref()].into_iter().flatten().map(|all| at(all, step)).collect();
            // Where a sequence has ended its state stays.
            let target = match self.mask {
                None => next.clone(),
                Some(_) => {
                    next.iter().map(|next| c.temporary(next.dtype, &next.shape)).collect::<Result<Vec<View>>>()?
                }
            };
            self.step(weights, &product, &state, trace, step, &target)?;
            if let Some(mask) = &self.mask {
                for ((next, new), old) in next.iter().zip(&target).zip(&state) {
                    self.writer.write(Elementwise::Binary(Binary::Where), &[&at(mask, step), new, old], next)?;
                }
            }
            state = next;
        }
        Ok(())
    }

    /// One step from the product of its input to its state.
    fn step(
        &self,
        weights: &Weights<View>,
        input: &View,
        state: &[View],
        trace: &Trace,
        step: usize,
        next: &[View],
    ) -> Result<()> {
        let (writer, hidden) = (&self.writer, self.network.hidden);
        let gates = at(&trace.gates, step);
        let part = |number: usize| gate(&gates, number, hidden);
        let operands = [state[0].clone(), weights.hidden.clone(), weights.hidden_bias.clone()];
        if let (Cell::Gru, Some(products)) = (self.network.cell, &trace.products) {
            let own = at(products, step);
            writer.launch(&product(false), &operands, &own)?;
            let both = |x: &View| x.narrowed(1, 0, 1, 2 * hidden);
            writer.write(Elementwise::Binary(Binary::Add), &[&both(input), &both(&own)], &both(&gates))?;
            let candidate = [&part(0), &gate(&own, 2, hidden), &gate(input, 2, hidden)];
            writer.write(Elementwise::Recurrent(Recurrent::GruCandidate), &candidate, &part(2))?;
            return writer.write(
                Elementwise::Recurrent(Recurrent::GruOutput),
                &[&part(1), &state[0], &part(2)],
                &next[0],
            );
        }
        let operands = [&operands[..], std::slice::from_ref(input)].concat();
        writer.launch(&product(true), &operands, &gates)?;
        match self.network.cell {
            Cell::Lstm => {
                let cell = [&part(0), &part(1), &part(2), &state[1]];
                writer.write(Elementwise::Recurrent(Recurrent::LstmCell), &cell, &next[1])?;
                writer.write(Elementwise::Recurrent(Recurrent::GatedTanh), &[&part(3), &next[1]], &next[0])
            }
            Cell::Relu => writer.write(Elementwise::Activation(Activation::Relu), &[&gates], &next[0]),
            Cell::Tanh | Cell::Gru => writer.write(Elementwise::Unary(Unary::Tanh), &[&gates], &next[0]),
        }
    }

    /// The way's columns of the layer's result, zero where a sequence has ended, and the states after the last step.
    fn results(&self, way: Way, trace: &Trace, first: &[View], (result, last): (&View, &[View])) -> Result<()> {
        let hidden = self.writer.masked(self.mask.as_ref(), &trace.hidden)?;
        self.writer.copy(&hidden, &self.network.columns(result, way))?;
        let end = self.network.order(way).last().copied();
        let traces = [Some(&trace.hidden), trace.cells.as_ref()].into_iter().flatten();
        for ((all, first), last) in traces.zip(first).zip(last) {
            let state = end.map_or_else(|| first.clone(), |end| at(all, end));
            self.writer.copy(&state, &self.network.state(last, way))?;
        }
        Ok(())
    }

    fn drop(&self, x: &View, outputs: [&View; 2]) -> Result<()> {
        let context = self.writer.context;
        let source = Source { seed: context.random(), offset: 0 };
        let operator = Dropout { probability: self.network.dropout, upscale: true, source };
        Ok(operator.run(context.queue(), std::slice::from_ref(x), &outputs.map(View::clone))?)
    }
}
