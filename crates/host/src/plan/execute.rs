//! Runs the steps of a plan: loops, conditions and calls; those on numbers and on tiles are in the files below.

mod ahead;
mod atomic;
mod flat;
mod fold;
mod guard;
mod memory;
mod pass;
mod rows;
mod scalars;
mod scattered;
mod source;
pub(super) mod stream;
mod tiles;

use self::ahead::Ahead;
pub(super) use self::scalars::index_operation;
pub(super) use self::source::Source;
use super::atomic::Runs;
use super::call::{Call, Places, Written};
use super::operand::{Extent, Extents, Operand, Slot, Target, ViewKind};
use super::step::Step;
use super::turns::Turns;
use super::{Launch, Program};
use crate::error::Error;
use crate::interrupt::Poll;
use crate::native::piecewise::{Piecewise, Size};
use std::cell::RefCell;
use std::ops::Range;

/// Where a register's elements are: in scratch memory, or in device memory that stands for it.
#[derive(Clone, Copy)]
struct RegisterMemory {
    address: *mut u8,
    /// Bytes from one row to the next.
    pitch: isize,
    /// Whether each row is one element repeated.
    repeats: bool,
}

/// Scratch memory of one thread, kept between runs.
#[derive(Default)]
struct Scratch {
    slots: Vec<u64>,
    /// In units of 64 bytes, for alignment.
    tiles: Vec<Line>,
    places: Vec<RegisterMemory>,
    lists: Lists,
    ahead: Ahead,
    /// The products of the program that ran last, and in which launch.
    products: Vec<Piecewise>,
    launch: u64,
}

/// What a step names, kept between steps for their memory.
#[derive(Default)]
struct Lists {
    reads: Vec<*const u8>,
    writes: Vec<*mut u8>,
    rows: Vec<i64>,
    columns: Vec<i64>,
    runs: Runs,
    /// Operands of a step that are written out.
    written_out: [Vec<u64>; 5],
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

/// No launch has this number.
const NO_LAUNCH: u64 = 0;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Runs a range of the grid's programs, counted with the first axis fastest.
///
/// # Safety
/// As for [`Program::run`].
pub(super) unsafe fn run_programs(
    program: &Program,
    launch: Launch<'_>,
    programs: Range<usize>,
    poll: Poll<'_>,
) -> Result<(), Error> {
    // Taken, not borrowed: whoever is asked whether to go on may launch kernels, too.
    let mut scratch = SCRATCH.take();
    // SAFETY: passed on to the caller.
    let done = unsafe { run_with(&mut scratch, program, launch, programs, poll) };
    if done.is_err() {
        // A product may have been left half way.
        scratch.launch = NO_LAUNCH;
    }
    SCRATCH.set(scratch);
    done
}

/// # Safety
/// As for [`run_programs`].
unsafe fn run_with(
    scratch: &mut Scratch,
    program: &Program,
    Launch { grid, arguments, number, streams }: Launch<'_>,
    programs: Range<usize>,
    poll: Poll<'_>,
) -> Result<(), Error> {
    if scratch.launch != number {
        scratch.launch = number;
        prepare(&mut scratch.products, &program.products);
    }
    scratch.slots.clear();
    scratch.slots.extend_from_slice(&program.slots);
    scratch.slots[..arguments.len()].copy_from_slice(arguments);
    let lines = program.scratch_bytes.div_ceil(64);
    if scratch.tiles.len() < lines {
        scratch.tiles.resize(lines, Line([0; 64]));
    }
    let tiles = scratch.tiles.as_mut_ptr().cast::<u8>();
    scratch.places.clear();
    let place = |&offset: &usize| {
        // SAFETY: each offset lies within the scratch memory.
        let address = unsafe { tiles.add(offset) };
        RegisterMemory { address, pitch: 0, repeats: false }
    };
    scratch.places.extend(program.registers.iter().map(place));
    let (slots, places, lists) = (scratch.slots.as_mut_ptr(), &mut scratch.places, &mut scratch.lists);
    let (products, ahead) = (&mut scratch.products, &mut scratch.ahead);
    ahead.begin(program.registers.len());
    let mut machine = Machine { slots, places, lists, products, program, tiles, poll, ahead, place: [0; 3], streams };
    for axis in 0..3 {
        machine.set(program.grid_slots[axis], grid[axis] as i64);
    }
    // SAFETY: passed on to the caller.
    unsafe { machine.run(&program.prologue) }?;
    let begin = programs.start;
    let turns = program.places.filter(|_| grid[1..] == [1, 1]).map(|places| Turns::new(grid[0], places));
    let mut place = match turns {
        Some(turns) => [turns.at(begin), 0, 0],
        None => [begin % grid[0], begin / grid[0] % grid[1], begin / grid[0] / grid[1]],
    };
    for _ in programs {
        for (slot, number) in program.program_slots.into_iter().zip([place[0] * program.by, place[1], place[2]]) {
            machine.set(slot, number as i64);
        }
        machine.place = place;
        machine.ahead.begin_program();
        machine.count()?;
        // SAFETY: passed on to the caller.
        unsafe { machine.run(&program.body) }?;
        place = match turns {
            Some(turns) => [turns.after(place[0]), 0, 0],
            None => after(place, grid),
        };
    }
    if streams {
        stream::finish();
    }
    Ok(())
}

/// The place behind this one, the first axis fastest.
fn after([x, y, z]: [usize; 3], grid: [usize; 3]) -> [usize; 3] {
    match (x + 1 == grid[0], y + 1 == grid[1]) {
        (false, _) => [x + 1, y, z],
        (true, false) => [0, y + 1, z],
        (true, true) => [0, 0, z + 1],
    }
}

/// Makes the products of a program, with the memory of those before where it fits.
fn prepare(products: &mut Vec<Piecewise>, sizes: &[Size]) {
    if products.len() == sizes.len() && products.iter().zip(sizes).all(|(product, size)| product.size() == *size) {
        products.iter_mut().for_each(Piecewise::forget);
    } else if !sizes.is_empty() {
        products.clear();
        products.extend(sizes.iter().map(|&size| Piecewise::new(size, sizes.len())));
    }
}

struct Machine<'a> {
    slots: *mut u64,
    places: &'a mut Vec<RegisterMemory>,
    lists: &'a mut Lists,
    products: &'a mut [Piecewise],
    program: &'a Program,
    tiles: *mut u8,
    poll: Poll<'a>,
    ahead: &'a mut Ahead,
    /// The program's place in the grid.
    place: [usize; 3],
    /// Whether rows are stored past the caches.
    streams: bool,
}

impl Machine<'_> {
    #[inline(always)]
    fn get(&self, slot: Slot) -> i64 {
        // SAFETY: slots are numbered within the plan's own count.
        unsafe { *self.slots.add(slot) as i64 }
    }

    #[inline(always)]
    fn set(&mut self, slot: Slot, value: i64) {
        // SAFETY: as in `get`.
        unsafe { *self.slots.add(slot) = value as u64 }
    }

    #[inline(always)]
    fn cell(&self, slot: Slot) -> *mut u8 {
        // SAFETY: as in `get`.
        unsafe { self.slots.add(slot).cast() }
    }

    #[inline(always)]
    fn extent(&self, extent: Extent) -> usize {
        match extent.clip {
            None => extent.full,
            Some(slot) => self.get(slot).clamp(0, extent.full as i64) as usize,
        }
    }

    #[inline(always)]
    fn extents(&self, extents: &Extents) -> (usize, usize) {
        (self.extent(extents.rows), self.extent(extents.columns))
    }

    #[inline(always)]
    fn stride(&self, slot: Option<Slot>) -> isize {
        slot.map_or(0, |slot| self.get(slot) as isize)
    }

    /// Counts a program or an iteration; an error where the launch has been interrupted.
    #[inline(always)]
    fn count(&mut self) -> Result<(), Error> {
        if self.poll.count() { Err(Error::Interrupted { kernel: self.program.name.clone() }) } else { Ok(()) }
    }

    #[inline(always)]
    fn source(&self, operand: &Operand, size: usize) -> Source {
        let size = size as isize;
        match *operand {
            Operand::Uniform(slot) => Source { address: self.cell(slot), pitch: 0, by_column: 0 },
            Operand::Register { register, view } => {
                let RegisterMemory { address, pitch, repeats } = self.places[register];
                let by_column = if repeats { 0 } else { size };
                let (pitch, by_column) = match view {
                    ViewKind::Plain => (pitch, by_column),
                    ViewKind::Column => (by_column, 0),
                    ViewKind::RepeatColumns => (pitch, 0),
                    ViewKind::RepeatRows => (0, by_column),
                    ViewKind::Transposed => (by_column, pitch),
                };
                Source { address, pitch, by_column }
            }
        }
    }

    /// The address and pitch a step writes to: memory where a store joined it and is contiguous, else the register.
    #[inline(always)]
    fn open(&mut self, target: &Target, extents: &Extents) -> (*mut u8, isize) {
        if let Some(address) = &target.store
            && (self.stride(address.spread.column_stride) == 1 || extents.columns.full == 1)
        {
            let pitch = self.stride(address.spread.row_stride) * address.size as isize;
            let base = self.get(address.base) as *mut u8;
            if extents.rows.full == 1 {
                let (rows, columns) = self.extents(extents);
                self.ahead.note(target.register, base, rows * columns * address.size);
            }
            return (base, pitch);
        }
        let pitch = (extents.columns.full * target.size) as isize;
        let address = self.home(target.register);
        self.places[target.register] = RegisterMemory { address, pitch, repeats: false };
        (address, pitch)
    }

    /// A register's scratch memory.
    #[inline(always)]
    fn home(&self, register: usize) -> *mut u8 {
        // SAFETY: the register's offset lies within the scratch memory.
        unsafe { self.tiles.add(self.program.registers[register]) }
    }

    /// Carries out the store that joined a step when its memory was not contiguous.
    #[inline(always)]
    unsafe fn close(&mut self, target: &Target, extents: &Extents) {
        if let Some(address) = &target.store
            && self.stride(address.spread.column_stride) != 1
            && extents.columns.full != 1
        {
            let register = Operand::Register { register: target.register, view: ViewKind::Plain };
            // SAFETY: passed on to the caller.
            unsafe { self.store(&register, address, extents) };
        }
    }

    unsafe fn run(&mut self, steps: &[Step]) -> Result<(), Error> {
        for step in steps {
            // SAFETY: passed on to the caller: addresses that the kernel computes are valid.
            unsafe {
                // One choice among all kinds: most of a kernel's steps are on numbers, and take as long as it.
                match step {
                    Step::Index { operation, destination, x, y, width } => {
                        self.index(*operation, *destination, [*x, *y], *width);
                    }
                    Step::Place { destination, base, offset, size } => self.place(*destination, *base, *offset, *size),
                    Step::Unary { .. }
                    | Step::Binary { .. }
                    | Step::Select { .. }
                    | Step::Copy { .. }
                    | Step::LoadScalar { .. }
                    | Step::StoreScalar { .. } => self.number(step),
                    Step::Row(row) => {
                        self.ahead.fetch();
                        self.row(row);
                    }
                    Step::Pass { pass, steps } => {
                        self.ahead.fetch();
                        self.pass(pass, steps)?;
                    }
                    Step::Loop { index, lower, upper, step, body } => {
                        self.run_loop(*index, [*lower, *upper, *step], body)?
                    }
                    Step::If { condition, bodies } => self.run(&bodies[usize::from(self.get(*condition) == 0)])?,
                    Step::While { condition, bodies: [before, after] } => {
                        self.run(before)?;
                        while self.get(*condition) != 0 {
                            self.count()?;
                            self.run(after)?;
                            // Another program may be holding what this one waits for.
                            std::hint::spin_loop();
                            self.run(before)?;
                        }
                    }
                    Step::Fold(fold) => self.fold(fold)?,
                    Step::Call(call) => self.call(call)?,
                    step => {
                        self.ahead.fetch();
                        self.tile_step(step);
                    }
                }
            }
        }
        Ok(())
    }

    unsafe fn run_loop(&mut self, index: Slot, [lower, upper, step]: [Slot; 3], body: &[Step]) -> Result<(), Error> {
        let (mut at, end, by) = (self.get(lower), self.get(upper), self.get(step));
        if at < end && by < 1 {
            let kernel = &self.program.name;
            return Err(Error::Invalid(format!("{kernel}: the loop's step is {by}, expected at least 1")));
        }
        while at < end {
            self.count()?;
            self.set(index, at);
            // SAFETY: passed on to the caller.
            unsafe { self.run(body) }?;
            at = at.saturating_add(by);
        }
        Ok(())
    }

    unsafe fn call(&mut self, call: &Call) -> Result<(), Error> {
        let (mut reads, mut writes) = (std::mem::take(&mut self.lists.reads), std::mem::take(&mut self.lists.writes));
        reads.clear();
        writes.clear();
        reads.extend(call.reads.iter().map(|operand| self.source(operand, 0).address));
        for written in &call.writes {
            writes.push(match written {
                Written::Tile(target, extents) => self.open(target, extents).0,
                Written::Number(slot, _) => self.cell(*slot),
            });
        }
        let done = (call.work)(&Places { reads: &reads, writes: &writes, program: self.place });
        for written in &call.writes {
            if let Written::Number(slot, width) = *written {
                self.extend(slot, width);
            }
        }
        (self.lists.reads, self.lists.writes) = (reads, writes);
        done
    }
}
