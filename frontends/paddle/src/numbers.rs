//! The elements of small tensors on the host: sizes, labels, repeats.

use crate::Context;
use crate::error::Result;
use openmps_graph::{DType, View};
use openmps_tile::{bf16, f16};

/// An element of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// As a floating-point number.
    pub float: f64,
    /// As an integer: exact where the tensor's type is one.
    pub integer: i64,
}

impl Context {
    /// All elements of a tensor, in order, when the commands before have ended. A dense one may be in the device's memory or the
    /// host's; one with strides of its own is the device's.
    pub fn elements(&self, x: &View) -> Result<Vec<Element>> {
        let bytes = self.bytes(x)?;
        Ok(bytes.chunks_exact(x.dtype.size()).map(|element| element_of(x.dtype, element)).collect())
    }

    /// As [`Context::elements`], of floating-point numbers.
    pub fn floats(&self, x: &View) -> Result<Vec<f64>> {
        if x.dtype != DType::F32 {
            return Ok(self.elements(x)?.into_iter().map(|element| element.float).collect());
        }
        let bytes = self.bytes(x)?;
        Ok(bytes.as_chunks().0.iter().map(|&word| f64::from(f32::from_ne_bytes(word))).collect())
    }

    /// As [`Context::elements`], of integers.
    pub fn integers(&self, x: &View) -> Result<Vec<i64>> {
        if x.dtype == DType::I64 {
            let bytes = self.bytes(x)?;
            return Ok(bytes.as_chunks().0.iter().map(|&word| i64::from_ne_bytes(word)).collect());
        }
        Ok(self.elements(x)?.into_iter().map(|element| element.integer).collect())
    }
}

fn element_of(dtype: DType, bytes: &[u8]) -> Element {
    let word = |size: usize| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes);
        i64::from_ne_bytes(word)
    };
    let of_float = |float: f64| Element { float, integer: float as i64 };
    let of_integer = |integer: i64| Element { float: integer as f64, integer };
    match dtype {
        DType::Bool => of_integer(i64::from(bytes[0] != 0)),
        DType::U8 => of_integer(i64::from(bytes[0])),
        DType::I8 => of_integer(i64::from(bytes[0] as i8)),
        DType::U16 => of_integer(word(2)),
        DType::U32 => of_integer(word(4)),
        DType::U64 => Element { float: word(8) as u64 as f64, integer: word(8) },
        DType::I16 => of_integer(i64::from(word(2) as i16)),
        DType::I32 => of_integer(i64::from(word(4) as i32)),
        DType::I64 => of_integer(word(8)),
        DType::F16 => of_float(f16::from_bits(word(2) as u16).to_f64()),
        DType::BF16 => of_float(bf16::from_bits(word(2) as u16).to_f64()),
        DType::F32 => of_float(f64::from(f32::from_bits(word(4) as u32))),
        DType::F64 => of_float(f64::from_bits(word(8) as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_exactly() {
        let large = i64::MAX - 1;
        assert_eq!(element_of(DType::I64, &large.to_ne_bytes()).integer, large);
        assert_eq!(element_of(DType::I16, &(-3i16).to_ne_bytes()), Element { float: -3.0, integer: -3 });
        assert_eq!(element_of(DType::I8, &[0xff]), Element { float: -1.0, integer: -1 });
        assert_eq!(element_of(DType::F32, &2.5f32.to_ne_bytes()), Element { float: 2.5, integer: 2 });
        assert_eq!(element_of(DType::BF16, &bf16::from_f32(1.5).to_ne_bytes()), Element { float: 1.5, integer: 1 });
        assert_eq!(element_of(DType::Bool, &[1]), Element { float: 1.0, integer: 1 });
    }
}
