//! Kernels that are one formula of the operators' tables, and their gradients: made from the tables, and from a row here where Paddle's
//! kernel has attributes.

use super::elementwise::{compute, insert};
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{
    Activation, Binary, Elementwise, ElementwiseType, Gradient, Unary, Visitor,
};
use openmps_tile::Number;
use openmps_tile::dtype::FLOATS;

/// Formulas that are no kernels of Paddle's: a scale by -1, and what is an attribute of `gelu`.
pub const NOT_PADDLES: &[&str] =
    &["negate", "gelu_tanh", "gelu_tanh_grad", "cube", "cube_grad", "products_difference", "products_sum"];

/// Adds a kernel for every formula without numbers whose kernel no other family has added.
pub fn register(table: &mut Table) {
    with_attributes(table);
    let mut families = Families { table };
    Unary::each(&mut families);
    Activation::each(&mut families);
    Binary::each(&mut families);
    Gradient::each(&mut families);
}

struct Families<'t> {
    table: &'t mut Table,
}

impl Visitor for Families<'_> {
    fn visit<T: ElementwiseType>(&mut self) {
        let name = T::OPERATOR.row().name;
        let is_known = NOT_PADDLES.contains(&name) || self.table.has(name);
        if is_known || !T::OPERATOR.is_plain() {
            return;
        }
        match const { Arity::of(T::OPERATOR) } {
            // Steps of longer gradients end in the operand's name.
            Arity::Two if matches!(T::OPERATOR, Elementwise::Gradient(_)) && !name.ends_with("_grad") => {}
            Arity::One => insert(self.table, name, T::OPERATOR, one::<T>),
            Arity::Two => insert(self.table, name, T::OPERATOR, two::<T>),
            Arity::Three => insert(self.table, name, T::OPERATOR, three::<T>),
            Arity::Step => {}
        }
    }
}

/// How many tensors the kernel of a formula has.
enum Arity {
    One,
    Two,
    Three,
    /// No kernel: a step of a gradient of several operands.
    Step,
}

impl Arity {
    const fn of(operator: Elementwise) -> Arity {
        match (operator, operator.row().operands.len()) {
            (_, 1) => Arity::One,
            (_, 2) => Arity::Two,
            (Elementwise::Binary(_), 3) => Arity::Three,
            _ => Arity::Step,
        }
    }
}

fn one<T: ElementwiseType>(context: &Context, x: Tensor, out: Output) -> Result<()> {
    compute(context, T::OPERATOR, &[&x.view()?], &[], &out)
}

/// Of a gradient, y is the gradient by the result.
fn two<T: ElementwiseType>(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    compute(context, T::OPERATOR, &[&x.view()?, &y.view()?], &[], &out)
}

fn three<T: ElementwiseType>(context: &Context, x: Tensor, y: Tensor, z: Tensor, out: Output) -> Result<()> {
    compute(context, T::OPERATOR, &[&x.view()?, &y.view()?, &z.view()?], &[], &out)
}

/// Kernels with attributes: name, operator, the attributes of Paddle's signature, and the operator's numbers made of them. The gradient's
/// kernel has the same attributes, its operator those of the numbers that it has by the same names.
macro_rules! activations {
    ($($name:ident $member:ident ($($attribute:ident: $attribute_type:ty),*) [$($number:expr),*])+) => {
        $(mod $name {
            use super::*;

            const OPERATOR: Elementwise = Elementwise::Activation(Activation::$member);

            pub fn forward(context: &Context, x: Tensor, $($attribute: $attribute_type,)* out: Output) -> Result<()> {
                compute(context, OPERATOR, &[&x.view()?], &[$(Number::Float(f64::from($number))),*], &out)
            }

            pub fn gradient(
                context: &Context,
                x: Tensor,
                upstream: Tensor,
                $($attribute: $attribute_type,)*
                dx: Output,
            ) -> Result<()> {
                let gradient = Gradient::$member;
                let numbers = OPERATOR.numbers_of(gradient, &[$(Number::Float(f64::from($number))),*]);
                let inputs = [&x.view()?, &upstream.view()?];
                compute(context, Elementwise::Gradient(gradient), &inputs, &numbers, &dx)
            }
        })+

        fn with_attributes(table: &mut Table) {
            $(
                table.add(stringify!($name), FLOATS, $name::forward).strided();
                table.add(concat!(stringify!($name), "_grad"), FLOATS, $name::gradient).strided();
            )+
        }
    };
}

activations! {
    hardswish HardSwish () [6.0, 6.0, 3.0]
    hardsigmoid HardSigmoid (slope: f32, offset: f32) [slope, offset]
    hardtanh HardTanh (low: f32, high: f32) [low, high]
    hard_shrink HardShrink (threshold: f32) [threshold]
    softshrink SoftShrink (lambda: f32) [lambda]
    thresholded_relu ThresholdedRelu (threshold: f32, value: f32) [threshold, value]
    leaky_relu LeakyRelu (slope: f64) [slope]
    softplus Softplus (beta: f64, threshold: f64) [beta, threshold]
    celu Celu (alpha: f32) [alpha]
    selu Selu (scale: f32, alpha: f32) [scale, alpha]
    stanh Stanh (scale_a: f32, scale_b: f32) [scale_a, scale_b]
    mish Mish (threshold: f32) [threshold]
}
