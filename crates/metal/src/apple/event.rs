//! `MTLSharedEvent`: a number that queues and the host set and wait for.

use super::RawDevice;
use crate::error::{Error, Result};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLDevice, MTLSharedEvent};
use std::time::{Duration, Instant};

/// A shared event. Clones are the same.
#[derive(Clone)]
pub struct Event {
    pub(crate) raw: Retained<ProtocolObject<dyn MTLSharedEvent>>,
}

impl Event {
    /// A new event at 0.
    pub fn new(device: &RawDevice) -> Result<Event> {
        let raw = device.newSharedEvent().ok_or(Error::NotMade { what: "shared event" })?;
        Ok(Event { raw })
    }

    /// The value reached.
    pub fn value(&self) -> u64 {
        self.raw.signaledValue()
    }

    /// Polls, with naps that grow to a millisecond, until the value is reached or the time is over: the blocking call is of macOS 15.
    pub fn wait(&self, value: u64, timeout: Duration) -> bool {
        const LONGEST: Duration = Duration::from_millis(1);
        let end = Instant::now() + timeout;
        let mut nap = Duration::from_micros(10);
        while self.value() < value {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(LONGEST);
        }
        true
    }
}
