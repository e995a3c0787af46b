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
pub struct Formula<'q> {
    operator: &'static str,
    queue: &'q Queue,
    held: RefCell<Vec<Buffer>>,
}

impl<'q> Formula<'q> {
    /// An empty formula; errors of its own name the operator.
    pub fn new(operator: &'static str, queue: &'q Queue) -> Formula<'q> {
        Formula { operator, queue, held: RefCell::default() }
    }

    /// Where it is computed.
    pub fn queue(&self) -> &'q Queue {
        self.queue
    }

    /// Memory for a value on the way.
    pub fn temporary(&self, dtype: DType, dims: &[usize]) -> Result<View> {
        let device = |source| Error::Device { operator: self.operator, source };
        let buffer = self.queue.allocate(bytes(dtype, dims)?.max(1)).map_err(device)?;
        let view = View::dense(buffer.address(), dtype, dims)?;
        self.held.borrow_mut().push(buffer);
        Ok(view)
    }

    /// The same numbers in another type.
    pub fn cast(&self, x: &View, dtype: DType) -> Result<View> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        let to = self.temporary(dtype, &x.shape)?;
        run(Elementwise::Unary(Unary::Cast), self.queue, &[x], &[], &to)?;
        Ok(to)
    }

    /// An elementwise operator of tensors that broadcast.
    pub fn map(&self, operator: Elementwise, inputs: &[&View], numbers: &[f64]) -> Result<View> {
        self.map_numbers(operator, inputs, &floats(numbers))
    }

    /// As [`Formula::map`], with numbers of either kind.
    pub fn map_numbers(&self, operator: Elementwise, inputs: &[&View], numbers: &[Number]) -> Result<View> {
        let dtypes: arrayvec::ArrayVec<DType, 6> = inputs.iter().map(|view| view.dtype).collect();
        let dtype = operator.row().output_dtype(&dtypes).unwrap_or(inputs[0].dtype);
        let to = self.temporary(dtype, &common_shape(operator, inputs)?)?;
        run(operator, self.queue, inputs, numbers, &to)?;
        Ok(to)
    }

    /// `x + y`
    pub fn add(&self, x: &View, y: &View) -> Result<View> {
        self.map(Elementwise::Binary(Binary::Add), &[x, y], &[])
    }

    /// `x - y`
    pub fn subtract(&self, x: &View, y: &View) -> Result<View> {
        self.map(Elementwise::Binary(Binary::Subtract), &[x, y], &[])
    }

    /// `x * y`
    pub fn multiply(&self, x: &View, y: &View) -> Result<View> {
        self.map(Elementwise::Binary(Binary::Multiply), &[x, y], &[])
    }

    /// The reduction along these axes, which stay as dimensions of size 1.
    pub fn reduce(&self, reduction: Reduction, x: &View, axes: &[i64]) -> Result<View> {
        let operator = Reduce { reduction, axes: axes.to_vec(), keep_dims: true, output: None };
        self.apply(&operator, std::slice::from_ref(x))
    }

    /// Runs any operator of one result into a new temporary.
    pub fn apply(&self, operator: &dyn Operator, inputs: &[View]) -> Result<View> {
        let metas: Vec<Meta> = inputs.iter().map(|x| Meta { dtype: x.dtype, shape: x.shape.clone() }).collect();
        let meta = operator.infer(&metas)?.remove(0);
        let to = self.temporary(meta.dtype, &meta.shape)?;
        operator.run(self.queue, inputs, std::slice::from_ref(&to))?;
        Ok(to)
    }

    /// The mean along these axes, and the distances from it. In float32 the mean is moved by the mean of the distances, so that equal elements, whose
    /// sum is rounded, are at a distance of 0. Sums of a half's equal elements are not rounded, and those of float64 by too little to be seen.
    pub fn centred(&self, x: &View, axes: &[i64]) -> Result<[View; 2]> {
        let compute = x.dtype.compute();
        let wide = self.cast(x, compute)?;
        let mean = self.reduce(Reduction::Mean, &wide, axes)?;
        let distance = self.subtract(&wide, &mean)?;
        if x.dtype != DType::F32 {
            return Ok([mean, distance]);
        }
        let mean = self.add(&mean, &self.reduce(Reduction::Mean, &distance, axes)?)?;
        let distance = self.subtract(&wide, &mean)?;
        Ok([mean, distance])
    }

    /// Writes a value of as many elements to an output, in the output's type.
    pub fn store(&self, value: &View, to: &View) -> Result<()> {
        let value = View::dense(value.address, value.dtype, &to.shape)?;
        run(Elementwise::Unary(Unary::Cast), self.queue, &[&value], &[], to)
    }
}

/// Numbers of an elementwise operator, all of them floats.
pub fn floats(numbers: &[f64]) -> arrayvec::ArrayVec<Number, 4> {
    numbers.iter().map(|&number| Number::Float(number)).collect()
}

/// The shape of an elementwise operator's result.
pub fn common_shape(operator: Elementwise, inputs: &[&View]) -> Result<Shape> {
    let mut shape = Shape::new();
    for input in inputs {
        shape = broadcast(operator.row().name, &shape, &input.shape)?;
    }
    Ok(shape)
}
