//! Comparisons by MLIR's words for them.

use crate::builder::Builder;
use crate::kernel::{Binary, Compare, Unary, Value};

/// A comparison of integers by MLIR's word for it.
pub fn integers(predicate: Option<&&str>) -> Result<Compare, String> {
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
pub fn floats(b: &mut Builder, predicate: Option<&&str>, x: Value, y: Value) -> Result<Value, String> {
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
