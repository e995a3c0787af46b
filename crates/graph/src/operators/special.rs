//! Special functions of each element: gamma and its relatives, the inverse error function, modified Bessel functions.

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients, Node};
use crate::layout::{Dense, call, check_dense, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::{Binary, Elementwise, Unary};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_host::by_type;
pub use openmps_host::native::special::Function;
use openmps_host::native::special::special;
use openmps_tile::dtype;
use std::f64::consts::FRAC_2_SQRT_PI;

/// A function of each element, computed in float64; of two numbers where it takes two inputs, which have one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special(pub Function);

fn bessel(first: bool, scaled: bool) -> Special {
    Special(Function::Bessel { first, scaled })
}

/// What the factor e^-|x| takes away from a slope: the sign of x times y.
fn less_signed(b: &mut Backward<'_>, slope: Node, x: Node, y: Node) -> Result<Node> {
    let sign = b.unary(Unary::Sign, x)?;
    let signed = b.multiply(sign, y)?;
    b.subtract(slope, signed)
}

/// y over x for the function of order 1, a half at 0 (DLMF 10.25.2).
fn quotient_at(b: &mut Backward<'_>, y: Node, x: Node) -> Result<Node> {
    let (ratio, half, is_zero) =
        (b.binary(Binary::Divide, y, x)?, b.full_like(x, 0.5)?, b.unary(Unary::LogicalNot, x)?);
    b.map(Elementwise::Binary(Binary::Where), &[is_zero, half, ratio], &[])
}

impl Operator for Special {
    fn name(&self) -> &'static str {
        match self.0 {
            Function::LogGamma => "log_gamma",
            Function::Polygamma { .. } => "polygamma",
            Function::UpperGamma => "upper_gamma",
            Function::InverseErf => "inverse_erf",
            Function::Bessel { .. } => "modified_bessel",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, self.0.arguments())?;
        expect_dtype(self.name(), "input", inputs[0].dtype, dtype::FLOATS)?;
        for other in &inputs[1..] {
            expect_shape(self.name(), "second input", &other.shape, &inputs[0].shape)?;
            expect_dtype(self.name(), "second input", other.dtype, &[inputs[0].dtype])?;
        }
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        call(queue, self.name(), || {
            let dense: Vec<Dense> = inputs.iter().map(Dense::of).collect();
            let addresses: Vec<usize> = dense.iter().map(|x| x.address).collect();
            // SAFETY: dense tensors of the checked shapes and types.
            by_type!(inputs[0].dtype, T => unsafe {
                special::<T>(self.0, &addresses, outputs[0].address, outputs[0].len())
            });
            Ok(())
        })
    }

    /// The formulas are in float64 already; their values are tested beside them.
    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, y, dy) = (b.inputs[0], b.outputs[0], b.dy()?);
        let slope = match self.0 {
            Function::LogGamma => b.one(Special(Function::Polygamma { order: 0 }), &[x])?,
            Function::Polygamma { order } => b.one(Special(Function::Polygamma { order: order + 1 }), &[x])?,
            Function::InverseErf => {
                let square = b.unary(Unary::Square, y)?;
                let power = b.unary(Unary::Exp, square)?;
                b.affine(power, 1.0 / FRAC_2_SQRT_PI, 0.0)?
            }
            Function::Bessel { first: false, scaled: false } => b.one(bessel(true, false), &[x])?,
            Function::Bessel { first: false, scaled: true } => {
                let other = b.one(bessel(true, true), &[x])?;
                less_signed(b, other, x, y)?
            }
            Function::Bessel { first: true, scaled } => {
                let other = b.one(bessel(false, scaled), &[x])?;
                let ratio = quotient_at(b, y, x)?;
                let slope = b.subtract(other, ratio)?;
                if scaled { less_signed(b, slope, x, y)? } else { slope }
            }
            Function::UpperGamma => return Err(Error::NoGradient { operator: self.name() }),
        };
        Ok(vec![Some(b.multiply(dy, slope)?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let value = |i: usize| self.0.value(x.data[i], inputs.get(1).map_or(0.0, |y| y.data[i]));
        vec![Array::new(&x.shape, (0..x.data.len()).map(value).collect(), x.dtype)]
    }
}

fn cases(functions: &[Function], low: f64, high: f64) -> Vec<Case> {
    let case = |function: Function, dims: &[usize], values: &Values| {
        Case::new(Special(function), vec![Input::of(dims, values.clone()); function.arguments()])
    };
    let shapes: [&[usize]; 4] = [&[], &[7], &[3, 130], &[2, 0]];
    let values = Values::Uniform(low, high);
    functions
        .iter()
        .flat_map(|&function| {
            let ordinary = shapes.map(|dims| case(function, dims, &values));
            ordinary.into_iter().chain([case(function, &[24], &Values::Special)])
        })
        .collect()
}

macro_rules! entries {
    ($($entry:ident: $name:literal, $summary:literal, $functions:expr, $low:literal .. $high:literal;)*) => {
        $(
            /// For the list of operators.
            pub static $entry: Entry = Entry {
                name: $name,
                summary: $summary,
                dtypes: dtype::FLOATS,
                cases: || cases(&$functions, $low, $high),
                tolerance: 1.0,
            };
        )*
        /// All of them.
        pub static ENTRIES: &[&Entry] = &[$(&$entry,)*];
    };
}

entries! {
    LOG_GAMMA: "log_gamma", "The logarithm of the gamma function's magnitude.", [Function::LogGamma], -3.0 .. 9.0;
    POLYGAMMA: "polygamma", "Derivatives of the logarithm of the gamma function, from the first on.", [Function::Polygamma { order: 0 }, Function::Polygamma { order: 1 }, Function::Polygamma { order: 4 }], 0.1 .. 9.0;
    UPPER_GAMMA: "upper_gamma", "The regularised upper incomplete gamma function.", [Function::UpperGamma], 0.1 .. 9.0;
    INVERSE_ERF: "inverse_erf", "The inverse of the error function.", [Function::InverseErf], -0.99 .. 0.99;
    BESSEL: "modified_bessel", "Modified Bessel functions of the first kind, of order 0 and 1, times e^-|x| where that is asked for.", [
        Function::Bessel { first: false, scaled: false }, Function::Bessel { first: false, scaled: true },
        Function::Bessel { first: true, scaled: false }, Function::Bessel { first: true, scaled: true },
    ], -60.0 .. 60.0;
}
