//! Stacks of coroutines.

use corosensei::stack::{DefaultStack, StackPointer};

/// Bytes of a thread's stack: its variables and arrays.
const SIZE: usize = 128 * 1024;
/// Tops of stacks begin at different lines of a page: at the same line, those of a simdgroup would push each other out of the cache.
const COLOURS: usize = 64;
const LINE: usize = 64;

/// A stack with a guard page below.
pub(crate) struct Stack {
    memory: DefaultStack,
    colour: usize,
}

impl Stack {
    /// The n-th stack of a thread.
    pub(crate) fn new(n: usize) -> std::io::Result<Stack> {
        // Nine lines apart: what a waiting thread keeps at its top is about as long.
        Ok(Stack { memory: DefaultStack::new(SIZE)?, colour: n * 9 % COLOURS })
    }
}

// SAFETY: the memory is that of a whole stack, from a little below its top; guard page and alignment stay.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        let base = self.memory.base().get() - self.colour * LINE;
        StackPointer::new(base).expect("an address inside the stack is not null")
    }

    fn limit(&self) -> StackPointer {
        self.memory.limit()
    }
}
