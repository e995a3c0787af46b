//! The element types that are pooled.

use crate::native::scratch::Plain;
use half::{bf16, f16};

/// An element type that can be pooled; sums are made in `Sum`.
pub trait Pooled: Copy + Send + Sync {
    /// The type of sums.
    type Sum: Plain + Copy + PartialOrd + std::ops::AddAssign + std::ops::Div<Output = Self::Sum> + From<u16>;
    /// The smallest finite number, the result of an empty window.
    const LOWEST: Self::Sum;
    /// The element as a sum.
    fn widen(self) -> Self::Sum;
    /// A sum rounded to an element.
    fn narrow(sum: Self::Sum) -> Self;
    /// A number of elements as a sum.
    fn count(count: usize) -> Self::Sum;
}

macro_rules! pooled {
    ($($type:ty, $sum:ty, $lowest:expr, $widen:expr, $narrow:expr;)*) => {$(
        impl Pooled for $type {
            type Sum = $sum;
            const LOWEST: $sum = $lowest;
            #[inline(always)]
            fn widen(self) -> $sum {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(sum: $sum) -> Self {
                $narrow(sum)
            }
            #[inline(always)]
            fn count(count: usize) -> $sum {
                count as $sum
            }
        }
    )*};
}

pooled! {
    f32, f32, f32::MIN, |x| x, |x| x;
    f64, f64, f64::MIN, |x| x, |x| x;
    f16, f32, -65504.0, f16::to_f32, f16::from_f32;
    bf16, f32, -3.389_531_4e38, bf16::to_f32, bf16::from_f32;
}

/// The larger one; NaN where either is.
#[inline(always)]
#[allow(clippy::eq_op)]
pub(super) fn larger<T: Pooled>(most: T::Sum, value: T::Sum) -> T::Sum {
    // A value that differs from itself is NaN, which stays.
    if value > most || value != value { value } else { most }
}
