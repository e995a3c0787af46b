//! `demo` and `bench`: programs of `examples` and `benches` on the installed wheel.

use crate::shell::{Result, cargo, root, run, say};
use crate::{python, setup};

/// The program that shows most.
pub const DEFAULT: &str = "demo";

/// Sets up and runs `examples/<name>.py`.
pub fn run_example(name: &str, arguments: &[String]) -> Result<()> {
    let program = root().join("examples").join(format!("{name}.py"));
    if !program.exists() {
        return Err(format!("there is no examples/{name}.py; there are: {}", names("examples").join(", ")));
    }
    setup::run()?;
    say(&format!("examples/{name}.py"));
    run(python::venv_python().arg(program).args(arguments))
}

/// Runs the benches in Rust, then `benches/compare.py`; with a filter, what has it in its name.
pub fn bench(filter: Option<&str>, options: &[String]) -> Result<()> {
    say("Benches in Rust");
    run(cargo().args(["bench", "--workspace", "--exclude", "openmps-python", "--benches"]).args(filter))?;
    setup::run()?;
    say("benches/compare.py");
    let compare = root().join("benches").join("compare.py");
    run(python::venv_python().arg(compare).args(filter.iter().flat_map(|filter| ["--only", *filter])).args(options))
}

/// The Python programs of a folder, without their endings, in order.
fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).into_iter().flatten().map_while(std::result::Result::ok);
    let mut names: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "py"))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .filter(|name| !name.starts_with('_'))
        .collect();
    names.sort();
    names
}
