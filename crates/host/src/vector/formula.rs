//! Formulas of float32 in one pass: operands are read a register at a time, and any of them may be one element repeated.

use crate::native::lanes::{Lanes, WIDEST};

/// What becomes of N operands.
pub(super) trait Formula<const N: usize> {
    /// # Safety
    /// The CPU has the instructions.
    unsafe fn of<V: Lanes>(operands: [V; N]) -> V;
}

/// The operands, a register of each at a time. Whether one repeats is asked for each register: to go on by a step that may be 0 would need more registers
/// for addresses than there are, and to read a few ahead more registers for numbers than AVX2 has.
pub(super) struct Operands<V, const N: usize> {
    at: [*const f32; N],
    repeats: [bool; N],
    /// The first element of each, in all lanes.
    first: [V; N],
}

impl<V: Lanes, const N: usize> Operands<V, N> {
    /// # Safety
    /// There is an element of each, and the CPU has the instructions.
    #[inline(always)]
    pub unsafe fn new(at: [*const u8; N], repeats: [bool; N]) -> Operands<V, N> {
        let at = at.map(|at| at.cast::<f32>());
        // SAFETY: the caller's promise.
        unsafe {
            let mut first = [V::splat(0.0); N];
            for i in 0..N {
                first[i] = V::splat(at[i].read_unaligned());
            }
            Operands { at, repeats, first }
        }
    }

    /// The elements from this one on.
    ///
    /// # Safety
    /// There are enough of each that does not repeat, and the CPU has the instructions.
    #[inline(always)]
    pub unsafe fn read(&self, from: usize) -> [V; N] {
        let mut registers = self.first;
        for i in 0..N {
            if !self.repeats[i] {
                // SAFETY: the caller's promise.
                registers[i] = unsafe { V::load(self.at[i].add(from)) };
            }
        }
        registers
    }

    /// So many elements from this one on, and one of them behind these.
    ///
    /// # Safety
    /// There are so many of each that does not repeat, at least one and fewer than a register's; the CPU has the instructions.
    #[inline(always)]
    pub unsafe fn read_rest(&self, from: usize, count: usize) -> [V; N] {
        let mut registers = self.first;
        for i in 0..N {
            if !self.repeats[i] {
                // SAFETY: the caller's promise.
                unsafe {
                    let at = self.at[i].add(from);
                    let mut elements = [at.read_unaligned(); WIDEST];
                    at.cast::<u8>().copy_to_nonoverlapping(elements.as_mut_ptr().cast(), count * size_of::<f32>());
                    registers[i] = V::load(elements.as_ptr());
                }
            }
        }
        registers
    }
}

/// `destination[i] = formula(operands[i])` for `i` in `0..count`; an operand that repeats is read at its first element only.
///
/// # Safety
/// So many elements are valid at each address that does not repeat, and one at those that do. The CPU has the instructions.
#[inline(always)]
pub(super) unsafe fn map<V: Lanes, F: Formula<N>, const N: usize>(
    destination: *mut u8,
    operands: [*const u8; N],
    repeats: [bool; N],
    count: usize,
) {
    if count == 0 {
        return;
    }
    let to = destination.cast::<f32>();
    // SAFETY: the caller's promise. A register is read before it is written, so the destination may be an operand.
    unsafe {
        let operands = Operands::<V, N>::new(operands, repeats);
        let rest = count % V::N;
        for from in (0..count - rest).step_by(V::N) {
            F::of(operands.read(from)).store(to.add(from));
        }
        if rest > 0 {
            let results = F::of(operands.read_rest(count - rest, rest)).lanes();
            let to = to.add(count - rest).cast::<u8>();
            results.as_ptr().cast::<u8>().copy_to_nonoverlapping(to, rest * size_of::<f32>());
        }
    }
}
