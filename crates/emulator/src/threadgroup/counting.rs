//! What the threads of counted texts do, told to a recorder.

use super::{MEETING, Runner};
use crate::count::Recorder;
use crate::frame::Stop;

/// Called by the running thread of a counted text, before it reads or writes, and at the begin of a block.
pub(super) extern "C" fn access(address: u64, bytes: u32, kind: u32, site: u64) {
    let meeting = MEETING.get();
    // SAFETY: as for `stop`; nothing else borrows the meeting while a thread runs. Where the host has called the image, no thread does.
    unsafe {
        if !(*meeting).running.in_kernel {
            return;
        }
        // The watchdog must not leave this function halfway.
        (*meeting).running.in_kernel = false;
        let recorder = (*meeting).recorder.as_deref_mut();
        if recorder.is_some_and(|recorder| recorder.takes_block(address, bytes, kind)) {
            (*meeting).running.in_kernel = true;
            return;
        }
        let (frame, [limit, base]) = ((*meeting).frame, (*meeting).stack);
        let within = |begin: u64, bytes: u64| address.wrapping_sub(begin) < bytes;
        let threads = u64::from((*frame).threads);
        let of_emulator = within((*frame).order as u64, threads * 4) || within((*frame).positions as u64, threads * 16);
        if !within(limit, base - limit)
            && !of_emulator
            && let Some(recorder) = &mut (*meeting).recorder
        {
            recorder.note((*frame).running, address, bytes, kind, site);
        }
        (*meeting).running.in_kernel = true;
    }
}

impl Runner {
    /// Counts accesses in a recorder from now on.
    pub(crate) fn record(&mut self, recorder: Recorder) {
        // SAFETY: the meeting is this runner's own, and no thread runs now.
        unsafe { (*self.meeting).recorder = Some(Box::new(recorder)) };
    }

    /// What was counted.
    pub(crate) fn recorded(&mut self) -> Option<Recorder> {
        // SAFETY: as above.
        unsafe { (*self.meeting).recorder.take().map(|recorder| *recorder) }
    }

    fn recorder(&mut self) -> Option<&mut Recorder> {
        // SAFETY: as above; the borrow of the runner keeps threads from running.
        unsafe { (*self.meeting).recorder.as_deref_mut() }
    }

    /// The simdgroup that ran last, or all of a threadgroup's, waits at a threadgroup barrier or is over.
    pub(super) fn meet(&mut self) {
        if let Some(recorder) = self.recorder() {
            recorder.meet();
        }
    }

    /// Counts an operation that lanes of a simdgroup came to.
    pub(super) fn count(&mut self, stop: Stop) {
        let Some(Recorder { counters, .. }) = self.recorder() else { return };
        match stop {
            Stop::Barrier => counters.threadgroup_barriers += 1,
            Stop::SimdgroupBarrier => counters.simdgroup_barriers += 1,
            Stop::Collective => counters.simdgroup_operations += 1,
            Stop::Everyone => counters.matrix_multiplications += 1,
        }
    }
}
