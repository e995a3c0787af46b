//! The lower or upper triangle of matrices: tril, triu.

mod tiles;

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{call, check_dense, expect_inputs, takes_native};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_host::native::triangle::triangle;
use openmps_tile::dtype;

/// Zeroes what is on the other side of a diagonal of the last two dimensions.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    /// Which diagonal: 0 is the main one, positive ones lie above it.
    pub diagonal: i64,
    /// Keeps the lower side rather than the upper one; the diagonal itself is kept.
    pub lower: bool,
}

impl Operator for Triangle {
    fn name(&self) -> &'static str {
        if self.lower { "tril" } else { "triu" }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        if inputs[0].shape.len() < 2 {
            let expected = "at least two dimensions".to_owned();
            return Err(Error::Shape { operator: self.name(), what: "input", got: inputs[0].shape.clone(), expected });
        }
        Ok(inputs.to_vec())
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let x = &inputs[0];
        if !takes_native(queue, true) {
            return tiles::run(self, queue, x, &outputs[0]);
        }
        let leading = x.rank() - 2;
        let (rows, columns) = (x.shape[leading], x.shape[leading + 1]);
        let matrix = |number: usize| {
            let (mut rest, mut offset) = (number, 0);
            for d in (0..leading).rev() {
                offset += (rest % x.shape[d]) as isize * x.strides[d];
                rest /= x.shape[d];
            }
            x.address.wrapping_add_signed(offset * x.dtype.size() as isize)
        };
        call(queue, self.name(), || {
            if x.is_empty() {
                return Ok(());
            }
            let size = (x.len() / (rows * columns), rows, columns);
            let (strides, side) = ((x.strides[leading], x.strides[leading + 1]), (self.diagonal, self.lower));
            // SAFETY: a view and a dense output of one shape.
            unsafe { triangle(x.dtype.size(), size, matrix, strides, outputs[0].address, side) };
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let dy = b.dy()?;
        Ok(vec![Some(b.one(*self, &[dy])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        vec![Array::from_fn(&x.shape, x.dtype, |index| {
            let distance = index[index.len() - 1] as i64 - index[index.len() - 2] as i64;
            let kept = if self.lower { distance <= self.diagonal } else { distance >= self.diagonal };
            if kept { x.at(index) } else { 0.0 }
        })]
    }
}

fn cases(lower: bool) -> Vec<Case> {
    let case = |diagonal, dims: &[usize]| Case::new(Triangle { diagonal, lower }, vec![Input::new(dims)]);
    let mut cases =
        vec![case(0, &[5, 5]), case(-1, &[2, 3, 7]), case(2, &[7, 3]), case(-9, &[2, 2, 4, 4]), case(0, &[0, 3])];
    cases.push(Case::new(Triangle { diagonal: 0, lower }, vec![Input::of(&[6, 6], Values::Special)]));
    cases
}

/// For the list of operators.
pub static TRIL: Entry = Entry {
    name: "tril",
    summary: "The lower triangle of matrices.",
    dtypes: dtype::ALL,
    cases: || cases(true),
    tolerance: 0.0,
};

/// For the list of operators.
pub static TRIU: Entry = Entry {
    name: "triu",
    summary: "The upper triangle of matrices.",
    dtypes: dtype::ALL,
    cases: || cases(false),
    tolerance: 0.0,
};
