//! Matrix products of tiles.

/// A factor of a product.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    /// The first element.
    pub address: *const u8,
    /// Bytes from one row to the next.
    pub by_row: isize,
    /// Bytes from one column to the next.
    pub by_column: isize,
}

/// Adds the product of two factors to the tile at an address; on this thread, since the grid has the others.
///
/// # Safety
/// The factors have rows x depth and depth x columns elements of type `T`; the tile has rows x columns writable ones and overlaps neither.
pub(super) unsafe fn add<T: Number>(
    (rows, columns, depth): (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    [x, y]: [Factor; 2],
) {
    let size = size_of::<T>() as isize;
    let strides = |factor: &Factor| (factor.by_column / size, factor.by_row / size);
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

/// As [`add`], of i8 into i32, wrapping.
///
/// # Safety
/// As for [`add`].
pub(super) unsafe fn add_integers(
    (rows, columns, depth): (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    [x, y]: [Factor; 2],
) {
    for row in 0..rows {
        // SAFETY: the caller's promise, here and below.
        let to = unsafe { address.offset(pitch * row as isize).cast::<i32>() };
        for k in 0..depth {
            let at = |factor: &Factor, row: usize, column: usize| unsafe {
                i32::from(
                    *factor
                        .address
                        .offset(factor.by_row * row as isize + factor.by_column * column as isize)
                        .cast::<i8>(),
                )
            };
            let factor = at(&x, row, k);
            for column in 0..columns {
                // SAFETY: as above.
                unsafe {
                    let place = to.add(column);
                    place.write(place.read().wrapping_add(factor.wrapping_mul(at(&y, k, column))));
                }
            }
        }
    }
}
