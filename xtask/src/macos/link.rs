//! `wheel-macos`: the executable, the dylib and the wheel for Apple Silicon, linked without a Mac, and a look at each.
//!
//! rustc calls a linker by one path; that path is this very program under another name, which hands on to `rust-lld`.

use super::{DEBIAN_RUSTC, Library, TARGET, folder, inspect, prepare, stubs};
use crate::python;
use crate::shell::{Result, cargo, command, output, root, run, say};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The name under which this program is a linker.
pub const NAME: &str = "openmps-ld";

/// Whether this program was called as a linker.
pub fn called() -> bool {
    std::env::args_os().next().is_some_and(|name| Path::new(&name).ends_with(NAME))
}

/// Hands on to `rust-lld`. Build scripts write their arguments for a C compiler, so `-Wl,` is taken off.
pub fn hand_on() -> ExitCode {
    let mut arguments = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.strip_prefix("-Wl,") {
            Some(list) => arguments.extend(list.split(',').map(str::to_owned)),
            None => arguments.push(argument),
        }
    }
    let lld = rust_lld().map(|lld| Command::new(lld).args(arguments).status());
    match lld {
        Ok(Ok(status)) if status.success() => ExitCode::SUCCESS,
        Ok(Ok(status)) => ExitCode::from(status.code().unwrap_or(1) as u8),
        Ok(Err(error)) => fail(&error.to_string()),
        Err(error) => fail(&error),
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("{NAME}: {error}");
    ExitCode::FAILURE
}

/// rustup's own linker.
fn rust_lld() -> Result<PathBuf> {
    let asked = ["--print", "target-libdir"];
    let folder = output(Command::new("rustc").env_remove("RUSTC").args(asked)).ok_or("rustc does not run")?;
    let lld = Path::new(&folder).parent().map(|folder| folder.join("bin").join("rust-lld"));
    lld.filter(|lld| lld.exists())
        .ok_or_else(|| format!("there is no rust-lld beside {folder}; {DEBIAN_RUSTC} has none"))
}

/// Links everything and looks at it.
pub fn wheel() -> Result<()> {
    say(&format!("Linking for {TARGET}"));
    let library = Library::find()?;
    if !cfg!(target_os = "macos") {
        rust_lld()?;
        stubs::write()?;
        name_linker()?;
    }
    let mut build = cargo();
    build.args(["build", "--release", "--target", TARGET, "--package", "openmps-metal", "--example", "selftest"]);
    prepare(&mut build, &library);
    run(&mut build)?;
    let release = root().join("target").join(TARGET).join("release");
    inspect::check(&release.join("examples").join("selftest"))?;
    let out = root().join("target").join("wheels-macos");
    let _ = std::fs::remove_dir_all(&out);
    let mut maturin = python::venv_python();
    maturin.args(["-m", "maturin", "build", "--release", "--manifest-path", "frontends/python/Cargo.toml"]);
    maturin.args(["--target", TARGET, "--interpreter", "python3.11", "--out"]).arg(&out);
    prepare(&mut maturin, &library);
    if !cfg!(target_os = "macos") {
        // Stripping needs a tool that neither rustup nor Debian brings in working order, and would undo the linker's signature.
        maturin.args(["--strip", "false"]);
    }
    run(&mut maturin)?;
    inspect::check(&release.join("libopenmps_native.dylib"))?;
    println!("\n==> The wheel for {TARGET} lies in {}; nothing of it was run on macOS", out.display());
    Ok(())
}

fn name_linker() -> Result<()> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let link = folder().join(NAME);
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&own, &link).map_err(|error| format!("{}: {error}", link.display()))?;
    // Held against what rustc will do with it.
    run(command(&link).arg("-flavor").arg("darwin").arg("--version"))
}
