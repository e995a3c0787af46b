//! Windows over images and sequences: unfold and fold, frame and overlap_add.

use super::compose::Compose;
use super::rearrangement::{accumulate, copy};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::{Operator, View};
use openmps_tile::Number;
use openmps_tile::dtype::NUMBERS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("unfold", NUMBERS, unfold).strided();
    table.add("unfold_grad", NUMBERS, unfold_grad);
    table.add("fold", NUMBERS, fold);
    table.add("fold_grad", NUMBERS, fold_grad).strided();
    table.add("frame", NUMBERS, frame);
    table.add("frame_grad", NUMBERS, frame_grad);
    table.add("overlap_add", NUMBERS, overlap_add);
    table.add("overlap_add_grad", NUMBERS, overlap_add_grad);
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
pub(super) struct Frames {
    hop: usize,
    is_last: bool,
}

impl Frames {
    pub(super) fn new(hop: i32, axis: i32) -> Result<Frames> {
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

    /// The first `count` frames of so many elements, as (rest, frames, elements) in the signal's memory.
    pub(super) fn within(&self, x: &View, count: usize, length: usize) -> Result<View> {
        self.expect(x, count, length)?;
        self.of_signal(&self.signal(x)?, (0, 1, count, length))
    }

    fn cut(&self, context: &Context, x: &View, out: &Output) -> Result<()> {
        let to = self.frames(&context.allocate(out, x.dtype)?)?;
        copy(context, self.within(x, to.shape[1], to.shape[2])?, to)
    }

    /// Paddle's frames added up.
    fn sum(&self, context: &Context, frames: &View, out: &Output) -> Result<()> {
        self.added(context, &self.frames(frames)?, out)
    }

    /// Frames as (rest, frames, elements) added up: at once those that do not overlap.
    pub(super) fn added(&self, context: &Context, from: &View, out: &Output) -> Result<()> {
        let to = context.allocate(out, from.dtype)?;
        let zero =
            openmps_graph::operators::full::Full { dims: to.shape.clone(), dtype: to.dtype, value: Number::Integer(0) };
        zero.run(context.queue(), &[], std::slice::from_ref(&to))?;
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
