//! Norms over windows: lp_pool2d over places, lrn over channels.

use super::compose::Compose;
use super::images::{layout, pair, sizes};
use super::movement::gave_memory_alone;
use super::pooling::{pool2d, pool2d_grad};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::View;
use openmps_graph::image::ImageLayout;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::pad::{Mode, Pad, PadGradient};
use openmps_graph::operators::pooling::{Pooling, PoolingGradient, PoolingType};
use openmps_tile::dtype::FLOATS;
use openmps_tile::{DType, Number};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("lp_pool2d", FLOATS, lp_pool2d);
    table.add("lp_pool2d_grad", FLOATS, lp_pool2d_grad);
    table.add("lrn", &[DType::F32], lrn);
    table.add("lrn_grad", &[DType::F32], lrn_grad);
}

const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);
const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);

/// Sums over windows: padding with zeros until every window lies inside, means, and how many elements a mean is of.
struct Sums {
    pad: Pad,
    means: Pooling,
    counts: Vec<f64>,
    /// As many dimensions as an image has, all but those along which counts differ 1.
    counted: [usize; 4],
}

/// Paddle's attributes, in its order.
struct Attributes<'a> {
    kernel: &'a [i64],
    strides: &'a [i64],
    paddings: &'a [i64],
    format: &'a str,
    global: bool,
    adaptive: bool,
    algorithm: &'a str,
}

impl Attributes<'_> {
    /// The elements that are added before the first row and column.
    fn before(&self, input: [usize; 2], reach: [usize; 2]) -> Result<[usize; 2]> {
        let paddings = sizes("paddings", self.paddings)?;
        match (self.algorithm, paddings.as_slice()) {
            ("VALID", _) => Ok([0, 0]),
            ("SAME", _) => Ok([0, 1].map(|axis| reach[axis].saturating_sub(input[axis]) / 2)),
            (_, &[top, left] | &[top, _, left, _]) => Ok([top, left]),
            (_, &[both]) => Ok([both, both]),
            _ => Err(refuse("paddings", self.paddings, "one, two or four numbers")),
        }
    }

    fn sums(&self, input: &[usize], output: &[usize]) -> Result<Sums> {
        let axes = if layout(self.format) == ImageLayout::Nhwc { [1, 2] } else { [2, 3] };
        let (input, output) = (axes.map(|axis| input[axis]), axes.map(|axis| output[axis]));
        let mut pad = Pad { paddings: vec![(0, 0); 4], mode: Mode::Constant, value: Number::Float(0.0) };
        let mut counted = [1; 4];
        if self.adaptive {
            let of_axis = |axis: usize| -> Vec<f64> {
                let bound = |at: usize| at * input[axis];
                (0..output[axis])
                    .map(|at| (bound(at + 1).div_ceil(output[axis]) - bound(at) / output[axis]) as f64)
                    .collect()
            };
            let [rows, columns] = [0, 1].map(of_axis);
            let counts = rows.iter().flat_map(|row| columns.iter().map(move |column| row * column)).collect();
            [counted[axes[0]], counted[axes[1]]] = output;
            let means = Pooling { adaptive: true, ..Pooling::new(PoolingType::Average, output) };
            return Ok(Sums { pad, means: Pooling { layout: layout(self.format), ..means }, counts, counted });
        }
        let kernel = if self.global { input } else { pair("kernel_size", self.kernel)? };
        let strides = if self.global { [1, 1] } else { pair("strides", self.strides)? };
        let reach = [0, 1].map(|axis| output[axis].saturating_sub(1) * strides[axis] + kernel[axis]);
        let before = if self.global { [0, 0] } else { self.before(input, reach)? };
        for axis in 0..2 {
            let after = reach[axis] as i64 - input[axis] as i64 - before[axis] as i64;
            pad.paddings[axes[axis]] = (before[axis] as i64, after);
        }
        let means = Pooling { strides, layout: layout(self.format), ..Pooling::new(PoolingType::Average, kernel) };
        Ok(Sums { pad, means, counts: vec![(kernel[0] * kernel[1]) as f64], counted })
    }
}

impl Sums {
    fn counts(&self, context: &Context, c: &Compose, dtype: DType) -> Result<View> {
        let wide = c.temporary(DType::F64, &self.counted)?;
        let bytes: Vec<u8> = self.counts.iter().flat_map(|count| count.to_ne_bytes()).collect();
        context.queue().write(&wide, &bytes)?;
        c.cast(&wide, dtype)
    }

    fn forward(&self, context: &Context, c: &Compose, x: &View) -> Result<View> {
        let padded = c.apply(&self.pad, std::slice::from_ref(x))?;
        let means = c.apply(&self.means, &[padded])?;
        c.multiply(&means, &self.counts(context, c, means.dtype)?)
    }

    fn gradient(&self, context: &Context, c: &Compose, x: &View, upstream: &View) -> Result<View> {
        let padded = c.apply(&self.pad, std::slice::from_ref(x))?;
        let upstream = c.multiply(upstream, &self.counts(context, c, upstream.dtype)?)?;
        let dpadded = c.apply(&PoolingGradient { of: self.means.clone() }, &[padded, upstream])?;
        c.apply(&PadGradient { pad: self.pad.clone() }, &[dpadded])
    }
}

/// x to a power that is the same everywhere.
fn power(c: &Compose, x: &View, exponent: f64) -> Result<View> {
    let exponent = c.constant(x.dtype, &[1], exponent)?;
    c.map(Elementwise::Binary(Binary::Power), &[x, &exponent], &[])
}

fn image(x: &Tensor) -> Result<()> {
    if x.shape().len() == 4 { Ok(()) } else { Err(refuse("x", x.shape(), "a shape of 4 dimensions")) }
}

/// The exponent, of which there is a root.
fn exponent(norm: f32) -> Result<f64> {
    if norm == 0.0 { Err(refuse("norm_type", norm, "a number other than 0")) } else { Ok(norm.into()) }
}

/// The root of the sum of powers; of infinite ones the maximum.
fn lp_pool2d(
    context: &Context,
    x: Tensor,
    kernel: IntArray,
    strides: Vec<i64>,
    paddings: Vec<i64>,
    ceil_mode: bool,
    exclusive: bool,
    format: String,
    _kind: String,
    global: bool,
    adaptive: bool,
    algorithm: String,
    norm: f32,
    out: Output,
) -> Result<()> {
    image(&x)?;
    if norm == f32::INFINITY {
        let kind = "max".to_owned();
        return pool2d(
            context, x, kernel, strides, paddings, ceil_mode, exclusive, format, kind, global, adaptive, algorithm, out,
        );
    }
    if x.shape().contains(&0) && gave_memory_alone(context, &out, x.dtype()?)? {
        return Ok(());
    }
    let (kernel, format, algorithm) = (&kernel[..], &format[..], &algorithm[..]);
    let attributes = Attributes { kernel, strides: &strides, paddings: &paddings, format, global, adaptive, algorithm };
    let (c, norm) = (Compose::new(context), exponent(norm)?);
    let sums = attributes.sums(&x.shape(), &out.shape())?;
    let sum = sums.forward(context, &c, &power(&c, &c.input(&x)?, norm)?)?;
    c.store_value(&out, x.dtype()?, &power(&c, &sum, 1.0 / norm)?)
}

/// `(x / y) ^ (norm - 1)` of the upstream, summed over the windows around x.
fn lp_pool2d_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    upstream: Tensor,
    kernel: IntArray,
    strides: Vec<i64>,
    paddings: Vec<i64>,
    ceil_mode: bool,
    exclusive: bool,
    format: String,
    _kind: String,
    global: bool,
    adaptive: bool,
    algorithm: String,
    norm: f32,
    dx: Output,
) -> Result<()> {
    image(&x)?;
    if norm == f32::INFINITY {
        let kind = "max".to_owned();
        return pool2d_grad(
            context, x, out, upstream, kernel, strides, paddings, ceil_mode, exclusive, format, kind, global, adaptive,
            algorithm, dx,
        );
    }
    if gave_memory_alone(context, &dx, x.dtype()?)? {
        return Ok(());
    }
    let (kernel, format, algorithm) = (&kernel[..], &format[..], &algorithm[..]);
    let attributes = Attributes { kernel, strides: &strides, paddings: &paddings, format, global, adaptive, algorithm };
    let (c, norm) = (Compose::new(context), exponent(norm)?);
    let sums = attributes.sums(&x.shape(), &out.shape())?;
    let value = c.input(&x)?;
    let share = c.multiply(&c.input(&upstream)?, &power(&c, &c.input(&out)?, 1.0 - norm)?)?;
    let share = sums.gradient(context, &c, &value, &share)?;
    c.store(&dx, x.dtype()?, MULTIPLY, &[&share, &power(&c, &value, norm - 1.0)?], &[])
}

/// Sums of `count` channels around each one, of images with channels first: those of a column of the plane (channels, places).
fn channel_sums(c: &Compose, x: &View, count: usize, before: usize) -> Result<View> {
    let [images, channels, rows, columns] = [0, 1, 2, 3].map(|axis| x.shape[axis]);
    let plane = c.shaped(x, &[images, 1, channels, rows * columns])?;
    let paddings = vec![(0, 0), (0, 0), (before as i64, (count - 1 - before) as i64), (0, 0)];
    let padded = c.apply(&Pad { paddings, mode: Mode::Constant, value: Number::Float(0.0) }, &[plane])?;
    let means = Pooling { strides: [1, 1], ..Pooling::new(PoolingType::Average, [count, 1]) };
    let means = c.apply(&means, &[padded])?;
    c.shaped(&c.scale(&means, count as f64, 0.0)?, &x.shape)
}

/// A dense copy with channels first.
fn channels_first(c: &Compose, x: &Tensor, format: &str) -> Result<View> {
    let ordered = super::interpolation::channels_first(&x.view()?, format);
    let copy = c.temporary(ordered.dtype, &ordered.shape)?;
    c.launch(&Copy, &[ordered], std::slice::from_ref(&copy))?;
    Ok(copy)
}

/// What `lrn` refuses.
fn check(x: &Tensor, count: i32, [k, alpha, beta]: [f32; 3]) -> Result<usize> {
    image(x)?;
    if [k, alpha, beta].iter().any(|number| number.is_nan() || *number < 0.0) {
        return Err(refuse("k, alpha, beta", [k, alpha, beta], "numbers from 0 on"));
    }
    usize::try_from(count)
        .ok()
        .filter(|count| count % 2 == 1)
        .ok_or_else(|| refuse("n", count, "an odd number above 0"))
}

/// `x / (k + alpha * the sum of squares of n channels) ^ beta`
fn lrn(
    context: &Context,
    x: Tensor,
    count: i32,
    k: f32,
    alpha: f32,
    beta: f32,
    format: String,
    out: Output,
    scales: Output,
) -> Result<()> {
    let (c, count) = (Compose::new(context), check(&x, count, [k, alpha, beta])?);
    let value = channels_first(&c, &x, &format)?;
    if value.is_empty() {
        c.place(&scales, value.dtype)?;
        return c.place(&out, value.dtype).map(|_| ());
    }
    let squares = c.multiply(&value, &value)?;
    let scale = c.scale(&channel_sums(&c, &squares, count, count / 2)?, alpha.into(), k.into())?;
    let normal = c.multiply(&value, &power(&c, &scale, -f64::from(beta))?)?;
    let store =
        |out: &Output, value: &View| super::interpolation::store_channels_first(&c, out, DType::F32, value, &format);
    store(&scales, &scale)?;
    store(&out, &normal)
}

fn lrn_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    scales: Tensor,
    upstream: Tensor,
    count: i32,
    k: f32,
    alpha: f32,
    beta: f32,
    format: String,
    dx: Output,
) -> Result<()> {
    let (c, count) = (Compose::new(context), check(&x, count, [k, alpha, beta])?);
    let first = |x: &Tensor| channels_first(&c, x, &format);
    let (value, scale, upstream) = (first(&x)?, first(&scales)?, first(&upstream)?);
    if value.is_empty() {
        return c.place(&dx, value.dtype).map(|_| ());
    }
    let direct = c.multiply(&upstream, &power(&c, &scale, -f64::from(beta))?)?;
    let share = c.map(DIVIDE, &[&c.multiply(&upstream, &first(&out)?)?, &scale], &[])?;
    let factor = -2.0 * f64::from(alpha) * f64::from(beta);
    let through = c.scale(&channel_sums(&c, &share, count, count / 2)?, factor, 0.0)?;
    let gradient = c.add(&direct, &c.multiply(&value, &through)?)?;
    super::interpolation::store_channels_first(&c, &dx, DType::F32, &gradient, &format)
}
