//! `OPENMPS_DUMP`: each test runs this program again with the variable set.

use openmps_runtime::Pipeline;
use openmps_tile::types::{Scalar, Type};
use openmps_tile::{Builder, Kernel};
use std::path::{Path, PathBuf};
use std::process::Command;

const TTIR: &str = include_str!("../../tile/tests/ttir/vector_add.ttir");
const MATMUL: &str = include_str!("../../tile/tests/ttir/matmul.ttir");

/// Stores a number; of two numbers there are two kernels of one name.
fn constant(value: i64) -> Kernel {
    let mut b = Builder::new("a/constant");
    let out = b.parameter("out", Type::pointer(Scalar::I64));
    let value = b.integer(value, Scalar::I64);
    b.store(out, value, None);
    b.finish()
}

#[test]
#[ignore = "the child of the other tests"]
fn compile_for_the_parent() {
    for value in [1, 2, 1] {
        Pipeline::new(constant(value)).expect("verified");
    }
    Pipeline::read(TTIR).expect("a kernel");
    Pipeline::read(MATMUL).expect("a kernel");
    assert!(Pipeline::read("module {").is_err());
}

fn dumped(folder: &Path) -> Vec<String> {
    let program = std::env::current_exe().expect("this test program");
    let mut command = Command::new(program);
    command.args(["--exact", "compile_for_the_parent", "--ignored"]).env("OPENMPS_DUMP", folder);
    assert!(command.output().expect("the program runs").status.success());
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn each_kernel_is_written_once() {
    let folder = folder("dump/inner");
    let names = dumped(&folder);
    let expected = [
        "a_constant-2.cu",
        "a_constant-2.metal",
        "a_constant-2.tile",
        "a_constant.cu",
        "a_constant.metal",
        "a_constant.tile",
        "add_kernel.cu",
        "add_kernel.metal",
        "add_kernel.tile",
        "add_kernel.ttir",
        "mm.cu",
        "mm.m5.metal",
        "mm.metal",
        "mm.tile",
        "mm.ttir",
    ];
    assert_eq!(names, expected);
    assert_eq!(dumped(&folder), expected, "another process finds what is there");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a text");
    assert_eq!(text("add_kernel.ttir"), TTIR);
    assert!(text("add_kernel.metal").contains("kernel void"));
    assert!(text("mm.m5.metal").contains("<metal_tensor>") && !text("mm.metal").contains("tensor"));
    assert!(text("add_kernel.cu").contains("__global__"));
    assert!(text("add_kernel.tile").contains("tt.load"));
    assert_ne!(text("a_constant.tile"), text("a_constant-2.tile"));
}

#[test]
fn a_folder_that_cannot_be_made_does_not_stop_the_kernels() {
    let file = folder("dump-file");
    std::fs::write(&file, "no folder").expect("written");
    assert_eq!(dumped(&file), Vec::<String>::new());
}
