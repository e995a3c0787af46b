//! The table as text: README's part of it, and docs/settings.md.

use crate::setting::{Audience, Row};
use crate::table::TABLE;
use std::fmt::Write;

const HEAD: &str = "\
# Settings

Environment variables, as `crates/settings/src/table.rs` lists them; its test writes this file. A variable is read when its value is first
needed, and keeps that value in the process. A value that is not allowed, and a name with `OPENMPS_` that is not listed here, is said once on
standard error, with what is used instead; `openmps info` repeats it. An empty variable is one that is not set, where nothing else is said.
";

/// The whole of docs/settings.md.
pub fn document() -> String {
    let mut text = HEAD.to_owned();
    for audience in Audience::ALL {
        let _ = write!(
            text,
            "\n## {}\n\n| variable | allowed | default | meaning | read by |\n|---|---|---|---|---|\n",
            audience.title()
        );
        for row in of(audience) {
            let cells = [
                &format!("`{}`", row.name()),
                &row.rule(),
                row.default(),
                row.meaning(),
                &format!("`{}`", row.reader()),
            ];
            let _ = writeln!(text, "| {} |", cells.map(escape).join(" | "));
        }
    }
    text
}

/// What somebody who is new here needs. The others are in docs/settings.md.
const IN_README: [&str; 5] =
    ["OPENMPS_DEVICE", "OPENMPS_NUM_THREADS", "OPENMPS_MEMORY_LIMIT", "OPENMPS_EXECUTOR", "OPENMPS_TRITON"];

/// The table in README.
pub fn table_for_readme() -> String {
    let mut text = "| variable | meaning | default |\n|---|---|---|\n".to_owned();
    for row in TABLE.iter().filter(|row| IN_README.contains(&row.name())) {
        let _ =
            writeln!(text, "| `{}` | {} | {} |", escape(&row.example()), escape(row.meaning()), escape(row.default()));
    }
    text
}

fn of(audience: Audience) -> impl Iterator<Item = &'static dyn Row> {
    TABLE.iter().copied().filter(move |row| row.audience() == audience)
}

fn escape(cell: &str) -> String {
    cell.replace('|', "\\|")
}
