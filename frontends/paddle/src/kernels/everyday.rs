//! Small kernels that are a few formulas in a row: losses, choices, masks, gated units, indices.

use super::compose::Compose;
use super::elementwise::{compute, refuse_zero};
use super::images::refuse;
use super::movement::many;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, DataType, Output, Scalar, Tensor};
use openmps_graph::View;
use openmps_graph::operators::arg_reduce::ArgReduce;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::gather::Gather;
use openmps_graph::operators::random::{Law, Random, Source};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::{IndexAdd, PutAlongAxis, Reduce};
use openmps_graph::operators::sequence::{Arange, Linspace};
use openmps_graph::operators::softmax::Softmax;
use openmps_tile::dtype::{ALL, FLOATS, NUMBERS};
use openmps_tile::{DType, Number};

const INTEGERS: &[DType] = &[DType::I32, DType::I64];
const SIGNED: &[DType] =
    &[DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);
const CHOSEN: Elementwise = Elementwise::Gradient(Gradient::Chosen);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("negative", SIGNED, negative).strided();
    table.add("rint", NUMBERS, round).strided();
    table.add("rint_grad", FLOATS, flat).strided();
    table.add("poisson_grad", FLOATS, flat).strided();
    table.add("uniform_inplace_grad", FLOATS, uniform_inplace_grad).strided();
    table.add("gaussian_inplace_grad", FLOATS, gaussian_inplace_grad).strided();
    table.add("fill_grad", FLOATS, fill_grad).strided();
    table.add("gumbel_softmax", FLOATS, gumbel_softmax);
    table.add("gumbel_softmax_grad", FLOATS, super::normalisation_gradient::softmax_grad);
    table.add("grad_add", NUMBERS, sum).strided();
    table.add("trunc_divide", NUMBERS, quotient).strided();
    table.add("log_loss", FLOATS, log_loss).strided();
    table.add("log_loss_grad", FLOATS, log_loss_grad).strided();
    table.add("hinge_loss", FLOATS, hinge_loss).strided();
    table.add("hinge_loss_grad", FLOATS, hinge_loss_grad).strided();
    table.add("identity_loss", FLOATS, identity_loss);
    table.add("identity_loss_grad", FLOATS, identity_loss_grad);
    table.add("swiglu", FLOATS, swiglu).strided();
    table.add("swiglu_grad", FLOATS, swiglu_grad).strided();
    table.add("rrelu", FLOATS, rrelu).strided();
    table.add("rrelu_grad", FLOATS, rrelu_grad).strided();
    table.add("maxout", FLOATS, maxout);
    table.add("maxout_grad", FLOATS, maxout_grad);
    table.add("multiplex", NUMBERS, multiplex);
    table.add("multiplex_grad", FLOATS, multiplex_grad);
    table.add("reduce_as", NUMBERS, reduce_as);
    table.add("reduce_as_grad", NUMBERS, reduce_as_grad);
    table.add("sequence_mask", NUMBERS, sequence_mask).output_as_inferred(0);
    table.add("sequence_mask_scalar", NUMBERS, sequence_mask_scalar).output_as_inferred(0);
    table.add("shard_index", INTEGERS, shard_index).strided();
    table.add("tril_indices", INTEGERS, tril_indices);
    table.add("triu_indices", INTEGERS, triu_indices);
    table.add("logspace", NUMBERS, logspace).output_as_inferred(0);
    table.add("repeat_interleave_with_tensor_index", ALL, repeat_interleave);
    table.add("repeat_interleave_with_tensor_index_grad", NUMBERS, repeat_interleave_grad);
    table.add("affine_channel", FLOATS, affine_channel);
    table.add("affine_channel_grad", FLOATS, affine_channel_grad);
}

fn negative(context: &Context, x: Tensor, out: Output) -> Result<()> {
    compute(context, Elementwise::Unary(Unary::Negate), &[&x.view()?], &[], &out)
}

fn round(context: &Context, x: Tensor, out: Output) -> Result<()> {
    compute(context, Elementwise::Unary(Unary::Round), &[&x.view()?], &[], &out)
}

/// The gradient of what has no slope.
fn flat(context: &Context, upstream: Tensor, dx: Output) -> Result<()> {
    Compose::new(context).fill(&context.allocate(&dx, upstream.dtype()?)?, 0.0)
}

/// What was overwritten has no gradient.
fn uniform_inplace_grad(
    context: &Context,
    upstream: Tensor,
    _low: f32,
    _high: f32,
    _seed: i32,
    _diagonals: i32,
    _step: i32,
    _value: f32,
    dx: Output,
) -> Result<()> {
    flat(context, upstream, dx)
}

fn gaussian_inplace_grad(
    context: &Context,
    upstream: Tensor,
    _mean: f32,
    _deviation: f32,
    _seed: i32,
    dx: Output,
) -> Result<()> {
    flat(context, upstream, dx)
}

fn fill_grad(context: &Context, upstream: Tensor, _value: Scalar, dx: Output) -> Result<()> {
    flat(context, upstream, dx)
}

/// Softmax of scores with Gumbel's noise, the logarithms of times between events; or a one where it is largest (Jang et al., 2017).
fn gumbel_softmax(context: &Context, x: Tensor, temperature: f32, hard: bool, axis: i32, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let source = Source { seed: context.random(), offset: 0 };
    let times = Random { law: Law::Exponential { rate: 1.0 }, source, dims: x.shape.clone(), dtype: x.dtype };
    let noise = c.map(Elementwise::Unary(Unary::Log), &[&c.apply(&times, &[])?], &[])?;
    let scores = c.scale(&c.subtract(&x, &noise)?, 1.0 / f64::from(temperature), 0.0)?;
    let softmax = Softmax { axis: axis.into(), logarithm: false };
    if !hard {
        return c.store_value(&out, dtype, &c.apply(&softmax, &[scores])?);
    }
    let largest = ArgReduce { largest: true, axis: Some(axis.into()), keep_dims: true, dtype: DType::I64 };
    let at = c.apply(&largest, &[scores])?;
    let chosen = c.constant(x.dtype, &x.shape, 0.0)?;
    let one = c.constant(x.dtype, &at.shape, 1.0)?;
    let put = PutAlongAxis { axis: axis.into(), reduce: Reduce::Assign, include_self: true };
    c.launch(&put, &[chosen.clone(), at, one], std::slice::from_ref(&chosen))?;
    c.store_value(&out, dtype, &chosen)
}

fn sum(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    compute(context, Elementwise::Binary(Binary::Add), &[&x.view()?, &y.view()?], &[], &out)
}

/// Towards zero.
fn quotient(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let (x, y) = (x.view()?, y.view()?);
    refuse_zero(context, &x, &y)?;
    if !x.dtype.is_float() {
        return compute(context, Elementwise::Binary(Binary::Divide), &[&x, &y], &[], &out);
    }
    let c = Compose::new(context);
    let quotient = c.map(Elementwise::Binary(Binary::Divide), &[&x, &y], &[])?;
    c.store(&out, x.dtype, Elementwise::Unary(Unary::Trunc), &[&quotient], &[])
}

/// `-y log(p + e) - (1 - y) log(1 - p + e)`
fn log_loss(context: &Context, input: Tensor, label: Tensor, epsilon: f32, out: Output) -> Result<()> {
    let (c, dtype, epsilon) = (Compose::new(context), input.dtype()?, f64::from(epsilon));
    let (p, y) = (c.input(&input)?, c.input(&label)?);
    let log = |x: &View| c.map(Elementwise::Unary(Unary::Log), &[x], &[]);
    let yes = c.multiply(&c.scale(&y, -1.0, 0.0)?, &log(&c.scale(&p, 1.0, epsilon)?)?)?;
    let no = c.multiply(&c.scale(&y, -1.0, 1.0)?, &log(&c.scale(&p, -1.0, 1.0 + epsilon)?)?)?;
    c.store(&out, dtype, Elementwise::Binary(Binary::Subtract), &[&yes, &no], &[])
}

fn log_loss_grad(
    context: &Context,
    input: Tensor,
    label: Tensor,
    upstream: Tensor,
    epsilon: f32,
    dinput: Output,
) -> Result<()> {
    let (c, dtype, epsilon) = (Compose::new(context), input.dtype()?, f64::from(epsilon));
    let (p, y, upstream) = (c.input(&input)?, c.input(&label)?, c.input(&upstream)?);
    let over = |x: &View, y: &View| c.map(Elementwise::Binary(Binary::Divide), &[x, y], &[]);
    let yes = over(&y, &c.scale(&p, 1.0, epsilon)?)?;
    let no = over(&c.scale(&y, -1.0, 1.0)?, &c.scale(&p, -1.0, 1.0 + epsilon)?)?;
    c.store(&dinput, dtype, MULTIPLY, &[&upstream, &c.subtract(&no, &yes)?], &[])
}

/// `1 - x (2 y - 1)` of labels 0 and 1: how far a number is from being on its label's side.
fn margin(c: &Compose, x: &View, label: &View) -> Result<[View; 2]> {
    let side = c.scale(label, 2.0, -1.0)?;
    Ok([c.scale(&c.multiply(x, &side)?, -1.0, 1.0)?, side])
}

fn hinge_loss(context: &Context, x: Tensor, label: Tensor, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let [margin, _] = margin(&c, &c.input(&x)?, &c.input(&label)?)?;
    c.store(&out, dtype, Elementwise::Activation(Activation::Relu), &[&margin], &[])
}

fn hinge_loss_grad(context: &Context, x: Tensor, label: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let [margin, side] = margin(&c, &c.input(&x)?, &c.input(&label)?)?;
    let share = c.scale(&c.multiply(&c.input(&upstream)?, &side)?, -1.0, 0.0)?;
    c.store(&dx, dtype, Elementwise::Gradient(Gradient::Relu), &[&margin, &share], &[])
}

/// Paddle's numbers of reductions: 0 is the sum, 1 the mean, and 2 none.
fn identity_loss(context: &Context, x: Tensor, reduction: i32, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let value = match reduction {
        0 => c.reduce(Reduction::Sum, &x, &[])?,
        1 => c.reduce(Reduction::Mean, &x, &[])?,
        _ => x,
    };
    c.store_value(&out, dtype, &value)
}

fn identity_loss_grad(context: &Context, x: Tensor, upstream: Tensor, reduction: i32, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), upstream.dtype()?);
    let count = if reduction == 1 { x.shape().iter().product::<usize>() } else { 1 };
    let value = c.scale(&c.input(&upstream)?, 1.0 / count as f64, 0.0)?;
    c.store_value(&dx, dtype, &if reduction == 2 { value } else { c.shaped(&value, &[1])? })
}

/// The two factors: two tensors, or the halves of one.
fn halves(x: &Tensor, y: Option<&Tensor>) -> Result<[View; 2]> {
    let x = x.view()?;
    if let Some(y) = y {
        return Ok([x, y.view()?]);
    }
    let size = x.shape.last().copied().unwrap_or(0);
    if size % 2 != 0 || x.rank() == 0 {
        return Err(refuse("shape of x", &x.shape, "an even size of the last axis"));
    }
    Ok([0, size / 2].map(|begin| x.narrowed(x.rank() - 1, begin, 1, size / 2)))
}

/// `silu(x) y`
fn swiglu(context: &Context, x: Tensor, y: Option<Tensor>, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let [x, y] = halves(&x, y.as_ref())?;
    let compute = x.dtype.compute();
    let gate = c.map(Elementwise::Activation(Activation::Silu), &[&c.cast(&x, compute)?], &[])?;
    c.store(&out, x.dtype, MULTIPLY, &[&gate, &c.cast(&y, compute)?], &[])
}

fn swiglu_grad(
    context: &Context,
    x: Tensor,
    y: Option<Tensor>,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let c = Compose::new(context);
    let dtype = x.dtype()?;
    let [first, second] = halves(&x, y.as_ref())?;
    let upstream = c.input(&upstream)?;
    let (first, second) = (c.cast(&first, upstream.dtype)?, c.cast(&second, upstream.dtype)?);
    let gate = c.map(Elementwise::Activation(Activation::Silu), &[&first], &[])?;
    let share = c.multiply(&upstream, &second)?;
    let of_first = c.map(Elementwise::Gradient(Gradient::Silu), &[&first, &share], &[])?;
    let of_second = c.multiply(&upstream, &gate)?;
    if y.is_some() {
        for (output, value) in [(dx, of_first), (dy, of_second)] {
            if let Some(output) = output {
                c.store_value(&output, dtype, &value)?;
            }
        }
        return Ok(());
    }
    let Some(dx) = dx else { return Ok(()) };
    let joined = c.apply(&openmps_graph::operators::concat::Concat { axis: -1 }, &[of_first, of_second])?;
    c.store_value(&dx, dtype, &joined)
}

/// Numbers below zero times slopes that are drawn, or, where nothing is trained, times the mean slope.
fn rrelu(context: &Context, x: Tensor, low: f32, high: f32, is_test: bool, out: Output, noise: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let (low, high) = (f64::from(low), f64::from(high));
    let slopes = if is_test || low == high {
        c.constant(x.dtype, &x.shape, (low + high) / 2.0)?
    } else {
        let source = Source { seed: context.random(), offset: 0 };
        c.apply(&Random { law: Law::Uniform { low, high }, source, dims: x.shape.clone(), dtype: x.dtype }, &[])?
    };
    let [zero, one] = [0.0, 1.0].map(|value| c.constant(x.dtype, &[1], value));
    let (zero, one) = (zero?, one?);
    let below = c.map(Elementwise::Binary(Binary::LessThan), &[&x, &zero], &[])?;
    let slopes = c.map(Elementwise::Binary(Binary::Where), &[&below, &slopes, &one], &[])?;
    c.store_value(&noise, dtype, &slopes)?;
    c.store(&out, dtype, MULTIPLY, &[&x, &slopes], &[])
}

/// The slopes that were drawn are kept as noise.
fn rrelu_grad(context: &Context, _x: Tensor, noise: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    compute(context, MULTIPLY, &[&upstream.view()?, &noise.view()?], &[], &dx)
}

/// A dense tensor whose channels are split into (channels / groups, groups), and the axis of the groups.
fn grouped(c: &Compose, x: &View, groups: i32, axis: i32) -> Result<(View, usize)> {
    let axis = openmps_graph::layout::axis_of("maxout", axis.into(), x.rank())?;
    let groups = groups.max(1) as usize;
    let dims = [&x.shape[..axis], &[x.shape[axis] / groups, groups], &x.shape[axis + 1..]].concat();
    Ok((c.shaped(x, &dims)?, axis + 1))
}

fn maxout(context: &Context, x: Tensor, groups: i32, axis: i32, out: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let (split, at) = grouped(&c, &x, groups, axis)?;
    c.store_value(&out, x.dtype, &c.reduce(Reduction::Maximum, &split, &[at as i64])?)
}

/// Of equal elements the first one gets the gradient.
fn maxout_grad(
    context: &Context,
    x: Tensor,
    _out: Tensor,
    upstream: Tensor,
    groups: i32,
    axis: i32,
    dx: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let (split, at) = grouped(&c, &x, groups, axis)?;
    let search = ArgReduce { largest: true, axis: Some(at as i64), keep_dims: true, dtype: DType::I64 };
    let index = c.apply(&search, std::slice::from_ref(&split))?;
    let upstream = c.shaped(&upstream.view()?, &index.shape)?;
    let to = context.allocate(&dx, x.dtype)?;
    c.fill(&to, 0.0)?;
    let to = c.shaped(&to, &split.shape)?;
    let put = PutAlongAxis { axis: at as i64, reduce: Reduce::Assign, include_self: true };
    c.launch(&put, &[to.clone(), index, upstream], std::slice::from_ref(&to))
}

/// Which rows are taken from the `number`-th tensor.
fn rows_of(c: &Compose, ids: &View, number: usize, rank: usize) -> Result<View> {
    let dims: Vec<usize> = std::iter::once(ids.len()).chain(std::iter::repeat_n(1, rank.saturating_sub(1))).collect();
    let own = c.constant(ids.dtype, &[1], number as f64)?;
    c.map(Elementwise::Binary(Binary::Equal), &[&c.shaped(ids, &dims)?, &own], &[])
}

fn multiplex(context: &Context, x: Vec<Tensor>, ids: Tensor, out: Output) -> Result<()> {
    let (c, ids) = (Compose::new(context), ids.view()?);
    let Some(first) = x.first() else { return Ok(()) };
    let mut value = first.view()?;
    for (number, other) in x.iter().enumerate().skip(1) {
        let rows = rows_of(&c, &ids, number, value.rank())?;
        value = c.map(Elementwise::Binary(Binary::Where), &[&rows, &other.view()?, &value], &[])?;
    }
    c.store_value(&out, value.dtype, &value)
}

fn multiplex_grad(context: &Context, ids: Tensor, upstream: Tensor, dx: Vec<Option<Output>>) -> Result<()> {
    let (c, ids, upstream) = (Compose::new(context), ids.view()?, upstream.view()?);
    for (number, output) in dx.iter().enumerate() {
        let Some(output) = output else { continue };
        let rows = rows_of(&c, &ids, number, upstream.rank())?;
        c.store(output, upstream.dtype, CHOSEN, &[&rows, &upstream], &[])?;
    }
    Ok(())
}

/// The sum over what was repeated to the shape of x.
fn reduce_as(context: &Context, x: Tensor, target: Tensor, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let dims = target.shape();
    c.store_value(&out, dtype, &if dims == x.shape { x } else { c.summed_to(&x, &dims)? })
}

fn reduce_as_grad(context: &Context, _x: Tensor, _target: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let c = Compose::new(context);
    c.store_value(&dx, upstream.dtype()?, &upstream.view()?)
}

/// Ones at places below each number, zeros at the others.
fn sequence_mask(
    context: &Context,
    x: Tensor,
    longest: Option<Tensor>,
    len: i32,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let len = match longest {
        Some(longest) => Scalar::of_tensor(context, &longest)?.i64(),
        None => len.into(),
    };
    masked(context, &x, len, data_type, &out)
}

fn sequence_mask_scalar(context: &Context, x: Tensor, len: Scalar, data_type: DataType, out: Output) -> Result<()> {
    masked(context, &x, len.i64(), data_type, &out)
}

/// A negative length stands for the largest number.
fn masked(context: &Context, x: &Tensor, len: i64, data_type: DataType, out: &Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let len = if len >= 0 {
        len
    } else {
        let largest = c.cast(&c.reduce(Reduction::Maximum, &x, &[])?, DType::I64)?;
        let mut bytes = [0; 8];
        context.read(largest.address, &mut bytes)?;
        i64::from_ne_bytes(bytes)
    };
    let len = len.max(0) as usize;
    let steps = Arange { start: Number::Integer(0), step: Number::Integer(1), len, dtype: DType::I64 };
    let steps = c.apply(&steps, &[])?;
    let numbers = c.shaped(&c.cast(&x, DType::I64)?, &[&x.shape[..], &[1]].concat())?;
    let mask = c.map(Elementwise::Binary(Binary::LessThan), &[&steps, &numbers], &[])?;
    out.set_dims(&[&x.shape[..], &[len]].concat());
    c.store_value(out, data_type.or(DType::I64)?, &mask)
}

/// An index within its own shard, or a number that says that it belongs to another one.
fn shard_index(
    context: &Context,
    x: Tensor,
    size: i32,
    shards: i32,
    shard: i32,
    missing: i32,
    out: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let number = |value: i32| -> Result<View> {
        let view = c.temporary(x.dtype, &[1])?;
        c.fill(&view, value.into())?;
        Ok(view)
    };
    if shards < 1 || !(0..shards).contains(&shard) {
        return Err(refuse("shard_id", shard, &format!("0 to {}", shards - 1)));
    }
    let width = number((size + shards - 1) / shards)?;
    let owner = c.map(Elementwise::Binary(Binary::FloorDivide), &[&x, &width], &[])?;
    let is_own = c.map(Elementwise::Binary(Binary::Equal), &[&owner, &number(shard)?], &[])?;
    let within = c.map(Elementwise::Binary(Binary::Remainder), &[&x, &width], &[])?;
    c.store(&out, x.dtype, Elementwise::Binary(Binary::Where), &[&is_own, &within, &number(missing)?], &[])
}

/// Rows and columns of the elements of a triangle, as two lines.
fn triangle(
    context: &Context,
    places: impl Iterator<Item = (i64, i64)> + Clone,
    dtype: DType,
    out: &Output,
) -> Result<()> {
    let both = places.clone().map(|place| place.0).chain(places.clone().map(|place| place.1));
    let bytes: Vec<u8> = both.flat_map(|number| number.to_ne_bytes()).collect();
    out.set_dims(&[2, places.count()]);
    let to = context.allocate(out, dtype)?;
    if to.is_empty() {
        return Ok(());
    }
    let c = Compose::new(context);
    let wide = c.temporary(DType::I64, &to.shape)?;
    context.queue().write(&wide, &bytes)?;
    c.launch(
        &openmps_graph::operators::elementwise::Call {
            operator: Elementwise::Unary(Unary::Cast),
            scalars: Vec::new(),
            output: Some(dtype),
        },
        &[wide],
        &[to],
    )
}

fn tril_indices(
    context: &Context,
    rows: i32,
    columns: i32,
    offset: i32,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let (rows, columns, offset) = (i64::from(rows), i64::from(columns), i64::from(offset));
    let row = move |i: i64| (0..(i + offset + 1).clamp(0, columns)).map(move |j| (i, j));
    triangle(context, (0..rows).flat_map(row), data_type.or(DType::I64)?, &out)
}

fn triu_indices(
    context: &Context,
    rows: i32,
    columns: i32,
    offset: i32,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let (rows, columns, offset) = (i64::from(rows), i64::from(columns), i64::from(offset));
    let row = move |i: i64| ((i + offset).clamp(0, columns)..columns).map(move |j| (i, j));
    triangle(context, (0..rows).flat_map(row), data_type.or(DType::I64)?, &out)
}

/// Powers of a base at even distances.
fn logspace(
    context: &Context,
    start: Tensor,
    stop: Tensor,
    len: Tensor,
    base: Tensor,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let number = |tensor: &Tensor| Scalar::of_tensor(context, tensor);
    let (start, stop, base) = (number(&start)?.f64(), number(&stop)?.f64(), number(&base)?.f64());
    let len = usize::try_from(number(&len)?.i64()).map_err(|_| refuse("num", "a negative number", "none"))?;
    let c = Compose::new(context);
    let exponents = c.apply(&Linspace { start, stop, len, dtype: DType::F64 }, &[])?;
    let of = c.constant(DType::F64, &[1], base)?;
    out.set_dims(&[len]);
    let value = c.map(Elementwise::Binary(Binary::Power), &[&of, &exponents], &[])?;
    c.store_value(&out, data_type.or(DType::F32)?, &value)
}

/// How often each element comes, as the places of the elements.
fn repeated(context: &Context, repeats: &Tensor) -> Result<Vec<i64>> {
    let c = Compose::new(context);
    let repeats = c.cast(&repeats.view()?, DType::I64)?;
    let mut bytes = vec![0; repeats.len() * 8];
    context.read(repeats.address, &mut bytes)?;
    let counts = bytes.chunks_exact(8).map(|chunk| i64::from_ne_bytes(chunk.try_into().unwrap_or_default()));
    let mut places = Vec::new();
    for (at, count) in counts.enumerate() {
        let count = usize::try_from(count).map_err(|_| refuse("repeats", count, "no negative number"))?;
        openmps_graph::view::elements(&[places.len() + count])?;
        places.extend(std::iter::repeat_n(at as i64, count));
    }
    Ok(places)
}

fn indices(context: &Context, c: &Compose, places: &[i64]) -> Result<View> {
    let index = c.temporary(DType::I64, &[places.len()])?;
    let bytes: Vec<u8> = places.iter().flat_map(|place| place.to_ne_bytes()).collect();
    if !bytes.is_empty() {
        context.queue().write(&index, &bytes)?;
    }
    Ok(index)
}

fn repeat_interleave(context: &Context, x: Tensor, repeats: Tensor, axis: i32, _size: i64, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let index = indices(context, &c, &repeated(context, &repeats)?)?;
    let mut dims = x.shape();
    let at = openmps_graph::layout::axis_of("repeat_interleave", axis.into(), dims.len())?;
    dims[at] = index.len();
    out.set_dims(&dims);
    many(context, &Gather { axis: axis.into() }, &[x.view()?, index], &[Some(&out)])
}

fn repeat_interleave_grad(
    context: &Context,
    x: Tensor,
    repeats: Tensor,
    upstream: Tensor,
    axis: i32,
    _size: i64,
    dx: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let index = indices(context, &c, &repeated(context, &repeats)?)?;
    let upstream = upstream.view()?;
    let to = super::indexing::zeros(context, upstream.dtype, &x.shape(), &dx)?;
    c.launch(&IndexAdd { axis: axis.into() }, &[to.clone(), index, upstream], std::slice::from_ref(&to))
}

/// A number for each channel, so that it broadcasts with images.
fn per_channel(c: &Compose, x: &View, rank: usize, format: &str) -> Result<View> {
    let mut dims = vec![1; rank];
    let axis = if format == "NHWC" { rank - 1 } else { 1 };
    dims[axis] = x.len();
    c.shaped(x, &dims)
}

fn affine_channel(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    format: String,
    out: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let scale = per_channel(&c, &scale.view()?, x.rank(), &format)?;
    let bias = per_channel(&c, &bias.view()?, x.rank(), &format)?;
    c.store(&out, x.dtype, Elementwise::Binary(Binary::Add), &[&c.multiply(&x, &scale)?, &bias], &[])
}

fn affine_channel_grad(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    _bias: Tensor,
    upstream: Tensor,
    format: String,
    dx: Option<Output>,
    dscale: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let (c, x, upstream) = (Compose::new(context), x.view()?, upstream.view()?);
    let scale = per_channel(&c, &scale.view()?, x.rank(), &format)?;
    if let Some(dscale) = dscale {
        c.store_value(&dscale, x.dtype, &c.summed_to(&c.multiply(&upstream, &x)?, &scale.shape)?)?;
    }
    if let Some(dbias) = dbias {
        c.store_value(&dbias, x.dtype, &c.summed_to(&upstream, &scale.shape)?)?;
    }
    match dx {
        Some(dx) => c.store(&dx, x.dtype, MULTIPLY, &[&upstream, &scale], &[]),
        None => Ok(()),
    }
}
