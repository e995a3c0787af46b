//! Reductions and scans by a block: what is combined lies axis first, and each round runs the block over many pairs at once.

use super::call::Written;
use super::operand::{Operand, Register, Slot};
use super::step::Step;

/// Pairs along the axis's lines from which on one step along the axis after the other is enough work at once.
const ENOUGH_LINES: usize = 32;

/// A reduction or scan by a block.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub parts: Vec<FoldPart>,
    pub axis: Axis,
    pub kind: FoldKind,
    pub rounds: Vec<Round>,
    /// How many pairs the block combines in this round.
    pub pairs: Slot,
    pub body: Vec<Step>,
}

/// One of the tiles that are folded side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoldPart {
    /// The tile, rows one after the other.
    pub source: Operand,
    /// The tile, axis first.
    pub work: Register,
    /// What the block combines: places in `work`.
    pub left: Register,
    pub right: Register,
    /// What it makes of them.
    pub combined: Operand,
    pub result: Written,
    /// Bytes of one element.
    pub size: usize,
}

/// What stays along the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoldKind {
    Reduce,
    Scan { reverse: bool },
}

/// A tile's dimensions as one of them sees the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// Elements of the dimensions before it.
    pub outer: usize,
    pub length: usize,
    /// Elements of the dimensions behind it.
    pub inner: usize,
}

impl Axis {
    pub fn new(dims: &[usize], axis: usize) -> Axis {
        let [outer, inner] = [&dims[..axis], &dims[axis + 1..]].map(|dims| dims.iter().product());
        Axis { outer, length: dims[axis], inner }
    }

    /// Lines along the axis.
    pub fn lines(self) -> usize {
        self.outer * self.inner
    }

    fn goes_one_by_one(self) -> bool {
        self.lines() >= ENOUGH_LINES
    }
}

/// One round: the places along the axis that are combined, and where the result goes; `count` of each that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub left: usize,
    pub right: usize,
    pub to: usize,
    pub count: usize,
}

/// The rounds of a fold. With few lines a reduction halves what is left in each round, and a scan doubles how far each place sees.
pub(super) fn rounds(axis: Axis, kind: FoldKind) -> Vec<Round> {
    let length = axis.length;
    match (axis.goes_one_by_one(), kind) {
        (true, FoldKind::Reduce) => (1..length).map(|at| Round { left: 0, right: at, to: 0, count: 1 }).collect(),
        (true, FoldKind::Scan { .. }) => {
            (1..length).map(|at| Round { left: at - 1, right: at, to: at, count: 1 }).collect()
        }
        (false, FoldKind::Reduce) => {
            let halves = std::iter::successors(Some(length), |&left| (left > 1).then(|| left.div_ceil(2)));
            halves
                .filter(|&left| left > 1)
                .map(|left| Round { left: 0, right: left.div_ceil(2), to: 0, count: left / 2 })
                .collect()
        }
        (false, FoldKind::Scan { .. }) => {
            let distances = std::iter::successors(Some(1), |&distance| Some(distance * 2));
            distances
                .take_while(|&distance| distance < length)
                .map(|distance| Round { left: 0, right: distance, to: distance, count: length - distance })
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the rounds make of `0, 1, ..` where combining joins lists.
    fn folded(axis: Axis, kind: FoldKind) -> Vec<Vec<usize>> {
        let mut lists: Vec<Vec<usize>> = (0..axis.length).map(|i| vec![i]).collect();
        for Round { left, right, to, count } in rounds(axis, kind) {
            let combined: Vec<Vec<usize>> =
                (0..count).map(|i| [&lists[left + i][..], &lists[right + i]].concat()).collect();
            lists[to..to + count].clone_from_slice(&combined);
        }
        lists
    }

    #[test]
    fn every_element_is_combined_once() {
        for length in [1, 2, 3, 5, 8, 31, 64] {
            for outer in [1, ENOUGH_LINES] {
                let axis = Axis { outer, length, inner: 1 };
                let mut all = folded(axis, FoldKind::Reduce)[0].clone();
                all.sort_unstable();
                assert_eq!(all, Vec::from_iter(0..length));
                for (at, list) in folded(axis, FoldKind::Scan { reverse: false }).into_iter().enumerate() {
                    assert_eq!(list, Vec::from_iter(0..=at), "in order, as no combination needs to be commutative");
                }
            }
        }
    }
}
