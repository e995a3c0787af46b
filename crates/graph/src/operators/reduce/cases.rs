//! The reductions in the list of operators, and what they are tested with.

use super::{Reduce, Reduction};
use crate::entry::{Case, Entry, Input, Values};
use openmps_tile::{DType, dtype};

fn cases(reduction: Reduction) -> Vec<Case> {
    let shapes: [(&[i64], &[usize]); 20] = [
        (&[], &[3, 5]),
        (&[-1], &[4, 1000]),
        (&[0], &[5, 7]),
        (&[0], &[9, 200]),
        (&[1], &[2, 3, 4]),
        (&[0, 2], &[2, 3, 4]),
        (&[2, 3], &[2, 3, 7, 9]),
        (&[1], &[2, 9000]),
        (&[], &[70_000]),
        (&[1], &[0, 3]),
        (&[0], &[0, 3]),
        (&[], &[]),
        (&[-2, -1], &[1, 1, 33]),
        (&[1], &[90, 3, 2]),
        (&[1], &[3, 4, 130]),
        (&[2], &[5, 40, 3]),
        (&[1, 2], &[70, 2, 2]),
        (&[0], &[1, 1100]),
        (&[1], &[2, 150, 70]),
        (&[0], &[33, 1030]),
    ];
    let values = match reduction {
        Reduction::Product => Values::Given(vec![1.0, 2.0, 0.5, -1.0]),
        Reduction::Any => Values::Given(vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]),
        Reduction::All => Values::Given(vec![1.0, 2.0, 3.0, 1.0, 1.0, 1.0, 0.0]),
        _ => Values::Uniform(-3.0, 3.0),
    };
    let mut cases = Vec::new();
    for (number, (axes, dims)) in shapes.into_iter().enumerate() {
        let operator = Reduce::new(reduction, axes, number % 2 == 0);
        // A product over many elements leaves every type's range.
        let many = dims.iter().product::<usize>() > 100;
        let values =
            if many && reduction == Reduction::Product { Values::Given(vec![1.0, -1.0]) } else { values.clone() };
        cases.push(Case::new(operator, vec![Input::of(dims, values)]));
    }
    cases
}

macro_rules! entries {
    ($($name:ident $reduction:ident $dtypes:expr, $tolerance:literal, $summary:literal;)+) => {
        $(#[doc = $summary] pub static $name: Entry = Entry {
            name: Reduction::$reduction.name(),
            summary: $summary,
            dtypes: $dtypes,
            cases: || cases(Reduction::$reduction),
            tolerance: $tolerance,
        };)+
        /// The reductions in the list of operators.
        pub static ENTRIES: &[&Entry] = &[$(&$name,)+];
    };
}
const MULTIPLIED: &[DType] = &[DType::Bool, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
const COMPARED: &[DType] =
    &[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

entries! {
    SUM Sum dtype::ALL, 64.0, "The sum along axes.";
    MEAN Mean dtype::FLOATS, 64.0, "The mean along axes.";
    PRODUCT Product MULTIPLIED, 64.0, "The product along axes.";
    MAXIMUM Maximum COMPARED, 0.0, "The largest along axes; NaN when any is.";
    MINIMUM Minimum COMPARED, 0.0, "The smallest along axes; NaN when any is.";
    ANY Any dtype::ALL, 0.0, "Whether any element along the axes is not zero.";
    ALL All dtype::ALL, 0.0, "Whether all elements along the axes are not zero.";
    SUM_OF_SQUARES SumOfSquares dtype::FLOATS, 64.0, "The sum of squares along axes.";
    NORM Norm dtype::FLOATS, 64.0, "The square root of the sum of squares along axes.";
    SUM_OF_ABSOLUTES SumOfAbsolutes dtype::FLOATS, 64.0, "The sum of absolute values along axes.";
}
