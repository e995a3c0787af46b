//! Kernels of products of matrices and vectors, their gradients, and products with what is added to them.

use super::compose::Compose;
use super::movement::many;
use super::recorded::Recorded;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Unary, run};
use openmps_graph::operators::linear::Linear;
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::operators::repeat_gradient::RepeatGradient;
use openmps_graph::{Meta, Operator, View};
use openmps_tile::Number;
use openmps_tile::dtype::{FLOATS, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("matmul", NUMBERS, matmul).strided();
    table.add("matmul_double_grad", FLOATS, matmul_double_grad);
    table.add("matmul_grad", FLOATS, matmul_grad).strided();
    table.add("bmm", FLOATS, bmm).strided();
    table.add("bmm_grad", FLOATS, bmm_grad).strided();
    table.add("mv", FLOATS, bmm).strided();
    table.add("mv_grad", FLOATS, bmm_grad).strided();
    table.add("dot", NUMBERS, dot).strided();
    table.add("dot_grad", FLOATS, dot_grad).strided();
    table.add("addmm", FLOATS, addmm).strided();
    table.add("addmm_grad", FLOATS, addmm_grad).strided();
    // These see tensors as matrices, which strided ones may not allow.
    table.add("matmul_with_flatten", FLOATS, matmul_with_flatten);
    table.add("matmul_with_flatten_grad", FLOATS, matmul_with_flatten_grad);
    table.add("matmul_with_flatten_double_grad", FLOATS, matmul_with_flatten_double_grad);
    table.add("fc", FLOATS, fc);
}

const PLAIN: Matmul = Matmul { transpose_left: false, transpose_right: false };

fn matmul(
    context: &Context,
    x: Tensor,
    y: Tensor,
    transpose_left: bool,
    transpose_right: bool,
    out: Output,
) -> Result<()> {
    many(context, &Matmul { transpose_left, transpose_right }, &[x.view()?, y.view()?], &[Some(&out)])
}

/// Of batches of matrices, and of a matrix with a vector.
fn bmm(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    many(context, &PLAIN, &[x.view()?, y.view()?], &[Some(&out)])
}

/// With a dimension of size 1 before `axis`.
pub(super) fn with_axis(view: &View, axis: usize) -> Result<View> {
    let (mut shape, mut strides) = (view.shape.to_vec(), view.strides.to_vec());
    shape.insert(axis, 1);
    strides.insert(axis, 0);
    Ok(View::strided(view.address, view.dtype, &shape, &strides)?)
}

/// A product summed over what `shape` was repeated along, into a tensor of that many elements.
fn reduced(context: &Context, of: Matmul, left: &View, right: &View, shape: &[usize], out: &Output) -> Result<()> {
    let meta = |view: &View| Meta { dtype: view.dtype, shape: view.shape.clone() };
    let product = of.infer(&[meta(left), meta(right)])?.remove(0);
    let to = context.allocate(out, product.dtype)?;
    let to = View::dense(to.address, to.dtype, shape)?;
    if *product.shape == *shape {
        return Ok(of.accumulate(context.queue(), [left, right], &to, [1.0, 0.0])?);
    }
    let whole = context.temporary(product.dtype, &product.shape)?;
    of.accumulate(context.queue(), [left, right], &whole.view, [1.0, 0.0])?;
    let sum = RepeatGradient { dims: to.shape.clone() };
    Ok(sum.run(context.queue(), std::slice::from_ref(&whole.view), &[to])?)
}

/// Both gradients of a product.
pub(super) fn gradients(
    context: &Context,
    of: Matmul,
    [mut x, mut y, mut upstream]: [View; 3],
    [dx, dy]: [Option<&Output>; 2],
) -> Result<()> {
    let Matmul { transpose_left: mut left, transpose_right: mut right } = of;
    // Vectors as matrices: a row on the left, a column on the right.
    if y.rank() == 1 {
        (y, right) = (with_axis(&y, 1)?, false);
        upstream = with_axis(&upstream, upstream.rank())?;
    }
    if x.rank() == 1 {
        (x, left) = (with_axis(&x, 0)?, false);
        upstream = with_axis(&upstream, upstream.rank() - 1)?;
    }
    // Many rows and one matrix, as in a linear layer: one product instead of one for each batch and a sum.
    if y.rank() == 2 && x.rank() > 2 && !left && x.is_dense() && upstream.is_dense() {
        let flat = |view: &View| -> Result<View> {
            let columns = view.shape[view.rank() - 1];
            let rows: usize = view.shape[..view.rank() - 1].iter().product();
            Ok(View::dense(view.address, view.dtype, &[rows, columns])?)
        };
        (x, upstream) = (flat(&x)?, flat(&upstream)?);
    }
    let product = |transpose_left, transpose_right| Matmul { transpose_left, transpose_right };
    if let Some(dx) = dx {
        match left {
            false => reduced(context, product(false, !right), &upstream, &y, &x.shape, dx)?,
            true => reduced(context, product(right, true), &y, &upstream, &x.shape, dx)?,
        }
    }
    if let Some(dy) = dy {
        match right {
            false => reduced(context, product(!left, false), &x, &upstream, &y.shape, dy)?,
            true => reduced(context, product(true, left), &upstream, &x, &y.shape, dy)?,
        }
    }
    Ok(())
}

fn matmul_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    transpose_left: bool,
    transpose_right: bool,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let inputs = [x.view()?, y.view()?, upstream.view()?];
    gradients(context, Matmul { transpose_left, transpose_right }, inputs, [dx.as_ref(), dy.as_ref()])
}

/// The gradients of both gradients of a product, for the upstreams ddx and ddy.
fn second(
    context: &Context,
    of: Matmul,
    [x, y, upstream]: [View; 3],
    upstreams: [Option<View>; 2],
    outputs: [Option<Output>; 3],
) -> Result<()> {
    let mut recorded = Recorded::new(context, x.dtype);
    let by = [x, y, upstream].map(|view| recorded.given(&view));
    let [ddx, ddy] = upstreams.map(|view| view.map(|view| recorded.given(&view)));
    let [x, y, upstream] = by;
    let [dx, dy] = recorded.of_both(of, [x, y], Some(upstream))?;
    let found = recorded.gradients(&[(dx, ddx), (dy, ddy)], by)?;
    recorded.store(outputs, found)
}

fn matmul_double_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    ddx: Option<Tensor>,
    ddy: Option<Tensor>,
    transpose_left: bool,
    transpose_right: bool,
    dx: Option<Output>,
    dy: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    let upstreams = [ddx.map(|ddx| ddx.view()).transpose()?, ddy.map(|ddy| ddy.view()).transpose()?];
    let of = Matmul { transpose_left, transpose_right };
    second(context, of, [x.view()?, y.view()?, upstream.view()?], upstreams, [dx, dy, ddout])
}

fn bmm_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    gradients(context, PLAIN, [x.view()?, y.view()?, upstream.view()?], [dx.as_ref(), dy.as_ref()])
}

/// Of vectors, or of each row of two matrices.
fn dot(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let (x, y) = (x.view()?, y.view()?);
    let last = x.rank().saturating_sub(1);
    if x.rank() < 2 {
        return many(context, &PLAIN, &[x, y], &[Some(&out)]);
    }
    many(context, &PLAIN, &[with_axis(&x, last)?, with_axis(&y, last + 1)?], &[Some(&out)])
}

fn dot_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (x, y, mut upstream) = (x.view()?, y.view()?, upstream.view()?);
    if upstream.rank() < x.rank() {
        upstream = with_axis(&upstream, upstream.rank())?;
    }
    for (out, other) in [(dx, &y), (dy, &x)] {
        if let Some(out) = out {
            let to = context.allocate(&out, other.dtype)?;
            run(Elementwise::Binary(Binary::Multiply), context.queue(), &[other, &upstream], &[], &to)?;
        }
    }
    Ok(())
}

/// `alpha * product + beta * addend`, where the latter repeats to the product's shape. What is multiplied by zero does not count, NaN
/// neither, as in BLAS.
fn added(context: &Context, addend: &View, inputs: [&View; 2], out: &View, factors: [f64; 2]) -> Result<()> {
    let Some(repeated) = addend.broadcast_to(&out.shape) else {
        return Err(refuse("shape of the addend", &addend.shape, &format!("one that repeats to {:?}", out.shape)));
    };
    // In place the addend is there already, if it is not repeated; what is multiplied must not be overwritten.
    let copies = [context.apart(inputs[0], out)?, context.apart(inputs[1], out)?];
    let inputs = [0, 1].map(|i| copies[i].as_ref().map_or(inputs[i], |copy| &copy.view));
    if !repeated.is_same_memory(out) {
        let copy = context.apart(&repeated, out)?;
        let repeated = copy.as_ref().map_or(&repeated, |copy| &copy.view);
        Copy.run(context.queue(), std::slice::from_ref(repeated), std::slice::from_ref(out))?;
    }
    let [alpha, beta] = factors;
    if alpha == 0.0 && beta == 0.0 {
        return Compose::new(context).fill(out, 0.0);
    }
    if alpha == 0.0 {
        let factors = [Number::Float(beta), Number::Float(0.0)];
        return Ok(run(Elementwise::Unary(Unary::Scale), context.queue(), &[out], &factors, out)?);
    }
    Ok(PLAIN.accumulate(context.queue(), inputs, out, factors)?)
}

fn addmm(context: &Context, input: Tensor, x: Tensor, y: Tensor, beta: f32, alpha: f32, out: Output) -> Result<()> {
    let (input, x, y) = (input.view()?, x.view()?, y.view()?);
    let out = context.allocate(&out, x.dtype)?;
    added(context, &input, [&x, &y], &out, [alpha.into(), beta.into()])
}

fn addmm_grad(
    context: &Context,
    input: Tensor,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    alpha: f32,
    beta: f32,
    dinput: Option<Output>,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (x, y, upstream, queue) = (x.view()?, y.view()?, upstream.view()?, context.queue());
    if let Some(out) = dinput {
        let to = context.allocate(&out, upstream.dtype)?;
        RepeatGradient { dims: input.shape() }.run(
            queue,
            std::slice::from_ref(&upstream),
            std::slice::from_ref(&to),
        )?;
        let factors = [Number::Float(beta.into()), Number::Float(0.0)];
        run(Elementwise::Unary(Unary::Scale), queue, &[&to], &factors, &to)?;
    }
    let factors = [alpha.into(), 0.0];
    if let Some(out) = dx {
        let to = context.allocate(&out, x.dtype)?;
        Matmul { transpose_right: true, ..PLAIN }.accumulate(queue, [&upstream, &y], &to, factors)?;
    }
    if let Some(out) = dy {
        let to = context.allocate(&out, y.dtype)?;
        Matmul { transpose_left: true, ..PLAIN }.accumulate(queue, [&x, &upstream], &to, factors)?;
    }
    Ok(())
}

/// A dense tensor as a matrix whose rows are the first `rows` dimensions.
fn matrix(view: &View, attribute: &'static str, rows: i32) -> Result<View> {
    let Some(at) = usize::try_from(rows).ok().filter(|&rows| rows <= view.rank()) else {
        return Err(refuse(attribute, rows, &format!("0 to {}", view.rank())));
    };
    let sizes = [view.shape[..at].iter().product(), view.shape[at..].iter().product()];
    Ok(View::dense(view.address, view.dtype, &sizes)?)
}

fn matmul_with_flatten(context: &Context, x: Tensor, y: Tensor, x_dims: i32, y_dims: i32, out: Output) -> Result<()> {
    let x = matrix(&x.view()?, "x_num_col_dims", x_dims)?;
    let y = matrix(&y.view()?, "y_num_col_dims", y_dims)?;
    many(context, &PLAIN, &[x, y], &[Some(&out)])
}

fn matmul_with_flatten_double_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    ddx: Option<Tensor>,
    ddy: Option<Tensor>,
    x_dims: i32,
    y_dims: i32,
    dx: Option<Output>,
    dy: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    let left = |x: &Tensor| matrix(&x.view()?, "x_num_col_dims", x_dims);
    let right = |y: &Tensor| matrix(&y.view()?, "y_num_col_dims", y_dims);
    let (x, y, upstream) = (left(&x)?, right(&y)?, upstream.view()?);
    let upstream = View::dense(upstream.address, upstream.dtype, &[x.shape[0], y.shape[1]])?;
    let upstreams = [ddx.as_ref().map(left).transpose()?, ddy.as_ref().map(right).transpose()?];
    second(context, PLAIN, [x, y, upstream], upstreams, [dx, dy, ddout])
}

fn matmul_with_flatten_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    x_dims: i32,
    y_dims: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let x = matrix(&x.view()?, "x_num_col_dims", x_dims)?;
    let y = matrix(&y.view()?, "y_num_col_dims", y_dims)?;
    let upstream = upstream.view()?;
    let upstream = View::dense(upstream.address, upstream.dtype, &[x.shape[0], y.shape[1]])?;
    gradients(context, PLAIN, [x, y, upstream], [dx.as_ref(), dy.as_ref()])
}

/// A linear layer: a product, a bias, and perhaps ReLU.
fn fc(
    context: &Context,
    input: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    rows: i32,
    activation: String,
    padding_weights: bool,
    out: Output,
) -> Result<()> {
    if padding_weights {
        return Err(refuse("padding_weights", padding_weights, "false"));
    }
    if !matches!(&*activation, "" | "relu") {
        return Err(refuse("activation_type", activation, "relu or nothing"));
    }
    let (input, weight) = (matrix(&input.view()?, "in_num_col_dims", rows)?, weight.view()?);
    let to = context.allocate(&out, input.dtype)?;
    let columns = weight.shape.last().copied().unwrap_or(0);
    let to = View::dense(to.address, to.dtype, &[input.shape[0], columns])?;
    let activation = (activation == "relu").then_some(Activation::Relu);
    let layer = Linear { bias: bias.is_some(), activation, ..Linear::default() };
    let mut inputs = vec![input, weight];
    if let Some(bias) = bias {
        let bias = bias.view()?;
        inputs.push(View::dense(bias.address, bias.dtype, &[bias.len()])?);
    }
    Ok(layer.run(context.queue(), &inputs, &[to])?)
}
