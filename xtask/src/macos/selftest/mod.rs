//! `mac-selftest`: every check, and every operator with every engine, on a Mac's own GPU, each in a process of its own, so that an assertion in
//! Apple's frameworks costs one line; and one file with what came out, a table first, to be pasted into an issue. Fails where there is no
//! device: nothing is skipped. On Linux the same runs on the emulated GPU, which tries the run itself.

mod children;
mod report;
mod texts;

use crate::shell::{Result, cargo, command, output, root, say};
use children::{Case, Program};
use report::Report;
use std::path::{Path, PathBuf};
use std::process::Stdio;

// The operators that each engine must take, as the tests of engines have them.
#[path = "../../../../crates/graph/tests/harness/engines.rs"]
mod engines;

/// What is run.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Leave MPS and MPSGraph out: for virtual GPUs, where Apple's libraries may not run
    #[arg(long)]
    kernels_only: bool,
    /// On the emulated GPU, which tries this very run on Linux
    #[arg(long)]
    emulated: bool,
    /// Only cases with this in their names
    #[arg(long)]
    only: Option<String>,
}

/// Runs everything, whatever fails; the error says how much did.
pub fn run(options: &Options) -> Result<()> {
    if !cfg!(target_os = "macos") && !options.emulated {
        return Err("this needs macOS: there is no Metal here; --emulated tries the run itself".to_owned());
    }
    let folder = root().join("target/mac-selftest");
    // What an earlier run has left would be taken for this one's.
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut report = Report::new(&machine(), options.kernels_only);
    for suite in suites(options) {
        say(suite.name);
        match suite.cases(options, &folder) {
            Ok(cases) if cases.is_empty() && options.only.is_none() => report.add_missing(suite.name, "it has no case"),
            Ok(cases) => report.add(suite.name, cases.iter().map(|case| case.run(children::LIMIT))),
            // A suite that does not compile is a line, too.
            Err(error) => report.add_missing(suite.name, &error),
        }
    }
    say("Apple's compiler");
    match texts::cases(&folder) {
        Ok(cases) => report.add("Apple's compiler", cases.iter().map(|case| case.run(children::LIMIT))),
        Err(error) => report.add_missing("Apple's compiler", &error),
    }
    let path = root().join("target/mac-selftest.txt");
    std::fs::write(&path, report.text()).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("\n{}\n==> {} is to be sent", report.summary(), path.display());
    match report.failed() {
        0 => Ok(()),
        failed => Err(format!("{failed} cases did not pass; please send {}", path.display())),
    }
}

/// Tests or checks of one program.
struct Suite {
    name: &'static str,
    /// What cargo is to build, and the name of the program.
    build: &'static [&'static str],
    /// The engine that is forced; without one the table decides.
    engine: Option<&'static str>,
    /// Whether it runs on the GPU.
    on_gpu: bool,
    /// The only operators that are run.
    operators: Option<&'static [&'static str]>,
}

const OPERATORS: &[&str] = &["test", "--package", "openmps-graph", "--test", "every_device"];

fn suites(options: &Options) -> Vec<Suite> {
    let operators = |name, engine, operators| Suite { name, build: OPERATORS, engine, on_gpu: true, operators };
    let whole = |name, build| Suite { name, build, engine: None, on_gpu: false, operators: None };
    let mut suites = Vec::new();
    if !options.emulated {
        suites.push(whole("the first run", &["build", "--package", "openmps-metal", "--example", "selftest"]));
        suites.push(whole("the encoder", &["test", "--package", "openmps-metal", "--test", "stream"]));
        suites.push(whole("the runtime", &["test", "--package", "openmps-runtime", "--test", "metal"]));
        suites.push(whole("operators on the host", OPERATORS));
    }
    suites.push(operators("operators, own kernels", Some("kernels"), None));
    if !options.kernels_only {
        suites.push(operators("operators, MPS", Some("mps"), Some(engines::OF_MPS)));
        suites.push(operators("operators, MPSGraph", Some("mpsgraph"), Some(engines::OF_MPSGRAPH)));
        suites.push(operators("operators, by the table", None, Some(engines::OF_MPSGRAPH)));
    }
    suites
}

impl Suite {
    fn cases(&self, options: &Options, folder: &Path) -> Result<Vec<Case>> {
        let mut program = Program::new(build(self.build, options.emulated)?);
        // Metal's own validation of every call and of every kernel's memory.
        for (name, value) in [("MTL_DEBUG_LAYER", "1"), ("MTL_SHADER_VALIDATION", "1"), ("RUST_BACKTRACE", "1")] {
            program.set(name, value);
        }
        if self.on_gpu {
            program.set("OPENMPS_DEVICE", if options.emulated { "metal-emulated" } else { "metal" });
        }
        if let Some(engine) = self.engine {
            program.set("OPENMPS_METAL_ENGINE", engine);
        }
        let wanted = |name: &String| {
            let operator = name.split('/').next().unwrap_or_default();
            let is_of_engine = self.operators.is_none_or(|operators| operators.contains(&operator));
            // The first run's checks of Apple's libraries.
            let is_wanted = !options.kernels_only || !name.contains("MPS");
            is_of_engine && is_wanted && options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
        };
        let names = program.list()?.into_iter().filter(wanted);
        let of_suite = folder.join(self.name.replace([' ', ','], "-"));
        Ok(names.map(|name| Case::new(program.clone(), name, &of_suite)).collect())
    }
}

/// Builds a program and gives its path. Debug builds on a Mac: objc2 compares each message's signature with the class's own there.
fn build(words: &[&str], release: bool) -> Result<PathBuf> {
    let mut cargo = cargo();
    cargo.args(words).arg("--message-format=json").stderr(Stdio::inherit());
    if words[0] == "test" {
        cargo.arg("--no-run");
    }
    if release {
        cargo.arg("--release");
    }
    let built = cargo.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    let wanted = words.last().copied().unwrap_or_default();
    let path = String::from_utf8_lossy(&built.stdout).lines().filter_map(|line| executable(line, wanted)).next_back();
    path.filter(|_| built.status.success()).ok_or_else(|| format!("cargo {} failed", words.join(" ")))
}

/// The program in a line of cargo's.
fn executable(line: &str, wanted: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let is_wanted = message["target"]["name"] == wanted;
    is_wanted.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
}

fn machine() -> String {
    let asked =
        [("sw_vers", &[][..]), ("uname", &["-a"]), ("sysctl", &["-n", "machdep.cpu.brand_string", "hw.memsize"])];
    let lines = asked.map(|(program, arguments)| output(command(program).args(arguments)).unwrap_or_default());
    lines.iter().filter(|lines| !lines.is_empty()).cloned().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
