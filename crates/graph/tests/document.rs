//! The table of docs/operators.md is the list of operators: this test compares them, and writes the table anew with `UPDATE_DOCUMENTS=1`.
//! What stands before and behind it is written by hand and stays.

use openmps_graph::DType;
use openmps_graph::operators::ENTRIES;
use openmps_graph::operators::elementwise::Elementwise;
use openmps_tile::dtype::{ALL, EVERY, FLOATS};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The table's first two lines; what stands before them is prose, which stays.
const HEAD: &str = "| operator | what it is | element types |\n|---|---|---|\n";

/// A list of types in a reader's words.
fn types(dtypes: &[DType]) -> String {
    match dtypes {
        _ if dtypes.len() == ALL.len() => "all".to_owned(),
        _ if dtypes.len() == EVERY.len() => "all, uint16, uint32, uint64".to_owned(),
        _ if dtypes == FLOATS => "floats".to_owned(),
        _ => dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", "),
    }
}

fn table() -> String {
    let rows =
        Elementwise::all().map(|operator| operator.row()).map(|row| (row.name, (row.summary, types(row.dtypes))));
    let entries = ENTRIES.iter().copied().flatten().map(|entry| (entry.name, (entry.summary, types(entry.dtypes))));
    let mut text = HEAD.to_owned();
    for (name, (summary, types)) in rows.chain(entries).collect::<BTreeMap<_, _>>() {
        writeln!(text, "| `{name}` | {} | {types} |", summary.replace('|', "\\|")).expect("a string takes everything");
    }
    text
}

#[test]
fn the_document_is_the_list_of_operators() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators.md");
    let before = std::fs::read_to_string(&path).expect("the document can be read");
    let start = before.find(HEAD).expect("the document has the table's head");
    let end = before[start..].find("\n\n").map_or(before.len(), |length| start + length + 1);
    let expected = format!("{}{}{}", &before[..start], table(), &before[end..]);
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(&path, &expected).expect("the file can be written");
        return;
    }
    assert!(before == expected, "docs/operators.md is out of date: run this test with UPDATE_DOCUMENTS=1");
}
