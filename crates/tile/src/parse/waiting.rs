//! `tt.atomic_poll`: a loop until memory holds what is expected.

use crate::builder::Builder;
use crate::kernel::{Combine, Compare, Operation, Unary, Value};
use crate::types::{Scalar, Type};

/// Waits until every pointer's element is the expected one; true for each of them.
///
/// Memory is read by replacing what is expected with itself: an operation that no compiler moves out of the loop.
pub fn poll(b: &mut Builder, pointer: Value, expected: Value) -> Value {
    let ty = b.type_of(expected).clone();
    b.begin_block(&[]);
    let found = b.emit(Operation::CompareSwap, &[pointer, expected, expected], ty.clone());
    let mut holds = b.compare(Compare::Equal, found, expected);
    for _ in 0..ty.dims.len() {
        holds = b.reduce(Combine::And, holds, 0);
    }
    let waits = b.unary(Unary::Not, holds);
    let before = b.end_block(Operation::Condition, &[waits]);
    b.begin_block(&[]);
    let after = b.end_block(Operation::Yield, &[]);
    b.emit_with_blocks(Operation::While, &[], &[], vec![before, after]);
    let truth: Type = ty.with_scalar(Scalar::I1);
    b.constant(1.0, &truth)
}
