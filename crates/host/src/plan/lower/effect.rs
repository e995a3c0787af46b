//! Lowers atomic operations, assertions and messages.

use super::memory::Tile;
use super::{Lowered, Lowering, refuse};
use crate::error::Error;
use crate::plan::atomic::{Change, Given, Turn};
use crate::plan::call::{Call, Effect, Places, Work, copy_element};
use crate::plan::operand::{self, Operand, plain};
use crate::plan::step::{Atomically, Step};
use crate::plan::value::Planned;
use openmps_tile::kernel::{Atomic, Print};
use openmps_tile::{Instruction, Value};
use std::io::Write;
use std::sync::Arc;

impl Lowering<'_> {
    pub(super) fn atomic(&mut self, atomic: Atomic, operands: &[Value], result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(operands[0]);
        let Some(change) = Change::new(atomic, scalar) else {
            return refuse(format!("tt.atomic_rmw {} of {}", atomic.text(), scalar.name()));
        };
        if self.is_one(result) {
            return self.atomic_number(change, operands, result);
        }
        let (full, size) = (self.extents_of(operands[0]), scalar.size());
        let value = self.data(operands[1])?;
        let (places, mask, extents) = match self.tile(operands[0], operands.get(2))? {
            Tile::Rows(address, extents) => (operand::Places::Sums(address), None, extents),
            Tile::Elements(places, mask) => (places, mask, full),
        };
        let is_read = self.kernel.body.reads(result);
        let register = self.register(if is_read { full.len() * size } else { 0 });
        let old = is_read.then_some(register);
        let step = Atomically { change, places, value, mask, old, size, extents };
        self.emit_tile(Step::Atomic(step), &full, if full.columns.full == 1 { 6.0 } else { 2.0 });
        Ok(Planned::Data(plain(register)))
    }

    fn atomic_number(&mut self, change: Change, operands: &[Value], result: Value) -> Lowered<Planned> {
        let mask = operands.get(2).map(|_| 2);
        let work: Work = Arc::new(move |places: &Places| {
            places.set(0, 8, 0);
            if places.holds(mask, 0) {
                let (place, given) = (places.get(0, 0, 8) as *mut u8, (places.reads[1], Given::One));
                // SAFETY: whoever runs a plan vouches for its addresses; operand and result are numbers in slots.
                unsafe { change.run(&mut Turn::default(), place, given, Some(places.writes[0]), 1) };
            }
            Ok(())
        });
        self.change("tt.atomic_rmw", operands, result, work)
    }

    pub(super) fn compare_swap(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        let (size, count) = (self.scalar_of(operands[0]).size(), self.extents_of(operands[0]).len());
        let work: Work = Arc::new(move |places: &Places| {
            let mut turn = Turn::default();
            for i in 0..count {
                let (place, expected, new) = (places.get(0, i, 8), places.get(1, i, size), places.get(2, i, size));
                let place = place as *mut u8;
                turn.take(place);
                let mut old = 0_u64;
                // SAFETY: whoever runs a plan vouches for its addresses, and it is this thread's turn to change what is there.
                unsafe {
                    copy_element((&raw mut old).cast(), place, size);
                    if old == expected {
                        copy_element(place, (&raw const new).cast(), size);
                    }
                }
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
