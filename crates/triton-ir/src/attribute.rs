//! What an operation says besides its operands.

use crate::types::{Float, Type};
use half::{bf16, f16};
use std::fmt::{Display, Formatter, Result};

/// An attribute's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// That the attribute is there.
    Unit,
    /// A truth value.
    Truth(bool),
    /// An integer of 32 bits.
    Integer(i64),
    /// A text in quotes.
    Text(String),
    /// One of the words that an operation knows.
    Word(&'static str),
    /// The name of a function.
    Symbol(String),
    /// Integers of 32 bits, `array<i32: ..>`.
    Array(Vec<i64>),
    /// Integers of 32 bits, `dense<..> : tensor<..>`.
    Dense(Vec<i64>),
    /// The number of a constant, in every element of its type.
    Number(Number),
    /// A type, such as a function's.
    Type(Type),
    /// What no pass looks at, as it is written.
    Written(String),
}

/// A number of a constant.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// An integer, of which the type's low bits count.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
}

impl Number {
    /// Equal to the bit: `-0.0` is not `0.0`, and NaN is NaN.
    fn bits(self) -> (bool, u64) {
        match self {
            Number::Integer(integer) => (true, integer as u64),
            Number::Float(float) => (false, float.to_bits()),
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Number {}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

/// The low bits of an integer, with the sign that they have as a number of so many bits; a truth value is 0 or 1.
pub fn wrapped(integer: i64, bits: u32) -> i64 {
    match bits {
        1 => integer & 1,
        2..64 => integer << (64 - bits) >> (64 - bits),
        _ => integer,
    }
}

impl Number {
    /// As a literal of a type, without the type.
    pub fn literal(self, ty: &Type) -> String {
        match (self, ty.integer_bits()) {
            (Number::Integer(integer), Some(1)) => (integer & 1 != 0).to_string(),
            (Number::Integer(integer), bits) => wrapped(integer, bits.unwrap_or(64)).to_string(),
            (Number::Float(float), _) => float_literal(float, ty.float().unwrap_or(Float::F64)),
        }
    }
}

/// Decimal, as short as it reads back to the same number; of what is infinite or none the bits.
fn float_literal(number: f64, ty: Float) -> String {
    let number = match ty {
        Float::F16 => f16::from_f64(number).to_f64(),
        Float::BF16 => bf16::from_f64(number).to_f64(),
        Float::F32 => f64::from(number as f32),
        _ => number,
    };
    if !number.is_finite() {
        return match ty {
            Float::F16 => format!("0x{:04X}", f16::from_f64(number).to_bits()),
            Float::BF16 => format!("0x{:04X}", bf16::from_f64(number).to_bits()),
            Float::F32 => format!("0x{:08X}", (number as f32).to_bits()),
            Float::F64 => format!("0x{:016X}", number.to_bits()),
            // Types with infinities have those of a half's upper byte; the other ones' infinity is not a number.
            Float::E5M2 if !number.is_nan() => if number > 0.0 { "0x7C" } else { "0xFC" }.to_owned(),
            Float::E5M2 | Float::E4M3 => "0x7F".to_owned(),
            Float::E4M3Unsigned | Float::E5M2Unsigned => "0x80".to_owned(),
        };
    }
    let shortest = if ty == Float::F32 { format!("{:e}", number as f32) } else { format!("{number:e}") };
    match shortest.split_once('e') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0e{exponent}"),
        _ => shortest,
    }
}

/// A text in quotes; what is no plain character is written as two digits.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => quoted.push_str(&format!("\\{byte:02X}")),
            _ => quoted.push(byte.into()),
        }
    }
    quoted + "\""
}

/// A function's name as MLIR writes it: in quotes where it has other signs than a word, as that of a function within a function.
pub fn symbol(name: &str) -> String {
    let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.'));
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if is_word && begins { format!("@{name}") } else { format!("@{}", quoted(name)) }
}

impl Display for Attribute {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let list = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Attribute::Unit => f.write_str("unit"),
            Attribute::Truth(truth) => write!(f, "{truth}"),
            Attribute::Integer(integer) => write!(f, "{integer} : i32"),
            Attribute::Text(text) => f.write_str(&quoted(text)),
            Attribute::Word(word) => f.write_str(word),
            Attribute::Symbol(name) => f.write_str(&symbol(name)),
            Attribute::Array(numbers) if numbers.is_empty() => f.write_str("array<i32>"),
            Attribute::Array(numbers) => write!(f, "array<i32: {}>", list(numbers)),
            Attribute::Dense(numbers) if numbers.iter().all(|number| *number == numbers[0]) => {
                let first = numbers.first().copied().unwrap_or(0);
                write!(f, "dense<{first}> : tensor<{}xi32>", numbers.len())
            }
            Attribute::Dense(numbers) => write!(f, "dense<[{}]> : tensor<{}xi32>", list(numbers), numbers.len()),
            Attribute::Number(Number::Integer(integer)) => write!(f, "{integer}"),
            Attribute::Number(Number::Float(float)) => write!(f, "{float:e}"),
            Attribute::Type(ty) => write!(f, "{ty}"),
            Attribute::Written(text) => f.write_str(text),
        }
    }
}

/// An attribute with its name.
pub fn named(name: &str, value: Attribute) -> (String, Attribute) {
    (name.to_owned(), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_read_back_to_the_same_number() {
        let float = |ty| Type::Float(ty);
        for (number, ty, expected) in [
            (Number::Float(1e-5), float(Float::F32), "1.0e-5"),
            (Number::Float(-0.0), float(Float::F32), "-0.0e0"),
            (Number::Float(0.1), float(Float::F64), "1.0e-1"),
            (Number::Float(0.1), float(Float::F32), "1.0e-1"),
            (Number::Float(0.1), float(Float::F16), "9.99755859375e-2"),
            (Number::Float(f64::INFINITY), float(Float::F32), "0x7F800000"),
            (Number::Float(f64::NEG_INFINITY), float(Float::F16), "0xFC00"),
            (Number::Float(1e39), float(Float::F32), "0x7F800000"),
            (Number::Integer(-1), Type::TRUTH, "true"),
            (Number::Integer(0xffff_ffff), Type::I32, "-1"),
            (Number::Integer(200), Type::Integer(8), "-56"),
        ] {
            assert_eq!(number.literal(&ty), expected);
        }
        assert_eq!(quoted("a \"b\"\n"), r#""a \22b\22\0A""#);
    }
}
