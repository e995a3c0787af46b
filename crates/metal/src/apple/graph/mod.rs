//! MPSGraph: graphs are compiled once and run from buffers.

mod elementwise;
mod lower;
mod run;
mod window;

pub use run::encode;

use super::RawDevice;
use super::mps::data_type;
use crate::error::{Error, Result};
use crate::graph::{Graph, TensorType};
use crate::interface::Properties;
use lower::Lowering;
use objc2::AnyThread;
use objc2::rc::Retained;
use objc2_foundation::{NSArray, NSDictionary, NSNumber, NSString};
use objc2_metal_performance_shaders_graph::{
    MPSGraph, MPSGraphCompilationDescriptor, MPSGraphDevice, MPSGraphExecutable, MPSGraphOptimization,
    MPSGraphShapedType, MPSGraphTensor,
};

/// A compiled graph. Its inputs and outputs have an order of their own, which is kept with it.
#[derive(Clone)]
pub struct Executable {
    pub(super) raw: Retained<MPSGraphExecutable>,
    /// For each input that the executable wants: which one of the graph's it is.
    pub(super) feeds: Vec<usize>,
    /// For each result that the executable gives: which one of the graph's it is.
    pub(super) targets: Vec<usize>,
}

// SAFETY: an executable is not changed after its compilation; Apple documents encoding with it from several threads as allowed.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

type RawTensor = Retained<MPSGraphTensor>;

/// Lowers and compiles a graph.
pub fn compile(device: &RawDevice, properties: &Properties, graph: &Graph) -> Result<Executable> {
    if graph.needs_attention() && !properties.attention {
        return Err(Error::TooOld { what: "scaled dot product attention", major: 15, minor: 0 });
    }
    // SAFETY: the graph was checked by its builder, so that every method gets shapes and types that it takes.
    unsafe {
        let raw = MPSGraph::new();
        let placeholders: Vec<RawTensor> =
            graph.inputs().iter().enumerate().map(|(index, of)| placeholder(&raw, index, of)).collect();
        let tensors = Lowering::new(&raw, graph, placeholders.clone()).run();
        let results: Vec<RawTensor> = graph.outputs().iter().map(|output| tensors[output.0].clone()).collect();
        let types: Vec<Retained<MPSGraphShapedType>> = graph.inputs().iter().map(shaped).collect();
        let (keys, values): (Vec<&MPSGraphTensor>, Vec<&MPSGraphShapedType>) =
            (placeholders.iter().map(|tensor| &**tensor).collect(), types.iter().map(|of| &**of).collect());
        let feeds = NSDictionary::from_slices(&keys, &values);
        let descriptor = MPSGraphCompilationDescriptor::new();
        // The next level may place work on the Neural Engine and the CPU, which Metal.jl found slower, and hanging with large matrices; PyTorch and
        // ExecuTorch take this level, too.
        descriptor.setOptimizationLevel(MPSGraphOptimization::Level0);
        let raw = raw.compileWithDevice_feeds_targetTensors_targetOperations_compilationDescriptor(
            Some(&MPSGraphDevice::deviceWithMTLDevice(device)),
            &feeds,
            &NSArray::from_retained_slice(&results),
            None,
            Some(&descriptor),
        );
        let feeds = order(raw.feedTensors().as_deref(), &placeholders, "inputs")?;
        let targets = order(raw.targetTensors().as_deref(), &results, "results")?;
        Ok(Executable { raw, feeds, targets })
    }
}

/// Where each tensor of the executable stands in our order.
fn order(theirs: Option<&NSArray<MPSGraphTensor>>, ours: &[RawTensor], what: &'static str) -> Result<Vec<usize>> {
    let theirs: Vec<RawTensor> = theirs.map(|tensors| tensors.iter().collect()).unwrap_or_default();
    let place = |tensor: &RawTensor| ours.iter().position(|own| own == tensor);
    let order: Option<Vec<usize>> = theirs.iter().map(place).collect();
    order.filter(|order| order.len() == ours.len()).ok_or_else(|| {
        let message = format!("the executable has {} tensors, {} of which were to be found", theirs.len(), ours.len());
        Error::System { what, message }
    })
}

unsafe fn placeholder(graph: &MPSGraph, index: usize, of: &TensorType) -> RawTensor {
    let name = NSString::from_str(&format!("input {index}"));
    // SAFETY: shape and type were checked by the graph's builder.
    unsafe { graph.placeholderWithShape_dataType_name(Some(&shape(&of.shape)), data_type(of.dtype), Some(&name)) }
}

fn shaped(of: &TensorType) -> Retained<MPSGraphShapedType> {
    // SAFETY: shape and type were checked by the graph's builder.
    unsafe {
        MPSGraphShapedType::initWithShape_dataType(
            MPSGraphShapedType::alloc(),
            Some(&shape(&of.shape)),
            data_type(of.dtype),
        )
    }
}

/// Lengths as numbers of Foundation's. A tensor without axes has one of length 1 for MPSGraph.
pub(super) fn shape(lengths: &[usize]) -> Retained<NSArray<NSNumber>> {
    let lengths = if lengths.is_empty() { &[1] } else { lengths };
    numbers(lengths)
}

/// Numbers, axes for example.
pub(super) fn numbers(values: &[usize]) -> Retained<NSArray<NSNumber>> {
    NSArray::from_retained_slice(&values.iter().map(|&value| NSNumber::new_usize(value)).collect::<Vec<_>>())
}
