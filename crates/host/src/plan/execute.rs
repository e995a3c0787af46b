//! Runs the steps of a plan.

use super::Plan;
use super::product::{self, Factor};
use super::step::{Address, Extent, Extents, IndexOperation, Operand, Slot, Step, Target, ViewKind};
use crate::vector::memory;
use std::cell::RefCell;

/// Where a register's elements are: in scratch memory, or in device memory that stands for it.
#[derive(Clone, Copy)]
struct Place {
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
    places: Vec<Place>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Runs the programs `begin..end` of the grid, counted with the first axis fastest.
///
/// # Safety
/// As for [`Plan::run`].
pub(super) unsafe fn run_programs(program: &Plan, grid: [usize; 3], arguments: &[u64], begin: usize, end: usize) {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.slots.clear();
        scratch.slots.extend_from_slice(&program.slots);
        scratch.slots[..arguments.len()].copy_from_slice(arguments);
        let lines = program.scratch_bytes.div_ceil(64);
        if scratch.tiles.len() < lines {
            scratch.tiles.resize(lines, Line([0; 64]));
        }
        let tiles = scratch.tiles.as_mut_ptr().cast::<u8>();
        scratch.places.clear();
        // SAFETY: each offset lies within the scratch memory.
        let place = |&offset: &usize| Place { address: unsafe { tiles.add(offset) }, pitch: 0, repeats: false };
        scratch.places.extend(program.registers.iter().map(place));
        let mut machine = Machine { slots: scratch.slots.as_mut_ptr(), places: &mut scratch.places, program, tiles };
        for axis in 0..3 {
            machine.set(program.grid_slots[axis], grid[axis] as i64);
        }
        // SAFETY: passed on to the caller.
        unsafe { machine.run(&program.prologue) };
        let mut place = [begin % grid[0], begin / grid[0] % grid[1], begin / grid[0] / grid[1]];
        for _ in begin..end {
            for axis in 0..3 {
                machine.set(program.program_slots[axis], place[axis] as i64);
            }
            // SAFETY: passed on to the caller.
            unsafe { machine.run(&program.body) };
            place[0] += 1;
            if place[0] == grid[0] {
                place = [0, place[1] + 1, place[2]];
                if place[1] == grid[1] {
                    place = [0, 0, place[2] + 1];
                }
            }
        }
    });
}

/// An index operation on numbers.
pub(super) fn index_operation(operation: IndexOperation, x: i64, y: i64) -> i64 {
    match operation {
        IndexOperation::Add => x.wrapping_add(y),
        IndexOperation::Subtract => x.wrapping_sub(y),
        IndexOperation::Multiply => x.wrapping_mul(y),
        IndexOperation::Divide => {
            if y == 0 {
                0
            } else {
                x.wrapping_div(y)
            }
        }
        IndexOperation::Remainder => {
            if y == 0 {
                0
            } else {
                x.wrapping_rem(y)
            }
        }
        IndexOperation::Minimum => x.min(y),
        IndexOperation::Maximum => x.max(y),
        IndexOperation::DivideUp => {
            if y <= 0 {
                0
            } else {
                x.max(0).wrapping_add(y - 1) / y
            }
        }
    }
}

/// What a step reads, resolved: address of the first row, bytes between rows, whether a row is one element repeated.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub address: *const u8,
    pub pitch: isize,
    pub repeats: bool,
}

impl Source {
    /// The row's address.
    #[inline(always)]
    unsafe fn row(&self, row: usize) -> *const u8 {
        // SAFETY: the row lies within the tile.
        unsafe { self.address.offset(self.pitch * row as isize) }
    }

    /// Whether rows follow each other without a gap, so that all can be one run.
    #[inline(always)]
    fn is_flat(&self, row_bytes: usize) -> bool {
        if self.repeats { self.pitch == 0 } else { self.pitch == row_bytes as isize }
    }
}

struct Machine<'a> {
    slots: *mut u64,
    places: &'a mut Vec<Place>,
    program: &'a Plan,
    tiles: *mut u8,
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

    #[inline(always)]
    fn source(&self, operand: &Operand, size: usize) -> Source {
        match *operand {
            Operand::Uniform(slot) => Source { address: self.cell(slot), pitch: 0, repeats: true },
            Operand::Register { register, view } => {
                let place = self.places[register];
                let address = place.address.cast_const();
                match view {
                    ViewKind::Plain => Source { address, pitch: place.pitch, repeats: place.repeats },
                    ViewKind::Column => {
                        let pitch = if place.repeats { 0 } else { size as isize };
                        Source { address, pitch, repeats: true }
                    }
                    ViewKind::RepeatColumns => Source { address, pitch: place.pitch, repeats: true },
                    ViewKind::RepeatRows => Source { address, pitch: 0, repeats: place.repeats },
                }
            }
        }
    }

    /// The address and pitch a step writes to: memory where a store joined it and is contiguous, else the register.
    #[inline(always)]
    fn open(&mut self, target: &Target, extents: &Extents) -> (*mut u8, isize) {
        if let Some(address) = &target.store
            && (self.stride(address.column_stride) == 1 || extents.columns.full == 1)
        {
            let pitch = self.stride(address.row_stride) * address.size as isize;
            return (self.get(address.base) as *mut u8, pitch);
        }
        let pitch = (extents.columns.full * target.size) as isize;
        // SAFETY: the register's offset lies within the scratch memory.
        let address = unsafe { self.tiles.add(self.program.registers[target.register]) };
        self.places[target.register] = Place { address, pitch, repeats: false };
        (address, pitch)
    }

    /// Carries out the store that joined a step when its memory was not contiguous.
    #[inline(always)]
    unsafe fn close(&mut self, target: &Target, extents: &Extents) {
        if let Some(address) = &target.store
            && self.stride(address.column_stride) != 1
            && extents.columns.full != 1
        {
            let register = Operand::Register { register: target.register, view: ViewKind::Plain };
            // SAFETY: passed on to the caller.
            unsafe { self.store(&register, address, extents) };
        }
    }

    unsafe fn run(&mut self, steps: &[Step]) {
        for step in steps {
            // SAFETY: passed on to the caller: addresses that the kernel computes are valid.
            unsafe { self.step(step) };
        }
    }

    #[inline(always)]
    unsafe fn step(&mut self, step: &Step) {
        // SAFETY: registers are as large as their full extents, extents are clamped to them, and device
        // addresses are valid by the contract of `Plan::run`.
        unsafe {
            match step {
                Step::Index { operation, destination, x, y, width } => {
                    let raw = index_operation(*operation, self.get(*x), self.get(*y));
                    self.set(*destination, width.extend(raw as u64) as i64);
                }
                Step::Unary { function, destination, x, width } => {
                    function(self.cell(*destination), self.cell(*x), 1);
                    let raw = self.get(*destination) as u64;
                    self.set(*destination, width.extend(raw) as i64);
                }
                Step::Binary { function, destination, x, y, width } => {
                    function(self.cell(*destination), self.cell(*x), false, self.cell(*y), false, 1);
                    let raw = self.get(*destination) as u64;
                    self.set(*destination, width.extend(raw) as i64);
                }
                Step::Select { destination, condition, x, y } => {
                    let chosen = if self.get(*condition) != 0 { *x } else { *y };
                    self.set(*destination, self.get(chosen));
                }
                Step::Copy { destination, source } => self.set(*destination, self.get(*source)),
                Step::LoadScalar { destination, address, mask, other, size, width } => {
                    if mask.is_none_or(|mask| self.get(mask) != 0) {
                        let mut raw = [0; 8];
                        let address = self.get(*address) as *const u8;
                        std::ptr::copy_nonoverlapping(address, raw.as_mut_ptr(), *size);
                        self.set(*destination, width.extend(u64::from_le_bytes(raw)) as i64);
                    } else {
                        self.set(*destination, other.map_or(0, |other| self.get(other)));
                    }
                }
                Step::StoreScalar { address, value, mask, size } => {
                    if mask.is_none_or(|mask| self.get(mask) != 0) {
                        let address = self.get(*address) as *mut u8;
                        std::ptr::copy_nonoverlapping(self.cell(*value).cast_const(), address, *size);
                    }
                }
                Step::Loop { index, lower, upper, step, body } => {
                    let (mut at, end, by) = (self.get(*lower), self.get(*upper), self.get(*step));
                    while by > 0 && at < end {
                        self.set(*index, at);
                        self.run(body);
                        at += by;
                    }
                }
                tile => self.tile_step(tile),
            }
        }
    }

    unsafe fn tile_step(&mut self, step: &Step) {
        // SAFETY: as in `step`.
        unsafe {
            match step {
                Step::LoadTile { register, address, extents, full, other, direct } => {
                    self.load(*register, address, extents, *full, other.as_ref(), *direct);
                }
                Step::StoreTile { value, address, extents } => self.store(value, address, extents),
                Step::Gather { .. } | Step::Scatter { .. } => self.scattered(step),
                Step::CountUp { target, base, row_stride, column_stride, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let (address, pitch) = self.open(target, extents);
                    let (base, by_row, by_column) =
                        (self.get(*base), self.stride(*row_stride), self.stride(*column_stride));
                    for row in 0..rows {
                        let start = base.wrapping_add((by_row * row as isize) as i64);
                        let destination = address.offset(pitch * row as isize);
                        memory::count_up(destination, start, by_column as i64, target.size, columns);
                    }
                    self.close(target, extents);
                }
                Step::MaskTile { target, clip, extents } => {
                    let ((rows, columns), (inside_rows, inside_columns)) = (self.extents(extents), self.extents(clip));
                    let (address, pitch) = self.open(target, extents);
                    for row in 0..rows {
                        let inside = if row < inside_rows { inside_columns.min(columns) } else { 0 };
                        let destination = address.offset(pitch * row as isize);
                        std::ptr::write_bytes(destination, 1, inside);
                        std::ptr::write_bytes(destination.add(inside), 0, columns - inside);
                    }
                }
                Step::MapUnary { function, target, x, x_size, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let x = self.source(x, *x_size);
                    let (address, pitch) = self.open(target, extents);
                    if x.repeats {
                        for row in 0..rows {
                            let destination = address.offset(pitch * row as isize);
                            function(destination, x.row(row), columns.min(1));
                            memory::fill(destination, destination, target.size, columns);
                        }
                    } else if rows == 1 || (x.is_flat(columns * x_size) && pitch == (columns * target.size) as isize) {
                        function(address, x.address, rows * columns);
                    } else {
                        for row in 0..rows {
                            function(address.offset(pitch * row as isize), x.row(row), columns);
                        }
                    }
                    self.close(target, extents);
                }
                Step::MapBinary { function, target, x, y, size, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let (x, y) = (self.source(x, *size), self.source(y, *size));
                    let (address, pitch) = self.open(target, extents);
                    let row_bytes = columns * size;
                    let flat = x.is_flat(row_bytes) && y.is_flat(row_bytes);
                    if rows == 1 || (flat && pitch == (columns * target.size) as isize) {
                        function(address, x.address, x.repeats, y.address, y.repeats, rows * columns);
                    } else {
                        for row in 0..rows {
                            let destination = address.offset(pitch * row as isize);
                            function(destination, x.row(row), x.repeats, y.row(row), y.repeats, columns);
                        }
                    }
                    self.close(target, extents);
                }
                Step::MapSelect { function, target, condition, x, y, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let condition = self.source(condition, 1);
                    let (x, y) = (self.source(x, target.size), self.source(y, target.size));
                    let (address, pitch) = self.open(target, extents);
                    for row in 0..rows {
                        let destination = address.offset(pitch * row as isize);
                        let (c, a, b) = (condition.row(row), x.row(row), y.row(row));
                        function(destination, c, condition.repeats, a, x.repeats, b, y.repeats, columns);
                    }
                    self.close(target, extents);
                }
                Step::MapClip { target, clip, inside, outside, extents } => {
                    self.map_clip(target, clip, inside, outside, extents);
                }
                Step::Dot { .. } => self.dot(step),
                Step::CopyTile { target, source, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, target.size);
                    let (address, pitch) = self.open(target, extents);
                    let stride = if source.repeats { 0 } else { target.size as isize };
                    for row in 0..rows {
                        let destination = address.offset(pitch * row as isize);
                        let size = target.size;
                        memory::copy_strided(destination, size as isize, source.row(row), stride, size, columns);
                    }
                }
                Step::ReduceAll { .. } | Step::ReduceRows { .. } | Step::ReduceColumns { .. } => self.reduce(step),
                _ => {}
            }
        }
    }

    unsafe fn load(
        &mut self,
        register: usize,
        address: &Address,
        extents: &Extents,
        full: (usize, usize),
        other: Option<&Operand>,
        direct: bool,
    ) {
        let (rows, columns) = self.extents(extents);
        let source = self.get(address.base) as *mut u8;
        let size = address.size as isize;
        let by_row = self.stride(address.row_stride) * size;
        let by_column = self.stride(address.column_stride) * size;
        let whole = other.is_none() || (rows, columns) == full;
        if direct && whole && (by_column == size || by_column == 0 || columns <= 1) {
            let repeats = by_column == 0 && full.1 > 1;
            self.places[register] = Place { address: source, pitch: by_row, repeats };
            return;
        }
        let pitch = (full.1 * address.size) as isize;
        // SAFETY: the register is as large as the full tile; device memory is valid inside the extents.
        unsafe {
            let scratch = self.tiles.add(self.program.registers[register]);
            self.places[register] = Place { address: scratch, pitch, repeats: false };
            let other = other.map(|other| self.source(other, address.size));
            for row in 0..(if other.is_some() { full.0 } else { rows }) {
                let destination = scratch.offset(pitch * row as isize);
                let inside = if row < rows { columns } else { 0 };
                let from = source.offset(by_row * row as isize);
                memory::copy_strided(destination, size, from, by_column, address.size, inside);
                if let Some(other) = &other {
                    let rest = other.row(row).add(if other.repeats { 0 } else { inside * address.size });
                    let stride = if other.repeats { 0 } else { size };
                    let destination = destination.add(inside * address.size);
                    memory::copy_strided(destination, size, rest, stride, address.size, full.1 - inside);
                }
            }
        }
    }

    unsafe fn store(&mut self, value: &Operand, address: &Address, extents: &Extents) {
        let (rows, columns) = self.extents(extents);
        let source = self.source(value, address.size);
        let destination = self.get(address.base) as *mut u8;
        let size = address.size as isize;
        let by_row = self.stride(address.row_stride) * size;
        let by_column = if extents.columns.full == 1 { size } else { self.stride(address.column_stride) * size };
        let stride = if source.repeats { 0 } else { size };
        for row in 0..rows {
            // SAFETY: the caller's addresses are valid inside the extents.
            unsafe {
                let destination = destination.offset(by_row * row as isize);
                memory::copy_strided(destination, by_column, source.row(row), stride, address.size, columns);
            }
        }
    }

    unsafe fn dot(&mut self, step: &Step) {
        let Step::Dot { target, x, y, sum, depth, extents } = step else { return };
        let (rows, columns) = self.extents(extents);
        let (x, y, sum) = (self.source(x, target.size), self.source(y, target.size), self.source(sum, target.size));
        let (address, pitch) = self.open(target, extents);
        let size = target.size as isize;
        // SAFETY: registers hold their full extents, and the factors are defined everywhere.
        unsafe {
            if sum.address != address.cast_const() {
                let stride = if sum.repeats { 0 } else { size };
                for row in 0..rows {
                    let destination = address.offset(pitch * row as isize);
                    memory::copy_strided(destination, size, sum.row(row), stride, target.size, columns);
                }
            }
            let shape = (rows, columns, *depth);
            let factors = [x, y].map(|x| Factor { address: x.address, pitch: x.pitch, repeats: x.repeats });
            match target.size {
                8 => product::add::<f64>(shape, (address, pitch), factors),
                _ => product::add::<f32>(shape, (address, pitch), factors),
            }
            self.close(target, extents);
        }
    }

    unsafe fn map_clip(
        &mut self,
        target: &Target,
        clip: &Extents,
        inside: &Operand,
        outside: &Operand,
        extents: &Extents,
    ) {
        let ((rows, columns), (inside_rows, inside_columns)) = (self.extents(extents), self.extents(clip));
        let (inside, outside) = (self.source(inside, target.size), self.source(outside, target.size));
        let (address, pitch) = self.open(target, extents);
        let size = target.size as isize;
        for row in 0..rows {
            let count = if row < inside_rows { inside_columns.min(columns) } else { 0 };
            // SAFETY: both sources are defined where they are read: inside the clip, and everywhere.
            unsafe {
                let destination = address.offset(pitch * row as isize);
                let stride = if inside.repeats { 0 } else { size };
                memory::copy_strided(destination, size, inside.row(row), stride, target.size, count);
                let skip = count * target.size;
                let (rest, stride) =
                    if outside.repeats { (outside.row(row), 0) } else { (outside.row(row).add(skip), size) };
                memory::copy_strided(destination.add(skip), size, rest, stride, target.size, columns - count);
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.close(target, extents) };
    }

    unsafe fn reduce(&mut self, step: &Step) {
        // SAFETY: as in `step`.
        unsafe {
            match step {
                Step::ReduceAll { function, destination, source, size, width, extents } => {
                    let (_, columns) = self.extents(extents);
                    let source = self.source(source, *size);
                    let cell = self.cell(*destination);
                    self.reduce_row(*function, cell, &source, 0, *size, columns);
                    let raw = self.get(*destination) as u64;
                    self.set(*destination, width.extend(raw) as i64);
                }
                Step::ReduceRows { function, target, source, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, target.size);
                    let result = Extents { rows: Extent { full: 1, clip: None }, columns: extents.rows };
                    let (address, _) = self.open(target, &result);
                    for row in 0..rows {
                        let destination = address.add(row * target.size);
                        self.reduce_row(*function, destination, &source, row, target.size, columns);
                    }
                }
                Step::ReduceColumns { combine, identity, target, source, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, target.size);
                    let result = Extents { rows: Extent { full: 1, clip: None }, columns: extents.columns };
                    let (address, _) = self.open(target, &result);
                    memory::fill(address, identity.as_ptr(), target.size, columns);
                    for row in 0..rows {
                        combine(address, address, false, source.row(row), source.repeats, columns);
                    }
                }
                _ => {}
            }
        }
    }

    unsafe fn reduce_row(
        &self,
        function: crate::vector::reduce::ReduceFunction,
        destination: *mut u8,
        source: &Source,
        row: usize,
        size: usize,
        columns: usize,
    ) {
        // SAFETY: as in `step`. A repeated element is combined with itself in runs of a small buffer.
        unsafe {
            if !source.repeats {
                return function(destination, source.row(row), columns);
            }
            let mut repeated = vec![0u64; (columns * size).div_ceil(8)];
            memory::fill(repeated.as_mut_ptr().cast(), source.row(row), size, columns);
            function(destination, repeated.as_ptr().cast(), columns);
        }
    }

    unsafe fn scattered(&mut self, step: &Step) {
        // SAFETY: as in `step`; addresses behind a false mask are not touched.
        unsafe {
            match step {
                Step::Gather { register, base, offsets, offset_size, mask, other, size, extents } => {
                    let target = Target { register: *register, size: *size, store: None };
                    let (address, pitch) = self.open(&target, extents);
                    let base = self.get(*base) as *const u8;
                    let offsets = self.source(offsets, *offset_size);
                    let mask = mask.as_ref().map(|mask| self.source(mask, 1));
                    let other = other.as_ref().map(|other| self.source(other, *size));
                    let (rows, columns) = self.extents(extents);
                    for row in 0..rows {
                        for column in 0..columns {
                            let destination = address.offset(pitch * row as isize).add(column * size);
                            if mask.is_none_or(|mask| *element(&mask, row, column, 1) != 0) {
                                let offset = element_offset(&offsets, row, column, *offset_size);
                                let from = base.offset(offset * *size as isize);
                                std::ptr::copy_nonoverlapping(from, destination, *size);
                            } else if let Some(other) = &other {
                                let from = element(other, row, column, *size);
                                std::ptr::copy_nonoverlapping(from, destination, *size);
                            }
                        }
                    }
                }
                Step::Scatter { value, base, offsets, offset_size, mask, size, extents } => {
                    let base = self.get(*base) as *mut u8;
                    let value = self.source(value, *size);
                    let offsets = self.source(offsets, *offset_size);
                    let mask = mask.as_ref().map(|mask| self.source(mask, 1));
                    let (rows, columns) = self.extents(extents);
                    for row in 0..rows {
                        for column in 0..columns {
                            if mask.is_none_or(|mask| *element(&mask, row, column, 1) != 0) {
                                let offset = element_offset(&offsets, row, column, *offset_size);
                                let to = base.offset(offset * *size as isize);
                                std::ptr::copy_nonoverlapping(element(&value, row, column, *size), to, *size);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// The address of one element.
unsafe fn element(source: &Source, row: usize, column: usize, size: usize) -> *const u8 {
    // SAFETY: the element lies within the tile.
    unsafe { source.row(row).add(if source.repeats { 0 } else { column * size }) }
}

/// One element as an offset.
unsafe fn element_offset(source: &Source, row: usize, column: usize, size: usize) -> isize {
    // SAFETY: the element lies within the tile.
    unsafe {
        let address = element(source, row, column, size);
        if size == 4 {
            address.cast::<i32>().read_unaligned() as isize
        } else {
            address.cast::<i64>().read_unaligned() as isize
        }
    }
}
