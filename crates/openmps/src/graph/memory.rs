//! Where values between steps lie: in one block of memory for each run, in which values that are not needed at the same time share their places. A block
//! is smaller than as many buffers, and what a step writes is where the CPU's caches have what steps before it read.

use super::{Step, Value};
use crate::error::Result;

/// Bytes that places begin at a multiple of, as buffers do.
const ALIGNMENT: usize = 256;

/// A value between steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub bytes: usize,
    /// The step that writes it.
    pub first: usize,
    /// The last step that reads or writes it.
    pub last: usize,
}

impl Lifetime {
    fn meets(&self, other: &Lifetime) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The places of values in a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// By value: the first byte, where it lies in the block.
    pub offsets: Vec<Option<usize>>,
    /// Of the block.
    pub bytes: usize,
}

impl Layout {
    /// Places values, the largest first, each at the lowest place that no value takes at the same time.
    pub fn new(values: &[Option<Lifetime>]) -> Layout {
        let mut order: Vec<usize> = (0..values.len()).filter(|&value| values[value].is_some()).collect();
        order.sort_by_key(|&value| std::cmp::Reverse(values[value].map(|lifetime| lifetime.bytes)));
        let mut layout = Layout { offsets: vec![None; values.len()], bytes: 0 };
        // What has been placed, by its first byte: that, the byte behind it and the lifetime.
        let mut placed: Vec<(usize, usize, Lifetime)> = Vec::with_capacity(order.len());
        for value in order {
            let Some(lifetime) = values[value] else { continue };
            let bytes = lifetime.bytes.max(1).next_multiple_of(ALIGNMENT);
            let mut begin = 0;
            for &(from, end, other) in &placed {
                if other.meets(&lifetime) {
                    if from >= begin + bytes {
                        break;
                    }
                    begin = begin.max(end);
                }
            }
            let at = placed.partition_point(|&(from, ..)| from < begin);
            placed.insert(at, (begin, begin + bytes, lifetime));
            layout.offsets[value] = Some(begin);
            layout.bytes = layout.bytes.max(begin + bytes);
        }
        layout
    }
}

/// By value: how long it is needed, of those that steps write and that are no result. `roots` names the value whose memory each one has.
pub(super) fn lifetimes(
    values: &[Value],
    steps: &[Step],
    roots: &[usize],
    goals: &[usize],
) -> Result<Vec<Option<Lifetime>>> {
    let mut lifetimes: Vec<Option<Lifetime>> = vec![None; values.len()];
    for (number, step) in steps.iter().enumerate() {
        for &output in &step.outputs {
            let bytes = values[output].meta.bytes()?;
            lifetimes[output] = Some(Lifetime { bytes, first: number, last: number });
        }
        for &input in &step.inputs {
            if let Some(lifetime) = &mut lifetimes[roots[input]] {
                lifetime.last = number;
            }
        }
    }
    goals.iter().for_each(|&goal| lifetimes[roots[goal]] = None);
    Ok(lifetimes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lifetime((bytes, first, steps): (usize, usize, usize)) -> Option<Lifetime> {
        Some(Lifetime { bytes, first, last: first + steps })
    }

    /// A chain of steps, each of which reads what the one before it writes: two of the largest values' bytes are enough.
    #[test]
    fn a_chain_takes_two_places() {
        let chain: Vec<_> =
            [1024, 4096, 512, 4096, 4096].into_iter().enumerate().map(|(i, b)| lifetime((b, i, 1))).collect();
        let layout = Layout::new(&chain);
        assert_eq!(layout.bytes, 8192);
        assert_eq!(layout.offsets[1], Some(0));
    }

    #[test]
    fn nothing_takes_nothing() {
        assert_eq!(Layout::new(&[None, None]), Layout { offsets: vec![None, None], bytes: 0 });
    }

    proptest! {
        #[test]
        fn values_of_one_time_are_apart(
            values in prop::collection::vec((0..3000_usize, 0..20_usize, 0..6_usize), 0..40)
        ) {
            let values: Vec<_> = values.into_iter().map(lifetime).collect();
            let layout = Layout::new(&values);
            let place = |i: usize| layout.offsets[i].zip(values[i]).expect("each has a place and a time");
            for i in 0..values.len() {
                let (begin, one) = place(i);
                prop_assert!(begin % ALIGNMENT == 0 && begin + one.bytes <= layout.bytes);
                for j in 0..i {
                    let (other_begin, other) = place(j);
                    let apart = begin + one.bytes <= other_begin || other_begin + other.bytes <= begin;
                    prop_assert!(apart || !one.meets(&other), "{i} {j}");
                    // Of no bytes, too: a kernel may be given its address.
                    prop_assert!(begin != other_begin || !one.meets(&other), "{i} {j}");
                }
            }
        }
    }
}
