//! TTIR's operations of the plain form `name operands {attributes} : types`, and what each becomes.

use super::assembly::{self, Assembly};
use super::comparison;
use super::cursor::{Cursor, Read};
use super::function::{Names, named};
use super::region;
use super::rounding;
use super::small::Small;
use super::small_operations;
use super::truth;
use super::types::form;
use super::waiting;
use crate::builder::Builder;
use crate::kernel::{Atomic, Binary, Cast, Number, Operation, Print, Unary, Value};
use crate::types::{Element, Scalar, Type};

/// The parts of a plain operation.
#[derive(Default)]
pub struct Simple<'t> {
    /// Words between the name and the types, such as a predicate.
    pub words: Vec<&'t str>,
    /// Operands.
    pub operands: Vec<Value>,
    /// The text of the attribute dictionary.
    pub attributes: &'t str,
    /// A text in quotes.
    pub text: &'t str,
    /// Types after the colon, in order.
    pub types: Vec<Type>,
    /// Which of them are floats of 8 bits.
    pub smalls: Vec<Option<Small>>,
    /// How many types stand before a `*`; 0 where there is none.
    pub before_star: usize,
}

impl<'t> Simple<'t> {
    /// Reads from behind the name to behind the location.
    pub fn read(cursor: &mut Cursor<'t>, names: &Names) -> Read<Simple<'t>> {
        let mut simple = Simple::default();
        // `tt.print` has a colon before its operands too.
        // An operation without operands may have an arrow alone.
        while !(cursor.take(":") || cursor.take("->")) || cursor.looking_at("%") {
            if cursor.looking_at("%") {
                simple.operands.push(named(cursor, names)?);
            } else if cursor.looking_at("{") {
                simple.attributes = cursor.attributes()?;
            } else if cursor.looking_at("loc(") {
                cursor.skip_location()?;
                return Ok(simple);
            } else if cursor.looking_at("}") && simple.words.is_empty() {
                // The end of a block, in a text that was printed without locations.
                return Ok(simple);
            } else if cursor.looking_at("\"") {
                simple.text = cursor.string()?;
            } else if !(cursor.take(",") || cursor.take("=") || cursor.take("[") || cursor.take("]")) {
                let word = cursor.word();
                if word.is_empty() {
                    return Err(cursor.error(format!("{}, expected an operand", cursor.found())));
                }
                simple.words.push(word);
            }
        }
        if cursor.looking_at("(") {
            simple.types.extend(region::types(cursor)?);
            simple.smalls.resize(simple.types.len(), None);
            cursor.expect("->")?;
        }
        loop {
            let (ty, small) = form(cursor)?;
            simple.types.push(ty);
            simple.smalls.push(small);
            if cursor.take("*") {
                simple.before_star = simple.types.len();
            } else if !(cursor.take(",") || cursor.take("->") || cursor.take("to")) {
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

/// The text of `name = "text"` in an attribute dictionary.
fn text_attribute<'t>(attributes: &'t str, name: &str) -> Option<&'t str> {
    let quoted = attributes.split_once(name)?.1.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    quoted.split('"').next()
}

/// `arith.constant`: a number or boolean, alone or in every element.
pub fn constant(cursor: &mut Cursor, b: &mut Builder) -> Read<Value> {
    let dense = cursor.take("dense<");
    if cursor.looking_at("[") {
        return Err(cursor.refuse("arith.constant", "a tile of different numbers"));
    }
    let text = cursor.number();
    if dense {
        cursor.expect(">")?;
    }
    // A single boolean is printed without its type.
    let (ty, small) = if cursor.take(":") { form(cursor)? } else { (Type::scalar(Scalar::I1), None) };
    let Element::Scalar(scalar) = ty.element else {
        return Err(cursor.refuse("arith.constant", "an address"));
    };
    let number = match small {
        Some(small) => small.literal(text),
        None => literal(text, scalar),
    };
    let number = number.ok_or_else(|| cursor.error(format!("`{text}` is no {}", scalar.name())))?;
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

fn binary(operation: &str) -> Option<Binary> {
    Some(match operation {
        "arith.addi" | "arith.addf" => Binary::Add,
        "arith.subi" | "arith.subf" => Binary::Subtract,
        "arith.muli" | "arith.mulf" => Binary::Multiply,
        "arith.divsi" | "arith.divf" | "tt.precise_divf" | "tt.approx_divf" => Binary::Divide,
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
        "tt.mulhiui" => Binary::MultiplyHighUnsigned,
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

/// The numbers of `name = array<i32: 1, 0>` in an attribute dictionary.
fn array(attributes: &str, name: &str) -> Option<Vec<usize>> {
    let (_, rest) = attributes.split_once(&format!("{name} = array<"))?;
    let (_, list) = rest.split_once('>')?.0.split_once(':')?;
    list.split(',').map(|number| number.trim().parse().ok()).collect()
}

fn atomic(name: Option<&&str>) -> Result<Atomic, String> {
    let name = name.copied().unwrap_or_default();
    Atomic::ALL.iter().copied().find(|atomic| atomic.text() == name).ok_or_else(|| format!("the operation `{name}`"))
}

/// Adds what an operation stands for; its results, or why it is refused.
pub fn lower(operation: &str, simple: &Simple, b: &mut Builder) -> Result<Vec<Value>, String> {
    if let Some(value) = small_operations::lower(operation, simple, b)? {
        return Ok(vec![value]);
    }
    let of = &simple.operands[..];
    let result = simple.types.last().cloned();
    let axis = |word: Option<&&str>| -> Result<u8, String> {
        let axes = ["x", "y", "z"];
        let found = word.and_then(|word| axes.iter().position(|axis| axis == word));
        found.map(|axis| axis as u8).ok_or_else(|| "an axis of the grid is x, y or z".to_owned())
    };
    if let (Some(binary), &[x, y]) = (binary(operation), of) {
        return Ok(vec![truth::binary(b, binary, x, y)]);
    }
    if let (Some(unary), &[x]) = (unary(operation), of) {
        return Ok(vec![b.unary(unary, x)]);
    }
    if let (Some(cast), &[x], Some(to)) = (cast(operation), of, &result) {
        return convert(b, operation, cast, x, to).map(|value| vec![value]);
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
        ("tt.addptr", &[pointer, offset]) => {
            let offset = widened_index(b, offset);
            b.add_pointer(pointer, offset)
        }
        ("tt.load", &[pointer]) if waiting::is_flag(simple.attributes, b.type_of(pointer)) => {
            waiting::read(b, pointer, None)?
        }
        ("tt.load", &[pointer]) => b.load(pointer, None, None),
        ("tt.load", &[pointer, mask]) => b.load(pointer, Some(mask), None),
        ("tt.atomic_load", &[pointer]) => waiting::read(b, pointer, None)?,
        ("tt.atomic_load", &[pointer, mask]) => waiting::read(b, pointer, Some(mask))?,
        ("tt.load", &[pointer, mask, other]) => b.load(pointer, Some(mask), Some(other)),
        ("tt.store", &[pointer, value]) => {
            b.store(pointer, value, None);
            return Ok(Vec::new());
        }
        ("tt.store", &[pointer, value, mask]) => {
            b.store(pointer, value, Some(mask));
            return Ok(Vec::new());
        }
        ("arith.cmpi", &[x, y]) => truth::compare(b, comparison::integers(simple.words.first())?, x, y),
        ("arith.cmpf", &[x, y]) => comparison::floats(b, simple.words.first(), x, y)?,
        ("arith.select", &[condition, x, y]) => {
            let dims = b.type_of(x).dims.clone();
            let splat = b.type_of(condition).is_scalar() && !dims.is_empty();
            let condition = if splat { b.splat(condition, &dims) } else { condition };
            b.select(condition, x, y)
        }
        ("tt.dot", &[x, y, sum]) => product(b, [x, y, sum]),
        ("tt.trans", &[x]) => permute(simple.attributes, x, b)?,
        ("tt.join", &[x, y]) => b.emit(Operation::Join, &[x, y], result.ok_or("no type")?),
        ("tt.cat", &[x, y]) => b.emit(Operation::Concatenate, &[x, y], result.ok_or("no type")?),
        // Only the operand's type is written.
        ("tt.unsplat", &[x]) => {
            let element = b.type_of(x).with_dims(&[]);
            b.emit(Operation::Unsplat, &[x], element)
        }
        ("tt.split", &[x]) => {
            let mut half = b.type_of(x).clone();
            half.dims.pop();
            return Ok(b.emit_with_blocks(Operation::Split, &[x], &[half.clone(), half], Vec::new()));
        }
        ("tt.gather", &[x, indices]) => {
            let axis = attribute(simple.attributes, "axis").and_then(|axis| usize::try_from(axis).ok());
            let indices = widened_index(b, indices);
            b.emit(Operation::Gather { axis: axis.ok_or("no axis")? }, &[x, indices], result.ok_or("no type")?)
        }
        ("tt.histogram", &[_] | &[_, _]) => b.emit(Operation::Histogram, of, result.ok_or("no type")?),
        ("tt.atomic_rmw", &[_, _] | &[_, _, _]) => {
            b.emit(Operation::Atomic(atomic(simple.words.first())?), of, result.ok_or("no type")?)
        }
        ("tt.atomic_store", &[_, _, _]) => {
            let ty = b.type_of(of[1]).clone();
            b.emit(Operation::Atomic(Atomic::Exchange), of, ty);
            return Ok(Vec::new());
        }
        ("tt.atomic_poll", &[pointer, expected]) => waiting::poll(b, pointer, expected),
        ("tt.atomic_poll", _) => return Err("a limit of time: a kernel knows no clock".to_owned()),
        ("tt.atomic_cas", &[_, _, _]) => b.emit(Operation::CompareSwap, of, result.ok_or("no type")?),
        ("tt.int_to_ptr", &[x]) => b.emit(Operation::IntegerToPointer, &[x], result.ok_or("no type")?),
        ("tt.ptr_to_int", &[x]) => b.emit(Operation::PointerToInteger, &[x], result.ok_or("no type")?),
        ("math.fma", &[_, _, _]) => b.emit(Operation::MultiplyAdd, of, result.ok_or("no type")?),
        ("tt.extern_elementwise", _) => external(simple.attributes, of, b)?,
        ("tt.clampf", &[x, low, high]) => clamp(simple, [x, low, high], b)?,
        ("tt.fp_to_fp", &[x]) => {
            let rounded = convert(b, operation, Cast::Float, x, &result.ok_or("no type")?)?;
            if simple.words.contains(&"rtz") { rounding::towards_zero(b, x, rounded) } else { rounded }
        }
        ("tt.assert", &[x]) => {
            let message = simple.text.into();
            return Ok(b.emit_with_blocks(Operation::Assert { message }, &[x], &[], Vec::new()));
        }
        ("tt.print", _) => {
            let prefix = simple.text.into();
            let is_hexadecimal = simple.attributes.contains("hex = true");
            let signed = array(simple.attributes, "isSigned").unwrap_or_default();
            let signed = signed.into_iter().map(|is_signed| is_signed != 0).collect();
            let print = Operation::Print(Print { prefix, is_hexadecimal, signed });
            return Ok(b.emit_with_blocks(print, of, &[], Vec::new()));
        }
        // Before Triton 3.7 `tl.debug_barrier()` is one of `gpu`.
        ("ttg.barrier" | "gpu.barrier", &[]) => {
            return Ok(b.emit_with_blocks(Operation::Barrier, &[], &[], Vec::new()));
        }
        // Programs of one launch do not overlap with those of the next.
        ("tt.grid_dependency_wait" | "tt.grid_dependency_launch_dependents", &[]) => return Ok(Vec::new()),
        ("tt.elementwise_inline_asm", _) => {
            let pack = attribute(simple.attributes, "packed_element").and_then(|pack| usize::try_from(pack).ok());
            let constraints = text_attribute(simple.attributes, "constraints").unwrap_or_default();
            let assembly = Assembly { text: simple.text, constraints, pack: pack.unwrap_or(1) };
            return assembly::lower(&assembly, of, simple.types.get(of.len()..).unwrap_or_default(), b);
        }
        // Any value will do.
        ("ub.poison", &[]) => b.constant(0.0, &result.ok_or("no type")?),
        // A hint to optimisers.
        ("llvm.intr.assume", _) => return Ok(Vec::new()),
        _ => return Err("not covered".to_owned()),
    };
    Ok(vec![value])
}

/// Indices of at least 32 bits: Triton takes narrower ones, with a sign.
fn widened_index(b: &mut Builder, index: Value) -> Value {
    match b.type_of(index).number() {
        Some(Scalar::I8 | Scalar::I16) => b.cast(Cast::Signed, index, Scalar::I32),
        _ => index,
    }
}

/// A product with a sum, which is rounded once where its type is narrower than float32.
fn product(b: &mut Builder, [x, y, sum]: [Value; 3]) -> Value {
    match b.type_of(sum).number() {
        Some(narrow @ (Scalar::F16 | Scalar::BF16)) => {
            let wide = b.cast(Cast::Float, sum, Scalar::F32);
            let result = b.dot(x, y, wide);
            b.cast(Cast::Float, result, narrow)
        }
        _ => b.dot(x, y, sum),
    }
}

fn permute(attributes: &str, x: Value, b: &mut Builder) -> Result<Value, String> {
    let order = array(attributes, "order").ok_or("no order")?;
    let dims = &b.type_of(x).dims;
    let permuted: Option<Vec<usize>> = order.iter().map(|&axis| dims.get(axis).copied()).collect();
    let permuted = permuted.filter(|_| order.len() == dims.len()).ok_or_else(|| format!("the order {order:?}"))?;
    let ty = b.type_of(x).with_dims(&permuted);
    Ok(b.emit(Operation::Permute { order: order.into_iter().collect() }, &[x], ty))
}

/// A function of `openmps.triton.libdevice`, named by its symbol.
fn external(attributes: &str, operands: &[Value], b: &mut Builder) -> Result<Value, String> {
    let symbol = attributes.split_once("symbol = \"").and_then(|(_, rest)| rest.split_once('"'));
    let symbol = symbol.map_or("", |(symbol, _)| symbol);
    let name = match symbol {
        "fabs" => "math.absf".to_owned(),
        "rint" => "math.roundeven".to_owned(),
        "fmod" => "arith.remf".to_owned(),
        "pow" => "math.powf".to_owned(),
        other => format!("math.{other}"),
    };
    match (unary(&name), binary(&name), operands) {
        (Some(unary), _, &[x]) => Ok(b.unary(unary, x)),
        (_, Some(binary), &[x, y]) => Ok(b.binary(binary, x, y)),
        _ => Err(format!("the function `{symbol}` of {} operands", operands.len())),
    }
}

/// `tt.clampf`: NaN passes where the operation says so, else the limits win.
fn clamp(simple: &Simple, [x, low, high]: [Value; 3], b: &mut Builder) -> Result<Value, String> {
    let (largest, smallest) = match simple.words.contains(&"all") {
        true => (Binary::Maximum, Binary::Minimum),
        false => (Binary::MaximumNumber, Binary::MinimumNumber),
    };
    let raised = b.binary(largest, x, low);
    Ok(b.binary(smallest, raised, high))
}

/// A conversion between types of pointers, by way of the address.
fn convert_pointer(b: &mut Builder, x: Value, to: &Type) -> Value {
    let address = b.type_of(x).with_scalar(Scalar::I64);
    let address = b.emit(Operation::PointerToInteger, &[x], address);
    b.emit(Operation::IntegerToPointer, &[address], to.clone())
}

fn convert(b: &mut Builder, operation: &str, cast: Cast, x: Value, to: &Type) -> Result<Value, String> {
    if b.type_of(x).target().is_some() && to.target().is_some() {
        return Ok(if b.type_of(x) == to { x } else { convert_pointer(b, x, to) });
    }
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
