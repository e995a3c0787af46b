//! What environment variables change. Each test runs this program again with the variables set.

use openmps_runtime::Device;
use serde_json::Value;
use std::path::Path;
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
    let asked = |variable: &str| std::env::var_os(variable).is_some();
    if asked("REASON") {
        return println!("reason={} of {}", Device::get(0).expect_err("none"), Device::all().len());
    }
    let device = Device::get(0).expect("the host");
    println!("devices={} limit={}", Device::all().len(), device.memory_limit());
    device.queue().run_native("reporting", || Ok(())).expect("runs");
    let last = Device::all().last().expect("a device");
    println!("last={}", last.index());
    if asked("FORK") {
        fork(&device);
        device.queue().run_native("after the fork", || Ok(())).expect("runs");
    }
    if asked("END_AT_ONCE") {
        // SAFETY: ends the process without anything that runs at its end.
        unsafe { libc::_exit(0) };
    }
}

/// A child that computes and ends as programs do, waited for.
fn fork(device: &Device) {
    // SAFETY: the child calls what this test is about, on its only thread, and ends.
    unsafe {
        match libc::fork() {
            0 => {
                device.queue().run_native("of the child", || Ok(())).expect("runs");
                libc::exit(0);
            }
            child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
        }
    }
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

/// The traces in a folder of this name, by their files' names, after a run with `OPENMPS_TRACE` and another variable.
fn traces(folder: &str, variable: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("trace.json");
    report(&[("OPENMPS_TRACE", path.to_str().expect("a plain path")), (variable, "1")]);
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let text = std::fs::read_to_string(entry.path()).expect("a file");
        (entry.file_name().to_string_lossy().into_owned(), serde_json::from_str(&text).expect("JSON"))
    };
    let mut traces: Vec<(String, Value)> = std::fs::read_dir(folder).expect("the folder").map(read).collect();
    traces.sort_by_key(|(name, _)| name.len());
    traces
}

fn count(trace: &Value, name: &str) -> usize {
    trace["traceEvents"].as_array().expect("a list").iter().filter(|event| event["name"] == name).count()
}

#[test]
fn a_trace_of_the_whole_process_is_written_at_its_exit() {
    let traces = traces("whole-process", "NOTHING");
    assert_eq!((traces.len(), count(&traces[0].1, "reporting")), (1, 1));
}

/// The last moments of a process that `_exit` ends may be missing, its file is still one.
#[test]
fn a_process_that_ends_at_once_leaves_a_valid_trace() {
    let traces = traces("at-once", "END_AT_ONCE");
    assert_eq!((traces.len(), count(&traces[0].1, "reporting")), (1, 1));
}

#[test]
fn a_forked_child_has_a_trace_of_its_own() {
    let traces = traces("forked", "FORK");
    assert_eq!(traces.len(), 2, "{traces:?}");
    let [(_, parent), (name, child)] = &traces[..] else { panic!("two files") };
    assert_eq!((count(parent, "reporting"), count(parent, "of the child"), count(parent, "after the fork")), (1, 0, 1));
    assert_eq!((count(child, "reporting"), count(child, "of the child"), count(child, "after the fork")), (0, 1, 0));
    assert!(name.starts_with("trace.") && name.ends_with(".json"), "{name}");
}

#[test]
fn a_wrong_device_is_no_device_with_a_reason() {
    let mut variables = [("OPENMPS_DEVICE", "gpu"), ("REASON", "1")];
    assert!(report(&variables).contains(r#"reason=no device: OPENMPS_DEVICE="gpu" is not allowed"#));
    variables[0].1 = if cfg!(target_os = "macos") { "cuda" } else { "metal" };
    assert!(report(&variables).contains("reason=no device: "));
}
