//! One instruction of PTX: what it reads, what it makes of it, and where that goes.

use super::registers::{Registers, scalar};
use super::{bits, compare, convert, joined, parted};
use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Operation, Unary, Value};
use crate::parse::small::{masked, shifted};
use crate::types::{Scalar, Type};

/// Does an instruction.
pub(super) fn execute(instruction: &str, registers: &mut Registers, b: &mut Builder) -> Result<(), String> {
    let (guard, instruction) = match instruction.strip_prefix('@').and_then(|rest| rest.split_once(char::is_whitespace))
    {
        Some((guard, rest)) => (Some(guard), rest.trim_start()),
        None => (None, instruction),
    };
    let (name, rest) = instruction.split_once(char::is_whitespace).unwrap_or((instruction, ""));
    let mut words = name.split('.');
    let kind = words.next().unwrap_or_default();
    if has_only_an_effect(kind, guard.is_some(), registers, b)? {
        return Ok(());
    }
    let words: Vec<&str> = words.collect();
    let names = arguments(rest);
    let [to, names @ ..] = &names[..] else { return Err("no register to write".to_owned()) };
    let condition = guard.map(|guard| condition(guard, registers, b)).transpose()?;
    let results = computed(kind, &words, names, registers, b)?.ok_or("not covered")?;
    let targets: Vec<&str> = if to.starts_with('{') { vec![to] } else { to.split('|').map(str::trim).collect() };
    if targets.len() != results.len() {
        return Err("not covered".to_owned());
    }
    targets.into_iter().zip(results).try_for_each(|(to, value)| registers.write(to, value, condition, b))
}

/// Declarations, barriers, and launches that overlap, which they do not here.
fn has_only_an_effect(
    kind: &str,
    is_guarded: bool,
    registers: &mut Registers,
    b: &mut Builder,
) -> Result<bool, String> {
    match kind {
        "" => {}
        "griddepcontrol" => registers.has_effect = true,
        "bar" | "barrier" | "membar" | "fence" if is_guarded => return Err("a barrier for some elements".to_owned()),
        "bar" | "barrier" | "membar" | "fence" => {
            registers.has_effect = true;
            b.emit_with_blocks(Operation::Barrier, &[], &[], Vec::new());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// What stands between commas that are in no braces.
fn arguments(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// `p` or `!p`.
fn condition(guard: &str, registers: &Registers, b: &mut Builder) -> Result<Value, String> {
    match guard.strip_prefix('!') {
        Some(name) => {
            let holds = registers.value(name, Scalar::I1, b)?;
            Ok(b.unary(Unary::Not, holds))
        }
        None => registers.value(guard, Scalar::I1, b),
    }
}

type Computed = Result<Option<Vec<Value>>, String>;

/// An instruction's results; none where it is not known.
fn computed(kind: &str, words: &[&str], names: &[&str], registers: &Registers, b: &mut Builder) -> Computed {
    if kind == "cvt" {
        return Ok(convert::converted(words, names, registers, b)?.map(|value| vec![value]));
    }
    if let Some((half, whole)) = words.last().and_then(|word| pair(word)) {
        return of_pairs(kind, words, half, whole, names, registers, b);
    }
    let Some(scalar) = words.iter().rev().find_map(|word| scalar(word)) else { return Ok(None) };
    if let ("mov", &[name]) = (kind, names) {
        return moved(name, scalar, registers, b).map(|value| Some(vec![value]));
    }
    let values =
        names.iter().enumerate().map(|(i, name)| registers.value(name, operand_type(kind, words, scalar, i), b));
    let values = values.collect::<Result<Vec<Value>, String>>()?;
    Ok(match (kind, &values[..]) {
        ("setp", _) => compare::compared(words, &values, b),
        ("selp", &[x, y, condition]) if words.len() == 1 => Some(vec![b.select(condition, x, y)]),
        _ => operation(kind, words, &values, b).map(|value| vec![value]),
    })
}

/// Two numbers in a register: the type of each, and the integer that both are in.
fn pair(word: &str) -> Option<(Scalar, Scalar)> {
    let half = scalar(word.strip_suffix("x2")?)?;
    Some((half, if half.size() == 4 { Scalar::I64 } else { Scalar::I32 }))
}

/// An instruction on two numbers in each register.
fn of_pairs(
    kind: &str,
    words: &[&str],
    half: Scalar,
    whole: Scalar,
    names: &[&str],
    registers: &Registers,
    b: &mut Builder,
) -> Computed {
    let element = Type::scalar(half);
    let mut sides = [Vec::new(), Vec::new()];
    for name in names {
        let both = registers.value(name, whole, b)?;
        let parts = parted(b, both, &element, 2);
        sides.iter_mut().zip(parts).for_each(|(side, part)| side.push(part));
    }
    let words: Vec<&str> = words.iter().map(|word| word.strip_suffix("x2").unwrap_or(word)).collect();
    let mut results = Vec::new();
    for values in &sides {
        let result = match kind {
            "setp" => compare::compared(&words, values, b).and_then(|results| results.first().copied()),
            _ => operation(kind, &words, values, b),
        };
        let Some(result) = result else { return Ok(None) };
        results.push(result);
    }
    Ok(Some(if kind == "setp" { results } else { vec![joined(b, &results)] }))
}

/// Moves are of bits, whatever they stand for; or of a program's place in the grid.
fn moved(name: &str, scalar: Scalar, registers: &Registers, b: &mut Builder) -> Result<Value, String> {
    if let Some(held) = registers.held(name).filter(|&held| b.scalar_of(held).size() == scalar.size()) {
        return Ok(held);
    }
    let of_grid = name.strip_prefix('%').and_then(|name| name.split_once('.'));
    let operation = of_grid.and_then(|(register, axis)| {
        let axis = ["x", "y", "z"].iter().position(|&name| name == axis)? as u8;
        match register {
            "ctaid" => Some(Operation::ProgramId(axis)),
            "nctaid" => Some(Operation::ProgramCount(axis)),
            _ => None,
        }
    });
    let Some(operation) = operation else { return registers.value(name, scalar, b) };
    let number = b.emit(operation, &[], Type::scalar(Scalar::I32));
    let dims = registers.shaped(scalar, b)?.dims;
    Ok(if dims.is_empty() { number } else { b.splat(number, &dims) })
}

/// The type of an instruction's operand, which for some is not the one that it names.
fn operand_type(kind: &str, words: &[&str], scalar: Scalar, operand: usize) -> Scalar {
    match (kind, operand) {
        ("selp", 2) => Scalar::I1,
        ("setp", 2) => Scalar::I1,
        ("shl" | "shr", 1) | ("bfe", 1 | 2) | ("bfi", 2 | 3) => Scalar::I32,
        ("mad", 2) if words.contains(&"wide") => wider(scalar),
        _ => scalar,
    }
}

fn wider(scalar: Scalar) -> Scalar {
    if scalar == Scalar::I16 { Scalar::I32 } else { Scalar::I64 }
}

/// What an instruction makes of its operands; none where it is not known.
fn operation(kind: &str, words: &[&str], values: &[Value], b: &mut Builder) -> Option<Value> {
    let bounded = |word: &str| word == "sat" || word == "relu";
    let bounds = words.iter().find(|word| bounded(word)).filter(|_| matches!(kind, "add" | "sub" | "mul" | "fma"));
    let Some(&bounds) = bounds else { return unbounded(kind, words, values, b) };
    let others: Vec<&str> = words.iter().copied().filter(|word| !bounded(word)).collect();
    let value = unbounded(kind, &others, values, b)?;
    let is_float = b.type_of(value).number()?.is_float();
    is_float.then(|| if bounds == "sat" { convert::within_one(value, b) } else { convert::not_below_zero(value, b) })
}

/// As [`operation`], of instructions that do not saturate.
fn unbounded(kind: &str, words: &[&str], values: &[Value], b: &mut Builder) -> Option<Value> {
    if let Some(value) = of_bits(kind, words, values, b).or_else(|| of_two_sizes(kind, words, values, b)) {
        return Some(value);
    }
    let is_float = b.type_of(*values.first()?).number()?.is_float();
    let is_unsigned = words.iter().any(|word| word.starts_with('u'));
    let modifies = |word: &str| words.contains(&word);
    // Rounding to nearest is ours, approximations are computed exactly.
    let plain = |word: &&str| scalar(word).is_some() || ["rn", "approx", "full", "ftz", "lo", "NaN"].contains(word);
    if !words.iter().all(plain) {
        return None;
    }
    let unary = match kind {
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
        ("div", false) => Some(if is_unsigned { Binary::DivideUnsigned } else { Binary::Divide }),
        ("rem", false) => Some(if is_unsigned { Binary::RemainderUnsigned } else { Binary::Remainder }),
        ("min", true) if modifies("NaN") => Some(Binary::Minimum),
        ("max", true) if modifies("NaN") => Some(Binary::Maximum),
        ("min", true) => Some(Binary::MinimumNumber),
        ("max", true) => Some(Binary::MaximumNumber),
        ("min", false) => Some(if is_unsigned { Binary::MinimumUnsigned } else { Binary::Minimum }),
        ("max", false) => Some(if is_unsigned { Binary::MaximumUnsigned } else { Binary::Maximum }),
        ("and", false) => Some(Binary::And),
        ("or", false) => Some(Binary::Or),
        ("xor", false) => Some(Binary::Xor),
        _ => None,
    };
    Some(match (kind, unary, binary, values) {
        (_, Some(unary), _, &[x]) => b.unary(unary, x),
        (_, _, Some(binary), &[x, y]) => b.binary(binary, x, y),
        ("rcp", _, _, &[x]) if is_float => {
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

/// Instructions on bits.
fn of_bits(kind: &str, words: &[&str], values: &[Value], b: &mut Builder) -> Option<Value> {
    Some(match (kind, words, values) {
        ("prmt", ["b32"], &[x, y, selector]) => bits::permuted(b, [x, y, selector]),
        ("lop3", ["b32"], &[x, y, z, table]) => {
            let table = b.known(table)?;
            bits::looked_up(b, x, &[y, z], table as u32 & 0xff)
        }
        ("shf", [side @ ("l" | "r"), mode @ ("wrap" | "clamp"), "b32"], &[low, high, distance]) => {
            bits::funnel(b, *side == "l", *mode == "wrap", [low, high, distance])
        }
        ("bfe", ["u32"], &[x, place, length]) => bits::field(b, [x, place, length]),
        ("bfi", ["b32"], &[x, into, place, length]) => bits::inserted(b, [x, into, place, length]),
        ("popc", ["b32"], &[x]) => bits::population(b, x),
        ("brev", ["b32"], &[x]) => bits::reversed(b, x),
        ("clz", ["b32"], &[x]) => bits::leading_zeros(b, x),
        ("shl", [_], &[x, distance]) => moved_bits(b, Binary::ShiftLeft, x, distance),
        ("shr", ["s16" | "s32" | "s64"], &[x, distance]) => moved_bits(b, Binary::ShiftRight, x, distance),
        ("shr", [_], &[x, distance]) => moved_bits(b, Binary::ShiftRightUnsigned, x, distance),
        _ => return None,
    })
}

/// A shift, whose distance has 32 bits whatever it moves.
fn moved_bits(b: &mut Builder, direction: Binary, x: Value, distance: Value) -> Value {
    let scalar = b.scalar_of(x);
    let distance = if scalar.size() < 4 {
        let most = b.constant_like(31.0, distance);
        b.binary(Binary::MinimumUnsigned, distance, most)
    } else {
        distance
    };
    let cast = if scalar.size() > 4 { Cast::Unsigned } else { Cast::Signed };
    let distance = b.cast(cast, distance, scalar);
    b.binary(direction, x, distance)
}

/// Products of integers whose result has another size than its factors, or is another part of it.
fn of_two_sizes(kind: &str, words: &[&str], values: &[Value], b: &mut Builder) -> Option<Value> {
    let [part, ty] = words else { return None };
    let (&[x, y], rest) = values.split_first_chunk::<2>()?;
    let (scalar, is_signed) = (scalar(ty)?, ty.starts_with('s'));
    let extend = if is_signed { Cast::Signed } else { Cast::Unsigned };
    let wide = |b: &mut Builder| {
        let [x, y] = [x, y].map(|x| b.cast(extend, x, wider(scalar)));
        b.binary(Binary::Multiply, x, y)
    };
    let product = match (kind, *part) {
        ("mul" | "mad", "wide") if scalar.size() <= 4 => wide(b),
        ("mul", "hi") if scalar.size() < 4 || is_signed && scalar == Scalar::I32 => {
            let product = wide(b);
            let high = shifted(b, Binary::ShiftRightUnsigned, product, 8 * scalar.size() as i64);
            b.cast(Cast::Signed, high, scalar)
        }
        ("mul", "hi") if !is_signed => b.binary(Binary::MultiplyHighUnsigned, x, y),
        ("mul24" | "mad24", "lo") if scalar == Scalar::I32 => {
            let [x, y] = [x, y].map(|x| low_24(b, x, is_signed));
            b.binary(Binary::Multiply, x, y)
        }
        _ => return None,
    };
    match (kind.starts_with("mad"), rest) {
        (false, []) => Some(product),
        (true, &[sum]) => Some(b.binary(Binary::Add, product, sum)),
        _ => None,
    }
}

/// The low 24 bits of an integer, as a number with a sign or without.
fn low_24(b: &mut Builder, x: Value, is_signed: bool) -> Value {
    if !is_signed {
        return masked(b, x, 0xff_ffff);
    }
    let high = shifted(b, Binary::ShiftLeft, x, 8);
    shifted(b, Binary::ShiftRight, high, 8)
}
