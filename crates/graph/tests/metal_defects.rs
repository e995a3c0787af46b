//! Calls that Apple's libraries are known to compute wrongly, on emulated machines that have the defect, MPS and MPSGraph forced in turn: own
//! kernels compute them, and rightly. `openmps_metal::defects` has the table; its emulated stand-ins give wrong numbers where it is not heeded.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[allow(dead_code, reason = "other tests use the rest")]
mod harness;

use harness::Layout;
use harness::suite::check;
use openmps_graph::DType;
use openmps_graph::entry::{Case, Input};
use openmps_graph::operators::attention::Attention;
use openmps_graph::operators::convolution::Convolution;
use openmps_graph::operators::matmul::Matmul;
use openmps_metal::emulated::Emulated;
use openmps_metal::interface::Properties;
use openmps_runtime::vendor::Engine;
use openmps_runtime::{CommandKind, Device};

type Machine = fn(Properties) -> Properties;

fn m1(of: Properties) -> Properties {
    Properties { family: 7, ..of }
}

fn m5(of: Properties) -> Properties {
    Properties { family: 10, ..of }
}

fn before_14_4(of: Properties) -> Properties {
    Properties { long_products: false, ..of }
}

fn before_15_1(of: Properties) -> Properties {
    Properties { long_convolutions: false, ..of }
}

fn inputs(dims: &[&[usize]]) -> Vec<Input> {
    dims.iter().map(|dims| Input::new(dims)).collect()
}

fn product(left: &[usize], right: &[usize]) -> Case {
    Case::new(Matmul { transpose_left: false, transpose_right: false }, inputs(&[left, right]))
}

fn convolution(image: &[usize], weight: &[usize]) -> Case {
    Case::new(Convolution::default(), inputs(&[image, weight]))
}

/// Runs a case with either engine forced; none of its calls may be the engine's.
fn is_kept_from_engines(machine: Machine, dtype: DType, case: &Case) {
    for engine in [Engine::Mps, Engine::MpsGraph] {
        let device = Device::over_with_engine(0, Emulated::like(machine), Some(engine));
        check(&device, case, dtype, Layout::Dense, 64.0, true).unwrap_or_else(|error| panic!("{engine:?}: {error}"));
        assert_eq!(device.queue().counts().of(CommandKind::Vendor), 0, "{engine:?} took {:?}", case.operator);
    }
}

#[test]
fn batches_of_half_products_on_the_m5() {
    for dtype in [DType::F16, DType::BF16] {
        is_kept_from_engines(m5, dtype, &product(&[3, 16, 24], &[3, 24, 8]));
    }
    let heads: &[usize] = &[1, 2, 16, 8];
    is_kept_from_engines(m5, DType::F16, &Case::new(Attention::default(), inputs(&[heads, heads, heads])));
}

#[test]
fn deep_products_on_the_m1() {
    is_kept_from_engines(m1, DType::F32, &product(&[16, 32_767], &[32_767, 16]));
}

#[test]
fn long_products_before_macos_14_4() {
    is_kept_from_engines(before_14_4, DType::F32, &product(&[2, 3], &[3, 32_769]));
}

#[test]
fn long_windows_and_long_images() {
    is_kept_from_engines(|of| of, DType::F32, &convolution(&[1, 1, 1, 300], &[1, 1, 1, 256]));
    is_kept_from_engines(before_15_1, DType::F32, &convolution(&[1, 1, 1, 65_537], &[1, 1, 1, 3]));
}
