//! The files of each crate, and which of them names something of which other one: `use` declarations and paths, resolved by the module tree.

use crate::shell::{Result, cargo};
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// A crate of the workspace.
pub struct Crate {
    /// Its package's name.
    pub name: String,
    /// The packages of the workspace that it depends on, but for its tests.
    pub dependencies: Vec<String>,
    /// Its files, named from `src` on; an edge leads to a file that is used.
    pub files: DiGraph<String, ()>,
}

impl Crate {
    /// Whether this is the package's name or its folder's.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.strip_prefix("openmps-") == Some(name)
    }
}

/// Every crate of the workspace in `root`.
pub fn workspace(root: &Path) -> Result<Vec<Crate>> {
    let output = cargo().args(["metadata", "--format-version=1", "--no-deps", "--offline"]).current_dir(root).output();
    let output = output.map_err(|error| error.to_string())?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}\n{}", String::from_utf8_lossy(&output.stderr)))?;
    let names: Vec<String> = metadata.packages.iter().map(|package| package.name.clone()).collect();
    metadata.packages.into_iter().map(|package| package.read(&names)).collect()
}

/// What `cargo metadata` says, as far as it is needed.
#[derive(serde::Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(serde::Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(serde::Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

impl Package {
    fn read(self, workspace: &[String]) -> Result<Crate> {
        let known = |of: &Dependency| of.kind.as_deref() != Some("dev") && workspace.contains(&of.name);
        let mut dependencies: Vec<String> = self.dependencies.into_iter().filter(known).map(|of| of.name).collect();
        dependencies.sort();
        dependencies.dedup();
        let source = self.manifest_path.with_file_name("src");
        Ok(Crate { name: self.name, dependencies, files: graph(&source)? })
    }
}

/// The files below `source` and their uses of each other.
fn graph(source: &Path) -> Result<DiGraph<String, ()>> {
    let mut graph = DiGraph::new();
    let mut modules: BTreeMap<Vec<String>, NodeIndex> = BTreeMap::new();
    let mut parsed = Vec::new();
    for entry in walkdir::WalkDir::new(source).sort_by_file_name() {
        let file = entry.map_err(|error| error.to_string())?.into_path();
        if file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let name = file.strip_prefix(source).unwrap_or(&file).to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let syntax = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let module = module_of(&name);
        modules.insert(module.clone(), graph.add_node(name));
        parsed.push((module, syntax));
    }
    for (module, syntax) in &parsed {
        let mut uses = Uses { module, paths: Vec::new() };
        uses.visit_file(syntax);
        let from = modules[module];
        for path in uses.paths {
            let to = (0..=path.len()).rev().find_map(|length| modules.get(&path[..length]));
            if let Some(&to) = to.filter(|&&to| to != from && !path.is_empty()) {
                graph.update_edge(from, to, ());
            }
        }
    }
    Ok(graph)
}

/// The module that a file is: `a/b.rs` and `a/b/mod.rs` are `[a, b]`, the crate's root is `[]`.
fn module_of(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let parts = stem.split('/').filter(|part| !matches!(*part, "mod" | "lib" | "main"));
    parts.map(str::to_owned).collect()
}

/// Collects the paths of a file that begin inside its crate, from the crate's root on. What stands in tests is left out.
struct Uses<'m> {
    module: &'m [String],
    paths: Vec<Vec<String>>,
}

impl Uses<'_> {
    fn add(&mut self, segments: &[String]) {
        let Some(first) = segments.first() else { return };
        let (mut path, mut rest) = match first.as_str() {
            "crate" => (Vec::new(), &segments[1..]),
            "self" => (self.module.to_vec(), &segments[1..]),
            "super" => (self.module.to_vec(), segments),
            _ => return,
        };
        while rest.first().is_some_and(|segment| segment == "super") {
            path.pop();
            rest = &rest[1..];
        }
        path.extend(rest.iter().cloned());
        self.paths.push(path);
    }

    fn add_tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
            syn::UseTree::Name(syn::UseName { ident }) | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                let name = (ident != "self").then(|| ident.to_string());
                let path: Vec<String> = before.iter().cloned().chain(name).collect();
                self.add(&path);
            }
            syn::UseTree::Glob(_) => self.add(&before.clone()),
        }
    }
}

impl<'a> Visit<'a> for Uses<'_> {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        // What a file hands on is no dependency of its own code.
        if matches!(item.vis, syn::Visibility::Inherited) {
            self.add_tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&segments);
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        // Modules of tests, and those written in place, whose `super` is this file.
        if item.content.is_none() || item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            return;
        }
        syn::visit::visit_item_mod(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_resolved_to_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("lib.rs", "mod a; mod b; pub use a::A;");
        write("a.rs", "use crate::b::{self, inner::C}; pub struct A(b::B);");
        write("b/mod.rs", "mod inner; pub struct B; #[cfg(test)] mod tests { use crate::a::A; }");
        write("b/inner.rs", "pub struct C(super::B); fn f(_: crate::a::A) {}");
        let graph = graph(folder.path()).unwrap();
        let mut edges: Vec<String> = graph
            .edge_indices()
            .map(|edge| graph.edge_endpoints(edge).unwrap())
            .map(|(from, to)| format!("{} -> {}", graph[from], graph[to]))
            .collect();
        edges.sort();
        assert_eq!(edges, ["a.rs -> b/inner.rs", "a.rs -> b/mod.rs", "b/inner.rs -> a.rs", "b/inner.rs -> b/mod.rs"]);
    }
}
