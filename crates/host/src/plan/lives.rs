//! From which step to which one each register holds something.

use super::effects::{goes_element_by_element, operands, stores_evenly, tile, writes_memory, written};
use super::fold::Fold;
use super::operand::{Operand, Register, ViewKind};
use super::pass::rows::Pass;
use super::step::Step;

/// From where to where each register is in use. Each step has two moments: it reads at the first, writes at the second.
pub(super) struct Lives {
    moment: usize,
    pub first: Vec<usize>,
    pub last: Vec<usize>,
    /// Steps that store, in their order.
    pub stores: Vec<Store>,
}

/// A step that stores.
#[derive(Clone, Copy)]
pub(super) struct Store {
    /// When it begins.
    pub moment: usize,
    /// Whether it can be looked at before it runs what it will overwrite: rows and columns with strides.
    pub is_even: bool,
}

impl Lives {
    pub fn new(registers: usize) -> Lives {
        Lives { moment: 0, first: vec![usize::MAX; registers], last: vec![0; registers], stores: Vec::new() }
    }

    pub fn walk(&mut self, body: &[Step]) {
        for step in body {
            match step {
                Step::If { bodies, .. } => bodies.iter().for_each(|body| self.walk(body)),
                Step::Loop { .. } | Step::While { .. } => self.repeated(step.bodies()),
                Step::Fold(fold) => self.fold(fold),
                Step::Pass { pass, steps } => self.pass(pass, steps),
                step => self.step(step),
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let (reading, writing) = self.next();
        let elementwise = goes_element_by_element(step);
        operands(step, |operand| {
            if let Operand::Register { register, view } = operand {
                // Only an element-by-element step over the same layout may write where it reads.
                let moment = if elementwise && *view == ViewKind::Plain { reading } else { writing };
                self.last[*register] = self.last[*register].max(moment);
            }
        });
        written(step, |register| {
            self.first[register] = self.first[register].min(writing);
            self.last[register] = self.last[register].max(writing);
        });
        if writes_memory(step) {
            self.stores.push(Store { moment: reading, is_even: stores_evenly(step) });
        }
    }

    /// The two moments of the next step.
    fn next(&mut self) -> (usize, usize) {
        self.moment += 2;
        (self.moment - 2, self.moment - 1)
    }

    /// Steps that may run again.
    fn repeated(&mut self, bodies: &[Vec<Step>]) {
        let (begin, _) = self.next();
        bodies.iter().for_each(|body| self.walk(body));
        // What comes from before is needed again the next time.
        let (end, _) = self.next();
        for register in 0..self.first.len() {
            if self.first[register] < begin && self.last[register] > begin {
                self.last[register] = end;
            }
        }
    }

    /// Whether steps that cannot be looked at before they run may overwrite memory between a load to a register and the last step that reads it.
    pub fn may_be_overwritten(&self, register: Register) -> bool {
        let (first, last) = (self.first[register], self.last[register]);
        self.stores.iter().any(|store| !store.is_even && store.moment > first && store.moment + 1 < last)
    }

    /// A pass reads and writes all of its rows while it runs.
    fn pass(&mut self, pass: &Pass, steps: &[Step]) {
        let (begin, _) = self.next();
        self.walk(steps);
        let (_, end) = self.next();
        let inputs = pass.inputs.iter().map(|input| input.register);
        for register in inputs.chain(pass.outputs.iter().map(|output| output.register)) {
            self.first[register] = self.first[register].min(begin);
            self.last[register] = self.last[register].max(end);
        }
    }

    fn fold(&mut self, fold: &Fold) {
        let (_, begin) = self.next();
        for part in &fold.parts {
            self.use_operand(&part.source, begin);
            for register in [part.work, part.left, part.right] {
                self.first[register] = self.first[register].min(begin);
            }
        }
        self.repeated(std::slice::from_ref(&fold.body));
        let (_, end) = self.next();
        for part in &fold.parts {
            self.use_operand(&part.combined, end);
            for register in [part.work, part.left, part.right] {
                self.last[register] = end;
            }
        }
        for result in fold.parts.iter().filter_map(|part| tile(&part.result)) {
            self.first[result] = self.first[result].min(end);
            self.last[result] = self.last[result].max(end);
        }
    }

    fn use_operand(&mut self, operand: &Operand, moment: usize) {
        if let Operand::Register { register, .. } = *operand {
            self.last[register] = self.last[register].max(moment);
        }
    }
}
