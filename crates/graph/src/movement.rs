//! Copies and fills of views: by native kernels in one command, by a GPU's kernels one after the other.

use crate::error::Result;
use crate::layout::{call, copy_view, fill_view};
use crate::operators::elementwise::{self, Elementwise, Unary};
use crate::queue::Queue;
use crate::view::View;
use openmps_tile::Number;

/// What an operator of movements tells to copy and to fill.
pub(crate) struct Mover<'a> {
    /// None where the CPU does it at once.
    queue: Option<&'a Queue>,
}

/// Does an operator's copies and fills, in the order in which they are told.
pub(crate) fn run(queue: &Queue, operator: &'static str, work: impl FnOnce(&Mover) -> Result<()>) -> Result<()> {
    if !queue.is_host() {
        return work(&Mover { queue: Some(queue) });
    }
    let mut result = Ok(());
    call(queue, operator, || {
        result = work(&Mover { queue: None });
        Ok(())
    })?;
    result
}

impl Mover<'_> {
    /// Copies between two views of one shape and element size.
    pub fn copy(&self, from: &View, to: &View) -> Result<()> {
        match self.queue {
            None => copy_view(from, to),
            Some(_) if to.is_empty() => {}
            Some(queue) => {
                elementwise::run(Elementwise::Unary(Unary::Cast), queue, &[&bits(from)], &[], &bits(to))?;
            }
        }
        Ok(())
    }

    /// Sets every element of a view.
    pub fn fill(&self, to: &View, value: Number) -> Result<()> {
        match self.queue {
            None => fill_view(to, value),
            Some(_) if to.is_empty() => {}
            Some(queue) => elementwise::fill(queue, &bits(to), u64::from_le_bytes(value.element(to.dtype)))?,
        }
        Ok(())
    }
}

fn bits(view: &View) -> View {
    View { dtype: view.dtype.bits(), ..view.clone() }
}
