//! Pooling of volumes, as sums and maxima over what pooling of images gives for their planes.

use super::compose::Compose;
use super::movement::gave_memory_alone;
use super::pooling::{pooling, wide};
use super::volume::{borders, channels_first, dense, three};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::gather::{Negative, TakeAlongAxis};
use openmps_graph::operators::pooling::{Pooling, PoolingGradient};
use openmps_graph::{DType, Operator, View};
use openmps_tile::Number;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("pool3d", FLOATS, pool3d);
    table.add("pool3d_grad", FLOATS, pool3d_grad);
    table.add("max_pool3d_with_index", FLOATS, max_pool3d_with_index).output(1, DType::I32);
    table.add("max_pool3d_with_index_grad", FLOATS, max_pool3d_with_index_grad);
}

/// Pooling of volumes: of each plane first, and then along the depth. Windows are products of intervals, so maxima and means are too.
struct Pools {
    planes: Pooling,
    depth: Pooling,
}

#[allow(clippy::too_many_arguments, reason = "Paddle's parameters")]
impl Pools {
    fn new(
        kernel: &[i64],
        strides: &[i64],
        paddings: &[i64],
        (ceil_mode, exclusive, global, adaptive): (bool, bool, bool, bool),
        kind: &str,
        algorithm: &str,
    ) -> Result<Pools> {
        let [depth, height, width] = three("kernel_size", if global { &[1] } else { kernel })?.map(|size| size as i64);
        let strides = three("strides", if global || adaptive { &[1] } else { strides })?.map(|size| size as i64);
        let [front, top, left] =
            borders(if global || adaptive { &[0] } else { paddings })?.map(|ends| ends.map(|size| size as i64));
        let make = |kernel: [i64; 2], strides: [i64; 2], paddings: [i64; 4], global| {
            pooling(&kernel, &strides, &paddings, ceil_mode, exclusive, "NCHW", kind, global, adaptive, algorithm)
        };
        let planes = make([height, width], [strides[1], strides[2]], [top[0], top[1], left[0], left[1]], global)?;
        // Global pooling leaves one column; adaptive pooling asks for as many as there are.
        let rest = if adaptive { height * width } else { 1 };
        let depth = make([depth, rest], [strides[0], 1], [front[0], front[1], 0, 0], global)?;
        Ok(Pools { planes, depth })
    }

    /// Volumes as images of their planes, which are the channels.
    fn as_planes(&self, c: &Compose, x: &View) -> Result<View> {
        let [n, channels, depth, height, width] = [0, 1, 2, 3, 4].map(|axis| x.shape[axis]);
        c.shaped(x, &[n * channels, depth, height, width])
    }

    /// Pooled planes as images of (depth, the plane's elements).
    fn as_depth(&self, c: &Compose, planes: &View) -> Result<View> {
        let [n, depth, height, width] = [0, 1, 2, 3].map(|axis| planes.shape[axis]);
        c.shaped(planes, &[n, 1, depth, height * width])
    }

    fn gradient(&self, c: &Compose, x: &View, upstream: &View) -> Result<View> {
        let planes = self.as_planes(c, x)?;
        let pooled = c.apply(&self.planes, std::slice::from_ref(&planes))?;
        let line = self.as_depth(c, &pooled)?;
        let of_line = self.depth.infer(&[meta(&line)])?.remove(0);
        let upstream = c.shaped(upstream, &of_line.shape)?;
        let dline = c.apply(&PoolingGradient { of: self.depth.clone() }, &[line, upstream])?;
        c.apply(&PoolingGradient { of: self.planes.clone() }, &[planes, c.shaped(&dline, &pooled.shape)?])
    }
}

fn meta(view: &View) -> openmps_graph::Meta {
    openmps_graph::Meta { dtype: view.dtype, shape: view.shape.clone() }
}

fn volume(x: &View) -> Result<()> {
    if x.rank() == 5 { Ok(()) } else { Err(refuse("rank of x", x.rank(), "5")) }
}

fn pool3d(
    context: &Context,
    x: Tensor,
    kernel: Vec<i64>,
    strides: Vec<i64>,
    paddings: Vec<i64>,
    ceil_mode: bool,
    exclusive: bool,
    format: String,
    kind: String,
    global: bool,
    adaptive: bool,
    algorithm: String,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    // A mean of means is rounded to a half type once.
    let x = c.input(&x)?;
    volume(&x)?;
    if x.is_empty() && gave_memory_alone(context, &out, dtype)? {
        return Ok(());
    }
    let x = dense(&c, &channels_first(&x, &format))?;
    let flags = (ceil_mode, exclusive, global, adaptive);
    let pools = Pools::new(&kernel, &strides, &paddings, flags, &kind, &algorithm)?;
    let planes = c.apply(&pools.planes, &[pools.as_planes(&c, &x)?])?;
    let value = c.apply(&pools.depth, &[pools.as_depth(&c, &planes)?])?;
    let dims = [x.shape[0], x.shape[1], value.shape[2], planes.shape[2], planes.shape[3]];
    c.store_as(&out, dtype, &c.shaped(&value, &dims)?, |to| channels_first(to, &format))
}

fn pool3d_grad(
    context: &Context,
    x: Tensor,
    _out: Tensor,
    upstream: Tensor,
    kernel: Vec<i64>,
    strides: Vec<i64>,
    paddings: Vec<i64>,
    ceil_mode: bool,
    exclusive: bool,
    format: String,
    kind: String,
    global: bool,
    adaptive: bool,
    algorithm: String,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    volume(&x)?;
    if x.is_empty() || upstream.shape().contains(&0) {
        return c.fill(&c.place(&dx, dtype)?, 0.0);
    }
    let first = |view: &View| dense(&c, &channels_first(view, &format));
    let (x, upstream) = (first(&x)?, first(&c.input(&upstream)?)?);
    let flags = (ceil_mode, exclusive, global, adaptive);
    let pools = Pools::new(&kernel, &strides, &paddings, flags, &kind, &algorithm)?;
    let value = c.shaped(&pools.gradient(&c, &x, &upstream)?, &x.shape)?;
    c.store_as(&dx, dtype, &value, |to| channels_first(to, &format))
}

fn indexed(
    kernel: &[i32],
    strides: &[i32],
    paddings: &[i32],
    (global, adaptive, ceil_mode): (bool, bool, bool),
) -> Result<Pools> {
    let flags = (ceil_mode, true, global, adaptive);
    Pools::new(&wide(kernel), &wide(strides), &wide(paddings), flags, "max", "EXPLICIT")
}

/// Places are counted through the whole volume.
fn max_pool3d_with_index(
    context: &Context,
    x: Tensor,
    kernel: Vec<i32>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    global: bool,
    adaptive: bool,
    ceil_mode: bool,
    out: Output,
    mask: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    volume(&x)?;
    let pools = indexed(&kernel, &strides, &paddings, (global, adaptive, ceil_mode))?;
    let with_places = |of: &Pooling, x: View| -> Result<[View; 2]> {
        let operator = Pooling { indices: true, ..of.clone() };
        let metas = operator.infer(&[meta(&x)])?;
        let outputs = [c.temporary(metas[0].dtype, &metas[0].shape)?, c.temporary(metas[1].dtype, &metas[1].shape)?];
        c.launch(&operator, &[x], &outputs)?;
        Ok(outputs)
    };
    let [planes, within] = with_places(&pools.planes, pools.as_planes(&c, &x)?)?;
    let [value, along] = with_places(&pools.depth, pools.as_depth(&c, &planes)?)?;
    let rows = planes.shape[0];
    let flat = |view: &View| c.shaped(view, &[rows, view.len() / rows.max(1)]);
    let along = c.cast(&flat(&along)?, DType::I64)?;
    let within = c.cast(&flat(&within)?, DType::I64)?;
    let within = c.apply(&TakeAlongAxis { axis: 1, negative: Negative::Refused }, &[within, along.clone()])?;
    let columns = c.constant(DType::I64, &[1], (planes.shape[2] * planes.shape[3]) as f64)?;
    let depth = c.map(Elementwise::Binary(Binary::FloorDivide), &[&along, &columns], &[])?;
    let numbers = [Number::Integer((x.shape[3] * x.shape[4]) as i64), Number::Integer(0)];
    let depth = c.map_numbers(Elementwise::Unary(Unary::Scale), &[&depth], &numbers)?;
    c.store_value(&mask, DType::I32, &c.add(&depth, &within)?)?;
    c.store_value(&out, dtype, &value)
}

fn max_pool3d_with_index_grad(
    context: &Context,
    x: Tensor,
    _mask: Tensor,
    upstream: Tensor,
    kernel: Vec<i32>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    global: bool,
    adaptive: bool,
    ceil_mode: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    volume(&x)?;
    let pools = indexed(&kernel, &strides, &paddings, (global, adaptive, ceil_mode))?;
    c.store_value(&dx, dtype, &pools.gradient(&c, &x, &c.input(&upstream)?)?)
}
