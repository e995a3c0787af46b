//! Attention with its projections, as ONNX Runtime's optimiser joins them, and rotary embeddings.

use super::refuse;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, size_of, wrong};
use crate::program::Operation;
use openmps::operators::operators::attention::Attention;
use openmps::operators::operators::concat::Stack;
use openmps::operators::operators::elementwise::Binary;

pub(in crate::lower::onnx) const TABLE: Table =
    &[("com.microsoft.Attention", attention), ("com.microsoft.MultiHeadAttention", of_heads)];

/// What masks are added as where the operation does not say.
const HIDDEN: f64 = -10000.0;

/// Queries, keys and values by one weight `[inputs, three times the columns]` with a bias. Inputs behind: which keys are seen, keys and values before, something
/// that is added to the scores.
fn attention(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    refuse(operation, &["do_rotary", "past_present_share_buffer"])?;
    let (x, weight) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let joined = lowering.matmul(&x, &weight, [false; 2])?;
    let joined = lowering.plus_input(operation, joined, 2)?;
    let width = lowering.shape(&joined)?.last().copied().unwrap_or(0);
    let sections = match operation.integers("qkv_hidden_sizes")? {
        Some(sizes) => crate::lower::sizes_of(operation, sizes)?,
        None => vec![width / 3; 3],
    };
    let parts = lowering.split(&joined, 2, &sections)?;
    let mut apart = Vec::with_capacity(3);
    for part in &parts {
        apart.push(lowering.heads_apart(operation, part)?);
    }
    let past = match lowering.optional(operation, 4)? {
        Some(past) => {
            let both = [lowering.narrow(&past, 0, 0, 1)?, lowering.narrow(&past, 0, 1, 2)?];
            Some([lowering.without(&both[0], &[0])?, lowering.without(&both[1], &[0])?])
        }
        None => None,
    };
    let (mask, added) = (lowering.optional(operation, 3)?, lowering.optional(operation, 5)?);
    let [y, keys, values] = lowering.attend(operation, apart, past, mask, added)?;
    let present = lowering.one(Stack { axis: 0 }, &[keys, values])?;
    Ok(vec![y, present])
}

/// Queries, keys and values, each `[batch, rows, columns]`, or with their heads apart; a bias of all three; which keys are seen; something that is added to the
/// scores; keys and values before.
fn of_heads(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    if lowering.optional(operation, 8)?.is_some() || lowering.optional(operation, 9)?.is_some() {
        return Err(wrong(operation, "a cache that is written in place, or whose rows are chosen"));
    }
    let mut parts = unpacked(lowering, operation)?;
    if let Some(bias) = lowering.optional(operation, 3)? {
        let mut begin = 0;
        for part in &mut parts {
            let [_, _, columns] = lowering.shape(part)?[..] else { continue };
            let own = lowering.narrow(&bias, 0, begin, begin + columns)?;
            *part = lowering.binary(Binary::Add, part, &own)?;
            begin += columns;
        }
    }
    let mut apart = Vec::with_capacity(3);
    for part in &parts {
        apart.push(lowering.heads_apart(operation, part)?);
    }
    let past = match (lowering.optional(operation, 6)?, lowering.optional(operation, 7)?) {
        (Some(keys), Some(values)) => Some([keys, values]),
        _ => None,
    };
    let (mask, added) = (lowering.optional(operation, 4)?, lowering.optional(operation, 5)?);
    Ok(lowering.attend(operation, apart, past, mask, added)?.to_vec())
}

/// Queries, keys and values, of which the last two, or all, may be one tensor `[batch, rows, heads, 2 or 3, depth]`.
fn unpacked(lowering: &mut Lowering, operation: &Operation) -> Result<[Value; 3]> {
    let (first, second, third) =
        (lowering.input(operation, 0)?, lowering.optional(operation, 1)?, lowering.optional(operation, 2)?);
    let (packed, mut parts) = match (second, third) {
        (Some(keys), Some(values)) => return Ok([first, keys, values]),
        (Some(both), None) => (both, vec![first]),
        _ => (first, Vec::new()),
    };
    let [batch, rows, heads, count, depth] = lowering.shape(&packed)?[..] else {
        return Err(wrong(operation, "keys without values"));
    };
    for at in 0..count {
        let own = lowering.narrow(&packed, 3, at, at + 1)?;
        parts.push(lowering.reshape(&own, &[batch, rows, heads * depth])?);
    }
    <[Value; 3]>::try_from(parts).map_err(|_| wrong(operation, format!("{count} parts of one tensor")))
}

impl Lowering<'_> {
    fn heads_apart(&mut self, operation: &Operation, part: &Value) -> Result<Value> {
        self.heads_first(operation, part, size_of(operation, operation.integer("num_heads", 0)?)?)
    }

    /// The result as `[batch, rows, columns]`, and all keys and values, with their heads before their rows.
    fn attend(
        &mut self,
        operation: &Operation,
        apart: Vec<Value>,
        past: Option<[Value; 2]>,
        mask: Option<Value>,
        added: Option<Value>,
    ) -> Result<[Value; 3]> {
        let [queries, mut keys, mut values] =
            <[Value; 3]>::try_from(apart).map_err(|_| wrong(operation, "three inputs"))?;
        if let Some([before, values_before]) = past {
            keys = self.concat(&[before, keys], 2)?;
            values = self.concat(&[values_before, values], 2)?;
        }
        let (count, depth) = (self.shape(&keys)?[2], self.shape(&queries)?[3]);
        let dtype = self.data_type(&queries)?;
        let mut sum = added.map(|added| self.of_rank(&added, 4)).transpose()?;
        if let Some(mask) = mask {
            let seen = self.seen(operation, &mask, [self.shape(&queries)?[0], count])?;
            let zero = self.filled(&[], dtype, 0.0)?;
            let hidden = self.filled(&[], dtype, operation.float("mask_filter_value", HIDDEN)?)?;
            let own = self.choose(&seen, &zero, &hidden)?;
            sum = Some(self.added(sum, own)?);
        }
        let scale = operation.float("scale", 0.0)?;
        let scale = if scale == 0.0 { 1.0 / (depth as f64).sqrt() } else { scale };
        let causal = operation.flag("unidirectional", false)?;
        let of = Attention { scale: Some(scale), causal, window: None, soft_cap: None };
        let mut inputs = vec![queries, keys.clone(), values.clone()];
        inputs.extend(sum);
        let y = self.one(of, &inputs)?;
        Ok([self.heads_joined(operation, &y)?, keys, values])
    }

    /// Which keys are seen, as what broadcasts to `[batch, heads, rows, keys]`: a mask of keys, of rows and keys, the number of keys of each sequence, or those and
    /// where each begins.
    fn seen(&mut self, operation: &Operation, mask: &Value, [batches, count]: [usize; 2]) -> Result<Value> {
        let shape = self.shape(mask)?;
        let zero = self.number_like(mask, 0.0)?;
        match shape[..] {
            [numbers] if numbers == batches || numbers == 2 * batches => {
                let key = self.counted(count, self.data_type(mask)?)?;
                let ends = self.narrow(mask, 0, 0, batches)?;
                let ends = self.reshape(&ends, &[batches, 1, 1, 1])?;
                let before = self.binary(Binary::LessThan, &key, &ends)?;
                if numbers == batches {
                    return Ok(before);
                }
                let starts = self.narrow(mask, 0, batches, numbers)?;
                let starts = self.reshape(&starts, &[batches, 1, 1, 1])?;
                let behind = self.binary(Binary::GreaterEqual, &key, &starts)?;
                self.binary(Binary::LogicalAnd, &before, &behind)
            }
            [batch, keys] => {
                let mask = self.reshape(mask, &[batch, 1, 1, keys])?;
                self.binary(Binary::NotEqual, &mask, &zero)
            }
            [batch, rows, keys] => {
                let mask = self.reshape(mask, &[batch, 1, rows, keys])?;
                self.binary(Binary::NotEqual, &mask, &zero)
            }
            _ => Err(wrong(operation, format!("a mask of shape {shape:?}"))),
        }
    }
}
