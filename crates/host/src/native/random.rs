//! Random numbers from Philox 4x32-10: element `i` depends on the seed and `i` alone, never on threads or vectors.

use super::memory::{Element, slice_mut};
use crate::Error;
use crate::vector::double;
use crate::{Level, level, threads};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a random tensor's numbers come from. Two tensors with the same seed and offset get the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The generator's seed.
    pub seed: u64,
    /// Which stream of this seed; a generator counts it up with every tensor that it fills.
    pub offset: u64,
}

/// Counters that are encrypted side by side; a block of numbers is the four words of as many counters.
const WIDTH: usize = 16;
/// 32-bit numbers of one block.
const BLOCK: usize = 4 * WIDTH;

/// The numbers of one block: word `w` of counter `c` is number `w * WIDTH + c`.
type Block = [[u32; WIDTH]; 4];

impl Source {
    /// The block of that number.
    #[inline(always)]
    fn block(self, number: u64) -> Block {
        self.counters::<WIDTH>(number * WIDTH as u64)
    }

    /// The four words of each of `N` counters from this one on, side by side.
    #[inline(always)]
    fn counters<const N: usize>(self, first: u64) -> [[u32; N]; 4] {
        let mut words = [[0; N]; 4];
        #[allow(clippy::needless_range_loop)] // Four arrays side by side: this form vectorises.
        for c in 0..N {
            let counter = first + c as u64;
            words[0][c] = counter as u32;
            words[1][c] = (counter >> 32) as u32;
            words[2][c] = self.offset as u32;
            words[3][c] = (self.offset >> 32) as u32;
        }
        let (mut low, mut high) = (self.seed as u32, (self.seed >> 32) as u32);
        for _ in 0..10 {
            let [x0, x1, x2, x3] = words;
            for c in 0..N {
                let (a, b) = (x0[c] as u64 * 0xD251_1F53, x2[c] as u64 * 0xCD9E_8D57);
                words[0][c] = (b >> 32) as u32 ^ x1[c] ^ low;
                words[1][c] = b as u32;
                words[2][c] = (a >> 32) as u32 ^ x3[c] ^ high;
                words[3][c] = a as u32;
            }
            low = low.wrapping_add(0x9E37_79B9);
            high = high.wrapping_add(0xBB67_AE85);
        }
        words
    }
}

/// The numbers of one element of a tensor, of which a law takes as many as it wants.
pub(super) struct Stream {
    source: Source,
    counter: u64,
    /// The words of the counter before; two make a number.
    words: [u32; 4],
    /// Numbers of these words that are not taken yet.
    left: usize,
}

/// Counters that an element has for itself: 2 to the power of so many.
const OWN: u32 = 28;

impl Stream {
    pub(super) fn new(source: Source, element: usize) -> Stream {
        Stream { source, counter: (element as u64) << OWN, words: [0; 4], left: 0 }
    }

    /// A number in [0, 1) with 53 random bits.
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        if self.left == 0 {
            self.words = self.source.counters::<1>(self.counter).map(|[word]| word);
            (self.counter, self.left) = (self.counter + 1, 2);
        }
        self.left -= 1;
        unit_f64(self.words[2 * self.left], self.words[2 * self.left + 1])
    }

    /// A time between events, of which one is expected in a unit of time.
    pub(super) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// A standard normal number.
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Runs a loop compiled for the processor's vector instructions; the numbers are the same at every level.
#[inline(always)]
fn at_level(work: impl Fn()) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma,bmi2")]
        fn avx2(work: impl Fn()) {
            work();
        }
        #[target_feature(enable = "avx2,fma,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512(work: impl Fn()) {
            work();
        }
        match level() {
            // SAFETY: the level says that the processor has these instructions.
            Level::Avx512 => return unsafe { avx512(work) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { avx2(work) },
            Level::Portable => {}
        }
    }
    let _ = (level as fn() -> Level, Level::Portable);
    work();
}

/// Fills `len` elements, `N` at a time from one block; the last ones come from a block of which the rest is dropped.
#[inline(always)]
fn fill<T: Element, const N: usize>(
    out: usize,
    len: usize,
    ns: usize,
    source: Source,
    values: impl Fn(&Block, usize, &mut [T; N]) + Sync,
) {
    threads::parallel_for(len.div_ceil(N), ns * N, |begin, end| {
        at_level(
            #[inline(always)]
            || {
                for number in begin..end {
                    let first = number * N;
                    let mut made = [T::ZERO; N];
                    values(&source.block(number as u64), first, &mut made);
                    let count = N.min(len - first);
                    // SAFETY: the callers' promise: `len` elements, of which this thread alone has these.
                    let to = unsafe { slice_mut::<T>(out + first * size_of::<T>(), count) };
                    if count == N {
                        to.copy_from_slice(&made);
                    } else {
                        to.copy_from_slice(&made[..count]);
                    }
                }
            },
        );
    });
}

/// Fills `len` elements, each by a number in [0, 1) with 53 random bits.
#[inline(always)]
fn of_units<T: Element>(out: usize, len: usize, ns: usize, source: Source, value: impl Fn(f64) -> f64 + Sync) {
    fill::<T, { BLOCK / 2 }>(
        out,
        len,
        ns,
        source,
        #[inline(always)]
        |block, _, made| {
            for (i, element) in made.iter_mut().enumerate() {
                let (a, b) = pair(block, i);
                *element = T::from_f64(value(unit_f64(a, b)));
            }
        },
    );
}

/// The flat words of a block.
#[inline(always)]
fn words(block: &Block) -> &[u32; BLOCK] {
    block.as_flattened().try_into().expect("a block has this many words")
}

/// A number in [0, 1) with 24 random bits, exact in `f32`.
#[inline(always)]
fn unit_f32(word: u32) -> f32 {
    (word >> 8) as i32 as f32 * (1.0 / (1 << 24) as f32)
}

/// A number in [0, 1) with 53 random bits.
#[inline(always)]
fn unit_f64(low: u32, high: u32) -> f64 {
    (((high as u64) << 32 | low as u64) >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// 64 random bits of number `i` of a block that holds half as many of them.
#[inline(always)]
fn pair(block: &Block, i: usize) -> (u32, u32) {
    let words = words(block);
    (words[i], words[i + BLOCK / 2])
}

/// The largest number of the type below `high`, or nearly so: what would be rounded up to that bound, which is excluded, becomes it.
fn last_below<T: Element>(low: f64, high: f64) -> T {
    let near = |bits: i32| T::from_f64(high - (high - low) * 0.5_f64.powi(bits));
    let found = (1..=f64::MANTISSA_DIGITS as i32).rev().map(near).find(|number| number.to_f64() < high);
    found.unwrap_or_else(|| T::from_f64(low))
}

/// Uniform numbers in [low, high).
///
/// # Safety
/// `len` elements of `T` at `out` must be writable.
pub unsafe fn uniform<T: Element>(out: usize, len: usize, source: Source, low: f64, high: f64) {
    let last = last_below::<T>(low, high).to_f64();
    if size_of::<T>() == 8 {
        return of_units::<T>(out, len, 2, source, |unit| (low + unit * (high - low)).min(last));
    }
    let (low, span, last) = (low as f32, (high - low) as f32, last as f32);
    fill::<f32, BLOCK>(out, if size_of::<T>() == 4 { len } else { 0 }, 1, source, |block, _, made| {
        for (value, &word) in made.iter_mut().zip(words(block)) {
            *value = (low + unit_f32(word) * span).min(last);
        }
    });
    fill::<T, BLOCK>(out, if size_of::<T>() == 4 { 0 } else { len }, 2, source, |block, _, made| {
        for (value, &word) in made.iter_mut().zip(words(block)) {
            *value = T::from_f64((low + unit_f32(word) * span).min(last) as f64);
        }
    });
}

/// Normal numbers of this mean and standard deviation (Box and Muller's method).
///
/// # Safety
/// `len` elements of `T` at `out` must be writable.
pub unsafe fn normal<T: Element>(out: usize, len: usize, source: Source, mean: f64, deviation: f64) {
    if size_of::<T>() == 8 {
        return fill::<T, { BLOCK / 2 }>(
            out,
            len,
            5,
            source,
            #[inline(always)]
            |block, _, made| {
                for i in 0..BLOCK / 4 {
                    let ((a, b), (c, d)) = (pair(block, i), pair(block, i + BLOCK / 4));
                    let radius = deviation * (-2.0 * double::log(1.0 - unit_f64(a, b))).sqrt();
                    let angle = std::f64::consts::TAU * unit_f64(c, d);
                    let (sine, cosine) = (double::sin(angle), double::cos(angle));
                    made[i] = T::from_f64(mean + radius * cosine);
                    made[i + BLOCK / 4] = T::from_f64(mean + radius * sine);
                }
            },
        );
    }
    let (mean, deviation) = (mean as f32, deviation as f32);
    let halves = |block: &Block| {
        let mut values = [0.0_f32; BLOCK];
        let words = words(block);
        for i in 0..BLOCK / 2 {
            let (cosine, sine) = normal_pair(words[i], words[i + BLOCK / 2]);
            values[i] = mean + deviation * cosine;
            values[i + BLOCK / 2] = mean + deviation * sine;
        }
        values
    };
    if size_of::<T>() == 4 {
        fill::<f32, BLOCK>(out, len, 2, source, |block, _, made| *made = halves(block));
    } else {
        fill::<T, BLOCK>(out, len, 3, source, |block, _, made| {
            *made = halves(block).map(|value| T::from_f64(value as f64));
        });
    }
}

/// Two independent standard normal numbers of two words, in arithmetic that vectorises.
#[inline(always)]
fn normal_pair(first: u32, second: u32) -> (f32, f32) {
    // 31 bits, never zero: the logarithm is finite and the tail reaches 6.5 deviations.
    let unit = ((first >> 1) as i32 as f32 + 1.0) * (1.0 / (1_u32 << 31) as f32);
    let radius = (-2.0 * logarithm(unit)).max(0.0).sqrt();
    // A quarter turn and which quarter it is.
    let turn = (second << 2 >> 8) as i32 as f32 * (1.0 / (1 << 24) as f32);
    let (sine, cosine) = quarter_turn(turn);
    let swapped = second >> 30 & 1 == 1;
    let (sine, cosine) = if swapped { (cosine, -sine) } else { (sine, cosine) };
    let sign = if second >> 31 == 1 { -1.0 } else { 1.0 };
    (radius * cosine * sign, radius * sine * sign)
}

/// The natural logarithm of a positive normal number, to about 1e-7.
#[inline(always)]
fn logarithm(x: f32) -> f32 {
    let bits = x.to_bits() as i32 - 0x3f35_04f3;
    let exponent = (bits >> 23) as f32;
    let m = f32::from_bits(((bits & 0x007f_ffff) + 0x3f35_04f3) as u32) - 1.0;
    // Cephes' polynomial for log(1 + m), sqrt(1/2) <= 1 + m < sqrt(2).
    let terms = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1_f32,
    ];
    let series = terms.into_iter().fold(0.0, |sum, term| sum * m + term);
    m + m * m * (series * m - 0.5) + exponent * std::f32::consts::LN_2
}

/// Sine and cosine of `turn` quarter turns, 0 <= turn < 1.
#[inline(always)]
fn quarter_turn(turn: f32) -> (f32, f32) {
    let angle = turn * std::f32::consts::FRAC_PI_2;
    let square = angle * angle;
    let sine = [2.755_731_4e-6, -1.984_127e-4, 8.333_333e-3, -1.666_666_7e-1, 1.0_f32];
    let cosine = [2.480_158_7e-5, -1.388_888_9e-3, 4.166_666_8e-2, -0.5, 1.0_f32];
    let series = |terms: [f32; 5]| terms.into_iter().fold(0.0, |sum, term| sum * square + term);
    (angle * series(sine), series(cosine) - square * square * square * square * square * 2.755_732e-7)
}

/// Integers in [low, high), `low < high`.
///
/// # Safety
/// `len` elements of `T` at `out` must be writable.
pub unsafe fn integers<T: Element>(out: usize, len: usize, source: Source, low: i64, high: i64) {
    let span = high.wrapping_sub(low) as u64;
    fill::<T, { BLOCK / 2 }>(out, len, 2, source, |block, _, made| {
        for (i, value) in made.iter_mut().enumerate() {
            let (a, b) = pair(block, i);
            let bits = (b as u64) << 32 | a as u64;
            let scaled = ((bits as u128 * span as u128) >> 64) as u64;
            *value = T::from_i64(low.wrapping_add(scaled as i64));
        }
    });
}

/// Ones where a uniform number is below the element of `probabilities`, zeros elsewhere; an error where one is no probability.
///
/// # Safety
/// `len` elements of `T` at `out` must be writable and at `probabilities` readable.
pub unsafe fn bernoulli<T: Element>(out: usize, probabilities: usize, len: usize, source: Source) -> Result<(), Error> {
    let wrong = AtomicUsize::new(usize::MAX);
    // SAFETY: promised by the caller.
    let probabilities = unsafe { super::memory::slice::<T>(probabilities, len) };
    fill::<T, BLOCK>(out, len, 2, source, |block, first, made| {
        for ((value, &word), chance) in made.iter_mut().zip(words(block)).zip(&probabilities[first..]) {
            *value = if (unit_f32(word) as f64) < chance.to_f64() { T::ONE } else { T::ZERO };
        }
        let chances = &probabilities[first..len.min(first + made.len())];
        if let Some(at) = chances.iter().position(|chance| !(0.0..=1.0).contains(&chance.to_f64())) {
            wrong.fetch_min(first + at, Ordering::Relaxed);
        }
    });
    match wrong.into_inner() {
        usize::MAX => Ok(()),
        position => Err(Error::Value { what: "probability", value: probabilities[position].to_f64(), position }),
    }
}

/// Bytes that are 0 with probability `drop` and 1 otherwise.
///
/// # Safety
/// `len` bytes at `out` must be writable.
pub unsafe fn keep_mask(out: usize, len: usize, source: Source, drop: f64) {
    // In integers: exact for 0 and 1 too.
    let bound = (drop * (1_u64 << 32) as f64).round() as u64;
    fill::<u8, BLOCK>(out, len, 1, source, |block, _, made| {
        for (value, &word) in made.iter_mut().zip(words(block)) {
            *value = u8::from(word as u64 >= bound);
        }
    });
}

/// Numbers of the exponential distribution of this rate.
///
/// # Safety
/// `len` elements of `T` at `out` must be writable.
pub unsafe fn exponential<T: Element>(out: usize, len: usize, source: Source, rate: f64) {
    of_units::<T>(
        out,
        len,
        3,
        source,
        #[inline(always)]
        |unit| -double::log(1.0 - unit) / rate,
    );
}

/// Normal numbers of this mean and deviation of which only those between `low` and `high` are kept.
///
/// # Safety
/// `len` elements of `T` at `out` must be writable.
pub unsafe fn truncated_normal<T: Element>(
    out: usize,
    len: usize,
    source: Source,
    (mean, deviation): (f64, f64),
    (low, high): (f64, f64),
) {
    let below = |bound: f64| super::normal_distribution::below((bound - mean) / deviation);
    // Without a deviation all numbers are the mean, also where it is a bound.
    let [from, to] = if deviation == 0.0 { [0.5; 2] } else { [below(low), below(high)] };
    of_units::<T>(
        out,
        len,
        5,
        source,
        #[inline(always)]
        |unit| {
            let z = super::normal_distribution::quantile(from + unit * (to - from));
            // Not `clamp`, which ends the process where there is nothing between the bounds.
            (mean + deviation * z).max(low).min(high)
        },
    );
}

/// The numbers 0 to `len - 1` in random order (Fisher and Yates' shuffle).
///
/// # Safety
/// `len` elements of `T` at `out` must be writable.
pub unsafe fn permutation<T: Element>(out: usize, len: usize, source: Source) {
    // SAFETY: promised by the caller.
    let out = unsafe { slice_mut::<T>(out, len) };
    for (i, value) in out.iter_mut().enumerate() {
        *value = T::from_i64(i as i64);
    }
    let mut block = source.block(0);
    for last in (1..len).rev() {
        let step = len - 1 - last;
        let at = step % (BLOCK / 2);
        if at == 0 && step > 0 {
            block = source.block((step / (BLOCK / 2)) as u64);
        }
        let (a, b) = pair(&block, at);
        let bits = (b as u64) << 32 | a as u64;
        out.swap(last, ((bits as u128 * (last as u128 + 1)) >> 64) as usize);
    }
}

#[cfg(test)]
mod tests;
