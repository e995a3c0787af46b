//! A copy of a tensor into any layout: contiguous, assign, strided_copy.

use crate::entry::{Case, Entry, Input, Values};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::{check, expect_inputs};
use crate::movement;
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_tile::dtype;

/// The same elements. The output may have any strides, so this also writes into views.
#[derive(Clone, Copy, Debug)]
pub struct Copy;

impl Operator for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        Ok(inputs.to_vec())
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        movement::run(queue, self.name(), |mover| mover.copy(&inputs[0], &outputs[0]))
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let dy = b.dy()?;
        Ok(vec![Some(dy)])
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        inputs.to_vec()
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "copy",
    summary: "The same elements in another layout.",
    dtypes: dtype::EVERY,
    cases: || {
        let shapes: [&[usize]; 8] = [&[], &[1], &[0, 4], &[17], &[5, 7], &[33, 65], &[2, 3, 4, 5], &[3, 1, 9, 2, 2]];
        let mut cases: Vec<Case> = shapes.map(|dims| Case::new(Copy, vec![Input::new(dims)])).into();
        cases.push(Case::new(Copy, vec![Input::of(&[4, 9], Values::Special)]));
        cases
    },
    tolerance: 0.0,
};
