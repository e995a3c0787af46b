//! Recurrent layers for the list of operators.

use super::{Cell, Part, Recurrent, RecurrentGradient};
use crate::entry::{Case, Entry, Input, Values};
use openmps_tile::DType;

const CELLS: [Cell; 4] = [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu];

/// Steps, sequences, numbers of a state, from the last step on, lengths.
const SIZES: [([usize; 3], bool, bool); 6] = [
    ([1, 1, 1], false, false),
    ([3, 2, 5], true, true),
    ([4, 7, 16], false, true),
    ([2, 13, 33], true, false),
    ([5, 1, 70], false, false),
    ([0, 2, 3], false, false),
];

fn operands(operator: Recurrent, parts: &[Part], sizes: [usize; 3]) -> Vec<Input> {
    let mut inputs: Vec<Input> = parts
        .iter()
        .map(|part| {
            // Gates that functions have given are between 0 and 1; sums stay small enough for their slopes.
            let values = if *part == Part::Gates { Values::Uniform(0.0, 1.0) } else { Values::Uniform(-1.0, 1.0) };
            Input::of(&part.dims(operator.cell, sizes), values)
        })
        .collect();
    if operator.lengths {
        inputs.push(Input::of(&[sizes[1]], Values::Uniform(0.0, sizes[0] as f64)).typed(DType::I32));
    }
    inputs
}

fn operators() -> impl Iterator<Item = (Recurrent, [usize; 3])> {
    CELLS
        .into_iter()
        .flat_map(|cell| SIZES.map(|(sizes, reverse, lengths)| (Recurrent { cell, reverse, lengths }, sizes)))
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "recurrent",
    summary: "All steps of a layer of LSTM, GRU or simple cells, from the products of its inputs.",
    dtypes: &[DType::F32],
    cases: || {
        let case = |(operator, sizes): (Recurrent, _)| Case::new(operator, operands(operator, operator.parts(), sizes));
        operators().map(case).collect()
    },
    tolerance: 64.0,
};

/// For the list of operators.
pub static GRADIENT: Entry = Entry {
    name: "recurrent_gradient",
    summary: "The gradients of a recurrent layer by its products and first states.",
    dtypes: &[DType::F32],
    cases: || {
        let case = |(operator, sizes): (Recurrent, _)| {
            Case::new(RecurrentGradient(operator), operands(operator, operator.gradient_parts(), sizes))
        };
        operators().map(case).collect()
    },
    tolerance: 64.0,
};
