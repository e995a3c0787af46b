//! Attention where a model has it as one operator.

use crate::error::Result;
use crate::lower::{Lowering, Table, Value, size_of, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::attention::Attention;
use openmps::operators::operators::elementwise::{Binary, Unary};
use openmps::operators::operators::expand::Expand;
use openmps::operators::operators::pad::{Mode, Pad};
use openmps::operators::operators::softmax::Softmax;
use openmps::tile::Number;
use std::slice::from_ref;

pub(super) const TABLE: Table = &[("Attention", attention)];

/// What an attention is of, its heads before its rows.
struct Parts {
    queries: Value,
    keys: Value,
    values: Value,
    /// Added to the scores.
    mask: Option<Value>,
    scale: f64,
    soft_cap: Option<f64>,
}

/// Queries, keys and values, a mask, the keys and values before, and how many keys of each batch are no padding. Outputs: the result, all keys
/// and values, and the scores at one of four stages.
fn attention(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let given = [lowering.input(operation, 0)?, lowering.input(operation, 1)?, lowering.input(operation, 2)?];
    let joined = lowering.shape(&given[0])?.len() == 3;
    let heads = ["q_num_heads", "kv_num_heads", "kv_num_heads"].map(|name| operation.integer(name, 0));
    let mut apart = Vec::with_capacity(3);
    for (value, heads) in given.iter().zip(heads) {
        apart.push(lowering.heads_first(operation, value, size_of(operation, heads?)?)?);
    }
    let mut past = 0;
    for (at, own) in apart.iter_mut().enumerate().skip(1) {
        if let Some(before) = lowering.optional(operation, 3 + at)? {
            past = lowering.shape(&before)?.get(2).copied().unwrap_or(0);
            *own = lowering.concat(&[before, own.clone()], 2)?;
        }
    }
    let [queries, keys, values] = <[Value; 3]>::try_from(apart).map_err(|_| wrong(operation, "three inputs"))?;
    let depth = lowering.shape(&queries)?[3] as f64;
    let parts = Parts {
        mask: mask(lowering, operation, [&queries, &keys], past)?,
        queries,
        keys,
        values,
        scale: operation.float("scale", 1.0 / depth.sqrt())?,
        soft_cap: Some(operation.float("softcap", 0.0)?).filter(|&cap| cap != 0.0),
    };
    let mut inputs = vec![parts.queries.clone(), parts.keys.clone(), parts.values.clone()];
    inputs.extend(parts.mask.clone());
    let of = Attention { scale: Some(parts.scale), causal: false, window: None, soft_cap: parts.soft_cap };
    let mut y = lowering.one(of, &inputs)?;
    if joined {
        y = lowering.heads_joined(operation, &y)?;
    }
    let mut outputs = vec![y, parts.keys.clone(), parts.values.clone()];
    if operation.outputs.get(3).is_some_and(Option::is_some) {
        outputs.push(scores(lowering, operation, &parts)?);
    }
    Ok(outputs)
}

/// What is added to the scores: the model's mask, and minus infinity where a query does not see a key.
fn mask(
    lowering: &mut Lowering,
    operation: &Operation,
    [queries, keys]: [&Value; 2],
    past: usize,
) -> Result<Option<Value>> {
    let (dtype, rows, count) = (lowering.data_type(queries)?, lowering.shape(queries)?[2], lowering.shape(keys)?[2]);
    let mut seen = Vec::new();
    let mut sum = None;
    if let Some(given) = lowering.optional(operation, 3)? {
        let given = lowering.of_rank(&given, 4)?;
        let is_truth = lowering.data_type(&given)? == DataType::Bool;
        // Keys beyond it are not seen.
        let missing = count.saturating_sub(lowering.shape(&given)?[3]) as i64;
        let outside = if is_truth { Number::Integer(0) } else { Number::Float(f64::NEG_INFINITY) };
        let pad = Pad { paddings: vec![(0, 0), (0, 0), (0, 0), (0, missing)], mode: Mode::Constant, value: outside };
        let given = if missing > 0 { lowering.one(pad, from_ref(&given))? } else { given };
        if is_truth { seen.push(given) } else { sum = Some(given) }
    }
    let key = lowering.counted(count, DataType::I64)?;
    let query = lowering.counted(rows, DataType::I64)?;
    let query = lowering.reshape(&query, &[rows, 1])?;
    let mut place = lowering.scaled(&query, 1.0, past as f64)?;
    if let Some(lengths) = lowering.optional(operation, 6)? {
        let batch = lowering.shape(&lengths)?.iter().product();
        let lengths = lowering.cast(&lengths, DataType::I64)?;
        let lengths = lowering.reshape(&lengths, &[batch, 1, 1, 1])?;
        seen.push(lowering.binary(Binary::LessThan, &key, &lengths)?);
        let offset = lowering.scaled(&lengths, 1.0, -(rows as f64))?;
        place = lowering.binary(Binary::Add, &query, &offset)?;
    }
    let (right, left) = (operation.integer("right_window_size", -1)?, operation.integer("left_window_size", -1)?);
    if operation.flag("is_causal", false)? {
        seen.push(lowering.binary(Binary::LessEqual, &key, &place)?);
    }
    for (window, sign, order) in [(right, 1.0, Binary::LessEqual), (left, -1.0, Binary::GreaterEqual)] {
        if window >= 0 {
            let edge = lowering.scaled(&place, 1.0, sign * window as f64)?;
            seen.push(lowering.binary(order, &key, &edge)?);
        }
    }
    lowering.unseen(sum, &seen, dtype)
}

/// The scores as they are, capped, masked, or as weights.
fn scores(lowering: &mut Lowering, operation: &Operation, parts: &Parts) -> Result<Value> {
    let [batch, heads, count, depth] = lowering.shape(&parts.keys)?[..] else {
        return Err(wrong(operation, "its keys"));
    };
    let all = lowering.shape(&parts.queries)?[1];
    // A head of keys serves neighbouring heads of queries.
    let keys = lowering.reshape(&parts.keys, &[batch, heads, 1, count, depth])?;
    let each = all.checked_div(heads).unwrap_or(0);
    let dims = [batch, heads, each, count, depth].map(|size| size as i64).to_vec();
    let keys = lowering.one(Expand { dims }, &[keys])?;
    let keys = lowering.reshape(&keys, &[batch, all, count, depth])?;
    let product = lowering.matmul(&parts.queries, &keys, [false, true])?;
    let mut scores = lowering.scaled(&product, parts.scale, 0.0)?;
    let stage = operation.integer("qk_matmul_output_mode", 0)?;
    if let (Some(cap), 1..) = (parts.soft_cap, stage) {
        let share = lowering.scaled(&scores, 1.0 / cap, 0.0)?;
        let share = lowering.unary(Unary::Tanh, &share)?;
        scores = lowering.scaled(&share, cap, 0.0)?;
    }
    if let (Some(mask), 2..) = (&parts.mask, stage) {
        scores = lowering.binary(Binary::Add, &scores, mask)?;
    }
    if stage < 3 {
        return Ok(scores);
    }
    let weights = lowering.one(Softmax { axis: -1, logarithm: false }, &[scores])?;
    // A query that sees nothing has no weights.
    let is_none = lowering.unary(Unary::IsNan, &weights)?;
    let zero = lowering.number_like(&weights, 0.0)?;
    lowering.choose(&is_none, &zero, &weights)
}

impl Lowering<'_> {
    /// What is added to the scores, and minus infinity where one of the conditions does not hold.
    pub(super) fn unseen(&mut self, sum: Option<Value>, seen: &[Value], dtype: DataType) -> Result<Option<Value>> {
        let (zero, never) = (self.filled(&[], dtype, 0.0)?, self.filled(&[], dtype, f64::NEG_INFINITY)?);
        let mut sum = sum;
        for seen in seen {
            let own = self.choose(seen, &zero, &never)?;
            sum = Some(self.added(sum, own)?);
        }
        sum.map(|sum| self.of_rank(&sum, 4)).transpose()
    }

    /// `[batch, rows, heads * depth]` as `[batch, heads, rows, depth]`; what is so already stays.
    pub(super) fn heads_first(&mut self, operation: &Operation, x: &Value, heads: usize) -> Result<Value> {
        let shape = self.shape(x)?;
        let [batch, rows, width] = match shape[..] {
            [batch, rows, width] => [batch, rows, width],
            [_, _, _, _] => return Ok(x.clone()),
            _ => return Err(wrong(operation, format!("rows of shape {shape:?}"))),
        };
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(wrong(operation, format!("{width} columns of {heads} heads")));
        }
        let apart = self.reshape(x, &[batch, rows, heads, width / heads])?;
        self.transpose(&apart, &[0, 2, 1, 3])
    }

    /// `[batch, heads, rows, depth]` as `[batch, rows, heads * depth]`.
    pub(super) fn heads_joined(&mut self, operation: &Operation, x: &Value) -> Result<Value> {
        let y = self.transpose(x, &[0, 2, 1, 3])?;
        let [batch, rows, heads, depth] = self.shape(&y)?[..] else { return Err(wrong(operation, "its result")) };
        self.reshape(&y, &[batch, rows, heads * depth])
    }
}
