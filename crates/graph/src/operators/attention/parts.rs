//! Attention of a few queries with many keys: parts of the keys, each a program with a result, a largest score and a sum of its own, and a
//! kernel that puts them together. Without that a head of queries would be one program, however many keys there are.

use crate::error::Result;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{block, both, broadcast_along, crossed, moved, numbers, scaled, unravelled};
use crate::view::View;
use openmps_host::native::attention::Attention;
use openmps_tile::{Builder, Combine, Compare, DType, Kernel, Scalar, Type, Value};

const OPERATOR: &str = "attention_parts";

/// The most queries whose keys are parted.
const ROWS: usize = 8;
/// Programs that are wanted: more keep no GPU busier.
const PROGRAMS: usize = 256;
/// The fewest keys that are worth a program, and the most programs that share the keys of a head.
const KEYS: usize = 256;
const MOST: usize = 64;
/// Columns that a program puts together.
const COLUMNS: usize = 32;

/// How the keys are parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub count: usize,
    /// Keys of each; the last may have fewer.
    pub keys: usize,
}

impl Parts {
    /// None where all keys are one program's; a part is a multiple of `step` keys.
    pub(super) fn of(sizes: &Attention, step: usize) -> Option<Parts> {
        if sizes.rows > ROWS {
            return None;
        }
        let most = (PROGRAMS / (sizes.heads * sizes.batch)).min(MOST).min(sizes.keys / KEYS);
        let keys = sizes.keys.div_ceil(most.max(1)).next_multiple_of(step);
        let count = sizes.keys.div_ceil(keys.max(1));
        (most > 1 && count > 1).then_some(Parts { count, keys })
    }
}

/// What the parts leave: weighted values [batch, heads, parts, rows, columns], then largest scores and sums [2, batch, heads, parts, rows].
pub(super) struct Left {
    pub weighted: View,
    pub of_rows: View,
}

impl Left {
    pub(super) fn dims(sizes: &Attention, parts: Parts) -> ([usize; 5], [usize; 5]) {
        let Attention { batch, heads, rows, columns, .. } = *sizes;
        ([batch, heads, parts.count, rows, columns], [2, batch, heads, parts.count, rows])
    }
}

/// Where a program of a part writes the numbers of its rows.
pub(super) struct OfRows {
    pointer: Value,
    /// How far behind a largest score the sum is.
    totals: Value,
}

impl OfRows {
    /// Parameters of the kernel of a part, filled by [`OfRows::arguments`].
    pub(super) fn parameter(b: &mut Builder, compute: DType, [batch, head, part]: [Value; 3]) -> OfRows {
        let pointer = b.parameter("of_rows", Type::pointer(compute.into()));
        let [totals, of_batch, of_head, of_part] =
            numbers(b, ["of_rows_totals", "of_rows_batch", "of_rows_head", "of_rows_part"]);
        let pointer = moved(b, pointer, [(batch, of_batch), (head, of_head), (part, of_part)]);
        OfRows { pointer, totals }
    }

    pub(super) fn arguments(left: &Left) -> impl Iterator<Item = u64> + '_ {
        let strides = left.of_rows.strides[..4].iter().map(|&stride| stride as u64);
        std::iter::once(left.of_rows.address as u64).chain(strides)
    }

    pub(super) fn store(&self, b: &mut Builder, row: (Value, Value), largest: Value, total: Value) {
        let to = b.add_pointer(self.pointer, row.0);
        b.store(to, largest, Some(row.1));
        let totals = b.splat_like(self.totals, row.0);
        let to = b.add_pointer(to, totals);
        b.store(to, total, Some(row.1));
    }
}

/// Puts the parts together.
pub(super) fn join(queue: &Queue, sizes: &Attention, parts: Parts, left: &Left, out: &View) -> Result<()> {
    let padded = parts.count.next_power_of_two();
    let key = Key::Other(OPERATOR, vec![out.dtype], vec![padded]);
    let pipeline = program::get(OPERATOR, &key, || kernel(out.dtype, padded))?;
    let mut arguments = vec![left.weighted.address as u64];
    arguments.extend(left.weighted.strides[..4].iter().map(|&stride| stride as u64));
    arguments.extend(OfRows::arguments(left));
    arguments.push(out.address as u64);
    arguments.extend(out.strides.iter().map(|&stride| stride as u64));
    let blocks = sizes.columns.div_ceil(COLUMNS);
    arguments.extend([parts.count, sizes.columns, sizes.rows, blocks].map(|size| size as u64));
    let grid = [sizes.rows * blocks, sizes.heads, sizes.batch];
    // SAFETY: sizes and strides are those of the views, which the frontend, or the queue, keeps alive.
    unsafe { program::launch(queue, OPERATOR, &pipeline, grid, &arguments) }
}

/// Zero in place of minus infinity, so that differences of a row that sees nothing are numbers.
pub(super) fn finite(b: &mut Builder, largest: Value) -> Value {
    let (lowest, zero) = (b.constant_like(f64::NEG_INFINITY, largest), b.constant_like(0.0, largest));
    let none = b.compare(Compare::Equal, largest, lowest);
    b.select(none, zero, largest)
}

/// A row's results in some columns: its parts, each less what its largest score is below the row's.
fn kernel(dtype: DType, padded: usize) -> Kernel {
    let mut b = Builder::new(OPERATOR);
    let compute = dtype.compute();
    let weighted = b.parameter("weighted", Type::pointer(compute.into()));
    let [w_batch, w_head, w_part, w_row] =
        numbers(&mut b, ["weighted_batch", "weighted_head", "weighted_part", "weighted_row"]);
    let of_rows = b.parameter("of_rows", Type::pointer(compute.into()));
    let [totals, r_batch, r_head, r_part] =
        numbers(&mut b, ["of_rows_totals", "of_rows_batch", "of_rows_head", "of_rows_part"]);
    let out = b.parameter("out", Type::pointer(dtype.into()));
    let [o_batch, o_head, o_row, o_column] = numbers(&mut b, ["out_batch", "out_head", "out_row", "out_column"]);
    let [parts, columns, rows, blocks] = numbers(&mut b, ["parts", "columns", "rows", "blocks"]);
    let (head, batch) = (b.program_id(1), b.program_id(2));
    let [row, number] = unravelled(&mut b, 0, &[rows, blocks])[..] else { unreachable!("two sizes, two places") };
    let (zero, length) = (b.integer(0, Scalar::I64), b.integer(COLUMNS as i64, Scalar::I64));
    let part = block(&mut b, zero, padded, parts);
    let first = b.multiply(number, length);
    let column = block(&mut b, first, COLUMNS, columns);

    let of_row = moved(&mut b, of_rows, [(batch, r_batch), (head, r_head)]);
    let of_row = b.add_pointer(of_row, row);
    let by_part = scaled(&mut b, part.0, r_part);
    let from = b.splat(of_row, &[padded]);
    let from = b.add_pointer(from, by_part);
    let lowest = b.constant(f64::NEG_INFINITY, &Type::tile(compute.into(), &[padded]));
    let largest = b.load(from, Some(part.1), Some(lowest));
    let behind = b.splat(totals, &[padded]);
    let from = b.add_pointer(from, behind);
    let none = b.constant(0.0, &Type::tile(compute.into(), &[padded]));
    let total = b.load(from, Some(part.1), Some(none));
    let of_all = b.reduce(Combine::Maximum, largest, 0);
    let base = b.splat(of_all, &[padded]);
    let base = finite(&mut b, base);
    let shrunk = b.subtract(largest, base);
    let shrunk = b.exp(shrunk);
    let total = b.multiply(total, shrunk);
    let total = b.reduce(Combine::Sum, total, 0);

    let weighted = moved(&mut b, weighted, [(batch, w_batch), (head, w_head), (row, w_row)]);
    let by_part = scaled(&mut b, part.0, w_part);
    let from = crossed(&mut b, weighted, by_part, column.0);
    let inside = both(&mut b, part.1, column.1);
    let nothing = b.constant(0.0, &Type::tile(compute.into(), &[padded, COLUMNS]));
    let values = b.load(from, Some(inside), Some(nothing));
    let shrunk = broadcast_along(&mut b, shrunk, 0, [padded, COLUMNS]);
    let values = b.multiply(values, shrunk);
    let sum = b.reduce(Combine::Sum, values, 0);

    // A query that sees no key gives zeros.
    let total = b.splat(total, &[COLUMNS]);
    let (one, none) = (b.constant_like(1.0, total), b.constant_like(0.0, total));
    let is_empty = b.compare(Compare::Equal, total, none);
    let total = b.select(is_empty, one, total);
    let result = b.divide(sum, total);
    let result = convert(&mut b, result, compute, dtype);
    let out = moved(&mut b, out, [(batch, o_batch), (head, o_head), (row, o_row)]);
    let by_column = scaled(&mut b, column.0, o_column);
    let to = b.splat(out, &[COLUMNS]);
    let to = b.add_pointer(to, by_column);
    b.store(to, result, Some(column.1));
    b.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(batch: usize, heads: usize, rows: usize, keys: usize) -> Attention {
        let (depth, columns, scale, causal) = (64, 64, 0.125, false);
        Attention {
            batch,
            heads,
            key_heads: 1,
            rows,
            keys,
            depth,
            columns,
            scale,
            causal,
            window: None,
            soft_cap: None,
        }
    }

    #[test]
    fn keys_are_parted_where_programs_are_few() {
        let parts = |batch, heads, rows, keys| Parts::of(&sizes(batch, heads, rows, keys), 32);
        assert_eq!(parts(1, 1, 1, 8192), Some(Parts { count: 32, keys: 256 }));
        assert_eq!(parts(1, 32, 8, 8192), Some(Parts { count: 8, keys: 1024 }));
        assert_eq!(parts(1, 1, 1, 1 << 20), Some(Parts { count: 64, keys: 1 << 14 }));
        // The last part has what remains.
        assert_eq!(parts(1, 1, 4, 1000), Some(Parts { count: 3, keys: 352 }));
        // Few keys, many programs, many queries, nothing.
        let none = [parts(1, 1, 1, 511), parts(16, 16, 1, 8192), parts(1, 1, 9, 8192), parts(1, 1, 1, 0)];
        assert_eq!(none, [None; 4]);
    }
}
