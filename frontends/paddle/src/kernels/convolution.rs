//! Kernels of convolution, transposed convolution, their gradients, and convolution with what follows it.

use super::compose::Compose;
use super::images::{layout, padding_algorithm, pair, sizes};
use super::indexing::zeros;
use super::movement::{gave_memory_alone, many};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::View;
use openmps_graph::image::ImageLayout;
use openmps_graph::operators::convolution::{Convolution, ConvolutionWeightGradient, Fused};
use openmps_graph::operators::convolution_transpose::ConvolutionTranspose;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_host::native::Activation;
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("conv2d", FLOATS, conv2d).strided();
    table.add("conv2d_grad", FLOATS, conv2d_grad).strided();
    table.add("conv2d_double_grad", &[DType::F32, DType::F64], conv2d_double_grad);
    table.add("depthwise_conv2d", FLOATS, depthwise_conv2d).strided();
    table.add("depthwise_conv2d_grad", FLOATS, depthwise_conv2d_grad).strided();
    table.add("conv2d_transpose", FLOATS, conv2d_transpose).strided();
    table.add("conv2d_transpose_bias", FLOATS, conv2d_transpose_bias);
    table.add("conv2d_transpose_grad", FLOATS, conv2d_transpose_grad).strided();
    table.add("depthwise_conv2d_transpose", FLOATS, conv2d_transpose).strided();
    table.add("depthwise_conv2d_transpose_grad", FLOATS, conv2d_transpose_grad).strided();
    let fused = &[DType::F16, DType::BF16, DType::F32];
    table.add("fused_conv2d_add_act", fused, fused_conv2d_add_act).strided();
}

/// The attributes of a convolution, in the order of `conv2d`.
fn convolution(
    strides: &[i32],
    paddings: &[i32],
    algorithm: &str,
    dilations: &[i32],
    groups: i32,
    format: &str,
) -> Result<Convolution> {
    Ok(Convolution {
        strides: pair("strides", strides)?,
        paddings: sizes("paddings", paddings)?,
        padding_algorithm: padding_algorithm(algorithm)?,
        dilations: pair("dilations", dilations)?,
        groups: sizes("groups", &[groups])?[0],
        layout: layout(format),
        fused: Fused::default(),
    })
}

fn conv2d(
    context: &Context,
    input: Tensor,
    filter: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    algorithm: String,
    dilations: Vec<i32>,
    groups: i32,
    format: String,
    out: Output,
) -> Result<()> {
    if input.shape().contains(&0) && gave_memory_alone(context, &out, input.dtype()?)? {
        return Ok(());
    }
    let of = convolution(&strides, &paddings, &algorithm, &dilations, groups, &format)?;
    many(context, &of, &[input.view()?, filter.view()?], &[Some(&out)])
}

fn depthwise_conv2d(
    context: &Context,
    input: Tensor,
    filter: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    out: Output,
) -> Result<()> {
    conv2d(context, input, filter, strides, paddings, algorithm, dilations, groups, format, out)
}

/// The gradients of a convolution of `x` with `filter`.
fn gradients(
    context: &Context,
    of: Convolution,
    [x, filter, upstream]: [&View; 3],
    [dx, dfilter]: [Option<&Output>; 2],
) -> Result<()> {
    if x.is_empty() || upstream.is_empty() {
        for (input, out) in [(x, dx), (filter, dfilter)] {
            out.map_or(Ok(()), |out| zeros(context, upstream.dtype, &input.shape, out).map(|_| ()))?;
        }
        return Ok(());
    }
    if let Some(dx) = dx {
        let gradient = of.reversed(&x.shape, &filter.shape)?;
        many(context, &gradient, &[upstream.clone(), filter.clone()], &[Some(dx)])?;
    }
    if let Some(dfilter) = dfilter {
        let gradient = ConvolutionWeightGradient { of, kernel: [filter.shape[2], filter.shape[3]] };
        many(context, &gradient, &[x.clone(), upstream.clone()], &[Some(dfilter)])?;
    }
    Ok(())
}

fn conv2d_grad(
    context: &Context,
    input: Tensor,
    filter: Tensor,
    upstream: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    algorithm: String,
    dilations: Vec<i32>,
    groups: i32,
    format: String,
    dinput: Option<Output>,
    dfilter: Option<Output>,
) -> Result<()> {
    let of = convolution(&strides, &paddings, &algorithm, &dilations, groups, &format)?;
    let inputs = [&input.view()?, &filter.view()?, &upstream.view()?];
    gradients(context, of, inputs, [dinput.as_ref(), dfilter.as_ref()])
}

/// A convolution is linear in both: its gradients' gradients are gradients and convolutions of what comes in.
fn conv2d_double_grad(
    context: &Context,
    input: Tensor,
    filter: Tensor,
    upstream: Tensor,
    ddinput: Option<Tensor>,
    ddfilter: Option<Tensor>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    algorithm: String,
    dilations: Vec<i32>,
    groups: i32,
    format: String,
    dinput: Option<Output>,
    dfilter: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    let of = convolution(&strides, &paddings, &algorithm, &dilations, groups, &format)?;
    let c = Compose::new(context);
    let (x, filter, upstream) = (input.view()?, filter.view()?, upstream.view()?);
    let (ddx, ddfilter) = (c.or_zeros(ddinput.as_ref(), &x)?, c.or_zeros(ddfilter.as_ref(), &filter)?);
    gradients(context, of.clone(), [&x, &ddfilter, &upstream], [dinput.as_ref(), None])?;
    gradients(context, of.clone(), [&ddx, &filter, &upstream], [None, dfilter.as_ref()])?;
    let Some(ddout) = ddout else { return Ok(()) };
    let sum = c.add(&c.apply(&of, &[ddx, filter])?, &c.apply(&of, &[x, ddfilter])?)?;
    c.store_value(&ddout, sum.dtype, &sum)
}

fn depthwise_conv2d_grad(
    context: &Context,
    input: Tensor,
    filter: Tensor,
    upstream: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    dinput: Option<Output>,
    dfilter: Option<Output>,
) -> Result<()> {
    let of = convolution(&strides, &paddings, &algorithm, &dilations, groups, &format)?;
    let inputs = [&input.view()?, &filter.view()?, &upstream.view()?];
    gradients(context, of, inputs, [dinput.as_ref(), dfilter.as_ref()])
}

/// The attributes of a transposed convolution.
fn transposed(
    strides: &[i32],
    paddings: &[i32],
    output_padding: &[i32],
    output_size: &[i64],
    algorithm: &str,
    groups: i32,
    dilations: &[i32],
    format: &str,
) -> Result<ConvolutionTranspose> {
    let Convolution { strides, paddings, padding_algorithm, dilations, groups, layout, fused } =
        convolution(strides, paddings, algorithm, dilations, groups, format)?;
    Ok(ConvolutionTranspose {
        strides,
        paddings,
        padding_algorithm,
        dilations,
        groups,
        output_padding: if output_padding.is_empty() { [0, 0] } else { pair("output_padding", output_padding)? },
        output_size: if output_size.is_empty() { None } else { Some(pair("output_size", output_size)?) },
        layout,
        fused,
    })
}

fn conv2d_transpose(
    context: &Context,
    x: Tensor,
    filter: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    output_padding: Vec<i32>,
    output_size: IntArray,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    out: Output,
) -> Result<()> {
    let of = transposed(&strides, &paddings, &output_padding, &output_size, &algorithm, groups, &dilations, &format)?;
    many(context, &of, &[x.view()?, filter.view()?], &[Some(&out)])
}

fn conv2d_transpose_bias(
    context: &Context,
    x: Tensor,
    filter: Tensor,
    bias: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    output_padding: Vec<i32>,
    output_size: IntArray,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    out: Output,
) -> Result<()> {
    let of = transposed(&strides, &paddings, &output_padding, &output_size, &algorithm, groups, &dilations, &format)?;
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let value = c.apply(&of, &[c.input(&x)?, c.input(&filter)?])?;
    let bias = c.input(&bias)?;
    let mut dims = vec![1; value.rank()];
    dims[if layout(&format) == ImageLayout::Nhwc { value.rank() - 1 } else { 1 }] = bias.len();
    let bias = c.shaped(&bias, &dims)?;
    c.store(&out, dtype, Elementwise::Binary(Binary::Add), &[&value, &bias], &[])
}

/// The upstream gradient convolved, and the gradient of that convolution's filter.
fn conv2d_transpose_grad(
    context: &Context,
    x: Tensor,
    filter: Tensor,
    upstream: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    output_padding: Vec<i32>,
    output_size: IntArray,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    dx: Option<Output>,
    dfilter: Option<Output>,
) -> Result<()> {
    let of = transposed(&strides, &paddings, &output_padding, &output_size, &algorithm, groups, &dilations, &format)?;
    let (x, filter, upstream) = (x.view()?, filter.view()?, upstream.view()?);
    let of = of.reversed(&x.shape, &filter.shape)?;
    if let Some(dx) = dx {
        many(context, &of, &[upstream.clone(), filter.clone()], &[Some(&dx)])?;
    }
    if let Some(dfilter) = dfilter {
        let gradient = ConvolutionWeightGradient { of, kernel: [filter.shape[2], filter.shape[3]] };
        many(context, &gradient, &[upstream, x], &[Some(&dfilter)])?;
    }
    Ok(())
}

/// An activation by Paddle's name.
fn activation_of(name: &str, alpha: f32) -> Result<Activation> {
    Ok(match name {
        "" | "identity" => Activation::None,
        "relu" => Activation::Relu,
        "relu6" => Activation::Relu6,
        "leaky_relu" => Activation::LeakyRelu { slope: alpha },
        "sigmoid" => Activation::Sigmoid,
        "hardswish" => Activation::HardSwish,
        "swish" => Activation::Swish { beta: 1.0 },
        "hardsigmoid" => Activation::HardSigmoid { slope: 0.2, offset: 0.5 },
        _ => {
            let names = "identity, relu, relu6, leaky_relu, sigmoid, hardswish, swish or hardsigmoid";
            return Err(refuse("activation", name, names));
        }
    })
}

/// A tensor of which at most one dimension is not 1, as a vector.
fn vector(view: &View) -> Result<View> {
    let stride = view.shape.iter().zip(&view.strides).find(|(size, _)| **size != 1).map_or(1, |(_, &stride)| stride);
    Ok(View::strided(view.address, view.dtype, &[view.len()], &[stride])?)
}

fn fused_conv2d_add_act(
    context: &Context,
    input: Tensor,
    filter: Tensor,
    bias: Option<Tensor>,
    residual: Option<Tensor>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    algorithm: String,
    dilations: Vec<i32>,
    groups: i32,
    format: String,
    activation: String,
    split_channels: Vec<i32>,
    _exhaustive_search: bool,
    _workspace_size: i32,
    alpha: f32,
    out: Output,
    _outputs: Vec<Option<Output>>,
) -> Result<()> {
    if !split_channels.is_empty() {
        return Err(refuse("split_channels", split_channels, "none"));
    }
    let activation = activation_of(&activation, alpha)?;
    let fused = Fused { bias: bias.is_some(), residual: residual.is_some(), activation, ..Fused::default() };
    let of = convolution(&strides, &paddings, &algorithm, &dilations, groups, &format)?;
    let mut inputs = vec![input.view()?, filter.view()?];
    if let Some(bias) = bias {
        inputs.push(vector(&bias.view()?)?);
    }
    if let Some(residual) = residual {
        inputs.push(residual.view()?);
    }
    many(context, &Convolution { fused, ..of }, &inputs, &[Some(&out)])
}
