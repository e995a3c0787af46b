//! The dimensions in another order.

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients, Recorder};
use crate::layout::{axis_of, check, expect_inputs};
use crate::movement;
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_tile::dtype;
use std::sync::Arc;

/// Dimension `d` of the output is dimension `axes[d]` of the input.
#[derive(Clone, Debug)]
pub struct Transpose {
    /// Each of the input's axes once; negative ones count from the end.
    pub axes: Vec<i64>,
}

impl Transpose {
    fn axes(&self, rank: usize) -> Result<Vec<usize>> {
        let axes: Vec<usize> = self.axes.iter().map(|&a| axis_of(self.name(), a, rank)).collect::<Result<_>>()?;
        let complete = axes.len() == rank && (0..rank).all(|axis| axes.contains(&axis));
        if !complete {
            let (got, expected) = (format!("{:?}", self.axes), format!("each of {rank} axes once"));
            return Err(Error::Attribute { operator: self.name(), attribute: "axes", got, expected });
        }
        Ok(axes)
    }

    /// The transpose that undoes this one.
    pub fn inverse(&self) -> Result<Transpose> {
        let axes = self.axes(self.axes.len())?;
        let mut inverse = vec![0; axes.len()];
        for (to, from) in axes.into_iter().enumerate() {
            inverse[from] = to as i64;
        }
        Ok(Transpose { axes: inverse })
    }
}

impl Operator for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let shape = &inputs[0].shape;
        let shape = self.axes(shape.len())?.into_iter().map(|axis| shape[axis]).collect();
        Ok(vec![Meta { dtype: inputs[0].dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let from = inputs[0].permuted(&self.axes(inputs[0].rank())?);
        movement::run(queue, self.name(), |mover| mover.copy(&from, &outputs[0]))
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let dy = b.dy()?;
        let mut axes = vec![0; self.axes.len()];
        for (to, &from) in self.axes.iter().enumerate() {
            axes[axis_of(self.name(), from, self.axes.len())?] = to as i64;
        }
        Ok(vec![Some(b.record(Arc::new(Transpose { axes }), &[dy])?[0])])
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let axes = self.axes(x.shape.len()).expect("checked by infer");
        let dims: Vec<usize> = axes.iter().map(|&axis| x.shape[axis]).collect();
        vec![Array::from_fn(&dims, x.dtype, |index| {
            let mut from = vec![0; index.len()];
            axes.iter().zip(index).for_each(|(&axis, &i)| from[axis] = i);
            x.at(&from)
        })]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "transpose",
    summary: "The dimensions in another order.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |dims: &[usize], axes: &[i64]| Case::new(Transpose { axes: axes.to_vec() }, vec![Input::new(dims)]);
        vec![
            case(&[], &[]),
            case(&[3], &[0]),
            case(&[5, 0], &[1, 0]),
            case(&[37, 65], &[1, 0]),
            case(&[2, 17, 19], &[0, -1, 1]),
            case(&[3, 5, 4, 7], &[0, 2, 1, 3]),
            case(&[3, 5, 4, 7], &[3, 2, 1, 0]),
            case(&[2, 3, 4, 5, 6], &[2, -1, 0, 3, 1]),
        ]
    },
    tolerance: 0.0,
};
