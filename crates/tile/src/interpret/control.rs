//! Loops, conditions, and reductions and scans by a block.

use super::{Failure, InterpretError, InterpretProblem, Program, Tile, element};
use crate::kernel::{Block, Instruction, Operation};
use crate::types::Scalar;
use std::rc::Rc;

impl<'a> Program<'a> {
    /// Runs an instruction with blocks and defines its results.
    pub(super) fn control(&mut self, instruction: &'a Instruction) -> Result<(), InterpretError> {
        let results = match &instruction.operation {
            Operation::For => self.for_loop(instruction)?,
            Operation::If => self.choose(instruction)?,
            Operation::While => self.while_loop(instruction)?,
            Operation::ReduceBlock { axis } => self.combine(instruction, *axis, false, true)?,
            Operation::Scan { axis, reverse } => self.combine(instruction, *axis, *reverse, false)?,
            _ => Vec::new(),
        };
        self.define(&instruction.results, results);
        Ok(())
    }

    fn for_loop(&mut self, instruction: &'a Instruction) -> Result<Vec<Tile>, InterpretError> {
        let mut carried = self.tiles(&instruction.operands[3..]);
        let bounds = self.bounds(instruction).map_err(|failure| self.error(instruction, failure))?;
        let [mut index, upper, step] = bounds;
        let scalar = self.kernel.type_of(instruction.operands[0]).number().unwrap_or(Scalar::I64);
        let block = &instruction.blocks[0];
        while index < upper {
            let index_tile: Tile = Rc::new([Some(element::wrap(scalar, index as u64))]);
            self.define(&block.arguments, std::iter::once(index_tile).chain(carried));
            carried = self.block(block)?;
            index = index.saturating_add(step);
        }
        Ok(carried)
    }

    fn bounds(&self, instruction: &Instruction) -> Result<[i64; 3], Failure> {
        let bound = |i: usize, what| {
            let value = instruction.operands[i];
            let scalar = self.kernel.type_of(value).number().unwrap_or(Scalar::I64);
            let bits = self.tile(value)[0].ok_or(InterpretProblem::Undefined(what))?;
            Ok::<i64, Failure>(element::signed(scalar, bits))
        };
        let bounds = [bound(0, "the lower bound")?, bound(1, "the upper bound")?, bound(2, "the step")?];
        if bounds[2] < 1 { Err(InterpretProblem::Step(bounds[2]).into()) } else { Ok(bounds) }
    }

    fn choose(&mut self, instruction: &'a Instruction) -> Result<Vec<Tile>, InterpretError> {
        let condition = self.tile(instruction.operands[0])[0];
        let holds = self.holds(instruction, condition)?;
        self.block(&instruction.blocks[usize::from(!holds)])
    }

    fn holds(&self, instruction: &Instruction, condition: Option<u64>) -> Result<bool, InterpretError> {
        let undefined = || self.error(instruction, InterpretProblem::Undefined("the condition").into());
        condition.map(|bits| bits != 0).ok_or_else(undefined)
    }

    fn while_loop(&mut self, instruction: &'a Instruction) -> Result<Vec<Tile>, InterpretError> {
        let [before, after] = &instruction.blocks[..] else { return Ok(Vec::new()) };
        let mut carried = self.tiles(&instruction.operands);
        loop {
            self.define(&before.arguments, carried);
            let mut passed = self.block(before)?;
            let condition = passed.remove(0)[0];
            if !self.holds(instruction, condition)? {
                return Ok(passed);
            }
            self.define(&after.arguments, passed);
            carried = self.block(after)?;
        }
    }

    /// Combines along an axis: the last results when reducing, else all of them.
    fn combine(
        &mut self,
        instruction: &'a Instruction,
        axis: usize,
        reverse: bool,
        reducing: bool,
    ) -> Result<Vec<Tile>, InterpretError> {
        let tiles = self.tiles(&instruction.operands);
        let dims = &self.kernel.type_of(instruction.operands[0]).dims;
        let (length, inner): (usize, usize) = (dims[axis], dims[axis + 1..].iter().product());
        let runs = tiles[0].len() / length;
        let kept = if reducing { runs } else { tiles[0].len() };
        let mut results: Vec<Vec<Option<u64>>> = vec![vec![None; kept]; tiles.len()];
        for run in 0..runs {
            let place = |step: usize| {
                let step = if reverse { length - 1 - step } else { step };
                (run / inner * length + step) * inner + run % inner
            };
            let at =
                |step: usize| -> Vec<Tile> { tiles.iter().map(|x| -> Tile { Rc::new([x[place(step)]]) }).collect() };
            let mut combined = at(0);
            for step in 0..length {
                if step > 0 {
                    combined = self.combined(&instruction.blocks[0], combined, at(step))?;
                }
                for (result, element) in results.iter_mut().zip(&combined) {
                    result[if reducing { run } else { place(step) }] = element[0];
                }
            }
        }
        Ok(results.into_iter().map(Tile::from).collect())
    }

    fn combined(&mut self, block: &'a Block, left: Vec<Tile>, right: Vec<Tile>) -> Result<Vec<Tile>, InterpretError> {
        self.define(&block.arguments, left.into_iter().chain(right));
        self.block(block)
    }
}
