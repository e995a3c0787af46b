//! One of two elements of float32 by a comparison of two others, in one pass.

use super::formula::{Formula, map};
use super::fused::FusedFunction;
use super::leveled;
use super::pair::of_three;
use crate::native::lanes::Lanes;
use openmps_tile::Compare;

/// `destination[i] = if x[i] < y[i] { yes[i] } else { no[i] }` for `i` in `0..count`, or by another comparison; the operands are x, y, yes and no. One that
/// repeats is read at its first element only.
pub type ChoiceFunction = unsafe fn(destination: *mut u8, operands: [*const u8; 4], repeats: [bool; 4], count: usize);

/// What the others are turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `x < y`.
    Less,
    /// `x <= y`.
    AtMost,
    /// `x == y`.
    Equal,
}

impl Comparison {
    /// A comparison of x and y that chooses from two others, as one of these, with what it chooses from.
    pub fn of<T>(comparison: Compare, [x, y, yes, no]: [T; 4]) -> Option<(Comparison, [T; 4])> {
        Some(match comparison {
            Compare::Less => (Comparison::Less, [x, y, yes, no]),
            Compare::LessEqual => (Comparison::AtMost, [x, y, yes, no]),
            Compare::Greater => (Comparison::Less, [y, x, yes, no]),
            Compare::GreaterEqual => (Comparison::AtMost, [y, x, yes, no]),
            Compare::Equal => (Comparison::Equal, [x, y, yes, no]),
            // With NaN it holds.
            Compare::NotEqual => (Comparison::Equal, [x, y, no, yes]),
            _ => return None,
        })
    }

    /// The function that chooses.
    pub fn function(self) -> ChoiceFunction {
        match self {
            Comparison::Less => leveled_map::<Less>(),
            Comparison::AtMost => leveled_map::<AtMost>(),
            Comparison::Equal => leveled_map::<Equal>(),
        }
    }
}

macro_rules! chosen {
    ($($name:ident = $method:ident;)+) => {
        $(struct $name;
        impl Formula<4> for $name {
            #[inline(always)]
            unsafe fn of<V: Lanes>([x, y, yes, no]: [V; 4]) -> V {
                // SAFETY: the caller vouches for the instructions.
                unsafe { x.$method(y, yes, no) }
            }
        })+
    };
}
chosen! { Less = where_less; AtMost = where_at_most; Equal = where_equal; }

/// The second operand where x is below it, then the third where that is above it.
struct Clamped;

impl Formula<3> for Clamped {
    #[inline(always)]
    unsafe fn of<V: Lanes>([x, low, high]: [V; 3]) -> V {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let raised = x.where_less(low, low, x);
            high.where_less(raised, high, raised)
        }
    }
}

#[inline(always)]
unsafe fn map_four<V: Lanes, F: Formula<4>>(to: *mut u8, operands: [*const u8; 4], repeats: [bool; 4], count: usize) {
    // SAFETY: passed on to the caller.
    unsafe { map::<V, F, 4>(to, operands, repeats, count) }
}

leveled! {
    fn leveled_map<F>(destination: *mut u8, operands: [*const u8; 4], repeats: [bool; 4], count: usize) -> ChoiceFunction
    where { F: Formula<4> } = map_four by lanes
}

/// The function for x within two bounds, the operands in this order: two choices, the first of the lower bound where x is below it. NaN stays.
pub fn clamp() -> FusedFunction {
    of_three::<Clamped>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers, both zeros, infinities and NaN among them.
    fn numbers(seed: f32) -> Vec<f32> {
        let special = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0, -1.0];
        (0..200)
            .map(|i| match i % 5 {
                0 => special[(i as f32 * seed) as usize % special.len()],
                _ => (i as f32 * seed).sin(),
            })
            .collect()
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|number| number.to_bits()).collect()
    }

    #[test]
    fn a_choice_is_a_comparison_and_a_selection() {
        let holds = |comparison, x: f32, y: f32| match comparison {
            Compare::Less => x < y,
            Compare::LessEqual => x <= y,
            Compare::Greater => x > y,
            Compare::GreaterEqual => x >= y,
            Compare::Equal => x == y,
            Compare::NotEqual => x != y,
            other => unreachable!("{other:?} is of integers"),
        };
        let operands = [0.3, 0.7, 1.1, 1.3].map(numbers);
        for comparison in [
            Compare::Less,
            Compare::LessEqual,
            Compare::Greater,
            Compare::GreaterEqual,
            Compare::Equal,
            Compare::NotEqual,
        ] {
            for (repeating, count) in (0..16).flat_map(|bits| [0, 1, 63, 64, 65, 200].map(|count| (bits, count))) {
                let repeats = [0, 1, 2, 3].map(|i| repeating >> i & 1 == 1);
                let at = |i: usize, element: usize| operands[i][if repeats[i] { 0 } else { element }];
                let (of, order) = Comparison::of(comparison, [0, 1, 2, 3]).expect("a comparison of floats");
                let mut out = vec![-9.0_f32; 201];
                // SAFETY: each vector has more than `count` elements.
                unsafe {
                    let places = order.map(|i| operands[i].as_ptr().cast());
                    of.function()(out.as_mut_ptr().cast(), places, order.map(|i| repeats[i]), count);
                }
                let mut expected = vec![-9.0_f32; 201];
                for (i, to) in expected.iter_mut().enumerate().take(count) {
                    *to = if holds(comparison, at(0, i), at(1, i)) { at(2, i) } else { at(3, i) };
                }
                assert_eq!(bits(&out), bits(&expected), "{comparison:?} {repeats:?} {count}");
            }
        }
        assert!(Comparison::of(Compare::LessUnsigned, [0; 4]).is_none());
    }

    #[test]
    fn a_clamp_is_two_choices() {
        let [x, low, high] = [0.3, 0.7, 1.1].map(numbers);
        let mut out = vec![0.0_f32; 200];
        // SAFETY: each vector has so many elements.
        unsafe {
            let places = [x.as_ptr(), low.as_ptr(), high.as_ptr()].map(|at| at.cast());
            clamp()(out.as_mut_ptr().cast(), places, [false; 3], 200);
        }
        let expected: Vec<f32> = (0..200)
            .map(|i| {
                let raised = if x[i] < low[i] { low[i] } else { x[i] };
                if raised > high[i] { high[i] } else { raised }
            })
            .collect();
        assert_eq!(bits(&out), bits(&expected));
    }
}
