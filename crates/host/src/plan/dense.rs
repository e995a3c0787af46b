//! A second plan of kernels on elements of any strides, for launches whose strides are 1: neighbours are rows of memory, which are read and written where
//! they lie, and past the caches where that is worth it; of a stride that only the launch knows they go through a register.

use super::lower::{Loops, lower};
use super::operand::Slot;
use super::second::{Second, When};
use super::widen::{length, widen};
use openmps_tile::{Binary, Instruction, Kernel, Operation, Scalar, Value};
use std::collections::HashMap;

/// The second plan of a kernel whose tiles are rows that are multiplied by integer parameters.
pub(super) fn plan(kernel: &Kernel) -> Option<Second> {
    length(kernel)?;
    let (kernel, strides) = without_strides(kernel)?;
    let (mut program, _) = lower(&kernel, Loops::All).ok()?;
    program.wide = widen(&kernel, &program);
    Some(Second { when: When::One(strides), program: Box::new(program) })
}

/// The kernel as it is where these parameters are 1; none where there are no such parameters.
fn without_strides(kernel: &Kernel) -> Option<(Kernel, Vec<Slot>)> {
    let mut dense = kernel.clone();
    let (mut splats, mut same, mut strides) = (HashMap::new(), HashMap::new(), Vec::new());
    dense.body.instructions.retain_mut(|instruction| {
        for operand in &mut instruction.operands {
            *operand = same.get(operand).copied().unwrap_or(*operand);
        }
        let Some((index, stride)) = strided(instruction, &splats) else {
            if instruction.operation == Operation::Splat
                && let Some(slot) = parameter(kernel, instruction.operands[0])
            {
                splats.insert(instruction.results[0], slot);
            }
            return true;
        };
        same.insert(instruction.results[0], index);
        if !strides.contains(&stride) {
            strides.push(stride);
        }
        false
    });
    let is_flat = dense.body.instructions.iter().all(|instruction| instruction.blocks.is_empty());
    (is_flat && !strides.is_empty()).then_some((dense, strides))
}

/// The slot of an integer parameter.
fn parameter(kernel: &Kernel, value: Value) -> Option<Slot> {
    let is_integer = kernel.type_of(value).number().is_some_and(|number| !number.is_float() && number != Scalar::I1);
    kernel.parameters.iter().position(|parameter| parameter.value == value).filter(|_| is_integer)
}

/// What a tile of integers is multiplied by a parameter: the tile, the parameter's slot.
fn strided(instruction: &Instruction, splats: &HashMap<Value, Slot>) -> Option<(Value, Slot)> {
    if instruction.operation != Operation::Binary(Binary::Multiply) {
        return None;
    }
    let [x, y] = instruction.operands[..] else { return None };
    splats.get(&y).map(|&stride| (x, stride)).or_else(|| splats.get(&x).map(|&stride| (y, stride)))
}

#[cfg(test)]
mod tests {
    use super::super::Program;
    use super::super::row::Row;
    use super::super::step::Step;
    use super::*;
    use openmps_tile::{Builder, Compare, Type};

    const LENGTH: usize = 64;

    /// `out[i stride_out] = x[i stride_x] + 1` for `i < count`.
    fn kernel() -> Program {
        let mut b = Builder::new("strided");
        let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
        let [count, by_x, by_out] =
            ["count", "by_x", "by_out"].map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
        let (id, length) = (b.program_id(0), b.integer(LENGTH as i64, Scalar::I64));
        let first = b.multiply(id, length);
        let (first, range) = (b.splat(first, &[LENGTH]), b.range(LENGTH));
        let places = b.add(first, range);
        let end = b.splat(count, &[LENGTH]);
        let mask = b.compare(Compare::Less, places, end);
        let [from, to] = [(x, by_x), (out, by_out)].map(|(pointer, stride)| {
            let (all, stride) = (b.splat(pointer, &[LENGTH]), b.splat(stride, &[LENGTH]));
            let places = b.multiply(places, stride);
            b.add_pointer(all, places)
        });
        let (loaded, one) = (b.load(from, Some(mask), None), b.constant(1.0, &Type::tile(Scalar::F32, &[LENGTH])));
        let sum = b.add(loaded, one);
        b.store(to, sum, Some(mask));
        Program::new(&b.finish()).expect("planned")
    }

    #[test]
    fn neighbours_are_rows_of_memory_and_others_are_not() {
        let program = kernel();
        let dense = program.seconds.first().expect("a second plan");
        let stores = |step: &Step| matches!(step, Step::Row(Row { store: Some(_), .. }));
        assert!(dense.program.body.iter().any(stores) && dense.program.wide.is_some(), "{dense:?}");
        let x: Vec<f32> = (0..3000).map(|i| i as f32).collect();
        for (by_x, by_out) in [(1, 1), (0, 1), (1, 2), (3, 1), (2, 2)] {
            for count in [0_usize, 1, 63, 64, 65, 500, 1000] {
                let mut out = vec![-1.0_f32; 2100];
                let addresses = [x.as_ptr().expose_provenance(), out.as_mut_ptr().expose_provenance()];
                let arguments = [addresses[0] as u64, addresses[1] as u64, count as u64, by_x as u64, by_out as u64];
                assert_eq!(dense.under(&arguments).is_some(), (by_x, by_out) == (1, 1));
                // SAFETY: numbers up to 3,000 are read and up to 2,000 are written.
                unsafe { program.run([count.div_ceil(LENGTH), 1, 1], &arguments) }.expect("runs");
                let mut expected = vec![-1.0_f32; 2100];
                (0..count).for_each(|i| expected[i * by_out] = (i * by_x) as f32 + 1.0);
                assert_eq!(out, expected, "{by_x} {by_out} {count}");
            }
        }
    }
}
