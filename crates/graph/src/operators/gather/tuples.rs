//! Reading by tuples of indices: gather_nd.

use super::{expect_indices, index, indices, vendor, wrap};
use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, call, check_dense, expect_inputs};
use crate::operator::{Meta, Operator};
use crate::operators::indexed::{self, Named};
use crate::operators::scatter::ScatterNdAdd;
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{View, shape_of};
use openmps_host::native::gather;
use openmps_tile::DType::{I32, I64};
use openmps_tile::dtype;

/// Slices of the first input, one for each tuple of indices along the last axis of the second.
#[derive(Clone, Copy, Debug)]
pub struct GatherNd;

/// Refuses a tuple that names no element of these dimensions.
pub(in crate::operators) fn check_tuples(dims: &[usize], index: &View) -> std::result::Result<(), openmps_host::Error> {
    numbers(dims, &Dense::of(index), index).map(|_| ())
}

/// The shape of [`GatherNd`]'s result, and how many axes a tuple names.
pub(in crate::operators) fn gather_nd_shape(
    operator: &'static str,
    x: &Meta,
    index: &Meta,
) -> Result<(Vec<usize>, usize)> {
    expect_indices(operator, index)?;
    match index.shape.split_last() {
        Some((&width, leading)) if width <= x.shape.len() => Ok(([leading, &x.shape[width..]].concat(), width)),
        _ => {
            let expected = format!("a last dimension of at most {}", x.shape.len());
            Err(Error::Shape { operator, what: "index", got: index.shape.clone(), expected })
        }
    }
}

/// The row numbers that the tuples name.
pub(in crate::operators) fn numbers(
    dims: &[usize],
    index: &Dense,
    view: &View,
) -> std::result::Result<Vec<usize>, openmps_host::Error> {
    if dims.is_empty() {
        return Ok(vec![0; view.shape[..view.rank() - 1].iter().product()]);
    }
    gather::tuples(dims, indices(index, view))
}

impl Operator for GatherNd {
    fn name(&self) -> &'static str {
        "gather_nd"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        let (dims, _) = gather_nd_shape(self.name(), &inputs[0], &inputs[1])?;
        Ok(vec![Meta { dtype: inputs[0].dtype, shape: shape_of(&dims)? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let width = inputs[1].shape[inputs[1].rank() - 1];
        if !queue.is_host() {
            let (x, index) = (&inputs[0], &inputs[1]);
            let (named, check) = (|| Named::tuples(x, index), || check_tuples(&x.shape[..width], index));
            let vendor = || vendor::tuples(x, index, &outputs[0]);
            return indexed::read_on_device(queue, self.name(), (named, None), check, vendor, &outputs[0]);
        }
        call(queue, self.name(), || {
            let (x, index) = (Dense::of(&inputs[0]), Dense::of(&inputs[1]));
            let numbers = numbers(&inputs[0].shape[..width], &index, &inputs[1])?;
            let row = inputs[0].shape[width..].iter().product::<usize>() * inputs[0].dtype.size();
            // SAFETY: the numbers are of rows of `x`; the output holds one row for each.
            unsafe { gather::gather_numbered(x.address, outputs[0].address, row, &numbers) };
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, index, dy) = (b.inputs[0], b.inputs[1], b.dy()?);
        let zeros = b.zeros_like(x)?;
        Ok(vec![Some(b.one(ScatterNdAdd, &[zeros, index, dy])?), None])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, index) = (&inputs[0], &inputs[1]);
        let (&width, leading) = index.shape.split_last().expect("checked by infer");
        let dims = [leading, &x.shape[width..]].concat();
        vec![Array::from_fn(&dims, x.dtype, |at| {
            let (tuple, rest) = at.split_at(leading.len());
            let named = |d| wrap(index.at(&[tuple, &[d]].concat()), x.shape[d]);
            let chosen: Vec<usize> = (0..width).map(named).collect();
            x.at(&[&chosen, rest].concat())
        })]
    }
}

/// For the list of operators.
pub static GATHER_ND: Entry = Entry {
    name: "gather_nd",
    summary: "Slices, one for each tuple of indices.",
    dtypes: dtype::ALL,
    cases: || {
        let case = |dims: &[usize], index: Input| Case::new(GatherNd, vec![Input::new(dims), index]);
        vec![
            case(&[4, 5, 3], index(&[6, 2], I64, &[0, 4, 1, 2, 3, 0])),
            case(&[4, 5, 3], index(&[6, 2], I64, &[0, 4, -1, 2, 3, 0])),
            case(&[4, 5, 3], index(&[2, 2, 3], I32, &[0, 4, 1, 3, 2, -3])),
            case(&[4, 5], index(&[3, 1], I64, &[2])),
            case(&[4, 5], index(&[2, 0], I64, &[])),
        ]
    },
    tolerance: 0.0,
};
