//! Tensors made of nothing but positions: arange, linspace, eye, one_hot.

mod tiles;

use crate::entry::{Case, Entry};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, call, check, check_dense, expect_inputs, fill_view};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{View, shape_of};
use openmps_host::by_type;
use openmps_host::native::{memory::Memory, sequence, triangle};
use openmps_tile::DType::{self, I32, I64};
use openmps_tile::{Number, dtype};

/// `start + i * step`.
#[derive(Clone, Copy, Debug)]
pub struct Arange {
    /// The first element.
    pub start: Number,
    /// The distance of neighbours.
    pub step: Number,
    /// How many elements.
    pub len: usize,
    /// The numbers' type.
    pub dtype: DType,
}

/// Numbers at even distances, both ends included.
#[derive(Clone, Copy, Debug)]
pub struct Linspace {
    /// The first element.
    pub start: f64,
    /// The last element.
    pub stop: f64,
    /// How many elements.
    pub len: usize,
    /// The numbers' type.
    pub dtype: DType,
}

/// Ones on the main diagonal, zeros elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Eye {
    /// How many rows.
    pub rows: usize,
    /// How many columns.
    pub columns: usize,
    /// The type of the elements.
    pub dtype: DType,
}

/// A new last axis with a one at each index of the input.
#[derive(Clone, Copy, Debug)]
pub struct OneHot {
    /// The size of the new axis.
    pub classes: usize,
    /// The type of the result.
    pub dtype: DType,
}

impl Operator for Arange {
    fn name(&self) -> &'static str {
        "arange"
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>> {
        Ok(vec![Meta { dtype: self.dtype, shape: shape_of(&[self.len])? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        if !queue.is_host()
            && let Some(numbers) = tiles::exact(self)
        {
            return tiles::arange(self, queue, numbers, &outputs[0]);
        }
        let both = |number: Number| (number.to_i64(), number.to_f64());
        let whole = self.dtype.is_integer();
        call(queue, self.name(), || {
            // SAFETY: a dense output of this many elements.
            by_type!(self.dtype, T => unsafe {
                sequence::arange::<T>(outputs[0].address, self.len, both(self.start), both(self.step), whole)
            });
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, _: &[Array]) -> Vec<Array> {
        let value = |index: &[usize]| self.start.to_f64() + self.step.to_f64() * index[0] as f64;
        vec![Array::from_fn(&[self.len], self.dtype, value)]
    }
}

impl Operator for Linspace {
    fn name(&self) -> &'static str {
        "linspace"
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>> {
        Ok(vec![Meta { dtype: self.dtype, shape: shape_of(&[self.len])? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        call(queue, self.name(), || {
            // SAFETY: a dense output of this many elements.
            by_type!(self.dtype, T => unsafe {
                sequence::linspace::<T>(outputs[0].address, self.len, self.start, self.stop)
            });
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, _: &[Array]) -> Vec<Array> {
        let last = self.len.max(2) as f64 - 1.0;
        vec![Array::from_fn(&[self.len], self.dtype, |index| {
            let part = index[0] as f64 / last;
            self.start * (1.0 - part) + self.stop * part
        })]
    }
}

impl Operator for Eye {
    fn name(&self) -> &'static str {
        "eye"
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>> {
        Ok(vec![Meta { dtype: self.dtype, shape: shape_of(&[self.rows, self.columns])? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let out = &outputs[0];
        if !queue.is_host() {
            return tiles::eye(queue, out);
        }
        call(queue, self.name(), || {
            fill_view(out, Number::Integer(0));
            let (one, count) = (Number::Integer(1).element(self.dtype), self.rows.min(self.columns));
            let memory = Memory::new(out.address, &out.strides);
            // SAFETY: the diagonal of a live matrix; one element of its type.
            unsafe { triangle::fill_diagonal(self.dtype.size(), memory, (0, 0), count, one.as_ptr() as usize) };
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, _: &[Array]) -> Vec<Array> {
        let one = |index: &[usize]| f64::from(index[0] == index[1]);
        vec![Array::from_fn(&[self.rows, self.columns], self.dtype, one)]
    }
}

impl Operator for OneHot {
    fn name(&self) -> &'static str {
        "one_hot"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        super::gather::expect_indices(self.name(), &inputs[0])?;
        Ok(vec![Meta { dtype: self.dtype, shape: shape_of(&[&inputs[0].shape[..], &[self.classes]].concat())? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        if !queue.is_host() {
            let (index, size) = (&inputs[0], self.classes);
            // A class that does not fit is an error of this call: as for reading by index, the queue has to be finished first.
            super::indexed::check(queue, self.name(), || {
                let dense = Dense::of(index);
                super::gather::indices(&dense, index).check_from(0, self.classes)
            })?;
            return tiles::one_hot(queue, index, size, &outputs[0]);
        }
        call(queue, self.name(), || {
            let index = Dense::of(&inputs[0]);
            let indices = super::gather::indices(&index, &inputs[0]);
            // SAFETY: a dense output with a row for each index.
            by_type!(self.dtype, T => unsafe { sequence::one_hot::<T>(outputs[0].address, self.classes, indices) })
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let dims = [&inputs[0].shape[..], &[self.classes]].concat();
        vec![Array::from_fn(&dims, self.dtype, |index| {
            let (last, leading) = index.split_last().expect("one dimension at least");
            f64::from(inputs[0].at(leading) == *last as f64)
        })]
    }
}

/// For the list of operators.
pub static ARANGE: Entry = Entry {
    name: "arange",
    summary: "Numbers at even distances from a start.",
    dtypes: &[DType::F32],
    cases: || {
        let case = |start, step, len, dtype| Case::new(Arange { start, step, len, dtype }, vec![]);
        let (int, float) = (Number::Integer, Number::Float);
        let mut cases: Vec<Case> = [I32, I64, DType::I16].map(|dtype| case(int(-7), int(3), 20, dtype)).into();
        cases.extend(dtype::FLOATS.iter().map(|&dtype| case(float(0.5), float(-0.25), 33, dtype)));
        cases.push(case(int(0), int(1), 0, I64));
        cases
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static LINSPACE: Entry = Entry {
    name: "linspace",
    summary: "A number of values at even distances between two ends.",
    dtypes: &[DType::F32],
    cases: || {
        let case = |start, stop, len, dtype| Case::new(Linspace { start, stop, len, dtype }, vec![]);
        let mut cases: Vec<Case> = dtype::FLOATS.iter().map(|&dtype| case(1.0, 3.5, 11, dtype)).collect();
        cases.extend([case(2.0, 9.0, 1, DType::F32), case(2.0, 9.0, 0, DType::F32), case(5.0, 1.0, 4, DType::F64)]);
        cases
    },
    tolerance: 1.0,
};

/// For the list of operators.
pub static EYE: Entry = Entry {
    name: "eye",
    summary: "The identity matrix.",
    dtypes: &[DType::F32],
    cases: || {
        let case = |rows, columns, dtype| Case::new(Eye { rows, columns, dtype }, vec![]);
        let mut cases: Vec<Case> = dtype::ALL.iter().map(|&dtype| case(3, 5, dtype)).collect();
        cases.extend([case(5, 3, DType::F32), case(0, 3, DType::F32), case(1, 1, DType::F32)]);
        cases
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static ONE_HOT: Entry = Entry {
    name: "one_hot",
    summary: "A one at each index along a new axis.",
    dtypes: &[I32, I64],
    cases: || {
        let case = |dims: &[usize], dtype| {
            let index = crate::entry::Input::of(dims, crate::entry::Values::Given(vec![0.0, 4.0, 2.0]));
            Case::new(OneHot { classes: 5, dtype }, vec![index])
        };
        vec![case(&[7], DType::F32), case(&[2, 3], I64), case(&[], DType::F16), case(&[0], DType::F32)]
    },
    tolerance: 0.0,
};
