//! Stubs of Apple's libraries: text files that list names, which a linker takes in place of the libraries. The frameworks' names come from
//! the sources of the bindings, those of the system's library from `ziglang`, which `.venv` has for the emulator.

use super::folder;
use crate::python;
use crate::shell::{Result, cargo, output};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Framework, crate of its bindings, version in its path.
const FRAMEWORKS: &[(&str, &str, &str)] = &[
    ("Foundation", "objc2-foundation", "C"),
    ("CoreFoundation", "objc2-core-foundation", "A"),
    ("CoreGraphics", "objc2-core-graphics", "A"),
    ("IOKit", "objc2-io-kit", "A"),
    ("IOSurface", "objc2-io-surface", "A"),
    ("Metal", "objc2-metal", "A"),
    ("MetalPerformanceShaders", "objc2-metal-performance-shaders", "A"),
    ("MetalPerformanceShadersGraph", "objc2-metal-performance-shaders-graph", "A"),
];

/// Writes all stubs into `target/macos/sdk`.
pub fn write() -> Result<()> {
    let sdk = folder().join("sdk");
    for (framework, package, version) in FRAMEWORKS {
        let text = sources(package)?;
        let name = format!("/System/Library/Frameworks/{framework}.framework/Versions/{version}/{framework}");
        let path = sdk.join(format!("System/Library/Frameworks/{framework}.framework/{framework}.tbd"));
        save(&path, &name, &functions(&text), &classes(&text))?;
    }
    let objc = functions(&sources("objc2")?);
    save(
        &sdk.join("usr/lib/libobjc.tbd"),
        "/usr/lib/libobjc.A.dylib",
        &objc,
        &BTreeSet::from(["NSObject".to_owned()]),
    )?;
    let iconv = ["iconv", "iconv_open", "iconv_close"].map(|name| format!("_{name}"));
    save(&sdk.join("usr/lib/libiconv.tbd"), "/usr/lib/libiconv.2.dylib", &BTreeSet::from(iconv), &BTreeSet::new())?;
    let system = system_names()?;
    for library in ["libSystem", "libc", "libm"] {
        save(&sdk.join(format!("usr/lib/{library}.tbd")), "/usr/lib/libSystem.B.dylib", &system, &BTreeSet::new())?;
    }
    Ok(())
}

fn save(path: &Path, install_name: &str, symbols: &BTreeSet<String>, classes: &BTreeSet<String>) -> Result<()> {
    let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    let classes =
        if classes.is_empty() { String::new() } else { format!("    objc-classes:    [ {} ]\n", list(classes)) };
    let text = format!(
        "--- !tapi-tbd\ntbd-version:     4\ntargets:         [ arm64-macos ]\ninstall-name:    '{install_name}'\n\
         current-version: 1\ncompatibility-version: 1\nexports:\n  - targets:         [ arm64-macos ]\n    symbols:         [ {} ]\n{classes}...\n",
        list(symbols)
    );
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The Rust text of a package of the lock file.
pub fn sources(package: &str) -> Result<String> {
    let folder = package_folder(package)?.join("src");
    let mut text = String::new();
    collect(&folder, &mut text)?;
    Ok(text)
}

fn package_folder(package: &str) -> Result<PathBuf> {
    let asked = format!("{package}@0");
    let text = output(cargo().args(["pkgid", &asked])).or_else(|| output(cargo().args(["pkgid", package])));
    let version = text.as_deref().and_then(|text| text.rsplit(['@', '#']).next()).map(str::to_owned);
    let version = version.ok_or_else(|| format!("{package} is not in Cargo.lock"))?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))).unwrap_or_default();
    let registries =
        std::fs::read_dir(home.join("registry/src")).map_err(|error| format!("cargo's sources: {error}"))?;
    let mut folders =
        registries.map_while(std::result::Result::ok).map(|entry| entry.path().join(format!("{package}-{version}")));
    folders.find(|folder| folder.is_dir()).ok_or_else(|| format!("{package}-{version} is not fetched: `cargo fetch`"))
}

fn collect(folder: &Path, text: &mut String) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.map_while(std::result::Result::ok).map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?);
            text.push('\n');
        }
    }
    Ok(())
}

/// The functions and variables of the `extern` blocks, with C's underscore.
fn functions(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut depth = None::<usize>;
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default()) {
        let opens = line.matches('{').count();
        let begins = (line.contains("extern \"C") || line.contains("extern_c")) && line.trim_end().ends_with('{');
        // A function that is itself `extern` has its declaration inside; its own name does no harm.
        if begins && depth.is_none() {
            depth = Some(0);
        }
        if let Some(open) = &mut depth {
            for word in ["fn ", "static mut ", "static "] {
                let rest =
                    line.trim_start().trim_start_matches("pub ").trim_start_matches("unsafe ").strip_prefix(word);
                let name = rest.and_then(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
                names.extend(name.filter(|name| !name.is_empty()).map(|name| format!("_{name}")));
            }
            *open += opens;
            *open = open.saturating_sub(line.matches('}').count());
            if *open == 0 {
                depth = None;
            }
        }
        if let Some(rest) = line.split("link_name = \"").nth(1) {
            names.extend(rest.split('"').next().map(|name| format!("_{name}")));
        }
    }
    names
}

/// The Objective-C classes.
fn classes(text: &str) -> BTreeSet<String> {
    let blocks = text.split("extern_class!(").skip(1);
    let name = |block: &str| {
        let rest = block.split("pub struct ").nth(1)?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned)
    };
    blocks.filter_map(name).collect()
}

/// The names of the system's library, its parts included.
fn system_names() -> Result<BTreeSet<String>> {
    let asked = "import ziglang, os; print(os.path.dirname(ziglang.__file__))";
    let folder = output(python::venv_python().args(["-c", asked]));
    let folder = folder.ok_or("the names of libSystem come from ziglang in .venv: run `cargo xtask setup` first")?;
    let path = Path::new(&folder).join("lib/libc/darwin/libSystem.tbd");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut names = BTreeSet::new();
    for block in text.split("symbols:").skip(1) {
        let Some(list) = block.split('[').nth(1).and_then(|rest| rest.split(']').next()) else { continue };
        let words = list.split(',').map(|word| word.trim().trim_matches(['\'', '"']).to_owned());
        names.extend(words.filter(|word| {
            // A dollar stands before the variant of a function, as in `_realpath$DARWIN_EXTSN`.
            word.starts_with('_') && word.chars().all(|c| c.is_alphanumeric() || "_.$".contains(c))
        }));
    }
    if names.len() < 1000 { Err(format!("{} lists only {} names", path.display(), names.len())) } else { Ok(names) }
}
