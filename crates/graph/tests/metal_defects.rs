//! Calls that Apple's libraries are known to compute wrongly, on emulated machines that have the defect, an engine forced: own kernels compute
//! them, and rightly. `openmps_metal::defects` has the table; its emulated stand-ins give wrong numbers where it is not heeded.

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

fn m3(of: Properties) -> Properties {
    Properties { family: 9, ..of }
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

/// An engine that is forced takes the sound call, or the same one on a sound machine, and leaves the other to own kernels, which compute it rightly.
fn is_kept_from(engine: Engine, dtype: DType, (machine, case): (Machine, &Case), sound: (Machine, &Case)) {
    for ((machine, case), taken) in [((machine, case), false), (sound, true)] {
        let device = Device::over_with_engine(0, Emulated::like(machine), Some(engine));
        check(&device, case, dtype, Layout::Dense, 64.0, true).unwrap_or_else(|error| panic!("{engine:?}: {error}"));
        let calls = device.queue().counts().of(CommandKind::Vendor);
        assert_eq!(calls > 0, taken, "{engine:?}, {dtype}: {:?}", case.operator);
    }
}

#[test]
fn batches_of_half_products_on_the_m5() {
    let batches = product(&[3, 16, 24], &[3, 24, 8]);
    for (engine, dtype) in [(Engine::Mps, DType::F16), (Engine::MpsGraph, DType::F16), (Engine::MpsGraph, DType::BF16)]
    {
        is_kept_from(engine, dtype, (m5, &batches), (m3, &batches));
    }
    let heads: &[usize] = &[1, 2, 16, 8];
    let attention = Case::new(Attention::default(), inputs(&[heads, heads, heads]));
    is_kept_from(Engine::MpsGraph, DType::F16, (m5, &attention), (m3, &attention));
}

#[test]
fn deep_products_on_the_m1() {
    let deep = product(&[16, 32_767], &[32_767, 16]);
    for engine in [Engine::Mps, Engine::MpsGraph] {
        is_kept_from(engine, DType::F32, (m1, &deep), (m3, &deep));
    }
}

#[test]
fn long_products_before_macos_14_4() {
    let long = product(&[2, 3], &[3, 32_769]);
    for engine in [Engine::Mps, Engine::MpsGraph] {
        is_kept_from(engine, DType::F32, (before_14_4, &long), (m3, &long));
    }
    let vector = product(&[32_769, 3], &[3, 1]);
    is_kept_from(Engine::Mps, DType::F32, (before_14_4, &vector), (m3, &vector));
}

#[test]
fn long_windows_and_long_images() {
    let [wide, narrow] = [256, 255].map(|window| convolution(&[1, 1, 1, 300], &[1, 1, 1, window]));
    is_kept_from(Engine::MpsGraph, DType::F32, (m3, &wide), (m3, &narrow));
    let long = convolution(&[1, 1, 1, 65_537], &[1, 1, 1, 3]);
    is_kept_from(Engine::MpsGraph, DType::F32, (before_15_1, &long), (m3, &long));
}
