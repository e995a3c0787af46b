//! A kernel ready to run on this CPU: planned where the planner has a step for everything, else operation by operation.

use crate::error::Error;
use crate::plan::Plan;
use crate::whole::Whole;
use openmps_tile::Kernel;

/// A kernel ready to run on this CPU.
#[derive(Debug)]
pub struct Program {
    name: String,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Planned(Box<Plan>),
    Whole(Whole),
}

impl Program {
    /// Prepares a kernel, which must have passed the verifier; what the host cannot execute is an error.
    pub fn new(kernel: &Kernel) -> Result<Program, Error> {
        let form = match Plan::new(kernel) {
            Ok(plan) => Form::Planned(Box::new(plan)),
            Err(Error::Unsupported { .. }) => Form::Whole(Whole::new(kernel)?),
            Err(error) => return Err(error),
        };
        Ok(Program { name: kernel.name.clone(), form })
    }

    /// Prepares a kernel without the planner, to compare the two.
    pub fn without_plan(kernel: &Kernel) -> Result<Program, Error> {
        Ok(Program { name: kernel.name.clone(), form: Form::Whole(Whole::new(kernel)?) })
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the planner has a step for everything in the kernel.
    pub fn is_planned(&self) -> bool {
        matches!(self.form, Form::Planned(_))
    }

    /// Runs the kernel for each point of the grid, on several threads when there is enough to do.
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
        // SAFETY: passed on to the caller.
        unsafe {
            match &self.form {
                Form::Planned(plan) => plan.run(grid, programs, arguments),
                Form::Whole(whole) => whole.run(grid, programs, arguments),
            }
        }
    }
}
