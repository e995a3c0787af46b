//! Rotary position embedding: pairs of elements turned by an angle that depends on their position.

use super::lanes::{Lanes, at_level};
use super::memory::Memory;
use crate::threads::parallel_for;
use crate::vector::leveled;
use half::{bf16, f16};
use openmps_tile::DType;

/// The sizes of one call: x and the result are [batch, heads, rows, 2 * pairs].
#[derive(Clone, Copy, Debug)]
pub struct Rope {
    /// Independent calls.
    pub batch: usize,
    /// Heads that share their angles.
    pub heads: usize,
    /// Positions.
    pub rows: usize,
    /// Pairs of elements of a row.
    pub pairs: usize,
    /// Whether a pair is two neighbours, or one element of each half.
    pub interleaved: bool,
    /// Whether the angles are turned back.
    pub inverse: bool,
}

/// The float types, with the type in which they are computed.
trait Turned: Copy + Send + Sync + 'static {
    /// `(x cos - y sin, x sin + y cos)`, each rounded once.
    fn turn(x: Self, y: Self, cos: Self, sin: Self, inverse: bool) -> (Self, Self);
    /// What turns a row.
    fn turn_row() -> Turn<Self>;
}

macro_rules! turned {
    ($($type:ty, $wide:ty, $widen:expr, $narrow:expr, $row:expr;)*) => {$(
        impl Turned for $type {
            #[inline(always)]
            fn turn(x: $type, y: $type, cos: $type, sin: $type, inverse: bool) -> ($type, $type) {
                let widen: fn($type) -> $wide = $widen;
                let (x, y, cos, sin) = (widen(x), widen(y), widen(cos), widen(sin));
                let sin = if inverse { -sin } else { sin };
                let narrow: fn($wide) -> $type = $narrow;
                (narrow(x * cos - y * sin), narrow(x * sin + y * cos))
            }
            fn turn_row() -> Turn<$type> {
                $row
            }
        }
    )*};
}
turned! {
    f32, f32, |x| x, |x| x, turn_singles;
    f64, f64, |x| x, |x| x, leveled_turn();
    f16, f32, f16::to_f32, f16::from_f32, leveled_turn();
    bf16, f32, bf16::to_f32, bf16::from_f32, leveled_turn();
}

/// Turns every pair; `cos` and `sin` have dimensions [batch, rows, pairs], with strides of zero where they are shared.
///
/// # Safety
/// Every element that sizes and strides name is readable, the dense result writable, and of type `dtype`, a float type. The result overlaps
/// nothing else.
pub unsafe fn rope(sizes: &Rope, dtype: DType, x: Memory, [cos, sin]: [Memory; 2], out: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match dtype {
            DType::F16 => run::<f16>(sizes, x, [cos, sin], out),
            DType::BF16 => run::<bf16>(sizes, x, [cos, sin], out),
            DType::F64 => run::<f64>(sizes, x, [cos, sin], out),
            _ => run::<f32>(sizes, x, [cos, sin], out),
        }
    }
}

/// # Safety
/// As [`rope`], for elements of type `T`.
unsafe fn run<T: Turned>(sizes: &Rope, x: Memory, [cos, sin]: [Memory; 2], out: usize) {
    let Rope { batch, heads, rows, pairs, interleaved, inverse } = *sizes;
    let turn = T::turn_row();
    parallel_for(batch * heads * rows, pairs, |begin, end| {
        for line in begin..end {
            let at = [line / rows / heads, line / rows % heads, line % rows].map(|i| i as isize);
            let offset = |memory: &Memory, index: &[isize]| {
                (memory.address as *const T).wrapping_offset(index.iter().zip(memory.strides).map(|(i, s)| i * s).sum())
            };
            let row = Row {
                x: offset(&x, &at),
                x_step: x.strides[3],
                cos: offset(&cos, &[at[0], at[2]]),
                sin: offset(&sin, &[at[0], at[2]]),
                steps: [cos.strides[2], sin.strides[2]],
                out: (out as *mut T).wrapping_add(line * 2 * pairs),
                pairs,
            };
            // SAFETY: the caller vouches for these elements; the row of the result is this task's.
            unsafe { turn(&row, interleaved, inverse) };
        }
    });
}

/// One row: where its elements and angles are, and how far apart.
struct Row<T> {
    x: *const T,
    x_step: isize,
    cos: *const T,
    sin: *const T,
    steps: [isize; 2],
    out: *mut T,
    pairs: usize,
}

type Turn<T> = unsafe fn(&Row<T>, bool, bool);

leveled! {
    fn leveled_turn<T>(row: &Row<T>, interleaved: bool, inverse: bool) -> Turn<T>
    where { T: Turned } = turn
}

/// Turns a row.
///
/// # Safety
/// All its elements are there; the result is the caller's.
#[inline(always)]
unsafe fn turn<T: Turned>(row: &Row<T>, interleaved: bool, inverse: bool) {
    // SAFETY: passed on to the caller.
    unsafe {
        if !interleaved && row.x_step == 1 && row.steps == [1, 1] {
            halves(row, inverse);
        } else {
            one_by_one(row, 0, interleaved, inverse);
        }
    }
}

/// Turns a row of float32, several pairs at a time where it can.
///
/// # Safety
/// As [`turn`].
unsafe fn turn_singles(row: &Row<f32>, interleaved: bool, inverse: bool) {
    // Cosines and sines that are pairs themselves: complex numbers, whose product this is.
    let are_pairs = row.steps == [2, 2] && row.sin == row.cos.wrapping_add(1);
    // SAFETY: passed on to the caller; the level is the CPU's.
    unsafe {
        if interleaved && row.x_step == 1 && (are_pairs || row.steps == [1, 1]) {
            at_level!(neighbours(row: &Row<f32>, are_pairs: bool, inverse: bool));
        } else {
            leveled_turn::<f32>()(row, interleaved, inverse);
        }
    }
}

/// From one pair on.
///
/// # Safety
/// As [`turn`].
#[inline(always)]
unsafe fn one_by_one<T: Turned>(row: &Row<T>, from: usize, interleaved: bool, inverse: bool) {
    let (step, second) = if interleaved { (2, 1) } else { (1, row.pairs) };
    for pair in from..row.pairs {
        let (i, j) = (pair * step, pair * step + second);
        // SAFETY: the caller's promise.
        unsafe {
            let element = |i: usize| *row.x.offset(i as isize * row.x_step);
            let angle = |table: *const T, step: isize| *table.offset(pair as isize * step);
            let (cos, sin) = (angle(row.cos, row.steps[0]), angle(row.sin, row.steps[1]));
            let (a, b) = T::turn(element(i), element(j), cos, sin, inverse);
            (*row.out.add(i), *row.out.add(j)) = (a, b);
        }
    }
}

/// A row of neighbouring pairs of float32 without gaps, by angles that are pairs, too, or two rows.
///
/// # Safety
/// As [`turn`], for lanes that the CPU has; nothing has gaps.
#[inline(always)]
unsafe fn neighbours<V: Lanes>(row: &Row<f32>, are_pairs: bool, inverse: bool) {
    let mut pair = 0;
    while pair + V::N <= row.pairs {
        // SAFETY: the caller's promise: these pairs are in the row.
        unsafe {
            let [x, y] = V::load_by_2(row.x.add(2 * pair));
            let [cos, sin] = match are_pairs {
                true => V::load_by_2(row.cos.add(2 * pair)),
                false => [V::load(row.cos.add(pair)), V::load(row.sin.add(pair))],
            };
            let ([a, b], [c, d]) = ([x.mul(cos), y.mul(sin)], [x.mul(sin), y.mul(cos)]);
            let turned = if inverse { [a.add(b), d.sub(c)] } else { [a.sub(b), c.add(d)] };
            V::store_by_2(turned, row.out.add(2 * pair));
        }
        pair += V::N;
    }
    // SAFETY: as above.
    unsafe { one_by_one(row, pair, true, inverse) };
}

/// A row in two dense halves, which the compiler turns into vectors.
///
/// # Safety
/// As [`turn`]; nothing has gaps.
#[inline(always)]
unsafe fn halves<T: Turned>(row: &Row<T>, inverse: bool) {
    let pairs = row.pairs;
    // SAFETY: the caller's promise; the result overlaps nothing.
    let (x, cos, sin, out) = unsafe {
        (
            std::slice::from_raw_parts(row.x, 2 * pairs),
            std::slice::from_raw_parts(row.cos, pairs),
            std::slice::from_raw_parts(row.sin, pairs),
            std::slice::from_raw_parts_mut(row.out, 2 * pairs),
        )
    };
    let ((a, b), (c, d)) = (x.split_at(pairs), out.split_at_mut(pairs));
    for i in 0..pairs {
        (c[i], d[i]) = T::turn(a[i], b[i], cos[i], sin[i], inverse);
    }
}
