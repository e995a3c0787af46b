//! Ranks that are processes, and check every operation. Run by `cargo xtask differential collective`; one after the other on 2, 4 and 8 ranks:
//!
//! * `everything BYTES`: every operation, element type, reduction and place, for odd counts up to so many bytes;
//! * `sequences SECONDS [SEED]`: random sequences on random groups; what fails says its seed;
//! * `measure SECONDS`: what all-reduce takes, by size and algorithm, the best of as many as fit into the time, next to what the simulator says.
//!
//! `rank ADDRESS RANK RANKS everything|sequences|measure NUMBER SEED` is one of these ranks, for instance on a machine of its own, reached at ADDRESS's
//! machine by rank 0.

#[path = "../tests/support/mod.rs"]
mod support;

use openmps_collective::simulate::{Cluster, simulate};
use openmps_collective::{Algorithm, Communicator, ElementType, Error, Options, Reduction, UNIQUE_ID_BYTES, UniqueId};
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
/// Operations that are measured at once.
const IN_A_ROW: usize = 8;
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
                "measure" => measure(&communicator, number.parse()?, id.address())?,
                _ => sequences(&communicator, number.parse()?, seed.parse()?, id.address())?,
            }
            Ok(ExitCode::SUCCESS)
        }
        [what @ ("everything" | "measure"), number] => jobs(what, number, 0),
        ["sequences", seconds] => jobs("sequences", seconds, fastrand::u64(..1 << 32)),
        ["sequences", seconds, seed] => jobs("sequences", seconds, seed.parse()?),
        _ => Err("everything BYTES, sequences SECONDS [SEED], or measure SECONDS".into()),
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

/// A communicator of the same ranks.
fn another(communicator: &Communicator, address: SocketAddr, options: &Options) -> Result<Communicator, Error> {
    let mut bytes = [0; UNIQUE_ID_BYTES];
    if communicator.rank() == 0 {
        bytes = UniqueId::listen(address.ip())?.to_bytes();
    }
    communicator.broadcast(&mut bytes, 0)?;
    Communicator::new(&UniqueId::from_bytes(&bytes)?, communicator.rank(), communicator.ranks(), options)
}

fn measure(communicator: &Communicator, seconds: f64, address: SocketAddr) -> Result<(), Error> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cluster = Cluster::machine(communicator.ranks(), cores);
    let ways = Algorithm::ALL.map(|algorithm| {
        another(communicator, address, &Options { algorithm: Some(algorithm), ..options()? }).map(|it| (algorithm, it))
    });
    let ways = ways.into_iter().collect::<Result<Vec<_>, _>>()?;
    for bytes in [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20] {
        let (mut best, begin) = (vec![f64::INFINITY; ways.len()], Instant::now());
        let mut values = vec![0.0_f32; bytes / 4];
        loop {
            let mut goes_on = [u8::from(begin.elapsed().as_secs_f64() < seconds)];
            communicator.broadcast(&mut goes_on, 0)?;
            if goes_on == [0] {
                break;
            }
            for ((algorithm, way), best) in ways.iter().zip(&mut best) {
                // Whole arrays that go to all are nobody's way for many bytes, and would take all the time.
                if matches!(algorithm, Algorithm::Gathered | Algorithm::Doubling) && bytes > 4 << 20 {
                    continue;
                }
                values.fill(0.0);
                way.barrier()?;
                // Several in a row, so that who comes late to the first does not count.
                let begin = Instant::now();
                for _ in 0..IN_A_ROW {
                    way.all_reduce(&mut values, Reduction::Sum)?;
                }
                let mut slowest = [begin.elapsed().as_secs_f64() / IN_A_ROW as f64];
                communicator.all_reduce(&mut slowest, Reduction::Maximum)?;
                *best = best.min(slowest[0]);
            }
        }
        for ((algorithm, _), best) in ways.iter().zip(best).filter(|_| communicator.rank() == 0) {
            let simulated = simulate(&cluster, *algorithm, bytes, None)?.map_or(f64::NAN, |it| it.seconds);
            let (ranks, name) = (communicator.ranks(), algorithm.name());
            println!("{ranks} ranks, {bytes} bytes, {name}: {:.1} us, simulated {:.1} us", best * 1e6, simulated * 1e6);
        }
    }
    Ok(())
}
