//! The whole table of kernels: in a test of its own, so that the crate's other tests are built without them, which takes minutes.

use openmps_graph::operators::elementwise::Elementwise;
use openmps_paddle::argument::Kind;
use openmps_paddle::kernels::{NOT_PADDLES, table};
use std::collections::HashSet;

/// Steps of `fake_quantize` kernels.
const QUANTIZATION: &[&str] = &["quantize_even", "quantize_away"];

#[test]
fn every_kernel_is_there_once() {
    let table = table();
    let mut seen = HashSet::new();
    for row in table.rows() {
        for data_type in row.data_types() {
            assert!(seen.insert((row.name(), data_type.0)), "{} for {}", row.name(), data_type.name());
        }
    }
}

#[test]
fn every_kernel_has_an_output() {
    for row in table().rows() {
        assert!(row.kinds().iter().any(|kind| matches!(kind, Kind::Output(_))), "{}", row.name());
    }
}

#[test]
fn every_formula_of_the_tables_is_a_kernel() {
    let table = table();
    let is_forward = |operator: &Elementwise| {
        matches!(operator, Elementwise::Unary(_) | Elementwise::Activation(_) | Elementwise::Binary(_))
    };
    for operator in Elementwise::all().filter(is_forward) {
        let name = operator.row().name;
        let is_elsewhere = NOT_PADDLES.contains(&name) || QUANTIZATION.contains(&name);
        assert_ne!(table.has(name), is_elsewhere, "{name}");
    }
}

#[test]
fn every_gradient_of_a_kernel_is_a_kernel() {
    let table = table();
    for operator in Elementwise::all().filter(|operator| matches!(operator, Elementwise::Gradient(_))) {
        let name = operator.row().name;
        if let Some(forward) = name.strip_suffix("_grad") {
            assert_eq!(table.has(name), table.has(forward), "{name}");
        }
    }
}
