//! What a text is compiled with besides itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The value of a function constant: Metal's MTLFunctionConstantValues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// `bool`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// `float` or `half`.
    Float(f32),
}

impl Value {
    /// As the language writes it.
    pub(crate) fn text(&self) -> String {
        match self {
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => format!("{value}l"),
            Value::Uint(value) => format!("{value}ul"),
            Value::Float(value) => format!("__builtin_bit_cast(float, {:#x}u)", value.to_bits()),
        }
    }
}

/// What the compiler's time is spent on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Optimisation {
    /// Kernels that run fast.
    #[default]
    Full,
    /// Kernels that are compiled fast: a text of large templates takes a tenth of the time. Results are the same, since every operation
    /// rounds to its type either way.
    None,
}

impl Optimisation {
    /// The compiler's flag.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Optimisation::Full => "-O2",
            Optimisation::None => "-O0",
        }
    }
}

/// Options of [`Library::compile_with`](crate::Library::compile_with).
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Values of function constants, by index.
    pub constants: BTreeMap<u32, Value>,
    /// Folders that `#include "..."` looks in, in order.
    pub include: Vec<PathBuf>,
    /// Macros that are defined beforehand, with their values.
    pub macros: Vec<(String, String)>,
    /// Only these kernels are compiled; all of them where this is empty. A text may declare hundreds.
    pub kernels: Vec<String>,
    /// Functions of numbers take `bfloat` as `float`. Published kernels that run on Macs count on that; without it such a call is refused,
    /// which is the safe choice for kernels of one's own.
    pub bfloat_functions: bool,
    /// The text is of MSL 4.0, which has tensors and `mpp::tensor_ops`.
    pub metal4: bool,
    /// How much the compiler does for speed.
    pub optimisation: Optimisation,
    /// Dispatches count what the kernel does ([`Counters`](crate::Counters)), and take many times as long.
    pub counted: bool,
}
