//! A kernel in Metal's own language: its text, compiled for its device, and what it takes.

use crate::error::{Error, Result};
use crate::kernel::Parameter;
use openmps_runtime::metal::PipelineKey;
use openmps_runtime::metal::arguments::{Kernel, Parameter as Passed};
use openmps_runtime::metal::interface::{Language, MathMode};
use openmps_runtime::{Device, Queue};
use openmps_tile::{DType, Scalar};

/// The text and its parameters.
#[derive(Debug)]
pub(crate) struct Text {
    kernel: Kernel,
    parameters: Vec<Parameter>,
}

impl Text {
    /// Compiles it, so that a text which Metal refuses is an error here.
    pub fn new(
        device: &Device,
        source: &str,
        function: &str,
        threads: [usize; 3],
        parameters: &[Parameter],
    ) -> Result<Text> {
        let kernel = kernel(source, function, threads, parameters);
        if threads.contains(&0) {
            let (got, expected) = (format!("{threads:?}"), "at least 1 along each axis".to_owned());
            return Err(Error::Attribute { operation: "Kernel", attribute: "threads", got, expected });
        }
        device.prepare(&kernel).map_err(|error| match error {
            openmps_runtime::Error::NotMetal { kernel, device } => Error::NotMetal { kernel, device },
            openmps_runtime::Error::Compile { kernel, log } => Error::Msl { kernel, message: log },
            other => Error::Runtime(other),
        })?;
        Ok(Text { kernel, parameters: parameters.to_vec() })
    }

    /// The same with so many bytes at `[[threadgroup(0)]]`.
    pub fn with_threadgroup_memory(&self, bytes: usize) -> Text {
        let kernel = Kernel { threadgroup_memory: bytes, ..self.kernel.clone() };
        Text { kernel, parameters: self.parameters.clone() }
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        self.kernel.name()
    }

    /// Number type of each parameter, by its index; none for a pointer.
    pub fn parameters(&self) -> Vec<(String, Option<Scalar>)> {
        let of = |(index, parameter): (usize, &Parameter)| {
            let number = match *parameter {
                Parameter::Buffer => None,
                Parameter::Number(dtype) => Some(dtype.into()),
            };
            (format!("buffer({index})"), number)
        };
        self.parameters.iter().enumerate().map(of).collect()
    }

    /// # Safety
    /// As for `Kernel::encode_unchecked`.
    pub unsafe fn dispatch(&self, queue: &Queue, grid: [usize; 3], bits: &[u64]) -> Result<()> {
        // SAFETY: passed on to the caller.
        Ok(unsafe { queue.dispatch_text("Kernel", &self.kernel, grid, bits) }?)
    }
}

fn kernel(source: &str, function: &str, threads: [usize; 3], parameters: &[Parameter]) -> Kernel {
    let pass = |(index, parameter): (usize, &Parameter)| match *parameter {
        Parameter::Buffer => Passed::Buffer { index, written: true },
        Parameter::Number(dtype) => Passed::Value { index, size: dtype.size() },
    };
    let uses_bfloat = source.contains("bfloat") || parameters.contains(&Parameter::Number(DType::BF16));
    let pipeline = PipelineKey {
        source: source.into(),
        entry: function.to_owned(),
        math: MathMode::Safe,
        // The oldest language that has what the text uses, so that it compiles on the oldest macOS that can.
        language: if uses_bfloat { Language::Metal3_1 } else { Language::Metal3_0 },
        threads: threads.iter().product(),
    };
    let parameters = parameters.iter().enumerate().map(pass).collect();
    Kernel { pipeline, threads, threadgroup_memory: 0, parameters, numbers: 0 }
}
