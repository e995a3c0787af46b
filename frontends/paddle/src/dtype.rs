//! Element types in three numberings: openmps', that of Paddle's C interface (registration, getters) and phi's (attributes, memory).

use crate::error::{Error, Result};
use openmps_graph::DType;

/// Every element type of Paddle's C interface, with its name, its number there, phi's number and its bytes.
const TYPES: &[(&str, i32, i32, usize)] = &[
    ("bool", 1, 1, 1),
    ("uint8", 2, 2, 1),
    ("uint16", 3, 4, 2),
    ("uint32", 4, 6, 4),
    ("uint64", 5, 8, 8),
    ("int8", 6, 3, 1),
    ("int16", 7, 5, 2),
    ("int32", 8, 7, 4),
    ("int64", 9, 9, 8),
    ("float16", 10, 15, 2),
    ("float32", 11, 10, 4),
    ("float64", 12, 11, 8),
    ("bfloat16", 13, 16, 2),
    ("complex64", 14, 12, 8),
    ("complex128", 15, 13, 16),
];

/// The element type of a tensor or an attribute, in phi's numbering. Zero, "undefined", leaves the choice to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType(pub i32);

impl DataType {
    /// Every type that a kernel which only moves bytes is registered for.
    pub fn every() -> impl Iterator<Item = DataType> {
        TYPES.iter().map(|&(_, _, phi, _)| DataType(phi))
    }

    /// From the numbering of the C interface.
    pub fn from_c(number: i32) -> DataType {
        DataType(TYPES.iter().find(|row| row.1 == number).map_or(0, |row| row.2))
    }

    /// In the numbering of the C interface; zero where it has none.
    #[inline]
    pub fn c_number(self) -> i32 {
        const NUMBERS: [i32; 17] = {
            let mut numbers = [0; 17];
            let mut row = 0;
            while row < TYPES.len() {
                numbers[TYPES[row].2 as usize] = TYPES[row].1;
                row += 1;
            }
            numbers
        };
        NUMBERS.get(self.0 as usize).copied().unwrap_or(0)
    }

    /// Whether the choice is left to the kernel.
    pub fn is_undefined(self) -> bool {
        self.0 == 0
    }

    /// As openmps' type. No kernel here takes unsigned integers beyond uint8; complex numbers have kernels of their own.
    #[inline]
    pub fn dtype(self) -> Result<DType> {
        Ok(match self.0 {
            1 => DType::Bool,
            2 => DType::U8,
            3 => DType::I8,
            5 => DType::I16,
            7 => DType::I32,
            9 => DType::I64,
            10 => DType::F32,
            11 => DType::F64,
            15 => DType::F16,
            16 => DType::BF16,
            _ => return Err(Error::ElementType(self)),
        })
    }

    /// This type, or `other` where it is undefined.
    pub fn or(self, other: DType) -> Result<DType> {
        if self.is_undefined() { Ok(other) } else { self.dtype() }
    }

    /// Bytes of one element; zero where the type is unknown.
    pub fn size(self) -> usize {
        TYPES.iter().find(|row| row.2 == self.0).map_or(0, |row| row.3)
    }

    /// Whether the elements are complex numbers.
    pub fn is_complex(self) -> bool {
        matches!(self.0, 12 | 13)
    }

    /// Python's name of the type.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "undefined",
            // The C interface has no number for these.
            17 => "float8_e4m3fn",
            18 => "float8_e5m2",
            phi => TYPES.iter().find(|row| row.2 == phi).map_or("unknown", |row| row.0),
        }
    }
}

impl From<DType> for DataType {
    #[inline]
    fn from(dtype: DType) -> DataType {
        DataType(match dtype {
            DType::Bool => 1,
            DType::U8 => 2,
            DType::I8 => 3,
            DType::U16 => 4,
            DType::I16 => 5,
            DType::U32 => 6,
            DType::I32 => 7,
            DType::U64 => 8,
            DType::I64 => 9,
            DType::F32 => 10,
            DType::F64 => 11,
            DType::F16 => 15,
            DType::BF16 => 16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numberings_agree() {
        for data_type in DataType::every() {
            assert_eq!(DataType::from_c(data_type.c_number()), data_type);
        }
        for &dtype in openmps_tile::dtype::ALL {
            let data_type = DataType::from(dtype);
            assert_eq!(
                (data_type.dtype().unwrap(), data_type.name(), data_type.size()),
                (dtype, dtype.name(), dtype.size())
            );
        }
        assert_eq!(DataType::from(DType::F32).c_number(), 11);
        assert!(DataType(12).dtype().is_err() && DataType(0).c_number() == 0 && DataType(99).c_number() == 0);
    }
}
