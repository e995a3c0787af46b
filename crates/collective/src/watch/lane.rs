//! A connection on which words go.

use super::word::{WORD, Word};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection for words.
pub(super) struct Lane {
    pub rank: usize,
    pub stream: TcpStream,
    pub open: bool,
    pub unsent: Vec<u8>,
    coming: [u8; WORD],
    filled: usize,
}

impl Lane {
    pub fn new(rank: usize, stream: TcpStream) -> Lane {
        Lane { rank, stream, open: true, unsent: Vec::new(), coming: [0; WORD], filled: 0 }
    }

    /// A rank that takes no words gets no more signs of life: what waits for it stays small.
    pub fn say(&mut self, word: &Word, patience: Duration) {
        if !self.unsent.is_empty() && matches!(word, Word::Doing(_)) {
            return;
        }
        self.unsent.extend_from_slice(&word.encode());
        let begin = Instant::now();
        self.flush();
        while !self.unsent.is_empty() && begin.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(2));
            self.flush();
        }
    }

    pub fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(bytes) => drop(self.unsent.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Reading says what is wrong with the connection.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// The next whole word; none where no more of it is there.
    pub fn read(&mut self) -> std::io::Result<Option<[u8; WORD]>> {
        while self.filled < WORD {
            match self.stream.read(&mut self.coming[self.filled..]) {
                Ok(0) => return Err(std::io::Error::new(ErrorKind::UnexpectedEof, "the connection ended")),
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.filled = 0;
        Ok(Some(self.coming))
    }
}
