//! Attention as a kernel of tiles, for GPUs: the keys are walked in blocks, with the largest score and the sum of each row carried along, so
//! that no scores are stored.

use super::form::{Form, OPERATOR, Parameters, Walk, first_seen, padded, parameters};
use super::one;
use super::parts::{self, Left, OfRows, Parts, finite};
use crate::error::{Error, Result};
use crate::formula::Formula;
use crate::program::{self, scalar_bits};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{Order, Side, block};
use crate::view::View;
use openmps_host::native::attention::Attention;
use openmps_tile::{Builder, Combine, Compare, Kernel, Number, Scalar, Type, Value};

/// The most elements of a query or value: their tiles must fit into registers.
pub(super) const LARGEST: usize = 256;

/// Whether the kernel takes heads of this size.
pub(super) fn fits(sizes: &Attention) -> bool {
    padded(sizes.depth.max(sizes.columns)) <= LARGEST
}

/// Queries, keys and values, a mask of the scores' shape, and the result.
pub(super) fn run(queue: &Queue, sizes: &Attention, inputs: [&View; 3], mask: Option<&View>, out: &View) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    if !fits(sizes) {
        let (got, expected) = (sizes.depth.max(sizes.columns).to_string(), format!("at most {LARGEST}"));
        return Err(Error::Attribute { operator: OPERATOR, attribute: "elements of a head", got, expected });
    }
    let mut form = Form::of(sizes, inputs, out, mask.is_some());
    let is_one = sizes.rows == 1;
    let step = if is_one { one::keys(form.depth.max(form.columns)) } else { form.keys };
    let Some(parts) = Parts::of(sizes, step) else {
        let grid = [sizes.rows.div_ceil(form.rows), sizes.heads, sizes.batch];
        return launch(queue, &form, sizes, inputs.into_iter().chain(mask), out, grid, &[]);
    };
    form.walk = if is_one { Walk::PartOfOne } else { Walk::Part };
    if is_one {
        (form.rows, form.keys, form.order) = (1, step, Order::ByRow);
    }
    let (formula, compute) = (Formula::new(OPERATOR, queue), form.dtype.compute());
    let (weighted, of_rows) = Left::dims(sizes, parts);
    let left =
        Left { weighted: formula.temporary(compute, &weighted)?, of_rows: formula.temporary(compute, &of_rows)? };
    // The first part's, as queries and results have their dimensions.
    let mut first = left.weighted.clone();
    let of_part = first.strides.remove(2);
    first.shape.remove(2);
    let more: Vec<u64> = OfRows::arguments(&left).chain([of_part as u64, parts.keys as u64]).collect();
    let grid = [parts.count, sizes.heads, sizes.batch];
    launch(queue, &form, sizes, inputs.into_iter().chain(mask), &first, grid, &more)?;
    parts::join(queue, sizes, parts, &left, out)
}

fn launch<'a>(
    queue: &Queue,
    form: &Form,
    sizes: &Attention,
    inputs: impl Iterator<Item = &'a View>,
    out: &'a View,
    grid: [usize; 3],
    more: &[u64],
) -> Result<()> {
    let pipeline = program::get(OPERATOR, &form.key(), || match form.walk {
        Walk::PartOfOne => one::kernel(form),
        Walk::Whole | Walk::Part => kernel(form),
    })?;
    let tensors: Vec<&View> = inputs.chain([out]).collect();
    let mut arguments: Vec<u64> = tensors.iter().map(|view| view.address as u64).collect();
    arguments.extend(tensors.iter().flat_map(|view| view.strides.iter().map(|&stride| stride as u64)));
    let group = sizes.heads / sizes.key_heads;
    arguments.extend([group, sizes.rows, sizes.keys, sizes.depth, sizes.columns].map(|size| size as u64));
    let number = |value: f64| scalar_bits(Number::Float(value), form.dtype.compute());
    arguments.push(number(sizes.scale));
    arguments.extend(sizes.window.map(|window| window as u64));
    arguments.extend(sizes.soft_cap.map(number));
    arguments.extend(more);
    // SAFETY: sizes and strides are those of the views, which the frontend, or the queue, keeps alive.
    unsafe { program::launch(queue, OPERATOR, &pipeline, grid, &arguments) }
}

/// A value of each row, repeated along it.
pub(super) fn along(b: &mut Builder, per_row: Value, columns: usize) -> Value {
    let (rows, column) = (b.type_of(per_row).dims[0], b.expand_dims(per_row, 1));
    b.broadcast(column, &[rows, columns])
}

/// Scores of a block of keys; minus infinity where a query does not see a key.
fn scores(b: &mut Builder, form: &Form, p: &Parameters, row: Side, key: Side, q: Value) -> Value {
    let (compute, block_sizes) = (form.dtype.compute(), [form.rows, form.keys]);
    let along_depth = {
        let zero = b.integer(0, Scalar::I64);
        block(b, zero, form.depth, p.depth)
    };
    let k = p.k.load_in(b, form.order, along_depth, key);
    let none = b.constant(0.0, &Type::tile(compute.into(), &block_sizes));
    let product = b.dot(q, k, none);
    let mut scores = p.scaled_and_capped(b, product);
    if let Some(mask) = &p.mask {
        let mask = mask.load(b, row, key);
        let mask = convert(b, mask, form.dtype, compute);
        scores = b.add(scores, mask);
    }
    let seen = b.expand_dims(key.1, 0);
    let mut seen = b.broadcast(seen, &block_sizes);
    if form.causal || form.window {
        let before = b.subtract(p.keys, p.rows);
        let before = b.splat_like(before, row.0);
        let last = b.add(row.0, before);
        let keys = b.expand_dims(key.0, 0);
        let keys = b.broadcast(keys, &block_sizes);
        if form.causal {
            let last = along(b, last, form.keys);
            let earlier = b.compare(Compare::LessEqual, keys, last);
            seen = b.and(seen, earlier);
        }
        if let Some(window) = p.window {
            let window = b.splat_like(window, last);
            let before = b.subtract(last, window);
            let before = along(b, before, form.keys);
            let near = b.compare(Compare::Greater, keys, before);
            seen = b.and(seen, near);
        }
    }
    let hidden = b.constant_like(f64::NEG_INFINITY, scores);
    b.select(seen, scores, hidden)
}

/// One block of keys: from the largest scores, the sums and the weighted values so far to the next ones.
fn step(b: &mut Builder, form: &Form, p: &Parameters, row: Side, q: Value, at: Value, so_far: &[Value]) -> Vec<Value> {
    let compute = form.dtype.compute();
    let [largest, total, weighted] = so_far[..] else { return so_far.to_vec() };
    let key = block(b, at, form.keys, p.keys);
    let scores = scores(b, form, p, row, key, q);
    let of_block = b.reduce(Combine::Maximum, scores, 1);
    let next = b.maximum(largest, of_block);
    let base = finite(b, next);
    let shrunk = b.subtract(largest, base);
    let shrunk = b.exp(shrunk);
    let base = along(b, base, form.keys);
    let shifted = b.subtract(scores, base);
    let weights = b.exp(shifted);
    let of_block = b.reduce(Combine::Sum, weights, 1);
    let total = b.multiply(total, shrunk);
    let total = b.add(total, of_block);
    let shrunk = along(b, shrunk, form.columns);
    let weighted = b.multiply(weighted, shrunk);
    let column = {
        let zero = b.integer(0, Scalar::I64);
        block(b, zero, form.columns, p.columns)
    };
    let v = p.v.load(b, key, column);
    // The matrix units multiply half types by half types, and sum up in float32.
    let weights = convert(b, weights, compute, form.dtype);
    vec![next, total, b.dot(weights, v, weighted)]
}

/// Behind the last key that the block's last query sees.
fn seen_by_last(b: &mut Builder, form: &Form, p: &Parameters, first: Value) -> Value {
    let (length, before) = (b.integer(form.rows as i64, Scalar::I64), b.subtract(p.keys, p.rows));
    let behind = b.add(first, length);
    let behind = b.add(behind, before);
    b.minimum(behind, p.keys)
}

fn kernel(form: &Form) -> Kernel {
    let mut b = Builder::new(OPERATOR);
    let p = parameters(&mut b, form);
    let compute = form.dtype.compute();
    let scalar = Scalar::from(compute);
    let (zero, length) = (b.integer(0, Scalar::I64), b.integer(form.rows as i64, Scalar::I64));
    // A part is one of the keys of all queries.
    let first = match form.walk {
        Walk::Whole => {
            let number = b.program_id(0);
            b.multiply(number, length)
        }
        Walk::Part | Walk::PartOfOne => zero,
    };
    let row = block(&mut b, first, form.rows, p.rows);
    let along_depth = block(&mut b, zero, form.depth, p.depth);
    let q = p.q.load(&mut b, row, along_depth);
    let lowest = b.constant(f64::NEG_INFINITY, &Type::tile(scalar, &[form.rows]));
    let none = b.constant(0.0, &Type::tile(scalar, &[form.rows]));
    let nothing = b.constant(0.0, &Type::tile(scalar, &[form.rows, form.columns]));
    let keys = b.integer(form.keys as i64, Scalar::I64);
    let end = if form.causal { seen_by_last(&mut b, form, &p, first) } else { p.keys };
    let seen = p.window.map(|window| first_seen(&mut b, form, &p, first, window));
    let [begin, end] = match &p.part {
        Some((_, [begin, behind])) => [*begin, b.minimum(end, *behind)],
        None => [zero, end],
    };
    let begin = seen.map_or(begin, |seen| b.maximum(begin, seen));
    let carried =
        b.for_loop([begin, end, keys], &[lowest, none, nothing], |b, at, so_far| step(b, form, &p, row, q, at, so_far));
    let column = block(&mut b, zero, form.columns, p.columns);
    let (pointers, mask) = p.out.places(&mut b, row, column);
    if let Some((of_rows, _)) = &p.part {
        of_rows.store(&mut b, row, carried[0], carried[1]);
        b.store(pointers, carried[2], Some(mask));
        return b.finish();
    }
    // A query that sees no key gives zeros.
    let (total, one) = (carried[1], b.constant(1.0, &Type::tile(scalar, &[form.rows])));
    let is_empty = b.compare(Compare::Equal, total, none);
    let total = b.select(is_empty, one, total);
    let total = along(&mut b, total, form.columns);
    let result = b.divide(carried[2], total);
    let result = convert(&mut b, result, compute, form.dtype);
    b.store(pointers, result, Some(mask));
    b.finish()
}
