//! A rank's part of an operation as data: what it sends to whom, and what it folds of what comes in. The engine carries programs out.
//!
//! What goes to one rank goes in the order of the list, and so does what comes from one; nothing else is ordered but what a send or a fold says
//! it comes after. So several segments of an array are on their way at once, and a rank that waits for one does another's work.

use crate::element::{ElementType, Reduction};
use crate::fold::{Form, size};
use std::fmt;

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    AllReduce = 1,
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    /// A send of one rank and the receive of another.
    Message,
    Barrier,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::AllReduce,
        Kind::Broadcast,
        Kind::Reduce,
        Kind::AllGather,
        Kind::ReduceScatter,
        Kind::AllToAll,
        Kind::Message,
        Kind::Barrier,
    ];

    /// The kind with this number.
    pub(crate) fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => "all_reduce",
            Kind::Broadcast => "broadcast",
            Kind::Reduce => "reduce",
            Kind::AllGather => "all_gather",
            Kind::ReduceScatter => "reduce_scatter",
            Kind::AllToAll => "all_to_all",
            Kind::Message => "send and receive",
            Kind::Barrier => "barrier",
        }
    }
}

/// What all ranks must agree on before an element may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub kind: Kind,
    pub element: ElementType,
    pub reduction: Option<Reduction>,
    pub root: Option<usize>,
    /// Elements that each rank handed over.
    pub count: usize,
    /// The how many-th collective operation of the communicator this is; 0 of messages.
    pub sequence: u64,
}

impl Operation {
    /// Without a reduction, a root and a number.
    pub fn new(kind: Kind, element: ElementType, count: usize) -> Operation {
        Operation { kind, element, reduction: None, root: None, count, sequence: 0 }
    }

    pub fn with_reduction(self, reduction: Reduction) -> Operation {
        Operation { reduction: Some(reduction), ..self }
    }

    pub fn with_root(self, root: usize) -> Operation {
        Operation { root: Some(root), ..self }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} of {} {}", self.kind.name(), self.count, self.element)?;
        if let Some(reduction) = self.reduction {
            write!(to, ", {reduction}")?;
        }
        if let Some(root) = self.root {
            write!(to, ", root {root}")?;
        }
        if self.sequence > 0 { write!(to, " (operation {})", self.sequence) } else { Ok(()) }
    }
}

/// Elements of one of the program's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index among the buffers; the first three are [`INPUT`], [`OUTPUT`] and [`SCRATCH`].
    pub buffer: usize,
    /// The first element, in elements of the buffer's form.
    pub begin: usize,
}

/// What the caller hands over.
pub(crate) const INPUT: usize = 0;
/// Where the result goes.
pub(crate) const OUTPUT: usize = 1;
/// Partial results.
pub(crate) const SCRATCH: usize = 2;
/// The first buffer that a program may have for itself.
pub(crate) const FIRST_FREE: usize = 3;

impl Place {
    /// In which form elements lie there.
    pub fn form(self) -> Form {
        if self.buffer == SCRATCH { Form::Partial } else { Form::Whole }
    }
}

/// Elements that go to a rank.
#[derive(Clone, Debug)]
pub(crate) struct Send {
    /// Index among the operations.
    pub operation: usize,
    pub to: usize,
    pub from: Place,
    pub count: usize,
    /// The fold that makes these elements.
    pub after: Option<usize>,
}

/// Where an operand of a fold comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The next message of a rank.
    Rank { rank: usize, form: Form },
    /// This rank's own memory.
    Own(Place),
}

/// Elements that become others.
#[derive(Clone, Debug)]
pub(crate) struct FoldStep {
    /// Index among the operations.
    pub operation: usize,
    /// In the order in which they are combined.
    pub sources: Vec<Source>,
    pub to: Place,
    pub count: usize,
    /// Whether this is the last step of the reduction.
    pub finish: bool,
    /// The fold that must have been done before.
    pub after: Option<usize>,
}

/// One rank's part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub operations: Vec<Operation>,
    pub sends: Vec<Send>,
    pub folds: Vec<FoldStep>,
    /// Elements of partial results.
    pub scratch: usize,
    /// Whether the input is still sent while the output is written, so that they may not be the same memory.
    pub keeps_input: bool,
}

impl Program {
    /// Bytes that an item of the program moves.
    pub fn bytes(&self, operation: usize, form: Form, count: usize) -> usize {
        count * size(self.operations[operation].element, form)
    }

    /// Appends a send.
    pub fn send(&mut self, to: usize, from: Place, count: usize, after: Option<usize>) {
        self.sends.push(Send { operation: 0, to, from, count, after });
    }

    /// Appends a fold, whose index it gives.
    pub fn fold(&mut self, sources: Vec<Source>, to: Place, count: usize, finish: bool, after: Option<usize>) -> usize {
        self.folds.push(FoldStep { operation: 0, sources, to, count, finish, after });
        self.folds.len() - 1
    }

    /// Appends the receipt of elements as they are.
    pub fn receive(&mut self, from: usize, to: Place, count: usize) -> usize {
        self.fold(vec![Source::Rank { rank: from, form: Form::Whole }], to, count, false, None)
    }

    /// Appends a copy within this rank.
    pub fn copy(&mut self, from: Place, to: Place, count: usize) {
        self.fold(vec![Source::Own(from)], to, count, false, None);
    }
}
