//! How a communicator's ranks reach each other, and how long they wait.

use crate::algorithm::Algorithm;
use crate::error::Result;
use crate::transport::TransportKind;
use std::time::Duration;

/// What all ranks of a communicator must have alike, but for the limit of time.
#[derive(Clone, Debug)]
pub struct Options {
    /// How ranks reach each other.
    pub transport: TransportKind,
    /// How long an operation may wait without any progress, and how long ranks wait for each other at the start.
    pub limit: Duration,
    /// TCP connections for each pair.
    pub sockets: usize,
    /// How all-reduce is done; by size and ranks, if not given.
    pub algorithm: Option<Algorithm>,
}

impl Default for Options {
    fn default() -> Options {
        Options { transport: TransportKind::Automatic, limit: Duration::from_secs(600), sockets: 1, algorithm: None }
    }
}

impl Options {
    /// As the settings say: the transport, the limit of time, the sockets and the algorithm.
    pub fn from_settings() -> Result<Options> {
        let default = Options::default();
        let seconds = |seconds| Duration::from_secs(seconds as u64);
        Ok(Options {
            transport: TransportKind::from_setting()?,
            limit: openmps_settings::COLLECTIVE_TIMEOUT.get().map_or(default.limit, seconds),
            sockets: openmps_settings::COLLECTIVE_SOCKETS.get().unwrap_or(default.sockets),
            algorithm: openmps_settings::COLLECTIVE_ALGORITHM.get().and_then(Algorithm::from_name),
        })
    }
}
