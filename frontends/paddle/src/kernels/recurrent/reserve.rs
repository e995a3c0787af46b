//! What the backward pass of a recurrent network needs of the forward one, in one tensor of bytes.

use super::{Cell, Network, Path, Way};
use crate::error::{Result, refuse};
use openmps_graph::{DType, View};

/// Parts begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;

/// What one way leaves behind.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    /// Gates, steps x batch x gates: after their functions where all steps are one call, else before them, and of GRU the last one with the reset gate's share
    /// of the hidden state.
    pub gates: View,
    /// GRU's products of the hidden state: the last third where all steps are one call, else all, of which that is needed.
    pub products: Option<View>,
    /// The hidden state after each step.
    pub hidden: View,
    /// LSTM's cells after each step.
    pub cells: Option<View>,
}

impl Trace {
    /// What a call of all steps writes: hidden states, and where the cell has them gates and cells or products.
    pub fn views(&self) -> Vec<View> {
        let more = self.products.as_ref().or(self.cells.as_ref());
        let gates = more.map(|more| [self.gates.clone(), more.clone()]);
        std::iter::once(self.hidden.clone()).chain(gates.into_iter().flatten()).collect()
    }
}

/// The tensor's parts.
#[derive(Clone, Debug)]
pub(super) struct Reserve {
    traces: Vec<Trace>,
    /// The inputs of the layers above the first, and which of their numbers dropout has kept.
    inputs: Vec<(View, View)>,
    directions: usize,
}

/// Hands out memory from an address on.
struct Arena {
    address: usize,
    used: usize,
}

impl Arena {
    fn take(&mut self, dtype: DType, dims: &[usize]) -> Result<View> {
        let view = View::dense(self.address + self.used, dtype, dims)?;
        self.used += (view.len() * dtype.size()).next_multiple_of(ALIGNMENT);
        Ok(view)
    }
}

impl Reserve {
    /// How many bytes the parts have.
    pub fn bytes(network: Network) -> Result<usize> {
        Ok(Reserve::at(0, network)?.1)
    }

    /// The parts of a tensor, which must have as many bytes.
    pub fn of(tensor: &View, network: Network) -> Result<Reserve> {
        let (reserve, bytes) = Reserve::at(tensor.address, network)?;
        let got = tensor.len() * tensor.dtype.size();
        if got < bytes {
            return Err(refuse(
                "reserve",
                format!("{got} bytes"),
                &format!("{bytes} bytes, as the forward pass leaves"),
            ));
        }
        Ok(reserve)
    }

    /// The parts from an address on, and how many bytes they have.
    fn at(address: usize, network: Network) -> Result<(Reserve, usize)> {
        let Network { cell, dtype, steps, batch, hidden, .. } = network;
        let mut arena = Arena { address, used: 0 };
        let mut traces = Vec::new();
        for _ in network.ways() {
            let gates = arena.take(dtype, &[steps, batch, cell.gates() * hidden])?;
            let mut only = |of: Cell, width: usize| {
                (cell == of).then(|| arena.take(dtype, &[steps, batch, width * hidden])).transpose()
            };
            let of_gru = if network.path == Path::Whole { 1 } else { 3 };
            let (products, cells) = (only(Cell::Gru, of_gru)?, only(Cell::Lstm, 1)?);
            traces.push(Trace { gates, products, hidden: arena.take(dtype, &[steps, batch, hidden])?, cells });
        }
        let mut inputs = Vec::new();
        for layer in 1..network.layers {
            let dims = [steps, batch, network.width(layer)];
            inputs.push((arena.take(dtype, &dims)?, arena.take(DType::U8, &dims)?));
        }
        Ok((Reserve { traces, inputs, directions: network.directions }, arena.used))
    }

    pub fn trace(&self, way: Way) -> &Trace {
        &self.traces[way.layer * self.directions + way.direction]
    }

    /// The input of a layer above the first.
    pub fn input(&self, layer: usize) -> &View {
        &self.inputs[layer - 1].0
    }

    /// Which of its numbers dropout has kept.
    pub fn kept(&self, layer: usize) -> &View {
        &self.inputs[layer - 1].1
    }
}
