//! What moves bytes: fills and copies by Metal's blit encoder, in pieces, and the host's bytes into staging memory.

use super::staging::Staged;
use super::{Ordering, Stream};
use crate::arguments::Resolved;
use crate::error::{Error, Result};
use crate::hazards::Access;
use crate::interface::{CommandBuffer, Metal};
use crate::limits;
use std::sync::PoisonError;

/// Splits a length into pieces that Metal moves with one command: first byte and number of bytes.
pub fn pieces(bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..bytes).step_by(limits::PIECE).map(move |first| (first, limits::PIECE.min(bytes - first)))
}

impl<M: Metal> Stream<M> {
    /// Writes one byte all over a range.
    pub fn fill(&self, target: &Resolved<M::Buffer>, bytes: usize, byte: u8) -> Result<()> {
        self.check_range("fill", target, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let access = self.access(target, bytes, true);
        self.encode("fill", &[access], Ordering::Encoder, |commands, kept| {
            kept.buffer(&self.metal, &target.buffer);
            pieces(bytes).try_for_each(|(first, bytes)| {
                let begin = target.offset + first;
                // SAFETY: a piece of the range that was checked above.
                unsafe { commands.fill(&target.buffer, begin..begin + bytes, byte) }
            })
        })
    }

    /// Copies between buffers. Ranges that overlap are copied on the host's side of unified memory by whoever calls this, not here.
    pub fn copy(&self, destination: &Resolved<M::Buffer>, source: &Resolved<M::Buffer>, bytes: usize) -> Result<()> {
        self.check_range("copy to", destination, bytes)?;
        self.check_range("copy from", source, bytes)?;
        let (to, from) = (self.access(destination, bytes, true), self.access(source, bytes, false));
        if to.range.start < from.range.end && from.range.start < to.range.end {
            let why = format!("the ranges {:#x?} and {:#x?} overlap", to.range, from.range);
            return Err(Error::Shape { operation: "copy", why });
        }
        if bytes == 0 {
            return Ok(());
        }
        self.encode("copy", &[to, from], Ordering::Encoder, |commands, kept| {
            kept.buffer(&self.metal, &destination.buffer);
            kept.buffer(&self.metal, &source.buffer);
            pieces(bytes).try_for_each(|(first, bytes)| {
                let to = (&destination.buffer, destination.offset + first);
                // SAFETY: pieces of the ranges that were checked above.
                unsafe { commands.copy(to, (&source.buffer, source.offset + first), bytes) }
            })
        })
    }

    /// Copies the host's bytes into memory of the device from which commands may read them, until what is given is dropped; none where so much
    /// is on its way that the caller has to wait.
    pub fn stage(&self, source: &[u8]) -> Option<Staged<M>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner).place(&self.metal, source)
    }

    fn access(&self, target: &Resolved<M::Buffer>, bytes: usize, written: bool) -> Access {
        let begin = self.metal.contents(&target.buffer).0 + target.offset;
        Access { range: begin..begin + bytes, written }
    }

    fn check_range(&self, what: &'static str, target: &Resolved<M::Buffer>, bytes: usize) -> Result<()> {
        limits::check_multiple(what, "the offset", target.offset, limits::BLIT_ALIGNMENT)?;
        limits::check_multiple(what, "the length", bytes, limits::BLIT_ALIGNMENT)?;
        let (offset, length) = (target.offset, self.metal.contents(&target.buffer).1);
        if offset.checked_add(bytes).is_some_and(|end| end <= length) {
            return Ok(());
        }
        Err(Error::OutOfRange { what, offset, bytes, length })
    }
}
