//! Tile kernels as texts of the Metal Shading Language, by what a device says of itself.

use super::failed;
use crate::error::{Error, Result};
use crate::pipeline::Pipeline;
use crate::stage;
use openmps_codegen::{Parameter as Passed, Source, Target, compile, passes_memory};
use openmps_metal::arguments::{Kernel, Parameter};
use openmps_metal::interface::{Language, MathMode, Properties};
use openmps_metal::{PipelineKey, tensor_operations};
use openmps_settings as settings;
use openmps_tile::Scalar;

/// What a kernel needs that Metal has not on this device.
pub(super) fn refused(pipeline: &Pipeline, device: &Properties) -> Option<&'static str> {
    let kernel = pipeline.kernel();
    let needs = [
        (kernel.has(Scalar::F64), "float64, which Apple's GPUs have not"),
        (kernel.has(Scalar::BF16) && !device.bfloat, "bfloat16, which needs macOS 14"),
        (!device.coherence && passes_memory(kernel), "memory passed between threadgroups, which needs macOS 15"),
    ];
    needs.into_iter().find_map(|(needs, what)| needs.then_some(what))
}

/// A tile kernel as Metal Shading Language, and how it is launched. Where it would be written with tensor operations, `are_right` says whether
/// those of this machine are.
pub(crate) fn text_of(pipeline: &Pipeline, device: &Properties, are_right: impl FnOnce() -> bool) -> Result<Kernel> {
    if let Some(what) = refused(pipeline, device) {
        return Err(failed(format!("{} needs {what}", pipeline.name())));
    }
    let generate = |target: fn(usize) -> Target| {
        let target = pipeline.target(target);
        stage::timed("generate", pipeline.name(), || compile(pipeline.verified(), &target).map_err(Error::Codegen))
    };
    let source = if tensor_operations_are_wanted(device) {
        let source = generate(Target::metal_with_tensor_operations)?;
        if source.tensors && !are_right() { generate(Target::metal)? } else { source }
    } else {
        generate(Target::metal)?
    };
    let language = match (source.tensors, source.coherent, device.bfloat) {
        (true, ..) => Language::Metal4_0,
        (false, true, _) => Language::Metal3_2,
        (false, false, true) => Language::Metal3_1,
        (false, false, false) => Language::Metal3_0,
    };
    Ok(kernel(source, &pipeline.kernel().written_parameters(), language))
}

fn tensor_operations_are_wanted(device: &Properties) -> bool {
    settings::METAL_TENSOR_OPERATIONS.get() != Some(false) && tensor_operations::are_fast_on(device)
}

/// The compiler's record in the words of the encoder.
fn kernel(source: Source, written: &[bool], language: Language) -> Kernel {
    let pass = |(parameter, &written): (&Passed, &bool)| match *parameter {
        Passed::Buffer(index) => Parameter::Buffer { index, written },
        Passed::Number { offset, size } => Parameter::Number { offset, size },
    };
    let parameters = source.parameters.iter().zip(written).map(pass).collect();
    let (threads, numbers) = (source.threads, source.numbers_size);
    let pipeline = {
        let (source, entry, constants) = (source.text.into(), source.entry, Vec::new());
        PipelineKey { source, entry, math: MathMode::Safe, language, threads, constants }
    };
    // What the text declares itself is part of the pipeline's own limits.
    Kernel { pipeline, threads: [threads, 1, 1], threadgroup_memory: Vec::new(), parameters, numbers }
}
