//! The innermost block of every product: up to 6 rows by two vectors of columns, summed in registers.
//!
//! The left matrix is packed in panels of up to [`ROWS`] rows ([`Panels`]); rows of the right one are found by a stride or
//! by a table of offsets, so that convolutions read their input in place.

use super::epilogue::Epilogue;
use super::lanes::{Arithmetic, Lanes, at_level};
#[cfg(target_arch = "x86_64")]
use crate::level::Level;
use crate::level::level;

/// Rows of a panel: 6 rows of 2 vectors are 12 sums, which hides the latency of fused multiply-add on two pipes and leaves
/// registers for the operands.
pub(crate) const ROWS: usize = 6;

/// Terms that are summed up before they are added to the others: the error of a sum grows with its length. Parts of 32 make that of 256 terms
/// 2.5 times smaller, and the block 2 % slower.
const PART: usize = 32;

/// One call of the micro-kernel.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// Terms of each sum.
    pub depth: usize,
    /// The panel: `depth` groups of [`ROWS`] numbers.
    pub left: *const f32,
    /// The first row of the right matrix; each has `columns` numbers, and all lanes are readable.
    pub right: *const f32,
    /// Where the other rows are.
    pub rows_at: RowsAt,
    /// The first element of the result.
    pub out: *mut f32,
    /// From one row of the result to the next.
    pub out_stride: usize,
    /// Whether the sums are added to what the result holds.
    pub accumulate: bool,
    /// Applied before storing; none while more terms are to come.
    pub epilogue: Option<&'a Epilogue<'a>>,
    /// The output channel of the block's first row, for the epilogue.
    pub channel: usize,
    /// The index of the block's first element in the whole output, for the epilogue's residual.
    pub index: usize,
}

/// Where row p of the right matrix starts, in elements from row 0.
#[derive(Clone, Copy)]
pub(crate) enum RowsAt {
    /// At `p * stride`.
    Stride(usize),
    /// At `table[p]`.
    Table(*const usize),
}

type Kernel = unsafe fn(&Block);

/// The micro-kernels of one level.
pub(crate) struct Kernels {
    /// Columns of a block.
    pub width: usize,
    finish: unsafe fn(&Block, &Epilogue, usize),
    strided: [Kernel; ROWS],
    tabled: [Kernel; ROWS],
}

#[inline(always)]
unsafe fn block<V: Lanes, const R: usize, const TABLED: bool>(call: &Block) {
    // SAFETY: the caller vouches for all lanes of `depth` rows and for R x 2N elements of the result.
    unsafe {
        let (mut left, mut row) = (call.left, call.right);
        let (stride, table) = match call.rows_at {
            RowsAt::Stride(stride) => (stride, std::ptr::null()),
            RowsAt::Table(table) => (0, table),
        };
        let mut done = 0;
        let mut sums = loop {
            let mut sums = [[V::splat(0.0); 2]; R];
            let last = call.depth.min(done + PART);
            for p in done..last {
                if TABLED {
                    row = call.right.add(*table.add(p));
                }
                let (b0, b1) = (V::load(row), V::load(row.add(V::N)));
                for i in 0..R {
                    let a = V::splat(*left.add(i));
                    sums[i] = [a.fma(b0, sums[i][0]), a.fma(b1, sums[i][1])];
                }
                left = left.add(ROWS);
                if !TABLED {
                    row = row.wrapping_add(stride);
                }
            }
            if call.accumulate || done > 0 {
                for i in 0..R {
                    let out = call.out.add(i * call.out_stride);
                    sums[i] = [sums[i][0].add(V::load(out)), sums[i][1].add(V::load(out.add(V::N)))];
                }
            }
            if last == call.depth {
                break sums;
            }
            store_rows(&sums, call);
            done = last;
        };
        if let Some((bias, low, high)) = call.epilogue.and_then(Epilogue::as_clamp) {
            let (low, high) = (V::splat(low), V::splat(high));
            for i in 0..R {
                let bias = V::splat(bias.map_or(0.0, |bias| bias[call.channel + i]));
                let [a, b] = sums[i];
                sums[i] = [a.add(bias).max(low).min(high), b.add(bias).max(low).min(high)];
            }
        }
        store_rows(&sums, call);
    }
}

#[inline(always)]
unsafe fn store_rows<V: Lanes, const R: usize>(sums: &[[V; 2]; R], call: &Block) {
    for (i, [a, b]) in sums.iter().enumerate() {
        // SAFETY: the caller vouches for R x 2N elements of the result.
        unsafe {
            let out = call.out.add(i * call.out_stride);
            a.store(out);
            b.store(out.add(V::N));
        }
    }
}

/// Applies an epilogue that is more than a bias and a clamp to a block just stored.
#[inline(always)]
unsafe fn finish<V: Lanes>(call: &Block, epilogue: &Epilogue, rows: usize) {
    for i in 0..rows {
        for j in 0..2 {
            let at = i * call.out_stride + j * V::N;
            // SAFETY: the caller vouches for the block's elements and for the epilogue's.
            unsafe {
                let out = call.out.add(at);
                epilogue.apply(V::load(out), call.channel + i, call.index + at).store(out);
            }
        }
    }
}

macro_rules! kernels {
    ($module:ident, $lanes:ident, $(#[$attribute:meta])*) => {
        mod $module {
            use super::*;
            use crate::native::lanes::$lanes as Register;

            $(#[$attribute])*
            unsafe fn run<const R: usize, const TABLED: bool>(call: &Block) {
                // SAFETY: passed on to the caller.
                unsafe { block::<Register, R, TABLED>(call) }
            }

            $(#[$attribute])*
            unsafe fn finish_rows(call: &Block, epilogue: &Epilogue, rows: usize) {
                // SAFETY: passed on to the caller.
                unsafe { finish::<Register>(call, epilogue, rows) }
            }

            pub(super) static KERNELS: Kernels = Kernels {
                width: 2 * Register::N,
                finish: finish_rows,
                strided: [run::<1, false>, run::<2, false>, run::<3, false>, run::<4, false>, run::<5, false>, run::<6, false>],
                tabled: [run::<1, true>, run::<2, true>, run::<3, true>, run::<4, true>, run::<5, true>, run::<6, true>],
            };
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(avx512, Avx512, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]);
#[cfg(target_arch = "x86_64")]
kernels!(avx2, Avx2, #[target_feature(enable = "avx2,fma,f16c,bmi2")]);
kernels!(portable, Portable,);

/// The micro-kernels of the level in use.
pub(crate) fn kernels() -> &'static Kernels {
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => &avx512::KERNELS,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => &avx2::KERNELS,
        _ => &portable::KERNELS,
    }
}

impl Kernels {
    /// Computes `rows` x `columns` of the result; `columns` may be less than the width.
    ///
    /// # Safety
    /// `left` holds `depth` groups; all lanes of the `depth` rows of `right` are readable; `out` has `columns` writable elements in
    /// each of `rows` rows, and the epilogue's slices cover them. `self` belongs to the level in use.
    #[inline]
    pub(crate) unsafe fn run(&self, call: &Block, rows: usize, columns: usize) {
        debug_assert!((1..=ROWS).contains(&rows) && columns <= self.width);
        let kernel = match call.rows_at {
            RowsAt::Stride(_) => self.strided[rows - 1],
            RowsAt::Table(_) => self.tabled[rows - 1],
        };
        if columns == self.width {
            // SAFETY: the caller's promise.
            unsafe {
                kernel(call);
                if let Some(epilogue) = call.epilogue
                    && epilogue.as_clamp().is_none()
                {
                    (self.finish)(call, epilogue, rows);
                }
            }
            return;
        }
        let mut sums = [0.0f32; ROWS * 32];
        let part = Block { out: sums.as_mut_ptr(), out_stride: self.width, accumulate: false, epilogue: None, ..*call };
        // SAFETY: as above; `sums` has room for 6 rows of the widest block.
        unsafe { kernel(&part) };
        for i in 0..rows {
            for j in 0..columns {
                let at = i * call.out_stride + j;
                // SAFETY: inside the `columns` elements of row i.
                let out = unsafe { &mut *call.out.add(at) };
                let mut sum = sums[i * self.width + j];
                if call.accumulate {
                    sum += *out;
                }
                *out = call.epilogue.map_or(sum, |e| e.apply_one(sum, call.channel + i, call.index + at));
            }
        }
    }
}

/// How the rows of a left matrix are cut into panels: evenly, since a panel of one row would waste most of a block.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    rows: usize,
    /// How many panels there are.
    pub count: usize,
}

impl Panels {
    pub(crate) fn new(rows: usize) -> Panels {
        Panels { rows, count: rows.div_ceil(ROWS) }
    }

    /// The first row of panel `p`, or the number of rows when there is no such panel.
    #[inline]
    pub(crate) fn start(&self, p: usize) -> usize {
        (p * self.rows).checked_div(self.count).unwrap_or(0)
    }

    /// Elements of the packed matrix with this depth.
    pub(crate) fn packed_len(&self, depth: usize) -> usize {
        self.count * ROWS * depth
    }

    /// Packs panels `first..last` of `depth` columns, multiplied by `factor`, to `packed` (which starts with panel `first`).
    ///
    /// # Safety
    /// `left + row * row_stride + column * column_stride` is readable for every row of these panels and column.
    #[allow(clippy::too_many_arguments)]
    pub(crate) unsafe fn pack(
        &self,
        (first, last): (usize, usize),
        left: *const f32,
        (row_stride, column_stride): (isize, isize),
        depth: usize,
        factor: f32,
        packed: &mut [f32],
    ) {
        for (p, panel) in (first..last).zip(packed.chunks_exact_mut((ROWS * depth).max(1))) {
            let (begin, end) = (self.start(p), self.start(p + 1));
            if end - begin == ROWS && row_stride == 1 {
                let mut from = left.wrapping_add(begin);
                for group in panel.chunks_exact_mut(ROWS) {
                    // SAFETY: the caller's promise: these rows' elements are neighbours.
                    let column = unsafe { from.cast::<[f32; ROWS]>().read() };
                    group.iter_mut().zip(column).for_each(|(to, value)| *to = factor * value);
                    from = from.wrapping_offset(column_stride);
                }
                continue;
            }
            if end - begin == ROWS {
                let first = left.wrapping_offset(begin as isize * row_stride);
                let rows: [*const f32; ROWS] = std::array::from_fn(|i| first.wrapping_offset(i as isize * row_stride));
                for (k, group) in panel.chunks_exact_mut(ROWS).enumerate() {
                    // All rows at once: their reads overlap, and the group is written in order.
                    for (to, row) in group.iter_mut().zip(&rows) {
                        // SAFETY: the caller's promise.
                        *to = factor * unsafe { *row.offset(k as isize * column_stride) };
                    }
                }
                continue;
            }
            for i in 0..ROWS {
                let row = begin + i;
                for (k, group) in panel.chunks_exact_mut(ROWS).enumerate() {
                    group[i] = if row < end {
                        // SAFETY: the caller's promise.
                        factor * unsafe { *left.offset(row as isize * row_stride + k as isize * column_stride) }
                    } else {
                        0.0
                    };
                }
            }
        }
    }
}

/// Copies a `depth` x `columns` part of the right matrix to groups of `width`, the rest of each group zero.
///
/// # Safety
/// `right + row * row_stride + column * column_stride` is readable for these rows and columns; `columns <= width`.
pub(crate) unsafe fn pack_right(
    right: *const f32,
    (row_stride, column_stride): (isize, isize),
    (depth, columns): (usize, usize),
    width: usize,
    packed: &mut [f32],
) {
    if column_stride == 1 && columns == width {
        let to = packed[..depth * width].as_mut_ptr();
        // SAFETY: `to` holds `depth` groups; the caller vouches for as many whole rows.
        return unsafe { at_level!(copy_rows(right: *const f32, row_stride: isize, depth: usize, to: *mut f32)) };
    }
    if row_stride == 1 && columns == width {
        let to = &mut packed[..depth * width];
        // SAFETY: `to` holds `depth` groups; the caller vouches for `width` columns of `depth` neighbours.
        return unsafe { at_level!(transpose(right: *const f32, column_stride: isize, depth: usize, to: &mut [f32])) };
    }
    for (k, group) in packed.chunks_exact_mut(width).take(depth).enumerate() {
        let row = right.wrapping_offset(k as isize * row_stride);
        for (j, to) in group.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *to = if j < columns { unsafe { *row.offset(j as isize * column_stride) } } else { 0.0 };
        }
    }
}

#[inline(always)]
unsafe fn copy_rows<V: Lanes>(right: *const f32, stride: isize, depth: usize, to: *mut f32) {
    for k in 0..depth {
        // SAFETY: the caller vouches for two vectors in each row and each group.
        unsafe {
            let row = right.offset(k as isize * stride);
            let group = to.add(2 * k * V::N);
            V::load(row).store(group);
            V::load(row.add(V::N)).store(group.add(V::N));
        }
    }
}

/// Columns whose elements are neighbours: four elements of N columns at a time.
#[inline(always)]
unsafe fn transpose<V: Lanes>(right: *const f32, stride: isize, depth: usize, to: &mut [f32]) {
    let (width, whole) = (2 * V::N, depth / 4 * 4);
    for block in (0..width).step_by(V::N) {
        let mut rows = [0.0f32; 64];
        for p in (0..whole).step_by(4) {
            for j in 0..V::N {
                // SAFETY: column `block + j` has `depth` elements.
                let column =
                    unsafe { right.offset((block + j) as isize * stride).add(p).cast::<[f32; 4]>().read_unaligned() };
                rows[4 * j..4 * j + 4].copy_from_slice(&column);
            }
            // SAFETY: `rows` holds 4 * N numbers; each of the four rows of the group has room for N from `block` on.
            unsafe {
                for (i, sorted) in V::load_by_4(rows.as_ptr()).into_iter().enumerate() {
                    sorted.store(to[(p + i) * width + block..][..V::N].as_mut_ptr());
                }
            }
        }
        for p in whole..depth {
            for j in 0..V::N {
                // SAFETY: as above.
                to[p * width + block + j] = unsafe { *right.offset((block + j) as isize * stride).add(p) };
            }
        }
    }
}
