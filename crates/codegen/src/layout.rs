//! Which thread and which of its registers holds each element of a tile.
//!
//! Sizes are powers of two (others are padded), so an element's row-major index is a string of bits, and a layout says of each where it is
//! kept: in the number of the thread or in the number of the register. A thread's bit that no index bit uses is free: threads that differ
//! in it hold the same element. Broadcasting, slicing, reshaping and transposing only drop or reorder bits and so move no data.

use std::fmt::Write;

/// Where a bit of an element's index is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IndexBit {
    /// This bit of the register's number.
    Register(u8),
    /// This bit of the thread's number.
    Thread(u8),
}

/// Where each bit of an element's row-major index is kept, the lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    bits: Vec<IndexBit>,
}

impl Layout {
    /// A layout from the places of its bits.
    pub fn new(bits: Vec<IndexBit>) -> Layout {
        Layout { bits }
    }

    /// Neighbouring elements in runs of `1 << run` registers, the runs in neighbouring threads, what is left in further registers.
    pub fn distributed(bits: usize, thread_bits: usize, run: usize) -> Layout {
        let run = run.min(bits.saturating_sub(thread_bits));
        let place = |bit: usize| {
            if bit < run {
                IndexBit::Register(bit as u8)
            } else if bit < run + thread_bits {
                IndexBit::Thread((bit - run) as u8)
            } else {
                IndexBit::Register((bit - thread_bits) as u8)
            }
        };
        Layout { bits: (0..bits).map(place).collect() }
    }

    /// The places, the lowest bit's first.
    pub fn bits(&self) -> &[IndexBit] {
        &self.bits
    }

    /// How many registers each thread needs.
    pub fn registers(&self) -> usize {
        1 << self.register_bits()
    }

    fn register_bits(&self) -> usize {
        let of = |place: &IndexBit| if let IndexBit::Register(bit) = place { usize::from(*bit) + 1 } else { 0 };
        self.bits.iter().map(of).max().unwrap_or(0)
    }

    /// The bits of a thread's number that make no difference.
    pub fn free_threads(&self, thread_bits: usize) -> Vec<u8> {
        (0..thread_bits as u8).filter(|&bit| !self.bits.contains(&IndexBit::Thread(bit))).collect()
    }

    /// The layout of what is left of an index when only these of its bits are kept, in this order. Registers keep their numbers.
    pub fn select(&self, bits: &[usize]) -> Layout {
        Layout { bits: bits.iter().map(|&bit| self.bits[bit]).collect() }
    }

    /// Registers numbered without gaps, in the same order; and which bit of the old number each bit of the new one is.
    pub fn dense(&self) -> (Layout, Vec<u8>) {
        let mut kept: Vec<u8> = (self.bits.iter())
            .filter_map(|place| if let IndexBit::Register(bit) = place { Some(*bit) } else { None })
            .collect();
        kept.sort_unstable();
        let renumbered = |place: &IndexBit| match *place {
            IndexBit::Register(bit) => IndexBit::Register(kept.iter().position(|&old| old == bit).unwrap_or(0) as u8),
            thread => thread,
        };
        (Layout { bits: self.bits.iter().map(renumbered).collect() }, kept)
    }

    /// The index of an element, or of the bits `from..to` of it, as an expression of `thread_index` and the register's number `k`.
    pub fn index(&self, from: usize, to: usize) -> String {
        expression(&self.bits[from..to])
    }
}

/// The number whose bits are at these places, as an expression. Coalescing of neighbouring bits are moved together.
fn expression(places: &[IndexBit]) -> String {
    let mut terms = Vec::new();
    let mut bit = 0;
    while bit < places.len() {
        let mut run = 1;
        while bit + run < places.len() && follows(places[bit], places[bit + run], run as u8) {
            run += 1;
        }
        terms.push(term(places[bit], run, bit));
        bit += run;
    }
    if terms.is_empty() { "0".to_owned() } else { terms.join(" | ") }
}

fn follows(first: IndexBit, other: IndexBit, distance: u8) -> bool {
    match (first, other) {
        (IndexBit::Register(a), IndexBit::Register(b)) | (IndexBit::Thread(a), IndexBit::Thread(b)) => {
            a + distance == b
        }
        _ => false,
    }
}

/// `run` bits of a number from a bit on, moved to bit `to`.
fn term(first: IndexBit, run: usize, to: usize) -> String {
    let (name, from) = match first {
        IndexBit::Register(bit) => ("k", usize::from(bit)),
        IndexBit::Thread(bit) => ("thread_index", usize::from(bit)),
    };
    let mut text = if from == 0 { name.to_owned() } else { format!("{name} >> {from}") };
    text = if from == 0 { text } else { format!("({text})") };
    let _ = write!(text, " & {}", (1_u32 << run) - 1);
    if to > 0 { format!("({text}) << {to}") } else { format!("({text})") }
}

/// A register's number made of the bits of another's: bit `i` is bit `kept[i]` of `k`.
pub(crate) fn gathered(kept: &[u8]) -> String {
    let places: Vec<IndexBit> = kept.iter().map(|&bit| IndexBit::Register(bit)).collect();
    if kept.is_empty() { "0".to_owned() } else { expression(&places) }
}

/// How many bits the indices of a dimension take; sizes that are no powers of two are padded.
pub(crate) fn bits_of(size: usize) -> usize {
    size.next_power_of_two().trailing_zeros() as usize
}

/// How many bits the row-major index of an element of a tile takes.
pub(crate) fn bits_of_all(dims: &[usize]) -> usize {
    dims.iter().map(|&size| bits_of(size)).sum()
}

/// The range of bits that belongs to each dimension; the last dimension has the lowest.
pub(crate) fn bits_of_axis(dims: &[usize], axis: usize) -> std::ops::Range<usize> {
    let below: usize = dims[axis + 1..].iter().map(|&size| bits_of(size)).sum();
    below..below + bits_of(dims[axis])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_layouts_hold_each_element_once() {
        for (bits, threads, run) in [(10, 7, 0), (10, 7, 2), (5, 7, 2), (0, 5, 0), (13, 5, 3)] {
            let layout = Layout::distributed(bits, threads, run);
            let mut places = layout.bits().to_vec();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), bits, "each bit has a place of its own");
            assert_eq!(layout.registers(), 1 << bits.saturating_sub(threads));
            assert_eq!(layout.free_threads(threads).len(), threads.saturating_sub(bits));
        }
    }

    #[test]
    fn selected_bits_keep_their_places_and_dense_ones_lose_the_gaps() {
        let layout = Layout::distributed(6, 2, 2);
        assert_eq!(layout.bits()[4..], [IndexBit::Register(2), IndexBit::Register(3)]);
        let slice = layout.select(&[1, 2, 5]);
        assert_eq!(slice.bits(), [IndexBit::Register(1), IndexBit::Thread(0), IndexBit::Register(3)]);
        let (dense, kept) = slice.dense();
        assert_eq!(dense.bits(), [IndexBit::Register(0), IndexBit::Thread(0), IndexBit::Register(1)]);
        assert_eq!(kept, [1, 3]);
        assert_eq!(gathered(&kept), "((k >> 1) & 1) | ((k >> 3) & 1) << 1");
    }

    #[test]
    fn indices_are_written_in_runs() {
        assert_eq!(Layout::distributed(10, 7, 0).index(0, 10), "(thread_index & 127) | (k & 7) << 7");
        assert_eq!(Layout::distributed(0, 5, 0).index(0, 0), "0");
    }

    #[test]
    fn axes_own_ranges_of_bits() {
        assert_eq!(bits_of_axis(&[64, 32], 0), 5..11);
        assert_eq!(bits_of_axis(&[64, 1000], 1), 0..10);
        assert_eq!(bits_of_all(&[3, 1, 5]), 5);
    }
}
