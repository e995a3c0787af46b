//! Operators that are formulas over whole tensors where nothing faster computes them: values on the way live until the formula's end.

use crate::error::{Error, Result};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::{Binary, Elementwise, Unary, broadcast, run};
use crate::operators::reduce::{Reduce, Reduction};
use crate::queue::Queue;
use crate::view::{Shape, View, bytes};
use openmps_runtime::Buffer;
use openmps_tile::{DType, Number};
use std::cell::RefCell;

/// A formula under evaluation.
pub(crate) struct Formula<'q> {
    operator: &'static str,
    queue: &'q Queue,
    held: RefCell<Vec<Buffer>>,
}

impl<'q> Formula<'q> {
    pub(crate) fn new(operator: &'static str, queue: &'q Queue) -> Formula<'q> {
        Formula { operator, queue, held: RefCell::default() }
    }

    /// Memory for a value on the way.
    pub(crate) fn temporary(&self, dtype: DType, dims: &[usize]) -> Result<View> {
        let device = |source| Error::Device { operator: self.operator, source };
        let buffer = self.queue.allocate(bytes(dtype, dims)?.max(1)).map_err(device)?;
        let view = View::dense(buffer.address(), dtype, dims)?;
        self.held.borrow_mut().push(buffer);
        Ok(view)
    }

    /// The same numbers in another type.
    pub(crate) fn cast(&self, x: &View, dtype: DType) -> Result<View> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        let to = self.temporary(dtype, &x.shape)?;
        run(Elementwise::Unary(Unary::Cast), self.queue, &[x], &[], &to)?;
        Ok(to)
    }

    /// An elementwise operator of tensors of one type that broadcast.
    pub(crate) fn map(&self, operator: Elementwise, inputs: &[&View], numbers: &[f64]) -> Result<View> {
        let mut shape = Shape::new();
        for input in inputs {
            shape = broadcast(self.operator, &shape, &input.shape)?;
        }
        let to = self.temporary(inputs[0].dtype, &shape)?;
        let numbers: Vec<Number> = numbers.iter().map(|&number| Number::Float(number)).collect();
        run(operator, self.queue, inputs, &numbers, &to)?;
        Ok(to)
    }

    pub(crate) fn add(&self, x: &View, y: &View) -> Result<View> {
        self.map(Elementwise::Binary(Binary::Add), &[x, y], &[])
    }

    pub(crate) fn subtract(&self, x: &View, y: &View) -> Result<View> {
        self.map(Elementwise::Binary(Binary::Subtract), &[x, y], &[])
    }

    pub(crate) fn multiply(&self, x: &View, y: &View) -> Result<View> {
        self.map(Elementwise::Binary(Binary::Multiply), &[x, y], &[])
    }

    /// The reduction along these axes, which stay as dimensions of size 1.
    pub(crate) fn reduce(&self, reduction: Reduction, x: &View, axes: &[i64]) -> Result<View> {
        let operator = Reduce { reduction, axes: axes.to_vec(), keep_dims: true, output: Some(x.dtype) };
        let meta = operator.infer(&[Meta { dtype: x.dtype, shape: x.shape.clone() }])?.remove(0);
        let to = self.temporary(meta.dtype, &meta.shape)?;
        operator.run(self.queue, std::slice::from_ref(x), std::slice::from_ref(&to))?;
        Ok(to)
    }

    /// Writes a value of as many elements to an output, in the output's type.
    pub(crate) fn store(&self, value: &View, to: &View) -> Result<()> {
        let value = View::dense(value.address, value.dtype, &to.shape)?;
        run(Elementwise::Unary(Unary::Cast), self.queue, &[&value], &[], to)
    }
}
