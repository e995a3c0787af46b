//! Registers of PTX: bits, whose meaning each instruction says anew.

use super::{Register, integer_of, joined, parted};
use crate::builder::Builder;
use crate::kernel::{Cast, Number, Operation, Value};
use crate::types::{Scalar, Type};
use std::collections::HashMap;

/// Values by the names of registers: `$0` and so on are the results, then the operands.
pub(super) struct Registers {
    /// A type of the elements' shape.
    like: Option<Type>,
    named: HashMap<String, Value>,
    /// Whether an instruction was met that is not there for a result.
    pub has_effect: bool,
}

impl Registers {
    pub fn new(like: Option<Type>, results: usize, operands: &[Value]) -> Registers {
        let named = operands.iter().enumerate().map(|(i, &operand)| (format!("${}", results + i), operand)).collect();
        Registers { like, named, has_effect: false }
    }

    /// Lets results begin as the operands whose constraint is their number.
    pub fn share(&mut self, constraints: &str, results: usize, operands: &[Value]) {
        let of_operands = constraints.split(',').map(str::trim).skip(results);
        for (constraint, &operand) in of_operands.zip(operands) {
            if constraint.parse().is_ok_and(|result: usize| result < results) {
                self.named.insert(format!("${constraint}"), operand);
            }
        }
    }

    /// What a result's register holds, as its type.
    pub fn result(&self, number: usize, register: &Register, b: &mut Builder) -> Result<Value, String> {
        let scalar = register.ty.number().unwrap_or(Scalar::I32);
        match self.named.get(&format!("${number}")) {
            // Of a register that is longer than the result, the low bits are.
            Some(&value) if is_as_long(b, value, scalar) && b.type_of(value).dims == register.ty.dims => {
                as_bits(b, value, scalar).ok_or_else(|| format!("PTX whose ${number} is no {}", scalar.name()))
            }
            Some(_) => Err(format!("PTX whose ${number} is of another type than the result")),
            // What only has an effect is given a result that nobody reads.
            None if self.has_effect => Ok(b.constant(0.0, &register.ty)),
            None => Err(format!("PTX that does not write ${number}")),
        }
    }

    /// What a register holds.
    pub fn held(&self, name: &str) -> Option<Value> {
        self.named.get(name).copied()
    }

    /// What a register holds, registers in braces hold behind each other, or a literal is, as a number of this type.
    pub fn value(&self, name: &str, scalar: Scalar, b: &mut Builder) -> Result<Value, String> {
        if let Some(names) = several(name) {
            let part = integer_of(scalar.size() / names.len().max(1));
            let parts = names.iter().map(|name| self.value(name, part, b)).collect::<Result<Vec<_>, _>>()?;
            let whole = joined(b, &parts);
            return as_bits(b, whole, scalar).ok_or_else(|| format!("{name} is no {}", scalar.name()));
        }
        match (self.held(name), literal(name, scalar)) {
            (Some(value), _) => as_bits(b, value, scalar).ok_or_else(|| format!("{name} is no {}", scalar.name())),
            (None, Some(number)) => {
                let ty = self.shaped(scalar, b)?;
                Ok(b.emit(Operation::Constant(number), &[], ty))
            }
            (None, None) if name.starts_with('%') => {
                Err(format!("{name}: a program sees no threads, processors and clocks"))
            }
            (None, None) => Err(format!("{name} holds nothing")),
        }
    }

    /// The type of all elements.
    pub fn shaped(&self, scalar: Scalar, b: &Builder) -> Result<Type, String> {
        let of_operands = || self.named.values().next().map(|&x| b.type_of(x).clone());
        let like = self.like.clone().or_else(of_operands);
        Ok(like.ok_or("a literal of no shape")?.with_scalar(scalar))
    }

    /// Writes a register, several in braces, or none; under a condition only where it holds.
    pub fn write(&mut self, name: &str, value: Value, condition: Option<Value>, b: &mut Builder) -> Result<(), String> {
        if let Some(names) = several(name) {
            let scalar = b.scalar_of(value);
            let part = Type::scalar(integer_of(scalar.size() / names.len().max(1)));
            let whole = b.cast(Cast::Bits, value, integer_of(scalar.size()));
            let parts = parted(b, whole, &part, names.len());
            return names.iter().zip(parts).try_for_each(|(name, part)| self.write(name, part, condition, b));
        }
        let value = match (condition, self.held(name)) {
            (Some(condition), Some(old)) => {
                let scalar = b.scalar_of(value);
                let old = as_bits(b, old, scalar).ok_or_else(|| format!("{name} is no {}", scalar.name()))?;
                b.select(condition, value, old)
            }
            _ => value,
        };
        if name != "_" {
            self.named.insert(name.to_owned(), value);
        }
        Ok(())
    }
}

/// The registers in braces.
fn several(name: &str) -> Option<Vec<&str>> {
    let inner = name.strip_prefix('{')?.strip_suffix('}')?;
    Some(inner.split(',').map(str::trim).collect())
}

fn is_as_long(b: &Builder, value: Value, scalar: Scalar) -> bool {
    b.type_of(value).number().is_some_and(|found| found.size() >= scalar.size())
}

/// The bits of a number as another type: the low ones where that is shorter, zeros in front where it is longer. None where one of the two is a truth or an address.
pub(super) fn as_bits(b: &mut Builder, x: Value, to: Scalar) -> Option<Value> {
    let from = b.type_of(x).number()?;
    if from == to {
        return Some(x);
    }
    if from == Scalar::I1 || to == Scalar::I1 {
        return None;
    }
    let integer = b.cast(Cast::Bits, x, integer_of(from.size()));
    let cast = if to.size() < from.size() { Cast::Signed } else { Cast::Unsigned };
    let resized = b.cast(cast, integer, integer_of(to.size()));
    Some(b.cast(Cast::Bits, resized, to))
}

/// The number type that an instruction's suffix names. Bits without a type are integers.
pub(super) fn scalar(suffix: &str) -> Option<Scalar> {
    Some(match suffix {
        "f64" => Scalar::F64,
        "f32" => Scalar::F32,
        "f16" => Scalar::F16,
        "bf16" => Scalar::BF16,
        "s64" | "u64" | "b64" => Scalar::I64,
        "s32" | "u32" | "b32" => Scalar::I32,
        "s16" | "u16" | "b16" => Scalar::I16,
        "s8" | "u8" | "b8" => Scalar::I8,
        "pred" => Scalar::I1,
        _ => return None,
    })
}

/// `0f3F800000`, `0d...`, decimal floats and integers.
fn literal(text: &str, scalar: Scalar) -> Option<Number> {
    let bits = |prefix: &str| text.strip_prefix(prefix).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let single = bits("0f").or_else(|| bits("0F")).and_then(|bits| u32::try_from(bits).ok());
    let double = bits("0d").or_else(|| bits("0D"));
    if scalar.is_float() {
        let number = single.map(|bits| f32::from_bits(bits).into()).or(double.map(f64::from_bits));
        return number.or_else(|| text.parse().ok()).map(Number::Float);
    }
    let digits = text.trim_end_matches('U');
    let hexadecimal = digits.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let number = hexadecimal.or(single.map(u64::from)).or(double).map(|bits| bits as i64);
    let number = number.or_else(|| digits.parse().ok())?;
    // A literal has 64 bits, of which a shorter type takes the low ones.
    let unused = if scalar == Scalar::I1 { 63 } else { 64 - 8 * scalar.size() as u32 };
    Some(Number::Integer(if unused == 0 { number } else { (number as u64 & (u64::MAX >> unused)) as i64 }))
}
