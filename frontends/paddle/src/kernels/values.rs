//! Tensors' elements on the host, for kernels whose next step follows from a value: what sorts, matches or walks element by element.

use crate::error::{Error, Result, refuse};
use crate::{Context, Output, Tensor};
use half::{bf16, f16};
use openmps_graph::DType;
use openmps_graph::view::bytes;

/// The types that numbers of images and boxes have.
pub(super) const SINGLE: &[DType] = &[DType::F32, DType::F64];

/// A tensor of floats.
pub(super) fn floats(context: &Context, x: &Tensor) -> Result<Vec<f64>> {
    let view = x.view()?;
    if !view.dtype.is_float() {
        return Err(refuse("element type", view.dtype, "floats"));
    }
    context.floats(&view)
}

/// A tensor of integers.
pub(super) fn integers(context: &Context, x: &Tensor) -> Result<Vec<i64>> {
    let view = x.view()?;
    if view.dtype.is_float() {
        return Err(refuse("element type", view.dtype, "integers"));
    }
    context.integers(&view)
}

/// Lengths and counts, each of at most `most`.
pub(super) fn lengths(context: &Context, name: &'static str, x: &Tensor, most: usize) -> Result<Vec<usize>> {
    let length = |number: i64| {
        let fits = usize::try_from(number).ok().filter(|&length| length <= most);
        fits.ok_or_else(|| refuse(name, number, &format!("0 to {most}")))
    };
    integers(context, x)?.into_iter().map(length).collect()
}

/// A size of the right rank, or an error that names the input.
pub(super) fn dims<const RANK: usize>(name: &'static str, x: &Tensor) -> Result<[usize; RANK]> {
    <[usize; RANK]>::try_from(x.shape().as_slice())
        .map_err(|_| refuse(name, x.shape(), &format!("a shape of {RANK} dimensions")))
}

/// That an input has this shape.
pub(super) fn expect(name: &'static str, x: &Tensor, wanted: &[usize]) -> Result<()> {
    let shape = x.shape();
    if shape.as_slice() == wanted { Ok(()) } else { Err(refuse(name, shape, &format!("shape {wanted:?}"))) }
}

/// That an input has this many elements.
pub(super) fn expect_len(name: &'static str, x: &Tensor, wanted: usize) -> Result<()> {
    let shape = x.shape();
    let len: usize = shape.iter().product();
    if len == wanted { Ok(()) } else { Err(refuse(name, shape, &format!("{wanted} elements"))) }
}

/// What is told by lengths inside a tensor in Paddle's oldest programs; device mps does not see those.
pub(super) fn required<T>(name: &'static str, given: Option<T>) -> Result<T> {
    given.ok_or_else(|| refuse(name, "missing", "a tensor: device mps has no levels of detail (LoD)"))
}

/// A positive size of an attribute.
pub(super) fn positive(name: &'static str, number: i32) -> Result<usize> {
    usize::try_from(number).ok().filter(|&size| size > 0).ok_or_else(|| refuse(name, number, "above 0"))
}

fn write(context: &Context, out: &Output, dtype: DType, dims: &[usize], elements: &[u8]) -> Result<()> {
    out.set_dims(dims);
    let view = context.allocate(out, dtype)?;
    if elements.len() != bytes(dtype, dims)? {
        return Err(Error::Plugin(format!("{} bytes for {dims:?} of {dtype}", elements.len())));
    }
    if !elements.is_empty() {
        context.queue().write(&view, elements)?;
    }
    Ok(())
}

/// The elements' bytes, one after the other.
fn bytes_of<T: Copy, const SIZE: usize>(values: &[T], element: impl Fn(T) -> [u8; SIZE]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * SIZE];
    bytes.as_chunks_mut().0.iter_mut().zip(values).for_each(|(to, &value)| *to = element(value));
    bytes
}

/// Integers as elements of int32 or int64.
pub(super) fn integer_bytes(dtype: DType, values: &[i64]) -> Result<Vec<u8>> {
    match dtype {
        DType::I32 => Ok(bytes_of(values, |value| (value as i32).to_ne_bytes())),
        DType::I64 => Ok(bytes_of(values, i64::to_ne_bytes)),
        _ => Err(refuse("element type", dtype, "int32 or int64")),
    }
}

/// A result of floats, rounded once.
pub(super) fn store_floats(
    context: &Context,
    out: &Output,
    dtype: DType,
    dims: &[usize],
    values: &[f64],
) -> Result<()> {
    let elements: Vec<u8> = match dtype {
        DType::F32 => bytes_of(values, |value| (value as f32).to_ne_bytes()),
        DType::F64 => bytes_of(values, f64::to_ne_bytes),
        DType::F16 => bytes_of(values, |value| f16::from_f64(value).to_ne_bytes()),
        DType::BF16 => bytes_of(values, |value| bf16::from_f64(value).to_ne_bytes()),
        _ => return Err(refuse("element type", dtype, "floats")),
    };
    write(context, out, dtype, dims, &elements)
}

/// A result of integers.
pub(super) fn store_integers(
    context: &Context,
    out: &Output,
    dtype: DType,
    dims: &[usize],
    values: &[i64],
) -> Result<()> {
    write(context, out, dtype, dims, &integer_bytes(dtype, values)?)
}

/// The places of the highest scores first, of equals the earlier one.
pub(super) fn by_score(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&left, &right| scores[right].total_cmp(&scores[left]));
    order
}

/// A number as the elements' type has it: what is compared with a threshold or cut to a whole number is rounded first.
pub(super) fn rounded(value: f64, dtype: DType) -> f64 {
    if dtype == DType::F32 { f64::from(value as f32) } else { value }
}
