//! Matrix products of tiles.

use super::execute::Source;

/// Adds the product of `x` and `y` to the tile at an address; on this thread, since the grid has the others.
///
/// # Safety
/// `x` has rows x depth, `y` depth x columns elements of type `T`; the tile has rows x columns writable ones and overlaps neither.
pub(super) unsafe fn add<T: Number>(
    (rows, columns, depth): (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    x: &Source,
    y: &Source,
) {
    let size = size_of::<T>() as isize;
    let strides = |source: &Source| (isize::from(!source.repeats), source.pitch / size);
    let ((x_column, x_row), (y_column, y_row)) = (strides(x), strides(y));
    let (out, left, right) = (address.cast::<T>(), x.address.cast::<T>(), y.address.cast::<T>());
    // SAFETY: the caller's promise; strides are those of the sources.
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
pub(super) trait Number: Copy + Send + Sync + 'static {
    /// The factor that changes nothing.
    const ONE: Self;
}

impl Number for f32 {
    const ONE: f32 = 1.0;
}

impl Number for f64 {
    const ONE: f64 = 1.0;
}
