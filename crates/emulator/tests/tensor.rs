//! Products of `mpp::tensor_ops` (MSL 4.0) against float64, and each of its traps as an error of its own.
#![cfg(target_os = "linux")]

mod harness;

use half::{bf16, f16};
use harness::{SCHEDULES, buffer, dispatch, numbers, run};
use openmps_emulator::{Error, Grid, Library, Options, Report, Result};

/// A kernel of one product in a loop over the depth; words in capitals stand for what a test chooses.
const TEXT: &str = "#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
kernel void multiply(device LEFT* x [[buffer(0)]], device RIGHT* y [[buffer(1)]], device float* out [[buffer(2)]]) {
  constexpr auto descriptor = mpp::tensor_ops::matmul2d_descriptor(ROWS, COLUMNS, DEPTH, TURNED, false MODE);
  mpp::tensor_ops::matmul2d<descriptor, SCOPE> product;
  using left_type = tensor<device LEFT, dextents<int32_t, 2>, tensor_inline>;
  using right_type = tensor<device RIGHT, dextents<int32_t, 2>, tensor_inline>;
  auto sums = product.get_destination_cooperative_tensor<left_type, right_type, float>();
  for (ushort i = 0; i < sums.get_capacity(); ++i) {
    if (sums.is_valid_element(i)) sums[i] = START;
  }
  for (uint step = 0; step < STEPS; ++step) {
    left_type left(x + step * (ROWS * DEEP), dextents<int32_t, 2>(LEFT_EXTENTS));
    right_type right(y + step * (DEEP * PITCH), dextents<int32_t, 2>(RIGHT_EXTENTS), array<int32_t, 2>{1, PITCH});
    product.run(left, right, sums);
  }
  FINISH
}
";

/// Leaves the destination element by element.
const BY_INDEX: &str = "for (ushort i = 0; i < sums.get_capacity(); ++i) {
    if (!sums.is_valid_element(i)) continue;
    auto index = sums.get_multidimensional_index(i);
    out[index[1] * COLUMNS + index[0]] = sums[i];
  }";

/// Leaves it as a whole.
const BY_TENSOR: &str =
    "tensor<device float, dextents<int32_t, 2>, tensor_inline> whole(out, dextents<int32_t, 2>(COLUMNS, ROWS));
  sums.store(whole);";

const ACCUMULATE: &str = ", false, mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate";

/// What a test chooses; a word that is not named has what follows here, which is right.
fn text(sizes: [usize; 3], words: &[(&str, &str)]) -> String {
    let [rows, depth, columns] = sizes.map(|size| size.to_string());
    let (pitch, deep) = ((sizes[2] + 3).to_string(), depth.clone());
    let (left, right) = (format!("{depth}, {rows}"), format!("{columns}, {depth}"));
    let usual = [
        // What holds other words comes first, extents before their sides.
        ("FINISH", BY_INDEX),
        ("LEFT_EXTENTS", &left),
        ("RIGHT_EXTENTS", &right),
        ("MODE", ACCUMULATE),
        ("TURNED", "false"),
        ("SCOPE", "execution_simdgroup"),
        ("START", "0.0f"),
        ("STEPS", "3"),
        ("LEFT", "half"),
        ("RIGHT", "half"),
        ("ROWS", &rows),
        ("COLUMNS", &columns),
        ("DEPTH", &depth),
        ("DEEP", &deep),
        ("PITCH", &pitch),
    ];
    usual.iter().fold(TEXT.to_owned(), |text, (word, usual)| {
        let chosen = words.iter().find(|(name, _)| name == word).map_or(*usual, |(_, chosen)| chosen);
        text.replace(word, chosen)
    })
}

fn compile(text: &str) -> Result<Library> {
    Library::compile_with(text, &Options { metal4: true, ..Options::default() })
}

/// Runs a text on half zeros; what is of interest is the error.
fn attempt(text: &str, threads: u32) -> Result<Report> {
    attempt_of(&compile(text)?, threads)
}

fn attempt_of(library: &Library, threads: u32) -> Result<Report> {
    let (mut x, mut y, mut out) = (vec![0_u16; 1 << 14], vec![0_u16; 1 << 14], vec![0_f32; 1 << 12]);
    let arguments = [buffer(&mut x), buffer(&mut y), buffer(&mut out)];
    let grid = Grid::Threadgroups([1, 1, 1]);
    run(library, "multiply", &dispatch(grid, [threads, 1, 1], &arguments, SCHEDULES[0]))
}

/// The words of an error at run time.
fn fault(text: &str, threads: u32) -> String {
    match attempt(text, threads) {
        Err(Error::Fault { what, .. }) => what,
        other => panic!("not a fault: {other:?}"),
    }
}

/// The compiler's words.
fn refused(text: &str) -> String {
    match attempt(text, 32) {
        Err(Error::Compile { diagnostics }) => diagnostics,
        other => panic!("not refused: {other:?}"),
    }
}

const STEPS: usize = 3;

/// What the kernel computes, in float64: x is [steps, rows, depth], or each step transposed; y has lines of 3 elements more than are used.
fn expected(x: &[f64], y: &[f64], [rows, depth, columns]: [usize; 3], turned: bool) -> Vec<f64> {
    let element = |row: usize, column: usize| -> f64 {
        let factors = (0..STEPS).flat_map(|step| (0..depth).map(move |k| (step, k)));
        let product = |(step, k): (usize, usize)| {
            let left = if turned { k * rows + row } else { row * depth + k };
            x[step * rows * depth + left] * y[(step * depth + k) * (columns + 3) + column]
        };
        factors.map(product).sum()
    };
    (0..rows * columns).map(|at| element(at / columns, at % columns)).collect()
}

/// A half type: its name, and the way to its bits and back.
type Narrow = (&'static str, fn(f32) -> u16, fn(u16) -> f64);
const NARROW: [Narrow; 2] = [
    ("half", |x| f16::from_f32(x).to_bits(), |bits| f16::from_bits(bits).to_f64()),
    ("bfloat", |x| bf16::from_f32(x).to_bits(), |bits| bf16::from_bits(bits).to_f64()),
];

fn check(sizes: [usize; 3], (name, narrow, widen): Narrow, turned: bool, simdgroups: u32, finish: &str) {
    let [rows, depth, columns] = sizes;
    let scope = format!("execution_simdgroups<{simdgroups}>");
    let left = format!("{rows}, {depth}");
    let mut words = vec![("FINISH", finish), ("LEFT", name), ("RIGHT", name), ("SCOPE", scope.as_str())];
    if turned {
        words.extend([("TURNED", "true"), ("LEFT_EXTENTS", left.as_str())]);
    }
    let text = text(sizes, &words);
    let library = compile(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut x: Vec<u16> = numbers(STEPS * rows * depth).into_iter().map(narrow).collect();
    let mut y: Vec<u16> = numbers(STEPS * depth * (columns + 3)).into_iter().rev().map(narrow).collect();
    let wide = |bits: &[u16]| bits.iter().map(|&bits| widen(bits)).collect::<Vec<f64>>();
    let expected = expected(&wide(&x), &wide(&y), sizes, turned);
    for schedule in SCHEDULES {
        let mut out = vec![f32::NAN; rows * columns];
        let arguments = [buffer(&mut x), buffer(&mut y), buffer(&mut out)];
        let grid = Grid::Threadgroups([1, 1, 1]);
        run(&library, "multiply", &dispatch(grid, [32 * simdgroups, 1, 1], &arguments, schedule)).unwrap();
        for (found, expected) in out.iter().zip(&expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-4, "{sizes:?} {name} {found} {expected}");
        }
    }
}

#[test]
fn products_are_those_of_float64() {
    for narrow in NARROW {
        for turned in [false, true] {
            check([16, 32, 32], narrow, turned, 1, BY_INDEX);
            check([16, 7, 21], narrow, turned, 1, BY_TENSOR);
            check([5, 33, 48], narrow, turned, 4, BY_INDEX);
            check([64, 16, 32], narrow, turned, 4, BY_TENSOR);
        }
    }
}

#[test]
fn an_operation_of_one_simdgroup_runs_in_several() {
    attempt(&text([16, 16, 32], &[]), 128).unwrap();
}

#[test]
fn the_depth_may_be_that_of_the_factors() {
    let words = [("DEPTH", "static_cast<int>(dynamic_extent)"), ("DEEP", "16"), ("LEFT_EXTENTS", "16, 16")];
    attempt(&text([16, 16, 32], &[&words[..], &[("RIGHT_EXTENTS", "32, 16")]].concat()), 32).unwrap();
}

#[test]
fn the_mode_is_multiply_unless_it_is_said() {
    let overwritten = text([16, 16, 32], &[("MODE", ""), ("START", "1.0f")]);
    assert!(fault(&overwritten, 32).contains("mode::multiply, which is the default, overwrites"));
    attempt(&text([16, 16, 32], &[("MODE", ""), ("STEPS", "1")]), 32).unwrap();
    let unset = text([16, 16, 32], &[("if (sums.is_valid_element(i)) sums[i] = START;", "")]);
    let unset = unset.replace("if (sums.is_valid_element(i)) sums[i] = 0.0f;", "");
    assert!(fault(&unset, 32).contains("a destination that was never set"));
}

#[test]
fn extents_are_columns_and_rows() {
    let of = |word, extents| fault(&text([16, 8, 32], &[(word, extents)]), 32);
    assert!(of("LEFT_EXTENTS", "16, 8").contains("extents of the left factor are not (columns, rows)"));
    assert!(of("RIGHT_EXTENTS", "8, 32").contains("extents of the right factor are not (columns, rows)"));
    let whole = BY_TENSOR.replace("(COLUMNS, ROWS)", "(ROWS, COLUMNS)");
    let whole = fault(&text([16, 8, 32], &[("FINISH", &whole)]), 32);
    assert!(whole.contains("extents of the tensor in memory are not (columns, rows)"), "{whole}");
    let strides = fault(&text([16, 8, 32], &[("PITCH", "8")]), 32);
    assert!(strides.contains("strides"), "{strides}");
}

#[test]
fn the_scope_is_what_was_dispatched() {
    let text = text([16, 16, 32], &[("SCOPE", "execution_simdgroups<4>")]);
    attempt(&text, 128).unwrap();
    for threads in [32, 64, 256] {
        assert!(fault(&text, threads).contains("simdgroups in the execution scope is not the dispatched one"));
    }
    assert!(fault(&text, 80).contains("whole simdgroups"));
}

#[test]
fn rows_or_columns_are_a_multiple_of_16() {
    attempt(&text([16, 16, 8], &[]), 32).unwrap();
    attempt(&text([8, 16, 16], &[]), 32).unwrap();
    assert!(refused(&text([8, 16, 8], &[])).contains("at least one of M or N must be a multiple of 16"));
}

#[test]
fn factors_are_of_one_type() {
    assert!(refused(&text([16, 16, 32], &[("RIGHT", "bfloat")])).contains("no product of half and bfloat"));
}

#[test]
fn all_lanes_multiply_the_same() {
    let own = "x + (SHIFT) + step";
    let of = |shift: &str| text([16, 16, 32], &[]).replace("x + step", &own.replace("SHIFT", shift));
    assert!(fault(&of("simd_broadcast_first(out[0]) == 0 && simd_is_first()"), 32).contains("different factors"));
    let some = text([16, 16, 32], &[("STEPS", "1")]).replace("product.run", "if (simd_is_first()) product.run");
    assert!(matches!(attempt(&some, 32), Err(Error::DivergentBarrier { arrived: 1, .. })));
    let nowhere = text([16, 16, 32], &[]).replace("x + step", "x + (1ul << 40) + step");
    assert!(fault(&nowhere, 32).contains("nothing to read"));
}

#[test]
fn the_language_is_of_version_4_and_the_headers_are_included() {
    let text = text([16, 16, 32], &[]);
    let old = Library::compile(&text).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(old.contains("mpp"), "{old}");
    let bare = text.replace("#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>", "");
    assert!(refused(&bare).contains("program_source:6: error: mpp is in"));
}

/// A product is counted as one operation, whatever its sizes; what it reads of the factors is not.
#[test]
fn a_counted_text_counts_products() {
    let options = Options { metal4: true, counted: true, ..Options::default() };
    let library = Library::compile_with(&text([16, 16, 32], &[]), &options).unwrap();
    let counters = attempt_of(&library, 64).unwrap().counters.unwrap();
    assert_eq!(counters.matrix_multiplications, 2 * STEPS as u64);
    assert_eq!(counters.device_stores.bytes, 2 * 16 * 32 * 4);
}
