//! `mac-selftest`: every suite on a Mac's own GPU, with the checks of message signatures on, and one file with what came out. Fails where
//! there is no device: nothing is skipped.

use crate::shell::{Result, cargo, command, output, root, say};
use crate::{python, setup};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

const REPORT: &str = "mac-selftest.txt";

/// Runs everything, whatever fails; the error says how much did.
pub fn run() -> Result<()> {
    if !cfg!(target_os = "macos") {
        return Err("this needs macOS: there is no Metal here".to_owned());
    }
    setup::run()?;
    let mut report = String::new();
    for (program, arguments) in
        [("sw_vers", &[][..]), ("uname", &["-a"]), ("sysctl", &["-n", "machdep.cpu.brand_string", "hw.memsize"])]
    {
        let text = output(command(program).args(arguments)).unwrap_or_else(|| "?".to_owned());
        let _ = writeln!(report, "$ {program} {}\n{text}\n", arguments.join(" "));
    }
    // Debug builds: objc2 compares each message's signature with the class's own there.
    let suites: [(&str, Command); 6] = [
        ("the first run", with(cargo(), &["run", "--package", "openmps-metal", "--example", "selftest"])),
        ("the encoder", with(cargo(), &["test", "--package", "openmps-metal"])),
        ("the runtime", with(cargo(), &["test", "--package", "openmps-runtime"])),
        ("operators on the host", with(cargo(), &["test", "--package", "openmps-graph"])),
        ("operators on the GPU", on_metal(with(cargo(), &["test", "--package", "openmps-graph"]))),
        (
            "Python on the GPU",
            on_metal(with(python::venv_python(), &["-m", "pytest", "-p", "no:cacheprovider", "tests"])),
        ),
    ];
    let mut failed = Vec::new();
    for (name, mut suite) in suites {
        say(name);
        let (text, passed) = both(&mut suite);
        println!("{}", text.lines().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"));
        let _ = writeln!(report, "==> {name}: {}\n{text}\n", if passed { "passed" } else { "FAILED" });
        if !passed {
            failed.push(name);
        }
    }
    let path = write(&report)?;
    println!("\n==> {} holds all of it", path.display());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}; please send {REPORT}", failed.join(", "))) }
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    // Metal's own validation of every call and of every kernel's memory.
    command.args(arguments).env("MTL_DEBUG_LAYER", "1").env("MTL_SHADER_VALIDATION", "1").env("RUST_BACKTRACE", "1");
    command
}

fn on_metal(mut command: Command) -> Command {
    command.env("OPENMPS_DEVICE", "metal");
    command
}

/// What a command says on both ways, and whether it ended well.
fn both(command: &mut Command) -> (String, bool) {
    match command.output() {
        Ok(output) => {
            let text =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
            (text, output.status.success())
        }
        Err(error) => (format!("it cannot be run: {error}"), false),
    }
}

fn write(report: &str) -> Result<PathBuf> {
    let path = root().join("target").join(REPORT);
    std::fs::write(&path, report).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
