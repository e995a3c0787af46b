//! Numbers of categories drawn by their weights, with and without replacement.

use super::memory::{Element, slice, slice_mut};
use super::random::{Source, exponential, uniform};
use crate::Error;
use crate::threads::parallel_for;

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
    let weights: Vec<f64> = weights.iter().map(|weight| weight.to_f64()).collect();
    let row = |number: usize| &weights[number * categories..][..categories];
    (0..rows).try_for_each(|number| check(row(number), number, draws))?;
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
    parallel_for(rows, 50 * (count + categories), |begin, end| {
        for number in begin..end {
            // SAFETY: this task alone has this row of the output, as the caller promised.
            let to = unsafe { slice_mut::<i64>(out + number * count * size_of::<i64>(), count) };
            match draws {
                Draws::Replaced(_) => replaced(row(number), &drawn[number * count..][..count], to),
                Draws::Distinct(_) => distinct(row(number), &drawn[number * categories..][..categories], to),
            }
        }
    });
    Ok(())
}

fn check(weights: &[f64], row: usize, draws: Draws) -> Result<(), Error> {
    if let Some(at) = weights.iter().position(|weight| weight.is_nan() || *weight < 0.0) {
        let weight = weights[at];
        return Err(Error::Invalid(format!(
            "the probability of category {at} in row {row} is {weight}, expected 0 or more"
        )));
    }
    let possible = weights.iter().filter(|weight| **weight > 0.0).count();
    match draws {
        _ if possible == 0 => Err(Error::Invalid(format!("the probabilities of row {row} are all 0"))),
        Draws::Distinct(count) if count > possible => Err(Error::Invalid(format!(
            "num_samples is {count} without replacement, but only {possible} categories of row {row} have a probability above 0"
        ))),
        _ => Ok(()),
    }
}

/// Weights are the widths of intervals that lie one behind the other; a number falls into one of them.
fn replaced(weights: &[f64], numbers: &[f64], to: &mut [i64]) {
    let infinite = weights.contains(&f64::INFINITY);
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let ends: Vec<f64> = (weights.iter())
        .scan(0.0, |end, &weight| {
            // Of infinite weights each is as likely as the other; others so that their sum is finite.
            *end += if infinite { f64::from(u8::from(weight == largest)) } else { weight / largest };
            Some(*end)
        })
        .collect();
    let total = ends.last().copied().unwrap_or(0.0);
    // A number may be rounded up to the end of all.
    let last = ends.partition_point(|&end| end < total);
    for (to, number) in to.iter_mut().zip(numbers) {
        *to = ends.partition_point(|&end| end <= number * total).min(last) as i64;
    }
}

/// A race of the categories, each of which arrives at a rate that is its weight: the order of arrival is that of draws without replacement.
fn distinct(weights: &[f64], times: &[f64], to: &mut [i64]) {
    let mut arrivals: Vec<(f64, usize)> = (weights.iter().zip(times).enumerate())
        .filter(|(_, (weight, _))| **weight > 0.0)
        .map(|(category, (weight, time))| (time / weight, category))
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
