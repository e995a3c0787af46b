//! Rotary position embedding: pairs of elements turned by an angle that depends on their position.

use super::memory::Memory;
use crate::threads::parallel_for;
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
pub trait Turned: Copy + Send + Sync + 'static {
    /// `(x cos - y sin, x sin + y cos)`, each rounded once.
    fn turn(x: Self, y: Self, cos: Self, sin: Self, inverse: bool) -> (Self, Self);
}

macro_rules! turned {
    ($($type:ty, $wide:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Turned for $type {
            #[inline(always)]
            fn turn(x: $type, y: $type, cos: $type, sin: $type, inverse: bool) -> ($type, $type) {
                let widen: fn($type) -> $wide = $widen;
                let (x, y, cos, sin) = (widen(x), widen(y), widen(cos), widen(sin));
                let sin = if inverse { -sin } else { sin };
                let narrow: fn($wide) -> $type = $narrow;
                (narrow(x * cos - y * sin), narrow(x * sin + y * cos))
            }
        }
    )*};
}
turned! {
    f32, f32, |x| x, |x| x;
    f64, f64, |x| x, |x| x;
    f16, f32, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::to_f32, bf16::from_f32;
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
    parallel_for(batch * heads * rows, pairs, |begin, end| {
        for line in begin..end {
            let at = [line / rows / heads, line / rows % heads, line % rows].map(|i| i as isize);
            let offset = |memory: &Memory, index: &[isize]| {
                (memory.address as *const T).wrapping_offset(index.iter().zip(memory.strides).map(|(i, s)| i * s).sum())
            };
            let from = offset(&x, &at);
            let (cos_row, sin_row) = (offset(&cos, &[at[0], at[2]]), offset(&sin, &[at[0], at[2]]));
            let to = (out as *mut T).wrapping_add(line * 2 * pairs);
            let (step, second) = if interleaved { (2, 1) } else { (1, pairs) };
            let dense = x.strides[3] == 1 && cos.strides[2] == 1 && sin.strides[2] == 1 && !interleaved;
            // SAFETY: the caller vouches for these elements; the row of the result is this task's.
            unsafe {
                if dense {
                    halves(from, cos_row, sin_row, to, pairs, inverse);
                    continue;
                }
                for pair in 0..pairs {
                    let (i, j) = (pair * step, pair * step + second);
                    let element = |i: usize| *from.offset(i as isize * x.strides[3]);
                    let angle = |row: *const T, memory: &Memory| *row.offset(pair as isize * memory.strides[2]);
                    let (a, b) = T::turn(element(i), element(j), angle(cos_row, &cos), angle(sin_row, &sin), inverse);
                    (*to.add(i), *to.add(j)) = (a, b);
                }
            }
        }
    });
}

/// A row in two dense halves, which the compiler turns into vectors.
///
/// # Safety
/// `2 * pairs` elements of x and the result, `pairs` of the angles.
unsafe fn halves<T: Turned>(x: *const T, cos: *const T, sin: *const T, out: *mut T, pairs: usize, inverse: bool) {
    // SAFETY: the caller's promise; the result overlaps nothing.
    let (x, cos, sin, out) = unsafe {
        (
            std::slice::from_raw_parts(x, 2 * pairs),
            std::slice::from_raw_parts(cos, pairs),
            std::slice::from_raw_parts(sin, pairs),
            std::slice::from_raw_parts_mut(out, 2 * pairs),
        )
    };
    let ((a, b), (c, d)) = (x.split_at(pairs), out.split_at_mut(pairs));
    for i in 0..pairs {
        (c[i], d[i]) = T::turn(a[i], b[i], cos[i], sin[i], inverse);
    }
}
