//! Two processes that average what each has: `cargo run -p openmps-collective --example two_processes`. On two machines, run it on both with the
//! first one's address and a rank: `two_processes 10.0.0.1:8300 0` there, `two_processes 10.0.0.1:8300 1` on the other.

use openmps_collective::{Communicator, Error, Options, Reduction, UniqueId};
use std::net::SocketAddr;
use std::process::Command;

/// What only processes of this job know; a real job would read it from a file that others cannot.
const WORDS: &str = "words that only this job knows";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [address, rank] => Ok(work(address.parse()?, rank.parse()?)?),
        _ => {
            let address = "127.0.0.1:8300";
            let mut other = Command::new(std::env::current_exe()?).args([address, "1"]).spawn()?;
            work(address.parse()?, 0)?;
            other.wait()?;
            Ok(())
        }
    }
}

fn work(address: SocketAddr, rank: usize) -> Result<(), Error> {
    let id = UniqueId::agreed(address, WORDS);
    let communicator = Communicator::new(&id, rank, 2, &Options::from_settings()?)?;
    let mut gradient = vec![rank as f32; 1 << 20];
    communicator.all_reduce(&mut gradient, Reduction::Average)?;
    println!("{communicator:?} over {}: the average is {}", communicator.transports().join(", "), gradient[0]);
    communicator.barrier()
}
