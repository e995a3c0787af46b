//! Tile programs on a CPU: a kernel is planned once into vector primitives over L1-sized tiles, then run over its grid.
//!
//! Planning works every index out symbolically (`base + row * stride + column * stride`), so that contiguous loads and
//! stores become plain pointers, masks of the form `index < bound` become shorter runs, and only real data moves.
//! Tiles of more than two dimensions, and what else the plan has no step for, are an error: `whole` runs such kernels.

mod effects;
mod execute;
mod lives;
mod lower;
mod lower_loop;
mod lower_memory;
mod lower_shape;
mod lower_tile;
mod narrow;
mod order;
pub(crate) mod product;
mod registers;
mod step;
mod value;

use crate::error::Error;
use crate::interrupt::{self, Poll};
use crate::threads;
use openmps_tile::Kernel;
use std::sync::atomic::Ordering;
use step::Step;

/// A planned kernel, ready to run on this CPU.
#[derive(Debug)]
pub struct Plan {
    name: String,
    parameters: usize,
    /// Initial slots: parameters (zero), then constants and temporaries.
    slots: Vec<u64>,
    /// Where the grid's size and the program's place go.
    grid_slots: [usize; 3],
    program_slots: [usize; 3],
    /// Steps that depend on the arguments only, run once a thread.
    prologue: Vec<Step>,
    body: Vec<Step>,
    /// Byte offset of each register in the scratch memory.
    registers: Vec<usize>,
    scratch_bytes: usize,
    /// A guess at the time of one program, from elements and operations.
    ns_per_program: usize,
}

impl Plan {
    /// Plans a kernel. The kernel must have passed the verifier; what the plan cannot express is an error.
    pub fn new(kernel: &Kernel) -> Result<Plan, Error> {
        lower::lower(kernel)
    }

    /// Runs the kernel for each point of the grid, so many `programs`, on several threads when there is enough to do.
    ///
    /// # Safety
    /// As for [`Program::run`](crate::program::Program::run).
    pub unsafe fn run(&self, grid: [usize; 3], programs: usize, arguments: &[u64]) -> Result<(), Error> {
        if arguments.len() != self.parameters {
            let kernel = self.name.clone();
            return Err(Error::Arguments { kernel, got: arguments.len(), expected: self.parameters });
        }
        let stop = interrupt::flag();
        threads::parallel_for(programs, self.ns_per_program, |begin, end| {
            // SAFETY: passed on to the caller; programs of a grid are independent of each other.
            unsafe { execute::run_programs(self, grid, arguments, begin..end, Poll::new(stop.as_ref())) }
        });
        match stop {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Interrupted { kernel: self.name.clone() }),
            _ => Ok(()),
        }
    }
}
