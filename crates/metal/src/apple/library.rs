//! Libraries from text, and pipelines of their kernels.

use super::archive::Archive;
use super::{RawDevice, text};
use crate::error::{Error, Result};
use crate::interface::{FunctionConstant, Language, MathMode, PipelineKey, PipelineLimits};
use crate::limits;
use objc2::available;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLCompileOptions, MTLComputePipelineDescriptor, MTLComputePipelineState, MTLDataType, MTLDevice, MTLFunction,
    MTLFunctionConstantValues, MTLLanguageVersion, MTLLibrary, MTLMathFloatingPointFunctions, MTLMathMode,
};
use openmps_tile::DType;
use std::ptr::NonNull;

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

/// Compiles a library, and gives the names of its kernels.
pub fn kernel_names(device: &RawDevice, source: &str, language: Language) -> Result<Vec<String>> {
    let library = library(device, source, &options(language, MathMode::Safe));
    let library = library.map_err(|message| Error::Text { message })?;
    Ok(library.functionNames().iter().map(|name| name.to_string()).collect())
}

fn library(
    device: &RawDevice,
    source: &str,
    options: &MTLCompileOptions,
) -> std::result::Result<Retained<ProtocolObject<dyn MTLLibrary>>, String> {
    let source = NSString::from_str(source);
    device.newLibraryWithSource_options_error(&source, Some(options)).map_err(|error| text(&error))
}

fn function(device: &RawDevice, key: &PipelineKey) -> Result<Retained<ProtocolObject<dyn MTLFunction>>> {
    let library = library(device, &key.source, &options(key.language, key.math))
        .map_err(|message| Error::Library { entry: key.entry.clone(), message })?;
    let name = NSString::from_str(&key.entry);
    if key.constants.is_empty() {
        let function = library.newFunctionWithName(&name);
        return function.ok_or_else(|| Error::NoSuchKernel { entry: key.entry.clone() });
    }
    library
        .newFunctionWithName_constantValues_error(&name, &constants(&key.constants))
        .map_err(|error| Error::Pipeline { entry: key.entry.clone(), message: text(&error) })
}

fn constants(constants: &[FunctionConstant]) -> Retained<MTLFunctionConstantValues> {
    let values = MTLFunctionConstantValues::new();
    for FunctionConstant { index, dtype, element } in constants {
        let kind = match dtype {
            DType::Bool => MTLDataType::Bool,
            DType::I8 => MTLDataType::Char,
            DType::U8 => MTLDataType::UChar,
            DType::I16 => MTLDataType::Short,
            DType::U16 => MTLDataType::UShort,
            DType::I32 => MTLDataType::Int,
            DType::U32 => MTLDataType::UInt,
            DType::I64 => MTLDataType::Long,
            DType::U64 => MTLDataType::ULong,
            DType::F16 => MTLDataType::Half,
            DType::F32 => MTLDataType::Float,
            DType::BF16 | DType::F64 => MTLDataType::None,
        };
        // SAFETY: eight bytes, of which the type has at most as many; Metal copies them.
        unsafe { values.setConstantValue_type_atIndex(NonNull::from(element).cast(), kind, *index as usize) };
    }
    values
}

fn options(language: Language, math: MathMode) -> Retained<MTLCompileOptions> {
    let options = MTLCompileOptions::new();
    options.setLanguageVersion(match language {
        Language::Metal3_0 => MTLLanguageVersion::Version3_0,
        Language::Metal3_1 => MTLLanguageVersion::Version3_1,
        Language::Metal3_2 => MTLLanguageVersion::Version3_2,
        Language::Metal4_0 => MTLLanguageVersion::Version4_0,
    });
    let fast = math == MathMode::Fast;
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
