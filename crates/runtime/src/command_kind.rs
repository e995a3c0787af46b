//! What kinds of commands there are, and how many of each a queue has taken.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// A native kernel: code of the CPU's own for this operation.
    Native,
    /// A compiled program over a grid.
    Dispatch,
    /// A call of the vendor's libraries.
    Vendor,
    /// A copy between buffers.
    Copy,
    /// A copy from the host's memory.
    Write,
    /// A copy to the host's memory.
    Read,
    /// One byte all over a range.
    Fill,
    /// An event set.
    Record,
    /// An event waited for.
    Wait,
    /// A function of the caller's.
    Callback,
}

const KINDS: usize = CommandKind::Callback as usize + 1;

impl CommandKind {
    /// The name in lower case.
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; KINDS] =
            ["native", "dispatch", "vendor", "copy", "write", "read", "fill", "record", "wait", "callback"];
        NAMES[self as usize]
    }
}

/// How many commands a queue has taken, by kind, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandCounts {
    counts: [u64; KINDS],
    /// Commands that failed.
    pub errors: u64,
}

impl CommandCounts {
    /// The commands of one kind.
    pub fn of(&self, kind: CommandKind) -> u64 {
        self.counts[kind as usize]
    }

    /// The commands of every kind.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The counts of a queue that takes commands on any thread.
#[derive(Default)]
pub(crate) struct CommandCounters {
    counts: [AtomicU64; KINDS],
    errors: AtomicU64,
}

impl CommandCounters {
    #[inline]
    pub fn add(&self, kind: CommandKind) {
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn add_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of this moment.
    pub fn now(&self) -> CommandCounts {
        let counts = std::array::from_fn(|kind| self.counts[kind].load(Ordering::Relaxed));
        CommandCounts { counts, errors: self.errors.load(Ordering::Relaxed) }
    }
}
