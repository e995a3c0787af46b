//! Reductions: within a thread's registers, between the threads of a simdgroup by shuffles, between simdgroups by threadgroup memory.

use super::element::Body;
use super::{Emitter, Result, element_size};
use crate::layout::{IndexBit, Layout, bits_of_axis, gathered};
use openmps_tile::{Combine, Instruction, Number, Scalar};

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

        let name = self.reduction_registers(instruction, &target)?;
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

        let threads: Vec<u8> = (layout.bits()[gone].iter())
            .filter_map(|place| if let IndexBit::Thread(bit) = place { Some(*bit) } else { None })
            .collect();
        let (lanes, groups): (Vec<u8>, Vec<u8>) = threads.into_iter().partition(|&bit| bit < LANE_BITS);
        self.reduce_lanes(&target, &at("k"), combine, scalar, &lanes)?;
        self.reduce_simdgroups(&target, &at("k"), combine, scalar, &groups)?;
        if self.type_of(result).is_scalar() {
            self.scalars.insert(result, name);
        }
        Ok(())
    }

    /// Declares what the result is gathered in.
    fn reduction_registers(&mut self, instruction: &Instruction, target: &Layout) -> Result<String> {
        let result = instruction.results[0];
        if !self.type_of(result).is_scalar() {
            return self.declare(result, target);
        }
        let name = format!("v{}", result.0);
        self.declare_named(&name, self.type_of(result), target)?;
        Ok(name)
    }

    fn reduce_lanes(
        &mut self,
        target: &Layout,
        place: &str,
        combine: Combine,
        scalar: Scalar,
        lanes: &[u8],
    ) -> Result<()> {
        if lanes.is_empty() {
            return Ok(());
        }
        self.open_registers(target.registers());
        for &lane in lanes {
            // A statement of its own: every thread has to take part, whatever the combination asks first.
            let (other, register) = (format!("other{}", 1 << lane), self.target.dialect.register(scalar));
            let theirs = self.shuffle_xor(scalar, place, 1 << lane);
            self.line(format!("const {register} {other} = {theirs};"));
            let sum = self.binary(combine.operation(), scalar, place, &other)?;
            self.line(format!("{place} = {sum};"));
        }
        self.close();
        Ok(())
    }

    /// Each simdgroup's part goes to threadgroup memory, and every thread combines the parts of its elements.
    fn reduce_simdgroups(
        &mut self,
        target: &Layout,
        place: &str,
        combine: Combine,
        scalar: Scalar,
        groups: &[u8],
    ) -> Result<()> {
        if groups.is_empty() {
            return Ok(());
        }
        let parts = 1 << groups.len();
        let elements = 1 << target.bits().len();
        let register = self.target.dialect.register(scalar);
        self.take_scratch(elements * parts * element_size(&openmps_tile::Type::scalar(scalar)));
        let memory = self.scratch_pointer(register, 0);
        let space = self.scratch_space();
        let part: Layout = Layout::new(groups.iter().map(|&bit| IndexBit::Thread(bit)).collect());
        let index = target.index(0, target.bits().len());
        // One thread of those that hold the same sums writes them: its free bits outside of the parts' are zero.
        let free: usize = (target.free_threads(self.target.thread_bits()).iter())
            .filter(|bit| !groups.contains(bit))
            .map(|&bit| 1 << bit)
            .sum();
        self.open("{");
        self.line(format!("{space}{register}* parts = {memory};"));
        self.open_registers(target.registers());
        // Neighbours of a part lie beside each other, in different banks.
        let write = format!("parts[({}) * {elements} + ({index})] = {place};", part.index(0, groups.len()));
        self.line(if free == 0 { write } else { format!("if ((thread_index & {free}) == 0) {write}") });
        self.close();
        self.scratch_written();
        self.open_registers(target.registers());
        self.line(format!("{space}const {register}* own = parts + ({index});"));
        self.line(format!("{place} = own[0];"));
        self.line("#pragma unroll");
        self.open(format!("for (uint part = 1; part < {parts}; ++part) {{"));
        let sum = self.binary(combine.operation(), scalar, place, &format!("own[part * {elements}]"))?;
        self.line(format!("{place} = {sum};"));
        self.close();
        self.close();
        self.close();
        Ok(())
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
