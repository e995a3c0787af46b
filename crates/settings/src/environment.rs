//! The environment as a whole: wrong values, and names that are none of openmps's.

use crate::setting::Row;
use std::ffi::OsString;
use std::io::Write;
use std::sync::Once;

/// What every variable begins with.
const PREFIX: &str = "OPENMPS_";

/// The rows of a table.
type Rows = [&'static dyn Row];

/// Says once a process what is wrong with the environment.
pub(crate) fn look_through(table: &Rows) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, text) in ours() {
            match table.iter().find(|row| row.name() == name) {
                Some(row) => {
                    if let Some(problem) = row.problem(&text) {
                        row.report(&problem);
                    }
                }
                None => say(&unknown(table, &name)),
            }
        }
    });
}

/// What is wrong with the environment as it is now.
pub(crate) fn problems(table: &Rows) -> Vec<String> {
    let problem = |(name, text): (String, OsString)| match table.iter().find(|row| row.name() == name) {
        Some(row) => row.problem(&text),
        None => Some(unknown(table, &name)),
    };
    ours().into_iter().filter_map(problem).collect()
}

/// The variables of openmps that are set, by name.
fn ours() -> Vec<(String, OsString)> {
    let mut ours: Vec<(String, OsString)> = std::env::vars_os()
        .map(|(name, text)| (name.to_string_lossy().into_owned(), text))
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    ours.sort();
    ours
}

fn unknown(table: &Rows, name: &str) -> String {
    let like = |known: &&str| strsim::normalized_damerau_levenshtein(name, known);
    let nearest = table.iter().map(|row| row.name()).max_by(|left, right| like(left).total_cmp(&like(right)));
    format!("{name} is no setting and changes nothing; the nearest is {}", nearest.unwrap_or_default())
}

/// One line on standard error. Where that is closed nobody listens, and nothing else can be done.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "openmps: {line}");
}
