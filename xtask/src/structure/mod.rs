//! `structure`: which crate and which file depends on which, where files depend on each other in circles, and how many lines stand in more
//! than one place. Printed as text, drawn as a picture, and held to limits in the tests.

mod files;
mod picture;
mod repeats;

use crate::shell::{Result, root, say};
use files::Crate;
use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use petgraph::visit::EdgeRef;
use std::path::Path;

/// Prints the structure; with `picture`, draws the crates (or, with `only`, one crate's files) as SVG into that file.
pub fn show(only: Option<&str>, picture: Option<&Path>) -> Result<()> {
    let crates = files::workspace(&root())?;
    let chosen: Vec<&Crate> = crates.iter().filter(|of| only.is_none_or(|name| of.is_called(name))).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = crates.iter().map(|of| of.name.as_str()).collect();
        return Err(format!("{} is no crate of this workspace: {}", only.unwrap_or_default(), names.join(", ")));
    }
    say("Crates, and what they depend on");
    for of in &chosen {
        println!("    {:<20} {:>4} files   {}", of.name, of.files.node_count(), of.dependencies.join(", "));
    }
    say("Circles of more than two files");
    for of in &chosen {
        for circle in circles(of) {
            println!("    {}: {}", of.name, circle.join(" "));
            // In detail, where somebody is at work on one crate.
            let inside = |(from, to): &(&String, &String)| circle.contains(from) && circle.contains(to);
            let edges = of.files.edge_references().map(|edge| (&of.files[edge.source()], &of.files[edge.target()]));
            edges
                .filter(|edge| only.is_some() && inside(edge))
                .for_each(|(from, to)| println!("        {from} -> {to}"));
        }
    }
    say("Lines that stand in more than one place, in runs of six or more");
    println!("    {}", repeats::count(&root())?);
    match (picture, only) {
        (None, _) => Ok(()),
        (Some(file), None) => picture::draw(&crate_graph(&crates), file),
        (Some(file), Some(_)) => picture::draw(&chosen[0].files, file),
    }
}

/// The groups of more than two files of a crate each of which leads to all others. A file and a file below it may know each other.
fn circles(of: &Crate) -> Vec<Vec<String>> {
    let groups = tarjan_scc(&of.files).into_iter().filter(|group| group.len() > 2);
    groups
        .map(|group| {
            let mut names: Vec<String> = group.into_iter().map(|file| of.files[file].clone()).collect();
            names.sort();
            names
        })
        .collect()
}

/// The crates as a graph.
fn crate_graph(crates: &[Crate]) -> DiGraph<String, ()> {
    let mut graph = DiGraph::new();
    let nodes: Vec<_> = crates.iter().map(|of| graph.add_node(of.name.clone())).collect();
    for (from, of) in nodes.iter().zip(crates) {
        for (to, other) in nodes.iter().zip(crates) {
            if of.dependencies.contains(&other.name) {
                graph.add_edge(*from, *to, ());
            }
        }
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::cargo;
    use std::collections::BTreeSet;

    #[test]
    fn no_crates_depend_on_each_other_in_a_circle() {
        let crates = files::workspace(&root()).unwrap();
        assert!(crates.len() > 10, "{}", crates.len());
        let groups = tarjan_scc(&crate_graph(&crates));
        assert_eq!(groups.len(), crates.len());
    }

    /// Circles that are there today may become smaller, and no new ones may come.
    #[test]
    fn no_new_circles_of_files() {
        let crates = files::workspace(&root()).unwrap();
        for of in &crates {
            for circle in circles(of) {
                let known = KNOWN.iter().find(|(name, _)| *name == of.name).map_or(&[][..], |(_, files)| files);
                let new: Vec<&String> = circle.iter().filter(|file| !known.contains(&file.as_str())).collect();
                assert!(new.is_empty(), "{}: new in a circle of files: {new:?}\n{circle:?}", of.name);
            }
        }
    }

    /// What a program in Rust takes in with `openmps` alone: what comes with it besides stands behind features.
    #[test]
    fn openmps_alone_is_lean() {
        let crates = |features: &[&str]| -> BTreeSet<String> {
            let tree = ["tree", "--package", "openmps", "--edges", "normal", "--prefix", "none", "--format", "{lib}"];
            let output = cargo().args(tree).args(["--offline"]).args(features).current_dir(root()).output().unwrap();
            String::from_utf8(output.stdout)
                .unwrap()
                .split_whitespace()
                .map(str::to_owned)
                .filter(|name| name != "(*)")
                .collect()
        };
        let (alone, usual) = (crates(&["--no-default-features"]), crates(&[]));
        for left_out in ["openmps_emulator", "openmps_collective", "libloading", "object", "sha2"] {
            assert!(!alone.contains(left_out), "{left_out}: {alone:?}");
        }
        assert!(alone.contains("openmps_runtime") && alone.len() <= 69, "{}: {alone:?}", alone.len());
        assert!(!usual.contains("openmps_emulator") && usual.contains("openmps_collective"), "{usual:?}");
    }

    /// Files and folders that the documents name by their whole path are there.
    #[test]
    fn documents_name_files_that_exist() {
        let folders = ["crates/", "frontends/", "tests/", "benches/", "docs/", "examples/", "fuzz/", "xtask/"];
        let documents = [root(), root().join("docs")].map(|folder| std::fs::read_dir(folder).unwrap());
        let mut named = 0;
        for file in documents.into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let is_path = |part: &&str| folders.iter().any(|folder| part.starts_with(folder));
            let plain = |part: &&str| !part.contains(['*', '<', '{', ' ', '\n']);
            for path in text.split('`').filter(is_path).filter(plain) {
                named += 1;
                assert!(root().join(path).exists(), "{}: {path} is not there", file.display());
            }
        }
        assert!(named > 50, "{named}");
    }

    #[test]
    fn less_than_one_line_in_a_hundred_is_repeated() {
        let repeats = repeats::count(&root()).unwrap();
        assert!(repeats.lines > 50_000, "{repeats}");
        assert!(repeats.share() < 0.01, "{repeats}");
    }

    /// By crate, the files that stand in a circle of more than two.
    const KNOWN: &[(&str, &[&str])] = &[
        (
            "openmps-tile",
            &[
                "parse/branches.rs",
                "parse/function.rs",
                "parse/operations.rs",
                "parse/region.rs",
                "parse/scaled.rs",
                "parse/small_operations.rs",
                "parse/types.rs",
            ],
        ),
        ("openmps-runtime", &["buffer.rs", "command_buffer.rs", "device.rs", "queue.rs"]),
    ];
}
