//! The text of tutorial kernels, kept as snapshots that a person can read.

use openmps_codegen::{Target, compile, passes_memory};
use openmps_tile::kernel::Atomic;
use openmps_tile::{Builder, Kernel, Operation, Scalar, Type, parse, verify};

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

#[test]
fn products_on_warpgroups() {
    for (name, ttir) in [
        ("half_matmul", include_str!("../../tile/tests/ttir/half_matmul.ttir")),
        ("half_attention", include_str!("../../tile/tests/ttir/half_attention.ttir")),
        ("half_attention_gradient", include_str!("../../tile/tests/ttir/half_attention_gradient.ttir")),
    ] {
        insta::assert_snapshot!(format!("{name}-cuda-9"), text(ttir, &Target::cuda_of_capability(128, 9)));
    }
}

#[test]
fn products_by_tensor_operations() {
    for (name, ttir) in [
        ("half_matmul", include_str!("../../tile/tests/ttir/half_matmul.ttir")),
        ("half_attention", include_str!("../../tile/tests/ttir/half_attention.ttir")),
    ] {
        insta::assert_snapshot!(format!("{name}-metal-4"), text(ttir, &Target::metal_with_tensor_operations(128)));
    }
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

/// A kernel whose programs add to one place; the last of them, or all, read what was there.
fn counting(reads: bool) -> Kernel {
    let mut b = Builder::new("counting");
    let [place, out] = ["place", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::I32)));
    let one = b.integer(1, Scalar::I32);
    let old = b.emit(Operation::Atomic(Atomic::Add), &[place, one], Type::scalar(Scalar::I32));
    if reads {
        b.store(out, old, None);
    }
    b.finish()
}

/// Barriers of Metal's order memory within a threadgroup only: what others are to see is coherent, and fenced for the device.
#[test]
fn memory_that_is_passed_between_threadgroups_is_coherent() {
    for reads in [true, false] {
        let kernel = counting(reads);
        assert_eq!(passes_memory(&kernel), reads);
        let verified = verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
        let source = compile(verified, &Target::metal(32)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(source.coherent, reads);
        let text = source.text;
        assert_eq!(text.contains("coherent(device) device uint* p_out"), reads, "{text}");
        assert_eq!(text.contains("memory_order_seq_cst, thread_scope_device"), reads, "{text}");
        assert_eq!(text.matches("device_fence();").count(), if reads { 4 } else { 0 }, "{text}");
    }
}

/// A flag that is waited for is read by atomic operations, in a kernel whose memory is coherent: a plain load in a loop may be moved out of it.
#[test]
fn who_waits_for_a_flag_reads_it_atomically() {
    let ttir = include_str!("../../tile/tests/ttir/waits.ttir");
    assert!(passes_memory(&parse(ttir).unwrap_or_else(|error| panic!("{error}"))));
    let text = text(ttir, &Target::metal(32));
    assert!(text.contains("coherent(device) device uint* p_flag"), "{text}");
    assert_eq!(text.matches("atomic_load_explicit").count(), 2, "{text}");
}
