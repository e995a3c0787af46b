//! Traces as a viewer reads them. One process-wide trace, so one test at a time holds it.

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::ByAddress;
use openmps_runtime::trace::{self, Recorder};
use openmps_runtime::{CommandKind, Device, Error};
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
    queue.run_native_with_detail("matmul", || "a \"quoted\" shape".into(), || Ok(())).expect("runs");
    let failed = queue.run_native("broken", || Err(openmps_host::Error::Invalid("line 1\nline 2".into())));
    assert!(failed.is_err());
    let written = trace::stop().expect("written");
    assert!(!trace::is_on());
    queue.run_native("untraced", || Ok(())).expect("runs");

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
    trace::start(path("empty.json")).expect("a trace");
    let second = trace::start(path("second.json")).expect_err("one at a time").to_string();
    assert!(second.contains("empty.json"), "{second}");
    trace::stop().expect("a file");
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
        queue.run_native("many", || Ok(())).expect("runs");
    }
    trace::stop().expect("written");
    assert_eq!(parsed(&file)["otherData"]["dropped_events"], 10);
    assert_eq!(named(&parsed(&file), "many").len(), 100);
}

/// A file that a viewer can open, at every moment: a process may be killed.
#[test]
fn the_file_is_valid_while_it_grows() {
    let _turn = ONE_AT_A_TIME.lock();
    let queue = Device::get(0).expect("the host").new_queue();
    let file = path("growing.json");
    trace::start(&file).expect("a trace");
    assert_eq!(parsed(&file)["traceEvents"], Value::Array(vec![]));
    let begun = std::time::Instant::now();
    let mut sizes = std::collections::BTreeSet::new();
    while begun.elapsed().as_millis() < 300 {
        queue.run_native("growing", || Ok(())).expect("runs");
        if sizes.insert(std::fs::metadata(&file).expect("the file").len()) {
            parsed(&file);
        }
    }
    assert!(sizes.len() > 3, "written {} times in 0.3 s", sizes.len());
    trace::stop().expect("written");
    parsed(&file);
}

#[test]
fn events_of_many_threads_are_all_there() {
    let _turn = ONE_AT_A_TIME.lock();
    let device = Device::get(0).expect("the host");
    let file = path("threads.json");
    trace::start(&file).expect("a trace");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let queue = device.new_queue();
                (0..5000).for_each(|_| queue.run_native("of a thread", || Ok(())).expect("runs"));
            });
        }
    });
    trace::stop().expect("written");
    let trace = parsed(&file);
    let mut threads: Vec<u64> = named(&trace, "of a thread").iter().filter_map(|event| event["tid"].as_u64()).collect();
    assert_eq!(threads.len(), 40_000);
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 8);
}

#[test]
fn a_file_of_another_process_is_refused() {
    let _turn = ONE_AT_A_TIME.lock();
    let file = path("taken.json");
    let other = std::fs::File::create(&file).expect("made");
    other.lock().expect("as another process would");
    let error = trace::start(&file).expect_err("taken").to_string();
    assert!(error.contains("taken.json") && error.contains("another process"), "{error}");
    assert!(!trace::is_on());
}

#[test]
fn commands_are_recorded_beside_a_trace_and_without_one() {
    let _turn = ONE_AT_A_TIME.lock();
    let device = Device::get(0).expect("the host");
    let queue = device.new_queue();
    let recorder = Recorder::start().expect("a recorder");
    assert!(matches!(Recorder::start(), Err(Error::Tracing { .. })), "one at a time");
    trace::start(path("recorded.json")).expect("a trace");
    let buffer = device.allocate(4096).expect("memory");
    queue.fill_at(buffer.address(), 1, 4096).expect("filled");
    let written = trace::stop().expect("written");
    queue.run_native("after the trace", || Ok(())).expect("runs");
    queue.synchronize().expect("done");
    let records = recorder.stop();
    assert!(!trace::is_on());
    queue.run_native("unrecorded", || Ok(())).expect("runs");
    assert_eq!(named(&parsed(&written), "after the trace").len(), 0);

    let of_queue: Vec<_> = records.iter().filter(|record| record.queue == queue.id()).collect();
    let names: Vec<_> = of_queue.iter().map(|record| record.operation).collect();
    assert_eq!(names, ["fill", "after the trace"]);
    let [fill, native] = [of_queue[0], of_queue[1]];
    assert_eq!((fill.kind, fill.bytes, fill.device), (CommandKind::Fill, Some(4096), 0));
    assert_eq!((native.kind, native.bytes, native.thread), (CommandKind::Native, None, fill.thread));
    assert!(fill.begin_ns <= fill.end_ns && fill.end_ns <= native.begin_ns, "{records:?}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    assert!(native.end_ns <= now && now - fill.begin_ns < 60_000_000_000, "{records:?}");
}
