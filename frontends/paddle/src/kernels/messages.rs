//! Messages along the edges of a graph, and pools of segments: rows are gathered, put together and reduced at where they go.

use super::compose::Compose;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient};
use openmps_graph::operators::gather::Gather;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::{IndexAdd, PutAlongAxis, Reduce};
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;

const TYPES: &[DType] = &[DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("send_u_recv", TYPES, send_u_recv).output(1, DType::I32);
    table.add("send_u_recv_grad", FLOATS, send_u_recv_grad);
    table.add("send_ue_recv", TYPES, send_ue_recv).output(1, DType::I32);
    table.add("send_ue_recv_grad", FLOATS, send_ue_recv_grad);
    table.add("send_uv", TYPES, send_uv);
    table.add("send_uv_grad", FLOATS, send_uv_grad);
    table.add("segment_pool", TYPES, segment_pool);
    table.add("segment_pool_grad", FLOATS, segment_pool_grad);
}

/// What is made of rows that go to one place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pool {
    Sum,
    Mean,
    Largest,
    Smallest,
}

impl Pool {
    fn named(name: &str) -> Result<Pool> {
        match name {
            "SUM" => Ok(Pool::Sum),
            "MEAN" => Ok(Pool::Mean),
            "MAX" => Ok(Pool::Largest),
            "MIN" => Ok(Pool::Smallest),
            _ => Err(refuse("reduce_op", name, "SUM, MEAN, MAX or MIN")),
        }
    }
}

/// How two rows become a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    Sum,
    Product,
}

impl Message {
    fn named(name: &str) -> Result<Message> {
        match name {
            "ADD" => Ok(Message::Sum),
            "MUL" => Ok(Message::Product),
            _ => Err(refuse("message_op", name, "ADD or MUL")),
        }
    }

    fn of(self, c: &Compose, x: &View, y: &View) -> Result<View> {
        if self == Message::Sum { c.add(x, y) } else { c.multiply(x, y) }
    }

    /// The gradient of one operand, where this is the other.
    fn gradient(self, c: &Compose, upstream: &View, other: &View) -> Result<View> {
        if self == Message::Sum { Ok(upstream.clone()) } else { c.multiply(upstream, other) }
    }
}

/// Rows of a tensor by their numbers.
fn rows(c: &Compose, x: &View, index: &View) -> Result<View> {
    c.apply(&Gather { axis: 0 }, &[x.clone(), index.clone()])
}

/// The rows added up at their places.
fn sums(c: &Compose, values: &View, places: &View, count: usize) -> Result<View> {
    let dims = [&[count], &values.shape[1..]].concat();
    let to = c.constant(values.dtype, &dims, 0.0)?;
    c.launch(&IndexAdd { axis: 0 }, &[to.clone(), places.clone(), values.clone()], std::slice::from_ref(&to))?;
    Ok(to)
}

/// How many rows go to each place, at least 1, so that it broadcasts with rows.
fn counts(c: &Compose, places: &View, count: usize, like: &View) -> Result<[View; 2]> {
    let ones = c.constant(like.dtype, &[places.len()], 1.0)?;
    let number = sums(c, &ones, places, count)?;
    let one = c.constant(like.dtype, &[1], 1.0)?;
    let divisor = c.map(Elementwise::Binary(Binary::Maximum), &[&number, &one], &[])?;
    let dims: Vec<usize> = std::iter::once(count).chain(like.shape[1..].iter().map(|_| 1)).collect();
    Ok([number, c.shaped(&divisor, &dims)?])
}

/// Rows pooled at their places; where none goes there are zeros.
fn pooled(c: &Compose, pool: Pool, values: &View, places: &View, count: usize) -> Result<View> {
    let reduce = match pool {
        Pool::Sum => return sums(c, values, places, count),
        Pool::Mean => {
            let sum = sums(c, values, places, count)?;
            let [_, divisor] = counts(c, places, count, values)?;
            return c.map(Elementwise::Binary(Binary::Divide), &[&sum, &divisor], &[]);
        }
        Pool::Largest => Reduce::Maximum,
        Pool::Smallest => Reduce::Minimum,
    };
    let to = c.constant(values.dtype, &[&[count], &values.shape[1..]].concat(), 0.0)?;
    let flat = |view: &View, rows: usize| c.shaped(view, &[rows, values.shape[1..].iter().product()]);
    let (target, source) = (flat(&to, count)?, flat(values, places.len())?);
    let mut index = places.clone();
    index.shape.push(source.shape[1]);
    index.strides.push(0);
    let put = PutAlongAxis { axis: 0, reduce, include_self: false };
    c.launch(&put, &[target.clone(), index, source], std::slice::from_ref(&target))?;
    Ok(to)
}

/// The gradient of the rows that were pooled: every one that is the largest or smallest has the whole of it.
fn unpooled(c: &Compose, pool: Pool, [values, out, upstream]: [&View; 3], places: &View) -> Result<View> {
    if pool == Pool::Mean {
        let [_, divisor] = counts(c, places, upstream.shape[0], upstream)?;
        let share = c.map(Elementwise::Binary(Binary::Divide), &[upstream, &divisor], &[])?;
        return rows(c, &share, places);
    }
    let gradient = rows(c, upstream, places)?;
    if pool == Pool::Sum {
        return Ok(gradient);
    }
    c.map(Elementwise::Gradient(Gradient::WhereEqual), &[values, &rows(c, out, places)?, &gradient], &[])
}

/// Both with as many dimensions: those that are missing stand after the rows.
fn aligned(c: &Compose, x: &View, rank: usize) -> Result<View> {
    let missing = rank.saturating_sub(x.rank());
    c.shaped(x, &[&x.shape[..1], &vec![1; missing], &x.shape[1..]].concat())
}

/// A gradient in the shape of the rows that it is of: summed over what was repeated.
fn as_rows(c: &Compose, gradient: &View, x: &View) -> Result<View> {
    let dims = [&gradient.shape[..1], &x.shape[1..]].concat();
    if gradient.shape[..] == dims[..] {
        Ok(gradient.clone())
    } else {
        c.summed_to(gradient, &dims.iter().copied().collect())
    }
}

/// As many places as are asked for, or as there are rows.
fn places(size: &IntArray, x: &View) -> usize {
    size.first().and_then(|&size| usize::try_from(size).ok()).filter(|&size| size > 0).unwrap_or(x.shape[0])
}

/// The number of rows that went to each place, for Paddle's own gradient.
fn store_counts(c: &Compose, places: &View, count: usize, like: &View, out: Option<Output>) -> Result<()> {
    let Some(out) = out else { return Ok(()) };
    let [number, _] = counts(c, places, count, like)?;
    out.set_dims(&[count]);
    c.store_value(&out, DType::I32, &number)
}

fn store(c: &Compose, out: &Output, dtype: DType, value: &View) -> Result<()> {
    out.set_dims(&value.shape);
    c.store_value(out, dtype, value)
}

fn send_u_recv(
    context: &Context,
    x: Tensor,
    source: Tensor,
    target: Tensor,
    reduction: String,
    size: IntArray,
    out: Output,
    count: Option<Output>,
) -> Result<()> {
    let (c, dtype, source, target) = (Compose::new(context), x.dtype()?, source.view()?, target.view()?);
    let x = c.input(&x)?;
    let size = places(&size, &x);
    store(&c, &out, dtype, &pooled(&c, Pool::named(&reduction)?, &rows(&c, &x, &source)?, &target, size)?)?;
    store_counts(&c, &target, size, &x, count)
}

fn send_u_recv_grad(
    context: &Context,
    x: Tensor,
    source: Tensor,
    target: Tensor,
    out: Option<Tensor>,
    _count: Option<Tensor>,
    upstream: Tensor,
    reduction: String,
    dx: Output,
) -> Result<()> {
    let (c, source, target) = (Compose::new(context), source.view()?, target.view()?);
    let (pool, dtype, shape) = (Pool::named(&reduction)?, x.dtype()?, x.shape());
    let upstream = c.input(&upstream)?;
    let gradient = match (pool, out) {
        (Pool::Largest | Pool::Smallest, Some(out)) => {
            unpooled(&c, pool, [&rows(&c, &c.input(&x)?, &source)?, &c.input(&out)?, &upstream], &target)?
        }
        _ => unpooled(&c, pool, [&upstream, &upstream, &upstream], &target)?,
    };
    c.store_value(&dx, dtype, &sums(&c, &gradient, &source, shape[0])?)
}

fn send_ue_recv(
    context: &Context,
    x: Tensor,
    y: Tensor,
    source: Tensor,
    target: Tensor,
    message: String,
    reduction: String,
    size: IntArray,
    out: Output,
    count: Option<Output>,
) -> Result<()> {
    let (c, source, target) = (Compose::new(context), source.view()?, target.view()?);
    let (types, x, y) = ([x.dtype()?, y.dtype()?], c.input(&x)?, c.input(&y)?);
    let rank = x.rank().max(y.rank());
    let (size, own) = (places(&size, &x), aligned(&c, &rows(&c, &x, &source)?, rank)?);
    let messages = Message::named(&message)?.of(&c, &own, &aligned(&c, &y, rank)?)?;
    store(&c, &out, types[0], &pooled(&c, Pool::named(&reduction)?, &messages, &target, size)?)?;
    store_counts(&c, &target, size, &x, count)
}

fn send_ue_recv_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    source: Tensor,
    target: Tensor,
    out: Option<Tensor>,
    _count: Option<Tensor>,
    upstream: Tensor,
    message: String,
    reduction: String,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, source, target) = (Compose::new(context), source.view()?, target.view()?);
    let (types, x, y) = ([x.dtype()?, y.dtype()?], c.input(&x)?, c.input(&y)?);
    let (pool, message, upstream) = (Pool::named(&reduction)?, Message::named(&message)?, c.input(&upstream)?);
    let rank = x.rank().max(y.rank());
    let own = aligned(&c, &rows(&c, &x, &source)?, rank)?;
    let other = aligned(&c, &y, rank)?;
    let messages = message.of(&c, &own, &other)?;
    let out = out.map_or_else(|| Ok(upstream.clone()), |out| c.input(&out))?;
    let gradient = unpooled(&c, pool, [&messages, &out, &upstream], &target)?;
    if let Some(dx) = dx {
        let gradient = as_rows(&c, &message.gradient(&c, &gradient, &other)?, &own)?;
        c.store_value(&dx, types[0], &sums(&c, &gradient, &source, x.shape[0])?)?;
    }
    match dy {
        Some(dy) => c.store_value(&dy, types[1], &as_rows(&c, &message.gradient(&c, &gradient, &own)?, &other)?),
        None => Ok(()),
    }
}

fn send_uv(
    context: &Context,
    x: Tensor,
    y: Tensor,
    source: Tensor,
    target: Tensor,
    message: String,
    out: Output,
) -> Result<()> {
    let (c, source, target) = (Compose::new(context), source.view()?, target.view()?);
    let (types, x, y) = ([x.dtype()?, y.dtype()?], c.input(&x)?, c.input(&y)?);
    let rank = x.rank().max(y.rank());
    let (left, right) = (aligned(&c, &rows(&c, &x, &source)?, rank)?, aligned(&c, &rows(&c, &y, &target)?, rank)?);
    store(&c, &out, types[0], &Message::named(&message)?.of(&c, &left, &right)?)
}

fn send_uv_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    source: Tensor,
    target: Tensor,
    upstream: Tensor,
    message: String,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, source, target) = (Compose::new(context), source.view()?, target.view()?);
    let (types, x, y) = ([x.dtype()?, y.dtype()?], c.input(&x)?, c.input(&y)?);
    let (message, upstream) = (Message::named(&message)?, c.input(&upstream)?);
    let rank = x.rank().max(y.rank());
    let (left, right) = (aligned(&c, &rows(&c, &x, &source)?, rank)?, aligned(&c, &rows(&c, &y, &target)?, rank)?);
    if let Some(dx) = dx {
        let gradient = as_rows(&c, &message.gradient(&c, &upstream, &right)?, &left)?;
        c.store_value(&dx, types[0], &sums(&c, &gradient, &source, x.shape[0])?)?;
    }
    let Some(dy) = dy else { return Ok(()) };
    let gradient = as_rows(&c, &message.gradient(&c, &upstream, &left)?, &right)?;
    c.store_value(&dy, types[1], &sums(&c, &gradient, &target, y.shape[0])?)
}

/// As many segments as the largest number says.
fn segment_pool(
    context: &Context,
    x: Tensor,
    segments: Tensor,
    kind: String,
    out: Output,
    counted: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let segments = c.cast(&segments.view()?, DType::I64)?;
    let count = if segments.is_empty() {
        0
    } else {
        (context.integers(&c.reduce(Reduction::Maximum, &segments, &[])?)?[0] + 1).max(0) as usize
    };
    store(&c, &out, dtype, &pooled(&c, Pool::named(&kind)?, &x, &segments, count)?)?;
    let Some(counted) = counted.filter(|_| kind == "MEAN") else { return Ok(()) };
    let [number, _] = counts(&c, &segments, count, &x)?;
    store(&c, &counted, dtype, &c.shaped(&number, &[count, 1])?)
}

fn segment_pool_grad(
    context: &Context,
    x: Tensor,
    segments: Tensor,
    out: Tensor,
    _counted: Option<Tensor>,
    upstream: Tensor,
    kind: String,
    dx: Output,
) -> Result<()> {
    let (c, dtype, segments) = (Compose::new(context), x.dtype()?, segments.view()?);
    let (x, out, upstream) = (c.input(&x)?, c.input(&out)?, c.input(&upstream)?);
    let gradient = unpooled(&c, Pool::named(&kind)?, [&x, &out, &upstream], &segments)?;
    c.store_value(&dx, dtype, &gradient)
}
