//! An operation over addresses, before it is known who carries it out.

use crate::communicator::{Communicator, Message};
use crate::element::{ElementType, Reduction};
use crate::error::Result;
use crate::task::Part;

/// An operation with its memory: what the methods of [`Communicator`] whose names end in `_raw` take.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Request<'a> {
    AllReduce { input: *const u8, output: *mut u8, count: usize, element: ElementType, reduction: Reduction },
    Broadcast { memory: *mut u8, count: usize, element: ElementType, root: usize },
    Reduce { input: *const u8, output: *mut u8, count: usize, element: ElementType, reduction: Reduction, root: usize },
    AllGather { input: *const u8, output: *mut u8, count: usize, element: ElementType },
    ReduceScatter { input: *const u8, output: *mut u8, count: usize, element: ElementType, reduction: Reduction },
    AllToAll { sends: &'a [Part], receives: &'a [Part] },
    Messages(&'a [Message]),
}

impl Communicator {
    /// Carries an operation out on the CPU.
    ///
    /// # Safety
    /// As for the method of the operation.
    pub unsafe fn perform(&self, request: &Request<'_>) -> Result<()> {
        // SAFETY: the caller's promise, for each of these.
        unsafe {
            match *request {
                Request::AllReduce { input, output, count, element, reduction } => {
                    self.all_reduce_raw(input, output, count, element, reduction)
                }
                Request::Broadcast { memory, count, element, root } => self.broadcast_raw(memory, count, element, root),
                Request::Reduce { input, output, count, element, reduction, root } => {
                    self.reduce_raw(input, output, count, element, reduction, root)
                }
                Request::AllGather { input, output, count, element } => {
                    self.all_gather_raw(input, output, count, element)
                }
                Request::ReduceScatter { input, output, count, element, reduction } => {
                    self.reduce_scatter_raw(input, output, count, element, reduction)
                }
                Request::AllToAll { sends, receives } => self.all_to_all_raw(sends, receives),
                Request::Messages(messages) => self.messages_raw(messages),
            }
        }
    }
}
