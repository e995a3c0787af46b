//! What a device can refuse or fail at; every message carries the values concerned.

/// The result of a device's call.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that a device could not carry out.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Error {
    #[error("no device: {why}")]
    NoDevices { why: String },
    #[error("device {index} does not exist: this machine has {count}")]
    NoSuchDevice { index: i64, count: usize },
    #[error(
        "out of memory on device {device}: {requested} bytes were asked for, {allocated} are allocated, {reserved} reserved, \
         the limit is {limit}"
    )]
    OutOfMemory { device: usize, requested: usize, allocated: usize, reserved: usize, limit: usize },
    #[error("address {address:#x} with {bytes} bytes lies in no buffer of device {device}")]
    UnknownAddress { device: usize, address: usize, bytes: usize },
    #[error("address {address:#x} cannot be freed on device {device}: {why}")]
    NotAllocated { device: usize, address: usize, why: &'static str },
    #[error("{operation} failed: {source}")]
    Kernel { operation: &'static str, source: openmps_host::Error },
    /// A driver's or compiler's own refusal, in its words.
    #[error("{device}: {message}")]
    Driver { device: &'static str, message: String },
    #[error("{kernel}: {found} arguments, expected {expected}")]
    ArgumentCount { kernel: String, found: usize, expected: usize },
    /// A kernel was made for multiples of a number (`tt.divisibility`) and may read wrongly otherwise.
    #[error(
        "{kernel}: argument `{argument}` is {value}, which {divisor} does not divide; the kernel was made for its multiples"
    )]
    NotDivisible { kernel: String, argument: String, value: u64, divisor: u32 },
    #[error("kernel `{kernel}` does not compile: {log}")]
    Compile { kernel: String, log: String },
    #[error("kernel `{kernel}` is written in Metal's language, which {device} does not run")]
    NotMetal { kernel: String, device: String },
    /// A stream was given to a device that has none.
    #[error("the device has no streams")]
    NoStreams,
    /// A capture for Xcode was asked of a device that is none of Apple's.
    #[error("the device has no captures")]
    NoCaptures,
    #[error(transparent)]
    Codegen(openmps_codegen::CodegenError),
    /// What `OPENMPS_SANITIZE` found, and what is known of the memory concerned.
    #[error("OPENMPS_SANITIZE: {found}{hint}")]
    Sanitizer { found: openmps_tile::InterpretError, hint: String },
    #[error("{operation} panicked: {message}")]
    Panicked { operation: &'static str, message: String },
    /// A command's error that was kept and is delivered at a synchronisation. Further ones are only counted.
    #[error("a command on queue {queue} of device {device} failed: {message} ({further} further errors)")]
    Deferred { device: usize, queue: u64, message: String, further: usize },
    #[error("{operation} is not supported by {device}")]
    Unsupported { operation: &'static str, device: String },
    #[error("{operation}: the command buffer is {status}")]
    CommandBuffer { operation: &'static str, status: &'static str },
    #[error("elapsed time needs both events recorded: {which} was not")]
    NotRecorded { which: &'static str },
    #[error("tracing: {what}")]
    Tracing { what: String },
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}
