//! Which steps are one pass, and in which order the others stand around it.

use super::recipe;
use super::recipe::Recipe;
use super::rows::Pass;
use crate::plan::effects::{operands, slots_read, slots_written, written};
use crate::plan::operand::{Extents, Operand, Register, Slot};
use crate::plan::step::{Rest, Step};
use std::collections::HashMap;

/// Shorter rows are not worth a pass.
const SHORTEST: usize = 16;
/// Longer ones would be summed up too roughly: each lane adds one number after the other.
const LONGEST: usize = 1 << 16;

/// Joins the steps of a body to passes. `one` is the slot that always holds 1; registers are read so often.
pub(in crate::plan) fn gather(body: &mut Vec<Step>, one: Option<Slot>, reads: &[usize]) {
    let mut segment = Vec::new();
    for mut step in std::mem::take(body) {
        if !matches!(step, Step::Fold(_)) {
            step.bodies_mut().iter_mut().for_each(|body| gather(body, one, reads));
        }
        if role(&step, one).is_some() {
            segment.push(step);
            continue;
        }
        body.append(&mut in_passes(std::mem::take(&mut segment), one, reads));
        body.push(step);
    }
    body.append(&mut in_passes(segment, one, reads));
}

/// What a step is to those around it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It works on numbers only.
    Number,
    /// It reads memory.
    Read,
    /// It writes memory.
    Write,
    /// It may be part of a pass.
    Element,
}

fn role(step: &Step, one: Option<Slot>) -> Option<Role> {
    if recipe::extents(step, one).is_some_and(|extents| (SHORTEST..=LONGEST).contains(&extents.columns.full)) {
        return Some(Role::Element);
    }
    match step {
        Step::Index { .. }
        | Step::Place { .. }
        | Step::Unary { .. }
        | Step::Binary { .. }
        | Step::Select { .. }
        | Step::Copy { .. } => Some(Role::Number),
        Step::LoadTile { address, rest, .. } => {
            let is_simple = address.spread.is_affine() && !matches!(rest, Rest::Other(Operand::Register { .. }));
            is_simple.then_some(Role::Read)
        }
        Step::LoadScalar { .. } => Some(Role::Read),
        Step::StoreScalar { .. } => Some(Role::Write),
        Step::StoreTile { address, .. } if address.spread.is_affine() => Some(Role::Write),
        _ => None,
    }
}

/// When something happens: before the pass of a stage, or in it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    stage: usize,
    in_pass: bool,
}

/// The moments at which something was written and read last.
#[derive(Clone, Copy, Default)]
struct Last {
    write: Option<Moment>,
    read: Option<Moment>,
}

/// When what has been seen so far happens.
#[derive(Default)]
struct Seen {
    slots: HashMap<Slot, Last>,
    registers: HashMap<Register, Last>,
    memory: Last,
}

impl Seen {
    /// The stage of the next step, which is noted.
    fn next(&mut self, step: &Step, role: Role) -> usize {
        let in_pass = role == Role::Element;
        let (mut read, mut written_slots) = (Vec::new(), Vec::new());
        slots_read(step, |slot| read.push(slot));
        slots_written(step, |slot| written_slots.push(slot));
        let (mut read_registers, mut written_registers) = (Vec::new(), Vec::new());
        operands(step, |operand| {
            if let Operand::Register { register, .. } = *operand {
                read_registers.push(register);
            }
        });
        written(step, |register| written_registers.push(register));

        let mut stage = 0;
        // A number that a pass makes is known behind it, and one that it reads is known before it.
        let mut after = |moment: Option<Moment>, is_element: bool| {
            let Some(moment) = moment else { return };
            let is_early = moment.in_pass && !(in_pass && is_element);
            stage = stage.max(moment.stage + usize::from(is_early));
        };
        for slot in &read {
            after(self.slots.get(slot).and_then(|last| last.write), false);
        }
        for slot in &written_slots {
            let last = self.slots.get(slot).copied().unwrap_or_default();
            after(last.write, false);
            // A pass writes its numbers at its end.
            after(last.read, true);
        }
        for register in &read_registers {
            after(self.registers.get(register).and_then(|last| last.write), true);
        }
        for register in &written_registers {
            let last = self.registers.get(register).copied().unwrap_or_default();
            after(last.write, true);
            after(last.read, true);
        }
        let (reads_memory, writes_memory) = match role {
            Role::Number => (false, false),
            Role::Read => (true, false),
            Role::Write => (false, true),
            Role::Element => (false, recipe::stores(step)),
        };
        if reads_memory || writes_memory {
            after(self.memory.write, true);
        }
        if writes_memory {
            after(self.memory.read, true);
        }

        let moment = Some(Moment { stage, in_pass });
        let note = |place: &mut Option<Moment>| *place = (*place).max(moment);
        read.iter().for_each(|&slot| note(&mut self.slots.entry(slot).or_default().read));
        written_slots.iter().for_each(|&slot| note(&mut self.slots.entry(slot).or_default().write));
        read_registers.iter().for_each(|&register| note(&mut self.registers.entry(register).or_default().read));
        written_registers.iter().for_each(|&register| note(&mut self.registers.entry(register).or_default().write));
        if reads_memory {
            note(&mut self.memory.read);
        }
        if writes_memory {
            note(&mut self.memory.write);
        }
        stage
    }
}

/// The steps of a segment, stage by stage, those of one pass together; as they were where there is none.
fn in_passes(segment: Vec<Step>, one: Option<Slot>, reads: &[usize]) -> Vec<Step> {
    let roles: Vec<Role> = segment.iter().filter_map(|step| role(step, one)).collect();
    if roles.iter().filter(|&&role| role == Role::Element).count() < 2 {
        return segment;
    }
    let mut seen = Seen::default();
    let stages: Vec<usize> = segment.iter().zip(&roles).map(|(step, &role)| seen.next(step, role)).collect();
    let last = stages.iter().copied().max().unwrap_or(0);
    let (mut ordered, mut found) = (Vec::with_capacity(segment.len()), false);
    for stage in 0..=last {
        let of_stage = || (0..segment.len()).filter(|&i| stages[i] == stage);
        ordered.extend(of_stage().filter(|&i| roles[i] != Role::Element).map(|i| segment[i].clone()));
        let elements: Vec<&Step> = of_stage().filter(|&i| roles[i] == Role::Element).map(|i| &segment[i]).collect();
        for run in elements.chunk_by(|a, b| recipe::extents(a, one) == recipe::extents(b, one)) {
            let Some(extents) = recipe::extents(run[0], one) else { continue };
            found |= add_run(run, &extents, reads, &mut ordered);
        }
    }
    if found { ordered } else { segment }
}

/// Adds steps as passes, as long as there are registers for them; whether there was one.
fn add_run(run: &[&Step], extents: &Extents, reads: &[usize], to: &mut Vec<Step>) -> bool {
    if run.len() < 2 {
        to.extend(run.iter().map(|&step| step.clone()));
        return false;
    }
    if let Some(pass) = pass(run, extents, reads) {
        let steps = run.iter().map(|&step| step.clone()).collect();
        to.push(Step::Pass { pass: Box::new(pass), steps });
        return true;
    }
    let (first, second) = run.split_at(run.len() / 2);
    let found = add_run(first, extents, reads, to);
    add_run(second, extents, reads, to) || found
}

fn pass(run: &[&Step], extents: &Extents, reads: &[usize]) -> Option<Pass> {
    let mut recipe = Recipe::new();
    run.iter().try_for_each(|step| recipe.add(step))?;
    recipe.finish(run, extents, reads)
}
