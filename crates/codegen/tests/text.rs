//! The text of tutorial kernels, kept as snapshots that a person can read.

use openmps_codegen::{Target, compile};
use openmps_tile::{parse, verify};

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
