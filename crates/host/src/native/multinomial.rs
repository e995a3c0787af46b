//! Numbers of categories drawn by their weights, with and without replacement.

use super::memory::{Element, slice, slice_mut};
use super::random::{Source, exponential, uniform};
use crate::Error;
use crate::threads::parallel_for;
use crate::vector::leveled;

/// How many are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draws {
    /// So many, of all categories each time.
    Replaced(usize),
    /// So many, none of them twice.
    Distinct(usize),
}

/// For each row of `weights` the drawn categories. A row whose weights cannot be drawn from is an error before anything is written.
///
/// # Safety
/// `rows` x `categories` elements of `T` at `weights` must be readable, and an `i64` for each row and draw at `out` writable.
pub unsafe fn multinomial<T: Element>(
    out: usize,
    weights: usize,
    [rows, categories]: [usize; 2],
    draws: Draws,
    source: Source,
) -> Result<(), Error> {
    // SAFETY: promised by the caller.
    let weights = unsafe { slice::<T>(weights, rows * categories) };
    let row = |number: usize| &weights[number * categories..][..categories];
    let largest = (0..rows).map(|number| checked(row(number), number, draws)).collect::<Result<Vec<f64>, Error>>()?;
    // One draw is one draw, and the race of all categories the slower way to it.
    let draws = if draws == Draws::Distinct(1) { Draws::Replaced(1) } else { draws };
    let (Draws::Replaced(count) | Draws::Distinct(count)) = draws;
    let mut drawn = vec![0.0_f64; rows * if let Draws::Replaced(_) = draws { count } else { categories }];
    let numbers = drawn.as_mut_ptr() as usize;
    // SAFETY: an array of this many elements.
    unsafe {
        match draws {
            Draws::Replaced(_) => uniform::<f64>(numbers, drawn.len(), source, 0.0, 1.0),
            Draws::Distinct(_) => exponential::<f64>(numbers, drawn.len(), source, 1.0),
        }
    }
    let ns = match draws {
        Draws::Replaced(_) => 40 * count + categories,
        Draws::Distinct(_) => 30 * categories,
    };
    parallel_for(rows, ns, |begin, end| {
        for number in begin..end {
            // SAFETY: this task alone has this row of the output, as the caller promised.
            let to = unsafe { slice_mut::<i64>(out + number * count * size_of::<i64>(), count) };
            match draws {
                Draws::Replaced(_) => {
                    replaced(row(number), largest[number], &drawn[number * count..][..count], to);
                }
                Draws::Distinct(_) => distinct(row(number), &drawn[number * categories..][..categories], to),
            }
        }
    });
    Ok(())
}

/// The largest weight of a row that can be drawn from.
fn checked<T: Element>(weights: &[T], row: usize, draws: Draws) -> Result<f64, Error> {
    let Bounds { possible, largest, is_valid } = Bounds::of(weights);
    if let Some(at) = weights.iter().position(|weight| !is_valid && (weight.is_nan() || weight.to_f64() < 0.0)) {
        let weight = weights[at].to_f64();
        return Err(Error::Invalid(format!(
            "the probability of category {at} in row {row} is {weight}, expected 0 or more"
        )));
    }
    match draws {
        _ if possible == 0 => Err(Error::Invalid(format!("the probabilities of row {row} are all 0"))),
        Draws::Distinct(count) if count > possible => Err(Error::Invalid(format!(
            "num_samples is {count} without replacement, but only {possible} categories of row {row} have a probability above 0"
        ))),
        _ => Ok(largest),
    }
}

/// What is asked of the weights of a row.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// How many are above 0.
    possible: usize,
    largest: f64,
    /// None is negative or NaN.
    is_valid: bool,
}

/// Weights that are looked at side by side.
const LANES: usize = 8;
/// Weights of which one sum is kept.
const BLOCK: usize = 64;

impl Bounds {
    fn of<T: Element>(weights: &[T]) -> Bounds {
        let mut bounds = Bounds { possible: 0, largest: 0.0, is_valid: true };
        // SAFETY: the level's instance of a function that is safe.
        unsafe { leveled_bounds::<T>()(weights, &mut bounds) };
        bounds
    }
}

type FindBounds<T> = unsafe fn(&[T], &mut Bounds);

leveled! {
    fn leveled_bounds<T>(weights: &[T], found: &mut Bounds) -> FindBounds<T> where { T: Element } = find_bounds
}

/// [`Bounds::of`] the weights.
///
/// # Safety
/// Nothing of its own: each instance is for the CPUs of a level.
#[inline(always)]
unsafe fn find_bounds<T: Element>(weights: &[T], found: &mut Bounds) {
    let (mut possible, mut largest, mut wrong) = ([0_u64; LANES], [0.0_f64; LANES], [0_u64; LANES]);
    let (chunks, rest) = weights.as_chunks::<LANES>();
    let mut look = [T::ZERO; LANES];
    look[..rest.len()].copy_from_slice(rest);
    for chunk in chunks.iter().chain([&look]) {
        for lane in 0..LANES {
            let weight = chunk[lane].to_f64();
            possible[lane] += u64::from(weight > 0.0);
            largest[lane] = if weight > largest[lane] { weight } else { largest[lane] };
            wrong[lane] |= u64::from((weight < 0.0) | weight.is_nan());
        }
    }
    *found = Bounds {
        possible: possible.iter().sum::<u64>() as usize,
        largest: largest.into_iter().fold(0.0, f64::max),
        is_valid: wrong == [0; LANES],
    };
}

/// Weights as widths of intervals that lie one behind the other.
struct Intervals<'w, T> {
    weights: &'w [T],
    largest: f64,
    /// What weights are times, so that the sum of all is finite.
    factor: f64,
}

impl<T: Element> Intervals<'_, T> {
    #[inline(always)]
    fn width(&self, weight: T) -> f64 {
        // Of infinite weights each is as likely as the other.
        let of_infinite = if weight.to_f64() == f64::INFINITY { 1.0 } else { 0.0 };
        if self.largest == f64::INFINITY { of_infinite } else { weight.to_f64() * self.factor }
    }

    /// The interval of that number, which lies in this block.
    fn within(&self, block: usize, mut number: f64) -> usize {
        let first = block * BLOCK;
        let mut last = first;
        for (at, &weight) in (first..).zip(&self.weights[first..self.weights.len().min(first + BLOCK)]) {
            let width = self.width(weight);
            if width > 0.0 {
                last = at;
                if number < width {
                    break;
                }
            }
            number -= width;
        }
        // What rounding leaves is of the last that can be drawn.
        last
    }
}

type FindEnds<T> = unsafe fn(&Intervals<'_, T>, &mut Vec<f64>);

leveled! {
    fn leveled_ends<T>(intervals: &Intervals<'_, T>, ends: &mut Vec<f64>) -> FindEnds<T> where { T: Element } = find_ends
}

/// The ends of blocks of intervals.
///
/// # Safety
/// Nothing of its own: each instance is for the CPUs of a level.
#[inline(always)]
unsafe fn find_ends<T: Element>(intervals: &Intervals<'_, T>, ends: &mut Vec<f64>) {
    let mut end = 0.0;
    for block in intervals.weights.chunks(BLOCK) {
        let mut sums = [0.0; LANES];
        let (chunks, rest) = block.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                sums[lane] += intervals.width(chunk[lane]);
            }
        }
        for &weight in rest {
            sums[0] += intervals.width(weight);
        }
        end += sums.iter().sum::<f64>();
        ends.push(end);
    }
}

/// A number falls into one of the intervals, whose largest is given.
fn replaced<T: Element>(weights: &[T], largest: f64, numbers: &[f64], to: &mut [i64]) {
    let factor = if largest > 1.0 { 1.0 / largest } else { 1.0 };
    let intervals = Intervals { weights, largest, factor };
    let mut ends = Vec::with_capacity(weights.len().div_ceil(BLOCK));
    // SAFETY: the level's instance of a function that is safe.
    unsafe { leveled_ends::<T>()(&intervals, &mut ends) };
    let total = ends.last().copied().unwrap_or(0.0);
    // A number may be rounded up to the end of all.
    let last = ends.partition_point(|&end| end < total);
    for (to, number) in to.iter_mut().zip(numbers) {
        let number = number * total;
        let block = ends.partition_point(|&end| end <= number).min(last);
        let begin = if block > 0 { ends[block - 1] } else { 0.0 };
        *to = intervals.within(block, number - begin) as i64;
    }
}

/// A race of the categories, each of which arrives at a rate that is its weight: the order of arrival is that of draws without replacement.
fn distinct<T: Element>(weights: &[T], times: &[f64], to: &mut [i64]) {
    let mut arrivals: Vec<(f64, usize)> = (weights.iter().zip(times).enumerate())
        .filter(|(_, (weight, _))| weight.to_f64() > 0.0)
        .map(|(category, (weight, time))| (time / weight.to_f64(), category))
        .collect();
    let order = |x: &(f64, usize), y: &(f64, usize)| x.0.total_cmp(&y.0).then(x.1.cmp(&y.1));
    if to.len() < arrivals.len() && !to.is_empty() {
        arrivals.select_nth_unstable_by(to.len() - 1, order);
        arrivals.truncate(to.len());
    }
    arrivals.sort_unstable_by(order);
    to.iter_mut().zip(&arrivals).for_each(|(to, &(_, category))| *to = category as i64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(weights: &[f32], draws: Draws, seed: u64) -> Result<Vec<i64>, String> {
        let (Draws::Replaced(count) | Draws::Distinct(count)) = draws;
        let mut out = vec![-1_i64; count];
        let source = Source { seed, offset: 0 };
        // SAFETY: arrays of these sizes.
        unsafe {
            let (to, from) = (out.as_mut_ptr() as usize, weights.as_ptr() as usize);
            multinomial::<f32>(to, from, [1, weights.len()], draws, source)
        }
        .map_err(|error| error.to_string())?;
        Ok(out)
    }

    /// How often each category is among the draws, and the weights' shares.
    fn shares(drawn: &[i64], categories: usize) -> Vec<f64> {
        let mut counts = vec![0.0; categories];
        drawn.iter().for_each(|&category| counts[category as usize] += 1.0 / drawn.len() as f64);
        counts
    }

    #[test]
    fn shares_are_those_of_the_weights() {
        let drawn = draw(&[3.0, 0.0, 1.0, 4.0], Draws::Replaced(80_000), 5).unwrap();
        for (share, expected) in shares(&drawn, 4).into_iter().zip([0.375, 0.0, 0.125, 0.5]) {
            assert!((share - expected).abs() < 0.01 && (expected > 0.0 || share == 0.0), "{share} of {expected}");
        }
    }

    /// More than a block, with ends that rounding moves, and weights of 0 at all edges.
    #[test]
    fn categories_of_weight_0_are_never_drawn() {
        let weights: Vec<f32> = (0..1001).map(|i| if i % 3 == 1 { (i % 7) as f32 * 0.1 } else { 0.0 }).collect();
        for draws in [Draws::Replaced(20_000), Draws::Distinct(1), Draws::Distinct(285)] {
            for seed in 1..20 {
                assert!(draw(&weights, draws, seed).unwrap().iter().all(|&drawn| weights[drawn as usize] > 0.0));
            }
        }
        let drawn = draw(&vec![1.0; 640], Draws::Replaced(64_000), 2).unwrap();
        assert!(shares(&drawn, 640).iter().all(|share| (share * 640.0 - 1.0).abs() < 0.5));
    }

    #[test]
    fn without_replacement_is_one_draw_after_the_other() {
        // P(first = i) = w_i, P(second = j | first = i) = w_j / (1 - w_i)
        let weights = [0.5, 0.3, 0.2];
        let pairs: Vec<Vec<i64>> =
            (0..20_000).map(|seed| draw(&weights, Draws::Distinct(2), seed + 1).unwrap()).collect();
        for i in 0..3 {
            for j in (0..3).filter(|&j| j != i) {
                let share = pairs.iter().filter(|pair| **pair == [i as i64, j as i64]).count() as f64 / 20_000.0;
                let expected = f64::from(weights[i]) * f64::from(weights[j]) / (1.0 - f64::from(weights[i]));
                assert!((share - expected).abs() < 0.015, "{i} and {j}: {share}, expected {expected}");
            }
        }
    }

    #[test]
    fn large_and_infinite_weights_stay_in_proportion() {
        let drawn = draw(&[f32::MAX, f32::MAX], Draws::Replaced(10_000), 1).unwrap();
        assert!((shares(&drawn, 2)[0] - 0.5).abs() < 0.03);
        assert_eq!(draw(&[0.5, f32::INFINITY], Draws::Replaced(3), 1), Ok(vec![1; 3]));
        assert_eq!(draw(&[0.5, f32::INFINITY], Draws::Distinct(2), 1), Ok(vec![1, 0]));
    }

    #[test]
    fn weights_that_cannot_be_drawn_from_are_refused() {
        assert!(draw(&[0.5, -0.5], Draws::Replaced(1), 1).unwrap_err().contains("category 1 in row 0 is -0.5"));
        assert!(draw(&[f32::NAN], Draws::Replaced(1), 1).unwrap_err().contains("is NaN"));
        assert!(draw(&[0.0, 0.0], Draws::Replaced(1), 1).unwrap_err().contains("all 0"));
        assert!(draw(&[0.0, 1.0], Draws::Distinct(2), 1).unwrap_err().contains("only 1 categories"));
    }
}
