//! Traces as a viewer reads them. One process-wide trace, so one test at a time holds it.

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::ByAddress;
use openmps_runtime::{Device, Error, trace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn parsed(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("the trace's file");
    serde_json::from_str(&text).expect("JSON")
}

fn named<'a>(trace: &'a Value, name: &str) -> Vec<&'a Value> {
    let events = trace["traceEvents"].as_array().expect("a list of events");
    events.iter().filter(|event| event["name"] == name).collect()
}

#[test]
fn commands_and_memory_are_in_the_file() {
    let _turn = ONE_AT_A_TIME.lock();
    let device = Device::get(0).expect("the host");
    let queue = device.new_queue();
    trace::start(path("commands.json")).expect("a trace");
    assert!(trace::is_on());
    let buffer = device.allocate(1 << 20).expect("memory");
    queue.fill_at(buffer.address(), 1, 1 << 20).expect("filled");
    queue.library_with_detail("matmul", || "a \"quoted\" shape".into(), || Ok(())).expect("runs");
    let failed = queue.library("broken", || Err(openmps_host::Error::Invalid("line 1\nline 2".into())));
    assert!(failed.is_err());
    let written = trace::stop().expect("written");
    assert!(!trace::is_on());
    queue.library("untraced", || Ok(())).expect("runs");

    let trace = parsed(&written);
    let fill = named(&trace, "fill")[0];
    assert_eq!((&fill["ph"], &fill["cat"], &fill["pid"]), (&"X".into(), &"fill".into(), &0.into()));
    assert_eq!((&fill["args"]["bytes"], &fill["args"]["queue"]), (&(1 << 20).into(), &queue.id().into()));
    assert!(fill["dur"].as_f64().expect("a time") > 1.0, "a MiB takes longer than a microsecond");
    assert_eq!(named(&trace, "matmul")[0]["args"]["detail"], "a \"quoted\" shape");
    assert_eq!(named(&trace, "broken")[0]["args"]["error"], "broken failed: line 1\nline 2");
    assert!(named(&trace, "memory").iter().any(|event| event["args"]["allocated"].as_u64() >= Some(1 << 20)));
    assert_eq!(named(&trace, "process_name")[0]["args"]["name"], "openmps device 0");
    assert!(!named(&trace, "thread_name").is_empty());
    assert!(named(&trace, "untraced").is_empty());
    assert_eq!(trace["otherData"]["dropped_events"], 0);
}

#[test]
fn an_empty_trace_is_valid_and_misuse_is_an_error() {
    let _turn = ONE_AT_A_TIME.lock();
    assert!(matches!(trace::stop(), Err(Error::Tracing { .. })));
    let guard = trace::scoped(path("empty.json")).expect("a trace");
    let second = trace::start(path("second.json")).expect_err("one at a time").to_string();
    assert!(second.contains("empty.json"), "{second}");
    drop(guard);
    assert_eq!(parsed(&path("empty.json"))["traceEvents"], Value::Array(vec![]));
    assert!(matches!(trace::start("/no/such/folder/trace.json"), Err(Error::Io { .. })));
    assert!(!trace::is_on());
}

#[test]
fn what_exceeds_the_memory_for_events_is_counted() {
    let _turn = ONE_AT_A_TIME.lock();
    let queue = Device::get(0).expect("the host").new_queue();
    let file = path("bounded.json");
    trace::start_bounded(&file, 100).expect("a trace");
    for _ in 0..110 {
        queue.library("many", || Ok(())).expect("runs");
    }
    trace::stop().expect("written");
    assert_eq!(parsed(&file)["otherData"]["dropped_events"], 10);
    assert_eq!(named(&parsed(&file), "many").len(), 100);
}
