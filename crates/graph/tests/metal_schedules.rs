//! Every operator's Metal text, executed on the CPU in three schedules of its threads, at every element type that a GPU of Apple's has. The
//! list of operators makes the tests. `cargo xtask emulate` runs what is left out here: every shape and layout.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod harness;

/// Operators that must run as kernels of tiles on a GPU, whatever the case: none of them may fall back on a native kernel.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
const ALWAYS_KERNELS: &[&str] = &[
    "rope",
    "convolution",
    "convolution_weight_gradient",
    "convolution_transpose",
    "pooling",
    "pooling_gradient",
    "nearest_interpolation",
    "bilinear_interpolation",
    "nearest_interpolation_gradient",
    "bilinear_interpolation_gradient",
];

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn main() {
    use harness::suite::{Breadth, elementwise, listed};
    use libtest_mimic::{Arguments, Failed, Trial};
    use openmps_emulator::Schedule;
    use openmps_graph::operators::ENTRIES;
    use openmps_graph::operators::elementwise::Elementwise;
    use openmps_metal::emulated::Emulated;
    use openmps_runtime::{CommandKind, Device};

    let breadth = Breadth::of_environment();
    let schedules = [Schedule::Ascending, Schedule::Descending, Schedule::Shuffled(7)];
    let device = |(index, schedule)| (Device::over(index, Emulated::with_schedule(schedule)), schedule);
    let devices: &'static [(Device, Schedule)] =
        Vec::leak(schedules.into_iter().enumerate().map(device).collect::<Vec<_>>());
    // All three of an operator in one test: the second and the third find its texts compiled.
    let in_each = move |run: &dyn Fn(&Device) -> Result<(), Failed>| -> Result<(), Failed> {
        for (device, schedule) in devices {
            let said = |error: Failed| format!("{schedule:?}: {}", error.message().unwrap_or("no message"));
            run(device).map_err(said)?;
        }
        Ok(())
    };
    let mut trials = Vec::new();
    for operator in Elementwise::all() {
        let test = move || in_each(&|device| elementwise(device, operator, breadth));
        trials.push(Trial::test(operator.row().name, test));
    }
    for entry in ENTRIES.iter().copied().flatten().copied() {
        trials.push(Trial::test(entry.name, move || in_each(&|device| listed(device, entry, breadth))));
    }
    for &name in ALWAYS_KERNELS {
        trials.push(Trial::test(format!("{name}/kernels"), move || {
            let device = Device::over(schedules.len(), Emulated::with_schedule(Schedule::Ascending));
            let mut entries = ENTRIES.iter().copied().flatten().copied();
            listed(&device, entries.find(|entry| entry.name == name).ok_or("unknown")?, Breadth::Kernels)?;
            let calls = device.queue().counts().of(CommandKind::Native);
            if calls == 0 { Ok(()) } else { Err(format!("{calls} native kernels").into()) }
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn main() {}
