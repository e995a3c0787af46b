//! `tl.inline_asm_elementwise`: PTX whose instructions have operations of ours. Kernels reach for it to have one instruction, an approximation above all,
//! for which the exact function does as well.

mod bits;
mod compare;
mod convert;
mod instruction;
mod narrow;
mod registers;

use super::elementwise::{packed, reshaped, unpacked};
use super::small::shifted;
use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Value};
use crate::types::{Scalar, Type};
use registers::Registers;

/// A piece of PTX.
pub struct Assembly<'t> {
    /// Instructions.
    pub text: &'t str,
    /// What kind of register each result and operand has, or which result's register an operand shares.
    pub constraints: &'t str,
    /// Neighbours of each tile that are computed at once. Those shorter than 32 bits share registers.
    pub pack: usize,
}

/// The results of a piece of PTX.
pub fn lower(assembly: &Assembly, operands: &[Value], results: &[Type], b: &mut Builder) -> Result<Vec<Value>, String> {
    let pack = assembly.pack;
    if !pack.is_power_of_two() {
        return Err(format!("PTX of {pack} elements at once"));
    }
    let mut types = operands.iter().map(|&operand| b.type_of(operand)).chain(results);
    if let Some(ty) = types.find(|ty| ty.len() % pack != 0) {
        return Err(format!("PTX of {pack} elements at once of {ty}"));
    }
    let results_in: Vec<Register> = results.iter().map(|ty| Register::of(ty, pack)).collect::<Result<_, _>>()?;
    let mut inputs = Vec::new();
    for &operand in operands {
        let per_register = elements_in_register(b.type_of(operand), pack);
        let elements = unpacked(b, operand, pack);
        inputs.extend(elements.chunks(per_register).map(|elements| joined(b, elements)));
    }
    let outputs: usize = results_in.iter().map(|register| register.count).sum();
    let like = results_in.first().map(|register| register.ty.clone());
    let mut registers = Registers::new(like, outputs, &inputs);
    registers.share(assembly.constraints, outputs, &inputs);
    let text = plain(assembly.text);
    for instruction in text.split(';').map(without_braces) {
        if !instruction.is_empty() {
            instruction::execute(instruction, &mut registers, b)
                .map_err(|why| format!("the PTX `{instruction}`: {why}"))?;
        }
    }
    let mut numbers = 0..outputs;
    let mut gathered = Vec::new();
    for (register, ty) in results_in.iter().zip(results) {
        let mut elements = Vec::new();
        for number in numbers.by_ref().take(register.count) {
            let value = registers.result(number, register, b)?;
            elements.extend(parted(b, value, ty, pack / register.count));
        }
        let whole = packed(b, &elements);
        gathered.push(if b.type_of(whole) == ty { whole } else { reshaped(b, whole, &ty.dims) });
    }
    Ok(gathered)
}

/// The registers that a result's elements are in.
struct Register {
    count: usize,
    ty: Type,
}

impl Register {
    fn of(ty: &Type, pack: usize) -> Result<Register, String> {
        let per_register = elements_in_register(ty, pack);
        let scalar = ty.number().ok_or_else(|| format!("PTX that gives {ty}"))?;
        let scalar = if per_register == 1 { scalar } else { integer_of(scalar.size() * per_register) };
        let ty = ty.with_scalar(scalar);
        let ty = if pack == 1 { ty } else { ty.with_dims(&[ty.len() / pack]) };
        Ok(Register { count: pack / per_register, ty })
    }
}

fn elements_in_register(ty: &Type, pack: usize) -> usize {
    ty.number().map_or(1, |scalar| (4 / scalar.size()).clamp(1, pack))
}

/// The integer of so many bytes.
fn integer_of(bytes: usize) -> Scalar {
    match bytes {
        1 => Scalar::I8,
        2 => Scalar::I16,
        4 => Scalar::I32,
        _ => Scalar::I64,
    }
}

/// Numbers behind each other in one integer, the first in its low bits; one alone as it is.
fn joined(b: &mut Builder, parts: &[Value]) -> Value {
    let (first, others) = (parts[0], &parts[1..]);
    if others.is_empty() {
        return first;
    }
    let size = b.scalar_of(first).size();
    let (integer, whole) = (integer_of(size), integer_of(size * parts.len()));
    let wide = |b: &mut Builder, part| {
        let bits = b.cast(Cast::Bits, part, integer);
        b.cast(Cast::Unsigned, bits, whole)
    };
    let mut so_far = wide(b, first);
    for (i, &part) in others.iter().enumerate() {
        let wide = wide(b, part);
        let moved = shifted(b, Binary::ShiftLeft, wide, (8 * size * (i + 1)) as i64);
        so_far = b.binary(Binary::Or, so_far, moved);
    }
    so_far
}

/// The inverse of [`joined`]: so many numbers of a type.
fn parted(b: &mut Builder, whole: Value, ty: &Type, count: usize) -> Vec<Value> {
    let Some(scalar) = ty.number().filter(|_| count > 1) else { return vec![whole] };
    let mut part = |i: usize| {
        let at = (8 * scalar.size() * i) as i64;
        let shifted = if i == 0 { whole } else { shifted(b, Binary::ShiftRightUnsigned, whole, at) };
        let integer = b.cast(Cast::Signed, shifted, integer_of(scalar.size()));
        b.cast(Cast::Bits, integer, scalar)
    };
    (0..count).map(&mut part).collect()
}

/// The text without MLIR's escapes and without comments.
fn plain(text: &str) -> String {
    let lines = ["\\0A", "\\0D", "\\n"].iter().fold(text.to_owned(), |text, escape| text.replace(escape, "\n"));
    let spaces = ["\\09", "\\t"].iter().fold(lines, |text, escape| text.replace(escape, " "));
    spaces.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join(" ")
}

/// An instruction without the braces of the blocks that begin before it and end behind it; those around several registers stay.
fn without_braces(instruction: &str) -> &str {
    let is_edge = |c: char| c.is_whitespace() || c == '{' || c == '}';
    let inner = instruction.trim_start_matches(is_edge);
    if inner.contains('{') { inner.trim_end() } else { inner.trim_end_matches(is_edge) }
}
