//! Random kernels: those that are built well verify and run without panic, those that are changed at random do not make anything panic.

use super::*;
use Scalar::*;
use proptest::prelude::*;

const SCALARS: [Scalar; 9] = [I1, I8, I16, I32, I64, F16, BF16, F32, F64];
const DIMS: [&[usize]; 5] = [&[], &[1], &[4], &[2, 3], &[1, 3]];
/// Kernels of each test. Miri takes seconds for one.
const CASES: u32 = if cfg!(miri) { 6 } else { 512 };

/// Turns random numbers into decisions.
struct Choices<'a>(std::slice::Iter<'a, u32>);

impl Choices<'_> {
    fn below(&mut self, limit: usize) -> Option<usize> {
        self.0.next().map(|&x| x as usize % limit.max(1))
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        let index = self.below(all.len())?;
        all.get(index).cloned()
    }
}

/// Values that may be read here, and what is built from them.
struct Growing<'b, 'c> {
    b: &'b mut Builder,
    choices: &'b mut Choices<'c>,
    values: Vec<Value>,
    depth: usize,
}

impl Growing<'_, '_> {
    /// A value for which a condition holds; a constant of the type when there is none.
    fn value(&mut self, holds: impl Fn(&Type) -> bool, otherwise: &Type) -> Option<Value> {
        let fitting: Vec<Value> = self.values.iter().copied().filter(|&x| holds(self.b.type_of(x))).collect();
        if fitting.is_empty() { Some(self.b.constant(1.0, otherwise)) } else { self.choices.of(&fitting) }
    }

    fn like(&mut self, ty: &Type) -> Option<Value> {
        self.value(|x| x == ty, ty)
    }

    fn number(&mut self, holds: impl Fn(Scalar) -> bool) -> Option<Value> {
        self.value(|x| x.number().is_some_and(&holds), &Type::tile(F32, &[4]))
    }

    fn grow(&mut self) {
        while self.step().is_some() {}
    }

    /// Adds one instruction, or none when the chosen one does not fit; none at the end of the choices.
    fn step(&mut self) -> Option<()> {
        let added = match self.choices.below(14)? {
            0 => {
                let ty = Type::scalar(self.choices.of(&SCALARS)?).with_dims(self.choices.of(&DIMS)?);
                let value = self.choices.below(2)? as f64;
                Some(self.b.constant(value, &ty))
            }
            1 => Some(self.b.program_id(0)),
            2 => Some(lanes(self.b, 4)),
            3 | 4 => {
                let operation = self.choices.of(Unary::ALL)?;
                let x = self.number(|x| x.is_float())?;
                (operation != Unary::Not).then(|| self.b.unary(operation, x))
            }
            5 => {
                let operation = self.choices.of(Binary::ALL)?;
                let floats =
                    [Binary::Power, Binary::Atan2, Binary::MinimumNumber, Binary::MaximumNumber].contains(&operation);
                let x = self.number(|x| x.is_float() == floats && x != I1)?;
                if self.b.scalar_of(x).is_float() != floats {
                    return Some(());
                }
                let y = self.like(&self.b.type_of(x).clone())?;
                Some(self.b.binary(operation, x, y))
            }
            6 => {
                let x = self.number(|x| x != I1)?;
                let y = self.like(&self.b.type_of(x).clone())?;
                let comparison = self.choices.of(&Compare::ALL[..6])?;
                Some(self.b.compare(comparison, x, y))
            }
            7 => {
                let x = self.value(|_| true, &Type::scalar(F32))?;
                let ty = self.b.type_of(x).clone();
                let (condition, y) = (self.like(&ty.with_scalar(I1))?, self.value(|y| *y == ty, &ty));
                Some(self.b.select(condition, x, y?))
            }
            8 => {
                let x = self.number(|x| x.is_float())?;
                let cast = self.choices.of(&[Cast::FloatToSigned, Cast::FloatToUnsigned])?;
                let to = self.choices.of(&SCALARS[1..5])?;
                Some(self.b.cast(cast, x, to))
            }
            9 => {
                let x =
                    self.value(|x| !x.is_scalar() && x.number().is_some_and(|x| x != I1), &Type::tile(F32, &[2, 3]))?;
                let axis = self.choices.below(self.b.type_of(x).dims.len())?;
                let combine = self.choices.of(&Combine::ALL[..4])?;
                Some(self.b.reduce(combine, x, axis))
            }
            10 => {
                let x = self.value(Type::is_scalar, &Type::scalar(F32))?;
                let dims = self.choices.of(&DIMS[1..])?;
                Some(self.b.splat(x, dims))
            }
            11 => self.load()?,
            12 => {
                self.store()?;
                None
            }
            _ => self.for_loop()?,
        };
        self.values.extend(added);
        Some(())
    }

    fn pointers(&mut self) -> Option<Value> {
        let pointer = self.value(|x| x.target().is_some() && x.is_scalar(), &Type::scalar(F32))?;
        let offset = self.value(|x| matches!(x.number(), Some(I32 | I64)), &Type::scalar(I32))?;
        Some(self.b.add_pointer(pointer, offset))
    }

    fn load(&mut self) -> Option<Option<Value>> {
        let pointers = self.pointers()?;
        let ty = self.b.type_of(pointers).clone();
        let operands = self.choices.below(3)?;
        let mask = if operands > 0 { Some(self.like(&ty.with_scalar(I1))?) } else { None };
        let other = if operands > 1 { Some(self.like(&ty.with_scalar(self.b.scalar_of(pointers)))?) } else { None };
        Some(Some(self.b.load(pointers, mask, other)))
    }

    fn store(&mut self) -> Option<()> {
        let pointers = self.pointers()?;
        let ty = self.b.type_of(pointers).clone();
        let x = self.like(&ty.with_scalar(self.b.scalar_of(pointers)))?;
        let mask = self.like(&ty.with_scalar(I1))?;
        self.b.store(pointers, x, Some(mask));
        Some(())
    }

    fn for_loop(&mut self) -> Option<Option<Value>> {
        if self.depth == 3 {
            return Some(None);
        }
        let upper = self.choices.below(4)? as i64;
        let bounds = [0, upper, 1].map(|x| self.b.integer(x, I32));
        let initial = self.value(|_| true, &Type::scalar(F32))?;
        let length = self.choices.below(8)?;
        let (values, depth) = (self.values.clone(), self.depth + 1);
        let choices = &mut *self.choices;
        let results = self.b.for_loop(bounds, &[initial], |b, index, carried| {
            let mut values = values;
            values.extend([index, carried[0]]);
            let ty = b.type_of(initial).clone();
            let mut inner = Growing { b, choices, values, depth };
            for _ in 0..length {
                let _ = inner.step();
            }
            let next = inner.value(|x| *x == ty, &ty);
            vec![next.unwrap_or(carried[0])]
        });
        Some(Some(results[0]))
    }
}

fn grow(choices: &[u32]) -> Kernel {
    let mut b = Builder::new("random");
    let values = ["x", "y"].map(|name| b.parameter(name, pointer(F32))).to_vec();
    Growing { b: &mut b, choices: &mut Choices(choices.iter()), values, depth: 0 }.grow();
    b.finish()
}

fn count(block: &Block) -> usize {
    block.instructions.iter().map(|x| 1 + x.blocks.iter().map(count).sum::<usize>()).sum()
}

/// The block and place of the instruction of this number.
fn find(block: &mut Block, mut number: usize) -> Option<(&mut Block, usize)> {
    for i in 0..block.instructions.len() {
        if number == 0 {
            return Some((block, i));
        }
        number -= 1;
        let inside = block.instructions[i].blocks.iter().map(count).sum();
        if number < inside {
            return find(&mut block.instructions[i].blocks[0], number);
        }
        number -= inside;
    }
    None
}

/// Changes one thing.
fn mutate(kernel: &mut Kernel, choices: &mut Choices) -> Option<()> {
    let all = kernel.types.len() + 2;
    let (value, other) = (Value(choices.below(all)? as u32), choices.below(all)?);
    let number = choices.below(count(&kernel.body))?;
    let kind = choices.below(11)?;
    let types = &mut kernel.types;
    let (block, i) = find(&mut kernel.body, number)?;
    let instruction = &mut block.instructions[i];
    match kind {
        0 => instruction.operands.push(value),
        1 => drop(instruction.operands.pop()),
        2 => {
            let at = other % instruction.operands.len().max(1);
            *instruction.operands.get_mut(at)? = value
        }
        3 => *instruction.results.first_mut()? = value,
        4 => instruction.results.push(value),
        5 => drop(block.instructions.remove(i)),
        6 => {
            let copy = instruction.clone();
            block.instructions.push(copy)
        }
        7 => {
            let last = block.instructions.len() - 1;
            block.instructions.swap(i, last)
        }
        8 => *types.get_mut(other)? = Type::scalar(choices.of(&SCALARS)?).with_dims(choices.of(&DIMS)?),
        9 => {
            *types.get_mut(other)? =
                Type::pointer(choices.of(&SCALARS)?).with_dims(&[choices.of(&[0, 4, usize::MAX])?; 3])
        }
        _ => {
            instruction.operation = choices.of(&[
                Operation::Constant(Number::Integer(other as i64 - 3)),
                Operation::Range { start: i32::MAX },
                Operation::Broadcast,
                Operation::Reshape,
                Operation::ExpandDims { axis: other },
                Operation::Reduce { axis: other, combine: Combine::Or },
                Operation::ProgramId(other as u8),
                Operation::For,
                Operation::Yield,
                Operation::Load,
                Operation::Store,
                Operation::Cast(Cast::Bits),
                Operation::Cast(Cast::Signed),
            ])?;
        }
    }
    Some(())
}

fn run_quietly(verified: Verified<'_>) -> Result<(), InterpretError> {
    let (mut x, mut y) = ([1_f32; 8], [-0.5_f32; 8]);
    let mut memory = HostMemory::new();
    let arguments = [memory.register(&mut x), memory.register(&mut y)];
    interpret(verified, [2, 1, 1], &arguments, &mut memory)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn well_built_kernels_run(choices in proptest::collection::vec(any::<u32>(), 0..300)) {
        let kernel = grow(&choices);
        match verify(&kernel) {
            Ok(verified) => drop(run_quietly(verified)),
            Err(error) => prop_assert!(false, "{error}\n{kernel}"),
        }
    }

    #[test]
    fn changed_kernels_do_no_harm(
        choices in proptest::collection::vec(any::<u32>(), 0..200),
        changes in proptest::collection::vec(any::<u32>(), 1..30),
    ) {
        let mut kernel = grow(&choices);
        let mut changes = Choices(changes.iter());
        while mutate(&mut kernel, &mut changes).is_some() {
            let _ = kernel.to_string();
            // A changed loop could run for years.
            let loops = kernel.body.instructions.iter().any(|x| !x.blocks.is_empty());
            if let (Ok(verified), false) = (verify(&kernel), loops) {
                let _ = run_quietly(verified);
            }
        }
    }
}
