//! Attention of one query of each head with a part of the keys, as a step of generation has it. A product of matrices would be empty
//! but for one row: here each of a block's keys has a largest score, a sum and weighted values of its own, and nothing but the terms of a score passes
//! between threads until the part is over.

use super::form::{Form, OPERATOR, Parameters, first_seen, parameters};
use super::parts::{OfRows, finite};
use crate::tiles::{Matrix, Side, block, broadcast_along, load_wide, scaled};
use openmps_tile::{Builder, Combine, Compare, Kernel, Scalar, Type, Value};

/// Elements of a block of keys, or of values: eight for each thread of two simdgroups. More simdgroups would put together more at the end.
const ELEMENTS: usize = 512;
const MOST_KEYS: usize = 32;

/// Keys of a block, for lines of this padded length.
pub(super) fn keys(longest: usize) -> usize {
    (ELEMENTS / longest).clamp(1, MOST_KEYS)
}

/// What a block's keys have so far: largest scores and sums of each, and as many lines of weighted values.
struct SoFar {
    largest: Value,
    total: Value,
    weighted: Value,
}

impl SoFar {
    fn nothing(form: &Form, b: &mut Builder) -> SoFar {
        let of =
            |b: &mut Builder, value, dims: &[usize]| b.constant(value, &Type::tile(form.dtype.compute().into(), dims));
        SoFar {
            largest: of(b, f64::NEG_INFINITY, &[form.keys]),
            total: of(b, 0.0, &[form.keys]),
            weighted: of(b, 0.0, &[form.keys, form.columns]),
        }
    }
}

/// A program's number is its part's. What comes of it is put together later.
pub(super) fn kernel(form: &Form) -> Kernel {
    let mut b = Builder::new(OPERATOR);
    let p = parameters(&mut b, form);
    let Some((of_rows, [begin, behind])) = &p.part else { unreachable!("one query's keys are parted") };
    let zero = b.integer(0, Scalar::I64);
    let begin = match p.window {
        Some(window) => {
            let seen = first_seen(&mut b, form, &p, zero, window);
            b.maximum(*begin, seen)
        }
        None => *begin,
    };
    let depth = block(&mut b, zero, form.depth, p.depth);
    let column = block(&mut b, zero, form.columns, p.columns);
    let q = query(&mut b, form, &p, depth);
    let step_by = b.integer(form.keys as i64, Scalar::I64);
    let SoFar { largest, total, weighted } = SoFar::nothing(form, &mut b);
    let carried = b.for_loop([begin, *behind, step_by], &[largest, total, weighted], |b, at, so_far| {
        let so_far = SoFar { largest: so_far[0], total: so_far[1], weighted: so_far[2] };
        let SoFar { largest, total, weighted } = step(b, form, &p, q, [depth, column], at, &so_far);
        vec![largest, total, weighted]
    });
    leave(&mut b, &p, of_rows, column, &SoFar { largest: carried[0], total: carried[1], weighted: carried[2] });
    b.finish()
}

/// The query, once for each key of a block.
fn query(b: &mut Builder, form: &Form, p: &Parameters, depth: Side) -> Value {
    let by_depth = scaled(b, depth.0, p.q.strides[1]);
    let pointers = b.splat(p.q.pointer, &[form.depth]);
    let pointers = b.add_pointer(pointers, by_depth);
    let [pointers, inside] = [pointers, depth.1].map(|line| broadcast_along(b, line, 1, [form.keys, form.depth]));
    load_wide(b, pointers, inside, form.dtype)
}

/// One block of keys.
fn step(
    b: &mut Builder,
    form: &Form,
    p: &Parameters,
    q: Value,
    [depth, column]: [Side; 2],
    at: Value,
    so_far: &SoFar,
) -> SoFar {
    let key = block(b, at, form.keys, p.keys);
    let lines = |b: &mut Builder, matrix: Matrix, along: Side| {
        let (pointers, inside) = matrix.places(b, key, along);
        load_wide(b, pointers, inside, form.dtype)
    };
    let [of_depth, of_key] = p.k.strides;
    let k = lines(b, Matrix { strides: [of_key, of_depth], ..p.k }, depth);
    let terms = b.multiply(q, k);
    let product = b.reduce(Combine::Sum, terms, 1);
    let scores = scores(b, form, p, key, product);
    let largest = b.maximum(so_far.largest, scores);
    let base = finite(b, largest);
    let [shrunk, weights] = [so_far.largest, scores].map(|scores| {
        let shifted = b.subtract(scores, base);
        b.exp(shifted)
    });
    let total = b.multiply(so_far.total, shrunk);
    let total = b.add(total, weights);
    let v = lines(b, p.v, column);
    let [shrunk, weights] = [shrunk, weights].map(|of_key| broadcast_along(b, of_key, 0, [form.keys, form.columns]));
    let values = b.multiply(weights, v);
    let weighted = b.multiply(so_far.weighted, shrunk);
    SoFar { largest, total, weighted: b.add(weighted, values) }
}

/// The scores of a block's keys; minus infinity where the query does not see a key. The last query sees all but what a window hides.
fn scores(b: &mut Builder, form: &Form, p: &Parameters, key: Side, product: Value) -> Value {
    let mut scores = p.scaled_and_capped(b, product);
    if let Some(mask) = &p.mask {
        let by_key = scaled(b, key.0, mask.strides[1]);
        let pointers = b.splat(mask.pointer, &[form.keys]);
        let pointers = b.add_pointer(pointers, by_key);
        let mask = load_wide(b, pointers, key.1, form.dtype);
        scores = b.add(scores, mask);
    }
    let mut seen = key.1;
    if let Some(window) = p.window {
        let first = b.subtract(p.keys, window);
        let first = b.splat_like(first, key.0);
        let near = b.compare(Compare::GreaterEqual, key.0, first);
        seen = b.and(seen, near);
    }
    let hidden = b.constant_like(f64::NEG_INFINITY, scores);
    b.select(seen, scores, hidden)
}

/// Puts the keys of a block together, and writes what comes of the part.
fn leave(b: &mut Builder, p: &Parameters, of_rows: &OfRows, column: Side, so_far: &SoFar) {
    let top = b.reduce(Combine::Maximum, so_far.largest, 0);
    let base = b.splat_like(top, so_far.largest);
    let base = finite(b, base);
    let shrunk = b.subtract(so_far.largest, base);
    let shrunk = b.exp(shrunk);
    let total = b.multiply(so_far.total, shrunk);
    let total = b.reduce(Combine::Sum, total, 0);
    let [keys, columns] = [so_far.total, column.0].map(|side| b.type_of(side).dims[0]);
    let shrunk = broadcast_along(b, shrunk, 0, [keys, columns]);
    let weighted = b.multiply(so_far.weighted, shrunk);
    let weighted = b.reduce(Combine::Sum, weighted, 0);
    let zero = b.integer(0, Scalar::I64);
    let row = block(b, zero, 1, p.rows);
    let [top, total] = [top, total].map(|number| b.splat(number, &[1]));
    of_rows.store(b, row, top, total);
    let by_column = scaled(b, column.0, p.out.strides[1]);
    let pointers = b.splat(p.out.pointer, &[columns]);
    let pointers = b.add_pointer(pointers, by_column);
    b.store(pointers, weighted, Some(column.1));
}
