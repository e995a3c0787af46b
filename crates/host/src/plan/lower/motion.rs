//! Lowers operations that move the elements of whole tiles, and those on memory and messages that have no form but their elements.

use super::{Lowered, Lowering, refuse};
use crate::error::Error;
use crate::native::memory::{by_size, move_bytes};
use crate::plan::call::{Places, Written, copy_element};
use crate::plan::fold::Axis;
use crate::plan::operand::{Extents, Operand, plain};
use crate::plan::value::Planned;
use openmps_tile::{Scalar, Value};
use std::sync::Arc;

impl Lowering<'_> {
    /// The bytes of an operand as they are, for a value of other dimensions, or in a slot.
    pub(super) fn copied(&mut self, name: &'static str, operand: Operand, result: Value) -> Planned {
        let bytes = self.extents_of(result).len() * self.element_size(result);
        let work = Arc::new(move |places: &Places| {
            // SAFETY: operand and result have as many bytes.
            unsafe { move_bytes(places.reads[0], places.writes[0], bytes) };
            Ok(())
        });
        self.emit_call(name, vec![operand], result, 0.05, work)
    }

    pub(super) fn unsplat(&mut self, x: Value, result: Value) -> Lowered<Planned> {
        let operand = self.dense(x)?;
        Ok(match operand {
            Operand::Uniform(_) => self.as_planned(result, operand),
            operand => self.copied("tt.unsplat", operand, result),
        })
    }

    /// The rows of a tile in another order; a register with as many rows as are listed.
    pub(super) fn copied_rows(&mut self, operand: Operand, rows: Vec<usize>, row_bytes: usize) -> Operand {
        let extents = Extents::full(rows.len(), row_bytes);
        let target = self.target(&extents, 1);
        let work = Arc::new(move |places: &Places| {
            for (to, &from) in rows.iter().enumerate() {
                // SAFETY: rows of the operand go to rows of the result.
                unsafe {
                    let (to, from) = (places.writes[0].add(to * row_bytes), places.reads[0].add(from * row_bytes));
                    match row_bytes {
                        // As an element, which takes less time than a call for so few bytes.
                        1 | 2 | 4 | 8 => copy_element(to, from, row_bytes),
                        _ => move_bytes(from, to, row_bytes),
                    }
                }
            }
            Ok(())
        });
        self.emit_work("tt.broadcast", vec![operand], vec![Written::Tile(target, extents)], &extents, 0.05, work);
        plain(target.register)
    }

    /// Rows and columns exchanged, by a copy; the extents are the result's.
    pub(super) fn turned(&mut self, operand: Operand, extents: Extents, size: usize) -> Operand {
        let (rows, columns) = extents.shape();
        let target = self.target(&extents, size);
        let work = Arc::new(move |places: &Places| {
            // In squares, whose lines stay in the first-level cache.
            const SIDE: usize = 16;
            for (row, column) in corners(rows, columns, SIDE) {
                for r in row..(row + SIDE).min(rows) {
                    for c in column..(column + SIDE).min(columns) {
                        // SAFETY: both tiles have rows x columns elements.
                        unsafe {
                            let to = places.writes[0].add((r * columns + c) * size);
                            copy_element(to, places.reads[0].add((c * rows + r) * size), size);
                        }
                    }
                }
            }
            Ok(())
        });
        self.emit_work("tt.trans", vec![operand], vec![Written::Tile(target, extents)], &extents, 0.5, work);
        plain(target.register)
    }

    /// Dimensions in another order, by a copy.
    pub(super) fn permuted(&mut self, operand: Operand, x: Value, order: &[usize], result: Value) -> Planned {
        let size = self.element_size(x);
        let (from, to) = (self.kernel.dims_of(x), self.kernel.dims_of(result));
        let step = |axis: usize| from[axis + 1..].iter().product::<usize>() * size;
        let steps: Vec<usize> = order.iter().map(|&axis| step(axis)).collect();
        let offsets: Vec<u32> = (0..to.iter().product::<usize>())
            .map(|index| {
                let (mut rest, mut offset) = (index, 0);
                for (&dim, &step) in to.iter().zip(&steps).rev() {
                    offset += rest % dim * step;
                    rest /= dim;
                }
                offset as u32
            })
            .collect();
        let work = Arc::new(move |places: &Places| {
            for (i, &offset) in offsets.iter().enumerate() {
                // SAFETY: offsets lie within the operand, `i` within the result.
                unsafe { copy_element(places.writes[0].add(i * size), places.reads[0].add(offset as usize), size) };
            }
            Ok(())
        });
        self.emit_call("tt.trans", vec![operand], result, 1.0, work)
    }

    pub(super) fn join(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        let (count, size) = (self.extents_of(operands[0]).len(), self.element_size(result));
        let reads = vec![self.tile_of(operands[0])?, self.tile_of(operands[1])?];
        let work = Arc::new(move |places: &Places| {
            for (side, &from) in places.reads.iter().enumerate() {
                // SAFETY: each operand has `count` elements, the result twice as many.
                unsafe { spaced(places.writes[0].add(side * size), 2 * size, from, size, (size, count)) };
            }
            Ok(())
        });
        Ok(self.emit_call("tt.join", reads, result, 1.0, work))
    }

    pub(super) fn concatenate(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        let bytes = self.extents_of(operands[0]).len() * self.element_size(result);
        let reads = vec![self.tile_of(operands[0])?, self.tile_of(operands[1])?];
        let work = Arc::new(move |places: &Places| {
            for (side, &from) in places.reads.iter().enumerate() {
                // SAFETY: each operand has so many bytes, the result twice as many.
                unsafe { move_bytes(from, places.writes[0].add(side * bytes), bytes) };
            }
            Ok(())
        });
        Ok(self.emit_call("tt.cat", reads, result, 0.1, work))
    }

    pub(super) fn split(&mut self, x: Value, results: &[Value]) -> Lowered<()> {
        let (count, size) = (self.extents_of(results[0]).len(), self.element_size(x));
        let homes: Vec<_> = results.iter().map(|&result| self.home(result)).collect();
        let (reads, writes) = (vec![self.tile_of(x)?], homes.iter().map(|home| home.0).collect());
        let work = Arc::new(move |places: &Places| {
            for (side, &to) in places.writes.iter().enumerate() {
                // SAFETY: each result has `count` elements, the operand twice as many.
                unsafe { spaced(to, size, places.reads[0].add(side * size), 2 * size, (size, count)) };
            }
            Ok(())
        });
        let extents = self.extents_of(x);
        self.emit_work("tt.split", reads, writes, &extents, 1.0, work);
        for (&result, (_, operand)) in results.iter().zip(homes) {
            let planned = self.as_planned(result, operand);
            self.planned.insert(result, planned);
        }
        Ok(())
    }

    pub(super) fn gather(&mut self, operands: &[Value], axis: usize, result: Value) -> Lowered<Planned> {
        let along = self.kernel.dims_of(operands[1])[axis];
        let axis = Axis::new(self.kernel.dims_of(operands[0]), axis);
        let (size, is_wide) = (self.element_size(operands[0]), self.scalar_of(operands[1]) == Scalar::I64);
        let kernel = self.kernel.name.clone();
        let reads = vec![self.tile_of(operands[0])?, self.tile_of(operands[1])?];
        let work = Arc::new(move |places: &Places| {
            // SAFETY: the tiles have the elements that the dimensions say.
            let done = unsafe {
                by_size!(size, T => match is_wide {
                    true => taken::<T, i64>(places, axis, along),
                    false => taken::<T, i32>(places, axis, along),
                })
            };
            let message = |index| format!("{kernel}: tt.gather: index {index} is outside 0 to {}", axis.length);
            done.map_err(|index| Error::Invalid(message(index)))
        });
        Ok(self.emit_call("tt.gather", reads, result, 1.0, work))
    }

    pub(super) fn histogram(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        let (count, bins) = (self.extents_of(operands[0]).len(), self.extents_of(result).len());
        let mut reads = vec![self.tile_of(operands[0])?];
        let mask = match operands.get(1) {
            Some(&mask) => {
                reads.push(self.tile_of(mask)?);
                Some(1)
            }
            None => None,
        };
        let work = Arc::new(move |places: &Places| {
            // SAFETY: operands have `count` elements, the result has `bins` of i32.
            unsafe {
                let counts = places.writes[0].cast::<i32>();
                std::ptr::write_bytes(counts, 0, bins);
                for i in (0..count).filter(|&i| places.holds(mask, i)) {
                    let value = places.reads[0].cast::<i32>().add(i).read_unaligned();
                    if let Some(bin) = usize::try_from(value).ok().filter(|&bin| bin < bins) {
                        *counts.add(bin) += 1;
                    }
                }
            }
            Ok(())
        });
        Ok(self.emit_call("tt.histogram", reads, result, 1.0, work))
    }

    /// A value's elements one row after the other, those of a number that all share too.
    pub(super) fn tile_of(&mut self, value: Value) -> Lowered<Operand> {
        if self.lanes.is_some() {
            return refuse("whole tiles in the block of a reduction or scan");
        }
        self.dense(value)
    }
}

/// Copies elements to the result from where the indices say, of which there are `along` on each line; an index that is none where there is one.
///
/// # Safety
/// The first operand has the elements of the axis' lines, the second one and the result `along` for each line.
unsafe fn taken<T: Copy, I: Copy + Into<i64>>(places: &Places, axis: Axis, along: usize) -> Result<(), i64> {
    let Axis { outer, length, inner } = axis;
    let (indices, to) = (places.reads[1].cast::<I>(), places.writes[0].cast::<T>());
    for line in 0..outer {
        // SAFETY: the caller's promise; the index has been looked at.
        unsafe {
            let from = places.reads[0].cast::<T>().add(line * length * inner);
            let first = line * along * inner;
            for (at, column) in (0..along * inner).zip((0..inner).cycle()) {
                let index: i64 = indices.add(first + at).read_unaligned().into();
                if index as u64 >= length as u64 {
                    return Err(index);
                }
                let element = from.add(index as usize * inner + column).read_unaligned();
                to.add(first + at).write_unaligned(element);
            }
        }
    }
    Ok(())
}

/// The first row and column of each square of a tile.
fn corners(rows: usize, columns: usize, side: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).step_by(side).flat_map(move |row| (0..columns).step_by(side).map(move |column| (row, column)))
}

/// Copies `count` elements of `size` bytes between places that lie so many bytes apart.
///
/// # Safety
/// All of them lie in valid memory that does not overlap.
unsafe fn spaced(to: *mut u8, to_step: usize, from: *const u8, from_step: usize, (size, count): (usize, usize)) {
    for i in 0..count {
        // SAFETY: the caller's promise.
        unsafe { copy_element(to.add(i * to_step), from.add(i * from_step), size) };
    }
}
