use crate::samples::{row_softmax, vector_add};
use crate::{Kernel, Operation, Value, verify};

fn text(kernel: &Kernel) -> String {
    verify(kernel).map_or_else(|error| error.to_string(), |verified| verified.kernel().to_string())
}

#[test]
fn masked_vector_add() {
    insta::assert_snapshot!(text(&vector_add(1024)));
}

#[test]
fn softmax_with_loops() {
    insta::assert_snapshot!(text(&row_softmax(256)));
}

#[test]
fn kernels_that_are_none_are_printed_too() {
    let mut kernel = vector_add(4);
    kernel.types.clear();
    assert!(kernel.to_string().contains("arith.add %16, %19 : ?"), "{kernel}");
    kernel.body.instructions[0].operation = Operation::For;
    kernel.body.instructions[1].operands = vec![Value(u32::MAX)];
    assert!(kernel.to_string().contains("scf.for ? = ? to ? step ? : ?"), "{kernel}");
}
