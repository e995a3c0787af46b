//! The forward pass of a layer, with what its backward pass needs.

use super::functions::{sigmoid, tanh};
use super::tile::{Blocks, multiply};
use super::{Cell, Layer, Rows, for_each_step, tiles_of};
use crate::Error;
use crate::native::epilogue::Single;
use crate::native::lanes::{Arithmetic, Lanes, WIDEST, at_level};
use crate::native::{Shared, scratch};

/// What a layer reads and writes.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Products of the inputs, with their bias: steps x batch x gates.
    pub products: &'a [f32],
    /// The weight of the hidden state: gates x hidden.
    pub weight: &'a [f32],
    /// The bias of the hidden state's products: gates.
    pub bias: &'a [f32],
    /// The hidden state before the first step.
    pub hidden_before: &'a [f32],
    /// LSTM's cells before the first step.
    pub cells_before: &'a [f32],
    /// How many steps each sequence has; behind them its state stays.
    pub lengths: Option<&'a [i32]>,
    /// Gates after their functions, steps x batch x gates, of LSTM and GRU.
    pub gates: &'a mut [f32],
    /// The hidden state after each step.
    pub hidden: &'a mut [f32],
    /// LSTM's cells after each step; of GRU what the reset gate multiplies.
    pub cells: &'a mut [f32],
}

/// Computes a layer.
pub fn forward(layer: &Layer, call: Forward) -> Result<(), Error> {
    let lens = layer.lens();
    let only = |is: bool, len: usize| if is { len } else { 0 };
    let (is_lstm, has_gates) = (layer.cell == Cell::Lstm, layer.cell.gates() > 1);
    layer.expect("products", call.products.len(), lens.gates)?;
    layer.expect("the weight", call.weight.len(), lens.weight)?;
    layer.expect("the bias", call.bias.len(), lens.bias)?;
    layer.expect("the first state", call.hidden_before.len(), lens.state)?;
    layer.expect("the first cells", call.cells_before.len(), only(is_lstm, lens.state))?;
    layer.expect("lengths", call.lengths.map_or(layer.batch, <[i32]>::len), layer.batch)?;
    layer.expect("gates", call.gates.len(), only(has_gates, lens.gates))?;
    layer.expect("states", call.hidden.len(), lens.states)?;
    layer.expect("cells", call.cells.len(), only(has_gates, lens.states))?;
    let blocks = Blocks::new(layer);
    scratch::with(blocks.packed_len(layer.hidden), |packed: &mut [f32]| {
        blocks.pack_turned(call.weight, packed);
        let pass = Pass {
            layer,
            blocks,
            packed,
            products: call.products,
            bias: call.bias,
            before: [call.hidden_before, call.cells_before],
            lengths: call.lengths,
            gates: Shared::new(call.gates),
            hidden: Shared::new(call.hidden),
            cells: Shared::new(call.cells),
        };
        let each = |number: usize, rows: Rows, (first, last): (usize, usize)| {
            // SAFETY: these units of the step are this task's, the step before is done, and the slices have the layer's sizes.
            (first..last).for_each(|block| unsafe { pass.block(number, rows, block) });
        };
        for_each_step(layer, blocks.count(), |_, _| (), each);
    });
    Ok(())
}

struct Pass<'a> {
    layer: &'a Layer,
    blocks: Blocks,
    packed: &'a [f32],
    products: &'a [f32],
    bias: &'a [f32],
    /// Hidden state and cells before the first step.
    before: [&'a [f32]; 2],
    lengths: Option<&'a [i32]>,
    gates: Shared<f32>,
    hidden: Shared<f32>,
    cells: Shared<f32>,
}

/// A sequence in one step: where its numbers are.
#[derive(Clone, Copy)]
struct At {
    /// Its row among those of all steps.
    row: usize,
    /// The hidden state and the cells before the step.
    before: [*const f32; 2],
    is_active: bool,
}

impl Pass<'_> {
    /// All rows of a block of units in one step.
    ///
    /// # Safety
    /// They are this task's, and the state before the step is there.
    unsafe fn block(&self, number: usize, rows: Rows, block: usize) {
        let pass = self;
        // SAFETY: `at_level` calls with instructions that the CPU has.
        unsafe { at_level!(tiles(pass: &Pass, number: usize, rows: Rows, block: usize)) }
    }

    /// Where a state of all sequences is before the step.
    fn state_before(&self, number: usize) -> [*const f32; 2] {
        match number.checked_sub(1) {
            None => self.before.map(<[f32]>::as_ptr),
            Some(number) => {
                let at = self.layer.step(number) * self.layer.state();
                let cells = if self.layer.cell == Cell::Lstm { self.cells } else { self.hidden };
                [self.hidden.at(at).cast_const(), cells.at(at).cast_const()]
            }
        }
    }

    fn at(&self, number: usize, row: usize) -> At {
        let (step, skipped) = (self.layer.step(number), row * self.layer.hidden);
        At {
            row: step * self.layer.batch + row,
            before: self.state_before(number).map(|state| state.wrapping_add(skipped)),
            is_active: self.layer.is_active(self.lengths, step, row),
        }
    }

    /// A gate's product in one sequence, to which the hidden state's is to be added.
    fn product(&self, at: At, gate: usize, unit: usize) -> *const f32 {
        self.products.as_ptr().wrapping_add(at.row * self.layer.width() + gate * self.layer.hidden + unit)
    }

    /// As many units as a vector has numbers, from the hidden state's products to the state.
    ///
    /// # Safety
    /// As [`Pass::block`], for these units of a sequence; the CPU has the instructions of `V`.
    #[inline(always)]
    unsafe fn finish<V: Arithmetic>(&self, at: At, unit: usize, sums: &[V]) {
        let hidden = self.layer.hidden;
        let to = self.hidden.at(at.row * hidden + unit);
        // SAFETY: the caller's promise.
        unsafe {
            if !at.is_active {
                return self.keep::<V>(at, unit);
            }
            let mut gates = [V::splat(0.0); 4];
            for (gate, sum) in sums.iter().enumerate() {
                gates[gate] = sum.add(V::load(self.bias.as_ptr().add(gate * hidden + unit)));
                // The reset gate comes between the two products of GRU's candidate.
                if self.layer.cell != Cell::Gru || gate < 2 {
                    gates[gate] = gates[gate].add(V::load(self.product(at, gate, unit)));
                }
            }
            let value = match self.layer.cell {
                Cell::Lstm => self.lstm(at, unit, gates),
                Cell::Gru => self.gru(at, unit, gates),
                Cell::Tanh => tanh(gates[0]),
                Cell::Relu => gates[0].max(V::splat(0.0)),
            };
            value.store(to);
        }
    }

    /// The state where a sequence has ended.
    ///
    /// # Safety
    /// As [`Pass::finish`].
    #[inline(always)]
    unsafe fn keep<V: Arithmetic>(&self, at: At, unit: usize) {
        let place = at.row * self.layer.hidden + unit;
        // SAFETY: the caller's promise.
        unsafe {
            V::load(at.before[0].add(unit)).store(self.hidden.at(place));
            match self.layer.cell {
                Cell::Lstm => V::load(at.before[1].add(unit)).store(self.cells.at(place)),
                Cell::Gru => V::splat(0.0).store(self.cells.at(place)),
                Cell::Tanh | Cell::Relu => return,
            }
            self.store_gates(at, unit, &[V::splat(0.0); 4][..self.layer.cell.gates()]);
        }
    }

    /// # Safety
    /// As [`Pass::finish`].
    #[inline(always)]
    unsafe fn lstm<V: Arithmetic>(&self, at: At, unit: usize, [i, f, g, o]: [V; 4]) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            let (i, f, g, o) = (sigmoid(i), sigmoid(f), tanh(g), sigmoid(o));
            let cells = f.mul(V::load(at.before[1].add(unit))).add(i.mul(g));
            self.store_gates(at, unit, &[i, f, g, o]);
            cells.store(self.cells.at(at.row * self.layer.hidden + unit));
            o.mul(tanh(cells))
        }
    }

    /// # Safety
    /// As [`Pass::finish`].
    #[inline(always)]
    unsafe fn gru<V: Arithmetic>(&self, at: At, unit: usize, [r, z, product, _]: [V; 4]) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            let (r, z) = (sigmoid(r), sigmoid(z));
            let u = tanh(r.mul(product).add(V::load(self.product(at, 2, unit))));
            self.store_gates(at, unit, &[r, z, u]);
            product.store(self.cells.at(at.row * self.layer.hidden + unit));
            z.mul(V::load(at.before[0].add(unit))).add(V::splat(1.0).sub(z).mul(u))
        }
    }

    /// # Safety
    /// As [`Pass::finish`].
    #[inline(always)]
    unsafe fn store_gates<V: Arithmetic>(&self, at: At, unit: usize, gates: &[V]) {
        for (number, gate) in gates.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { gate.store(self.gates.at(at.row * self.layer.width() + number * self.layer.hidden + unit)) };
        }
    }
}

#[inline(always)]
unsafe fn tiles<V: Lanes>(pass: &Pass, number: usize, rows: Rows, block: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match pass.layer.cell {
            Cell::Lstm => tiles_of_gates::<V, 4, 4>(pass, number, rows, block),
            Cell::Gru => tiles_of_gates::<V, 3, 3>(pass, number, rows, block),
            Cell::Tanh | Cell::Relu => tiles_of_gates::<V, 1, 4>(pass, number, rows, block),
        }
    }
}

#[inline(always)]
unsafe fn tiles_of_gates<V: Lanes, const G: usize, const W: usize>(
    pass: &Pass,
    number: usize,
    rows: Rows,
    block: usize,
) {
    for (row, count) in tiles_of(rows, V::N) {
        // SAFETY: passed on to the caller; a tile has no more rows than these.
        unsafe {
            match count {
                1 => tile::<V, 1, G, W>(pass, number, row, block),
                2 => tile::<V, 2, G, W>(pass, number, row, block),
                3 => tile::<V, 3, G, W>(pass, number, row, block),
                4 => tile::<V, 4, G, W>(pass, number, row, block),
                5 => tile::<V, 5, G, W>(pass, number, row, block),
                _ => tile::<V, 6, G, W>(pass, number, row, block),
            }
        }
    }
}

/// R rows of a block: their product, then their gates.
#[inline(always)]
unsafe fn tile<V: Lanes, const R: usize, const G: usize, const W: usize>(
    pass: &Pass,
    number: usize,
    row: usize,
    block: usize,
) {
    let hidden = pass.layer.hidden;
    // SAFETY: passed on to the caller.
    unsafe {
        let mut sums = [[V::splat(0.0); W]; R];
        let left = pass.state_before(number)[0].wrapping_add(row * hidden);
        multiply(&mut sums, (left, hidden), pass.packed.as_ptr().add(block * pass.blocks.len(hidden)), hidden);
        for i in 0..R {
            let at = pass.at(number, row + i);
            for part in 0..W / G {
                let unit = block * pass.blocks.units() + part * V::N;
                let sums = &sums[i][part * G..(part + 1) * G];
                if unit + V::N <= hidden {
                    pass.finish::<V>(at, unit, sums);
                } else if unit < hidden {
                    last_units::<V, G>(pass, at, unit, sums);
                }
            }
        }
    }
}

/// The units that fill no vector.
#[inline(always)]
unsafe fn last_units<V: Lanes, const G: usize>(pass: &Pass, at: At, unit: usize, sums: &[V]) {
    let mut numbers = [[0.0; WIDEST]; G];
    // SAFETY: passed on to the caller; no register is wider.
    unsafe {
        for gate in 0..G {
            numbers[gate] = sums[gate].lanes();
        }
        for lane in 0..pass.layer.hidden - unit {
            let mut own = [Single(0.0); G];
            for gate in 0..G {
                own[gate] = Single(numbers[gate][lane]);
            }
            pass.finish::<Single>(at, unit + lane, &own);
        }
    }
}
