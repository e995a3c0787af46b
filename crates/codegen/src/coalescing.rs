//! How tiles are spread over threads for the memory they are in: along which axis neighbours lie, and how many of them a thread takes.

use crate::axis::AxisInfo;
use crate::layout::{IndexBit, Layout, bits_of_all, bits_of_axis};
use crate::mma::PADDING;
use crate::target::{MatrixUnit, Target};
use openmps_tile::{Block, Instruction, Kernel, Operation, Scalar, Value};
use std::collections::{HashMap, HashSet};

/// Banks of threadgroup memory, and bytes of a word in one.
const BANKS: usize = 32;
const WORD: usize = 4;

/// An axis, and how many neighbours along it a thread takes, as a number of bits.
#[derive(Clone, Copy, Default)]
struct Run {
    axis: usize,
    bits: usize,
}

/// What loads and stores ask for.
pub struct Coalescing<'k> {
    kernel: &'k Kernel,
    thread_bits: usize,
    /// Factors of products are staged line by line.
    in_lines: bool,
    /// For tiles of these dimensions, so that those that meet have one layout.
    shared: HashMap<&'k [usize], Run>,
    /// Tiles that only products read, and the pointers to them, need not suit others of their dimensions.
    own: HashMap<Value, Run>,
}

/// What a search for runs looks at.
struct Search<'a, 'k> {
    axis_info: &'a AxisInfo<'k>,
    dot_operands: &'a HashSet<Value>,
    definitions: &'a [Option<&'k Instruction>],
}

impl<'k> Coalescing<'k> {
    /// Looks at all loads and stores of a kernel for what can be accessed at once.
    pub fn of(
        kernel: &'k Kernel,
        target: &Target,
        axis_info: &AxisInfo<'k>,
        dot_operands: &HashSet<Value>,
        definitions: &[Option<&'k Instruction>],
    ) -> Coalescing<'k> {
        let mut coalescing = Coalescing {
            kernel,
            thread_bits: target.thread_bits(),
            in_lines: target.matrix_unit != MatrixUnit::Warpgroup,
            shared: HashMap::new(),
            own: HashMap::new(),
        };
        coalescing.search(&kernel.body, &Search { axis_info, dot_operands, definitions });
        coalescing
    }

    /// The layout for a tile of these dimensions that has no better one: neighbours in neighbouring threads, so that memory is read in whole
    /// lines; as many in each as are accessed at once.
    pub fn plain(&self, dims: &[usize]) -> Layout {
        self.distribute(dims, self.shared.get(dims).copied().unwrap_or_default())
    }

    /// The layout that a tile has of its own.
    pub fn own(&self, value: Value) -> Option<Layout> {
        let run = self.own.get(&value)?;
        let layout = self.distribute(self.kernel.dims_of(value), *run);
        Some(self.without_conflicts(layout, value, *run))
    }

    /// Eight lanes write 128 bytes of a staged factor at once. Where these are two lines, neighbouring ones would meet in some banks: the two
    /// that are written together lie 16 banks apart instead.
    fn without_conflicts(&self, layout: Layout, value: Value, run: Run) -> Layout {
        let (ty, dims) = (self.kernel.type_of(value), self.kernel.dims_of(value));
        let size = ty.number().or(ty.target()).map_or(0, Scalar::size);
        let is_half_of_lanes = dims.len() == 2 && size << run.bits == 16 && dims[run.axis] == 4 << run.bits;
        if !self.in_lines || !is_half_of_lanes {
            return layout;
        }
        let pitch = (dims[run.axis] + PADDING) * size / WORD;
        let lines = bits_of_axis(dims, 1 - run.axis);
        let is_thread = |bit: &usize| matches!(layout.bits()[lines.start + bit], IndexBit::Thread(_));
        let apart = (0..lines.len()).take_while(is_thread).find(|bit| (pitch << bit) % BANKS == BANKS / 2);
        let mut order: Vec<usize> = (0..layout.bits().len()).collect();
        if let Some(bit) = apart {
            order.swap(lines.start, lines.start + bit);
        }
        layout.select(&order)
    }

    fn distribute(&self, dims: &[usize], run: Run) -> Layout {
        let layout = Layout::distributed(bits_of_all(dims), self.thread_bits, run.bits);
        if run.bits == 0 {
            return layout;
        }
        // The run's axis has the lowest bits.
        let first = bits_of_axis(dims, run.axis);
        let place = |bit: usize| match bit {
            bit if first.contains(&bit) => bit - first.start,
            bit if bit < first.start => bit + first.len(),
            bit => bit,
        };
        layout.select(&(0..layout.bits().len()).map(place).collect::<Vec<_>>())
    }

    fn search(&mut self, block: &'k Block, search: &Search<'_, 'k>) {
        for instruction in &block.instructions {
            instruction.blocks.iter().for_each(|block| self.search(block, search));
            let mask = match instruction.operation {
                Operation::Load => instruction.operands.get(1),
                Operation::Store => instruction.operands.get(2),
                Operation::For => {
                    self.carry(instruction, search);
                    continue;
                }
                _ => continue,
            };
            let pointers = instruction.operands[0];
            let Some((axis, count)) = search.axis_info.vector(pointers, mask.copied()) else { continue };
            let run = Run { axis, bits: count.trailing_zeros() as usize };
            match instruction.results.first().filter(|result| search.dot_operands.contains(result)) {
                Some(&result) => {
                    self.own.insert(result, run);
                    self.wish(pointers, run, search);
                }
                None => {
                    let known = self.shared.entry(self.kernel.dims_of(pointers)).or_default();
                    if run.bits > known.bits {
                        *known = run;
                    }
                }
            }
        }
    }

    /// What is loaded ahead lies as it was loaded.
    fn carry(&mut self, instruction: &Instruction, search: &Search) {
        for carried in instruction.carried().filter(|carried| search.dot_operands.contains(&carried.argument)) {
            if let Some(&run) = self.own.get(&carried.next) {
                self.own.insert(carried.argument, run);
            }
        }
    }

    /// Pointers follow what is loaded through them.
    fn wish(&mut self, pointers: Value, run: Run, search: &Search) {
        self.own.insert(pointers, run);
        let definition = search.definitions[pointers.0 as usize];
        if let Some(Instruction { operation: Operation::AddPointer, operands, .. }) = definition {
            self.wish(operands[0], run, search);
        }
    }
}
