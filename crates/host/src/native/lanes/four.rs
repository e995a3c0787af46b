//! Four registers side by side.

use super::Arithmetic;

/// Four registers of neighbouring numbers, computed with in turns: in one register alone the operations of a long formula wait for each
/// other.
#[derive(Clone, Copy)]
pub(crate) struct Four<V>([V; 4]);

// Written out: a closure would not have the instructions of the function that it stands in.
macro_rules! each {
    ($($method:ident),*) => {$(
        #[inline(always)]
        unsafe fn $method(self, other: Self) -> Self {
            let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
            unsafe { Four([a.$method(e), b.$method(f), c.$method(g), d.$method(h)]) }
        }
    )*};
}

// SAFETY of all methods: as for the registers, four times.
#[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
impl<V: Arithmetic> Arithmetic for Four<V> {
    const N: usize = 4 * V::N;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        unsafe { Four([V::splat(value); 4]) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe {
            Four([V::load(from), V::load(from.add(V::N)), V::load(from.add(2 * V::N)), V::load(from.add(3 * V::N))])
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        let [a, b, c, d] = self.0;
        unsafe {
            a.store(to);
            b.store(to.add(V::N));
            c.store(to.add(2 * V::N));
            d.store(to.add(3 * V::N));
        }
    }
    each!(add, sub, mul, div, max, min);
    #[inline(always)]
    unsafe fn fma(self, factor: Self, addend: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h], [i, j, k, l]) = (self.0, factor.0, addend.0);
        unsafe { Four([a.fma(e, i), b.fma(f, j), c.fma(g, k), d.fma(h, l)]) }
    }
    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        let [a, b, c, d] = self.0;
        unsafe { Four([a.sqrt(), b.sqrt(), c.sqrt(), d.sqrt()]) }
    }
    #[inline(always)]
    unsafe fn exp2_integral(self) -> Self {
        let [a, b, c, d] = self.0;
        unsafe { Four([a.exp2_integral(), b.exp2_integral(), c.exp2_integral(), d.exp2_integral()]) }
    }
}
