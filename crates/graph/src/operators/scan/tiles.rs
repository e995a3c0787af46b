//! Running sums and products as a kernel of tiles: lines are walked in pieces, with what each has come to carried along.

use super::{Kind, Scan};
use crate::error::{Error, Result};
use crate::layout::axis_of;
use crate::operator::Operator;
use crate::operators::copy::Copy;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{block, of_program, scaled};
use crate::view::View;
use crate::walk::{Dimension, Walk, arguments_of, folded};
use openmps_runtime::Buffer;
use openmps_tile::{Builder, Combine, Compare, DType, Kernel, Operation, Scalar, Type, Value};

/// Elements of a line that are handled at once,
const PIECE: usize = 1024;
/// and of a tile.
const TILE: usize = 2048;

/// What the kernel depends on.
struct Form {
    name: &'static str,
    kind: Kind,
    dtype: DType,
    /// Lines and elements of each in a tile.
    tile: [usize; 2],
    dims: usize,
}

/// Any strides in, dense out.
pub(super) fn run(operator: &Scan, queue: &Queue, x: &View, out: &View) -> Result<()> {
    if x.is_empty() {
        return Ok(());
    }
    let name = operator.name();
    // What leaves itself out is read after its neighbour has been written.
    let mut copied = None;
    if operator.exclusive && x.address == out.address || operator.axis.is_none() && !x.is_dense() {
        copied = Some(dense(name, queue, x)?);
    }
    let from = copied.as_ref().map_or(x, |(view, _)| view);
    let (x, out, axis) = match operator.axis {
        Some(axis) if x.rank() > 0 => (from.clone(), out.clone(), axis_of(name, axis, x.rank())?),
        _ => {
            let flat = |view: &View| View::dense(view.address, view.dtype, &[x.len()]);
            (flat(from)?, flat(out)?, 0)
        }
    };
    let out = View::dense(out.address, out.dtype, &x.shape)?;
    let (x, out) = if operator.reverse { (reversed(&x, axis), reversed(&out, axis)) } else { (x, out) };
    let others = (0..x.rank()).filter(|&d| d != axis);
    let dims = folded(others.map(|d| -> Dimension { (x.shape[d], vec![x.strides[d], out.strides[d]]) }), 2);
    let length = x.shape[axis];
    let piece = length.next_power_of_two().min(PIECE);
    let form = Form { name, kind: operator.kind, dtype: x.dtype, tile: [TILE / piece, piece], dims: dims.len() };
    let key = Key::Other(name, vec![x.dtype], vec![piece, dims.len()]);
    let pipeline = program::get(name, &key, || kernel(&form))?;
    let lines = x.len() / length;
    let mut arguments = vec![x.address as u64, out.address as u64, lines as u64, length as u64];
    arguments.extend([x.strides[axis], out.strides[axis]].map(|stride| stride as u64));
    arguments.push(u64::from(operator.exclusive));
    arguments.extend(arguments_of(&dims));
    // SAFETY: strides and sizes are those of the views, which the frontend keeps alive.
    unsafe { program::launch(queue, name, &pipeline, [lines.div_ceil(form.tile[0]), 1, 1], &arguments) }
}

fn dense(operator: &'static str, queue: &Queue, x: &View) -> Result<(View, Buffer)> {
    let buffer = queue.allocate(x.len() * x.dtype.size()).map_err(|source| Error::Device { operator, source })?;
    let view = View::dense(buffer.address(), x.dtype, &x.shape)?;
    Copy.run(queue, std::slice::from_ref(x), std::slice::from_ref(&view))?;
    Ok((view, buffer))
}

/// The same lines from their ends.
fn reversed(x: &View, axis: usize) -> View {
    x.narrowed(axis, x.shape[axis] - 1, -1, x.shape[axis])
}

/// What each element along the second axis has come to.
fn scanned(b: &mut Builder, kind: Kind, x: Value) -> Value {
    let ty = b.type_of(x).clone();
    let element = Type::scalar(b.scalar_of(x));
    let arguments = b.begin_block(&[element.clone(), element]);
    let joined = joined(b, kind, arguments[0], arguments[1]);
    let body = b.end_block(Operation::Yield, &[joined]);
    b.emit_with_blocks(Operation::Scan { axis: 1, reverse: false }, &[x], &[ty], vec![body])[0]
}

fn joined(b: &mut Builder, kind: Kind, x: Value, y: Value) -> Value {
    match kind {
        Kind::Sum => b.add(x, y),
        Kind::Product => b.multiply(x, y),
    }
}

fn kernel(form: &Form) -> Kernel {
    let mut b = Builder::new(form.name);
    let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(form.dtype.into())));
    let names = ["lines", "length", "x_stride", "out_stride", "left_out"];
    let [lines, length, x_stride, out_stride, left_out] =
        names.map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    let walk = Walk::parameters(&mut b, "dim", form.dims, 2);
    let (compute, [rows, columns]) = (form.dtype.compute(), form.tile);
    let (line, inside) = of_program(&mut b, 0, rows, lines);
    let places = walk.places(&mut b, line);
    let [x, out] = [(x, 0), (out, 1)].map(|(pointer, tensor)| {
        let offset = walk.offset(&mut b, &places, tensor);
        b.add_pointer(pointer, offset)
    });
    let along = |b: &mut Builder, per_line: Value| {
        let column = b.expand_dims(per_line, 1);
        b.broadcast(column, &form.tile)
    };
    let down = |b: &mut Builder, per_column: Value| {
        let row = b.expand_dims(per_column, 0);
        b.broadcast(row, &form.tile)
    };
    let identity = if form.kind == Kind::Sum { 0.0 } else { 1.0 };
    let combine = if form.kind == Kind::Sum { Combine::Sum } else { Combine::Product };
    let start = b.constant(identity, &Type::tile(compute.into(), &[rows]));
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(columns as i64, Scalar::I64));
    b.for_loop([zero, length, step], &[start], |b, at, carried| {
        let (column, before_end) = block(b, at, columns, length);
        let pointers = |b: &mut Builder, base: Value, column: Value, stride: Value| {
            let offset = scaled(b, column, stride);
            let (offset, base) = (down(b, offset), along(b, base));
            b.add_pointer(base, offset)
        };
        let (line_mask, column_mask) = (along(b, inside), down(b, before_end));
        let mask = b.and(line_mask, column_mask);
        // The element itself, or the one before it.
        let left_out = b.splat_like(left_out, column);
        let source = b.subtract(column, left_out);
        let first = b.constant_like(0.0, source);
        let there = b.compare(Compare::GreaterEqual, source, first);
        let there = down(b, there);
        let loaded = b.and(mask, there);
        let from = pointers(b, x, source, x_stride);
        let nothing = b.constant(identity, &Type::tile(form.dtype.into(), &form.tile));
        let elements = b.load(from, Some(loaded), Some(nothing));
        let elements = convert(b, elements, form.dtype, compute);
        let own = scanned(b, form.kind, elements);
        let so_far = along(b, carried[0]);
        let result = joined(b, form.kind, so_far, own);
        let result = convert(b, result, compute, form.dtype);
        let to = pointers(b, out, column, out_stride);
        b.store(to, result, Some(mask));
        let whole = b.reduce(combine, elements, 1);
        vec![joined(b, form.kind, carried[0], whole)]
    });
    b.finish()
}
