//! The operators of the two lists in `harness/engines.rs`, each with its engine forced, MPS or MPSGraph, on the emulated GPU: the calls go
//! through the same encoder as on a Mac, operands held to Apple's rules, and what an engine cannot do is done by own kernels. That the engine
//! takes a call of each is part of the test.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "harness/engines.rs"]
mod engines;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod harness;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn main() {
    use engines::{OF_MPS, OF_MPSGRAPH};
    use harness::suite::{Breadth, elementwise, listed};
    use libtest_mimic::{Arguments, Failed, Trial};
    use openmps_emulator::Schedule;
    use openmps_graph::operators::ENTRIES;
    use openmps_graph::operators::elementwise::Elementwise;
    use openmps_metal::emulated::Emulated;
    use openmps_runtime::vendor::Engine;
    use openmps_runtime::{CommandKind, Device};

    type Run = fn(&Device, &'static str) -> Result<(), Failed>;
    let of_table: Run = |device, name| {
        let operator = Elementwise::all().find(|operator| operator.row().name == name);
        elementwise(device, operator.ok_or("unknown")?, Breadth::of_environment())
    };
    let of_list: Run = |device, name| {
        let mut entries = ENTRIES.iter().copied().flatten().copied();
        listed(device, entries.find(|entry| entry.name == name).ok_or("unknown")?, Breadth::of_environment())
    };
    let tables = Elementwise::all().map(|operator| (operator.row().name, of_table));
    let lists = ENTRIES.iter().copied().flatten().map(|entry| (entry.name, of_list));
    let all: Vec<(&'static str, Run)> = tables.chain(lists).collect();
    let mut trials = Vec::new();
    for (engine, text, must) in [(Engine::Mps, "mps", OF_MPS), (Engine::MpsGraph, "mpsgraph", OF_MPSGRAPH)] {
        // The others take the way that the tests of schedules go.
        for &(name, run) in all.iter().filter(|(name, _)| must.contains(name)) {
            trials.push(Trial::test(format!("{name}/{text}"), move || {
                let device = Device::over_with_engine(0, Emulated::with_schedule(Schedule::Descending), Some(engine));
                run(&device, name)?;
                let taken = device.queue().counts().of(CommandKind::Vendor);
                if taken > 0 { Ok(()) } else { Err(format!("{text} took no call").into()) }
            }));
        }
        assert_eq!(trials.iter().filter(|trial| trial.name().ends_with(&format!("/{text}"))).count(), must.len());
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn main() {}
