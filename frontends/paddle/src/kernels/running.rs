//! Running extrema and logarithms of sums, the most frequent element, places in sorted lines, with gradients.

use super::compose::Compose;
use super::movement::many;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, DataType, Output, Tensor};
use openmps_graph::View;
use openmps_graph::layout::axis_of;
use openmps_graph::operators::arg_reduce::ArgReduce;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::gather::{Negative, TakeAlongAxis};
use openmps_graph::operators::running::{RunningExtreme, RunningLogSum, SearchSorted};
use openmps_graph::operators::scatter::{PutAlongAxis, Reduce};
use openmps_graph::operators::sequence::Arange;
use openmps_graph::operators::sort::Sort;
use openmps_tile::dtype::{FLOATS, NUMBERS};
use openmps_tile::{DType, Number};

const WIDE: &[DType] = &[DType::I32, DType::I64, DType::F32, DType::F64];
const SEARCHED: &[DType] = &[DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("cummax", NUMBERS, cummax).strided().output_as_inferred(1);
    table.add("cummin", NUMBERS, cummin).strided().output_as_inferred(1);
    table.add("cummax_grad", NUMBERS, extreme_grad);
    table.add("cummin_grad", NUMBERS, extreme_grad);
    table.add("logcumsumexp", FLOATS, log_sum).strided();
    table.add("logcumsumexp_grad", FLOATS, log_sum_grad);
    table.add("searchsorted", SEARCHED, search).output_as_inferred(0);
    table.add("mode", WIDE, mode).output(1, DType::I64);
    table.add("mode_grad", &[DType::F32, DType::F64], mode_grad);
}

fn extreme(
    context: &Context,
    operator: RunningExtreme,
    x: &Tensor,
    data_type: DataType,
    [out, places]: [&Output; 2],
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let values = [c.place(out, x.dtype)?, c.temporary(DType::I64, &x.shape)?];
    c.launch(&operator, &[x], &values)?;
    c.store_value(places, data_type.or(DType::I64)?, &values[1])
}

fn cummax(context: &Context, x: Tensor, axis: i32, data_type: DataType, out: Output, places: Output) -> Result<()> {
    extreme(context, RunningExtreme { largest: true, axis: axis.into() }, &x, data_type, [&out, &places])
}

fn cummin(context: &Context, x: Tensor, axis: i32, data_type: DataType, out: Output, places: Output) -> Result<()> {
    extreme(context, RunningExtreme { largest: false, axis: axis.into() }, &x, data_type, [&out, &places])
}

/// Gradients are added up at the places where the extrema stood. A number alone is a line of one.
fn added(c: &Compose, dims: &[usize], places: &View, upstream: &View, axis: i64, dx: &Output) -> Result<()> {
    let line = |dims: &[usize]| if dims.is_empty() { vec![1] } else { dims.to_vec() };
    let sums = c.constant(upstream.dtype, &line(dims), 0.0)?;
    let inputs = [sums.clone(), c.shaped(places, &line(&places.shape))?, c.shaped(upstream, &line(&upstream.shape))?];
    let put = PutAlongAxis { axis, reduce: Reduce::Add, include_self: true };
    c.launch(&put, &inputs, std::slice::from_ref(&sums))?;
    c.store_value(dx, upstream.dtype, &sums)
}

fn extreme_grad(
    context: &Context,
    x: Tensor,
    places: Tensor,
    upstream: Tensor,
    axis: i32,
    _data_type: DataType,
    dx: Output,
) -> Result<()> {
    let c = Compose::new(context);
    added(&c, &x.shape(), &places.view()?, &upstream.view()?, axis.into(), &dx)
}

fn log_sum(
    context: &Context,
    x: Tensor,
    axis: i32,
    flatten: bool,
    exclusive: bool,
    reverse: bool,
    out: Output,
) -> Result<()> {
    let operator = RunningLogSum { axis: Some(axis.into()).filter(|_| !flatten), exclusive, reverse };
    many(context, &operator, &[x.view()?], &[Some(&out)])
}

/// `e^x` times the sum of `dy e^-y` over the results that an element is part of. The sums of positive and of negative terms are taken by
/// their logarithms, which do not overflow.
fn log_sum_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    upstream: Tensor,
    axis: i32,
    flatten: bool,
    exclusive: bool,
    reverse: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, out, upstream) = (c.input(&x)?, c.input(&out)?, c.input(&upstream)?);
    let dims = out.shape.clone();
    let x = c.shaped(&x, &dims)?;
    let upstream = c.shaped(&upstream, &dims)?;
    let operator = RunningLogSum { axis: Some(axis.into()).filter(|_| !flatten), exclusive, reverse: !reverse };
    let (zero, none) = (c.constant(x.dtype, &[1], 0.0)?, c.constant(x.dtype, &[1], f64::NEG_INFINITY)?);
    // A sum of nothing but -inf is reached from none of its parts.
    let is_sum = c.map(Elementwise::Binary(Binary::NotEqual), &[&out, &none], &[])?;
    let share = |sign: f64| -> Result<View> {
        let part = c.map(Elementwise::Binary(Binary::Maximum), &[&c.scale(&upstream, sign, 0.0)?, &zero], &[])?;
        let logarithm = c.subtract(&c.map(Elementwise::Unary(Unary::Log), &[&part], &[])?, &out)?;
        // A gradient of 0 has no part in the sum, whatever it is divided by.
        let is_there = c.map(Elementwise::Binary(Binary::GreaterThan), &[&part, &zero], &[])?;
        let logarithm = c.map(Elementwise::Binary(Binary::Where), &[&is_there, &logarithm, &none], &[])?;
        let logarithm = c.map(Elementwise::Binary(Binary::Where), &[&is_sum, &logarithm, &none], &[])?;
        let sum = c.apply(&operator, std::slice::from_ref(&logarithm))?;
        c.map(Elementwise::Unary(Unary::Exp), &[&c.add(&sum, &x)?], &[])
    };
    let value = c.subtract(&share(1.0)?, &share(-1.0)?)?;
    c.store_value(&dx, dtype, &value)
}

fn search(context: &Context, sorted: Tensor, values: Tensor, narrow: bool, right: bool, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let sorted = c.input(&sorted)?;
    let places = c.apply(&SearchSorted { right }, &[sorted.clone(), c.cast(&values.view()?, sorted.dtype)?])?;
    c.store_value(&out, if narrow { DType::I32 } else { DType::I64 }, &places)
}

/// The axis as the last one; a number alone is a line of one.
fn axis_last(c: &Compose, x: &View, axis: i32) -> Result<(View, Vec<usize>)> {
    let x = if x.rank() == 0 { c.shaped(x, &[1])? } else { x.clone() };
    let axis = axis_of("mode", axis.into(), x.rank())?;
    let order: Vec<usize> = (0..x.rank()).filter(|&other| other != axis).chain([axis]).collect();
    let line = x.permuted(&order);
    let dense = c.temporary(x.dtype, &line.shape)?;
    c.launch(&Copy, &[line], std::slice::from_ref(&dense))?;
    Ok((dense, order))
}

/// The element that is there most often, the smallest of several, and the last place where it stands: in sorted lines an element's number
/// in its run of equals is the distance from where the run begins.
fn mode(context: &Context, x: Tensor, axis: i32, _keep: bool, out: Output, places: Output) -> Result<()> {
    let c = Compose::new(context);
    let (line, _) = axis_last(&c, &x.view()?, axis)?;
    let (last, dtype) = (line.rank() - 1, line.dtype);
    let size = line.shape[last];
    let sorted = [c.temporary(dtype, &line.shape)?, c.temporary(DType::I64, &line.shape)?];
    c.launch(&Sort { axis: -1, descending: false }, &[line], &sorted)?;
    let [values, order] = sorted;
    let (start, step) = (Number::Integer(0), Number::Integer(1));
    let numbers = c.apply(&Arange { start, step, len: size, dtype: DType::I64 }, &[])?;
    let begins = c.constant(DType::I64, &values.shape, 0.0)?;
    if size > 1 {
        let part = |view: &View, from: usize| view.narrowed(view.rank() - 1, from, 1, size - 1);
        let differs = c.map(Elementwise::Binary(Binary::NotEqual), &[&part(&values, 1), &part(&values, 0)], &[])?;
        let own = c.map(Elementwise::Gradient(Gradient::Chosen), &[&differs, &part(&numbers, 1)], &[])?;
        c.launch(&Copy, &[own], &[part(&begins, 1)])?;
    }
    let running = [c.temporary(DType::I64, &values.shape)?, c.temporary(DType::I64, &values.shape)?];
    c.launch(&RunningExtreme { largest: true, axis: -1 }, &[begins], &running)?;
    let within = c.subtract(&numbers, &running[0])?;
    let longest = ArgReduce { largest: true, axis: Some(-1), keep_dims: true, dtype: DType::I64 };
    let at = c.apply(&longest, &[within])?;
    let take = TakeAlongAxis { axis: -1, negative: Negative::Refused };
    c.store_value(&out, dtype, &c.apply(&take, &[values, at.clone()])?)?;
    c.store_value(&places, DType::I64, &c.apply(&take, &[order, at])?)
}

fn mode_grad(
    context: &Context,
    x: Tensor,
    places: Tensor,
    upstream: Tensor,
    axis: i32,
    _keep: bool,
    dx: Output,
) -> Result<()> {
    let (c, dims) = (Compose::new(context), x.shape());
    let mut line = dims.to_vec();
    if !line.is_empty() {
        line[axis_of("mode", axis.into(), dims.len())?] = 1;
    }
    let [places, upstream] = [places.view()?, upstream.view()?].map(|view| c.shaped(&view, &line));
    added(&c, &dims, &places?, &upstream?, axis.into(), &dx)
}
