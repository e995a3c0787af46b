//! Reading by index: gather (index_select), embedding, take_along_axis; gather_nd in a file of its own.

mod tuples;
pub(super) mod vendor;

pub use tuples::{GATHER_ND, GatherNd};
pub(super) use tuples::{check_tuples, gather_nd_shape, numbers};

use super::indexed::{self, Named};
use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, axis_of, call, check_dense, expect_dtype, expect_inputs};
use crate::operator::{Meta, Operator};
use crate::operators::scatter::EmbeddingGradient;
use crate::operators::scatter::IndexAdd;
use crate::operators::scatter::PutAlongAxis;
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{View, shape_of};
use openmps_host::native::gather::{self, Along, AxisSplit, Indices};
use openmps_tile::DType::{self, I32, I64};
use openmps_tile::dtype;

/// Slices of the first input along an axis, one for each index in the second: gather, index_select.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// Which axis the indices are of. It is replaced by the dimensions of the index tensor.
    pub axis: i64,
}

/// Rows of a table (second input), one for each index in the first.
#[derive(Clone, Copy, Debug)]
pub struct Embedding {
    /// The index whose rows are zeros.
    pub padding: Option<i64>,
}

/// One element for each index: `out[.., p, ..] = x[.., index[.., p, ..], ..]`.
#[derive(Clone, Copy, Debug)]
pub struct TakeAlongAxis {
    /// Which axis the indices are of.
    pub axis: i64,
    /// What an index below zero is.
    pub negative: Negative,
}

/// What an index below zero is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Negative {
    /// It counts from the end of the axis.
    FromEnd,
    /// It names nothing: labels of classes.
    Refused,
}

impl Negative {
    /// The lowest index of an axis of this size.
    pub(super) fn lowest(self, size: usize) -> i64 {
        match self {
            Negative::FromEnd => -(size as i64),
            Negative::Refused => 0,
        }
    }
}

pub(super) fn expect_indices(operator: &'static str, meta: &Meta) -> Result<()> {
    expect_dtype(operator, "index", meta.dtype, &[I32, I64])
}

/// The index tensor in dense form. It borrows the tensor or the copy: keep `dense` while it is used.
pub(super) fn indices<'a>(dense: &'a Dense, view: &View) -> Indices<'a> {
    // SAFETY: a dense index tensor of that many elements; `expect_indices` has passed its type.
    unsafe { Indices::at(dense.address, view.len(), view.dtype == I64) }
}

/// Refuses an index outside of an axis of this size.
pub(super) fn check_all(index: &View, size: usize) -> std::result::Result<(), openmps_host::Error> {
    indices(&Dense::of(index), index).check(size)
}

/// As [`check_all`], where no index counts from the end.
pub(super) fn check_rows(index: &View, size: usize) -> std::result::Result<(), openmps_host::Error> {
    indices(&Dense::of(index), index).check_from(0, size)
}

/// Refuses index dimensions beyond those of the tensor, but along the axis.
pub(super) fn expect_along(operator: &'static str, x: &[usize], index: &[usize], axis: usize) -> Result<()> {
    if Along::check(x, index, axis).is_ok() {
        return Ok(());
    }
    let expected = format!("at most {x:?} but along axis {axis}");
    Err(Error::Shape { operator, what: "index", got: shape_of(index)?, expected })
}

pub(super) fn rows(view: &View, axis: usize) -> AxisSplit {
    let lines = crate::layout::lines(&view.shape, axis);
    AxisSplit { outer: lines.outer, size: lines.size, row: lines.inner * view.dtype.size() }
}

/// A reference's index, counted from the end when negative.
pub(super) fn wrap(index: f64, size: usize) -> usize {
    (if index < 0.0 { index + size as f64 } else { index }) as usize
}

impl Operator for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        expect_indices(self.name(), &inputs[1])?;
        let x = &inputs[0].shape;
        let axis = axis_of(self.name(), self.axis, x.len())?;
        let dims = [&x[..axis], &inputs[1].shape, &x[axis + 1..]].concat();
        Ok(vec![Meta { dtype: inputs[0].dtype, shape: shape_of(&dims)? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let axis = axis_of(self.name(), self.axis, inputs[0].rank())?;
        if !queue.is_host() {
            let (x, index) = (&inputs[0], &inputs[1]);
            let (named, check) = (|| Named::slices(x, axis, index), || check_all(index, x.shape[axis]));
            let vendor = || vendor::slices(x, axis, index, &outputs[0]);
            return indexed::read_on_device(queue, self.name(), (named, None), check, vendor, &outputs[0]);
        }
        call(queue, self.name(), || {
            let (x, index) = (Dense::of(&inputs[0]), Dense::of(&inputs[1]));
            // SAFETY: dense tensors of the checked shapes.
            unsafe {
                gather::gather(x.address, outputs[0].address, rows(&inputs[0], axis), indices(&index, &inputs[1]))
            }
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, index, dy) = (b.inputs[0], b.inputs[1], b.dy()?);
        let axis = b.axis(self, self.axis, x)?;
        let mut dims = b.shape(x);
        dims[axis] = b.shape(index).iter().product();
        let (zeros, values) = (b.zeros_like(x)?, b.reshape(dy, &dims)?);
        Ok(vec![Some(b.one(IndexAdd { axis: self.axis }, &[zeros, index, values])?), None])
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, index) = (&inputs[0], &inputs[1]);
        let axis = axis_of(self.name(), self.axis, x.shape.len()).expect("checked by infer");
        let rank = index.shape.len();
        let dims = [&x.shape[..axis], &index.shape, &x.shape[axis + 1..]].concat();
        vec![Array::from_fn(&dims, x.dtype, |at| {
            let chosen = wrap(index.at(&at[axis..axis + rank]), x.shape[axis]);
            x.at(&[&at[..axis], &[chosen], &at[axis + rank..]].concat())
        })]
    }
}

impl Operator for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        expect_indices(self.name(), &inputs[0])?;
        if inputs[1].shape.len() != 2 {
            let expected = "two dimensions".to_owned();
            return Err(Error::Shape { operator: self.name(), what: "table", got: inputs[1].shape.clone(), expected });
        }
        let dims = [&inputs[0].shape[..], &inputs[1].shape[1..]].concat();
        Ok(vec![Meta { dtype: inputs[1].dtype, shape: shape_of(&dims)? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        if !queue.is_host() {
            let (index, table) = (&inputs[0], &inputs[1]);
            let (named, check) = (|| Named::slices(table, 0, index), || check_rows(index, table.shape[0]));
            // MPSGraph has no padding.
            let vendor = || self.padding.is_none().then(|| vendor::slices(table, 0, index, &outputs[0])).flatten();
            return indexed::read_on_device(queue, self.name(), (named, self.padding), check, vendor, &outputs[0]);
        }
        call(queue, self.name(), || {
            let (index, table) = (Dense::of(&inputs[0]), Dense::of(&inputs[1]));
            let AxisSplit { size, row, .. } = rows(&inputs[1], 0);
            let indices = indices(&index, &inputs[0]);
            // SAFETY: dense tensors of the checked shapes.
            unsafe { gather::embedding(table.address, outputs[0].address, (size, row), indices, self.padding) }
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (index, rows, dy) = (b.inputs[0], b.shape(b.inputs[1])[0], b.dy()?);
        Ok(vec![None, Some(b.one(EmbeddingGradient { rows, padding: self.padding }, &[index, dy])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (index, table) = (&inputs[0], &inputs[1]);
        let dims = [&index.shape[..], &table.shape[1..]].concat();
        vec![Array::from_fn(&dims, table.dtype, |at| {
            let (last, leading) = at.split_last().expect("one dimension at least");
            let chosen = index.at(leading);
            let padded = self.padding == Some(chosen as i64);
            if padded { 0.0 } else { table.at(&[wrap(chosen, table.shape[0]), *last]) }
        })]
    }
}

impl Operator for TakeAlongAxis {
    fn name(&self) -> &'static str {
        "take_along_axis"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        expect_indices(self.name(), &inputs[1])?;
        let axis = axis_of(self.name(), self.axis, inputs[0].shape.len())?;
        expect_along(self.name(), &inputs[0].shape, &inputs[1].shape, axis)?;
        Ok(vec![Meta { dtype: inputs[0].dtype, shape: inputs[1].shape.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let axis = axis_of(self.name(), self.axis, inputs[0].rank())?;
        let lowest = self.negative.lowest(inputs[0].shape[axis]);
        if !queue.is_host() {
            let (x, index) = (&inputs[0], &inputs[1]);
            let check = || indices(&Dense::of(index), index).check_from(lowest, x.shape[axis]);
            let (named, vendor) =
                (|| Named::elements(x, axis, index), || vendor::elements(x, axis, index, &outputs[0]));
            return indexed::read_on_device(queue, self.name(), (named, None), check, vendor, &outputs[0]);
        }
        call(queue, self.name(), || {
            let (x, index) = (Dense::of(&inputs[0]), Dense::of(&inputs[1]));
            let indices = indices(&index, &inputs[1]);
            let along = Along::new(&inputs[0].shape, &inputs[1].shape, axis, (indices, lowest))?;
            // SAFETY: dense tensors of the shapes given to `along`.
            unsafe { along.take(inputs[0].dtype.size(), x.address, outputs[0].address) };
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (index, dy) = (b.inputs[1], b.dy()?);
        let zeros = b.zeros_like(b.inputs[0])?;
        Ok(vec![Some(b.one(PutAlongAxis::sum(self.axis), &[zeros, index, dy])?), None])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, index) = (&inputs[0], &inputs[1]);
        let axis = axis_of(self.name(), self.axis, x.shape.len()).expect("checked by infer");
        vec![Array::from_fn(&index.shape, x.dtype, |at| {
            let mut from = at.to_vec();
            from[axis] = wrap(index.at(at), x.shape[axis]);
            x.at(&from)
        })]
    }
}

/// An index input with these values, repeated.
pub(super) fn index(dims: &[usize], dtype: DType, values: &[i64]) -> Input {
    Input::of(dims, Values::Given(values.iter().map(|&value| value as f64).collect())).typed(dtype)
}

/// For the list of operators.
pub static GATHER: Entry = Entry {
    name: "gather",
    summary: "Slices along an axis, one for each index.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |axis, dims: &[usize], index: Input| Case::new(Gather { axis }, vec![Input::new(dims), index]);
        vec![
            case(1, &[3, 5], index(&[2, 3], I64, &[0, 4, 1, 2])),
            case(0, &[5], index(&[7], I64, &[0, 4, -1, 2])),
            case(0, &[5, 3], index(&[], I32, &[3])),
            case(1, &[3, 5, 4], index(&[6], I32, &[4, -5, 0])),
            case(-1, &[3, 5, 4], index(&[2, 3], I64, &[3, 1])),
            case(0, &[5, 3], index(&[0], I64, &[0])),
        ]
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static EMBEDDING: Entry = Entry {
    name: "embedding",
    summary: "Rows of a table, one for each index, with zeros for a padding index.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case =
            |padding, index: Input, table: &[usize]| Case::new(Embedding { padding }, vec![index, Input::new(table)]);
        vec![
            case(None, index(&[2, 3], I64, &[0, 6, 3]), &[7, 5]),
            case(Some(3), index(&[2, 3], I32, &[0, 6, 3]), &[7, 16]),
            case(None, index(&[0], I64, &[0]), &[7, 1]),
        ]
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static TAKE_ALONG_AXIS: Entry = Entry {
    name: "take_along_axis",
    summary: "One element for each index, along an axis.",
    dtypes: dtype::ALL,
    cases: || {
        let case = |axis, dims: &[usize], index: Input| {
            Case::new(TakeAlongAxis { axis, negative: Negative::FromEnd }, vec![Input::new(dims), index])
        };
        vec![
            case(1, &[2, 5], index(&[2, 3], I64, &[4, 0, 3])),
            case(0, &[5], index(&[3], I64, &[4, -5])),
            case(1, &[3, 5], index(&[3, 7], I32, &[0, 4, 2, -1])),
            case(-2, &[3, 5, 4], index(&[2, 3, 4], I64, &[1, 4, 0, 2, 3])),
            case(0, &[3, 5, 4], index(&[9, 2, 3], I64, &[1, 0, 2])),
        ]
    },
    tolerance: 0.0,
};
