//! Many processes, one job: collective communication over shared memory and TCP.
//!
//! A [`Communicator`] is one rank among several. The ranks find each other by a [`UniqueId`], prove to each other that they know its secret, and
//! do the same operations in the same order:
//!
//! ```
//! use openmps_collective::{Communicator, Options, Reduction, UniqueId};
//!
//! let id = UniqueId::listen([127, 0, 0, 1].into())?;
//! // Threads here, where a job has processes, which get the id's bytes by a way of their own.
//! let rank = |rank| {
//!     let communicator = Communicator::new(&id, rank, 2, &Options::default())?;
//!     let mut values = [rank as f32 + 1.0; 3];
//!     communicator.all_reduce(&mut values, Reduction::Sum)?;
//!     Ok::<_, openmps_collective::Error>(values)
//! };
//! let (first, second) = std::thread::scope(|scope| {
//!     let other = scope.spawn(|| rank(1));
//!     (rank(0), other.join().expect("the thread ends"))
//! });
//! assert_eq!((first?, second?), ([3.0; 3], [3.0; 3]));
//! # Ok::<(), openmps_collective::Error>(())
//! ```
//!
//! Results are the same from run to run, bit for bit: no order depends on timing, and half precision is summed in float32. A rank that dies,
//! hangs, or does something else than the others makes every other rank's operation an [`Error`] that names it, within [`Options::limit`].
//!
//! An operation is a program (`program.rs`): what a rank sends, and what it folds of what comes in. `algorithm.rs` makes programs, `engine.rs`
//! carries them out over `transport/`, `watch.rs` is what ranks know of each other meanwhile. [`simulate`] weighs the same programs for machines
//! that are not at hand.

mod algorithm;
mod communicator;
mod element;
mod engine;
mod error;
mod fold;
mod handshake;
mod identity;
mod message;
mod nccl;
mod options;
mod peer;
mod perform;
mod program;
mod rendezvous;
mod request;
pub mod simulate;
mod task;
mod transport;
mod typed;
mod watch;

pub use algorithm::{Algorithm, Layout};
pub use communicator::Communicator;
pub use element::{Element, ElementType, Reduction};
pub use error::{Error, Result};
pub use identity::{UNIQUE_ID_BYTES, UniqueId};
pub use options::Options;
pub use request::{Message, Request};
pub use task::Part;
pub use transport::TransportKind;
pub use typed::Transfer;
