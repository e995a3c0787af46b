//! An event of a trace as JSON, by Chrome's format of trace events.

use super::Event;
use std::fmt;

/// The device whose dispatches are counted: emulated GPUs share their emulator, which does not know them apart.
const EMULATED: usize = 0;

/// The line that names a device.
pub(super) fn device_name(device: usize) -> String {
    format!(r#"{{"ph":"M","name":"process_name","pid":{device},"args":{{"name":"openmps device {device}"}}}}"#)
}

/// The line that names a thread of a device.
pub(super) fn thread_name(device: usize, thread: usize, name: &str) -> String {
    let name = Quoted(name);
    format!(r#"{{"ph":"M","name":"thread_name","pid":{device},"tid":{thread},"args":{{"name":{name}}}}}"#)
}

impl Event {
    pub(super) fn device(&self) -> usize {
        match self {
            Event::Command { device, .. } | Event::Memory { device, .. } => *device,
            Event::Counted { .. } => EMULATED,
        }
    }

    pub(super) fn thread(&self) -> Option<usize> {
        match self {
            Event::Command { thread, .. } | Event::Counted { thread, .. } => Some(*thread),
            Event::Memory { .. } => None,
        }
    }
}

/// Microseconds with three decimals, as the format wants its times.
struct Microseconds(u64);

impl fmt::Display for Microseconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A JSON string.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' => out.write_str("\\\"")?,
                '\\' => out.write_str("\\\\")?,
                c if (c as u32) < 0x20 => write!(out, "\\u{:04x}", c as u32)?,
                c => write!(out, "{c}")?,
            }
        }
        out.write_str("\"")
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Command { name, kind, device, queue, thread, begin, end, bytes, detail, error } => {
                let (ts, duration) = (Microseconds(*begin), Microseconds(end - begin));
                write!(out, r#"{{"ph":"X","name":{},"cat":"{kind}","pid":{device},"tid":{thread},"#, Quoted(name))?;
                write!(out, r#""ts":{ts},"dur":{duration},"args":{{"queue":{queue}"#)?;
                if let Some(bytes) = bytes {
                    write!(out, r#","bytes":{bytes}"#)?;
                }
                if !detail.is_empty() {
                    write!(out, r#","detail":{}"#, Quoted(detail))?;
                }
                if let Some(error) = error {
                    write!(out, r#","error":{}"#, Quoted(error))?;
                }
                out.write_str("}}")
            }
            Event::Counted { kernel, thread, time, threadgroups, numbers, times } => {
                write!(out, r#"{{"ph":"i","s":"t","name":{},"cat":"counters","pid":{EMULATED},"#, Quoted(kernel))?;
                write!(out, r#""tid":{thread},"ts":{},"args":{{"threadgroups":{threadgroups}"#, Microseconds(*time))?;
                numbers.iter().try_for_each(|(name, number)| write!(out, r#","{name}":{number}"#))?;
                times.iter().try_for_each(|(name, time)| write!(out, r#","{name}_us":{time:.3}"#))?;
                out.write_str("}}")
            }
            Event::Memory { device, time, allocated, reserved } => {
                write!(out, r#"{{"ph":"C","name":"memory","pid":{device},"ts":{},"#, Microseconds(*time))?;
                write!(out, r#""args":{{"allocated":{allocated},"reserved":{reserved}}}}}"#)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_numbers_of_an_instant() {
        let numbers = vec![("device_bytes", 4096), ("registers", 7)];
        let times = vec![("M1", 1.25)];
        let kernel = "k \"1\"".to_owned();
        let event = Event::Counted { kernel, thread: 3, time: 1500, threadgroups: 2, numbers, times };
        let parsed: serde_json::Value = serde_json::from_str(&event.to_string()).expect("JSON");
        let args = serde_json::json!({"threadgroups": 2, "device_bytes": 4096, "registers": 7, "M1_us": 1.25});
        let expected = serde_json::json!({
            "ph": "i", "s": "t", "name": "k \"1\"", "cat": "counters", "pid": 0, "tid": 3, "ts": 1.5, "args": args
        });
        assert_eq!(parsed, expected);
    }

    #[test]
    fn every_text_becomes_one_json_string() {
        for text in ["plain", "quote \" and \\ and \n\t\u{1}", "行列積 ✓", ""] {
            let parsed: String = serde_json::from_str(&Quoted(text).to_string()).expect("JSON");
            assert_eq!(parsed, text);
        }
    }
}
