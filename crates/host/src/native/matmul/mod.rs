//! Matrix products of any strides, batched: `out = alpha * left * right + beta * out`.
//!
//! float32 has kernels of its own for large products and for those of few rows; the others and float64 go through the crate `gemm`. Half
//! precision is added up in float32 and rounded once at the end; integers wrap.

mod bfloat;
mod half;
mod integer;
mod packed;
mod single;
mod skinny;
mod then;

pub use packed::{PackedMatrix, Side, linear_packed};
pub(in crate::native) use skinny::read_once;

use super::epilogue::Epilogue;
use super::product::{WORTH_SPLITTING, are_dealt_out_whole};
use crate::Error;
use crate::threads::parallel_for;
use ::half::{bf16, f16};
use openmps_tile::DType;

/// The sizes and strides of one product. Strides are in elements: from row to row, and from column to column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixProduct {
    /// Rows of `left` and `out`.
    pub rows: usize,
    /// Columns of `left` and rows of `right`.
    pub depth: usize,
    /// Columns of `right` and `out`.
    pub columns: usize,
    /// Strides of the left matrix.
    pub left: [isize; 2],
    /// Strides of the right matrix.
    pub right: [isize; 2],
    /// Strides of the result.
    pub out: [isize; 2],
    /// The factor of the product.
    pub alpha: f64,
    /// The factor of what `out` holds; 0 ignores it, even NaN.
    pub beta: f64,
}

impl MatrixProduct {
    /// The product of dense row-major matrices.
    pub fn dense(rows: usize, depth: usize, columns: usize) -> MatrixProduct {
        let stride = |columns: usize| [columns as isize, 1];
        let (left, right, out) = (stride(depth), stride(columns), stride(columns));
        MatrixProduct { rows, depth, columns, left, right, out, alpha: 1.0, beta: 0.0 }
    }

    /// The product of the transposed matrices in the other order, whose result is the transpose of this one's.
    fn transposed(&self) -> MatrixProduct {
        let swap = |[by_row, by_column]: [isize; 2]| [by_column, by_row];
        let (left, right, out) = (swap(self.right), swap(self.left), swap(self.out));
        MatrixProduct { rows: self.columns, columns: self.rows, left, right, out, ..*self }
    }

    /// All batches as one product of more rows, where they share the right matrix and follow each other evenly.
    fn folded(&self, batches: &[[isize; 3]]) -> Option<MatrixProduct> {
        let rows = self.rows as isize;
        let follows = batches.iter().enumerate().all(|(i, at)| {
            let skipped = i as isize * rows;
            at[0] == batches[0][0] + skipped * self.left[0]
                && at[1] == batches[0][1]
                && at[2] == batches[0][2] + skipped * self.out[0]
        });
        (batches.len() > 1 && follows).then(|| MatrixProduct { rows: self.rows * batches.len(), ..*self })
    }
}

/// The addresses of the three matrices' element (0, 0) in batch 0; a batch's offsets (left, right, out, in elements) are added.
#[derive(Clone, Copy, Debug)]
pub struct Matrices {
    /// The left matrix.
    pub left: usize,
    /// The right matrix.
    pub right: usize,
    /// The result.
    pub out: usize,
}

/// Computes `product` for every batch on elements of `dtype`.
///
/// # Safety
/// For every batch, all elements that the sizes and strides name are readable (of `left`, `right`) or writable (of `out`), and
/// results of different elements and batches do not overlap each other or the operands.
pub unsafe fn matmul(product: &MatrixProduct, dtype: DType, at: Matrices, batches: &[[isize; 3]]) -> Result<(), Error> {
    if product.rows == 0 || product.columns == 0 || batches.is_empty() {
        return Ok(());
    }
    let folded = product.folded(batches);
    let (product, batches) = folded.as_ref().map_or((product, batches), |folded| (folded, &batches[..1]));
    // SAFETY: each branch reads and writes the elements that the caller vouches for, as the type that `dtype` names.
    unsafe {
        match dtype {
            DType::F32 => float::<f32>(product, at, batches, None),
            DType::F64 => float::<f64>(product, at, batches, None),
            DType::F16 => half::run::<f16>(product, at, batches),
            DType::BF16 => half::run::<bf16>(product, at, batches),
            DType::U8 => integer::run::<u8>(product, at, batches),
            DType::I8 => integer::run::<i8>(product, at, batches),
            DType::I16 => integer::run::<i16>(product, at, batches),
            DType::I32 => integer::run::<i32>(product, at, batches),
            DType::I64 => integer::run::<i64>(product, at, batches),
            DType::Bool | DType::U16 | DType::U32 | DType::U64 => {
                let by = "the matrix product";
                return Err(Error::Unsupported { kernel: "matmul".into(), what: dtype.name().into(), by });
            }
        }
    }
    Ok(())
}

/// Computes the product of a float32 left matrix, or one of half precision that [`multiplies`] takes, with a right one of float32, float16 or bfloat16, for
/// every batch, and what follows it while it is in the cache. The result is float32. The epilogue's channels are the columns, its residual has the
/// layout of `out`: dense, batch after batch.
///
/// # Safety
/// As [`matmul`], for matrices of these types; the batches' results fill `out` one after the other, row by row, and the epilogue's slices cover them.
pub unsafe fn linear(
    product: &MatrixProduct,
    types: [DType; 2],
    at: Matrices,
    batches: &[[isize; 3]],
    epilogue: &Epilogue,
) {
    if product.rows == 0 || product.columns == 0 || batches.is_empty() {
        return;
    }
    let folded = product.folded(batches);
    let (product, batches) = folded.as_ref().map_or((product, batches), |folded| (folded, &batches[..1]));
    let epilogue = (!epilogue.is_identity()).then_some(epilogue);
    // SAFETY: the caller's promise.
    unsafe {
        match types {
            [DType::BF16, DType::BF16] if bfloat::takes(product) => {
                batches.iter().for_each(|&batch| bfloat::run(product, at, batch, None, epilogue));
            }
            [DType::F16 | DType::BF16, _] => {
                batches.iter().for_each(|&batch| single::run_typed(product, types, at, batch, None, epilogue));
            }
            [_, right @ (DType::F16 | DType::BF16)] => half::mixed(product, right, at, batches, epilogue),
            _ => float::<f32>(product, at, batches, epilogue),
        }
    }
}

/// Whether [`linear`] takes a left matrix of half precision without a copy in float32: because the CPU multiplies the type, or packing widens it.
pub fn multiplies(product: &MatrixProduct, types: [DType; 2], batches: &[[isize; 3]]) -> bool {
    let folded = product.folded(batches);
    let product = folded.as_ref().unwrap_or(product);
    match types {
        [DType::BF16, DType::BF16] if bfloat::takes(product) => product.alpha == 1.0 && product.beta == 0.0,
        [DType::F16 | DType::BF16, right @ (DType::F32 | DType::F16 | DType::BF16)] => half::is_packed(product, right),
        _ => false,
    }
}

/// Whether [`linear`] packs the right matrix of a product of float32, of one batch: then a caller who has it for long packs it once.
pub fn packs(product: &MatrixProduct) -> bool {
    product.rows * product.columns * product.depth > WORTH_SPLITTING
        && !skinny::beats_packed(product)
        && single::takes(product)
}

/// Multiplications of a product that takes less time than what surrounds a larger one: 0.3 us.
const TINY: usize = 216;

/// Rows or columns that a thread's part of a product is a multiple of.
const BLOCK: usize = 48;

/// # Safety
/// As [`matmul`], for elements of type `T`; with an epilogue as [`linear`], whose elements are float32.
unsafe fn float<T: Float>(product: &MatrixProduct, at: Matrices, batches: &[[isize; 3]], epilogue: Option<&Epilogue>) {
    if T::IS_SINGLE && batches.len() == 1 && skinny::takes(product, DType::F32) {
        // SAFETY: the caller's promise; `T` is float32.
        return unsafe { skinny::run(product, DType::F32, at, batches[0], epilogue) };
    }
    let size = product.rows * product.columns * product.depth;
    let whole = are_dealt_out_whole(batches.len(), size);
    if !whole && T::IS_SINGLE && single::takes(product) {
        // SAFETY: the caller's promise, batch by batch; `T` is float32.
        return batches.iter().for_each(|&batch| unsafe { single::run(product, at, batch, epilogue) });
    }
    if whole {
        let is_tiny = size <= TINY;
        parallel_for(batches.len(), size / 30 + if is_tiny { 20 } else { 200 }, |from, to| {
            // SAFETY: the caller's promise, batch by batch.
            batches[from..to].iter().for_each(|&batch| unsafe {
                if is_tiny { tiny::<T>(product, at, batch) } else { one::<T>(product, at, batch) }
            });
        });
    } else {
        // SAFETY: the caller's promise, batch by batch.
        batches.iter().for_each(|&batch| unsafe { in_parts::<T>(product, at, batch) });
    }
    if let Some(epilogue) = epilogue {
        let (first, rows) = (batches[0][2] as usize, product.rows * batches.len());
        // SAFETY: the caller's promise: the batches' rows follow each other from the first batch's on.
        unsafe { then::all(epilogue, at.out, first, (rows, product.columns)) };
    }
}

/// Cut along the longer side of the result, into a part for each thread: each packs the other factor for itself.
///
/// # Safety
/// As [`one`].
unsafe fn in_parts<T: Float>(product: &MatrixProduct, at: Matrices, [left, right, out]: [isize; 3]) {
    let by_rows = product.rows >= product.columns;
    let length = if by_rows { product.rows } else { product.columns };
    let part = length.div_ceil(crate::threads::count()).next_multiple_of(BLOCK);
    let parts = length.div_ceil(part);
    parallel_for(parts, product.rows * product.columns * product.depth / (30 * parts), |from, to| {
        let (begin, end) = (from * part, (to * part).min(length));
        let skip = begin as isize;
        let (part, batch) = if by_rows {
            let part = MatrixProduct { rows: end - begin, ..*product };
            (part, [left + skip * product.left[0], right, out + skip * product.out[0]])
        } else {
            let part = MatrixProduct { columns: end - begin, ..*product };
            (part, [left, right + skip * product.right[1], out + skip * product.out[1]])
        };
        // SAFETY: the caller's promise; parts of the result do not overlap.
        unsafe { one::<T>(&part, at, batch) }
    });
}

/// Sum by sum, as those of rotations of points are computed sooner than a library has looked at them.
///
/// # Safety
/// As [`one`].
unsafe fn tiny<T: Float>(product: &MatrixProduct, at: Matrices, [left, right, out]: [isize; 3]) {
    let (alpha, beta) = (T::of(product.alpha), T::of(product.beta));
    for row in 0..product.rows as isize {
        for column in 0..product.columns as isize {
            // SAFETY: elements of the three matrices.
            unsafe {
                let left = (at.left as *const T).offset(left + row * product.left[0]);
                let right = (at.right as *const T).offset(right + column * product.right[1]);
                let out = (at.out as *mut T).offset(out + row * product.out[0] + column * product.out[1]);
                let mut sum = T::of(0.0);
                for k in 0..product.depth as isize {
                    sum = sum + *left.offset(k * product.left[1]) * *right.offset(k * product.right[0]);
                }
                *out = if product.beta == 0.0 { alpha * sum } else { alpha * sum + beta * *out };
            }
        }
    }
}

/// # Safety
/// As [`matmul`], for one batch of elements of type `T`.
unsafe fn one<T: Float>(product: &MatrixProduct, at: Matrices, [left, right, out]: [isize; 3]) {
    // SAFETY: the caller's promise.
    unsafe {
        gemm::gemm(
            product.rows,
            product.columns,
            product.depth,
            (at.out as *mut T).offset(out),
            product.out[1],
            product.out[0],
            product.beta != 0.0,
            (at.left as *const T).offset(left),
            product.left[1],
            product.left[0],
            (at.right as *const T).offset(right),
            product.right[1],
            product.right[0],
            T::of(product.beta),
            T::of(product.alpha),
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// The types that `gemm` multiplies.
trait Float: Copy + Send + Sync + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> + 'static {
    /// Whether this is the type of our own micro-kernel.
    const IS_SINGLE: bool;
    fn of(value: f64) -> Self;
}

impl Float for f32 {
    const IS_SINGLE: bool = true;
    fn of(value: f64) -> f32 {
        value as f32
    }
}

impl Float for f64 {
    const IS_SINGLE: bool = false;
    fn of(value: f64) -> f64 {
        value
    }
}

#[cfg(test)]
mod tests;
