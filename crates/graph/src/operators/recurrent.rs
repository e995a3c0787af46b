//! A layer of a recurrent network in one direction, all steps in one call. Paddle's networks take it on the CPU; on GPUs they are formulas of tiles.

mod cases;
mod reference;

use crate::error::Result;
use crate::layout::{Dense, call, check, expect_dense, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_host::native::memory::{slice, slice_mut};
pub use openmps_host::native::recurrent::Cell;
use openmps_host::native::recurrent::{self as native, Layer};
use openmps_tile::DType;

pub use cases::{ENTRY, GRADIENT};

/// All steps of a layer.
///
/// Inputs: products of the inputs with their bias [steps, batch, gates], the hidden state's weight [gates, hidden] and bias (gates), the hidden state before the
/// first step [batch, hidden], of LSTM the cells before it, and the lengths of sequences, if they have any. Outputs: the hidden state after each step; of LSTM
/// and GRU the gates after their functions, and LSTM's cells or what GRU's reset gate multiplies. Where a sequence has ended its state stays and its gates are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrent {
    /// What happens in one step.
    pub cell: Cell,
    /// From the last step to the first.
    pub reverse: bool,
    /// Whether the sequences have lengths of their own, int32.
    pub lengths: bool,
}

/// The gradients of [`Recurrent`] by its products and first states.
///
/// Inputs: the gradient of each step's hidden state, which ends with its sequence, those of the states after the last step (of LSTM also the cells'), the
/// hidden state's weight, the states before the first step, what the forward pass has given, and the lengths. Outputs: the gradients of the inputs' products, of GRU
/// also those of the hidden state's products, and of the states before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrentGradient(pub Recurrent);

impl Recurrent {
    fn layer(&self, hidden: &View) -> Layer {
        let [steps, batch, hidden] = [0, 1, 2].map(|axis| hidden.shape[axis]);
        Layer { cell: self.cell, reverse: self.reverse, steps, batch, hidden }
    }

    fn is_lstm(&self) -> bool {
        self.cell == Cell::Lstm
    }

    /// Whether the forward pass gives gates.
    fn keeps_gates(&self) -> bool {
        self.cell.gates() > 1
    }

    fn parts(&self) -> &'static [Part] {
        use Part::{Bias, Gates, State, Weight};
        if self.is_lstm() { &[Gates, Weight, Bias, State, State] } else { &[Gates, Weight, Bias, State] }
    }

    fn gradient_parts(&self) -> &'static [Part] {
        use Part::{Gates, State, Steps, Weight};
        match self.cell {
            Cell::Lstm => &[Steps, State, State, Weight, State, State, Steps, Gates, Steps],
            Cell::Gru => &[Steps, State, Weight, State, Steps, Gates, Steps],
            Cell::Tanh | Cell::Relu => &[Steps, State, Weight, State, Steps],
        }
    }

    /// Checks the inputs against the shapes of a state of each step, of the gates, of one state, of the weight, of the bias.
    fn expect(&self, operator: &'static str, inputs: &[Meta], parts: &[Part], sizes: [usize; 3]) -> Result<()> {
        expect_inputs(operator, inputs, parts.len() + usize::from(self.lengths))?;
        for (input, part) in inputs.iter().zip(parts) {
            expect_dtype(operator, part.name(), input.dtype, &[DType::F32])?;
            expect_shape(operator, part.name(), &input.shape, &part.dims(self.cell, sizes))?;
        }
        if self.lengths {
            let lengths = &inputs[parts.len()];
            expect_dtype(operator, "lengths", lengths.dtype, &[DType::I32])?;
            expect_shape(operator, "lengths", &lengths.shape, &[sizes[1]])?;
        }
        Ok(())
    }
}

/// What an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Gates,
    Steps,
    State,
    Weight,
    Bias,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Gates => "products or gates",
            Part::Steps => "states of all steps",
            Part::State => "state",
            Part::Weight => "weight",
            Part::Bias => "bias",
        }
    }

    /// Its dimensions where a layer has these steps, sequences and numbers of a state.
    fn dims(self, cell: Cell, [steps, batch, hidden]: [usize; 3]) -> Vec<usize> {
        let gates = cell.gates() * hidden;
        match self {
            Part::Gates => vec![steps, batch, gates],
            Part::Steps => vec![steps, batch, hidden],
            Part::State => vec![batch, hidden],
            Part::Weight => vec![gates, hidden],
            Part::Bias => vec![gates],
        }
    }

    fn meta(self, cell: Cell, sizes: [usize; 3]) -> Meta {
        Meta { dtype: DType::F32, shape: self.dims(cell, sizes).into_iter().collect() }
    }
}

/// Dense operands by their number.
struct Operands(Vec<(Dense, usize)>);

impl Operands {
    fn of(views: &[View]) -> Operands {
        Operands(views.iter().map(|view| (Dense::of(view), view.len())).collect())
    }

    /// The numbers of an operand; nothing where the layer has none.
    ///
    /// # Safety
    /// They are of type `T`, and their memory lives as long as the slice.
    unsafe fn get<T>(&self, number: Option<usize>) -> &[T] {
        match number {
            // SAFETY: the caller's promise.
            Some(number) => unsafe { slice(self.0[number].0.address, self.0[number].1) },
            None => &[],
        }
    }
}

/// A dense output; nothing where there is none.
///
/// # Safety
/// As [`slice_mut`], of float32.
unsafe fn output<'a>(outputs: &[View], number: Option<usize>) -> &'a mut [f32] {
    match number {
        // SAFETY: the caller's promise.
        Some(number) => unsafe { slice_mut(outputs[number].address, outputs[number].len()) },
        None => &mut [],
    }
}

impl Operator for Recurrent {
    fn name(&self) -> &'static str {
        "recurrent"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        use Part::{Gates, Steps};
        let parts = self.parts();
        let sizes = sizes_of(self.name(), inputs, 0, 1)?;
        self.expect(self.name(), inputs, parts, sizes)?;
        let outputs: &[Part] = if self.keeps_gates() { &[Steps, Gates, Steps] } else { &[Steps] };
        Ok(outputs.iter().map(|part| part.meta(self.cell, sizes)).collect())
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        outputs.iter().try_for_each(|output| expect_dense(self.name(), output))?;
        let layer = self.layer(&outputs[0]);
        let last = inputs.len() - 1;
        let given = |is: bool, number: usize| is.then_some(number);
        call(queue, self.name(), || {
            let operands = Operands::of(inputs);
            // SAFETY: views of the checked shapes and types, which the queue's owner vouches for; outputs are dense and apart.
            unsafe {
                let forward = native::Forward {
                    products: operands.get(Some(0)),
                    weight: operands.get(Some(1)),
                    bias: operands.get(Some(2)),
                    hidden_before: operands.get(Some(3)),
                    cells_before: operands.get(given(self.is_lstm(), 4)),
                    lengths: self.lengths.then(|| operands.get(Some(last))),
                    hidden: output(outputs, Some(0)),
                    gates: output(outputs, given(self.keeps_gates(), 1)),
                    cells: output(outputs, given(self.keeps_gates(), 2)),
                };
                native::forward(&layer, forward)
            }
        })
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        reference::forward(self, inputs)
    }
}

impl Operator for RecurrentGradient {
    fn name(&self) -> &'static str {
        "recurrent_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        use Part::{Gates, State};
        let (parts, outputs) = (
            self.0.gradient_parts(),
            match self.0.cell {
                Cell::Lstm => &[Gates, State, State][..],
                Cell::Gru => &[Gates, Gates, State],
                Cell::Tanh | Cell::Relu => &[Gates, State],
            },
        );
        let sizes = sizes_of(self.name(), inputs, 0, if self.0.is_lstm() { 3 } else { 2 })?;
        self.0.expect(self.name(), inputs, parts, sizes)?;
        Ok(outputs.iter().map(|part| part.meta(self.0.cell, sizes)).collect())
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        outputs.iter().try_for_each(|output| expect_dense(self.name(), output))?;
        let (is_lstm, is_gru, keeps_gates) = (self.0.is_lstm(), self.0.cell == Cell::Gru, self.0.keeps_gates());
        let (layer, last) = (self.0.layer(&inputs[0]), inputs.len() - 1);
        let given = |is: bool, number: usize| is.then_some(number);
        // One state, or two.
        let states = 1 + usize::from(is_lstm);
        let (weight, before, forward) = (1 + states, 2 + states, 2 + 2 * states);
        let of_hidden = 1 + usize::from(is_gru);
        call(queue, self.name(), || {
            let operands = Operands::of(inputs);
            // SAFETY: views of the checked shapes and types, which the queue's owner vouches for; outputs are dense and apart.
            unsafe {
                let hidden = output(outputs, Some(of_hidden));
                hidden.copy_from_slice(operands.get(Some(1)));
                let cells = output(outputs, given(is_lstm, of_hidden + 1));
                cells.copy_from_slice(operands.get(given(is_lstm, 2)));
                let backward = native::Backward {
                    upstream: operands.get(Some(0)),
                    weight: operands.get(Some(weight)),
                    hidden_before: operands.get(Some(before)),
                    cells_before: operands.get(given(is_lstm, before + 1)),
                    lengths: self.0.lengths.then(|| operands.get(Some(last))),
                    hidden: operands.get(Some(forward)),
                    gates: operands.get(given(keeps_gates, forward + 1)),
                    cells: operands.get(given(keeps_gates, forward + 2)),
                    of_products: output(outputs, Some(0)),
                    of_hidden_products: output(outputs, given(is_gru, 1)),
                    of_hidden: hidden,
                    of_cells: cells,
                };
                native::backward(&layer, backward)
            }
        })
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        reference::backward(&self.0, inputs)
    }
}

/// Steps, sequences and numbers of a state: by a tensor of all steps and the weight.
fn sizes_of(operator: &'static str, inputs: &[Meta], steps: usize, weight: usize) -> Result<[usize; 3]> {
    let rank = |number: usize, rank: usize| match inputs.get(number) {
        Some(input) if input.shape.len() == rank => Ok(&input.shape),
        _ => Err(crate::Error::Attribute {
            operator,
            attribute: "inputs",
            got: format!("{inputs:?}"),
            expected: format!("input {number} with {rank} dimensions"),
        }),
    };
    let (steps, weight) = (rank(steps, 3)?, rank(weight, 2)?);
    Ok([steps[0], steps[1], weight[1]])
}
