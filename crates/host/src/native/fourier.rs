//! Fourier transforms of dense tensors along one axis: each line by the crate `rustfft`, in its own element type.

use super::lines::Lines;
use super::memory::Element;
use crate::threads::parallel_for;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The sign of the exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `e^(-2 pi i j k / n)`.
    Forward,
    /// `e^(2 pi i j k / n)`.
    Inverse,
}

impl Direction {
    /// The other one.
    pub fn opposite(self) -> Direction {
        match self {
            Direction::Forward => Direction::Inverse,
            Direction::Inverse => Direction::Forward,
        }
    }
}

/// What a transform with real numbers at one end leaves out: of a line of `n` numbers those from `n / 2 + 1` on, which are the conjugates of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirrored {
    /// A number stands for itself.
    No,
    /// A number stands for its mirror image too: a real result is made of both, a gradient is that of both.
    Yes,
}

/// The transforms of one length that have been planned.
type Plans<T> = Mutex<HashMap<(usize, Direction), Arc<dyn Fft<T>>>>;

/// How many plans are kept.
const KEPT: usize = 64;

/// Lines that lie beside each other and are transformed together, so that a cache line is read once.
const GROUP: usize = 8;

/// A type of real numbers that is transformed.
pub trait Real: Element + FftNum {
    /// The plans of this type.
    fn plans() -> &'static Plans<Self>;
}

macro_rules! real {
    ($($type:ty),*) => { $(
        impl Real for $type {
            fn plans() -> &'static Plans<$type> {
                static PLANS: std::sync::LazyLock<Plans<$type>> = std::sync::LazyLock::new(Plans::default);
                &PLANS
            }
        }
    )* };
}
real!(f32, f64);

fn plan<T: Real>(size: usize, direction: Direction) -> Arc<dyn Fft<T>> {
    let mut plans = T::plans().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(plan) = plans.get(&(size, direction)) {
        return plan.clone();
    }
    if plans.len() >= KEPT {
        plans.clear();
    }
    let made = FftPlanner::new().plan_fft(
        size,
        match direction {
            Direction::Forward => FftDirection::Forward,
            Direction::Inverse => FftDirection::Inverse,
        },
    );
    plans.insert((size, direction), made.clone());
    made
}

/// Transforms lines: `load` gives number `i` of line `(outer, inner)`, `store` takes it, each by `[outer, i, inner]`.
fn transform<T: Real>(
    lines: Lines,
    direction: Direction,
    load: impl Fn([usize; 3]) -> Complex<T> + Sync,
    store: impl Fn([usize; 3], Complex<T>) + Sync,
) {
    let Lines { outer, size, inner } = lines;
    if outer * size * inner == 0 {
        return;
    }
    let (plan, groups) = (plan::<T>(size, direction), inner.div_ceil(GROUP));
    let zero = Complex { re: T::ZERO, im: T::ZERO };
    let steps = usize::BITS - size.leading_zeros();
    parallel_for(outer * groups, 2 * size * steps as usize * GROUP.min(inner), |begin, end| {
        let mut numbers = vec![zero; size * GROUP.min(inner)];
        let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
        for group in begin..end {
            let (o, first) = (group / groups, group % groups * GROUP);
            let count = GROUP.min(inner - first);
            for i in 0..size {
                for k in 0..count {
                    numbers[k * size + i] = load([o, i, first + k]);
                }
            }
            plan.process_with_scratch(&mut numbers[..count * size], &mut scratch);
            for i in 0..size {
                for k in 0..count {
                    store([o, i, first + k], numbers[k * size + i]);
                }
            }
        }
    });
}

fn scaled<T: Real>(number: Complex<T>, scale: f64) -> Complex<T> {
    let by = |part: T| <T as Element>::from_f64(Element::to_f64(part) * scale);
    if scale == 1.0 { number } else { Complex { re: by(number.re), im: by(number.im) } }
}

/// Where number `i` of a line of so many is, by `[outer, i, inner]`.
fn place(inner: usize, size: usize, index: [usize; 3]) -> usize {
    (index[0] * size + index[1]) * inner + index[2]
}

/// Complex numbers in place.
///
/// # Safety
/// `x` holds the lines as pairs of `T`, which nobody else uses.
pub unsafe fn complex<T: Real>(x: usize, lines: Lines, direction: Direction, scale: f64) {
    let at = |index| (x as *mut Complex<T>).wrapping_add(place(lines.inner, lines.size, index));
    transform::<T>(
        lines,
        direction,
        // SAFETY: inside the lines; this task alone has this one.
        |index| unsafe { at(index).read() },
        // SAFETY: as above.
        |index, number| unsafe { at(index).write(scaled(number, scale)) },
    );
}

/// Of real lines the first `keep` numbers. Those that stand for their mirror images too are doubled where `mirrored` says so.
///
/// # Safety
/// `x` holds the lines as `T` that nobody writes, `out` has room for lines of `keep <= lines.size` pairs of `T`, and is nobody else's.
pub unsafe fn from_real<T: Real>(
    (x, out): (usize, usize),
    lines: Lines,
    keep: usize,
    mirrored: Mirrored,
    direction: Direction,
    scale: f64,
) {
    let twice = match mirrored {
        Mirrored::Yes => 1..lines.size - keep + 1,
        Mirrored::No => 0..0,
    };
    transform::<T>(
        lines,
        direction,
        // SAFETY: inside the lines.
        |index| unsafe {
            Complex { re: (x as *const T).add(place(lines.inner, lines.size, index)).read(), im: T::ZERO }
        },
        |index, number| {
            if index[1] < keep {
                let scale = if twice.contains(&index[1]) { 2.0 * scale } else { scale };
                // SAFETY: inside the output; this task alone has this line.
                unsafe {
                    (out as *mut Complex<T>).add(place(lines.inner, keep, index)).write(scaled(number, scale));
                }
            }
        },
    );
}

/// The real parts of lines of which `given` numbers are there. The others are conjugates of those where `mirrored` says so, else zero.
///
/// # Safety
/// `x` holds lines of `given <= lines.size` pairs of `T` that nobody writes, which are more than half where they are mirrored; `out` has room for
/// the lines as `T`, and is nobody else's.
pub unsafe fn to_real<T: Real>(
    (x, out): (usize, usize),
    lines: Lines,
    given: usize,
    mirrored: Mirrored,
    direction: Direction,
    scale: f64,
) {
    // SAFETY: inside the lines.
    let read = |index| unsafe { (x as *const Complex<T>).add(place(lines.inner, given, index)).read() };
    transform::<T>(
        lines,
        direction,
        |[outer, i, inner]| match mirrored {
            _ if i < given => read([outer, i, inner]),
            Mirrored::Yes => read([outer, lines.size - i, inner]).conj(),
            Mirrored::No => Complex { re: T::ZERO, im: T::ZERO },
        },
        // SAFETY: inside the output; this task alone has this line.
        |index, number| unsafe {
            (out as *mut T).add(place(lines.inner, lines.size, index)).write(scaled(number, scale).re);
        },
    );
}
