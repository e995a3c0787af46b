//! Kernels of the user's own: written in tiles for every device, or in Metal's language for Metal's. `MTLComputePipelineState`.

use crate::argument::{Argument, Takes, check_integer, check_offset};
use crate::buffer::{Access, Buffer};
use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::encode::{Resource, encode};
use crate::error::{Error, Result};
use crate::kernel_text::{FunctionConstant, Text};
use crate::multiplication::check_device;
use openmps_runtime::metal::interface::Grid;
use openmps_runtime::{Pipeline, Queue};
use openmps_tile::{Builder, DType, HostMemory, Scalar, bf16, f16, interpret};
use std::sync::Arc;

/// A compiled kernel: a program over tiles that runs for each point of a grid.
///
/// ```
/// use openmps::tile::{Scalar, Type};
/// use openmps::{Argument, Buffer, Device, Kernel};
/// let device = Device::get(0)?;
/// let double = Kernel::from_tiles(&device, "double", |b| {
///     let pointer = b.parameter("x", Type::pointer(Scalar::F32));
///     let places = b.range(4);
///     let pointers = b.add_pointer(pointer, places);
///     let x = b.load(pointers, None, None);
///     let sum = b.add(x, x);
///     b.store(pointers, sum, None);
/// })?;
/// let buffer = Buffer::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0])?;
/// let command_buffer = device.queue().command_buffer();
/// double.encode(&command_buffer, [1, 1, 1], &[Argument::Write(&buffer, 0)])?;
/// command_buffer.commit()?;
/// command_buffer.wait_until_completed()?;
/// assert_eq!(buffer.read::<f32>(0, 4)?, [2.0, 4.0, 6.0, 8.0]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Kernel {
    device: Device,
    form: Form,
}

/// What it is written in.
#[derive(Clone, Debug)]
enum Form {
    Tiles(Arc<Pipeline>),
    Text(Arc<Text>),
}

/// What a kernel of Metal's own language takes at one index of its argument table.
///
/// ```
/// use openmps::{DataType, Parameter};
/// let parameters = [Parameter::Buffer, Parameter::Number(DataType::F32)];
/// assert_eq!(parameters[1].to_string(), "a number of float32");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// `device T* x [[buffer(i)]]`
    Buffer,
    /// `constant T& x [[buffer(i)]]`
    Number(DType),
}

impl std::fmt::Display for Parameter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Parameter::Buffer => out.write_str("a buffer"),
            Parameter::Number(dtype) => write!(out, "a number of {dtype}"),
        }
    }
}

/// The arguments as a kernel takes them, and the memory behind them.
struct Bound {
    bits: Vec<u64>,
    resources: Vec<Resource>,
}

impl Kernel {
    /// Compiles the kernel that `build` makes.
    ///
    /// ```
    /// use openmps::{Device, Kernel};
    /// let empty = Kernel::from_tiles(&Device::get(0)?, "empty", |_| ())?;
    /// assert_eq!(empty.name(), "empty");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_tiles(device: &Device, name: &str, build: impl FnOnce(&mut Builder)) -> Result<Kernel> {
        let mut builder = Builder::new(name);
        build(&mut builder);
        Kernel::new(device, builder.finish())
    }

    /// Compiles a kernel written in the Metal Shading Language, on Metal's devices: `newLibraryWithSource:options:error:`,
    /// `newFunctionWithName:`. Argument i of the function has `[[buffer(i)]]`; `threads` are those of a threadgroup. Elsewhere this is
    /// [`Error::NotMetal`]; a text that Metal's compiler refuses is [`Error::Msl`].
    ///
    /// ```
    /// use openmps::{DataType, Device, Error, Kernel, Parameter};
    /// let text = "#include <metal_stdlib>
    /// kernel void scale(device float* x [[buffer(0)]], constant float& by [[buffer(1)]],
    ///                   uint i [[thread_position_in_grid]]) { x[i] *= by; }";
    /// let parameters = [Parameter::Buffer, Parameter::Number(DataType::F32)];
    /// let made = Kernel::from_msl(&Device::get(0)?, text, "scale", [64, 1, 1], &parameters);
    /// # if Device::get(0)?.properties().backend == openmps::runtime::Backend::Host {
    /// assert!(matches!(made, Err(Error::NotMetal { .. })), "the host is no Metal device");
    /// # }
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_msl(
        device: &Device,
        source: &str,
        function: &str,
        threads: [usize; 3],
        parameters: &[Parameter],
    ) -> Result<Kernel> {
        Kernel::from_msl_with(device, source, function, threads, parameters, &[])
    }

    /// The same with values for the text's function constants: `newFunctionWithName:constantValues:error:`. One that the text declares and
    /// that has no value is refused by Metal's compiler: [`Error::Msl`].
    ///
    /// ```
    /// use openmps::{Device, Error, FunctionConstant, Kernel, Parameter};
    /// let text = "#include <metal_stdlib>
    /// constant float by [[function_constant(0)]];
    /// kernel void scale(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= by; }";
    /// let constants = [FunctionConstant::new(0, 0.5f32)];
    /// let made = Kernel::from_msl_with(&Device::host(0)?, text, "scale", [64, 1, 1], &[Parameter::Buffer], &constants);
    /// assert!(matches!(made, Err(Error::NotMetal { .. })), "the host is no Metal device");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_msl_with(
        device: &Device,
        source: &str,
        function: &str,
        threads: [usize; 3],
        parameters: &[Parameter],
        constants: &[FunctionConstant],
    ) -> Result<Kernel> {
        let text = Text::new(device, source, function, threads, parameters, constants)?;
        Ok(Kernel { device: device.clone(), form: Form::Text(Arc::new(text)) })
    }

    /// The same with so many bytes of memory for each threadgroup at `[[threadgroup(0)]]`, `[[threadgroup(1)]]` and so on:
    /// `setThreadgroupMemoryLength:atIndex:`. A kernel of tiles knows what it needs itself, and is refused.
    ///
    /// ```
    /// use openmps::{Device, Error, Kernel};
    /// let tiles = Kernel::from_tiles(&Device::get(0)?, "nothing", |_| {})?;
    /// assert!(matches!(tiles.with_threadgroup_memory(&[256]), Err(Error::Attribute { .. })));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn with_threadgroup_memory(&self, bytes: &[usize]) -> Result<Kernel> {
        let expected = match &self.form {
            Form::Text(text) if bytes.iter().all(|bytes| bytes.is_multiple_of(16)) => {
                let form = Form::Text(Arc::new(text.with_threadgroup_memory(bytes)));
                return Ok(Kernel { device: self.device.clone(), form });
            }
            Form::Text(_) => "multiples of 16 bytes",
            Form::Tiles(_) => "none, for a kernel of tiles",
        };
        let (got, expected) = (format!("{bytes:?}"), expected.to_owned());
        Err(Error::Attribute { operation: "Kernel", attribute: "threadgroup memory", got, expected })
    }

    /// Verifies and compiles a kernel: [`Error::Unverified`], [`Error::Compile`].
    ///
    /// ```
    /// use openmps::{Device, Kernel, tile};
    /// let text = "tt.func @f(%x: !tt.ptr<f32>) { tt.return }";
    /// if let Ok(kernel) = tile::parse(text) {
    ///     Kernel::new(&Device::get(0)?, kernel)?;
    /// }
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(device: &Device, kernel: openmps_tile::Kernel) -> Result<Kernel> {
        let name = kernel.name.clone();
        let pipeline = Pipeline::new(kernel).map_err(|source| Error::Unverified { kernel: name.clone(), source })?;
        // What the interpreter and every device's compiler share is known now; the rest when a device first runs it.
        pipeline.program().map_err(|source| Error::Compile { kernel: name, source })?;
        Ok(Kernel { device: device.clone(), form: Form::Tiles(Arc::new(pipeline)) })
    }

    /// Its name.
    ///
    /// ```
    /// use openmps::{Device, Kernel};
    /// assert_eq!(Kernel::from_tiles(&Device::get(0)?, "nothing", |_| ())?.name(), "nothing");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        match &self.form {
            Form::Tiles(pipeline) => pipeline.name(),
            Form::Text(text) => text.name(),
        }
    }

    /// Encodes it for each point of a grid, every access checked: one that leaves the argument's buffers, or writes to one given to read,
    /// is the command buffer's error. Checking means interpreting: for tests and small work. A kernel in Metal's language is
    /// [`Error::Unchecked`].
    ///
    /// ```
    /// use openmps::tile::{Scalar, Type};
    /// use openmps::{Argument, Buffer, Device, Kernel};
    /// let device = Device::get(0)?;
    /// let kernel = Kernel::from_tiles(&device, "wild", |b| {
    ///     let pointer = b.parameter("x", Type::pointer(Scalar::I32));
    ///     let places = b.range(8);
    ///     let pointers = b.add_pointer(pointer, places);
    ///     b.load(pointers, None, None);
    /// })?;
    /// let small = Buffer::new(&device, 16)?;
    /// let command_buffer = device.queue().command_buffer();
    /// kernel.encode(&command_buffer, [1, 1, 1], &[Argument::Read(&small, 0)])?;
    /// command_buffer.commit()?;
    /// assert!(command_buffer.wait_until_completed().is_err());
    /// # assert!(device.queue().synchronize().is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn encode(&self, command_buffer: &CommandBuffer, grid: [usize; 3], arguments: &[Argument]) -> Result<()> {
        let Form::Tiles(pipeline) = &self.form else {
            return Err(Error::Unchecked { kernel: self.name().to_owned() });
        };
        let Bound { bits, resources } = self.bind(command_buffer, arguments)?;
        let pipeline = pipeline.clone();
        let ranges: Vec<_> = resources.iter().map(|one| (one.buffer.clone(), one.access)).collect();
        let run = move || -> Result<()> {
            let mut memory = HostMemory::new();
            let mut seen: Vec<&Buffer> = Vec::new();
            for (buffer, access) in &ranges {
                if seen.iter().any(|other| other.is_same(buffer)) {
                    continue;
                }
                seen.push(buffer);
                let (address, length) = (buffer.address(0), buffer.len());
                let written =
                    *access == Access::Write || ranges.iter().any(|(b, a)| b.is_same(buffer) && *a == Access::Write);
                // SAFETY: the command holds the lock of every buffer, for writing where `written`; each is registered once.
                unsafe {
                    if written {
                        memory.register(std::slice::from_raw_parts_mut(address as *mut u8, length));
                    } else {
                        memory.register_read_only(std::slice::from_raw_parts(address as *const u8, length));
                    }
                }
            }
            Ok(interpret(pipeline.verified(), grid, &bits, &mut memory)?)
        };
        encode(command_buffer, "Kernel", resources, move |queue| {
            // The CPU interprets it, when the device has ended what came before.
            Ok(queue.run_native("Kernel", || run().map_err(openmps_host::Error::from))?)
        })
    }

    /// Encodes it as compiled for the device, nothing checked. Numbers count programs, or threadgroups; a [`Grid`] may count the threads of a
    /// kernel in Metal's language.
    ///
    /// # Safety
    /// Under these arguments every address that the kernel loads from or stores to lies in the arguments' buffers, those given to read are
    /// not stored to, and no program of the grid stores where another one loads or stores.
    ///
    /// ```
    /// use openmps::tile::{Scalar, Type};
    /// use openmps::{Argument, Buffer, Device, Kernel};
    /// let device = Device::get(0)?;
    /// let fill = Kernel::from_tiles(&device, "fill", |b| {
    ///     let pointer = b.parameter("x", Type::pointer(Scalar::I32));
    ///     let value = b.parameter("value", Type::scalar(Scalar::I32));
    ///     b.store(pointer, value, None);
    /// })?;
    /// let buffer = Buffer::new(&device, 4)?;
    /// let command_buffer = device.queue().command_buffer();
    /// // SAFETY: one element is stored, and the buffer has one.
    /// unsafe { fill.encode_unchecked(&command_buffer, [1, 1, 1], &[Argument::Write(&buffer, 0), Argument::Integer(7)])? };
    /// command_buffer.commit()?;
    /// command_buffer.wait_until_completed()?;
    /// assert_eq!(buffer.read::<i32>(0, 1)?, [7]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub unsafe fn encode_unchecked(
        &self,
        command_buffer: &CommandBuffer,
        grid: impl Into<Grid>,
        arguments: &[Argument],
    ) -> Result<()> {
        let grid = self.form.grid(grid.into())?;
        let Bound { bits, resources } = self.bind(command_buffer, arguments)?;
        let form = self.form.clone();
        encode(command_buffer, "Kernel", resources, move |queue| {
            // SAFETY: the caller vouches for the addresses, and the command holds the buffers' locks until its work has ended.
            unsafe { form.dispatch(queue, grid, &bits) }
        })
    }

    fn bind(&self, command_buffer: &CommandBuffer, arguments: &[Argument]) -> Result<Bound> {
        check_device("Kernel", &self.device, command_buffer)?;
        let parameters = self.form.parameters();
        let refused = |index: usize, got: String, expected: String| {
            let name = parameters.get(index).map_or_else(String::new, |(name, _)| name.clone());
            Error::Argument { kernel: self.name().to_owned(), index, name, got, expected }
        };
        if arguments.len() != parameters.len() {
            let (got, expected) = (format!("one of {}", arguments.len()), format!("{} arguments", parameters.len()));
            return Err(refused(arguments.len().min(parameters.len()), got, expected));
        }
        let mut bound = Bound { bits: Vec::new(), resources: Vec::new() };
        for (index, (argument, (_, takes))) in arguments.iter().zip(&parameters).enumerate() {
            let bits = match (*argument, *takes) {
                (Argument::Read(buffer, offset) | Argument::Write(buffer, offset), Takes::Buffer(target)) => {
                    check_offset(buffer, offset, target).map_err(|(got, expected)| refused(index, got, expected))?;
                    let access = if matches!(argument, Argument::Read(..)) { Access::Read } else { Access::Write };
                    let range = (offset, buffer.len() - offset);
                    bound.resources.push(Resource { what: "an argument", buffer: buffer.clone(), access, range });
                    buffer.address(offset) as u64
                }
                (Argument::Integer(value), Takes::Number(scalar)) if !scalar.is_float() => {
                    check_integer(value, scalar).map_err(|(got, expected)| refused(index, got, expected))?;
                    value as u64
                }
                (Argument::Float(value), Takes::Number(scalar)) if scalar.is_float() => float_bits(value, scalar),
                _ => return Err(refused(index, format!("{argument:?}"), takes.describe())),
            };
            bound.bits.push(bits);
        }
        Ok(bound)
    }
}

impl Form {
    /// Name of each parameter, and what it takes.
    fn parameters(&self) -> Vec<(String, Takes)> {
        match self {
            Form::Tiles(pipeline) => {
                let kernel = pipeline.kernel();
                let of = |parameter: &openmps_tile::kernel::Parameter| {
                    let of = kernel.type_of(parameter.value);
                    (parameter.name.clone(), of.number().map_or(Takes::Buffer(of.target()), Takes::Number))
                };
                kernel.parameters.iter().map(of).collect()
            }
            Form::Text(text) => {
                let of = |(name, number): (String, Option<Scalar>)| {
                    (name, number.map_or(Takes::Buffer(None), Takes::Number))
                };
                text.parameters().into_iter().map(of).collect()
            }
        }
    }

    /// The grid, where the kernel has threads to count.
    fn grid(&self, grid: Grid) -> Result<Grid> {
        match (self, grid) {
            (Form::Tiles(_), Grid::Threads(_)) => {
                let (got, expected) = (format!("{grid:?}"), "programs, for a kernel of tiles".to_owned());
                Err(Error::Attribute { operation: "Kernel", attribute: "grid", got, expected })
            }
            _ => Ok(grid),
        }
    }

    /// # Safety
    /// As for [`Kernel::encode_unchecked`].
    unsafe fn dispatch(&self, queue: &Queue, grid: Grid, bits: &[u64]) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                // A program is a threadgroup, whatever threads its compiled form has.
                Form::Tiles(pipeline) => Ok(queue.dispatch("Kernel", pipeline, grid.threadgroups([1; 3]), bits)?),
                Form::Text(text) => text.dispatch(queue, grid, bits),
            }
        }
    }
}

fn float_bits(value: f64, scalar: Scalar) -> u64 {
    match scalar {
        Scalar::F16 => f16::from_f64(value).to_bits().into(),
        Scalar::BF16 => bf16::from_f64(value).to_bits().into(),
        Scalar::F32 => (value as f32).to_bits().into(),
        _ => value.to_bits(),
    }
}
