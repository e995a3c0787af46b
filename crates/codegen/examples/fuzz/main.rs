//! Fuzzing on a stable toolchain: `cargo xtask fuzz SECONDS`. Mutates kernels of Triton and looks for panics, hangs and memory blow-ups
//! in the parser, the verifier and the code generator. `fuzz/` has the same targets for cargo-fuzz.

mod case;
mod kernels;
mod memory;
mod mutate;
mod watch;

use case::Case;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use watch::Watch;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Texts that mutations start from; accepted mutants come and go behind the seeds.
const MOST_TEXTS: usize = 256;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(Ok(seconds)), seed) = (numbers.next(), numbers.next().and_then(Result::ok)) else {
        eprintln!("fuzz SECONDS [SEED]");
        return ExitCode::FAILURE;
    };
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tile/tests/ttir");
    let seeds = match texts_in(&folder) {
        Ok(seeds) if !seeds.is_empty() => seeds,
        other => {
            eprintln!("{}: no seeds: {other:?}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    let findings = PathBuf::from("target/fuzz");
    println!("seed {seed}, {} texts, findings go to {}", seeds.len(), findings.display());
    match fuzz(Duration::from_secs(seconds), seed, seeds, &findings) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn texts_in(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?.map(|x| x.map(|x| x.path())).collect::<Result<_, _>>()?;
    paths.sort();
    paths.iter().filter(|path| path.extension().is_some_and(|x| x == "ttir")).map(std::fs::read_to_string).collect()
}

/// Runs cases until the time is over; how many findings there were.
fn fuzz(time: Duration, seed: u64, mut texts: Vec<String>, findings: &Path) -> usize {
    let (begin, mut random, seeds) = (Instant::now(), fastrand::Rng::with_seed(seed), texts.len());
    let watch = Watch::start(findings, "ttir");
    let (mut cases, mut found, mut stages) = (0_usize, 0, [0_usize; 4]);
    while begin.elapsed() < time {
        let case = match random.u8(..4) {
            0 => Case::Kernel { text: texts[random.usize(..texts.len())].clone(), bytes: mutate::bytes(&mut random) },
            _ => Case::Text(mutate::text(&texts, &mut random)),
        };
        watch.begin(case.file());
        let result = catch_unwind(AssertUnwindSafe(|| case.run()));
        watch.end();
        cases += 1;
        match result {
            Ok(reached) => {
                stages[reached as usize] += 1;
                if let Case::Text(text) = case
                    && reached >= case::Reached::Verified
                {
                    if texts.len() < MOST_TEXTS {
                        texts.push(text);
                    } else {
                        texts[random.usize(seeds..MOST_TEXTS)] = text;
                    }
                }
            }
            Err(_) => {
                found += 1;
                watch.keep(&case.file(), "panic");
            }
        }
    }
    let [refused, parsed, verified, generated] = stages;
    println!(
        "{cases} cases in {:.0?}: {refused} refused by the parser, {parsed} by the verifier, {verified} by both generators, \
         {generated} generated; {found} panics; at most {} MiB, {:.2?} for one case",
        begin.elapsed(),
        memory::peak() >> 20,
        watch.slowest(),
    );
    found
}
