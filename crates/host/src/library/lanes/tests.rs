//! What every level must agree on.

use super::*;

/// The sums of four registers of numbers, and how many numbers a register has.
#[inline(always)]
unsafe fn sums<V: Lanes>(numbers: &[f32]) -> ([f32; 4], usize) {
    // SAFETY: the caller gives four of the widest registers.
    unsafe { (V::sums(std::array::from_fn(|i| V::load(numbers.as_ptr().add(i * WIDEST)))), V::N) }
}

#[test]
fn sums_of_registers() {
    let numbers: Vec<f32> = (0..4 * WIDEST).map(|i| (i * i % 101) as f32).collect();
    let numbers = &numbers;
    // SAFETY: the level in use is one that the CPU has.
    let (found, width) = unsafe { at_level!(sums(numbers: &[f32]) -> ([f32; 4], usize)) };
    let want: [f32; 4] = std::array::from_fn(|i| numbers[i * WIDEST..][..width].iter().sum());
    assert_eq!(found, want);
    // SAFETY: this level every CPU of the target has.
    let (found, width) = unsafe { sums::<Portable>(numbers) };
    let want: [f32; 4] = std::array::from_fn(|i| numbers[i * WIDEST..][..width].iter().sum());
    assert_eq!(found, want);
}
