//! Attributes: numbers, strings, lists, scalars, places.

use super::{Argument, Cursor, Kind};
use crate::abi::kernel_context;
use crate::abi::symbols::symbols;
use crate::abi::types::{PdList, PdPlace, PdScalar, kind};
use crate::dtype::DataType;
use crate::error::Result;
use crate::scalar::{IntArray, Scalar};
use std::ffi::CStr;
use std::os::raw::{c_char, c_void};

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
