//! Arithmetic of i1, integers of one bit whose sums wrap: true is 1, and -1 where an operation has a sign.

use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Compare, Unary, Value};
use crate::types::Scalar;

/// An operation on two operands of any type.
pub fn binary(b: &mut Builder, operation: Binary, x: Value, y: Value) -> Value {
    use Binary::*;
    if b.type_of(x).number() != Some(Scalar::I1) {
        return b.binary(operation, x, y);
    }
    match operation {
        Add | Subtract => b.binary(Xor, x, y),
        Multiply | MinimumUnsigned | Maximum => b.binary(And, x, y),
        MaximumUnsigned | Minimum => b.binary(Or, x, y),
        And | Or | Xor => b.binary(operation, x, y),
        _ => {
            let (x, y) = widened(b, x, y, matches!(operation, Divide | Remainder | ShiftRight));
            let wide = b.binary(operation, x, y);
            b.cast(Cast::Signed, wide, Scalar::I1)
        }
    }
}

/// A comparison of integers.
pub fn compare(b: &mut Builder, comparison: Compare, x: Value, y: Value) -> Value {
    use Compare::*;
    let is_order = !matches!(comparison, Equal | NotEqual);
    if !is_order || b.type_of(x).number() != Some(Scalar::I1) {
        return b.compare(comparison, x, y);
    }
    let (x, y) = widened(b, x, y, matches!(comparison, Less | LessEqual | Greater | GreaterEqual));
    b.compare(comparison, x, y)
}

/// Both operands as i8.
fn widened(b: &mut Builder, x: Value, y: Value, has_sign: bool) -> (Value, Value) {
    let mut wide = |x| {
        let one = b.cast(Cast::Unsigned, x, Scalar::I8);
        if has_sign { b.unary(Unary::Negate, one) } else { one }
    };
    (wide(x), wide(y))
}
