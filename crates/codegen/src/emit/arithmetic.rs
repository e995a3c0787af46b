//! Operations on numbers as expressions. Operands are names or literals; integers are held without sign, half types as float.

use super::{Emitter, Result};
use crate::dialect::Dialect;
use openmps_tile::{Binary, Cast, Compare, Instruction, Number, Operation, Scalar, Unary};

impl Emitter<'_> {
    /// An elementwise operation on operands that are names or literals.
    pub(super) fn arithmetic(&mut self, instruction: &Instruction, x: &[String]) -> Result<String> {
        let scalar = self.number(instruction.operands[0]);
        match (&instruction.operation, x) {
            (Operation::Unary(unary), [x]) => self.unary(*unary, scalar, x),
            (Operation::Binary(binary), [x, y]) => self.binary(*binary, scalar, x, y),
            (Operation::Compare(compare), [x, y]) => Ok(self.compare(*compare, scalar, x, y)),
            (Operation::Select, [condition, x, y]) => Ok(format!("{condition} ? {x} : {y}")),
            (Operation::Cast(cast), [x]) => self.cast(*cast, scalar, self.number(instruction.results[0]), x),
            (Operation::AddPointer, [pointer, offset]) => {
                let signed = self.target.dialect.signed(self.number(instruction.operands[1]));
                Ok(format!("{pointer} + {signed}({offset})"))
            }
            (Operation::MultiplyAdd, [x, y, z]) => Ok(self.rounded(scalar, format!("fma({x}, {y}, {z})"))),
            (Operation::IntegerToPointer, [x]) => {
                Ok(format!("({}){x}", self.register_type(self.type_of(instruction.results[0]))))
            }
            (Operation::PointerToInteger, [x]) => Ok(format!("(ulong){x}")),
            (operation, _) => Err(self.unsupported(operation.name())),
        }
    }

    /// A constant in a register.
    pub(super) fn literal(&self, number: Number, scalar: Scalar) -> String {
        let value = match number {
            Number::Integer(x) if scalar.is_float() => x as f64,
            Number::Float(x) => x,
            Number::Integer(x) => {
                return match scalar {
                    Scalar::I1 => (x != 0).to_string(),
                    Scalar::I8 => format!("uchar({})", x as u8),
                    Scalar::I16 => format!("ushort({})", x as u16),
                    Scalar::I64 => format!("ulong({}ul)", x as u64),
                    _ => format!("{}u", x as u32),
                };
            }
        };
        match scalar {
            Scalar::F64 => double_literal(value),
            Scalar::F16 => self.single_literal(openmps_tile::f16::from_f64(value).to_f32()),
            Scalar::BF16 => self.single_literal(openmps_tile::bf16::from_f64(value).to_f32()),
            _ => self.single_literal(value as f32),
        }
    }

    fn single_literal(&self, x: f32) -> String {
        if x.is_finite() {
            return format!("{x:?}f");
        }
        self.target.dialect.bits(Scalar::I32, Scalar::F32, &format!("0x{:x}u", x.to_bits()))
    }

    /// The result rounded to a half type, where it is one.
    fn rounded(&self, scalar: Scalar, text: String) -> String {
        match scalar {
            Scalar::F16 | Scalar::BF16 => self.target.dialect.widen(scalar, &self.target.dialect.narrow(scalar, &text)),
            _ => text,
        }
    }

    /// An integer as a signed number of its width.
    fn signed(&self, scalar: Scalar, x: &str) -> String {
        format!("{}({x})", self.target.dialect.signed(scalar))
    }

    /// An integer result brought to its width: C computes narrow ones in int.
    fn wrapped(&self, scalar: Scalar, text: String) -> String {
        match scalar {
            Scalar::I8 | Scalar::I16 => format!("{}({text})", self.target.dialect.register(scalar)),
            _ => text,
        }
    }

    /// A function of the language, or one of ours where it has none or an inexact one.
    pub(super) fn function(&mut self, name: &'static str, arguments: &str) -> String {
        if crate::helpers::exists(name) {
            self.helpers.insert(name);
            return format!("{name}({arguments})");
        }
        format!("{}{name}({arguments})", self.keywords().precise)
    }

    /// The value of the thread whose index differs by exclusive or with `mask`, in the same simdgroup.
    pub(super) fn shuffle_xor(&mut self, scalar: Scalar, x: &str, mask: usize) -> String {
        if scalar == Scalar::I64 && self.target.dialect == Dialect::Metal {
            return self.function("simd_shuffle_xor_64", &format!("{x}, {mask}"));
        }
        self.target.dialect.shuffle_xor(scalar, x, mask)
    }

    pub(super) fn unary(&mut self, unary: Unary, scalar: Scalar, x: &str) -> Result<String> {
        if !scalar.is_float() {
            let signed = self.signed(scalar, x);
            return match (unary, scalar) {
                (Unary::Not, Scalar::I1) => Ok(format!("!{x}")),
                (Unary::Not, _) => Ok(self.wrapped(scalar, format!("~{x}"))),
                (Unary::Negate, _) => Ok(self.wrapped(scalar, format!("0 - {x}"))),
                (Unary::Absolute, _) => Ok(self.wrapped(scalar, format!("{signed} < 0 ? 0 - {x} : {x}"))),
                _ => Err(self.unsupported(format!("{} of {}", unary.text(), scalar.name()))),
            };
        }
        let name = match unary {
            Unary::Negate => return Ok(format!("-({x})")),
            Unary::Not => return Err(self.unsupported("not of floats")),
            Unary::Erf if scalar == Scalar::F64 => return Ok(format!("erf({x})")),
            Unary::Expm1 if scalar == Scalar::F64 => return Ok(format!("expm1({x})")),
            Unary::Log1p if scalar == Scalar::F64 => return Ok(format!("log1p({x})")),
            Unary::Rsqrt if scalar == Scalar::F64 => return Ok(format!("1.0 / sqrt({x})")),
            Unary::Absolute => "fabs",
            Unary::Exp => "exp",
            Unary::Exp2 => "exp2",
            Unary::Expm1 => "exponential_minus_1",
            Unary::Log => "log",
            Unary::Log2 => "log2",
            Unary::Log1p => "logarithm_of_1_plus",
            Unary::Sqrt => "sqrt",
            Unary::Rsqrt => "rsqrt",
            Unary::Sin => "sin",
            Unary::Cos => "cos",
            Unary::Tan => "tan",
            Unary::Asin => "asin",
            Unary::Acos => "acos",
            Unary::Atan => "atan",
            Unary::Sinh => "sinh",
            Unary::Cosh => "cosh",
            Unary::Tanh => "tanh",
            Unary::Erf => "error_function",
            Unary::Floor => "floor",
            Unary::Ceil => "ceil",
            Unary::Round => "rint",
            Unary::Truncate => "trunc",
        };
        let text = self.function(name, x);
        Ok(self.rounded(scalar, text))
    }

    pub(super) fn binary(&mut self, binary: Binary, scalar: Scalar, x: &str, y: &str) -> Result<String> {
        if scalar.is_float() {
            let text = self.binary_float(binary, x, y)?;
            return Ok(self.rounded(scalar, text));
        }
        if scalar == Scalar::I1 {
            return match binary {
                Binary::And => Ok(format!("({x} && {y})")),
                Binary::Or => Ok(format!("({x} || {y})")),
                Binary::Xor => Ok(format!("({x} != {y})")),
                _ => Err(self.unsupported(format!("{} of i1", binary.text()))),
            };
        }
        let text = self.binary_integer(binary, scalar, x, y)?;
        Ok(self.wrapped(scalar, text))
    }

    fn binary_float(&mut self, binary: Binary, x: &str, y: &str) -> Result<String> {
        let both = format!("{x}, {y}");
        Ok(match binary {
            Binary::Add => format!("({x} + {y})"),
            Binary::Subtract => format!("({x} - {y})"),
            Binary::Multiply => format!("({x} * {y})"),
            Binary::Divide => format!("({x} / {y})"),
            Binary::Remainder => self.function("fmod", &both),
            Binary::Minimum => format!("({x} < {y} || {x} != {x} ? {x} : {y})"),
            Binary::Maximum => format!("({x} > {y} || {x} != {x} ? {x} : {y})"),
            // Without the prefix Metal may take the fast ones, which promise nothing about NaN.
            Binary::MinimumNumber => format!("{}fmin({both})", self.keywords().precise),
            Binary::MaximumNumber => format!("{}fmax({both})", self.keywords().precise),
            Binary::Power => self.function("pow", &both),
            Binary::Atan2 => self.function("atan2", &both),
            _ => return Err(self.unsupported(format!("{} of floats", binary.text()))),
        })
    }

    fn binary_integer(&mut self, binary: Binary, scalar: Scalar, x: &str, y: &str) -> Result<String> {
        let width = 8 * scalar.size();
        let (a, b) = (self.signed(scalar, x), self.signed(scalar, y));
        let register = self.target.dialect.register(scalar);
        Ok(match binary {
            Binary::Add => format!("({x} + {y})"),
            Binary::Subtract => format!("({x} - {y})"),
            Binary::Multiply if width == 16 => format!("(uint({x}) * uint({y}))"),
            Binary::Multiply => format!("({x} * {y})"),
            Binary::Divide if is_plain_divisor(y) => format!("{register}({a} / {b})"),
            Binary::Remainder if is_plain_divisor(y) => format!("{register}({a} % {b})"),
            Binary::DivideUnsigned if is_plain_divisor(y) => format!("({x} / {y})"),
            Binary::RemainderUnsigned if is_plain_divisor(y) => format!("({x} % {y})"),
            Binary::ShiftLeft if is_below(y, width) => format!("({x} << {y})"),
            Binary::ShiftRightUnsigned if is_below(y, width) => format!("({x} >> {y})"),
            Binary::ShiftRight if is_below(y, width) => format!("{register}({a} >> {y})"),
            Binary::Divide => format!("{register}({})", self.function("quotient", &format!("{a}, {b}"))),
            Binary::Remainder => format!("{register}({})", self.function("rest", &format!("{a}, {b}"))),
            Binary::DivideUnsigned => format!("({y} == 0 ? 0 : {x} / {y})"),
            Binary::RemainderUnsigned => format!("({y} == 0 ? 0 : {x} % {y})"),
            Binary::Minimum => format!("({a} < {b} ? {x} : {y})"),
            Binary::Maximum => format!("({a} > {b} ? {x} : {y})"),
            Binary::MinimumUnsigned => format!("({x} < {y} ? {x} : {y})"),
            Binary::MaximumUnsigned => format!("({x} > {y} ? {x} : {y})"),
            Binary::MultiplyHighUnsigned if width < 64 => {
                format!("{register}((ulong({x}) * ulong({y})) >> {width})")
            }
            Binary::MultiplyHighUnsigned => match self.target.dialect {
                Dialect::Metal => format!("mulhi({x}, {y})"),
                Dialect::Cuda => format!("__umul64hi({x}, {y})"),
            },
            Binary::And => format!("({x} & {y})"),
            Binary::Or => format!("({x} | {y})"),
            Binary::Xor => format!("({x} ^ {y})"),
            Binary::ShiftLeft => format!("({y} < {width} ? {register}({x} << {y}) : 0)"),
            Binary::ShiftRightUnsigned => format!("({y} < {width} ? {x} >> {y} : 0)"),
            Binary::ShiftRight => format!("{register}({a} >> ({y} < {width} ? {y} : {}))", width - 1),
            _ => return Err(self.unsupported(format!("{} of integers", binary.text()))),
        })
    }

    fn compare(&self, compare: Compare, scalar: Scalar, x: &str, y: &str) -> String {
        use Compare::*;
        let sign = match compare {
            Equal => "==",
            NotEqual => "!=",
            Less | LessUnsigned => "<",
            LessEqual | LessEqualUnsigned => "<=",
            Greater | GreaterUnsigned => ">",
            GreaterEqual | GreaterEqualUnsigned => ">=",
        };
        let is_signed = !scalar.is_float() && matches!(compare, Less | LessEqual | Greater | GreaterEqual);
        if is_signed {
            return format!("({} {sign} {})", self.signed(scalar, x), self.signed(scalar, y));
        }
        format!("({x} {sign} {y})")
    }

    fn cast(&mut self, cast: Cast, from: Scalar, to: Scalar, x: &str) -> Result<String> {
        let register = self.target.dialect.register(to);
        Ok(match cast {
            Cast::Signed if to == Scalar::I1 => format!("({x} & 1) != 0"),
            Cast::Signed if to.size() > from.size() => {
                format!("{register}({}({}))", self.target.dialect.signed(to), self.signed(from, x))
            }
            Cast::Signed | Cast::Unsigned => format!("{register}({x})"),
            Cast::SignedToFloat => self.rounded(to, format!("{register}({})", self.signed(from, x))),
            Cast::UnsignedToFloat => self.rounded(to, format!("{register}({x})")),
            Cast::FloatToSigned | Cast::FloatToUnsigned if to.size() < 4 => self.to_short(to, x),
            Cast::FloatToSigned => self.to_integer(to, x, true),
            Cast::FloatToUnsigned => self.to_integer(to, x, false),
            Cast::Float if from.size() < to.size() => format!("{register}({x})"),
            Cast::Float => self.rounded(to, format!("{register}({x})")),
            Cast::Bits => self.target.dialect.bits(from, to, x),
        })
    }

    /// The low bits of an int32, 0 of NaN and what that does not reach.
    fn to_short(&self, to: Scalar, x: &str) -> String {
        let dialect = self.target.dialect;
        let (register, integer) = (dialect.register(to), dialect.signed(Scalar::I32));
        format!("({x} > -2147483648.0f && {x} < 2147483648.0f ? {register}({integer}({x})) : {register}(0))")
    }

    /// Towards zero, saturating, NaN to 0: C leaves all but the first open.
    fn to_integer(&self, to: Scalar, x: &str, signed: bool) -> String {
        let register = self.target.dialect.register(to);
        let bits = 8 * to.size() as i32 - i32::from(signed);
        let high = format!("{:?}f", 2f32.powi(bits));
        let largest = self.literal(Number::Integer((u64::MAX >> (64 - bits)) as i64), to);
        if signed {
            let smallest = self.literal(Number::Integer(i64::MIN >> (63 - bits)), to);
            let inner = self.signed(to, x);
            return format!(
                "({x} >= {high} ? {largest} : {x} > -{high} ? {register}({inner}) : {x} <= -{high} ? {smallest} : {register}(0))"
            );
        }
        format!("({x} >= {high} ? {largest} : {x} > 0 ? {register}({x}) : {register}(0))")
    }
}

/// The number that a literal of an integer stands for.
fn literal_value(text: &str) -> Option<u64> {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let is_literal =
        !text.is_empty() && ["", "uchar(", "ushort(", "ulong("].contains(&&text[..text.len() - digits.len()]);
    is_literal.then(|| digits.trim_end_matches(['u', 'l', ')']).parse().ok()).flatten()
}

/// Whether a divisor is a literal that needs no special case: neither 0 nor -1 in any width.
fn is_plain_divisor(text: &str) -> bool {
    literal_value(text).is_some_and(|value| (1..=127).contains(&value) || value.is_power_of_two())
}

/// Whether a shift's distance is a literal below the width.
fn is_below(text: &str, width: usize) -> bool {
    literal_value(text).is_some_and(|value| value < width as u64)
}

fn double_literal(x: f64) -> String {
    if x.is_finite() { format!("{x:?}") } else { format!("__longlong_as_double(0x{:x}ull)", x.to_bits()) }
}
