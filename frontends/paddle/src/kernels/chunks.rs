//! Chunks of tagged sequences, found and compared on the host: what a named entity recogniser is measured by.

use super::values::{expect, integers, lengths, positive, required, store_floats, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;

/// Adds this family.
pub fn register(table: &mut Table) {
    let row = table.add("chunk_eval", &[DType::F32], chunk_eval);
    (3..6).fold(row, |row, output| row.output(output, DType::I64));
}

/// Which tags a scheme has, by their numbers; it lacks those that are none.
struct Scheme {
    tags: i64,
    begin: Option<i64>,
    inside: Option<i64>,
    end: Option<i64>,
    single: Option<i64>,
    /// The kind of what is in no chunk.
    other: i64,
}

/// A chunk: its first and last place, and its kind.
type Chunk = (usize, usize, i64);

/// A tag with the kind of chunk that it belongs to.
type Tag = (i64, i64);

impl Scheme {
    fn new(name: &str, kinds: i64) -> Result<Scheme> {
        let (tags, [begin, inside, end, single]) = match name {
            "IOB" => (2, [Some(0), Some(1), None, None]),
            "IOE" => (2, [None, Some(0), Some(1), None]),
            "IOBES" => (4, [Some(0), Some(1), Some(2), Some(3)]),
            "plain" => (1, [None; 4]),
            _ => return Err(refuse("chunk_scheme", name, "IOB, IOE, IOBES or plain")),
        };
        Ok(Scheme { tags, begin, inside, end, single, other: kinds })
    }

    /// Whether a chunk ends before a tag.
    fn ends(&self, (before, kind_before): Tag, (tag, kind): Tag) -> bool {
        let is = |tag: i64, one: Option<i64>| Some(tag) == one;
        if kind_before == self.other || kind == self.other || kind != kind_before {
            return kind_before != self.other;
        }
        if is(before, self.begin) || is(before, self.inside) {
            return is(tag, self.begin) || is(tag, self.single);
        }
        is(before, self.end) || is(before, self.single)
    }

    /// Whether a chunk begins with a tag.
    fn begins(&self, (before, kind_before): Tag, (tag, kind): Tag) -> bool {
        let is = |tag: i64, one: Option<i64>| Some(tag) == one;
        if kind_before == self.other || kind == self.other || kind != kind_before {
            return kind != self.other;
        }
        if is(tag, self.inside) || is(tag, self.end) {
            return is(before, self.end) || is(before, self.single);
        }
        is(tag, self.begin) || is(tag, self.single)
    }

    fn chunks(&self, labels: &[i64]) -> Result<Vec<Chunk>> {
        let (mut chunks, mut start, mut before) = (Vec::new(), None, (-1, self.other));
        for (place, &label) in labels.iter().enumerate() {
            let most = self.other * self.tags;
            if !(0..=most).contains(&label) {
                return Err(refuse("Label", label, &format!("0 to {most}")));
            }
            let tag = (label % self.tags, label / self.tags);
            if let Some(first) = start.filter(|_| self.ends(before, tag)) {
                chunks.push((first, place - 1, before.1));
                start = None;
            }
            if self.begins(before, tag) {
                start = Some(place);
            }
            before = tag;
        }
        chunks.extend(start.map(|first| (first, labels.len() - 1, before.1)));
        Ok(chunks)
    }
}

fn chunk_eval(
    context: &Context,
    inference: Tensor,
    label: Tensor,
    sequences: Option<Tensor>,
    kinds: i32,
    scheme: String,
    excluded: Vec<i32>,
    precision: Output,
    recall: Output,
    f1: Output,
    found_count: Output,
    label_count: Output,
    correct_count: Output,
) -> Result<()> {
    let scheme = Scheme::new(&scheme, positive("num_chunk_types", kinds)? as i64)?;
    let longest = inference.shape().get(1).copied().unwrap_or(0);
    let shape = inference.shape();
    expect("Label", &label, &shape)?;
    let sequences = lengths(context, "SeqLength", &required("SeqLength", sequences)?, longest)?;
    if sequences.len() > shape[0] {
        return Err(refuse("SeqLength", sequences, &format!("{} lengths", shape[0])));
    }
    let (found, labels) = (integers(context, &inference)?, integers(context, &label)?);
    let mut counts = [0; 3];
    for (row, length) in sequences.into_iter().enumerate() {
        let [found, labels] = [&found, &labels].map(|tags| scheme.chunks(&tags[row * longest..][..length]));
        let counted = |chunk: &&Chunk| !excluded.iter().any(|&kind| i64::from(kind) == chunk.2);
        let (found, labels) = (found?, labels?);
        counts[0] += found.iter().filter(counted).count() as i64;
        counts[1] += labels.iter().filter(counted).count() as i64;
        counts[2] += found.iter().filter(counted).filter(|chunk| labels.contains(chunk)).count() as i64;
    }
    for (out, count) in [found_count, label_count, correct_count].iter().zip(counts) {
        store_integers(context, out, DType::I64, &out.shape(), &[count])?;
    }
    let share = |of: i64| if of == 0 { 0.0 } else { f64::from(counts[2] as f32 / of as f32) };
    let (p, r) = (share(counts[0]), share(counts[1]));
    let mean = if counts[2] == 0 { 0.0 } else { 2.0 * p * r / (p + r) };
    for (out, value) in [precision, recall, f1].iter().zip([p, r, mean]) {
        store_floats(context, out, DType::F32, &out.shape(), &[value])?;
    }
    Ok(())
}
