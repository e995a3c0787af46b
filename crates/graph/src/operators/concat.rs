//! Joining tensors along an axis and cutting them apart: concat, stack, split, unstack.

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, check, expect_dtype, expect_inputs, expect_shape};
use crate::movement;
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_tile::dtype;

/// The inputs one after the other along an axis.
#[derive(Clone, Copy, Debug)]
pub struct Concat {
    /// Where they are joined.
    pub axis: i64,
}

/// The inputs, all of one shape, along a new axis.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// The new axis' place in the output.
    pub axis: i64,
}

/// Consecutive parts of the input along an axis.
#[derive(Clone, Debug)]
pub struct Split {
    /// Where it is cut.
    pub axis: i64,
    /// The size of each part.
    pub sections: Vec<usize>,
}

/// Each element of an axis as a tensor without that axis.
#[derive(Clone, Copy, Debug)]
pub struct Unstack {
    /// Where it is cut.
    pub axis: i64,
}

fn at_least_one(operator: &'static str, inputs: &[Meta]) -> Result<()> {
    expect_inputs(operator, inputs, inputs.len().max(1))?;
    inputs.iter().try_for_each(|input| expect_dtype(operator, "input", input.dtype, &[inputs[0].dtype]))
}

impl Operator for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        at_least_one(self.name(), inputs)?;
        let mut shape = inputs[0].shape.clone();
        let axis = axis_of(self.name(), self.axis, shape.len())?;
        shape[axis] = 0;
        for input in inputs {
            let mut others = input.shape.clone();
            if let Some(size) = others.get_mut(axis) {
                let before = std::mem::replace(size, shape[axis]);
                shape[axis] = shape[axis].saturating_add(before);
                others[axis] = shape[axis];
            }
            if others != shape {
                let expected = format!("{:?} except at axis {axis}", inputs[0].shape);
                return Err(Error::Shape { operator: self.name(), what: "input", got: input.shape.clone(), expected });
            }
        }
        Ok(vec![Meta { dtype: inputs[0].dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let axis = axis_of(self.name(), self.axis, outputs[0].rank())?;
        let mut start = 0;
        movement::run(queue, self.name(), |mover| {
            inputs.iter().try_for_each(|input| {
                let to = outputs[0].narrowed(axis, start, 1, input.shape[axis]);
                start += input.shape[axis];
                mover.copy(input, &to)
            })
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let axis = b.axis(self, self.axis, b.outputs[0])?;
        let sections = b.inputs.iter().map(|&input| b.shape(input)[axis]).collect();
        let dy = b.dy()?;
        Ok(b.many(Split { axis: self.axis, sections }, &[dy])?.into_iter().map(Some).collect())
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let axis = axis_of(self.name(), self.axis, inputs[0].shape.len()).expect("checked by infer");
        let mut dims = inputs[0].shape.clone();
        dims[axis] = inputs.iter().map(|input| input.shape[axis]).sum();
        vec![Array::from_fn(&dims, inputs[0].dtype, |index| {
            let (mut index, mut which) = (index.to_vec(), 0);
            while index[axis] >= inputs[which].shape[axis] {
                index[axis] -= inputs[which].shape[axis];
                which += 1;
            }
            inputs[which].at(&index)
        })]
    }
}

impl Operator for Stack {
    fn name(&self) -> &'static str {
        "stack"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        at_least_one(self.name(), inputs)?;
        let mut shape = inputs[0].shape.clone();
        inputs.iter().try_for_each(|input| expect_shape(self.name(), "input", &input.shape, &shape))?;
        let axis = axis_of(self.name(), self.axis, shape.len() + 1)?;
        shape.try_insert(axis, inputs.len()).map_err(|_| Error::Rank(inputs[0].shape.len() + 1))?;
        Ok(vec![Meta { dtype: inputs[0].dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let axis = axis_of(self.name(), self.axis, outputs[0].rank())?;
        let place = |i| outputs[0].narrowed(axis, i, 1, 1).without_axis(axis);
        movement::run(queue, self.name(), |mover| {
            inputs.iter().enumerate().try_for_each(|(i, input)| mover.copy(input, &place(i)))
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let dy = b.dy()?;
        Ok(b.many(Unstack { axis: self.axis }, &[dy])?.into_iter().map(Some).collect())
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let axis = axis_of(self.name(), self.axis, inputs[0].shape.len() + 1).expect("checked by infer");
        let mut dims = inputs[0].shape.to_vec();
        dims.insert(axis, inputs.len());
        vec![Array::from_fn(&dims, inputs[0].dtype, |index| {
            let mut index = index.to_vec();
            let which = index.remove(axis);
            inputs[which].at(&index)
        })]
    }
}

impl Operator for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let Meta { dtype, shape } = &inputs[0];
        let axis = axis_of(self.name(), self.axis, shape.len())?;
        if self.sections.iter().fold(0, |sum: usize, &size| sum.saturating_add(size)) != shape[axis] {
            let (got, expected) = (format!("{:?}", self.sections), format!("a sum of {}", shape[axis]));
            return Err(Error::Attribute { operator: self.name(), attribute: "sections", got, expected });
        }
        let section = |&size: &usize| {
            let mut shape = shape.clone();
            shape[axis] = size;
            Meta { dtype: *dtype, shape }
        };
        Ok(self.sections.iter().map(section).collect())
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let axis = axis_of(self.name(), self.axis, inputs[0].rank())?;
        let mut start = 0;
        movement::run(queue, self.name(), |mover| {
            outputs.iter().try_for_each(|output| {
                let from = inputs[0].narrowed(axis, start, 1, output.shape[axis]);
                start += output.shape[axis];
                mover.copy(&from, output)
            })
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let parts = (0..b.outputs.len()).map(|part| b.of_output(part)).collect::<Result<Vec<_>>>()?;
        Ok(vec![Some(b.one(Concat { axis: self.axis }, &parts)?)])
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let axis = axis_of(self.name(), self.axis, x.shape.len()).expect("checked by infer");
        let mut start = 0;
        let mut section = |&size: &usize| {
            let mut dims = x.shape.clone();
            dims[axis] = size;
            let part = Array::from_fn(&dims, x.dtype, |index| {
                let mut index = index.to_vec();
                index[axis] += start;
                x.at(&index)
            });
            start += size;
            part
        };
        self.sections.iter().map(&mut section).collect()
    }
}

impl Operator for Unstack {
    fn name(&self) -> &'static str {
        "unstack"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let mut meta = inputs[0].clone();
        let axis = axis_of(self.name(), self.axis, meta.shape.len())?;
        let count = meta.shape.remove(axis);
        Ok(vec![meta; count])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let axis = axis_of(self.name(), self.axis, inputs[0].rank())?;
        let place = |i| inputs[0].narrowed(axis, i, 1, 1).without_axis(axis);
        movement::run(queue, self.name(), |mover| {
            outputs.iter().enumerate().try_for_each(|(i, output)| mover.copy(&place(i), output))
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let parts = (0..b.outputs.len()).map(|part| b.of_output(part)).collect::<Result<Vec<_>>>()?;
        Ok(vec![Some(b.one(Stack { axis: self.axis }, &parts)?)])
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let axis = axis_of(self.name(), self.axis, x.shape.len()).expect("checked by infer");
        let mut dims = x.shape.to_vec();
        let count = dims.remove(axis);
        let slice = |which| {
            Array::from_fn(&dims, x.dtype, |index| {
                let mut index = index.to_vec();
                index.insert(axis, which);
                x.at(&index)
            })
        };
        (0..count).map(slice).collect()
    }
}

/// For the list of operators.
pub static CONCAT: Entry = Entry {
    name: "concat",
    summary: "Tensors joined along an axis.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |axis, shapes: &[&[usize]]| {
            Case::new(Concat { axis }, shapes.iter().map(|dims| Input::new(dims)).collect())
        };
        vec![
            case(0, &[&[3]]),
            case(0, &[&[3], &[0], &[5]]),
            case(-1, &[&[2, 3], &[2, 1], &[2, 7]]),
            case(1, &[&[2, 3, 4], &[2, 1, 4]]),
            case(0, &[&[1, 3, 4], &[5, 3, 4]]),
        ]
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static STACK: Entry = Entry {
    name: "stack",
    summary: "Tensors of one shape along a new axis.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |axis, count, dims: &[usize]| Case::new(Stack { axis }, vec![Input::new(dims); count]);
        vec![case(0, 3, &[]), case(0, 1, &[4]), case(-1, 3, &[5, 3]), case(1, 4, &[2, 0]), case(1, 2, &[3, 4, 5])]
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static SPLIT: Entry = Entry {
    name: "split",
    summary: "Consecutive parts along an axis.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |axis, sections: &[usize], dims: &[usize]| {
            Case::new(Split { axis, sections: sections.to_vec() }, vec![Input::new(dims)])
        };
        vec![case(0, &[2, 0, 5], &[7]), case(-1, &[1, 3], &[3, 4]), case(1, &[2, 2, 2], &[2, 6, 5])]
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static UNSTACK: Entry = Entry {
    name: "unstack",
    summary: "Each element of an axis as a tensor.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |axis, dims: &[usize]| Case::new(Unstack { axis }, vec![Input::new(dims)]);
        vec![case(0, &[3]), case(-1, &[3, 4]), case(1, &[2, 5, 3])]
    },
    tolerance: 0.0,
};
