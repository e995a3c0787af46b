//! The interface below the devices: what a queue asks of the device that it belongs to. One file for each kind of device.

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub mod external;
pub(crate) mod host;
mod machine;
pub(crate) mod metal;
pub(crate) mod recorder;

use crate::command_kind::CommandKind;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::pipeline::Pipeline;
use crate::vendor::VendorCall;
use openmps_metal::PipelineLimits;
use openmps_metal::arguments::Kernel;
use openmps_metal::interface::{Grid, Language};
use std::any::Any;
use std::path::Path;

/// What a device must be able to do. A device that works behind the caller's back keeps the order of each queue,
/// and owes the errors of its commands to the next `finish`.
pub(crate) trait Driver: Send + Sync {
    /// Executes a command, or puts it behind the queue's earlier ones.
    fn submit(&self, queue: u64, command: Command<'_>) -> Result<()>;

    /// Waits until the queue's commands have ended, callbacks included.
    fn finish(&self, queue: u64) -> Result<()>;

    /// Compiles a kernel of Metal's own language, so that what is wrong with it is known before it runs; none on a device that has no such.
    fn prepare(&self, _kernel: &Kernel) -> Option<Result<PipelineLimits>> {
        None
    }

    /// The newest of Metal's languages that the device has, where it has any.
    fn language(&self) -> Option<Language> {
        None
    }

    /// Compiles a text of Metal's own language, and gives the names of its kernels; none on a device that has no such.
    fn text_functions(&self, _source: &str, _language: Language) -> Option<Result<Vec<String>>> {
        None
    }

    /// Begins a capture of a queue's commands into a file of Xcode's.
    fn begin_capture(&self, _queue: u64, _file: &Path) -> Result<()> {
        Err(Error::NoCaptures)
    }

    /// Ends it.
    fn end_capture(&self) {}

    /// Makes the device's form of a kernel, so that what it does not cover is known before the first launch. Of a device that is not told
    /// otherwise that is the host's.
    fn accepts(&self, pipeline: &Pipeline) -> Result<()> {
        planned(pipeline)
    }

    /// Makes a queue's commands go to somebody else's stream.
    fn adopt(&self, _queue: u64, _handle: usize) -> Result<()> {
        Err(Error::NoStreams)
    }

    /// Whether the queue's commands have ended; none where only a further command can tell.
    fn is_idle(&self, _queue: u64) -> Option<bool> {
        None
    }

    /// Whether its vendor's libraries may take calls of operators.
    fn has_engines(&self) -> bool {
        false
    }

    /// How one of them computes this call, in the driver's own form; only then is the call submitted, together with it.
    fn plan(&self, _call: &VendorCall) -> Option<Box<dyn Any>> {
        None
    }

    /// Makes memory of the process known until what this gives is dropped; none where every address is known anyway.
    ///
    /// # Safety
    /// As for `Device::borrow`.
    unsafe fn borrow(&self, _address: usize, _bytes: usize) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        Ok(None)
    }

    /// What its vendor's libraries are known to answer wrongly on this machine, a line each.
    fn wrong_answers(&self) -> Vec<String> {
        Vec::new()
    }

    /// What tells the first error among the queue's commands from here on, in a callback behind them; none where an error is known when its
    /// command has been submitted.
    fn failures(&self, _queue: u64) -> Option<Failures> {
        None
    }

    /// How many command buffers of a queue the device was handed; none where it has no such.
    fn command_buffers(&self, _queue: u64) -> Option<u64> {
        None
    }

    /// The device's own handle of a queue, for programs that order their work with ours.
    fn handle(&self, _queue: u64) -> Option<usize> {
        None
    }
}

/// Makes the host's form of a kernel.
pub(crate) fn planned(pipeline: &Pipeline) -> Result<()> {
    pipeline.program().map(drop).map_err(|source| Error::Kernel { operation: "planning", source })
}

/// What tells the first error among some commands that have ended.
pub(crate) type Failures = Box<dyn FnOnce() -> Option<Error> + Send>;

/// The result of a native kernel.
pub(crate) type NativeResult = std::result::Result<(), openmps_host::Error>;

/// A kernel in Metal's language was given to a device that is not Metal's.
pub(crate) fn no_text(kernel: &str, device: &str) -> Error {
    Error::NotMetal { kernel: kernel.to_string(), device: device.to_string() }
}

/// One command. Addresses were checked by the queue.
pub(crate) enum Command<'a> {
    /// A call that computes (host) or encodes (GPU) when it is called, on the submitting thread.
    Native {
        operation: &'static str,
        detail: &'a dyn Fn() -> String,
        work: &'a mut dyn FnMut() -> NativeResult,
    },
    /// A call that submits commands of its own and computes nothing: it waits for none.
    Submit {
        operation: &'static str,
        work: &'a mut dyn FnMut() -> NativeResult,
    },
    /// A kernel over a grid. Whoever dispatches vouches for the addresses among the arguments.
    Dispatch {
        operation: &'static str,
        pipeline: &'a Pipeline,
        grid: [usize; 3],
        arguments: &'a [u64],
    },
    /// A kernel in Metal's own language, on a device that has it; otherwise as `Dispatch`.
    Text {
        operation: &'static str,
        kernel: &'a Kernel,
        grid: Grid,
        arguments: &'a [u64],
    },
    /// A call of its vendor's libraries, on a device that takes it.
    Vendor {
        operation: &'static str,
        call: &'a VendorCall,
        plan: &'a dyn Any,
    },
    /// Between buffers of this or another device.
    Copy {
        destination: usize,
        source: usize,
        bytes: usize,
    },
    /// From the host; the bytes are the caller's again when `submit` returns.
    Write {
        destination: usize,
        source: &'a [u8],
    },
    /// To the host; waits for what is needed.
    Read {
        destination: &'a mut [u8],
        source: usize,
    },
    Fill {
        address: usize,
        byte: u8,
        bytes: usize,
    },
    Record(&'a Event),
    Wait(&'a Event),
    Callback(Box<dyn FnOnce() + Send>),
}

impl Command<'_> {
    /// What the command is counted as.
    #[inline]
    pub fn kind(&self) -> CommandKind {
        match self {
            Command::Native { .. } | Command::Submit { .. } => CommandKind::Native,
            Command::Dispatch { .. } | Command::Text { .. } => CommandKind::Dispatch,
            Command::Vendor { .. } => CommandKind::Vendor,
            Command::Copy { .. } => CommandKind::Copy,
            Command::Write { .. } => CommandKind::Write,
            Command::Read { .. } => CommandKind::Read,
            Command::Fill { .. } => CommandKind::Fill,
            Command::Record(_) => CommandKind::Record,
            Command::Wait(_) => CommandKind::Wait,
            Command::Callback(_) => CommandKind::Callback,
        }
    }

    /// The operation's name for traces and errors.
    pub fn operation(&self) -> &'static str {
        match self {
            Command::Native { operation, .. }
            | Command::Submit { operation, .. }
            | Command::Dispatch { operation, .. }
            | Command::Text { operation, .. }
            | Command::Vendor { operation, .. } => operation,
            other => other.kind().name(),
        }
    }

    /// What a trace says beyond the name: shapes, sizes, addresses.
    pub fn detail(&self) -> String {
        match self {
            Command::Native { detail, .. } => detail(),
            Command::Vendor { call, .. } => call.detail(),
            Command::Copy { destination, source, bytes } => format!("{bytes} bytes {source:#x} -> {destination:#x}"),
            Command::Dispatch { grid, arguments, .. } => format!("grid {grid:?}, {} arguments", arguments.len()),
            Command::Text { grid, arguments, .. } => format!("grid {grid:?}, {} arguments", arguments.len()),
            Command::Write { destination, source } => format!("{} bytes -> {destination:#x}", source.len()),
            Command::Read { destination, source } => format!("{} bytes {source:#x} ->", destination.len()),
            Command::Fill { address, byte, bytes } => format!("{bytes} bytes of {byte:#04x} at {address:#x}"),
            Command::Submit { .. } | Command::Record(_) | Command::Wait(_) | Command::Callback(_) => String::new(),
        }
    }

    /// The bytes that the command moves, where it says so.
    pub fn bytes(&self) -> Option<usize> {
        match self {
            Command::Copy { bytes, .. } | Command::Fill { bytes, .. } => Some(*bytes),
            Command::Write { source, .. } => Some(source.len()),
            Command::Read { destination, .. } => Some(destination.len()),
            _ => None,
        }
    }
}

/// What a device says to a call of a library that it does not have: the queue asks before.
pub(crate) fn not_taken(operation: &'static str, device: &str) -> Error {
    Error::Unsupported { operation, device: device.to_string() }
}
