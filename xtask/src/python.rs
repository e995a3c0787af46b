//! The Python interpreters: the machine's, which makes .venv, and that of .venv.

use crate::shell::{Result, command, output, root};
use std::path::PathBuf;
use std::process::Command;

/// The oldest Python that the wheel is for; PaddlePaddle 3.3.1 has wheels up to the newest.
const OLDEST: (u32, u32) = (3, 11);
const NEWEST: (u32, u32) = (3, 13);

/// The folder of the virtual environment.
pub fn environment() -> PathBuf {
    root().join(".venv")
}

/// A program of the virtual environment, `python` for example.
pub fn program(name: &str) -> PathBuf {
    environment().join("bin").join(name)
}

/// The interpreter of the virtual environment, as if the environment were active.
pub fn venv_python() -> Command {
    let mut command = command(program("python"));
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("VIRTUAL_ENV", environment()).env_remove("PYTHONHOME");
    command.env("PATH", format!("{}:{path}", environment().join("bin").display()));
    command
}

/// `pip install` of this interpreter, without questions and news of its own.
pub fn pip_install(mut interpreter: Command) -> Command {
    interpreter.args(["-m", "pip", "install", "--disable-pip-version-check", "--quiet"]);
    interpreter
}

/// A shared library that a package of the virtual environment brings, `site-packages/PACKAGE/*/lib/NAME*`.
pub fn library(package: &str, name: &str) -> Option<PathBuf> {
    let entries = |folder: PathBuf| -> Vec<PathBuf> {
        std::fs::read_dir(folder).map_or(Vec::new(), |entries| entries.flatten().map(|entry| entry.path()).collect())
    };
    let packages =
        entries(environment().join("lib")).into_iter().map(|python| python.join("site-packages").join(package));
    let mut libraries = packages.flat_map(entries).flat_map(|part| entries(part.join("lib")));
    libraries.find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
}

/// A Python of this machine that can make the environment: `$PYTHON`, or the first that fits.
pub fn system() -> Result<PathBuf> {
    let chosen = std::env::var("PYTHON").ok();
    let names = ["python3.11", "python3.12", "python3.13", "python3"];
    let candidates =
        chosen.iter().map(String::as_str).chain(if chosen.is_some() { &[][..] } else { &names[..] }.iter().copied());
    let mut seen = Vec::new();
    for name in candidates {
        let asked = "import sys, venv, ensurepip; print(sys.version_info[0], sys.version_info[1], sys.executable)";
        let Some(answer) = output(command(name).args(["-c", asked])) else { continue };
        let mut words = answer.splitn(3, ' ');
        let (major, minor, path) = (words.next(), words.next(), words.next());
        let version =
            (major.and_then(|n| n.parse().ok()).unwrap_or(0), minor.and_then(|n| n.parse().ok()).unwrap_or(0));
        if (OLDEST..=NEWEST).contains(&version) {
            return Ok(PathBuf::from(path.unwrap_or(name)));
        }
        seen.push(format!("{name} is {}.{}", version.0, version.1));
    }
    let seen = if seen.is_empty() { "none was found".to_owned() } else { seen.join(", ") };
    Err(format!(
        "a Python from {}.{} to {}.{} with venv and ensurepip is needed: {seen}. Name one in PYTHON, or install it \
         (Debian: apt-get install python3 python3-venv)",
        OLDEST.0, OLDEST.1, NEWEST.0, NEWEST.1
    ))
}
