//! A step of a language model: attention of one new token of each sequence to those that are kept, masked_multihead_attention.

use super::compose::Compose;
use super::values::{dims, expect_len, integers, positive};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::attention::Attention;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::sequence::Arange;
use openmps_graph::{DType, View};
use openmps_tile::Number;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("masked_multihead_attention", FLOATS, masked_attention).output(2, DType::I32);
}

/// What is kept: keys (batch, heads, size / pack, length, pack) and values (batch, heads, length, size). Of a key 16 bytes lie together.
struct Cache {
    keys: View,
    values: View,
    batch: usize,
    heads: usize,
    length: usize,
    size: usize,
}

impl Cache {
    fn new(c: &Compose, given: &Tensor, memory: &View) -> Result<Cache> {
        let [two, batch, heads, length, size] = dims("cache_kv", given)?;
        let pack = 16 / memory.dtype.size();
        if two != 2 || size == 0 || !size.is_multiple_of(pack) {
            let expected = format!("(2, batch, heads, length, a multiple of {pack})");
            return Err(refuse("cache_kv", given.shape(), &expected));
        }
        let half = |at: usize| memory.narrowed(0, at, 1, 1);
        let keys = c.shaped(&half(0), &[batch, heads, size / pack, length, pack])?;
        let values = c.shaped(&half(1), &[batch, heads, length, size])?;
        Ok(Cache { keys, values, batch, heads, length, size })
    }

    /// Adds the key and value (heads, size) of a sequence at its place.
    fn put(&self, c: &Compose, row: usize, at: usize, key: &View, value: &View) -> Result<()> {
        let to = self.keys.narrowed(0, row, 1, 1).narrowed(3, at, 1, 1);
        let from = c.shaped(&c.apply(&Copy, std::slice::from_ref(key))?, &to.shape)?;
        c.launch(&Copy, &[from], &[to])?;
        let to = self.values.narrowed(0, row, 1, 1).narrowed(2, at, 1, 1);
        let from = c.shaped(&c.apply(&Copy, std::slice::from_ref(value))?, &to.shape)?;
        c.launch(&Copy, &[from], &[to])
    }

    /// The first keys and values (batch, heads, count, size), with zeros for those that a sequence does not see: what lies there may be
    /// NaN, which a weight of zero would not hide.
    fn first(&self, c: &Compose, seen: &Seen) -> Result<[View; 2]> {
        let (batch, count) = (self.batch, seen.count);
        let keys = self.keys.narrowed(3, 0, 1, count).permuted(&[0, 1, 3, 2, 4]);
        let keys = seen.or_zeros(c, keys, &[batch, 1, count, 1, 1])?;
        let keys = if keys.is_dense() { keys } else { c.apply(&Copy, &[keys])? };
        let keys = c.shaped(&keys, &[batch, self.heads, count, self.size])?;
        Ok([keys, seen.or_zeros(c, self.values.narrowed(2, 0, 1, count), &[batch, 1, count, 1])?])
    }
}

/// How pairs of elements are turned.
struct Rotation {
    /// Cosines and sines (batch, 1, parts, elements).
    angles: [View; 2],
    /// Into how many parts a head is split.
    parts: usize,
    /// A pair is of two halves of a part, else of neighbours.
    halves: bool,
}

impl Rotation {
    fn new(c: &Compose, table: Option<&Tensor>, parts: i32, halves: bool, cache: &Cache) -> Result<Option<Rotation>> {
        if parts == 0 {
            return Ok(None);
        }
        let parts = positive("rotary_emb_dims", parts)?;
        if !cache.size.is_multiple_of(2 * parts) {
            let sizes = (cache.size, parts);
            return Err(refuse("size of a head, rotary_emb_dims", sizes, "parts of an even number of elements"));
        }
        let table = table.ok_or_else(|| refuse("rotary_tensor", "missing", "cosines and sines"))?;
        let (batch, size) = (cache.batch, cache.size);
        expect_len("rotary_tensor", table, 2 * batch * size)?;
        let both = c.shaped(&table.view()?, &[2, batch, 1, parts, size / parts])?;
        let angle = |at: usize| c.shaped(&both.narrowed(0, at, 1, 1), &[batch, 1, parts, size / parts]);
        Ok(Some(Rotation { angles: [angle(0)?, angle(1)?], parts, halves }))
    }

    /// The elements of all pairs, the first ones and the second ones.
    fn sides(&self, x: &View) -> [View; 2] {
        let half = x.shape[3] / 2;
        match self.halves {
            true => [x.narrowed(3, 0, 1, half), x.narrowed(3, half, 1, half)],
            false => [x.narrowed(3, 0, 2, half), x.narrowed(3, 1, 2, half)],
        }
    }

    /// `(x cos - y sin, y cos + x sin)` for each pair.
    fn turned(&self, c: &Compose, x: &View) -> Result<View> {
        let [batch, heads, size] = [0, 1, 2].map(|axis| x.shape[axis]);
        let dims = [batch, heads, self.parts, size / self.parts];
        let dense = c.shaped(&c.apply(&Copy, std::slice::from_ref(x))?, &dims)?;
        let [cosine, sine] = [0, 1].map(|at| c.cast(&self.angles[at], x.dtype).map(|angle| self.sides(&angle)));
        let ([first, second], cosine, sine) = (self.sides(&dense), cosine?, sine?);
        let turned = c.temporary(x.dtype, &dims)?;
        let to = self.sides(&turned);
        let of = |operator, x: &View, y: &View, to: &View| c.run(Elementwise::Binary(operator), &[x, y], to);
        of(Binary::Subtract, &c.multiply(&first, &cosine[0])?, &c.multiply(&second, &sine[0])?, &to[0])?;
        of(Binary::Add, &c.multiply(&second, &cosine[1])?, &c.multiply(&first, &sine[1])?, &to[1])?;
        c.shaped(&turned, &[batch, heads, size])
    }
}

/// Where the new token of each sequence comes; nowhere for sequences that have ended.
fn places(
    context: &Context,
    cache: &Cache,
    lengths: Option<&Tensor>,
    mask: Option<&Tensor>,
) -> Result<Vec<Option<usize>>> {
    let all: Vec<i64> = match (lengths, mask) {
        (Some(lengths), _) => {
            expect_len("sequence_lengths", lengths, cache.batch)?;
            let dtype = lengths.dtype()?;
            if dtype.is_float() || dtype == DType::Bool {
                return Err(refuse("element type of sequence_lengths", format_args!("{dtype}"), "integers"));
            }
            integers(context, lengths)?
        }
        (None, Some(mask)) => vec![mask.shape().last().map_or(0, |&size| size as i64) - 1; cache.batch],
        (None, None) => return Err(refuse("src_mask, sequence_lengths", "missing", "one of them")),
    };
    let place = |&at: &i64| match usize::try_from(at) {
        Ok(at) if at < cache.length => Ok(Some(at)),
        Err(_) if lengths.is_some() => Ok(None),
        _ => Err(refuse("place of the new token", at, &format!("below {}, the length of cache_kv", cache.length))),
    };
    all.iter().map(place).collect()
}

/// How many keys the longest sequence has, its new one included.
fn longest(places: &[Option<usize>]) -> usize {
    places.iter().flatten().max().map_or(0, |&last| last + 1)
}

/// That a mask can be added to the scores of `count` keys. Truth values would be added as zeros and ones.
fn expect_mask(mask: &Tensor, batch: usize, heads: usize, count: usize) -> Result<()> {
    let dtype = mask.dtype()?;
    if !dtype.is_float() {
        let expected = "floats, which are added to the scores";
        return Err(refuse("element type of src_mask", format_args!("{dtype}"), expected));
    }
    let [rows, of, one, width] = dims("src_mask", mask)?;
    if rows == batch && (of == 1 || of == heads) && one == 1 && width >= count {
        return Ok(());
    }
    Err(refuse("src_mask", mask.shape(), &format!("({batch}, 1 or {heads}, 1, {count} or more)")))
}

/// Which of the first keys each sequence sees: those up to its own token.
struct Seen {
    /// Truth values (batch, 1, 1, count).
    is_seen: View,
    count: usize,
    /// Each sequence sees all of them.
    all: bool,
}

impl Seen {
    fn new(c: &Compose, places: &[Option<usize>]) -> Result<Seen> {
        let count = longest(places);
        let last: Vec<u8> = places.iter().flat_map(|at| at.map_or(-1, |at| at as i32).to_ne_bytes()).collect();
        let lasts = c.upload(DType::I32, &[places.len(), 1, 1, 1], &last)?;
        let (start, step) = (Number::Integer(0), Number::Integer(1));
        let steps = c.apply(&Arange { start, step, len: count, dtype: DType::I32 }, &[])?;
        let is_seen = c.map(Elementwise::Binary(Binary::LessEqual), &[&steps, &lasts], &[])?;
        Ok(Seen { is_seen, count, all: places.iter().all(|at| at.is_some_and(|at| at + 1 == count)) })
    }

    /// A dense copy of x with zeros where it is not seen, by truth values of this shape; x itself where all of it is seen.
    fn or_zeros(&self, c: &Compose, x: View, dims: &[usize]) -> Result<View> {
        if self.all {
            return Ok(x);
        }
        let (is_seen, zero) = (c.shaped(&self.is_seen, dims)?, c.constant(x.dtype, &[1], 0.0)?);
        c.map(Elementwise::Binary(Binary::Where), &[&is_seen, &x, &zero], &[])
    }

    /// The mask with minus infinities for keys that are not seen (batch, 1 or heads, 1, count).
    fn mask(&self, c: &Compose, mask: Option<&Tensor>, dtype: DType) -> Result<View> {
        let added = match mask {
            Some(mask) => c.cast(&mask.view()?.narrowed(3, 0, 1, self.count), dtype)?,
            None => c.constant(dtype, &[1], 0.0)?,
        };
        let hidden = c.constant(dtype, &[1], f64::NEG_INFINITY)?;
        c.map(Elementwise::Binary(Binary::Where), &[&self.is_seen, &added, &hidden], &[])
    }
}

/// What only quantised models and beams ask for.
fn refuse_given(given: &[(&'static str, &Option<Tensor>)], out_scale: f32) -> Result<()> {
    if let Some((name, Some(tensor))) = given.iter().find(|(_, tensor)| tensor.is_some()) {
        return Err(refuse(name, tensor.shape(), "none"));
    }
    if out_scale > 0.0 { Err(refuse("out_scale", out_scale, "at most 0: the result is not quantised")) } else { Ok(()) }
}

fn masked_attention(
    context: &Context,
    x: Tensor,
    cache_kv: Tensor,
    bias: Option<Tensor>,
    mask: Option<Tensor>,
    cum_offsets: Option<Tensor>,
    lengths: Option<Tensor>,
    rotary: Option<Tensor>,
    beams: Option<Tensor>,
    qkv_scale: Option<Tensor>,
    shift: Option<Tensor>,
    smooth: Option<Tensor>,
    _length: i32,
    rotary_parts: i32,
    rotary_halves: bool,
    _compute_dtype: String,
    out_scale: f32,
    _round_type: i32,
    _most: f32,
    _least: f32,
    out: Output,
    cache_out: Output,
    _beams_out: Option<Output>,
) -> Result<()> {
    let given = [("cum_offsets", &cum_offsets), ("beam_cache_offset", &beams), ("qkv_out_scale", &qkv_scale)];
    refuse_given(&[&given[..], &[("out_shift", &shift), ("out_smooth", &smooth)]].concat(), out_scale)?;
    let c = Compose::new(context);
    let cache = Cache::new(&c, &cache_kv, &memory(context, &c, &cache_kv, &x, &cache_out)?)?;
    let to = context.allocate(&out, x.dtype()?)?;
    let value = parts(&c, &x, bias.as_ref(), &cache)?;
    if to.is_empty() {
        return Ok(());
    }
    let rotation = Rotation::new(&c, rotary.as_ref(), rotary_parts, rotary_halves, &cache)?;
    let places = places(context, &cache, lengths.as_ref(), mask.as_ref())?;
    if let Some(mask) = &mask {
        let heads = value.shape[1] - 2 * cache.heads;
        expect_mask(mask, cache.batch, heads, longest(&places))?;
    }
    // Nothing is written to the cache before all is checked: a call that fails leaves it as it was.
    step(context, &cache, &value, rotation.as_ref(), mask.as_ref(), &places, &to)
}

/// The cache's memory, which is that of the result where Paddle computes in place.
fn memory(context: &Context, c: &Compose, given: &Tensor, x: &Tensor, out: &Output) -> Result<View> {
    let (kept, dtype) = (given.view()?, x.dtype()?);
    if kept.dtype != dtype {
        return Err(refuse("element type of cache_kv", format_args!("{}", kept.dtype), &format!("{dtype}, x's")));
    }
    let memory = context.allocate(out, dtype)?;
    if memory.address != kept.address {
        c.launch(&Copy, &[kept], std::slice::from_ref(&memory))?;
    }
    Ok(memory)
}

/// Queries, keys and values with their biases (batch, heads and twice the cache's heads, size).
fn parts(c: &Compose, x: &Tensor, bias: Option<&Tensor>, cache: &Cache) -> Result<View> {
    let [batch, width] = dims("x", x)?;
    let all = width / cache.size;
    if batch != cache.batch || width % cache.size != 0 || all <= 2 * cache.heads || !all.is_multiple_of(cache.heads) {
        let [own, kept, size] = [cache.batch, cache.heads, cache.size];
        let expected = format!("({own}, (heads + 2 * {kept}) * {size}) with a multiple of {kept} heads");
        return Err(refuse("x", x.shape(), &expected));
    }
    let given = x.view()?;
    // The cache changes before the last element of x is read.
    let shares = given.overlaps(&cache.keys) || given.overlaps(&cache.values);
    let given = if shares { c.apply(&Copy, &[given])? } else { given };
    let value = c.shaped(&c.cast(&given, given.dtype.compute())?, &[batch, all, cache.size])?;
    let Some(bias) = bias else { return Ok(value) };
    expect_len("bias", bias, width)?;
    c.add(&value, &c.shaped(&c.input(bias)?, &[1, all, cache.size])?)
}

/// Keeps the new keys and values, and attends to all that each sequence has then.
fn step(
    context: &Context,
    cache: &Cache,
    value: &View,
    rotation: Option<&Rotation>,
    mask: Option<&Tensor>,
    places: &[Option<usize>],
    to: &View,
) -> Result<()> {
    let c = Compose::new(context);
    let heads = value.shape[1] - 2 * cache.heads;
    let part = |from: usize, count: usize| value.narrowed(1, from, 1, count);
    let turned = |x: View| rotation.map_or(Ok(x.clone()), |rotation| rotation.turned(&c, &x));
    let (q, k) = (turned(part(0, heads))?, turned(part(heads, cache.heads))?);
    let [q, k, v] = [q, k, part(heads + cache.heads, cache.heads)].map(|x| c.cast(&x, to.dtype));
    let (q, k, v) = (q?, k?, v?);
    for (row, at) in places.iter().enumerate() {
        if let Some(at) = *at {
            cache.put(&c, row, at, &k.narrowed(0, row, 1, 1), &v.narrowed(0, row, 1, 1))?;
        }
    }
    if longest(places) == 0 {
        return c.fill(to, 0.0);
    }
    let seen = Seen::new(&c, places)?;
    let [keys, values] = cache.first(&c, &seen)?;
    let mask = seen.mask(&c, mask, to.dtype)?;
    let alone = [cache.batch, heads, 1, cache.size];
    let q = c.shaped(&c.apply(&Copy, &[q])?, &alone)?;
    c.launch(&Attention::default(), &[q, keys, values, mask], &[c.shaped(to, &alone)?])?;
    // What x holds for a sequence that has ended may be NaN as well.
    let mut ended = places.iter().enumerate().filter(|(_, at)| at.is_none());
    ended.try_for_each(|(row, _)| c.fill(&to.narrowed(0, row, 1, 1), 0.0))
}
