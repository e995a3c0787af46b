//! Python's indexing by index tensors: index_elementwise_get, index_elementwise_put, index_put, and their gradients.

mod description;

use self::description::{Described, described, leading};
use super::compose::Compose;
use super::indexing::zeros;
use super::movement::{one, summed};
use crate::context::Temporary;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, run};
use openmps_graph::operators::sequence::Arange;
use openmps_graph::view::dense_strides;
use openmps_graph::{DType, View};
use openmps_tile::Number;
use openmps_tile::dtype::{ALL, NUMBERS};

/// Adds this family. Inputs arrive as they are: the strides that Paddle passes along are those of the tensor that was indexed.
pub fn register(table: &mut Table) {
    table.add("index_elementwise_get", ALL, get).strided();
    table.add("index_elementwise_get_grad", NUMBERS, get_grad).strided();
    table.add("index_elementwise_put", ALL, put).strided();
    table.add("index_elementwise_put_grad", NUMBERS, put_grad).strided();
    table.add("index_elementwise_put_with_tensor", ALL, put_with_tensor).strided();
    table.add("index_elementwise_put_with_tensor_grad", NUMBERS, put_with_tensor_grad).strided();
    table.add("index_put", ALL, index_put);
    table.add("index_put_grad", NUMBERS, index_put_grad);
}

/// What Paddle passes after the tensors: dims, strides, sizes, axis strides, start.
macro_rules! described {
    ($context:expr, $x:expr, $to:expr, $indices:expr, $dims:expr, $strides:expr, $sizes:expr, $axis_strides:expr, $start:expr) => {
        described($context, $x, $to, $indices, (&$dims, &$strides), (&$sizes, &$axis_strides), $start)?
    };
}

fn get(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    _: bool,
    _: bool,
    out: Output,
) -> Result<()> {
    let from = x.view()?;
    let what = described!(context, &x, &from.strides, &indices, dims, strides, sizes, axis_strides, start);
    if out.shape() != what.selection.shape && !out.shape().is_empty() {
        out.set_dims(&what.selection.shape);
    }
    let to = context.allocate(&out, x.dtype()?)?;
    let to = View::dense(to.address, to.dtype, &what.selection.shape)?;
    Ok(what.selection.get(context.queue(), &from, &what.indices, &to)?)
}

fn get_grad(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    gradient: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    _: bool,
    _: bool,
    out: Output,
) -> Result<()> {
    let dense = dense_strides(&x.shape());
    let what = described!(context, &x, &dense, &indices, dims, strides, sizes, axis_strides, start);
    let gradient = gradient.view()?;
    let copy = if gradient.is_dense() { None } else { Some(context.copy(&gradient)?) };
    let gradient = copy.as_ref().map_or(&gradient, |copy| &copy.view);
    let gradient = View::dense(gradient.address, gradient.dtype, &what.selection.shape)?;
    let sums = zeros(context, gradient.dtype, &x.shape(), &out)?;
    Ok(what.selection.add(context.queue(), &sums, &what.indices, &gradient)?)
}

/// A copy of a tensor in the output, or the tensor itself in its own layout where Paddle runs the kernel in place.
fn copied(context: &Context, x: &Tensor, out: &Output) -> Result<View> {
    if out.tensor().raw() == x.raw() {
        return x.view();
    }
    one(context, &Copy, *x, out)?;
    out.tensor().view()
}

impl Described {
    /// The value apart from the tensor that is written to, as are the indices: `x[i] = x[j]`.
    fn apart(&mut self, context: &Context, to: &View, value: View) -> Result<View> {
        let mut apart = |view: &mut View| -> Result<()> {
            if let Some(copy) = context.apart(view, to)? {
                *view = copy.view.clone();
                self.memory.push(copy);
            }
            Ok(())
        };
        self.indices.iter_mut().try_for_each(&mut apart)?;
        let mut value = value;
        apart(&mut value)?;
        Ok(value)
    }
}

/// Puts one element all over a selection.
fn put_element(context: &Context, what: &mut Described, x: &View, element: &[u8; 8]) -> Result<()> {
    let value = context.upload(x.dtype, &[], &element[..x.dtype.size()])?;
    let value = what.apart(context, x, value.view.clone())?;
    Ok(what.selection.put(context.queue(), x, &what.indices, &value)?)
}

fn put(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    value: Scalar,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    out: Output,
) -> Result<()> {
    let mut element = [0; 8];
    element.copy_from_slice(&value.element(x.data_type())?[..8]);
    let to = copied(context, &x, &out)?;
    let mut what = described!(context, &x, &to.strides, &indices, dims, strides, sizes, axis_strides, start);
    put_element(context, &mut what, &to, &element)
}

fn put_grad(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    gradient: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    out: Output,
) -> Result<()> {
    let copy = copied(context, &gradient, &out)?;
    let mut what = described!(context, &x, &copy.strides, &indices, dims, strides, sizes, axis_strides, start);
    put_element(context, &mut what, &copy, &Number::Integer(0).element(copy.dtype))
}

fn put_with_tensor(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    value: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    out: Output,
) -> Result<()> {
    let to = copied(context, &x, &out)?;
    let mut what = described!(context, &x, &to.strides, &indices, dims, strides, sizes, axis_strides, start);
    let value = without_leading_ones(value.view()?, &what);
    let value = what.apart(context, &to, value)?;
    Ok(what.selection.put(context.queue(), &to, &what.indices, &value)?)
}

/// A value may have more leading axes of size 1 than the selection has axes.
fn without_leading_ones(mut value: View, what: &Described) -> View {
    while value.rank() > what.selection.shape.len() && value.shape[0] == 1 {
        value = value.without_axis(0);
    }
    value
}

/// Which of the values that are written to one element have its gradient.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    /// All: they were added up.
    Sum,
    /// All, though one has stayed: what Paddle has of `index_put`.
    All,
    /// The last, which has stayed.
    Last,
}

impl Described {
    /// What is selected of a gradient, with zeros where another value was written to the same element later.
    fn where_it_stayed(&self, context: &Context, from: &View, taken: Temporary) -> Result<Temporary> {
        let (c, dims) = (Compose::new(context), &self.selection.shape);
        let numbers =
            Arange { start: Number::Integer(0), step: Number::Integer(1), len: taken.view.len(), dtype: DType::I64 };
        let numbers = c.shaped(&c.apply(&numbers, &[])?, dims)?;
        let last = context.temporary(DType::I64, &from.shape)?;
        self.selection.put(context.queue(), &last.view, &self.indices, &numbers)?;
        let stayed = context.temporary(DType::I64, dims)?;
        self.selection.get(context.queue(), &last.view, &self.indices, &stayed.view)?;
        let stayed = c.map(Elementwise::Binary(Binary::Equal), &[&stayed.view, &numbers], &[])?;
        let kept = context.temporary(taken.view.dtype, dims)?;
        run(Elementwise::Gradient(Gradient::Chosen), context.queue(), &[&stayed, &taken.view], &[], &kept.view)?;
        Ok(kept)
    }
}

/// The gradients of a tensor that was written to and of the value that was written.
fn written_gradients(
    context: &Context,
    what: &mut Described,
    gradient: &Tensor,
    written: Written,
    x_gradient: Option<Output>,
    value_gradient: Option<Output>,
) -> Result<()> {
    // Paddle may make x's gradient in the memory of the other: it is read first.
    if let Some(out) = value_gradient {
        let (mut from, mut copy) = (gradient.view()?, None);
        if !from.is_dense() {
            from = copy.insert(context.copy(&from)?).view.clone();
        }
        let shape = what.selection.shape.clone();
        let taken = context.temporary(from.dtype, &shape)?;
        what.selection.get(context.queue(), &from, &what.indices, &taken.view)?;
        let taken = if written == Written::Last && !taken.view.is_empty() {
            what.where_it_stayed(context, &from, taken)?
        } else {
            taken
        };
        let shaped = without_leading_ones(View::dense(0, from.dtype, &out.shape())?, what);
        summed(context, &taken.view, shaped.shape, &out)?;
    }
    let Some(out) = x_gradient else { return Ok(()) };
    let copy = copied(context, gradient, &out)?;
    if written == Written::Sum {
        Ok(())
    } else {
        put_element(context, what, &copy, &Number::Integer(0).element(copy.dtype))
    }
}

fn put_with_tensor_grad(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    _: Tensor,
    gradient: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    x_gradient: Option<Output>,
    value_gradient: Option<Output>,
) -> Result<()> {
    // Both gradients are made of a dense one.
    let dense = dense_strides(&x.shape());
    let mut what = described!(context, &x, &dense, &indices, dims, strides, sizes, axis_strides, start);
    written_gradients(context, &mut what, &gradient, Written::Last, x_gradient, value_gradient)
}

fn index_put(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    value: Tensor,
    accumulate: bool,
    out: Output,
) -> Result<()> {
    let mut what = leading(context, &x, &indices)?;
    let to = copied(context, &x, &out)?;
    // Where masks select nothing Paddle asks for no shape of the value.
    let has_mask = indices.iter().any(|index| index.dtype().is_ok_and(|dtype| dtype == DType::Bool));
    if has_mask && what.selection.shape.contains(&0) {
        return Ok(());
    }
    let value = without_leading_ones(value.view()?, &what);
    let value = what.apart(context, &to, value)?;
    if accumulate {
        return Ok(what.selection.add(context.queue(), &to, &what.indices, &value)?);
    }
    Ok(what.selection.put(context.queue(), &to, &what.indices, &value)?)
}

fn index_put_grad(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    _: Tensor,
    gradient: Tensor,
    accumulate: bool,
    x_gradient: Option<Output>,
    value_gradient: Option<Output>,
) -> Result<()> {
    let mut what = leading(context, &x, &indices)?;
    let written = if accumulate { Written::Sum } else { Written::All };
    written_gradients(context, &mut what, &gradient, written, x_gradient, value_gradient)
}
