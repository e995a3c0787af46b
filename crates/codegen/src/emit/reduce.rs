//! Reductions: within a thread's registers, between the threads of a simdgroup by shuffles, between simdgroups by threadgroup memory.

use super::element::Body;
use super::{Emitter, Result, element_size};
use crate::layout::{IndexBit, Layout, bits_of_axis, gathered};
use openmps_tile::{Block, Combine, Instruction, Number, Scalar, Type, Value};
use std::ops::Range;

/// Bits of a thread's number within its simdgroup.
const LANE_BITS: u8 = 5;

impl<'k> Emitter<'k> {
    /// Reduces a tile along an axis.
    pub(super) fn reduce(&mut self, instruction: &'k Instruction, axis: usize, combine: Combine) -> Result<()> {
        self.flush()?;
        let (x, result) = (instruction.operands[0], instruction.results[0]);
        let (ty, scalar) = (self.type_of(x), self.number(x));
        let layout = self.forms.natural(x).0.dense().0;
        self.bring(x, &layout)?;
        let gone = bits_of_axis(&ty.dims, axis);
        let kept: Vec<usize> = (0..layout.bits().len()).filter(|bit| !gone.contains(bit)).collect();
        let (target, registers) = layout.select(&kept).dense();

        let name = self.reduction_registers(result, &target)?;
        let at = |index: &str| if target.registers() == 1 { name.clone() } else { format!("{name}[{index}]") };
        let identity = self.literal(identity(combine, scalar), scalar);
        self.each_register(target.registers(), format!("{} = {identity};", at("k")));
        self.open_registers(layout.registers());
        let element = self.element(&mut Body::default(), x, &layout)?;
        let element = match self.inside(ty, &layout) {
            Some(inside) => format!("({inside} ? {element} : {identity})"),
            None => element,
        };
        let whole = target.registers() == layout.registers();
        let place = if whole { at("k") } else { at(&gathered(&registers)) };
        let sum = self.binary(combine.operation(), scalar, &place, &element)?;
        self.line(format!("{place} = {sum};"));
        self.close();

        let how = Combination::Operation(combine, scalar);
        self.reduce_threads(&how, (&layout, gone), (&target, &[at("k")]))?;
        if self.type_of(result).is_scalar() {
            self.scalars.insert(result, name);
        }
        Ok(())
    }

    /// Declares what a result is gathered in.
    pub(super) fn reduction_registers(&mut self, result: Value, target: &Layout) -> Result<String> {
        if !self.type_of(result).is_scalar() {
            return self.declare(result, target);
        }
        let name = format!("v{}", result.0);
        self.declare_named(&name, self.type_of(result), target)?;
        Ok(name)
    }

    /// Combines what the threads hold of a tile's dimensions that go, whose bits these are in its layout: in a simdgroup by shuffles, between simdgroups by
    /// threadgroup memory. `places` are registers of `target`, one for each of the numbers that are combined together.
    pub(super) fn reduce_threads(
        &mut self,
        how: &Combination<'k>,
        (layout, gone): (&Layout, Range<usize>),
        (target, places): (&Layout, &[String]),
    ) -> Result<()> {
        let threads = layout.bits()[gone].iter();
        let threads = threads.filter_map(|place| if let IndexBit::Thread(bit) = place { Some(*bit) } else { None });
        let (lanes, groups): (Vec<u8>, Vec<u8>) = threads.partition(|&bit| bit < LANE_BITS);
        if !lanes.is_empty() {
            self.reduce_lanes(how, (target, places), &lanes)?;
        }
        if !groups.is_empty() {
            self.reduce_simdgroups(how, (target, places), &groups)?;
        }
        Ok(())
    }

    fn reduce_lanes(
        &mut self,
        how: &Combination<'k>,
        (target, places): (&Layout, &[String]),
        lanes: &[u8],
    ) -> Result<()> {
        self.open_registers(target.registers());
        for &lane in lanes {
            // What a block computes has the same names each time.
            self.open("{");
            let mut others = Vec::new();
            for (i, place) in places.iter().enumerate() {
                // A statement of its own: every thread has to take part, whatever the combination asks first.
                let (scalar, other) = (how.scalar(self, i), format!("other{i}"));
                let theirs = self.shuffle_xor(scalar, place, 1 << lane);
                self.line(format!("const {} {other} = {theirs};", self.target.dialect.register(scalar)));
                others.push(other);
            }
            self.combine(how, places, &others)?;
            self.close();
        }
        self.close();
        Ok(())
    }

    /// Each simdgroup's part goes to threadgroup memory, and every thread combines the parts of its elements.
    fn reduce_simdgroups(
        &mut self,
        how: &Combination<'k>,
        (target, places): (&Layout, &[String]),
        groups: &[u8],
    ) -> Result<()> {
        let (parts, elements) = (1 << groups.len(), 1_usize << target.bits().len());
        let types: Vec<Type> = (0..places.len()).map(|i| Type::scalar(how.scalar(self, i))).collect();
        let bytes = |of: &Type| (element_size(of) * parts * elements).next_multiple_of(16);
        let begins: Vec<usize> = (0..=types.len()).map(|i| types[..i].iter().map(bytes).sum()).collect();
        self.take_scratch(begins[types.len()]);
        let part = Layout::new(groups.iter().map(|&bit| IndexBit::Thread(bit)).collect());
        let index = target.index(0, target.bits().len());
        // One thread of those that hold the same sums writes them: its free bits outside of the parts' are zero.
        let free: usize = (target.free_threads(self.target.thread_bits()).iter())
            .filter(|bit| !groups.contains(bit))
            .map(|&bit| 1 << bit)
            .sum();
        let space = self.scratch_space();
        self.open("{");
        for (i, ty) in types.iter().enumerate() {
            let register = self.scratch_type(ty);
            self.line(format!("{space}{register}* parts{i} = {};", self.scratch_pointer(&register, begins[i])));
        }
        self.open_registers(target.registers());
        for (i, place) in places.iter().enumerate() {
            // Neighbours of a part lie beside each other, in different banks.
            let write = format!("parts{i}[({}) * {elements} + ({index})] = {place};", part.index(0, groups.len()));
            self.line(if free == 0 { write } else { format!("if ((thread_index & {free}) == 0) {write}") });
        }
        self.close();
        self.scratch_written();
        self.open_registers(target.registers());
        for (i, place) in places.iter().enumerate() {
            self.line(format!("{place} = parts{i}[{index}];"));
        }
        self.line("#pragma unroll");
        self.open(format!("for (uint part = 1; part < {parts}; ++part) {{"));
        let other = |i: usize| format!("parts{i}[part * {elements} + ({index})]");
        self.combine(how, places, &(0..places.len()).map(other).collect::<Vec<_>>())?;
        self.close();
        self.close();
        self.close();
        Ok(())
    }

    /// Combines what is at `places` with `others`.
    pub(super) fn combine(&mut self, how: &Combination<'k>, places: &[String], others: &[String]) -> Result<()> {
        match *how {
            Combination::Operation(combine, scalar) => {
                for (place, other) in places.iter().zip(others) {
                    let both = self.binary(combine.operation(), scalar, place, other)?;
                    self.line(format!("{place} = {both};"));
                }
                Ok(())
            }
            Combination::Block(block) => self.combine_by_block(block, places, others),
        }
    }
}

/// How elements are combined.
pub(super) enum Combination<'k> {
    Operation(Combine, Scalar),
    Block(&'k Block),
}

impl Combination<'_> {
    /// The type of one of the numbers that are combined together.
    fn scalar(&self, emitter: &Emitter<'_>, i: usize) -> Scalar {
        match self {
            Combination::Operation(_, scalar) => *scalar,
            Combination::Block(block) => emitter.number(block.arguments[i]),
        }
    }
}

/// What a reduction of nothing is.
fn identity(combine: Combine, scalar: Scalar) -> Number {
    let bits = if scalar == Scalar::I1 { 1 } else { 8 * scalar.size() as u32 };
    let smallest = if bits == 64 { i64::MIN } else { -(1_i64 << (bits - 1)) };
    match (combine, scalar.is_float()) {
        (Combine::Sum, true) => Number::Float(-0.0),
        (Combine::Product, true) => Number::Float(1.0),
        (Combine::Minimum, true) => Number::Float(f64::INFINITY),
        (Combine::Maximum, true) => Number::Float(f64::NEG_INFINITY),
        (Combine::MinimumNumber | Combine::MaximumNumber, _) => Number::Float(f64::NAN),
        (Combine::Sum | Combine::Or | Combine::Xor, _) => Number::Integer(0),
        (Combine::Product, _) => Number::Integer(1),
        (Combine::And, _) => Number::Integer(if scalar == Scalar::I1 { 1 } else { -1 }),
        (Combine::Minimum, _) => Number::Integer(!smallest),
        (Combine::Maximum, _) => Number::Integer(smallest),
    }
}
