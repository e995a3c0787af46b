//! Parts of a tensor along some axes, reading and writing them, as Python slices them.

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, check, expect_dtype, expect_inputs};
use crate::movement;
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{Shape, View};
use openmps_tile::{Number, dtype};

/// One sliced axis: `start:end:step`. Negative bounds count from the end; bounds beyond it are cut, as Python does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which axis.
    pub axis: i64,
    /// The first element.
    pub start: i64,
    /// The element after the last one.
    pub end: i64,
    /// The distance of neighbours; not zero.
    pub step: i64,
}

impl Range {
    /// First element and number of elements for an axis of this size.
    pub fn resolve(&self, size: usize) -> (usize, usize) {
        let size = size as i64;
        let wrap = |bound: i64| if bound < 0 { bound.saturating_add(size) } else { bound };
        let (start, count) = if self.step > 0 {
            let (start, end) = (wrap(self.start).clamp(0, size), wrap(self.end).clamp(0, size));
            (start, (end - start).max(0) as u64)
        } else {
            // -1 before the first element; an end of -1 - size or less means just that.
            let (start, end) = (wrap(self.start).clamp(-1, size - 1), wrap(self.end).clamp(-1, size - 1));
            (start, (start - end).max(0) as u64)
        };
        (start.max(0) as usize, count.div_ceil(self.step.unsigned_abs()) as usize)
    }
}

/// The part of a view that the ranges name.
fn part(operator: &'static str, view: &View, ranges: &[Range]) -> Result<View> {
    let mut view = view.clone();
    for range in ranges {
        let axis = axis_of(operator, range.axis, view.rank())?;
        if range.step == 0 {
            let (got, expected) = ("0".to_owned(), "a number other than zero".to_owned());
            return Err(Error::Attribute { operator, attribute: "step", got, expected });
        }
        let (start, count) = range.resolve(view.shape[axis]);
        view = view.narrowed(axis, if count == 0 { 0 } else { start }, range.step as isize, count);
    }
    Ok(view)
}

fn part_shape(operator: &'static str, shape: &Shape, ranges: &[Range]) -> Result<Shape> {
    let view = View::dense(0, dtype::DType::U8, shape)?;
    Ok(part(operator, &view, ranges)?.shape)
}

/// The flat positions in a dense array of `shape` that the ranges name, in order.
fn positions(shape: &Shape, ranges: &[Range]) -> (Shape, Vec<usize>) {
    let counting =
        Array::new(shape, (0..shape.iter().product::<usize>()).map(|i| i as f64).collect(), dtype::DType::I64);
    let mut first = vec![(0, 1); shape.len()];
    let mut dims = shape.clone();
    for range in ranges {
        let axis = axis_of("slice", range.axis, shape.len()).expect("checked by infer");
        let (start, count) = range.resolve(shape[axis]);
        first[axis] = (start as i64, range.step);
        dims[axis] = count;
    }
    let found = Array::from_fn(&dims, dtype::DType::I64, |index| {
        let from: Vec<usize> = index.iter().zip(&first).map(|(&i, f)| (f.0 + i as i64 * f.1) as usize).collect();
        counting.at(&from)
    });
    (dims, found.data.into_iter().map(|position| position as usize).collect())
}

/// Reads a part: slice and strided_slice.
#[derive(Clone, Debug)]
pub struct Slice {
    /// What to take of each axis that is not taken whole.
    pub ranges: Vec<Range>,
}

impl Operator for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let shape = part_shape(self.name(), &inputs[0].shape, &self.ranges)?;
        Ok(vec![Meta { dtype: inputs[0].dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let from = part(self.name(), &inputs[0], &self.ranges)?;
        movement::run(queue, self.name(), |mover| mover.copy(&from, &outputs[0]))
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (dy, dims) = (b.dy()?, b.shape(b.inputs[0]));
        Ok(vec![Some(b.one(SliceGradient { dims, ranges: self.ranges.clone() }, &[dy])?)])
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (dims, from) = positions(&inputs[0].shape, &self.ranges);
        vec![Array::new(&dims, from.into_iter().map(|i| inputs[0].data[i]).collect(), inputs[0].dtype)]
    }
}

/// A copy of the first input whose part is the second input, which is broadcast: set_value.
#[derive(Clone, Debug)]
pub struct SetSlice {
    /// The part that is replaced.
    pub ranges: Vec<Range>,
}

impl Operator for SetSlice {
    fn name(&self) -> &'static str {
        "set_slice"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        expect_dtype(self.name(), "value", inputs[1].dtype, &[inputs[0].dtype])?;
        let shape = part_shape(self.name(), &inputs[0].shape, &self.ranges)?;
        let value = View::dense(0, inputs[1].dtype, &inputs[1].shape)?;
        if value.broadcast_to(&shape).is_none() {
            let (left, right) = (shape, inputs[1].shape.clone());
            return Err(Error::Broadcast { operator: self.name(), left, right });
        }
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let to = part(self.name(), &outputs[0], &self.ranges)?;
        let value = inputs[1].broadcast_to(&to.shape).expect("checked by infer");
        movement::run(queue, self.name(), |mover| {
            // In place there is nothing to copy outside the part.
            if inputs[0].address != outputs[0].address {
                mover.copy(&inputs[0], &outputs[0])?;
            }
            mover.copy(&value, &to)
        })
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (dy, value) = (b.dy()?, b.inputs[1]);
        b.each([
            &|b| {
                let zeros = b.zeros_like(value)?;
                b.one(self.clone(), &[dy, zeros])
            },
            &|b| {
                let part = b.one(Slice { ranges: self.ranges.clone() }, &[dy])?;
                let dims = b.shape(value);
                b.sum_to(part, &dims)
            },
        ])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (dims, to) = positions(&inputs[0].shape, &self.ranges);
        let values = Array::from_fn(&dims, inputs[1].dtype, |index| inputs[1].at_broadcast(index));
        let mut out = inputs[0].clone();
        to.into_iter().zip(values.data).for_each(|(i, value)| out.data[i] = value);
        vec![out]
    }
}

/// Zeros of the given shape with the input in one part: the gradient of [`Slice`].
#[derive(Clone, Debug)]
pub struct SliceGradient {
    /// The shape that was sliced.
    pub dims: Shape,
    /// What was taken of it.
    pub ranges: Vec<Range>,
}

impl Operator for SliceGradient {
    fn name(&self) -> &'static str {
        "slice_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let shape = part_shape(self.name(), &self.dims, &self.ranges)?;
        crate::layout::expect_shape(self.name(), "gradient", &inputs[0].shape, &shape)?;
        Ok(vec![Meta { dtype: inputs[0].dtype, shape: self.dims.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let to = part(self.name(), &outputs[0], &self.ranges)?;
        movement::run(queue, self.name(), |mover| {
            if to.len() != outputs[0].len() {
                mover.fill(&outputs[0], Number::Integer(0))?;
            }
            mover.copy(&inputs[0], &to)
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let dy = b.dy()?;
        Ok(vec![Some(b.one(Slice { ranges: self.ranges.clone() }, &[dy])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let mut out = Array::from_fn(&self.dims, inputs[0].dtype, |_| 0.0);
        let (_, to) = positions(&self.dims, &self.ranges);
        to.into_iter().zip(&inputs[0].data).for_each(|(i, &value)| out.data[i] = value);
        vec![out]
    }
}

const MAX: i64 = i64::MAX;

/// Shapes with ranges: cut bounds, negative steps, empty parts.
fn ranges() -> Vec<(&'static [usize], Vec<Range>)> {
    let range = |axis, start, end, step| Range { axis, start, end, step };
    vec![
        (&[9], vec![range(0, 2, 7, 1)]),
        (&[9], vec![range(0, -1, -100, -1)]),
        (&[9], vec![range(0, -3, MAX, 2)]),
        (&[9], vec![range(0, 5, 5, 1)]),
        (&[4, 7], vec![range(-1, 1, 6, 2), range(0, 3, 0, -1)]),
        (&[3, 5, 6], vec![range(1, 0, 3, 1)]),
        (&[3, 5, 6], vec![range(2, 1, -1, 1), range(0, 1, 2, 1)]),
        (&[3, 0, 2], vec![range(0, 1, 3, 1)]),
    ]
}

/// For the list of operators.
pub static SLICE: Entry = Entry {
    name: "slice",
    summary: "A part of a tensor, with a start, an end and a step for each axis.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |(dims, ranges): (&[usize], _)| Case::new(Slice { ranges }, vec![Input::new(dims)]);
        ranges().into_iter().map(case).collect()
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static SET_SLICE: Entry = Entry {
    name: "set_slice",
    summary: "A tensor with one part replaced.",
    dtypes: dtype::ALL,
    cases: || {
        let case = |(dims, ranges): (&[usize], Vec<Range>)| {
            let part = positions(&dims.iter().copied().collect(), &ranges).0;
            let scalar = Case::new(SetSlice { ranges: ranges.clone() }, vec![Input::new(dims), Input::new(&[])]);
            [scalar, Case::new(SetSlice { ranges }, vec![Input::new(dims), Input::new(&part)])]
        };
        ranges().into_iter().flat_map(case).collect()
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static SLICE_GRADIENT: Entry = Entry {
    name: "slice_gradient",
    summary: "Zeros with a tensor in one part.",
    dtypes: dtype::ALL,
    cases: || {
        let case = |(dims, ranges): (&[usize], Vec<Range>)| {
            let dims: Shape = dims.iter().copied().collect();
            let part = positions(&dims, &ranges).0;
            Case::new(SliceGradient { dims, ranges }, vec![Input::new(&part)])
        };
        ranges().into_iter().map(case).collect()
    },
    tolerance: 0.0,
};
