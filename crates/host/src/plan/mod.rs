//! Tile programs on a CPU: a kernel is planned once into steps over L1-sized tiles, then run over its grid.
//!
//! Planning works every index out symbolically (`base + row * stride + column * stride`, and what is known by row and by column only at run time),
//! so that contiguous loads and stores become plain pointers, masks of the form `index < bound` become shorter runs, and only real data
//! moves. What has no form of its own is done to the elements of whole tiles, by a call.

mod call;
mod effects;
mod execute;
mod fold;
mod lives;
mod lower;
mod narrow;
mod operand;
mod order;
mod pairing;
mod pieces;
mod product;
mod registers;
mod step;
mod value;

use crate::error::Error;
use crate::interrupt::{self, Poll};
use crate::native::piecewise::Size;
use crate::threads;
use openmps_tile::Kernel;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use step::Step;

/// A kernel ready to run on this CPU.
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
    /// Products whose factors are packed on their own.
    products: Vec<Size>,
    /// A guess at the time of one program, from elements and operations.
    ns_per_program: usize,
    /// Programs run one after the other, as their lines are to be read.
    is_ordered: bool,
}

/// What the programs of a launch share.
#[derive(Clone, Copy)]
struct Launch<'a> {
    grid: [usize; 3],
    arguments: &'a [u64],
    /// Of all launches.
    number: u64,
}

/// How many launches there have been. The first has number 1.
static LAUNCHES: AtomicU64 = AtomicU64::new(1);

impl Program {
    /// Plans a kernel, which must have passed the verifier; what the host cannot execute is an error.
    pub fn new(kernel: &Kernel) -> Result<Program, Error> {
        lower::lower(kernel)
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the kernel for each point of the grid, on several threads when there is enough to do. The first error of a program is returned
    /// when all threads have ended.
    ///
    /// Each argument is 64 bits: an address, an integer sign-extended, or a float's bits in the lower half.
    ///
    /// # Safety
    /// Every address that the kernel loads from or stores to under these arguments must be valid for that access. Arguments may
    /// overlap: within a program loads and stores happen in the kernel's order.
    #[inline]
    pub unsafe fn run(&self, grid: [usize; 3], arguments: &[u64]) -> Result<(), Error> {
        let programs = grid.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        let Some(programs) = programs.or(grid.contains(&0).then_some(0)) else {
            return Err(Error::Grid { kernel: self.name.clone(), grid });
        };
        if arguments.len() != self.parameters {
            let kernel = self.name.clone();
            return Err(Error::Arguments { kernel, got: arguments.len(), expected: self.parameters });
        }
        let stop = interrupt::flag();
        let launch = Launch { grid, arguments, number: LAUNCHES.fetch_add(1, Ordering::Relaxed) };
        let run = |begin, end| {
            // SAFETY: passed on to the caller; programs of a grid are independent of each other.
            unsafe { execute::run_programs(self, launch, begin..end, Poll::new(stop.as_ref())) }
        };
        if self.is_ordered && programs > 0 {
            return run(0, programs);
        }
        let failed = Mutex::new(None);
        threads::parallel_for(programs, self.ns_per_program, |begin, end| {
            if let Err(error) = run(begin, end) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}
