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

/// Every second of a register's numbers, and these written over others.
#[inline(always)]
unsafe fn some<V: Lanes>(numbers: &[f32], to: &mut [[f32; WIDEST]; 2]) -> usize {
    // SAFETY: the caller gives one of the widest registers of each.
    unsafe {
        let some = V::load_some(numbers.as_ptr(), 0x5555);
        some.store(to[0].as_mut_ptr());
        V::splat(-2.0).store_some(to[1].as_mut_ptr(), 0x5555);
    }
    V::N
}

#[test]
fn some_of_a_register() {
    let numbers: Vec<f32> = (1..=WIDEST).map(|i| i as f32).collect();
    let check = |some: &dyn Fn(&[f32], &mut [[f32; WIDEST]; 2]) -> usize| {
        let mut to = [[-1.0; WIDEST]; 2];
        let n = some(&numbers, &mut to);
        for i in 0..WIDEST {
            let chosen = i < n && i % 2 == 0;
            let read = if chosen { numbers[i] } else { 0.0 };
            assert_eq!(to[0][i], if i < n { read } else { -1.0 });
            assert_eq!(to[1][i], if chosen { -2.0 } else { -1.0 });
        }
    };
    // SAFETY: the level in use is one that the CPU has.
    check(&|from, to| unsafe { at_level!(some(from: &[f32], to: &mut [[f32; WIDEST]; 2]) -> usize) });
    // SAFETY: this level every CPU of the target has.
    check(&|from, to| unsafe { some::<Portable>(from, to) });
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

/// Four numbers of each of a register of rows, turned, and back.
#[inline(always)]
unsafe fn turned<V: Lanes>(rows: &[f32], turned: &mut [f32], back: &mut [f32]) -> usize {
    // SAFETY: the caller gives as many rows of [`PITCH`] numbers as the widest register has, and room for as many.
    unsafe {
        let registers = V::load_rows_of_4(rows.as_ptr(), PITCH);
        for (j, register) in registers.into_iter().enumerate() {
            register.store(turned.as_mut_ptr().add(j * V::N));
        }
        V::store_rows_of_4(registers, back.as_mut_ptr(), PITCH);
    }
    V::N
}

/// Numbers of a row, of which four are turned.
const PITCH: usize = 7;

#[test]
fn rows_of_four_are_turned_and_back() {
    let rows: Vec<f32> = (0..PITCH * WIDEST).map(|i| i as f32).collect();
    let check = |turn: &dyn Fn(&[f32], &mut [f32], &mut [f32]) -> usize| {
        let (mut turned, mut back) = (vec![-1.0; 4 * WIDEST], vec![-1.0; PITCH * WIDEST]);
        let n = turn(&rows, &mut turned, &mut back);
        let want: Vec<f32> = (0..4 * n).map(|at| (at % n * PITCH + at / n) as f32).collect();
        assert_eq!(&turned[..4 * n], want);
        for (at, (&back, &row)) in back.iter().zip(&rows).enumerate() {
            assert_eq!(back, if at % PITCH < 4 && at / PITCH < n { row } else { -1.0 }, "{at}");
        }
    };
    // SAFETY: the level in use is one that the CPU has.
    check(&|rows, to, back| unsafe { at_level!(turned(rows: &[f32], to: &mut [f32], back: &mut [f32]) -> usize) });
    // SAFETY: this level every CPU of the target has.
    check(&|rows, to, back| unsafe { turned::<Portable>(rows, to, back) });
}

/// A square, turned and turned back.
#[inline(always)]
unsafe fn turned_twice<V: Lanes>(rows: &[f32], turned: &mut [f32], back: &mut [f32]) -> usize {
    let pitch = WIDEST + 3;
    // SAFETY: the caller gives as many rows of that pitch as the widest register has.
    unsafe {
        V::turn_square(rows.as_ptr(), pitch, turned.as_mut_ptr(), WIDEST);
        V::turn_square(turned.as_ptr(), WIDEST, back.as_mut_ptr(), pitch);
    }
    V::N
}

#[test]
fn squares_are_turned_and_back() {
    let pitch = WIDEST + 3;
    let rows: Vec<f32> = (0..pitch * WIDEST).map(|i| i as f32).collect();
    let check = |turn: &dyn Fn(&[f32], &mut [f32], &mut [f32]) -> usize| {
        let (mut turned, mut back) = (vec![-1.0; WIDEST * WIDEST], vec![-1.0; rows.len()]);
        let n = turn(&rows, &mut turned, &mut back);
        for (i, j) in (0..n * n).map(|at| (at / n, at % n)) {
            assert_eq!(turned[j * WIDEST + i], rows[i * pitch + j], "{i}, {j}");
        }
        for (at, (&back, &row)) in back.iter().zip(&rows).enumerate() {
            assert_eq!(back, if at % pitch < n && at / pitch < n { row } else { -1.0 }, "{at}");
        }
    };
    // SAFETY: the level in use is one that the CPU has.
    check(&|rows, to, back| unsafe {
        at_level!(turned_twice(rows: &[f32], to: &mut [f32], back: &mut [f32]) -> usize)
    });
    // SAFETY: this level every CPU of the target has.
    check(&|rows, to, back| unsafe { turned_twice::<Portable>(rows, to, back) });
}
