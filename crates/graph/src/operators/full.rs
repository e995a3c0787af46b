//! A tensor of one value.

use crate::entry::{Case, Entry};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::check;
use crate::movement;
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{Shape, View, shape_of};
use openmps_tile::{DType, Number, dtype};

/// Every element is `value`.
#[derive(Clone, Debug)]
pub struct Full {
    /// The result's dimensions.
    pub dims: Shape,
    /// The result's element type.
    pub dtype: DType,
    /// What it is filled with.
    pub value: Number,
}

impl Operator for Full {
    fn name(&self) -> &'static str {
        "full"
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>> {
        Ok(vec![Meta { dtype: self.dtype, shape: self.dims.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        movement::run(queue, self.name(), |mover| mover.fill(&outputs[0], self.value))
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, _: &[Array]) -> Vec<Array> {
        vec![Array::from_fn(&self.dims, self.dtype, |_| self.value.to_f64())]
    }
}

/// For the list of operators.
pub static ENTRY: Entry =
    Entry { name: "full", summary: "A tensor of one value.", dtypes: &[DType::F32], cases, tolerance: 0.0 };

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dims in [&[][..], &[0, 3], &[7], &[3, 5, 2]] {
        for &dtype in dtype::ALL {
            let value = if dtype == DType::Bool { Number::Integer(1) } else { Number::Float(3.0) };
            cases.push(Case::new(Full { dims: shape_of(dims).expect("a small rank"), dtype, value }, vec![]));
        }
    }
    cases
}
