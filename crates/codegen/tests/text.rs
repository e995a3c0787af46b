//! The text of tutorial kernels, kept as snapshots that a person can read.

use openmps_codegen::{Target, compile};
use openmps_tile::{Builder, Kernel, Scalar, Type, parse, verify};

fn text(ttir: &str, target: &Target) -> String {
    let kernel = parse(ttir).unwrap_or_else(|error| panic!("{error}"));
    let verified = verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    compile(verified, target).unwrap_or_else(|error| panic!("{error}")).text
}

macro_rules! snapshots {
    ($($name:ident = $file:literal,)*) => {
        $(#[test]
        fn $name() {
            let ttir = include_str!(concat!("../../tile/tests/ttir/", $file, ".ttir"));
            insta::assert_snapshot!(concat!($file, "-metal"), text(ttir, &Target::metal(128)));
            insta::assert_snapshot!(concat!($file, "-cuda"), text(ttir, &Target::cuda(128)));
        })*
    };
}

snapshots! {
    vector_add = "vector_add",
    softmax = "softmax",
    dropout = "dropout",
    matmul = "matmul",
}
snapshots! {
    control = "control",
    sort = "sort",
    layer_norm = "layer_norm",
    layer_norm_gradient = "layer_norm_gradient",
    attention = "attention",
    attention_gradient = "attention_gradient",
    grouped_matmul = "grouped_matmul",
    persistent_matmul = "persistent_matmul",
    block_scaled_matmul = "block_scaled_matmul",
    libdevice = "libdevice",
}

/// A tile that walks a few elements from where two unknown sizes say, step by step.
fn walk() -> Kernel {
    let mut b = Builder::new("walk");
    let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
    let [rows, columns, steps] = ["rows", "columns", "steps"].map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    let index = b.range(256);
    let [rows, columns] = [rows, columns].map(|size| b.splat_like(size, index));
    let row = b.divide(index, columns);
    let place = b.remainder(row, rows);
    let (zero, one) = (b.integer(0, Scalar::I64), b.integer(1, Scalar::I64));
    let none = b.constant(0.0, &Type::tile(Scalar::F32, &[256]));
    let sum = b.for_loop([zero, steps, one], &[none], |b, step, carried| {
        let step = b.splat_like(step, place);
        let offset = b.add(place, step);
        let offset = b.multiply(offset, row);
        let pointers = b.add_pointer(x, offset);
        let loaded = b.load(pointers, None, None);
        vec![b.add(carried[0], loaded)]
    })[0];
    let pointers = b.add_pointer(out, index);
    b.store(pointers, sum, None);
    b.finish()
}

#[test]
fn a_loop_does_not_repeat_divisions_by_unknown_sizes() {
    let kernel = walk();
    let verified = verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    for target in [Target::metal(32), Target::cuda(32)] {
        let text = compile(verified, &target).unwrap_or_else(|error| panic!("{error}")).text;
        let body = text.split("for (ulong").nth(1).unwrap_or_else(|| panic!("no loop in {text}"));
        assert!(!body.contains(" % "), "{text}");
        assert!(text.contains(" % "), "{text}");
    }
}
