//! Compiled pipelines on disk: one binary archive a device, in `OPENMPS_CACHE_DIR` or `~/Library/Caches/openmps`. An archive that Metal
//! refuses (another macOS, another GPU) or that has grown too large is begun anew.

use super::{RawDevice, path_string, text};
use crate::error::{Error, Result};
use crate::folder;
use crate::interface::Properties;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSArray, NSError, NSURL};
use objc2_metal::{
    MTLBinaryArchive, MTLBinaryArchiveDescriptor, MTLComputePipelineDescriptor, MTLComputePipelineState, MTLDevice,
    MTLPipelineOption,
};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An archive on disk above this many bytes is begun anew.
const LARGEST: u64 = 64 << 20;

type RawArchive = Retained<ProtocolObject<dyn MTLBinaryArchive>>;
type RawPipeline = Retained<ProtocolObject<dyn MTLComputePipelineState>>;

struct Open {
    archive: RawArchive,
    file: PathBuf,
    /// Whether something was added since it was read or written.
    changed: bool,
}

// SAFETY: the archive is only touched under the mutex below, and Metal does not tie it to a thread.
unsafe impl Send for Open {}

/// The archive of a device; without one, pipelines are compiled anew in each process.
pub struct Archive {
    open: Mutex<Option<Open>>,
}

impl Archive {
    /// Reads the archive of a device, or begins one.
    pub fn open(device: &RawDevice, properties: &Properties) -> Archive {
        let open = folder::file(properties, ".metalarchive").and_then(|file| {
            let small = std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() <= LARGEST);
            let read = if small { make(device, Some(&file)) } else { None };
            let archive = read.or_else(|| make(device, None))?;
            Some(Open { archive, file, changed: false })
        });
        Archive { open: Mutex::new(open) }
    }

    /// The pipeline of a descriptor: from the archive, or compiled and added to it.
    pub fn pipeline(
        &self,
        device: &RawDevice,
        descriptor: &MTLComputePipelineDescriptor,
    ) -> std::result::Result<RawPipeline, Retained<NSError>> {
        let compile =
            |option| device.newComputePipelineStateWithDescriptor_options_reflection_error(descriptor, option, None);
        let mut open = self.lock();
        let Some(open) = &mut *open else { return compile(MTLPipelineOption::None) };
        descriptor.setBinaryArchives(Some(&NSArray::from_retained_slice(std::slice::from_ref(&open.archive))));
        if let Ok(found) = compile(MTLPipelineOption::FailOnBinaryArchiveMiss) {
            return Ok(found);
        }
        // Adding compiles, and what was added is found: so it is compiled once.
        match open.archive.addComputePipelineFunctionsWithDescriptor_error(descriptor) {
            Ok(()) => open.changed = true,
            Err(error) => tracing::debug!("a pipeline is not kept on disk: {}", text(&error)),
        }
        compile(MTLPipelineOption::None)
    }

    /// Writes the archive where something was added: beside the old one, which Metal has mapped, and then in its place.
    pub fn save(&self) -> Result<()> {
        let mut open = self.lock();
        let Some(open) = open.as_mut().filter(|open| open.changed) else { return Ok(()) };
        let failed = |message: String| Error::System { what: "the archive of pipelines", message };
        if let Some(folder) = open.file.parent() {
            std::fs::create_dir_all(folder).map_err(|error| failed(error.to_string()))?;
        }
        let beside = open.file.with_extension(format!("{}.metalarchive", std::process::id()));
        let written = open.archive.serializeToURL_error(&NSURL::fileURLWithPath(&path_string(&beside)));
        written.map_err(|error| failed(text(&error)))?;
        std::fs::rename(&beside, &open.file).map_err(|error| failed(error.to_string()))?;
        open.changed = false;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make(device: &RawDevice, file: Option<&PathBuf>) -> Option<RawArchive> {
    let descriptor = MTLBinaryArchiveDescriptor::new();
    let url = file.map(|file| NSURL::fileURLWithPath(&path_string(file)));
    descriptor.setUrl(url.as_deref());
    let archive = device.newBinaryArchiveWithDescriptor_error(&descriptor);
    archive.inspect_err(|error| tracing::debug!("an archive of pipelines is not used: {}", text(error))).ok()
}
