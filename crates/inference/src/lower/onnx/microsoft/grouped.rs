//! Attention with a cache of keys and values, as exported language models have it: heads of keys serve several heads of queries, rotary embeddings inside.

use super::refuse;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, size_of, wrong};
use crate::program::{Attribute, Operation};
use openmps::DataType;
use openmps::operators::operators::attention::Attention;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::gather::Gather;

pub(in crate::lower::onnx) const TABLE: Table = &[("com.microsoft.GroupQueryAttention", grouped)];

/// Where the new rows begin among all.
enum Begin {
    At(usize),
    /// For each sequence, as `[batch, 1, 1, 1]` of int64.
    Each(Value),
}

/// What is known of the rows of queries and of all keys.
struct Rows {
    begin: Begin,
    rows: usize,
    /// Rows of the longest sequence, the new ones among them.
    total: usize,
    /// Rows of each sequence, as `[batch, 1, 1, 1]` of int64.
    lengths: Value,
}

/// Queries, keys and values, or all in the first; the cache of keys and of values; the last row's number of each sequence, the longest sequence's length; tables
/// of cosines and sines, places, something added to the scores, the score of a key that is not there. Outputs: the result, both caches.
fn grouped(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    refuse(operation, &["sliding_window_cache", "kv_cache_bit_width", "qk_output"])?;
    refuse_unknown(lowering, operation)?;
    // Reading it may run the graph so far: inputs come after that.
    let total = lowering.number_at(operation, 6)?.ok_or_else(|| wrong(operation, "no length of all rows"))?;
    let total = size_of(operation, total as i64)?;
    let [queries, keys, values] = apart(lowering, operation)?;
    let [batch, _, rows, _] = lowering.shape(&queries)?[..] else { return Err(wrong(operation, "its queries")) };
    let lengths = lowering.input(operation, 5)?;
    let lengths = lowering.cast(&lengths, DataType::I64)?;
    let lengths = lowering.reshape(&lengths, &[batch, 1, 1, 1])?;
    let lengths = lowering.scaled(&lengths, 1.0, 1.0)?;
    if total < rows {
        return Err(wrong(operation, format!("{rows} new rows of {total}")));
    }
    let begin = match (rows == total, batch) {
        (true, _) => Begin::At(0),
        // The longest of one sequence is this one.
        (_, 1) => Begin::At(total - rows),
        _ => Begin::Each(lowering.scaled(&lengths, 1.0, -(rows as f64))?),
    };
    let of = Rows { begin, rows, total, lengths };
    let [queries, keys] = turned(lowering, operation, [queries, keys], &of)?;
    let keys = cached(lowering, operation, 3, &keys, &of)?;
    let values = cached(lowering, operation, 4, &values, &of)?;
    let y = attended(lowering, operation, [&queries, &keys, &values], &of)?;
    Ok(vec![lowering.heads_joined(operation, &y)?, keys, values])
}

/// A cache of other elements, and norms of queries and keys.
fn refuse_unknown(lowering: &mut Lowering, operation: &Operation) -> Result<()> {
    for at in 12..16 {
        if lowering.optional(operation, at)?.is_some() {
            return Err(wrong(operation, format!("its input {at}: scales of a cache, or norms of queries and keys")));
        }
    }
    for name in ["k_quant_type", "v_quant_type"] {
        if let Some(Attribute::Text(kind)) =
            operation.attributes.get(name).filter(|kind| **kind != Attribute::Text("NONE".into()))
        {
            return Err(wrong(operation, format!("a cache of integers, {kind}")));
        }
    }
    Ok(())
}

/// Queries, keys and values with their heads before their rows.
fn apart(lowering: &mut Lowering, operation: &Operation) -> Result<[Value; 3]> {
    let (heads, of_keys) = (operation.integer("num_heads", 0)?, operation.integer("kv_num_heads", 0)?);
    let (heads, of_keys) = (size_of(operation, heads)?, size_of(operation, of_keys)?);
    let first = lowering.input(operation, 0)?;
    let parts = match (lowering.optional(operation, 1)?, lowering.optional(operation, 2)?) {
        (Some(keys), Some(values)) => vec![first, keys, values],
        _ => {
            let width = lowering.shape(&first)?.get(2).copied().unwrap_or(0);
            let all = of_keys.saturating_mul(2).saturating_add(heads);
            if all == 0 || !width.is_multiple_of(all) {
                return Err(wrong(operation, format!("{width} columns of {all} heads")));
            }
            lowering.split(&first, 2, &[heads, of_keys, of_keys].map(|heads| heads * (width / all)))?
        }
    };
    let mut result = Vec::with_capacity(3);
    for (part, heads) in parts.iter().zip([heads, of_keys, of_keys]) {
        result.push(lowering.heads_first(operation, part, heads)?);
    }
    <[Value; 3]>::try_from(result).map_err(|_| wrong(operation, "three inputs"))
}

/// Queries and keys after a rotary embedding, where the operation asks for it.
fn turned(lowering: &mut Lowering, operation: &Operation, parts: [Value; 2], of: &Rows) -> Result<[Value; 2]> {
    if !operation.flag("do_rotary", false)? {
        return Ok(parts);
    }
    let given = lowering.optional(operation, 9)?;
    let tables = match (&given, &of.begin) {
        (Some(places), _) => lowering.angles(operation, [7, 8], Some(places))?,
        (None, Begin::At(begin)) => {
            let mut rows = Vec::with_capacity(2);
            for table in lowering.angles(operation, [7, 8], None)? {
                rows.push(lowering.narrow(&table, 0, *begin, begin + of.rows)?);
            }
            <[Value; 2]>::try_from(rows).map_err(|_| wrong(operation, "two tables"))?
        }
        (None, Begin::Each(begin)) => {
            let row = lowering.counted(of.rows, DataType::I64)?;
            let batch = lowering.shape(begin)?[0];
            let begin = lowering.reshape(begin, &[batch, 1])?;
            let places = lowering.binary(Binary::Add, &begin, &row)?;
            lowering.angles(operation, [7, 8], Some(&places))?
        }
    };
    let interleaved = operation.flag("rotary_interleaved", false)?;
    let [queries, keys] = parts;
    Ok([
        lowering.turned(operation, &queries, tables.clone(), interleaved)?,
        lowering.turned(operation, &keys, tables, interleaved)?,
    ])
}

/// A cache with the new rows in it: as long as it was, or as all rows.
fn cached(lowering: &mut Lowering, operation: &Operation, at: usize, new: &Value, of: &Rows) -> Result<Value> {
    let past = lowering.optional(operation, at)?;
    let kept = match &past {
        Some(past) => lowering.shape(past)?.get(2).copied().unwrap_or(0),
        None => 0,
    };
    let past = past.filter(|_| kept > 0);
    let begin = match &of.begin {
        Begin::At(begin) => *begin,
        Begin::Each(begin) => {
            if of.total > kept + of.rows {
                return Err(wrong(
                    operation,
                    format!("{} rows, of which {kept} are there and {} new", of.total, of.rows),
                ));
            }
            let past = past.ok_or_else(|| wrong(operation, "rows behind others that are not there"))?;
            let all = lowering.concat(&[past, new.clone()], 2)?;
            return placed(lowering, operation, &all, [kept, of.rows, kept.max(of.total)], begin);
        }
    };
    if begin > kept {
        return Err(wrong(operation, format!("rows behind {begin} others, of which {kept} are there")));
    }
    let mut parts = Vec::with_capacity(3);
    if let (Some(past), 1..) = (&past, begin) {
        parts.push(lowering.narrow(past, 2, 0, begin)?);
    }
    parts.push(new.clone());
    if let (Some(past), true) = (&past, kept > of.total) {
        parts.push(lowering.narrow(past, 2, of.total, kept)?);
    }
    if parts.len() == 1 { Ok(new.clone()) } else { lowering.concat(&parts, 2) }
}

/// Of kept and new rows, one behind the other, those of the longest sequence: each sequence's new ones behind as many as it has.
fn placed(
    lowering: &mut Lowering,
    operation: &Operation,
    all: &Value,
    [kept, new, count]: [usize; 3],
    begin: &Value,
) -> Result<Value> {
    let [batch, heads, rows, depth] = lowering.shape(all)?[..] else { return Err(wrong(operation, "its cache")) };
    let place = lowering.counted(count, DataType::I64)?;
    let place = lowering.reshape(&place, &[1, 1, count])?;
    let begin = lowering.reshape(begin, &[batch, 1, 1])?;
    let is_kept = lowering.binary(Binary::LessThan, &place, &begin)?;
    let behind = lowering.binary(Binary::Subtract, &place, &begin)?;
    // What lies behind a sequence is nobody's: its last row again.
    let last = lowering.number_like(&behind, new as f64 - 1.0)?;
    let behind = lowering.binary(Binary::Minimum, &behind, &last)?;
    let behind = lowering.scaled(&behind, 1.0, kept as f64)?;
    let row = lowering.choose(&is_kept, &place, &behind)?;
    let head = lowering.counted(batch * heads, DataType::I64)?;
    let head = lowering.reshape(&head, &[batch, heads, 1])?;
    let head = lowering.scaled(&head, rows as f64, 0.0)?;
    let row = lowering.binary(Binary::Add, &head, &row)?;
    let matrix = lowering.reshape(all, &[batch * heads * rows, depth])?;
    lowering.one(Gather { axis: 0 }, &[matrix, row])
}

/// The attention of the new rows to all.
fn attended(
    lowering: &mut Lowering,
    operation: &Operation,
    [queries, keys, values]: [&Value; 3],
    of: &Rows,
) -> Result<Value> {
    let [_, _, kept, depth] = lowering.shape(keys)?[..] else { return Err(wrong(operation, "its keys")) };
    let mut inputs = vec![queries.clone(), keys.clone(), values.clone()];
    if kept > of.total {
        for part in &mut inputs[1..] {
            *part = lowering.narrow(part, 2, 0, of.total)?;
        }
    }
    let scale = Some(operation.float("scale", 0.0)?).filter(|&scale| scale != 0.0);
    let soft_cap = Some(operation.float("softcap", 0.0)?).filter(|&cap| cap > 0.0);
    let causal = operation.flag("causal", true)?;
    let window = usize::try_from(operation.integer("local_window_size", -1)?).ok().filter(|&window| window > 0);
    let mut added = lowering.optional(operation, 10)?;
    let is_smooth = operation.flag("smooth_softmax", false)?;
    let sink = lowering.optional(operation, 11)?;
    let is_plain = matches!(of.begin, Begin::At(_)) && causal && sink.is_none() && !is_smooth;
    if !is_plain {
        let seen = seen(lowering, of, causal, window)?;
        added = lowering.unseen(added, &seen, lowering.data_type(queries)?)?;
    }
    if sink.is_some() || is_smooth {
        with_sink(lowering, &mut inputs, &mut added, sink)?;
    }
    inputs.extend(added);
    let scale = Some(scale.unwrap_or(1.0 / (depth as f64).sqrt()));
    let of = Attention { scale, causal: is_plain, window: window.filter(|_| is_plain), soft_cap };
    lowering.one(of, &inputs)
}

/// Which keys each new row sees, as what broadcasts to `[batch, heads, rows, keys]`.
fn seen(lowering: &mut Lowering, of: &Rows, causal: bool, window: Option<usize>) -> Result<Vec<Value>> {
    let key = lowering.counted(of.total, DataType::I64)?;
    let row = lowering.counted(of.rows, DataType::I64)?;
    let row = lowering.reshape(&row, &[of.rows, 1])?;
    let place = match &of.begin {
        Begin::At(begin) => lowering.scaled(&row, 1.0, *begin as f64)?,
        Begin::Each(begin) => lowering.binary(Binary::Add, begin, &row)?,
    };
    if !causal {
        return Ok(vec![lowering.binary(Binary::LessThan, &key, &of.lengths)?]);
    }
    let mut seen = vec![lowering.binary(Binary::LessEqual, &key, &place)?];
    if let Some(window) = window {
        let edge = lowering.scaled(&place, 1.0, -(window as f64))?;
        seen.push(lowering.binary(Binary::GreaterThan, &key, &edge)?);
    }
    Ok(seen)
}

/// One more key, of zeros and with zeros for a value, whose score is each head's own number, or 0: it takes a part of the weights away.
fn with_sink(
    lowering: &mut Lowering,
    inputs: &mut [Value],
    added: &mut Option<Value>,
    sink: Option<Value>,
) -> Result<()> {
    let ([batch, heads, rows, _], dtype) =
        (<[usize; 4]>::try_from(lowering.shape(&inputs[0])?).unwrap_or_default(), lowering.data_type(&inputs[0])?);
    let sink = match sink {
        Some(sink) => lowering.reshape(&sink, &[1, heads, 1, 1])?,
        None => lowering.filled(&[1, 1, 1, 1], dtype, 0.0)?,
    };
    let dims = [batch, heads, rows, 1];
    let sink = lowering.expanded(&sink, &dims)?;
    let count = lowering.shape(&inputs[1])?[2];
    let scores = match added.take() {
        Some(added) => lowering.expanded(&added, &[batch, heads, rows, count])?,
        None => lowering.filled(&[batch, heads, rows, count], dtype, 0.0)?,
    };
    *added = Some(lowering.concat(&[scores, sink], 3)?);
    for part in &mut inputs[1..] {
        let mut shape = lowering.shape(part)?;
        shape[2] = 1;
        let nothing = lowering.filled(&shape, dtype, 0.0)?;
        *part = lowering.concat(&[part.clone(), nothing], 2)?;
    }
    Ok(())
}
