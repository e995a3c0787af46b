//! Kernels in the style of published shaders: declared by macros and templates, with function constants and headers in a folder.
#![cfg(target_os = "linux")]

mod harness;

use half::{bf16, f16};
use harness::{SCHEDULES, buffer, dispatch, numbers, run};
use openmps_emulator::{Argument, Error, Grid, Library, Options, Value};
use std::collections::BTreeMap;

const TEXT: &str = include_str!("kernels/published.metal");

fn options(constants: &[(u32, Value)]) -> (Options, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let header =
        "#pragma once\n#ifdef OFFSET\nMETAL_FUNC float shared_offset(float x) { return x + OFFSET; }\n#endif\n";
    std::fs::write(folder.path().join("shared.h"), header).unwrap();
    let constants: BTreeMap<u32, Value> = constants.iter().copied().collect();
    let macros = vec![("OFFSET".to_owned(), "10.0f".to_owned())];
    let include = vec![folder.path().to_owned()];
    (Options { constants, include, macros, bfloat_functions: true, ..Options::default() }, folder)
}

fn library(constants: &[(u32, Value)]) -> Library {
    let (options, _folder) = options(constants);
    Library::compile_with(TEXT, &options).unwrap_or_else(|error| panic!("{error}"))
}

const PLAIN: [(u32, Value); 3] = [(0, Value::Bool(false)), (1, Value::Float(0.0)), (2, Value::Bool(false))];

#[test]
fn macros_and_templates_declare_kernels() {
    let library = library(&PLAIN);
    let names: Vec<_> = library.function_names().collect();
    assert_eq!(
        names,
        ["sum_f32", "sum_f16_bf16", "sum_i32", "reverse", "transform.columns", "exponential", "tenths", "doubled"]
    );
}

#[test]
fn instances_of_a_template_compute() {
    let library = library(&PLAIN);
    let x = numbers(256);
    for schedule in SCHEDULES {
        let (mut input, mut output) = (x.clone(), vec![0.0_f32; 4]);
        let arguments = [buffer(&mut input), buffer(&mut output)];
        run(&library, "sum_f32", &dispatch(Grid::Threadgroups([4, 1, 1]), [64, 1, 1], &arguments, schedule)).unwrap();
        for (got, part) in output.iter().zip(x.chunks(64)) {
            let expected: f64 = part.iter().map(|x| f64::from(*x)).sum();
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{got}, not {expected}, {schedule:?}");
        }
        let mut input: Vec<f16> = (0..64).map(|i| f16::from_f32((i % 4) as f32)).collect();
        let mut output = vec![bf16::ZERO; 2];
        let arguments = [buffer(&mut input), buffer(&mut output)];
        run(&library, "sum_f16_bf16", &dispatch(Grid::Threadgroups([2, 1, 1]), [32, 1, 1], &arguments, schedule))
            .unwrap();
        assert_eq!(output, [bf16::from_f32(48.0); 2]);
        let (mut input, mut output) = ((0..128).collect::<Vec<i32>>(), [0_i32]);
        let arguments = [buffer(&mut input), buffer(&mut output)];
        run(&library, "sum_i32", &dispatch(Grid::Threadgroups([1, 1, 1]), [128, 1, 1], &arguments, schedule)).unwrap();
        assert_eq!(output, [127 * 64]);
    }
}

#[test]
fn function_constants_are_given_with_the_text() {
    let values = [(0, Value::Bool(true)), (1, Value::Float(0.5)), (2, Value::Bool(true))];
    let library = library(&values);
    for schedule in SCHEDULES {
        let (mut input, mut output, mut bias) = (vec![1.0_f32; 64], [0.0_f32], [100.0_f32]);
        let arguments = [buffer(&mut input), buffer(&mut output), buffer(&mut bias)];
        let grid = Grid::Threadgroups([1, 1, 1]);
        run(&library, "sum_f32", &dispatch(grid, [64, 1, 1], &arguments, schedule)).unwrap();
        assert_eq!(output, [132.0]);
        let missing = run(&library, "sum_f32", &dispatch(grid, [64, 1, 1], &arguments[..2], schedule));
        assert!(matches!(missing, Err(Error::MissingArgument { index: 2, .. })), "{missing:?}");
    }
    let (options, _folder) = options(&values[..2]);
    let unset = Library::compile_with(TEXT, &options).unwrap().function("sum_f32").err().unwrap().to_string();
    assert_eq!(unset, "kernel sum_f32: no value was given for the function constants 2 (BIASED)");
}

#[test]
fn threadgroup_variables_count_wherever_they_stand() {
    let library = library(&PLAIN);
    let declared = |name: &str| library.function(name).unwrap().declared_threadgroup_memory();
    assert_eq!((declared("sum_f32"), declared("sum_i32")), (64 * 4 + 16, 128 * 4 + 16));
    assert_eq!((declared("reverse"), declared("exponential")), ((64 + 32) * 4, 0));
    for (size, schedule) in [32, 64].into_iter().flat_map(|size| SCHEDULES.map(|schedule| (size, schedule))) {
        let mut data: Vec<f32> = (0..size).map(|i| i as f32).collect();
        let arguments = [buffer(&mut data)];
        run(&library, "reverse", &dispatch(Grid::Threadgroups([1, 1, 1]), [size, 1, 1], &arguments, schedule)).unwrap();
        assert!(data.iter().rev().enumerate().all(|(i, x)| *x == i as f32), "{data:?}");
    }
}

#[test]
fn matrices_packed_vectors_and_functions_as_parameters() {
    let library = library(&PLAIN);
    let (mut matrix, mut points) = ([1.0_f32, 2.0, 3.0, 4.0], [1.0_f32, 10.0, 5.0, -1.0, 0.5, 0.0]);
    let arguments = [buffer(&mut matrix), buffer(&mut points)];
    let launch = dispatch(Grid::Threads([2, 1, 1]), [2, 1, 1], &arguments, SCHEDULES[0]);
    run(&library, "transform.columns", &launch).unwrap();
    assert_eq!(points, [31.0, 42.0, 19.0, 0.5, 0.0, 14.0]);
}

#[test]
fn numbers_without_suffix_are_float_in_templates_too() {
    let library = library(&PLAIN);
    let (mut x, by) = ([f16::ZERO], 7.0_f32);
    let bytes = by.to_ne_bytes();
    let arguments = [buffer(&mut x), Argument::Bytes(&bytes)];
    run(&library, "tenths", &dispatch(Grid::Threads([1, 1, 1]), [1, 1, 1], &arguments, SCHEDULES[0])).unwrap();
    assert_eq!(x, [f16::from_f32(by * 0.1)]);
}

#[test]
fn an_unused_read_through_a_null_pointer_is_none() {
    let library = library(&PLAIN);
    let mut x = [1.0_f32, 2.0, 3.0];
    let arguments = [buffer(&mut x)];
    run(&library, "doubled", &dispatch(Grid::Threads([3, 1, 1]), [3, 1, 1], &arguments, SCHEDULES[0])).unwrap();
    assert_eq!(x, [2.0, 4.0, 6.0]);
}

#[test]
fn functions_of_bfloat_where_they_are_asked_for() {
    let library = library(&PLAIN);
    let (mut x, mut y) = ([bf16::from_f32(1.0)], [0.0_f32]);
    let arguments: [Argument; 2] = [buffer(&mut x), buffer(&mut y)];
    run(&library, "exponential", &dispatch(Grid::Threads([1, 1, 1]), [1, 1, 1], &arguments, SCHEDULES[0])).unwrap();
    assert!((f64::from(y[0]) - std::f64::consts::E).abs() < 1e-6, "{y:?}");
    let (options, _folder) = options(&PLAIN);
    let refused = Library::compile_with(TEXT, &Options { bfloat_functions: false, ..options.clone() });
    assert!(refused.err().unwrap().to_string().contains("deleted"));
    let only = Options { kernels: vec!["reverse".to_owned()], bfloat_functions: true, ..options };
    assert!(Library::compile_with(TEXT, &only).unwrap().function_names().eq(["reverse"]));
}

#[test]
fn what_a_macro_or_a_header_does_wrong_is_refused_where_it_stands() {
    let wrong = "#include <metal_stdlib>\n#define K(NAME) \\\n  kernel void NAME(device float* a) { a[0] = nothing; }\n\nK(one)\n";
    let text = Library::compile(wrong).err().unwrap().to_string();
    assert!(text.contains("program_source:5:"), "{text}");
    let missing = Library::compile("#include \"nowhere.h\"\n").err().unwrap().to_string();
    assert!(missing.contains("program_source:1:10: fatal error: 'nowhere.h' file not found"), "{missing}");
    let (options, folder) = options(&PLAIN);
    std::fs::write(folder.path().join("shared.h"), "METAL_FUNC void f(float* p) { p[0] = 1; }\n").unwrap();
    let bare =
        Library::compile_with("#include <metal_stdlib>\n#include \"shared.h\"\n", &options).err().unwrap().to_string();
    assert!(bare.contains("`p`"), "{bare}");
    // In a plain function it is refused, template or not.
    let local =
        "template <class T> void f() { if (true) { threadgroup T s[4]; s[0] = 1; } } kernel void k() { f<int>(); }";
    assert!(Library::compile(&format!("#include <metal_stdlib>\n{local}")).is_err());
}
