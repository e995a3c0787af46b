//! Axes in reverse order.

use crate::entry::{Case, Entry, Input};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, check, expect_inputs};
use crate::movement;
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_tile::dtype;

/// Reverses the axes named.
#[derive(Clone, Debug)]
pub struct Flip {
    /// Which axes.
    pub axes: Vec<i64>,
}

impl Flip {
    fn axes(&self, rank: usize) -> Result<Vec<usize>> {
        let mut axes: Vec<usize> = self.axes.iter().map(|&a| axis_of(self.name(), a, rank)).collect::<Result<_>>()?;
        axes.sort_unstable();
        axes.dedup();
        Ok(axes)
    }
}

impl Operator for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        self.axes(inputs[0].shape.len())?;
        Ok(inputs.to_vec())
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let mut from = inputs[0].clone();
        for axis in self.axes(from.rank())? {
            let size = from.shape[axis];
            from = from.narrowed(axis, size.saturating_sub(1), -1, size);
        }
        movement::run(queue, self.name(), |mover| mover.copy(&from, &outputs[0]))
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let dy = b.dy()?;
        Ok(vec![Some(b.one(self.clone(), &[dy])?)])
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let axes = self.axes(x.shape.len()).expect("checked by infer");
        vec![Array::from_fn(&x.shape, x.dtype, |index| {
            let mut index = index.to_vec();
            axes.iter().for_each(|&axis| index[axis] = x.shape[axis] - 1 - index[axis]);
            x.at(&index)
        })]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "flip",
    summary: "Axes in reverse order.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |axes: &[i64], dims: &[usize]| Case::new(Flip { axes: axes.to_vec() }, vec![Input::new(dims)]);
        vec![case(&[0], &[9]), case(&[-1], &[3, 5]), case(&[0, 2], &[3, 4, 7]), case(&[1], &[2, 0]), case(&[], &[4])]
    },
    tolerance: 0.0,
};
