//! How each type of a kernel's parameter comes in through Paddle's two entry points.
//!
//! Eager programs call a kernel by the C++ calling convention of its signature in `paddle/phi/kernels/*.h`: references are pointers,
//! numbers and `DataType` (phi's numbering) travel by value, a `std::vector` by value travels as a pointer to it. Static programs hand
//! over a `phi::KernelContext`, which holds inputs, attributes and outputs in three lists.

mod attributes;

pub use attributes::{DataLayout, Place};

use crate::abi::symbols::symbols;
use crate::abi::types::{PdKernelContext, PdList, PdTensor, kind};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::tensor::{Output, Tensor};
use std::os::raw::{c_int, c_void};

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
