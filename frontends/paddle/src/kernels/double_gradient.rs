//! Gradients of gradients of elementwise kernels, the second and the third.
//!
//! The gradient of `y = f(x)` is `dx = f'(x) dy`. Its own gradients, for an upstream `ddx` of `dx`, are `f''(x) dy ddx` by x and
//! `f'(x) ddx` by dy; those of these two, for upstreams a and b, are `a f'''(x) dy ddx + b f''(x) ddx` by x, `a f''(x) ddx` by dy
//! and `a f''(x) dy + b f'(x)` by ddx. Of sigmoid and tanh Paddle takes f' as a function of y, and so its slope by y.

use super::compose::Compose;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("relu_double_grad", FLOATS, relu).strided();
    table.add("leaky_relu_double_grad", FLOATS, leaky_relu).strided();
    table.add("abs_double_grad", FLOATS, absolute).strided();
    table.add("elu_double_grad", FLOATS, elu).strided();
    table.add("celu_double_grad", FLOATS, celu).strided();
    table.add("softplus_double_grad", FLOATS, softplus).strided();
    table.add("sigmoid_double_grad", FLOATS, sigmoid).strided();
    table.add("tanh_double_grad", FLOATS, tanh).strided();
    table.add("log_double_grad", FLOATS, log).strided();
    table.add("square_double_grad", FLOATS, square).strided();
    table.add("sin_double_grad", FLOATS, sin).strided();
    table.add("cos_double_grad", FLOATS, cos).strided();
    table.add("pow_double_grad", FLOATS, pow).strided();
    table.add("sqrt_double_grad", FLOATS, sqrt).strided();
    table.add("rsqrt_double_grad", FLOATS, rsqrt).strided();
    table.add("sigmoid_triple_grad", FLOATS, sigmoid_triple).strided();
    table.add("tanh_triple_grad", FLOATS, tanh_triple).strided();
    table.add("sin_triple_grad", FLOATS, sin_triple).strided();
    table.add("cos_triple_grad", FLOATS, cos_triple).strided();
    table.add("pow_triple_grad", FLOATS, pow_triple).strided();
}

const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);

/// A function whose slopes are formulas of its argument, or of its result.
#[derive(Clone, Copy)]
enum Function {
    /// By its result.
    Sigmoid,
    /// By its result.
    Tanh,
    Log,
    Square,
    Sin,
    Cos,
    Pow(f64),
}

impl Function {
    /// `f'`, `f''` or `f'''`.
    fn slope(self, c: &Compose, x: &View, order: u32) -> Result<View> {
        let unary = |function: Unary, sign: f64| c.scale(&c.map(Elementwise::Unary(function), &[x], &[])?, sign, 0.0);
        match (self, order) {
            (Function::Sigmoid, 1) => c.multiply(x, &c.scale(x, -1.0, 1.0)?),
            (Function::Sigmoid, 2) => c.scale(x, -2.0, 1.0),
            (Function::Tanh, 1) => c.scale(&c.multiply(x, x)?, -1.0, 1.0),
            (Function::Tanh, 2) => c.scale(x, -2.0, 0.0),
            (Function::Sigmoid | Function::Tanh, _) => c.constant(x.dtype, &x.shape, -2.0),
            (Function::Sin, 1) => unary(Unary::Cos, 1.0),
            (Function::Sin, 2) | (Function::Cos, 1) => unary(Unary::Sin, -1.0),
            (Function::Sin, _) => unary(Unary::Cos, -1.0),
            (Function::Cos, 2) => unary(Unary::Cos, -1.0),
            (Function::Cos, _) => unary(Unary::Sin, 1.0),
            (Function::Log, _) => Function::Pow(-1.0).falling(c, x, order - 1),
            (Function::Square, _) => Function::Pow(2.0).falling(c, x, order),
            (Function::Pow(_), _) => self.falling(c, x, order),
        }
    }

    /// `n (n - 1) ... x^(n - order)` of a power; 0 where a factor is.
    fn falling(self, c: &Compose, x: &View, order: u32) -> Result<View> {
        let Function::Pow(exponent) = self else { return Ok(x.clone()) };
        let factor: f64 = (0..order).map(|step| exponent - f64::from(step)).product();
        if factor == 0.0 {
            return c.constant(x.dtype, &x.shape, 0.0);
        }
        let exponent = exponent - f64::from(order);
        c.scale(&c.map(Elementwise::Unary(Unary::PowScalar), &[x], &[exponent])?, factor, 0.0)
    }
}

/// Writes `f'' dy ddx` and `f' ddx`.
fn second(
    context: &Context,
    function: Function,
    [x, upstream, ddx]: [&Tensor; 3],
    (dx, ddout): (Option<Output>, Option<Output>),
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream, ddx) = (c.input(x)?, c.input(upstream)?, c.input(ddx)?);
    let of_x =
        dx.as_ref().map(|_| c.multiply(&function.slope(&c, &x, 2)?, &c.multiply(&upstream, &ddx)?)).transpose()?;
    // Paddle may give an output the memory of ddx.
    if let Some(ddout) = ddout {
        let slope = function.slope(&c, &x, 1)?;
        let value = c.multiply(&slope, &ddx)?;
        c.store_value(&ddout, dtype, &value)?;
    }
    match (dx, of_x) {
        (Some(dx), Some(value)) => c.store_value(&dx, dtype, &value),
        _ => Ok(()),
    }
}

macro_rules! seconds {
    ($($name:ident $function:expr;)*) => { $(
        fn $name(
            context: &Context,
            x: Tensor,
            upstream: Tensor,
            ddx: Tensor,
            dx: Option<Output>,
            ddout: Option<Output>,
        ) -> Result<()> {
            second(context, $function, [&x, &upstream, &ddx], (dx, ddout))
        }
    )* };
}

seconds! {
    sigmoid Function::Sigmoid;
    tanh Function::Tanh;
    log Function::Log;
    square Function::Square;
    sin Function::Sin;
    cos Function::Cos;
}

fn pow(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    ddx: Tensor,
    exponent: Scalar,
    dx: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    second(context, Function::Pow(exponent.f64()), [&x, &upstream, &ddx], (dx, ddout))
}

/// The tensors of a third gradient, of which some may be missing: x, dy, ddx, and the upstreams a and b.
struct Third<'t> {
    x: &'t Tensor,
    upstream: Option<&'t Tensor>,
    ddx: Option<&'t Tensor>,
    a: Option<&'t Tensor>,
    b: Option<&'t Tensor>,
}

fn third(context: &Context, function: Function, tensors: &Third, outputs: [Option<Output>; 3]) -> Result<()> {
    let (c, dtype) = (Compose::new(context), tensors.x.dtype()?);
    let x = c.input(tensors.x)?;
    let [upstream, ddx, a, b] =
        [tensors.upstream, tensors.ddx, tensors.a, tensors.b].map(|tensor| c.or_zeros(tensor, &x));
    let (upstream, ddx, a, b) = (upstream?, ddx?, a?, b?);
    let bend = function.slope(&c, &x, 2)?;
    let of_x = c.multiply(&function.slope(&c, &x, 3)?, &c.multiply(&a, &upstream)?)?;
    let of_x = c.multiply(&c.add(&of_x, &c.multiply(&b, &bend)?)?, &ddx)?;
    let of_upstream = c.multiply(&a, &c.multiply(&bend, &ddx)?)?;
    let of_ddx = c.multiply(&a, &c.multiply(&bend, &upstream)?)?;
    let of_ddx = c.add(&of_ddx, &c.multiply(&b, &function.slope(&c, &x, 1)?)?)?;
    for (output, value) in outputs.iter().zip([of_x, of_upstream, of_ddx]) {
        if let Some(output) = output {
            c.store_value(output, dtype, &value)?;
        }
    }
    Ok(())
}

/// Paddle's tensors after x differ in which may be missing.
macro_rules! thirds {
    ($($name:ident $function:expr, $upstream:ty, $ddx:ty, $a:ty, $b:ty;)*) => { $(
        fn $name(
            context: &Context,
            x: Tensor,
            upstream: $upstream,
            ddx: $ddx,
            a: $a,
            b: $b,
            dx: Option<Output>,
            dout: Option<Output>,
            dddx: Option<Output>,
        ) -> Result<()> {
            let (upstream, ddx, a, b) = (Option::from(upstream), Option::from(ddx), Option::from(a), Option::from(b));
            let tensors =
                Third { x: &x, upstream: upstream.as_ref(), ddx: ddx.as_ref(), a: a.as_ref(), b: b.as_ref() };
            third(context, $function, &tensors, [dx, dout, dddx])
        }
    )* };
}

thirds! {
    sigmoid_triple Function::Sigmoid, Tensor, Tensor, Tensor, Option<Tensor>;
    tanh_triple Function::Tanh, Tensor, Tensor, Option<Tensor>, Option<Tensor>;
    sin_triple Function::Sin, Option<Tensor>, Option<Tensor>, Tensor, Option<Tensor>;
    cos_triple Function::Cos, Option<Tensor>, Option<Tensor>, Tensor, Option<Tensor>;
}

fn pow_triple(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    ddx: Tensor,
    a: Tensor,
    b: Option<Tensor>,
    exponent: Scalar,
    dx: Option<Output>,
    dout: Option<Output>,
    dddx: Option<Output>,
) -> Result<()> {
    let tensors = Third { x: &x, upstream: Some(&upstream), ddx: Some(&ddx), a: Some(&a), b: b.as_ref() };
    third(context, Function::Pow(exponent.f64()), &tensors, [dx, dout, dddx])
}

/// A function that has no bend: the gradient of its gradient by dy is `f' ddx`.
fn straight(context: &Context, slope: (Gradient, &[f64]), x: &Tensor, ddx: &Tensor, ddout: &Output) -> Result<()> {
    let c = Compose::new(context);
    c.store(ddout, ddx.dtype()?, Elementwise::Gradient(slope.0), &[&x.view()?, &ddx.view()?], slope.1)
}

fn relu(context: &Context, out: Tensor, ddx: Tensor, ddout: Output) -> Result<()> {
    straight(context, (Gradient::Relu, &[]), &out, &ddx, &ddout)
}

fn leaky_relu(context: &Context, x: Tensor, ddx: Tensor, slope: f64, ddout: Output) -> Result<()> {
    straight(context, (Gradient::LeakyRelu, &[slope]), &x, &ddx, &ddout)
}

fn absolute(context: &Context, x: Tensor, ddx: Tensor, ddout: Output) -> Result<()> {
    straight(context, (Gradient::Abs, &[]), &x, &ddx, &ddout)
}

/// A function that is straight where x is positive and a power of e elsewhere, whose slope divided by `scale` is its bend there.
fn exponential(
    context: &Context,
    (slope, alpha, scale): (Gradient, f32, f64),
    [x, upstream, ddx]: [&Tensor; 3],
    (dx, ddout): (Option<Output>, Option<Output>),
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream, ddx) = (c.input(x)?, c.input(upstream)?, c.input(ddx)?);
    let slope = |dy: &View| c.map(Elementwise::Gradient(slope), &[&x, dy], &[alpha.into()]);
    let zero = c.constant(x.dtype, &[1], 0.0)?;
    let positive = c.map(Elementwise::Binary(Binary::GreaterThan), &[&x, &zero], &[])?;
    let bent = c.scale(&slope(&c.multiply(&upstream, &ddx)?)?, 1.0 / scale, 0.0)?;
    if let Some(ddout) = ddout {
        c.store_value(&ddout, dtype, &slope(&ddx)?)?;
    }
    match dx {
        Some(dx) => c.store(&dx, dtype, Elementwise::Gradient(Gradient::NotChosen), &[&positive, &bent], &[]),
        None => Ok(()),
    }
}

fn elu(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    ddx: Tensor,
    alpha: f32,
    dx: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    exponential(context, (Gradient::Elu, alpha, 1.0), [&x, &upstream, &ddx], (dx, ddout))
}

fn celu(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    ddx: Tensor,
    alpha: f32,
    dx: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    exponential(context, (Gradient::Celu, alpha, alpha.into()), [&x, &upstream, &ddx], (dx, ddout))
}

/// The slope is the logistic function of beta x, or 1 above the threshold, where the bend is 0.
fn softplus(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    ddx: Tensor,
    beta: f64,
    threshold: f64,
    dx: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream, ddx) = (c.input(&x)?, c.input(&upstream)?, c.input(&ddx)?);
    let one = c.constant(x.dtype, &x.shape, 1.0)?;
    let slope = c.map(Elementwise::Gradient(Gradient::Softplus), &[&x, &one], &[beta, threshold])?;
    let both = c.scale(&c.multiply(&upstream, &ddx)?, beta, 0.0)?;
    if let Some(ddout) = ddout {
        c.store(&ddout, dtype, MULTIPLY, &[&slope, &ddx], &[])?;
    }
    match dx {
        Some(dx) => c.store(&dx, dtype, Elementwise::Gradient(Gradient::Sigmoid), &[&slope, &both], &[]),
        None => Ok(()),
    }
}

/// Of `dx = dy / (2 y)`: `-dx ddx / y` by y, `ddx / (2 y)` by dy.
fn sqrt(
    context: &Context,
    out: Tensor,
    dx: Tensor,
    ddx: Tensor,
    dout: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    let slope = |c: &Compose, y: &View, ddx: &View| c.map(Elementwise::Gradient(Gradient::Sqrt), &[y, ddx], &[]);
    root(context, (-1.0, slope), [&out, &dx, &ddx], (dout, ddout))
}

/// Of `dx = -y^3 dy / 2`: `3 dx ddx / y` by y, `-y^3 ddx / 2` by dy.
fn rsqrt(
    context: &Context,
    out: Tensor,
    dx: Tensor,
    ddx: Tensor,
    dout: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    let slope = |c: &Compose, y: &View, ddx: &View| c.map(Elementwise::Gradient(Gradient::Rsqrt), &[y, ddx], &[]);
    root(context, (3.0, slope), [&out, &dx, &ddx], (dout, ddout))
}

fn root(
    context: &Context,
    (factor, slope): (f64, impl Fn(&Compose, &View, &View) -> Result<View>),
    [y, dx, ddx]: [&Tensor; 3],
    (dout, ddout): (Option<Output>, Option<Output>),
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), y.dtype()?);
    let (y, dx, ddx) = (c.input(y)?, c.input(dx)?, c.input(ddx)?);
    let both = c.scale(&c.multiply(&dx, &ddx)?, factor, 0.0)?;
    let of_upstream = slope(&c, &y, &ddx)?;
    if let Some(dout) = dout {
        c.store(&dout, dtype, Elementwise::Binary(Binary::Divide), &[&both, &y], &[])?;
    }
    match ddout {
        Some(ddout) => c.store_value(&ddout, dtype, &of_upstream),
        None => Ok(()),
    }
}
