//! Every operator on every device, element type and layout against its float64 reference. The list of operators makes the tests.

mod harness;

use harness::suite::{Breadth, elementwise, listed};
use libtest_mimic::{Arguments, Trial};
use openmps_graph::operators::ENTRIES;
use openmps_graph::operators::elementwise::Elementwise;
use openmps_runtime::Device;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for device in Device::all() {
        let backend = device.properties().backend.name();
        for operator in Elementwise::all() {
            let name = format!("{}/{backend}", operator.row().name);
            trials.push(Trial::test(name, move || elementwise(device, operator, Breadth::Whole)));
        }
        for entry in ENTRIES.iter().copied().flatten().copied() {
            trials
                .push(Trial::test(format!("{}/{backend}", entry.name), move || listed(device, entry, Breadth::Whole)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
