//! Numbers to levels and back by scales that are known: quantize_linear, dequantize_linear, and the forms of older programs.

use super::compose::Compose;
use super::quantization::{Average, Levels, Quantizer, largest};
use super::values::{expect_len, floats, required, store_floats};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_tile::DType;

const QUANTIZED: &[DType] = &[DType::F32, DType::F64, DType::I8];
const SINGLE: &[DType] = &[DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("quantize_linear", &[DType::F32], quantize_linear);
    table.add("quantize_linear_deprecated_train", &[DType::F32], quantize_linear_train);
    table.add("quantize_linear_deprecated_infer", &[DType::F32], quantize_linear_infer);
    table.add("dequantize_linear", QUANTIZED, dequantize_linear).output_as_inferred(0);
    table.add("dequantize_linear_deprecated", QUANTIZED, dequantize_linear_infer).output_as_inferred(0);
    table.add("dequantize_abs_max", &[DType::I8, DType::I16], dequantize_abs_max).output(0, DType::F32);
    table.add("dequantize_log", &[DType::I8], dequantize_log).output(0, DType::F32);
    table.add("fake_dequantize_max_abs", SINGLE, fake_dequantize_max_abs);
    table.add("fake_channel_wise_dequantize_max_abs", SINGLE, fake_channel_wise_dequantize_max_abs);
}

/// One scale as it is, or one for each index of an axis, so that it broadcasts with x.
fn placed(c: &Compose, scale: &View, x: &Tensor, axis: i32) -> Result<View> {
    let shape = x.shape();
    let Ok(axis) = usize::try_from(axis) else { return c.shaped(scale, &[1]) };
    match shape.get(axis) {
        Some(&size) if size == scale.len() => {
            let mut dims = vec![1; shape.len()];
            dims[axis] = size;
            c.shaped(scale, &dims)
        }
        _ => Err(refuse(
            "quant_axis, scale",
            (axis, &scale.shape),
            &format!("an axis of {shape:?} and a scale for each index"),
        )),
    }
}

/// What a quantisation by a scale has for attributes.
#[derive(Clone, Copy)]
struct Linear {
    axis: i32,
    largest: i32,
    round_type: i32,
    /// Numbers stay as they are; only scales are learnt.
    only_observer: bool,
}

impl Linear {
    fn quantize(&self, c: &Compose, x: &Tensor, scale: &View, out: &Output) -> Result<()> {
        if self.only_observer {
            return c.store_value(out, x.dtype()?, &x.view()?);
        }
        let scale = placed(c, scale, x, self.axis)?;
        Quantizer::of_bins(self.largest, self.round_type, Levels::Integers).store(c, x, &scale, out)
    }

    fn dequantize(&self, c: &Compose, x: &Tensor, scale: &Tensor, out: &Output) -> Result<()> {
        let dtype = scale.dtype()?;
        if self.only_observer {
            return c.store_value(out, dtype, &c.cast(&x.view()?, dtype)?);
        }
        let scale = placed(c, &c.input(scale)?, x, self.axis)?;
        let value = c.multiply(&c.cast(&x.view()?, scale.dtype)?, &scale)?;
        quotient(c, &value, f64::from(self.largest), dtype, out)
    }
}

/// Levels times scales over the largest level.
fn quotient(c: &Compose, product: &View, largest: f64, dtype: DType, out: &Output) -> Result<()> {
    let largest = c.constant(product.dtype, &[1], largest)?;
    c.store(out, dtype, Elementwise::Binary(Binary::Divide), &[product, &largest], &[])
}

/// In training the scale is learnt: the running average of largest magnitudes, or the largest magnitude of each channel.
fn quantize_linear(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    _zero: Tensor,
    accumulated: Option<Tensor>,
    state: Option<Tensor>,
    axis: i32,
    _bits: i32,
    _least: i32,
    most: i32,
    round_type: i32,
    is_test: bool,
    only_observer: bool,
    out: Output,
    state_out: Option<Output>,
    accumulated_out: Option<Output>,
    scale_out: Option<Output>,
) -> Result<()> {
    let (c, linear) = (Compose::new(context), Linear { axis, largest: most, round_type, only_observer });
    if is_test {
        let scale = c.cast(&c.resident(&given(scale)?)?, x.dtype()?)?;
        return linear.quantize(&c, &x, &scale, &out);
    }
    if axis < 0 {
        let average = Average {
            accumulated: accumulated.as_ref(),
            state: state.as_ref(),
            rate: f64::from(0.9f32),
            scale_out: &scale_out,
            state_out: &state_out,
            accumulated_out: &accumulated_out,
        };
        let scale = average.step(&c, &x)?;
        return linear.quantize(&c, &x, &scale, &out);
    }
    if axis as usize >= x.shape().len() {
        return Err(refuse("quant_axis", axis, &format!("an axis of {:?}", x.shape())));
    }
    let scale = largest(&c, &x, Some(axis as usize))?;
    if let Some(scale_out) = &scale_out {
        c.store_value(scale_out, x.dtype()?, &scale)?;
    }
    let scale = c.shaped(&scale, &[scale.len()])?;
    linear.quantize(&c, &x, &scale, &out)
}

fn given(scale: Option<Tensor>) -> Result<Tensor> {
    required("scale", scale)
}

fn quantize_linear_train(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    zero: Tensor,
    accumulated: Option<Tensor>,
    state: Option<Tensor>,
    axis: i32,
    bits: i32,
    least: i32,
    most: i32,
    round_type: i32,
    only_observer: bool,
    out: Output,
    state_out: Option<Output>,
    accumulated_out: Option<Output>,
    scale_out: Option<Output>,
) -> Result<()> {
    quantize_linear(
        context,
        x,
        Some(scale),
        zero,
        accumulated,
        state,
        axis,
        bits,
        least,
        most,
        round_type,
        false,
        only_observer,
        out,
        state_out,
        accumulated_out,
        scale_out,
    )
}

fn quantize_linear_infer(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    _zero: Tensor,
    axis: i32,
    _bits: i32,
    _least: i32,
    most: i32,
    round_type: i32,
    only_observer: bool,
    out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let scale = c.cast(&c.resident(&scale)?, x.dtype()?)?;
    Linear { axis, largest: most, round_type, only_observer }.quantize(&c, &x, &scale, &out)
}

/// The scale is known in training, too: nothing is learnt here.
fn dequantize_linear(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    zero: Tensor,
    _accumulated: Option<Tensor>,
    _state: Option<Tensor>,
    axis: i32,
    bits: i32,
    least: i32,
    most: i32,
    round_type: i32,
    _is_test: bool,
    only_observer: bool,
    out: Output,
    _state_out: Option<Output>,
    _accumulated_out: Option<Output>,
    _scale_out: Option<Output>,
) -> Result<()> {
    dequantize_linear_infer(context, x, given(scale)?, zero, axis, bits, least, most, round_type, only_observer, out)
}

fn dequantize_linear_infer(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    _zero: Tensor,
    axis: i32,
    _bits: i32,
    _least: i32,
    most: i32,
    round_type: i32,
    only_observer: bool,
    out: Output,
) -> Result<()> {
    Linear { axis, largest: most, round_type, only_observer }.dequantize(&Compose::new(context), &x, &scale, &out)
}

fn dequantize_abs_max(context: &Context, x: Tensor, scale: Tensor, most: f32, out: Output) -> Result<()> {
    fake_dequantize_max_abs(context, x, scale, most, out)
}

fn fake_dequantize_max_abs(context: &Context, x: Tensor, scale: Tensor, most: f32, out: Output) -> Result<()> {
    expect_len("scale", &scale, 1)?;
    let (c, dtype) = (Compose::new(context), scale.dtype()?);
    let scale = c.shaped(&c.resident(&scale)?, &[1])?;
    let value = c.multiply(&c.cast(&x.view()?, dtype)?, &scale)?;
    quotient(&c, &value, most.into(), dtype, &out)
}

/// Scales of channels, and with them one of the whole tensor.
fn fake_channel_wise_dequantize_max_abs(
    context: &Context,
    x: Tensor,
    scales: Vec<Tensor>,
    bits: Vec<i32>,
    axis: i32,
    columns: i32,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    if scales.is_empty() || scales.len() > 2 || bits.len() < scales.len() {
        let got = (scales.len(), &bits);
        return Err(refuse("Scales, quant_bits", got, "one or two scales, and bits for each"));
    }
    let most = bits[..scales.len()].iter().map(|&bits| f64::from(2.0f32.powi(bits - 1)) - 1.0).product();
    let axis = if scales.len() == 2 { columns.max(1) } else { axis };
    let first = placed(&c, &c.resident(&scales[0])?, &x, axis)?;
    let mut value = c.multiply(&x.view()?, &first)?;
    if let Some(whole) = scales.get(1) {
        expect_len("Scales[1]", whole, 1)?;
        value = c.multiply(&value, &c.shaped(&c.resident(whole)?, &[1])?)?;
    }
    quotient(&c, &value, most, dtype, &out)
}

/// Levels are places in a table of 128 numbers; below zero they are those of the numbers' opposites.
fn dequantize_log(context: &Context, x: Tensor, table: Tensor, out: Output) -> Result<()> {
    expect_len("dict", &table, 128)?;
    let table = floats(context, &table)?;
    let number = |level: i64| if level < 0 { -table[(level + 128) as usize] } else { table[level as usize] };
    let numbers: Vec<f64> = context.integers(&x.view()?)?.into_iter().map(number).collect();
    store_floats(context, &out, DType::F32, &x.shape(), &numbers)
}
