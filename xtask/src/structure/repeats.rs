//! Lines that stand in more than one place: runs of six or more lines that are the same but for their indentation. Lists of parameters and
//! fields are not counted, since an interface of somebody else's says what they are (a kernel of Paddle's has up to 29); nor are the
//! examples of other documents, which stand here word for word.

use crate::shell::{Result, command};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

/// The fewest lines that count as a repetition.
const RUN: usize = 6;

/// How many lines of code there are, and how many of them are repeated.
pub struct Repeats {
    pub lines: usize,
    pub repeated: usize,
}

impl Repeats {
    /// The repeated lines' share of all.
    pub fn share(&self) -> f64 {
        self.repeated as f64 / self.lines.max(1) as f64
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} lines of code ({:.2} %)", self.repeated, self.lines, 100.0 * self.share())
    }
}

/// Counts them in the Rust and Python files that git knows.
pub fn count(root: &Path) -> Result<Repeats> {
    let listed =
        command("git").args(["ls-files", "*.rs", "*.py", ":!tests/paddle/seed_examples"]).current_dir(root).output();
    let listed = listed.map_err(|error| format!("git: {error}"))?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    let texts: Vec<String> = names.lines().map(read).collect();
    let files: Vec<Vec<&str>> = texts.iter().map(|text| text.lines().filter_map(code).collect()).collect();
    let mut runs: HashMap<&[&str], Vec<(usize, usize)>> = HashMap::new();
    for (file, lines) in files.iter().enumerate() {
        for (at, run) in lines.windows(RUN).enumerate() {
            runs.entry(run).or_default().push((file, at));
        }
    }
    let mut repeated: Vec<Vec<bool>> = files.iter().map(|lines| vec![false; lines.len()]).collect();
    for (file, at) in runs.into_values().filter(|places| places.len() > 1).flatten() {
        repeated[file][at..at + RUN].fill(true);
    }
    let lines = files.iter().map(Vec::len).sum();
    Ok(Repeats { lines, repeated: repeated.iter().flatten().filter(|&&is| is).count() })
}

/// The line without its indentation, where it is code: not a comment, an import or a declaration, and more than brackets.
fn code(line: &str) -> Option<&str> {
    let line = line.trim();
    let prose = ["//", "#", "use ", "pub use ", "import ", "from "].iter().any(|start| line.starts_with(start));
    (!prose && !is_declaration(line) && line.contains(|sign: char| sign.is_alphanumeric())).then_some(line)
}

/// Whether the line is one of a list: a name, a colon, a type, a comma.
fn is_declaration(line: &str) -> bool {
    let parts = line.strip_suffix(',').and_then(|line| line.trim_start_matches("pub ").split_once(": "));
    parts.is_some_and(|(name, of)| {
        let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        name.chars().all(is_name) && of.chars().all(|sign| is_name(sign) || ":<>&' []".contains(sign))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_prose_are_no_code() {
        for line in ["// a comment", "use std::fmt;", "    }", "    pub rate: Option<Tensor>,", "x: &'a mut [f32],", ""]
        {
            assert_eq!(code(line), None, "{line}");
        }
        assert_eq!(code("    x: f(y),"), Some("x: f(y),"));
        assert_eq!(code("    let x = 1;"), Some("let x = 1;"));
    }
}
