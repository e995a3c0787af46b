//! Gradients of elementwise kernels of two tensors: they sum over what broadcasting repeated.

use super::aligned::{aligned, aligned_shape};
use super::compose::Compose;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_graph::view::dense_strides;
use openmps_graph::{DType, Shape, View};
use openmps_tile::dtype::{ALL, FLOATS};

/// Floats, and the integers that Paddle has gradients of sums, differences and products for: a mask may be one.
const SUMMED: &[DType] = &[DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("add_grad", SUMMED, add_grad).strided();
    table.add("subtract_grad", SUMMED, subtract_grad).strided();
    table.add("multiply_grad", SUMMED, multiply_grad).strided();
    table.add("divide_grad", FLOATS, divide_grad).strided();
    table.add("maximum_grad", FLOATS, maximum_grad).strided();
    table.add("minimum_grad", FLOATS, minimum_grad).strided();
    table.add("fmax_grad", FLOATS, fmax_grad).strided();
    table.add("fmin_grad", FLOATS, fmin_grad).strided();
    table.add("elementwise_pow_grad", FLOATS, elementwise_pow_grad).strided();
    table.add("atan2_grad", FLOATS, atan2_grad).strided();
    table.add("lerp_grad", FLOATS, lerp_grad).strided();
    table.add("remainder_grad", FLOATS, remainder_grad).strided();
    table.add("heaviside_grad", FLOATS, heaviside_grad).strided();
    table.add("copysign_grad", FLOATS, copysign_grad).strided();
    table.add("where_grad", ALL, where_grad).strided();
    table.add("masked_fill_grad", ALL, masked_fill_grad).strided();
}

/// The operator's result in `output`, whose shape is the operands' or a smaller one that was repeated to it.
fn into(context: &Context, output: Option<Output>, operator: Elementwise, operands: &[&View]) -> Result<()> {
    let Some(output) = output else { return Ok(()) };
    Compose::new(context).store(&output, operands[operands.len() - 1].dtype, operator, operands, &[])
}

/// As [`into`] for the second operand of a legacy program's operator, whose dimensions began at `axis` of the first's.
fn into_second(
    context: &Context,
    (output, own, axis): (Option<Output>, &Shape, i32),
    operator: Elementwise,
    operands: &[&View],
) -> Result<()> {
    let upstream = operands.iter().max_by_key(|view| view.rank()).expect("a gradient has operands");
    let shape = aligned_shape(own, upstream.rank(), axis);
    let Some(output) = output.filter(|_| shape != *own) else { return into(context, output, operator, operands) };
    let c = Compose::new(context);
    let value = c.map(operator, operands, &[])?;
    c.store_as(&output, value.dtype, &value, |to| View { strides: dense_strides(&shape), shape, ..to.clone() })
}

const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);
const COPY: Elementwise = Elementwise::Unary(Unary::Cast);

fn add_grad(
    context: &Context,
    _x: Tensor,
    y: Tensor,
    upstream: Tensor,
    axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let upstream = upstream.view()?;
    // Paddle may give dx the memory of the upstream gradient: it is written last.
    into_second(context, (dy, &y.shape(), axis), COPY, &[&upstream])?;
    into(context, dx, COPY, &[&upstream])
}

fn subtract_grad(
    context: &Context,
    _x: Tensor,
    y: Tensor,
    upstream: Tensor,
    axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let upstream = upstream.view()?;
    into_second(context, (dy, &y.shape(), axis), Elementwise::Unary(Unary::Negate), &[&upstream])?;
    into(context, dx, COPY, &[&upstream])
}

fn multiply_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (x, upstream, own) = (x.view()?, upstream.view()?, y.shape());
    let y = aligned(y.view()?, upstream.rank(), axis)?;
    into_second(context, (dy, &own, axis), MULTIPLY, &[&upstream, &x])?;
    into(context, dx, MULTIPLY, &[&upstream, &y])
}

fn divide_grad(
    context: &Context,
    _x: Tensor,
    y: Tensor,
    out: Tensor,
    upstream: Tensor,
    axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (out, upstream, own) = (out.view()?, upstream.view()?, y.shape());
    let y = aligned(y.view()?, upstream.rank(), axis)?;
    into_second(context, (dy, &own, axis), Elementwise::Gradient(Gradient::DivideY), &[&out, &y, &upstream])?;
    into(context, dx, Elementwise::Binary(Binary::Divide), &[&upstream, &y])
}

/// Gradients of two tensors that are each one formula of x, y and the upstream gradient.
macro_rules! pair {
    ($($function:ident $dx:ident $dy:ident)+) => {
        $(fn $function(
            context: &Context,
            x: Tensor,
            y: Tensor,
            upstream: Tensor,
            dx: Option<Output>,
            dy: Option<Output>,
        ) -> Result<()> {
            let (x, y, upstream) = (x.view()?, y.view()?, upstream.view()?);
            into(context, dy, Elementwise::Gradient(Gradient::$dy), &[&x, &y, &upstream])?;
            into(context, dx, Elementwise::Gradient(Gradient::$dx), &[&x, &y, &upstream])
        })+
    };
}

pair! {
    maximum_grad WhereGreater WhereLess
    minimum_grad WhereLess WhereGreater
    fmax_grad FmaxX FmaxY
    fmin_grad FminX FminY
    elementwise_pow_grad PowerX PowerY
    atan2_grad Atan2X Atan2Y
}

fn remainder_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (x, y, upstream) = (x.view()?, y.view()?, upstream.view()?);
    into(context, dy, Elementwise::Gradient(Gradient::RemainderY), &[&x, &y, &upstream])?;
    into(context, dx, COPY, &[&upstream])
}

fn heaviside_grad(
    context: &Context,
    x: Tensor,
    _y: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (x, upstream) = (x.view()?, upstream.view()?);
    into(context, dy, Elementwise::Gradient(Gradient::Heaviside), &[&x, &upstream])?;
    let Some(dx) = dx else { return Ok(()) };
    let to = context.allocate(&dx, upstream.dtype)?;
    Compose::new(context).fill(&to, 0.0)
}

/// The second number has no gradient: its sign alone counts.
fn copysign_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, x, y, upstream) = (Compose::new(context), x.view()?, y.view()?, upstream.view()?);
    let out = c.map(Elementwise::Binary(Binary::CopySign), &[&x, &y], &[])?;
    into(context, dx, Elementwise::Gradient(Gradient::CopySign), &[&x, &out, &upstream])?;
    let Some(dy) = dy else { return Ok(()) };
    c.fill(&context.allocate(&dy, upstream.dtype)?, 0.0)
}

fn where_grad(
    context: &Context,
    condition: Tensor,
    _x: Tensor,
    _y: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    chosen(context, &condition, &upstream, dx, dy)
}

fn masked_fill_grad(
    context: &Context,
    _x: Tensor,
    mask: Tensor,
    _value: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dvalue: Option<Output>,
) -> Result<()> {
    chosen(context, &mask, &upstream, dvalue, dx)
}

/// The upstream gradient goes to the one or the other, as the condition says.
fn chosen(
    context: &Context,
    condition: &Tensor,
    upstream: &Tensor,
    yes: Option<Output>,
    no: Option<Output>,
) -> Result<()> {
    let (condition, upstream) = (condition.view()?, upstream.view()?);
    into(context, yes, Elementwise::Gradient(Gradient::Chosen), &[&condition, &upstream])?;
    into(context, no, Elementwise::Gradient(Gradient::NotChosen), &[&condition, &upstream])
}

fn lerp_grad(
    context: &Context,
    _x: Tensor,
    _y: Tensor,
    weight: Tensor,
    _out: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (weight, upstream) = (weight.view()?, upstream.view()?);
    into(context, dy, MULTIPLY, &[&weight, &upstream])?;
    into(context, dx, Elementwise::Gradient(Gradient::LerpX), &[&weight, &upstream])
}
