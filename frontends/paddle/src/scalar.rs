//! Attributes that are numbers or lists of integers, wherever Paddle keeps them: in the attribute, or in a tensor.

use crate::abi::kernel_context::Attribute;
use crate::abi::symbols::symbols;
use crate::abi::types::{PdIntArray, PdScalar, PdTensor};
use crate::context::Context;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::numbers::Element;
use crate::tensor::Tensor;
use openmps_tile::{bf16, f16};
use std::ops::Deref;

/// A number whose type is that of the tensor it is used with. Integers are exact through [`Scalar::i64`].
#[derive(Clone, Copy)]
pub struct Scalar(Source);

#[derive(Clone, Copy)]
enum Source {
    Paddle(*mut PdScalar),
    Read { data_type: DataType, float: f64, integer: i64 },
}

impl Scalar {
    /// # Safety
    /// `raw` is a scalar that lives while the kernel runs.
    #[inline]
    pub(crate) unsafe fn from_paddle(raw: *mut PdScalar) -> Scalar {
        Scalar(Source::Paddle(raw))
    }

    /// # Safety
    /// `attribute` belongs to the running kernel, whose context is `context`.
    pub(crate) unsafe fn from_attribute(
        context: &Context,
        attribute: Attribute<PdScalar>,
        index: usize,
    ) -> Result<Scalar> {
        match attribute {
            Attribute::Value(raw) => Ok(Scalar(Source::Paddle(raw))),
            // SAFETY: the caller's promise: the tensor lives while the kernel runs.
            Attribute::Tensor(raw) => unsafe { Scalar::from_tensor(context, raw, index) },
            // SAFETY: Paddle keeps the attribute's tensor alive during the call.
            Attribute::Tensors(&[raw]) => unsafe { Scalar::from_tensor(context, raw, index) },
            Attribute::Tensors(list) => Err(expected("one number", index, format!("{} tensors", list.len()))),
            Attribute::Other(alternative) => Err(Error::AttributeKind { index, alternative, expected: "a Scalar" }),
        }
    }

    /// # Safety
    /// `raw` is a tensor that lives while the kernel runs, or null.
    unsafe fn from_tensor(context: &Context, raw: *const PdTensor, index: usize) -> Result<Scalar> {
        // SAFETY: the caller's promise.
        let tensor = unsafe { Tensor::new(raw) }.ok_or(Error::Missing { what: "the tensor of attribute", index })?;
        let numbers = context.elements(&tensor.view()?)?;
        match numbers[..] {
            [Element { float, integer }] => Ok(Scalar(Source::Read { data_type: tensor.data_type(), float, integer })),
            _ => Err(expected("one number", index, format!("a tensor of shape {:?}", tensor.shape()))),
        }
    }

    /// The one number of a tensor, read from the device.
    pub fn of_tensor(context: &Context, tensor: &Tensor) -> Result<Scalar> {
        // SAFETY: a tensor lives while the kernel runs.
        unsafe { Scalar::from_tensor(context, tensor.raw(), 0) }
    }

    /// As a floating-point number.
    pub fn f64(&self) -> f64 {
        match self.0 {
            // SAFETY: the scalar lives while the kernel runs.
            Source::Paddle(raw) => unsafe { (symbols().scalar_get_f64)(raw) },
            Source::Read { float, .. } => float,
        }
    }

    /// As a single-precision number.
    pub fn f32(&self) -> f32 {
        self.f64() as f32
    }

    /// As an integer, exactly.
    pub fn i64(&self) -> i64 {
        match self.0 {
            // SAFETY: as in `f64`.
            Source::Paddle(raw) => unsafe { (symbols().scalar_get_i64)(raw) },
            Source::Read { integer, .. } => integer,
        }
    }

    /// Whether it is not zero.
    pub fn bool(&self) -> bool {
        match self.0 {
            // SAFETY: as in `f64`.
            Source::Paddle(raw) => unsafe { (symbols().scalar_get_bool)(raw) },
            Source::Read { float, integer, .. } => float != 0.0 || integer != 0,
        }
    }

    /// The type in which the number was given.
    pub fn data_type(&self) -> DataType {
        match self.0 {
            // SAFETY: a scalar is a flag, its type at byte 4 and its value at byte 8 or, for the alignment of complex numbers, 16.
            Source::Paddle(raw) => DataType(unsafe { raw.cast::<i32>().add(1).read() }),
            Source::Read { data_type, .. } => data_type,
        }
    }

    /// The real and imaginary parts.
    pub fn complex(&self) -> (f64, f64) {
        let real = self.f64();
        let Source::Paddle(raw) = self.0 else { return (real, 0.0) };
        // A complex value stands at byte 16 of a scalar, aligned like its type; what stands there counts only where its real part is
        // the one that Paddle reads.
        let parts = match self.data_type().name() {
            // SAFETY: a scalar has 32 bytes (`paddle/phi/common/scalar.h`).
            "complex64" => unsafe { raw.cast::<[f32; 2]>().add(2).read() }.map(f64::from),
            // SAFETY: as above.
            "complex128" => unsafe { raw.cast::<[f64; 2]>().add(1).read() },
            _ => [real, 0.0],
        };
        if parts[0] == real { (real, parts[1]) } else { (real, 0.0) }
    }

    /// One element of `data_type` with this value: as many bytes as the type has, the rest zero.
    pub fn element(&self, data_type: DataType) -> Result<[u8; 16]> {
        let mut bytes = [0; 16];
        let mut put = |value: &[u8]| bytes[..value.len()].copy_from_slice(value);
        match data_type.name() {
            "bool" => put(&[u8::from(self.bool())]),
            "uint8" | "int8" => put(&[self.i64() as u8]),
            "uint16" | "int16" => put(&(self.i64() as u16).to_ne_bytes()),
            "uint32" | "int32" => put(&(self.i64() as u32).to_ne_bytes()),
            "uint64" | "int64" => put(&self.i64().to_ne_bytes()),
            "float16" => put(&f16::from_f64(self.f64()).to_ne_bytes()),
            "bfloat16" => put(&bf16::from_f64(self.f64()).to_ne_bytes()),
            "float32" => put(&self.f32().to_ne_bytes()),
            "float64" => put(&self.f64().to_ne_bytes()),
            "complex64" | "complex128" => {
                let (real, imaginary) = self.complex();
                if data_type.size() == 8 {
                    put(&(real as f32).to_ne_bytes());
                    bytes[4..8].copy_from_slice(&(imaginary as f32).to_ne_bytes());
                } else {
                    put(&real.to_ne_bytes());
                    bytes[8..].copy_from_slice(&imaginary.to_ne_bytes());
                }
            }
            _ => return Err(Error::ElementType(data_type)),
        }
        Ok(bytes)
    }
}

/// A list of integers: a shape, axes, sections.
pub struct IntArray(Numbers);

/// Empty.
impl Default for IntArray {
    fn default() -> IntArray {
        IntArray(Numbers::Read(Vec::new()))
    }
}

enum Numbers {
    /// The list of an attribute, borrowed while the kernel runs.
    Borrowed(*const [i64]),
    Read(Vec<i64>),
}

impl IntArray {
    /// # Safety
    /// `raw` is a list that lives while the kernel runs.
    #[inline]
    pub(crate) unsafe fn from_paddle(raw: *mut PdIntArray) -> IntArray {
        // SAFETY: the caller's promise; the list's elements are 64-bit integers.
        IntArray(Numbers::Borrowed(unsafe { (symbols().int_array_get_data_pointer)(raw).as_slice::<i64>() }))
    }

    /// # Safety
    /// `attribute` belongs to the running kernel, whose context is `context`.
    pub(crate) unsafe fn from_attribute(
        context: &Context,
        attribute: Attribute<PdIntArray>,
        index: usize,
    ) -> Result<IntArray> {
        let mut numbers = Vec::new();
        let mut append = |raw: *const PdTensor| -> Result<()> {
            // SAFETY: the caller's promise: tensors of attributes live while the kernel runs.
            let tensor =
                unsafe { Tensor::new(raw) }.ok_or(Error::Missing { what: "the tensor of attribute", index })?;
            numbers.extend(context.integers(&tensor.view()?)?);
            Ok(())
        };
        match attribute {
            // SAFETY: the caller's promise.
            Attribute::Value(raw) => return Ok(unsafe { IntArray::from_paddle(raw) }),
            Attribute::Tensor(raw) => append(raw)?,
            Attribute::Tensors(list) => list.iter().try_for_each(|&raw| append(raw))?,
            Attribute::Other(alternative) => {
                return Err(Error::AttributeKind { index, alternative, expected: "an IntArray" });
            }
        }
        Ok(IntArray(Numbers::Read(numbers)))
    }
}

impl IntArray {
    /// The list as a shape, in which no size is negative.
    pub fn dims(&self) -> Result<Vec<usize>> {
        dims_of(self)
    }
}

/// A list of integers as a shape, in which no size is negative and whose product is a number of elements.
pub fn dims_of(sizes: &[i64]) -> Result<Vec<usize>> {
    let size = |&size: &i64| usize::try_from(size).map_err(|_| Error::NegativeSize(sizes.to_vec()));
    let dims = sizes.iter().map(size).collect::<Result<Vec<usize>>>()?;
    openmps_graph::view::elements(&dims)?;
    Ok(dims)
}

impl Deref for IntArray {
    type Target = [i64];

    #[inline]
    fn deref(&self) -> &[i64] {
        match &self.0 {
            // SAFETY: the list lives while the kernel runs, and kernels do not keep their arguments.
            Numbers::Borrowed(list) => unsafe { &**list },
            Numbers::Read(list) => list,
        }
    }
}

fn expected(expected: &str, index: usize, got: String) -> Error {
    Error::Plugin(format!("attribute number {index} is {got}, expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use openmps_graph::DType;

    #[test]
    fn elements_have_the_bytes_of_their_type() {
        let two = Scalar(Source::Read { data_type: DataType(11), float: -2.0, integer: -2 });
        let bytes = |dtype: DType| two.element(dtype.into()).unwrap()[..dtype.size()].to_vec();
        assert_eq!(bytes(DType::F32), (-2f32).to_ne_bytes());
        assert_eq!(bytes(DType::I64), (-2i64).to_ne_bytes());
        assert_eq!(bytes(DType::F16), f16::from_f32(-2.0).to_ne_bytes());
        assert_eq!(bytes(DType::Bool), [1]);
        assert!(two.element(DataType(0)).is_err());
    }
}
