//! A second plan of kernels that walk their rows in pieces, for launches in which one piece is the whole row: loops that run once are no loops, and
//! what depends on the place in the row only is known before the first program.

use super::lower::{Loops, lower};
use super::second::{Second, When};
use openmps_tile::Kernel;

/// The second plan of a kernel that has such loops.
pub(super) fn plan(kernel: &Kernel) -> Option<Second> {
    let (program, ranges) = lower(kernel, Loops::Once).ok()?;
    Some(Second { when: When::Once(ranges), program: Box::new(program) })
}

#[cfg(test)]
mod tests {
    use super::super::Program;
    use super::super::step::Step;
    use super::super::tests::add_squares;
    use openmps_tile::{Builder, Combine, Scalar, Type};

    /// `out = sum of (x[i] - 1)^2 for i in first..count`, 64 elements at a time, as layer norm sums squares.
    fn squares(first: i64) -> Program {
        let mut b = Builder::new("squares");
        let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
        let count = b.parameter("count", Type::scalar(Scalar::I32));
        let sums = add_squares(&mut b, x, count, first);
        let sum = b.reduce(Combine::Sum, sums, 0);
        b.store(out, sum, None);
        Program::new(&b.finish()).expect("planned")
    }

    #[test]
    fn rows_of_one_piece_are_walked_without_a_loop_and_longer_ones_with() {
        let values: Vec<f32> = (0..300).map(|i| (i as f32 * 0.7).sin()).collect();
        for first in [0_i64, 5] {
            let program = squares(first);
            let once = program.seconds.first().expect("a second plan");
            let is_loop = |step: &Step| matches!(step, Step::Loop { .. });
            let adds_squares = |step: &Step| matches!(step, Step::SumOfPairs { .. });
            assert!(program.body.iter().any(is_loop) && !once.program.body.iter().any(is_loop), "{once:?}");
            let steps =
                || once.program.body.iter().chain(once.program.body.iter().flat_map(|step| step.bodies()).flatten());
            assert!(steps().any(adds_squares), "{once:?}");
            for count in (-2..135).chain([200, 300]) {
                let mut found = f32::NAN;
                let addresses = [values.as_ptr().expose_provenance(), (&raw mut found).expose_provenance()];
                let arguments = [addresses[0] as u64, addresses[1] as u64, count as u64];
                assert_eq!(once.under(&arguments).is_some(), count > first && count <= first + 64, "{first} {count}");
                // SAFETY: at most 300 numbers are read, one is written.
                unsafe { program.run([1, 1, 1], &arguments) }.expect("runs");
                let expected: f64 =
                    (first..count.max(first)).map(|at| (f64::from(values[at as usize]) - 1.0).powi(2)).sum();
                assert!((f64::from(found) - expected).abs() <= 1e-5 * expected, "{first}..{count}: {found} {expected}");
            }
        }
    }
}
