//! Operations that join, split and gather tiles, and count elements.

use super::element::Body;
use super::{Emitter, Result, element_size};
use crate::dialect::Dialect;
use crate::layout::{IndexBit, Layout, bits_of_all, bits_of_axis};
use openmps_tile::{Instruction, Value};

impl<'k> Emitter<'k> {
    /// Two tiles along a new bit of the index, which a further register keeps.
    pub(super) fn join_tiles(&mut self, instruction: &'k Instruction, at: usize) -> Result<()> {
        self.flush()?;
        let result = instruction.results[0];
        let layout = self.forms.natural(result).0;
        let rest: Vec<usize> = (0..layout.bits().len()).filter(|&bit| bit != at).collect();
        let half = layout.select(&rest).dense().0;
        for &operand in &instruction.operands {
            self.bring(operand, &half)?;
        }
        let name = self.declare(result, &layout)?;
        for (side, &operand) in instruction.operands.iter().enumerate() {
            self.open_registers(half.registers());
            let element = self.element(&mut Body::default(), operand, &half)?;
            let offset = side * half.registers();
            let place = if half.registers() == 1 { offset.to_string() } else { format!("k + {offset}") };
            self.line(format!("{name}[{place}] = {element};"));
            self.close();
        }
        Ok(())
    }

    /// `tt.cat`: as a join along the highest bit.
    pub(super) fn concatenate(&mut self, instruction: &'k Instruction) -> Result<()> {
        let top = bits_of_all(&self.type_of(instruction.operands[0]).dims);
        self.join_tiles(instruction, top)
    }

    /// `tt.split`: every other register.
    pub(super) fn split(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let x = instruction.operands[0];
        let layout = self.forms.of_pairs(x);
        self.bring(x, &layout)?;
        let rest: Vec<usize> = (1..layout.bits().len()).collect();
        let half = layout.select(&rest).dense().0;
        let Some(&IndexBit::Register(bit)) = layout.bits().first() else { return Err(self.unsupported("tt.split")) };
        let names: Vec<String> =
            instruction.results.iter().map(|&result| self.declare(result, &half)).collect::<Result<_>>()?;
        self.open_registers(layout.registers());
        let element = self.element(&mut Body::default(), x, &layout)?;
        let below = (1_usize << bit) - 1;
        let index = if half.registers() == 1 {
            String::new()
        } else {
            format!("[(k & {below}) | (k >> 1 & {})]", !below & 0xffff)
        };
        let (even, odd) = (format!("{}{index}", names[0]), format!("{}{index}", names[1]));
        self.line(format!("if ((k >> {bit} & 1) == 0) {even} = {element}; else {odd} = {element};"));
        self.close();
        Ok(())
    }

    /// `tt.unsplat`: the one element, which every thread holds.
    pub(super) fn unsplat(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let layout = Layout::new(Vec::new());
        self.bring(instruction.operands[0], &layout)?;
        let result = instruction.results[0];
        let (name, ty) = (format!("v{}", result.0), self.register_type(self.type_of(result)));
        // A number of its own: a loop may give the tile its next elements while this one is still read.
        self.line(format!("{ty} {name};"));
        self.open("{");
        let text = self.element(&mut Body::default(), instruction.operands[0], &layout)?;
        self.line(format!("{name} = {text};"));
        self.close();
        self.scalars.insert(result, name);
        Ok(())
    }

    /// Writes a tile to threadgroup memory in row-major order, from a byte on, behind a `moved` pointer of its own block.
    pub(super) fn stage_in_scratch(&mut self, value: Value, byte: usize) -> Result<()> {
        let ty = self.type_of(value);
        let layout = self.forms.natural(value).0.dense().0;
        self.bring(value, &layout)?;
        let element = self.scratch_type(ty);
        let space = self.scratch_space();
        self.open("{");
        self.line(format!("{space}{element}* moved = {};", self.scratch_pointer(&element, byte)));
        self.open_registers(layout.registers());
        let text = self.element(&mut Body::default(), value, &layout)?;
        let text = if ty.target().is_some() { format!("(ulong){text}") } else { text };
        let write = format!("moved[{}] = {text};", layout.index(0, layout.bits().len()));
        self.line(match self.first_of_replicas(&layout) {
            Some(first) => format!("if ({first}) {write}"),
            None => write,
        });
        self.close();
        self.close();
        Ok(())
    }

    /// Bytes that a tile takes in threadgroup memory.
    pub(super) fn scratch_bytes(&self, value: Value) -> usize {
        let ty = self.type_of(value);
        (element_size(ty) << bits_of_all(&ty.dims)).next_multiple_of(16)
    }

    /// `tt.gather`, from threadgroup memory.
    pub(super) fn gather(&mut self, instruction: &'k Instruction, axis: usize) -> Result<()> {
        self.flush()?;
        let [source, indices] = instruction.operands[..] else { return Err(self.unsupported("tt.gather")) };
        let result = instruction.results[0];
        let layout = self.forms.natural(result).0.dense().0;
        self.bring(indices, &layout)?;
        self.bring(source, &self.forms.natural(source).0.dense().0)?;
        self.take_scratch(self.scratch_bytes(source));
        self.stage_in_scratch(source, 0)?;
        self.scratch_written();
        let name = self.declare(result, &layout)?;
        let dims = &self.type_of(source).dims;
        let element = self.scratch_type(self.type_of(source));
        let (space, memory) = (self.scratch_space(), self.scratch_pointer(&element, 0));
        let own = bits_of_axis(dims, axis);
        let (below, length) = (own.start, dims[axis]);
        let of_indices = bits_of_axis(&self.type_of(indices).dims, axis);
        self.open("{");
        self.line(format!("{space}const {element}* moved = {memory};"));
        self.open_registers(layout.registers());
        let index = self.element(&mut Body::default(), indices, &layout)?;
        let inner = layout.index(0, below);
        let outer = layout.index(of_indices.end, layout.bits().len());
        // An index outside of the axis gives any element, but must not leave the memory.
        let place = format!("((({outer}) << {}) | (uint({index}) % {length}) << {below} | ({inner}))", own.end);
        self.line(format!("{} = moved[{place}];", self.place(&name, &layout)));
        self.close();
        self.close();
        Ok(())
    }

    /// `tt.histogram`, by atomic additions in threadgroup memory.
    pub(super) fn histogram(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let (x, mask, result) = (instruction.operands[0], instruction.operands.get(1).copied(), instruction.results[0]);
        let (target, bins) = (self.forms.natural(result).0, self.type_of(result).len());
        let layout = self.forms.natural(x).0.dense().0;
        for operand in [Some(x), mask].into_iter().flatten() {
            self.bring(operand, &layout)?;
        }
        self.take_scratch(self.scratch_bytes(result));
        let name = self.declare(result, &target)?;
        let (space, memory) = (self.scratch_space(), self.scratch_pointer("uint", 0));
        self.open("{");
        self.line(format!("{space}uint* counts = {memory};"));
        let bin = target.index(0, target.bits().len());
        self.each_register(target.registers(), format!("counts[{bin}] = 0;"));
        self.scratch_written();
        self.open_registers(layout.registers());
        let mut body = Body::default();
        let value = self.element(&mut body, x, &layout)?;
        let mut conditions = vec![format!("{value} < {bins}")];
        conditions.extend(mask.map(|mask| self.element(&mut body, mask, &layout)).transpose()?);
        conditions.extend(self.first_of_replicas(&layout));
        conditions.extend(self.inside(self.type_of(x), &layout));
        let add = match self.target.dialect {
            Dialect::Metal => format!(
                "atomic_fetch_add_explicit((threadgroup atomic_uint*)(counts + {value}), 1u, memory_order_relaxed)"
            ),
            Dialect::Cuda => format!("atomicAdd(counts + {value}, 1u)"),
        };
        self.line_where(&conditions, format!("{add};"));
        self.close();
        self.scratch_written();
        self.each_register(target.registers(), format!("{} = counts[{bin}];", self.place(&name, &target)));
        self.close();
        Ok(())
    }
}
