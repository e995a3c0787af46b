//! The CPU as a device: every command is executed at submission, on the calling thread and its helpers.

use super::{Command, Driver, machine};
use crate::error::{Error, Result};
use crate::pipeline::Pipeline;
use crate::properties::{Backend, DeviceProperties};
use crate::sanitizer;
use openmps_host::Program;
use openmps_host::level::{Level, level};
use openmps_host::native::memory::move_bytes;
use openmps_host::threads;

/// The host's driver; it has no state of its own.
pub(crate) struct Host;

/// The host's form of a kernel.
///
/// # Safety
/// As for `Queue::dispatch`.
#[inline]
pub(crate) unsafe fn run(
    operation: &'static str,
    pipeline: &Pipeline,
    grid: [usize; 3],
    arguments: &[u64],
) -> Result<()> {
    let run = |program: &Program| {
        // SAFETY: the caller's promise.
        unsafe { program.run(grid, arguments) }
    };
    pipeline.program().and_then(run).map_err(|source| Error::Kernel { operation, source })
}

impl Driver for Host {
    #[inline]
    fn submit(&self, _queue: u64, command: Command<'_>) -> Result<()> {
        match command {
            Command::Native { operation, work, .. } | Command::Submit { operation, work } => {
                work().map_err(|source| Error::Kernel { operation, source })
            }
            Command::Dispatch { pipeline, grid, arguments, .. } if sanitizer::is_on() => {
                // SAFETY: as below; the sanitizer touches only what it finds in a buffer or a given region.
                unsafe { sanitizer::run(pipeline, grid, arguments) }
            }
            Command::Dispatch { operation, pipeline, grid, arguments } => {
                // SAFETY: `Queue::dispatch` is unsafe, and its caller vouches for the addresses.
                unsafe { run(operation, pipeline, grid, arguments) }
            }
            Command::Text { kernel, .. } => Err(super::no_text(kernel.name(), "the host")),
            Command::Vendor { operation, .. } => Err(super::not_taken(operation, "host")),
            Command::Write { destination, source } => {
                copy(destination, source.as_ptr() as usize, source.len());
                Ok(())
            }
            Command::Read { destination, source } => {
                copy(destination.as_mut_ptr() as usize, source, destination.len());
                Ok(())
            }
            Command::Copy { destination, source, bytes } => {
                copy(destination, source, bytes);
                Ok(())
            }
            Command::Fill { address, byte, bytes } => {
                fill(address, byte, bytes);
                Ok(())
            }
            Command::Record(event) => {
                event.reach();
                Ok(())
            }
            // Returns at once: what was recorded on the host ran at its submission.
            Command::Wait(event) => event.synchronize(),
            Command::Callback(callback) => {
                callback();
                Ok(())
            }
        }
    }

    #[inline]
    fn finish(&self, _queue: u64) -> Result<()> {
        Ok(())
    }
}

/// What this machine's CPU is.
pub(crate) fn properties() -> DeviceProperties {
    let total_memory = machine::memory();
    let level = level();
    DeviceProperties {
        name: machine::cpu_name(),
        backend: Backend::Host,
        cores: machine::cores(),
        threads: threads::count(),
        total_memory,
        vector_level: openmps_host::level::name(),
        simd_width: match level {
            Level::Avx512 => 16,
            Level::Avx2 => 8,
            Level::Portable => 4,
        },
        unified_memory: true,
        max_buffer_length: total_memory,
    }
}

/// Bytes that one thread takes at a time, and what they cost: large copies are worth a second thread.
const PIECE: usize = 256 << 10;
const PIECE_NS: usize = 20_000;

fn copy(destination: usize, source: usize, bytes: usize) {
    let overlaps = destination < source.saturating_add(bytes) && source < destination.saturating_add(bytes);
    let move_piece = |begin: usize, length: usize| {
        let (to, from) = ((destination + begin) as *mut u8, (source + begin) as *const u8);
        // SAFETY: the queue has checked that both ranges lie in buffers or slices that live through the command;
        // what overlaps is one piece.
        unsafe { move_bytes(from, to, length) };
    };
    if overlaps {
        move_piece(0, bytes);
    } else {
        in_pieces(bytes, move_piece);
    }
}

fn fill(address: usize, byte: u8, bytes: usize) {
    in_pieces(bytes, |begin, length| {
        // SAFETY: the queue has checked that the range lies in a buffer; pieces do not overlap.
        unsafe { std::ptr::write_bytes((address + begin) as *mut u8, byte, length) };
    });
}

/// Calls `work(begin, length)` for pieces that make up `bytes`, on several threads when there are many.
fn in_pieces(bytes: usize, work: impl Fn(usize, usize) + Sync) {
    if bytes <= 2 * PIECE {
        work(0, bytes);
        return;
    }
    threads::parallel_for(bytes.div_ceil(PIECE), PIECE_NS, |begin, end| {
        let begin = begin * PIECE;
        work(begin, (end * PIECE).min(bytes) - begin);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_overlapping_copies_are_right() {
        let bytes = 5 * PIECE + 77;
        let source: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        let mut destination = vec![0u8; bytes];
        copy(destination.as_mut_ptr() as usize, source.as_ptr() as usize, bytes);
        assert!(source == destination);
        let begin = destination.as_mut_ptr() as usize;
        copy(begin + 3, begin, bytes - 3);
        assert!(destination[3..] == source[..bytes - 3]);
        fill(begin, 7, bytes - 1);
        assert!(destination[..bytes - 1].iter().all(|&byte| byte == 7));
        assert_eq!(destination[bytes - 1], source[bytes - 4]);
    }

    #[test]
    fn the_machine_describes_itself() {
        let properties = properties();
        assert!(!properties.name.is_empty());
        assert!(properties.cores > 0 && properties.threads > 0);
        assert!(properties.total_memory > 64 << 20);
    }
}
