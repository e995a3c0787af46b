//! Writing by index: scatter, scatter_nd_add, index_add; one value for each index (put_along_axis), and the gradient of an embedding.

mod along;
mod embedding;
mod vendor;

pub use along::{PUT_ALONG_AXIS, PutAlongAxis};
pub use embedding::{EMBEDDING_GRADIENT, EmbeddingGradient};

use super::copy::Copy;
use super::gather::{check_all, check_tuples, expect_indices, gather_nd_shape, index, indices, numbers, rows, wrap};
use super::indexed::{self, Named, Other};
use crate::entry::{Case, Entry, Input};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, axis_of, call, check_dense, copy_view, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::operators::gather::Gather;
use crate::operators::gather::GatherNd;
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::{Array, for_each_index};
use crate::vendor::try_vendor;
use crate::view::{View, dense_strides};
use openmps_host::by_type;
use openmps_host::native::scatter;
pub use openmps_host::native::scatter::Reduce;
use openmps_tile::DType::{I32, I64};
use openmps_tile::dtype;

/// The first input with rows replaced (or, without `overwrite`, zeroed and then added to); inputs: x, index, updates.
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    /// Whether the last of several updates stays, rather than their sum.
    pub overwrite: bool,
}

/// The first input with updates added at tuples of indices; inputs: x, index, updates.
#[derive(Clone, Copy, Debug)]
pub struct ScatterNdAdd;

/// The first input with slices added along an axis; inputs: x, index, values.
#[derive(Clone, Copy, Debug)]
pub struct IndexAdd {
    /// Which axis the indices are of.
    pub axis: i64,
}

/// Copies the first input to the output, unless it is the output.
fn start(inputs: &[View], outputs: &[View]) {
    if inputs[0].address != outputs[0].address {
        copy_view(&inputs[0], &outputs[0]);
    }
}

/// [`start`] by the device.
fn start_on_device(queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
    if inputs[0].address == outputs[0].address {
        return Ok(());
    }
    Copy.run(queue, &inputs[..1], &outputs[..1])
}

/// Values along an axis whose dimension is all of an index tensor's, or which is missing for a single index: the index's dimensions instead.
fn unfolded(values: &View, axis: usize, index: &View, rank: usize) -> Other {
    let mut strides = values.strides.to_vec();
    if values.rank() == rank {
        let step = strides[axis];
        strides.splice(axis..=axis, dense_strides(&index.shape).iter().map(|stride| stride * step));
    }
    Other { address: values.address, dtype: values.dtype, strides }
}

/// Adds values to the first input, if kernels do: whether they have.
fn add_on_device(
    queue: &Queue,
    operator: &'static str,
    named: &Named,
    inputs: &[View],
    outputs: &[View],
    values: &Other,
) -> Result<bool> {
    if !indexed::takes(queue, named, values.dtype, Reduce::Add) {
        return Ok(false);
    }
    start_on_device(queue, inputs, outputs)?;
    indexed::put(queue, operator, named, Reduce::Add, values)?;
    Ok(true)
}

impl Scatter {
    /// Whether the device has done it.
    fn on_device(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<bool> {
        let (x, index) = (&inputs[0], &inputs[1]);
        let seen = indexed::check(queue, self.name(), || check_all(index, x.shape[0]))?;
        if seen && try_vendor(queue, self.name(), || vendor::rows(self.overwrite, inputs, &outputs[0]))? {
            return Ok(true);
        }
        let named = Named::slices(&outputs[0], 0, index);
        let reduce = if self.overwrite { Reduce::Assign } else { Reduce::Add };
        if !indexed::takes(queue, &named, x.dtype, reduce) {
            return Ok(false);
        }
        start_on_device(queue, inputs, outputs)?;
        if !self.overwrite {
            indexed::fill(queue, self.name(), &named, x.dtype, reduce)?;
        }
        indexed::put(queue, self.name(), &named, reduce, &unfolded(&inputs[2], 0, index, x.rank()))?;
        Ok(true)
    }
}

impl Operator for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 3)?;
        expect_indices(self.name(), &inputs[1])?;
        expect_dtype(self.name(), "updates", inputs[2].dtype, &[inputs[0].dtype])?;
        axis_of(self.name(), 0, inputs[0].shape.len())?;
        let count: usize = inputs[1].shape.iter().product();
        let rest = &inputs[0].shape[1..];
        if !(inputs[1].shape.is_empty() && inputs[2].shape[..] == *rest) {
            expect_shape(self.name(), "updates", &inputs[2].shape, &[&[count], rest].concat())?;
        }
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        if !queue.is_host() && self.on_device(queue, inputs, outputs)? {
            return Ok(());
        }
        call(queue, self.name(), || {
            let (index, updates) = (Dense::of(&inputs[1]), Dense::of(&inputs[2]));
            let (rows, indices) = (rows(&inputs[0], 0), indices(&index, &inputs[1]));
            indices.check(rows.size)?;
            start(inputs, outputs);
            let out = outputs[0].address;
            let numbers: Vec<usize> = (0..indices.len()).map(|k| indices.wrapped(k, rows.size)).collect();
            // SAFETY: dense tensors of the checked shapes; the numbers are of rows of the output.
            unsafe {
                if self.overwrite {
                    scatter::assign_numbered(out, updates.address, rows.row, rows.row, &numbers);
                } else {
                    scatter::clear_numbered(out, rows.row, &numbers);
                    let inner = rows.row / inputs[0].dtype.size();
                    by_type!(inputs[0].dtype, T => scatter::add_numbered::<T>(out, updates.address, inner, &numbers));
                }
            }
            Ok(())
        })
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (index, updates, dy) = (b.inputs[1], b.inputs[2], b.dy()?);
        let dims = b.shape(updates);
        b.each([
            &|b| {
                let zeros = b.zeros_like(updates)?;
                b.one(Scatter { overwrite: true }, &[dy, index, zeros])
            },
            &|b| b.zeros_like(dy),
            &|b| {
                let rows = b.one(Gather { axis: 0 }, &[dy, index])?;
                b.reshape(rows, &dims)
            },
        ])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let mut out = inputs[0].clone();
        let inner: usize = out.shape[1..].iter().product();
        let chosen: Vec<usize> = inputs[1].data.iter().map(|&index| wrap(index, out.shape[0])).collect();
        if !self.overwrite {
            chosen.iter().for_each(|row| out.data[row * inner..(row + 1) * inner].fill(0.0));
        }
        for (flat, value) in inputs[2].data.iter().enumerate() {
            let element = &mut out.data[chosen[flat / inner] * inner + flat % inner];
            *element = if self.overwrite { *value } else { *element + value };
        }
        vec![out]
    }
}

impl Operator for ScatterNdAdd {
    fn name(&self) -> &'static str {
        "scatter_nd_add"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 3)?;
        let (dims, _) = gather_nd_shape(self.name(), &inputs[0], &inputs[1])?;
        expect_shape(self.name(), "updates", &inputs[2].shape, &dims)?;
        expect_dtype(self.name(), "updates", inputs[2].dtype, &[inputs[0].dtype])?;
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let width = inputs[1].shape[inputs[1].rank() - 1];
        if !queue.is_host() {
            let (x, index) = (&inputs[0], &inputs[1]);
            let seen = indexed::check(queue, self.name(), || check_tuples(&x.shape[..width], index))?;
            if seen && try_vendor(queue, self.name(), || vendor::tuples(inputs, &outputs[0]))? {
                return Ok(());
            }
            let named = Named::tuples(&outputs[0], index);
            if add_on_device(queue, self.name(), &named, inputs, outputs, &Other::of(&inputs[2]))? {
                return Ok(());
            }
        }
        call(queue, self.name(), || {
            let (index, updates) = (Dense::of(&inputs[1]), Dense::of(&inputs[2]));
            let numbers = numbers(&inputs[0].shape[..width], &index, &inputs[1])?;
            start(inputs, outputs);
            let inner = inputs[0].shape[width..].iter().product();
            // SAFETY: dense tensors of the checked shapes; the numbers are of rows of the output.
            by_type!(inputs[0].dtype, T => unsafe {
                scatter::add_numbered::<T>(outputs[0].address, updates.address, inner, &numbers)
            });
            Ok(())
        })
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (index, dy) = (b.inputs[1], b.dy()?);
        Ok(vec![Some(dy), None, Some(b.one(GatherNd, &[dy, index])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (mut out, index) = (inputs[0].clone(), &inputs[1]);
        let (&width, leading) = index.shape.split_last().expect("checked by infer");
        let inner: usize = out.shape[width..].iter().product();
        let mut flat = 0;
        for_each_index(leading, |tuple| {
            let number = (0..width)
                .fold(0, |number, d| number * out.shape[d] + wrap(index.at(&[tuple, &[d]].concat()), out.shape[d]));
            for i in 0..inner {
                out.data[number * inner + i] += inputs[2].data[flat];
                flat += 1;
            }
        });
        vec![out]
    }
}

impl Operator for IndexAdd {
    fn name(&self) -> &'static str {
        "index_add"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 3)?;
        expect_indices(self.name(), &inputs[1])?;
        expect_dtype(self.name(), "values", inputs[2].dtype, &[inputs[0].dtype])?;
        let mut dims = inputs[0].shape.clone();
        let axis = axis_of(self.name(), self.axis, dims.len())?;
        dims[axis] = inputs[1].shape.iter().product();
        expect_shape(self.name(), "values", &inputs[2].shape, &dims)?;
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let axis = axis_of(self.name(), self.axis, inputs[0].rank())?;
        if !queue.is_host() {
            let (x, index) = (&inputs[0], &inputs[1]);
            let seen = indexed::check(queue, self.name(), || check_all(index, x.shape[axis]))?;
            if seen && try_vendor(queue, self.name(), || vendor::slices(axis, inputs, &outputs[0]))? {
                return Ok(());
            }
            let (named, values) =
                (Named::slices(&outputs[0], axis, index), unfolded(&inputs[2], axis, index, x.rank()));
            if add_on_device(queue, self.name(), &named, inputs, outputs, &values)? {
                return Ok(());
            }
        }
        call(queue, self.name(), || {
            let (index, values) = (Dense::of(&inputs[1]), Dense::of(&inputs[2]));
            let (rows, indices) = (rows(&inputs[0], axis), indices(&index, &inputs[1]));
            indices.check(rows.size)?;
            start(inputs, outputs);
            // SAFETY: dense tensors of the checked shapes.
            by_type!(inputs[0].dtype, T => unsafe {
                scatter::add_rows::<T>(outputs[0].address, values.address, rows, indices)
            })
        })
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (index, dims, dy) = (b.inputs[1], b.shape(b.inputs[2]), b.dy()?);
        let slices = b.one(Gather { axis: self.axis }, &[dy, index])?;
        Ok(vec![Some(dy), None, Some(b.reshape(slices, &dims)?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (mut out, index, values) = (inputs[0].clone(), &inputs[1], &inputs[2]);
        let axis = axis_of(self.name(), self.axis, out.shape.len()).expect("checked by infer");
        let strides = crate::view::dense_strides(&out.shape);
        let mut flat = 0;
        for_each_index(&values.shape, |at| {
            let mut at = at.to_vec();
            at[axis] = wrap(index.data[at[axis]], out.shape[axis]);
            let offset: isize = at.iter().zip(&strides).map(|(&i, &stride)| i as isize * stride).sum();
            out.data[offset as usize] += values.data[flat];
            flat += 1;
        });
        vec![out]
    }
}

/// For the list of operators.
pub static SCATTER: Entry = Entry {
    name: "scatter",
    summary: "A tensor with rows replaced or summed up by index.",
    dtypes: dtype::NUMBERS,
    cases: || {
        let case = |overwrite, dims: &[usize], index: Input, updates: &[usize]| {
            Case::new(Scatter { overwrite }, vec![Input::new(dims), index, Input::new(updates)])
        };
        vec![
            case(true, &[5, 3], index(&[3], I64, &[4, 0, 2]), &[3, 3]),
            case(true, &[5], index(&[4], I32, &[1, 1, 3, 1]), &[4]),
            case(false, &[5, 3], index(&[4], I64, &[1, 1, 3]), &[4, 3]),
            case(false, &[5, 2, 3], index(&[0], I64, &[1]), &[0, 2, 3]),
        ]
    },
    tolerance: 2.0,
};

/// For the list of operators.
pub static SCATTER_ND_ADD: Entry = Entry {
    name: "scatter_nd_add",
    summary: "A tensor with updates added at tuples of indices.",
    dtypes: dtype::NUMBERS,
    cases: || {
        let case = |dims: &[usize], index: Input, updates: &[usize]| {
            Case::new(ScatterNdAdd, vec![Input::new(dims), index, Input::new(updates)])
        };
        vec![
            case(&[4, 5, 3], index(&[6, 2], I64, &[0, 4, 3, 2, 3, 0]), &[6, 3]),
            case(&[4, 5], index(&[2, 2, 2], I32, &[0, 4, 1, -3]), &[2, 2]),
        ]
    },
    tolerance: 4.0,
};

/// For the list of operators.
pub static INDEX_ADD: Entry = Entry {
    name: "index_add",
    summary: "A tensor with slices added along an axis by index.",
    dtypes: dtype::NUMBERS,
    cases: || {
        let case = |axis, dims: &[usize], index: Input, values: &[usize]| {
            Case::new(IndexAdd { axis }, vec![Input::new(dims), index, Input::new(values)])
        };
        vec![
            case(0, &[5], index(&[3], I64, &[4, 0, 4]), &[3]),
            case(1, &[2, 5, 3], index(&[4], I32, &[1, 2, 1, -1]), &[2, 4, 3]),
            case(0, &[5], index(&[7, 30], I64, &[1, 4, 0]), &[210]),
        ]
    },
    tolerance: 4.0,
};
