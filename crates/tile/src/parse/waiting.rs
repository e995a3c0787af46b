//! What programs read that others write meanwhile: `tt.atomic_load`, a flag that is loaded as volatile, and `tt.atomic_poll`, a loop until memory
//! holds what is expected.

use crate::builder::Builder;
use crate::kernel::{Atomic, Combine, Compare, Operation, Unary, Value};
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

/// Reads what every pointer's element is now. A plain load may be moved out of the loop that waits for it, and sees nothing of other threadgroups on
/// Apple's GPUs.
pub fn read(b: &mut Builder, pointer: Value, mask: Option<Value>) -> Result<Value, String> {
    let of = b.type_of(pointer);
    let ty = of.target().map(|scalar| of.with_scalar(scalar)).ok_or("what is read is no pointer")?;
    let unused = b.constant(0.0, &ty);
    let operands: Vec<Value> = [pointer, unused].into_iter().chain(mask).collect();
    Ok(b.emit(Operation::Atomic(Atomic::Read), &operands, ty))
}

/// Whether a load is one that a program waits by: volatile, of one number that atomic operations take on every device.
pub fn is_flag(attributes: &str, pointer: &Type) -> bool {
    let volatile = attributes.split(',').any(|entry| entry.split_whitespace().eq(["isVolatile", "=", "true"]));
    volatile && [Scalar::I32, Scalar::F32].into_iter().any(|scalar| *pointer == Type::pointer(scalar))
}
