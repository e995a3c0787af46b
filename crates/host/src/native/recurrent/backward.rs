//! The backward pass of a layer: the gradients of its products, from which those of weights and inputs are one product each, and of its first state.

use super::tile::{Blocks, multiply};
use super::{Cell, Layer, Rows, for_each_step, tiles_of};
use crate::Error;
use crate::native::epilogue::Single;
use crate::native::lanes::{Arithmetic, Lanes, WIDEST, at_level};
use crate::native::{Shared, scratch};

/// Terms of a sum in one go: a block of so many stays in the first-level cache for all rows.
const DEPTH: usize = 256;

/// What the backward pass reads and writes.
#[derive(Debug)]
pub struct Backward<'a> {
    /// The gradient of each step's hidden state; not looked at where a sequence has ended.
    pub upstream: &'a [f32],
    /// The weight of the hidden state, as in [`super::Forward`].
    pub weight: &'a [f32],
    /// The hidden state before the first step.
    pub hidden_before: &'a [f32],
    /// LSTM's cells before the first step.
    pub cells_before: &'a [f32],
    /// How many steps each sequence has.
    pub lengths: Option<&'a [i32]>,
    /// What the forward pass has written there.
    pub gates: &'a [f32],
    /// The same.
    pub hidden: &'a [f32],
    /// The same.
    pub cells: &'a [f32],
    /// The gradients of the inputs' products: steps x batch x gates.
    pub of_products: &'a mut [f32],
    /// Those of the hidden state's products, of GRU, which has others.
    pub of_hidden_products: &'a mut [f32],
    /// The gradient of the hidden state after the last step, which becomes that of the one before the first step.
    pub of_hidden: &'a mut [f32],
    /// The same of LSTM's cells.
    pub of_cells: &'a mut [f32],
}

/// Computes the gradients of a layer.
pub fn backward(layer: &Layer, call: Backward) -> Result<(), Error> {
    let lens = layer.lens();
    let only = |is: bool, len: usize| if is { len } else { 0 };
    let (is_lstm, is_gru) = (layer.cell == Cell::Lstm, layer.cell == Cell::Gru);
    layer.expect("gradients", call.upstream.len(), lens.states)?;
    layer.expect("the weight", call.weight.len(), lens.weight)?;
    layer.expect("the first state", call.hidden_before.len(), lens.state)?;
    layer.expect("the first cells", call.cells_before.len(), only(is_lstm, lens.state))?;
    layer.expect("lengths", call.lengths.map_or(layer.batch, <[i32]>::len), layer.batch)?;
    layer.expect("gates", call.gates.len(), only(is_lstm || is_gru, lens.gates))?;
    layer.expect("states", call.hidden.len(), lens.states)?;
    layer.expect("cells", call.cells.len(), only(is_lstm || is_gru, lens.states))?;
    layer.expect("gradients of products", call.of_products.len(), lens.gates)?;
    layer.expect("gradients of the state's products", call.of_hidden_products.len(), only(is_gru, lens.gates))?;
    layer.expect("the last state's gradient", call.of_hidden.len(), lens.state)?;
    layer.expect("the last cells' gradient", call.of_cells.len(), only(is_lstm, lens.state))?;
    let blocks = Blocks::of_columns(layer);
    scratch::with(blocks.packed_len(layer.width()), |packed: &mut [f32]| {
        blocks.pack_straight(call.weight, layer.width(), packed);
        let of_products = Shared::new(call.of_products);
        let pass = Pass {
            layer,
            blocks,
            packed,
            upstream: call.upstream,
            before: [call.hidden_before, call.cells_before],
            lengths: call.lengths,
            gates: call.gates,
            hidden: call.hidden,
            cells: call.cells,
            of_products,
            of_hidden_products: if is_gru { Shared::new(call.of_hidden_products) } else { of_products },
            of_hidden: Shared::new(call.of_hidden),
            of_cells: Shared::new(call.of_cells),
        };
        let step = |number: usize| layer.steps - 1 - number;
        // SAFETY: the rows of this step are this task's, the steps behind it are done, and the slices have the layer's sizes.
        let prepare = |number: usize, rows: Rows| unsafe { pass.gates(step(number), rows) };
        // SAFETY: as above, of these blocks.
        let each = |number: usize, rows: Rows, blocks: Rows| unsafe { pass.states(step(number), rows, blocks) };
        for_each_step(layer, blocks.count(), prepare, each);
    });
    Ok(())
}

struct Pass<'a> {
    layer: &'a Layer,
    blocks: Blocks,
    packed: &'a [f32],
    upstream: &'a [f32],
    before: [&'a [f32]; 2],
    lengths: Option<&'a [i32]>,
    gates: &'a [f32],
    hidden: &'a [f32],
    cells: &'a [f32],
    of_products: Shared<f32>,
    of_hidden_products: Shared<f32>,
    of_hidden: Shared<f32>,
    of_cells: Shared<f32>,
}

/// A sequence in one step: its row among those of the batch and of all steps, and the states before the step.
#[derive(Clone, Copy)]
struct At {
    sequence: usize,
    row: usize,
    before: [*const f32; 2],
}

impl Pass<'_> {
    /// The gradients of the products of a step's gates; what of the hidden state's gradient goes past them stays in `of_hidden`.
    ///
    /// # Safety
    /// These sequences are this task's.
    unsafe fn gates(&self, number: usize, rows: Rows) {
        let pass = self;
        // SAFETY: `at_level` calls with instructions that the CPU has.
        unsafe { at_level!(gates(pass: &Pass, number: usize, rows: Rows)) }
    }

    /// Adds what the gates give to the gradient of the hidden state before the step, in some blocks of units.
    ///
    /// # Safety
    /// These units of the sequences are this task's, and the step's gates are done.
    unsafe fn states(&self, number: usize, rows: Rows, blocks: Rows) {
        let pass = self;
        // SAFETY: `at_level` calls with instructions that the CPU has.
        unsafe { at_level!(states(pass: &Pass, number: usize, rows: Rows, blocks: Rows)) }
    }

    fn at(&self, number: usize, sequence: usize) -> At {
        let Layer { batch, hidden, .. } = *self.layer;
        let of = |all: &[f32], row: usize| all.as_ptr().wrapping_add(row * hidden);
        let before = match number.checked_sub(1) {
            None => self.before.map(|state| of(state, sequence)),
            Some(number) => [self.hidden, self.cells].map(|all| of(all, self.layer.step(number) * batch + sequence)),
        };
        At { sequence, row: self.layer.step(number) * batch + sequence, before }
    }

    /// As many units as a vector has numbers.
    ///
    /// # Safety
    /// As [`Pass::gates`], for these units of a sequence; the CPU has the instructions of `V`.
    #[inline(always)]
    unsafe fn units<V: Arithmetic>(&self, at: At, unit: usize) {
        let hidden = self.layer.hidden;
        let own = self.of_hidden.at(at.sequence * hidden + unit);
        // SAFETY: the caller's promise.
        unsafe {
            let dy = V::load(own).add(V::load(self.upstream.as_ptr().add(at.row * hidden + unit)));
            let past = match self.layer.cell {
                Cell::Lstm => self.lstm(at, unit, dy),
                Cell::Gru => self.gru(at, unit, dy),
                Cell::Tanh => {
                    let y = V::load(self.hidden.as_ptr().add(at.row * hidden + unit));
                    self.store(at, 0, unit, dy.mul(bend(y)));
                    V::splat(0.0)
                }
                Cell::Relu => {
                    for lane in 0..V::N {
                        let y = self.hidden[at.row * hidden + unit + lane];
                        let dy = *own.add(lane) + self.upstream[at.row * hidden + unit + lane];
                        *self.of_products.at(at.row * hidden + unit + lane) = if y > 0.0 { dy } else { 0.0 };
                    }
                    V::splat(0.0)
                }
            };
            past.store(own);
        }
    }

    /// # Safety
    /// As [`Pass::units`].
    #[inline(always)]
    unsafe fn gate<V: Arithmetic>(&self, at: At, gate: usize, unit: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(self.gates.as_ptr().add(at.row * self.layer.width() + gate * self.layer.hidden + unit)) }
    }

    /// # Safety
    /// As [`Pass::units`].
    #[inline(always)]
    unsafe fn store<V: Arithmetic>(&self, at: At, gate: usize, unit: usize, value: V) {
        // SAFETY: the caller's promise.
        unsafe { value.store(self.of_products.at(at.row * self.layer.width() + gate * self.layer.hidden + unit)) }
    }

    /// # Safety
    /// As [`Pass::units`].
    #[inline(always)]
    unsafe fn lstm<V: Arithmetic>(&self, at: At, unit: usize, dy: V) -> V {
        let hidden = self.layer.hidden;
        // SAFETY: the caller's promise.
        unsafe {
            let (i, f, g, o): (V, V, V, V) =
                (self.gate(at, 0, unit), self.gate(at, 1, unit), self.gate(at, 2, unit), self.gate(at, 3, unit));
            let bent = super::functions::tanh(V::load(self.cells.as_ptr().add(at.row * hidden + unit)));
            let own = self.of_cells.at(at.sequence * hidden + unit);
            let of_cells = dy.mul(o).mul(bend(bent)).add(V::load(own));
            self.store(at, 0, unit, of_cells.mul(g).mul(slope(i)));
            self.store(at, 1, unit, of_cells.mul(V::load(at.before[1].add(unit))).mul(slope(f)));
            self.store(at, 2, unit, of_cells.mul(i).mul(bend(g)));
            self.store(at, 3, unit, dy.mul(bent).mul(slope(o)));
            of_cells.mul(f).store(own);
            V::splat(0.0)
        }
    }

    /// # Safety
    /// As [`Pass::units`].
    #[inline(always)]
    unsafe fn gru<V: Arithmetic>(&self, at: At, unit: usize, dy: V) -> V {
        let hidden = self.layer.hidden;
        // SAFETY: the caller's promise.
        unsafe {
            let (r, z, u): (V, V, V) = (self.gate(at, 0, unit), self.gate(at, 1, unit), self.gate(at, 2, unit));
            let product = V::load(self.cells.as_ptr().add(at.row * hidden + unit));
            let of_u = dy.mul(V::splat(1.0).sub(z)).mul(bend(u));
            let of_z = dy.mul(V::load(at.before[0].add(unit)).sub(u)).mul(slope(z));
            let of_r = of_u.mul(product).mul(slope(r));
            for (gate, value, of_state) in [(0, of_r, of_r), (1, of_z, of_z), (2, of_u, of_u.mul(r))] {
                self.store(at, gate, unit, value);
                of_state.store(self.of_hidden_products.at(at.row * self.layer.width() + gate * hidden + unit));
            }
            dy.mul(z)
        }
    }

    /// Where a sequence has ended its gates have no gradient, and that of its state goes through.
    ///
    /// # Safety
    /// As [`Pass::gates`].
    unsafe fn skip(&self, at: At) {
        let width = self.layer.width();
        for gradients in [&self.of_products, &self.of_hidden_products] {
            // SAFETY: the row is this task's, and the two are used one after the other.
            unsafe { gradients.part(at.row * width, width) }.fill(0.0);
        }
    }
}

/// The slope of the logistic function where its value is `y`.
#[inline(always)]
unsafe fn slope<V: Arithmetic>(y: V) -> V {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe { y.mul(V::splat(1.0).sub(y)) }
}

/// The slope of tanh where its value is `y`.
#[inline(always)]
unsafe fn bend<V: Arithmetic>(y: V) -> V {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe { V::splat(1.0).sub(y.mul(y)) }
}

#[inline(always)]
unsafe fn gates<V: Lanes>(pass: &Pass, number: usize, (first, last): Rows) {
    let hidden = pass.layer.hidden;
    for sequence in first..last {
        let at = pass.at(number, sequence);
        // SAFETY: passed on to the caller.
        unsafe {
            if !pass.layer.is_active(pass.lengths, pass.layer.step(number), sequence) {
                pass.skip(at);
                continue;
            }
            let whole = hidden / V::N * V::N;
            for unit in (0..whole).step_by(V::N) {
                pass.units::<V>(at, unit);
            }
            for unit in whole..hidden {
                pass.units::<Single>(at, unit);
            }
        }
    }
}

#[inline(always)]
unsafe fn states<V: Lanes>(pass: &Pass, number: usize, rows: Rows, (first, last): Rows) {
    let depth = pass.layer.width();
    for block in first..last {
        for from in (0..depth).step_by(DEPTH) {
            let terms = (from, DEPTH.min(depth - from));
            for (row, count) in tiles_of(rows, V::N) {
                // SAFETY: passed on to the caller; a tile has no more rows than these.
                unsafe {
                    match count {
                        1 => tile::<V, 1>(pass, number, row, block, terms),
                        2 => tile::<V, 2>(pass, number, row, block, terms),
                        3 => tile::<V, 3>(pass, number, row, block, terms),
                        4 => tile::<V, 4>(pass, number, row, block, terms),
                        5 => tile::<V, 5>(pass, number, row, block, terms),
                        _ => tile::<V, 6>(pass, number, row, block, terms),
                    }
                }
            }
        }
    }
}

/// Some terms of a block's product, for R rows.
#[inline(always)]
unsafe fn tile<V: Lanes, const R: usize>(
    pass: &Pass,
    number: usize,
    row: usize,
    block: usize,
    (from, terms): (usize, usize),
) {
    let (width, hidden) = (pass.layer.width(), pass.layer.hidden);
    let first = pass.layer.step(number) * pass.layer.batch + row;
    // SAFETY: passed on to the caller.
    unsafe {
        let mut sums = [[V::splat(0.0); 4]; R];
        let left = pass.of_hidden_products.at(first * width + from).cast_const();
        let right = pass.packed.as_ptr().add(block * pass.blocks.len(width) + from * 4 * V::N);
        multiply(&mut sums, (left, width), right, terms);
        for i in 0..R {
            for j in 0..4 {
                let unit = block * pass.blocks.units() + j * V::N;
                if unit >= hidden {
                    break;
                }
                let to = pass.of_hidden.at((row + i) * hidden + unit);
                if unit + V::N <= hidden {
                    V::load(to).add(sums[i][j]).store(to);
                } else {
                    let numbers: [f32; WIDEST] = sums[i][j].lanes();
                    for lane in 0..hidden - unit {
                        *to.add(lane) += numbers[lane];
                    }
                }
            }
        }
    }
}
