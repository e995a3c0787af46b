//! What environment variables change. Each test runs this program again with the variables set.

use openmps_runtime::Device;
use std::process::Command;

/// Runs the ignored test `report` in a process of its own and returns what it prints.
fn report(variables: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().expect("this test program");
    let mut command = Command::new(program);
    command.args(["--exact", "report_to_the_parent", "--ignored", "--nocapture"]);
    let output = command.envs(variables.iter().copied()).output().expect("the program runs");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "the child of the other tests"]
fn report_to_the_parent() {
    let device = Device::get(0).expect("the host");
    println!("devices={} limit={}", Device::all().len(), device.memory_limit());
    device.queue().library("reporting", || Ok(())).expect("runs");
    let last = Device::all().last().expect("a device");
    println!("last={}", last.index());
}

#[test]
fn the_number_of_host_devices() {
    assert!(report(&[]).contains("devices=1 "));
    let four = report(&[("OPENMPS_HOST_DEVICES", "4")]);
    assert!(four.contains("devices=4 ") && four.contains("last=3"), "{four}");
    for nonsense in ["0", "-1", "many", "1000000"] {
        assert!(report(&[("OPENMPS_HOST_DEVICES", nonsense)]).contains("devices=1 "), "{nonsense}");
    }
}

#[test]
fn the_memory_limit() {
    assert!(report(&[("OPENMPS_MEMORY_LIMIT", "2G")]).contains(&format!("limit={}", 2u64 << 30)));
    let total = Device::get(0).expect("the host").properties().total_memory;
    assert!(report(&[("OPENMPS_MEMORY_LIMIT", "lots")]).contains(&format!("limit={total}")));
}

#[test]
fn a_trace_of_the_whole_process_is_written_at_its_exit() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("whole-process.json");
    report(&[("OPENMPS_TRACE", path.to_str().expect("a plain path"))]);
    let text = std::fs::read_to_string(&path).expect("written at exit");
    let trace: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    assert!(events.iter().any(|event| event["name"] == "reporting"));
}
