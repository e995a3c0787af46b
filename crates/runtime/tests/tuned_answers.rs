//! Tensor operations are asked for a known answer like Apple's libraries: where they answer wrongly, or their text is refused, kernels are
//! written without them, which is reported and remembered.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::ByAddress;
use openmps_metal::emulated::{Emulated, Fault, m5};
use openmps_metal::interface::Properties;
use openmps_runtime::{Device, Pipeline};
use openmps_tile::{Builder, Scalar, Type};
use std::path::{Path, PathBuf};

const SIDE: usize = 32;

/// An M5 that is asked, on one build of macOS.
fn emulated(os_build: &str) -> Emulated {
    let (name, os_build) = ("tuned answers".to_string(), os_build.to_string());
    Emulated::like(|properties| m5(Properties { name, os_build, ..properties }))
}

/// Each row of the result is `x` times `x`, where every row of both is the same.
fn product() -> Pipeline {
    let mut b = Builder::new("product");
    let (x, out) = (b.parameter("x", Type::pointer(Scalar::F16)), b.parameter("out", Type::pointer(Scalar::F32)));
    let range = b.range(SIDE);
    let row = b.expand_dims(range, 0);
    let row = b.broadcast(row, &[SIDE, SIDE]);
    let from = b.add_pointer(x, row);
    let x = b.load(from, None, None);
    let none = b.constant(0.0, &Type::tile(Scalar::F32, &[SIDE, SIDE]));
    let sums = b.dot(x, x, none);
    let to = b.add_pointer(out, row);
    b.store(to, sums, None);
    Pipeline::new(b.finish()).unwrap()
}

/// A product of ones on a device: one row of it.
fn multiplied(device: &Device) -> Vec<f32> {
    const ONE: u16 = 0x3C00;
    let (x, out) = (device.allocate(SIDE * 2).unwrap(), device.allocate(SIDE * 4).unwrap());
    device.queue().write_at(x.address(), &ONE.to_le_bytes().repeat(SIDE)).unwrap();
    let arguments = [x.address() as u64, out.address() as u64];
    // SAFETY: the kernel reads and writes within its two buffers, which live to the end.
    unsafe { device.queue().dispatch("product", &product(), [1, 1, 1], &arguments) }.unwrap();
    let mut bytes = vec![0; SIDE * 4];
    device.queue().read_at(&mut bytes, out.address()).unwrap();
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
}

#[test]
fn tensor_operations_that_fail_are_left_aside_reported_and_remembered() {
    let folder = std::env::temp_dir().join(format!("openmps-tuned-answers-{}", std::process::id()));
    // SAFETY: the only test of this process, which has no other thread yet.
    unsafe { std::env::set_var("OPENMPS_CACHE_DIR", &folder) };
    let right = vec![SIDE as f32; SIDE];
    for (build, fault, how) in [
        ("25C56", Fault::Compiler, "MSL 4.0"),
        ("25D1", Fault::TensorOperations, "times as far off as rounding explains"),
    ] {
        let device = Device::over(0, emulated(build).with_fault(fault));
        assert_eq!(multiplied(&device), right, "{fault:?}");
        let report = device.wrong_answers();
        assert_eq!(report.len(), 1, "{report:?}");
        let begin = format!("product kernels float16 on tuned answers, macOS {build}: ");
        assert!(report[0].starts_with(&begin) && report[0].contains(how), "{report:?}");
        assert!(report[0].ends_with("; kernels without tensor operations compute it"), "{report:?}");
        // The next process finds the answer, and heeds it.
        let next = Device::over(0, emulated(build).with_fault(fault));
        assert_eq!(multiplied(&next), right, "{fault:?}");
        assert_eq!(next.wrong_answers(), report);
    }
    // One that answers rightly keeps them.
    let device = Device::over(0, emulated("25E1"));
    assert_eq!(multiplied(&device), right);
    assert_eq!(device.wrong_answers(), Vec::<String>::new());
    assert!(answers_of(&folder, "25E1").contains("product kernels float16 right\n"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What is on record for a build of macOS.
fn answers_of(folder: &Path, build: &str) -> String {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_of_build = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("-{build}.answers"));
    std::fs::read_to_string(files.into_iter().find(is_of_build).unwrap()).unwrap()
}
