//! Kernels written as formulas over whole tensors: temporaries live until the formula's end.

use crate::error::{Result, refuse};
use crate::{Context, Output, Tensor};
use openmps_graph::formula::{Formula, common_shape, floats};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Elementwise, Unary, run};
use openmps_graph::operators::full::Full;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::repeat_gradient::RepeatGradient;
use openmps_graph::{DType, Operator, Shape, View};
use openmps_tile::Number;

/// A formula over Paddle's tensors.
pub(super) struct Compose<'c> {
    context: &'c Context,
    formula: Formula<'c>,
}

impl<'c> Compose<'c> {
    pub fn new(context: &'c Context) -> Compose<'c> {
        Compose { context, formula: Formula::new("a composed kernel", context.queue()) }
    }

    /// Memory for a value on the way.
    pub fn temporary(&self, dtype: DType, dims: &[usize]) -> Result<View> {
        Ok(self.formula.temporary(dtype, dims)?)
    }

    /// Elements that were made on the host, on the device.
    pub fn upload(&self, dtype: DType, dims: &[usize], elements: &[u8]) -> Result<View> {
        let view = self.temporary(dtype, dims)?;
        if !elements.is_empty() {
            self.context.queue().write(&view, elements)?;
        }
        Ok(view)
    }

    /// The same elements in this shape: where they lie, or, where they do not follow each other, copied.
    pub fn shaped(&self, x: &View, dims: &[usize]) -> Result<View> {
        if x.shape[..] == *dims {
            return Ok(x.clone());
        }
        if x.len() != dims.iter().product::<usize>() {
            return Err(refuse("shape", &x.shape, &format!("as many elements as {dims:?} has")));
        }
        if !x.is_dense() {
            return self.shaped(&self.apply(&Copy, std::slice::from_ref(x))?, dims);
        }
        Ok(View::dense(x.address, x.dtype, dims)?)
    }

    /// A tensor's elements on the device: Paddle leaves some states of optimizers on the host.
    pub fn resident(&self, x: &Tensor) -> Result<View> {
        let view = x.view()?;
        let bytes = view.len() * view.dtype.size();
        if bytes == 0 || self.context.holds(view.address, bytes) {
            return Ok(view);
        }
        self.upload(view.dtype, &view.shape, &self.context.bytes(&view)?)
    }

    /// An input in the type in which it is computed: itself, or float32 of a half.
    pub fn input(&self, x: &Tensor) -> Result<View> {
        let view = x.view()?;
        self.cast(&view, view.dtype.compute())
    }

    /// As [`Compose::input`], in another number's type.
    pub fn cast(&self, x: &View, dtype: DType) -> Result<View> {
        Ok(self.formula.cast(x, dtype)?)
    }

    /// An elementwise operator of tensors that broadcast.
    pub fn map(&self, operator: Elementwise, inputs: &[&View], numbers: &[f64]) -> Result<View> {
        Ok(self.formula.map(operator, inputs, numbers)?)
    }

    /// As [`Compose::map`], with numbers of either kind.
    pub fn map_numbers(&self, operator: Elementwise, inputs: &[&View], numbers: &[Number]) -> Result<View> {
        Ok(self.formula.map_numbers(operator, inputs, numbers)?)
    }

    pub fn add(&self, x: &View, y: &View) -> Result<View> {
        Ok(self.formula.add(x, y)?)
    }

    pub fn multiply(&self, x: &View, y: &View) -> Result<View> {
        Ok(self.formula.multiply(x, y)?)
    }

    pub fn subtract(&self, x: &View, y: &View) -> Result<View> {
        Ok(self.formula.subtract(x, y)?)
    }

    /// `x * scale + offset`.
    pub fn scale(&self, x: &View, scale: f64, offset: f64) -> Result<View> {
        self.map(Elementwise::Unary(Unary::Scale), &[x], &[scale, offset])
    }

    /// The reduction along these axes, which stay as dimensions of size 1.
    pub fn reduce(&self, reduction: Reduction, x: &View, axes: &[i64]) -> Result<View> {
        Ok(self.formula.reduce(reduction, x, axes)?)
    }

    /// A tensor of one value.
    pub fn constant(&self, dtype: DType, dims: &[usize], value: f64) -> Result<View> {
        let view = self.temporary(dtype, dims)?;
        self.fill(&view, value)?;
        Ok(view)
    }

    /// A tensor that may be missing, as zeros: the upstream of a result that nobody has used.
    pub fn or_zeros(&self, given: Option<&Tensor>, like: &View) -> Result<View> {
        match given {
            Some(given) => self.cast(&given.view()?, like.dtype),
            None => self.constant(like.dtype, &like.shape, 0.0),
        }
    }

    /// Gives every element this value.
    pub fn fill(&self, to: &View, value: f64) -> Result<()> {
        let value = Number::Float(value);
        let operator = Full { dims: to.shape.clone(), dtype: to.dtype, value };
        Ok(operator.run(self.context.queue(), &[], std::slice::from_ref(to))?)
    }

    /// Runs any operator into one new temporary.
    pub fn apply(&self, operator: &dyn Operator, inputs: &[View]) -> Result<View> {
        Ok(self.formula.apply(operator, inputs)?)
    }

    /// The sum over everything along which a tensor of `dims` was repeated.
    pub fn summed_to(&self, x: &View, dims: &Shape) -> Result<View> {
        self.apply(&RepeatGradient { dims: dims.clone() }, std::slice::from_ref(x))
    }

    /// Ends the formula: the operator's result in the output's memory, in type `dtype`. What broadcasting repeated is summed.
    pub fn store(
        &self,
        out: &Output,
        dtype: DType,
        operator: Elementwise,
        inputs: &[&View],
        numbers: &[f64],
    ) -> Result<()> {
        let shape = common_shape(operator, inputs)?;
        let to = self.context.allocate(out, dtype)?;
        if to.shape == shape && to.dtype == inputs[0].dtype {
            return Ok(run(operator, self.context.queue(), inputs, &floats(numbers), &to)?);
        }
        if to.len() >= shape.iter().product() || inputs.len() == 1 {
            return self.put(&self.map(operator, inputs, numbers)?, &to);
        }
        // What is summed up is not rounded to a half type before.
        let wide = |x: &&View| if x.dtype.is_float() { self.cast(x, x.dtype.compute()) } else { Ok((*x).clone()) };
        let inputs = inputs.iter().map(wide).collect::<Result<Vec<View>>>()?;
        self.put(&self.map(operator, &inputs.iter().collect::<Vec<_>>(), numbers)?, &to)
    }

    /// An output's memory, for an operator that writes it itself.
    pub fn place(&self, out: &Output, dtype: DType) -> Result<View> {
        self.context.allocate(out, dtype)
    }

    /// An elementwise operator into memory that is there, of any strides.
    pub fn run(&self, operator: Elementwise, inputs: &[&View], to: &View) -> Result<()> {
        Ok(run(operator, self.context.queue(), inputs, &[], to)?)
    }

    /// Runs an operator of several outputs.
    pub fn launch(&self, operator: &dyn Operator, inputs: &[View], outputs: &[View]) -> Result<()> {
        Ok(operator.run(self.context.queue(), inputs, outputs)?)
    }

    /// Ends the formula with a value.
    pub fn store_value(&self, out: &Output, dtype: DType, value: &View) -> Result<()> {
        let to = self.context.allocate(out, dtype)?;
        self.put(value, &to)
    }

    /// As [`Compose::store_value`], where the output is written with its axes in another order.
    pub fn store_as(
        &self,
        out: &Output,
        dtype: DType,
        value: &View,
        ordered: impl FnOnce(&View) -> View,
    ) -> Result<()> {
        let to = self.context.allocate(out, dtype)?;
        self.put(value, &ordered(&to))
    }

    /// Copies a value: repeated where the target is larger, summed where it is smaller, in the target's type.
    fn put(&self, value: &View, to: &View) -> Result<()> {
        let queue = self.context.queue();
        if to.is_empty() {
            return Ok(());
        }
        // The sum of nothing is zero.
        if value.is_empty() {
            return self.fill(to, 0.0);
        }
        if value.len() <= to.len() {
            let value = if value.len() == to.len() { self.shaped(value, &to.shape)? } else { value.clone() };
            return Ok(run(Elementwise::Unary(Unary::Cast), queue, &[&value], &[], to)?);
        }
        if value.dtype == to.dtype {
            let operator = RepeatGradient { dims: to.shape.clone() };
            return Ok(operator.run(queue, std::slice::from_ref(value), std::slice::from_ref(to))?);
        }
        let sum = self.summed_to(value, &to.shape)?;
        Ok(run(Elementwise::Unary(Unary::Cast), queue, &[&sum], &[], to)?)
    }
}
