//! Lowers loops: carried values have slots and registers of their own, which the next iteration finds.

use super::lower::{Lowered, Lowering, Stop, refuse};
use super::lower_tile::plain;
use super::step::{Extents, Operand, Slot, Step, Target};
use super::value::{Affine, Planned};
use openmps_tile::{Instruction, Scalar, Value};

impl Lowering<'_> {
    pub(super) fn for_loop(&mut self, instruction: &Instruction) -> Lowered<()> {
        let [lower, upper, step] = [0, 1, 2].map(|i| self.get(instruction.operands[i]));
        let (Planned::Uniform(lower), Planned::Uniform(upper), Planned::Uniform(step)) = (lower?, upper?, step?) else {
            return refuse("a loop whose bounds are not scalars");
        };
        let block = &instruction.blocks[0];
        let initial = &instruction.operands[3..];
        let index = self.slot();
        self.planned.insert(block.arguments[0], Planned::Uniform(index));
        let mut carried = Vec::new();
        for (&argument, &initial) in block.arguments[1..].iter().zip(initial) {
            let planned = self.carry(argument, initial)?;
            self.planned.insert(argument, planned);
            carried.push(planned);
        }
        self.open.push(Vec::new());
        let scale = self.ns_scale;
        // The number of iterations is not known here; a loop is assumed to be worth a thread.
        self.ns_scale *= 8.0;
        self.block(block)?;
        self.ns_scale = scale;
        let next = block.instructions.last().map(|last| last.operands.clone()).unwrap_or_default();
        self.advance(&block.arguments[1..], &carried, &next)?;
        let body = self.open.pop().unwrap_or_default();
        self.emit(Step::Loop { index, lower, upper, step, body });
        for (&result, planned) in instruction.results.iter().zip(carried) {
            self.planned.insert(result, planned);
        }
        Ok(())
    }

    /// Makes slots and registers for a carried value and copies the initial one there.
    fn carry(&mut self, argument: Value, initial: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(initial);
        let is_tile = !self.kernel.type_of(initial).is_scalar();
        let as_data = is_tile && (scalar.is_float() || scalar == Scalar::I1 || self.forced.contains(&argument));
        Ok(match self.get(initial)? {
            Planned::Pointer { base, offset } => {
                let address = self.byte_address(base, offset.base, scalar.size());
                let zero = self.constant(0);
                Planned::Pointer { base: self.carried_slot(address), offset: Affine { base: zero, ..offset } }
            }
            Planned::Uniform(slot) if !as_data => Planned::Uniform(self.carried_slot(slot)),
            Planned::Index(affine) if !as_data => {
                Planned::Index(Affine { base: self.carried_slot(affine.base), ..affine })
            }
            Planned::ScatteredPointer { base, offsets, offset_size } => {
                Planned::ScatteredPointer { base: self.carried_slot(base), offsets, offset_size }
            }
            _ => {
                let (source, extents) = (self.data(initial)?, self.extents_of(initial)?);
                let target = self.target(&extents, scalar.size());
                self.emit_tile(Step::CopyTile { target, source, extents }, &extents, 0.1);
                Planned::Data(plain(target.register))
            }
        })
    }

    fn carried_slot(&mut self, source: Slot) -> Slot {
        let destination = self.slot();
        self.emit(Step::Copy { destination, source });
        destination
    }

    /// Ends a loop's body: the next carried values take the place of the present ones, all at once.
    fn advance(&mut self, arguments: &[Value], carried: &[Planned], next: &[Value]) -> Lowered<()> {
        let mut slots = Vec::new();
        let mut tiles = Vec::new();
        for ((&argument, carried), &next_value) in arguments.iter().zip(carried).zip(next) {
            match (*carried, self.get(next_value)?) {
                (Planned::Uniform(slot), Planned::Uniform(next)) => slots.push((slot, next)),
                (Planned::Index(now), Planned::Index(next)) if same_strides(&now, &next) => {
                    slots.push((now.base, next.base));
                }
                (Planned::Pointer { base, offset }, Planned::Pointer { base: next_base, offset: next })
                    if same_strides(&offset, &next) =>
                {
                    let size = self.scalar_of(next_value).size();
                    slots.push((base, self.byte_address(next_base, next.base, size)));
                }
                // The same offsets from another base.
                (
                    Planned::ScatteredPointer { base, offsets, .. },
                    Planned::ScatteredPointer { base: next_base, offsets: next, .. },
                ) => {
                    if offsets != next {
                        return refuse("a carried tile of scattered pointers that move apart");
                    }
                    slots.push((base, next_base));
                }
                (Planned::Data(operand), _) => {
                    let (source, extents) = (self.data(next_value)?, self.extents_of(next_value)?);
                    tiles.push((operand, source, extents, self.scalar_of(next_value).size()));
                }
                _ => return Err(Stop::CarriedAsData(argument)),
            }
        }
        self.replace_slots(&slots);
        self.replace_tiles(&tiles);
        Ok(())
    }

    fn replace_slots(&mut self, moves: &[(Slot, Slot)]) {
        let needs_temporary = moves.len() > 1;
        let staged: Vec<(Slot, Slot)> = moves
            .iter()
            .map(|&(destination, source)| {
                (destination, if needs_temporary { self.carried_slot(source) } else { source })
            })
            .collect();
        for (destination, source) in staged {
            self.emit(Step::Copy { destination, source });
        }
    }

    fn replace_tiles(&mut self, moves: &[(Operand, Operand, Extents, usize)]) {
        let destinations: Vec<Operand> = moves.iter().map(|entry| entry.0).collect();
        let mut late = Vec::new();
        for &(destination, source, extents, size) in moves {
            let Operand::Register { register, .. } = destination else { continue };
            if source == destination {
                continue;
            }
            let mut source = source;
            if destinations.contains(&source) {
                let target = self.target(&extents, size);
                self.emit_tile(Step::CopyTile { target, source, extents }, &extents, 0.1);
                source = plain(target.register);
            }
            late.push(Step::CopyTile { target: Target { register, size, store: None }, source, extents });
        }
        for step in late {
            self.emit(step);
        }
    }
}

fn same_strides(x: &Affine, y: &Affine) -> bool {
    x.row_stride == y.row_stride && x.column_stride == y.column_stride
}
