//! The operations over slices.

use crate::communicator::Communicator;
use crate::element::{Element, Reduction};
use crate::error::{Error, Result};
use crate::request::Message;
use crate::task::Part;

/// One of several sends and receives that happen at once.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Transfer<'a, T> {
    Send { to: usize, values: &'a [T] },
    Receive { from: usize, into: &'a mut [T] },
}

fn read<T: Element>(values: &[T]) -> Part {
    Part { address: values.as_ptr().cast_mut().cast(), count: values.len(), element: T::TYPE }
}

fn write<T: Element>(values: &mut [T]) -> Part {
    Part { address: values.as_mut_ptr().cast(), count: values.len(), element: T::TYPE }
}

/// SAFETY of all calls: a slice's elements are readable, those of an exclusive one writable, and slices overlap only where they are the same.
impl Communicator {
    /// Every rank's `values` become their reduction over all ranks.
    pub fn all_reduce<T: Element>(&self, values: &mut [T], reduction: Reduction) -> Result<()> {
        let part = write(values);
        // SAFETY: see above.
        unsafe { self.all_reduce_raw(part.address, part.address, part.count, T::TYPE, reduction) }
    }

    /// The root's `values` become every rank's.
    pub fn broadcast<T: Element>(&self, values: &mut [T], root: usize) -> Result<()> {
        // SAFETY: see above.
        unsafe { self.broadcast_raw(write(values).address, values.len(), T::TYPE, root) }
    }

    /// The root's `values` become the reduction over all ranks.
    pub fn reduce<T: Element>(&self, values: &mut [T], reduction: Reduction, root: usize) -> Result<()> {
        let part = write(values);
        // SAFETY: see above.
        unsafe { self.reduce_raw(part.address, part.address, part.count, T::TYPE, reduction, root) }
    }

    /// `all` becomes the values of all ranks, in their order.
    pub fn all_gather<T: Element>(&self, values: &[T], all: &mut [T]) -> Result<()> {
        self.check_parts(values.len(), all.len())?;
        // SAFETY: see above; the length was checked.
        unsafe { self.all_gather_raw(read(values).address, write(all).address, values.len(), T::TYPE) }
    }

    /// `values` becomes this rank's part of the reduction of `all` over all ranks.
    pub fn reduce_scatter<T: Element>(&self, all: &[T], values: &mut [T], reduction: Reduction) -> Result<()> {
        self.check_parts(values.len(), all.len())?;
        let count = values.len();
        // SAFETY: see above; the length was checked.
        unsafe { self.reduce_scatter_raw(read(all).address, write(values).address, count, T::TYPE, reduction) }
    }

    /// Part r of `values` goes to rank r, whose part comes to where it is in `into`. All parts have the same size.
    pub fn all_to_all<T: Element>(&self, values: &[T], into: &mut [T]) -> Result<()> {
        let count = values.len() / self.ranks();
        self.check_parts(count, values.len())?;
        self.check_parts(count, into.len())?;
        let part = |whole: Part, rank: usize| Part {
            address: whole.address.wrapping_add(rank * count * T::TYPE.size()),
            count,
            ..whole
        };
        let (from, to) = (read(values), write(into));
        let sends: Vec<Part> = (0..self.ranks()).map(|rank| part(from, rank)).collect();
        let receives: Vec<Part> = (0..self.ranks()).map(|rank| part(to, rank)).collect();
        // SAFETY: see above; the lengths were checked.
        unsafe { self.all_to_all_raw(&sends, &receives) }
    }

    /// Sends values to a rank, which must receive as many. May return before it does.
    pub fn send<T: Element>(&self, values: &[T], to: usize) -> Result<()> {
        // SAFETY: see above.
        unsafe { self.messages_raw(&[Message::Send { to, part: read(values) }]) }
    }

    /// Receives what a rank sends.
    pub fn receive<T: Element>(&self, into: &mut [T], from: usize) -> Result<()> {
        // SAFETY: see above.
        unsafe { self.messages_raw(&[Message::Receive { from, part: write(into) }]) }
    }

    /// Sends and receives at once, so that two ranks may send to each other. Between two ranks the order is that of the list.
    pub fn exchange<T: Element>(&self, transfers: &mut [Transfer<'_, T>]) -> Result<()> {
        let message = |transfer: &mut Transfer<'_, T>| match transfer {
            Transfer::Send { to, values } => Message::Send { to: *to, part: read(values) },
            Transfer::Receive { from, into } => Message::Receive { from: *from, part: write(into) },
        };
        let messages: Vec<Message> = transfers.iter_mut().map(message).collect();
        // SAFETY: see above; exclusive slices overlap no other.
        unsafe { self.messages_raw(&messages) }
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&self) -> Result<()> {
        self.all_reduce::<u8>(&mut [], Reduction::Sum)
    }

    fn check_parts(&self, part: usize, all: usize) -> Result<()> {
        if part.checked_mul(self.ranks()) == Some(all) {
            return Ok(());
        }
        Err(Error::Argument(format!("{all} elements are not {} parts of {part}", self.ranks())))
    }
}
