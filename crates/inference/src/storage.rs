//! Where parameters lie: a file that stays open, or memory. They are read when a program is compiled.

use crate::error::{Error, Result};
use prost::bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The bytes of a file of parameters.
#[derive(Debug)]
pub(crate) enum Storage {
    Memory(Bytes),
    File(OpenFile),
}

#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    file: File,
    length: usize,
    modified: Option<SystemTime>,
}

impl Storage {
    /// A file, which is open from now on: one that takes its name later is another one.
    pub(crate) fn open(path: &Path) -> Result<Storage> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")));
        }
        let length = usize::try_from(metadata.len()).map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
        let modified = metadata.modified().ok();
        Ok(Storage::File(OpenFile { path: path.to_owned(), file, length, modified }))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Storage::Memory(bytes) => bytes.len(),
            Storage::File(file) => file.length,
        }
    }

    /// All bytes; those in memory without a copy.
    pub(crate) fn whole(&self) -> Result<Bytes> {
        match self {
            Storage::Memory(bytes) => Ok(bytes.clone()),
            Storage::File(_) => Ok(Bytes::from(self.read(0, self.len())?)),
        }
    }

    /// What is said where `count` bytes from `at` on are not there.
    pub(crate) fn too_short(&self, at: usize, count: usize) -> Error {
        let what = format!("{count} bytes are needed, the file ends after {}", self.len().saturating_sub(at));
        Error::Parameters { what, at }
    }

    /// A copy of `count` bytes from `at` on.
    pub(crate) fn read(&self, at: usize, count: usize) -> Result<Vec<u8>> {
        let end = at.checked_add(count).filter(|&end| end <= self.len());
        let end = end.ok_or_else(|| self.too_short(at, count))?;
        match self {
            Storage::Memory(bytes) => Ok(bytes[at..end].to_vec()),
            Storage::File(file) => {
                file.read(at, count).map_err(|source| Error::File { path: file.path.clone(), source })
            }
        }
    }
}

impl OpenFile {
    /// Bytes of the file as it was when it was opened: weights of two trainings must not be mixed.
    fn read(&self, at: usize, count: usize) -> io::Result<Vec<u8>> {
        let metadata = self.file.metadata()?;
        if metadata.len() != self.length as u64 || metadata.modified().ok() != self.modified {
            return Err(io::Error::other("it was changed after it had been opened; load the model again"));
        }
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, at as u64)?;
        Ok(bytes)
    }
}
