//! docs/operators.md begins with the list of operators: this test compares them, and writes the list anew with `UPDATE_DOCUMENTS=1`. The
//! sections behind it are written by hand and stay.

use openmps_graph::DType;
use openmps_graph::operators::ENTRIES;
use openmps_graph::operators::elementwise::Elementwise;
use openmps_tile::dtype::{ALL, EVERY, FLOATS};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# Operators

Every operator of openmps, with the element types that it computes in. Each is tested on every device, for each of its types, on dense,
strided and offset tensors, odd and empty shapes and special values, against a float64 reference (`crates/graph/tests/every_device.rs`).
Half types are computed in float32 and rounded once, but for sums by index on GPUs, and of `index_put` and the gradient of
`x[index]` everywhere, which are rounded at each addition; an AMD CPU with AVX-512 BF16 takes subnormal numbers of bfloat16 as zero in products.

Which of Paddle's kernels device `mps` has not, and why: [paddle-kernels.md](paddle-kernels.md).

This table is made from the list of operators: `UPDATE_DOCUMENTS=1 cargo test --release -p openmps-graph --test document`.

| operator | what it is | element types |
|---|---|---|
";

/// A list of types in a reader's words.
fn types(dtypes: &[DType]) -> String {
    match dtypes {
        _ if dtypes.len() == ALL.len() => "all".to_owned(),
        _ if dtypes.len() == EVERY.len() => "all, uint16, uint32, uint64".to_owned(),
        _ if dtypes == FLOATS => "floats".to_owned(),
        _ => dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", "),
    }
}

fn document() -> String {
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
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = document() + before.find("\n## ").map_or("", |start| &before[start..]);
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        std::fs::write(&path, &expected).expect("the file can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == expected, "docs/operators.md is out of date: run this test with UPDATE_DOCUMENTS=1");
}
