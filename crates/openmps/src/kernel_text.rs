//! A kernel in Metal's own language: its text, compiled for its device, and what it takes.

use crate::data_type::{Element, bytes_of};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::Parameter;
use openmps_runtime::Queue;
use openmps_runtime::metal::arguments::{Kernel, Parameter as Passed};
use openmps_runtime::metal::interface::{FunctionConstant as Value, Grid};
use openmps_tile::{DType, Scalar};

/// A value for `constant T x [[function_constant(index)]]` of a kernel of Metal's language: `MTLFunctionConstantValues`.
///
/// ```
/// let depth = openmps::FunctionConstant::new(3, 64u32);
/// assert_eq!(depth, openmps::FunctionConstant::new(3, 64u32));
/// assert_ne!(depth, openmps::FunctionConstant::flag(3, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionConstant(Value);

impl FunctionConstant {
    /// A number of the type that the text gives the constant. Metal has none of float64 and bfloat16, and a kernel refuses them.
    ///
    /// ```
    /// openmps::FunctionConstant::new(0, 0.5f32);
    /// ```
    pub fn new<T: Element>(index: u32, value: T) -> FunctionConstant {
        let mut element = [0; 8];
        element[..size_of::<T>()].copy_from_slice(bytes_of(&[value]));
        FunctionConstant(Value { index, dtype: T::DATA_TYPE, element })
    }

    /// A `bool`.
    ///
    /// ```
    /// openmps::FunctionConstant::flag(1, true);
    /// ```
    pub fn flag(index: u32, value: bool) -> FunctionConstant {
        FunctionConstant(Value { index, dtype: DType::Bool, element: [value.into(), 0, 0, 0, 0, 0, 0, 0] })
    }

    fn element(&self) -> Result<Value> {
        match self.0.dtype {
            DType::F64 | DType::BF16 => {
                let (got, expected) = (self.0.dtype, "a type that Metal has constants of".to_owned());
                Err(Error::DataType { operation: "Kernel", what: "a function constant", got, expected })
            }
            _ => Ok(self.0),
        }
    }
}

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
        constants: &[FunctionConstant],
    ) -> Result<Text> {
        let passed = parameters.iter().enumerate().map(passed).collect();
        let mut kernel = Kernel::of_text(source, function, device.runtime().language_of(source), Some(threads), passed);
        kernel.pipeline.constants = constants.iter().map(FunctionConstant::element).collect::<Result<_>>()?;
        if threads.contains(&0) {
            let (got, expected) = (format!("{threads:?}"), "at least 1 along each axis".to_owned());
            return Err(Error::Attribute { operation: "Kernel", attribute: "threads", got, expected });
        }
        device.runtime().prepare(&kernel).map(drop).map_err(|error| match error {
            openmps_runtime::Error::NotMetal { kernel, device } => Error::NotMetal { kernel, device },
            openmps_runtime::Error::Compile { kernel, log } => Error::Msl { kernel, message: log },
            other => Error::Runtime(other),
        })?;
        Ok(Text { kernel, parameters: parameters.to_vec() })
    }

    /// The same with so many bytes at `[[threadgroup(0)]]` and so on.
    pub fn with_threadgroup_memory(&self, bytes: &[usize]) -> Text {
        let kernel = Kernel { threadgroup_memory: bytes.to_vec(), ..self.kernel.clone() };
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
    pub unsafe fn dispatch(&self, queue: &Queue, grid: Grid, bits: &[u64]) -> Result<()> {
        // SAFETY: passed on to the caller.
        Ok(unsafe { queue.dispatch_text("Kernel", &self.kernel, grid, bits) }?)
    }
}

/// What the argument table takes at an index.
fn passed((index, parameter): (usize, &Parameter)) -> Passed {
    match *parameter {
        Parameter::Buffer => Passed::Buffer { index, written: true },
        Parameter::Number(dtype) => Passed::Value { index, size: dtype.size() },
    }
}
