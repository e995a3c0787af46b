//! Order along an axis: sort (argsort), top_k, kth_value. NaN is above every number; equal elements keep their order.

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, axis_of, call, check, expect_dense, expect_inputs, lines};
use crate::operator::{Meta, Operator};
use crate::operators::scatter::PutAlongAxis;
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::{Array, for_each_index};
use crate::view::View;
use openmps_host::by_type;
use openmps_host::native::{lines::Lines, sort};
use openmps_tile::DType::I64;
use openmps_tile::dtype;
use std::cmp::Ordering;

/// All elements in order; outputs: values, and their indices along the axis as int64.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    /// The axis sorted along.
    pub axis: i64,
    /// Largest first.
    pub descending: bool,
}

/// The first `k` elements in order; outputs: values and indices.
///
/// It is not handed to MPS (`MPSMatrixFindTopK`) or MPSGraph (`topKWithSourceTensor:axis:k:`): neither says which of equal elements comes
/// first or where NaN stands, and here the earlier one comes first and NaN is above every number.
#[derive(Clone, Copy, Debug)]
pub struct TopK {
    /// How many.
    pub k: usize,
    /// The axis sorted along.
    pub axis: i64,
    /// The largest ones rather than the smallest.
    pub largest: bool,
}

/// The `k`-th smallest element (from 1); outputs: value and index.
#[derive(Clone, Copy, Debug)]
pub struct KthValue {
    /// Which one, from 1.
    pub k: usize,
    /// The axis searched along.
    pub axis: i64,
    /// Whether the axis stays with size 1.
    pub keep_dim: bool,
}

/// Values and indices of the first `keep` elements.
fn first_of(operator: &'static str, input: &Meta, axis: i64, keep: usize) -> Result<Vec<Meta>> {
    let mut shape = input.shape.clone();
    if shape.is_empty() && keep == 1 {
        return Ok(vec![input.clone(), Meta { dtype: I64, shape }]);
    }
    let axis = axis_of(operator, axis, shape.len())?;
    if keep > shape[axis] {
        let expected = format!("at most {}, the size of axis {axis}", shape[axis]);
        return Err(Error::Attribute { operator, attribute: "k", got: keep.to_string(), expected });
    }
    shape[axis] = keep;
    Ok(vec![Meta { dtype: input.dtype, shape: shape.clone() }, Meta { dtype: I64, shape }])
}

fn run_sort(queue: &Queue, name: &'static str, x: &View, outputs: &[View], axis: i64, descending: bool) -> Result<()> {
    outputs.iter().try_for_each(|output| expect_dense(name, output))?;
    let lines = match x.rank() {
        0 => Lines { outer: 1, size: 1, inner: 1 },
        rank => lines(&x.shape, axis_of(name, axis, rank)?),
    };
    let keep = outputs[0].len() / (lines.outer * lines.inner).max(1);
    call(queue, name, || {
        if keep == 0 || x.is_empty() {
            return Ok(());
        }
        let dense = Dense::of(x);
        // SAFETY: dense tensors of the checked shapes.
        by_type!(x.dtype, T => unsafe {
            sort::sort::<T>(dense.address, outputs[0].address, outputs[1].address, lines, keep, descending)
        });
        Ok(())
    })
}

/// The order of Paddle's kernels: NaN above every number.
fn compare(a: f64, b: f64) -> Ordering {
    a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(Ordering::Equal))
}

fn reference_sort(x: &Array, axis: i64, keep: usize, descending: bool) -> Vec<Array> {
    if x.shape.is_empty() {
        return vec![x.clone(), Array::new(&[], vec![0.0], I64)];
    }
    let axis = axis_of("sort", axis, x.shape.len()).expect("checked by infer");
    let mut dims = x.shape.clone();
    dims[axis] = keep;
    let mut found = [Vec::new(), Vec::new()];
    for_each_index(&dims, |index| {
        let mut at = index.to_vec();
        let mut line: Vec<(f64, usize)> = (0..x.shape[axis])
            .map(|i| {
                at[axis] = i;
                (x.at(&at), i)
            })
            .collect();
        line.sort_by(|a, b| if descending { compare(b.0, a.0) } else { compare(a.0, b.0) });
        found[0].push(line[index[axis]].0);
        found[1].push(line[index[axis]].1 as f64);
    });
    let [values, indices] = found;
    vec![Array::new(&dims, values, x.dtype), Array::new(&dims, indices, I64)]
}

/// The gradient of elements that were chosen along an axis, at the places that they came from.
fn back_to_places(operator: &dyn Operator, axis: i64, b: &mut Backward<'_>) -> Result<Gradients> {
    let (x, dy) = (b.inputs[0], b.dy()?);
    let mut dims = b.shape(x);
    if dims.is_empty() {
        return Ok(vec![Some(dy)]);
    }
    let axis = b.axis(operator, axis, x)?;
    dims[axis] = b.shape(dy).iter().product::<usize>() * dims[axis] / dims.iter().product::<usize>().max(1);
    let (values, index) = (b.reshape(dy, &dims)?, b.reshape(b.outputs[1], &dims)?);
    let zeros = b.zeros_like(x)?;
    Ok(vec![Some(b.one(PutAlongAxis::sum(axis as i64), &[zeros, index, values])?)])
}

impl Operator for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let shape = &inputs[0].shape;
        let keep = if shape.is_empty() { 1 } else { shape[axis_of(self.name(), self.axis, shape.len())?] };
        first_of(self.name(), &inputs[0], self.axis, keep)
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        run_sort(queue, self.name(), &inputs[0], outputs, self.axis, self.descending)
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        back_to_places(self, self.axis, b)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let rank = inputs[0].shape.len();
        let keep = axis_of(self.name(), self.axis, rank).map_or(1, |axis| inputs[0].shape[axis]);
        reference_sort(&inputs[0], self.axis, keep, self.descending)
    }
}

impl Operator for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        first_of(self.name(), &inputs[0], self.axis, self.k)
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        run_sort(queue, self.name(), &inputs[0], outputs, self.axis, self.largest)
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        back_to_places(self, self.axis, b)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        reference_sort(&inputs[0], self.axis, self.k, self.largest)
    }
}

impl Operator for KthValue {
    fn name(&self) -> &'static str {
        "kth_value"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let mut metas = first_of(self.name(), &inputs[0], self.axis, self.k)?;
        if self.k == 0 {
            let (got, expected) = ("0".to_owned(), "at least 1".to_owned());
            return Err(Error::Attribute { operator: self.name(), attribute: "k", got, expected });
        }
        for meta in metas.iter_mut().filter(|meta| !meta.shape.is_empty()) {
            let axis = axis_of(self.name(), self.axis, meta.shape.len())?;
            meta.shape[axis] = 1;
            if !self.keep_dim {
                meta.shape.remove(axis);
            }
        }
        Ok(metas)
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        outputs.iter().try_for_each(|output| expect_dense(self.name(), output))?;
        let x = &inputs[0];
        let lines = match x.rank() {
            0 => Lines { outer: 1, size: 1, inner: 1 },
            rank => lines(&x.shape, axis_of(self.name(), self.axis, rank)?),
        };
        call(queue, self.name(), || {
            if x.is_empty() {
                return Ok(());
            }
            let dense = Dense::of(x);
            // SAFETY: dense tensors of the checked shapes.
            by_type!(x.dtype, T => unsafe {
                sort::kth::<T>(dense.address, outputs[0].address, outputs[1].address, lines, self.k - 1)
            });
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        back_to_places(self, self.axis, b)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let rank = inputs[0].shape.len();
        let size = axis_of(self.name(), self.axis, rank).map_or(1, |axis| inputs[0].shape[axis]);
        let sorted = reference_sort(&inputs[0], self.axis, size, false);
        let pick = |array: Array| {
            if rank == 0 {
                return array;
            }
            let axis = axis_of(self.name(), self.axis, rank).expect("checked by infer");
            let mut dims = array.shape.to_vec();
            dims[axis] = 1;
            let picked = Array::from_fn(&dims, array.dtype, |index| {
                let mut index = index.to_vec();
                index[axis] = self.k - 1;
                array.at(&index)
            });
            if !self.keep_dim {
                dims.remove(axis);
            }
            Array::new(&dims, picked.data, array.dtype)
        };
        sorted.into_iter().map(pick).collect()
    }
}

/// For the list of operators.
pub static SORT: Entry = Entry {
    name: "sort",
    summary: "Elements in order along an axis, with their indices.",
    dtypes: dtype::NUMBERS,
    cases: || {
        let case = |axis, descending, input| Case::new(Sort { axis, descending }, vec![input]);
        let both = |descending| {
            [
                case(0, descending, Input::new(&[])),
                case(0, descending, Input::new(&[9])),
                case(-1, descending, Input::new(&[3, 700])),
                case(0, descending, Input::new(&[17, 3])),
                case(1, descending, Input::new(&[2, 5, 3])),
                case(0, descending, Input::new(&[0, 3])),
                case(-1, descending, Input::of(&[2, 40], Values::Special)),
            ]
        };
        [false, true].into_iter().flat_map(both).collect()
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static TOP_K: Entry = Entry {
    name: "top_k",
    summary: "The largest or smallest elements along an axis, with their indices.",
    dtypes: dtype::NUMBERS,
    cases: || {
        let case = |k, axis, largest, input| Case::new(TopK { k, axis, largest }, vec![input]);
        vec![
            case(1, 0, true, Input::new(&[9])),
            case(5, -1, true, Input::new(&[3, 700])),
            case(3, 1, false, Input::new(&[2, 5, 3])),
            case(0, 0, true, Input::new(&[4, 2])),
            case(6, -1, true, Input::of(&[2, 40], Values::Special)),
        ]
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static KTH_VALUE: Entry = Entry {
    name: "kth_value",
    summary: "The k-th smallest element along an axis, with its index.",
    dtypes: dtype::NUMBERS,
    cases: || {
        let case =
            |k, axis, keep_dim, dims: &[usize]| Case::new(KthValue { k, axis, keep_dim }, vec![Input::new(dims)]);
        vec![case(1, 0, false, &[9]), case(4, 1, true, &[2, 5, 3]), case(2, -1, false, &[3, 7])]
    },
    tolerance: 0.0,
};
