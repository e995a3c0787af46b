//! Finding and running clang and its linker.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A clang that has the "C++ for OpenCL" mode, and a linker for shared objects.
#[derive(Debug, Clone)]
pub(crate) struct Toolchain {
    clang: Vec<OsString>,
    linker: Vec<OsString>,
    /// What `clang --version` says; a part of every cache key.
    pub version: String,
}

/// Names of clang on the PATH, the newest first.
const NAMES: [&str; 5] = ["clang-22", "clang-21", "clang-20", "clang-19", "clang"];
const OLDEST: u32 = 19;

impl Toolchain {
    /// The tool chain of this process: `OPENMPS_CLANG`, else `ziglang` of an environment that is in use, else a clang on the PATH.
    pub(crate) fn get() -> Result<&'static Toolchain> {
        static FOUND: OnceLock<std::result::Result<Toolchain, String>> = OnceLock::new();
        let found = FOUND.get_or_init(Toolchain::find);
        found.as_ref().map_err(|looked_at| Error::NoCompiler { looked_at: looked_at.clone() })
    }

    fn find() -> std::result::Result<Toolchain, String> {
        let mut looked_at = Vec::new();
        for (clang, linker) in candidates(&mut looked_at) {
            match version(&clang) {
                Ok(version) => return Ok(Toolchain { clang, linker, version }),
                Err(reason) => looked_at.push(reason),
            }
        }
        Err(looked_at.join(", "))
    }

    /// The compiler proper: `clang -cc1`.
    pub(crate) fn compiler(&self) -> Command {
        let mut command = command(&self.clang);
        command.arg("-cc1");
        command
    }

    /// The linker, with `-shared`.
    pub(crate) fn linker(&self) -> Command {
        let mut command = command(&self.linker);
        command.arg("-shared");
        command
    }
}

/// Commands of clang and linker to try, in order; places without one are noted.
fn candidates(looked_at: &mut Vec<String>) -> Vec<(Vec<OsString>, Vec<OsString>)> {
    if let Some(named) = openmps_settings::CLANG.get() {
        return vec![with_linker(&named.into_os_string())];
    }
    let mut found = Vec::new();
    for folder in environments() {
        match zig(&folder) {
            Some(zig) => found.push((words(&zig, "clang"), words(&zig, "ld.lld"))),
            None => looked_at.push(format!("{} (no ziglang)", folder.display())),
        }
    }
    found.extend(NAMES.iter().map(|name| with_linker(&OsString::from(name))));
    found
}

fn words(program: &Path, word: &str) -> Vec<OsString> {
    vec![program.into(), word.into()]
}

/// A plain clang links with the system's compiler driver, which is there wherever Rust links.
fn with_linker(clang: &OsString) -> (Vec<OsString>, Vec<OsString>) {
    (vec![clang.clone()], vec!["cc".into(), "-nostdlib".into()])
}

/// The environment of the Python interpreter that runs this process.
static OF_INTERPRETER: OnceLock<PathBuf> = OnceLock::new();

/// Says in which environment (`sys.prefix`) this process's Python interpreter runs; the package `ziglang` is looked for there.
pub fn interpreter_in(environment: PathBuf) {
    // The first word stays: an interpreter does not move.
    let _ = OF_INTERPRETER.set(environment);
}

/// Environments that are in use: the active one, that of the interpreter, and `.venv` beside a workspace whose program cargo runs. What
/// merely lies in the working folder may be anybody's.
fn environments() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let mut folders: Vec<PathBuf> = variable("VIRTUAL_ENV").into_iter().chain(OF_INTERPRETER.get().cloned()).collect();
    if let Some(package) = variable("CARGO_MANIFEST_DIR") {
        folders.extend(package.ancestors().map(|folder| folder.join(".venv")));
    }
    folders.retain(|folder| folder.is_dir());
    folders.dedup();
    folders
}

/// The program of the PyPI package `ziglang`.
fn zig(environment: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(environment.join("lib")).ok()?;
    let packages =
        versions.map_while(std::result::Result::ok).map(|entry| entry.path().join("site-packages/ziglang/zig"));
    packages.into_iter().find(|program| program.is_file())
}

/// The version line, or why this is not a compiler to use.
fn version(clang: &[OsString]) -> std::result::Result<String, String> {
    let name = clang.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = command(clang).arg("--version").output().map_err(|error| format!("{name} ({error})"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default().to_owned();
    let number = line.split("version ").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    match number {
        Some(number) if number >= OLDEST => Ok(line),
        Some(number) => Err(format!("{name} (version {number})")),
        None => Err(format!("{name} (says `{line}`)")),
    }
}

fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}
