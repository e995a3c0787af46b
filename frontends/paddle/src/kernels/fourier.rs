//! Fourier transforms along axes, of windows over signals, and their gradients.

use super::complex::{allocate_pairs, pairs};
use super::compose::Compose;
use super::windows::Frames;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::fourier::{Direction, Ends, Fourier, Mirrored, half};
use openmps_graph::{DType, Operator, View};

const TYPES: &[DType] = &[DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add_complex("fft_c2c", fft_c2c);
    table.add_complex("fft_c2c_grad", fft_c2c_grad);
    table.add("fft_r2c", TYPES, fft_r2c).output_as_inferred(0);
    table.add_complex("fft_r2c_grad", fft_r2c_grad).output_as_inferred(0);
    table.add_complex("fft_c2r", fft_c2r).output_as_inferred(0);
    table.add("fft_c2r_grad", TYPES, fft_c2r_grad).output_as_inferred(0);
    table.add("stft", TYPES, stft).output_as_inferred(0);
    table.add("stft_grad", TYPES, stft_grad);
}

/// The transform along these axes of a tensor whose real side has these dimensions.
fn transform(ends: Ends, axes: &[i64], dims: &[usize], normalization: &str, forward: bool) -> Result<Fourier> {
    let direction = if forward { Direction::Forward } else { Direction::Inverse };
    let sizes = axes.iter().map(|&axis| last_of(&[axis], dims).map(|size| size as f64));
    let count = sizes.product::<Result<f64>>()?;
    let scale = match (normalization, forward) {
        ("ortho", _) => 1.0 / count.sqrt(),
        ("forward", true) | ("backward" | "", false) => 1.0 / count,
        ("forward", false) | ("backward" | "", true) => 1.0,
        _ => return Err(refuse("normalization", normalization, "backward, ortho or forward")),
    };
    Ok(Fourier { ends, axes: axes.to_vec(), direction, scale })
}

/// The size of the last of the axes.
fn last_of(axes: &[i64], dims: &[usize]) -> Result<usize> {
    let last = axes.last().map(|&axis| if axis < 0 { axis + dims.len() as i64 } else { axis });
    let size = last.and_then(|axis| dims.get(usize::try_from(axis).ok()?));
    size.copied().ok_or_else(|| refuse("axes", axes, &format!("axes of {} dimensions", dims.len())))
}

/// Runs a transform whose result is complex.
fn to_complex(context: &Context, operator: &Fourier, x: View, out: &Output) -> Result<()> {
    let to = allocate_pairs(context, out, x.dtype)?;
    Ok(operator.run(context.queue(), &[x], &[to])?)
}

/// Runs a transform whose result is real.
fn to_real(context: &Context, operator: &Fourier, x: View, out: &Output) -> Result<()> {
    let to = context.allocate(out, x.dtype)?;
    Ok(operator.run(context.queue(), &[x], &[to])?)
}

fn fft_c2c(
    context: &Context,
    x: Tensor,
    axes: Vec<i64>,
    normalization: String,
    forward: bool,
    out: Output,
) -> Result<()> {
    to_complex(context, &transform(Ends::Complex, &axes, &x.shape(), &normalization, forward)?, pairs(&x)?, &out)
}

fn fft_c2c_grad(
    context: &Context,
    upstream: Tensor,
    axes: Vec<i64>,
    normalization: String,
    forward: bool,
    dx: Output,
) -> Result<()> {
    let operator = transform(Ends::Complex, &axes, &upstream.shape(), &normalization, forward)?;
    to_complex(context, &operator.adjoint(0), pairs(&upstream)?, &dx)
}

/// The transform of real numbers, of which the first half or all are kept.
fn from_real(
    axes: &[i64],
    dims: &[usize],
    normalization: &str,
    forward: bool,
    onesided: bool,
) -> Result<(Fourier, usize)> {
    let size = last_of(axes, dims)?;
    let keep = if onesided { half(size) } else { size };
    let ends = Ends::FromReal { keep, mirrored: Mirrored::No };
    Ok((transform(ends, axes, dims, normalization, forward)?, size))
}

fn fft_r2c(
    context: &Context,
    x: Tensor,
    axes: Vec<i64>,
    normalization: String,
    forward: bool,
    onesided: bool,
    out: Output,
) -> Result<()> {
    let view = x.view()?;
    if view.is_empty() {
        // Of no numbers every sum is zero.
        return Compose::new(context).fill(&allocate_pairs(context, &out, view.dtype)?, 0.0);
    }
    let (operator, _) = from_real(&axes, &x.shape(), &normalization, forward, onesided)?;
    to_complex(context, &operator, view, &out)
}

fn fft_r2c_grad(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    axes: Vec<i64>,
    normalization: String,
    forward: bool,
    onesided: bool,
    dx: Output,
) -> Result<()> {
    let (operator, size) = from_real(&axes, &x.shape(), &normalization, forward, onesided)?;
    to_real(context, &operator.adjoint(size), pairs(&upstream)?, &dx)
}

/// The transform with a real result of these dimensions.
fn with_real(axes: &[i64], dims: &[usize], normalization: &str, forward: bool) -> Result<(Fourier, usize)> {
    let size = last_of(axes, dims)?;
    let ends = Ends::ToReal { size, mirrored: Mirrored::Yes };
    Ok((transform(ends, axes, dims, normalization, forward)?, size))
}

fn fft_c2r(
    context: &Context,
    x: Tensor,
    axes: Vec<i64>,
    normalization: String,
    forward: bool,
    _last_size: i64,
    out: Output,
) -> Result<()> {
    let (operator, _) = with_real(&axes, &out.shape(), &normalization, forward)?;
    to_real(context, &operator, pairs(&x)?, &out)
}

fn fft_c2r_grad(
    context: &Context,
    upstream: Tensor,
    axes: Vec<i64>,
    normalization: String,
    forward: bool,
    _last_size: i64,
    dx: Output,
) -> Result<()> {
    let (operator, size) = with_real(&axes, &upstream.shape(), &normalization, forward)?;
    to_complex(context, &operator.adjoint(half(size)), upstream.view()?, &dx)
}

/// Transforms of the windows over signals, as (signals, windows, numbers).
struct Windowed {
    frames: Frames,
    length: usize,
    operator: Fourier,
}

impl Windowed {
    fn new(window: &[usize], length: i32, hop: i32, normalized: bool, onesided: bool) -> Result<Windowed> {
        let length = usize::try_from(length).ok().filter(|&length| length > 0 && window == [length]);
        let length = length.ok_or_else(|| refuse("n_fft", window, "the length of the window, 1 or more"))?;
        let keep = if onesided { half(length) } else { length };
        let operator = Fourier {
            ends: Ends::FromReal { keep, mirrored: Mirrored::No },
            axes: vec![2],
            direction: Direction::Forward,
            scale: if normalized { 1.0 / (length as f64).sqrt() } else { 1.0 },
        };
        Ok(Windowed { frames: Frames::new(hop, -1)?, length, operator })
    }
}

fn stft(
    context: &Context,
    x: Tensor,
    window: Tensor,
    length: i32,
    hop: i32,
    normalized: bool,
    onesided: bool,
    out: Output,
) -> Result<()> {
    let (c, windowed) = (Compose::new(context), Windowed::new(&window.shape(), length, hop, normalized, onesided)?);
    let x = x.view()?;
    let to = allocate_pairs(context, &out, x.dtype)?;
    let [_, _, count, _] = to.shape[..] else { return Err(refuse("rank of x", x.rank(), "2")) };
    let frames = windowed.frames.within(&x, count, windowed.length)?;
    let numbers = c.apply(&windowed.operator, &[c.multiply(&frames, &window.view()?)?])?;
    c.launch(&Copy, &[numbers], &[to.permuted(&[0, 2, 1, 3])])
}

fn stft_grad(
    context: &Context,
    _x: Tensor,
    window: Tensor,
    upstream: Tensor,
    length: i32,
    hop: i32,
    normalized: bool,
    onesided: bool,
    dx: Output,
) -> Result<()> {
    let (c, windowed) = (Compose::new(context), Windowed::new(&window.shape(), length, hop, normalized, onesided)?);
    let upstream = pairs(&upstream)?;
    if upstream.rank() != 4 {
        return Err(refuse("rank of the gradient", upstream.rank() - 1, "3"));
    }
    let frames = c.apply(&windowed.operator.adjoint(windowed.length), &[upstream.permuted(&[0, 2, 1, 3])])?;
    windowed.frames.added(context, &c.multiply(&frames, &window.view()?)?, &dx)
}
