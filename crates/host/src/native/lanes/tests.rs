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

/// Sorts numbers by fours and by twos, and back.
#[inline(always)]
unsafe fn sorted<V: Lanes>(numbers: &[f32], sorted: &mut [Vec<f32>; 4]) -> usize {
    // SAFETY: the caller gives four of the widest registers of each.
    unsafe {
        let by_4 = V::load_by_4(numbers.as_ptr());
        let by_2 = V::load_by_2(numbers.as_ptr());
        for (j, register) in by_4.into_iter().enumerate() {
            register.store(sorted[0].as_mut_ptr().add(j * V::N));
        }
        for (j, register) in by_2.into_iter().enumerate() {
            register.store(sorted[1].as_mut_ptr().add(j * V::N));
        }
        V::store_by_4(by_4, sorted[2].as_mut_ptr());
        V::store_by_2(by_2, sorted[3].as_mut_ptr());
    }
    V::N
}

#[test]
fn sorting_by_fours_and_twos_and_back() {
    let numbers: Vec<f32> = (0..4 * WIDEST).map(|i| i as f32).collect();
    let check = |sort: &dyn Fn(&[f32], &mut [Vec<f32>; 4]) -> usize| {
        let mut sorted: [Vec<f32>; 4] = std::array::from_fn(|_| vec![-1.0; 4 * WIDEST]);
        let n = sort(&numbers, &mut sorted);
        let by = |step: usize| (0..step * n).map(|at| (at % n * step + at / n) as f32).collect::<Vec<_>>();
        assert_eq!((&sorted[0][..4 * n], &sorted[1][..2 * n]), (&by(4)[..], &by(2)[..]));
        assert_eq!((&sorted[2][..4 * n], &sorted[3][..2 * n]), (&numbers[..4 * n], &numbers[..2 * n]));
    };
    // SAFETY: the level in use is one that the CPU has.
    check(&|from, to| unsafe { at_level!(sorted(from: &[f32], to: &mut [Vec<f32>; 4]) -> usize) });
    // SAFETY: this level every CPU of the target has.
    check(&|from, to| unsafe { sorted::<Portable>(from, to) });
}
