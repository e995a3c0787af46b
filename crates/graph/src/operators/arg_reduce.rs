//! Where the largest or smallest element is: arg_max, arg_min. The first of equals wins, NaN never does.

mod tiles;

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, axis_of, call, check_dense, expect_dtype, expect_inputs, lines, takes_native};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_host::by_type;
use openmps_host::native::arg_reduce::arg_reduce;
use openmps_host::native::lines::Lines;
use openmps_tile::DType::{self, I32, I64};
use openmps_tile::dtype;

/// The index of the largest or smallest element along an axis.
#[derive(Clone, Copy, Debug)]
pub struct ArgReduce {
    /// The largest rather than the smallest.
    pub largest: bool,
    /// The axis searched; `None` searches the flattened tensor.
    pub axis: Option<i64>,
    /// Whether searched axes stay with size 1.
    pub keep_dims: bool,
    /// The type of the result: int32 or int64.
    pub dtype: DType,
}

impl ArgReduce {
    fn lines(&self, shape: &[usize]) -> Result<Lines> {
        match self.axis {
            Some(axis) if !shape.is_empty() => Ok(lines(shape, axis_of(self.name(), axis, shape.len())?)),
            _ => Ok(Lines { outer: 1, size: shape.iter().product(), inner: 1 }),
        }
    }
}

impl Operator for ArgReduce {
    fn name(&self) -> &'static str {
        if self.largest { "arg_max" } else { "arg_min" }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        expect_dtype(self.name(), "result", self.dtype, &[I32, I64])?;
        let mut shape = inputs[0].shape.clone();
        if self.lines(&shape)?.size == 0 {
            let expected = "at least one element along the axis".to_owned();
            return Err(Error::Shape { operator: self.name(), what: "input", got: shape, expected });
        }
        match self.axis {
            Some(axis) if !shape.is_empty() => {
                let axis = axis_of(self.name(), axis, shape.len())?;
                shape[axis] = 1;
                if !self.keep_dims {
                    shape.remove(axis);
                }
            }
            _ if self.keep_dims => shape.iter_mut().for_each(|size| *size = 1),
            _ => shape.clear(),
        }
        Ok(vec![Meta { dtype: self.dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        if !takes_native(queue, true) {
            return tiles::run(self, queue, &inputs[0], &outputs[0]);
        }
        let (lines, out) = (self.lines(&inputs[0].shape)?, outputs[0].address);
        call(queue, self.name(), || {
            let x = Dense::of(&inputs[0]);
            // SAFETY: one result of this type for each line, each written by one thread.
            let write = |line: usize, index: usize| unsafe {
                match self.dtype {
                    I32 => *(out as *mut i32).add(line) = index as i32,
                    _ => *(out as *mut i64).add(line) = index as i64,
                }
            };
            // SAFETY: a dense tensor of the checked shape; `infer` refuses empty lines.
            by_type!(inputs[0].dtype, T => unsafe { arg_reduce::<T>(x.address, lines, self.largest, write) });
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let meta = Meta { dtype: x.dtype, shape: x.shape.clone() };
        let dims = self.infer(&[meta]).expect("checked by infer").remove(0).shape;
        let Lines { outer, size, inner } = self.lines(&x.shape).expect("checked by infer");
        let first = |line: usize| {
            let at = |i: usize| x.data[(line / inner * size + i) * inner + line % inner];
            let beats = |new: f64, old: f64| if self.largest { new > old } else { new < old };
            let numbers = (0..size).filter(|&i| !at(i).is_nan());
            numbers.reduce(|best, i| if beats(at(i), at(best)) { i } else { best }).unwrap_or(0) as f64
        };
        vec![Array::new(&dims, (0..outer * inner).map(first).collect(), self.dtype)]
    }
}

fn cases(largest: bool) -> Vec<Case> {
    let case = |axis, keep_dims, dtype, input| Case::new(ArgReduce { largest, axis, keep_dims, dtype }, vec![input]);
    vec![
        case(None, false, I64, Input::new(&[])),
        case(Some(0), false, I64, Input::new(&[100])),
        case(Some(-1), true, I32, Input::new(&[3, 67])),
        case(Some(0), false, I64, Input::new(&[5, 40])),
        case(Some(1), true, I64, Input::new(&[2, 5, 3])),
        case(Some(0), false, I64, Input::new(&[2, 0])),
        case(None, true, I32, Input::new(&[3, 4])),
        case(None, false, I64, Input::of(&[3, 40], Values::Special)),
        case(Some(0), false, I64, Input::of(&[3, 40], Values::Special)),
    ]
}

/// For the list of operators.
pub static ARG_MAX: Entry = Entry {
    name: "arg_max",
    summary: "The index of the largest element along an axis.",
    dtypes: dtype::NUMBERS,
    cases: || cases(true),
    tolerance: 0.0,
};

/// For the list of operators.
pub static ARG_MIN: Entry = Entry {
    name: "arg_min",
    summary: "The index of the smallest element along an axis.",
    dtypes: dtype::NUMBERS,
    cases: || cases(false),
    tolerance: 0.0,
};
