//! Lowers loads and stores.

use super::{Lowered, Lowering};
use crate::plan::operand::{Address, Extent, Extents, Operand, Places, Slot, Width, plain};
use crate::plan::step::{IndexOperation, Rest, Step};
use crate::plan::value::{Filled, Planned};
use openmps_tile::Value;

/// A mask as the plan uses it.
enum Mask {
    /// Everything inside the extents.
    Clip(Extents),
    /// Element by element.
    Data(Operand),
}

/// Where a tile lies.
pub(super) enum Tile {
    /// Row by row, under a clip.
    Rows(Address, Extents),
    /// Element by element, under a mask.
    Elements(Places, Option<Operand>),
}

impl Lowering<'_> {
    fn mask(&mut self, mask: Option<&Value>, full: Extents) -> Lowered<Mask> {
        let Some(&mask) = mask else { return Ok(Mask::Clip(full)) };
        Ok(match self.get(mask)? {
            Planned::Clip(extents) => Mask::Clip(extents),
            Planned::Uniform(truth) => Mask::Clip(self.where_true(truth, full)),
            _ => Mask::Data(self.data(mask)?),
        })
    }

    /// All of these extents, or nothing: as many rows as there are, times the boolean.
    pub(super) fn where_true(&mut self, truth: Slot, extents: Extents) -> Extents {
        let rows = extents.rows.clip.unwrap_or_else(|| self.constant(extents.rows.full as i64));
        let clip = Some(self.index(IndexOperation::Multiply, truth, rows, Width::Whole));
        Extents { rows: Extent { clip, ..extents.rows }, ..extents }
    }

    /// Where the elements behind pointers lie that a mask leaves.
    pub(super) fn tile(&mut self, pointers: Value, mask: Option<&Value>) -> Lowered<Tile> {
        let full = self.extents_of(pointers);
        let size = self.scalar_of(pointers).size();
        let planned = self.get(pointers)?;
        let clip = self.mask(mask, full)?;
        if let Planned::Pointer { base, offset } = planned {
            let address = Address { base: self.byte_address(base, offset.base, size), spread: offset.spread, size };
            return Ok(match clip {
                Mask::Clip(extents) => Tile::Rows(address, extents),
                Mask::Data(mask) => Tile::Elements(Places::Sums(address), Some(mask)),
            });
        }
        let mask = match clip {
            Mask::Data(mask) => Some(mask),
            Mask::Clip(extents) if extents == full => None,
            Mask::Clip(_) => mask.map(|&mask| self.data(mask)).transpose()?,
        };
        let (base, offsets) = self.scattered(pointers)?;
        Ok(Tile::Elements(Places::Bytes { base, offsets }, mask))
    }

    pub(super) fn load(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        if self.is_one(result) {
            return self.load_scalar(operands, result);
        }
        let (full, size) = (self.extents_of(result), self.element_size(result));
        let other = operands.get(2).map(|&other| self.data(other)).transpose()?;
        match self.tile(operands[0], operands.get(1))? {
            Tile::Rows(address, extents) => {
                let register = self.register(full.len() * size);
                let rest = match other {
                    _ if extents == full => Rest::Unread,
                    Some(other) => Rest::Other(other),
                    None => Rest::Zero,
                };
                let step = Step::LoadTile { register, address, extents, full: full.shape(), rest, direct: true };
                self.emit_tile(step, &full, 0.15);
                let rest = match rest {
                    Rest::Zero => Some(self.constant(0)),
                    Rest::Other(Operand::Uniform(slot)) => Some(slot),
                    _ => None,
                };
                if let Some(rest) = rest {
                    self.filled.insert(register, Filled { inside: plain(register), part: extents, rest });
                }
                Ok(Planned::Data(plain(register)))
            }
            Tile::Elements(places, mask) => {
                let register = self.register(full.len() * size);
                let step = Step::Gather { register, places, mask, other, size, extents: full };
                self.emit_tile(step, &full, 1.0);
                Ok(Planned::Data(plain(register)))
            }
        }
    }

    fn load_scalar(&mut self, operands: &[Value], result: Value) -> Lowered<Planned> {
        let address = self.slot_of(operands[0])?;
        let mask = operands.get(1).map(|&mask| self.slot_of(mask)).transpose()?;
        let other = operands.get(2).map(|&other| self.slot_of(other)).transpose()?;
        let (destination, size, width) = (self.slot(), self.element_size(result), self.width_of(result));
        self.emit(Step::LoadScalar { destination, address, mask, other, size, width });
        Ok(Planned::Uniform(destination))
    }

    pub(super) fn store(&mut self, operands: &[Value]) -> Lowered<()> {
        let (full, size) = (self.extents_of(operands[1]), self.element_size(operands[1]));
        if self.is_one(operands[1]) {
            let (address, value) = (self.slot_of(operands[0])?, self.slot_of(operands[1])?);
            let mask = operands.get(2).map(|&mask| self.slot_of(mask)).transpose()?;
            self.emit(Step::StoreScalar { address, value, mask, size });
            return Ok(());
        }
        let value = self.data(operands[1])?;
        match self.tile(operands[0], operands.get(2))? {
            Tile::Rows(address, extents) => self.emit_tile(Step::StoreTile { value, address, extents }, &full, 0.15),
            Tile::Elements(places, mask) => {
                let step = Step::Scatter { value, places, mask, size, extents: full };
                self.emit_tile(step, &full, 1.0);
            }
        }
        Ok(())
    }
}
