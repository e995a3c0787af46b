//! Kernels that move elements by views alone: shuffled channels, shifts in time, windows, crops, diagonals that are filled.

use super::compose::Compose;
use super::diagonal::diagonal;
use super::images::{layout, refuse};
use super::indexing::zeros;
use super::interpolation::shuffled;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, run};
use openmps_graph::{Operator, View};
use openmps_tile::Number;
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
    table.add("fill_diagonal", ALL, fill_diagonal).strided();
    table.add("fill_diagonal_grad", ALL, fill_diagonal_grad).strided();
    table.add("fill_diagonal_tensor", ALL, fill_diagonal_tensor).strided();
    table.add("fill_diagonal_tensor_grad", ALL, fill_diagonal_tensor_grad).strided();
    table.add("unfold", NUMBERS, unfold).strided();
    table.add("unfold_grad", NUMBERS, unfold_grad);
    table.add("fold", NUMBERS, fold);
    table.add("fold_grad", NUMBERS, fold_grad).strided();
    table.add("frame", NUMBERS, frame);
    table.add("frame_grad", NUMBERS, frame_grad);
    table.add("overlap_add", NUMBERS, overlap_add);
    table.add("overlap_add_grad", NUMBERS, overlap_add_grad);
}

fn copy(context: &Context, from: View, to: View) -> Result<()> {
    Ok(Copy.run(context.queue(), &[from], &[to])?)
}

/// Adds in place. No two elements of `to` are one in memory.
fn accumulate(context: &Context, from: &View, to: &View) -> Result<()> {
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
    let mut order: Vec<usize> = (0..from.rank()).collect();
    order.swap(axis, axis + 1);
    copy(context, from.permuted(&order), View::dense(to.address, to.dtype, &split(channels / groups, groups))?)
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
    if y.shape != diagonal.shape {
        return Err(refuse("shape of y", &y.shape, &format!("{:?}, the diagonal's", diagonal.shape)));
    }
    copy(context, y, diagonal)
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

/// Windows over images, of height and width each.
struct Windows {
    kernel: [usize; 2],
    strides: [usize; 2],
    /// Above, left, below, right.
    paddings: [usize; 4],
    dilations: [usize; 2],
}

impl Windows {
    fn new(kernel: &[i32], strides: &[i32], paddings: &[i32], dilations: &[i32]) -> Result<Windows> {
        let pair = |name, numbers| super::images::pair::<i32>(name, numbers);
        let paddings = match *super::images::sizes("paddings", paddings)? {
            [top, left, bottom, right] => [top, left, bottom, right],
            [height, width] => [height, width, height, width],
            [all] => [all; 4],
            _ => return Err(refuse("paddings", paddings, "one, two or four numbers")),
        };
        Ok(Windows {
            kernel: pair("kernel_sizes", kernel)?,
            strides: pair("strides", strides)?,
            paddings,
            dilations: pair("dilations", dilations)?,
        })
    }

    /// Images with their borders, of zeros.
    fn padded(&self, c: &Compose, x: [usize; 4], like: &View) -> Result<View> {
        let [n, channels, height, width] = x;
        let [top, left, bottom, right] = self.paddings;
        let padded = c.temporary(like.dtype, &[n, channels, height + top + bottom, width + left + right])?;
        c.fill(&padded, 0.0)?;
        Ok(padded)
    }

    fn inner(&self, padded: &View, x: [usize; 4]) -> View {
        padded.narrowed(2, self.paddings[0], 1, x[2]).narrowed(3, self.paddings[1], 1, x[3])
    }

    /// How many windows fit along the height and the width.
    fn count(&self, padded: &View) -> Result<[usize; 2]> {
        let along = |axis: usize| {
            let reach = self.dilations[axis] * self.kernel[axis].saturating_sub(1) + 1;
            let stride = self.strides[axis].max(1);
            padded.shape[axis + 2].checked_sub(reach).map(|rest| rest / stride + 1)
        };
        match (along(0), along(1)) {
            (Some(height), Some(width)) => Ok([height, width]),
            _ => Err(refuse("kernel_sizes", self.kernel, "no more than the padded image")),
        }
    }

    /// (batch, channels, kernel height, kernel width, windows down, windows across).
    fn view(&self, padded: &View) -> Result<View> {
        let [down, across] = self.count(padded)?;
        let dims = [&padded.shape[..2], &self.kernel, &[down, across]].concat();
        let [n, c, h, w] = [0, 1, 2, 3].map(|axis| padded.strides[axis]);
        let by = |stride: isize, factor: usize| stride * factor as isize;
        let strides =
            [n, c, by(h, self.dilations[0]), by(w, self.dilations[1]), by(h, self.strides[0]), by(w, self.strides[1])];
        Ok(View::strided(padded.address, padded.dtype, &dims, &strides)?)
    }

    /// The windows' elements in columns.
    fn columns(&self, context: &Context, x: &View, out: &Output) -> Result<()> {
        let c = Compose::new(context);
        let dims = images(x)?;
        let padded = self.padded(&c, dims, x)?;
        copy(context, x.clone(), self.inner(&padded, dims))?;
        let windows = self.view(&padded)?;
        let to = context.allocate(out, x.dtype)?;
        copy(context, windows.clone(), View::dense(to.address, to.dtype, &windows.shape)?)
    }

    /// Columns added up where their windows overlap.
    fn images(&self, context: &Context, columns: &View, dims: [usize; 4], out: &Output) -> Result<()> {
        let c = Compose::new(context);
        let padded = self.padded(&c, dims, columns)?;
        let windows = self.view(&padded)?;
        if windows.len() != columns.len() {
            let expected = format!("{} elements, those of {:?}", windows.len(), windows.shape);
            return Err(refuse("shape of the columns", &columns.shape, &expected));
        }
        let columns = View::dense(columns.address, columns.dtype, &windows.shape)?;
        let element = |view: &View, i: usize, j: usize| {
            view.narrowed(3, j, 1, 1).without_axis(3).narrowed(2, i, 1, 1).without_axis(2)
        };
        for i in 0..self.kernel[0] {
            for j in 0..self.kernel[1] {
                accumulate(context, &element(&columns, i, j), &element(&windows, i, j))?;
            }
        }
        let to = context.allocate(out, columns.dtype)?;
        copy(context, self.inner(&padded, dims), View::dense(to.address, to.dtype, &dims)?)
    }
}

fn images(x: &View) -> Result<[usize; 4]> {
    <[usize; 4]>::try_from(&x.shape[..]).map_err(|_| refuse("rank of x", x.rank(), "4"))
}

fn unfold(
    context: &Context,
    x: Tensor,
    kernel: Vec<i32>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    dilations: Vec<i32>,
    out: Output,
) -> Result<()> {
    Windows::new(&kernel, &strides, &paddings, &dilations)?.columns(context, &x.view()?, &out)
}

fn unfold_grad(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    kernel: Vec<i32>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    dilations: Vec<i32>,
    dx: Output,
) -> Result<()> {
    let shape = x.shape();
    let dims = <[usize; 4]>::try_from(&shape[..]).map_err(|_| refuse("rank of x", shape.len(), "4"))?;
    Windows::new(&kernel, &strides, &paddings, &dilations)?.images(context, &upstream.view()?, dims, &dx)
}

/// Images of these sizes from columns of (batch, channels x kernel, windows).
fn folded(x: &[usize], kernel: [usize; 2], sizes: &[i32]) -> Result<[usize; 4]> {
    let [height, width] = super::images::pair("output_sizes", sizes)?;
    let (batch, rows) = match *x {
        [batch, rows, _] => (batch, rows),
        [rows, _] => (1, rows),
        _ => return Err(refuse("rank of x", x.len(), "2 or 3")),
    };
    Ok([batch, rows / (kernel[0] * kernel[1]).max(1), height, width])
}

fn fold(
    context: &Context,
    x: Tensor,
    sizes: Vec<i32>,
    kernel: Vec<i32>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    dilations: Vec<i32>,
    out: Output,
) -> Result<()> {
    let (x, windows) = (x.view()?, Windows::new(&kernel, &strides, &paddings, &dilations)?);
    let dims = folded(&x.shape, windows.kernel, &sizes)?;
    windows.images(context, &x, dims, &out)
}

fn fold_grad(
    context: &Context,
    _x: Tensor,
    upstream: Tensor,
    _sizes: Vec<i32>,
    kernel: Vec<i32>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    dilations: Vec<i32>,
    dx: Output,
) -> Result<()> {
    let mut upstream = upstream.view()?;
    if upstream.rank() == 3 {
        upstream.shape.insert(0, 1);
        upstream.strides.insert(0, 0);
    }
    Windows::new(&kernel, &strides, &paddings, &dilations)?.columns(context, &upstream, &dx)
}

/// Frames of a signal as (rest, frames, elements of a frame), where the axis of the signal is the last or the first.
struct Frames {
    hop: usize,
    is_last: bool,
}

impl Frames {
    fn new(hop: i32, axis: i32) -> Result<Frames> {
        if hop < 1 || !matches!(axis, 0 | -1) {
            return Err(refuse("hop_length, axis", (hop, axis), "1 or more, and 0 or -1"));
        }
        Ok(Frames { hop: hop as usize, is_last: axis == -1 })
    }

    /// A dense signal as (rest, time).
    fn signal(&self, x: &View) -> Result<View> {
        let (time, rest) = match (self.is_last, &x.shape[..]) {
            (true, [rest @ .., time]) | (false, [time, rest @ ..]) => (*time, rest.iter().product::<usize>()),
            _ => return Err(refuse("rank of x", x.rank(), "1 or more")),
        };
        let strides = if self.is_last { [time as isize, 1] } else { [1, rest as isize] };
        Ok(View::strided(x.address, x.dtype, &[rest, time], &strides)?)
    }

    /// Dense frames, which Paddle has as (.., elements, frames) or (frames, elements, ..), as (rest, frames, elements).
    fn frames(&self, x: &View) -> Result<View> {
        let (length, count, rest) = match (self.is_last, &x.shape[..]) {
            (true, [rest @ .., length, count]) | (false, [count, length, rest @ ..]) => {
                (*length, *count, rest.iter().product::<usize>())
            }
            _ => return Err(refuse("rank of the frames", x.rank(), "2 or more")),
        };
        let [r, n, l] = [rest, count, length].map(|size| size as isize);
        let strides = if self.is_last { [l * n, 1, n] } else { [1, l * r, r] };
        Ok(View::strided(x.address, x.dtype, &[rest, count, length], &strides)?)
    }

    /// Frames `first`, `first + step`, ... of a signal.
    fn of_signal(&self, signal: &View, (first, step, count, length): (usize, usize, usize, usize)) -> Result<View> {
        let begin = signal.narrowed(1, first * self.hop, 1, 1);
        let stride = signal.strides[1];
        let strides = [signal.strides[0], stride * (self.hop * step) as isize, stride];
        Ok(View::strided(begin.address, signal.dtype, &[signal.shape[0], count, length], &strides)?)
    }

    fn cut(&self, context: &Context, x: &View, out: &Output) -> Result<()> {
        let to = self.frames(&context.allocate(out, x.dtype)?)?;
        let [count, length] = [to.shape[1], to.shape[2]];
        self.expect(x, count, length)?;
        copy(context, self.of_signal(&self.signal(x)?, (0, 1, count, length))?, to)
    }

    /// Frames added up: at once those that do not overlap.
    fn sum(&self, context: &Context, frames: &View, out: &Output) -> Result<()> {
        let to = context.allocate(out, frames.dtype)?;
        let zero =
            openmps_graph::operators::full::Full { dims: to.shape.clone(), dtype: to.dtype, value: Number::Integer(0) };
        zero.run(context.queue(), &[], std::slice::from_ref(&to))?;
        let from = self.frames(frames)?;
        let [count, length] = [from.shape[1], from.shape[2]];
        self.expect(&to, count, length)?;
        let signal = self.signal(&to)?;
        let step = length.div_ceil(self.hop).max(1);
        for first in 0..step.min(count) {
            let own = (count - first).div_ceil(step);
            let target = self.of_signal(&signal, (first, step, own, length))?;
            accumulate(context, &from.narrowed(1, first, step as isize, own), &target)?;
        }
        Ok(())
    }

    fn expect(&self, signal: &View, count: usize, length: usize) -> Result<()> {
        let time = self.signal(signal)?.shape[1];
        let needed = if count == 0 { 0 } else { (count - 1) * self.hop + length };
        if needed <= time { Ok(()) } else { Err(refuse("length of the signal", time, &format!("{needed} or more"))) }
    }
}

fn frame(context: &Context, x: Tensor, _length: i32, hop: i32, axis: i32, out: Output) -> Result<()> {
    Frames::new(hop, axis)?.cut(context, &x.view()?, &out)
}

fn frame_grad(
    context: &Context,
    _x: Tensor,
    upstream: Tensor,
    _length: i32,
    hop: i32,
    axis: i32,
    dx: Output,
) -> Result<()> {
    Frames::new(hop, axis)?.sum(context, &upstream.view()?, &dx)
}

fn overlap_add(context: &Context, x: Tensor, hop: i32, axis: i32, out: Output) -> Result<()> {
    Frames::new(hop, axis)?.sum(context, &x.view()?, &out)
}

fn overlap_add_grad(context: &Context, _x: Tensor, upstream: Tensor, hop: i32, axis: i32, dx: Output) -> Result<()> {
    Frames::new(hop, axis)?.cut(context, &upstream.view()?, &dx)
}
