//! Memory that stays resident: from macOS 15 on a residency set holds every heap, so that no command buffer has to name them. Before, Metal
//! makes resident what a command buffer binds.

use super::RawDevice;
use objc2::available;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLAllocation, MTLCommandQueue, MTLDevice, MTLResidencySet, MTLResidencySetDescriptor};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The residency set of a device.
pub struct Residency {
    set: Mutex<Set>,
}

struct Set(Retained<ProtocolObject<dyn MTLResidencySet>>);

// SAFETY: the set is only touched under the mutex above, and Metal does not tie it to a thread.
unsafe impl Send for Set {}

impl Residency {
    /// An empty set, where the system has them.
    pub fn new(device: &RawDevice) -> Option<Residency> {
        if !available!(macos = 15.0) {
            return None;
        }
        let set = device.newResidencySetWithDescriptor_error(&MTLResidencySetDescriptor::new()).ok()?;
        Some(Residency { set: Mutex::new(Set(set)) })
    }

    /// Makes an allocation resident.
    pub fn add(&self, allocation: &ProtocolObject<dyn MTLAllocation>) {
        let set = self.lock();
        set.0.addAllocation(allocation);
        set.0.commit();
        set.0.requestResidency();
    }

    /// Lets an allocation go.
    pub fn remove(&self, allocation: &ProtocolObject<dyn MTLAllocation>) {
        let set = self.lock();
        set.0.removeAllocation(allocation);
        set.0.commit();
    }

    /// Lets a queue's commands use all that is in the set.
    pub fn attach(&self, queue: &ProtocolObject<dyn MTLCommandQueue>) {
        queue.addResidencySet(&self.lock().0);
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
