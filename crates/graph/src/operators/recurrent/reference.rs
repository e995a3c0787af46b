//! Recurrent layers in float64, number by number.

use super::{Cell, Recurrent};
use crate::reference::Array;

/// Sizes, with what of a layer's tensors a step and a sequence have.
struct Sizes {
    cell: Cell,
    reverse: bool,
    steps: usize,
    batch: usize,
    hidden: usize,
}

impl Sizes {
    fn of(operator: &Recurrent, all: &Array, weight: &Array) -> Sizes {
        let Recurrent { cell, reverse, .. } = *operator;
        Sizes { cell, reverse, steps: all.shape[0], batch: all.shape[1], hidden: weight.shape[1] }
    }

    fn order(&self) -> Vec<usize> {
        if self.reverse { (0..self.steps).rev().collect() } else { (0..self.steps).collect() }
    }

    /// Where a gate's number is.
    fn gate(&self, step: usize, row: usize, gate: usize, unit: usize) -> usize {
        ((step * self.batch + row) * self.cell.gates() + gate) * self.hidden + unit
    }

    fn state(&self, step: usize, row: usize, unit: usize) -> usize {
        (step * self.batch + row) * self.hidden + unit
    }
}

fn is_active(lengths: Option<&Array>, step: usize, row: usize) -> bool {
    lengths.is_none_or(|lengths| (step as f64) < lengths.data[row])
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn forward(operator: &Recurrent, inputs: &[Array]) -> Vec<Array> {
    let [products, weight, bias, hidden] = [0, 1, 2, 3].map(|i| &inputs[i]);
    let (lengths, s) = (operator.lengths.then(|| &inputs[inputs.len() - 1]), Sizes::of(operator, products, weight));
    let mut h = hidden.data.clone();
    let mut c = if operator.is_lstm() { inputs[4].data.clone() } else { Vec::new() };
    let mut all = vec![0.0; s.steps * s.batch * s.hidden];
    let (mut gates, mut cells) = (vec![0.0; products.data.len()], all.clone());
    for step in s.order() {
        for row in 0..s.batch {
            let before = h[row * s.hidden..][..s.hidden].to_vec();
            for unit in 0..s.hidden {
                let own = row * s.hidden + unit;
                if is_active(lengths, step, row) {
                    let state = |gate: usize| {
                        let weights = &weight.data[(gate * s.hidden + unit) * s.hidden..][..s.hidden];
                        let sum: f64 = weights.iter().zip(&before).map(|(w, h)| w * h).sum();
                        sum + bias.data[gate * s.hidden + unit]
                    };
                    let given = |gate: usize| products.data[s.gate(step, row, gate, unit)];
                    let both = |gate: usize| state(gate) + given(gate);
                    let found = match s.cell {
                        Cell::Lstm => vec![sigmoid(both(0)), sigmoid(both(1)), both(2).tanh(), sigmoid(both(3))],
                        Cell::Gru => {
                            let r = sigmoid(both(0));
                            vec![r, sigmoid(both(1)), (given(2) + r * state(2)).tanh()]
                        }
                        Cell::Tanh => vec![both(0).tanh()],
                        Cell::Relu => vec![both(0).max(0.0)],
                    };
                    match s.cell {
                        Cell::Lstm => {
                            c[own] = found[1] * c[own] + found[0] * found[2];
                            h[own] = found[3] * c[own].tanh();
                        }
                        Cell::Gru => {
                            cells[s.state(step, row, unit)] = state(2);
                            h[own] = found[1] * before[unit] + (1.0 - found[1]) * found[2];
                        }
                        Cell::Tanh | Cell::Relu => h[own] = found[0],
                    }
                    found.iter().enumerate().for_each(|(i, &value)| gates[s.gate(step, row, i, unit)] = value);
                }
                all[s.state(step, row, unit)] = h[own];
                if operator.is_lstm() {
                    cells[s.state(step, row, unit)] = c[own];
                }
            }
        }
    }
    let dims = [s.steps, s.batch, s.hidden];
    let mut outputs = vec![Array::new(&dims, all, products.dtype)];
    if operator.keeps_gates() {
        outputs.push(Array::new(&products.shape, gates, products.dtype));
        outputs.push(Array::new(&dims, cells, products.dtype));
    }
    outputs
}

pub(super) fn backward(operator: &Recurrent, inputs: &[Array]) -> Vec<Array> {
    let states = 1 + usize::from(operator.is_lstm());
    let of = |number: usize| &inputs[number];
    let (upstream, weight, before) = (of(0), of(1 + states), of(2 + states));
    let hidden = of(2 + 2 * states);
    let more = |number: usize| {
        let all: &[f64] = if operator.keeps_gates() { &of(2 + 2 * states + number).data } else { &[] };
        all
    };
    let (gates, cells) = (more(1), more(2));
    let lengths = operator.lengths.then(|| &inputs[inputs.len() - 1]);
    let s = Sizes::of(operator, upstream, weight);
    let mut dh = of(1).data.clone();
    let mut dc = if operator.is_lstm() { of(2).data.clone() } else { Vec::new() };
    let dims = [s.steps, s.batch, s.cell.gates() * s.hidden];
    let mut of_products = vec![0.0; dims.iter().product()];
    let mut of_states = of_products.clone();
    let order = s.order();
    for (number, &step) in order.iter().enumerate().rev() {
        for row in (0..s.batch).filter(|&row| is_active(lengths, step, row)) {
            let earlier = |all: &[f64], first: &[f64], unit: usize| match number.checked_sub(1) {
                Some(number) => all[s.state(order[number], row, unit)],
                None => first[row * s.hidden + unit],
            };
            for unit in 0..s.hidden {
                let (own, at) = (row * s.hidden + unit, s.state(step, row, unit));
                let dy = dh[own] + upstream.data[at];
                let gate = |gate: usize| gates[s.gate(step, row, gate, unit)];
                let slope = |y: f64| y * (1.0 - y);
                let bend = |y: f64| 1.0 - y * y;
                dh[own] = 0.0;
                let found = match s.cell {
                    Cell::Lstm => {
                        let (i, f, g, o, bent) = (gate(0), gate(1), gate(2), gate(3), cells[at].tanh());
                        let sum = dc[own] + dy * o * bend(bent);
                        dc[own] = sum * f;
                        let c = earlier(cells, &of(3 + states).data, unit);
                        vec![sum * g * slope(i), sum * c * slope(f), sum * i * bend(g), dy * bent * slope(o)]
                    }
                    Cell::Gru => {
                        let (r, z, u) = (gate(0), gate(1), gate(2));
                        dh[own] = dy * z;
                        let of_u = dy * (1.0 - z) * bend(u);
                        let of_z = dy * (earlier(&hidden.data, &before.data, unit) - u) * slope(z);
                        vec![of_u * cells[at] * slope(r), of_z, of_u]
                    }
                    Cell::Tanh => vec![dy * bend(hidden.data[at])],
                    Cell::Relu => vec![if hidden.data[at] > 0.0 { dy } else { 0.0 }],
                };
                for (i, &value) in found.iter().enumerate() {
                    let place = s.gate(step, row, i, unit);
                    of_products[place] = value;
                    of_states[place] = if s.cell == Cell::Gru && i == 2 { value * gate(0) } else { value };
                }
            }
            for unit in 0..s.hidden {
                let place = |k: usize| s.gate(step, row, k / s.hidden, k % s.hidden);
                let terms = (0..dims[2]).map(|k| of_states[place(k)] * weight.data[k * s.hidden + unit]);
                dh[row * s.hidden + unit] += terms.sum::<f64>();
            }
        }
    }
    let dtype = upstream.dtype;
    let mut outputs = vec![Array::new(&dims, of_products, dtype)];
    if s.cell == Cell::Gru {
        outputs.push(Array::new(&dims, of_states, dtype));
    }
    outputs.extend([dh, dc].into_iter().take(states).map(|data| Array::new(&[s.batch, s.hidden], data, dtype)));
    outputs
}
