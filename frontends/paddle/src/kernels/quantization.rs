//! Training for quantisation: numbers rounded to the levels that integers will have, and gradients that pass straight through.

use super::compose::Compose;
use super::values::{integers, positive, required};
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("fake_quantize_abs_max", FLOATS, by_tensor::<Integers>);
    table.add("fake_quantize_dequantize_abs_max", FLOATS, by_tensor::<Numbers>);
    table.add("fake_channel_wise_quantize_abs_max", FLOATS, fake_channel_wise_quantize_abs_max);
    table.add("fake_channel_wise_quantize_dequantize_abs_max", FLOATS, fake_channel_wise_quantize_dequantize_abs_max);
    table.add("fake_quantize_moving_average_abs_max", FLOATS, by_average::<Integers>);
    table.add("fake_quantize_dequantize_moving_average_abs_max", FLOATS, by_average::<Numbers>);
    table.add("fake_quantize_range_abs_max", FLOATS, by_range);
    table.add("moving_average_abs_max_scale", FLOATS, moving_average_abs_max_scale);
    table.add("straight_through_estimator_grad", FLOATS, straight_through);
    table.add("fake_quantize_dequantize_abs_max_grad", FLOATS, abs_max_grad);
    table.add("fake_channel_wise_quantize_dequantize_abs_max_grad", FLOATS, channel_wise_abs_max_grad);
    table.add("fake_quantize_dequantize_moving_average_abs_max_grad", FLOATS, moving_average_abs_max_grad);
}

/// What the levels are stored as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Levels {
    /// Whole numbers of levels.
    Integers,
    /// The numbers that the levels stand for.
    Numbers,
}

/// The levels of a kernel: Paddle has most kernels for both, with the same parameters.
trait Stored {
    const LEVELS: Levels;
}

struct Integers;

impl Stored for Integers {
    const LEVELS: Levels = Levels::Integers;
}

struct Numbers;

impl Stored for Numbers {
    const LEVELS: Levels = Levels::Numbers;
}

/// The attributes of a quantisation.
#[derive(Clone, Copy)]
pub(super) struct Quantizer {
    /// The largest level.
    bins: f64,
    /// Halves to even, else away from zero.
    to_even: bool,
    levels: Levels,
}

impl Quantizer {
    fn new(bits: i32, round_type: i32, levels: Levels) -> Quantizer {
        Quantizer { bins: f64::from(2.0f32.powi(bits - 1)) - 1.0, to_even: round_type == 0, levels }
    }

    /// By the largest level.
    pub fn of_bins(bins: i32, round_type: i32, levels: Levels) -> Quantizer {
        Quantizer { bins: bins.into(), to_even: round_type == 0, levels }
    }

    /// Stores the quantised numbers; the scale broadcasts to them.
    pub fn store(&self, c: &Compose, x: &Tensor, scale: &View, out: &Output) -> Result<()> {
        let value = c.input(x)?;
        let operator = if self.to_even { Binary::QuantizeEven } else { Binary::QuantizeAway };
        let mut level = c.map(Elementwise::Binary(operator), &[&value, scale], &[self.bins])?;
        if self.levels == Levels::Numbers {
            level = c.scale(&c.multiply(&level, scale)?, 1.0 / self.bins, 0.0)?;
        }
        c.store_value(out, x.dtype()?, &level)
    }
}

/// The largest magnitude along all axes but `kept`, which stay as dimensions of size 1; of all, one element.
pub(super) fn largest(c: &Compose, x: &Tensor, kept: Option<usize>) -> Result<View> {
    let value = c.input(x)?;
    let magnitude = c.map(Elementwise::Unary(Unary::Abs), &[&value], &[])?;
    let axes: Vec<i64> = (0..value.rank()).filter(|&axis| Some(axis) != kept).map(|axis| axis as i64).collect();
    let largest = c.reduce(Reduction::Maximum, &magnitude, &axes)?;
    if kept.is_some() { Ok(largest) } else { c.shaped(&largest, &[1]) }
}

/// One scale for the whole tensor.
fn by_tensor<S: Stored>(
    context: &Context,
    x: Tensor,
    bits: i32,
    round_type: i32,
    out: Output,
    scale_out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let scale = largest(&c, &x, None)?;
    c.store_value(&scale_out, x.dtype()?, &scale)?;
    Quantizer::new(bits, round_type, S::LEVELS).store(&c, &x, &scale, &out)
}

/// A scale for each channel; in a test the output holds those of training.
fn fake_channel_wise_quantize_abs_max(
    context: &Context,
    x: Tensor,
    bits: i32,
    round_type: i32,
    axis: i32,
    is_test: bool,
    out: Output,
    scale_out: Output,
) -> Result<()> {
    let (c, axis) = (Compose::new(context), axis as usize);
    let scale = if is_test {
        let mut dims = vec![1; x.shape().len()];
        dims[axis] = x.shape()[axis];
        c.shaped(&c.input(scale_out.tensor())?, &dims)?
    } else {
        let scale = largest(&c, &x, Some(axis))?;
        c.store_value(&scale_out, x.dtype()?, &scale)?;
        scale
    };
    Quantizer::new(bits, round_type, Levels::Integers).store(&c, &x, &scale, &out)
}

fn fake_channel_wise_quantize_dequantize_abs_max(
    context: &Context,
    x: Tensor,
    bits: i32,
    round_type: i32,
    axis: i32,
    out: Output,
    scale_out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let scale = largest(&c, &x, Some(axis as usize))?;
    c.store_value(&scale_out, x.dtype()?, &scale)?;
    Quantizer::new(bits, round_type, Levels::Numbers).store(&c, &x, &scale, &out)
}

/// Running sums of largest magnitudes and of their weights: the quotient is the scale.
pub(super) struct Average<'a> {
    pub accumulated: Option<&'a Tensor>,
    pub state: Option<&'a Tensor>,
    pub rate: f64,
    pub scale_out: &'a Option<Output>,
    pub state_out: &'a Option<Output>,
    pub accumulated_out: &'a Option<Output>,
}

impl Average<'_> {
    pub fn step(&self, c: &Compose, x: &Tensor) -> Result<View> {
        let (now, dtype) = (largest(c, x, None)?, x.dtype()?);
        let one = c.scale(&now, 0.0, 1.0)?;
        let next = |before: Option<&Tensor>, more: &View| match before {
            Some(before) => c.add(&c.scale(&c.cast(&c.resident(before)?, now.dtype)?, self.rate, 0.0)?, more),
            None => Ok(more.clone()),
        };
        let (state, accumulated) = (next(self.state, &one)?, next(self.accumulated, &now)?);
        let scale = c.map(Elementwise::Binary(Binary::Divide), &[&accumulated, &state], &[])?;
        let outs = [(self.state_out, &state), (self.accumulated_out, &accumulated), (self.scale_out, &scale)];
        for (out, value) in outs {
            if let Some(out) = out {
                c.store_value(out, dtype, value)?;
            }
        }
        Ok(scale)
    }
}

/// The running average as scale; in a test that of training.
fn by_average<S: Stored>(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    accumulated: Option<Tensor>,
    state: Option<Tensor>,
    rate: f32,
    bits: i32,
    is_test: bool,
    round_type: i32,
    out: Output,
    scale_out: Option<Output>,
    state_out: Option<Output>,
    accumulated_out: Option<Output>,
) -> Result<()> {
    let average = Average {
        accumulated: accumulated.as_ref(),
        state: state.as_ref(),
        rate: rate.into(),
        scale_out: &scale_out,
        state_out: &state_out,
        accumulated_out: &accumulated_out,
    };
    let c = Compose::new(context);
    let scale = if is_test { c.cast(&c.resident(&scale)?, x.dtype()?.compute())? } else { average.step(&c, &x)? };
    Quantizer::new(bits, round_type, S::LEVELS).store(&c, &x, &scale, &out)
}

/// The largest magnitude of some last steps as scale, all of which stay in one of the outputs; in a test that of training.
fn by_range(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    step: Option<Tensor>,
    window: i32,
    bits: i32,
    is_test: bool,
    round_type: i32,
    out: Output,
    scale_out: Option<Output>,
    scales: Option<Output>,
) -> Result<()> {
    let (c, quantizer) = (Compose::new(context), Quantizer::new(bits, round_type, Levels::Integers));
    if is_test {
        let scale = c.cast(&c.resident(&scale)?, x.dtype()?.compute())?;
        return quantizer.store(&c, &x, &c.shaped(&scale, &[1])?, &out);
    }
    let now = largest(&c, &x, None)?;
    let (window, step) = (positive("window_size", window)?, required("Iter", step)?);
    let number = |view: &View| Ok::<f64, crate::error::Error>(context.elements(view)?.first().map_or(0.0, |e| e.float));
    let (now, last) = (number(&now)?, number(&scale.view()?)?);
    let step = integers(context, &step)?.first().copied().unwrap_or(0).max(0) as usize;
    let mut all = vec![0.0; window];
    let held = scales.as_ref().and_then(Output::held);
    let before = held.and_then(|scales| scales.view().ok()).filter(|view| view.len() == window);
    if let Some(before) = before {
        all = context.elements(&before)?.into_iter().map(|element| element.float).collect();
    }
    let removed = std::mem::replace(&mut all[step % window], now);
    // The largest of all leaves the window: what stays is looked through.
    let largest = if last < now {
        now
    } else if (removed - last).abs() < 1e-6 {
        all[..step.min(window)].iter().copied().fold(0.0, f64::max)
    } else {
        last
    };
    let dtype = x.dtype()?;
    let compute = dtype.compute();
    let scale = c.constant(compute, &[1], largest)?;
    if let Some(scale_out) = &scale_out {
        c.store_value(scale_out, dtype, &scale)?;
    }
    if let Some(scales) = &scales {
        let all: Vec<u8> = all.iter().flat_map(|&scale| scale.to_ne_bytes()).collect();
        scales.set_dims(&[window]);
        let wide = context.upload(openmps_graph::DType::F64, &[window], &all)?;
        c.store_value(scales, dtype, &c.cast(&wide.view, compute)?)?;
    }
    quantizer.store(&c, &x, &scale, &out)
}

/// The numbers as they are, and their scale.
fn moving_average_abs_max_scale(
    context: &Context,
    x: Tensor,
    accumulated: Option<Tensor>,
    state: Option<Tensor>,
    rate: f32,
    is_test: bool,
    out: Option<Output>,
    scale_out: Option<Output>,
    state_out: Option<Output>,
    accumulated_out: Option<Output>,
) -> Result<()> {
    let c = Compose::new(context);
    if let Some(out) = &out {
        c.store_value(out, x.dtype()?, &x.view()?)?;
    }
    if is_test {
        return Ok(());
    }
    let average = Average {
        accumulated: accumulated.as_ref(),
        state: state.as_ref(),
        rate: rate.into(),
        scale_out: &scale_out,
        state_out: &state_out,
        accumulated_out: &accumulated_out,
    };
    average.step(&c, &x).map(|_| ())
}

fn straight_through(context: &Context, upstream: Tensor, dx: Output) -> Result<()> {
    Compose::new(context).store_value(&dx, upstream.dtype()?, &upstream.view()?)
}

fn abs_max_grad(context: &Context, upstream: Tensor, _bits: i32, _round_type: i32, dx: Output) -> Result<()> {
    straight_through(context, upstream, dx)
}

fn channel_wise_abs_max_grad(
    context: &Context,
    upstream: Tensor,
    _bits: i32,
    _round_type: i32,
    _axis: i32,
    dx: Output,
) -> Result<()> {
    straight_through(context, upstream, dx)
}

fn moving_average_abs_max_grad(
    context: &Context,
    upstream: Tensor,
    _rate: f32,
    _bits: i32,
    _is_test: bool,
    _round_type: i32,
    dx: Output,
) -> Result<()> {
    straight_through(context, upstream, dx)
}
