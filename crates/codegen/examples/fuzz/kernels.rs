//! Kernels that bytes describe: made of anything, or a given kernel with a few parts changed.

use arbitrary::{Result, Unstructured};
use openmps_tile::kernel::*;
use openmps_tile::types::{Dims, Element, Scalar, Type};

/// Blocks in blocks; the verifier has a limit of its own.
const DEEPEST: usize = 4;

const SCALARS: [Scalar; 9] = [
    Scalar::I1,
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::F16,
    Scalar::BF16,
    Scalar::F32,
    Scalar::F64,
];

/// The given kernel changed in up to four places, or one of anything where none is given or the bytes ask for it.
pub fn changed(kernel: Option<Kernel>, bytes: &[u8]) -> Kernel {
    let mut bytes = Unstructured::new(bytes);
    match kernel {
        Some(mut kernel) if bytes.ratio(7, 8).unwrap_or(true) => {
            for _ in 0..bytes.int_in_range(1..=4).unwrap_or(1) {
                // Bytes that have run out change nothing more.
                let _ = change(&mut kernel, &mut bytes);
            }
            kernel
        }
        _ => any(&mut bytes).unwrap_or_else(|_| openmps_tile::Builder::new("nothing").finish()),
    }
}

fn change(kernel: &mut Kernel, bytes: &mut Unstructured) -> Result<()> {
    let values = kernel.types.len();
    if bytes.ratio(1, 3)? && values > 0 {
        let at = bytes.choose_index(values)?;
        kernel.types[at] = ty(bytes)?;
        return Ok(());
    }
    let mut block = &mut kernel.body;
    loop {
        if block.instructions.is_empty() {
            return Ok(());
        }
        let at = bytes.choose_index(block.instructions.len())?;
        let enter = !block.instructions[at].blocks.is_empty() && bytes.ratio(3, 4)?;
        if enter {
            let inner = bytes.choose_index(block.instructions[at].blocks.len())?;
            block = &mut block.instructions[at].blocks[inner];
            continue;
        }
        return change_instruction(block, at, values, bytes);
    }
}

fn change_instruction(block: &mut Block, at: usize, values: usize, bytes: &mut Unstructured) -> Result<()> {
    let other = block.instructions[bytes.choose_index(block.instructions.len())?].clone();
    let instruction = &mut block.instructions[at];
    match bytes.int_in_range(0..=7)? {
        0 => instruction.operation = operation(bytes)?,
        1 => instruction.operation = other.operation,
        2 if !instruction.operands.is_empty() => {
            let operand = bytes.choose_index(instruction.operands.len())?;
            instruction.operands[operand] = value(bytes, values)?;
        }
        3 => instruction.operands.push(value(bytes, values)?),
        4 => _ = instruction.operands.pop(),
        5 => instruction.results.push(value(bytes, values)?),
        6 => instruction.blocks = other.blocks,
        _ => _ = block.instructions.remove(at),
    }
    Ok(())
}

fn any(bytes: &mut Unstructured) -> Result<Kernel> {
    let values = bytes.int_in_range(0..=24)?;
    let types = (0..values).map(|_| ty(bytes)).collect::<Result<Vec<Type>>>()?;
    let mut parameters = Vec::new();
    for i in 0..bytes.int_in_range(0..=4)? {
        parameters.push(Parameter { name: format!("p{}", i % 3), value: value(bytes, values)?, divisibility: 1 });
    }
    let body = block(bytes, values, 0)?;
    Ok(Kernel { name: "any".to_owned(), parameters, types, body, lines: vec!["file.py:1:2".to_owned()] })
}

fn block(bytes: &mut Unstructured, values: usize, depth: usize) -> Result<Block> {
    let arguments = several(bytes, values, 3)?;
    let mut instructions = Vec::new();
    for _ in 0..bytes.int_in_range(0..=6)? {
        let (operation, operands) = (operation(bytes)?, several(bytes, values, 4)?);
        let (results, line) = (several(bytes, values, 2)?, Some(bytes.int_in_range(0..=2)?));
        let count = if depth < DEEPEST && bytes.ratio(1, 3)? { bytes.int_in_range(1..=2)? } else { 0 };
        let blocks = (0..count).map(|_| block(bytes, values, depth + 1)).collect::<Result<_>>()?;
        instructions.push(Instruction { operation, operands, results, blocks, line });
    }
    Ok(Block { arguments, instructions })
}

fn several(bytes: &mut Unstructured, values: usize, most: usize) -> Result<Vec<Value>> {
    let count = bytes.int_in_range(0..=most)?;
    (0..count).map(|_| value(bytes, values)).collect()
}

/// Mostly one that has a type.
fn value(bytes: &mut Unstructured, values: usize) -> Result<Value> {
    match bytes.ratio(1, 32)? {
        true => bytes.arbitrary().map(Value),
        false => bytes.int_in_range(0..=values.saturating_sub(1)).map(|value| Value(value as u32)),
    }
}

fn ty(bytes: &mut Unstructured) -> Result<Type> {
    let scalar = *bytes.choose(&SCALARS)?;
    let element = if bytes.ratio(1, 4)? { Element::Pointer(scalar) } else { Element::Scalar(scalar) };
    Ok(Type { element, dims: dims(bytes)? })
}

fn dims(bytes: &mut Unstructured) -> Result<Dims> {
    const SIZES: [usize; 14] = [1, 1, 2, 2, 3, 4, 16, 32, 33, 128, 1024, 1 << 20, 0, usize::MAX];
    let rank = if bytes.ratio(1, 16)? { 12 } else { bytes.int_in_range(0..=3)? };
    (0..rank).map(|_| bytes.choose(&SIZES).copied()).collect()
}

fn operation(bytes: &mut Unstructured) -> Result<Operation> {
    let axis = match bytes.ratio(1, 16)? {
        true => bytes.arbitrary()?,
        false => bytes.int_in_range(0..=3)?,
    };
    Ok(match bytes.int_in_range(0..=35)? {
        0 => Operation::Constant(Number::Integer(bytes.arbitrary()?)),
        1 => Operation::Constant(Number::Float(bytes.arbitrary()?)),
        2 => Operation::ProgramId(bytes.int_in_range(0..=3)?),
        3 => Operation::ProgramCount(bytes.arbitrary()?),
        4 => Operation::Range { start: bytes.arbitrary()? },
        5 => Operation::Splat,
        6 => Operation::ExpandDims { axis },
        7 => Operation::Broadcast,
        8 => Operation::Reshape,
        9 => Operation::Permute { order: dims(bytes)? },
        10 => Operation::Join,
        11 => Operation::Split,
        12 => Operation::Concatenate,
        13 => Operation::Unsplat,
        14 => Operation::Gather { axis },
        15 => Operation::Histogram,
        16 => Operation::AddPointer,
        17 => Operation::Load,
        18 => Operation::Store,
        19 => Operation::Atomic(*bytes.choose(Atomic::ALL)?),
        20 => Operation::CompareSwap,
        21 => Operation::IntegerToPointer,
        22 => Operation::PointerToInteger,
        23 => Operation::MultiplyAdd,
        24 => Operation::Assert { message: "é\"\\\n*/ %s".into() },
        25 => Operation::Unary(*bytes.choose(Unary::ALL)?),
        26 => Operation::Binary(*bytes.choose(Binary::ALL)?),
        27 => Operation::Compare(*bytes.choose(Compare::ALL)?),
        28 => Operation::Select,
        29 => Operation::Cast(*bytes.choose(Cast::ALL)?),
        30 => Operation::Reduce { axis, combine: *bytes.choose(Combine::ALL)? },
        31 => Operation::ReduceBlock { axis },
        32 => Operation::Scan { axis, reverse: bytes.arbitrary()? },
        33 => Operation::Dot,
        34 => bytes.choose(&[Operation::For, Operation::If, Operation::While])?.clone(),
        _ => bytes.choose(&[Operation::Condition, Operation::Yield, Operation::Barrier])?.clone(),
    })
}
