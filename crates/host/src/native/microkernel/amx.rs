//! The tile by Intel's matrix unit (Advanced Matrix Extensions; "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 1, chapter 18): registers
//! of 16 rows by 64 bytes, of which one instruction multiplies two, pairs of bfloat16, and adds the products to a third, float32.

use super::block::{Block, LeftAt, RowsAt};
use super::tile::{MOST_COLUMNS, add_part, finish};
use super::{CHUNK, CHUNK_ROWS};
use crate::native::epilogue::Epilogue;
use crate::native::lanes::Avx512;
use std::arch::asm;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Rows of a register, and pairs of terms of one of its rows.
const SIDE: usize = CHUNK;
/// Rows of a tile: two registers.
pub const ROWS: usize = CHUNK_ROWS;
/// Columns of a tile: as many.
pub const COLUMNS: usize = 2 * SIDE;

/// What `ldtilecfg` reads: which shape each register has.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_of_row: [u16; SIDE],
    rows: [u8; SIDE],
}

/// All eight are as large as they can be.
static WHOLE: Configuration = Configuration {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    bytes_of_row: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// While one of these lives, its thread multiplies tiles. A thread without them is saved and resumed sooner, as their registers are 8 KB.
pub struct Configured {
    /// It stays on its thread.
    of_this_thread: PhantomData<*const ()>,
}

thread_local! {
    /// How many of them this thread has.
    static CONFIGURED: Cell<usize> = const { Cell::new(0) };
}

impl Configured {
    /// # Safety
    /// The CPU has AMX-BF16, and the system lets the process use it.
    pub unsafe fn new() -> Configured {
        if CONFIGURED.replace(CONFIGURED.get() + 1) == 0 {
            // SAFETY: the caller's promise; the configuration is of a form that such a CPU has.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const WHOLE, options(nostack, readonly)) };
        }
        Configured { of_this_thread: PhantomData }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        CONFIGURED.set(CONFIGURED.get() - 1);
        if CONFIGURED.get() == 0 {
            // SAFETY: the thread has loaded a configuration, and nobody on it multiplies tiles now.
            unsafe { asm!("tilerelease", options(nomem, nostack)) };
        }
    }
}

/// The sums of a tile that is not whole.
#[repr(C, align(64))]
struct Sums(MaybeUninit<[f32; ROWS * COLUMNS]>);

/// Where sums go, and from one of their rows to the next in bytes.
#[derive(Clone, Copy)]
struct To {
    first: *mut f32,
    by_row: usize,
}

/// Where the factors of a tile are. Strides and steps are bytes.
#[derive(Clone, Copy)]
struct Factors {
    left: *const f32,
    /// From one row to the next, and from 16 pairs of terms to the next.
    by_row: usize,
    by_pairs: usize,
    right: *const f32,
    /// From one pair of terms to the next.
    by_pair: usize,
    /// Sixteens of pairs, at least one.
    count: usize,
}

/// The registers by number: sums are 0 to 3, those of the first 16 rows before the others, the left factor's 4 and 5, the right one's 6 and 7. The compiler uses
/// none of them, so that they keep what they hold from one instruction to the next.
///
/// # Safety
/// Of all: a [`Configured`] lives on this thread; 16 rows of 64 bytes, `by_row` bytes apart, are readable or writable.
mod register {
    use std::arch::asm;

    pub unsafe fn clear<const N: usize>() {
        // SAFETY: the caller's promise.
        unsafe { asm!("tilezero tmm{n}", n = const N, options(nostack, nomem, preserves_flags)) };
    }

    pub unsafe fn load<const N: usize>(from: *const f32, by_row: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!("tileloadd tmm{n}, [{from} + {by_row}]", n = const N, from = in(reg) from, by_row = in(reg) by_row,
                options(nostack, readonly, preserves_flags));
        }
    }

    /// Adds the products of a left register's pairs with a right one's to sums.
    pub unsafe fn add<const SUMS: usize, const LEFT: usize, const RIGHT: usize>() {
        // SAFETY: the caller's promise.
        unsafe {
            asm!("tdpbf16ps tmm{sums}, tmm{left}, tmm{right}", sums = const SUMS, left = const LEFT, right = const RIGHT,
                options(nostack, nomem, preserves_flags));
        }
    }

    pub unsafe fn store<const N: usize>(to: *mut f32, by_row: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!("tilestored [{to} + {by_row}], tmm{n}", n = const N, to = in(reg) to, by_row = in(reg) by_row,
                options(nostack, preserves_flags));
        }
    }
}

/// A tile of one or two registers by one or two. The sums begin with what is there where they accumulate.
///
/// # Safety
/// A [`Configured`] lives on this thread; the factors have so many terms, of as many rows and columns as there are registers; the sums are readable and writable.
unsafe fn multiply<const DOWN: usize, const ACROSS: usize>(factors: &Factors, to: To, accumulate: bool) {
    let &Factors { mut left, by_row, by_pairs, mut right, by_pair, count } = factors;
    let To { first, by_row: by_sum } = to;
    let lower = first.wrapping_byte_add(SIDE * by_sum);
    // SAFETY: the caller's promise, of each register.
    unsafe {
        if accumulate {
            register::load::<0>(first, by_sum);
            if ACROSS > 1 {
                register::load::<1>(first.wrapping_add(SIDE), by_sum);
            }
            if DOWN > 1 {
                register::load::<2>(lower, by_sum);
            }
            if DOWN > 1 && ACROSS > 1 {
                register::load::<3>(lower.wrapping_add(SIDE), by_sum);
            }
        } else {
            register::clear::<0>();
            register::clear::<1>();
            register::clear::<2>();
            register::clear::<3>();
        }
        for _ in 0..count {
            register::load::<6>(right, by_pair);
            register::load::<4>(left, by_row);
            register::add::<0, 4, 6>();
            if ACROSS > 1 {
                register::load::<7>(right.wrapping_add(SIDE), by_pair);
                register::add::<1, 4, 7>();
            }
            if DOWN > 1 {
                register::load::<5>(left.wrapping_byte_add(SIDE * by_row), by_row);
                register::add::<2, 5, 6>();
            }
            if DOWN > 1 && ACROSS > 1 {
                register::add::<3, 5, 7>();
            }
            left = left.wrapping_byte_add(by_pairs);
            right = right.wrapping_byte_add(SIDE * by_pair);
        }
        register::store::<0>(first, by_sum);
        if ACROSS > 1 {
            register::store::<1>(first.wrapping_add(SIDE), by_sum);
        }
        if DOWN > 1 {
            register::store::<2>(lower, by_sum);
        }
        if DOWN > 1 && ACROSS > 1 {
            register::store::<3>(lower.wrapping_add(SIDE), by_sum);
        }
    }
}

/// Computes `rows` x `columns` of the result, of several tiles side by side each.
///
/// # Safety
/// As [`super::Kernels::run`], of [`ROWS`] by [`COLUMNS`]; a [`Configured`] lives on this thread; the left factor's rows are readable up to the next multiple of
/// 16, and so are the right one's columns.
pub unsafe fn run(call: &Block, rows: usize, columns: usize) {
    const SIZE: usize = size_of::<f32>();
    let RowsAt::Stride(by_pair) = call.rows_at else { unreachable!("pairs of bfloat16 are not found by a table") };
    let (by_row, by_pairs) = match call.left_at {
        LeftAt::Packed => (SIDE * SIZE, ROWS * SIDE * SIZE),
        LeftAt::Rows(stride) => (stride * SIZE, SIDE * SIZE),
    };
    let multiply = match (rows > SIDE, columns > SIDE) {
        (true, true) => multiply::<2, 2>,
        (false, true) => multiply::<1, 2>,
        (true, false) => multiply::<2, 1>,
        (false, false) => multiply::<1, 1>,
    };
    debug_assert!(call.depth > 0 && call.depth.is_multiple_of(SIDE) && CONFIGURED.get() > 0);
    let (left, by_pair, count) = (call.left, by_pair * SIZE, call.depth / SIDE);
    let factors = Factors { left, by_row, by_pairs, right: call.right, by_pair, count };
    let is_whole = rows.is_multiple_of(SIDE) && columns.is_multiple_of(SIDE);
    // SAFETY: the caller's promise; whole registers lie in the result, others in a tile of this function's.
    unsafe {
        if is_whole {
            for tile in 0..call.tiles.count {
                let out = call.out.add(tile * COLUMNS);
                let factors = Factors { right: call.right.wrapping_add(tile * call.tiles.step), ..factors };
                multiply(&factors, To { first: out, by_row: call.out_stride * SIZE }, call.accumulate);
            }
        } else {
            let mut sums = Sums(MaybeUninit::uninit());
            let sums = sums.0.as_mut_ptr().cast::<f32>();
            for tile in 0..call.tiles.count {
                let factors = Factors { right: call.right.wrapping_add(tile * call.tiles.step), ..factors };
                multiply(&factors, To { first: sums, by_row: COLUMNS * SIZE }, false);
                add_rows(&Block { out: call.out.add(tile * COLUMNS), ..*call }, sums, [rows, columns]);
            }
        }
        if let Some(epilogue) = call.epilogue {
            finish_rows(call, epilogue, [rows, call.tiles.count * columns]);
        }
    }
}

/// # Safety
/// As [`add_part`]; the CPU has AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
unsafe fn add_rows(call: &Block, sums: *const f32, size: [usize; 2]) {
    const { assert!(COLUMNS == MOST_COLUMNS) };
    // SAFETY: passed on to the caller.
    unsafe { add_part::<Avx512>(call, sums, size) }
}

/// # Safety
/// As [`finish`]; the CPU has AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
unsafe fn finish_rows(call: &Block, epilogue: &Epilogue, size: [usize; 2]) {
    // SAFETY: passed on to the caller.
    unsafe { finish::<Avx512>(call, epilogue, size) }
}
