//! Special functions of each element: gamma and its relatives, the inverse error function, modified Bessel functions.

use crate::entry::{Case, Entry, Input, Values};
use crate::error::Result;
use crate::layout::{Dense, call, check, expect_dense, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_host::by_type;
pub use openmps_host::native::special::Function;
use openmps_host::native::special::special;
use openmps_tile::dtype;

/// A function of each element, computed in float64; of two numbers where it takes two inputs, which have one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special(pub Function);

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
        check(self, inputs, outputs)?;
        expect_dense(self.name(), &outputs[0])?;
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
    INVERSE_ERF: "inverse_erf", "The inverse of the error function.", [Function::InverseErf], -1.0 .. 1.0;
    BESSEL: "modified_bessel", "Modified Bessel functions of the first kind, of order 0 and 1, times e^-|x| where that is asked for.", [
        Function::Bessel { first: false, scaled: false }, Function::Bessel { first: false, scaled: true },
        Function::Bessel { first: true, scaled: false }, Function::Bessel { first: true, scaled: true },
    ], -60.0 .. 60.0;
}
