//! Operators that multiply matrices, on the emulated GPU in place of an M5 under macOS 26.2: products of half types are tensor operations there.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[allow(dead_code, reason = "operators of tables have no products")]
mod harness;

/// Operators whose own kernels have products.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
const PRODUCTS: &[&str] = &["matmul", "attention", "convolution"];

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn main() {
    use harness::suite::{Breadth, listed};
    use libtest_mimic::{Arguments, Trial};
    use openmps_graph::operators::ENTRIES;
    use openmps_metal::emulated::{Emulated, m5};
    use openmps_metal::tensor_operations;
    use openmps_runtime::Device;
    use openmps_runtime::vendor::Engine;

    assert!(tensor_operations::are_fast_on(&m5(openmps_metal::recorder::properties())));
    let trial = |&name: &&'static str| {
        Trial::test(name, move || {
            let device = Device::over_with_engine(0, Emulated::like(m5), Some(Engine::Kernels));
            let mut entries = ENTRIES.iter().copied().flatten().copied();
            listed(&device, entries.find(|entry| entry.name == name).ok_or("unknown")?, Breadth::of_environment())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), PRODUCTS.iter().map(trial).collect()).exit();
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn main() {}
