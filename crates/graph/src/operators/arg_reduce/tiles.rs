//! Where the largest or smallest element is, as a kernel of tiles: rows are walked in pieces, with the best element so far and its place carried along.

use super::ArgReduce;
use crate::error::Result;
use crate::layout::axis_of;
use crate::operator::Operator;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::rows::{RowBlock, Rows};
use crate::view::View;
use openmps_tile::{Builder, Cast, Combine, Compare, DType, Kernel, Scalar, Type, Value};

/// Elements of a row that are looked at together.
const PIECE: usize = 1024;

/// What the kernel depends on.
struct Form {
    name: &'static str,
    largest: bool,
    dtype: DType,
    result: DType,
    piece: usize,
}

/// One index for each row, dense.
pub(super) fn run(operator: &ArgReduce, queue: &Queue, x: &View, out: &View) -> Result<()> {
    let name = operator.name();
    if out.is_empty() {
        return Ok(());
    }
    let reduced = match operator.axis {
        Some(axis) if x.rank() > 0 => vec![axis_of(name, axis, x.rank())?],
        _ => (0..x.rank()).collect(),
    };
    let rows = Rows::of(name, queue, x, &reduced)?;
    let piece = rows.length.next_power_of_two().min(PIECE);
    let form = Form { name, largest: operator.largest, dtype: x.dtype, result: operator.dtype, piece };
    let key = Key::Other(name, vec![x.dtype, operator.dtype], vec![piece]);
    let pipeline = program::get(name, &key, || kernel(&form))?;
    let arguments = [
        rows.address as u64,
        out.address as u64,
        rows.count as u64,
        rows.length as u64,
        rows.row_stride as u64,
        rows.stride as u64,
    ];
    let grid = [rows.count.div_ceil(RowBlock::rows_for(piece)), 1, 1];
    // SAFETY: rows are those of the view, which the frontend keeps alive; the output has an element for each.
    unsafe { program::launch(queue, name, &pipeline, grid, &arguments) }
}

/// What no element is beaten by.
fn worst(form: &Form) -> f64 {
    // Truth values are bytes here.
    let dtype = if form.dtype == DType::Bool { DType::U8 } else { form.dtype };
    let (smallest, largest) = dtype.bounds();
    if form.largest { smallest } else { largest }
}

/// The type in which elements are compared: bytes without a sign need a wider one.
fn compared(dtype: DType) -> DType {
    if matches!(dtype, DType::U8 | DType::Bool) { DType::I32 } else { dtype.compute() }
}

/// The best of a piece in each row and its column, `none` where all are NaN.
fn best_of(b: &mut Builder, form: &Form, block: &RowBlock, x: Value, inside: Value, none: Value) -> [Value; 2] {
    let counts = if form.dtype.is_float() {
        let number = b.compare(Compare::Equal, x, x);
        b.and(inside, number)
    } else {
        inside
    };
    let worst = b.constant_like(worst(form), x);
    let x = b.select(counts, x, worst);
    let best = b.reduce(if form.largest { Combine::Maximum } else { Combine::Minimum }, x, 1);
    let spread = block.along(b, best);
    let equal = b.compare(Compare::Equal, x, spread);
    let hits = b.and(counts, equal);
    let column = b.range(form.piece);
    let column = b.cast(Cast::Signed, column, Scalar::I32);
    let column = block.down(b, column);
    let none = b.splat_like(none, column);
    let places = b.select(hits, column, none);
    [best, b.reduce(Combine::Minimum, places, 1)]
}

fn kernel(form: &Form) -> Kernel {
    let mut b = Builder::new(form.name);
    let x = b.parameter("x", Type::pointer(form.dtype.into()));
    let out = b.parameter("out", Type::pointer(form.result.into()));
    let index = Type::scalar(Scalar::I64);
    let [count, length, row_stride, stride] =
        ["count", "length", "row_stride", "stride"].map(|name| b.parameter(name, index.clone()));
    let rows = RowBlock::rows_for(form.piece);
    let block = RowBlock::new(&mut b, rows, form.piece, count);
    let to = compared(form.dtype);
    let none = b.integer(i64::from(i32::MAX), Scalar::I32);
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(form.piece as i64, Scalar::I64));
    let first_best = b.constant(worst(form), &Type::tile(to.into(), &[rows]));
    let nowhere = b.constant(-1.0, &Type::tile(Scalar::I64, &[rows]));
    let found = b.for_loop([zero, length, step], &[first_best, nowhere], |b, at, carried| {
        let piece = block.piece(b, at, length);
        let x = block.load(b, x, [row_stride, stride], &piece, (form.dtype, to));
        let [best, place] = best_of(b, form, &block, x, piece.inside, none);
        let none = b.splat_like(none, place);
        let there = b.compare(Compare::NotEqual, place, none);
        let beats = b.compare(if form.largest { Compare::Greater } else { Compare::Less }, best, carried[0]);
        // The first number is taken even if it is the worst there is.
        let nowhere = b.constant_like(-1.0, carried[1]);
        let first = b.compare(Compare::Equal, carried[1], nowhere);
        let (better, place) = (b.or(beats, first), b.cast(Cast::Signed, place, Scalar::I64));
        let better = b.and(better, there);
        let at = b.splat_like(at, place);
        let place = b.add(place, at);
        vec![b.select(better, best, carried[0]), b.select(better, place, carried[1])]
    });
    // Where all are NaN the first place is said.
    let start = b.constant_like(0.0, found[1]);
    let place = b.maximum(found[1], start);
    block.store_per_row(&mut b, out, place, (DType::I64, form.result));
    b.finish()
}
