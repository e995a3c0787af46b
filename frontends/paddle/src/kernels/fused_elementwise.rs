//! A sum or product with a function of one tensor before or after it, as passes over older programs make them.

use super::aligned::{aligned, aligned_shape};
use super::compose::Compose;
use super::values::SINGLE;
use crate::argument::Upstream;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Gradient, Unary};
use openmps_graph::{Shape, View};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("fused_elemwise_activation", SINGLE, fused);
    table.add("fused_elemwise_add_activation", SINGLE, fused);
    table.add("fused_elemwise_activation_grad", SINGLE, fused_grad);
    table.add("fused_elemwise_add_activation_grad", SINGLE, fused_add_grad);
}

/// A function of one tensor.
#[derive(Clone, Copy, PartialEq)]
enum Curve {
    Scale(f64),
    Relu,
    Tanh,
    Sigmoid,
    Gelu,
}

impl Curve {
    fn apply(self, c: &Compose, x: &View) -> Result<View> {
        match self {
            Curve::Scale(factor) => c.scale(x, factor, 0.0),
            Curve::Relu => c.map(Elementwise::Activation(Activation::Relu), &[x], &[]),
            Curve::Tanh => c.map(Elementwise::Unary(Unary::Tanh), &[x], &[]),
            Curve::Sigmoid => c.map(Elementwise::Activation(Activation::Sigmoid), &[x], &[]),
            Curve::Gelu => c.map(Elementwise::Activation(Activation::GeluTanh), &[x], &[]),
        }
    }

    /// The upstream through the function, by its argument.
    fn gradient(self, c: &Compose, x: &View, upstream: &View) -> Result<View> {
        match self {
            Curve::Gelu => c.map(Elementwise::Gradient(Gradient::GeluTanh), &[x, upstream], &[]),
            _ => self.gradient_of_result(c, &self.apply(c, x)?, upstream),
        }
    }

    /// The upstream through any function but gelu, by its result.
    fn gradient_of_result(self, c: &Compose, y: &View, upstream: &View) -> Result<View> {
        let slope = match self {
            Curve::Scale(factor) => return c.scale(upstream, factor, 0.0),
            Curve::Relu | Curve::Gelu => return c.map(Elementwise::Gradient(Gradient::Relu), &[y, upstream], &[]),
            Curve::Tanh => c.scale(&c.multiply(y, y)?, -1.0, 1.0)?,
            Curve::Sigmoid => c.multiply(y, &c.scale(y, -1.0, 1.0)?)?,
        };
        c.multiply(upstream, &slope)
    }
}

/// Two functions, one in the other.
struct Pair {
    curve: Curve,
    /// The sum or the product of two tensors.
    both: Binary,
    /// Whether the function is of both, and not of the second tensor alone.
    after: bool,
}

impl Pair {
    fn named(names: &[String], factor: f32) -> Result<Pair> {
        let plain: Vec<&str> = names.iter().map(|name| name.strip_suffix("_grad").unwrap_or(name)).collect();
        let curve = |name: &str| match name {
            "scale" => Some(Curve::Scale(factor.into())),
            "relu" => Some(Curve::Relu),
            "tanh" => Some(Curve::Tanh),
            "sigmoid" => Some(Curve::Sigmoid),
            "gelu" => Some(Curve::Gelu),
            _ => None,
        };
        let both = |name: &str| match name {
            "elementwise_add" => Some(Binary::Add),
            "elementwise_mul" => Some(Binary::Multiply),
            _ => None,
        };
        let pair = match plain.as_slice() {
            &[first, second] => match (curve(first), both(second), both(first), curve(second)) {
                (Some(curve), Some(both), ..) => Some(Pair { curve, both, after: true }),
                (.., Some(both), Some(curve)) => Some(Pair { curve, both, after: false }),
                _ => None,
            },
            _ => None,
        };
        pair.ok_or_else(|| {
            refuse("functor_list", names, "elementwise_add or elementwise_mul with scale, relu, tanh, sigmoid or gelu")
        })
    }

    fn both(&self, c: &Compose, x: &View, y: &View) -> Result<View> {
        c.map(Elementwise::Binary(self.both), &[x, y], &[])
    }
}

fn fused(
    context: &Context,
    x: Tensor,
    y: Tensor,
    names: Vec<String>,
    axis: i32,
    factor: f32,
    saved: bool,
    out: Output,
    between_out: Option<Output>,
) -> Result<()> {
    let (c, pair, dtype) = (Compose::new(context), Pair::named(&names, factor)?, x.dtype()?);
    let x = x.view()?;
    let y = aligned(y.view()?, x.rank(), axis)?;
    let between = if pair.after { pair.both(&c, &x, &y)? } else { pair.curve.apply(&c, &y)? };
    let value = if pair.after { pair.curve.apply(&c, &between)? } else { pair.both(&c, &x, &between)? };
    if let Some(out) = between_out.filter(|_| saved) {
        c.store_value(&out, dtype, &between)?;
    }
    c.store_value(&out, dtype, &value)
}

/// What a gradient is made of. Paddle may have let go of what it need not be made of, so that each is looked at only where it counts.
struct Given {
    x: Option<Tensor>,
    y: Tensor,
    out: Tensor,
    between: Option<Tensor>,
    upstream: Tensor,
    axis: i32,
}

impl Given {
    fn x(&self) -> Result<View> {
        self.x.as_ref().ok_or_else(|| refuse("X", "missing", "a tensor: the gradient is made of it"))?.view()
    }

    fn y(&self) -> Result<View> {
        aligned(self.y.view()?, self.upstream.shape().len(), self.axis)
    }

    /// The gradients by both tensors, that of the second not summed up yet.
    fn shares(&self, c: &Compose, pair: &Pair, upstream: &View) -> Result<[View; 2]> {
        let is_product = pair.both == Binary::Multiply;
        if pair.after {
            let through = match &self.between {
                Some(between) => pair.curve.gradient(c, &between.view()?, upstream)?,
                None if pair.curve == Curve::Gelu => {
                    pair.curve.gradient(c, &pair.both(c, &self.x()?, &self.y()?)?, upstream)?
                }
                None => pair.curve.gradient_of_result(c, &self.out.view()?, upstream)?,
            };
            if !is_product {
                return Ok([through.clone(), through]);
            }
            return Ok([c.multiply(&through, &self.y()?)?, c.multiply(&through, &self.x()?)?]);
        }
        let inner = |is_needed: bool| match &self.between {
            Some(between) if is_needed => Ok(Some(between.view()?)),
            None if is_needed => Ok(Some(pair.curve.apply(c, &self.y()?)?)),
            _ => Ok::<_, crate::error::Error>(None),
        };
        let by_result = pair.curve != Curve::Gelu;
        let value = inner(is_product || by_result)?;
        let (to_x, through) = match &value {
            Some(value) if is_product => (c.multiply(upstream, value)?, c.multiply(upstream, &self.x()?)?),
            _ => (upstream.clone(), upstream.clone()),
        };
        let to_y = match &value {
            Some(value) if by_result => pair.curve.gradient_of_result(c, value, &through)?,
            _ => pair.curve.gradient(c, &self.y()?, &through)?,
        };
        Ok([to_x, to_y])
    }
}

fn gradients(
    context: &Context,
    given: Given,
    (names, factor): (Vec<String>, f32),
    [dx, dy]: [Option<Output>; 2],
) -> Result<()> {
    let (c, pair, dtype) = (Compose::new(context), Pair::named(&names, factor)?, given.upstream.dtype()?);
    let upstream = given.upstream.view()?;
    let [to_x, to_y] = given.shares(&c, &pair, &upstream)?;
    if let Some(dy) = dy {
        let dims = aligned_shape(&given.y.shape(), upstream.rank(), given.axis);
        // What has fewer dimensions is repeated along those that are missing.
        let leading = std::iter::repeat_n(1, upstream.rank().saturating_sub(dims.len()));
        let dims: Shape = leading.chain(dims.iter().copied()).collect();
        c.store_value(&dy, dtype, &if to_y.shape == dims { to_y } else { c.summed_to(&to_y, &dims)? })?;
    }
    match dx {
        Some(dx) => c.store_value(&dx, dtype, &to_x),
        None => Ok(()),
    }
}

fn fused_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    between: Upstream,
    upstream: Tensor,
    names: Vec<String>,
    axis: i32,
    factor: f32,
    saved: bool,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let given = Given { x: Some(x), y, out, between: between.0.filter(|_| saved), upstream, axis };
    gradients(context, given, (names, factor), [dx, dy])
}

fn fused_add_grad(
    context: &Context,
    x: Option<Tensor>,
    y: Tensor,
    out: Tensor,
    between: Option<Tensor>,
    upstream: Tensor,
    names: Vec<String>,
    axis: i32,
    factor: f32,
    saved: bool,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let given = Given { x, y, out, between: between.filter(|_| saved), upstream, axis };
    gradients(context, given, (names, factor), [dx, dy])
}
