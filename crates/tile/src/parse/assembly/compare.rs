//! Comparisons of PTX.

use super::registers::scalar;
use crate::builder::Builder;
use crate::kernel::{Binary, Compare, Value};

/// `setp`: whether two numbers compare as the first word says, alone or together with a third operand. None where it is not known.
pub(super) fn compared(words: &[&str], values: &[Value], b: &mut Builder) -> Option<Vec<Value>> {
    let [word, modifiers @ .., ty] = words else { return None };
    let modifiers: Vec<&str> = modifiers.iter().copied().filter(|&word| word != "ftz").collect();
    let (&[x, y], rest) = values.split_first_chunk::<2>()?;
    let holds = b.compare(comparison(word, scalar(ty)?.is_float(), ty.starts_with('u'))?, x, y);
    match (&modifiers[..], rest) {
        ([], []) => Some(vec![holds]),
        (&[word], &[other]) => Some(vec![b.binary(combined(word)?, holds, other)]),
        _ => None,
    }
}

/// How a predicate's comparison is combined with another predicate.
fn combined(word: &str) -> Option<Binary> {
    match word {
        "and" => Some(Binary::And),
        "or" => Some(Binary::Or),
        "xor" => Some(Binary::Xor),
        _ => None,
    }
}

/// The comparison that a word names.
fn comparison(word: &str, is_float: bool, is_unsigned: bool) -> Option<Compare> {
    Some(match (word, is_float, is_unsigned) {
        ("eq", ..) => Compare::Equal,
        ("ne", false, _) | ("neu", true, _) => Compare::NotEqual,
        ("lt", _, false) => Compare::Less,
        ("le", _, false) => Compare::LessEqual,
        ("gt", _, false) => Compare::Greater,
        ("ge", _, false) => Compare::GreaterEqual,
        ("lt" | "lo", false, true) => Compare::LessUnsigned,
        ("le" | "ls", false, true) => Compare::LessEqualUnsigned,
        ("gt" | "hi", false, true) => Compare::GreaterUnsigned,
        ("ge" | "hs", false, true) => Compare::GreaterEqualUnsigned,
        _ => return None,
    })
}
