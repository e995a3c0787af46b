//! Products with something around them: linear layers, products with a factor, and the fused forms of older programs.

use super::compose::Compose;
use super::matmul::gradients;
use super::movement::many;
use super::recorded::Recorded;
use super::values::SINGLE;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Unary};
use openmps_graph::operators::matmul::Matmul;
use openmps_tile::dtype::FLOATS;

const PLAIN: Matmul = Matmul { transpose_left: false, transpose_right: false };
const ADD: Elementwise = Elementwise::Binary(Binary::Add);
const SCALE: Elementwise = Elementwise::Unary(Unary::Scale);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("linear_v2", FLOATS, linear);
    table.add("linear_v2_grad", FLOATS, linear_grad);
    table.add("legacy_matmul", FLOATS, scaled_matmul);
    table.add("legacy_matmul_grad", FLOATS, scaled_matmul_grad);
    table.add("matmul_triple_grad", FLOATS, matmul_triple_grad);
    table.add("fusion_squared_mat_sub", SINGLE, fusion_squared_mat_sub);
    table.add("fusion_repeated_fc_relu", SINGLE, fusion_repeated_fc_relu);
}

fn linear(
    context: &Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    transpose_right: bool,
    out: Output,
) -> Result<()> {
    let (inputs, product) = ([x.view()?, weight.view()?], Matmul { transpose_left: false, transpose_right });
    if bias.shape().contains(&0) {
        return many(context, &product, &inputs, &[Some(&out)]);
    }
    let c = Compose::new(context);
    let wide = inputs.iter().map(|x| c.cast(x, x.dtype.compute())).collect::<Result<Vec<View>>>()?;
    let (product, bias) = (c.apply(&product, &wide)?, c.input(&bias)?);
    c.store(&out, x.dtype()?, ADD, &[&product, &bias], &[])
}

fn linear_grad(
    context: &Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    upstream: Tensor,
    transpose_right: bool,
    dx: Option<Output>,
    dweight: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let (dtype, product) = (x.dtype()?, Matmul { transpose_left: false, transpose_right });
    if let Some(dbias) = dbias.filter(|_| !bias.shape().contains(&0)) {
        let c = Compose::new(context);
        let sum = c.summed_to(&c.input(&upstream)?, &bias.shape())?;
        dbias.set_dims(&bias.shape());
        c.store_value(&dbias, dtype, &sum)?;
    }
    gradients(context, product, [x.view()?, weight.view()?, upstream.view()?], [dx.as_ref(), dweight.as_ref()])
}

/// The product times a number.
fn scaled_matmul(
    context: &Context,
    x: Tensor,
    y: Tensor,
    transpose_left: bool,
    transpose_right: bool,
    factor: f32,
    out: Output,
) -> Result<()> {
    let (inputs, product) = ([x.view()?, y.view()?], Matmul { transpose_left, transpose_right });
    if factor == 1.0 {
        return many(context, &product, &inputs, &[Some(&out)]);
    }
    let c = Compose::new(context);
    let value = c.apply(&product, &[c.input(&x)?, c.input(&y)?])?;
    c.store(&out, x.dtype()?, SCALE, &[&value], &[factor.into(), 0.0])
}

fn scaled_matmul_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    transpose_left: bool,
    transpose_right: bool,
    factor: f32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, product) = (Compose::new(context), Matmul { transpose_left, transpose_right });
    let upstream = if factor == 1.0 { upstream.view()? } else { c.scale(&upstream.view()?, factor.into(), 0.0)? };
    gradients(context, product, [x.view()?, y.view()?, upstream], [dx.as_ref(), dy.as_ref()])
}

/// The gradient of a product's double gradient, which is made of products, too.
fn matmul_triple_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    ddx: Option<Tensor>,
    ddy: Option<Tensor>,
    by_dx: Option<Tensor>,
    by_dy: Option<Tensor>,
    by_ddout: Option<Tensor>,
    transpose_left: bool,
    transpose_right: bool,
    of_x: Option<Output>,
    of_y: Option<Output>,
    of_upstream: Option<Output>,
    of_ddx: Option<Output>,
    of_ddy: Option<Output>,
) -> Result<()> {
    let mut recorded = Recorded::new(context, x.dtype()?);
    let [x, y, upstream] = [recorded.input(&x)?, recorded.input(&y)?, recorded.input(&upstream)?];
    let [ddx, ddy] = [recorded.or_zeros(ddx.as_ref(), x)?, recorded.or_zeros(ddy.as_ref(), y)?];
    let [by_dx, by_dy] = [recorded.optional(by_dx.as_ref())?, recorded.optional(by_dy.as_ref())?];
    let by_ddout = recorded.optional(by_ddout.as_ref())?;
    let [dx, dy] = recorded.of_both(Matmul { transpose_left, transpose_right }, [x, y], Some(upstream))?;
    let second = recorded.gradients(&[(dx, Some(ddx)), (dy, Some(ddy))], [x, y, upstream])?;
    let [dx, dy, ddout] = second;
    let of = [(dx, by_dx), (dy, by_dy), (ddout, by_ddout)];
    let found = recorded.gradients(&of, [x, y, upstream, ddx, ddy])?;
    recorded.store([of_x, of_y, of_upstream, of_ddx, of_ddy], found)
}

/// `(x y)^2 - x^2 y^2`, times a number.
fn fusion_squared_mat_sub(
    context: &Context,
    x: Tensor,
    y: Tensor,
    factor: f32,
    squared_x: Option<Output>,
    squared_y: Option<Output>,
    squared_product: Option<Output>,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, y) = (x.view()?, y.view()?);
    let square = |x: &View| c.multiply(x, x);
    let (xx, yy) = (square(&x)?, square(&y)?);
    let product = square(&c.apply(&PLAIN, &[x, y])?)?;
    let difference = c.subtract(&product, &c.apply(&PLAIN, &[xx.clone(), yy.clone()])?)?;
    for (out, value) in [(squared_x, &xx), (squared_y, &yy), (squared_product, &product)] {
        if let Some(out) = out {
            out.set_dims(&value.shape);
            c.store_value(&out, dtype, value)?;
        }
    }
    c.store(&out, dtype, SCALE, &[&difference], &[factor.into(), 0.0])
}

/// Layers one after another, of which each keeps what is above zero.
fn fusion_repeated_fc_relu(
    context: &Context,
    x: Tensor,
    weights: Vec<Tensor>,
    biases: Vec<Tensor>,
    between: Vec<Option<Output>>,
    out: Output,
) -> Result<()> {
    if weights.is_empty() || weights.len() != biases.len() {
        return Err(refuse("W, Bias", (weights.len(), biases.len()), "as many biases as weights, and one at least"));
    }
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let mut value = x.view()?;
    for (at, (weight, bias)) in weights.iter().zip(&biases).enumerate() {
        let (product, bias) = (c.apply(&PLAIN, &[value, weight.view()?])?, bias.view()?);
        let bias = c.shaped(&bias, &[bias.len()])?;
        value = c.map(Elementwise::Activation(Activation::Relu), &[&c.add(&product, &bias)?], &[])?;
        if let Some(Some(between)) = between.get(at).filter(|_| at + 1 < weights.len()) {
            between.set_dims(&value.shape);
            c.store_value(between, dtype, &value)?;
        }
    }
    c.store_value(&out, dtype, &value)
}
