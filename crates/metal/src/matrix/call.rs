//! The calls of MPS as values: what each needs, and what each must hold. Their names are Apple's classes.

use super::{MatrixView, Operand, VectorView, check, refuse};
use crate::error::Result;
use openmps_tile::DType;

/// Values of `MPSMatrixFindTopK` at most.
const MOST_TOP_K: usize = 16;
const FLOATS: &[DType] = &[DType::F32, DType::F16];
const SINGLE: &[DType] = &[DType::F32];
/// Indices and pivots: 32 bits without a sign for MPS, whose values are all below 2^31.
const INDICES: &[DType] = &[DType::I32];

/// How random numbers are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Evenly from the first value up to, and without, the second.
    Uniform(f32, f32),
    /// By the normal law with a mean and a standard deviation.
    Normal(f32, f32),
}

/// One call of MPS on matrices. Element (r, c) of a matrix lies at `offset + r * row_bytes + c * size`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum MatrixCall<B> {
    /// `MPSMatrixMultiplication`: result = alpha * op(left) * op(right) + beta * result, for each matrix of a batch. float32 or float16; a
    /// float16 product may go to a float32 result.
    Multiplication {
        left: MatrixView<B>,
        right: MatrixView<B>,
        result: MatrixView<B>,
        transpose_left: bool,
        transpose_right: bool,
        alpha: f64,
        beta: f64,
    },
    /// `MPSMatrixVectorMultiplication`: result = alpha * op(matrix) * vector + beta * result. float32 or float16.
    VectorMultiplication {
        matrix: MatrixView<B>,
        vector: VectorView<B>,
        result: VectorView<B>,
        transpose: bool,
        alpha: f64,
        beta: f64,
    },
    /// `MPSMatrixSoftMax` or `MPSMatrixLogSoftMax`, of each row. float32 or float16.
    SoftMax { input: MatrixView<B>, result: MatrixView<B>, logarithm: bool },
    /// `MPSMatrixSoftMaxGradient` or `MPSMatrixLogSoftMaxGradient`: from the gradient and the output of the forward call.
    SoftMaxGradient { gradient: MatrixView<B>, output: MatrixView<B>, result: MatrixView<B>, logarithm: bool },
    /// `MPSMatrixFindTopK`: the k largest of each row in falling order, k at most 16. Values have the input's type, indices are int32.
    TopK { input: MatrixView<B>, indices: MatrixView<B>, values: MatrixView<B> },
    /// `MPSMatrixSum`: the sum of several matrices. float32 or float16.
    Sum { sources: Vec<MatrixView<B>>, result: MatrixView<B> },
    /// `MPSMatrixRandomPhilox` (or `MTGP32`): random float32 numbers.
    Random { result: MatrixView<B>, distribution: Distribution, seed: u64, philox: bool },
    /// `MPSMatrixDecompositionLU`: P * source = L * U, L with ones on its diagonal, both in one matrix. float32.
    DecompositionLu { source: MatrixView<B>, result: MatrixView<B>, pivots: MatrixView<B>, status: Option<Operand<B>> },
    /// `MPSMatrixDecompositionCholesky`: source = L * transposed L (or U). float32.
    DecompositionCholesky { source: MatrixView<B>, result: MatrixView<B>, lower: bool, status: Option<Operand<B>> },
    /// `MPSMatrixSolveTriangular`: op(source) * solution = alpha * right_hand_side. float32.
    SolveTriangular {
        source: MatrixView<B>,
        right_hand_side: MatrixView<B>,
        solution: MatrixView<B>,
        upper: bool,
        transpose: bool,
        unit: bool,
        alpha: f64,
    },
    /// `MPSMatrixSolveLU`: from the factors and pivots of a decomposition. float32.
    SolveLu {
        factors: MatrixView<B>,
        pivots: MatrixView<B>,
        right_hand_side: MatrixView<B>,
        solution: MatrixView<B>,
        transpose: bool,
    },
    /// `MPSMatrixSolveCholesky`: from the factor of a decomposition. float32.
    SolveCholesky { factor: MatrixView<B>, right_hand_side: MatrixView<B>, solution: MatrixView<B>, upper: bool },
}

use MatrixCall::*;

impl<B: Clone + PartialEq> MatrixCall<B> {
    /// Apple's class.
    pub fn name(&self) -> &'static str {
        match self {
            Multiplication { .. } => "MPSMatrixMultiplication",
            VectorMultiplication { .. } => "MPSMatrixVectorMultiplication",
            SoftMax { logarithm: false, .. } => "MPSMatrixSoftMax",
            SoftMax { logarithm: true, .. } => "MPSMatrixLogSoftMax",
            SoftMaxGradient { logarithm: false, .. } => "MPSMatrixSoftMaxGradient",
            SoftMaxGradient { logarithm: true, .. } => "MPSMatrixLogSoftMaxGradient",
            TopK { .. } => "MPSMatrixFindTopK",
            Sum { .. } => "MPSMatrixSum",
            Random { philox: true, .. } => "MPSMatrixRandomPhilox",
            Random { philox: false, .. } => "MPSMatrixRandomMTGP32",
            DecompositionLu { .. } => "MPSMatrixDecompositionLU",
            DecompositionCholesky { .. } => "MPSMatrixDecompositionCholesky",
            SolveTriangular { .. } => "MPSMatrixSolveTriangular",
            SolveLu { .. } => "MPSMatrixSolveLU",
            SolveCholesky { .. } => "MPSMatrixSolveCholesky",
        }
    }

    /// The matrices by name, and whether each is written.
    fn matrices(&self) -> Vec<(&'static str, &MatrixView<B>, bool)> {
        match self {
            Multiplication { left, right, result, .. } => {
                vec![("left", left, false), ("right", right, false), ("result", result, true)]
            }
            VectorMultiplication { matrix, .. } => vec![("matrix", matrix, false)],
            SoftMax { input, result, .. } => vec![("input", input, false), ("result", result, true)],
            SoftMaxGradient { gradient, output, result, .. } => {
                vec![("gradient", gradient, false), ("output", output, false), ("result", result, true)]
            }
            TopK { input, indices, values } => {
                vec![("input", input, false), ("indices", indices, true), ("values", values, true)]
            }
            Sum { sources, result } => {
                let sources = sources.iter().map(|source| ("source", source, false));
                sources.chain([("result", result, true)]).collect()
            }
            Random { result, .. } => vec![("result", result, true)],
            DecompositionLu { source, result, pivots, .. } => {
                vec![("source", source, false), ("result", result, true), ("pivots", pivots, true)]
            }
            DecompositionCholesky { source, result, .. } => vec![("source", source, false), ("result", result, true)],
            SolveTriangular { source, right_hand_side, solution, .. } => {
                vec![
                    ("source", source, false),
                    ("right_hand_side", right_hand_side, false),
                    ("solution", solution, true),
                ]
            }
            SolveLu { factors, pivots, right_hand_side, solution, .. } => vec![
                ("factors", factors, false),
                ("pivots", pivots, false),
                ("right_hand_side", right_hand_side, false),
                ("solution", solution, true),
            ],
            SolveCholesky { factor, right_hand_side, solution, .. } => {
                vec![
                    ("factor", factor, false),
                    ("right_hand_side", right_hand_side, false),
                    ("solution", solution, true),
                ]
            }
        }
    }

    fn vectors(&self) -> Vec<(&'static str, &VectorView<B>, bool)> {
        match self {
            VectorMultiplication { vector, result, .. } => vec![("vector", vector, false), ("result", result, true)],
            _ => Vec::new(),
        }
    }

    /// Where a decomposition writes whether it succeeded: an int32 (`MPSMatrixDecompositionStatus`) at the beginning of a buffer.
    fn status(&self) -> Option<&Operand<B>> {
        match self {
            DecompositionLu { status, .. } | DecompositionCholesky { status, .. } => status.as_ref(),
            _ => None,
        }
    }

    /// The memory that it touches.
    pub fn operands(&self) -> Vec<Operand<B>> {
        let matrices = self.matrices().into_iter().map(|(_, view, written)| view.operand(written));
        let vectors = self.vectors().into_iter().map(|(_, view, written)| view.operand(written));
        matrices.chain(vectors).chain(self.status().cloned()).collect()
    }

    /// Holds it to MPS's rules: types, shapes, row bytes, alignment, ranges and overlap. `length` tells a buffer's bytes.
    pub fn check(&self, length: impl Fn(&B) -> usize) -> Result<()> {
        let name = self.name();
        for (operand, view, _) in self.matrices() {
            check::matrix(name, operand, view, length(&view.buffer))?;
        }
        for (operand, view, _) in self.vectors() {
            check::vector(name, operand, view, length(&view.buffer))?;
        }
        if let Some(status) = self.status() {
            check::same(name, "the offset of the status and 0", status.offset, 0)?;
            check::range(name, 0, size_of::<i32>(), length(&status.buffer))?;
        }
        self.check_shapes(name)?;
        if !self.in_place() { self.check_overlap(name) } else { Ok(()) }
    }

    fn check_shapes(&self, name: &'static str) -> Result<()> {
        match self {
            Multiplication { left, right, result, transpose_left, transpose_right, .. } => {
                check::one_of(name, left.dtype, FLOATS)?;
                check::one_of(name, right.dtype, &[left.dtype])?;
                check::one_of(name, result.dtype, if left.dtype == DType::F16 { FLOATS } else { SINGLE })?;
                let ((rows, inner), (depth, columns)) = (left.shape(*transpose_left), right.shape(*transpose_right));
                check::same(name, "the left matrix's columns and the right matrix's rows", inner, depth)?;
                check::shape(name, "result", result, (rows, columns))?;
                check::same(name, "the matrices of left and result", left.matrices, result.matrices)?;
                check::same(name, "the matrices of right and result", right.matrices, result.matrices)
            }
            VectorMultiplication { matrix, vector, result, transpose, .. } => {
                check::one_of(name, matrix.dtype, FLOATS)?;
                check::one_of(name, vector.dtype, &[matrix.dtype])?;
                check::one_of(name, result.dtype, &[matrix.dtype])?;
                let (rows, columns) = matrix.shape(*transpose);
                check::same(name, "the matrix's columns and the vector's length", columns, vector.length)?;
                check::same(name, "the matrix's rows and the result's length", rows, result.length)
            }
            SoftMax { input, result, .. } => {
                check::one_of(name, input.dtype, FLOATS)?;
                same_kind(name, "result", result, input)
            }
            SoftMaxGradient { gradient, output, result, .. } => {
                check::one_of(name, output.dtype, FLOATS)?;
                same_kind(name, "gradient", gradient, output)?;
                same_kind(name, "result", result, output)
            }
            TopK { input, indices, values } => {
                check::one_of(name, input.dtype, FLOATS)?;
                check::one_of(name, values.dtype, &[input.dtype])?;
                check::one_of(name, indices.dtype, INDICES)?;
                let count = values.columns;
                if count > MOST_TOP_K || count > input.columns {
                    let why = format!("{count} of {} values are asked for; {MOST_TOP_K} is the most", input.columns);
                    return Err(refuse(name, why));
                }
                check::shape(name, "values", values, (input.rows, count))?;
                check::shape(name, "indices", indices, (input.rows, count))
            }
            Sum { sources, result } => {
                check::one_of(name, result.dtype, FLOATS)?;
                check::same(name, "the matrices of result and 1", result.matrices, 1)?;
                if sources.is_empty() {
                    return Err(refuse(name, "there is no source".to_string()));
                }
                sources.iter().try_for_each(|source| same_kind(name, "source", source, result))
            }
            Random { result, distribution, .. } => {
                check::one_of(name, result.dtype, SINGLE)?;
                match *distribution {
                    Distribution::Uniform(low, high) if low < high => Ok(()),
                    Distribution::Normal(_, deviation) if deviation > 0.0 => Ok(()),
                    other => Err(refuse(name, format!("{other:?} is no distribution"))),
                }
            }
            DecompositionLu { source, result, pivots, .. } => {
                check::one_of(name, source.dtype, SINGLE)?;
                same_kind(name, "result", result, source)?;
                check::one_of(name, pivots.dtype, INDICES)?;
                check::shape(name, "pivots", pivots, (1, source.rows.min(source.columns)))
            }
            DecompositionCholesky { source, result, .. } => {
                check::one_of(name, source.dtype, SINGLE)?;
                check::shape(name, "source", source, (source.rows, source.rows))?;
                same_kind(name, "result", result, source)
            }
            SolveTriangular { source, right_hand_side, solution, .. } => {
                check_solve(name, source, right_hand_side, solution)
            }
            SolveLu { factors, pivots, right_hand_side, solution, .. } => {
                check::one_of(name, pivots.dtype, INDICES)?;
                check::shape(name, "pivots", pivots, (1, factors.rows))?;
                check_solve(name, factors, right_hand_side, solution)
            }
            SolveCholesky { factor, right_hand_side, solution, .. } => {
                check_solve(name, factor, right_hand_side, solution)
            }
        }
    }

    /// Whether the result may lie where a source does: Apple documents it for decompositions and solves.
    fn in_place(&self) -> bool {
        matches!(
            self,
            DecompositionLu { .. }
                | DecompositionCholesky { .. }
                | SolveTriangular { .. }
                | SolveLu { .. }
                | SolveCholesky { .. }
        )
    }

    fn check_overlap(&self, name: &'static str) -> Result<()> {
        let operands = self.operands();
        for (index, written) in operands.iter().enumerate().filter(|(_, operand)| operand.written) {
            let overlaps = |other: &Operand<B>| {
                other.buffer == written.buffer
                    && other.offset < written.offset + written.span
                    && written.offset < other.offset + other.span
            };
            if operands.iter().enumerate().any(|(other, operand)| other != index && overlaps(operand)) {
                let range = written.offset..written.offset + written.span;
                return Err(refuse(
                    name,
                    format!("a result at the bytes {range:?} of its buffer overlaps another operand"),
                ));
            }
        }
        Ok(())
    }
}

fn same_kind<B: Clone>(name: &'static str, what: &str, view: &MatrixView<B>, like: &MatrixView<B>) -> Result<()> {
    check::one_of(name, view.dtype, &[like.dtype])?;
    check::shape(name, what, view, (like.rows, like.columns))?;
    check::same(name, &format!("the matrices of {what} and its pattern"), view.matrices, like.matrices)
}

fn check_solve<B: Clone>(
    name: &'static str,
    source: &MatrixView<B>,
    right_hand_side: &MatrixView<B>,
    solution: &MatrixView<B>,
) -> Result<()> {
    check::one_of(name, source.dtype, SINGLE)?;
    check::shape(name, "the coefficients", source, (source.rows, source.rows))?;
    check::one_of(name, right_hand_side.dtype, SINGLE)?;
    check::same(name, "the rows of coefficients and right-hand side", source.rows, right_hand_side.rows)?;
    same_kind(name, "solution", solution, right_hand_side)
}

#[cfg(test)]
mod tests;
