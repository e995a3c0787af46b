//! Runs the steps on tiles: row by row, or all rows as one run where they follow each other.

use super::{Machine, RegisterMemory, Source};
use crate::plan::product::{self, Factor};
use crate::plan::step::{Address, Extent, Extents, Operand, Rest, Step, Target};
use crate::vector::memory;

/// An element of any size that is 0.
static ZERO: [u8; 8] = [0; 8];

impl Machine<'_> {
    pub(super) unsafe fn tile_step(&mut self, step: &Step) {
        // SAFETY: as in `step`.
        unsafe {
            match step {
                Step::LoadTile { register, address, extents, full, rest, direct } => {
                    self.load(*register, address, extents, *full, *rest, *direct);
                }
                Step::StoreTile { value, address, extents } => self.store(value, address, extents),
                Step::Guard { address, extents, writer, loads } => self.guard(address, extents, *writer, loads),
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
        rest: Rest,
        direct: bool,
    ) {
        let (rows, columns) = self.extents(extents);
        let source = self.get(address.base) as *mut u8;
        let size = address.size as isize;
        let by_row = self.stride(address.row_stride) * size;
        let by_column = self.stride(address.column_stride) * size;
        let whole = matches!(rest, Rest::Unread) || (rows, columns) == full;
        if direct && whole && (by_column == size || by_column == 0 || columns <= 1) {
            let repeats = by_column == 0 && full.1 > 1;
            self.places[register] = RegisterMemory { address: source, pitch: by_row, repeats };
            return;
        }
        let pitch = (full.1 * address.size) as isize;
        // SAFETY: the register is as large as the full tile; device memory is valid inside the extents.
        unsafe {
            let scratch = self.tiles.add(self.program.registers[register]);
            self.places[register] = RegisterMemory { address: scratch, pitch, repeats: false };
            let other = match rest {
                Rest::Unread => None,
                Rest::Zero => Some(Source { address: ZERO.as_ptr(), pitch: 0, repeats: true }),
                Rest::Other(other) => Some(self.source(&other, address.size)),
            };
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

    pub(super) unsafe fn store(&mut self, value: &Operand, address: &Address, extents: &Extents) {
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
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, *size);
                    let cell = self.cell(*destination);
                    self.reduce_row(*function, cell, &source, 0, *size, rows.min(1) * columns);
                    let raw = self.get(*destination) as u64;
                    self.set(*destination, width.extend(raw) as i64);
                }
                Step::ReduceRows { function, target, source, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, target.size);
                    let all = Extent { full: extents.rows.full, clip: None };
                    let (address, _) =
                        self.open(target, &Extents { rows: Extent { full: 1, clip: None }, columns: all });
                    for row in 0..all.full {
                        let destination = address.add(row * target.size);
                        // A row behind the last one has no elements: the identity is left.
                        let (row, columns) = if row < rows { (row, columns) } else { (0, 0) };
                        self.reduce_row(*function, destination, &source, row, target.size, columns);
                    }
                }
                Step::ReduceColumns { combine, identity, target, source, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, target.size);
                    let all = Extent { full: extents.columns.full, clip: None };
                    let (address, _) =
                        self.open(target, &Extents { rows: Extent { full: 1, clip: None }, columns: all });
                    memory::fill(address, identity.as_ptr(), target.size, all.full);
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
                    let zero = Source { address: ZERO.as_ptr(), pitch: 0, repeats: true };
                    let other = other.as_ref().map_or(zero, |other| self.source(other, *size));
                    let (rows, columns) = self.extents(extents);
                    for row in 0..rows {
                        for column in 0..columns {
                            let destination = address.offset(pitch * row as isize).add(column * size);
                            if mask.is_none_or(|mask| *element(&mask, row, column, 1) != 0) {
                                let offset = element_offset(&offsets, row, column, *offset_size);
                                let from = base.offset(offset * *size as isize);
                                std::ptr::copy_nonoverlapping(from, destination, *size);
                            } else {
                                let from = element(&other, row, column, *size);
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
