//! Tile programs on a CPU: a kernel is planned once into steps over L1-sized tiles, then run over its grid.
//!
//! Planning works every index out symbolically (`base + row * stride + column * stride`, and what is known by row and by column only at run time),
//! so that contiguous loads and stores become plain pointers, masks of the form `index < bound` become shorter runs, and only real data
//! moves. What has no form of its own is done to the elements of whole tiles, by a call.

mod atomic;
mod branches;
mod call;
mod cube;
mod dense;
mod effects;
mod execute;
mod fold;
mod lives;
mod lower;
mod narrow;
mod once;
mod operand;
mod order;
mod pairing;
mod pass;
mod pieces;
mod product;
mod registers;
mod row;
mod second;
mod shorten;
mod step;
mod turns;
mod value;
mod widen;

use crate::error::Error;
use crate::interrupt::{self, Poll};
use crate::native::piecewise::Size;
use crate::threads;
use lower::{Loops, lower};
use openmps_tile::Kernel;
use second::Second;
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
    /// Bytes that a program stores by rows at most.
    stored: usize,
    /// A guess at the time of one program, from elements and operations.
    ns_per_program: usize,
    /// Programs run one after the other, as their lines are to be read.
    is_ordered: bool,
    /// Places that programs take turns at, by the remainder of their number.
    places: Option<usize>,
    /// How many programs of the kernel each run of the body is.
    by: usize,
    /// The same for several programs at once.
    wide: Option<Box<Program>>,
    /// The same under some arguments.
    seconds: Vec<Second>,
}

/// What the programs of a launch share.
#[derive(Clone, Copy)]
struct Launch<'a> {
    grid: [usize; 3],
    arguments: &'a [u64],
    /// Of all launches.
    number: u64,
    /// Whether rows are stored past the caches.
    streams: bool,
}

/// How many launches there have been. The first has number 1.
static LAUNCHES: AtomicU64 = AtomicU64::new(1);

impl Program {
    /// Plans a kernel, which must have passed the verifier; what the host cannot execute is an error.
    pub fn new(kernel: &Kernel) -> Result<Program, Error> {
        let (mut program, ranges) = lower(kernel, Loops::All)?;
        program.wide = widen::widen(kernel, &program);
        let once = if ranges.is_empty() { None } else { once::plan(kernel) };
        program.seconds = once.into_iter().chain(dense::plan(kernel)).collect();
        Ok(program)
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
        let program = self.seconds.iter().find_map(|second| second.under(arguments)).unwrap_or(self);
        // SAFETY: passed on to the caller.
        unsafe { program.run_grid(grid, programs, arguments) }
    }

    /// # Safety
    /// As for [`Program::run`].
    #[inline]
    unsafe fn run_grid(&self, grid: [usize; 3], programs: usize, arguments: &[u64]) -> Result<(), Error> {
        let stop = interrupt::flag();
        let number = LAUNCHES.fetch_add(1, Ordering::Relaxed);
        let streams = execute::stream::is_worth(programs.saturating_mul(self.stored));
        let run = |program: &Program, grid, programs| {
            let launch = Launch { grid, arguments, number, streams };
            // SAFETY: passed on to the caller; programs of a grid are independent of each other.
            unsafe { execute::run_programs(program, launch, programs, Poll::new(stop.as_ref())) }
        };
        if self.is_ordered && programs > 0 {
            return run(self, grid, 0..programs);
        }
        let failed = Mutex::new(None);
        let note = |done: Result<(), Error>| {
            if let Err(error) = done {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        };
        match &self.wide {
            Some(wide) if programs == grid[0] && programs >= wide.by => {
                let whole = programs / wide.by;
                // What is left over comes after them, as if it was one more.
                threads::parallel_for(programs.div_ceil(wide.by), wide.ns_per_program, |begin, end| {
                    note(run(wide, [whole, 1, 1], begin..end.min(whole)));
                    if end > whole {
                        note(run(self, grid, whole * wide.by..programs));
                    }
                });
            }
            _ => threads::parallel_for(programs, self.ns_per_program, |begin, end| note(run(self, grid, begin..end))),
        }
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::operand::plain;
    use super::*;
    use openmps_tile::kernel::Compare;
    use openmps_tile::{Binary, Builder, Scalar, Type, Value};

    /// Whether a list of steps, or one that a step contains, has such a step.
    fn any(steps: &[Step], is: &dyn Fn(&Step) -> bool) -> bool {
        steps.iter().any(|step| is(step) || step.bodies().iter().any(|body| any(body, is)))
    }

    /// As operators of one row a program are masked: the row, a range of one number, may not be there, and its columns end. Element by element that takes
    /// ten times as long.
    #[test]
    fn a_mask_of_one_row_and_of_columns_leaves_rows_and_columns() {
        for swapped in [false, true] {
            let mut b = Builder::new("masked");
            let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
            let [rows, columns] = ["rows", "columns"].map(|name| b.parameter(name, Type::scalar(Scalar::I32)));
            let (row, one) = (b.program_id(0), b.range(1));
            let row = b.splat(row, &[1]);
            let row = b.add(row, one);
            let rows = b.splat(rows, &[1]);
            let is_row = b.compare(Compare::Less, row, rows);
            let is_row = b.expand_dims(is_row, 1);
            let (is_row, range) = (b.broadcast(is_row, &[1, 64]), b.range(64));
            let range = b.expand_dims(range, 0);
            let end = b.splat(columns, &[1, 64]);
            let is_column = b.compare(Compare::Less, range, end);
            let (first, second) = if swapped { (is_column, is_row) } else { (is_row, is_column) };
            let mask = b.binary(Binary::And, first, second);
            let [from, to] = [x, out].map(|pointer| {
                let all = b.splat(pointer, &[1, 64]);
                b.add_pointer(all, range)
            });
            let loaded = b.load(from, Some(mask), None);
            b.store(to, loaded, Some(mask));
            let program = Program::new(&b.finish()).expect("planned");
            assert!(any(&program.body, &|step| matches!(step, Step::LoadTile { .. } | Step::Row(_))));
            assert!(
                !any(&program.body, &|step| matches!(step, Step::Gather { .. } | Step::Scatter { .. })),
                "{program:?}"
            );

            let values: Vec<f32> = (0..64).map(|i| i as f32).collect();
            for (rows, columns, expected) in [(1, 5, 5), (1, 64, 64), (1, 90, 64), (1, -3, 0), (0, 5, 0)] {
                let mut found = vec![-1f32; 64];
                let addresses = [values.as_ptr().expose_provenance(), found.as_mut_ptr().expose_provenance()];
                let arguments = [addresses[0] as u64, addresses[1] as u64, rows as u64, columns as i64 as u64];
                // SAFETY: both vectors have 64 elements.
                unsafe { program.run([1, 1, 1], &arguments) }.expect("runs");
                let right = |(i, &x): (usize, &f32)| x == if i < expected { i as f32 } else { -1.0 };
                assert!(found.iter().enumerate().all(right), "{rows} {columns}: {found:?}");
            }
        }
    }

    /// As heads of tokens are rotated: rows are of two dimensions, each of which ends. With an address for each element that takes five times as long.
    #[test]
    fn a_mask_of_two_outer_dimensions_needs_no_address_for_each_element() {
        let dims = [4, 2, 16];
        let mut b = Builder::new("heads");
        let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
        let ends = ["tokens", "heads"].map(|name| b.parameter(name, Type::scalar(Scalar::I32)));
        let along = [0, 1, 2].map(|axis| {
            let range = b.range(dims[axis]);
            (0..3).filter(|&other| other != axis).fold(range, |range, other| b.expand_dims(range, other))
        });
        let masks = [0, 1].map(|axis| {
            let end = b.splat_like(ends[axis], along[axis]);
            let mask = b.compare(Compare::Less, along[axis], end);
            b.broadcast(mask, &[4, 2, 1])
        });
        let mask = b.binary(Binary::And, masks[0], masks[1]);
        let mask = b.broadcast(mask, &dims);
        let [from, to] = [x, out].map(|pointer| {
            let all = b.splat(pointer, &dims);
            [32, 16, 1].into_iter().zip(along).fold(all, |all, (stride, index)| {
                let stride = b.integer(stride, Scalar::I32);
                let stride = b.splat_like(stride, index);
                let offset = b.binary(Binary::Multiply, index, stride);
                let offset = b.broadcast(offset, &dims);
                b.add_pointer(all, offset)
            })
        });
        let loaded = b.load(from, Some(mask), None);
        b.store(to, loaded, Some(mask));
        let program = Program::new(&b.finish()).expect("planned");
        assert!(!any(&program.body, &|step| matches!(step, Step::Offsets { .. })), "{program:?}");

        let values: Vec<f32> = (0..128).map(|i| i as f32).collect();
        for (tokens, heads) in [(4, 2), (3, 1), (9, 1), (1, 9), (0, 2), (2, -1)] {
            let mut found = vec![-1f32; 128];
            let addresses = [values.as_ptr().expose_provenance(), found.as_mut_ptr().expose_provenance()];
            let arguments = [addresses[0] as u64, addresses[1] as u64, tokens as u64, i64::from(heads) as u64];
            // SAFETY: both vectors have 128 elements.
            unsafe { program.run([1, 1, 1], &arguments) }.expect("runs");
            for (i, &found) in found.iter().enumerate() {
                let inside = i / 32 < tokens && ((i / 16 % 2) as i32) < heads;
                assert_eq!(found, if inside { i as f32 } else { -1.0 }, "{tokens} {heads}: {i}");
            }
        }
    }

    /// 64 sums of `(x[i] - 1)^2` for i in `first..count`, 64 elements at a time, as layer norm sums squares.
    pub(super) fn add_squares(b: &mut Builder, x: Value, count: Value, first: i64) -> Value {
        let [from, by] = [first, 64].map(|value| b.integer(value, Scalar::I32));
        let range = b.range(64);
        let (zeros, ones) = [0.0, 1.0].map(|value| b.constant(value, &Type::tile(Scalar::F32, &[64]))).into();
        b.for_loop([from, count, by], &[zeros], |b, from, sums| {
            let (from, end) = (b.splat(from, &[64]), b.splat(count, &[64]));
            let columns = b.add(from, range);
            let mask = b.compare(Compare::Less, columns, end);
            let x = b.splat(x, &[64]);
            let x = b.add_pointer(x, columns);
            let x = b.load(x, Some(mask), Some(zeros));
            let moved = b.binary(Binary::Subtract, x, ones);
            let kept = b.select(mask, moved, zeros);
            let square = b.binary(Binary::Multiply, kept, kept);
            vec![b.add(sums[0], square)]
        })[0]
    }

    /// As layer norm sums squares: nothing is filled before the loop, and where the mask holds everywhere the selection costs nothing.
    #[test]
    fn a_sum_begins_as_a_number_and_a_selection_keeps_what_is_in_its_place() {
        let mut b = Builder::new("squares");
        let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
        let count = b.parameter("count", Type::scalar(Scalar::I32));
        let sums = add_squares(&mut b, x, count, 0);
        let range = b.range(64);
        let all = b.splat(out, &[64]);
        let to = b.add_pointer(all, range);
        b.store(to, sums, None);
        let program = Program::new(&b.finish()).expect("planned");
        let fills = |step: &Step| matches!(step, Step::CopyTile { direct: false, .. });
        let moves =
            |step: &Step| matches!(step, Step::MapClip { target, inside, .. } if *inside != plain(target.register));
        assert!(!any(&program.body, &fills) && !any(&program.body, &moves), "{program:?}");

        let values: Vec<f32> = (0..200).map(|i| i as f32 * 0.25).collect();
        for count in [0, 1, 63, 64, 65, 128, 200] {
            let mut found = vec![-1f32; 64];
            let addresses = [values.as_ptr().expose_provenance(), found.as_mut_ptr().expose_provenance()];
            let arguments = [addresses[0] as u64, addresses[1] as u64, count as u64];
            // SAFETY: no more than 200 numbers are read, 64 are written.
            unsafe { program.run([1, 1, 1], &arguments) }.expect("runs");
            for (i, &found) in found.iter().enumerate() {
                let expected: f32 = (i..count).step_by(64).map(|at| (values[at] - 1.0).powi(2)).sum();
                assert_eq!(found, expected, "{i} of {count}");
            }
        }
    }
}
