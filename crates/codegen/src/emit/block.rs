//! Reductions and scans by the operations of a block, which are written out wherever two elements meet.

use super::element::Body;
use super::reduce::Combination;
use super::{Emitter, Result};
use crate::layout::{IndexBit, Layout, bits_of_axis, gathered};
use openmps_tile::{Block, Instruction, Operation, Value};

impl<'k> Emitter<'k> {
    /// Writes a block's operations on these numbers; the names of what it yields.
    fn inline(&mut self, block: &'k Block, arguments: &[String]) -> Result<Vec<String>> {
        for (&value, name) in block.arguments.iter().zip(arguments) {
            self.scalars.insert(value, name.clone());
        }
        for instruction in &block.instructions {
            if instruction.operation == Operation::Yield {
                return instruction.operands.iter().map(|&value| self.scalar_name(value)).collect();
            }
            // A GPU has nobody to tell.
            if matches!(instruction.operation, Operation::Assert { .. }) {
                continue;
            }
            if !instruction.blocks.is_empty() || instruction.results.len() != 1 {
                let name = instruction.operation.name();
                return Err(self.unsupported(format!("{name} in the block of a reduction or scan")));
            }
            self.scalar(instruction)?;
        }
        Ok(Vec::new())
    }

    /// Combines what is at `places` with `others`.
    pub(super) fn combine_by_block(&mut self, block: &'k Block, places: &[String], others: &[String]) -> Result<()> {
        let values = self.inline(block, &[places, others].concat())?;
        self.names += 1;
        let number = self.names;
        // All are computed before one is overwritten.
        for (i, value) in values.iter().enumerate() {
            let ty = self.register_type(self.type_of(block.arguments[i]));
            self.line(format!("const {ty} next{number}_{i} = {value};"));
        }
        for (i, place) in places.iter().enumerate() {
            self.line(format!("{place} = next{number}_{i};"));
        }
        Ok(())
    }

    fn check_whole(&self, operands: &[Value]) -> Result<()> {
        let padded = operands.iter().any(|&x| self.type_of(x).dims.iter().any(|size| !size.is_power_of_two()));
        if padded {
            Err(self.unsupported("a combination by a block of a size that is no power of two"))
        } else {
            Ok(())
        }
    }

    /// `tt.reduce` with a block.
    pub(super) fn reduce_block(&mut self, instruction: &'k Instruction, axis: usize) -> Result<()> {
        self.flush()?;
        self.check_whole(&instruction.operands)?;
        let (operands, block) = (&instruction.operands, &instruction.blocks[0]);
        let layout = self.forms.natural(self.forms.leader(operands)).0.dense().0;
        for &operand in operands {
            self.bring(operand, &layout)?;
        }
        let gone = bits_of_axis(&self.type_of(operands[0]).dims, axis);
        let kept: Vec<usize> = (0..layout.bits().len()).filter(|bit| !gone.contains(bit)).collect();
        let (target, registers) = layout.select(&kept).dense();
        let names: Vec<String> = instruction
            .results
            .iter()
            .map(|&result| self.reduction_registers(result, &target))
            .collect::<Result<_>>()?;
        self.reduce_registers(instruction, &layout, gone.clone(), &target, &names, &registers)?;
        let places: Vec<String> = names.iter().map(|name| self.place(name, &target)).collect();
        self.reduce_threads(&Combination::Block(block), (&layout, gone), (&target, &places))?;
        for (&result, name) in instruction.results.iter().zip(names) {
            if self.type_of(result).is_scalar() {
                self.scalars.insert(result, name);
            }
        }
        Ok(())
    }

    /// Each thread combines its own registers.
    fn reduce_registers(
        &mut self,
        instruction: &'k Instruction,
        layout: &Layout,
        gone: std::ops::Range<usize>,
        target: &Layout,
        names: &[String],
        registers: &[u8],
    ) -> Result<()> {
        let mask: usize = (layout.bits()[gone].iter())
            .filter_map(|place| if let IndexBit::Register(bit) = place { Some(1 << bit) } else { None })
            .sum();
        let index = gathered(registers);
        let places: Vec<String> = (names.iter())
            .map(|name| if target.registers() == 1 { name.clone() } else { format!("{name}[{index}]") })
            .collect();
        self.open_registers(layout.registers());
        let mut body = Body::default();
        let elements: Vec<String> = (instruction.operands.iter())
            .map(|&operand| self.element(&mut body, operand, layout))
            .collect::<Result<_>>()?;
        if mask == 0 {
            for (place, element) in places.iter().zip(&elements) {
                self.line(format!("{place} = {element};"));
            }
            self.close();
            return Ok(());
        }
        self.open(format!("if ((k & {mask}) == 0) {{"));
        for (place, element) in places.iter().zip(&elements) {
            self.line(format!("{place} = {element};"));
        }
        self.close();
        self.open("else {");
        self.combine_by_block(&instruction.blocks[0], &places, &elements)?;
        self.close();
        self.close();
        Ok(())
    }

    /// `tt.scan`: the tiles go to threadgroup memory, one thread walks each row, and the results come back.
    pub(super) fn scan(&mut self, instruction: &'k Instruction, axis: usize, reverse: bool) -> Result<()> {
        self.flush()?;
        self.check_whole(&instruction.operands)?;
        let (operands, block) = (&instruction.operands, &instruction.blocks[0]);
        for &operand in operands {
            let layout = self.forms.natural(operand).0.dense().0;
            self.bring(operand, &layout)?;
        }
        let offsets: Vec<usize> = operands
            .iter()
            .scan(0, |end, &operand| {
                let begin = *end;
                *end += self.scratch_bytes(operand);
                Some(begin)
            })
            .collect();
        self.take_scratch(operands.iter().map(|&operand| self.scratch_bytes(operand)).sum());
        for (&operand, &offset) in operands.iter().zip(&offsets) {
            self.stage_in_scratch(operand, offset)?;
        }
        self.scratch_written();
        self.walk_rows(block, operands[0], &offsets, axis, reverse)?;
        self.scratch_written();
        for (&result, &offset) in instruction.results.iter().zip(&offsets) {
            let layout = self.forms.natural(result).0.dense().0;
            let name = self.declare(result, &layout)?;
            let element = self.scratch_type(self.type_of(result));
            let (memory, index) = (self.scratch_pointer(&element, offset), layout.index(0, layout.bits().len()));
            let place = self.place(&name, &layout);
            self.each_register(layout.registers(), format!("{place} = ({memory})[{index}];"));
        }
        Ok(())
    }

    fn walk_rows(&mut self, block: &'k Block, x: Value, offsets: &[usize], axis: usize, reverse: bool) -> Result<()> {
        let dims = &self.type_of(x).dims;
        let (length, inner): (usize, usize) = (dims[axis], dims[axis + 1..].iter().product());
        let (rows, threads) = (self.type_of(x).len() / length, self.target.threads);
        let space = self.scratch_space();
        self.open(format!("for (uint row = thread_index; row < {rows}; row += {threads}) {{"));
        let first = if reverse { length - 1 } else { 0 };
        let mut places = Vec::new();
        for (i, &offset) in offsets.iter().enumerate() {
            let element = self.scratch_type(self.type_of(block.arguments[i]));
            let memory = self.scratch_pointer(&element, offset);
            let begin = format!("row / {inner} * {} + row % {inner}", length * inner);
            self.line(format!("{space}{element}* row{i} = {memory} + ({begin});"));
            self.line(format!("{element} sum{i} = row{i}[{}];", first * inner));
            places.push(format!("sum{i}"));
        }
        self.open(format!("for (uint walked = 1; walked < {length}; ++walked) {{"));
        let at = if reverse { format!("({} - walked)", length - 1) } else { "walked".to_owned() };
        let others: Vec<String> = (0..offsets.len()).map(|i| format!("row{i}[{at} * {inner}]")).collect();
        self.combine_by_block(block, &places, &others)?;
        for (i, other) in others.iter().enumerate() {
            self.line(format!("{other} = sum{i};"));
        }
        self.close();
        self.close();
        Ok(())
    }
}
