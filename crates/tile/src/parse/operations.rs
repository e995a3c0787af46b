//! TTIR's operations of the plain form `name operands {attributes} : types`, and what each becomes.

use super::cursor::{Cursor, Read};
use super::function::{Names, named, type_list};
use super::types::ty;
use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Combine, Compare, Number, Operation, Unary, Value};
use crate::types::{Element, Scalar, Type};

/// The parts of a plain operation.
pub struct Simple<'t> {
    /// Words between the name and the types, such as a predicate.
    pub words: Vec<&'t str>,
    /// Operands.
    pub operands: Vec<Value>,
    /// The text of the attribute dictionary.
    pub attributes: &'t str,
    /// Types after the colon, in order.
    pub types: Vec<Type>,
}

impl<'t> Simple<'t> {
    /// Reads from behind the name to behind the location.
    pub fn read(cursor: &mut Cursor<'t>, names: &Names) -> Read<Simple<'t>> {
        let mut simple = Simple { words: Vec::new(), operands: Vec::new(), attributes: "", types: Vec::new() };
        while !cursor.take(":") {
            if cursor.looking_at("%") {
                simple.operands.push(named(cursor, names)?);
            } else if cursor.looking_at("{") {
                simple.attributes = cursor.attributes()?;
            } else if cursor.looking_at("loc(") {
                cursor.skip_location()?;
                return Ok(simple);
            } else if !(cursor.take(",") || cursor.take("=")) {
                let word = cursor.word();
                if word.is_empty() {
                    return Err(cursor.error(format!("{}, expected an operand", cursor.found())));
                }
                simple.words.push(word);
            }
        }
        if cursor.looking_at("(") {
            simple.types.extend(type_list(cursor)?);
            cursor.expect("->")?;
        }
        loop {
            simple.types.push(ty(cursor)?);
            if !(cursor.take(",") || cursor.take("->") || cursor.take("to") || cursor.take("*")) {
                break;
            }
        }
        cursor.skip_location()?;
        Ok(simple)
    }
}

/// The integer of `name = 1 : i32` in an attribute dictionary.
pub fn attribute(attributes: &str, name: &str) -> Option<i64> {
    let entry =
        attributes.split(',').find_map(|entry| entry.trim().strip_prefix(name)?.trim_start().strip_prefix('='))?;
    entry.split(':').next()?.trim().parse().ok()
}

/// `arith.constant`: a number or truth value, alone or in every element.
pub fn constant(cursor: &mut Cursor, b: &mut Builder) -> Read<Value> {
    let dense = cursor.take("dense<");
    if cursor.looking_at("[") {
        return Err(cursor.refuse("arith.constant", "a tile of different numbers"));
    }
    let text = cursor.number();
    if dense {
        cursor.expect(">")?;
    }
    // A single truth value is printed without its type.
    let ty = if cursor.take(":") { ty(cursor)? } else { Type::scalar(Scalar::I1) };
    let Element::Scalar(scalar) = ty.element else {
        return Err(cursor.refuse("arith.constant", "an address"));
    };
    let number = literal(text, scalar).ok_or_else(|| cursor.error(format!("`{text}` is no {}", scalar.name())))?;
    cursor.skip_location()?;
    Ok(b.emit(Operation::Constant(number), &[], ty))
}

/// A literal; of floats also the bits, as MLIR prints what has no short decimal form.
fn literal(text: &str, scalar: Scalar) -> Option<Number> {
    if !scalar.is_float() {
        return match text {
            "true" => Some(Number::Integer(1)),
            "false" => Some(Number::Integer(0)),
            _ => text.parse().ok().map(Number::Integer),
        };
    }
    let Some(bits) = text.strip_prefix("0x") else { return text.parse().ok().map(Number::Float) };
    let bits = u64::from_str_radix(bits, 16).ok()?;
    Some(Number::Float(match scalar {
        Scalar::F16 => crate::f16::from_bits(u16::try_from(bits).ok()?).to_f64(),
        Scalar::BF16 => crate::bf16::from_bits(u16::try_from(bits).ok()?).to_f64(),
        Scalar::F32 => f32::from_bits(u32::try_from(bits).ok()?).into(),
        _ => f64::from_bits(bits),
    }))
}

/// The combination that an operation on two numbers makes.
pub fn combine(operation: &str) -> Option<Combine> {
    Some(match operation {
        "arith.addf" | "arith.addi" => Combine::Sum,
        "arith.mulf" | "arith.muli" => Combine::Product,
        "arith.maximumf" | "arith.maxsi" => Combine::Maximum,
        "arith.minimumf" | "arith.minsi" => Combine::Minimum,
        "arith.maxnumf" => Combine::MaximumNumber,
        "arith.minnumf" => Combine::MinimumNumber,
        "arith.andi" => Combine::And,
        "arith.ori" => Combine::Or,
        _ => return None,
    })
}

fn binary(operation: &str) -> Option<Binary> {
    Some(match operation {
        "arith.addi" | "arith.addf" => Binary::Add,
        "arith.subi" | "arith.subf" => Binary::Subtract,
        "arith.muli" | "arith.mulf" => Binary::Multiply,
        "arith.divsi" | "arith.divf" | "tt.precise_divf" => Binary::Divide,
        "arith.divui" => Binary::DivideUnsigned,
        "arith.remsi" | "arith.remf" => Binary::Remainder,
        "arith.remui" => Binary::RemainderUnsigned,
        "arith.minsi" | "arith.minimumf" => Binary::Minimum,
        "arith.maxsi" | "arith.maximumf" => Binary::Maximum,
        "arith.minnumf" => Binary::MinimumNumber,
        "arith.maxnumf" => Binary::MaximumNumber,
        "arith.minui" => Binary::MinimumUnsigned,
        "arith.maxui" => Binary::MaximumUnsigned,
        "arith.andi" => Binary::And,
        "arith.ori" => Binary::Or,
        "arith.xori" => Binary::Xor,
        "arith.shli" => Binary::ShiftLeft,
        "arith.shrsi" => Binary::ShiftRight,
        "arith.shrui" => Binary::ShiftRightUnsigned,
        "math.powf" => Binary::Power,
        "math.atan2" => Binary::Atan2,
        _ => return None,
    })
}

fn unary(operation: &str) -> Option<Unary> {
    Some(match operation {
        "arith.negf" => Unary::Negate,
        "math.absf" | "math.absi" => Unary::Absolute,
        "tt.precise_sqrt" => Unary::Sqrt,
        _ => {
            return Unary::ALL
                .iter()
                .copied()
                .find(|unary| unary.text() == operation && operation.starts_with("math."));
        }
    })
}

fn cast(operation: &str) -> Option<Cast> {
    Some(match operation {
        "arith.extsi" | "arith.trunci" => Cast::Signed,
        "arith.extui" => Cast::Unsigned,
        "arith.sitofp" => Cast::SignedToFloat,
        "arith.uitofp" => Cast::UnsignedToFloat,
        "arith.fptosi" => Cast::FloatToSigned,
        "arith.fptoui" => Cast::FloatToUnsigned,
        "arith.extf" | "arith.truncf" => Cast::Float,
        "arith.bitcast" | "tt.bitcast" => Cast::Bits,
        _ => return None,
    })
}

/// Adds what an operation stands for; its result, or why it is refused.
pub fn lower(operation: &str, simple: &Simple, b: &mut Builder) -> Result<Option<Value>, String> {
    let of = &simple.operands[..];
    let result = simple.types.last().cloned();
    let axis = |word: Option<&&str>| -> Result<u8, String> {
        let axes = ["x", "y", "z"];
        let found = word.and_then(|word| axes.iter().position(|axis| axis == word));
        found.map(|axis| axis as u8).ok_or_else(|| "an axis of the grid is x, y or z".to_owned())
    };
    if let (Some(binary), &[x, y]) = (binary(operation), of) {
        return Ok(Some(b.binary(binary, x, y)));
    }
    if let (Some(unary), &[x]) = (unary(operation), of) {
        return Ok(Some(b.unary(unary, x)));
    }
    if let (Some(cast), &[x], Some(to)) = (cast(operation), of, &result) {
        return convert(b, operation, cast, x, to).map(Some);
    }
    let value = match (operation, of) {
        ("tt.get_program_id", []) => {
            let axis = axis(simple.words.first())?;
            b.emit(Operation::ProgramId(axis), &[], Type::scalar(Scalar::I32))
        }
        ("tt.get_num_programs", []) => {
            let axis = axis(simple.words.first())?;
            b.emit(Operation::ProgramCount(axis), &[], Type::scalar(Scalar::I32))
        }
        ("tt.make_range", []) => {
            let start = attribute(simple.attributes, "start").unwrap_or(0);
            let start = i32::try_from(start).map_err(|_| format!("a range from {start}"))?;
            b.emit(Operation::Range { start }, &[], result.ok_or("no type")?)
        }
        ("tt.splat", &[x]) => b.emit(Operation::Splat, &[x], result.ok_or("no type")?),
        ("tt.broadcast", &[x]) => b.emit(Operation::Broadcast, &[x], result.ok_or("no type")?),
        ("tt.reshape", &[x]) => b.emit(Operation::Reshape, &[x], result.ok_or("no type")?),
        ("tt.expand_dims", &[x]) => {
            let axis = attribute(simple.attributes, "axis").and_then(|axis| usize::try_from(axis).ok());
            b.emit(Operation::ExpandDims { axis: axis.ok_or("no axis")? }, &[x], result.ok_or("no type")?)
        }
        ("tt.addptr", &[pointer, offset]) => b.add_pointer(pointer, offset),
        ("tt.load", &[pointer]) => b.load(pointer, None, None),
        ("tt.load", &[pointer, mask]) => b.load(pointer, Some(mask), None),
        ("tt.load", &[pointer, mask, other]) => b.load(pointer, Some(mask), Some(other)),
        ("tt.store", &[pointer, value]) => {
            b.store(pointer, value, None);
            return Ok(None);
        }
        ("tt.store", &[pointer, value, mask]) => {
            b.store(pointer, value, Some(mask));
            return Ok(None);
        }
        ("arith.cmpi", &[x, y]) => b.compare(integer_comparison(simple.words.first())?, x, y),
        ("arith.cmpf", &[x, y]) => float_comparison(b, simple.words.first(), x, y)?,
        ("arith.select", &[condition, x, y]) => {
            let dims = b.type_of(x).dims.clone();
            let splat = b.type_of(condition).is_scalar() && !dims.is_empty();
            let condition = if splat { b.splat(condition, &dims) } else { condition };
            b.select(condition, x, y)
        }
        ("tt.dot", &[x, y, sum]) => b.dot(x, y, sum),
        ("tt.mulhiui", &[x, y]) => high_product(b, x, y)?,
        // A hint to optimisers.
        ("llvm.intr.assume", _) => return Ok(None),
        _ => return Err("not covered".to_owned()),
    };
    Ok(Some(value))
}

fn convert(b: &mut Builder, operation: &str, cast: Cast, x: Value, to: &Type) -> Result<Value, String> {
    let (Some(from), Some(to)) = (b.type_of(x).number(), to.number()) else {
        return Err("a conversion of addresses".to_owned());
    };
    // A true i1 with a sign is -1.
    if from == Scalar::I1 && matches!(operation, "arith.extsi" | "arith.sitofp") {
        let whole = if to.is_float() { Scalar::I32 } else { to };
        let one = b.cast(Cast::Unsigned, x, whole);
        let minus = b.unary(Unary::Negate, one);
        return Ok(if to.is_float() { b.cast(Cast::SignedToFloat, minus, to) } else { minus });
    }
    Ok(if from == to { x } else { b.cast(cast, x, to) })
}

fn integer_comparison(predicate: Option<&&str>) -> Result<Compare, String> {
    Ok(match predicate.copied().unwrap_or_default() {
        "eq" => Compare::Equal,
        "ne" => Compare::NotEqual,
        "slt" => Compare::Less,
        "sle" => Compare::LessEqual,
        "sgt" => Compare::Greater,
        "sge" => Compare::GreaterEqual,
        "ult" => Compare::LessUnsigned,
        "ule" => Compare::LessEqualUnsigned,
        "ugt" => Compare::GreaterUnsigned,
        "uge" => Compare::GreaterEqualUnsigned,
        other => return Err(format!("the predicate `{other}`")),
    })
}

/// Ordered comparisons are false with NaN; each unordered one is the negation of an ordered one.
fn float_comparison(b: &mut Builder, predicate: Option<&&str>, x: Value, y: Value) -> Result<Value, String> {
    let negated = |b: &mut Builder, comparison| {
        let ordered = b.compare(comparison, x, y);
        b.unary(Unary::Not, ordered)
    };
    let either = |b: &mut Builder| {
        let (less, greater) = (b.compare(Compare::Less, x, y), b.compare(Compare::Greater, x, y));
        b.binary(Binary::Or, less, greater)
    };
    let is_nan = |b: &mut Builder| {
        let (first, second) = (b.compare(Compare::NotEqual, x, x), b.compare(Compare::NotEqual, y, y));
        b.binary(Binary::Or, first, second)
    };
    Ok(match predicate.copied().unwrap_or_default() {
        "oeq" => b.compare(Compare::Equal, x, y),
        "olt" => b.compare(Compare::Less, x, y),
        "ole" => b.compare(Compare::LessEqual, x, y),
        "ogt" => b.compare(Compare::Greater, x, y),
        "oge" => b.compare(Compare::GreaterEqual, x, y),
        "une" => b.compare(Compare::NotEqual, x, y),
        "one" => either(b),
        "ueq" => {
            let either = either(b);
            b.unary(Unary::Not, either)
        }
        "ult" => negated(b, Compare::GreaterEqual),
        "ule" => negated(b, Compare::Greater),
        "ugt" => negated(b, Compare::LessEqual),
        "uge" => negated(b, Compare::Less),
        "uno" => is_nan(b),
        "ord" => {
            let unordered = is_nan(b);
            b.unary(Unary::Not, unordered)
        }
        other => return Err(format!("the predicate `{other}`")),
    })
}

/// The upper half of an unsigned product: of 32 bits, by way of 64.
fn high_product(b: &mut Builder, x: Value, y: Value) -> Result<Value, String> {
    if b.type_of(x).number() != Some(Scalar::I32) {
        return Err(format!("of {}; 32 bits are covered", b.type_of(x)));
    }
    let [x, y] = [x, y].map(|value| b.cast(Cast::Unsigned, value, Scalar::I64));
    let product = b.binary(Binary::Multiply, x, y);
    let distance = b.constant_like(32.0, product);
    let high = b.binary(Binary::ShiftRightUnsigned, product, distance);
    Ok(b.cast(Cast::Signed, high, Scalar::I32))
}
