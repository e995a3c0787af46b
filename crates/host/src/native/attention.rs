//! Scaled dot product attention: `softmax(scale * queries * keys^T + mask) * values` for every batch and head, without storing the scores.
//!
//! A task takes a block of query rows whose scores fit the second-level cache: products in registers, softmax over the rows in place, products
//! with the values. Keys are transposed once for each head of theirs. Few queries read keys and values where they lie (`few.rs`).

mod double;
mod few;
mod tile;

use super::memory::Memory;
use super::{Shared, scratch};
use crate::threads::parallel_for;
use half::{bf16, f16};
use openmps_tile::DType;
use std::ops::Range;
use tile::Tile;

/// The sizes of one call. Queries are [batch, heads, rows, depth], keys [batch, key_heads, keys, depth], values [batch, key_heads, keys,
/// columns], the result [batch, heads, rows, columns].
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Independent calls.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values, a divisor of `heads`: each serves as many neighbouring heads of queries.
    pub key_heads: usize,
    /// Queries.
    pub rows: usize,
    /// Keys.
    pub keys: usize,
    /// Elements of a query and of a key.
    pub depth: usize,
    /// Elements of a value.
    pub columns: usize,
    /// The factor of the scores.
    pub scale: f64,
    /// Query i sees the keys up to i + keys - rows only.
    pub causal: bool,
    /// Query i sees none of the keys up to i + keys - rows but the last so many; none is all.
    pub window: Option<usize>,
    /// Scaled scores become `cap * tanh(score / cap)`.
    pub soft_cap: Option<f64>,
}

impl Attention {
    /// The keys that a query sees.
    pub fn seen(&self, row: usize) -> Range<usize> {
        let behind = (row + 1 + self.keys).saturating_sub(self.rows);
        let end = if self.causal { behind.min(self.keys) } else { self.keys };
        let start = self.window.map_or(0, |window| behind.saturating_sub(window));
        start.min(end)..end
    }

    /// The keys that some query among neighbours sees.
    fn seen_by(&self, rows: Range<usize>) -> Range<usize> {
        if rows.is_empty() { 0..0 } else { self.seen(rows.start).start..self.seen(rows.end - 1).end }
    }
}

/// What is done to scores before softmax: scaled, and capped where there is a cap.
#[derive(Clone, Copy)]
struct Scaling {
    scale: f32,
    soft_cap: Option<f32>,
}

impl Attention {
    fn scaling(&self) -> Scaling {
        Scaling { scale: self.scale as f32, soft_cap: self.soft_cap.map(|cap| cap as f32) }
    }
}

/// Where the tensors lie; all of four dimensions. A mask broadcasts by strides of zero and is added to the scores.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The queries.
    pub queries: Memory<'a>,
    /// The keys.
    pub keys: Memory<'a>,
    /// The values.
    pub values: Memory<'a>,
    /// What is added to the scores.
    pub mask: Option<Memory<'a>>,
    /// The result, whose columns are neighbours.
    pub out: Memory<'a>,
}

/// Computes attention on float16, bfloat16, float32 or float64; half precision is widened to float32 and rounded once. A query that sees no
/// key, or only keys masked by minus infinity, gives zeros.
///
/// # Safety
/// Every element that sizes and strides name is readable (of the result: writable), of type `dtype`, and the result overlaps nothing else.
pub unsafe fn attention(sizes: &Attention, dtype: DType, operands: &Operands) {
    if sizes.batch * sizes.heads * sizes.rows * sizes.columns == 0 {
        return;
    }
    // SAFETY: the caller's promise for the type that `dtype` names.
    unsafe {
        match dtype {
            DType::F64 => double::attention(sizes, operands),
            DType::F16 if few::takes(sizes, operands) => few::attention::<f16>(sizes, dtype, operands, f16::from_f32),
            DType::BF16 if few::takes(sizes, operands) => {
                few::attention::<bf16>(sizes, dtype, operands, bf16::from_f32)
            }
            DType::F32 if few::takes(sizes, operands) => few::attention::<f32>(sizes, dtype, operands, |x| x),
            DType::F16 => widened::<f16>(sizes, operands, f16::to_f32, f16::from_f32),
            DType::BF16 => widened::<bf16>(sizes, operands, bf16::to_f32, bf16::from_f32),
            _ => single(sizes, operands),
        }
    }
}

/// The distance between two batches and two heads of a dense float32 copy, and between its rows.
fn dense(heads: usize, rows: usize, columns: usize) -> [isize; 4] {
    [(heads * rows * columns) as isize, (rows * columns) as isize, columns as isize, 1]
}

/// # Safety
/// As [`attention`], for elements of type `T`.
unsafe fn widened<T: Copy + Send + Sync>(
    sizes: &Attention,
    operands: &Operands,
    widen: fn(T) -> f32,
    narrow: fn(f32) -> T,
) {
    let Attention { batch, heads, key_heads, rows, keys, depth, columns, .. } = *sizes;
    let parts = [
        batch * heads * rows * depth,
        batch * key_heads * keys * depth,
        batch * key_heads * keys * columns,
        operands.mask.map_or(0, |_| batch * heads * rows * keys),
        batch * heads * rows * columns,
    ];
    scratch::with(parts.iter().sum(), |memory: &mut [f32]| {
        let (q, rest) = memory.split_at_mut(parts[0]);
        let (k, rest) = rest.split_at_mut(parts[1]);
        let (v, rest) = rest.split_at_mut(parts[2]);
        let (m, out) = rest.split_at_mut(parts[3]);
        // SAFETY: the caller vouches for the elements; the copies have as many.
        unsafe {
            gather(&operands.queries, [batch, heads, rows, depth], widen, q);
            gather(&operands.keys, [batch, key_heads, keys, depth], widen, k);
            gather(&operands.values, [batch, key_heads, keys, columns], widen, v);
            if let Some(mask) = &operands.mask {
                gather(mask, [batch, heads, rows, keys], widen, m);
            }
            let strides = [dense(heads, rows, depth), dense(key_heads, keys, depth), dense(key_heads, keys, columns)];
            let (mask_strides, out_strides) = (dense(heads, rows, keys), dense(heads, rows, columns));
            let own = Operands {
                queries: Memory::new(q.as_ptr() as usize, &strides[0]),
                keys: Memory::new(k.as_ptr() as usize, &strides[1]),
                values: Memory::new(v.as_ptr() as usize, &strides[2]),
                mask: operands.mask.map(|_| Memory::new(m.as_ptr() as usize, &mask_strides)),
                out: Memory::new(out.as_mut_ptr() as usize, &out_strides),
            };
            single(sizes, &own);
        }
        let out = &*out;
        parallel_for(batch * heads * rows, columns, |begin, end| {
            for row in begin..end {
                let offset = row_offset(&operands.out, [batch, heads, rows, columns], row) * size_of::<T>() as isize;
                // SAFETY: the row has as many neighbouring elements; this task alone writes them.
                let to =
                    unsafe { super::memory::slice_mut::<T>(operands.out.address.wrapping_add_signed(offset), columns) };
                to.iter_mut().zip(&out[row * columns..]).for_each(|(to, &x)| *to = narrow(x));
            }
        });
    });
}

/// A dense float32 copy.
///
/// # Safety
/// The elements are readable; `to` has as many.
unsafe fn gather<T: Copy + Send + Sync>(from: &Memory, dims: [usize; 4], widen: fn(T) -> f32, to: &mut [f32]) {
    let to = Shared::new(to);
    parallel_for(dims[0] * dims[1] * dims[2], dims[3], |begin, end| {
        for row in begin..end {
            // SAFETY: this task alone has the row; the caller vouches for the elements.
            unsafe {
                let line = to.part(row * dims[3], dims[3]);
                let start = (from.address as *const T).offset(row_offset(from, dims, row));
                for (i, to) in line.iter_mut().enumerate() {
                    *to = widen(*start.offset(i as isize * from.strides[3]));
                }
            }
        }
    });
}

/// Elements from the first one to row `row` of all batches and heads.
fn row_offset(memory: &Memory, dims: [usize; 4], row: usize) -> isize {
    let (head, i) = (row / dims[2], row % dims[2]);
    let at = [head / dims[1], head % dims[1], i].map(|i| i as isize);
    (0..3).map(|d| at[d] * memory.strides[d]).sum()
}

/// # Safety
/// As [`attention`], for float32.
unsafe fn single(sizes: &Attention, operands: &Operands) {
    let Attention { batch, heads, key_heads, rows, keys, depth, columns, .. } = *sizes;
    let width = tile::width();
    let padded = keys.next_multiple_of(width).max(width);
    let padded_columns = columns.next_multiple_of(width);
    // Values are read in place where their rows can be read in whole vectors.
    let in_place = operands.values.strides[3] == 1 && columns.is_multiple_of(width);
    let lines = operands.queries.strides[3] == 1;
    let sets = batch * key_heads;
    let (key_len, value_len) = (padded * depth, if in_place { 0 } else { keys * padded_columns });
    let query_len = if lines { 0 } else { batch * heads * rows * depth };
    scratch::with(sets * (key_len + value_len) + query_len, |memory: &mut [f32]| {
        let (packed_keys, rest) = memory.split_at_mut(sets * key_len);
        let (packed_values, packed_queries) = rest.split_at_mut(sets * value_len);
        let (key_parts, value_parts) = (Shared::new(packed_keys), Shared::new(packed_values));
        parallel_for(sets, keys * (depth + columns) / 4 + 50, |begin, end| {
            for set in begin..end {
                let (b, head) = ((set / key_heads) as isize, (set % key_heads) as isize);
                let start = |memory: &Memory| {
                    (memory.address as *const f32).wrapping_offset(b * memory.strides[0] + head * memory.strides[1])
                };
                // SAFETY: this task alone has the set's parts; the elements are the caller's.
                unsafe {
                    let strides = (operands.keys.strides[3], operands.keys.strides[2]);
                    let part = key_parts.part(set * key_len, key_len);
                    tile::pack_keys(start(&operands.keys), strides, (depth, keys), width, part);
                    if !in_place {
                        let part = value_parts.part(set * value_len, value_len);
                        let strides = (operands.values.strides[2], operands.values.strides[3]);
                        tile::pack_rows(start(&operands.values), strides, (keys, columns), padded_columns, part);
                    }
                }
            }
        });
        let strides = dense(heads, rows, depth);
        let mut queries = operands.queries;
        if !lines {
            // SAFETY: as above.
            unsafe { gather(&operands.queries, [batch, heads, rows, depth], |x: f32| x, packed_queries) };
            queries = Memory::new(packed_queries.as_ptr() as usize, &strides);
        }
        let block = tile::rows_of_block(padded, rows);
        let blocks = rows.div_ceil(block);
        let (packed_keys, packed_values) = (&*packed_keys, &*packed_values);
        let ns = block * keys * (depth + columns) / 40 + block * keys / 4 + 100;
        parallel_for(batch * heads * blocks, ns, |begin, end| {
            scratch::with(block * padded + padded, |scores: &mut [f32]| {
                for task in begin..end {
                    let (set, first) = (task / blocks, task % blocks * block);
                    let (b, head) = (set / heads, set % heads);
                    let key_set = b * key_heads + head / (heads / key_heads);
                    let at = |memory: &Memory, head: usize| {
                        let offset = b as isize * memory.strides[0] + head as isize * memory.strides[1];
                        (memory.address as *const f32).wrapping_offset(offset)
                    };
                    let (values, value_stride) = if in_place {
                        (at(&operands.values, head / (heads / key_heads)), operands.values.strides[2])
                    } else {
                        (packed_values[key_set * value_len..].as_ptr(), padded_columns as isize)
                    };
                    let tile = Tile {
                        sizes,
                        first,
                        rows: block.min(rows - first),
                        padded,
                        queries: at(&queries, head),
                        query_stride: queries.strides[2],
                        keys: packed_keys[key_set * key_len..].as_ptr(),
                        values,
                        value_stride,
                        mask: operands.mask.map(|mask| (at(&mask, head), mask.strides[2], mask.strides[3])),
                        out: at(&operands.out, head).cast_mut(),
                        out_stride: operands.out.strides[2],
                    };
                    // SAFETY: the tile's operands are packed or the caller's; its rows of the result are this task's.
                    unsafe { tile.run(scores) };
                }
            });
        });
    });
}

#[cfg(test)]
mod tests;
