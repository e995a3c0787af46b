//! Averages of whole planes.

use crate::error::Error;
use crate::native::lanes::{Lanes, at_level};
use crate::native::{Shared, elements};
use crate::threads::parallel_for;

/// The average of every plane of `len` elements: what [`super::pool`] gives for one window, several times faster.
pub fn global_average(len: usize, input: &[f32], output: &mut [f32]) -> Result<(), Error> {
    if len == 0 || input.len() != elements(&[len, output.len()]) {
        let lens = (input.len(), output.len());
        return Err(Error::Invalid(format!("global average: input and output have {lens:?} elements, planes {len}")));
    }
    let planes = output.len();
    let output = Shared::new(output);
    parallel_for(planes, len / 10 + 10, |from, to| {
        // SAFETY: this task alone writes these elements.
        let (planes, output) = (&input[from * len..to * len], unsafe { output.part(from, to - from) });
        // SAFETY: planes and outputs are as many.
        unsafe { at_level!(averages(len: usize, planes: &[f32], output: &mut [f32])) };
    });
    Ok(())
}

/// The averages of planes of `len` elements, four at a time, so that their sums are computed side by side.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn averages<V: Lanes>(len: usize, input: &[f32], output: &mut [f32]) {
    let rest = (1 << (len % V::N)) - 1;
    for (planes, output) in input.chunks(4 * len).zip(output.chunks_mut(4)) {
        // Of the last planes there may be fewer: one of them is summed several times.
        let starts = [0, 1, 2, 3].map(|plane: usize| planes[plane.min(output.len() - 1) * len..].as_ptr());
        // SAFETY: registers, and the numbers of the last one, lie in a plane.
        let sums = unsafe {
            let mut sums = [[V::splat(0.0); 2]; 4];
            for at in (0..len / V::N).step_by(2) {
                for plane in 0..4 {
                    sums[plane][0] = sums[plane][0].add(V::load(starts[plane].add(at * V::N)));
                    if at + 1 < len / V::N {
                        sums[plane][1] = sums[plane][1].add(V::load(starts[plane].add((at + 1) * V::N)));
                    }
                }
            }
            let mut totals = [V::splat(0.0); 4];
            for plane in 0..4 {
                let last = V::load_some(starts[plane].add(len / V::N * V::N), rest);
                totals[plane] = sums[plane][0].add(sums[plane][1]).add(last);
            }
            V::sums(totals)
        };
        output.iter_mut().zip(sums).for_each(|(average, sum)| *average = sum / len as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_of_any_length_and_number() {
        for len in [1, 7, 16, 49, 64, 131] {
            for planes in [1, 4, 7] {
                let input: Vec<f32> = (0..len * planes).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
                let mut output = vec![f32::NAN; planes];
                global_average(len, &input, &mut output).unwrap();
                for (plane, average) in input.chunks(len).zip(output) {
                    let sum: f64 = plane.iter().map(|&x| f64::from(x)).sum();
                    assert!((f64::from(average) - sum / len as f64).abs() < 1e-6, "{planes} planes of {len}");
                }
            }
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert!(global_average(3, &[0.0; 8], &mut [0.0; 2]).is_err());
    }
}
