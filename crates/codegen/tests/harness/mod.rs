//! Kernels' Metal text, executed on a CPU in three thread schedules and compared with the interpreter.

#![allow(dead_code, reason = "not every test needs all of it")]

use crate::launch::{Given, bytes, interpreted, prepared};
use openmps_codegen::{MatrixUnit, Parameter, Source, Target, compile};
use openmps_emulator::{Argument, Dispatch, Grid, Library, Options, Result, Schedule};
use openmps_tile::{Kernel, verify};

pub const SCHEDULES: [Schedule; 3] = [Schedule::Ascending, Schedule::Descending, Schedule::Shuffled(7)];

/// Hands `check` the buffers after each schedule and each number of threads, and after the interpreter.
pub fn compare(
    kernel: &Kernel,
    grid: [usize; 3],
    buffers: &[Vec<u8>],
    given: &[Given],
    check: &dyn Fn(&[Vec<u8>], &[Vec<u8>]),
) {
    let expected = interpreted(kernel, grid, buffers, given);
    let verified = verify(kernel).unwrap_or_else(|error| panic!("{error}"));
    for (threads, stages, unit) in [
        (32, 1, MatrixUnit::Simdgroup),
        (128, 1, MatrixUnit::Simdgroup),
        (128, 2, MatrixUnit::Simdgroup),
        (32, 1, MatrixUnit::TensorOps),
        (128, 1, MatrixUnit::TensorOps),
        (256, 2, MatrixUnit::TensorOps),
    ] {
        let target = Target { stages, matrix_unit: unit, ..Target::metal(threads) };
        let source = compile(verified, &target).unwrap_or_else(|error| panic!("{error}"));
        // Kernels without products of half types are the same for both units.
        if unit == MatrixUnit::TensorOps && !source.tensors {
            continue;
        }
        let library = library(&source, &source.text).unwrap_or_else(|error| panic!("{error}\n{}", source.text));
        for schedule in SCHEDULES {
            let found = executed(&library, &source, schedule, grid, buffers, given);
            check(&found.unwrap_or_else(|error| panic!("{error}\n{}", source.text)), &expected);
        }
    }
}

/// A kernel's text, or one that differs from it a little.
pub fn library(source: &Source, text: &str) -> Result<Library> {
    Library::compile_with(text, &Options { metal4: source.tensors, ..Options::default() })
}

/// What the buffers are after a run.
pub fn executed(
    library: &Library,
    source: &Source,
    schedule: Schedule,
    grid: [usize; 3],
    buffers: &[Vec<u8>],
    given: &[Given],
) -> Result<Vec<Vec<u8>>> {
    let (copies, arguments) = prepared(buffers, given);
    let mut numbers = vec![0_u8; source.numbers_size];
    let mut bound = Vec::new();
    for (parameter, bits) in source.parameters.iter().zip(arguments) {
        match *parameter {
            Parameter::Buffer(_) => bound.push(Argument::Buffer(std::ptr::with_exposed_provenance_mut(bits as usize))),
            Parameter::Number { offset, size } => {
                numbers[offset..offset + size].copy_from_slice(&bits.to_le_bytes()[..size]);
            }
        }
    }
    if source.numbers_size > 0 {
        bound.push(Argument::Bytes(&numbers));
    }
    let grid = Grid::Threadgroups(grid.map(|size| size as u32));
    let dispatch = Dispatch::new(grid, [source.threads as u32, 1, 1], &bound);
    // SAFETY: every kernel here stays inside of its buffers, whose addresses are exposed.
    unsafe { library.function(&source.entry)?.dispatch(&Dispatch { schedule, ..dispatch })? };
    Ok(bytes(&copies, buffers))
}
