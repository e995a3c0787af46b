//! Compiles every kernel of a folder of `.metal` files.

use openmps_emulator::{Library, Options, Value};
use std::path::PathBuf;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().expect("a folder"));
    let only = arguments.next();
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let constants = [0, 1, 2, 10, 20, 100, 110, 200, 201, 202, 300, 301].map(|i| (i, Value::Bool(false))).into();
        let begun = std::time::Instant::now();
        match Library::compile_with(&text, &Options { bfloat_functions: true, constants, ..Options::default() }) {
            Ok(library) => println!("{name}: {} kernels, {:?}", library.function_names().count(), begun.elapsed()),
            Err(error) => println!(
                "{name}: {:?} {}",
                begun.elapsed(),
                error.to_string().chars().take(if only.is_some() { 20000 } else { 900 }).collect::<String>()
            ),
        }
    }
}
