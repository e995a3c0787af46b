//! Reading by index as a kernel of tiles: one element of the dense result after the other.

use super::{Named, Parameters};
use crate::error::Result;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::tiles::of_program;
use crate::view::View;
use crate::walk::{Walk, arguments_of, folded};
use openmps_tile::{Builder, Kernel, Scalar, Type};

const NAME: &str = "read_by_index";

/// Elements of a tile.
const TILE: usize = 1024;

/// What the kernel depends on.
struct Form {
    element: Scalar,
    /// For each axis whether its indices are wide.
    axes: Vec<usize>,
    dims: usize,
    padding: bool,
}

/// The named elements in order, into dense memory; zeros for the index `padding`.
pub fn read(queue: &Queue, operator: &'static str, named: &Named, padding: Option<i64>, out: &View) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let size = out.dtype.size();
    let dims = folded(named.dimensions(None), 1 + named.axes.len());
    let form =
        Form { element: out.dtype.bits().into(), axes: named.key(), dims: dims.len(), padding: padding.is_some() };
    let key = [&[size, dims.len(), usize::from(form.padding)], &form.axes[..]].concat();
    let pipeline = program::get(operator, &Key::Other(NAME, Vec::new(), key), || kernel(&form))?;
    let mut arguments = named.arguments();
    arguments.extend([out.address as u64, out.len() as u64]);
    arguments.extend(arguments_of(&dims));
    arguments.extend(padding.map(|padding| padding as u64));
    // SAFETY: strides and sizes are those of the views, which the frontend keeps alive; the kernel holds indices to their axes.
    unsafe { program::launch(queue, operator, &pipeline, [out.len().div_ceil(TILE), 1, 1], &arguments) }
}

fn kernel(form: &Form) -> Kernel {
    let mut b = Builder::new(NAME);
    let parameters = Parameters::new(&mut b, form.element, &form.axes);
    let out = b.parameter("out", Type::pointer(form.element));
    let count = b.parameter("count", Type::scalar(Scalar::I64));
    let walk = Walk::parameters(&mut b, "dim", form.dims, 1 + form.axes.len());
    let padding = form.padding.then(|| b.parameter("padding", Type::scalar(Scalar::I64)));

    let (at, inside) = of_program(&mut b, 0, TILE, count);
    let places = walk.places(&mut b, at);
    let (offset, mask) = parameters.element(&mut b, &walk, &places, inside, padding);
    let from = b.add_pointer(parameters.x, offset);
    let zeros = b.constant(0.0, &Type::tile(form.element, &[TILE]));
    let elements = b.load(from, Some(mask), Some(zeros));
    let to = b.add_pointer(out, at);
    b.store(to, elements, Some(inside));
    b.finish()
}
