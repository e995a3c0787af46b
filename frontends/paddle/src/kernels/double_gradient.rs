//! Gradients of gradients of elementwise kernels, the second and the third.
//!
//! The gradient of `y = f(x)` is a formula of x (of sigmoid and tanh, as Paddle has it, of y) and dy. The second gradient is that formula's own by
//! both, for an upstream ddx; the third that of the second's two results, for upstreams a and b, by x, dy and ddx.

use super::compose::Compose;
use super::recorded::Recorded;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::View;
use openmps_graph::gradient::Node;
use openmps_graph::operators::elementwise::{Binary, Call, Elementwise, Gradient};
use openmps_tile::Number;
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

/// The formula of a gradient and its numbers.
type Formula<'n> = (Gradient, &'n [f64]);

/// The gradients of a recorded formula by x and dy.
fn bent(
    recorded: &mut Recorded,
    (gradient, numbers): Formula,
    [x, upstream]: [Node; 2],
    ddx: Option<Node>,
) -> Result<[Option<Node>; 2]> {
    let scalars = numbers.iter().map(|&number| Number::Float(number)).collect();
    let call = Call { operator: Elementwise::Gradient(gradient), scalars, output: None };
    recorded.of_both(call, [x, upstream], ddx)
}

fn second(
    context: &Context,
    formula: Formula,
    [x, upstream, ddx]: [&Tensor; 3],
    outputs: [Option<Output>; 2],
) -> Result<()> {
    let mut recorded = Recorded::new(context, x.dtype()?);
    let (of, ddx) = ([recorded.input(x)?, recorded.input(upstream)?], recorded.input(ddx)?);
    let found = bent(&mut recorded, formula, of, Some(ddx))?;
    recorded.store(outputs, found)
}

/// Kernels of x (or the result), dy and ddx, with the attributes of Paddle's signature and the formula's numbers made of them.
macro_rules! seconds {
    ($($name:ident $gradient:ident ($($attribute:ident: $attribute_type:ty),*) [$($number:expr),*];)*) => { $(
        fn $name(
            context: &Context,
            x: Tensor,
            upstream: Tensor,
            ddx: Tensor,
            $($attribute: $attribute_type,)*
            dx: Option<Output>,
            ddout: Option<Output>,
        ) -> Result<()> {
            second(context, (Gradient::$gradient, &[$($number),*]), [&x, &upstream, &ddx], [dx, ddout])
        }
    )* };
}

seconds! {
    sigmoid Sigmoid () [];
    tanh Tanh () [];
    log Log () [];
    square Square () [];
    sin Sin () [];
    cos Cos () [];
    pow Pow (exponent: Scalar) [exponent.f64()];
    elu Elu (alpha: f32) [alpha.into()];
    celu Celu (alpha: f32) [alpha.into()];
    softplus Softplus (beta: f64, threshold: f64) [beta, threshold];
}

/// The tensors of a third gradient, of which some may be missing: x, dy, ddx, and the upstreams a and b.
struct Third<'t> {
    x: &'t Tensor,
    upstream: Option<&'t Tensor>,
    ddx: Option<&'t Tensor>,
    a: Option<&'t Tensor>,
    b: Option<&'t Tensor>,
}

fn third(context: &Context, formula: Formula, tensors: &Third, outputs: [Option<Output>; 3]) -> Result<()> {
    let mut recorded = Recorded::new(context, tensors.x.dtype()?);
    let x = recorded.input(tensors.x)?;
    let [upstream, ddx] = [recorded.or_zeros(tensors.upstream, x)?, recorded.or_zeros(tensors.ddx, x)?];
    let [a, b] = [recorded.optional(tensors.a)?, recorded.optional(tensors.b)?];
    let [of_x, of_upstream] = bent(&mut recorded, formula, [x, upstream], Some(ddx))?;
    let found = recorded.gradients(&[(of_x, a), (of_upstream, b)], [x, upstream, ddx])?;
    recorded.store(outputs, found)
}

/// Paddle's tensors after x differ in which may be missing.
macro_rules! thirds {
    ($($name:ident $gradient:ident ($($attribute:ident: $attribute_type:ty),*) [$($number:expr),*], $upstream:ty, $ddx:ty, $a:ty, $b:ty;)*) => { $(
        fn $name(
            context: &Context,
            x: Tensor,
            upstream: $upstream,
            ddx: $ddx,
            a: $a,
            b: $b,
            $($attribute: $attribute_type,)*
            dx: Option<Output>,
            dout: Option<Output>,
            dddx: Option<Output>,
        ) -> Result<()> {
            let (upstream, ddx, a, b) = (Option::from(upstream), Option::from(ddx), Option::from(a), Option::from(b));
            let tensors =
                Third { x: &x, upstream: upstream.as_ref(), ddx: ddx.as_ref(), a: a.as_ref(), b: b.as_ref() };
            third(context, (Gradient::$gradient, &[$($number),*]), &tensors, [dx, dout, dddx])
        }
    )* };
}

thirds! {
    sigmoid_triple Sigmoid () [], Tensor, Tensor, Tensor, Option<Tensor>;
    tanh_triple Tanh () [], Tensor, Tensor, Option<Tensor>, Option<Tensor>;
    sin_triple Sin () [], Option<Tensor>, Option<Tensor>, Tensor, Option<Tensor>;
    cos_triple Cos () [], Option<Tensor>, Option<Tensor>, Tensor, Option<Tensor>;
    pow_triple Pow (exponent: Scalar) [exponent.f64()], Tensor, Tensor, Tensor, Option<Tensor>;
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
