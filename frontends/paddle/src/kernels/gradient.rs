//! Gradients of elementwise kernels; those of two tensors sum over what broadcasting repeated.

use super::elementwise::compute;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary, broadcast, run};
use openmps_graph::operators::repeat_gradient::RepeatGradient;
use openmps_graph::{Operator, View};
use openmps_runtime::Buffer;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    one::register(table);
    table.add("silu_grad", FLOATS, silu_grad).strided();
    table.add("add_grad", FLOATS, add_grad).strided();
    table.add("subtract_grad", FLOATS, subtract_grad).strided();
    table.add("multiply_grad", FLOATS, multiply_grad).strided();
    table.add("divide_grad", FLOATS, divide_grad).strided();
}

/// Gradients from one tensor (the input or the output, as the row says) and the output's gradient.
mod one {
    use super::*;

    macro_rules! kernels {
        ($($function:ident $member:ident)+) => {
            $(fn $function(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
                let gradient = Elementwise::Gradient(Gradient::$member);
                compute(context, gradient, &[&x.view()?, &upstream.view()?], &[], &dx)
            })+

            pub(super) fn register(table: &mut Table) {
                $(table.add(stringify!($function), FLOATS, $function).strided();)+
            }
        };
    }
    kernels! {
        relu_grad Relu
        relu6_grad Relu6
        sigmoid_grad Sigmoid
        tanh_grad Tanh
        exp_grad Exp
        log_grad Log
        sqrt_grad Sqrt
        rsqrt_grad Rsqrt
        square_grad Square
        reciprocal_grad Reciprocal
        abs_grad Abs
        sin_grad Sin
        cos_grad Cos
        erf_grad Erf
    }
}

fn silu_grad(context: &Context, x: Tensor, _out: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    compute(context, Elementwise::Gradient(Gradient::Silu), &[&x.view()?, &upstream.view()?], &[], &dx)
}

/// Computes into `output`, whose shape is the operands' or a smaller one that was repeated to it.
fn into_repeated(context: &Context, output: &Output, operator: Elementwise, operands: &[&View]) -> Result<()> {
    let queue = context.queue();
    let dtype = operands[0].dtype;
    let mut shape = openmps_graph::Shape::new();
    for operand in operands {
        shape = broadcast(operator.row().name, &shape, &operand.shape)?;
    }
    let to = context.allocate(output, dtype)?;
    if to.shape == shape {
        return Ok(run(operator, queue, operands, &[], &to)?);
    }
    let memory: Buffer = queue.allocate((shape.iter().product::<usize>() * dtype.size()).max(1))?;
    let whole = View::dense(memory.address(), dtype, &shape)?;
    run(operator, queue, operands, &[], &whole)?;
    Ok(RepeatGradient { dims: to.shape.clone() }.run(queue, &[whole], &[to])?)
}

const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);
const COPY: Elementwise = Elementwise::Unary(Unary::Cast);

fn add_grad(
    context: &Context,
    _x: Tensor,
    _y: Tensor,
    upstream: Tensor,
    _axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let upstream = upstream.view()?;
    // Paddle may give dx the memory of the upstream gradient: it is written last.
    for output in [dy, dx].into_iter().flatten() {
        into_repeated(context, &output, COPY, &[&upstream])?;
    }
    Ok(())
}

fn subtract_grad(
    context: &Context,
    _x: Tensor,
    _y: Tensor,
    upstream: Tensor,
    _axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let upstream = upstream.view()?;
    if let Some(dy) = dy {
        into_repeated(context, &dy, Elementwise::Unary(Unary::Negate), &[&upstream])?;
    }
    if let Some(dx) = dx {
        into_repeated(context, &dx, COPY, &[&upstream])?;
    }
    Ok(())
}

fn multiply_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    _axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (x, y, upstream) = (x.view()?, y.view()?, upstream.view()?);
    if let Some(dx) = dx {
        into_repeated(context, &dx, MULTIPLY, &[&upstream, &y])?;
    }
    if let Some(dy) = dy {
        into_repeated(context, &dy, MULTIPLY, &[&upstream, &x])?;
    }
    Ok(())
}

fn divide_grad(
    context: &Context,
    _x: Tensor,
    y: Tensor,
    out: Tensor,
    upstream: Tensor,
    _axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (y, out, upstream) = (y.view()?, out.view()?, upstream.view()?);
    if let Some(dx) = dx {
        into_repeated(context, &dx, Elementwise::Binary(Binary::Divide), &[&upstream, &y])?;
    }
    if let Some(dy) = dy {
        into_repeated(context, &dy, Elementwise::Gradient(Gradient::DivideY), &[&out, &y, &upstream])?;
    }
    Ok(())
}
