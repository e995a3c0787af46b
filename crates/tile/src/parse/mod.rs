//! Reads kernels from TTIR, the text that Triton prints of a module. What is not covered is refused by name and source line.
//!
//! `docs/triton.md` has the list of what is covered. Calls of functions are inlined.

mod assembly;
mod branches;
mod combination;
mod comparison;
mod cursor;
mod elementwise;
mod error;
mod function;
mod locations;
mod operations;
mod region;
mod rounding;
mod scaled;
mod small;
mod small_operations;
mod truth;
mod types;
mod waiting;

#[cfg(test)]
mod tests;

pub use error::ParseError;

use crate::kernel::Kernel;
use cursor::Cursor;
use locations::Locations;

/// The longest text that is read; Triton's largest tutorial kernel has 60 KB.
const LONGEST: usize = 16 << 20;

/// Reads a module with one public function, the kernel, and private ones that it calls.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    if text.len() > LONGEST {
        return Err(ParseError::at(text, 0, format!("a module of {} bytes, the most is {LONGEST}", text.len())));
    }
    let locations = Locations::of(text);
    let mut cursor = Cursor::new(text, &locations);
    cursor.skip_until("module")?;
    cursor.expect("module")?;
    if cursor.take("attributes") {
        cursor.skip_braces()?;
    }
    cursor.expect("{")?;
    function::module(&mut cursor)
}
