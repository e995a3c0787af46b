//! Operands of many short rows, as one run.

use super::{Machine, Source};
use crate::native::memory::by_size;

/// Bytes of rows that are written out, if there are so many of them.
const SHORT_ROW: usize = 64;
const MANY_ROWS: usize = 8;

/// Writes the elements of a source one after the other.
///
/// # Safety
/// It has so many rows and columns of elements of this size, and there is room for them.
unsafe fn write_out(to: *mut u8, source: Source, (rows, columns): (usize, usize), size: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        by_size!(size, T => for row in 0..rows {
            let (to, from) = (to.cast::<T>().add(row * columns), source.row(row));
            if source.repeats() {
                let element = from.cast::<T>().read_unaligned();
                (0..columns).for_each(|column| to.add(column).write_unaligned(element));
            } else {
                (0..columns).for_each(|i| to.add(i).write_unaligned(from.cast::<T>().add(i).read_unaligned()));
            }
        });
    }
}

impl Machine<'_> {
    /// Operands of many short rows, those that repeat something written out: one long run takes less time than a call for each row.
    #[inline(always)]
    pub(super) fn flattened<const N: usize>(
        &mut self,
        sources: [(Source, usize); N],
        (rows, columns): (usize, usize),
    ) -> [Source; N] {
        let is_short =
            |&(source, size): &(Source, usize)| columns * size < SHORT_ROW && !source.is_flat(columns * size);
        if rows < MANY_ROWS || !sources.iter().any(is_short) {
            return sources.map(|(source, _)| source);
        }
        self.written_out(sources, (rows, columns))
    }

    #[inline(never)]
    fn written_out<const N: usize>(
        &mut self,
        sources: [(Source, usize); N],
        (rows, columns): (usize, usize),
    ) -> [Source; N] {
        let mut memory = self.lists.written_out.iter_mut();
        sources.map(|(source, size)| {
            let row_bytes = columns * size;
            match memory.next() {
                Some(memory) if !source.is_flat(row_bytes) => {
                    memory.resize(memory.len().max((rows * row_bytes).div_ceil(8)), 0);
                    let to = memory.as_mut_ptr().cast::<u8>();
                    // SAFETY: the operand has so many rows and columns, and there is room for them.
                    unsafe { write_out(to, source, (rows, columns), size) };
                    Source { address: to, pitch: row_bytes as isize, by_column: size as isize }
                }
                _ => source,
            }
        })
    }
}
