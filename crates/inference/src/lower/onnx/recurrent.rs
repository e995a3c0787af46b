//! LSTM, GRU and simple cells of one layer in one or both directions.

use crate::error::Result;
use crate::lower::recurrent::{Cell, Nonlinearity, Reset, Weights};
use crate::lower::{Lowering, Table, Value, size_of, wrong};
use crate::program::{Attribute, Operation};

pub(super) const TABLE: Table =
    &[("LSTM", lstm), ("GRU", gru), ("RNN", simple), ("com.microsoft.DynamicQuantizeLSTM", quantized_lstm)];

/// A kind of cell as ONNX writes its weights.
struct Kind {
    cell: Cell,
    /// Which of ONNX's gates each of ours is.
    gates: &'static [usize],
    /// The names of the functions of one direction that `cell` computes.
    functions: &'static [&'static str],
}

/// Input, output, forget and cell, of which the cell's gate goes before the output's here.
fn lstm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let parts = given(lowering, operation)?;
    lstm_of(lowering, operation, parts)
}

fn lstm_of(lowering: &mut Lowering, operation: &Operation, parts: Parts) -> Result<Vec<Value>> {
    if operation.flag("input_forget", false)? {
        return Err(wrong(operation, "gates that are one (input_forget)"));
    }
    let kind = Kind { cell: Cell::Lstm, gates: &[0, 2, 3, 1], functions: &["Sigmoid", "Tanh", "Tanh"] };
    layer(lowering, operation, &kind, parts)
}

/// Weights of bytes, with inputs before gates and a scale for each direction or each gate's number; computed in floats.
fn quantized_lstm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let mut parts = given(lowering, operation)?;
    for (at, scale) in [(0, 8), (1, 10)] {
        let Some(weight) = &parts[at] else { continue };
        let mut of_weight = Vec::with_capacity(2);
        for input in [scale, scale + 1] {
            let part = lowering.input(operation, input)?;
            let shape = lowering.shape(&part)?;
            let [directions, numbers] = [shape.first().copied().unwrap_or(1), shape.get(1).copied().unwrap_or(1)];
            of_weight.push(lowering.reshape(&part, &[directions, 1, numbers])?);
        }
        let wide = lowering.dequantized(weight, &of_weight[0], Some(&of_weight[1]))?;
        parts[at] = Some(lowering.transpose(&wide, &[0, 2, 1])?);
    }
    lstm_of(lowering, operation, parts)
}

/// The weights of the inputs and of the states, and the biases of both, of all directions.
type Parts = [Option<Value>; 3];

fn given(lowering: &Lowering, operation: &Operation) -> Result<Parts> {
    Ok([lowering.optional(operation, 1)?, lowering.optional(operation, 2)?, lowering.optional(operation, 3)?])
}

/// Update, reset and new.
fn gru(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let reset = if operation.flag("linear_before_reset", false)? { Reset::Product } else { Reset::State };
    let parts = given(lowering, operation)?;
    layer(
        lowering,
        operation,
        &Kind { cell: Cell::Gru(reset), gates: &[1, 0, 2], functions: &["Sigmoid", "Tanh"] },
        parts,
    )
}

fn simple(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let is_relu = matches!(operation.attributes.get("activations"), Some(Attribute::Texts(names)) if names.iter().all(|name| name == "Relu") && !names.is_empty());
    let kind = match is_relu {
        true => Kind { cell: Cell::Simple(Nonlinearity::Relu), gates: &[0], functions: &["Relu"] },
        false => Kind { cell: Cell::Simple(Nonlinearity::Tanh), gates: &[0], functions: &["Tanh"] },
    };
    let parts = given(lowering, operation)?;
    layer(lowering, operation, &kind, parts)
}

/// What is refused by name: bounds of sums, and functions other than a cell's own.
fn check(operation: &Operation, kind: &Kind) -> Result<()> {
    if operation.float("clip", 0.0)? != 0.0 {
        return Err(wrong(operation, "sums within bounds (clip)"));
    }
    if let Some(Attribute::Texts(names)) = operation.attributes.get("activations")
        && !names.iter().zip(kind.functions.iter().cycle()).all(|(name, own)| name == own)
    {
        return Err(wrong(operation, format!("the functions {names:?}")));
    }
    Ok(())
}

/// Inputs: x, weights of the inputs, of the states, biases of both, lengths, the first states. Outputs: all states of all directions, the last ones.
fn layer(lowering: &mut Lowering, operation: &Operation, kind: &Kind, parts: Parts) -> Result<Vec<Value>> {
    check(operation, kind)?;
    let mut x = lowering.input(operation, 0)?;
    let batch_first = operation.flag("layout", false)?;
    if batch_first {
        x = lowering.transpose(&x, &[1, 0, 2])?;
    }
    let weights = parts[0].clone().ok_or_else(|| wrong(operation, "no weights"))?;
    let [directions, rows, _] = lowering.shape(&weights)?[..] else {
        return Err(wrong(operation, "weights of a layer"));
    };
    let hidden = rows / kind.gates.len();
    if size_of(operation, operation.integer("hidden_size", hidden as i64)?)? != hidden {
        return Err(wrong(operation, format!("weights of {rows} rows")));
    }
    let expected = if operation.text("direction", "forward")? == "bidirectional" { 2 } else { 1 };
    if directions != expected {
        return Err(wrong(operation, format!("weights of {directions} directions where {expected} are computed")));
    }
    let [_, batch, _] = lowering.shape(&x)?[..] else { return Err(wrong(operation, "an input without steps")) };
    let lengths = lowering.optional(operation, 4)?;
    let states = if matches!(kind.cell, Cell::Lstm) { 2 } else { 1 };
    let reverse = operation.text("direction", "forward")? == "reverse";
    let (mut all, mut last) = (Vec::new(), vec![Vec::new(); states]);
    for direction in 0..directions {
        let own = weights_of(lowering, operation, kind, &parts, direction, hidden)?;
        let mut first = Vec::with_capacity(states);
        for at in 0..states {
            first.push(match lowering.optional(operation, 5 + at)? {
                Some(given) if batch_first => lowering.narrow(&given, 1, direction, direction + 1)?,
                Some(given) => lowering.narrow(&given, 0, direction, direction + 1)?,
                None => lowering.filled(&[1, batch, hidden], lowering.data_type(&x)?, 0.0)?,
            });
        }
        let (y, finals) = lowering.layer(kind.cell, &x, &own, first, reverse || direction == 1, lengths.as_ref())?;
        let steps = lowering.shape(&y)?[0];
        all.push(lowering.reshape(&y, &[steps, 1, batch, hidden])?);
        last.iter_mut().zip(finals).for_each(|(all, state)| all.push(state));
    }
    let y = lowering.concat(&all, 1)?;
    let mut outputs = vec![if batch_first { lowering.transpose(&y, &[2, 0, 1, 3])? } else { y }];
    for finals in last {
        let state = lowering.concat(&finals, 0)?;
        outputs.push(if batch_first { lowering.transpose(&state, &[1, 0, 2])? } else { state });
    }
    Ok(outputs)
}

/// The weights of one direction, in our order of gates.
fn weights_of(
    lowering: &mut Lowering,
    operation: &Operation,
    kind: &Kind,
    parts: &Parts,
    direction: usize,
    hidden: usize,
) -> Result<Weights> {
    let mut own = Vec::with_capacity(4);
    for (at, part) in parts.iter().enumerate() {
        let Some(part) = part else { continue };
        let part = lowering.narrow(part, 0, direction, direction + 1)?;
        let part = lowering.without(&part, &[0])?;
        let gates = kind.gates.len();
        let sections = if at == 2 { vec![0, gates] } else { vec![0] };
        for first in sections {
            let mut ordered = Vec::with_capacity(gates);
            for &gate in kind.gates {
                let begin = (first + gate) * hidden;
                ordered.push(lowering.narrow(&part, 0, begin, begin + hidden)?);
            }
            own.push(lowering.concat(&ordered, 0)?);
        }
    }
    let peepholes = peepholes(lowering, operation, kind, direction, hidden)?;
    let mut own = own.into_iter();
    let (Some(input), Some(state)) = (own.next(), own.next()) else { return Err(wrong(operation, "no weights")) };
    Ok(Weights { input, state, input_bias: own.next(), state_bias: own.next(), peepholes })
}

/// What the input, forget and output gates of one direction see of LSTM's cells. ONNX has the output's before the forget gate's.
fn peepholes(
    lowering: &mut Lowering,
    operation: &Operation,
    kind: &Kind,
    direction: usize,
    hidden: usize,
) -> Result<Option<[Value; 3]>> {
    let given = if matches!(kind.cell, Cell::Lstm) { lowering.optional(operation, 7)? } else { None };
    let Some(given) = given else { return Ok(None) };
    let own = lowering.narrow(&given, 0, direction, direction + 1)?;
    let own = lowering.without(&own, &[0])?;
    let [input, output, forget] = [0, 1, 2].map(|at| lowering.narrow(&own, 0, at * hidden, (at + 1) * hidden));
    Ok(Some([input?, forget?, output?]))
}
