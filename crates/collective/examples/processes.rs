//! Ranks that are processes, and check every operation. Run by `cargo xtask differential collective`; one after the other on 2, 4 and 8 ranks:
//!
//! * `everything BYTES`: every operation, element type, reduction and place, for odd counts up to so many bytes;
//! * `sequences SECONDS [SEED]`: random sequences on random groups; what fails says its seed.
//!
//! `rank ADDRESS RANK RANKS everything|sequences NUMBER SEED` is one of these ranks, for instance on a machine of its own, reached at ADDRESS's
//! machine by rank 0.

#[path = "../tests/support/mod.rs"]
mod support;

use openmps_collective::{Communicator, ElementType, Error, Options, UniqueId};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};
use support::checked::{Call, Case};
use support::sequence::Sequence;

type Anything = Box<dyn std::error::Error>;

/// How many ranks there are, one after the other.
const RANKS: [usize; 3] = [2, 4, 8];
/// Bytes of the largest buffer of a case, to which the counts of elements are made odd.
const SIZES: [usize; 6] = [0, 1, 5_000, 70_000, 1 << 20, 64 << 20];
/// The most bytes of a buffer in a sequence.
const MOST: usize = 64 << 20;

fn main() -> Result<ExitCode, Anything> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["rank", address, rank, ranks, what, number, seed] => {
            let id = UniqueId::agreed(address.parse()?, "the words of this test");
            let communicator = Communicator::new(&id, rank.parse()?, ranks.parse()?, &options()?)?;
            match what {
                "everything" => everything(&communicator, number.parse()?)?,
                _ => sequences(&communicator, number.parse()?, seed.parse()?, id.address())?,
            }
            Ok(ExitCode::SUCCESS)
        }
        ["everything", most] => jobs("everything", most, 0),
        ["sequences", seconds] => jobs("sequences", seconds, fastrand::u64(..1 << 32)),
        ["sequences", seconds, seed] => jobs("sequences", seconds, seed.parse()?),
        _ => Err("everything BYTES, or sequences SECONDS [SEED]".into()),
    }
}

/// As the settings say, but a rank that does not come is an error soon.
fn options() -> Result<Options, Error> {
    let options = Options::from_settings()?;
    Ok(Options { limit: options.limit.min(Duration::from_secs(120)), ..options })
}

/// A job for each number of ranks; one's failure does not hide what the next would find.
fn jobs(what: &str, number: &str, seed: u64) -> Result<ExitCode, Anything> {
    let mut status = ExitCode::SUCCESS;
    for ranks in RANKS {
        let begin = Instant::now();
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let start = |rank: usize| -> std::io::Result<Child> {
            let mut child = Command::new(std::env::current_exe()?);
            child.args(["rank", &address.to_string(), &rank.to_string(), &ranks.to_string(), what, number]);
            child.arg(seed.to_string()).spawn()
        };
        let mut children = (0..ranks).map(start).collect::<Result<Vec<_>, _>>()?;
        let mut failed = 0;
        for child in &mut children {
            failed += usize::from(!child.wait()?.success());
        }
        println!("{ranks} ranks: {failed} failed, {:.0?}", begin.elapsed());
        if failed > 0 {
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

fn everything(communicator: &Communicator, most: usize) -> Result<(), Error> {
    for bytes in SIZES.into_iter().filter(|&bytes| bytes <= most) {
        let (begin, mut calls) = (Instant::now(), 0);
        for call in Call::ALL {
            for element in ElementType::ALL {
                let count = if bytes == 0 { 0 } else { call.count(bytes, element, communicator.ranks()) | 1 };
                let case = Case { root: calls, begin: calls, ..Case::new(call, count, element) };
                for variant in case.variants() {
                    variant.check(communicator)?;
                    calls += 1;
                }
            }
        }
        if communicator.rank() == 0 {
            println!("{calls} calls on {} ranks, {bytes} bytes: {:.1?}", communicator.ranks(), begin.elapsed());
        }
    }
    Ok(())
}

/// Rank 0 says whether there is a next one.
fn sequences(communicator: &Communicator, seconds: u64, first: u64, address: SocketAddr) -> Result<(), Error> {
    let (begin, options) = (Instant::now(), options()?);
    // In turn small and of any size: little data takes more ways through the code in the same time.
    let most = |seed: u64| if seed.is_multiple_of(8) { MOST } else { MOST >> 8 };
    for seed in first.. {
        let mut goes_on = [u8::from(begin.elapsed() < Duration::from_secs(seconds))];
        communicator.broadcast(&mut goes_on, 0)?;
        if goes_on == [0] {
            if communicator.rank() == 0 {
                println!("{} sequences from seed {first} on {} ranks", seed - first, communicator.ranks());
            }
            return Ok(());
        }
        let own = openmps_settings::COLLECTIVE_ADDRESS.get().and_then(|text| text.parse().ok());
        Sequence::random(seed, communicator.ranks(), most(seed), &options)
            .run(communicator, own.unwrap_or(address.ip()))?;
    }
    Ok(())
}
