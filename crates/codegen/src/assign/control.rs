//! The layouts of what loops and conditions hand on.

use super::{Form, Forms};
use crate::layout::Layout;
use openmps_tile::{Instruction, Value};

impl Forms<'_> {
    /// A loop's values keep one layout: what the body gives them, found by a first look at it with unsettled ones.
    pub(super) fn for_loop(&mut self, instruction: &Instruction) {
        let block = &instruction.blocks[0];
        self.set(block.arguments[0], Form::Scalar);
        let carried = &block.arguments[1..];
        for &argument in carried {
            let form = self.carried(argument, None);
            self.set(argument, form);
        }
        self.block(block);
        let settled: Vec<Form> = (carried.iter().zip(block.ends()))
            .map(|(&argument, &next)| self.carried(argument, Some(self.natural(next).0)))
            .collect();
        for (&argument, form) in carried.iter().zip(&settled) {
            self.set(argument, form.clone());
        }
        self.block(block);
        for (&result, form) in instruction.results.iter().zip(settled) {
            self.set(result, form);
        }
    }

    /// The results follow the first branch, unless only the second has a layout of its own.
    pub(super) fn if_else(&mut self, instruction: &Instruction) {
        instruction.blocks.iter().for_each(|block| self.block(block));
        for (i, &result) in instruction.results.iter().enumerate() {
            let ends = instruction.blocks.iter().filter_map(|block| block.ends().get(i).copied());
            let leader = self.leader(&ends.collect::<Vec<_>>());
            let form = self.carried(result, Some(self.natural(leader).0));
            self.set(result, form);
        }
    }

    /// As a loop over a range; what the condition passes on follows what it is given.
    pub(super) fn while_loop(&mut self, instruction: &Instruction) {
        let [before, after] = &instruction.blocks[..] else { return };
        let mut settled: Vec<Option<Layout>> = vec![None; before.arguments.len()];
        for _ in 0..2 {
            for (&argument, layout) in before.arguments.iter().zip(settled) {
                let form = self.carried(argument, layout);
                self.set(argument, form);
            }
            self.block(before);
            let passed = before.ends().get(1..).unwrap_or_default();
            for ((&argument, &result), &value) in after.arguments.iter().zip(&instruction.results).zip(passed) {
                let form = self.carried(result, Some(self.natural(value).0));
                self.set(argument, form.clone());
                self.set(result, form);
            }
            self.block(after);
            settled = after.ends().iter().map(|&value| Some(self.natural(value).0)).collect();
        }
    }

    fn carried(&self, value: Value, settled: Option<Layout>) -> Form {
        let ty = self.kernel.type_of(value);
        match settled {
            _ if ty.is_scalar() => Form::Scalar,
            Some(layout) => Form::Materialized { layout: layout.dense().0, weak: false },
            None => {
                Form::Materialized { layout: self.coalescing.own(value).unwrap_or_else(|| self.plain(ty)), weak: true }
            }
        }
    }
}
