//! The file of parameters, `.pdiparams`: tensors one after another, in the order of their names.

use crate::error::{Error, Result};
use crate::pdmodel;
use crate::pdmodel::format::TensorDesc;
use crate::program::Program;
use openmps::{Buffer, DataType, Device, TensorData};
use prost::Message;

/// A tensor in the file.
struct Stored<'a> {
    data_type: DataType,
    dims: Vec<usize>,
    bytes: &'a [u8],
}

/// The parameters of a program on a device, in the program's order.
pub(crate) fn load(device: &Device, program: &Program, file: &[u8]) -> Result<Vec<TensorData>> {
    let mut at = 0;
    let mut loaded = Vec::with_capacity(program.parameters.len());
    for port in &program.parameters {
        let stored = tensor(file, &mut at)?;
        let declared = &program.values[port.value];
        let same = |(&got, &expected): (&usize, &i64)| expected < 0 || got as i64 == expected;
        let fits = declared.data_type == Some(stored.data_type)
            && declared.dims.len() == stored.dims.len()
            && stored.dims.iter().zip(&declared.dims).all(same);
        if !fits {
            let got = format!("{} {:?}", stored.data_type, stored.dims);
            let expected = format!("{:?} {:?}", declared.data_type, declared.dims);
            return Err(Error::Parameter { name: port.name.clone(), got, expected });
        }
        let buffer = Buffer::from_slice(device, stored.bytes)?;
        loaded.push(TensorData::new(&buffer, 0, &stored.dims, stored.data_type)?);
    }
    if at != file.len() {
        let what = format!("{} bytes more than the program's {} parameters", file.len() - at, loaded.len());
        return Err(Error::Parameters { what, at });
    }
    Ok(loaded)
}

/// Version, levels of detail, version of the tensor, its description, its elements.
fn tensor<'a>(file: &'a [u8], at: &mut usize) -> Result<Stored<'a>> {
    let begin = *at;
    expect_version(take(file, at, 4)?, begin)?;
    for _ in 0..number(take(file, at, 8)?) {
        let size = number(take(file, at, 8)?);
        take(file, at, size)?;
    }
    expect_version(take(file, at, 4)?, begin)?;
    let size = number(take(file, at, 4)?);
    let described = *at;
    let wrong = |what: String| Error::Parameters { what, at: described };
    let description = TensorDesc::decode(take(file, at, size)?).map_err(|error| wrong(error.to_string()))?;
    let code = i64::from(description.data_type);
    let data_type = pdmodel::data_type(code).ok_or_else(|| wrong(format!("an element type of number {code}")))?;
    let dims: Option<Vec<usize>> = description.dims.iter().map(|&size| usize::try_from(size).ok()).collect();
    let count =
        dims.as_ref().and_then(|dims| dims.iter().try_fold(data_type.size(), |all, &size| all.checked_mul(size)));
    let (Some(dims), Some(count)) = (dims, count) else {
        return Err(wrong(format!("dimensions {:?}", description.dims)));
    };
    Ok(Stored { data_type, dims, bytes: take(file, at, count)? })
}

fn expect_version(bytes: &[u8], at: usize) -> Result<()> {
    match number(bytes) {
        0 => Ok(()),
        other => Err(Error::Parameters { what: format!("version {other} of a tensor, known is 0"), at }),
    }
}

fn take<'a>(file: &'a [u8], at: &mut usize, count: usize) -> Result<&'a [u8]> {
    let end = at.checked_add(count).filter(|&end| end <= file.len());
    let end = end.ok_or_else(|| Error::Parameters {
        what: format!("{count} bytes are needed, the file ends after {}", file.len() - *at),
        at: *at,
    })?;
    let bytes = &file[*at..end];
    *at = end;
    Ok(bytes)
}

/// A little-endian number of up to eight bytes; what is no size is too large for any file.
fn number(bytes: &[u8]) -> usize {
    let value = bytes.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
    usize::try_from(value).unwrap_or(usize::MAX)
}
