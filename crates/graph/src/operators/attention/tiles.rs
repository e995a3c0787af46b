//! Attention as a kernel of tiles, for GPUs: the keys are walked in blocks, with the largest score and the sum of each row carried along, so
//! that no scores are stored.

use super::one;
use super::parts::{self, Left, OfRows, Parts};
use crate::error::{Error, Result};
use crate::formula::Formula;
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{Access, Matrix, Order, Side, block, moved};
use crate::view::View;
use openmps_host::native::attention::Attention;
use openmps_tile::{Builder, Combine, Compare, DType, Kernel, Number, Scalar, Type, Unary, Value};

const OPERATOR: &str = "attention";

/// Queries of a block at most: fewer where queries and sums of a row take much of a simdgroup's registers.
const ROWS: usize = 64;
const ROWS_OF_LONG_HEADS: usize = 32;
const LONG_HEAD: usize = 128;

/// Bytes of a block of keys, and of one of values, and how many keys there are at most.
const BLOCK_BYTES: usize = 8 << 10;
const KEYS: usize = 64;

/// The most elements of a query or value: their tiles must fit into registers.
pub(super) const LARGEST: usize = 256;

/// The smallest side of a tile: that of a matrix unit.
const SMALLEST: usize = 16;

/// What the kernel depends on.
pub(super) struct Form {
    pub dtype: DType,
    /// Elements of a tile's queries, and of its values: powers of two.
    pub depth: usize,
    pub columns: usize,
    /// Queries and keys of a block.
    rows: usize,
    pub keys: usize,
    /// How the keys lie, as columns.
    order: Order,
    /// How all but the mask are read and written.
    access: Access,
    mask: bool,
    causal: bool,
    window: bool,
    soft_cap: bool,
    walk: Walk,
}

/// Which keys a program walks.
#[derive(Clone, Copy, PartialEq)]
enum Walk {
    /// All that its queries see.
    Whole,
    /// A part of them; what comes of it is put together later.
    Part,
    /// A part of them for one query of each head.
    PartOfOne,
}

impl Form {
    fn of(sizes: &Attention, [q, k, v]: [&View; 3], out: &View, mask: bool) -> Form {
        let (depth, columns) = (padded(sizes.depth), padded(sizes.columns));
        let most = if depth.max(columns) > LONG_HEAD { ROWS_OF_LONG_HEADS } else { ROWS };
        let rows = sizes.rows.next_power_of_two().clamp(SMALLEST, most);
        let keys = (BLOCK_BYTES / (depth.max(columns) * k.dtype.size())).clamp(SMALLEST, KEYS);
        let order = Order::of([k.strides[3], k.strides[2]]);
        let tensors = [q, k, v, out];
        let across: Vec<isize> = tensors.iter().flat_map(|view| view.strides[..3].to_vec()).collect();
        let access = match tensors.iter().all(|view| view.strides[3] == 1) {
            true => Access::of(k.dtype, &tensors.map(|view| view.address), &across, &[sizes.depth, sizes.columns]),
            false => Access::Elements,
        };
        let (causal, window, soft_cap) = (sizes.causal, sizes.window.is_some(), sizes.soft_cap.is_some());
        let walk = Walk::Whole;
        Form { dtype: k.dtype, depth, columns, rows, keys, order, access, mask, causal, window, soft_cap, walk }
    }

    fn key(&self) -> Key {
        let flags = [self.mask, self.causal, self.window, self.soft_cap].map(usize::from);
        let how = [&[self.order as usize, self.access as usize, self.walk as usize][..], &flags[..]].concat();
        let numbers = [&[self.depth, self.columns, self.rows][..], &how[..]].concat();
        Key::Other(OPERATOR, vec![self.dtype], numbers)
    }
}

fn padded(size: usize) -> usize {
    size.next_power_of_two().max(SMALLEST)
}

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
        Walk::PartOfOne => one::kernel(form, OPERATOR),
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

/// The matrices of this program's batch and head, and the sizes.
pub(super) struct Parameters {
    pub q: Matrix,
    /// Each column is a key.
    pub k: Matrix,
    pub v: Matrix,
    pub mask: Option<Matrix>,
    pub out: Matrix,
    pub rows: Value,
    pub keys: Value,
    pub depth: Value,
    pub columns: Value,
    pub scale: Value,
    pub window: Option<Value>,
    pub soft_cap: Option<Value>,
    /// Of a part: where the numbers of its rows go, and its first key and the one behind its last.
    pub part: Option<(OfRows, [Value; 2])>,
}

pub(super) fn parameters(b: &mut Builder, form: &Form) -> Parameters {
    let names = ["q", "k", "v", "mask", "out"].into_iter().filter(|&name| form.mask || name != "mask");
    let names: Vec<&str> = names.collect();
    let access = |name: &str| if name == "mask" { Access::Elements } else { form.access };
    let dtype = |name: &str| if name == "out" && form.walk != Walk::Whole { form.dtype.compute() } else { form.dtype };
    let pointers: Vec<Value> = names.iter().map(|name| access(name).pointer(b, name, dtype(name))).collect();
    let strides: Vec<[Value; 4]> = names
        .iter()
        .map(|name| {
            let across = [0, 1, 2].map(|d| access(name).number(b, &format!("{name}_stride{d}"), form.dtype));
            [across[0], across[1], across[2], access(name).along(b, &format!("{name}_stride3"))]
        })
        .collect();
    let [group, rows, keys] = ["group", "rows", "keys"].map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    let [depth, columns] = ["depth", "columns"].map(|name| form.access.number(b, name, form.dtype));
    let number = Type::scalar(form.dtype.compute().into());
    let scale = b.parameter("scale", number.clone());
    let window = form.window.then(|| b.parameter("window", Type::scalar(Scalar::I64)));
    let soft_cap = form.soft_cap.then(|| b.parameter("soft_cap", number));
    let (head, batch) = (b.program_id(1), b.program_id(2));
    let key_head = b.divide(head, group);
    let mut matrix = |i: usize, head: Value| {
        let [of_batch, of_head, row, column] = strides[i];
        Matrix { pointer: moved(b, pointers[i], [(batch, of_batch), (head, of_head)]), strides: [row, column] }
    };
    let (q, keys_by_row, v) = (matrix(0, head), matrix(1, key_head), matrix(2, key_head));
    let [row, column] = keys_by_row.strides;
    let k = Matrix { strides: [column, row], ..keys_by_row };
    let mask = form.mask.then(|| matrix(3, head));
    let mut out = matrix(names.len() - 1, head);
    let part = (form.walk != Walk::Whole).then(|| {
        let number = b.program_id(0);
        let of_rows = OfRows::parameter(b, form.dtype.compute(), [batch, head, number]);
        let of_part = form.access.number(b, "part_stride", form.dtype);
        let length = b.parameter("part_keys", Type::scalar(Scalar::I64));
        out.pointer = moved(b, out.pointer, [(number, of_part)]);
        let begin = b.multiply(number, length);
        let behind = b.add(begin, length);
        (of_rows, [begin, b.minimum(behind, keys)])
    });
    Parameters { q, k, v, mask, out, rows, keys, depth, columns, scale, window, soft_cap, part }
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
    let scale = b.splat_like(p.scale, product);
    let mut scores = b.multiply(product, scale);
    if let Some(cap) = p.soft_cap {
        let cap = b.splat_like(cap, scores);
        let part = b.divide(scores, cap);
        let tangent = b.unary(Unary::Tanh, part);
        scores = b.multiply(tangent, cap);
    }
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

/// Zero in place of minus infinity, so that differences of a row that sees nothing are numbers.
pub(super) fn finite(b: &mut Builder, largest: Value) -> Value {
    let (lowest, zero) = (b.constant_like(f64::NEG_INFINITY, largest), b.constant_like(0.0, largest));
    let none = b.compare(Compare::Equal, largest, lowest);
    b.select(none, zero, largest)
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

/// The beginning of the block of keys in which the block's first query begins to see.
pub(super) fn first_seen(b: &mut Builder, form: &Form, p: &Parameters, first: Value, window: Value) -> Value {
    let (zero, one) = (b.integer(0, Scalar::I64), b.integer(1, Scalar::I64));
    let before = b.subtract(p.keys, p.rows);
    let behind = b.add(first, before);
    let behind = b.add(behind, one);
    let begin = b.subtract(behind, window);
    let begin = b.maximum(begin, zero);
    let keys = b.integer(form.keys as i64, Scalar::I64);
    let number = b.divide(begin, keys);
    b.multiply(number, keys)
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
