//! A program of parts of the caller's memory, each of which is a buffer of its own: all-to-all and messages.

use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fold::Form;
use crate::program::{FIRST_FREE, FoldStep, Kind, Operation, Place, Program, Send, Source};

/// Elements by their address.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Part {
    pub address: *mut u8,
    pub count: usize,
    pub element: ElementType,
}

/// Elements in bytes; an error where no memory has so many.
pub(crate) fn size(count: usize, element: ElementType) -> Result<usize> {
    let bytes = count.checked_mul(element.size()).filter(|&bytes| bytes <= isize::MAX as usize);
    bytes.ok_or_else(|| Error::Argument(format!("{count} {element} are more than there is memory")))
}

/// A program, and the buffers that it has beside the first three.
pub(crate) struct Task {
    pub program: Program,
    pub buffers: Vec<*mut u8>,
    kind: Kind,
    sequence: u64,
}

impl Task {
    /// Without parts; `sequence` is the number that all of their operations have.
    pub fn new(kind: Kind, sequence: u64) -> Task {
        Task { program: Program::default(), buffers: Vec::new(), kind, sequence }
    }

    /// The index of a part's operation, and the part's place.
    fn part(&mut self, part: Part) -> (usize, Place) {
        let operation = Operation { sequence: self.sequence, ..Operation::new(self.kind, part.element, part.count) };
        self.program.operations.push(operation);
        self.buffers.push(part.address);
        let buffer = FIRST_FREE + self.buffers.len() - 1;
        (self.program.operations.len() - 1, Place { buffer, begin: 0 })
    }

    pub fn send(&mut self, to: usize, part: Part) {
        let (operation, from) = self.part(part);
        self.program.sends.push(Send { operation, to, from, count: part.count, after: None });
    }

    pub fn receive(&mut self, from: usize, part: Part) {
        self.store(part, Source::Rank { rank: from, form: Form::Whole });
    }

    /// What a rank sends to itself.
    pub fn copy(&mut self, from: Part, to: Part) -> Result<()> {
        if (from.count, from.element) != (to.count, to.element) {
            return Err(Error::Argument(format!(
                "a rank sends itself {} {} and receives {} {}",
                from.count, from.element, to.count, to.element
            )));
        }
        let (_, from) = self.part(from);
        self.store(to, Source::Own(from));
        Ok(())
    }

    fn store(&mut self, part: Part, source: Source) {
        let (operation, to) = self.part(part);
        let sources = vec![source];
        self.program.folds.push(FoldStep { operation, sources, to, count: part.count, finish: false, after: None });
    }
}
