//! What can go wrong with a kernel, one variant a cause.

use crate::limits::Limit;

/// Why a text was not compiled or a dispatch not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No clang was found.
    #[error(
        "the emulator needs a clang for the Metal Shading Language, and none was found: `pip install ziglang` installs one, as `cargo xtask \
         setup` does into .venv; or name a clang of version 19 or newer in OPENMPS_CLANG. Looked at: {looked_at}"
    )]
    NoCompiler {
        /// Places, separated by commas.
        looked_at: String,
    },
    /// A program of the tool chain could not be run, or failed other than over the text.
    #[error("{program}: {reason}")]
    Toolchain {
        /// The compiler's path.
        program: String,
        /// What it said.
        reason: String,
    },
    /// The folder for compiled objects is one that others can change: what lies there would be run.
    #[error(
        "the emulator keeps what it has compiled in a folder of the user's own, and found none; name one in OPENMPS_EMULATOR_CACHE: {reason}"
    )]
    UntrustedCache {
        /// The folder, and what is wrong with it.
        reason: String,
    },
    /// The compiler refused the text. Lines and columns are those of the text.
    #[error("the kernels were not compiled:\n{diagnostics}")]
    Compile {
        /// The compiler's diagnostics.
        diagnostics: String,
    },
    /// A pointer or reference without address space, or a conversion from `device` to `constant`.
    #[error("program_source:{line}: {what}")]
    AddressSpace {
        /// Line of the text.
        line: u32,
        /// The declaration or conversion.
        what: String,
    },
    /// A kernel's signature that the emulator cannot fill.
    #[error("program_source:{line}: kernel {kernel}: {what}")]
    Signature {
        /// The kernel.
        kernel: String,
        /// Line of the text.
        line: u32,
        /// What is wrong or not covered.
        what: String,
    },
    /// The library has no such kernel.
    #[error("there is no kernel {name}; there are: {known}")]
    UnknownFunction {
        /// The name asked for.
        name: String,
        /// Names, separated by commas.
        known: String,
    },
    /// The text declares function constants that were given no value. Which kernel needs which is not looked at.
    #[error("kernel {kernel}: no value was given for the function constants {constants}")]
    UnsetConstants {
        /// The kernel asked for.
        kernel: String,
        /// Indices and names, separated by commas.
        constants: String,
    },
    /// One of Metal's limits.
    #[error("kernel {kernel}: {limit}")]
    Limit {
        /// The kernel.
        kernel: String,
        /// Which, and by how much.
        limit: Limit,
    },
    /// A buffer that the kernel declares was not given.
    #[error("kernel {kernel}: no argument was given for buffer({index}), `{declaration}`")]
    MissingArgument {
        /// The kernel.
        kernel: String,
        /// The buffer's index.
        index: u32,
        /// The parameter's type.
        declaration: String,
    },
    /// Bytes shorter than what the kernel reads by reference.
    #[error("kernel {kernel}: buffer({index}), `{declaration}`, takes {needed} bytes; {given} were given")]
    ShortArgument {
        /// The kernel.
        kernel: String,
        /// The buffer's index.
        index: u32,
        /// The parameter's type.
        declaration: String,
        /// Bytes of the type.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// Threadgroup memory that the kernel declares as a parameter was not given a length.
    #[error("kernel {kernel}: no length was given for threadgroup({index})")]
    MissingThreadgroupMemory {
        /// The kernel.
        kernel: String,
        /// The parameter's index.
        index: u32,
    },
    /// A barrier that not all threads reach, or that they do not reach at the same place.
    #[error(
        "kernel {kernel}, threadgroup {threadgroup:?}: {arrived} of {threads} threads wait at the barrier of line {line}, {finished} have \
         finished, {elsewhere} wait elsewhere"
    )]
    DivergentBarrier {
        /// The kernel.
        kernel: String,
        /// Position of the threadgroup in the grid.
        threadgroup: [u32; 3],
        /// Line of the text.
        line: u32,
        /// Threads at this barrier.
        arrived: u32,
        /// Threads that are over.
        finished: u32,
        /// Threads at another barrier or operation.
        elsewhere: u32,
        /// Threads concerned: of the threadgroup, or of the simdgroup for a simdgroup_barrier or a matrix operation.
        threads: u32,
    },
    /// The kernel read or wrote where nothing is, or divided an integer by zero.
    #[error("kernel {kernel}, threadgroup {threadgroup:?}, thread {thread}: {what}")]
    Fault {
        /// The kernel.
        kernel: String,
        /// Position of the threadgroup in the grid.
        threadgroup: [u32; 3],
        /// Index of the thread in its threadgroup.
        thread: u32,
        /// The fault.
        what: String,
    },
    /// The kernel did not end in time.
    #[error("kernel {kernel}, threadgroup {threadgroup:?}, thread {thread}: still running after {seconds} s")]
    Runaway {
        /// The kernel.
        kernel: String,
        /// Position of the threadgroup in the grid.
        threadgroup: [u32; 3],
        /// Index of the thread in its threadgroup.
        thread: u32,
        /// The limit.
        seconds: f64,
    },
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
