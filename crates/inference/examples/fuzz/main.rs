//! Fuzzing on a stable toolchain: `cargo xtask fuzz SECONDS --subject programs`. Damages inference programs of both forms, reads them, lowers what
//! can be read, and runs it on a small input: an error or a result, never a panic, a hang or a blow-up of memory. `fuzz/` has the reader as
//! a target for cargo-fuzz.

mod damage;
#[path = "../../../codegen/examples/fuzz/memory.rs"]
mod memory;
#[path = "../../../codegen/examples/fuzz/watch.rs"]
mod watch;

use openmps::{DataType, Device, TensorData};
use openmps_inference::{Model, read_program};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use watch::Watch;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Programs that damage starts from; those that could still be read come and go behind the seeds.
const MOST_PROGRAMS: usize = 64;

/// Elements of an input at most: what is run is to be small.
const LARGEST: usize = 1 << 12;

/// Rounds of a loop at most: damage makes loops that never end.
const LONGEST_LOOP: usize = 64;

/// How far a program came.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Reached {
    Refused,
    Read,
    Ran,
}

fn main() -> ExitCode {
    if let Some(finding) = std::env::args().nth(1).filter(|text| Path::new(text).is_file()) {
        return repeat(Path::new(&finding));
    }
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(Ok(seconds)), seed) = (numbers.next(), numbers.next().and_then(Result::ok)) else {
        eprintln!("fuzz SECONDS [SEED], or fuzz FINDING");
        return ExitCode::FAILURE;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let seeds = match programs_in(&folder) {
        Ok(seeds) if !seeds.is_empty() => seeds,
        other => {
            eprintln!("{}: no seeds: {:?}", folder.display(), other.err());
            return ExitCode::FAILURE;
        }
    };
    let findings = PathBuf::from("target/fuzz");
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}, {} programs, findings go to {}", seeds.len(), findings.display());
    match fuzz(Duration::from_secs(seconds), seed, seeds, &findings) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Runs a finding once more.
fn repeat(finding: &Path) -> ExitCode {
    let case = match std::fs::read(finding) {
        Ok(case) => case,
        Err(error) => {
            eprintln!("{}: {error}", finding.display());
            return ExitCode::FAILURE;
        }
    };
    let begin = Instant::now();
    run(&Device::get(0).expect("a device"), &case);
    println!("{:.2?}, at most {} MiB", begin.elapsed(), memory::peak() >> 20);
    ExitCode::SUCCESS
}

fn programs_in(folder: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?.map(|x| x.map(|x| x.path())).collect::<Result<_, _>>()?;
    paths.sort();
    let is_program = |path: &&PathBuf| path.extension().is_some_and(|x| x == "json" || x == "pdmodel");
    paths.iter().filter(is_program).map(std::fs::read).collect()
}

/// Runs cases until the time is over; how many findings there were.
fn fuzz(time: Duration, seed: u64, mut programs: Vec<Vec<u8>>, findings: &Path) -> usize {
    let (begin, mut random, seeds) = (Instant::now(), fastrand::Rng::with_seed(seed), programs.len());
    let (watch, device) = (Watch::start(findings, "program"), Device::get(0).expect("a device"));
    let (mut found, mut stages) = (0, [0_usize; 3]);
    while begin.elapsed() < time {
        let case = damage::program(&programs, &mut random);
        watch.begin(case.clone());
        let result = catch_unwind(AssertUnwindSafe(|| run(&device, &case)));
        watch.end();
        match result {
            Ok(reached) => {
                stages[reached as usize] += 1;
                if reached > Reached::Refused && programs.len() < MOST_PROGRAMS {
                    programs.push(case);
                } else if reached > Reached::Refused {
                    programs[random.usize(seeds..MOST_PROGRAMS)] = case;
                }
            }
            Err(_) => {
                found += 1;
                watch.keep(&case, "panic");
            }
        }
    }
    println!(
        "{} cases in {:.0?}: {} refused by the reader, {} later, {} ran; {found} panics; at most {} MiB, {:.2?} for one case",
        stages.iter().sum::<usize>() + found,
        begin.elapsed(),
        stages[0],
        stages[1],
        stages[2],
        memory::peak() >> 20,
        watch.slowest(),
    );
    found
}

/// Reads a program and its parameters, all zero, and runs it on ones.
fn run(device: &Device, bytes: &[u8]) -> Reached {
    let Ok(program) = read_program(bytes) else { return Reached::Refused };
    let mut parameters = Vec::new();
    for port in &program.parameters {
        let value = &program.values[port.value];
        let (Some(dtype), Some(dims)) = (value.data_type, sizes(&value.dims)) else { return Reached::Read };
        parameters.extend(stored(dtype, &dims));
    }
    let Ok(model) = Model::load(device, bytes, &parameters) else { return Reached::Read };
    let model = model.with_longest_loop(LONGEST_LOOP);
    let mut inputs = Vec::new();
    for (_, dims, dtype) in model.inputs() {
        let open: Vec<i64> =
            dims.iter().enumerate().map(|(at, &size)| if size < 0 { [1, 3, 16, 16][at % 4] } else { size }).collect();
        let (Some(dims), dtype) = (sizes(&open), dtype.unwrap_or(DataType::F32)) else { return Reached::Read };
        let bytes = vec![1; dims.iter().product::<usize>() * dtype.size()];
        match TensorData::from_bytes(device, &dims, dtype, &bytes) {
            Ok(input) => inputs.push(input),
            Err(_) => return Reached::Read,
        }
    }
    match model.run(&inputs) {
        Ok(_) => Reached::Ran,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Reached::Read
        }
    }
}

/// Small dimensions of which none is open.
fn sizes(dims: &[i64]) -> Option<Vec<usize>> {
    let sizes: Vec<usize> = dims.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<_>>()?;
    let count = sizes.iter().try_fold(1_usize, |count, &size| count.checked_mul(size))?;
    (count <= LARGEST).then_some(sizes)
}

/// The stored form of a parameter that is all zero.
fn stored(dtype: DataType, dims: &[usize]) -> Vec<u8> {
    let code =
        (0..=22_u8).find(|&code| openmps_inference::pdmodel::data_type(i64::from(code)) == Some(dtype)).unwrap_or(5);
    let mut description = vec![0x08, code];
    for &size in dims {
        description.push(0x10);
        let mut rest = size;
        while rest > 0x7f {
            description.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        description.push(rest as u8);
    }
    let mut bytes = vec![0; 16];
    bytes.extend((description.len() as i32).to_le_bytes());
    bytes.extend(description);
    bytes.resize(bytes.len() + dims.iter().product::<usize>() * dtype.size(), 0);
    bytes
}
