//! Lowers atomic operations, assertions and messages.

use super::{Lowered, Lowering};
use crate::error::Error;
use crate::plan::call::{Call, Effect, Places, Work};
use crate::plan::operand::Operand;
use crate::plan::step::Step;
use crate::plan::value::Planned;
use openmps_tile::interpret::element;
use openmps_tile::kernel::{Atomic, Print};
use openmps_tile::{Instruction, Scalar, Value};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

impl Lowering<'_> {
    pub(super) fn atomic(&mut self, atomic: Atomic, operands: &[Value], result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(operands[0]);
        let (size, count) = (scalar.size(), self.extents_of(operands[0]).len());
        let mask = operands.get(2).map(|_| 2);
        let work: Work = Arc::new(move |places: &Places| {
            for i in 0..count {
                if !places.holds(mask, i) {
                    // What Triton leaves open; here it does not depend on what lay in memory.
                    places.set(i, size, 0);
                    continue;
                }
                let (address, given) = (places.get(0, i, 8), places.get(1, i, size));
                let old = replace(address, size, |old| atomic.writes().then(|| combined(atomic, scalar, old, given)));
                places.set(i, size, old);
            }
            Ok(())
        });
        self.change("tt.atomic_rmw", operands, result, work)
    }

    pub(super) fn compare_swap(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        let (size, count) = (self.scalar_of(operands[0]).size(), self.extents_of(operands[0]).len());
        let work: Work = Arc::new(move |places: &Places| {
            for i in 0..count {
                let (expected, new) = (places.get(1, i, size), places.get(2, i, size));
                let old = replace(places.get(0, i, 8), size, |old| (old == expected).then_some(new));
                places.set(i, size, old);
            }
            Ok(())
        });
        self.change("tt.atomic_cas", operands, result, work)
    }

    /// Adds work that changes memory, and what it gives.
    fn change(&mut self, name: &'static str, operands: &[Value], result: Value, work: Work) -> Lowered<Planned> {
        let mut reads = Vec::new();
        for &operand in operands {
            reads.push(self.dense(operand)?);
        }
        let (written, operand) = self.home(result);
        let call = Call { name, reads, writes: vec![written], effect: Effect::Outside, work };
        self.emit_tile(Step::Call(call), &self.extents_of(result), 10.0);
        Ok(self.as_planned(result, operand))
    }

    pub(super) fn assert(&mut self, instruction: &Instruction, message: &str) -> Lowered<()> {
        let condition = instruction.operands[0];
        let (count, reads) = (self.extents_of(condition).len(), vec![self.dense(condition)?]);
        let line = instruction.line.and_then(|line| self.kernel.lines.get(line as usize).cloned()).unwrap_or_default();
        let text = format!("{}: {line}: assertion failed: {message}", self.kernel.name);
        let work = Arc::new(move |places: &Places| {
            let failed = (0..count).find(|&i| places.get(0, i, 1) == 0);
            let error = |i| Error::Invalid(format!("{text} (program {:?}, element {i})", places.program));
            failed.map_or(Ok(()), |i| Err(error(i)))
        });
        let extents = self.extents_of(condition);
        self.emit_work("tt.assert", reads, Vec::new(), &extents, 0.5, work);
        Ok(())
    }

    /// Lines on standard output, those of one program after those of the other.
    pub(super) fn print(&mut self, operands: &[Value], print: &Print) -> Lowered<()> {
        self.is_ordered = true;
        let (print, kernel) = (print.clone(), self.kernel.name.clone());
        let types: Vec<_> = operands
            .iter()
            .map(|&operand| (self.kernel.type_of(operand).clone(), self.element_size(operand)))
            .collect();
        let mut reads: Vec<Operand> = Vec::new();
        for &operand in operands {
            reads.push(self.dense(operand)?);
        }
        let work = Arc::new(move |places: &Places| {
            let bits: Vec<_> = types
                .iter()
                .enumerate()
                .map(|(operand, &(_, size))| move |i: usize| Some(places.get(operand, i, size)))
                .collect();
            let elements = bits.iter().map(|bits| bits as &dyn Fn(usize) -> Option<u64>);
            let operands: Vec<_> = types.iter().map(|(ty, _)| ty).zip(elements).collect();
            let lines = print.lines(places.program, &operands);
            let mut out = std::io::stdout().lock();
            let written = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
            written.map_err(|error| Error::Invalid(format!("{kernel}: tt.print: {error}")))
        });
        self.emit(Step::Call(Call { name: "tt.print", reads, writes: Vec::new(), effect: Effect::Outside, work }));
        Ok(())
    }
}

fn combined(operation: Atomic, scalar: Scalar, old: u64, given: u64) -> u64 {
    operation.operation().map_or(given, |binary| element::binary(binary, scalar, old, given))
}

/// Replaces the element at an address at once, or leaves it; what was there.
fn replace(address: u64, size: usize, new: impl Fn(u64) -> Option<u64>) -> u64 {
    macro_rules! exchange {
        ($atomic:ty, $integer:ty) => {{
            // SAFETY: the caller of `run` vouches for the address, which is aligned as elements of device memory are.
            let place = unsafe { <$atomic>::from_ptr(address as *mut $integer) };
            let exchange = |old: $integer| new(old.into()).map(|new| new as $integer);
            match place.fetch_update(Ordering::AcqRel, Ordering::Acquire, exchange) {
                Ok(old) | Err(old) => old.into(),
            }
        }};
    }
    match size {
        1 => exchange!(AtomicU8, u8),
        2 => exchange!(AtomicU16, u16),
        4 => exchange!(AtomicU32, u32),
        _ => exchange!(AtomicU64, u64),
    }
}
