//! Lowers pointers, loads and stores.

use super::lower::{Lowered, Lowering, refuse};
use super::lower_tile::plain;
use super::step::{Address, Extents, IndexOperation, Operand, Rest, Slot, Step, Width};
use super::value::{Affine, Filled, Planned, width_of};
use openmps_tile::{Scalar, Value};

/// A mask as the plan uses it.
enum Mask {
    /// Everything inside the extents.
    Clip(Extents),
    /// Element by element.
    Data(Operand),
}

impl Lowering<'_> {
    pub(super) fn add_pointer(&mut self, operands: &[Value]) -> Lowered<Planned> {
        let (pointer, offset) = (self.get(operands[0])?, self.get(operands[1])?);
        let offset_scalar = self.scalar_of(operands[1]);
        match (pointer, offset) {
            (Planned::Pointer { base, offset: x }, Planned::Uniform(slot)) => {
                let y = Affine::uniform(slot);
                Ok(Planned::Pointer { base, offset: self.add_affine(x, y) })
            }
            (Planned::Pointer { base, offset: x }, Planned::Index(y)) => {
                Ok(Planned::Pointer { base, offset: self.add_affine(x, y) })
            }
            (Planned::Pointer { base, offset }, Planned::Data(operand)) if offset.is_uniform() => {
                let size = self.scalar_of(operands[0]).size();
                let base = self.byte_address(base, offset.base, size);
                Ok(Planned::ScatteredPointer { base, offsets: operand, offset_size: offset_scalar.size() })
            }
            (Planned::Pointer { base, offset }, Planned::Data(operand)) => {
                let extents = self.extents_of(operands[1])?;
                // Part of the address is affine, part is data: the affine part joins the data.
                let function = crate::vector::binary::binary(openmps_tile::Binary::Add, offset_scalar);
                let Some(function) = function else { return refuse("these pointer offsets") };
                let counted = self.target(&extents, offset_scalar.size());
                let Affine { base: start, row_stride, column_stride } = offset;
                let step = Step::CountUp { target: counted, base: start, row_stride, column_stride, extents };
                self.emit_tile(step, &extents, 0.2);
                let target = self.target(&extents, offset_scalar.size());
                let (x, y, size) = (plain(counted.register), operand, offset_scalar.size());
                self.emit_tile(Step::MapBinary { function, target, x, y, size, extents }, &extents, 0.15);
                let offsets = plain(target.register);
                Ok(Planned::ScatteredPointer { base, offsets, offset_size: offset_scalar.size() })
            }
            (Planned::ScatteredPointer { base, offsets, offset_size }, Planned::Uniform(slot)) => {
                let size = self.scalar_of(operands[0]).size();
                let base = self.byte_address(base, slot, size);
                Ok(Planned::ScatteredPointer { base, offsets, offset_size })
            }
            (Planned::ScatteredPointer { base, offsets, offset_size }, Planned::Index(_) | Planned::Data(_))
                if offset_size == offset_scalar.size() =>
            {
                let function = crate::vector::binary::binary(openmps_tile::Binary::Add, offset_scalar);
                let Some(function) = function else { return refuse("these pointer offsets") };
                let (y, extents) = (self.data(operands[1])?, self.extents_of(operands[1])?);
                let target = self.target(&extents, offset_size);
                let (x, size) = (offsets, offset_size);
                self.emit_tile(Step::MapBinary { function, target, x, y, size, extents }, &extents, 0.15);
                Ok(Planned::ScatteredPointer { base, offsets: plain(target.register), offset_size })
            }
            _ => refuse("this sum of pointers and offsets"),
        }
    }

    fn add_affine(&mut self, x: Affine, y: Affine) -> Affine {
        let mut add = |x: Slot, y: Slot| self.index(IndexOperation::Add, x, y, Width::Whole);
        let base = add(x.base, y.base);
        let mut stride = |x: Option<Slot>, y: Option<Slot>| match (x, y) {
            (Some(x), Some(y)) => Some(add(x, y)),
            (x, y) => x.or(y),
        };
        let row_stride = stride(x.row_stride, y.row_stride);
        let column_stride = stride(x.column_stride, y.column_stride);
        Affine { base, row_stride, column_stride }
    }

    fn mask(&mut self, mask: Option<&Value>, full: Extents) -> Lowered<Mask> {
        let Some(&mask) = mask else { return Ok(Mask::Clip(full)) };
        Ok(match self.get(mask)? {
            Planned::Clip(extents) => Mask::Clip(extents),
            Planned::Uniform(slot) => {
                // All or nothing: as many rows as there are, times the boolean.
                let rows = self.constant(full.rows.full as i64);
                let clip = self.index(IndexOperation::Multiply, slot, rows, Width::Whole);
                let mut extents = full;
                extents.rows.clip = Some(clip);
                Mask::Clip(extents)
            }
            _ => Mask::Data(self.data(mask)?),
        })
    }

    fn address(&mut self, base: Slot, offset: Affine, size: usize) -> Address {
        let base = self.byte_address(base, offset.base, size);
        Address { base, row_stride: offset.row_stride, column_stride: offset.column_stride, size }
    }

    /// Offsets of every element, for the loads and stores whose mask is known only element by element.
    fn offsets(&mut self, offset: Affine, extents: Extents) -> Operand {
        let target = self.target(&extents, 8);
        let zero = self.constant(0);
        let Affine { row_stride, column_stride, .. } = offset;
        self.emit_tile(Step::CountUp { target, base: zero, row_stride, column_stride, extents }, &extents, 0.2);
        plain(target.register)
    }

    pub(super) fn load(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(result);
        let size = scalar.size();
        let pointer = self.get(operands[0])?;
        if self.kernel.type_of(result).is_scalar() {
            return self.load_scalar(pointer, operands, scalar);
        }
        let full = self.extents_of(result)?;
        let mask = self.mask(operands.get(1), full)?;
        let other = match operands.get(2) {
            Some(&other) => Some(self.data(other)?),
            None => None,
        };
        let (base, offsets, offset_size) = match (pointer, &mask) {
            (Planned::Pointer { base, offset }, Mask::Clip(extents)) => {
                let (extents, address) = (*extents, self.address(base, offset, size));
                let register = self.register(full.rows.full * full.columns.full * size);
                let rest = match other {
                    _ if extents == full => Rest::Unread,
                    Some(other) => Rest::Other(other),
                    None => Rest::Zero,
                };
                let tile = (full.rows.full, full.columns.full);
                let step = Step::LoadTile { register, address, extents, full: tile, rest, direct: true };
                self.emit_tile(step, &full, 0.15);
                let rest = match rest {
                    Rest::Zero => Some(self.constant(0)),
                    Rest::Other(Operand::Uniform(slot)) => Some(slot),
                    _ => None,
                };
                if let Some(rest) = rest {
                    self.filled.insert(register, Filled { inside: plain(register), part: extents, rest });
                }
                return Ok(Planned::Data(plain(register)));
            }
            (Planned::Pointer { base, offset }, Mask::Data(_)) => {
                let base = self.byte_address(base, offset.base, size);
                (base, self.offsets(offset, full), 8)
            }
            (Planned::ScatteredPointer { base, offsets, offset_size }, _) => (base, offsets, offset_size),
            _ => return refuse("a load from something that is no pointer"),
        };
        let mask = match mask {
            Mask::Clip(extents) if extents == full => None,
            Mask::Data(operand) => Some(operand),
            Mask::Clip(_) => Some(self.data(operands[1])?),
        };
        let register = self.register(full.rows.full * full.columns.full * size);
        let step = Step::Gather { register, base, offsets, offset_size, mask, other, size, extents: full };
        self.emit_tile(step, &full, 1.0);
        Ok(Planned::Data(plain(register)))
    }

    fn load_scalar(&mut self, pointer: Planned, operands: &[Value], scalar: Scalar) -> Lowered<Planned> {
        let Planned::Pointer { base, offset } = pointer else { return refuse("a scalar load from a tile") };
        let address = self.byte_address(base, offset.base, scalar.size());
        let mut slots = [None, None];
        for (slot, &operand) in slots.iter_mut().zip(&operands[1..]) {
            match self.get(operand)? {
                Planned::Uniform(uniform) => *slot = Some(uniform),
                _ => return refuse("a scalar load with a tile as mask"),
            }
        }
        let destination = self.slot();
        let [mask, other] = slots;
        self.emit(Step::LoadScalar { destination, address, mask, other, size: scalar.size(), width: width_of(scalar) });
        Ok(Planned::Uniform(destination))
    }

    pub(super) fn store(&mut self, operands: &[Value]) -> Lowered<()> {
        let size = self.scalar_of(operands[1]).size();
        let pointer = self.get(operands[0])?;
        if self.kernel.type_of(operands[1]).is_scalar() {
            return self.store_scalar(pointer, operands, size);
        }
        let full = self.extents_of(operands[1])?;
        let mask = self.mask(operands.get(2), full)?;
        let value = self.data(operands[1])?;
        let (base, offsets, offset_size) = match (pointer, &mask) {
            (Planned::Pointer { base, offset }, Mask::Clip(extents)) => {
                let extents = *extents;
                let address = self.address(base, offset, size);
                self.emit_tile(Step::StoreTile { value, address, extents }, &full, 0.15);
                return Ok(());
            }
            (Planned::Pointer { base, offset }, Mask::Data(_)) => {
                let base = self.byte_address(base, offset.base, size);
                (base, self.offsets(offset, full), 8)
            }
            (Planned::ScatteredPointer { base, offsets, offset_size }, _) => (base, offsets, offset_size),
            _ => return refuse("a store to something that is no pointer"),
        };
        let mask = match mask {
            Mask::Clip(extents) if extents == full => None,
            Mask::Data(operand) => Some(operand),
            Mask::Clip(_) => Some(self.data(operands[2])?),
        };
        let step = Step::Scatter { value, base, offsets, offset_size, mask, size, extents: full };
        self.emit_tile(step, &full, 1.0);
        Ok(())
    }

    fn store_scalar(&mut self, pointer: Planned, operands: &[Value], size: usize) -> Lowered<()> {
        let Planned::Pointer { base, offset } = pointer else { return refuse("a scalar store to a tile") };
        let address = self.byte_address(base, offset.base, size);
        let Planned::Uniform(value) = self.get(operands[1])? else { return refuse("a scalar store of a tile") };
        let mask = match operands.get(2) {
            None => None,
            Some(&mask) => match self.get(mask)? {
                Planned::Uniform(slot) => Some(slot),
                _ => return refuse("a scalar store with a tile as mask"),
            },
        };
        self.emit(Step::StoreScalar { address, value, mask, size });
        Ok(())
    }
}
