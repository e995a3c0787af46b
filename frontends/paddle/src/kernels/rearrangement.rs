//! Kernels that move elements by views alone: shuffled channels, shifts in time, crops, diagonals that are filled.

use super::compose::Compose;
use super::diagonal::diagonal;
use super::images::layout;
use super::indexing::zeros;
use super::interpolation::shuffled;
use super::movement::gave_memory_alone;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, run};
use openmps_graph::{Operator, View};
use openmps_tile::dtype::{ALL, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("channel_shuffle", ALL, channel_shuffle);
    table.add("channel_shuffle_grad", ALL, channel_shuffle_grad);
    table.add("shuffle_channel", ALL, shuffle_channel);
    table.add("shuffle_channel_grad", ALL, shuffle_channel_grad);
    table.add("pixel_unshuffle", ALL, pixel_unshuffle).strided();
    table.add("pixel_unshuffle_grad", ALL, pixel_unshuffle_grad).strided();
    table.add("temporal_shift", NUMBERS, temporal_shift).strided();
    table.add("temporal_shift_grad", NUMBERS, temporal_shift_grad).strided();
    table.add("crop", ALL, crop).strided();
    table.add("crop_grad", ALL, crop_grad).strided();
    table.add("legacy_crop", ALL, crop_as).strided();
    table.add("legacy_crop_grad", ALL, crop_as_grad).strided();
    table.add("fill_diagonal", ALL, fill_diagonal).strided();
    table.add("fill_diagonal_grad", ALL, fill_diagonal_grad).strided();
    table.add("fill_diagonal_tensor", ALL, fill_diagonal_tensor).strided();
    table.add("fill_diagonal_tensor_grad", ALL, fill_diagonal_tensor_grad).strided();
}

pub(super) fn copy(context: &Context, from: View, to: View) -> Result<()> {
    Ok(Copy.run(context.queue(), &[from], &[to])?)
}

/// Adds in place. No two elements of `to` are one in memory.
pub(super) fn accumulate(context: &Context, from: &View, to: &View) -> Result<()> {
    Ok(run(Elementwise::Binary(Binary::Add), context.queue(), &[to, from], &[], to)?)
}

/// Channels as a matrix of `groups` rows, transposed.
fn transpose_channels(context: &Context, x: &Tensor, groups: usize, axis: usize, out: &Output) -> Result<()> {
    let x = x.view()?;
    let to = context.allocate(out, x.dtype)?;
    let channels = x.shape.get(axis).copied().unwrap_or(0);
    if groups == 0 || channels % groups != 0 {
        return Err(refuse("groups", groups, &format!("a divisor of the {channels} channels")));
    }
    let split = |rows: usize, columns: usize| [&x.shape[..axis], &[rows, columns], &x.shape[axis + 1..]].concat();
    let from = View::dense(x.address, x.dtype, &split(groups, channels / groups))?;
    copy(context, from.swapped(axis, axis + 1), View::dense(to.address, to.dtype, &split(channels / groups, groups))?)
}

fn channel_axis(format: &str, rank: usize) -> usize {
    if format == "NHWC" { rank.saturating_sub(1) } else { 1 }
}

fn channel_shuffle(context: &Context, x: Tensor, groups: i32, format: String, out: Output) -> Result<()> {
    let axis = channel_axis(&format, x.shape().len());
    transpose_channels(context, &x, groups.max(0) as usize, axis, &out)
}

/// As many rows as there were columns.
fn other_groups(x: &Tensor, groups: i32, axis: usize) -> usize {
    x.shape().get(axis).map_or(0, |channels| channels / groups.max(1) as usize)
}

fn channel_shuffle_grad(context: &Context, upstream: Tensor, groups: i32, format: String, dx: Output) -> Result<()> {
    if gave_memory_alone(context, &dx, upstream.dtype()?)? {
        return Ok(());
    }
    let axis = channel_axis(&format, upstream.shape().len());
    transpose_channels(context, &upstream, other_groups(&upstream, groups, axis), axis, &dx)
}

fn shuffle_channel(context: &Context, x: Tensor, groups: i32, out: Output) -> Result<()> {
    transpose_channels(context, &x, groups.max(0) as usize, 1, &out)
}

fn shuffle_channel_grad(context: &Context, upstream: Tensor, groups: i32, dx: Output) -> Result<()> {
    transpose_channels(context, &upstream, other_groups(&upstream, groups, 1), 1, &dx)
}

fn pixel_unshuffle(context: &Context, x: Tensor, factor: i32, format: String, out: Output) -> Result<()> {
    let (x, out) = (x.view()?, context.allocate(&out, x.dtype()?)?);
    let [channels, pixels] = shuffled(&out, &x, factor, &format)?;
    copy(context, pixels, channels)
}

fn pixel_unshuffle_grad(context: &Context, upstream: Tensor, factor: i32, format: String, dx: Output) -> Result<()> {
    let (upstream, dx) = (upstream.view()?, context.allocate(&dx, upstream.dtype()?)?);
    let [channels, pixels] = shuffled(&upstream, &dx, factor, &format)?;
    copy(context, channels, pixels)
}

/// The first share of the channels comes from the time before, the second from the time after, or the other way round.
fn shifted(
    context: &Context,
    x: &Tensor,
    (times, ratio, format): (i32, f32, &str),
    is_backward: bool,
    out: &Output,
) -> Result<()> {
    let x = x.view()?;
    let to = context.allocate(out, x.dtype)?;
    Compose::new(context).fill(&to, 0.0)?;
    let times = times.max(1) as usize;
    let split = |view: &View| -> Result<View> {
        let view = layout(format).nchw(view);
        let dims = [&[view.shape[0] / times, times], &view.shape[1..]].concat();
        let strides = [&[view.strides[0] * times as isize], &view.strides[..]].concat();
        Ok(View::strided(view.address, view.dtype, &dims, &strides)?)
    };
    let (from, to) = (split(&x)?, split(&to)?);
    let channels = from.shape[2];
    let ends =
        [(channels as f32 * ratio) as usize, (channels as f32 * 2.0 * ratio) as usize].map(|end| end.min(channels));
    let part = |view: &View, begin: usize, end: usize, time: usize, count: usize| {
        view.narrowed(2, begin, 1, end - begin).narrowed(1, time, 1, count)
    };
    let (earlier, later) = ((0, 1), (1, 0));
    let [first, second] = if is_backward { [later, earlier] } else { [earlier, later] };
    for (begin, end, (source, target)) in [(0, ends[0], first), (ends[0], ends[1], second)] {
        copy(context, part(&from, begin, end, source, times - 1), part(&to, begin, end, target, times - 1))?;
    }
    copy(context, part(&from, ends[1], channels, 0, times), part(&to, ends[1], channels, 0, times))
}

fn temporal_shift(context: &Context, x: Tensor, times: i32, ratio: f32, format: String, out: Output) -> Result<()> {
    shifted(context, &x, (times, ratio, &format), false, &out)
}

fn temporal_shift_grad(
    context: &Context,
    upstream: Tensor,
    times: i32,
    ratio: f32,
    format: String,
    dx: Output,
) -> Result<()> {
    shifted(context, &upstream, (times, ratio, &format), true, &dx)
}

/// The part of a view of these sizes from these offsets on.
fn cropped(x: &View, offsets: &[i64], sizes: &[usize]) -> Result<View> {
    let mut part = x.clone();
    for axis in 0..x.rank() {
        let (offset, size) = (offsets.get(axis).copied().unwrap_or(0), sizes[axis]);
        let begin = usize::try_from(offset).ok().filter(|begin| begin.saturating_add(size) <= x.shape[axis]);
        let Some(begin) = begin else {
            let expected = format!("at most {} less {size} at position {axis}", x.shape[axis]);
            return Err(refuse("offsets", offsets, &expected));
        };
        part = part.narrowed(axis, begin, 1, size);
    }
    Ok(part)
}

fn crop(context: &Context, x: Tensor, shape: IntArray, offsets: IntArray, out: Output) -> Result<()> {
    let x = x.view()?;
    if shape.len() != x.rank() {
        return Err(refuse("shape", &shape[..], &format!("{} numbers", x.rank())));
    }
    // Of -1 everything from the offset on.
    let rest = |axis: usize| x.shape[axis].saturating_sub(offsets.get(axis).copied().unwrap_or(0).max(0) as usize);
    let sizes: Vec<usize> =
        (0..x.rank()).map(|axis| usize::try_from(shape[axis]).unwrap_or_else(|_| rest(axis))).collect();
    let part = cropped(&x, &offsets, &sizes)?;
    out.set_dims(&sizes);
    copy(context, part, context.allocate(&out, x.dtype)?)
}

fn crop_grad(context: &Context, x: Tensor, upstream: Tensor, offsets: IntArray, dx: Output) -> Result<()> {
    let upstream = upstream.view()?;
    // Paddle's rule gives it the shape of the upstream gradient.
    dx.set_dims(&x.shape());
    let to = zeros(context, upstream.dtype, &x.shape(), &dx)?;
    let part = cropped(&to, &offsets, &upstream.shape)?;
    copy(context, upstream, part)
}

/// The older form: a shape that is an attribute, or another tensor's, and of the first axis all where it is -1.
fn crop_as(
    context: &Context,
    x: Tensor,
    like: Option<Tensor>,
    offsets: IntArray,
    shape: Vec<i32>,
    out: Output,
) -> Result<()> {
    let x = x.view()?;
    let sizes: Vec<usize> = match like {
        Some(like) => like.shape().to_vec(),
        None => shape.iter().enumerate().map(|(axis, &size)| usize::try_from(size).unwrap_or(x.shape[axis])).collect(),
    };
    if sizes.len() != x.rank() {
        return Err(refuse("shape", sizes, &format!("{} numbers", x.rank())));
    }
    let part = cropped(&x, &offsets, &sizes)?;
    out.set_dims(&sizes);
    copy(context, part, context.allocate(&out, x.dtype)?)
}

fn crop_as_grad(
    context: &Context,
    x: Tensor,
    _like: Option<Tensor>,
    upstream: Tensor,
    offsets: IntArray,
    _shape: Vec<i32>,
    dx: Output,
) -> Result<()> {
    crop_grad(context, x, upstream, offsets, dx)
}

/// Fills the diagonal of a matrix, again and again down a tall one where it wraps; of more dimensions, which are of one size, the one
/// through all of them.
fn filled(context: &Context, x: &Tensor, value: f64, offset: i32, wrap: bool, out: &Output) -> Result<()> {
    let x = x.view()?;
    let to = context.allocate(out, x.dtype)?;
    if !to.is_same_memory(&x) {
        copy(context, x, to.clone())?;
    }
    if to.rank() < 2 {
        return Err(refuse("rank of x", to.rank(), "2 or more"));
    }
    let c = Compose::new(context);
    let (columns, step) = (to.shape[1], to.strides.iter().sum::<isize>());
    let count =
        to.shape.iter().zip(&to.strides).map(|(&size, &stride)| (size as isize - 1) * stride).sum::<isize>() + 1;
    let end = if wrap || to.rank() > 2 { count } else { count.min((columns * columns) as isize) };
    let steps = if to.is_empty() { 0 } else { (end + step - 1) / step };
    // A round is as many steps as there are columns; what the offset moves beyond a row's ends is left as it is.
    for round in (0..steps).step_by(columns.max(1)) {
        let first = round + (-offset as isize).max(0);
        let last = (round + columns as isize - (offset as isize).max(0)).min(steps);
        let at = |index: isize| index * step + offset as isize;
        let inside = (first..last).filter(|&index| (0..count).contains(&at(index))).count();
        let Some(first) = (first..last).find(|&index| (0..count).contains(&at(index))) else { continue };
        let address = to.address.wrapping_add_signed(at(first) * to.dtype.size() as isize);
        c.fill(&View::strided(address, to.dtype, &[inside], &[step])?, value)?;
    }
    Ok(())
}

fn fill_diagonal(context: &Context, x: Tensor, value: f32, offset: i32, wrap: bool, out: Output) -> Result<()> {
    filled(context, &x, value.into(), offset, wrap, &out)
}

fn fill_diagonal_grad(
    context: &Context,
    upstream: Tensor,
    _value: f32,
    offset: i32,
    wrap: bool,
    dx: Output,
) -> Result<()> {
    filled(context, &upstream, 0.0, offset, wrap, &dx)
}

fn fill_diagonal_tensor(
    context: &Context,
    x: Tensor,
    y: Tensor,
    offset: i64,
    first: i32,
    second: i32,
    out: Output,
) -> Result<()> {
    let (x, y) = (x.view()?, y.view()?);
    let to = context.allocate(&out, x.dtype)?;
    if !to.is_same_memory(&x) {
        copy(context, x, to.clone())?;
    }
    let diagonal = diagonal(&to, offset as i32, [first, second])?;
    // The diagonal of a matrix comes as a matrix of one row.
    let wide = |shape: &[usize]| shape.iter().copied().filter(|&size| size != 1).collect::<Vec<_>>();
    if wide(&y.shape) != wide(&diagonal.shape) {
        return Err(refuse("shape of y", &y.shape, &format!("{:?}, the diagonal's", diagonal.shape)));
    }
    let c = Compose::new(context);
    c.launch(&Copy, &[c.shaped(&y, &diagonal.shape)?], &[diagonal])
}

fn fill_diagonal_tensor_grad(
    context: &Context,
    upstream: Tensor,
    offset: i64,
    first: i32,
    second: i32,
    dx: Output,
) -> Result<()> {
    let upstream = upstream.view()?;
    let to = context.allocate(&dx, upstream.dtype)?;
    if !to.is_same_memory(&upstream) {
        copy(context, upstream, to.clone())?;
    }
    Compose::new(context).fill(&diagonal(&to, offset as i32, [first, second])?, 0.0)
}
