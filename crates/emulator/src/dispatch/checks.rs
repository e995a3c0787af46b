//! What Metal requires of a dispatch, checked before it.

use super::{Argument, Dispatch};
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::image::Extent;
use crate::library::Function;
use crate::limits::{self, Limit};
use crate::source::Binding;

/// The sizes, against Metal's limits.
pub(super) fn check_sizes(function: &Function, dispatch: &Dispatch) -> std::result::Result<(), Limit> {
    let size = dispatch.threads_per_threadgroup;
    let (Grid::Threadgroups(grid) | Grid::Threads(grid)) = dispatch.grid;
    for given in [size, grid] {
        if given.contains(&0) {
            return Err(Limit::Empty { given });
        }
    }
    let given = size.iter().map(|&n| u64::from(n)).product();
    if given > u64::from(limits::THREADS_PER_THREADGROUP) {
        return Err(Limit::Threads { given });
    }
    if let Some(most) = function.kernel.most_threads.filter(|most| given > u64::from(*most)) {
        return Err(Limit::DeclaredThreads { given, most });
    }
    let given = dispatch.arguments.len();
    if given > limits::BUFFERS {
        return Err(Limit::Buffers { given });
    }
    for (index, argument) in dispatch.arguments.iter().enumerate() {
        if let Argument::Bytes(bytes) = argument
            && bytes.len() > limits::BYTES
        {
            return Err(Limit::Bytes { index, given: bytes.len() });
        }
    }
    check_threadgroup_memory(function, dispatch)
}

fn check_threadgroup_memory(function: &Function, dispatch: &Dispatch) -> std::result::Result<(), Limit> {
    let given = dispatch.threadgroup_memory.len();
    if given > limits::THREADGROUP_ARGUMENTS {
        return Err(Limit::ThreadgroupArguments { given });
    }
    for (index, &given) in dispatch.threadgroup_memory.iter().enumerate() {
        if given % limits::THREADGROUP_MEMORY_STEP != 0 {
            return Err(Limit::ThreadgroupMemoryStep { index, given });
        }
    }
    let (declared, given) = (function.declared_threadgroup_memory(), dispatch.threadgroup_memory.iter().sum::<usize>());
    if declared + given > limits::THREADGROUP_MEMORY {
        return Err(Limit::ThreadgroupMemory { declared, given });
    }
    Ok(())
}

/// Whether what the kernel declares is bound, large enough and aligned.
pub(super) fn check_arguments(function: &Function, dispatch: &Dispatch) -> Result<()> {
    let kernel = || function.kernel.name.clone();
    for (parameter, &Extent { size, alignment, present }) in function.kernel.parameters.iter().zip(&function.extents) {
        if !present {
            continue;
        }
        let declaration = || parameter.text.clone();
        match parameter.binding {
            Binding::Buffer { index, reference, constant, .. } => {
                match dispatch.arguments.get(index as usize).unwrap_or(&Argument::Unbound) {
                    Argument::Unbound => {
                        return Err(Error::MissingArgument { kernel: kernel(), index, declaration: declaration() });
                    }
                    Argument::Bytes(bytes) if bytes.is_empty() || reference && bytes.len() < size => {
                        let needed = if reference { size } else { 1 };
                        let given = bytes.len();
                        return Err(Error::ShortArgument {
                            kernel: kernel(),
                            index,
                            declaration: declaration(),
                            needed,
                            given,
                        });
                    }
                    Argument::Bytes(_) => {}
                    Argument::Buffer(address) => {
                        let needed = if constant { alignment.max(limits::CONSTANT_ALIGNMENT) } else { alignment };
                        if !(*address as usize).is_multiple_of(needed) {
                            let limit = Limit::Alignment { index: index as usize, address: *address as usize, needed };
                            return Err(function.beyond(limit));
                        }
                    }
                }
            }
            Binding::Threadgroup { index }
                if dispatch.threadgroup_memory.get(index as usize).is_none_or(|n| *n == 0) =>
            {
                return Err(Error::MissingThreadgroupMemory { kernel: kernel(), index });
            }
            Binding::Threadgroup { .. } | Binding::Builtin(_) => {}
        }
    }
    Ok(())
}

impl Function {
    /// The error of a limit that this function's dispatch is beyond.
    pub(super) fn beyond(&self, limit: Limit) -> Error {
        Error::Limit { kernel: self.kernel.name.clone(), limit }
    }
}
