//! Lines of the file that `OPENMPS_EMULATOR_COUNT` names: a row of a Markdown table for each dispatch; and whoever else wants to know.

use openmps_emulator::{Counters, GPUS, Report};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Is told a kernel's name, how many threadgroups there were, and what they did.
pub type Observer = fn(&str, u64, &Counters);

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// From now on an observer is told of each dispatch that is counted. The first one stays.
pub fn observe(observer: Observer) {
    OBSERVER.get_or_init(|| observer);
}

/// Adds a line where the kernel was counted.
pub(super) fn note(kernel: &str, report: &Report) {
    static FILE: OnceLock<Option<Mutex<File>>> = OnceLock::new();
    let Some(counters) = &report.counters else { return };
    if let Some(observer) = OBSERVER.get() {
        observer(kernel, report.threadgroups, counters);
    }
    let Some(file) = FILE.get_or_init(opened) else { return };
    let times = GPUS.map(|gpu| format!("{:.1}", gpu.seconds(counters) * 1e6)).join(" | ");
    let line = format!("| {kernel} | {} | {counters} | {times} |\n", report.threadgroups);
    say(file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes()));
}

/// The file, with the head of the table where it is new.
fn opened() -> Option<Mutex<File>> {
    let path = openmps_settings::EMULATOR_COUNT.get()?;
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let mut file = say(file)?;
    if file.metadata().is_ok_and(|data| data.len() == 0) {
        let times = GPUS.map(|gpu| format!("{}, us", gpu.name)).join(" | ");
        let columns = Counters::HEAD.split('|').count() + GPUS.len() + 2;
        let rule = "---|".repeat(columns);
        let head = format!("| kernel | threadgroups | {} | {times} |\n|{rule}\n", Counters::HEAD);
        say(file.write_all(head.as_bytes()))?;
    }
    Some(Mutex::new(file))
}

/// What a file cannot take is said, and the work goes on.
fn say<T>(result: std::io::Result<T>) -> Option<T> {
    result.inspect_err(|error| tracing::warn!("OPENMPS_EMULATOR_COUNT: {error}")).ok()
}
