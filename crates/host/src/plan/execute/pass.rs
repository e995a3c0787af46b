//! Compiled passes over rows.

use super::{Machine, RegisterMemory, stream};
use crate::error::Error;
use crate::jit::{ALIGNMENT, MOST_ROWS};
use crate::plan::pass::rows::{Check, Pass};
use crate::plan::step::Step;

impl Machine<'_> {
    /// # Safety
    /// As for [`Machine::run`].
    pub(super) unsafe fn pass(&mut self, pass: &Pass, steps: &[Step]) -> Result<(), Error> {
        let (rows, columns) = self.extents(&pass.extents);
        let count = rows * columns;
        let mut at = [std::ptr::null_mut(); MOST_ROWS];
        let (inputs, outputs) = at.split_at_mut(pass.inputs.len());
        let mut is_compiled = true;
        for (at, input) in inputs.iter_mut().zip(&pass.inputs) {
            let place = self.places[input.register];
            is_compiled &= !place.repeats;
            *at = place.address;
        }
        for (at, output) in outputs.iter_mut().zip(&pass.outputs) {
            *at = match output.store {
                Some(base) => self.get(base) as *mut u8,
                None => self.home(output.register),
            };
        }
        if !is_compiled || !self.may_run(pass, outputs, count) {
            // SAFETY: passed on to the caller.
            return unsafe { self.run(steps) };
        }
        for (&address, output) in outputs.iter().zip(&pass.outputs) {
            match output.store {
                Some(_) => self.ahead.note(output.register, address, count * output.size),
                None => self.places[output.register] = RegisterMemory { address, pitch: 0, repeats: false },
            }
        }
        let past_caches = self.streams && are_long_and_aligned(pass, outputs, count);
        let used = pass.inputs.len() + pass.outputs.len();
        // SAFETY: registers hold whole tiles, memory is valid inside the extents, and rows that are written are apart from others or the same. The slots of
        // the totals are there.
        unsafe {
            pass.compiled.run(&at[..used], self.slots, count, past_caches);
        }
        Ok(())
    }

    /// Whether what is stored is apart from what else is read and stored, or the same where that does no harm.
    #[inline(always)]
    fn may_run(&self, pass: &Pass, outputs: &[*mut u8], count: usize) -> bool {
        let is_apart = |check: &Check| {
            let (to, from) = (outputs[check.output] as usize, self.places[check.register].address as usize);
            let stored = count * pass.outputs[check.output].size;
            from >= to.wrapping_add(stored)
                || to >= from.wrapping_add(count * check.size)
                || check.may_be_same && to == from
        };
        pass.checks.iter().all(is_apart) && are_apart(pass, outputs, count)
    }
}

/// Whether rows that are stored may be stored past the caches.
#[inline(always)]
fn are_long_and_aligned(pass: &Pass, outputs: &[*mut u8], count: usize) -> bool {
    pass.outputs.iter().zip(outputs).all(|(output, &at)| {
        let is_long = count * output.size >= stream::SHORTEST;
        output.store.is_none() || is_long && (at as usize).is_multiple_of(ALIGNMENT)
    })
}

/// Whether no two rows are stored at the same place, but element by element.
#[inline(always)]
fn are_apart(pass: &Pass, outputs: &[*mut u8], count: usize) -> bool {
    let stored = || pass.outputs.iter().zip(outputs).filter(|(output, _)| output.store.is_some());
    stored().enumerate().all(|(i, (one, &first))| {
        stored().skip(i + 1).all(|(other, &second)| {
            let (first, second) = (first as usize, second as usize);
            let is_same = first == second && one.size == other.size;
            is_same
                || second >= first.wrapping_add(count * one.size)
                || first >= second.wrapping_add(count * other.size)
        })
    })
}
