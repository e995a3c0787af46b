//! Layers against loops in float64, and their gradients against finite differences of these.

use super::*;

/// Numbers between -1 and 1.
fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f64 / f64::from(1 << 23) - 1.0) as f32
    };
    (0..len).map(next).collect()
}

/// What is differentiated by: products of the inputs, weight, bias, hidden state, cells.
type Inputs = [Vec<f64>; 5];

fn inputs(layer: &Layer) -> Inputs {
    let cells = if layer.cell == Cell::Lstm { layer.state() } else { 0 };
    let lens =
        [layer.steps * layer.batch * layer.width(), layer.width() * layer.hidden, layer.width(), layer.state(), cells];
    // Weights that neither let states die nor make their errors grow.
    let factor = |of: usize| if of == 1 { (layer.hidden as f64).sqrt().recip() } else { 1.0 };
    let rounded = |x: f32, of: usize| f64::from((f64::from(x) * factor(of)) as f32);
    std::array::from_fn(|i| numbers(lens[i], i as u64 + 1).into_iter().map(|x| rounded(x, i)).collect())
}

fn gate(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Hidden states after each step, then the last hidden state and the last cells.
fn reference(layer: &Layer, lengths: Option<&[i32]>, [products, weight, bias, hidden, cells]: &Inputs) -> Vec<f64> {
    let (mut hidden, mut cells, size) = (hidden.clone(), cells.clone(), layer.hidden);
    let mut all = vec![0.0; layer.steps * layer.state()];
    for number in 0..layer.steps {
        let step = layer.step(number);
        for row in 0..layer.batch {
            let before = hidden[row * size..][..size].to_vec();
            for unit in (0..size).filter(|_| layer.is_active(lengths, step, row)) {
                let own = |of: usize| {
                    let weights = &weight[(of * size + unit) * size..][..size];
                    bias[of * size + unit] + weights.iter().zip(&before).map(|(w, h)| w * h).sum::<f64>()
                };
                let given = |of: usize| products[(step * layer.batch + row) * layer.width() + of * size + unit];
                let of = |number: usize| own(number) + given(number);
                hidden[row * size + unit] = match layer.cell {
                    Cell::Lstm => {
                        let c = &mut cells[row * size + unit];
                        *c = gate(of(1)) * *c + gate(of(0)) * of(2).tanh();
                        gate(of(3)) * c.tanh()
                    }
                    Cell::Gru => {
                        let z = gate(of(1));
                        z * before[unit] + (1.0 - z) * (given(2) + gate(of(0)) * own(2)).tanh()
                    }
                    Cell::Tanh => of(0).tanh(),
                    Cell::Relu => of(0).max(0.0),
                };
            }
        }
        all[step * layer.state()..][..layer.state()].copy_from_slice(&hidden);
    }
    [all, hidden, cells].concat()
}

/// What the forward pass has written: gates, hidden states, cells.
struct Run {
    gates: Vec<f32>,
    hidden: Vec<f32>,
    cells: Vec<f32>,
}

fn run(layer: &Layer, lengths: Option<&[i32]>, inputs: &[Vec<f32>; 5]) -> Run {
    let all = if layer.cell.gates() > 1 { layer.steps * layer.batch } else { 0 };
    let mut run = Run {
        gates: vec![f32::NAN; all * layer.width()],
        hidden: vec![f32::NAN; layer.steps * layer.state()],
        cells: vec![f32::NAN; all * layer.hidden],
    };
    let call = Forward {
        products: &inputs[0],
        weight: &inputs[1],
        bias: &inputs[2],
        hidden_before: &inputs[3],
        cells_before: &inputs[4],
        lengths,
        gates: &mut run.gates,
        hidden: &mut run.hidden,
        cells: &mut run.cells,
    };
    forward(layer, call).unwrap();
    run
}

fn layers() -> impl Iterator<Item = (Layer, Option<Vec<i32>>)> {
    let sizes = [(1, 1, 1), (3, 2, 5), (4, 7, 16), (2, 13, 33), (3, 1, 70), (5, 6, 8), (0, 2, 3), (2, 0, 3)];
    let cells = [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu];
    let all = cells.into_iter().flat_map(move |cell| sizes.map(|sizes| (cell, sizes)));
    all.flat_map(|(cell, (steps, batch, hidden))| {
        [(false, false), (true, false), (true, true)].map(|(reverse, ends)| {
            let lengths = (0..batch as i32).map(|row| row % (steps as i32 + 1)).collect();
            (Layer { cell, reverse, steps, batch, hidden }, ends.then_some(lengths))
        })
    })
}

#[test]
fn states_are_as_in_float64() {
    for (layer, lengths) in layers() {
        let inputs = inputs(&layer);
        let singles = inputs.each_ref().map(|numbers| numbers.iter().map(|&x| x as f32).collect());
        let mine = run(&layer, lengths.as_deref(), &singles);
        let expected = reference(&layer, lengths.as_deref(), &inputs);
        for (i, (mine, expected)) in mine.hidden.iter().zip(&expected).enumerate() {
            let error = (f64::from(*mine) - expected).abs();
            assert!(error <= 2e-6 * expected.abs().max(1.0), "{layer:?} {lengths:?} at {i}: {mine} for {expected}");
        }
    }
}

/// Gradients of the weighted sum of all states and the last ones: by the products and the first states, and those of the weight and the bias that follow.
#[test]
fn gradients_are_those_of_finite_differences() {
    for (layer, lengths) in layers() {
        let inputs = inputs(&layer);
        let singles = inputs.each_ref().map(|numbers| numbers.iter().map(|&x| x as f32).collect());
        let run = run(&layer, lengths.as_deref(), &singles);
        let all = layer.steps * layer.batch;
        let [mut upstream, of_hidden, of_cells] =
            [(all * layer.hidden, 11), (layer.state(), 12), (inputs[4].len(), 13)]
                .map(|(len, seed)| numbers(len, seed));
        // Results end with their sequences.
        for row in 0..all {
            if !layer.is_active(lengths.as_deref(), row / layer.batch, row % layer.batch) {
                upstream[row * layer.hidden..][..layer.hidden].fill(0.0);
            }
        }
        let weights: Vec<f64> = [&upstream[..], &of_hidden, &of_cells].concat().into_iter().map(f64::from).collect();
        let (mut of_hidden, mut of_cells) = (of_hidden, of_cells);
        let mut of_products = vec![f32::NAN; all * layer.width()];
        let mut of_hidden_products = vec![f32::NAN; if layer.cell == Cell::Gru { of_products.len() } else { 0 }];
        let call = Backward {
            upstream: &upstream,
            weight: &singles[1],
            hidden_before: &singles[3],
            cells_before: &singles[4],
            lengths: lengths.as_deref(),
            gates: &run.gates,
            hidden: &run.hidden,
            cells: &run.cells,
            of_products: &mut of_products,
            of_hidden_products: &mut of_hidden_products,
            of_hidden: &mut of_hidden,
            of_cells: &mut of_cells,
        };
        backward(&layer, call).unwrap();
        let loss = |inputs: &Inputs| -> f64 {
            reference(&layer, lengths.as_deref(), inputs).iter().zip(&weights).map(|(y, w)| y * w).sum()
        };
        let mut found: [Vec<f32>; 5] =
            [of_products.clone(), vec![0.0; singles[1].len()], vec![0.0; singles[2].len()], of_hidden, of_cells];
        let gates = if layer.cell == Cell::Gru { &of_hidden_products } else { &of_products };
        let before = |row: usize| -> Vec<f32> {
            let (step, sequence) = (row / layer.batch, row % layer.batch);
            let number = layer.step(step);
            match number.checked_sub(1) {
                None => singles[3][sequence * layer.hidden..][..layer.hidden].to_vec(),
                Some(number) => {
                    run.hidden[(layer.step(number) * layer.batch + sequence) * layer.hidden..][..layer.hidden].to_vec()
                }
            }
        };
        for row in 0..all {
            let state = before(row);
            for gate in 0..layer.width() {
                let of_gate = gates[row * layer.width() + gate];
                found[2][gate] += of_gate;
                for (unit, number) in state.iter().enumerate() {
                    found[1][gate * layer.hidden + unit] += of_gate * number;
                }
            }
        }
        // Along one direction for each input: the slope of the loss.
        for (of, gradient) in found.iter().enumerate().filter(|(of, _)| !inputs[*of].is_empty()) {
            let direction = numbers(gradient.len(), 20 + of as u64);
            let moved = |step: f64| {
                let mut moved = inputs.clone();
                moved[of].iter_mut().zip(&direction).for_each(|(x, d)| *x += step * f64::from(*d));
                loss(&moved)
            };
            let expected = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            let terms = gradient.iter().zip(&direction).map(|(g, d)| f64::from(*g) * f64::from(*d));
            let (mine, size) = terms.fold((0.0, 1.0), |(sum, size): (f64, f64), term| (sum + term, size + term.abs()));
            assert!((mine - expected).abs() <= 1e-5 * size, "{layer:?} {lengths:?}, input {of}: {mine} for {expected}");
        }
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let layer = Layer { cell: Cell::Tanh, reverse: false, steps: 2, batch: 2, hidden: 3 };
    let mut hidden = vec![0.0; 11];
    let call = Forward {
        products: &[0.0; 12],
        weight: &[0.0; 9],
        bias: &[0.0; 3],
        hidden_before: &[0.0; 6],
        cells_before: &[],
        lengths: None,
        gates: &mut [],
        hidden: &mut hidden,
        cells: &mut [],
    };
    let error = forward(&layer, call).unwrap_err().to_string();
    assert!(error.contains("11 numbers of states"), "{error}");
}

#[test]
fn tanh_keeps_its_digits() {
    use crate::native::epilogue::Single;
    for i in -100_000..=100_000 {
        let x = i as f32 / 10_000.0;
        // SAFETY: `Single` needs no instructions.
        let (mine, expected) = (unsafe { functions::tanh(Single(x)) }.0, f64::from(x).tanh());
        assert!((f64::from(mine) - expected).abs() <= 4e-7 * expected.abs(), "{x}: {mine} for {expected}");
    }
    // SAFETY: as above.
    let at = |x: f32| unsafe { functions::tanh(Single(x)) }.0;
    assert_eq!((at(f32::INFINITY), at(f32::NEG_INFINITY)), (1.0, -1.0));
    assert!(at(f32::NAN).is_nan());
}
