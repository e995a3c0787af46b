//! Writing by index: scatter, scatter_nd_add, index_add, put_along_axis, and the gradient of an embedding.

use super::gather::{expect_indices, gather_nd_shape, index, indices, numbers, rows, wrap};
use crate::entry::{Case, Entry, Input};
use crate::error::Result;
use crate::layout::{
    Dense, Number, axis_of, call, check, copy_view, expect_dense, expect_dtype, expect_inputs, expect_shape, fill_view,
};
use crate::operator::{Meta, Operator};
use crate::reference::{Array, for_each_index};
use crate::view::{View, shape_of};
use openmps_host::by_type;
use openmps_host::library::gather::{Along, Indices};
use openmps_host::library::scatter;
pub use openmps_host::library::scatter::Reduce;
use openmps_runtime::Queue;
use openmps_tile::DType::{self, I32, I64};
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

/// The first input with one value put for each index along an axis; inputs: x, index, values.
#[derive(Clone, Copy, Debug)]
pub struct PutAlongAxis {
    /// Which axis the indices are of.
    pub axis: i64,
    /// What happens where an element already has a value.
    pub reduce: Reduce,
    /// Whether the element's own value counts.
    pub include_self: bool,
}

/// The gradient of an embedding's table; inputs: index, gradient of the rows.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingGradient {
    /// How many rows the table has.
    pub rows: usize,
    /// The index whose rows do not count.
    pub padding: Option<i64>,
}

/// Copies the first input to the output, unless it is the output.
fn start(inputs: &[View], outputs: &[View]) {
    if inputs[0].address != outputs[0].address {
        copy_view(&inputs[0], &outputs[0]);
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
        check(self, inputs, outputs)?;
        expect_dense(self.name(), &outputs[0])?;
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
        check(self, inputs, outputs)?;
        expect_dense(self.name(), &outputs[0])?;
        let width = inputs[1].shape[inputs[1].rank() - 1];
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
        check(self, inputs, outputs)?;
        expect_dense(self.name(), &outputs[0])?;
        let axis = axis_of(self.name(), self.axis, inputs[0].rank())?;
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

impl Operator for PutAlongAxis {
    fn name(&self) -> &'static str {
        "put_along_axis"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 3)?;
        expect_indices(self.name(), &inputs[1])?;
        expect_dtype(self.name(), "values", inputs[2].dtype, &[inputs[0].dtype])?;
        expect_shape(self.name(), "values", &inputs[2].shape, &inputs[1].shape)?;
        axis_of(self.name(), self.axis, inputs[0].shape.len())?;
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        expect_dense(self.name(), &outputs[0])?;
        let (x, out) = (&inputs[0], outputs[0].address);
        let axis = axis_of(self.name(), self.axis, x.rank())?;
        call(queue, self.name(), || {
            let (index, values) = (Dense::of(&inputs[1]), Dense::of(&inputs[2]));
            let along = Along::new(&x.shape, &inputs[1].shape, axis, indices(&index, &inputs[1]))?;
            start(inputs, outputs);
            let (len, values, reduce) = (x.len(), values.address, self.reduce);
            // SAFETY: dense tensors of the shapes given to `along`.
            unsafe {
                if reduce == Reduce::Assign {
                    scatter::put_along(&along, x.dtype.size(), out, values);
                } else {
                    by_type!(x.dtype, T => {
                        scatter::reduce_along::<T>(&along, out, len, values, reduce, self.include_self)
                    });
                }
            }
            Ok(())
        })
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, index, values) = (&inputs[0], &inputs[1], &inputs[2]);
        let axis = axis_of(self.name(), self.axis, x.shape.len()).expect("checked by infer");
        let strides = crate::view::dense_strides(&x.shape);
        let own = |&value: &f64| if self.include_self { vec![value] } else { vec![] };
        let mut received: Vec<Vec<f64>> = x.data.iter().map(own).collect();
        for_each_index(&index.shape, |at| {
            let mut to = at.to_vec();
            to[axis] = wrap(index.at(at), x.shape[axis]);
            let offset: isize = to.iter().zip(&strides).map(|(&i, &stride)| i as isize * stride).sum();
            received[offset as usize].push(values.at(at));
        });
        let combine = |(old, all): (&f64, Vec<f64>)| match (self.reduce, all.as_slice()) {
            (_, []) => *old,
            (Reduce::Assign, [.., last]) => *last,
            (Reduce::Add, all) => all.iter().sum(),
            (Reduce::Multiply, all) => all.iter().product(),
            (Reduce::Minimum, all) => all.iter().copied().fold(f64::INFINITY, f64::min),
            (Reduce::Maximum, all) => all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            (Reduce::Mean, all) => all.iter().sum::<f64>() / all.len() as f64,
        };
        vec![Array::new(&x.shape, x.data.iter().zip(received).map(combine).collect(), x.dtype)]
    }
}

impl Operator for EmbeddingGradient {
    fn name(&self) -> &'static str {
        "embedding_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        expect_indices(self.name(), &inputs[0])?;
        let width = inputs[1].shape.last().copied().unwrap_or(1);
        expect_shape(self.name(), "gradient", &inputs[1].shape, &[&inputs[0].shape[..], &[width]].concat())?;
        Ok(vec![Meta { dtype: inputs[1].dtype, shape: shape_of(&[self.rows, width])? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        expect_dense(self.name(), &outputs[0])?;
        let padding = self.padding.filter(|padding| (0..self.rows as i64).contains(padding));
        call(queue, self.name(), || {
            let (index, gradient) = (Dense::of(&inputs[0]), Dense::of(&inputs[1]));
            fill_view(&outputs[0], Number::Int(0));
            let indices: Indices = indices(&index, &inputs[0]);
            let rows = rows(&outputs[0], 0);
            // SAFETY: dense tensors of the checked shapes.
            unsafe {
                by_type!(inputs[1].dtype, T => {
                    scatter::add_rows::<T>(outputs[0].address, gradient.address, rows, indices)?
                });
                if let Some(padding) = padding {
                    scatter::clear_numbered(outputs[0].address, rows.row, &[padding as usize]);
                }
            }
            Ok(())
        })
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let width = *inputs[1].shape.last().expect("checked by infer");
        let mut out = Array::from_fn(&[self.rows, width], inputs[1].dtype, |_| 0.0);
        for (flat, value) in inputs[1].data.iter().enumerate() {
            let row = inputs[0].data[flat / width];
            if self.padding != Some(row as i64) {
                out.data[wrap(row, self.rows) * width + flat % width] += value;
            }
        }
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
        ]
    },
    tolerance: 4.0,
};

/// For the list of operators.
pub static PUT_ALONG_AXIS: Entry = Entry {
    name: "put_along_axis",
    summary: "A tensor with one value put for each index along an axis: assigned, added, multiplied, smallest, largest.",
    // Products of bytes wrap, which the references do not.
    dtypes: &[DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64],
    cases: || {
        let reductions = [Reduce::Assign, Reduce::Add, Reduce::Multiply, Reduce::Minimum, Reduce::Maximum];
        let both = reductions.into_iter().flat_map(|reduce| [(reduce, true), (reduce, false)]);
        let case = |(reduce, include_self)| {
            let put = |axis| PutAlongAxis { axis, reduce, include_self };
            let (x, at) = (Input::new(&[3, 5]), index(&[3, 4], I64, &[0, 4, 0, 2]));
            let deep = index(&[2, 2, 3], I32, &[1, 4, 0, 2, 3]);
            [
                Case::new(put(1), vec![x, at, Input::new(&[3, 4])]),
                Case::new(put(-2), vec![Input::new(&[3, 5, 4]), deep, Input::new(&[2, 2, 3])]),
            ]
        };
        both.flat_map(case).collect()
    },
    tolerance: 4.0,
};

/// For the list of operators.
pub static EMBEDDING_GRADIENT: Entry = Entry {
    name: "embedding_gradient",
    summary: "The gradient of an embedding's table.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |padding, index: Input, gradient: &[usize]| {
            Case::new(EmbeddingGradient { rows: 7, padding }, vec![index, Input::new(gradient)])
        };
        vec![
            case(None, index(&[2, 3], I64, &[0, 6, 3]), &[2, 3, 5]),
            case(Some(3), index(&[4], I32, &[3, 6, 3, 6]), &[4, 16]),
        ]
    },
    tolerance: 4.0,
};
