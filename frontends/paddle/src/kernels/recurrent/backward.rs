//! The backward pass of recurrent networks: through the steps in reverse, then one product of matrices for each weight.

use super::reserve::{Reserve, Trace};
use super::{Cell, Network, Path, Way, Weights, Writer, at, gate, lengths, mask};
use crate::error::Result;
use crate::kernels::compose::Compose;
use crate::kernels::linear_algebra::product;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Elementwise, Gradient, Recurrent};
use openmps_graph::operators::random::ApplyMask;
use openmps_graph::operators::recurrent::RecurrentGradient;
use openmps_graph::operators::reduce::Reduction;

#[allow(clippy::too_many_arguments, reason = "Paddle's parameters")]
pub(super) fn rnn_grad(
    context: &Context,
    x: Tensor,
    states: Vec<Tensor>,
    weights: Vec<Tensor>,
    sequences: Option<Tensor>,
    _out: Tensor,
    _dropout_state: Option<Tensor>,
    reserve: Tensor,
    upstream: Tensor,
    state_upstream: Vec<Tensor>,
    dropout: f32,
    is_bidirectional: bool,
    input: i32,
    hidden: i32,
    layers: i32,
    mode: String,
    _seed: i32,
    is_test: bool,
    dx: Option<Output>,
    dstates: Vec<Option<Output>>,
    dweights: Vec<Option<Output>>,
) -> Result<()> {
    let c = Compose::new(context);
    let x = x.view()?;
    let dropout = if is_test { 0.0 } else { dropout.into() };
    let path = Path::of(context, x.dtype);
    let network = Network::new(&mode, &x, [input, hidden, layers], is_bidirectional, dropout, path)?;
    let views = |tensors: &[Tensor]| tensors.iter().map(Tensor::view).collect::<Result<Vec<View>>>();
    let (states, weights, ends) = (views(&states)?, views(&weights)?, views(&state_upstream)?);
    let parts = Reserve::of(&reserve.view()?, network)?;
    let dstates: Vec<Option<View>> = dstates
        .iter()
        .map(|state| state.as_ref().map(|state| context.allocate(state, network.dtype)).transpose())
        .collect::<Result<_>>()?;
    let lengths = lengths(&c, sequences.as_ref())?;
    let mask = mask(&c, lengths.as_ref(), network)?;
    let backward = Backward { writer: Writer { context, c: &c }, network, lengths, mask };
    let mut upstream = upstream.view()?;
    for layer in (0..network.layers).rev() {
        let input = if layer == 0 { &x } else { parts.input(layer) };
        let mut dinput: Option<View> = None;
        for direction in 0..network.directions {
            let way = Way { layer, direction };
            let of = |list: &[View]| -> Vec<View> { list.iter().map(|state| network.state(state, way)).collect() };
            let own = Weights::of(&weights, network, way)?;
            let run = Run { way, trace: parts.trace(way), weights: &own, first: of(&states) };
            let (gates, before) = backward.way(&run, &network.columns(&upstream, way), of(&ends))?;
            for (to, value) in dstates.iter().zip(&before) {
                let Some(to) = to else { continue };
                backward.writer.copy(value, &network.state(to, way))?;
            }
            backward.weights(&run, input, &gates, &Weights::of(&dweights, network, way)?)?;
            let share = product(&c, (&gates.input, false), (&own.input, false))?;
            dinput = Some(match dinput {
                None => share,
                Some(other) => c.add(&other, &share)?,
            });
        }
        let Some(dinput) = dinput else { break };
        upstream = if layer > 0 && network.dropout > 0.0 {
            let scale = if network.dropout < 1.0 { 1.0 / (1.0 - network.dropout) } else { 1.0 };
            c.apply(&ApplyMask { scale }, &[dinput, parts.kept(layer).clone()])?
        } else {
            dinput
        };
    }
    match dx {
        Some(dx) => c.store_value(&dx, network.dtype, &upstream),
        None => Ok(()),
    }
}

/// What the backward pass of a way reads.
struct Run<'r> {
    way: Way,
    trace: &'r Trace,
    weights: &'r Weights<View>,
    first: Vec<View>,
}

/// Gradients of the products before the gates: of the input, and of the hidden state, which GRU has others of.
struct Gates {
    input: View,
    hidden: View,
}

/// The parts of a step that formulas read.
struct Step<'s> {
    run: &'s Run<'s>,
    number: usize,
    /// Hidden state and cells before it.
    before: Vec<View>,
}

struct Backward<'a, 'c> {
    writer: Writer<'a, 'c>,
    network: Network,
    lengths: Option<View>,
    mask: Option<View>,
}

impl Backward<'_, '_> {
    /// The gradients of all gates of one way, and of the states before its first step.
    fn way(&self, run: &Run, upstream: &View, ends: Vec<View>) -> Result<(Gates, Vec<View>)> {
        let (c, network) = (self.writer.c, self.network);
        let dims = [network.steps, network.batch, network.cell.gates() * network.hidden];
        let input = c.temporary(network.dtype, &dims)?;
        let hidden = if network.cell == Cell::Gru { c.temporary(network.dtype, &dims)? } else { input.clone() };
        let gates = Gates { input, hidden };
        if network.path == Path::Whole {
            let states = self.whole(run, upstream, &ends, &gates)?;
            return Ok((gates, states));
        }
        let mut later = ends;
        for number in network.order(run.way).into_iter().rev() {
            let before = self.before(run, number);
            let mask = self.mask.as_ref().map(|mask| at(mask, number));
            let own = self.writer.masked(mask.as_ref(), &at(upstream, number))?;
            later[0] = c.add(&later[0], &own)?;
            let active = later.iter().map(|dy| self.writer.masked(mask.as_ref(), dy)).collect::<Result<Vec<View>>>()?;
            let step = Step { run, number, before };
            let earlier = self.step(&step, &active, [&at(&gates.input, number), &at(&gates.hidden, number)])?;
            // Where a sequence has ended its state's gradient goes through.
            later = earlier
                .into_iter()
                .zip(&later)
                .map(|(value, all)| self.writer.with_rest(mask.as_ref(), value, all))
                .collect::<Result<_>>()?;
        }
        Ok((gates, later))
    }

    /// All steps in one call; gives the gradients of the states before the first one.
    fn whole(&self, run: &Run, upstream: &View, ends: &[View], gates: &Gates) -> Result<Vec<View>> {
        let (c, network) = (self.writer.c, self.network);
        let operands =
            [std::slice::from_ref(upstream), ends, std::slice::from_ref(&run.weights.hidden), &run.first].concat();
        let operands: Vec<View> = operands.into_iter().chain(run.trace.views()).chain(self.lengths.clone()).collect();
        let states: Vec<View> = ends.iter().map(|end| c.temporary(network.dtype, &end.shape)).collect::<Result<_>>()?;
        let of_hidden = (network.cell == Cell::Gru).then(|| gates.hidden.clone());
        let outputs: Vec<View> =
            std::iter::once(gates.input.clone()).chain(of_hidden).chain(states.iter().cloned()).collect();
        c.launch(&RecurrentGradient(network.whole(run.way, self.lengths.as_ref())), &operands, &outputs)?;
        Ok(states)
    }

    fn before(&self, run: &Run, step: usize) -> Vec<View> {
        let traces = [Some(&run.trace.hidden), run.trace.cells.as_ref()].into_iter().flatten();
        match self.network.before(run.way, step) {
            Some(before) => traces.map(|all| at(all, before)).collect(),
            None => run.first.clone(),
        }
    }

    /// Writes the gradients of a step's gates, and gives those of the state before.
    fn step(&self, step: &Step, dy: &[View], gates: [&View; 2]) -> Result<Vec<View>> {
        let (c, trace) = (self.writer.c, step.run.trace);
        let back = |gates: &View| product(c, (gates, false), (&step.run.weights.hidden, false));
        match self.network.cell {
            Cell::Lstm => {
                let cells = self.lstm(step, dy, gates[0])?;
                Ok(vec![back(gates[0])?, cells])
            }
            Cell::Gru => {
                let kept = self.gru(step, &dy[0], gates)?;
                Ok(vec![c.add(&kept, &back(gates[1])?)?])
            }
            Cell::Tanh | Cell::Relu => {
                let slope = if self.network.cell == Cell::Relu { Gradient::Relu } else { Gradient::Tanh };
                let hidden = at(&trace.hidden, step.number);
                self.writer.write(Elementwise::Gradient(slope), &[&hidden, &dy[0]], gates[0])?;
                Ok(vec![back(gates[0])?])
            }
        }
    }

    /// Gives the gradient of the cells before the step.
    fn lstm(&self, step: &Step, dy: &[View], gates: &View) -> Result<View> {
        let (c, writer, hidden) = (self.writer.c, &self.writer, self.network.hidden);
        let all = at(&step.run.trace.gates, step.number);
        let [i, f, g, o] = [0, 1, 2, 3].map(|number| gate(&all, number, hidden));
        let to = |number: usize| gate(gates, number, hidden);
        let cells = step.run.trace.cells.as_ref().map_or_else(|| step.before[1].clone(), |all| at(all, step.number));
        writer.write(Elementwise::Recurrent(Recurrent::GatedTanhGate), &[&o, &cells, &dy[0]], &to(3))?;
        let of_cells = c.map(Elementwise::Recurrent(Recurrent::GatedTanhValue), &[&o, &cells, &dy[0]], &[])?;
        let of_cells = c.add(&of_cells, &dy[1])?;
        writer.write(Elementwise::Recurrent(Recurrent::GatedTanhGate), &[&i, &g, &of_cells], &to(0))?;
        writer.write(Elementwise::Recurrent(Recurrent::GatedTanhValue), &[&i, &g, &of_cells], &to(2))?;
        writer.write(Elementwise::Recurrent(Recurrent::GatedGate), &[&f, &step.before[1], &of_cells], &to(1))?;
        c.map(Elementwise::Recurrent(Recurrent::Gated), &[&f, &of_cells], &[])
    }

    /// Gives what of the hidden state's gradient goes past the gates.
    fn gru(&self, step: &Step, dy: &View, [of_input, of_hidden]: [&View; 2]) -> Result<View> {
        let (writer, hidden) = (&self.writer, self.network.hidden);
        let all = at(&step.run.trace.gates, step.number);
        let [r, z, u] = [0, 1, 2].map(|number| gate(&all, number, hidden));
        let products = step.run.trace.products.as_ref().map_or_else(|| all.clone(), |all| at(all, step.number));
        let product = gate(&products, 2, hidden);
        let to = |number: usize| gate(of_input, number, hidden);
        let output = [&z, &step.before[0], &u, dy];
        writer.write(Elementwise::Recurrent(Recurrent::GruOutputGate), &output, &to(1))?;
        writer.write(Elementwise::Recurrent(Recurrent::GruOutputCandidate), &[&z, &u, dy], &to(2))?;
        writer.write(Elementwise::Recurrent(Recurrent::GatedGate), &[&r, &product, &to(2)], &to(0))?;
        let both = |x: &View| x.narrowed(1, 0, 1, 2 * hidden);
        writer.copy(&both(of_input), &both(of_hidden))?;
        writer.write(Elementwise::Recurrent(Recurrent::Gated), &[&r, &to(2)], &gate(of_hidden, 2, hidden))?;
        writer.c.map(Elementwise::Recurrent(Recurrent::Gated), &[&z, dy], &[])
    }

    /// Sums over steps and batch: products of the gates' gradients with what the weights were multiplied with.
    fn weights(&self, run: &Run, input: &View, gates: &Gates, to: &Weights<Option<Output>>) -> Result<()> {
        let (c, network) = (self.writer.c, self.network);
        let flat = |x: &View| c.shaped(x, &[x.shape[..x.rank() - 1].iter().product(), x.shape[x.rank() - 1]]);
        let put = |output: &Option<Output>, value: &dyn Fn() -> Result<View>| match output {
            Some(output) => c.store_value(output, network.dtype, &value()?),
            None => Ok(()),
        };
        put(&to.input, &|| product(c, (&flat(&gates.input)?, true), (&flat(input)?, false)))?;
        let bias = c.reduce(Reduction::Sum, &flat(&gates.input)?, &[0])?;
        put(&to.input_bias, &|| Ok(bias.clone()))?;
        put(&to.hidden_bias, &|| match network.cell {
            Cell::Gru => c.reduce(Reduction::Sum, &flat(&gates.hidden)?, &[0]),
            _ => Ok(bias.clone()),
        })?;
        put(&to.hidden, &|| product(c, (&flat(&gates.hidden)?, true), (&flat(&self.all_before(run)?)?, false)))
    }

    /// The hidden state before every step.
    fn all_before(&self, run: &Run) -> Result<View> {
        let (hidden, steps) = (&run.trace.hidden, self.network.steps);
        let before = self.writer.c.temporary(hidden.dtype, &hidden.shape)?;
        let Some(rest) = steps.checked_sub(1) else { return Ok(before) };
        let (from, to, first) = if run.way.reverse() { (1, 0, rest) } else { (0, 1, 0) };
        self.writer.copy(&hidden.narrowed(0, from, 1, rest), &before.narrowed(0, to, 1, rest))?;
        self.writer.copy(&run.first[0], &at(&before, first))?;
        Ok(before)
    }
}
