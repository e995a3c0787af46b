//! Python's indexing by index tensors: index_elementwise_get, index_elementwise_put, index_put, and their gradients.

use super::compose::Compose;
use super::indexing::zeros;
use super::movement::{one, summed};
use crate::context::Temporary;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::advanced_index::{Axis, Selection, broadcast_shape};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, run};
use openmps_graph::operators::nonzero::{count_nonzero, nonzero};
use openmps_graph::operators::sequence::Arange;
use openmps_graph::view::{dense_strides, shape_of};
use openmps_graph::{DType, Shape, Strides, View};
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

/// An indexing as Paddle describes it: the selection's shape and strides in elements; the sizes of the indexed axes, of which the
/// list goes on after -1 with the shape of the indices; the strides of the indexed axes and the start in bytes.
struct Described {
    selection: Selection,
    indices: Vec<View>,
    /// Holds indices that a mask was turned into, and copies.
    memory: Vec<Temporary>,
}

/// Strides of the tensor that was indexed as those of a tensor of another layout: a gradient is not laid out as its tensor.
struct Layouts {
    indexed: Strides,
    to: Strides,
    sizes: Shape,
    unused: Vec<usize>,
}

impl Layouts {
    fn new(x: &Tensor, to: &[isize]) -> Layouts {
        let (sizes, unused) = (x.shape(), (0..to.len()).collect());
        // Without elements strides say nothing.
        let indexed = if sizes.contains(&0) { dense_strides(&sizes) } else { x.strides() };
        Layouts { indexed, to: to.iter().copied().collect(), sizes, unused }
    }

    /// The same axis' stride, or that of the same steps along it. An axis is known by its stride, of which one that is sliced has a multiple;
    /// index tensors extend along axes of stride zero.
    fn stride(&mut self, size: usize, stride: isize) -> Result<isize> {
        if self.indexed == self.to || stride == 0 && !self.repeats() {
            return Ok(stride);
        }
        if self.repeats() {
            return Err(self.refuse());
        }
        if size <= 1 {
            return Ok(0);
        }
        let steps = |axis: usize| match self.indexed[axis] {
            own if own != 0 && stride % own == 0 => Some(stride / own),
            _ => None,
        };
        let fits = |axis| steps(axis).is_some_and(|steps| steps.unsigned_abs() * (size - 1) < self.sizes[axis]);
        let candidates = (0..self.unused.len()).filter(|&at| fits(self.unused[at]));
        let found = candidates.max_by_key(|&at| self.indexed[self.unused[at]].abs()).ok_or_else(|| self.refuse())?;
        let axis = self.unused.remove(found);
        Ok(stride / self.indexed[axis] * self.to[axis])
    }

    /// The same element's offset: what it is made of by the strides, largest first, each times an index within its axis.
    fn start(&self, start: isize) -> Result<isize> {
        if self.indexed == self.to || start == 0 {
            return Ok(start);
        }
        let mut axes: Vec<usize> = (0..self.sizes.len()).filter(|&axis| self.sizes[axis] > 1).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(self.indexed[axis].abs()));
        let last = |axis: usize| self.sizes[axis] as isize - 1;
        // Along an axis that runs backwards indices are counted from its end.
        let backwards = |axis: &&usize| self.indexed[**axis] < 0;
        let mut rest =
            start - axes.iter().filter(backwards).map(|&axis| last(axis) * self.indexed[axis]).sum::<isize>();
        let mut found = 0;
        for &axis in &axes {
            let stride = self.indexed[axis];
            let steps = if stride == 0 { 0 } else { (rest / stride.abs()).clamp(0, last(axis)) };
            rest -= steps * stride.abs();
            found += self.to[axis] * if stride < 0 { last(axis) - steps } else { steps };
        }
        if rest == 0 { Ok(found) } else { Err(self.refuse()) }
    }

    fn refuse(&self) -> Error {
        let (got, expected) = (format!("{:?}", self.indexed), "those of a view that repeats no element".to_owned());
        Error::Attribute { attribute: "strides", got, expected }
    }

    fn repeats(&self) -> bool {
        self.indexed.iter().zip(&self.sizes).any(|(&stride, &size)| stride == 0 && size > 1)
    }
}

/// The indexing of a tensor with the strides `to`, which need not be those of the tensor that was indexed.
fn described(
    context: &Context,
    x: &Tensor,
    to: &[isize],
    indices: &[Tensor],
    (dims, strides): (&[i64], &[i64]),
    (sizes, axis_strides): (&[i64], &[i64]),
    start: i64,
) -> Result<Described> {
    let element = x.dtype()?.size() as isize;
    let shape = shape_of(&dims.iter().map(|&size| size.max(0) as usize).collect::<Vec<_>>())?;
    let mut layouts = Layouts::new(x, to);
    let axis = |(&size, &stride): (&i64, &i64)| -> Result<Axis> {
        let size = size.max(0) as usize;
        Ok(Axis { size, stride: layouts.stride(size, stride as isize / element)? })
    };
    let start = Layouts::new(x, to).start(start as isize / element)?;
    let axes = sizes.iter().take_while(|&&size| size != -1).zip(axis_strides).map(axis).collect::<Result<_>>()?;
    let mut views = indices.iter().map(Tensor::view).collect::<Result<Vec<View>>>()?;
    if let [mask] = &views[..]
        && mask.dtype == DType::Bool
    {
        let mut layouts = Layouts::new(x, to);
        let own = shape.iter().zip(strides).map(|(&size, &stride)| layouts.stride(size, stride as isize));
        return masked(context, &mask.clone(), shape.clone(), &own.collect::<Result<Strides>>()?, start);
    }
    let own = shape.iter().zip(strides).map(|(&size, &stride)| layouts.stride(size, stride as isize));
    let strides = own.collect::<Result<Strides>>()?;
    // The indices come in their own shape; the selection's axes that they extend along are told after -1.
    let extended: Vec<usize> =
        sizes.split(|&size| size == -1).nth(1).unwrap_or(&[]).iter().map(|&size| size.max(0) as usize).collect();
    let mut memory = Vec::new();
    for view in &mut views {
        if extended.is_empty() || view.len() != extended.iter().product() {
            continue;
        }
        if !view.is_dense() {
            let copy = context.copy(view)?;
            *view = copy.view.clone();
            memory.push(copy);
        }
        *view = View::dense(view.address, view.dtype, &extended)?;
    }
    let selection = Selection { shape, strides, start, axes };
    Ok(Described { selection, indices: views, memory })
}

/// A selection by a mask: the elements where it is true, one after the other.
fn masked(context: &Context, mask: &View, shape: Shape, strides: &[isize], start: isize) -> Result<Described> {
    let rank = mask.rank().min(strides.len());
    let found = count_nonzero(context.queue(), mask)?;
    let memory = context.temporary(DType::I64, &[found, mask.rank()])?;
    let rows = &memory.view;
    nonzero(context.queue(), mask, rows)?;
    let axes = (0..rank).map(|d| Axis { size: shape[d], stride: strides[d] }).collect();
    let rest = shape.len() - rank;
    let indices = (0..rank).map(|d| column(rows, d, rest)).collect::<Result<Vec<View>>>()?;
    let dims = [&[found], &shape[rank..]].concat();
    let strides = std::iter::once(0).chain(strides[rank..].iter().copied()).collect();
    Ok(Described {
        selection: Selection { shape: shape_of(&dims)?, strides, start, axes },
        indices,
        memory: vec![memory],
    })
}

/// One coordinate of rows of coordinates, with axes of size 1 for those that are not indexed.
fn column(rows: &View, d: usize, rest: usize) -> Result<View> {
    let mut column = rows.narrowed(1, d, 1, 1).without_axis(1);
    column.shape.extend(std::iter::repeat_n(1, rest));
    column.strides.extend(std::iter::repeat_n(0, rest));
    Ok(column)
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
            if view.overlaps(to) {
                let copy = context.copy(view)?;
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

/// index_put's indexing: the first axes are indexed, one by each tensor; a mask indexes as many axes as it has.
fn leading(context: &Context, x: &Tensor, indices: &[Tensor]) -> Result<Described> {
    let shape = x.shape();
    let strides = dense_strides(&shape);
    let (mut views, mut memory) = (Vec::new(), Vec::new());
    for index in indices {
        let view = index.view()?;
        if view.dtype != DType::Bool {
            views.push(view);
            continue;
        }
        let found = count_nonzero(context.queue(), &view)?;
        let rows = context.temporary(DType::I64, &[found, view.rank()])?;
        nonzero(context.queue(), &view, &rows.view)?;
        for d in 0..view.rank() {
            views.push(column(&rows.view, d, 0)?);
        }
        memory.push(rows);
    }
    if views.len() > shape.len() {
        let (got, expected) = (format!("{} indexed axes", views.len()), format!("at most {}", shape.len()));
        return Err(Error::Attribute { attribute: "indices", got, expected });
    }
    let extended = broadcast_shape(&views, openmps_graph::view::MAX_RANK)?;
    let rest = views.len();
    let axes = (0..rest).map(|d| Axis { size: shape[d], stride: strides[d] }).collect();
    let dims = [&extended[..], &shape[rest..]].concat();
    let own = std::iter::repeat_n(0, extended.len()).chain(strides[rest..].iter().copied()).collect();
    for view in &mut views {
        let ones = shape.len() - rest;
        view.shape.extend(std::iter::repeat_n(1, ones));
        view.strides.extend(std::iter::repeat_n(0, ones));
    }
    let selection = Selection { shape: shape_of(&dims)?, strides: own, start: 0, axes };
    Ok(Described { selection, indices: views, memory })
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
    let (to, value) = (copied(context, &x, &out)?, without_leading_ones(value.view()?, &what));
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
