//! What becomes of the sums of a product.

/// Where sums go.
#[derive(Clone, Copy)]
pub(crate) enum Goal<'a> {
    /// The first one's place, and from one row to the next; columns are neighbours. They take the place of what is there, or are added to it.
    Memory { first: *mut f32, stride: usize, accumulate: bool },
    /// To this function, part by part, each as soon as it is complete and while it is in a near cache.
    Parts(&'a (dyn Fn(Part) + Sync)),
}

/// Sums of some rows and columns, each from the first to behind the last.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub first: *const f32,
    /// From one row to the next.
    pub stride: usize,
    pub rows: (usize, usize),
    pub columns: (usize, usize),
}
