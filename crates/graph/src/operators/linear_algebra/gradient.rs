//! The gradients of inverses, determinants and solutions, by inverses (Giles, 2008, "Collected matrix derivative results").

use super::{Algorithm, LinearAlgebra};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients, Node};
use crate::operator::Operator;
use crate::operators::elementwise::Unary;
use crate::operators::words::Transposed::{No, Yes};
use crate::operators::words::Words;

pub(super) fn gradient(operator: &LinearAlgebra, b: &mut Backward<'_>) -> Result<Gradients> {
    let x = b.inputs[0];
    match operator.0 {
        Algorithm::Inverse => {
            let (y, dy) = (b.outputs[0], b.dy()?);
            let left = b.matmul((y, Yes), (dy, No))?;
            let whole = b.matmul((left, No), (y, Yes))?;
            Ok(vec![Some(b.unary(Unary::Negate, whole)?)])
        }
        Algorithm::Determinant => {
            let dy = b.dy()?;
            let factor = b.multiply(dy, b.outputs[0])?;
            Ok(vec![Some(times_inverse_transposed(b, x, factor)?)])
        }
        Algorithm::LogDeterminant => {
            let factor = b.of_output(1)?;
            Ok(vec![Some(times_inverse_transposed(b, x, factor)?)])
        }
        Algorithm::Solve => {
            let (y, dy) = (b.outputs[0], b.dy()?);
            let transposed = b.transposed(x)?;
            let of_right = b.one(LinearAlgebra(Algorithm::Solve), &[transposed, dy])?;
            let of_matrix = b.matmul((of_right, No), (y, Yes))?;
            Ok(vec![Some(b.unary(Unary::Negate, of_matrix)?), Some(of_right)])
        }
        _ => Err(Error::NoGradient { operator: operator.name() }),
    }
}

/// One factor for each matrix, times the matrix' inverse transposed.
fn times_inverse_transposed(b: &mut Backward<'_>, x: Node, factor: Node) -> Result<Node> {
    let inverse = b.one(LinearAlgebra(Algorithm::Inverse), &[x])?;
    let transposed = b.transposed(inverse)?;
    let dims = [&b.shape(factor)[..], &[1, 1]].concat();
    let factor = b.reshape(factor, &dims)?;
    b.multiply(transposed, factor)
}
