//! What stands where in the text of each plain operation.

use crate::attribute::Attribute;
use crate::context::Operation;
use crate::types::{Type, list};

/// Which types follow the colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// None, not even the colon.
    None,
    /// The first operand's; where there is none the result's.
    First,
    /// `operand -> result`
    Arrow,
    /// `operand to result`
    To,
    /// The operands', or nothing.
    Operands,
    /// `(operands) -> results`
    Functional,
    /// The same, with the operands in parentheses behind the callee's name.
    Call,
    /// The same, with all operands but the first in brackets.
    Indexed,
    /// The condition's and the value's; a single condition has none.
    Select,
    /// `left * right -> result`
    Dot,
    /// The same with scales.
    Scaled,
    /// `operands -> results`, with the third operand, a limit of time, behind a word and without its type.
    Poll,
    /// The operands stand behind the attributes and a colon.
    Print,
    /// The operands stand behind the attributes.
    Assembly,
    /// Descriptors of tensors, with indices in brackets.
    Descriptor,
    /// Those of the operands but the first, which stands in parentheses.
    Condition,
}

/// The form of an operation.
pub struct Form {
    /// Attributes before the operands, without their names.
    pub leading: &'static [&'static str],
    /// Attributes behind the operands, with what stands before each there.
    pub trailing: &'static [(&'static str, &'static str)],
    /// The types.
    pub types: Types,
    /// Attributes that are part of something else.
    pub hidden: &'static [&'static str],
}

impl Form {
    /// The form of the operation of a name.
    pub fn of(name: &str) -> Form {
        let (leading, trailing, types): (&[&str], &[(&str, &str)], Types) = match name {
            "arith.cmpi" | "arith.cmpf" => (&["predicate"], &[], Types::First),
            "tt.get_program_id" | "tt.get_num_programs" => (&["axis"], &[], Types::First),
            "tt.atomic_rmw" => (&["atomic_rmw_op", "sem", "scope"], &[], Types::Functional),
            "tt.atomic_cas" | "tt.atomic_load" => (&["sem", "scope"], &[], Types::Functional),
            "tt.atomic_store" => (&["sem", "scope"], &[], Types::First),
            "tt.atomic_poll" => (&["sem", "scope"], &[], Types::Poll),
            "tt.assert" => (&[], &[("message", "")], Types::Operands),
            "tt.print" => (&["prefix"], &[], Types::Print),
            "tt.elementwise_inline_asm" => (&["asm_string"], &[], Types::Assembly),
            "tt.fp_to_fp" => (&[], &[("rounding", "rounding = ")], Types::Arrow),
            "tt.clampf" => (&[], &[("propagateNan", "propagateNan = ")], Types::First),
            "tt.dot" => (&[], &[("inputPrecision", "inputPrecision = ")], Types::Dot),
            "tt.dot_scaled" => (&[], &[], Types::Scaled),
            "tt.extern_elementwise" => (&[], &[], Types::Functional),
            "tt.gather" => (&[], &[], Types::Indexed),
            "tt.call" => (&[], &[], Types::Call),
            "arith.select" => (&[], &[], Types::Select),
            "ttg.barrier" => (&["addrSpace"], &[], Types::None),
            "tt.return" | "scf.yield" | "tt.reduce.return" | "tt.scan.return" | "tt.map_elementwise.return" => {
                (&[], &[], Types::Operands)
            }
            "scf.condition" => (&[], &[], Types::Condition),
            "tt.make_tensor_descriptor"
            | "tt.descriptor_load"
            | "tt.descriptor_store"
            | "tt.descriptor_reduce"
            | "tt.descriptor_gather"
            | "tt.descriptor_scatter" => (&["kind"], &[], Types::Descriptor),
            "arith.bitcast" | "arith.extsi" | "arith.extui" | "arith.trunci" | "arith.extf" | "arith.truncf"
            | "arith.sitofp" | "arith.uitofp" | "arith.fptosi" | "arith.fptoui" => (&[], &[], Types::To),
            "tt.splat" | "tt.broadcast" | "tt.expand_dims" | "tt.reshape" | "tt.trans" | "tt.bitcast"
            | "tt.int_to_ptr" | "tt.ptr_to_int" | "tt.join" | "tt.split" | "tt.cat" | "tt.histogram" => {
                (&[], &[], Types::Arrow)
            }
            "tt.grid_dependency_wait" | "tt.grid_dependency_launch_dependents" => (&[], &[], Types::None),
            "tt.addptr" => (&[], &[], Types::Operands),
            _ => (&[], &[], Types::First),
        };
        let hidden: &[&str] = match types {
            Types::Call => &["callee"],
            Types::Scaled => &["lhs", "rhs", "lhs_scale", "rhs_scale"],
            Types::Descriptor => &["rank"],
            _ if name == "tt.reshape" => &["allow_reorder"],
            _ => &[],
        };
        Form { leading, trailing, types, hidden }
    }
}

/// The first operand's type and the first result's.
pub fn between(operands: &[Type], results: &[Type], separator: &str) -> String {
    match (operands.first(), results.first()) {
        (Some(from), Some(to)) => format!("{from}{separator}{to}"),
        _ => String::new(),
    }
}

/// Which of a scaled product's factors have scales.
fn scales(operation: &Operation) -> [bool; 2] {
    ["lhs_scale", "rhs_scale"].map(|name| operation.attribute(name).is_some())
}

/// The operands of a scaled product, with its words.
pub fn scaled_product(operation: &Operation, operands: &[String]) -> String {
    let mut rest = operands.iter();
    let mut next = || rest.next().cloned().unwrap_or_default();
    let [left, right] = scales(operation).map(|has_scale| {
        let factor = next();
        if has_scale { format!("{factor} scale {}", next()) } else { factor }
    });
    let word = |name: &str| operation.attribute(name).map(Attribute::to_string).unwrap_or_default();
    format!("{left}, {right}, {} lhs = {} rhs = {}", next(), word("lhs"), word("rhs"))
}

/// `left * right -> result`, each factor with its scale.
pub fn product_types(operation: &Operation, operands: &[Type], results: &[Type]) -> String {
    let mut rest = operands.iter();
    let mut next = || rest.next().map(Type::to_string).unwrap_or_default();
    let [left, right] = scales(operation).map(|has_scale| {
        let factor = next();
        if has_scale { format!("{factor}, {}", next()) } else { factor }
    });
    format!("{left} * {right} -> {}", list(results))
}

/// How many of the operands of an operation on a descriptor stand in brackets behind it.
fn indices(operation: &Operation) -> usize {
    operation.integer("rank").map_or(0, |rank| rank as usize)
}

/// `%base, [%sizes], [%strides]` of a new descriptor, else `%descriptor[%indices], %value`.
pub fn descriptor_operands(operation: &Operation, operands: &[String]) -> String {
    let Some((first, rest)) = operands.split_first() else { return String::new() };
    let (inside, behind) = rest.split_at(indices(operation).min(rest.len()));
    let inside = inside.join(", ");
    if operation.name == "tt.make_tensor_descriptor" {
        return format!("{first}, [{inside}], [{}]", behind.join(", "));
    }
    let behind: String = behind.iter().map(|value| format!(", {value}")).collect();
    format!("{first}[{inside}]{behind}")
}

/// Types of operations on descriptors.
pub fn descriptor_types(operation: &Operation, operands: &[Type], results: &[Type]) -> String {
    let behind = operands.get(1 + indices(operation)..).unwrap_or_default();
    let of = |ty: &Type| ty.to_string();
    // A pointer and a descriptor where nothing else may stand go without their dialect's prefix.
    let short =
        |ty: &Type| ty.to_string().trim_start_matches("!tt.ptr").trim_start_matches("!tt.tensordesc").to_owned();
    let first = operands.first().map(of).unwrap_or_default();
    match (operation.name, results) {
        ("tt.make_tensor_descriptor", [descriptor]) => {
            format!("{}, {}", operands.first().map(short).unwrap_or_default(), short(descriptor))
        }
        ("tt.descriptor_gather", _) => format!("({}) -> {}", list(operands), list(results)),
        ("tt.descriptor_scatter", _) => list(operands),
        (_, [result]) => format!("{first} -> {result}"),
        _ => format!("{first}, {}", list(behind)),
    }
}
