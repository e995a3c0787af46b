//! Units that choose or gate: swiglu, rrelu, maxout, Gumbel softmax, multiplex.

use super::compose::Compose;
use super::elementwise::compute;
use super::index_making::check_indices;
use crate::abi::exception::Code;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::arg_reduce::ArgReduce;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::random::{Law, Random, Source};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::{PutAlongAxis, Reduce};
use openmps_graph::operators::softmax::Softmax;
use openmps_tile::DType;
use openmps_tile::dtype::{FLOATS, NUMBERS};

const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);
const CHOSEN: Elementwise = Elementwise::Gradient(Gradient::Chosen);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("gumbel_softmax", FLOATS, gumbel_softmax);
    table.add("swiglu", FLOATS, swiglu).strided();
    table.add("swiglu_grad", FLOATS, swiglu_grad).strided();
    table.add("rrelu", FLOATS, rrelu).strided();
    table.add("rrelu_grad", FLOATS, rrelu_grad).strided();
    table.add("maxout", FLOATS, maxout);
    table.add("maxout_grad", FLOATS, maxout_grad);
    table.add("multiplex", NUMBERS, multiplex);
    table.add("multiplex_grad", FLOATS, multiplex_grad);
}

/// Softmax of scores with Gumbel's noise, the logarithms of times between events; or a one where it is largest (Jang et al., 2017).
fn gumbel_softmax(context: &Context, x: Tensor, temperature: f32, hard: bool, axis: i32, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    if temperature.is_nan() || temperature <= 0.0 {
        return Err(refuse("temperature", temperature, "above 0"));
    }
    let x = c.input(&x)?;
    // A tensor without axes is one score, along the axis -1 or 0.
    let x = if x.rank() == 0 { c.shaped(&x, &[1])? } else { x };
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

/// As many rows as there are indices, which may be fewer than all.
fn first_rows(x: &View, ids: &View) -> Result<View> {
    match x.shape.first() {
        Some(&rows) if ids.len() <= rows => Ok(x.narrowed(0, 0, 1, ids.len())),
        rows => Err(refuse("index", ids.len(), &format!("at most {} rows", rows.copied().unwrap_or(0)))),
    }
}

fn multiplex(context: &Context, x: Vec<Tensor>, ids: Tensor, out: Output) -> Result<()> {
    let (c, ids) = (Compose::new(context), ids.view()?);
    let Some(first) = x.first() else { return Ok(()) };
    check_indices(context, &ids, x.len(), "multiplex: index", Code::PreconditionNotMet)?;
    let mut value = first_rows(&first.view()?, &ids)?;
    for (number, other) in x.iter().enumerate().skip(1) {
        let rows = rows_of(&c, &ids, number, value.rank())?;
        value = c.map(Elementwise::Binary(Binary::Where), &[&rows, &first_rows(&other.view()?, &ids)?, &value], &[])?;
    }
    c.store_value(&out, value.dtype, &value)
}

fn multiplex_grad(context: &Context, ids: Tensor, upstream: Tensor, dx: Vec<Option<Output>>) -> Result<()> {
    let (c, ids, upstream) = (Compose::new(context), ids.view()?, upstream.view()?);
    for (number, output) in dx.iter().enumerate() {
        let Some(output) = output else { continue };
        let (rows, dx) = (rows_of(&c, &ids, number, upstream.rank())?, c.place(output, upstream.dtype)?);
        if upstream.len() < dx.len() {
            c.fill(&dx, 0.0)?;
        }
        c.run(CHOSEN, &[&rows, &upstream], &first_rows(&dx, &ids)?)?;
    }
    Ok(())
}
