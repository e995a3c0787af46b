//! Norms with what comes before them: a bias and what goes past the layer are added first, and the sum is a result, too.

use super::compose::Compose;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("fused_bias_residual_layernorm", FLOATS, layer_norm).output(2, DType::F32).output(3, DType::F32);
    table.add("fused_rms_norm_quant", FLOATS, rms_norm).output(2, DType::F32);
}

/// The sum that is normalized, as rows of the axes from one on.
struct Rows<'c> {
    c: Compose<'c>,
    dtype: DType,
    sum: View,
}

impl<'c> Rows<'c> {
    /// A bias counts where something goes past the layer, as on Paddle's CPU.
    fn new(
        context: &'c Context,
        x: &Tensor,
        bias: Option<Tensor>,
        past: Option<Tensor>,
        factor: f32,
        axis: i32,
        past_out: Option<Output>,
    ) -> Result<Rows<'c>> {
        let (c, shape, dtype) = (Compose::new(context), x.shape(), x.dtype()?);
        let at = usize::try_from(axis).ok().filter(|&axis| axis <= shape.len());
        let at = at.ok_or_else(|| refuse("begin_norm_axis", axis, &format!("an axis of {shape:?}")))?;
        let dims = [shape[..at].iter().product(), shape[at..].iter().product()];
        let mut sum = c.shaped(&c.input(x)?, &dims)?;
        if let Some(past) = past {
            let past = c.scale(&c.shaped(&c.input(&past)?, &dims)?, factor.into(), 0.0)?;
            sum = c.add(&sum, &past)?;
            if let Some(bias) = bias {
                sum = c.add(&sum, &c.shaped(&c.input(&bias)?, &[1, bias.shape().iter().product()])?)?;
            }
            if let Some(out) = past_out {
                out.set_dims(&shape);
                c.store_value(&out, dtype, &sum)?;
            }
        }
        Ok(Rows { c, dtype, sum })
    }

    /// Over the length of each row, and then weighed.
    fn store(
        &self,
        value: &View,
        squares: &View,
        epsilon: f32,
        [weight, bias]: [Option<Tensor>; 2],
        out: &Output,
    ) -> Result<View> {
        let c = &self.c;
        let inverse = c.map(Elementwise::Unary(Unary::Rsqrt), &[&c.scale(squares, 1.0, epsilon.into())?], &[])?;
        let mut normal = c.multiply(value, &inverse)?;
        if let Some(weight) = weight {
            normal = c.multiply(&normal, &self.row(&weight)?)?;
        }
        if let Some(bias) = bias {
            normal = c.add(&normal, &self.row(&bias)?)?;
        }
        c.store_value(out, self.dtype, &normal)?;
        Ok(inverse)
    }

    /// A number for each column.
    fn row(&self, x: &Tensor) -> Result<View> {
        let view = self.c.input(x)?;
        let columns = self.sum.shape[1];
        if view.len() == columns {
            return self.c.shaped(&view, &[1, columns]);
        }
        Err(refuse("norm_weight, norm_bias", x.shape(), &format!("{columns} elements")))
    }

    /// One number for each row, where it is asked for.
    fn store_column(&self, out: Option<Output>, value: &View) -> Result<()> {
        let Some(out) = out else { return Ok(()) };
        out.set_dims(&[self.sum.shape[0]]);
        self.c.store_value(&out, DType::F32, value)
    }

    fn mean_square(&self, value: &View) -> Result<View> {
        let squares = self.c.map(Elementwise::Binary(Binary::Multiply), &[value, value], &[])?;
        self.c.reduce(Reduction::Mean, &squares, &[1])
    }
}

fn as_numbers(scale: f32) -> Result<()> {
    if scale > 0.0 { Err(refuse("quant_scale", scale, "at most 0: the result is not quantised")) } else { Ok(()) }
}

/// What Paddle names the variance is 1 over the deviation, on its CPU as here.
fn layer_norm(
    context: &Context,
    x: Tensor,
    bias: Option<Tensor>,
    past: Option<Tensor>,
    weight: Option<Tensor>,
    norm_bias: Option<Tensor>,
    epsilon: f32,
    factor: f32,
    axis: i32,
    quant_scale: f32,
    _round_type: i32,
    _most: f32,
    _least: f32,
    out: Output,
    past_out: Option<Output>,
    mean_out: Option<Output>,
    inverse_out: Option<Output>,
) -> Result<()> {
    as_numbers(quant_scale)?;
    let rows = Rows::new(context, &x, bias, past, factor, axis, past_out)?;
    let c = &rows.c;
    if weight.is_none() && norm_bias.is_none() {
        return c.store_value(&out, rows.dtype, &rows.sum);
    }
    let mean = c.reduce(Reduction::Mean, &rows.sum, &[1])?;
    let distance = c.subtract(&rows.sum, &mean)?;
    let variance = rows.mean_square(&distance)?;
    let inverse = rows.store(&distance, &variance, epsilon, [weight, norm_bias], &out)?;
    rows.store_column(mean_out, &mean)?;
    rows.store_column(inverse_out, &inverse)
}

fn rms_norm(
    context: &Context,
    x: Tensor,
    bias: Option<Tensor>,
    past: Option<Tensor>,
    weight: Tensor,
    norm_bias: Option<Tensor>,
    epsilon: f32,
    axis: i32,
    quant_scale: f32,
    _round_type: i32,
    _most: f32,
    _least: f32,
    out: Output,
    past_out: Option<Output>,
    inverse_out: Option<Output>,
) -> Result<()> {
    as_numbers(quant_scale)?;
    let rows = Rows::new(context, &x, bias, past, 1.0, axis, past_out)?;
    let squares = rows.mean_square(&rows.sum)?;
    let inverse = rows.store(&rows.sum, &squares, epsilon, [Some(weight), norm_bias], &out)?;
    rows.store_column(inverse_out, &inverse)
}
