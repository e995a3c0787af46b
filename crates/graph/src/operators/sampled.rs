//! Random numbers whose law each element of a tensor names. They have statistical tests instead of a reference.

use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, call, check_dense, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_host::by_type;
use openmps_host::native::random::Source;
pub use openmps_host::native::sampled::Sampled;
use openmps_host::native::sampled::sampled;
use openmps_tile::{DType, dtype};

/// One number for each element of the inputs, which have one shape.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// What the inputs are the numbers of.
    pub law: Sampled,
    /// Where the numbers come from.
    pub source: Source,
}

impl Sampling {
    /// Successes are counted.
    fn result(&self, dtype: DType) -> DType {
        if self.law == Sampled::Binomial { DType::I64 } else { dtype }
    }
}

impl Operator for Sampling {
    fn name(&self) -> &'static str {
        match self.law {
            Sampled::Poisson => "poisson",
            Sampled::Gamma => "standard_gamma",
            Sampled::Binomial => "binomial",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, self.law.arguments())?;
        expect_dtype(self.name(), "input", inputs[0].dtype, dtype::FLOATS)?;
        for other in &inputs[1..] {
            expect_shape(self.name(), "second input", &other.shape, &inputs[0].shape)?;
            expect_dtype(self.name(), "second input", other.dtype, &[inputs[0].dtype])?;
        }
        Ok(vec![Meta { dtype: self.result(inputs[0].dtype), shape: inputs[0].shape.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let (out, len) = (outputs[0].address, outputs[0].len());
        call(queue, self.name(), || {
            let dense: Vec<Dense> = inputs.iter().map(Dense::of).collect();
            let addresses: Vec<usize> = dense.iter().map(|x| x.address).collect();
            // SAFETY: dense tensors of the checked shapes and types.
            by_type!(inputs[0].dtype, T => unsafe {
                if self.law == Sampled::Binomial {
                    sampled::<T, i64>(self.law, &addresses, out, len, self.source)
                } else {
                    sampled::<T, T>(self.law, &addresses, out, len, self.source)
                }
            })
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, _: &[Array]) -> Vec<Array> {
        unreachable!("{} is random and not in the list that references are used for", self.name())
    }
}
