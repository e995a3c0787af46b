//! The algorithms, as programs of one rank: pure functions of the sizes, which the engine carries out and the simulator weighs.
//!
//! * *Gathered*: everyone sends everything to everyone and folds it. One step; for little data.
//! * *Doubling*: partial results are exchanged with ranks at a distance of 1, 2, 4, .. Few messages a rank; for little data on many ranks.
//! * *Direct*: rank r folds part r of all ranks and sends it to all. Two steps, and no byte more than must travel; each number is rounded once.
//! * *Ring*: the same bytes, but to the next rank only, in as many steps as there are ranks; where only neighbours are joined by good links.
//!
//! Direct and gathered fold in the order of the ranks, so they agree in every bit; doubling and ring have an order of their own, which depends
//! on the number of ranks alone. None depends on timing. Doubling is after Thakur, Rabenseifner and Gropp, "Optimization of Collective
//! Communication Operations in MPICH" (2005), the ring after Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms" (2009).

use crate::fold::Form;
use crate::program::{INPUT, OUTPUT, Operation, Place, Program, SCRATCH, Source};
use std::ops::Range;

/// How an all-reduce is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Algorithm {
    Gathered,
    Doubling,
    Direct,
    Ring,
}

impl Algorithm {
    /// All.
    pub const ALL: [Algorithm; 4] = [Algorithm::Gathered, Algorithm::Doubling, Algorithm::Direct, Algorithm::Ring];

    /// The name, as the setting has it.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Gathered => "gathered",
            Algorithm::Doubling => "doubling",
            Algorithm::Direct => "direct",
            Algorithm::Ring => "ring",
        }
    }

    /// The algorithm with this name.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The algorithm for so many bytes on so many ranks; [`crate::simulate`] says why, and its tests hold it to that.
    pub fn suited(bytes: usize, ranks: usize, layout: Layout) -> Algorithm {
        match layout {
            _ if bytes <= SMALL && (ranks <= 2 || (ranks <= FEW && bytes * ranks <= 4 * SMALL)) => Algorithm::Gathered,
            _ if bytes <= SMALL || (ranks > FEW && bytes <= SMALL / 4 * ranks) => Algorithm::Doubling,
            Layout::Mixed if bytes >= 2 * SMALL * ranks => Algorithm::Ring,
            _ => Algorithm::Direct,
        }
    }
}

/// How the ranks of a communicator are spread over hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All on one, or each on one of its own: every pair has an equally good link.
    Alike,
    /// Several on each of several, which share its line: what neighbours pass on crosses it once.
    Mixed,
}

impl Layout {
    /// Where no rank shares memory with more than so many, itself among them.
    pub fn of(ranks: usize, most_together: usize) -> Layout {
        if most_together <= 1 || most_together >= ranks { Layout::Alike } else { Layout::Mixed }
    }
}

/// Bytes that are not worth cutting into parts.
const SMALL: usize = 16 << 10;
/// Ranks from which on the messages to all others take longer than the steps of doubling.
const FEW: usize = 8;
/// Ranks from which on a root does not send to all itself.
const MANY: usize = 32;
/// Bytes of a part of a segment: what one rank folds before it sends it on, while it is in the cache.
const SEGMENT_PART: usize = 256 << 10;

/// A rank among ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub rank: usize,
    pub ranks: usize,
}

impl Member {
    /// The other ranks, from the next one on: so no rank is everybody's first.
    fn others(self) -> impl Iterator<Item = usize> {
        (1..self.ranks).map(move |distance| (self.rank + distance) % self.ranks)
    }

    /// Part `index` of a range that is cut into one part for each rank.
    fn part(self, of: &Range<usize>, index: usize) -> Range<usize> {
        let cut = |index: usize| of.start + (of.len() as u128 * index as u128 / self.ranks as u128) as usize;
        cut(index)..cut(index + 1)
    }

    /// The operands of a fold over all ranks, in their order, of which this one's are its own.
    fn in_order(self, form: Form, own: Place) -> Vec<Source> {
        let source = |rank| if rank == self.rank { Source::Own(own) } else { Source::Rank { rank, form } };
        (0..self.ranks).map(source).collect()
    }
}

fn place(buffer: usize, begin: usize) -> Place {
    Place { buffer, begin }
}

fn empty(operation: Operation) -> Program {
    Program { operations: vec![operation], ..Program::default() }
}

/// Cuts elements into segments of which each rank's part has a good size.
fn segments(count: usize, element_bytes: usize, ranks: usize) -> Vec<Range<usize>> {
    let most = (SEGMENT_PART / element_bytes).saturating_mul(ranks).max(1);
    let number = count.div_ceil(most).max(1);
    let cut = |index: usize| (count as u128 * index as u128 / number as u128) as usize;
    (0..number).map(|index| cut(index)..cut(index + 1)).collect()
}

/// Everyone gets the reduction of all.
pub(crate) fn all_reduce(operation: Operation, member: Member, algorithm: Algorithm) -> Program {
    match algorithm {
        // A ring needs a neighbour.
        _ if member.ranks == 1 => gathered(operation, member),
        Algorithm::Gathered => gathered(operation, member),
        Algorithm::Doubling => doubling(operation, member),
        Algorithm::Direct => direct(operation, member, None),
        Algorithm::Ring => ring(operation, member),
    }
}

fn gathered(operation: Operation, member: Member) -> Program {
    let mut program = Program { keeps_input: true, ..empty(operation) };
    for to in member.others() {
        program.send(to, place(INPUT, 0), operation.count, None);
    }
    let sources = member.in_order(Form::Whole, place(INPUT, 0));
    program.fold(sources, place(OUTPUT, 0), operation.count, true, None);
    program
}

/// With a root, only that rank gets the result.
fn direct(operation: Operation, member: Member, root: Option<usize>) -> Program {
    let mut program = empty(operation);
    let segments = segments(operation.count, operation.element.size(), member.ranks);
    // One segment's parts are on their way while the one before comes back.
    let mut folded: Option<(usize, &Range<usize>)> = None;
    for segment in segments.iter().map(Some).chain([None]) {
        let mut next = None;
        if let Some(segment) = segment {
            for to in member.others() {
                let part = member.part(segment, to);
                program.send(to, place(INPUT, part.start), part.len(), None);
            }
            let own = member.part(segment, member.rank);
            // A root's input may be all that it has: others write their result to scratch memory, which is of the partial form.
            let (to, finish) = match root {
                Some(root) if root != member.rank => (place(SCRATCH, own.start), true),
                _ => (place(OUTPUT, own.start), true),
            };
            let sources = member.in_order(Form::Whole, place(INPUT, own.start));
            next = Some((program.fold(sources, to, own.len(), finish, None), segment));
        }
        if let Some((fold, segment)) = folded {
            share(&mut program, member, root, fold, segment);
        }
        folded = next;
    }
    if root.is_some_and(|root| root != member.rank) {
        program.scratch = operation.count;
    }
    program
}

/// The second half of `direct`: the parts of a segment go to all, or to the root.
fn share(program: &mut Program, member: Member, root: Option<usize>, fold: usize, segment: &Range<usize>) {
    let own = member.part(segment, member.rank);
    match root {
        None => {
            for to in member.others() {
                program.send(to, place(OUTPUT, own.start), own.len(), Some(fold));
            }
        }
        Some(root) if root != member.rank => {
            program.send(root, place(SCRATCH, own.start), own.len(), Some(fold));
            return;
        }
        Some(_) => {}
    }
    let form = if root.is_some() { Form::Partial } else { Form::Whole };
    for from in member.others() {
        let part = member.part(segment, from);
        let sources = vec![Source::Rank { rank: from, form }];
        program.fold(sources, place(OUTPUT, part.start), part.len(), false, None);
    }
}

fn doubling(operation: Operation, member: Member) -> Program {
    let count = operation.count;
    let mut program = empty(operation);
    let size = 1 << member.ranks.ilog2();
    let extra = member.rank + size;
    if member.rank >= size {
        program.send(member.rank - size, place(INPUT, 0), count, None);
        program.receive(member.rank - size, place(OUTPUT, 0), count);
        // The output may be the input: by the time it comes back, the input has gone.
        return program;
    }
    let mut sources = vec![Source::Own(place(INPUT, 0))];
    if extra < member.ranks {
        sources.push(Source::Rank { rank: extra, form: Form::Whole });
    }
    let steps = size.ilog2() as usize;
    program.scratch = count * steps.max(1);
    let result = |step| if step == steps { place(OUTPUT, 0) } else { place(SCRATCH, step * count) };
    let mut last = program.fold(sources, result(0), count, steps == 0, None);
    for step in 0..steps {
        let partner = member.rank ^ (1 << step);
        let own = result(step);
        program.send(partner, own, count, Some(last));
        let mut sources = vec![Source::Own(own), Source::Rank { rank: partner, form: Form::Partial }];
        if partner < member.rank {
            sources.reverse();
        }
        last = program.fold(sources, result(step + 1), count, step + 1 == steps, Some(last));
    }
    if extra < member.ranks {
        program.send(extra, place(OUTPUT, 0), count, Some(last));
    }
    program
}

fn ring(operation: Operation, member: Member) -> Program {
    let mut program = Program { scratch: operation.count, ..empty(operation) };
    let Member { rank, ranks } = member;
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let segments = segments(operation.count, operation.element.size(), ranks);
    let mut last = vec![None; segments.len()];
    // Part p begins at rank p + 1 and is complete at rank p.
    for step in 1..ranks {
        for (segment, last) in segments.iter().zip(&mut last) {
            let leaving = member.part(segment, (rank + ranks - step) % ranks);
            let from = if step == 1 { place(INPUT, leaving.start) } else { place(SCRATCH, leaving.start) };
            program.send(next, from, leaving.len(), *last);
            let coming = member.part(segment, (rank + 2 * ranks - step - 1) % ranks);
            let form = if step == 1 { Form::Whole } else { Form::Partial };
            let sources = vec![Source::Rank { rank: previous, form }, Source::Own(place(INPUT, coming.start))];
            let done = step + 1 == ranks;
            let to = if done { place(OUTPUT, coming.start) } else { place(SCRATCH, coming.start) };
            *last = Some(program.fold(sources, to, coming.len(), done, None));
        }
    }
    for step in 0..ranks - 1 {
        for (segment, last) in segments.iter().zip(&mut last) {
            let leaving = member.part(segment, (rank + ranks - step) % ranks);
            program.send(next, place(OUTPUT, leaving.start), leaving.len(), *last);
            let coming = member.part(segment, (rank + 2 * ranks - step - 1) % ranks);
            *last = Some(program.receive(previous, place(OUTPUT, coming.start), coming.len()));
        }
    }
    program
}

/// The root gets the reduction of all.
pub(crate) fn reduce(operation: Operation, member: Member, root: usize) -> Program {
    let bytes = operation.count * operation.element.size();
    if bytes > SMALL && member.ranks > 2 {
        return direct(operation, member, Some(root));
    }
    let mut program = empty(operation);
    if member.rank == root {
        let sources = member.in_order(Form::Whole, place(INPUT, 0));
        program.fold(sources, place(OUTPUT, 0), operation.count, true, None);
    } else {
        program.send(root, place(INPUT, 0), operation.count, None);
    }
    program
}

/// Everyone gets what the root has. Input and output are the same.
pub(crate) fn broadcast(operation: Operation, member: Member, root: usize) -> Program {
    let bytes = operation.count * operation.element.size();
    if bytes > SMALL && (3..=MANY).contains(&member.ranks) {
        scattered(operation, member, root)
    } else {
        tree(operation, member, root)
    }
}

/// Each rank passes on what it got to ranks at distances of powers of two.
fn tree(operation: Operation, member: Member, root: usize) -> Program {
    let mut program = empty(operation);
    let Member { rank, ranks } = member;
    let (position, at) = ((rank + ranks - root) % ranks, |position: usize| (position + root) % ranks);
    let reach = if position == 0 { ranks.next_power_of_two() } else { 1 << position.trailing_zeros() };
    for segment in segments(operation.count, operation.element.size(), 1) {
        let begin = place(OUTPUT, segment.start);
        let after = (position > 0).then(|| program.receive(at(position & (position - 1)), begin, segment.len()));
        let mut distance = reach / 2;
        while distance > 0 {
            if position + distance < ranks {
                program.send(at(position + distance), begin, segment.len(), after);
            }
            distance /= 2;
        }
    }
    program
}

/// The root sends each rank one part, which that rank sends to the others.
fn scattered(operation: Operation, member: Member, root: usize) -> Program {
    let mut program = empty(operation);
    for segment in segments(operation.count, operation.element.size(), member.ranks) {
        let own = member.part(&segment, member.rank);
        let mut after = None;
        if member.rank == root {
            for to in member.others() {
                let part = member.part(&segment, to);
                program.send(to, place(OUTPUT, part.start), part.len(), None);
            }
        } else {
            after = Some(program.receive(root, place(OUTPUT, own.start), own.len()));
        }
        for to in member.others().filter(|&to| to != root) {
            program.send(to, place(OUTPUT, own.start), own.len(), after);
        }
        if member.rank != root {
            for from in member.others() {
                let part = member.part(&segment, from);
                program.receive(from, place(OUTPUT, part.start), part.len());
            }
        }
    }
    program
}

/// Everyone gets what each has, in the order of the ranks.
pub(crate) fn all_gather(operation: Operation, member: Member) -> Program {
    let mut program = empty(operation);
    let count = operation.count;
    for to in member.others() {
        program.send(to, place(INPUT, 0), count, None);
    }
    program.copy(place(INPUT, 0), place(OUTPUT, member.rank * count), count);
    for from in member.others() {
        program.receive(from, place(OUTPUT, from * count), count);
    }
    program
}

/// Rank r gets the reduction of the parts r of all; `count` is of one part.
pub(crate) fn reduce_scatter(operation: Operation, member: Member) -> Program {
    let mut program = empty(operation);
    let count = operation.count;
    for to in member.others() {
        program.send(to, place(INPUT, to * count), count, None);
    }
    let sources = member.in_order(Form::Whole, place(INPUT, member.rank * count));
    program.fold(sources, place(OUTPUT, 0), count, true, None);
    program
}
