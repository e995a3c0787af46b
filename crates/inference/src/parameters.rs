//! The file of parameters, `.pdiparams`: tensors one after another, in the order of their names.

use crate::error::{Error, Result};
use crate::pdmodel;
use crate::pdmodel::format::TensorDesc;
use crate::program::Program;
use crate::storage::Storage;
use openmps::graph::StoredTensor;
use openmps::{DataType, Device};
use prost::Message;
use std::sync::Arc;

/// Where a tensor lies in the file.
struct Entry {
    data_type: DataType,
    dims: Vec<usize>,
    begin: usize,
    bytes: usize,
}

/// Goes through the file from tensor to tensor.
struct Reader<'s> {
    storage: &'s Storage,
    at: usize,
}

/// The parameters of a program for a device, in the program's order. What is read here says where they lie; they themselves are read when they are needed.
pub(crate) fn load(device: &Device, program: &Program, storage: Storage) -> Result<Vec<StoredTensor>> {
    let storage = Arc::new(storage);
    let mut reader = Reader { storage: &storage, at: 0 };
    let mut loaded = Vec::with_capacity(program.parameters.len());
    for port in &program.parameters {
        let Entry { data_type, dims, begin, bytes } = reader.entry()?;
        let declared = &program.values[port.value];
        let same = |(&got, &expected): (&usize, &i64)| expected < 0 || got as i64 == expected;
        let fits = declared.data_type == Some(data_type)
            && declared.dims.len() == dims.len()
            && dims.iter().zip(&declared.dims).all(same);
        if !fits {
            let got = format!("{data_type} {dims:?}");
            let expected = format!("{:?} {:?}", declared.data_type, declared.dims);
            return Err(Error::Parameter { name: port.name.clone(), got, expected });
        }
        let storage = Arc::clone(&storage);
        loaded.push(StoredTensor::new(device, &dims, data_type, move || Ok(storage.read(begin, bytes)?))?);
    }
    if reader.at != storage.len() {
        let what = format!("{} bytes more than the program's {} parameters", storage.len() - reader.at, loaded.len());
        return Err(Error::Parameters { what, at: reader.at });
    }
    Ok(loaded)
}

impl Reader<'_> {
    /// Version, levels of detail, version of the tensor, its description; its elements are passed over.
    fn entry(&mut self) -> Result<Entry> {
        let begin = self.at;
        self.expect_version(begin)?;
        for _ in 0..self.number(8)? {
            let size = self.number(8)?;
            self.pass(size)?;
        }
        self.expect_version(begin)?;
        let size = self.number(4)?;
        let described = self.at;
        let wrong = |what: String| Error::Parameters { what, at: described };
        let description = self.take(size)?;
        let description = TensorDesc::decode(&description[..]).map_err(|error| wrong(error.to_string()))?;
        let code = i64::from(description.data_type);
        let data_type = pdmodel::data_type(code).ok_or_else(|| wrong(format!("an element type of number {code}")))?;
        let dims: Option<Vec<usize>> = description.dims.iter().map(|&size| usize::try_from(size).ok()).collect();
        let count =
            dims.as_ref().and_then(|dims| dims.iter().try_fold(data_type.size(), |all, &size| all.checked_mul(size)));
        let (Some(dims), Some(bytes)) = (dims, count) else {
            return Err(wrong(format!("dimensions {:?}", description.dims)));
        };
        let begin = self.at;
        self.pass(bytes)?;
        Ok(Entry { data_type, dims, begin, bytes })
    }

    fn expect_version(&mut self, at: usize) -> Result<()> {
        match self.number(4)? {
            0 => Ok(()),
            other => Err(Error::Parameters { what: format!("version {other} of a tensor, known is 0"), at }),
        }
    }

    /// A little-endian number of up to eight bytes; what is no size is too large for any file.
    fn number(&mut self, bytes: usize) -> Result<usize> {
        let value = self.take(bytes)?.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        Ok(usize::try_from(value).unwrap_or(usize::MAX))
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>> {
        let bytes = self.storage.read(self.at, count)?;
        self.at += count;
        Ok(bytes)
    }

    /// Goes on by so many bytes, which must be there.
    fn pass(&mut self, count: usize) -> Result<()> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.storage.len());
        self.at = end.ok_or_else(|| self.storage.too_short(self.at, count))?;
        Ok(())
    }
}
