//! Bytes over one or more TCP connections: blocks go to them in turn, so that several connections carry one stream.

use super::{Interest, Transport};
use crate::error::{Error, Result};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that go to one connection before the next one's turn.
const BLOCK: usize = 128 << 10;
/// Bytes that are read ahead.
const BUFFER: usize = 256 << 10;

/// A stream over TCP.
pub(crate) struct Tcp {
    streams: Vec<TcpStream>,
    /// Bytes written and read so far: they say whose turn it is.
    written: usize,
    taken: usize,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Tcp {
    pub fn new(streams: Vec<TcpStream>) -> Result<Tcp> {
        for stream in &streams {
            stream.set_nonblocking(true).map_err(Error::system("the options of a connection"))?;
        }
        Ok(Tcp { streams, written: 0, taken: 0, buffer: vec![0; BUFFER], begin: 0, end: 0 })
    }

    /// The connection whose turn it is after so many bytes, and how many go to it.
    fn turn(&self, bytes: usize) -> (usize, usize) {
        match self.streams.len() {
            1 => (0, usize::MAX),
            streams => (bytes / BLOCK % streams, BLOCK - bytes % BLOCK),
        }
    }

    /// Reads what has come into the connection whose turn it is.
    fn fetch(&mut self, into: Into<'_>) -> io::Result<usize> {
        let (stream, most) = self.turn(self.taken);
        let room = match into {
            Into::Buffer => &mut self.buffer[self.end..],
            Into::Place(bytes) => bytes,
        };
        let most = most.min(room.len());
        let bytes = receive(&mut self.streams[stream], &mut room[..most])?;
        self.taken += bytes;
        Ok(bytes)
    }
}

enum Into<'a> {
    Buffer,
    Place(&'a mut [u8]),
}

/// Zero where nothing has come.
fn receive(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
    match stream.read(into) {
        Ok(0) if !into.is_empty() => Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection ended")),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        other => other,
    }
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (stream, most) = self.turn(self.written);
        match self.streams[stream].write(&bytes[..bytes.len().min(most)]) {
            Ok(bytes) => {
                self.written += bytes;
                Ok(bytes)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        let wanted = wanted.min(BUFFER);
        if self.end - self.begin < wanted {
            if BUFFER - self.begin < wanted || self.begin == self.end {
                self.buffer.copy_within(self.begin..self.end, 0);
                (self.begin, self.end) = (0, self.end - self.begin);
            }
            match self.fetch(Into::Buffer) {
                Ok(bytes) => self.end += bytes,
                // What came before the end is shown first.
                Err(error) if self.begin == self.end => return Err(error),
                Err(_) => {}
            }
        }
        Ok(&self.buffer[self.begin..self.end])
    }

    fn consume(&mut self, bytes: usize) {
        self.begin += bytes;
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.begin == self.end && into.len() >= BLOCK {
            return self.fetch(Into::Place(into));
        }
        let there = self.peek(into.len().min(BUFFER))?;
        let bytes = there.len().min(into.len());
        into[..bytes].copy_from_slice(&there[..bytes]);
        self.consume(bytes);
        Ok(bytes)
    }

    fn before_sleep(&mut self, _: Interest, _: usize) -> bool {
        false
    }

    fn descriptors(&self, interest: Interest) -> [Option<BorrowedFd<'_>>; 2] {
        let of = |bytes: usize| self.streams[self.turn(bytes).0].as_fd();
        [interest.to_read.then(|| of(self.taken)), interest.to_write.then(|| of(self.written))]
    }

    fn after_sleep(&mut self) -> io::Result<()> {
        Ok(())
    }
}
