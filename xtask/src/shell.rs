//! Running other programs.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A task's result; errors are sentences for the user.
pub type Result<T> = std::result::Result<T, String>;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_path_buf()
}

/// A line that says what happens now.
pub fn say(text: &str) {
    println!("==> {text}");
    // A closed pipe is no reason to stop.
    let _ = std::io::stdout().flush();
}

/// A command in the repository's root. Cargo's variables of this very run do not leak into it.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let of_this_run =
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "LD_LIBRARY_PATH";
        if of_this_run {
            command.env_remove(&name);
        }
    }
    command
}

/// `cargo`, the one that runs this.
pub fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command to its end; its output is the user's.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| cannot(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed: {status}", name(command))) }
}

/// Runs a command to its end and passes its lines on; those that `keep` accepts are returned. An exit status other than 0 is an error
/// after the lines.
pub fn run_and_keep(command: &mut Command, keep: impl Fn(&str) -> bool) -> (Vec<String>, Result<()>) {
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return (Vec::new(), Err(cannot(command, &error))),
    };
    let mut kept = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            println!("{line}");
            if keep(&line) {
                kept.push(line);
            }
        }
    }
    let result = match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} failed: {status}", name(command))),
        Err(error) => Err(cannot(command, &error)),
    };
    (kept, result)
}

/// What a command prints, or nothing when it cannot run or fails.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn cannot(command: &Command, error: &std::io::Error) -> String {
    format!("{} cannot be run: {error}", name(command))
}

fn name(command: &Command) -> String {
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program.to_string_lossy().into_owned()).chain(arguments).take(6).collect::<Vec<_>>().join(" ")
}
