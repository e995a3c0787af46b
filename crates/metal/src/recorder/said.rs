//! What was said, one value a call. Buffers are named by their numbers, in the order in which they were made.

use crate::interface::{Grid, Size};
use std::ops::Range;

/// One call of the trait.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Said {
    CommandBuffer(String),
    Pipeline(String),
    Buffer { index: usize, buffer: u64, offset: usize },
    Bytes { index: usize, bytes: Vec<u8> },
    ThreadgroupMemory { index: usize, bytes: usize },
    Dispatch { grid: Grid, threads: Size },
    Barrier,
    Fill { buffer: u64, range: Range<usize>, byte: u8 },
    Copy { destination: (u64, usize), source: (u64, usize), bytes: usize },
    Matrix(&'static str),
    Graph { inputs: Vec<(u64, usize)>, outputs: Vec<(u64, usize)> },
    Signal(u64),
    Wait(u64),
    Group(String),
    EndGroup,
    Commit(String),
    Ended(String),
    Save(usize),
    Capture(String),
    EndCapture,
}
