//! `docs/metal-calls.md`: every call of Apple's that the Metal half makes, taken from its source and from the bindings' own names, with the
//! macOS that it needs and with what checks it. The page is made here; a stale one is an error of `check-macos`.

use super::{settings, stubs};
use crate::shell::{Result, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where calls of Apple's are made.
const SOURCE: &str = "crates/metal/src/apple";
const PAGE: &str = "docs/metal-calls.md";
/// Crates whose methods count.
const BINDINGS: &[&str] =
    &["objc2-metal", "objc2-metal-performance-shaders", "objc2-metal-performance-shaders-graph", "objc2-foundation"];
/// Selectors that are newer than the oldest macOS, with the one that brought them. Files that use them must ask for it.
const NEWER: &[(&str, &str)] = &[
    ("addAllocation:", "15.0"),
    ("addResidencySet:", "15.0"),
    ("architecture", "14.0"),
    ("initWithBuffer:offset:descriptor:", "15.0 (MPSNDArray)"),
    ("newResidencySetWithDescriptor:error:", "15.0"),
    ("removeAllocation:", "15.0"),
    ("requestResidency", "15.0"),
    ("scaledDotProductAttentionWithQueryTensor:keyTensor:valueTensor:maskTensor:scale:name:", "15.0"),
    ("scaledDotProductAttentionWithQueryTensor:keyTensor:valueTensor:scale:name:", "15.0"),
    ("setMathFloatingPointFunctions:", "15.0"),
    ("setMathMode:", "15.0"),
    ("setPreferPackedRows:", "15.0"),
];
/// Words in a file that say that it asks for the version, or that its caller has.
const GUARDS: &[&str] = &["available!(", "has checked that this macOS"];
/// Names of methods that are also Rust's or these sources' own, and are meant so in them.
const OF_RUST: &[&str] = &[
    "all",
    "clone",
    "cmp",
    "constant",
    "convolution",
    "copy",
    "count",
    "default",
    "description",
    "get",
    "hash",
    "init",
    "insert",
    "is_empty",
    "iter",
    "len",
    "lock",
    "map",
    "max",
    "min",
    "new",
    "nodes",
    "now",
    "open",
    "parent",
    "position",
    "remove",
    "run",
    "set",
    "shape",
    "take",
    "value",
    "wait",
];
/// Names that are Apple's in one file only.
const ONLY_IN: &[(&str, &str)] = &[("contents", "buffer.rs"), ("name", "properties.rs")];
/// What names of Apple's functions begin with.
const FUNCTIONS: &[&str] = &["IOObject", "IORegistry", "MPSSupports", "MTLCopy"];
/// The one method of MPS that takes the caller's encoder, which the page tells of.
const TAKES_AN_ENCODER: &str = "encodeToCommandEncoder:commandBuffer:sourceArrays:destinationArray:";

/// Files, and what executes their calls where there is no Mac.
const CHECKED: &[(&str, &str)] = &[
    ("commands.rs", "types; the same order of commands by recorder and emulator"),
    ("buffer.rs", "types; lifetimes by the recorder"),
    ("library.rs", "types; the same texts by the emulator"),
    ("event.rs", "types; order by the emulator"),
    ("mps/", "types; operands and their use by a stand-in; Apple's results by nothing"),
    ("graph/", "types; shapes and their use by a stand-in; Apple's results by nothing"),
];

struct Call {
    selectors: BTreeSet<String>,
    files: BTreeSet<String>,
}

/// Writes the page.
pub fn write() -> Result<()> {
    std::fs::write(root().join(PAGE), page()?).map_err(|error| format!("{PAGE}: {error}"))?;
    println!("{PAGE} is written");
    Ok(())
}

/// Holds the page, the guards of newer calls, and what keeps defects away to the source.
pub fn check() -> Result<()> {
    settings::check()?;
    let current = std::fs::read_to_string(root().join(PAGE)).unwrap_or_default();
    if current != page()? {
        return Err(format!("{PAGE} is stale: `cargo xtask metal-calls` makes it anew; look at what is new in it"));
    }
    println!("    {PAGE} is up to date");
    Ok(())
}

fn page() -> Result<String> {
    let methods = methods()?;
    check_encoders(&methods)?;
    let mut calls: BTreeMap<String, Call> = BTreeMap::new();
    let base = root().join(SOURCE);
    for file in files(&base)? {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let short = file.strip_prefix(&base).unwrap_or(&file).display().to_string();
        let mut add = |name: String, selectors: &BTreeSet<String>| {
            let call =
                calls.entry(name).or_insert_with(|| Call { selectors: selectors.clone(), files: BTreeSet::new() });
            call.files.insert(short.clone());
        };
        for name in called(&text).into_iter().filter(|name| is_apples(name, &short)) {
            let Some(selectors) = methods.get(&name) else { continue };
            check_guard(&short, &text, selectors)?;
            add(name, selectors);
        }
        for name in functions(&text) {
            let named = BTreeSet::from([name.clone()]);
            add(name, &named);
        }
    }
    let mut page = String::from(HEAD);
    for call in calls.values() {
        let selectors: Vec<String> = call.selectors.iter().map(|selector| format!("`{selector}`")).collect();
        let newer = call.selectors.iter().find_map(|selector| needs(selector)).unwrap_or("13.0");
        let files: Vec<&str> = call.files.iter().map(String::as_str).collect();
        let checked: BTreeSet<&str> = files.iter().map(|file| checks(file)).collect();
        let checked: Vec<&str> = checked.into_iter().collect();
        page.push_str(&format!(
            "| {} | {newer} | {} | {} |\n",
            selectors.join(", "),
            files.join(", "),
            checked.join("; ")
        ));
    }
    Ok(page)
}

/// Whether a name that is called in a file is one of Apple's.
fn is_apples(name: &str, file: &str) -> bool {
    let only = ONLY_IN.iter().find(|(of, _)| *of == name);
    !OF_RUST.contains(&name) && only.is_none_or(|(_, only)| *only == file)
}

/// The page says that MPS takes the caller's encoder nowhere else.
fn check_encoders(methods: &BTreeMap<String, BTreeSet<String>>) -> Result<()> {
    let others =
        methods.values().flatten().find(|of| of.starts_with("encodeToCommandEncoder") && *of != TAKES_AN_ENCODER);
    others.map_or(Ok(()), |other| Err(format!("{other} takes the caller's encoder, and {PAGE} does not tell of it")))
}

fn needs(selector: &str) -> Option<&'static str> {
    NEWER.iter().find(|(of, _)| *of == selector).map(|(_, version)| *version)
}

fn checks(file: &str) -> &'static str {
    CHECKED.iter().find(|(of, _)| file.starts_with(of)).map_or("types", |(_, by)| by)
}

/// A file that calls what is newer than the oldest macOS must ask for the version. `MPSMatrix` has one of the names, too.
fn check_guard(file: &str, text: &str, selectors: &BTreeSet<String>) -> Result<()> {
    let newer = selectors.iter().find(|selector| needs(selector).is_some() && !file.starts_with("mps/"));
    match newer {
        Some(selector) if !GUARDS.iter().any(|guard| text.contains(guard)) => {
            Err(format!("{SOURCE}/{file} calls {selector} and does not ask whether this macOS has it"))
        }
        _ => Ok(()),
    }
}

pub(super) fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Rust's name of each method of the bindings, with the selectors that it stands for.
fn methods() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut methods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in BINDINGS {
        let mut selector = None;
        for line in stubs::sources(package)?.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("#[unsafe(method(") {
                selector = rest.split(')').next().map(|text| text.trim_end_matches('_').to_owned());
            } else if let Some(rest) = line.split("fn ").nth(1).filter(|_| !line.starts_with("//")) {
                let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                if let Some(selector) = selector.take() {
                    methods.entry(name.to_owned()).or_default().insert(selector);
                }
            }
        }
    }
    Ok(methods)
}

/// The names before a parenthesis, after a dot or two colons.
fn called(text: &str) -> BTreeSet<String> {
    before_parentheses(text, |_, lead| lead.ends_with('.') || lead.ends_with("::"))
}

/// Apple's functions that are called.
fn functions(text: &str) -> BTreeSet<String> {
    before_parentheses(text, |name, lead| !lead.ends_with("fn") && FUNCTIONS.iter().any(|of| name.starts_with(of)))
}

/// The names before a parenthesis, by what they are and what stands before them.
fn before_parentheses(text: &str, takes: impl Fn(&str, &str) -> bool) -> BTreeSet<String> {
    let code = without_comments(text);
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices('(') {
        let before = code[..at].trim_end();
        let begin = before.rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
        let (lead, name) = (before[..begin].trim_end(), &before[begin..]);
        if !name.is_empty() && takes(name, lead) {
            names.insert(name.to_owned());
        }
    }
    names
}

fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found = Vec::new();
    for path in entries.map_while(std::result::Result::ok).map(|entry| entry.path()) {
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

const HEAD: &str = "\
# Every call that the Metal half makes

Made from `crates/metal/src/apple` by `cargo xtask metal-calls`; `cargo xtask check-macos` fails when it is stale. None of it has run on Apple
hardware: this page says where to look first.

* **Selector**: Objective-C's name, or a function's. Where several stand in a row, the bindings give them one name in Rust.
* **macOS**: the oldest that has it; 13.0 stands for that and everything older. What is newer is asked for before it is called.
* **Checked by**: *types*: the compiler, against bindings made from Apple's headers. *recorder*, *emulator*: the code above this call runs in
  tests with these in Metal's place. *stand-in*: the calls above it are made by operators in tests, held to Apple's rules on operands, and
  computed on the CPU instead. *nothing*: the first run on a Mac is the first run.

Each call of MPS and MPSGraph ends the open compute encoder. The classes of MPS that are used here, and `MPSGraphExecutable`, have
`encodeToCommandBuffer:` only: they make encoders of their own, how many is not documented, and a command buffer has one open encoder at a
time. Of all of MPS only `MPSNDArrayMultiaryKernel` takes the caller's encoder (`encodeToCommandEncoder:commandBuffer:sourceArrays:destinationArray:`),
whose product of matrices is not used. Kernels between two such calls share one encoder; where a switch costs more than Apple's library gains,
the table of `crates/metal/src/engine.rs` leaves small work to own kernels.

| Selector | macOS | in `crates/metal/src/apple/` | Checked by |
|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_across_lines_and_not_in_comments() {
        let names = called("let a = x.first(1);\n// y.second()\nMPSGraph::third\n    (z);\nfourth(5); if (a) {}");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["first", "third"]);
    }

    #[test]
    fn names_of_these_sources_are_not_apples_and_functions_are() {
        let names =
            functions("extern { fn IOObjectRelease(x: u32); }\nlet a = MTLCopyAllDevices(); f(MTLSize { width })");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["MTLCopyAllDevices"]);
        assert!(
            is_apples("contents", "buffer.rs")
                && !is_apples("contents", "mod.rs")
                && !is_apples("shape", "mps/view.rs")
        );
    }

    #[test]
    fn newer_calls_need_a_guard() {
        let newer = BTreeSet::from(["setMathMode:".to_owned()]);
        assert!(check_guard("library.rs", "options.setMathMode(x)", &newer).is_err());
        assert!(check_guard("library.rs", "if available!(macos = 15.0) { options.setMathMode(x) }", &newer).is_ok());
    }
}
