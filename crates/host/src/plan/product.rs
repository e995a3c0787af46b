//! Matrix products of tiles.

/// A factor of a product.
pub(crate) struct Factor {
    /// The first element.
    pub address: *const u8,
    /// Bytes from one row to the next.
    pub pitch: isize,
    /// Whether each row is one element, repeated.
    pub repeats: bool,
}

impl Factor {
    /// Rows one after the other.
    pub fn dense(address: *const u8, row_bytes: usize) -> Factor {
        Factor { address, pitch: row_bytes as isize, repeats: false }
    }
}

/// Adds the product of two factors to the tile at an address; on this thread, since the grid has the others.
///
/// # Safety
/// The factors have rows x depth and depth x columns elements of type `T`; the tile has rows x columns writable ones and overlaps neither.
pub(crate) unsafe fn add<T: Number>(
    (rows, columns, depth): (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    [x, y]: [Factor; 2],
) {
    let size = size_of::<T>() as isize;
    let strides = |factor: &Factor| (isize::from(!factor.repeats), factor.pitch / size);
    let ((x_column, x_row), (y_column, y_row)) = (strides(&x), strides(&y));
    let (out, left, right) = (address.cast::<T>(), x.address.cast::<T>(), y.address.cast::<T>());
    // SAFETY: the caller's promise; strides are those of the factors.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            depth,
            out,
            1,
            pitch / size,
            true,
            left,
            x_column,
            x_row,
            right,
            y_column,
            y_row,
            T::ONE,
            T::ONE,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// The element types of products.
pub(crate) trait Number: Copy + Send + Sync + 'static {
    /// The factor that changes nothing.
    const ONE: Self;
}

impl Number for f32 {
    const ONE: f32 = 1.0;
}

impl Number for f64 {
    const ONE: f64 = 1.0;
}
