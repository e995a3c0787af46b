//! Known answers as a queue meets them: an engine that answers wrongly is left aside, reported, and not asked again by the next process; one
//! that answers rightly is used. The emulated stand-ins have the fault: large results only, as on record.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::ByAddress;
use openmps_metal::answers::Class;
use openmps_metal::emulated::{Emulated, Fault};
use openmps_metal::interface::Properties;
use openmps_runtime::vendor::{Engine, Matrices, VendorCall};
use openmps_runtime::{CommandKind, Device};
use openmps_tile::DType;
use std::path::PathBuf;

const SIDE: usize = 64;

/// A GPU that is asked, on one build of macOS.
fn emulated(os_build: &str) -> Emulated {
    let name = "known answers".to_string();
    Emulated::like(|properties| Properties { name, os_build: os_build.to_string(), ..properties })
}

/// Whether a product goes to an engine, and is right then.
fn takes(device: &Device, dtype: DType) -> bool {
    let bytes = SIDE * SIDE * dtype.size();
    let buffers = [0, 1, 2].map(|_| device.allocate(bytes).unwrap());
    // One in float32; in float16 some other number, and only the call counts.
    buffers
        .iter()
        .for_each(|buffer| device.queue().write_at(buffer.address(), &1f32.to_le_bytes().repeat(bytes / 4)).unwrap());
    let [left, right, out] = buffers.each_ref().map(|buffer| {
        let (address, rows, columns, row_step) = (buffer.address(), SIDE, SIDE, SIDE);
        Matrices { address, dtype, matrices: 1, rows, columns, row_step, matrix_step: SIDE * SIDE }
    });
    let call = VendorCall::Product { left, right, out, transposed: [false; 2], factors: [1.0, 0.0] };
    // SAFETY: the buffers live to the end, and nobody else has them.
    let taken = unsafe { device.queue().try_vendor("product", || Some(call)) }.unwrap();
    device.synchronize().unwrap();
    if taken && dtype == DType::F32 {
        let mut first = [0; 4];
        device.queue().read_at(&mut first, buffers[2].address()).unwrap();
        assert_eq!(f32::from_le_bytes(first), SIDE as f32);
    }
    taken
}

#[test]
fn an_engine_that_answers_wrongly_is_left_aside_reported_and_not_asked_again() {
    let folder = std::env::temp_dir().join(format!("openmps-known-answers-{}", std::process::id()));
    // SAFETY: the only test of this process, which has no other thread yet.
    unsafe { std::env::set_var("OPENMPS_CACHE_DIR", &folder) };
    let fault = Fault::Library { class: Class::Product, bytes: 64 << 10 };
    let device = Device::over_with_engine(0, emulated("24B83").with_fault(fault), None);
    assert!(!takes(&device, DType::F32));
    assert_eq!(device.queue().counts().of(CommandKind::Vendor), 0);
    let report = device.wrong_answers();
    assert_eq!(report.len(), 1, "{report:?}");
    assert!(report[0].starts_with("product mps float32 on known answers, macOS 24B83: "), "{report:?}");
    // The small product itself would be right, and is what a forced engine computes: it is not asked.
    let forced = Device::over_with_engine(0, emulated("24B83").with_fault(fault), Some(Engine::Mps));
    assert!(takes(&forced, DType::F32));
    // The next process finds the answer, though this device would answer rightly; another type is a question of its own.
    let next = Device::over_with_engine(0, emulated("24B83"), None);
    assert!(!takes(&next, DType::F32));
    assert!(takes(&next, DType::F16));
    // Another build of macOS is asked anew.
    let newer = Device::over_with_engine(0, emulated("24C101"), None);
    assert!(takes(&newer, DType::F32));
    assert_eq!(newer.wrong_answers(), Vec::<String>::new());
    assert_eq!(answer_files(&folder), 2, "a file for each build");
    std::fs::remove_dir_all(&folder).unwrap();
}

fn answer_files(folder: &PathBuf) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".answers")).count()
}
