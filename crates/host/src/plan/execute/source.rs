//! Where a step reads.

/// What a step reads, resolved: the address of the first element, bytes between rows and between columns.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Source {
    pub address: *const u8,
    pub pitch: isize,
    /// 0 where each row is one element repeated, else the size of an element, but for a factor of a product.
    pub by_column: isize,
}

impl Source {
    /// The row's address.
    #[inline(always)]
    pub unsafe fn row(&self, row: usize) -> *const u8 {
        // SAFETY: the row lies within the tile.
        unsafe { self.address.offset(self.pitch * row as isize) }
    }

    /// The address of one element.
    #[inline(always)]
    pub unsafe fn element(&self, row: usize, column: usize) -> *const u8 {
        // SAFETY: the element lies within the tile.
        unsafe { self.row(row).offset(self.by_column * column as isize) }
    }

    /// Whether each row is one element repeated.
    #[inline(always)]
    pub fn repeats(&self) -> bool {
        self.by_column == 0
    }

    /// Whether rows follow each other without a gap, so that all can be one run.
    #[inline(always)]
    pub fn is_flat(&self, row_bytes: usize) -> bool {
        if self.repeats() { self.pitch == 0 } else { self.pitch == row_bytes as isize }
    }
}
