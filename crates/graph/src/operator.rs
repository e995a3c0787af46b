//! The trait that every operator implements: rule, execution, reference.

use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
pub use crate::meta::Meta;
use crate::prepared::{Preparation, Prepared};
use crate::queue::Queue;
use crate::reference::Array;
use crate::sealed::Sealed;
use crate::view::View;
use openmps_runtime::Device;
use std::any::Any;

/// One operator with its attributes, for example `Softmax { axis: -1 }`. Only this crate makes operators; passes over graphs tell them
/// apart by their type (`Any`).
pub trait Operator: Sealed + Any + std::fmt::Debug + Send + Sync {
    /// The name used in every layer, in errors, tests, benches and documents.
    fn name(&self) -> &'static str;

    /// Shapes and element types of the outputs for these inputs, or what is wrong with the inputs.
    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>>;

    /// Computes the outputs on the queue's device. Inputs may have any strides; outputs are dense unless the operator
    /// says otherwise. Checks what it relies on, so that a wrong call is an error and never a wrong read. That views name live memory is
    /// promised by whoever made the queue one of operators: [`Queue::vouched`].
    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()>;

    /// The input that a run on this device would rather read in another form, should it be a constant: then a caller makes that once, and calls
    /// [`Operator::run_prepared`] from then on.
    fn prepares(&self, device: &Device, inputs: &[Meta]) -> Option<Preparation> {
        let _ = (device, inputs);
        None
    }

    /// [`Operator::run`] with one input in the form that [`Operator::prepares`] asked for, to the same bits. That input's view has its element type and its
    /// shape, and need not name memory.
    fn run_prepared(&self, queue: &Queue, prepared: &Prepared, inputs: &[View], outputs: &[View]) -> Result<()> {
        let _ = (queue, inputs, outputs);
        Err(prepared.unfit(self.name(), "none"))
    }

    /// The same in float64 on dense arrays, written for clarity: the truth that tests compare every device with.
    fn reference(&self, inputs: &[Array]) -> Vec<Array>;

    /// The gradient of each input, recorded as operators; [`Error::NoGradient`] where there is none. Steps of
    /// constants (rounding, comparisons, indices) have a gradient: it is zero.
    fn gradient(&self, backward: &mut Backward<'_>) -> Result<Gradients> {
        let _ = backward;
        Err(Error::NoGradient { operator: self.name() })
    }

    /// Whether elements are only moved, or converted by a rule that names types itself: then inputs may be of every type. Others refuse
    /// [`openmps_tile::DType::is_only_moved`].
    fn moves(&self) -> bool {
        false
    }

    /// Whether the first input may be the output, with the same layout. No other input may share memory with an output.
    fn works_in_place(&self) -> bool {
        false
    }

    /// Additions, multiplications and other formulas of single numbers in one run, where inputs and outputs are these. Tools show it
    /// beside the time; nothing else depends on it.
    fn arithmetic(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        let _ = inputs;
        outputs.iter().map(Meta::count).sum()
    }

    /// What it does the work of besides, in order: for tools, as [`Operator::arithmetic`].
    fn includes(&self) -> Vec<&'static str> {
        Vec::new()
    }
}
