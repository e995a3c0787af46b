//! What published products and attention move, by the emulator's counters, at the sizes of crates/graph/examples/metal_counts.rs.

use crate::case::{Arg, Case, input};
use crate::kind::Kind;
use crate::products::{BLOCKS, first_pass_call, full_call, gemm_call, second_pass_call};
use openmps_emulator::{Counters, GPUS, Library, Options, Value};
use std::path::Path;

const KINDS: [(Kind, &str, &str); 3] =
    [(Kind::F32, "f32", "float32"), (Kind::F16, "f16", "float16"), (Kind::Bf16, "bf16", "bfloat16")];

/// Sides of products, and which of their operands are transposed.
const PRODUCTS: [(usize, &[&str]); 5] = [
    (509, &["nn", "nt", "tn"]),
    (512, &["nn", "nt", "tn"]),
    (1024, &["nn", "nt", "tn"]),
    (2048, &["nn"]),
    (4096, &["nn"]),
];

/// Prints the table; words that a case's name must have choose cases.
pub fn run(folder: &Path, words: &[String]) -> Result<(), String> {
    let times = GPUS.map(|gpu| format!("{}, us", gpu.name)).join(" | ");
    println!("| work | kernel | {} | {times} |", Counters::HEAD);
    println!("|{}", "---|".repeat(Counters::HEAD.split('|').count() + GPUS.len() + 2));
    let chosen = |work: &str| words.iter().all(|word| work.contains(word.as_str()));
    for (kind, short, long) in KINDS {
        for (n, turns) in PRODUCTS.iter().flat_map(|&(n, all)| all.iter().map(move |turns| (n, *turns))) {
            let work = format!("product {long} {n} {turns}");
            if chosen(&work) {
                print(folder, &work, &product(kind, short, n, turns)?)?;
            }
        }
        for (n, d) in [512, 1024, 4096].into_iter().flat_map(|n| [64, 128].map(|d| (n, d))) {
            for causal in [false, true] {
                let work = format!("attention {long} {n}x{n} {d} {}", if causal { "causal" } else { "whole" });
                if chosen(&work) {
                    print(folder, &work, &attention(kind, long, n, d, causal)?)?;
                }
            }
        }
        for d in [64, 128] {
            let work = format!("attention {long} 1x8192 {d} whole");
            if chosen(&work) {
                one_query(kind, 8192, d).iter().try_for_each(|pass| print(folder, &work, pass))?;
            }
        }
    }
    Ok(())
}

/// A kernel of a file with its function constants.
struct Work {
    file: &'static str,
    kernel: String,
    constants: Vec<(u32, bool)>,
    case: Case,
}

fn zeros(kind: Kind, count: usize) -> Arg {
    input(kind, &vec![0.0; count])
}

/// The tile that the host code of these kernels takes on the smallest GPU of a generation.
fn product(kind: Kind, short: &str, n: usize, turns: &str) -> Result<Work, String> {
    let tile = match (turns, kind) {
        ("nt", _) => "64_32_32_2_2",
        (_, Kind::F32) => "64_64_16_2_2",
        _ => "64_64_16_1_2",
    };
    let kernel = format!("gemm_{turns}_{short}_{short}_{tile}");
    let given = [zeros(kind, n * n), zeros(kind, n * n)];
    let case = gemm_call(&kernel, [n; 3], given, Box::new(|_| Ok(()))).ok_or("no such product")?;
    let whole = n.is_multiple_of(64);
    let constants = vec![(10, false), (100, false), (110, false), (200, whole), (201, whole), (202, whole)];
    Ok(Work { file: "mlx_gemm", kernel, constants, case })
}

fn attention(kind: Kind, long: &str, n: usize, d: usize, causal: bool) -> Result<Work, String> {
    let bk = if d < 128 { 32 } else { 16 };
    let rest = format!("{long}_bq32_bk{bk}_bd{d}_wm4_wn1_mask{long}");
    let given = [0; 3].map(|_| zeros(kind, n * d));
    let case = full_call(&rest, [1, n, n], given, Box::new(|_| Ok(()))).ok_or("no such attention")?;
    let constants = vec![(200, true), (201, true), (300, false), (301, causal)];
    Ok(Work { file: "scaled_dot_product_attention", kernel: format!("steel_attention_{rest}"), constants, case })
}

/// One query against many keys, in two passes.
fn one_query(kind: Kind, keys: usize, d: usize) -> [Work; 2] {
    let element = match kind {
        Kind::F16 => "float16_t",
        Kind::Bf16 => "bfloat16_t",
        _ => "float",
    };
    let work = |pass: &str, constants: Vec<(u32, bool)>, case| Work {
        file: "scaled_dot_product_attention",
        kernel: format!("sdpa_vector_2pass_{pass}_{element}_{d}"),
        constants,
        case,
    };
    let any = || Box::new(|_: &[Vec<f64>]| Ok(()));
    let given = [d, keys * d, keys * d].map(|count| zeros(kind, count));
    let parts = [BLOCKS * d, BLOCKS, BLOCKS].map(|count| zeros(Kind::F32, count));
    [
        work("1", vec![(20, false)], first_pass_call([1, keys, d], given, any())),
        work("2", Vec::new(), second_pass_call(kind, [1, d], parts, any())),
    ]
}

fn print(folder: &Path, work: &str, Work { file, kernel, constants, case }: &Work) -> Result<(), String> {
    let path = folder.join(file).with_extension("metal");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut values: std::collections::BTreeMap<u32, Value> =
        crate::CONSTANTS.map(|index| (index, Value::Bool(false))).into();
    values.extend(constants.iter().map(|(index, value)| (*index, Value::Bool(*value))));
    let options = Options {
        constants: values,
        bfloat_functions: true,
        counted: true,
        kernels: vec![kernel.clone()],
        ..Options::default()
    };
    let library = Library::compile_with(&text, &options).map_err(|error| error.to_string())?;
    let counters = case.count(&library, kernel)?;
    let times = GPUS.map(|gpu| format!("{:.1}", gpu.seconds(&counters) * 1e6)).join(" | ");
    println!("| {work} | {kernel} | {counters} | {times} |");
    Ok(())
}
