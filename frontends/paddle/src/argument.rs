//! How each type of a kernel's parameter comes in through Paddle's two entry points.
//!
//! Eager programs call a kernel by the C++ calling convention of its signature in `paddle/phi/kernels/*.h`: references are pointers,
//! numbers and `DataType` (phi's numbering) travel by value, a `std::vector` by value travels as a pointer to it. Static programs hand
//! over a `phi::KernelContext`, which holds inputs, attributes and outputs in three lists.

use crate::abi::kernel_context;
use crate::abi::symbols::symbols;
use crate::abi::types::{PdKernelContext, PdList, PdPlace, PdScalar, PdTensor, kind};
use crate::context::Context;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::scalar::{IntArray, Scalar};
use crate::tensor::{Output, Tensor};
use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_void};

/// What a parameter is registered as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An input, as a `PD_KernelArgumentType`.
    Input(c_int),
    /// An attribute.
    Attribute(c_int),
    /// An output.
    Output(c_int),
}

/// A walk over the three lists of a kernel context.
pub struct Cursor<'a> {
    raw: *mut PdKernelContext,
    context: &'a Context,
    inputs: usize,
    attributes: usize,
    outputs: usize,
}

impl<'a> Cursor<'a> {
    /// # Safety
    /// `raw` is the live context of the running kernel, and `context` its device context.
    pub(crate) unsafe fn new(raw: *mut PdKernelContext, context: &'a Context) -> Cursor<'a> {
        Cursor { raw, context, inputs: 0, attributes: 0, outputs: 0 }
    }

    fn attribute<T>(&mut self, get: unsafe extern "C-unwind" fn(*mut PdKernelContext, usize) -> T) -> T {
        let index = self.attributes;
        self.attributes += 1;
        // SAFETY: the context is alive; an attribute that it does not have, or of another type, makes Paddle throw.
        unsafe { get(self.raw, index) }
    }

    fn input(&mut self) -> usize {
        self.inputs += 1;
        self.inputs - 1
    }

    fn output(&mut self) -> usize {
        self.outputs += 1;
        self.outputs - 1
    }
}

/// The type of a kernel's parameter.
pub trait Argument: Sized {
    /// How it travels in the C++ calling convention.
    type Abi: Copy;
    /// What it is registered as.
    const KIND: Kind;

    /// From an eager call.
    ///
    /// # Safety
    /// `value` is what Paddle passed for a parameter of this type, and lives while the kernel runs.
    unsafe fn from_abi(value: Self::Abi) -> Result<Self>;

    /// From a static program.
    ///
    /// # Safety
    /// The cursor walks the context of the running kernel, whose parameters are asked for in their order.
    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self>;
}

/// The gradient by one of several results. Some of Paddle's signatures promise a tensor here where its engine has none: nothing came from that
/// result.
pub struct Upstream(pub Option<Tensor>);

impl Argument for Tensor {
    type Abi = *const PdTensor;
    const KIND: Kind = Kind::Input(kind::TENSOR);

    #[inline]
    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a reference to a tensor.
        unsafe { Tensor::new(value) }.ok_or(Error::Missing { what: "input", index: 0 })
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.input();
        // SAFETY: tensors of the context live while the kernel runs.
        unsafe { Tensor::new((symbols().context_input)(cursor.raw, index)) }
            .ok_or(Error::Missing { what: "input", index })
    }
}

impl Argument for Option<Tensor> {
    type Abi = *mut c_void;
    const KIND: Kind = Kind::Input(kind::OPTIONAL_TENSOR);

    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a reference to a `paddle::optional<DenseTensor>`.
        Ok(unsafe { Tensor::new((symbols().optional_tensor_get_pointer)(value)) })
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.input();
        // SAFETY: an optional input that is absent is null in the context.
        Ok(unsafe { Tensor::new((symbols().context_input)(cursor.raw, index)) })
    }
}

impl Argument for Upstream {
    type Abi = *const PdTensor;
    const KIND: Kind = Kind::Input(kind::TENSOR);

    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a reference to a tensor, or null where Paddle has none to refer to.
        Ok(Upstream(unsafe { Tensor::new(value) }))
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.input();
        // SAFETY: tensors of the context live while the kernel runs; one that is absent is null.
        Ok(Upstream(unsafe { Tensor::new((symbols().context_input)(cursor.raw, index)) }))
    }
}

/// # Safety
/// `list` holds pointers to tensors that live while the kernel runs.
unsafe fn tensors(list: PdList) -> Result<Vec<Tensor>> {
    // SAFETY: the caller's promise.
    let pointers = unsafe { list.as_slice::<*const PdTensor>() };
    let missing = |index| Error::Missing { what: "tensor of an input list", index };
    // SAFETY: as above.
    pointers.iter().enumerate().map(|(index, &raw)| unsafe { Tensor::new(raw) }.ok_or_else(|| missing(index))).collect()
}

impl Argument for Vec<Tensor> {
    type Abi = *mut c_void;
    const KIND: Kind = Kind::Input(kind::LIST_TENSOR);

    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a reference to a `std::vector<const DenseTensor*>`, whose elements the list borrows.
        unsafe { tensors((symbols().tensor_vector_to_list)(value)) }
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.input();
        // SAFETY: the list is a copy of the pointers, ours to delete.
        unsafe {
            let list = (symbols().context_multi_input)(cursor.raw, index);
            let result = tensors(list);
            (symbols().delete_pointer_list)(list);
            result
        }
    }
}

impl Argument for Option<Vec<Tensor>> {
    type Abi = *mut c_void;
    const KIND: Kind = Kind::Input(kind::OPTIONAL_LIST_TENSOR);

    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: every `paddle::optional` keeps its value at the same distance from its flag.
        let vector: *mut c_void = unsafe { (symbols().optional_tensor_get_pointer)(value) }.cast();
        if vector.is_null() {
            return Ok(None);
        }
        // SAFETY: the value is a `std::vector<const DenseTensor*>`.
        unsafe { tensors((symbols().tensor_vector_to_list)(vector)) }.map(Some)
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.input();
        // SAFETY: as for `Vec<Tensor>`; an absent list begins with null.
        unsafe {
            let list = (symbols().context_multi_input)(cursor.raw, index);
            let absent = list.as_slice::<*const PdTensor>().first().is_none_or(|first| first.is_null());
            let result = if absent { Ok(None) } else { tensors(list).map(Some) };
            (symbols().delete_pointer_list)(list);
            result
        }
    }
}

impl Argument for Output {
    type Abi = *mut PdTensor;
    const KIND: Kind = Kind::Output(kind::TENSOR);

    #[inline]
    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a pointer to a tensor, or null.
        unsafe { Output::new(value) }.ok_or(Error::Missing { what: "output", index: 0 })
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.output();
        // SAFETY: tensors of the context live while the kernel runs.
        unsafe { Output::new((symbols().context_output)(cursor.raw, index)) }
            .ok_or(Error::Missing { what: "output", index })
    }
}

/// An output that nobody may want.
impl Argument for Option<Output> {
    type Abi = *mut PdTensor;
    const KIND: Kind = Kind::Output(kind::TENSOR);

    #[inline]
    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a pointer to a tensor, or null.
        Ok(unsafe { Output::new(value) })
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.output();
        // SAFETY: as for `Output`.
        Ok(unsafe { Output::new((symbols().context_output)(cursor.raw, index)) })
    }
}

/// # Safety
/// `list` holds pointers to tensors that live while the kernel runs, or null pointers.
unsafe fn outputs(list: PdList) -> Vec<Option<Output>> {
    // SAFETY: the caller's promise.
    unsafe { list.as_slice::<*mut PdTensor>().iter().map(|&raw| Output::new(raw)).collect() }
}

/// A list of outputs, each of which may be unwanted.
impl Argument for Vec<Option<Output>> {
    type Abi = *mut c_void;
    const KIND: Kind = Kind::Output(kind::LIST_TENSOR);

    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a pointer to a `std::vector<DenseTensor*>`: a vector by value travels that way.
        Ok(unsafe { outputs((symbols().tensor_vector_to_list)(value)) })
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.output();
        // SAFETY: the list is a copy of the pointers, ours to delete.
        unsafe {
            let list = (symbols().context_multi_output)(cursor.raw, index);
            let result = outputs(list);
            (symbols().delete_pointer_list)(list);
            Ok(result)
        }
    }
}

macro_rules! by_value {
    ($($type:ty, $kind:ident, $getter:ident;)*) => { $(
        impl Argument for $type {
            type Abi = $type;
            const KIND: Kind = Kind::Attribute(kind::$kind);

            #[inline]
            unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
                Ok(value)
            }

            unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
                Ok(cursor.attribute(symbols().$getter))
            }
        }
    )* };
}

by_value! {
    bool, BOOL, context_bool;
    i32, INT32, context_i32;
    i64, INT64, context_i64;
    f32, FLOAT32, context_f32;
    f64, FLOAT64, context_f64;
}

impl Argument for DataType {
    type Abi = i32;
    const KIND: Kind = Kind::Attribute(kind::DATA_TYPE);

    #[inline]
    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        Ok(DataType(value))
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        Ok(DataType::from_c(cursor.attribute(symbols().context_data_type)))
    }
}

impl Argument for Scalar {
    type Abi = *mut PdScalar;
    const KIND: Kind = Kind::Attribute(kind::SCALAR);

    #[inline]
    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a reference to a scalar.
        Ok(unsafe { Scalar::from_paddle(value) })
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.attributes;
        cursor.attributes += 1;
        // SAFETY: the context is alive and has this attribute.
        unsafe { Scalar::from_attribute(cursor.context, kernel_context::scalar(symbols(), cursor.raw, index), index) }
    }
}

impl Argument for IntArray {
    type Abi = *mut crate::abi::types::PdIntArray;
    const KIND: Kind = Kind::Attribute(kind::INT_ARRAY);

    #[inline]
    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a reference to a list of integers.
        Ok(unsafe { IntArray::from_paddle(value) })
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let index = cursor.attributes;
        cursor.attributes += 1;
        // SAFETY: the context is alive and has this attribute.
        unsafe {
            IntArray::from_attribute(cursor.context, kernel_context::int_array(symbols(), cursor.raw, index), index)
        }
    }
}

/// # Safety
/// `text` is a string that ends with a zero byte.
unsafe fn string(text: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Argument for String {
    type Abi = *mut c_void;
    const KIND: Kind = Kind::Attribute(kind::STRING);

    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a reference to a `std::string`.
        Ok(unsafe { string((symbols().string_attr)(value)) })
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        // SAFETY: the attribute's characters.
        Ok(unsafe { string(cursor.attribute(symbols().context_string)) })
    }
}

macro_rules! lists {
    ($($type:ty, $kind:ident, $from_abi:ident, $from_context:ident;)*) => { $(
        impl Argument for Vec<$type> {
            type Abi = *mut c_void;
            const KIND: Kind = Kind::Attribute(kind::$kind);

            unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
                // SAFETY: a reference to a vector of this type, whose elements the list borrows.
                Ok(unsafe { (symbols().$from_abi)(value).as_slice::<$type>().to_vec() })
            }

            unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
                // SAFETY: as above.
                Ok(unsafe { cursor.attribute(symbols().$from_context).as_slice::<$type>().to_vec() })
            }
        }
    )* };
}

lists! {
    i32, LIST_INT32, list_i32_attr, context_list_i32;
    i64, LIST_INT64, list_i64_attr, context_list_i64;
    f32, LIST_FLOAT32, list_f32_attr, context_list_f32;
    f64, LIST_FLOAT64, list_f64_attr, context_list_f64;
}

/// # Safety
/// `list` was made by `PD_ListBoolAttr` or its twin.
unsafe fn bools(list: PdList) -> Vec<bool> {
    // SAFETY: a new array of bytes, ours to delete.
    unsafe {
        let result = list.as_slice::<u8>().iter().map(|&byte| byte != 0).collect();
        (symbols().delete_u8_list)(list);
        result
    }
}

/// # Safety
/// `list` is a new array of pointers, each valid for `each`.
unsafe fn pointers<P: Copy, T>(list: PdList, each: impl Fn(P) -> T) -> Vec<T> {
    // SAFETY: a new array of pointers, ours to delete.
    unsafe {
        let result = list.as_slice::<P>().iter().map(|&pointer| each(pointer)).collect();
        (symbols().delete_pointer_list)(list);
        result
    }
}

macro_rules! copied_lists {
    ($($type:ty, $kind:ident, $from_abi:ident, $from_context:ident, $convert:expr;)*) => { $(
        impl Argument for Vec<$type> {
            type Abi = *mut c_void;
            const KIND: Kind = Kind::Attribute(kind::$kind);

            unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
                // SAFETY: a reference to a vector of this type; the list is a new array.
                Ok(unsafe { $convert((symbols().$from_abi)(value)) })
            }

            unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
                // SAFETY: as above.
                Ok(unsafe { $convert(cursor.attribute(symbols().$from_context)) })
            }
        }
    )* };
}

copied_lists! {
    bool, LIST_BOOL, list_bool_attr, context_list_bool, |list| bools(list);
    String, LIST_STRING, list_string_attr, context_list_string, |list| pointers(list, |text| string(text));
    Scalar, LIST_SCALAR, list_scalar_attr, context_list_scalar, |list| pointers(list, |raw| Scalar::from_paddle(raw));
}

/// A place that a kernel is asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whether it is the host.
    pub is_host: bool,
    /// The device's number.
    pub device: i8,
}

impl Argument for Place {
    type Abi = *mut PdPlace;
    const KIND: Kind = Kind::Attribute(kind::PLACE);

    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        // SAFETY: a reference to a place.
        unsafe {
            Ok(Place { is_host: (symbols().place_is_host)(value), device: (symbols().place_get_device_id)(value) })
        }
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        let place = cursor.attribute(symbols().context_place);
        // SAFETY: the attribute lives in the context.
        unsafe { Self::from_abi(place) }
    }
}

/// A layout by its number in the C interface; openmps' kernels take theirs from strides and ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataLayout(pub i32);

impl Argument for DataLayout {
    type Abi = i32;
    const KIND: Kind = Kind::Attribute(kind::DATA_LAYOUT);

    unsafe fn from_abi(value: Self::Abi) -> Result<Self> {
        Ok(DataLayout(value))
    }

    unsafe fn from_context(cursor: &mut Cursor) -> Result<Self> {
        Ok(DataLayout(cursor.attribute(symbols().context_data_layout)))
    }
}
