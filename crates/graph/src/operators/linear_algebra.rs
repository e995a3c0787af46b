//! Factorisations, inverses, determinants and solutions of stacks of matrices.

mod gradient;
mod reference;

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, call, check, expect_dense, expect_dtype, expect_inputs};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{View, shape_of};
pub use openmps_host::native::linear_algebra::Algorithm;
use openmps_host::native::linear_algebra::{Stack, linear_algebra};
use openmps_tile::DType;

/// An algorithm for the last two dimensions of its first input; other inputs have the same leading dimensions. Float32 is computed in float64.
///
/// Signs of singular vectors, of eigenvectors and of Q's columns are faer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearAlgebra(pub Algorithm);

/// The types that faer computes.
const TYPES: &[DType] = &[DType::F32, DType::F64];

impl LinearAlgebra {
    /// The results' dimensions after the leading ones, for a matrix of `rows` and `columns`.
    fn results(self, rows: usize, columns: usize, right: Option<usize>) -> Vec<Vec<usize>> {
        let rank = rows.min(columns);
        match self.0 {
            Algorithm::SingularValueDecomposition { full: true } => {
                vec![vec![rows, rows], vec![rank], vec![columns, columns]]
            }
            Algorithm::SingularValueDecomposition { .. } => vec![vec![rows, rank], vec![rank], vec![rank, columns]],
            Algorithm::SingularValues => vec![vec![rank]],
            Algorithm::Qr { complete: true } => vec![vec![rows, rows], vec![rows, columns]],
            Algorithm::Qr { .. } => vec![vec![rows, rank], vec![rank, columns]],
            Algorithm::SymmetricEigen { .. } => vec![vec![rows], vec![rows, rows]],
            Algorithm::Cholesky { .. } | Algorithm::Inverse => vec![vec![rows, rows]],
            Algorithm::Determinant => vec![vec![]],
            Algorithm::LogDeterminant => vec![vec![], vec![]],
            Algorithm::Solve | Algorithm::FactorsSolve { .. } => vec![vec![rows, right.unwrap_or(1)]],
            Algorithm::Elimination => vec![vec![rows, columns], vec![rank], vec![]],
            Algorithm::EliminationFactors => vec![vec![rows, rows], vec![rows, rank], vec![rank, columns]],
            Algorithm::EliminationGradient => vec![vec![rows, columns]],
            Algorithm::Packed => vec![vec![rows, right.unwrap_or(columns)]],
            Algorithm::FactorsSolveGradient { .. } => vec![vec![rows, right.unwrap_or(1)], vec![rows, rows]],
            Algorithm::LeastSquares { .. } => {
                let right = right.unwrap_or(1);
                vec![vec![columns, right], vec![right], vec![], vec![rank]]
            }
            Algorithm::Eigen => vec![vec![rows, 2], vec![rows, rows, 2]],
            Algorithm::Eigenvalues => vec![vec![rows, 2]],
        }
    }

    /// Whether rectangles have a result.
    fn takes_rectangles(self) -> bool {
        use Algorithm::*;
        matches!(
            self.0,
            SingularValueDecomposition { .. }
                | SingularValues
                | Qr { .. }
                | Elimination
                | EliminationFactors
                | EliminationGradient
                | Packed
                | LeastSquares { .. }
        )
    }

    /// The dimensions of the inputs after the first, behind the leading ones; what nothing says is the number of columns of a right hand side.
    fn others(self, rows: usize, columns: usize) -> Vec<(&'static str, Vec<Option<usize>>)> {
        let (rank, sides) = (rows.min(columns), vec![Some(rows), None]);
        let pivots = ("pivots", vec![Some(rank)]);
        match self.0 {
            Algorithm::Solve | Algorithm::LeastSquares { .. } => vec![("right hand side", sides)],
            Algorithm::EliminationFactors => vec![pivots],
            Algorithm::EliminationGradient => vec![pivots, ("gradient", vec![Some(rows), Some(columns)])],
            Algorithm::Packed => vec![("upper factor", vec![Some(columns), None])],
            Algorithm::FactorsSolve { .. } => vec![pivots, ("right hand side", sides)],
            Algorithm::FactorsSolveGradient { .. } => vec![pivots, ("solution", sides.clone()), ("gradient", sides)],
            _ => Vec::new(),
        }
    }
}

/// A dense view as a stack of matrices, `leading` of whose dimensions count them.
fn stack(address: usize, shape: &[usize], leading: usize) -> Stack {
    let own = &shape[leading..];
    Stack { address, rows: own.first().copied().unwrap_or(1), columns: own.get(1..).unwrap_or(&[]).iter().product() }
}

impl Operator for LinearAlgebra {
    fn name(&self) -> &'static str {
        match self.0 {
            Algorithm::SingularValueDecomposition { .. } => "singular_value_decomposition",
            Algorithm::SingularValues => "singular_values",
            Algorithm::Qr { .. } => "qr",
            Algorithm::SymmetricEigen { .. } => "symmetric_eigen",
            Algorithm::Cholesky { .. } => "cholesky",
            Algorithm::Inverse => "inverse",
            Algorithm::Determinant => "determinant",
            Algorithm::LogDeterminant => "log_determinant",
            Algorithm::Solve => "solve",
            Algorithm::Elimination => "elimination",
            Algorithm::EliminationFactors => "elimination_factors",
            Algorithm::EliminationGradient => "elimination_gradient",
            Algorithm::Packed => "packed_factors",
            Algorithm::FactorsSolve { .. } => "factors_solve",
            Algorithm::FactorsSolveGradient { .. } => "factors_solve_gradient",
            Algorithm::LeastSquares { .. } => "least_squares",
            Algorithm::Eigen => "eigen",
            Algorithm::Eigenvalues => "eigenvalues",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let Some(Meta { dtype, shape }) = inputs.first() else {
            return expect_inputs(self.name(), inputs, 1).map(|()| Vec::new());
        };
        expect_dtype(self.name(), "input", *dtype, TYPES)?;
        let wrong = |what, got, expected: &str| {
            Err(Error::Shape { operator: self.name(), what, got, expected: expected.to_owned() })
        };
        let [leading @ .., rows, columns] = &shape[..] else {
            return wrong("input", shape.clone(), "at least 2 dimensions");
        };
        if rows != columns && !self.takes_rectangles() {
            return wrong("input", shape.clone(), "square matrices");
        }
        let others = self.others(*rows, *columns);
        expect_inputs(self.name(), inputs, 1 + others.len())?;
        let mut right = None;
        for ((what, dims), Meta { dtype: other, shape: sides }) in others.into_iter().zip(&inputs[1..]) {
            expect_dtype(self.name(), what, *other, &[*dtype])?;
            let own = sides.get(leading.len()..).unwrap_or(&[]);
            let columns = dims.iter().zip(own).find_map(|(dim, &size)| dim.is_none().then_some(size));
            let fits =
                own.len() == dims.len() && dims.iter().zip(own).all(|(dim, size)| dim.is_none_or(|dim| dim == *size));
            let is_same = right.is_none() || columns.is_none() || columns == right;
            if !fits || sides[..leading.len()] != *leading || !is_same {
                let own: Vec<String> =
                    dims.iter().map(|dim| dim.map_or("columns".to_owned(), |dim| dim.to_string())).collect();
                return wrong(what, sides.clone(), &format!("{leading:?} and {}", own.join(", ")));
            }
            right = right.or(columns);
        }
        let results = self.results(*rows, *columns, right);
        results.iter().map(|dims| Ok(Meta { dtype: *dtype, shape: shape_of(&[leading, dims].concat())? })).collect()
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        outputs.iter().try_for_each(|output| expect_dense(self.name(), output))?;
        let leading = inputs[0].rank() - 2;
        let count = inputs[0].shape[..leading].iter().product();
        let dtype = inputs[0].dtype;
        call(queue, self.name(), || {
            let dense: Vec<Dense> = inputs.iter().map(Dense::of).collect();
            let from: Vec<Stack> =
                dense.iter().zip(inputs).map(|(dense, view)| stack(dense.address, &view.shape, leading)).collect();
            let to: Vec<Stack> = outputs.iter().map(|view| stack(view.address, &view.shape, leading)).collect();
            // SAFETY: dense tensors of `count` matrices of the checked shapes, of this type.
            unsafe {
                match dtype {
                    DType::F64 => linear_algebra::<f64>(self.0, count, &from, &to),
                    _ => linear_algebra::<f32>(self.0, count, &from, &to),
                }
            }
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        gradient::gradient(self, b)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        reference::of(self.0, inputs)
    }
}

/// Two matrices of 3 x 3, far from singular, of which the symmetric part is positive.
const MATRICES: [f64; 18] =
    [4.0, 1.0, 0.5, 1.0, 5.0, -1.0, 0.5, -1.0, 6.0, 3.0, -0.5, 0.25, -0.5, 2.0, 1.0, 0.25, 1.0, 3.5];

fn cases(algorithm: Algorithm) -> Vec<Case> {
    let shapes: [&[usize]; 5] = [&[3, 3], &[2, 3, 3], &[2, 1, 3, 3], &[0, 3, 3], &[2, 0, 0]];
    let case = |shape: &&[usize]| {
        let mut inputs = vec![Input::of(shape, Values::Given(MATRICES.to_vec()))];
        if algorithm == Algorithm::Solve {
            inputs.push(Input::new(&[&shape[..shape.len() - 1], &[4]].concat()));
        }
        Case::new(LinearAlgebra(algorithm), inputs)
    };
    shapes.iter().map(case).collect()
}

macro_rules! entries {
    ($($entry:ident: $name:literal, $summary:literal, $algorithm:expr;)*) => {
        $(
            /// For the list of operators.
            pub static $entry: Entry =
                Entry { name: $name, summary: $summary, dtypes: TYPES, cases: || cases($algorithm), tolerance: 16.0 };
        )*
        /// Those whose results have no free signs.
        pub static ENTRIES: &[&Entry] = &[$(&$entry,)*];
    };
}

entries! {
    CHOLESKY: "cholesky", "The triangular factor of symmetric matrices.", Algorithm::Cholesky { upper: false };
    INVERSE: "inverse", "The inverse of matrices.", Algorithm::Inverse;
    DETERMINANT: "determinant", "The determinant of matrices.", Algorithm::Determinant;
    LOG_DETERMINANT: "log_determinant", "The sign and the logarithm of determinants.", Algorithm::LogDeterminant;
    SOLVE: "solve", "The solution of linear equations.", Algorithm::Solve;
}
