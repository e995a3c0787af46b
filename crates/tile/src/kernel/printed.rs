//! What `tt.print` writes: the lines that a GPU's `printf` gives in Triton, each element once.

use super::Print;
use crate::interpret::element;
use crate::types::{Element, Scalar, Type};
use std::fmt::Write;

impl Print {
    /// The lines of a program: `operands` are types and the bits of elements, none where an element is undefined.
    pub fn lines(&self, program: [usize; 3], operands: &[(&Type, &dyn Fn(usize) -> Option<u64>)]) -> String {
        let [x, y, z] = program;
        let mut text = String::new();
        if operands.is_empty() {
            let _ = writeln!(text, "pid ({x}, {y}, {z}){}", self.prefix);
        }
        for (place, (ty, bits)) in operands.iter().enumerate() {
            let label = if operands.len() > 1 { format!("(operand {place}) ") } else { String::new() };
            let is_signed = self.signed.get(place).copied().unwrap_or(false);
            for i in 0..ty.len() {
                let number = bits(i).map_or_else(|| "undefined".to_owned(), |bits| self.element(ty, bits, is_signed));
                let _ =
                    writeln!(text, "pid ({x}, {y}, {z}) idx ({}){}{label}{number}", indices(&ty.dims, i), self.prefix);
            }
        }
        text
    }

    fn element(&self, ty: &Type, bits: u64, is_signed: bool) -> String {
        let Element::Scalar(scalar) = ty.element else { return format!("{bits:#x}") };
        let bits = element::wrap(scalar, bits);
        match scalar {
            _ if self.is_hexadecimal => format!("{bits:#0width$x}", width = 2 + 2 * scalar.size()),
            scalar if scalar.is_float() => {
                let number = element::float(scalar, bits);
                if number.is_nan() { "nan".to_owned() } else { format!("{number:.6}") }
            }
            Scalar::I1 => (bits & 1).to_string(),
            _ if is_signed => element::signed(scalar, bits).to_string(),
            _ => bits.to_string(),
        }
    }
}

/// The indices of an element, as wide as the largest along each axis may be.
fn indices(dims: &[usize], element: usize) -> String {
    let mut left = element;
    let mut texts: Vec<String> = dims
        .iter()
        .rev()
        .map(|&size| {
            let width = size.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize + 1;
            let text = format!("{:width$}", left % size);
            left /= size;
            text
        })
        .collect();
    texts.reverse();
    texts.join(", ")
}
