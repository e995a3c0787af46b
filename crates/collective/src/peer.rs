//! Another rank as the engine sees it: its transport, and what came from it while this rank was sending.

use crate::transport::{Interest, Transport};
use std::io;

/// The most that is kept of what comes early; more waits where it is.
const MOST_EARLY: usize = 1 << 30;
/// Bytes that are moved at a time.
const SOME: usize = 64 << 10;

/// A stream of bytes to a rank and one from it.
pub(crate) struct Peer {
    pub transport: Box<dyn Transport>,
    /// Bytes that have left the transport, of which these many have been consumed.
    early: Vec<u8>,
    consumed: usize,
}

impl Peer {
    pub fn new(transport: Box<dyn Transport>) -> Peer {
        Peer { transport, early: Vec::new(), consumed: 0 }
    }

    /// Takes what has come out of the transport's way, so that a rank that sends to this one is not held up by this one's own sending.
    pub fn absorb(&mut self) -> io::Result<bool> {
        let before = self.early.len();
        while self.early.len() < MOST_EARLY && self.fetch(SOME)? > 0 {}
        Ok(self.early.len() > before)
    }

    /// Moves no more than `most` bytes out of the transport.
    fn fetch(&mut self, most: usize) -> io::Result<usize> {
        let there = self.transport.peek(most)?;
        let bytes = there.len().min(most);
        self.early.extend_from_slice(&there[..bytes]);
        self.transport.consume(bytes);
        Ok(bytes)
    }

    /// As [`Transport::peek`].
    pub fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        if self.early.is_empty() {
            return self.transport.peek(wanted);
        }
        loop {
            let missing = wanted.saturating_sub(self.early.len() - self.consumed);
            if missing == 0 || self.fetch(missing)? == 0 {
                return Ok(&self.early[self.consumed..]);
            }
        }
    }

    /// As [`Transport::consume`].
    pub fn consume(&mut self, bytes: usize) {
        if self.early.is_empty() {
            return self.transport.consume(bytes);
        }
        self.consumed += bytes;
        if self.consumed == self.early.len() {
            (self.early, self.consumed) = (Vec::new(), 0);
        }
    }

    /// As [`Transport::read`].
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.early.is_empty() {
            return self.transport.read(into);
        }
        let there = &self.early[self.consumed..];
        let bytes = there.len().min(into.len());
        into[..bytes].copy_from_slice(&there[..bytes]);
        self.consume(bytes);
        Ok(bytes)
    }

    /// As [`Transport::before_sleep`]; where something came early, all that is unread has left the transport.
    pub fn before_sleep(&mut self, interest: Interest, unread: usize) -> bool {
        self.transport.before_sleep(interest, if self.early.is_empty() { unread } else { 0 })
    }
}
