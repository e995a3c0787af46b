//! Rotary position embedding: pairs of elements turned by an angle that depends on their position.

mod tiles;

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients, Node};
use crate::layout::{call, check_dense, expect_dtype, expect_inputs, takes_native};
use crate::operator::{Meta, Operator};
use crate::operators::slice::{Range, Slice};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{Strides, View};
use openmps_host::native::memory::Memory;
use openmps_host::native::rope as native;
use openmps_tile::dtype;

/// `(x cos - y sin, x sin + y cos)` for every pair (x, y) of a row.
///
/// Inputs: x [batch, heads, rows, size], cosines and sines [rows, size / 2], or [batch, rows, size / 2] where the batches have positions of
/// their own. The output is dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rope {
    /// Whether a pair is two neighbours (GPT-J); otherwise one element of each half of the row (GPT-NeoX, Llama).
    pub interleaved: bool,
    /// Whether the angles are turned back, which is also the gradient.
    pub inverse: bool,
}

impl Rope {
    /// The first and the second elements of all pairs.
    fn sides(&self, b: &mut Backward<'_>, x: Node) -> Result<[Node; 2]> {
        let size = b.shape(x)[3] as i64;
        let (starts, ends, step) = match self.interleaved {
            true => ([0, 1], [size, size], 2),
            false => ([0, size / 2], [size / 2, size], 1),
        };
        let part = |b: &mut Backward<'_>, side: usize| {
            let range = Range { axis: 3, start: starts[side], end: ends[side], step };
            b.one(Slice { ranges: vec![range] }, &[x])
        };
        Ok([part(b, 0)?, part(b, 1)?])
    }
}

/// The sum over the heads, and over the batch where the angles are shared by it.
fn over_heads(b: &mut Backward<'_>, x: Node, angles: Node) -> Result<Node> {
    let (sum, dims) = (b.sum(x, &[1], false)?, b.shape(angles));
    b.sum_to(sum, &dims)
}

impl Operator for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let operator = self.name();
        expect_inputs(operator, inputs, 3)?;
        let x = &inputs[0];
        expect_dtype(operator, "x", x.dtype, dtype::FLOATS)?;
        if x.shape.len() != 4 || !x.shape[3].is_multiple_of(2) {
            let expected = "4 dimensions, the last one even".to_owned();
            return Err(Error::Shape { operator, what: "x", got: x.shape.clone(), expected });
        }
        let (shared, own) = ([x.shape[2], x.shape[3] / 2], [x.shape[0], x.shape[2], x.shape[3] / 2]);
        for (input, what) in inputs[1..].iter().zip(["cosines", "sines"]) {
            expect_dtype(operator, what, input.dtype, &[x.dtype])?;
            if *input.shape != shared[..] && *input.shape != own[..] {
                let expected = format!("{shared:?} or {own:?}");
                return Err(Error::Shape { operator, what, got: input.shape.clone(), expected });
            }
        }
        Ok(vec![x.clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let x = &inputs[0];
        if x.is_empty() {
            return Ok(());
        }
        let [batch, heads, rows, size] = [0, 1, 2, 3].map(|d| x.shape[d]);
        let sizes =
            native::Rope { batch, heads, rows, pairs: size / 2, interleaved: self.interleaved, inverse: self.inverse };
        let strides = [1, 2].map(|i| -> Strides {
            let own = &inputs[i].strides;
            if own.len() == 3 { own.clone() } else { [0, own[0], own[1]].into_iter().collect() }
        });
        if !takes_native(queue, true) {
            return tiles::run(queue, &sizes, inputs, &strides, &outputs[0]);
        }
        let angles = [1, 2].map(|i| Memory::new(inputs[i].address, &strides[i - 1]));
        let memory = Memory::new(x.address, &x.strides);
        call(queue, self.name(), || {
            // SAFETY: views name live memory of the checked shapes; the output is the caller's own and dense.
            unsafe { native::rope(&sizes, x.dtype, memory, angles, outputs[0].address) };
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let ([x, cosines, sines], dy) = ([b.inputs[0], b.inputs[1], b.inputs[2]], b.dy()?);
        b.each([
            &|b| b.one(Rope { inverse: !self.inverse, ..*self }, &[dy, cosines, sines]),
            &|b| {
                let ([x, other_x], [dy, other_dy]) = (self.sides(b, x)?, self.sides(b, dy)?);
                let (products, others) = (b.multiply(dy, x)?, b.multiply(other_dy, other_x)?);
                let both = b.add(products, others)?;
                over_heads(b, both, cosines)
            },
            &|b| {
                let ([x, other_x], [dy, other_dy]) = (self.sides(b, x)?, self.sides(b, dy)?);
                let (products, others) = (b.multiply(other_dy, x)?, b.multiply(dy, other_x)?);
                let (from, less) = if self.inverse { (others, products) } else { (products, others) };
                let both = b.subtract(from, less)?;
                over_heads(b, both, sines)
            },
        ])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let pairs = x.shape[3] / 2;
        vec![Array::from_fn(&x.shape, x.dtype, |at| {
            let (pair, is_first) = match self.interleaved {
                true => (at[3] / 2, at[3] % 2 == 0),
                false => (at[3] % pairs, at[3] < pairs),
            };
            let place = |first: bool| match (self.interleaved, first) {
                (true, first) => 2 * pair + usize::from(!first),
                (false, first) => pair + if first { 0 } else { pairs },
            };
            let element = |first: bool| x.at(&[at[0], at[1], at[2], place(first)]);
            let angle = |table: &Array| match table.shape.len() {
                2 => table.at(&[at[2], pair]),
                _ => table.at(&[at[0], at[2], pair]),
            };
            let (cos, sin) = (angle(&inputs[1]), angle(&inputs[2]) * if self.inverse { -1.0 } else { 1.0 });
            if is_first {
                element(true) * cos - element(false) * sin
            } else {
                element(true) * sin + element(false) * cos
            }
        })]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "rope",
    summary: "Pairs of elements turned by the angles of their positions (rotary embedding).",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |interleaved, inverse, x: &[usize], angles: &[usize]| {
            let inputs = vec![Input::new(x), Input::new(angles), Input::new(angles)];
            Case::new(Rope { interleaved, inverse }, inputs)
        };
        let mut cases = Vec::new();
        for (interleaved, inverse) in [(false, false), (false, true), (true, false), (true, true)] {
            cases.extend([
                case(interleaved, inverse, &[1, 1, 1, 2], &[1, 1]),
                case(interleaved, inverse, &[2, 3, 5, 14], &[5, 7]),
                case(interleaved, inverse, &[2, 3, 5, 64], &[2, 5, 32]),
                case(interleaved, inverse, &[0, 3, 5, 4], &[5, 2]),
            ]);
        }
        cases
    },
    tolerance: 4.0,
};
