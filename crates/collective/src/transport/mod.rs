//! How bytes get from one rank to another: one stream in each direction, none of whose calls waits.

pub(crate) mod shared;
pub(crate) mod tcp;

use crate::error::{Error, Result};
use std::io;
use std::os::fd::BorrowedFd;

/// Which transport a communicator may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportKind {
    /// Shared memory between ranks that can map each other's, TCP between others.
    #[default]
    Automatic,
    /// Shared memory or nothing.
    Shared,
    /// TCP for all.
    Tcp,
    /// NVIDIA's library between GPUs, for what [`Communicator::submit`](crate::Communicator::submit) puts on their streams; else as automatic.
    Nccl,
}

impl TransportKind {
    /// What `OPENMPS_TRANSPORT` asks for.
    pub fn from_setting() -> Result<TransportKind> {
        TransportKind::from_name(openmps_settings::TRANSPORT.get().unwrap_or("auto"))
    }

    /// The transport with this name; an error for those that are not built in.
    pub fn from_name(name: &str) -> Result<TransportKind> {
        let refused = |name, reason: &str| Err(Error::Transport { name, reason: reason.to_owned() });
        match name {
            "auto" => Ok(TransportKind::Automatic),
            "shared" => Ok(TransportKind::Shared),
            "tcp" => Ok(TransportKind::Tcp),
            "mpi" => refused("mpi", "this build of openmps has no MPI; use shared or tcp (docs/distributed.md)"),
            "nccl" => Ok(TransportKind::Nccl),
            "jaccl" => refused(
                "jaccl",
                "RDMA over Thunderbolt is not built in; use tcp over the Thunderbolt bridge (docs/distributed.md)",
            ),
            _ => Err(Error::Argument(format!("there is no transport {name:?}"))),
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    /// More bytes to read than there are.
    pub to_read: bool,
    /// Room to write.
    pub to_write: bool,
}

/// A pair's stream of bytes in both directions. An end of the stream is an error, once everything before it has been read.
pub(crate) trait Transport: Send {
    /// The name for people.
    fn name(&self) -> &'static str;

    /// Takes as many of these bytes as there is room for, and says how many.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Bytes that have come, as many as lie in a row; looks for more where these are fewer than `wanted`.
    fn peek(&mut self, wanted: usize) -> io::Result<&[u8]>;

    /// Takes away bytes that `peek` has shown.
    fn consume(&mut self, bytes: usize);

    /// Moves bytes that have come to where they belong, and says how many.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let there = self.peek(into.len())?;
        let bytes = there.len().min(into.len());
        into[..bytes].copy_from_slice(&there[..bytes]);
        self.consume(bytes);
        Ok(bytes)
    }

    /// Asks to be woken by the descriptor; whether there is something to do already, so that nobody must sleep. `unread` bytes of `peek` do
    /// not count.
    fn before_sleep(&mut self, interest: Interest, unread: usize) -> bool;

    /// What a sleeper looks at for something to read, and what for room to write.
    fn descriptors(&self, interest: Interest) -> [Option<BorrowedFd<'_>>; 2];

    /// After a sleep.
    fn after_sleep(&mut self) -> io::Result<()>;
}
