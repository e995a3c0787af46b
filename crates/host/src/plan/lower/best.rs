//! Reductions by a block that keep one of two elements with its number, as `tl.argmax` is written: they are found by what the block computes.

use super::{Lowered, Lowering};
use crate::native::best_of::{Line, Rule, best_of};
use crate::plan::call::Places;
use crate::plan::fold::Axis;
use openmps_tile::kernel::Block;
use openmps_tile::{Binary, Cast, Compare, Instruction, Operation, Scalar, Value};
use std::sync::Arc;

impl Lowering<'_> {
    /// Lowers such a reduction, along the last axis; whether it was one.
    pub(super) fn best(&mut self, instruction: &Instruction, axis: usize) -> Lowered<bool> {
        let &[values, numbers] = &instruction.operands[..] else { return Ok(false) };
        let scalar = self.scalar_of(values);
        let rule = rule(&instruction.blocks[0]).filter(|(_, passes_nan)| *passes_nan == scalar.is_float());
        // Half types are compared as float32, which holds each of their numbers.
        let wide = if matches!(scalar, Scalar::F16 | Scalar::BF16) { Scalar::F32 } else { scalar };
        let function = rule.and_then(|(rule, _)| best_of(rule, wide));
        let Axis { outer, length, inner } = Axis::new(self.kernel.dims_of(values), axis);
        let (Some(function), 1, Scalar::I32) = (function, inner, self.scalar_of(numbers)) else { return Ok(false) };
        let mut reads = Vec::new();
        for &x in &instruction.operands {
            let (full, mut data, mut size) = (self.extents_of(x), self.data(x)?, self.element_size(x));
            if x == values && wide != scalar {
                (data, size) = (self.convert(data, full, Cast::Float, scalar, wide)?, wide.size());
            }
            reads.push(self.dense_operand(data, full, size));
        }
        let homes = [(0, wide), (1, Scalar::I32)].map(|(i, of)| self.home_of(instruction.results[i], of));
        let size = wide.size();
        let work = Arc::new(move |places: &Places| {
            for line in 0..outer {
                // SAFETY: both tiles have `outer` lines of `length` elements, both results one element for each.
                unsafe {
                    function(Line {
                        values: places.reads[0].add(line * length * size),
                        numbers: places.reads[1].cast::<i32>().add(line * length),
                        count: length,
                        value: places.writes[0].add(line * size),
                        number: places.writes[1].cast::<i32>().add(line),
                    });
                }
            }
            Ok(())
        });
        let [(value, mut of_value), (number, of_number)] = homes;
        let full = self.extents_of(values);
        self.emit_work("tt.reduce", reads, vec![value, number], &full, 0.5, work);
        if wide != scalar {
            let extents = self.extents_of(instruction.results[0]);
            of_value = self.convert(of_value, extents, Cast::Float, wide, scalar)?;
        }
        for (&result, operand) in instruction.results.iter().zip([of_value, of_number]) {
            let planned = self.as_planned(result, operand);
            self.planned.insert(result, planned);
        }
        Ok(true)
    }
}

/// What a block of two values and two numbers keeps, if it keeps one of the pairs, and whether the first pair where the second value is a NaN.
fn rule(block: &Block) -> Option<(Rule, bool)> {
    let &[x, i, y, j] = &block.arguments[..] else { return None };
    let made = |value: Value| {
        let by = block.instructions.iter().find(|instruction| instruction.results.first() == Some(&value))?;
        Some((&by.operation, &by.operands[..]))
    };
    let &[value, number] = block.ends() else { return None };
    let condition = |chosen: Value, of: [Value; 2]| match made(chosen)? {
        (Operation::Select, &[condition, first, second]) if [first, second] == of => Some(condition),
        _ => None,
    };
    let keeps = condition(value, [x, y])?;
    if condition(number, [i, j])? != keeps {
        return None;
    }
    let is_better = |value: Value| match made(value)? {
        (Operation::Compare(Compare::Greater), of) if of == [x, y] => Some(true),
        (Operation::Compare(Compare::Less), of) if of == [x, y] => Some(false),
        _ => None,
    };
    let is_tie = |value: Value| {
        let Some((Operation::Binary(Binary::And), &[first, second])) = made(value) else { return false };
        let equal = |value| matches!(made(value), Some((Operation::Compare(Compare::Equal), of)) if of == [x, y]);
        let before = |value| matches!(made(value), Some((Operation::Compare(Compare::Less), of)) if of == [i, j]);
        equal(first) && before(second) || equal(second) && before(first)
    };
    let is_nan =
        |value: Value| matches!(made(value), Some((Operation::Compare(Compare::NotEqual), of)) if of == [y, y]);
    let (keeps, passes_nan) = match made(keeps)? {
        (Operation::Binary(Binary::Or), &[keeps, nan]) if is_nan(nan) => (keeps, true),
        _ => (keeps, false),
    };
    if let Some(largest) = is_better(keeps) {
        return Some((Rule { largest, least_number: false }, passes_nan));
    }
    let (Operation::Binary(Binary::Or), &[first, second]) = made(keeps)? else { return None };
    let (better, tie) = if is_tie(second) { (first, second) } else { (second, first) };
    let largest = is_better(better).filter(|_| is_tie(tie))?;
    Some((Rule { largest, least_number: true }, passes_nan))
}
