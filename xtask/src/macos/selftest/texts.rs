//! Apple's compiler over the text of every kernel that the cases have written (`OPENMPS_DUMP`), each text once.

use super::children::{Case, Program};
use crate::shell::{Result, command, output};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A case for each text; none but on a Mac. An error where the compiler is not installed: with Xcode 26 it is a download of its own.
pub fn cases(folder: &Path) -> Result<Vec<Case>> {
    if !cfg!(target_os = "macos") {
        return Ok(Vec::new());
    }
    if output(command("xcrun").args(["metal", "--version"])).is_none() {
        return Err("`xcrun metal` does not run; `xcodebuild -downloadComponent MetalToolchain` installs it".to_owned());
    }
    Ok(texts(folder).into_iter().map(|(text, path)| case(&text, &path, folder)).collect())
}

fn case(text: &str, path: &Path, folder: &Path) -> Case {
    let mut program = Program::new(PathBuf::from("xcrun"));
    let language = format!("-std={}", language(text));
    for argument in ["metal", &language, "-fmetal-math-mode=safe", "-c", "-o", "/dev/null"] {
        program.argue(argument);
    }
    program.argue(&path.display().to_string());
    let name = path.strip_prefix(folder).unwrap_or(path).display().to_string();
    Case::of_command(program, name, &folder.join("compiler"))
}

/// The language that the runtime chooses for a text from macOS 14 on. On macOS 13 it is metal3.0 instead of metal3.1, which is not tried here.
fn language(text: &str) -> &'static str {
    const LANGUAGES: [(&str, &str); 2] = [("<metal_tensor>", "metal4.0"), ("coherent(device)", "metal3.2")];
    LANGUAGES.iter().find(|(sign, _)| text.contains(sign)).map_or("metal3.1", |(_, language)| language)
}

/// Every text below a folder, by itself: many cases write the same one.
fn texts(folder: &Path) -> BTreeMap<String, PathBuf> {
    let files = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().filter_map(std::result::Result::ok);
    let metal = files.map(|entry| entry.into_path()).filter(|path| path.extension().is_some_and(|end| end == "metal"));
    let mut texts = BTreeMap::new();
    for path in metal {
        if let Ok(text) = std::fs::read_to_string(&path) {
            texts.entry(text).or_insert(path);
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_compiled_once_in_its_language() {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("a/x.metal", "one"),
            ("b/x.metal", "one"),
            ("b/y.metal", "coherent(device)"),
            ("b/z.metal", "#include <metal_tensor>"),
            ("b/y.cu", "no"),
        ] {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = texts(folder.path());
        assert_eq!(found.len(), 3);
        assert!(found["one"].ends_with("a/x.metal"));
        assert_eq!(found.keys().map(|text| language(text)).collect::<Vec<_>>(), ["metal4.0", "metal3.2", "metal3.1"]);
    }
}
