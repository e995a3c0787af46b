//! Several programs of single elements as one: what surrounds a program takes as long as the additions of a thousand elements.
//!
//! A kernel whose program handles the elements `id * length + (0..length)`, each by itself, computes the same where tiles are `by`
//! times as long and only each `by`-th program runs. Programs that are left over at the end of a grid run as they are.

use super::Program;
use super::lower::{Loops, lower};
use super::step::Step;
use openmps_tile::{Binary, Cast, Instruction, Kernel, Number, Operation, Scalar, Value};

/// Elements of a wide program. With half as many, additions of 65,536 elements take 4.9 us instead of 4.3; by programs of 2,048 they take 7.5.
const LENGTH: usize = 16384;
/// What a wide program takes at most, as plans guess: more are left for other threads.
const NANOSECONDS: usize = 16_000;

/// What a planned kernel's programs are joined to; none where wide programs are not known to do the same, and sooner.
pub(super) fn widen(kernel: &Kernel, program: &Program) -> Option<Box<Program>> {
    // What a step leaves for another one stays in the first-level cache only as long as tiles are short.
    if program.body.iter().any(Step::keeps_a_tile) {
        return None;
    }
    let length = length(kernel)?;
    let by = (LENGTH / length).min(NANOSECONDS / program.ns_per_program.max(1));
    if by < 2 || !is_by_element(kernel, length) {
        return None;
    }
    let mut kernel = kernel.clone();
    for ty in kernel.types.iter_mut().filter(|ty| !ty.is_scalar()) {
        ty.dims[0] = length * by;
    }
    Some(Box::new(Program { by, ..lower(&kernel, Loops::All).ok()?.0 }))
}

/// What of a program's place a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Nothing, or an index of elements like any other.
    Other,
    /// The program's number.
    Program,
    /// The number of its first element, once or for each element.
    First,
    /// 0, 1, 2, ... for the program's elements.
    Range,
}

/// Whether each program handles the elements `id * length + (0..length)`, each by itself, and does not see how many they are.
fn is_by_element(kernel: &Kernel, length: usize) -> bool {
    let mut roles = vec![Role::Other; kernel.types.len()];
    kernel.body.instructions.iter().all(|instruction| {
        let role = role(kernel, &roles, instruction, length);
        for &result in &instruction.results {
            roles[result.0 as usize] = role.unwrap_or(Role::Other);
        }
        role.is_some()
    })
}

/// The length of a kernel's only kind of tile.
pub(super) fn length(kernel: &Kernel) -> Option<usize> {
    let mut tiles = kernel.types.iter().filter(|ty| !ty.is_scalar());
    let first = tiles.next()?;
    let same = first.dims.len() == 1 && tiles.all(|ty| ty.dims == first.dims);
    same.then(|| first.dims[0])
}

/// What the result of an instruction is; none where it could tell how many elements a program has.
fn role(kernel: &Kernel, roles: &[Role], instruction: &Instruction, length: usize) -> Option<Role> {
    use Operation::*;
    let of = |operand: usize| roles[instruction.operands[operand].0 as usize];
    let is_plain = || (0..instruction.operands.len()).all(|operand| of(operand) == Role::Other);
    if !instruction.blocks.is_empty() {
        return None;
    }
    match &instruction.operation {
        ProgramId(0) => Some(Role::Program),
        Range { start: 0 } => Some(Role::Range),
        Cast(self::Cast::Signed | self::Cast::Unsigned) if of(0) != Role::Other => {
            is_extended(kernel, instruction).then_some(of(0))
        }
        Splat if of(0) == Role::First => Some(Role::First),
        Binary(self::Binary::Multiply) if [of(0), of(1)].contains(&Role::Program) => {
            let factor = instruction.operands[usize::from(of(0) == Role::Program)];
            (constant(kernel, factor) == Some(length as i64)).then_some(Role::First)
        }
        Binary(self::Binary::Add)
            if matches!([of(0), of(1)], [Role::First, Role::Range] | [Role::Range, Role::First]) =>
        {
            Some(Role::Other)
        }
        Constant(_) | Splat | AddPointer | Load | Store => is_plain().then_some(Role::Other),
        operation if operation.is_elementwise() => is_plain().then_some(Role::Other),
        _ => None,
    }
}

/// Whether a conversion keeps numbers of all 32 bits.
fn is_extended(kernel: &Kernel, conversion: &Instruction) -> bool {
    let size = |value: Value| kernel.type_of(value).number().map_or(0, Scalar::size);
    let (from, to) = (size(conversion.operands[0]), size(conversion.results[0]));
    from >= Scalar::I32.size() && to >= from
}

/// The integer that an instruction sets a value to.
fn constant(kernel: &Kernel, value: Value) -> Option<i64> {
    let sets = |instruction: &&Instruction| instruction.results.contains(&value);
    match kernel.body.instructions.iter().find(sets)?.operation {
        Operation::Constant(Number::Integer(number)) => Some(number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::Program;
    use openmps_tile::{Builder, Cast, Operation, Scalar, Type, Value};

    const LENGTH: usize = 1024;

    /// A kernel `out[i] = x[i] + 1` without a mask, or with what `change` makes of the place of the load.
    fn kernel(change: impl FnOnce(&mut Builder, [Value; 3]) -> Value) -> Program {
        let mut b = Builder::new("wide");
        let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
        let (id, length, range) = (b.program_id(0), b.integer(LENGTH as i64, Scalar::I64), b.range(LENGTH));
        let first = b.multiply(id, length);
        let all = b.splat(first, &[LENGTH]);
        let places = b.add(all, range);
        let from = change(&mut b, [id, range, places]);
        let [from, to] = [(x, from), (out, places)].map(|(pointer, places)| {
            let all = b.splat(pointer, &[LENGTH]);
            b.add_pointer(all, places)
        });
        let (loaded, one) = (b.load(from, None, None), b.constant(1.0, &Type::tile(Scalar::F32, &[LENGTH])));
        let sum = b.add(loaded, one);
        b.store(to, sum, None);
        Program::new(&b.finish()).expect("planned")
    }

    /// What so many programs make of 0, 1, 2, ...; what nobody writes is -1.
    fn run(program: &Program, programs: usize) -> Vec<f32> {
        let x: Vec<f32> = (0..LENGTH * programs).map(|i| i as f32).collect();
        let mut out = vec![-1.0; LENGTH * (programs + 20)];
        let arguments = [x.as_ptr().expose_provenance() as u64, out.as_mut_ptr().expose_provenance() as u64];
        // SAFETY: the programs read `x` and write as much of `out`.
        unsafe { program.run([programs, 1, 1], &arguments) }.expect("runs");
        out
    }

    #[test]
    fn programs_are_joined_and_those_left_over_run_alone() {
        let program = kernel(|_, [_, _, places]| places);
        assert_eq!(program.wide.as_ref().expect("joined").by, 16);
        for programs in [1, 15, 16, 17, 31, 32, 50] {
            let count = LENGTH * programs;
            let right = |(i, &y): (usize, &f32)| y == if i < count { i as f32 + 1.0 } else { -1.0 };
            assert!(run(&program, programs).iter().enumerate().all(right), "{programs}");
        }
    }

    #[test]
    fn programs_that_know_their_length_stay_apart() {
        let each = kernel(|_, [_, range, _]| range);
        assert!(each.wide.is_none());
        let count = LENGTH * 40;
        let right = |(i, &y): (usize, &f32)| y == if i < count { (i % LENGTH) as f32 + 1.0 } else { -1.0 };
        assert!(run(&each, 40).iter().enumerate().all(right));

        let half = kernel(|b, [id, range, _]| {
            let half = b.integer(LENGTH as i64 / 2, Scalar::I64);
            let first = b.multiply(id, half);
            let all = b.splat(first, &[LENGTH]);
            b.add(all, range)
        });
        assert!(half.wide.is_none());
        let counted = kernel(|b, [_, _, places]| {
            let count = b.emit(Operation::ProgramCount(0), &[], Type::scalar(Scalar::I32));
            let zero = b.integer(0, Scalar::I32);
            let nothing = b.multiply(count, zero);
            let nothing = b.cast(Cast::Signed, nothing, Scalar::I64);
            let all = b.splat(nothing, &[LENGTH]);
            b.add(all, places)
        });
        assert!(counted.wide.is_none());
    }
}
