//! Libraries from text, and pipelines of their kernels.

use super::archive::Archive;
use super::{RawDevice, text};
use crate::error::{Error, Result};
use crate::interface::{Language, MathMode, PipelineKey, PipelineLimits};
use crate::limits;
use objc2::available;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLCompileOptions, MTLComputePipelineDescriptor, MTLComputePipelineState, MTLDevice, MTLFunction,
    MTLLanguageVersion, MTLLibrary, MTLMathFloatingPointFunctions, MTLMathMode,
};

/// A compiled kernel.
#[derive(Clone)]
pub struct Pipeline {
    pub(crate) raw: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
}

impl Pipeline {
    /// Metal's own object, for encoders that are not ours.
    pub fn raw(&self) -> &Retained<ProtocolObject<dyn MTLComputePipelineState>> {
        &self.raw
    }

    /// How many threads a threadgroup of this pipeline may have, and how much memory.
    pub fn limits(&self) -> PipelineLimits {
        PipelineLimits {
            max_threads: self.raw.maxTotalThreadsPerThreadgroup(),
            simd_width: self.raw.threadExecutionWidth(),
            static_threadgroup_memory: self.raw.staticThreadgroupMemoryLength(),
        }
    }
}

/// Compiles a library and makes one kernel's pipeline, from the archive where it is in it.
pub fn compile(device: &RawDevice, archive: &Archive, key: &PipelineKey) -> Result<Pipeline> {
    let function = function(device, key)?;
    let descriptor = MTLComputePipelineDescriptor::new();
    descriptor.setLabel(Some(&NSString::from_str(&key.entry)));
    descriptor.setComputeFunction(Some(&function));
    descriptor.setMaxTotalThreadsPerThreadgroup(limits::thread_bound(key.threads));
    let raw = archive.pipeline(device, &descriptor);
    let raw = raw.map_err(|error| Error::Pipeline { entry: key.entry.clone(), message: text(&error) })?;
    Ok(Pipeline { raw })
}

fn function(device: &RawDevice, key: &PipelineKey) -> Result<Retained<ProtocolObject<dyn MTLFunction>>> {
    let source = NSString::from_str(&key.source);
    let library = device
        .newLibraryWithSource_options_error(&source, Some(&options(key)))
        .map_err(|error| Error::Library { entry: key.entry.clone(), message: text(&error) })?;
    let function = library.newFunctionWithName(&NSString::from_str(&key.entry));
    function.ok_or_else(|| Error::NoSuchKernel { entry: key.entry.clone() })
}

fn options(key: &PipelineKey) -> Retained<MTLCompileOptions> {
    let options = MTLCompileOptions::new();
    options.setLanguageVersion(match key.language {
        Language::Metal3_0 => MTLLanguageVersion::Version3_0,
        Language::Metal3_1 => MTLLanguageVersion::Version3_1,
        Language::Metal3_2 => MTLLanguageVersion::Version3_2,
        Language::Metal4_0 => MTLLanguageVersion::Version4_0,
    });
    let fast = key.math == MathMode::Fast;
    if available!(macos = 15.0) {
        options.setMathMode(if fast { MTLMathMode::Fast } else { MTLMathMode::Safe });
        // A switch of its own, fast by default: `exp` and `fmax` would be the approximate ones.
        let functions = if fast { MTLMathFloatingPointFunctions::Fast } else { MTLMathFloatingPointFunctions::Precise };
        options.setMathFloatingPointFunctions(functions);
    } else {
        // What `setMathMode` replaced.
        #[allow(deprecated)]
        options.setFastMathEnabled(fast);
    }
    options
}
