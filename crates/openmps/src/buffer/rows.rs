//! Copies between a buffer and slices, row by row under one lock: no command comes between two rows.

use super::{Access, Buffer};
use crate::data_type::{Element, bytes_of, bytes_of_mut};
use crate::error::Result;
use openmps_host::native::memory::move_bytes;

impl Buffer {
    /// Copies values into rows of equal length that begin at these bytes.
    pub(crate) fn write_rows<T: Element>(&self, offsets: &[usize], values: &[T]) -> Result<()> {
        let values = bytes_of(values);
        let row = self.check_rows(offsets, values.len(), size_of::<T>())?;
        let _guard = self.lock("write", "the buffer", Access::Write)?;
        for (values, offset) in values.chunks_exact(row.max(1)).zip(offsets) {
            let to = (self.shared.address + offset) as *mut u8;
            // SAFETY: the row lies in the buffer, whose memory the guard keeps for this call alone.
            unsafe { move_bytes(values.as_ptr(), to, row) };
        }
        Ok(())
    }

    /// Copies such rows into a slice.
    pub(crate) fn read_rows<T: Element>(&self, offsets: &[usize], values: &mut [T]) -> Result<()> {
        let values = bytes_of_mut(values);
        let row = self.check_rows(offsets, values.len(), size_of::<T>())?;
        let _guard = self.lock("read", "the buffer", Access::Read)?;
        for (values, offset) in values.chunks_exact_mut(row.max(1)).zip(offsets) {
            let from = (self.shared.address + offset) as *const u8;
            // SAFETY: the row lies in the buffer, which nobody writes while the guard is held.
            unsafe { move_bytes(from, values.as_mut_ptr(), row) };
        }
        Ok(())
    }

    /// The bytes of a row, where all rows lie in the buffer and elements of this size may begin there.
    fn check_rows(&self, offsets: &[usize], bytes: usize, size: usize) -> Result<usize> {
        let row = bytes.checked_div(offsets.len()).unwrap_or(0);
        for &offset in offsets {
            self.check_range(offset, row)?;
            self.check_alignment(offset, size)?;
        }
        Ok(row)
    }
}
