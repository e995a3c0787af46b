//! Reductions and scans by a block: what is combined lies axis first, and each round runs the block over many pairs at once.

use super::call::Written;
use super::operand::{Operand, Register, Slot};
use super::step::Step;

/// Pairs that are enough work at once: what it costs to begin a round is little beside them, and what they need stays in the first cache.
const ENOUGH: usize = 256;

/// Lines from which on one step along the axis after the other is enough.
const ENOUGH_LINES: usize = 32;

/// A reduction or scan by a block.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub parts: Vec<FoldPart>,
    pub axis: Axis,
    pub kind: FoldKind,
    /// How many pieces of the axis lie side by side.
    pub pieces: usize,
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
    /// The tile, axis first: first elements of the pieces, then second ones, and so on.
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

    /// In how many pieces the axis is folded side by side. A reduction takes elements in any order: each is a piece of its own.
    pub fn pieces(self, kind: FoldKind) -> usize {
        if kind == FoldKind::Reduce {
            return self.length;
        }
        let side_by_side = (ENOUGH / self.lines()).max(1).ilog2();
        match 1 << side_by_side.min(self.length.trailing_zeros()) {
            // Two pieces are as many rounds as one, each of two times the work.
            1 | 2 if self.lines() >= ENOUGH_LINES => 1,
            1 | 2 => self.length,
            pieces => pieces,
        }
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

/// The rounds of a fold.
pub(super) fn rounds(axis: Axis, kind: FoldKind) -> Vec<Round> {
    match kind {
        FoldKind::Reduce => reduction(axis),
        FoldKind::Scan { reverse } => scan(axis.length, axis.pieces(kind), reverse),
    }
}

/// As many elements at once as are enough take in all others, and are halved until one is left.
fn reduction(axis: Axis) -> Vec<Round> {
    let length = axis.length;
    let width = (ENOUGH / axis.lines()).clamp(1, length.max(1));
    let taken = (width..length).step_by(width);
    let taken = taken.map(|right| Round { left: 0, right, to: 0, count: width.min(length - right) });
    let halves = std::iter::successors(Some(width), |&left| (left > 1).then(|| left.div_ceil(2)));
    let halved = halves.filter(|&left| left > 1);
    let halved = halved.map(|left| Round { left: 0, right: left.div_ceil(2), to: 0, count: left / 2 });
    taken.chain(halved).collect()
}

/// Each piece from its first element to its last; then over the last ones, of which each round sees twice as far; then each of these with the elements of
/// the piece behind it. From the other end all is the other way round.
fn scan(length: usize, pieces: usize, reverse: bool) -> Vec<Round> {
    let rows = length / pieces;
    let row = |step: usize| pieces * if reverse { rows - 1 - step } else { step };
    let round = |left: usize, right: usize, distance: usize, count: usize| {
        let (before, behind) = if reverse { (distance, 0) } else { (0, distance) };
        Round { left: left + before, right: right + behind, to: right + behind, count }
    };
    let last = row(rows - 1);
    let along = (1..rows).map(|step| round(row(step - 1), row(step), 0, pieces));
    let distances = std::iter::successors(Some(1), |&distance| Some(distance * 2));
    let across = distances.take_while(|&distance| distance < pieces);
    let across = across.map(|distance| round(last, last, distance, pieces - distance));
    let carried = (0..rows - 1).filter(|_| pieces > 1).map(|step| round(last, row(step), 1, pieces - 1));
    along.chain(across).chain(carried).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the rounds make of `0, 1, ..` where combining joins lists, by place along the axis.
    fn folded(axis: Axis, kind: FoldKind) -> Vec<Vec<usize>> {
        let pieces = axis.pieces(kind);
        let rows = axis.length / pieces;
        let place = |at: usize| at % rows * pieces + at / rows;
        let mut lists = vec![Vec::new(); axis.length];
        (0..axis.length).for_each(|at| lists[place(at)].push(at));
        for Round { left, right, to, count } in rounds(axis, kind) {
            let combined: Vec<Vec<usize>> =
                (0..count).map(|i| [&lists[left + i][..], &lists[right + i]].concat()).collect();
            lists[to..to + count].clone_from_slice(&combined);
        }
        (0..axis.length).map(|at| lists[place(at)].clone()).collect()
    }

    #[test]
    fn every_element_is_combined_once() {
        for length in [1, 2, 3, 5, 8, 31, 64, 300, 512, 2048] {
            for outer in [1, 3, 8, 16, ENOUGH_LINES, 100, ENOUGH] {
                let axis = Axis { outer, length, inner: 1 };
                let mut all = folded(axis, FoldKind::Reduce)[0].clone();
                all.sort_unstable();
                assert_eq!(all, Vec::from_iter(0..length));
                for (at, list) in folded(axis, FoldKind::Scan { reverse: false }).into_iter().enumerate() {
                    assert_eq!(list, Vec::from_iter(0..=at), "in order, as no combination needs to be commutative");
                }
                for (at, list) in folded(axis, FoldKind::Scan { reverse: true }).into_iter().enumerate() {
                    assert_eq!(list, Vec::from_iter((at..length).rev()), "the other way round");
                }
            }
        }
    }
}
