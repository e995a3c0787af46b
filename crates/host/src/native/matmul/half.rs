//! Products of half precision: computed in float32 and rounded once. A right matrix of a product of few rows is read as it is, one of a large product
//! is widened as it is packed, and bfloat16 is multiplied as it is where the CPU can. What else is copied is widened in the order in which it lies.

use super::skinny;
use super::{Matrices, MatrixProduct, bfloat, float, packs, single};
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, at_level};
use crate::native::product::{Goal, Part, are_dealt_out_whole};
use crate::native::stored::{Stored, rounded_to_halves, widen_lines};
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;
use crate::vector::math;
use half::{bf16, f16};
use openmps_tile::DType;

/// A type of half precision.
pub(super) trait Half: Stored + Send + Sync {
    const DTYPE: DType;
    fn rounded(value: f32) -> Self;

    /// Rounds a line of numbers times a factor.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    unsafe fn round_line<V: Lanes>(factor: f32, from: &[f32], to: &mut [Self]) {
        // A loop over neighbours becomes vectors.
        for (to, from) in to.iter_mut().zip(from) {
            *to = Self::rounded(factor * from);
        }
    }
}

impl Half for f16 {
    const DTYPE: DType = DType::F16;
    #[inline(always)]
    fn rounded(value: f32) -> f16 {
        f16::from_bits(math::single_to_half(value))
    }
    #[inline(always)]
    unsafe fn round_line<V: Lanes>(factor: f32, from: &[f32], to: &mut [f16]) {
        // SAFETY: the caller vouches for the instructions; both have so many numbers.
        unsafe { rounded_to_halves::<V>(factor, from.as_ptr(), to.as_mut_ptr(), from.len().min(to.len())) };
    }
}

impl Half for bf16 {
    const DTYPE: DType = DType::BF16;
    #[inline(always)]
    fn rounded(value: f32) -> bf16 {
        bf16::from_bits(math::single_to_bfloat(value))
    }
}

/// # Safety
/// As [`super::matmul`], for elements of type `T`.
pub(super) unsafe fn run<T: Half>(product: &MatrixProduct, at: Matrices, batches: &[[isize; 3]]) {
    let own = dense(product);
    let has_kernel = is_packed(&own, T::DTYPE) || skinny::takes(&own, T::DTYPE);
    let few = product.columns <= skinny::MOST_HALF_ROWS || !has_kernel;
    if product.columns < product.rows && few && !multiplied::<T>(product) {
        let transposed = product.transposed();
        if skinny::takes(&dense(&transposed), T::DTYPE) {
            let at = Matrices { left: at.right, right: at.left, out: at.out };
            let batches: Vec<_> = batches.iter().map(|&[left, right, out]| [right, left, out]).collect();
            // SAFETY: the same elements by other names.
            return unsafe { in_order::<T>(&transposed, at, &batches) };
        }
    }
    // SAFETY: passed on to the caller.
    unsafe { in_order::<T>(product, at, batches) }
}

/// Whether a product with a right matrix of half precision is large enough for packing, which widens both, and has no better kernel.
pub(super) fn is_packed(product: &MatrixProduct, right: DType) -> bool {
    product.out[1] == 1 && packs(product) && !skinny::takes(product, right)
}

/// Whether the CPU multiplies this type, and the product is worth it.
fn multiplied<T: Half>(product: &MatrixProduct) -> bool {
    T::DTYPE == DType::BF16 && bfloat::takes(product)
}

/// The product with its left matrix and its result dense, as they are in float32.
fn dense(product: &MatrixProduct) -> MatrixProduct {
    let whole = MatrixProduct::dense(product.rows, product.depth, product.columns);
    MatrixProduct { right: product.right, alpha: product.alpha, ..whole }
}

/// # Safety
/// As [`run`].
unsafe fn in_order<T: Half>(product: &MatrixProduct, at: Matrices, batches: &[[isize; 3]]) {
    let size = product.rows * product.depth * product.columns;
    // SAFETY: the caller's promise, batch by batch.
    let run =
        |from: usize, to: usize| batches[from..to].iter().for_each(|&batch| unsafe { one::<T>(product, at, batch) });
    if are_dealt_out_whole(batches.len(), size) {
        parallel_for(batches.len(), size / 30 + 200, run);
    } else {
        run(0, batches.len());
    }
}

/// # Safety
/// As [`run`], for one batch.
unsafe fn one<T: Half>(product: &MatrixProduct, at: Matrices, [left, right, out]: [isize; 3]) {
    let (rows, depth, columns) = (product.rows, product.depth, product.columns);
    let mut own = dense(product);
    let to = at.out.wrapping_add_signed(out * size_of::<T>() as isize);
    let is_multiplied = multiplied::<T>(product);
    if is_multiplied || is_packed(&own, T::DTYPE) {
        let factor = if is_multiplied { product.alpha as f32 } else { 1.0 };
        // SAFETY: the caller vouches for the result's elements; those of a part are nobody else's.
        let rounded = |part: Part| unsafe { round::<T>(part, Rounded { product, factor, to }) };
        let goal = Some(Goal::Parts(&rounded));
        // SAFETY: the caller vouches for the operands' elements.
        unsafe {
            if is_multiplied {
                return bfloat::run(product, at, [left, right, 0], goal, None);
            }
            own.left = product.left;
            return single::run_typed(&own, [T::DTYPE; 2], at, [left, right, 0], goal, None);
        }
    }
    scratch::with(rows * (depth + columns), |memory: &mut [f32]| {
        let (x, sums) = memory.split_at_mut(rows * depth);
        let from = at.left.wrapping_add_signed(left * size_of::<T>() as isize);
        // SAFETY: the caller vouches for the operands' elements; `x` and `sums` are dense.
        unsafe {
            widen(T::DTYPE, from, product.left, x, depth);
            let own_at = Matrices { left: x.as_ptr() as usize, right: at.right, out: sums.as_mut_ptr() as usize };
            mixed(&own, T::DTYPE, own_at, &[[0, right, 0]], None);
            let (sums, result) = (Shared::new(sums), Rounded { product, factor: 1.0, to });
            parallel_for(rows, columns / 8, |from, until| {
                let first = sums.at(from * columns).cast_const();
                round::<T>(Part { first, stride: columns, rows: (from, until), columns: (0, columns) }, result);
            });
        }
    });
}

/// The product of a float32 left matrix with a right one of half precision; the result is float32.
///
/// # Safety
/// As [`super::linear`], for such matrices.
pub(super) unsafe fn mixed(
    product: &MatrixProduct,
    dtype: DType,
    at: Matrices,
    batches: &[[isize; 3]],
    epilogue: Option<&Epilogue>,
) {
    let (depth, columns) = (product.depth, product.columns);
    for &[left, right, out] in batches {
        if skinny::takes(product, dtype) {
            // SAFETY: the caller's promise.
            unsafe { skinny::run(product, dtype, at, [left, right, out], epilogue) };
            continue;
        }
        if is_packed(product, dtype) {
            // SAFETY: the caller's promise.
            unsafe { single::run_typed(product, [DType::F32, dtype], at, [left, right, out], None, epilogue) };
            continue;
        }
        scratch::with(depth * columns, |weight: &mut [f32]| {
            let from = at.right.wrapping_add_signed(right * dtype.size() as isize);
            let [by_row, by_column] = product.right;
            let transposed = by_row == 1;
            // SAFETY: the caller vouches for the right matrix's elements; its copy is dense in the same order.
            unsafe {
                match transposed {
                    true => widen(dtype, from, [by_column, by_row], weight, depth),
                    false => widen(dtype, from, product.right, weight, columns),
                }
                let strides = if transposed { [1, depth as isize] } else { [columns as isize, 1] };
                let at = Matrices { right: weight.as_ptr() as usize, ..at };
                float::<f32>(&MatrixProduct { right: strides, ..*product }, at, &[[left, 0, out]], epilogue);
            }
        });
    }
}

/// Copies a matrix of half precision, of any strides, to a dense one of float32 with this many columns.
///
/// # Safety
/// The matrix's elements are readable.
pub(super) unsafe fn widen(dtype: DType, from: usize, strides: [isize; 2], to: &mut [f32], columns: usize) {
    let rows = to.len().checked_div(columns).unwrap_or(0);
    let to = Shared::new(to);
    parallel_for(rows, columns / 4, |begin, end| {
        // SAFETY: these rows of the copy are this task's.
        let to = unsafe { to.part(begin * columns, (end - begin) * columns) };
        let from = from.wrapping_add_signed(begin as isize * strides[0] * dtype.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { widen_lines(dtype, from, strides, to, columns) };
    });
}

/// Where a product's results belong.
#[derive(Clone, Copy)]
struct Rounded<'a> {
    product: &'a MatrixProduct,
    factor: f32,
    to: usize,
}

/// Rounds a part of the results, times a factor, to where they belong, and adds what `beta` keeps.
///
/// # Safety
/// The product's result is at `to`, of type `T`, and the part's elements of it are the caller's.
unsafe fn round<T: Half>(part: Part, result: Rounded) {
    // SAFETY: the caller's promise; `at_level` calls with instructions that the CPU has.
    unsafe {
        match T::DTYPE {
            DType::F16 => at_level!(round_to_halves(part: Part, result: Rounded<'_>)),
            _ => at_level!(round_to_bfloats(part: Part, result: Rounded<'_>)),
        }
    }
}

#[inline(always)]
unsafe fn round_to_halves<V: Lanes>(part: Part, result: Rounded) {
    // SAFETY: passed on to the caller.
    unsafe { round_lines::<V, f16>(part, result) }
}

#[inline(always)]
unsafe fn round_to_bfloats<V: Lanes>(part: Part, result: Rounded) {
    // SAFETY: passed on to the caller.
    unsafe { round_lines::<V, bf16>(part, result) }
}

/// A row of neighbours is a loop that becomes vectors.
#[inline(always)]
unsafe fn round_lines<V: Lanes, T: Half>(part: Part, Rounded { product, factor, to }: Rounded) {
    let ([by_row, by_column], (begin, end)) = (product.out, part.columns);
    for (line, i) in (part.rows.0..part.rows.1).enumerate() {
        // SAFETY: a row of the part's sums.
        let sums = unsafe { std::slice::from_raw_parts(part.first.add(line * part.stride), end - begin) };
        let to = (to as *mut T).wrapping_offset(i as isize * by_row + begin as isize * by_column);
        if product.beta == 0.0 && by_column == 1 {
            // SAFETY: a row of the result, written by this task alone.
            let to = unsafe { std::slice::from_raw_parts_mut(to, sums.len()) };
            // SAFETY: the caller vouches for the instructions.
            unsafe { T::round_line::<V>(factor, sums, to) };
            continue;
        }
        for (j, &sum) in sums.iter().enumerate() {
            // SAFETY: an element of the result, written by this task alone.
            unsafe {
                let to = to.offset(j as isize * by_column);
                let kept = if product.beta == 0.0 { 0.0 } else { product.beta as f32 * (*to).single() };
                *to = T::rounded(factor * sum + kept);
            }
        }
    }
}
