//! Bytes through memory that two processes of a host share: a ring in each direction, and the pair's connection as a bell for who sleeps.

use super::{Interest, Transport};
use crate::error::{Error, Result};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::Mode;
use rustix::shm::OFlags;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of the two rings' positions and flags before the rings.
const HEAD: usize = 4096;
/// Bytes from one ring's positions to the other's.
const RING_HEAD: usize = 1024;
/// Distance of what the two sides write, so that no cache line is written by both.
const LINE: usize = 128;
/// What the memory begins with; the rest of its name follows.
const MAGIC: [u8; 8] = *b"omps shm";
/// Where that stands.
const TOKEN: usize = 2 * RING_HEAD;

/// One direction: positions count all bytes that ever went through.
struct Ring {
    head: *const u8,
    data: *mut u8,
    capacity: usize,
}

// SAFETY: the addresses lie in a mapping that lives as long as the transport, and each end is used by one thread at a time.
unsafe impl Send for Ring {}

impl Ring {
    fn at(&self, line: usize) -> *const u8 {
        self.head.wrapping_add(line * LINE)
    }

    /// How far the writer is.
    fn written(&self) -> &AtomicU64 {
        // SAFETY: aligned, within the head, and used by both processes as an atomic only.
        unsafe { &*self.at(0).cast() }
    }

    /// How far the reader is.
    fn read(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.at(1).cast() }
    }

    /// Whether the reader sleeps until there is more.
    fn reader_sleeps(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.at(2).cast() }
    }

    /// Whether the writer sleeps until there is room.
    fn writer_sleeps(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.at(3).cast() }
    }
}

/// Shared memory with one other rank.
pub(crate) struct Shared {
    outgoing: Ring,
    incoming: Ring,
    /// Own positions, and the last that was seen of the other side's.
    written: u64,
    room_until: u64,
    taken: u64,
    there_until: u64,
    bell: TcpStream,
    /// The bell's connection has ended.
    closed: bool,
    _map: MmapRaw,
}

/// Which of a pair's two ranks this is: the lower one makes the memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Lower,
    Higher,
}

/// The answer of who was offered memory.
const TAKEN: u8 = 1;
const NOT_TAKEN: u8 = 0;

impl Shared {
    /// The name for people.
    pub const NAME: &str = "shared memory";

    /// Makes or takes the memory, over a connection that waits; none where the two cannot share any, and then both know. A capacity of 0 is
    /// that of a rank that wants none.
    pub fn agree(
        bell: TcpStream,
        end: End,
        capacity: usize,
        patience: Duration,
    ) -> Result<std::result::Result<Shared, TcpStream>> {
        let broken = Error::system("agreeing on shared memory");
        bell.set_read_timeout(Some(patience)).map_err(&broken)?;
        let map = match end {
            End::Lower => offer(&bell, capacity),
            End::Higher => take(&bell, capacity),
        };
        let map = map.map_err(&broken)?;
        bell.set_read_timeout(None).map_err(&broken)?;
        let Some(map) = map else { return Ok(Err(bell)) };
        bell.set_nonblocking(true).map_err(&broken)?;
        Ok(Ok(Shared::over(map, bell, end)))
    }

    fn over(map: MmapRaw, bell: TcpStream, end: End) -> Shared {
        let capacity = (map.len() - HEAD) / 2;
        let ring = |index: usize| Ring {
            head: map.as_ptr().wrapping_add(index * RING_HEAD),
            data: map.as_mut_ptr().wrapping_add(HEAD + index * capacity),
            capacity,
        };
        let (outgoing, incoming) = match end {
            End::Lower => (ring(0), ring(1)),
            End::Higher => (ring(1), ring(0)),
        };
        let room_until = capacity as u64;
        Shared { outgoing, incoming, written: 0, room_until, taken: 0, there_until: 0, bell, closed: false, _map: map }
    }

    /// Wakes the other side, where it sleeps for this.
    fn ring_bell(&mut self, sleeps: fn(&Shared) -> &AtomicU32) {
        // The position that was just stored must be seen by who goes to sleep now, or its flag by us: see `before_sleep`.
        std::sync::atomic::fence(Ordering::SeqCst);
        let flag = sleeps(self);
        if flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::SeqCst) != 0 {
            // Where the other side has gone, reading finds out; a full connection rings anyway.
            let _ = self.bell.write(&[1]);
        }
    }

    fn look_for_more(&mut self) -> io::Result<()> {
        let written = self.incoming.written().load(Ordering::Acquire);
        if written.wrapping_sub(self.taken) > self.incoming.capacity as u64 {
            return Err(io::Error::new(ErrorKind::InvalidData, "a position in shared memory is none"));
        }
        self.there_until = written;
        Ok(())
    }
}

/// A random name, and the memory of this name with room for two rings; an error where the system has none.
fn create(capacity: usize) -> io::Result<(String, OwnedFd)> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    // No more than 31 bytes: so macOS wants it.
    let name = format!("/openmps-{:016x}", u64::from_le_bytes(random));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
    let descriptor = rustix::shm::open(&name, flags, Mode::RUSR | Mode::WUSR)?;
    let bytes = (HEAD + 2 * capacity) as u64;
    let sized = rustix::fs::ftruncate(&descriptor, bytes).and_then(|()| reserve(&descriptor, bytes));
    if let Err(error) = sized {
        let _ = rustix::shm::unlink(&name);
        return Err(error.into());
    }
    Ok((name, descriptor))
}

/// Takes the pages now: a full file system is an error here, and would be a signal when they are first written.
#[cfg(target_os = "linux")]
fn reserve(descriptor: &OwnedFd, bytes: u64) -> rustix::io::Result<()> {
    rustix::fs::fallocate(descriptor, rustix::fs::FallocateFlags::empty(), 0, bytes)
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &OwnedFd, _: u64) -> rustix::io::Result<()> {
    Ok(())
}

/// Offers memory by its name: 64 bytes, of which the last eight are its size. A size of 0 offers none.
fn offer(mut bell: &TcpStream, capacity: usize) -> io::Result<Option<MmapRaw>> {
    let made = if capacity == 0 { Err(ErrorKind::Unsupported.into()) } else { create(capacity) };
    let made = made.and_then(|(name, descriptor)| {
        let map = MmapOptions::new().len(HEAD + 2 * capacity).map_raw(&descriptor);
        map.map(|map| (name.clone(), map)).inspect_err(|_| _ = rustix::shm::unlink(&name))
    });
    let Ok((name, map)) = made else {
        bell.write_all(&[0; 64])?;
        return Ok(None);
    };
    let mut message = [0; 64];
    message[..name.len()].copy_from_slice(name.as_bytes());
    message[56..].copy_from_slice(&(capacity as u64).to_le_bytes());
    token(&map, &name);
    let mut answer = [NOT_TAKEN];
    let told = bell.write_all(&message).and_then(|()| bell.read_exact(&mut answer));
    // Both have it mapped, or nobody will: the name has served.
    let _ = rustix::shm::unlink(&name);
    told?;
    Ok((answer[0] == TAKEN).then_some(map))
}

/// Writes the memory's name into it, by which the other sees that it is the same.
fn token(map: &MmapRaw, name: &str) {
    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..8 + name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: within the head of the mapping, which nobody else has yet.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.as_mut_ptr().add(TOKEN), bytes.len()) };
}

/// Takes offered memory; without a `most` of bytes, none.
fn take(mut bell: &TcpStream, most: usize) -> io::Result<Option<MmapRaw>> {
    let mut message = [0; 64];
    bell.read_exact(&mut message)?;
    let capacity = u64::from_le_bytes(std::array::from_fn(|byte| message[56 + byte])) as usize;
    if capacity == 0 {
        return Ok(None);
    }
    let map = if most == 0 { None } else { open(&message[..56], capacity) };
    bell.write_all(&[if map.is_some() { TAKEN } else { NOT_TAKEN }])?;
    Ok(map)
}

/// The memory of this name, if it is there and is the one.
fn open(name: &[u8], capacity: usize) -> Option<MmapRaw> {
    let name = std::str::from_utf8(name).ok()?.trim_end_matches('\0');
    if !name.starts_with("/openmps-") || name[1..].contains('/') || capacity > 1 << 30 || !capacity.is_multiple_of(LINE)
    {
        return None;
    }
    let descriptor = rustix::shm::open(name, OFlags::RDWR, Mode::empty()).ok()?;
    let bytes = HEAD + 2 * capacity;
    if rustix::fs::fstat(&descriptor).ok()?.st_size < bytes as i64 {
        return None;
    }
    let map = MmapOptions::new().len(bytes).map_raw(&descriptor).ok()?;
    let mut expected = [0; 40];
    expected[..8].copy_from_slice(&MAGIC);
    expected[8..8 + name.len()].copy_from_slice(name.as_bytes());
    let mut found = [0; 40];
    // SAFETY: within the head of the mapping; who made it wrote this before it told the name.
    unsafe { std::ptr::copy_nonoverlapping(map.as_ptr().add(TOKEN), found.as_mut_ptr(), found.len()) };
    (found == expected).then_some(map)
}

impl Transport for Shared {
    fn name(&self) -> &'static str {
        Shared::NAME
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let capacity = self.outgoing.capacity;
        if self.room_until - self.written < bytes.len() as u64 {
            let read = self.outgoing.read().load(Ordering::Acquire);
            if self.written.wrapping_sub(read) > capacity as u64 {
                return Err(io::Error::new(ErrorKind::InvalidData, "a position in shared memory is none"));
            }
            self.room_until = read.wrapping_add(capacity as u64);
        }
        let room = (self.room_until - self.written) as usize;
        let begin = (self.written % capacity as u64) as usize;
        let count = bytes.len().min(room);
        if count == 0 {
            return if self.closed { Err(ErrorKind::BrokenPipe.into()) } else { Ok(0) };
        }
        let first = count.min(capacity - begin);
        // SAFETY: the reader is past these bytes of the ring, and will not look at them before the position moves; both parts lie within.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.outgoing.data.add(begin), first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), self.outgoing.data, count - first);
        }
        self.written += count as u64;
        self.outgoing.written().store(self.written, Ordering::Release);
        self.ring_bell(|shared| shared.outgoing.reader_sleeps());
        Ok(count)
    }

    fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        let capacity = self.incoming.capacity;
        if self.there_until - self.taken < wanted as u64 {
            // Read before the positions: what was written before the end is seen.
            let closed = self.closed;
            self.look_for_more()?;
            if closed && self.there_until == self.taken {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection ended"));
            }
        }
        let begin = (self.taken % capacity as u64) as usize;
        let there = ((self.there_until - self.taken) as usize).min(capacity - begin);
        // SAFETY: the writer is past these bytes, and does not touch them before this side's position moves, for which `consume` needs `&mut`.
        Ok(unsafe { std::slice::from_raw_parts(self.incoming.data.add(begin), there) })
    }

    fn consume(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        self.incoming.read().store(self.taken, Ordering::Release);
        self.ring_bell(|shared| shared.incoming.writer_sleeps());
    }

    fn before_sleep(&mut self, interest: Interest, unread: usize) -> bool {
        // The flag first, then the position; the other side does it the other way round, so one of the two sees the other.
        if interest.to_read {
            self.incoming.reader_sleeps().store(1, Ordering::SeqCst);
        }
        if interest.to_write {
            self.outgoing.writer_sleeps().store(1, Ordering::SeqCst);
        }
        std::sync::atomic::fence(Ordering::SeqCst);
        let more =
            interest.to_read && self.incoming.written().load(Ordering::SeqCst).wrapping_sub(self.taken) > unread as u64;
        let room_until = self.outgoing.read().load(Ordering::SeqCst).wrapping_add(self.outgoing.capacity as u64);
        let room = interest.to_write && room_until != self.room_until;
        more || room || self.closed
    }

    fn descriptors(&self, _: Interest) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.bell.as_fd()), None]
    }

    fn after_sleep(&mut self) -> io::Result<()> {
        self.incoming.reader_sleeps().store(0, Ordering::Relaxed);
        self.outgoing.writer_sleeps().store(0, Ordering::Relaxed);
        let mut rings = [0; 64];
        loop {
            match self.bell.read(&mut rings) {
                Ok(0) => self.closed = true,
                Ok(64) => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock) => self.closed = true,
                _ => {}
            }
            return Ok(());
        }
    }
}
