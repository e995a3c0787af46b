//! Kernels of the user's own, written in tiles: what `MTLComputePipelineState` is for Metal's language.

use crate::buffer::{Access, Buffer};
use crate::encode::{Resource, encode};
use crate::error::{Error, Result};
use crate::multiplication::check_device;
use openmps_host::Program;
use openmps_runtime::{CommandBuffer, Device};
use openmps_tile::{Builder, HostMemory, Scalar, bf16, f16, interpret, verify};
use std::sync::Arc;

/// One argument of a kernel.
///
/// ```
/// use openmps::{Argument, Buffer, Device};
/// let buffer = Buffer::new(&Device::get(0)?, 16)?;
/// let arguments = [Argument::Read(&buffer, 0), Argument::Integer(4), Argument::Float(0.5)];
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A buffer from this byte on, for a pointer that is only loaded from.
    Read(&'a Buffer, usize),
    /// A buffer from this byte on, for a pointer that is stored to.
    Write(&'a Buffer, usize),
    /// An integer.
    Integer(i64),
    /// A number, rounded to the parameter's type.
    Float(f64),
}

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
    kernel: Arc<openmps_tile::Kernel>,
    program: Arc<Program>,
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
        let name = || kernel.name.clone();
        verify(&kernel).map_err(|source| Error::Unverified { kernel: name(), source })?;
        let program = Program::new(&kernel).map_err(|source| Error::Compile { kernel: name(), source })?;
        Ok(Kernel { device: device.clone(), kernel: Arc::new(kernel), program: Arc::new(program) })
    }

    /// Its name.
    ///
    /// ```
    /// use openmps::{Device, Kernel};
    /// assert_eq!(Kernel::from_tiles(&Device::get(0)?, "nothing", |_| ())?.name(), "nothing");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.kernel.name
    }

    /// Encodes it for each point of a grid, every access checked: one that leaves the argument's buffers, or writes to one given to read,
    /// is the command buffer's error. Checking means interpreting: for tests and small work.
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
        let Bound { bits, resources } = self.bind(command_buffer, arguments)?;
        let kernel = self.kernel.clone();
        let ranges: Vec<_> = resources.iter().map(|one| (one.buffer.clone(), one.access)).collect();
        encode(command_buffer, "Kernel", resources, move |_| {
            let name = || kernel.name.clone();
            let verified = verify(&kernel).map_err(|source| Error::Unverified { kernel: name(), source })?;
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
            Ok(interpret(verified, grid, &bits, &mut memory)?)
        })
    }

    /// Encodes it as compiled: vectorised, on several threads, nothing checked.
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
        grid: [usize; 3],
        arguments: &[Argument],
    ) -> Result<()> {
        let Bound { bits, resources } = self.bind(command_buffer, arguments)?;
        let program = self.program.clone();
        encode(command_buffer, "Kernel", resources, move |_| {
            // SAFETY: the caller vouches for the addresses, and the command holds the buffers' locks.
            let ran = unsafe { program.run(grid, &bits) };
            ran.map_err(|source| Error::Compile { kernel: program.name().to_owned(), source })
        })
    }

    fn bind(&self, command_buffer: &CommandBuffer, arguments: &[Argument]) -> Result<Bound> {
        check_device("Kernel", &self.device, command_buffer)?;
        let parameters = &self.kernel.parameters;
        let refused = |index: usize, got: String, expected: String| {
            let name = parameters.get(index).map_or_else(String::new, |parameter| parameter.name.clone());
            Error::Argument { kernel: self.kernel.name.clone(), index, name, got, expected }
        };
        if arguments.len() != parameters.len() {
            let (got, expected) = (format!("one of {}", arguments.len()), format!("{} arguments", parameters.len()));
            return Err(refused(arguments.len().min(parameters.len()), got, expected));
        }
        let mut bound = Bound { bits: Vec::new(), resources: Vec::new() };
        for (index, (argument, parameter)) in arguments.iter().zip(parameters).enumerate() {
            let ty = self.kernel.type_of(parameter.value);
            let bits = match (*argument, ty.number()) {
                (Argument::Read(buffer, offset) | Argument::Write(buffer, offset), None) => {
                    buffer.check_range(offset, 0)?;
                    let access = if matches!(argument, Argument::Read(..)) { Access::Read } else { Access::Write };
                    let range = (offset, buffer.len() - offset);
                    bound.resources.push(Resource { what: "an argument", buffer: buffer.clone(), access, range });
                    buffer.address(offset) as u64
                }
                (Argument::Integer(value), Some(scalar)) if !scalar.is_float() => value as u64,
                (Argument::Float(value), Some(scalar)) if scalar.is_float() => float_bits(value, scalar),
                _ => return Err(refused(index, format!("{argument:?}"), format!("{ty:?}"))),
            };
            bound.bits.push(bits);
        }
        Ok(bound)
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
