//! `tl.inline_asm_elementwise`: PTX whose instructions have operations of ours. Kernels reach for it to have one instruction, an approximation above all,
//! for which the exact function does as well.

mod convert;

use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Number, Operation, Unary, Value};
use crate::types::{Scalar, Type};
use std::collections::HashMap;

/// The results of a piece of PTX, one element of each operand at a time.
pub fn lower(text: &str, operands: &[Value], results: &[Type], b: &mut Builder) -> Result<Vec<Value>, String> {
    let text = plain(text);
    let mut registers = Registers { results, operands, named: HashMap::new(), has_effect: false };
    for instruction in text.split(';').map(|part| part.trim_matches(|c: char| c.is_whitespace() || "{}".contains(c))) {
        if !instruction.is_empty() {
            registers.execute(instruction, b).map_err(|why| format!("the PTX `{instruction}`: {why}"))?;
        }
    }
    let written = |(i, ty): (usize, &Type)| match registers.named.get(&format!("${i}")) {
        Some(&value) if b.type_of(value) == ty => Ok(value),
        // A register holds bits, which the result's type says the meaning of.
        Some(&value) if has_bits_of(b.type_of(value), ty) => {
            Ok(b.emit(Operation::Cast(Cast::Bits), &[value], ty.clone()))
        }
        Some(_) => Err(format!("PTX whose ${i} is of another type than the result")),
        // What only has an effect is given a result that nobody reads.
        None if registers.has_effect => Ok(b.constant(0.0, ty)),
        None => Err(format!("PTX that does not write ${i}")),
    };
    results.iter().enumerate().map(written).collect()
}

/// Whether numbers of both types are as long, and none of them a truth.
fn has_bits_of(x: &Type, y: &Type) -> bool {
    let (Some(of_x), Some(of_y)) = (x.number(), y.number()) else { return false };
    of_x.size() == of_y.size() && of_x != Scalar::I1 && of_y != Scalar::I1 && x.with_scalar(of_y) == *y
}

/// The text without MLIR's escapes and without comments.
fn plain(text: &str) -> String {
    let lines = ["\\0A", "\\0D", "\\n"].iter().fold(text.to_owned(), |text, escape| text.replace(escape, "\n"));
    let spaces = ["\\09", "\\t"].iter().fold(lines, |text, escape| text.replace(escape, " "));
    spaces.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join(" ")
}

/// Values by the names of registers: `$0` and so on are the results, then the operands.
struct Registers<'a> {
    results: &'a [Type],
    operands: &'a [Value],
    named: HashMap<String, Value>,
    /// Whether an instruction was met that is not there for a result.
    has_effect: bool,
}

impl Registers<'_> {
    fn execute(&mut self, instruction: &str, b: &mut Builder) -> Result<(), String> {
        let (name, rest) = instruction.split_once(char::is_whitespace).unwrap_or((instruction, ""));
        let mut words = name.split('.');
        let kind = words.next().unwrap_or_default();
        // A declaration of registers, and launches that overlap, which they do not here.
        self.has_effect |= kind == "griddepcontrol";
        if kind.is_empty() || kind == "griddepcontrol" {
            return Ok(());
        }
        let words: Vec<&str> = words.collect();
        let scalar = words.iter().rev().find_map(|word| scalar(word)).ok_or("not covered")?;
        let mut names = rest.split(',').map(str::trim);
        let to = names.next().filter(|name| !name.is_empty()).ok_or("no register to write")?;
        let names: Vec<&str> = names.collect();
        let value = match names[..] {
            // Moves are of bits, whatever they stand for.
            [name] if kind == "mov" && self.held(name).is_some() => self.held(name),
            [name] if kind == "cvt" => {
                let x = self.value(name, scalar, b)?;
                convert::converted(&words, x, b)
            }
            [x, y] if kind == "setp" => {
                let values = [self.value(x, scalar, b)?, self.value(y, scalar, b)?];
                convert::compared(&words, values, b)
            }
            [x, y, condition] if kind == "selp" && words.len() == 1 => {
                let (x, y) = (self.value(x, scalar, b)?, self.value(y, scalar, b)?);
                let condition = self.value(condition, Scalar::I1, b)?;
                Some(b.select(condition, x, y))
            }
            _ => {
                let values = names.iter().map(|name| self.value(name, scalar, b)).collect::<Result<Vec<_>, _>>()?;
                operation(kind, &words, &values, b)
            }
        };
        let value = value.ok_or("not covered")?;
        self.named.insert(to.to_owned(), value);
        Ok(())
    }

    /// What a register holds.
    fn held(&self, name: &str) -> Option<Value> {
        let operand = || {
            let number = name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(self.results.len())?;
            self.operands.get(number).copied()
        };
        self.named.get(name).copied().or_else(operand)
    }

    /// What a register holds, or the number that a literal is.
    fn value(&self, name: &str, scalar: Scalar, b: &mut Builder) -> Result<Value, String> {
        let found = match (self.held(name), literal(name, scalar)) {
            (Some(value), _) => value,
            (None, Some(number)) => {
                let like = self.results.first().or_else(|| self.operands.first().map(|&x| b.type_of(x)));
                let ty = like.ok_or("a literal of no shape")?.with_scalar(scalar);
                b.emit(Operation::Constant(number), &[], ty)
            }
            (None, None) => return Err(format!("{name} holds nothing")),
        };
        match b.type_of(found).number() {
            Some(own) if own == scalar => Ok(found),
            _ => Err(format!("{name} is no {}", scalar.name())),
        }
    }
}

/// The number type that an instruction's suffix names. Bits without a type are integers.
fn scalar(suffix: &str) -> Option<Scalar> {
    Some(match suffix {
        "f64" => Scalar::F64,
        "f32" => Scalar::F32,
        "f16" => Scalar::F16,
        "bf16" => Scalar::BF16,
        "s64" | "u64" | "b64" => Scalar::I64,
        "s32" | "u32" | "b32" => Scalar::I32,
        "s16" | "u16" | "b16" => Scalar::I16,
        "s8" | "u8" | "b8" => Scalar::I8,
        _ => return None,
    })
}

/// `0f3F800000`, `0d...`, decimal floats and integers.
fn literal(text: &str, scalar: Scalar) -> Option<Number> {
    let bits = |prefix: &str| text.strip_prefix(prefix).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    if scalar.is_float() {
        let single = bits("0f").or_else(|| bits("0F")).and_then(|bits| u32::try_from(bits).ok());
        let double = bits("0d").or_else(|| bits("0D"));
        let number = single.map(|bits| f32::from_bits(bits).into()).or(double.map(f64::from_bits));
        return number.or_else(|| text.parse().ok()).map(Number::Float);
    }
    let number = bits("0x").map(|bits| bits as i64).or_else(|| text.parse().ok());
    number.map(Number::Integer)
}

/// What an instruction makes of its operands; none where it is not known.
fn operation(kind: &str, words: &[&str], values: &[Value], b: &mut Builder) -> Option<Value> {
    let saturates = words.contains(&"sat") && matches!(kind, "add" | "sub" | "mul" | "fma");
    if !saturates {
        return unbounded(kind, words, values, b);
    }
    let others: Vec<&str> = words.iter().copied().filter(|&word| word != "sat").collect();
    let value = unbounded(kind, &others, values, b)?;
    b.type_of(value).number()?.is_float().then(|| convert::within_one(value, b))
}

/// As [`operation`], of instructions that do not saturate.
fn unbounded(kind: &str, words: &[&str], values: &[Value], b: &mut Builder) -> Option<Value> {
    let is_float = b.type_of(*values.first()?).number()?.is_float();
    let is_unsigned = words.iter().any(|word| word.starts_with('u'));
    let modifies = |word: &str| words.contains(&word);
    // Rounding to nearest is ours, approximations are computed exactly.
    let plain = |word: &&str| scalar(word).is_some() || ["rn", "approx", "full", "ftz", "lo", "NaN"].contains(word);
    if !words.iter().all(plain) {
        return None;
    }
    let unary = match kind {
        "mov" => return values.first().copied().filter(|_| values.len() == 1),
        "neg" => Some(Unary::Negate),
        "abs" => Some(Unary::Absolute),
        "not" => Some(Unary::Not),
        "ex2" => Some(Unary::Exp2),
        "lg2" => Some(Unary::Log2),
        "sqrt" => Some(Unary::Sqrt),
        "rsqrt" => Some(Unary::Rsqrt),
        "sin" => Some(Unary::Sin),
        "cos" => Some(Unary::Cos),
        "tanh" => Some(Unary::Tanh),
        _ => None,
    };
    let binary = match (kind, is_float) {
        ("add", _) => Some(Binary::Add),
        ("sub", _) => Some(Binary::Subtract),
        ("mul", _) => Some(Binary::Multiply),
        ("div", true) => Some(Binary::Divide),
        ("min", true) if modifies("NaN") => Some(Binary::Minimum),
        ("max", true) if modifies("NaN") => Some(Binary::Maximum),
        ("min", true) => Some(Binary::MinimumNumber),
        ("max", true) => Some(Binary::MaximumNumber),
        ("min", false) => Some(if is_unsigned { Binary::MinimumUnsigned } else { Binary::Minimum }),
        ("max", false) => Some(if is_unsigned { Binary::MaximumUnsigned } else { Binary::Maximum }),
        ("and", false) => Some(Binary::And),
        ("or", false) => Some(Binary::Or),
        ("xor", false) => Some(Binary::Xor),
        ("shl", false) => Some(Binary::ShiftLeft),
        ("shr", false) => {
            Some(if modifies("s32") || modifies("s64") { Binary::ShiftRight } else { Binary::ShiftRightUnsigned })
        }
        _ => None,
    };
    Some(match (kind, unary, binary, values) {
        (_, Some(unary), _, &[x]) => b.unary(unary, x),
        (_, _, Some(binary), &[x, y]) => b.binary(binary, x, y),
        ("rcp", _, _, &[x]) => {
            let one = b.constant_like(1.0, x);
            b.binary(Binary::Divide, one, x)
        }
        ("fma", _, _, &[x, _, _]) if is_float => {
            let ty = b.type_of(x).clone();
            b.emit(Operation::MultiplyAdd, values, ty)
        }
        ("mad", _, _, &[x, y, z]) if !is_float => {
            let product = b.binary(Binary::Multiply, x, y);
            b.binary(Binary::Add, product, z)
        }
        _ => return None,
    })
}
