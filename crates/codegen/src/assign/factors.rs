//! The layouts of products and of their factors.

use super::Forms;
use crate::layout::{IndexBit, Layout, bits_of};
use crate::mma::MmaShape;
use openmps_tile::{Block, Instruction, Operation, Scalar, Value};
use std::collections::HashSet;

impl<'k> Forms<'k> {
    /// The layout of a product: the matrix unit's where there is one, else a block of rows and columns for each thread.
    pub(super) fn product(&self, instruction: &Instruction) -> Layout {
        let dims = self.dims(instruction.results[0]);
        let [x, y] = [0, 1].map(|i| self.kernel.type_of(instruction.operands[i]));
        // A batch of them has none of its own.
        if dims.len() != 2 {
            return self.plain(self.kernel.type_of(instruction.results[0]));
        }
        let factor = x.number().unwrap_or(Scalar::F32);
        if let Some(mma) = MmaShape::of(self.target, factor, &x.dims, &y.dims) {
            return mma.layout([dims[0], dims[1]], self.thread_bits, self.arrangement);
        }
        let (rows, columns) = (bits_of(dims[0]), bits_of(dims[1]));
        let registers = (rows + columns).saturating_sub(self.thread_bits);
        let by_row = (registers / 2).min(rows);
        let by_column = (registers - by_row).min(columns);
        let by_row = (registers - by_column).min(rows);
        // Four neighbours in a thread can be read from threadgroup memory at once.
        let (near_columns, near_rows) = (by_column.min(2), by_row.min(2));
        let column_threads = columns - by_column;
        let mut bits = along([columns, by_column, near_columns], [0, 0]);
        bits.extend(along([rows, by_row, near_rows], [by_column, column_threads]));
        Layout::new(bits)
    }

    /// The layout in which a matrix unit takes a product's left factor from registers; none where it does not.
    pub fn left_layout(&self, product: &Instruction) -> Option<Layout> {
        let [x, y] = [0, 1].map(|i| self.kernel.type_of(product.operands[i]));
        let mma = MmaShape::of(self.target, x.number()?, &x.dims, &y.dims)?;
        let whole = x.dims.iter().all(|size| size.is_power_of_two());
        whole.then(|| mma.left_layout([x.dims[0], x.dims[1]], self.thread_bits, self.arrangement)).flatten()
    }

    /// Looks for left factors that a loop multiplies by in every iteration and that nothing but products read.
    pub(super) fn find_left_blocks(&mut self, block: &'k Block, around: Option<&HashSet<Value>>) {
        let mut inside = around.cloned();
        for instruction in &block.instructions {
            if let Some(inside) = &mut inside {
                inside.extend(&instruction.results);
            }
            let factor = instruction.operands.first().filter(|_| instruction.operation == Operation::Dot);
            let from_outside = factor.filter(|x| inside.as_ref().is_some_and(|inside| !inside.contains(x)));
            if let Some(&x) = from_outside.filter(|x| self.is_load_for_products(**x))
                && let Some(layout) = self.left_layout(instruction)
            {
                self.left_blocks.insert(x, layout);
            }
            for block in &instruction.blocks {
                let mut inside = inside.clone().unwrap_or_default();
                inside.extend(&block.arguments);
                self.find_left_blocks(block, Some(&inside));
            }
        }
    }

    fn is_load_for_products(&self, value: Value) -> bool {
        let loaded = self.definition(value).is_some_and(|definition| definition.operation == Operation::Load);
        loaded && self.dot_operands.contains(&value)
    }
}

/// The places of one dimension's bits: first the near ones of its registers, then its threads, then the other registers; registers and
/// threads are counted on from those that other dimensions took.
fn along([size, registers, near]: [usize; 3], [register, thread]: [usize; 2]) -> Vec<IndexBit> {
    let place = |bit: usize| {
        if bit < near {
            IndexBit::Register((register + bit) as u8)
        } else if bit < near + size - registers {
            IndexBit::Thread((thread + bit - near) as u8)
        } else {
            IndexBit::Register((register + bit - (size - registers)) as u8)
        }
    };
    (0..size).map(place).collect()
}
