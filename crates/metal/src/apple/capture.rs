//! Captures for Xcode: all that a queue does between two calls goes into a `.gputrace` file. The process needs `MTL_CAPTURE_ENABLED=1`.

use super::{path_string, text};
use crate::error::{Error, Result};
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSURL;
use objc2_metal::{MTLCaptureDescriptor, MTLCaptureDestination, MTLCaptureManager, MTLCommandQueue};
use std::path::Path;

/// Begins a capture of a queue.
pub fn begin(queue: &ProtocolObject<dyn MTLCommandQueue>, file: &Path) -> Result<()> {
    // SAFETY: the manager lives as long as the process.
    let manager = unsafe { MTLCaptureManager::sharedCaptureManager() };
    if !manager.supportsDestination(MTLCaptureDestination::GPUTraceDocument) {
        let message = "captures are off: start the process with MTL_CAPTURE_ENABLED=1".to_string();
        return Err(Error::System { what: "capture", message });
    }
    let descriptor = MTLCaptureDescriptor::new();
    // SAFETY: a command queue is one of the objects that can be captured.
    unsafe { descriptor.setCaptureObject(Some(queue.as_ref())) };
    descriptor.setDestination(MTLCaptureDestination::GPUTraceDocument);
    descriptor.setOutputURL(Some(&NSURL::fileURLWithPath(&path_string(file))));
    let begun = manager.startCaptureWithDescriptor_error(&descriptor);
    begun.map_err(|error| Error::System { what: "capture", message: text(&error) })
}

/// Ends the capture, if there is one.
pub fn end() {
    // SAFETY: the manager lives as long as the process.
    let manager = unsafe { MTLCaptureManager::sharedCaptureManager() };
    if manager.isCapturing() {
        manager.stopCapture();
    }
}
