//! An operation over addresses, before it is known who carries it out.

use crate::element::{ElementType, Reduction};
use crate::task::Part;

/// Elements that go to a rank or come from one.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Message {
    Send { to: usize, part: Part },
    Receive { from: usize, part: Part },
}

/// An operation with its memory: what the methods of [`Communicator`](crate::Communicator) whose names end in `_raw` take.
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
