//! Triangles of matrices as a kernel of tiles.

use super::Triangle;
use crate::error::Result;
use crate::operator::Operator;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::tiles::of_program;
use crate::view::View;
use crate::walk::{Dimension, Walk, arguments_of, folded};
use openmps_tile::{Builder, Compare, Kernel, Scalar, Type};

const NAME: &str = "triangle";

/// Elements of a tile.
const TILE: usize = 1024;

/// A view of matrices, and a dense output of its shape.
pub(super) fn run(operator: &Triangle, queue: &Queue, x: &View, out: &View) -> Result<()> {
    if x.is_empty() {
        return Ok(());
    }
    let dimension = |d: usize| -> Dimension { (x.shape[d], vec![x.strides[d]]) };
    let leading = x.rank() - 2;
    let mut dims = folded((0..leading).map(dimension), 1);
    dims.extend([leading, leading + 1].map(dimension));
    let size = x.dtype.size();
    let key = Key::Other(NAME, Vec::new(), vec![size, dims.len(), operator.lower.into()]);
    let pipeline = program::get(operator.name(), &key, || kernel(x.dtype.bits().into(), dims.len(), operator.lower))?;
    let mut arguments = vec![x.address as u64, out.address as u64, x.len() as u64, operator.diagonal as u64];
    arguments.extend(arguments_of(&dims));
    // SAFETY: strides and sizes are those of the view, which the frontend keeps alive; the output is dense.
    unsafe { program::launch(queue, operator.name(), &pipeline, [x.len().div_ceil(TILE), 1, 1], &arguments) }
}

fn kernel(element: Scalar, dims: usize, lower: bool) -> Kernel {
    let mut b = Builder::new(NAME);
    let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(element)));
    let [count, diagonal] = ["count", "diagonal"].map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    let walk = Walk::parameters(&mut b, "dim", dims, 1);
    let (at, inside) = of_program(&mut b, 0, TILE, count);
    let places = walk.places(&mut b, at);
    let distance = b.subtract(places[dims - 1], places[dims - 2]);
    let diagonal = b.splat_like(diagonal, distance);
    let side = if lower { Compare::LessEqual } else { Compare::GreaterEqual };
    let kept = b.compare(side, distance, diagonal);
    let mask = b.and(inside, kept);
    let offset = walk.offset(&mut b, &places, 0);
    let from = b.add_pointer(x, offset);
    let zeros = b.constant(0.0, &Type::tile(element, &[TILE]));
    let elements = b.load(from, Some(mask), Some(zeros));
    let to = b.add_pointer(out, at);
    b.store(to, elements, Some(inside));
    b.finish()
}
