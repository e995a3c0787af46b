//! The rules of pointers, loads, stores and atomic operations.

use super::{Class, Result, pointer, require, same};
use crate::kernel::*;
use crate::types::{Scalar, Type};

pub(super) fn add_pointer(pointers: &Type, offset: &Type, result: &Type) -> Result {
    pointer("operand 0", pointers)?;
    Class::Offset.require("the offset", offset)?;
    require("the offset", offset, offset.dims == pointers.dims, || format!("the dimensions of {pointers}"))?;
    same("the result", result, pointers)
}

pub(super) fn mask(found: &Type, like: &Type) -> Result {
    same("the mask", found, &like.with_scalar(Scalar::I1))
}

pub(super) fn load(pointers: &Type, rest: &[&Type], result: &Type) -> Result {
    let target = pointer("operand 0", pointers)?;
    let loaded = pointers.with_scalar(target);
    if let Some(found) = rest.first() {
        mask(found, pointers)?;
    }
    if let Some(other) = rest.get(1) {
        same("what masked-off elements are", other, &loaded)?;
    }
    same("the result", result, &loaded)
}

pub(super) fn store(pointers: &Type, x: &Type, rest: &[&Type]) -> Result {
    let target = pointer("operand 0", pointers)?;
    same("the stored value", x, &pointers.with_scalar(target))?;
    rest.first().map_or(Ok(()), |found| mask(found, pointers))
}

pub(super) fn atomic(operation: Atomic, pointers: &Type, x: &Type, rest: &[&Type], result: &Type) -> Result {
    let class = match operation {
        Atomic::AddFloat => Class::Float,
        Atomic::Exchange | Atomic::Read => Class::Number,
        _ => Class::Integer,
    };
    class.require("the value", x)?;
    store(pointers, x, rest)?;
    same("the result", result, x)
}

pub(super) fn compare_swap(pointers: &Type, expected: &Type, x: &Type, result: &Type) -> Result {
    store(pointers, x, &[])?;
    same("the expected value", expected, x)?;
    same("the result", result, x)
}

pub(super) fn address(integer: &Type, what: &str, of: &Type, pointer_what: &str) -> Result {
    pointer(pointer_what, of)?;
    same(what, integer, &of.with_scalar(Scalar::I64))
}
