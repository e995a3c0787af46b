//! Gradients of gradients of sums, differences, products and quotients, the second and the third.

use super::aligned::{aligned, aligned_shape};
use super::compose::Compose;
use super::recorded::Recorded;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::gradient::Node;
use openmps_graph::operators::elementwise::{Binary, Call, Elementwise};
use openmps_graph::operators::words::Words;
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("add_double_grad", FLOATS, add).strided();
    table.add("subtract_double_grad", FLOATS, subtract).strided();
    table.add("multiply_double_grad", FLOATS, multiply).strided();
    table.add("divide_double_grad", FLOATS, divide).strided();
    table.add("add_triple_grad", FLOATS, add_triple).strided();
    table.add("multiply_triple_grad", FLOATS, multiply_triple).strided();
}

/// How the tensors of a second gradient of two operands are read, in the type in which they are computed.
struct Pair<'c> {
    c: Compose<'c>,
    dtype: DType,
    /// The rank of the result.
    rank: usize,
    axis: i32,
}

impl<'c> Pair<'c> {
    /// Of the upstream it reads no element: where only its shape is needed Paddle has freed them in static programs.
    fn new(context: &'c Context, upstream: &Tensor, axis: i32) -> Result<Pair<'c>> {
        Ok(Pair { c: Compose::new(context), dtype: upstream.dtype()?, rank: upstream.shape().len(), axis })
    }

    /// The first operand, its upstream or that of the result.
    fn first(&self, x: Option<&Tensor>) -> Result<Option<View>> {
        x.map(|x| self.c.input(x)).transpose()
    }

    /// The second operand, or its upstream, whose dimensions may begin at an axis of the first's.
    fn second(&self, y: Option<&Tensor>) -> Result<Option<View>> {
        let Some(y) = y else { return Ok(None) };
        self.c.cast(&aligned(y.view()?, self.rank, self.axis)?, self.dtype.compute()).map(Some)
    }

    /// The product, where both factors are there.
    fn product(&self, x: Option<&View>, y: Option<&View>) -> Result<Option<View>> {
        let (Some(x), Some(y)) = (x, y) else { return Ok(None) };
        self.c.multiply(x, y).map(Some)
    }

    /// Stores the sum of what there is, zeros where there is nothing.
    fn store(&self, output: Option<&Output>, values: [Option<View>; 2]) -> Result<()> {
        let Some(output) = output else { return Ok(()) };
        let value = match &values {
            [Some(x), Some(y)] => self.c.add(x, y)?,
            [Some(value), None] | [None, Some(value)] => value.clone(),
            [None, None] => return self.c.fill(&self.c.place(output, self.dtype)?, 0.0),
        };
        let shape = aligned_shape(&output.shape(), value.rank(), self.axis);
        let larger = value.len() > shape.iter().product();
        let value = if larger { self.c.summed_to(&value, &shape)? } else { value };
        self.c.store_value(output, self.dtype, &value)
    }
}

/// Of a sum: the sum of the upstreams, of which the second is negative for a difference.
fn sum(
    context: &Context,
    upstream: &Tensor,
    [ddx, ddy]: [Option<&Tensor>; 2],
    (axis, sign): (i32, f64),
    ddout: &Output,
) -> Result<()> {
    let pair = Pair::new(context, upstream, axis)?;
    let of_y = pair.second(ddy)?.map(|ddy| pair.c.scale(&ddy, sign, 0.0)).transpose()?;
    pair.store(Some(ddout), [pair.first(ddx)?, of_y])
}

fn add(
    context: &Context,
    _y: Tensor,
    upstream: Tensor,
    ddx: Option<Tensor>,
    ddy: Option<Tensor>,
    axis: i32,
    ddout: Output,
) -> Result<()> {
    sum(context, &upstream, [ddx.as_ref(), ddy.as_ref()], (axis, 1.0), &ddout)
}

fn subtract(
    context: &Context,
    _y: Tensor,
    upstream: Tensor,
    ddx: Option<Tensor>,
    ddy: Option<Tensor>,
    axis: i32,
    ddout: Output,
) -> Result<()> {
    sum(context, &upstream, [ddx.as_ref(), ddy.as_ref()], (axis, -1.0), &ddout)
}

/// The factors of a product, its upstream and those of both gradients, recorded; and these gradients.
struct Product<'c> {
    recorded: Recorded<'c>,
    by: [Node; 3],
    upstreams: [Option<Node>; 2],
    gradients: [Option<Node>; 2],
}

impl<'c> Product<'c> {
    fn new(
        context: &'c Context,
        [x, y, upstream]: [&Tensor; 3],
        [ddx, ddy]: [Option<&Tensor>; 2],
        axis: i32,
    ) -> Result<Product<'c>> {
        let (mut recorded, rank) = (Recorded::new(context, upstream.dtype()?), upstream.shape().len());
        let [x, y, upstream] =
            [recorded.input(x)?, recorded.view(&aligned(y.view()?, rank, axis)?)?, recorded.input(upstream)?];
        let ddy = ddy.map(|ddy| aligned(ddy.view()?, rank, axis)).transpose()?;
        let upstreams = [recorded.optional(ddx)?, ddy.map(|ddy| recorded.view(&ddy)).transpose()?];
        let product = Call::new(Elementwise::Binary(Binary::Multiply));
        let gradients = recorded.of_both(product, [x, y], Some(upstream))?;
        Ok(Product { recorded, by: [x, y, upstream], upstreams, gradients })
    }

    /// The gradients of both gradients.
    fn second(&mut self, [ddx, ddy]: [Option<Node>; 2]) -> Result<[Option<Node>; 3]> {
        let [dx, dy] = self.gradients;
        self.recorded.gradients(&[(dx, ddx), (dy, ddy)], self.by)
    }
}

fn multiply(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    ddx: Option<Tensor>,
    ddy: Option<Tensor>,
    axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    let mut product = Product::new(context, [&x, &y, &upstream], [ddx.as_ref(), ddy.as_ref()], axis)?;
    let found = product.second(product.upstreams)?;
    product.recorded.store([dx, dy, ddout], found)
}

/// Of the quotient `out = x / y`, where `dx = dy / y`: `dx (out ddy - ddx) / y` by y, `-dx ddy` by out, `(ddx - out ddy) / y` by dy.
fn divide(
    context: &Context,
    y: Tensor,
    out: Tensor,
    upstream: Tensor,
    dx: Option<Tensor>,
    ddx: Option<Tensor>,
    ddy: Option<Tensor>,
    axis: i32,
    dy: Option<Output>,
    dout: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    let pair = Pair::new(context, &upstream, axis)?;
    let c = &pair.c;
    let over = |value: &View, y: &View| c.map(Elementwise::Binary(Binary::Divide), &[value, y], &[]);
    let (Some(y), out) = (pair.second(Some(&y))?, c.input(&out)?) else { return Ok(()) };
    let slope = match &dx {
        // Its own dimensions are those of x: what was repeated has been summed, and is computed again.
        Some(dx) if dx.shape() == upstream.shape() => c.input(dx)?,
        _ => over(&c.input(&upstream)?, &y)?,
    };
    let (ddx, ddy) = (pair.first(ddx.as_ref())?, pair.second(ddy.as_ref())?);
    let minus = |value: Option<View>| value.map(|value| c.scale(&value, -1.0, 0.0)).transpose();
    let over_y = |value: Option<View>| value.map(|value| over(&value, &y)).transpose();
    let (first, second) = (over_y(ddx)?, over_y(pair.product(Some(&out), ddy.as_ref())?)?);
    let of_out = minus(pair.product(Some(&slope), ddy.as_ref())?)?;
    let of_y = [pair.product(Some(&slope), second.as_ref())?, minus(pair.product(Some(&slope), first.as_ref())?)?];
    pair.store(dy.as_ref(), of_y)?;
    pair.store(dout.as_ref(), [of_out, None])?;
    pair.store(ddout.as_ref(), [first, minus(second)?])
}

fn add_triple(
    context: &Context,
    _ddx: Tensor,
    _ddy: Tensor,
    upstream: Tensor,
    axis: i32,
    dddx: Option<Output>,
    dddy: Option<Output>,
) -> Result<()> {
    let pair = Pair::new(context, &upstream, axis)?;
    let upstream = pair.first(Some(&upstream))?;
    pair.store(dddy.as_ref(), [upstream.clone(), None])?;
    pair.store(dddx.as_ref(), [upstream, None])
}

/// The gradients of what [`multiply`] gives, for the upstreams a, b and e.
fn multiply_triple(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    ddx: Option<Tensor>,
    ddy: Option<Tensor>,
    a: Option<Tensor>,
    b: Option<Tensor>,
    e: Option<Tensor>,
    axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
    dout: Option<Output>,
    dddx: Option<Output>,
    dddy: Option<Output>,
) -> Result<()> {
    let mut product = Product::new(context, [&x, &y, &upstream], [ddx.as_ref(), ddy.as_ref()], axis)?;
    let (rank, [x, y, upstream]) = (upstream.shape().len(), product.by);
    let recorded = &mut product.recorded;
    let b = b.map(|b| aligned(b.view()?, rank, axis)).transpose()?;
    let [a, b, e] =
        [recorded.optional(a.as_ref())?, b.map(|b| recorded.view(&b)).transpose()?, recorded.optional(e.as_ref())?];
    let [ddx, ddy] = product.upstreams;
    let ddx = ddx.map_or_else(|| recorded.zeros_like(x), Ok)?;
    let ddy = ddy.map_or_else(|| recorded.zeros_like(y), Ok)?;
    let [of_x, of_y, of_upstream] = product.second([Some(ddx), Some(ddy)])?;
    let of = [(of_x, a), (of_y, b), (of_upstream, e)];
    let found = product.recorded.gradients(&of, [x, y, upstream, ddx, ddy])?;
    product.recorded.store([dx, dy, dout, dddx, dddy], found)
}
