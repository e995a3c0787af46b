//! What can go wrong, and which rank it is about.

use std::net::SocketAddr;
use std::time::Duration;

/// The result of a collective operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A collective operation that could not be done. After any of these the communicator does nothing more, and says the same again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("rank {rank} is gone: its process ended or its connection broke ({reason})")]
    Gone { rank: usize, reason: String },
    #[error("rank {rank} has left: it destroyed its communicator")]
    Left { rank: usize },
    #[error(
        "rank {rank} is silent: nothing was heard of it for {silent:.1?}, while {operation} waited for {waited:.1?}"
    )]
    Silent { rank: usize, silent: Duration, operation: String, waited: Duration },
    #[error("rank {rank} is late: {operation} has waited for {waited:.1?}, and rank {rank} is in {doing}")]
    Late { rank: usize, doing: String, operation: String, waited: Duration },
    #[error("ranks {ranks:?} did not come to {address} within {waited:.1?}")]
    Missing { ranks: Vec<usize>, address: SocketAddr, waited: Duration },
    #[error("rank {rank} speaks version {theirs} of the protocol, this is version {ours}")]
    Version { rank: usize, theirs: u32, ours: u32 },
    #[error("rank {rank} does something else: {theirs}, where this rank does {ours}")]
    Mismatch { rank: usize, theirs: String, ours: String },
    #[error("rank {rank} sent what is no message: {what}")]
    Malformed { rank: usize, what: String },
    #[error("rank {rank} failed; rank {by} reports: {text}")]
    Reported { rank: usize, by: usize, text: String },
    #[error("what listens at {address} does not know this job's secret, or is no rank of it: {reason}")]
    Stranger { address: SocketAddr, reason: String },
    #[error("transport {name}: {reason}")]
    Transport { name: &'static str, reason: String },
    #[error("{0}")]
    Argument(String),
    #[error("{what}: {reason}")]
    System { what: &'static str, reason: String },
    #[error("this process is a fork of the one that made the communicator, which has the connections")]
    Forked,
}

impl Error {
    /// The rank that failed, where it is one's fault.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Error::Gone { rank, .. }
            | Error::Left { rank }
            | Error::Silent { rank, .. }
            | Error::Late { rank, .. }
            | Error::Version { rank, .. }
            | Error::Mismatch { rank, .. }
            | Error::Malformed { rank, .. }
            | Error::Reported { rank, .. } => Some(*rank),
            Error::Missing { ranks, .. } => ranks.first().copied(),
            _ => None,
        }
    }

    /// Of a call of the system.
    pub(crate) fn system(what: &'static str) -> impl Fn(std::io::Error) -> Error {
        move |error| Error::System { what, reason: error.to_string() }
    }

    /// Of a connection to a rank.
    pub(crate) fn broken(rank: usize) -> impl Fn(std::io::Error) -> Error {
        move |error| Error::Gone { rank, reason: error.to_string() }
    }
}
