//! The largest or smallest element of lines and its number, where both are given: `tl.argmax`, `tl.max(return_indices=True)`.
//!
//! Of elements that are equal either the one with the least number is taken, or any. Any number beats a NaN.

use crate::vector::leveled;

/// Elements that are compared side by side.
const LANES: usize = 32;

/// Which element of two is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// The larger one, else the smaller one.
    pub largest: bool,
    /// Of equal ones the one with the smaller number, else the second.
    pub least_number: bool,
}

/// A line's values and numbers, how many, and where both results go.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub values: *const u8,
    pub numbers: *const i32,
    pub count: usize,
    pub value: *mut u8,
    pub number: *mut i32,
}

/// Finds the best element of a line that is not empty.
pub(crate) type BestFunction = unsafe fn(line: Line);

/// A [`Rule`] as types.
trait Order<T> {
    fn keeps(x: (T, i32), y: (T, i32)) -> bool;
}

macro_rules! orders {
    ($($name:ident: $largest:literal $least:literal;)+) => {
        $(struct $name;
        impl<T: PartialOrd> Order<T> for $name {
            #[inline(always)]
            fn keeps(x: (T, i32), y: (T, i32)) -> bool {
                let better = if $largest { x.0 > y.0 } else { x.0 < y.0 };
                // No type but floats has elements that are unlike themselves.
                #[allow(clippy::eq_op)]
                let is_nan = y.0 != y.0;
                better | is_nan | ($least & (x.0 == y.0) & (x.1 < y.1))
            }
        })+

        fn of<T: PartialOrd + Copy>(rule: Rule) -> BestFunction {
            match rule {
                $(Rule { largest: $largest, least_number: $least } => leveled_best::<$name, T>(),)+
            }
        }
    };
}
orders! {
    Largest: true false;
    FirstLargest: true true;
    Smallest: false false;
    FirstSmallest: false true;
}

#[inline(always)]
unsafe fn best<O: Order<T>, T: PartialOrd + Copy>(line: Line) {
    let values = line.values.cast::<T>();
    // SAFETY: the caller's `count` elements are valid; chunks lie within.
    let at = |i: usize| unsafe { (values.add(i).read_unaligned(), line.numbers.add(i).read_unaligned()) };
    let mut found = at(0);
    let mut done = 1;
    if line.count >= 2 * LANES {
        // SAFETY: as above.
        let chunk = |i: usize| unsafe {
            (
                values.add(i).cast::<[T; LANES]>().read_unaligned(),
                line.numbers.add(i).cast::<[i32; LANES]>().read_unaligned(),
            )
        };
        let (mut most, mut numbers) = chunk(0);
        done = LANES;
        while done + LANES <= line.count {
            let (x, number) = chunk(done);
            for i in 0..LANES {
                let keeps = O::keeps((most[i], numbers[i]), (x[i], number[i]));
                most[i] = if keeps { most[i] } else { x[i] };
                numbers[i] = if keeps { numbers[i] } else { number[i] };
            }
            done += LANES;
        }
        found = (most[0], numbers[0]);
        for i in 1..LANES {
            let other = (most[i], numbers[i]);
            found = if O::keeps(found, other) { found } else { other };
        }
    }
    for i in done..line.count {
        let other = at(i);
        found = if O::keeps(found, other) { found } else { other };
    }
    // SAFETY: there is room for one of each.
    unsafe {
        line.value.cast::<T>().write_unaligned(found.0);
        line.number.write_unaligned(found.1);
    }
}

leveled! {
    fn leveled_best<O, T>(line: Line) -> BestFunction
    where { O: Order<T>, T: PartialOrd + Copy } = best
}

/// The function for values of a type; none for types that are compared otherwise.
pub(crate) fn best_of(rule: Rule, scalar: openmps_tile::Scalar) -> Option<BestFunction> {
    use openmps_tile::Scalar::*;
    Some(match scalar {
        F32 => of::<f32>(rule),
        F64 => of::<f64>(rule),
        I8 => of::<i8>(rule),
        I16 => of::<i16>(rule),
        I32 => of::<i32>(rule),
        I64 => of::<i64>(rule),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use openmps_tile::Scalar;

    #[test]
    fn numbers_beat_nan_wherever_it_stands() {
        for (place, count) in [(0, 3), (2, 3), (0, 100), (40, 100), (99, 100)] {
            let mut values = vec![f32::NAN; count];
            values[place] = -1.0;
            let numbers: Vec<i32> = (0..count as i32).collect();
            for largest in [false, true] {
                let (mut value, mut number) = (0f32, -1);
                let (values, numbers) = (values.as_ptr().cast(), numbers.as_ptr());
                let line = Line { values, numbers, count, value: (&raw mut value).cast(), number: &raw mut number };
                // SAFETY: both vectors have `count` elements.
                unsafe { best_of(Rule { largest, least_number: true }, Scalar::F32).expect("a function")(line) };
                assert_eq!((value, number), (-1.0, place as i32));
            }
        }
    }

    #[test]
    fn the_best_element_is_found_with_its_number() {
        for count in [1, 2, 31, 63, 64, 65, 96, 200] {
            for (largest, least_number) in [(false, false), (false, true), (true, false), (true, true)] {
                let values: Vec<f32> = (0..count).map(|i| ((i * 37) % 11) as f32).collect();
                // Numbers that run backwards: the least one is not the first.
                let numbers: Vec<i32> = (0..count as i32).rev().collect();
                let (mut value, mut number) = (f32::NAN, -1);
                let line = Line {
                    values: values.as_ptr().cast(),
                    numbers: numbers.as_ptr(),
                    count,
                    value: (&raw mut value).cast(),
                    number: &raw mut number,
                };
                let function = best_of(Rule { largest, least_number }, Scalar::F32).expect("a function");
                // SAFETY: both vectors have `count` elements.
                unsafe { function(line) };
                let best = |x: f32, y: &f32| if largest { x.max(*y) } else { x.min(*y) };
                let expected = values.iter().fold(values[0], best);
                assert_eq!(value, expected, "{count} {largest}");
                let equal = |&&i: &&i32| values[count - 1 - i as usize] == expected;
                let first = *numbers.iter().filter(equal).min().expect("one");
                assert!(if least_number { number == first } else { equal(&&number) }, "{count}: {number}");
            }
        }
    }
}
