//! One value put for each index along an axis: put_along_axis, scatter_reduce.

use super::{Reduce, start, start_on_device, vendor};
use crate::entry::{Case, Entry, Input};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, axis_of, call, check_dense, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::operators::gather::{Negative, TakeAlongAxis};
use crate::operators::gather::{check_all, expect_along, expect_indices, index, indices, wrap};
use crate::operators::indexed::{self, Named, Other};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::{Array, for_each_index};
use crate::vendor::try_vendor;
use crate::view::View;
use openmps_host::by_type;
use openmps_host::native::gather::Along;
use openmps_host::native::scatter;
use openmps_tile::DType::{self, I32, I64};

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

impl PutAlongAxis {
    /// Adds the values to what is there.
    pub fn sum(axis: i64) -> PutAlongAxis {
        PutAlongAxis { axis, reduce: Reduce::Add, include_self: true }
    }

    /// The index of each row, where all elements of a row have the same one, and the smaller or larger of two stays.
    fn rows(&self, x: &View, index: &View, axis: usize) -> Option<View> {
        let is_chosen = matches!(self.reduce, Reduce::Minimum | Reduce::Maximum);
        let of_rows = index.strides[1..].iter().zip(&index.shape[1..]).all(|(&stride, &size)| stride == 0 || size == 1);
        let is_whole = index.shape[1..] == x.shape[1..] && !x.is_empty();
        (axis == 0 && is_chosen && of_rows && is_whole).then(|| View {
            address: index.address,
            dtype: index.dtype,
            shape: index.shape[..1].iter().copied().collect(),
            strides: index.strides[..1].iter().copied().collect(),
        })
    }

    /// Whether the device has done it.
    fn on_device(&self, queue: &Queue, inputs: &[View], outputs: &[View], axis: usize) -> Result<bool> {
        let (x, index) = (&inputs[0], &inputs[1]);
        let seen = indexed::check(queue, self.name(), || check_all(index, x.shape[axis]))?;
        let direct = self.include_self || self.reduce == Reduce::Assign;
        if seen
            && direct
            && try_vendor(queue, self.name(), || vendor::elements(self.reduce, axis, inputs, &outputs[0]))?
        {
            return Ok(true);
        }
        let named = Named::elements(&outputs[0], axis, index);
        if !indexed::takes(queue, &named, x.dtype, self.reduce) {
            return Ok(false);
        }
        start_on_device(queue, inputs, outputs)?;
        if !direct {
            indexed::fill(queue, self.name(), &named, x.dtype, self.reduce)?;
        }
        indexed::put(queue, self.name(), &named, self.reduce, &Other::of(&inputs[2]))?;
        Ok(true)
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
        let axis = axis_of(self.name(), self.axis, inputs[0].shape.len())?;
        expect_along(self.name(), &inputs[0].shape, &inputs[1].shape, axis)?;
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let (x, out) = (&inputs[0], outputs[0].address);
        let axis = axis_of(self.name(), self.axis, x.rank())?;
        if !queue.is_host() && self.on_device(queue, inputs, outputs, axis)? {
            return Ok(());
        }
        if let Some(numbers) = self.rows(x, &inputs[1], axis) {
            return call(queue, self.name(), || {
                let (index, values) = (Dense::of(&numbers), Dense::of(&inputs[2]));
                let (indices, size) = (indices(&index, &numbers), x.shape[0]);
                indices.check_from(-(size as i64), size)?;
                let numbers: Vec<usize> = (0..indices.len()).map(|k| indices.wrapped(k, size)).collect();
                start(inputs, outputs);
                let (inner, values, reduce) = (x.shape[1..].iter().product(), values.address, self.reduce);
                // SAFETY: dense tensors, of one of which there is a row for each number, a row of the other.
                by_type!(x.dtype, T => unsafe {
                    scatter::choose_numbered::<T>(out, values, inner, &numbers, reduce, self.include_self)
                });
                Ok(())
            });
        }
        call(queue, self.name(), || {
            let (index, values) = (Dense::of(&inputs[1]), Dense::of(&inputs[2]));
            let indices = (indices(&index, &inputs[1]), -(x.shape[axis] as i64));
            let along = Along::new(&x.shape, &inputs[1].shape, axis, indices)?;
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

    fn works_in_place(&self) -> bool {
        true
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (index, values, dy) = (b.inputs[1], b.inputs[2], b.dy()?);
        let own = match self.reduce {
            Reduce::Add if self.include_self => dy,
            Reduce::Add | Reduce::Assign => {
                let zeros = b.zeros_like(values)?;
                let assign = PutAlongAxis { reduce: Reduce::Assign, ..*self };
                b.one(assign, &[dy, index, zeros])?
            }
            _ => return Err(crate::Error::NoGradient { operator: self.name() }),
        };
        let taken = b.one(TakeAlongAxis { axis: self.axis, negative: Negative::FromEnd }, &[dy, index])?;
        Ok(vec![Some(own), None, Some(taken)])
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

/// For the list of operators.
pub static PUT_ALONG_AXIS: Entry = Entry {
    name: "put_along_axis",
    summary: "A tensor with one value put for each index along an axis: assigned, added, multiplied, smallest, largest.",
    // Products of bytes wrap, which the references do not.
    dtypes: &[DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64],
    cases: || {
        let reductions = [Reduce::Add, Reduce::Assign, Reduce::Multiply, Reduce::Minimum, Reduce::Maximum];
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
