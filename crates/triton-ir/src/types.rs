//! Types of values, and their text.

use std::fmt::{Display, Formatter, Result};

/// A floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// `f16`
    F16,
    /// `bf16`
    BF16,
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// `f8E5M2`
    E5M2,
    /// `f8E4M3FN`
    E4M3,
    /// `f8E4M3FNUZ`
    E4M3Unsigned,
    /// `f8E5M2FNUZ`
    E5M2Unsigned,
}

impl Float {
    /// The name in a text.
    pub fn name(self) -> &'static str {
        match self {
            Float::F16 => "f16",
            Float::BF16 => "bf16",
            Float::F32 => "f32",
            Float::F64 => "f64",
            Float::E5M2 => "f8E5M2",
            Float::E4M3 => "f8E4M3FN",
            Float::E4M3Unsigned => "f8E4M3FNUZ",
            Float::E5M2Unsigned => "f8E5M2FNUZ",
        }
    }

    /// Bits of a number.
    pub fn bits(self) -> u32 {
        match self {
            Float::F64 => 64,
            Float::F32 => 32,
            Float::F16 | Float::BF16 => 16,
            _ => 8,
        }
    }
}

/// What kind of memory a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Any memory.
    Global,
    /// Memory that the kernel only reads: `tl.const`.
    Constant,
}

/// Whether the integers of a described tensor have a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sign {
    /// They have: `si32`.
    Signed,
    /// They have none: `ui32`.
    Unsigned,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value.
    None,
    /// An integer of so many bits, without a sign of its own.
    Integer(u32),
    /// A floating-point number.
    Float(Float),
    /// An address of elements of a type, in an address space.
    Pointer(Box<Type>, Space),
    /// Elements of one type in a shape.
    Tensor(Vec<i64>, Box<Type>),
    /// A description of a tensor in memory that is read and written by blocks of this type, whose integers have a sign or none.
    Descriptor(Box<Type>, Sign),
    /// Types of parameters and results.
    Function(Vec<Type>, Vec<Type>),
}

impl Type {
    /// `i1`, the type of truth values.
    pub const TRUTH: Type = Type::Integer(1);
    /// `i32`, the type of program numbers and indices.
    pub const I32: Type = Type::Integer(32);

    /// A tensor, or the element itself where there is no dimension.
    pub fn shaped(shape: Vec<i64>, element: Type) -> Type {
        if shape.is_empty() { element } else { Type::Tensor(shape, Box::new(element)) }
    }

    /// The shape; none of what has no elements.
    pub fn shape(&self) -> &[i64] {
        if let Type::Tensor(shape, _) = self { shape } else { &[] }
    }

    /// The type of the elements; of what has none the type itself.
    pub fn element(&self) -> &Type {
        if let Type::Tensor(_, element) = self { element } else { self }
    }

    /// The same shape with other elements.
    pub fn with_element(&self, element: Type) -> Type {
        Type::shaped(self.shape().to_vec(), element)
    }

    /// What a pointer or a tensor of pointers points to, in the same shape.
    pub fn pointee(&self) -> Option<Type> {
        let Type::Pointer(target, _) = self.element() else { return None };
        Some(self.with_element((**target).clone()))
    }

    /// Bits of an integer; none of what is none.
    pub fn integer_bits(&self) -> Option<u32> {
        if let Type::Integer(bits) = *self.element() { Some(bits) } else { None }
    }

    /// The floating-point type of the elements; none of what is none.
    pub fn float(&self) -> Option<Float> {
        if let Type::Float(float) = *self.element() { Some(float) } else { None }
    }
}

/// Types with commas between them.
pub(crate) fn list(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let sizes = |f: &mut Formatter<'_>, shape: &[i64]| shape.iter().try_for_each(|size| write!(f, "{size}x"));
        match self {
            Type::None => f.write_str("none"),
            Type::Integer(bits) => write!(f, "i{bits}"),
            Type::Float(float) => f.write_str(float.name()),
            Type::Pointer(target, Space::Global) => write!(f, "!tt.ptr<{target}>"),
            Type::Pointer(target, Space::Constant) => write!(f, "!tt.ptr<{target}, \"constant\">"),
            Type::Tensor(shape, element) => {
                f.write_str("tensor<")?;
                sizes(f, shape)?;
                write!(f, "{element}>")
            }
            Type::Descriptor(block, sign) => {
                f.write_str("!tt.tensordesc<")?;
                sizes(f, block.shape())?;
                match (block.element(), sign) {
                    (Type::Integer(bits), Sign::Signed) => write!(f, "si{bits}>"),
                    (Type::Integer(bits), Sign::Unsigned) => write!(f, "ui{bits}>"),
                    (element, _) => write!(f, "{element}>"),
                }
            }
            Type::Function(parameters, results) => write!(f, "({}) -> ({})", list(parameters), list(results)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_in_mlir() {
        let pointer = Type::Pointer(Box::new(Type::Float(Float::F16)), Space::Global);
        let block = Type::shaped(vec![16, 32], Type::Float(Float::BF16));
        for (ty, expected) in [
            (Type::TRUTH, "i1"),
            (pointer.clone(), "!tt.ptr<f16>"),
            (Type::Pointer(Box::new(pointer.clone()), Space::Global), "!tt.ptr<!tt.ptr<f16>>"),
            (Type::Pointer(Box::new(Type::I32), Space::Constant), "!tt.ptr<i32, \"constant\">"),
            (Type::shaped(vec![64], pointer.clone()), "tensor<64x!tt.ptr<f16>>"),
            (block.clone(), "tensor<16x32xbf16>"),
            (Type::Descriptor(Box::new(block), Sign::Signed), "!tt.tensordesc<16x32xbf16>"),
            (Type::Descriptor(Box::new(Type::shaped(vec![8], Type::I32)), Sign::Unsigned), "!tt.tensordesc<8xui32>"),
            (Type::Function(vec![Type::I32], vec![]), "(i32) -> ()"),
        ] {
            assert_eq!(ty.to_string(), expected);
        }
        assert_eq!(Type::shaped(vec![8], pointer).pointee().map(|ty| ty.to_string()).as_deref(), Some("tensor<8xf16>"));
    }
}
