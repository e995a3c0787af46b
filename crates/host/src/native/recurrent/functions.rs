//! The functions of gates, in vectors.

use crate::native::lanes::Arithmetic;

/// `1 / (1 + e^-x)`.
///
/// # Safety
/// The CPU has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn sigmoid<V: Arithmetic>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let one = V::splat(1.0);
        one.div(V::splat(0.0).sub(x).exp().add(one))
    }
}

/// Factors of `tanh(x) = x P(x^2) / Q(x^2)` for `|x|` up to 9, highest powers first: of all quotients of these degrees the one whose largest relative error,
/// 2e-8, is least. They were found by weighted least squares in 60 digits.
const P: [f32; 5] = [1.335_438_1e-8, 2.060_887_3e-5, 3.495_575_3e-3, 0.133_810_15, 1.0];
const Q: [f32; 5] = [7.776_442e-7, 3.285_613_9e-4, 2.587_693_4e-2, 0.467_143_3, 1.0];

/// The hyperbolic tangent, within a few units of rounding.
///
/// # Safety
/// The CPU has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn tanh<V: Arithmetic>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        // From 9 on the result rounds to 1.
        let x = x.max(V::splat(-9.0)).min(V::splat(9.0));
        let square = x.mul(x);
        let (mut p, mut q) = (V::splat(P[0]), V::splat(Q[0]));
        for i in 1..P.len() {
            p = p.fma(square, V::splat(P[i]));
            q = q.fma(square, V::splat(Q[i]));
        }
        x.mul(p).div(q).max(V::splat(-1.0)).min(V::splat(1.0))
    }
}
