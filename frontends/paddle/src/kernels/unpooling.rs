//! Pooling that keeps where each number came from: maxima of windows of varying places (fractional pooling), and the way back by places (unpool).

use super::compose::Compose;
use super::values::{expect, positive};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::operators::arg_reduce::ArgReduce;
use openmps_graph::operators::gather::{Gather, Negative, TakeAlongAxis};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::{PutAlongAxis, Reduce};
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;

const UNPOOLED: &[DType] = &[DType::F16, DType::BF16, DType::F32, DType::F64, DType::I64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("unpool", UNPOOLED, unpool);
    table.add("unpool_grad", UNPOOLED, unpool_grad);
    table.add("unpool3d", UNPOOLED, unpool3d);
    table.add("unpool3d_grad", UNPOOLED, unpool3d_grad);
    table.add("fractional_max_pool2d", FLOATS, fractional_max_pool::<2>).output(1, DType::I32);
    table.add("fractional_max_pool3d", FLOATS, fractional_max_pool::<3>).output(1, DType::I32);
    table.add("fractional_max_pool2d_grad", FLOATS, fractional_max_pool_grad);
    table.add("fractional_max_pool3d_grad", FLOATS, fractional_max_pool_grad);
}

/// Images as rows of all their elements, one for each channel.
fn as_rows(c: &Compose, x: &View) -> Result<View> {
    let rows = x.shape.iter().take(2).product();
    c.shaped(x, &[rows, x.shape.iter().skip(2).product()])
}

/// Places inside an image, each checked.
fn places(context: &Context, c: &Compose, indices: &Tensor, size: usize) -> Result<View> {
    let view = as_rows(c, &indices.view()?)?;
    for extreme in [Reduction::Minimum, Reduction::Maximum] {
        let place = context.integers(&c.reduce(extreme, &view, &[])?)?[0];
        if usize::try_from(place).map_or(true, |place| place >= size) {
            return Err(refuse("indices", place, &format!("places 0 to {} of the output", size.saturating_sub(1))));
        }
    }
    Ok(view)
}

/// Every number at its place, of several at one place the last, and zeros elsewhere.
fn put_back(context: &Context, x: &Tensor, indices: &Tensor, out: &Output) -> Result<()> {
    let (c, shape) = (Compose::new(context), x.shape());
    expect("indices", indices, &shape)?;
    let to = c.place(out, x.dtype()?)?;
    c.fill(&to, 0.0)?;
    if to.is_empty() || shape.contains(&0) {
        return Ok(());
    }
    let to = as_rows(&c, &to)?;
    let index = places(context, &c, indices, to.shape[1])?;
    let put = PutAlongAxis { axis: 1, reduce: Reduce::Assign, include_self: true };
    c.launch(&put, &[to.clone(), index, as_rows(&c, &x.view()?)?], std::slice::from_ref(&to))
}

/// The upstream at every place.
fn taken(context: &Context, indices: &Tensor, upstream: &Tensor, dx: &Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), upstream.dtype()?);
    if upstream.shape().contains(&0) || indices.shape().contains(&0) {
        return c.fill(&c.place(dx, dtype)?, 0.0);
    }
    let upstream = as_rows(&c, &upstream.view()?)?;
    let index = places(context, &c, indices, upstream.shape[1])?;
    let value = c.apply(&TakeAlongAxis { axis: 1, negative: Negative::Refused }, &[upstream, index])?;
    c.store_value(dx, dtype, &value)
}

fn unpool(
    context: &Context,
    x: Tensor,
    indices: Tensor,
    _kernel: Vec<i32>,
    _strides: Vec<i32>,
    _paddings: Vec<i32>,
    _size: IntArray,
    _format: String,
    out: Output,
) -> Result<()> {
    put_back(context, &x, &indices, &out)
}

fn unpool_grad(
    context: &Context,
    _x: Tensor,
    indices: Tensor,
    _out: Tensor,
    upstream: Tensor,
    _kernel: Vec<i32>,
    _strides: Vec<i32>,
    _paddings: Vec<i32>,
    _size: IntArray,
    _format: String,
    dx: Output,
) -> Result<()> {
    taken(context, &indices, &upstream, &dx)
}

fn unpool3d(
    context: &Context,
    x: Tensor,
    indices: Tensor,
    _kernel: Vec<i32>,
    _strides: Vec<i32>,
    _paddings: Vec<i32>,
    _size: Vec<i32>,
    _format: String,
    out: Output,
) -> Result<()> {
    put_back(context, &x, &indices, &out)
}

fn unpool3d_grad(
    context: &Context,
    _x: Tensor,
    indices: Tensor,
    _out: Tensor,
    upstream: Tensor,
    _kernel: Vec<i32>,
    _strides: Vec<i32>,
    _paddings: Vec<i32>,
    _size: Vec<i32>,
    _format: String,
    dx: Output,
) -> Result<()> {
    taken(context, &indices, &upstream, &dx)
}

/// One axis of fractional pooling: where each window begins and ends. Reckoned in float32, as Paddle does: a place that falls between elements
/// is cut to a whole number.
fn windows(input: usize, output: usize, kernel: usize, drawn: f32) -> Vec<(usize, usize)> {
    let steps = if kernel > 0 { output as f32 - 1.0 } else { output as f32 };
    let step = (input as f32 - kernel as f32) / steps;
    let base = (input / output) as f32;
    let shift = if kernel > 0 {
        drawn
    } else {
        let bounds = [(base + 2.0) / step - 1.0, (input as f32 + 1.0 - base) / step - (output as f32 - 1.0)];
        drawn * bounds[0].min(bounds[1])
    };
    let origin = (shift * step) as i64;
    let place = |at: usize| ((at as f32 + shift) * step) as i64 - origin;
    let window = |at: usize| {
        let first = place(at);
        let end = if kernel > 0 { first + kernel as i64 } else { place(at + 1) };
        (first.clamp(0, input as i64) as usize, end.clamp(0, input as i64) as usize)
    };
    (0..output).map(window).collect()
}

/// The places in an image that each window covers, first axis first, as rows of one length: a place that is there twice changes no maximum.
fn covered(input: &[usize], axes: &[Vec<(usize, usize)>]) -> Vec<Vec<i32>> {
    let mut windows: Vec<Vec<i32>> = vec![vec![0]];
    for (axis, &size) in axes.iter().zip(input) {
        let extended = |rows: &Vec<i32>, &(first, end): &(usize, usize)| -> Vec<i32> {
            rows.iter().flat_map(|&row| (first..end).map(move |at| row * size as i32 + at as i32)).collect()
        };
        windows = windows.iter().flat_map(|rows| axis.iter().map(move |window| extended(rows, window))).collect();
    }
    let longest = windows.iter().map(Vec::len).max().unwrap_or(0);
    for window in &mut windows {
        let first = window.first().copied().unwrap_or(0);
        window.resize(longest, first);
    }
    windows
}

/// A number in [0, 1) from the device's generator, where none is given.
fn drawn(context: &Context, given: f32) -> f32 {
    if given == 0.0 { (context.random() >> 40) as f32 / (1u32 << 24) as f32 } else { given }
}

fn fractional_max_pool<const AXES: usize>(
    context: &Context,
    x: Tensor,
    size: Vec<i32>,
    kernel: Vec<i32>,
    given: f32,
    _with_mask: bool,
    out: Output,
    mask: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    if x.rank() != AXES + 2 || size.len() != AXES || kernel.len() != AXES {
        let got = (&x.shape, &size, &kernel);
        return Err(refuse("x, output_size, kernel_size", got, &format!("{} dimensions, and {AXES} sizes", AXES + 2)));
    }
    let (shift, input) = (drawn(context, given), &x.shape[2..]);
    let axis = |at: usize| {
        let kernel = usize::try_from(kernel[at]).unwrap_or(0);
        Ok(windows(input[at], positive("output_size", size[at])?, kernel.min(input[at]), shift))
    };
    let covered = covered(input, &(0..AXES).map(axis).collect::<Result<Vec<_>>>()?);
    let (count, longest) = (covered.len(), covered.first().map_or(0, Vec::len));
    if x.is_empty() {
        // The maximum of nothing is no number.
        c.fill(&c.place(&mask, DType::I32)?, 0.0)?;
        return c.fill(&c.place(&out, x.dtype)?, f64::NAN);
    }
    // One row for each place of a window: neighbours in memory are of neighbouring windows, which are searched together.
    let places = (0..longest).flat_map(|at| covered.iter().map(move |window| window[at]));
    let table = c.upload(DType::I32, &[longest * count], &places.flat_map(i32::to_ne_bytes).collect::<Vec<u8>>())?;
    let rows = as_rows(&c, &x)?;
    let dims = [rows.shape[0], longest, count];
    let values = c.shaped(&c.apply(&Gather { axis: 1 }, &[rows, table.clone()])?, &dims)?;
    let largest = ArgReduce { largest: true, axis: Some(1), keep_dims: true, dtype: DType::I64 };
    let which = c.apply(&largest, std::slice::from_ref(&values))?;
    let take = TakeAlongAxis { axis: 1, negative: Negative::Refused };
    let mut repeated = c.shaped(&table, &[1, longest, count])?;
    repeated.shape[0] = dims[0];
    repeated.strides[0] = 0;
    c.store_value(&mask, DType::I32, &c.apply(&take, &[repeated, which.clone()])?)?;
    c.store_value(&out, x.dtype, &c.apply(&take, &[values, which])?)
}

/// Every upstream number goes to the place that its window's maximum came from.
fn fractional_max_pool_grad(
    context: &Context,
    x: Tensor,
    mask: Tensor,
    upstream: Tensor,
    _size: Vec<i32>,
    _kernel: Vec<i32>,
    _given: f32,
    _with_mask: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), upstream.dtype()?);
    if x.shape().contains(&0) || upstream.shape().contains(&0) {
        return c.fill(&c.place(&dx, dtype)?, 0.0);
    }
    let upstream = as_rows(&c, &c.input(&upstream)?)?;
    let sum = c.constant(upstream.dtype, &x.shape(), 0.0)?;
    let rows = as_rows(&c, &sum)?;
    let index = places(context, &c, &mask, rows.shape[1])?;
    c.launch(&PutAlongAxis::sum(1), &[rows.clone(), index, upstream], std::slice::from_ref(&rows))?;
    c.store_value(&dx, dtype, &sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_an_axis() {
        assert_eq!(windows(7, 5, 2, 0.3), [(0, 2), (1, 3), (2, 4), (4, 6), (5, 7)]);
        let whole = windows(7, 3, 0, 0.5);
        assert_eq!((whole[0].0, whole.len()), (0, 3));
        assert!(whole.windows(2).all(|pair| pair[0].1 == pair[1].0), "{whole:?}");
        assert_eq!(windows(4, 1, 2, 0.5), [(0, 2)]);
    }

    #[test]
    fn rows_of_places_have_one_length() {
        let rows = covered(&[3, 3], &[vec![(0, 2)], vec![(0, 1), (1, 3)]]);
        assert_eq!(rows, [vec![0, 3, 0, 0], vec![1, 2, 4, 5]]);
    }
}
