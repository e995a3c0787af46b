//! One kernel with arguments and what it must give, run in three schedules.

use crate::kind::Kind;
use openmps_emulator::{Argument, Counters, Dispatch, Grid, Library, Report, Schedule};
use std::time::Duration;

const SCHEDULES: [Schedule; 3] = [Schedule::Ascending, Schedule::Descending, Schedule::Shuffled(7)];

/// What is bound to an index.
pub enum Arg {
    Bytes(Vec<u8>),
    Buffer(Vec<u8>),
    /// Written by the kernel; what it holds before.
    Out(Kind, Vec<f64>),
    None,
}

/// Judges the outputs.
pub type Check = Box<dyn Fn(&[Vec<f64>]) -> Result<(), String>>;

pub struct Case {
    pub grid: Grid,
    pub group: [u32; 3],
    pub args: Vec<Arg>,
    pub memory: Vec<usize>,
    pub check: Check,
}

pub fn input(kind: Kind, values: &[f64]) -> Arg {
    Arg::Buffer(kind.encode(values))
}

pub fn output(kind: Kind, count: usize) -> Arg {
    Arg::Out(kind, vec![0.0; count])
}

/// `size_t` in place: one number for a reference, several for a pointer.
pub fn sizes(values: &[usize]) -> Arg {
    Arg::Bytes(values.iter().flat_map(|value| (*value as u64).to_ne_bytes()).collect())
}

pub fn ints(values: &[usize]) -> Arg {
    Arg::Bytes(values.iter().flat_map(|value| (*value as u32).to_ne_bytes()).collect())
}

pub fn float(value: f64) -> Arg {
    Arg::Bytes((value as f32).to_ne_bytes().to_vec())
}

/// A case of `threads` threads in a row.
pub fn threads(threads: usize, args: Vec<Arg>, check: Check) -> Case {
    Case { grid: Grid::Threads([threads as u32, 1, 1]), group: [64, 1, 1], args, memory: Vec::new(), check }
}

/// A case of whole threadgroups.
pub fn groups(grid: [usize; 3], group: [usize; 3], args: Vec<Arg>, check: Check) -> Case {
    let (grid, group) = (grid.map(|n| n as u32), group.map(|n| n as u32));
    Case { grid: Grid::Threadgroups(grid), group, args, memory: Vec::new(), check }
}

/// The first output is these numbers, but for some roundings of its type (of numbers of about `scale`).
pub fn near(kind: Kind, expected: Vec<f64>, roundings: f64, scale: f64) -> Check {
    let expected: Vec<f64> = expected.into_iter().map(|value| kind.round(value)).collect();
    Box::new(move |outputs| {
        if outputs[0].len() != expected.len() {
            return Err(format!("{} numbers, not {}", outputs[0].len(), expected.len()));
        }
        let tolerance = |value: f64| roundings * kind.epsilon() * (value.abs() + scale);
        let wrong =
            |(got, expected): (&f64, &f64)| !(got == expected || (got - expected).abs() <= tolerance(*expected));
        let Some(at) = outputs[0].iter().zip(&expected).position(wrong) else { return Ok(()) };
        Err(format!("{} at {at}, not {}", outputs[0][at], expected[at]))
    })
}

/// The first output is exactly these numbers.
pub fn exact(kind: Kind, expected: Vec<f64>) -> Check {
    near(kind, expected, 0.0, 0.0)
}

/// The first output is these numbers, each but for a share of a size of its own.
pub fn within(expected: Vec<(f64, f64)>, share: f64) -> Check {
    Box::new(move |outputs| {
        if outputs[0].len() != expected.len() {
            return Err(format!("{} numbers, not {}", outputs[0].len(), expected.len()));
        }
        let is_right = |(got, (value, size)): (&f64, &(f64, f64))| (got - value).abs() <= share * size;
        let Some(at) = outputs[0].iter().zip(&expected).position(|pair| !is_right(pair)) else { return Ok(()) };
        Err(format!("{} at {at}, not {}", outputs[0][at], expected[at].0))
    })
}

/// Bytes of a buffer, aligned for every type.
fn aligned(bytes: &[u8]) -> Vec<u128> {
    let mut words = vec![0_u128; bytes.len().div_ceil(16) + 1];
    for (word, part) in words.iter_mut().zip(bytes.chunks(16)) {
        let mut whole = [0; 16];
        whole[..part.len()].copy_from_slice(part);
        *word = u128::from_ne_bytes(whole);
    }
    words
}

impl Case {
    /// Runs the kernel in every schedule, strictly or without waiting for finished threads at barriers; what is wrong with its results, or
    /// why it did not run.
    pub fn run(&self, library: &Library, kernel: &str, ignore_finished: bool) -> Result<(), String> {
        SCHEDULES.into_iter().try_for_each(|schedule| {
            let outputs = self.run_once(library, kernel, schedule, ignore_finished)?;
            (self.check)(&outputs).map_err(|what| format!("{schedule:?}: {what}"))
        })
    }

    /// What the kernel of a counted library does.
    pub fn count(&self, library: &Library, kernel: &str) -> Result<Counters, String> {
        let counters = self.dispatched(library, kernel, Schedule::Ascending, false)?.1.counters;
        counters.ok_or_else(|| "the library is not counted".to_owned())
    }

    fn run_once(
        &self,
        library: &Library,
        kernel: &str,
        schedule: Schedule,
        ignore_finished: bool,
    ) -> Result<Vec<Vec<f64>>, String> {
        let (memory, _) = self.dispatched(library, kernel, schedule, ignore_finished)?;
        Ok(self
            .args
            .iter()
            .zip(&memory)
            .filter_map(|(arg, memory)| match arg {
                Arg::Out(kind, values) => {
                    let bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    Some(kind.decode(&bytes[..values.len() * kind.size()]))
                }
                _ => None,
            })
            .collect())
    }

    /// The memory of all arguments after a dispatch, and what it says.
    fn dispatched(
        &self,
        library: &Library,
        kernel: &str,
        schedule: Schedule,
        ignore_finished: bool,
    ) -> Result<(Vec<Vec<u128>>, Report), String> {
        let mut memory: Vec<Vec<u128>> = self
            .args
            .iter()
            .map(|arg| match arg {
                Arg::Buffer(bytes) => aligned(bytes),
                Arg::Out(kind, values) => aligned(&kind.encode(values)),
                _ => Vec::new(),
            })
            .collect();
        let arguments: Vec<Argument> = self
            .args
            .iter()
            .zip(&mut memory)
            .map(|(arg, memory)| match arg {
                Arg::Bytes(bytes) => Argument::Bytes(bytes),
                Arg::None => Argument::Unbound,
                _ => Argument::Buffer(memory.as_mut_ptr().cast()),
            })
            .collect();
        let time_limit = Duration::from_secs(if library.is_counted() { 600 } else { 10 });
        let dispatch = Dispatch {
            schedule,
            threadgroup_memory: &self.memory,
            ignore_finished,
            time_limit,
            ..Dispatch::new(self.grid, self.group, &arguments)
        };
        let function = library.function(kernel).map_err(|error| error.to_string())?;
        // SAFETY: the buffers live in `memory`, which nothing else touches, and have the sizes that the case's reference says.
        let report = unsafe { function.dispatch(&dispatch) }.map_err(|error| error.to_string())?;
        Ok((memory, report))
    }
}
