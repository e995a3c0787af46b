//! Where the compiler is looked for. Each test runs this program again with another environment: it is looked for once a process.
#![cfg(target_os = "linux")]

use openmps_emulator::{Error, Library};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What the ignored test `report` prints in this folder, with nothing in the environment but these variables.
fn report(folder: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "report_to_the_parent", "--ignored", "--nocapture"]).current_dir(folder);
    let output = command.env_clear().envs(variables.iter().copied()).output().expect("the program runs");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "the child of the other tests"]
fn report_to_the_parent() {
    match Library::compile("kernel void k() {}") {
        Err(error @ Error::NoCompiler { .. }) => println!("refused: {error}"),
        Err(error) => println!("another error: {error}"),
        Ok(_) => println!("compiled"),
    }
}

#[test]
fn a_missing_compiler_says_how_to_get_one() {
    let text = report(Path::new("/"), &[("OPENMPS_CLANG", "/nonexistent/clang")]);
    assert!(text.contains("cargo xtask setup") && text.contains("/nonexistent/clang"), "{text}");
}

/// A program named zig, in an environment that nobody has activated, beside the working folder: it is run only where it is named.
#[test]
fn a_compiler_in_the_working_folder_is_not_run() {
    let place = tempfile::tempdir().expect("a folder");
    let environment = place.path().join(".venv");
    let zig = environment.join("lib/python3/site-packages/ziglang/zig");
    std::fs::create_dir_all(zig.parent().expect("a folder")).expect("made");
    std::fs::write(&zig, "#!/bin/sh\necho ran > ran\n").expect("written");
    std::fs::set_permissions(&zig, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let below = place.path().join("below");
    std::fs::create_dir(&below).expect("made");
    for folder in [place.path(), &below] {
        let text = report(folder, &[("PATH", "/nonexistent"), ("VIRTUAL_ENV", ".venv")]);
        assert!(text.contains("refused") && !folder.join("ran").exists(), "{text}");
    }
    let active = environment.to_str().expect("a plain path");
    let text = report(
        place.path(),
        &[
            ("PATH", "/usr/bin:/bin"),
            ("VIRTUAL_ENV", active),
            ("OPENMPS_EMULATOR_CACHE", below.to_str().expect("a plain path")),
        ],
    );
    assert!(place.path().join("ran").exists(), "an active environment's is run: {text}");
}
