//! Which rows in memory a pass may not run over: guards look at one step each, and what a pass reads it reads while it stores.

use super::rows::{Check, Input, Pass};
use crate::plan::effects::writes_memory;
use crate::plan::operand::Register;
use crate::plan::row::{Row, Work};
use crate::plan::step::{GuardedLoad, Reader, Step};
use std::collections::BTreeSet;

/// Fills in what the passes of a body look at before they run.
pub(in crate::plan) fn check(body: &mut [Step]) {
    let mut in_memory = BTreeSet::new();
    find_loads(body, &mut in_memory);
    check_all(body, &in_memory);
}

/// Registers that memory may stand for.
fn find_loads(body: &[Step], loads: &mut BTreeSet<Register>) {
    for step in body {
        match step {
            Step::LoadTile { register, direct: true, .. } | Step::Row(Row { work: Work::Load(_), register, .. }) => {
                loads.insert(*register);
            }
            step => step.bodies().iter().for_each(|body| find_loads(body, loads)),
        }
    }
}

fn check_all(body: &mut [Step], in_memory: &BTreeSet<Register>) {
    for step in body {
        match step {
            Step::Pass { pass, steps } => pass.checks = checks(pass, steps, in_memory),
            step => step.bodies_mut().iter_mut().for_each(|body| check_all(body, in_memory)),
        }
    }
}

fn checks(pass: &Pass, steps: &[Step], in_memory: &BTreeSet<Register>) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut guarded: &[GuardedLoad] = &[];
    let mut output = 0;
    for step in steps {
        if let Step::Guard { loads, .. } = step {
            guarded = loads;
        } else if stores(step) {
            for &Input { register, size, is_read_elsewhere } in &pass.inputs {
                let is_later = |load: &GuardedLoad| load.register == register && load.reader == Reader::Later;
                let is_read_later = is_read_elsewhere && guarded.iter().any(is_later);
                let may_be_same = size == pass.outputs[output].size && !is_read_later;
                if in_memory.contains(&register) {
                    checks.push(Check { register, size, output, may_be_same });
                }
            }
            let is_input = |load: &&GuardedLoad| pass.inputs.iter().any(|input| input.register == load.register);
            let others = guarded.iter().filter(|load| !is_input(load));
            checks.extend(others.map(|load| Check {
                register: load.register,
                size: load.size,
                output,
                may_be_same: false,
            }));
            (guarded, output) = (&[], output + 1);
        }
    }
    checks
}

fn stores(step: &Step) -> bool {
    match step {
        Step::Row(row) => row.store.is_some(),
        step => writes_memory(step),
    }
}
