//! Tile programs on a CPU: a kernel is planned once into vector primitives over L1-sized tiles, then run over its grid.
//!
//! Planning works every index out symbolically (`base + row * stride + column * stride`), so that contiguous loads and
//! stores become plain pointers, masks of the form `index < bound` become shorter runs, and only real data moves.
//! Tiles of more than two dimensions, and what else the plan has no step for, are refused with an error.

mod execute;
mod lower;
mod lower_memory;
mod lower_tile;
mod product;
mod registers;
mod step;
mod value;

use crate::error::Error;
use crate::threads;
use openmps_tile::Kernel;
use step::Step;

/// A planned kernel, ready to run on this CPU.
#[derive(Debug)]
pub struct Program {
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

impl Program {
    /// Plans a kernel. The kernel must have passed the verifier; what the plan cannot express is an error.
    pub fn new(kernel: &Kernel) -> Result<Program, Error> {
        lower::lower(kernel)
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many arguments [`Program::run`] takes.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Runs the kernel for each point of the grid, on several threads when there is enough to do.
    ///
    /// Each argument is 64 bits: an address, an integer sign-extended, or a float's bits in the lower half.
    ///
    /// # Safety
    /// Every address that the kernel loads from or stores to under these arguments must be valid for that access, and
    /// stored-to memory must not overlap other operands, except that a tile may be stored where exactly it was loaded.
    pub unsafe fn run(&self, grid: [usize; 3], arguments: &[u64]) -> Result<(), Error> {
        if arguments.len() != self.parameters {
            let kernel = self.name.clone();
            return Err(Error::Arguments { kernel, got: arguments.len(), expected: self.parameters });
        }
        let programs = grid.iter().product();
        threads::parallel_for(programs, self.ns_per_program, |begin, end| {
            // SAFETY: passed on to the caller; programs of a grid are independent of each other.
            unsafe { execute::run_programs(self, grid, arguments, begin, end) }
        });
        Ok(())
    }
}
