//! Each operation over memory of every kind, with what it must give: panics where that is not what came.

use super::numbers::{has, input, reduced, same};
use openmps_collective::{Communicator, ElementType, Message, Part, Reduction, Result};

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    AllReduce,
    Reduce,
    ReduceScatter,
    Broadcast,
    AllGather,
    AllToAll,
    Messages,
    Barrier,
}

impl Call {
    pub const ALL: [Call; 8] = [
        Call::AllReduce,
        Call::Reduce,
        Call::ReduceScatter,
        Call::Broadcast,
        Call::AllGather,
        Call::AllToAll,
        Call::Messages,
        Call::Barrier,
    ];

    /// Whether elements of several ranks become one.
    pub fn reduces(self) -> bool {
        matches!(self, Call::AllReduce | Call::Reduce | Call::ReduceScatter)
    }

    /// Whether the result may go to where the input is.
    pub fn has_places(self) -> bool {
        self.reduces() || self == Call::AllGather
    }

    /// Elements for each rank of which the largest buffer, of so many bytes, is made.
    pub fn count(self, bytes: usize, element: ElementType, ranks: usize) -> usize {
        let parts = match self {
            Call::AllReduce | Call::Reduce | Call::Broadcast | Call::Barrier => 1,
            Call::ReduceScatter | Call::AllGather => ranks,
            // Each rank has up to two elements for each of `count`; messages are two.
            Call::AllToAll | Call::Messages => 2 * ranks,
        };
        bytes / element.size() / parts
    }
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Apart,
    OverInput,
}

/// One call, the same for all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub call: Call,
    /// Elements of a rank, or of a part.
    pub count: usize,
    pub element: ElementType,
    pub reduction: Reduction,
    pub root: usize,
    pub place: Place,
    /// The first of the numbers that are used, so that one operation's leftovers are not what the next must give.
    pub begin: usize,
}

impl Case {
    /// Of a sum at rank 0, apart from its input.
    pub fn new(call: Call, count: usize, element: ElementType) -> Case {
        Case { call, count, element, reduction: Reduction::Sum, root: 0, place: Place::Apart, begin: 0 }
    }

    /// With every reduction that the element type has, at every place.
    pub fn variants(self) -> impl Iterator<Item = Case> {
        let reductions = if self.call.reduces() { &Reduction::ALL[..] } else { &[Reduction::Sum] };
        let places = if self.call.has_places() { &[Place::Apart, Place::OverInput][..] } else { &[Place::Apart] };
        let element = self.element;
        let some = reductions.iter().filter(move |&&it| !self.call.reduces() || has(element, it));
        some.flat_map(move |&reduction| places.iter().map(move |&place| Case { reduction, place, ..self }))
    }

    /// Does it on this rank, and compares.
    pub fn check(&self, communicator: &Communicator) -> Result<()> {
        let right = match self.call {
            Call::AllReduce => self.all_reduce(communicator),
            Call::Reduce => self.reduce(communicator),
            Call::ReduceScatter => self.reduce_scatter(communicator),
            Call::Broadcast => self.broadcast(communicator),
            Call::AllGather => self.all_gather(communicator),
            Call::AllToAll => self.all_to_all(communicator),
            Call::Messages => self.messages(communicator),
            Call::Barrier => communicator.barrier().map(|()| true),
        }?;
        assert!(right, "wrong elements at {communicator:?}: {self:?}");
        Ok(())
    }

    fn input(&self, rank: usize, count: usize) -> Vec<u8> {
        input(rank, self.begin, count, self.element)
    }

    fn room(&self, count: usize) -> Vec<u8> {
        vec![0xEE; count * self.element.size()]
    }

    fn all_reduce(&self, communicator: &Communicator) -> Result<bool> {
        let &Case { count, element, reduction, .. } = self;
        let mut from = self.input(communicator.rank(), count);
        let mut to = if self.place == Place::Apart { self.room(count) } else { Vec::new() };
        let target = if self.place == Place::Apart { to.as_mut_ptr() } else { from.as_mut_ptr() };
        // SAFETY: vectors of `count` elements, or one in place.
        unsafe { communicator.all_reduce_raw(from.as_ptr(), target, count, element, reduction) }?;
        let expected = reduced(communicator.ranks(), self.begin, count, element, reduction);
        Ok(same(if self.place == Place::Apart { &to } else { &from }, &expected, element))
    }

    fn reduce(&self, communicator: &Communicator) -> Result<bool> {
        let &Case { count, element, reduction, .. } = self;
        let root = self.root % communicator.ranks();
        let mut from = self.input(communicator.rank(), count);
        let mut to = if self.place == Place::Apart { self.room(count) } else { Vec::new() };
        let target = if self.place == Place::Apart { to.as_mut_ptr() } else { from.as_mut_ptr() };
        // SAFETY: vectors of `count` elements, or one in place.
        unsafe { communicator.reduce_raw(from.as_ptr(), target, count, element, reduction, root) }?;
        let expected = match (communicator.rank() == root, self.place) {
            (true, _) => reduced(communicator.ranks(), self.begin, count, element, reduction),
            (false, Place::Apart) => self.room(count),
            (false, Place::OverInput) => self.input(communicator.rank(), count),
        };
        Ok(same(if self.place == Place::Apart { &to } else { &from }, &expected, element))
    }

    fn reduce_scatter(&self, communicator: &Communicator) -> Result<bool> {
        let &Case { count, element, reduction, .. } = self;
        let (rank, ranks) = (communicator.rank(), communicator.ranks());
        let expected = reduced(ranks, self.begin + rank * count, count, element, reduction);
        let mut from = self.input(rank, count * ranks);
        let own = rank * expected.len()..(rank + 1) * expected.len();
        let mut to = if self.place == Place::Apart { self.room(count) } else { Vec::new() };
        let target = if self.place == Place::Apart { to.as_mut_ptr() } else { from[own.clone()].as_mut_ptr() };
        // SAFETY: vectors of as many elements as are read and written, or this rank's part of one.
        unsafe { communicator.reduce_scatter_raw(from.as_ptr(), target, count, element, reduction) }?;
        Ok(same(if self.place == Place::Apart { &to } else { &from[own] }, &expected, element))
    }

    fn broadcast(&self, communicator: &Communicator) -> Result<bool> {
        let root = self.root % communicator.ranks();
        let mut place = self.input(communicator.rank(), self.count);
        // SAFETY: a vector of `count` elements.
        unsafe { communicator.broadcast_raw(place.as_mut_ptr(), self.count, self.element, root) }?;
        Ok(place == self.input(root, self.count))
    }

    fn all_gather(&self, communicator: &Communicator) -> Result<bool> {
        let ranks = communicator.ranks();
        let from = self.input(communicator.rank(), self.count);
        let own = communicator.rank() * from.len()..(communicator.rank() + 1) * from.len();
        let mut to = self.room(self.count * ranks);
        let source = match self.place {
            Place::Apart => from.as_ptr(),
            Place::OverInput => {
                to[own.clone()].copy_from_slice(&from);
                to[own].as_ptr()
            }
        };
        // SAFETY: vectors of as many elements as are read and written, or this rank's part of one.
        unsafe { communicator.all_gather_raw(source, to.as_mut_ptr(), self.count, self.element) }?;
        let mut parts = to.chunks(from.len().max(1)).enumerate();
        Ok(parts.all(|(rank, part)| part == self.input(rank, self.count)))
    }

    /// Rank r sends rank s `(r + 2 s) % 3 * count` elements.
    fn all_to_all(&self, communicator: &Communicator) -> Result<bool> {
        let (rank, ranks) = (communicator.rank(), communicator.ranks());
        let counted = |from: usize, to: usize| (from + 2 * to) % 3 * self.count;
        let sent = |from: usize, to: usize| input(from, self.begin + to, counted(from, to), self.element);
        let mut from: Vec<Vec<u8>> = (0..ranks).map(|to| sent(rank, to)).collect();
        let mut to: Vec<Vec<u8>> = (0..ranks).map(|from| self.room(counted(from, rank))).collect();
        let sends: Vec<Part> = from.iter_mut().map(|bytes| self.part(bytes)).collect();
        let receives: Vec<Part> = to.iter_mut().map(|bytes| self.part(bytes)).collect();
        // SAFETY: vectors of their own.
        unsafe { communicator.all_to_all_raw(&sends, &receives) }?;
        Ok(to.iter().enumerate().all(|(other, bytes)| *bytes == sent(other, rank)))
    }

    /// Each rank sends two messages of different sizes to every rank, itself too, in one group.
    fn messages(&self, communicator: &Communicator) -> Result<bool> {
        let (rank, ranks) = (communicator.rank(), communicator.ranks());
        let sent = |from: usize, index: usize| input(from, self.begin + index, self.count + index, self.element);
        // Of the 2 * ranks messages that a rank sends, these two come to this one.
        let coming = |index: usize| index / ranks * ranks + rank;
        let mut from: Vec<Vec<u8>> = (0..2 * ranks).map(|index| sent(rank, index)).collect();
        let mut to: Vec<Vec<u8>> = (0..2 * ranks).map(|index| self.room(self.count + coming(index))).collect();
        let mut group = Vec::new();
        for (index, bytes) in from.iter_mut().enumerate() {
            group.push(Message::Send { to: index % ranks, part: self.part(bytes) });
        }
        for (index, bytes) in to.iter_mut().enumerate() {
            group.push(Message::Receive { from: index % ranks, part: self.part(bytes) });
        }
        // SAFETY: vectors of their own.
        unsafe { communicator.messages_raw(&group) }?;
        Ok(to.iter().enumerate().all(|(index, bytes)| *bytes == sent(index % ranks, coming(index))))
    }

    fn part(&self, bytes: &mut [u8]) -> Part {
        Part { address: bytes.as_mut_ptr(), count: bytes.len() / self.element.size(), element: self.element }
    }
}
