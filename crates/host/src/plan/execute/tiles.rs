//! Runs the steps on tiles: row by row, or all rows as one run where they follow each other.

use super::{Machine, RegisterMemory, Source};
use crate::native::piecewise::Out;
use crate::plan::operand::{Address, Extents, Operand, Register, Sum, Target, plain};
use crate::plan::product::{self, Factor, Pieces, ProductKind, When};
use crate::plan::step::Step;
use crate::vector::memory;

/// Rows and columns of a step, all as one row where they follow each other without a gap.
#[inline(always)]
fn as_one_row((rows, columns): (usize, usize), is_flat: bool) -> (usize, usize) {
    if is_flat { (1, rows * columns) } else { (rows, columns) }
}

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
                Step::Gather { .. } | Step::Scatter { .. } | Step::Offsets { .. } => self.scattered(step),
                Step::Atomic(atomic) => self.atomic(atomic),
                Step::CountUp { target, sum: Sum { base, spread }, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let (address, pitch) = self.open(target, extents);
                    let (base, by_row, by_column) =
                        (self.get(*base), self.stride(spread.row_stride), self.stride(spread.column_stride));
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
                Step::MapUnary { function, target, x, x_size, extents, .. } => {
                    let (rows, columns) = self.extents(extents);
                    let x = self.source(x, *x_size);
                    let (address, pitch) = self.open(target, extents);
                    if x.repeats() {
                        for row in 0..rows {
                            let destination = address.offset(pitch * row as isize);
                            function(destination, x.row(row), columns.min(1));
                            memory::fill(destination, destination, target.size, columns);
                        }
                    } else {
                        let is_flat = x.is_flat(columns * x_size) && pitch == (columns * target.size) as isize;
                        let (rows, columns) = as_one_row((rows, columns), is_flat);
                        for row in 0..rows {
                            function(address.offset(pitch * row as isize), x.row(row), columns);
                        }
                    }
                    self.close(target, extents);
                }
                Step::MapBinary { function, target, x, y, size, extents, .. } => {
                    let (rows, columns) = self.extents(extents);
                    let [x, y] = self.flattened([x, y].map(|of| (self.source(of, *size), *size)), (rows, columns));
                    let (address, pitch) = self.open(target, extents);
                    let row_bytes = columns * size;
                    let is_flat =
                        x.is_flat(row_bytes) && y.is_flat(row_bytes) && pitch == (columns * target.size) as isize;
                    let (rows, columns) = as_one_row((rows, columns), is_flat);
                    for row in 0..rows {
                        let destination = address.offset(pitch * row as isize);
                        function(destination, x.row(row), x.repeats(), y.row(row), y.repeats(), columns);
                    }
                    self.close(target, extents);
                }
                Step::MapSelect { function, target, condition, x, y, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let sources = [(condition, 1), (x, target.size), (y, target.size)];
                    let sources = sources.map(|(operand, size)| (self.source(operand, size), size));
                    let [condition, x, y] = self.flattened(sources, (rows, columns));
                    let (address, pitch) = self.open(target, extents);
                    let row_bytes = columns * target.size;
                    let is_flat = condition.is_flat(columns)
                        && [x, y].iter().all(|source| source.is_flat(row_bytes))
                        && pitch == row_bytes as isize;
                    let (rows, columns) = as_one_row((rows, columns), is_flat);
                    for row in 0..rows {
                        let destination = address.offset(pitch * row as isize);
                        let (c, a, b) = (condition.row(row), x.row(row), y.row(row));
                        function(destination, c, condition.repeats(), a, x.repeats(), b, y.repeats(), columns);
                    }
                    self.close(target, extents);
                }
                Step::MapFused { function, target, operands, extents, .. } => {
                    self.map_many(*function, target, *operands, extents);
                }
                Step::MapChain { function, target, operands, extents } => {
                    self.map_many(*function, target, *operands, extents);
                }
                Step::MapChoice { function, target, operands, extents, .. } => {
                    self.map_many(*function, target, *operands, extents);
                }
                Step::MapClip { target, clip, inside, outside, extents } => {
                    self.map_clip(target, clip, inside, outside, extents);
                }
                Step::Dot { pieces: Some(pieces @ Pieces { when: When::Later, .. }), target, x, y, .. } => {
                    let out = self.sum(pieces.product, target.register);
                    self.add_piece(pieces, [x, y], out);
                }
                Step::Dot { .. } => self.dot(step),
                Step::EndPieces { product, sum } => {
                    let out = self.sum(*product, *sum);
                    self.products[*product].finish(out);
                }
                Step::CopyTile { target, source: Operand::Uniform(slot), direct: true, .. } => {
                    let address = self.cell(*slot);
                    self.places[target.register] = RegisterMemory { address, pitch: 0, repeats: true };
                }
                Step::CopyTile { target, source, extents, .. } => {
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, target.size);
                    let (address, pitch) = self.open(target, extents);
                    for row in 0..rows {
                        let (destination, size) = (address.offset(pitch * row as isize), target.size);
                        let from = source.row(row);
                        memory::copy_strided(destination, size as isize, from, source.by_column, size, columns);
                    }
                }
                Step::SumOfPairs { function, destination, operands: [x, y], extents, .. } => {
                    let (rows, columns) = self.extents(extents);
                    let sources = [x, y].map(|operand| self.source(operand, size_of::<f32>()));
                    let (operands, repeats) = (sources.map(|x| x.address), sources.map(|x| x.repeats()));
                    function(self.cell(*destination), operands, repeats, rows.min(1) * columns);
                }
                Step::ReduceAll { .. } | Step::ReduceRows { .. } | Step::ReduceColumns { .. } => self.reduce(step),
                _ => {}
            }
        }
    }

    /// A function of as many operands as it takes.
    #[inline(always)]
    unsafe fn map_many<const N: usize>(
        &mut self,
        function: unsafe fn(*mut u8, [*const u8; N], [bool; N], usize),
        target: &Target,
        operands: [Operand; N],
        extents: &Extents,
    ) {
        let (rows, columns) = self.extents(extents);
        let sources = operands.map(|operand| (self.source(&operand, target.size), target.size));
        let sources = self.flattened(sources, (rows, columns));
        let (address, pitch) = self.open(target, extents);
        let row_bytes = columns * target.size;
        let is_flat = sources.iter().all(|source| source.is_flat(row_bytes)) && pitch == row_bytes as isize;
        let (rows, columns) = as_one_row((rows, columns), is_flat);
        // SAFETY: as in `tile_step`.
        unsafe {
            for row in 0..rows {
                let destination = address.offset(pitch * row as isize);
                function(destination, sources.map(|x| x.row(row)), sources.map(|x| x.repeats()), columns);
            }
            self.close(target, extents);
        }
    }

    /// Apart from the others, as what follows: their variables would be a kilobyte on the stack of each step.
    #[inline(never)]
    unsafe fn dot(&mut self, step: &Step) {
        let Step::Dot { target, kind, x, y, sum, batch, depth, extents, pieces } = step else { return };
        let factors = [x, y];
        let (rows, columns) = self.extents(extents);
        let (x, y) = (self.source(x, kind.factor_size()), self.source(y, kind.factor_size()));
        let is_zero =
            matches!((kind, *sum), (ProductKind::Single(_), Operand::Uniform(slot)) if self.get(slot) as u32 == 0);
        let sum = self.source(sum, target.size);
        // Products write rows that follow each other forwards; others are stored afterwards.
        let (now, later) = match target.store {
            Some(to) if !self.goes_forwards(&to, extents) => (None, Some(to)),
            store => (store, None),
        };
        let target = &Target { store: now, ..*target };
        let (address, pitch) = self.open(target, extents);
        let size = target.size as isize;
        // SAFETY: registers hold their full extents, and the factors are defined everywhere.
        unsafe {
            if !is_zero && sum.address != address.cast_const() {
                for row in 0..rows {
                    let destination = address.offset(pitch * row as isize);
                    memory::copy_strided(destination, size, sum.row(row), sum.by_column, target.size, columns);
                }
            }
            let out = (address, pitch);
            match pieces {
                Some(pieces) => {
                    let stride = pitch as usize / target.size;
                    self.add_piece(pieces, factors, Out { first: address.cast(), stride, accumulate: !is_zero });
                }
                None => multiply_batches((*kind, *batch), (rows, columns, *depth), extents, out, [x, y], !is_zero),
            }
            self.close(target, extents);
            if let Some(to) = later {
                self.store(&plain(target.register), &to, extents);
            }
        }
    }

    /// Whether rows at an address follow each other forwards, apart from each other.
    fn goes_forwards(&self, address: &Address, extents: &Extents) -> bool {
        let (rows, columns) = extents.shape();
        rows == 1 || self.stride(address.spread.row_stride) >= columns as isize
    }

    /// Adds a product to a sum, now or later.
    #[inline(never)]
    unsafe fn add_piece(&mut self, pieces: &Pieces, factors: [&Operand; 2], out: Out) {
        let elements = self.products[pieces.product].size().of;
        let [x, y] = factors.map(|operand| {
            let source = self.source(operand, elements.size());
            let is_memory = matches!(*operand, Operand::Register { register, .. }
                if !std::ptr::eq(source.address, self.home(register)));
            let factor = Factor { address: source.address, by_row: source.pitch, by_column: source.by_column };
            product::piece(&factor, elements, pieces.stay && is_memory)
        });
        // SAFETY: factors are defined everywhere; the sum's elements are in its register, or where it is stored.
        unsafe { self.products[pieces.product].add(x, y, out) };
    }

    fn sum(&self, product: usize, sum: Register) -> Out {
        Out { first: self.home(sum).cast(), stride: self.products[product].size().columns, accumulate: true }
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
        let is_there = *inside == plain(target.register) && target.store.is_none();
        if is_there && rows <= inside_rows && columns <= inside_columns {
            return;
        }
        let (inside, outside) = (self.source(inside, target.size), self.source(outside, target.size));
        let (address, pitch) = self.open(target, extents);
        let size = target.size as isize;
        for row in 0..rows {
            let count = if row < inside_rows { inside_columns.min(columns) } else { 0 };
            // SAFETY: both sources are defined where they are read: inside the clip, and everywhere.
            unsafe {
                let destination = address.offset(pitch * row as isize);
                if !std::ptr::eq(destination, inside.row(row)) {
                    memory::copy_strided(destination, size, inside.row(row), inside.by_column, target.size, count);
                }
                let skip = count * target.size;
                let rest = outside.element(row, count);
                memory::copy_strided(
                    destination.add(skip),
                    size,
                    rest,
                    outside.by_column,
                    target.size,
                    columns - count,
                );
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.close(target, extents) };
    }

    unsafe fn reduce(&mut self, step: &Step) {
        // SAFETY: as in `step`.
        unsafe {
            match step {
                Step::ReduceAll { function, destination, source, size, width, extents, .. } => {
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, *size);
                    let cell = self.cell(*destination);
                    self.reduce_row(*function, cell, &source, 0, *size, rows.min(1) * columns);
                    self.extend(*destination, *width);
                }
                Step::ReduceRows { function, target, source, extents, result } => {
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, target.size);
                    let (address, _) = self.open(target, result);
                    for row in 0..extents.rows.full {
                        let destination = address.add(row * target.size);
                        // A row behind the last one has no elements: the identity is left.
                        let (row, columns) = if row < rows { (row, columns) } else { (0, 0) };
                        self.reduce_row(*function, destination, &source, row, target.size, columns);
                    }
                }
                Step::ReduceColumns { combine, identity, target, source, extents } => {
                    let (rows, columns) = self.extents(extents);
                    let source = self.source(source, target.size);
                    let all = extents.columns.full;
                    let (address, _) = self.open(target, &Extents::full(1, all));
                    memory::fill(address, identity.as_ptr(), target.size, all);
                    for row in 0..rows {
                        combine(address, address, false, source.row(row), source.repeats(), columns);
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
            if !source.repeats() {
                return function(destination, source.row(row), columns);
            }
            let mut repeated = vec![0u64; (columns * size).div_ceil(8)];
            memory::fill(repeated.as_mut_ptr().cast(), source.row(row), size, columns);
            function(destination, repeated.as_ptr().cast(), columns);
        }
    }
}

/// Multiplies the factors of each batch, which lie one below the other, and adds their products to a tile, or stores them there.
///
/// # Safety
/// As for [`product::add_terms`], of all batches.
unsafe fn multiply_batches(
    (kind, batch): (ProductKind, usize),
    (rows, columns, depth): (usize, usize, usize),
    extents: &Extents,
    (address, pitch): (*mut u8, isize),
    [x, y]: [Source; 2],
    accumulate: bool,
) {
    let height = extents.rows.full / batch;
    for at in 0..batch {
        // Of the last products there may be fewer rows, or none, where only a part is read.
        let shape = (rows.saturating_sub(at * height).min(height), columns, depth);
        // SAFETY: the caller's promise.
        unsafe {
            let to = (address.offset(pitch * (at * height) as isize), pitch);
            let factors = [(x, at * height), (y, at * depth)].map(|(source, row)| Factor {
                address: source.row(row),
                by_row: source.pitch,
                by_column: source.by_column,
            });
            match kind {
                ProductKind::Single(terms) => product::add_terms(terms, shape, to, factors, accumulate),
                ProductKind::Double => product::add_doubles(shape, to, factors),
                ProductKind::Integer => product::add_integers(shape, to, factors),
            }
        }
    }
}
