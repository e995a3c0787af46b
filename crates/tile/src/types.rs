//! The types of values: a scalar or a tile of scalars or pointers, as in Triton.

use crate::DType;
use arrayvec::ArrayVec;
use std::fmt;

/// The most dimensions a tile may have: Triton's sort of 4096 elements takes one for each bit of an index.
pub const MAX_TILE_RANK: usize = 12;

/// The dimensions of a tile; none for a scalar.
pub type Dims = ArrayVec<usize, MAX_TILE_RANK>;

/// A number type of the kernel language. Integers carry no sign, operations do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Scalar {
    I1,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl Scalar {
    /// Bytes of one element in memory; a boolean takes one.
    pub const fn size(self) -> usize {
        match self {
            Scalar::I1 | Scalar::I8 => 1,
            Scalar::I16 | Scalar::F16 | Scalar::BF16 => 2,
            Scalar::I32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::F64 => 8,
        }
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Scalar::F16 | Scalar::BF16 | Scalar::F32 | Scalar::F64)
    }

    /// The name in TTIR.
    pub const fn name(self) -> &'static str {
        match self {
            Scalar::I1 => "i1",
            Scalar::I8 => "i8",
            Scalar::I16 => "i16",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::F16 => "f16",
            Scalar::BF16 => "bf16",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
        }
    }
}

impl From<DType> for Scalar {
    /// How a tensor's element type lies in memory: `Bool` becomes `I8` there, because a pointer to bits does not exist.
    fn from(dtype: DType) -> Scalar {
        match dtype {
            DType::Bool | DType::U8 | DType::I8 => Scalar::I8,
            DType::I16 | DType::U16 => Scalar::I16,
            DType::I32 | DType::U32 => Scalar::I32,
            DType::I64 | DType::U64 => Scalar::I64,
            DType::F16 => Scalar::F16,
            DType::BF16 => Scalar::BF16,
            DType::F32 => Scalar::F32,
            DType::F64 => Scalar::F64,
        }
    }
}

/// What one element of a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A number or boolean.
    Scalar(Scalar),
    /// The address of a number in device memory.
    Pointer(Scalar),
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// What each element is.
    pub element: Element,
    /// The tile's dimensions; empty for a scalar.
    pub dims: Dims,
}

impl Type {
    /// A single number.
    pub fn scalar(scalar: Scalar) -> Type {
        Type { element: Element::Scalar(scalar), dims: Dims::new() }
    }

    /// A single address.
    pub fn pointer(target: Scalar) -> Type {
        Type { element: Element::Pointer(target), dims: Dims::new() }
    }

    /// A tile of numbers.
    pub fn tile(scalar: Scalar, dims: &[usize]) -> Type {
        Type::scalar(scalar).with_dims(dims)
    }

    /// The same element with other dimensions.
    pub fn with_dims(&self, dims: &[usize]) -> Type {
        Type { element: self.element, dims: dims.iter().copied().collect() }
    }

    /// The same dimensions with another number type.
    pub fn with_scalar(&self, scalar: Scalar) -> Type {
        Type { element: Element::Scalar(scalar), dims: self.dims.clone() }
    }

    /// The number type, when the elements are numbers.
    pub fn number(&self) -> Option<Scalar> {
        match self.element {
            Element::Scalar(scalar) => Some(scalar),
            Element::Pointer(_) => None,
        }
    }

    /// What the pointers point to, when the elements are pointers.
    pub fn target(&self) -> Option<Scalar> {
        match self.element {
            Element::Scalar(_) => None,
            Element::Pointer(target) => Some(target),
        }
    }

    /// Whether this is a single element.
    pub fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }

    /// How many elements a value of this type has.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether a value of this type has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Scalar(scalar) => f.write_str(scalar.name()),
            Element::Pointer(target) => write!(f, "!tt.ptr<{}>", target.name()),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_scalar() {
            return write!(f, "{}", self.element);
        }
        f.write_str("tensor<")?;
        for size in &self.dims {
            write!(f, "{size}x")?;
        }
        write!(f, "{}>", self.element)
    }
}
