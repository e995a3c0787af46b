//! Tensors that a model of ONNX holds: small ones are known at once, the others stay where they lie until a run needs them.

use super::format::{AttributeProto, TensorProto, kind};
use crate::error::{Error, Result};
use openmps::operators::Array;
use openmps::operators::view::shape_of;
use openmps::{DataType, bf16, f16};
use prost::bytes::Bytes;
use std::borrow::Cow;

/// Integers of a known tensor at most.
const MOST_INTEGERS: usize = 1024;

/// Numbers with a point of a known tensor at most: bounds, scales, factors.
const MOST_FLOATS: usize = 8;

/// `TensorProto.DataLocation.EXTERNAL`.
const EXTERNAL: i32 = 1;

/// The element type of this number in `TensorProto.DataType`.
pub fn data_type(code: i64) -> Option<DataType> {
    Some(match code {
        1 => DataType::F32,
        2 => DataType::U8,
        3 => DataType::I8,
        4 => DataType::U16,
        5 => DataType::I16,
        6 => DataType::I32,
        7 => DataType::I64,
        9 => DataType::Bool,
        10 => DataType::F16,
        11 => DataType::F64,
        12 => DataType::U32,
        13 => DataType::U64,
        16 => DataType::BF16,
        _ => return None,
    })
}

/// A tensor that is read when a run needs it.
#[derive(Clone, Debug)]
pub(crate) struct Weight {
    pub data_type: DataType,
    pub dims: Vec<usize>,
    pub place: Place,
}

/// Where its elements lie, little-endian.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In the model's file, from a byte on.
    Inside { begin: usize },
    /// Here, since the file has them in another form.
    Here(Vec<u8>),
    /// In a file beside the model's, from a byte on.
    Beside { file: String, begin: usize },
}

/// What becomes of a tensor.
pub(crate) enum Content {
    Known(Array),
    Weight(Weight),
}

/// A tensor of a model whose bytes are `file`.
pub(crate) fn read(tensor: &TensorProto, file: &Bytes) -> Result<Content> {
    let wrong = |what: String| Error::program(format!("the tensor {}: {what}", tensor.name));
    let code = i64::from(tensor.data_type);
    let data_type = data_type(code).ok_or_else(|| wrong(format!("an element type of number {code}")))?;
    let dims: Option<Vec<usize>> = tensor.dims.iter().map(|&size| usize::try_from(size).ok()).collect();
    let bytes =
        dims.as_ref().and_then(|dims| dims.iter().try_fold(data_type.size(), |all, &size| all.checked_mul(size)));
    let (Some(dims), Some(bytes)) = (dims, bytes) else { return Err(wrong(format!("dimensions {:?}", tensor.dims))) };
    if tensor.data_location == EXTERNAL {
        let place = beside(tensor, bytes).map_err(wrong)?;
        return Ok(Content::Weight(Weight { data_type, dims, place }));
    }
    let (content, begin) = match &tensor.raw_data {
        // A part of the file, which it was cut out of without a copy.
        Some(raw) if !raw.is_empty() || bytes == 0 => {
            (Cow::Borrowed(&raw[..]), Some((raw.as_ptr() as usize).saturating_sub(file.as_ptr() as usize)))
        }
        _ => (Cow::Owned(listed(tensor, data_type)), None),
    };
    if content.len() != bytes {
        return Err(wrong(format!("{} bytes of {data_type} {dims:?}, which is {bytes}", content.len())));
    }
    if let Some(array) = known(&content, data_type, &dims)? {
        return Ok(Content::Known(array));
    }
    let place = match begin {
        Some(begin) => Place::Inside { begin },
        None => Place::Here(content.into_owned()),
    };
    Ok(Content::Weight(Weight { data_type, dims, place }))
}

/// What a node `Constant` makes where its attribute is a tensor, or integers of which float64 leaves some out; none where the attribute's numbers do.
pub(crate) fn constant(attribute: &AttributeProto, file: &Bytes) -> Result<Option<Content>> {
    if let Some(tensor) = &attribute.t {
        return read(tensor, file).map(Some);
    }
    let (dims, numbers) = match attribute.kind {
        kind::INT => (vec![], vec![attribute.i]),
        kind::INTS => (vec![attribute.ints.len()], attribute.ints.clone()),
        _ => return Ok(None),
    };
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let weight = |content| Content::Weight(Weight { data_type: DataType::I64, dims, place: Place::Here(content) });
    Ok(if is_exact(&bytes, DataType::I64) { None } else { Some(weight(bytes)) })
}

/// The file that an external tensor names, which is the model's neighbour, and where in it.
fn beside(tensor: &TensorProto, bytes: usize) -> std::result::Result<Place, String> {
    let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| &entry.value[..]);
    let number =
        |key: &str| entry(key).map(|text| text.parse::<usize>().map_err(|_| format!("{key} {text}"))).transpose();
    let file = entry("location").ok_or("no location of its content")?;
    let inside =
        |part: std::path::Component| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir);
    if !std::path::Path::new(file).components().all(inside) {
        return Err(format!("its content in {file}, outside the model's folder"));
    }
    if let Some(length) = number("length")?.filter(|&length| length != bytes) {
        return Err(format!("{length} bytes of its content, which is {bytes}"));
    }
    Ok(Place::Beside { file: file.to_owned(), begin: number("offset")?.unwrap_or(0) })
}

/// The elements as bytes, of which the file has a list; narrow types are in the list of int32.
fn listed(tensor: &TensorProto, data_type: DataType) -> Vec<u8> {
    let narrow = |bytes: usize| {
        tensor.int32_data.iter().flat_map(move |value| value.to_le_bytes().into_iter().take(bytes)).collect()
    };
    match data_type {
        DataType::F32 => tensor.float_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DataType::F64 => tensor.double_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DataType::I64 => tensor.int64_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DataType::U64 => tensor.uint64_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DataType::U32 => tensor.uint64_data.iter().flat_map(|&value| (value as u32).to_le_bytes()).collect(),
        narrower => narrow(narrower.size()),
    }
}

/// The elements as numbers, where they are few and each is one of float64.
fn known(bytes: &[u8], data_type: DataType, dims: &[usize]) -> Result<Option<Array>> {
    let count = bytes.len() / data_type.size();
    let most = if data_type.is_float() { MOST_FLOATS } else { MOST_INTEGERS };
    if count > most {
        return Ok(None);
    }
    macro_rules! of {
        ($type:ty, $convert:expr) => {
            bytes
                .chunks_exact(size_of::<$type>())
                .map(|chunk| {
                    let number = <$type>::from_le_bytes(chunk.try_into().unwrap_or_default());
                    $convert(number)
                })
                .collect::<Vec<f64>>()
        };
    }
    let data = match data_type {
        DataType::Bool => bytes.iter().map(|&byte| f64::from(u8::from(byte != 0))).collect(),
        DataType::U8 => bytes.iter().map(|&byte| f64::from(byte)).collect(),
        DataType::I8 => of!(i8, f64::from),
        DataType::U16 => of!(u16, f64::from),
        DataType::I16 => of!(i16, f64::from),
        DataType::U32 => of!(u32, f64::from),
        DataType::I32 => of!(i32, f64::from),
        DataType::U64 => of!(u64, |value| value as f64),
        DataType::I64 => of!(i64, |value| value as f64),
        DataType::F16 => of!(u16, |bits| f16::from_bits(bits).to_f64()),
        DataType::BF16 => of!(u16, |bits| bf16::from_bits(bits).to_f64()),
        DataType::F32 => of!(f32, f64::from),
        DataType::F64 => of!(f64, |value| value),
    };
    Ok(if is_exact(bytes, data_type) { Some(Array { shape: shape_of(dims)?, data, dtype: data_type }) } else { None })
}

/// Whether float64 has all elements: beyond 2^53 it leaves integers out. The ends of int64 stand for the ends of axes.
fn is_exact(bytes: &[u8], data_type: DataType) -> bool {
    const EXACT: u64 = 1 << 53;
    let mut wide = bytes.chunks_exact(8).map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap_or_default()));
    match data_type {
        DataType::I64 => wide.all(|value| value.unsigned_abs() < EXACT || [i64::MIN, i64::MAX].contains(&value)),
        DataType::U64 => wide.all(|value| value.cast_unsigned() < EXACT),
        _ => true,
    }
}
