//! The gradients of reductions.

use super::{Reduce, Reduction};
use crate::error::Result;
use crate::gradient::{Backward, Gradients, Node};
use crate::operator::Operator;
use crate::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use crate::operators::scan::{Kind, Scan};
use crate::operators::transpose::Transpose;
use crate::operators::words::Words;
use crate::rows::reduced_axes;

pub(super) fn gradient(operator: &Reduce, b: &mut Backward<'_>) -> Result<Gradients> {
    let (x, dtype) = (b.inputs[0], b.dtype(b.inputs[0]));
    if !dtype.is_float() || operator.reduction.is_truth() {
        return Ok(b.nothing());
    }
    let dims = b.shape(x);
    let axes = reduced_axes(operator.name(), &operator.axes, dims.len())?;
    let mut kept = dims.clone();
    axes.iter().for_each(|&axis| kept[axis] = 1);
    let count: usize = axes.iter().map(|&axis| dims[axis]).product();
    let dy = b.dy()?;
    let dy = b.cast(dy, dtype)?;
    let (dy, y) = (b.reshape(dy, &kept)?, b.outputs[0]);
    let gradient = match operator.reduction {
        Reduction::Sum => b.expand(dy, &dims)?,
        Reduction::Mean => {
            let share = b.affine(dy, 1.0 / count as f64, 0.0)?;
            b.expand(share, &dims)?
        }
        Reduction::Product => {
            let others = others(b, x, &axes)?;
            b.multiply(others, dy)?
        }
        Reduction::Maximum | Reduction::Minimum => {
            let y = b.reshape(y, &kept)?;
            b.formula(Gradient::WhereEqual, &[x, y, dy])?
        }
        Reduction::SumOfSquares => b.formula(Gradient::Square, &[x, dy])?,
        Reduction::Norm => {
            let y = b.reshape(y, &kept)?;
            let direction = b.binary(Binary::Divide, x, y)?;
            let (is_zero, zeros) = (b.unary(Unary::LogicalNot, y)?, b.zeros_like(y)?);
            let direction = b.map(Elementwise::Binary(Binary::Where), &[is_zero, zeros, direction], &[])?;
            b.multiply(direction, dy)?
        }
        Reduction::SumOfAbsolutes => b.formula(Gradient::Abs, &[x, dy])?,
        Reduction::Any | Reduction::All => return Ok(b.nothing()),
    };
    Ok(vec![Some(gradient)])
}

/// For each element the product of the others along the axes, exact at zeros: those before it times those behind it.
fn others(b: &mut Backward<'_>, x: Node, axes: &[usize]) -> Result<Node> {
    let dims = b.shape(x);
    let order: Vec<usize> = (0..dims.len()).filter(|axis| !axes.contains(axis)).chain(axes.iter().copied()).collect();
    let moved: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
    let count = axes.iter().map(|&axis| dims[axis]).product::<usize>();
    let lines = [moved[..dims.len() - axes.len()].iter().product(), count];
    let rows = b.one(Transpose { axes: order.iter().map(|&axis| axis as i64).collect() }, &[x])?;
    let rows = b.reshape(rows, &lines)?;
    let scan = |reverse| Scan { kind: Kind::Product, axis: Some(1), exclusive: true, reverse };
    let (before, behind) = (b.one(scan(false), &[rows])?, b.one(scan(true), &[rows])?);
    let product = b.multiply(before, behind)?;
    let product = b.reshape(product, &moved)?;
    let mut back = vec![0; dims.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to as i64);
    b.one(Transpose { axes: back }, &[product])
}
