//! Tile programs executed one operation after the other, each over its whole tile: for what the planner has no step for.
//!
//! Every value has a place in a thread's frame and every operation becomes a step over such places, through the same vector primitives
//! that planned programs use. Nothing is symbolic here: index tiles are computed and addresses followed one by one.

mod combine;
mod compile;
mod compiler;
mod control;
mod dot;
mod elementwise;
mod memory;
mod printing;
mod shape;

use crate::error::Error;
use crate::interrupt::{self, Poll};
use crate::threads;
use openmps_tile::Kernel;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// One operation over its operands' places.
type Step = Box<dyn Fn(&Frame) -> Result<(), Error> + Send + Sync>;

/// A step that cannot fail.
fn always(work: impl Fn(&Frame) + Send + Sync + 'static) -> Step {
    Box::new(move |frame| {
        work(frame);
        Ok(())
    })
}

/// A kernel as steps.
pub(crate) struct Whole {
    name: String,
    /// Where the parameters' values go.
    parameters: Vec<usize>,
    /// Steps whose results are the same in every program.
    prologue: Vec<Step>,
    body: Vec<Step>,
    frame_bytes: usize,
    ns_per_program: usize,
    /// Programs run one after the other, as their lines are to be read.
    is_ordered: bool,
}

impl fmt::Debug for Whole {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Whole({}: {} steps, {} bytes)", self.name, self.body.len(), self.frame_bytes)
    }
}

/// Where a program's values are, and its place in the grid.
struct Frame<'p> {
    base: *mut u8,
    program: [usize; 3],
    grid: [usize; 3],
    kernel: &'p str,
    poll: RefCell<Poll<'p>>,
}

impl Frame<'_> {
    /// Counts a program or an iteration; an error where the launch has been interrupted.
    fn count(&self) -> Result<(), Error> {
        let stop = self.poll.borrow_mut().count();
        if stop { Err(Error::Interrupted { kernel: self.kernel.to_owned() }) } else { Ok(()) }
    }

    /// The address of a place.
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: every offset was given out within the frame's size.
        unsafe { self.base.add(offset) }
    }
}

impl Whole {
    /// Makes steps of a kernel that has passed the verifier.
    pub fn new(kernel: &Kernel) -> Result<Whole, Error> {
        compile::compile(kernel)
    }

    /// Runs the kernel for each point of the grid, so many `programs`; the first error of a program is returned when all have ended.
    ///
    /// # Safety
    /// As for [`Program::run`](crate::program::Program::run).
    pub unsafe fn run(&self, grid: [usize; 3], programs: usize, arguments: &[u64]) -> Result<(), Error> {
        if arguments.len() != self.parameters.len() {
            let (got, expected) = (arguments.len(), self.parameters.len());
            return Err(Error::Arguments { kernel: self.name.clone(), got, expected });
        }
        let (failed, stop) = (Mutex::new(None), interrupt::flag());
        if self.is_ordered {
            return self.programs(grid, arguments, 0..programs, Poll::new(stop.as_ref()));
        }
        threads::parallel_for(programs, self.ns_per_program, |begin, end| {
            if let Err(error) = self.programs(grid, arguments, begin..end, Poll::new(stop.as_ref())) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn programs(
        &self,
        grid: [usize; 3],
        arguments: &[u64],
        programs: Range<usize>,
        poll: Poll<'_>,
    ) -> Result<(), Error> {
        // Cache lines as the unit, so that every place is aligned for vectors.
        let mut memory = vec![[0_u64; 8]; self.frame_bytes.div_ceil(64)];
        let (base, poll) = (memory.as_mut_ptr().cast(), RefCell::new(poll));
        let mut frame = Frame { base, program: [0; 3], grid, kernel: &self.name, poll };
        for (&place, argument) in self.parameters.iter().zip(arguments) {
            // SAFETY: a parameter's place has eight bytes.
            unsafe { frame.at(place).cast::<u64>().write(*argument) };
        }
        self.prologue.iter().try_for_each(|step| step(&frame))?;
        for index in programs {
            frame.count()?;
            frame.program = [index % grid[0], index / grid[0] % grid[1], index / grid[0] / grid[1]];
            self.body.iter().try_for_each(|step| step(&frame))?;
        }
        Ok(())
    }
}
