//! Reads kernels from TTIR, the text that Triton prints of a module. What is not covered is refused by name and source line.
//!
//! Covered are straight-line programs and `scf.for` over the operations of this language; see `docs/triton.md` for the list.

mod cursor;
mod error;
mod function;
mod locations;
mod operations;
mod types;

#[cfg(test)]
mod tests;

pub use error::ParseError;

use crate::kernel::Kernel;
use cursor::Cursor;
use locations::Locations;

/// The longest text that is read; Triton's largest tutorial kernel has 60 KB.
const LONGEST: usize = 16 << 20;

/// Reads a module with one public function.
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
    let kernel = function::function(&mut cursor)?;
    if cursor.looking_at("tt.func") {
        return Err(cursor.refuse("tt.func", "a second function: run Triton's inliner before"));
    }
    cursor.expect("}")?;
    Ok(kernel)
}
