//! Events: what one stream sets and another one waits for, on the GPU.

use super::{Open, Ordering, Stream, get_or_make};
use crate::error::Result;
use crate::interface::{CommandBuffer, Metal};

impl<M: Metal> Stream<M> {
    /// Sets an event when the commands so far have ended, and hands them to the GPU: somebody waits for it.
    pub fn signal(&self, event: &M::Event, value: u64) -> Result<()> {
        self.encode("signal", &[], Ordering::Encoder, |commands, kept| {
            kept.values.push(Box::new(event.clone()));
            commands.signal(event, value)
        })?;
        self.flush()
    }

    /// As `add_callback`; and what it gives, an event and its value, is reached on the GPU at the same point, so that other streams of the
    /// device may wait for it there.
    pub fn record(&self, callback: impl FnOnce() + Send + 'static) -> Result<(M::Event, u64)> {
        let event = get_or_make(&self.timeline, || self.metal.autorelease_pool(|| self.metal.event()))?;
        self.metal.autorelease_pool(|| {
            let mut state = self.lock_with_room();
            let value = state.records + 1;
            let Open { commands, kept, hazards, .. } = self.open(&mut state)?;
            hazards.clear();
            commands.signal(&event, value)?;
            kept.values.push(Box::new(event.clone()));
            kept.callbacks.push(Box::new(callback));
            state.records = value;
            self.commit(&mut state);
            Ok((event, value))
        })
    }

    /// Holds the commands that follow until an event has reached a value. Commands before it are handed over first: what is to set the
    /// event may wait for them.
    pub fn wait_for(&self, event: &M::Event, value: u64) -> Result<()> {
        self.flush()?;
        self.encode("wait", &[], Ordering::Encoder, |commands, kept| {
            kept.values.push(Box::new(event.clone()));
            commands.wait(event, value)
        })
    }
}
