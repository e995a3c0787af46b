//! Threads as ranks; operations that are checked (`checked`), in random sequences (`sequence`), against what they must give (`numbers`).
#![allow(dead_code)]

pub mod checked;
pub mod numbers;
pub mod sequence;

use openmps_collective::{Communicator, Error, Options, TransportKind, UniqueId};
use std::time::Duration;

/// Options under which nothing that goes wrong takes long.
pub fn options(transport: TransportKind) -> Options {
    Options { transport, limit: Duration::from_secs(60), ..Options::default() }
}

/// Runs `work` on so many ranks, each a thread.
pub fn on_ranks<R: Send>(
    ranks: usize,
    options: &Options,
    work: impl Fn(&Communicator) -> R + Sync,
) -> Vec<Result<R, Error>> {
    let id = UniqueId::listen([127, 0, 0, 1].into()).expect("a port");
    let (id, work) = (&id, &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                scope.spawn(move || Communicator::new(id, rank, ranks, options).map(|communicator| work(&communicator)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}

/// As `on_ranks`, where all must come together.
pub fn all<R: Send>(ranks: usize, options: &Options, work: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    on_ranks(ranks, options, work).into_iter().map(|result| result.expect("the ranks come together")).collect()
}
