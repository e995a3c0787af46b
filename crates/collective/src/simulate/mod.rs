//! What an all-reduce takes where nobody has tried it: the same programs that the engine carries out, over a model of links, in virtual time.
//!
//! The model is LogGP's (Alexandrov, Ionescu, Schauser and Scheiman, "LogGP: incorporating long messages into the LogP model", 1995): a message
//! costs a core some time, and each of its bytes some more; a line carries so many bytes a second and delivers each after a latency. To it come
//! the cores that ranks of a host share, the line that they share between hosts, and the rate at which a core folds. Left out are the room of
//! rings and sockets and what else runs on the machine.

mod clock;
mod tasks;

use crate::algorithm::{Algorithm, Layout, Member, all_reduce};
use crate::element::{ElementType, Reduction};
use crate::error::{Error, Result};
use crate::program::{Kind, Operation};
use clock::Clock;
use tasks::Tasks;

/// Messages of a job that is simulated; what has more takes gigabytes.
const MOST_MESSAGES: usize = 1 << 23;

/// What a message between two ranks takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds from the last byte's departure to when the other rank sees it.
    pub latency: f64,
    /// Bytes a second that the line of a host carries; none where memory is the line.
    pub bandwidth: Option<f64>,
    /// Seconds that sending or receiving a message costs a core.
    pub message: f64,
    /// Bytes a second that a core hands over.
    pub handling: f64,
}

/// Ranks, where they are, and what joins them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// All ranks.
    pub ranks: usize,
    /// Those of one host.
    pub ranks_per_host: usize,
    /// Cores that the ranks of a host share.
    pub cores_per_host: usize,
    /// Between ranks of a host.
    pub inside: Link,
    /// Between hosts.
    pub between: Link,
    /// Bytes a second that a core reads of operands when it folds them.
    pub fold: f64,
    /// Seconds for which a rank that waits looks before it sleeps, and seconds that it then takes to wake.
    pub patience: f64,
    /// See `patience`.
    pub wake: f64,
}

impl Cluster {
    /// One machine whose ranks share memory; the figures are those of the cores that docs/distributed.md names.
    pub fn machine(ranks: usize, cores: usize) -> Cluster {
        Cluster {
            ranks,
            ranks_per_host: ranks,
            cores_per_host: cores,
            inside: Link { latency: 0.5e-6, bandwidth: None, message: 0.4e-6, handling: 9e9 },
            between: Link { latency: 50e-6, bandwidth: Some(1.25e9), message: 8e-6, handling: 3e9 },
            fold: 12e9,
            patience: 0.0,
            wake: 18e-6,
        }
    }

    /// How the ranks are spread.
    pub fn layout(&self) -> Layout {
        Layout::of(self.ranks, self.ranks_per_host)
    }

    fn host(&self, rank: usize) -> usize {
        rank / self.ranks_per_host
    }

    fn link(&self, from: usize, to: usize) -> Link {
        if self.host(from) == self.host(to) { self.inside } else { self.between }
    }

    fn check(&self) -> Result<()> {
        let links = [self.inside, self.between];
        let rates = links.iter().flat_map(|link| [link.handling, link.bandwidth.unwrap_or(1.0)]).chain([self.fold]);
        let times = links.iter().flat_map(|link| [link.latency, link.message]).chain([self.patience, self.wake]);
        let counts = [self.ranks, self.ranks_per_host, self.cores_per_host];
        let fine = counts.iter().all(|&count| count > 0)
            && rates.into_iter().all(|rate| rate.is_finite() && rate > 0.0)
            && times.into_iter().all(|time| time.is_finite() && time >= 0.0);
        if fine { Ok(()) } else { Err(Error::Argument(format!("a cluster that cannot be: {self:?}"))) }
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// This share of the messages between hosts comes so many seconds later, as what must be sent again does.
    Loss {
        /// Between 0 and 1.
        share: f64,
        /// Seconds.
        delay: f64,
    },
    /// A rank's process ends at this second; its host says so to all.
    Killed {
        /// Which.
        rank: usize,
        /// When.
        at: f64,
    },
    /// A rank says and does nothing more from this second on, which others see when they have waited for so many seconds.
    Hung {
        /// Which.
        rank: usize,
        /// When.
        at: f64,
        /// [`crate::Options::limit`].
        limit: f64,
    },
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Seconds until every rank had its result, or the error that names the one that failed.
    pub seconds: f64,
    /// Messages that were sent.
    pub messages: usize,
    /// Bytes of their elements.
    pub bytes: u64,
    /// The rank that the others name.
    pub failed: Option<usize>,
}

/// An all-reduce of so many bytes of float32. None where so many messages belong to it that they are not worth counting.
pub fn simulate(
    cluster: &Cluster,
    algorithm: Algorithm,
    bytes: usize,
    fault: Option<Fault>,
) -> Result<Option<Outcome>> {
    cluster.check()?;
    let operation = Operation::new(Kind::AllReduce, ElementType::F32, bytes / 4).with_reduction(Reduction::Sum);
    let (mut ranks, mut messages) = (Vec::new(), 0);
    for rank in 0..cluster.ranks {
        let program = all_reduce(operation, Member { rank, ranks: cluster.ranks }, algorithm);
        messages += program.sends.len();
        // Every rank has about as many as the first.
        if messages.max(program.sends.len() * cluster.ranks) > MOST_MESSAGES {
            return Ok(None);
        }
        ranks.push(Tasks::new(&program));
    }
    Clock::new(*cluster, ranks, fault).run().map(Some)
}

/// What each algorithm takes for some bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The size of an array.
    pub bytes: usize,
    /// Seconds, where the algorithm was simulated.
    pub seconds: Vec<(Algorithm, Option<f64>)>,
    /// What [`Algorithm::suited`] takes.
    pub suited: Algorithm,
}

impl Plan {
    /// Of one size.
    pub fn new(cluster: &Cluster, bytes: usize) -> Result<Plan> {
        let one =
            |algorithm| Ok((algorithm, simulate(cluster, algorithm, bytes, None)?.map(|outcome| outcome.seconds)));
        let seconds = Algorithm::ALL.into_iter().map(one).collect::<Result<_>>()?;
        Ok(Plan { bytes, seconds, suited: Algorithm::suited(bytes, cluster.ranks, cluster.layout()) })
    }

    /// The algorithm that takes the least time.
    pub fn best(&self) -> Option<Algorithm> {
        let known = self.seconds.iter().filter_map(|&(algorithm, seconds)| Some((algorithm, seconds?)));
        known.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(algorithm, _)| algorithm)
    }
}

#[cfg(test)]
mod tests;
