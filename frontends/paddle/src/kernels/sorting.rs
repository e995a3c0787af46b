//! Kernels that order, search and accumulate along an axis, and their gradients.

use super::compose::Compose;
use super::indexing::zeros;
use super::movement::{many, one};
use crate::error::Result;
use crate::table::Table;
use crate::{Context, DataType, Output, Scalar, Tensor};
use openmps_graph::layout::axis_of;
use openmps_graph::operators::arg_reduce::ArgReduce;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::scan::{Kind, ProductGradient, Scan};
use openmps_graph::operators::scatter::{PutAlongAxis, Reduce};
use openmps_graph::operators::sort::{KthValue, Sort, TopK};
use openmps_graph::{DType, Operator, View};
use openmps_tile::dtype::{FLOATS, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("argsort", NUMBERS, argsort).strided().output(1, DType::I64);
    table.add("argsort_grad", NUMBERS, argsort_grad).strided();
    table.add("topk", NUMBERS, topk).strided().output(1, DType::I64);
    table.add("topk_grad", NUMBERS, topk_grad).strided();
    table.add("topk_v1", NUMBERS, topk_of_lines).strided().output(1, DType::I64);
    table.add("topk_v1_grad", NUMBERS, topk_of_lines_grad).strided();
    table.add("kthvalue", NUMBERS, kthvalue).strided().output(1, DType::I64);
    table.add("kthvalue_grad", NUMBERS, kthvalue_grad).strided();
    table.add("argmax", NUMBERS, argmax).strided().output_as_inferred(0);
    table.add("argmin", NUMBERS, argmin).strided().output_as_inferred(0);
    table.add("cumsum", NUMBERS, cumsum).strided();
    table.add("cumsum_grad", NUMBERS, cumsum_grad).strided();
    table.add("cumprod", NUMBERS, cumprod).strided();
    table.add("cumprod_grad", FLOATS, cumprod_grad).strided();
}

fn argsort(
    context: &Context,
    x: Tensor,
    axis: i32,
    descending: bool,
    _: bool,
    out: Output,
    indices: Output,
) -> Result<()> {
    many(context, &Sort { axis: axis.into(), descending }, &[x.view()?], &[Some(&out), Some(&indices)])
}

/// Puts a gradient back to where its elements came from; each place occurs once.
fn put_back(context: &Context, x: &Tensor, indices: View, gradient: View, axis: i64, out: &Output) -> Result<()> {
    let (shape, dtype) = (x.shape(), gradient.dtype);
    let result = zeros(context, dtype, &shape, out)?;
    // A scalar is a line of one element.
    let line = |view: View| if view.rank() == 0 { View::dense(view.address, view.dtype, &[1]) } else { Ok(view) };
    let put = PutAlongAxis { axis, reduce: Reduce::Assign, include_self: true };
    let result = line(result)?;
    Ok(put.run(context.queue(), &[result.clone(), line(indices)?, line(gradient)?], &[result])?)
}

fn argsort_grad(
    context: &Context,
    indices: Tensor,
    x: Tensor,
    gradient: Tensor,
    axis: i32,
    _: bool,
    _: bool,
    out: Output,
) -> Result<()> {
    put_back(context, &x, indices.view()?, gradient.view()?, axis.into(), &out)
}

fn topk(
    context: &Context,
    x: Tensor,
    k: Scalar,
    axis: i32,
    largest: bool,
    _: bool,
    out: Output,
    indices: Output,
) -> Result<()> {
    let x = x.view()?;
    if x.is_empty() && x.dtype.is_float() && !out.is_empty() {
        // Of an axis without elements Paddle has NaN, and 0 as the index.
        let c = Compose::new(context);
        c.fill(&c.place(&indices, DType::I64)?, 0.0)?;
        return c.fill(&c.place(&out, x.dtype)?, f64::NAN);
    }
    let operator = TopK { k: k.i64().max(0) as usize, axis: axis.into(), largest };
    many(context, &operator, &[x], &[Some(&out), Some(&indices)])
}

fn topk_grad(
    context: &Context,
    x: Tensor,
    indices: Tensor,
    gradient: Tensor,
    _: Scalar,
    axis: i32,
    _: bool,
    _: bool,
    out: Output,
) -> Result<()> {
    if x.shape().contains(&0) {
        return zeros(context, gradient.dtype()?, &x.shape(), &out).map(|_| ());
    }
    put_back(context, &x, indices.view()?, gradient.view()?, axis.into(), &out)
}

/// The older form: the largest of the last axis.
fn topk_of_lines(context: &Context, x: Tensor, k: Scalar, out: Output, indices: Output) -> Result<()> {
    topk(context, x, k, -1, true, true, out, indices)
}

fn topk_of_lines_grad(
    context: &Context,
    x: Tensor,
    indices: Tensor,
    gradient: Tensor,
    k: Scalar,
    out: Output,
) -> Result<()> {
    topk_grad(context, x, indices, gradient, k, -1, true, true, out)
}

fn kthvalue(
    context: &Context,
    x: Tensor,
    k: i64,
    axis: i32,
    keep_dim: bool,
    out: Output,
    indices: Output,
) -> Result<()> {
    let operator = KthValue { k: k.max(0) as usize, axis: axis.into(), keep_dim };
    many(context, &operator, &[x.view()?], &[Some(&out), Some(&indices)])
}

fn kthvalue_grad(
    context: &Context,
    x: Tensor,
    indices: Tensor,
    gradient: Tensor,
    _: i64,
    axis: i32,
    keep_dim: bool,
    out: Output,
) -> Result<()> {
    let with_axis = |tensor: Tensor| -> Result<View> {
        let mut view = tensor.view()?;
        let rank = x.shape().len();
        if !keep_dim && rank > 0 {
            let at = axis_of("kthvalue_grad", axis.into(), rank)?;
            view.shape.insert(at, 1);
            view.strides.insert(at, 0);
        }
        Ok(view)
    };
    put_back(context, &x, with_axis(indices)?, with_axis(gradient)?, axis.into(), &out)
}

/// Arguments of argmax and argmin after the tensor: axis, whether axes stay, whether the tensor is flattened, the result's type.
type Search = (Scalar, bool, bool, DataType);

fn search(
    context: &Context,
    largest: bool,
    x: Tensor,
    (axis, keep_dims, flatten, dtype): Search,
    out: &Output,
) -> Result<()> {
    let axis = if flatten { None } else { Some(axis.i64()) };
    one(context, &ArgReduce { largest, axis, keep_dims, dtype: dtype.or(DType::I64)? }, x, out)
}

fn argmax(
    context: &Context,
    x: Tensor,
    axis: Scalar,
    keep: bool,
    flatten: bool,
    dtype: DataType,
    out: Output,
) -> Result<()> {
    search(context, true, x, (axis, keep, flatten, dtype), &out)
}

fn argmin(
    context: &Context,
    x: Tensor,
    axis: Scalar,
    keep: bool,
    flatten: bool,
    dtype: DataType,
    out: Output,
) -> Result<()> {
    search(context, false, x, (axis, keep, flatten, dtype), &out)
}

fn cumsum(
    context: &Context,
    x: Tensor,
    axis: Scalar,
    flatten: bool,
    exclusive: bool,
    reverse: bool,
    out: Output,
) -> Result<()> {
    let axis = if flatten { None } else { Some(axis.i64()) };
    one(context, &Scan { kind: Kind::Sum, axis, exclusive, reverse }, x, &out)
}

fn cumsum_grad(
    context: &Context,
    _: Tensor,
    gradient: Tensor,
    axis: Scalar,
    flatten: bool,
    exclusive: bool,
    reverse: bool,
    out: Output,
) -> Result<()> {
    cumsum(context, gradient, axis, flatten, exclusive, !reverse, out)
}

fn cumprod(context: &Context, x: Tensor, axis: i32, exclusive: bool, reverse: bool, out: Output) -> Result<()> {
    one(context, &Scan { kind: Kind::Product, axis: Some(axis.into()), exclusive, reverse }, x, &out)
}

fn cumprod_grad(
    context: &Context,
    x: Tensor,
    products: Tensor,
    gradient: Tensor,
    axis: i32,
    exclusive: bool,
    reverse: bool,
    out: Output,
) -> Result<()> {
    let (x, gradient) = (x.view()?, gradient.view()?);
    let operator = ProductGradient { axis: axis.into() };
    if !exclusive && !reverse {
        return many(context, &operator, &[x, products.view()?, gradient], &[Some(&out)]);
    }
    let c = Compose::new(context);
    let place = c.place(&out, gradient.dtype)?;
    if x.is_empty() || x.rank() == 0 {
        // The product of nothing is 1, whatever the number is.
        return if exclusive { c.fill(&place, 0.0) } else { c.launch(&Copy, &[gradient], &[place]) };
    }
    let axis = if axis < 0 { axis as i64 + x.rank() as i64 } else { axis.into() } as usize;
    let size = x.shape[axis];
    let flipped = |view: &View| if reverse { view.narrowed(axis, size - 1, -1, size) } else { view.clone() };
    let (x, gradient, place) = (flipped(&x), flipped(&gradient), flipped(&place));
    if !exclusive {
        return c.launch(&Copy, &[of_products(&c, &operator, &x, &gradient)?], &[place]);
    }
    // The products before each element are those up to the one before: the last one is in none.
    let [x, to] = [&x, &place].map(|view| view.narrowed(axis, 0, 1, size - 1));
    if size > 1 {
        let gradient = gradient.narrowed(axis, 1, 1, size - 1);
        c.launch(&Copy, &[of_products(&c, &operator, &x, &gradient)?], &[to])?;
    }
    c.fill(&place.narrowed(axis, size - 1, 1, 1), 0.0)
}

/// The gradient of products from the first element on.
fn of_products(c: &Compose, operator: &ProductGradient, x: &View, gradient: &View) -> Result<View> {
    let scan = Scan { kind: Kind::Product, axis: Some(operator.axis), exclusive: false, reverse: false };
    let [x, gradient] = [x, gradient].map(|view| c.apply(&Copy, std::slice::from_ref(view)));
    let (x, gradient) = (x?, gradient?);
    let products = c.apply(&scan, std::slice::from_ref(&x))?;
    c.apply(operator, &[x, products, gradient])
}
