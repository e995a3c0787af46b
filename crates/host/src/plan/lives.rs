//! From which step to which one each register holds something.

use super::effects::{map_target, operands, writes_memory, written};
use super::step::{Operand, Step, ViewKind};

/// From where to where each register is in use. Each step has two moments: it reads at the first, writes at the second.
pub(super) struct Lives {
    moment: usize,
    pub first: Vec<usize>,
    pub last: Vec<usize>,
    /// The moments at which steps that store begin.
    pub stores: Vec<usize>,
}

impl Lives {
    pub fn new(registers: usize) -> Lives {
        Lives { moment: 0, first: vec![usize::MAX; registers], last: vec![0; registers], stores: Vec::new() }
    }

    pub fn walk(&mut self, body: &[Step]) {
        for step in body {
            let (reading, writing) = (self.moment, self.moment + 1);
            self.moment += 2;
            if let Step::Loop { body, .. } = step {
                self.walk(body);
                // What comes from before the loop is needed again in its next iteration.
                let end = self.moment;
                for register in 0..self.first.len() {
                    if self.first[register] < reading && self.last[register] > reading {
                        self.last[register] = end;
                    }
                }
                self.moment += 2;
                continue;
            }
            let elementwise = !matches!(step, Step::Dot { .. }) && map_target(&mut step.clone()).is_some();
            operands(step, |operand| {
                if let Operand::Register { register, view } = operand {
                    // Only an element-by-element step over the same layout may write where it reads.
                    let moment = if elementwise && *view == ViewKind::Plain { reading } else { writing };
                    self.last[*register] = self.last[*register].max(moment);
                }
            });
            if let Some(register) = written(step) {
                self.first[register] = self.first[register].min(writing);
                self.last[register] = self.last[register].max(writing);
            }
            if writes_memory(step) {
                self.stores.push(reading);
            }
        }
    }
}
