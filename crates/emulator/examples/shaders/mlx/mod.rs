//! MLX's kernels. Its headers are templates: here is a flat list of instances for each family, and a case for each instance. Where the
//! templates are in a `.metal` file, which has the instances too, that file is compiled and the list says which kernels it must have.

mod attention;
mod binary;
mod copies;
mod folds;
mod indexing;
mod masked;
mod norms;
mod packed;
mod quantized;
mod reductions;
mod rotations;
mod scans;
mod small_floats;
mod sorts;
mod steel;
mod tiles;
mod types;
mod unary;
mod vectors;

use crate::Line;
use crate::case::Case;
use openmps_emulator::{Library, Optimisation, Options, Value};
use rayon::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// Where MLX's kernels lie in its source.
const KERNELS: &str = "mlx/backend/metal/kernels";

pub type Constants = Vec<(u32, Value)>;

/// Makes a case, on whichever thread.
pub type MakeCase = Box<dyn Fn() -> Case + Send + Sync>;

/// A case, and the function constants of its kernel.
pub struct Variant {
    pub constants: Constants,
    pub case: MakeCase,
}

pub struct Kernel {
    /// As the host asks for it.
    pub name: String,
    /// `template<arguments>`, or none where the file has the instance.
    pub instance: Option<String>,
    /// Without one it is not compiled, and counts as not run.
    pub variants: Vec<Variant>,
}

pub struct Family {
    name: &'static str,
    /// What a text includes, in order, from the folder of kernels.
    files: &'static [&'static str],
    kernels: fn() -> Vec<Kernel>,
    /// Kernels of our own around functions of these.
    text: &'static str,
    /// Kernels that are compiled together. Larger ones take long.
    together: usize,
    optimisation: Optimisation,
}

const fn family(
    name: &'static str,
    files: &'static [&'static str],
    kernels: fn() -> Vec<Kernel>,
    together: usize,
) -> Family {
    Family { name, files, kernels, text: "", together, optimisation: Optimisation::Full }
}

/// One whose templates are so many and large that their optimisation would take most of an hour.
const fn large(
    name: &'static str,
    files: &'static [&'static str],
    kernels: fn() -> Vec<Kernel>,
    together: usize,
) -> Family {
    Family { optimisation: Optimisation::None, ..family(name, files, kernels, together) }
}

const FAMILIES: [Family; 26] = [
    family("rms_norm", &["rms_norm.metal"], norms::rms_norm, 100),
    family("layer_norm", &["layer_norm.metal"], norms::layer_norm, 100),
    family("softmax", &["utils.h", "softmax.h"], norms::softmax, 100),
    family("unary", &["utils.h", "unary_ops.h", "unary.h"], unary::kernels, 200),
    family("binary", &["utils.h", "binary_ops.h", "binary.h"], binary::kernels, 240),
    family("rope", &["rope.metal"], rotations::rope, 100),
    family("arg_reduce", &["arg_reduce.metal"], rotations::arg_reduce, 100),
    family("scan", &["utils.h", "scan.h"], scans::kernels, 120),
    family("reduce", &["utils.h", "atomic.h", "reduction/ops.h", "reduce.h"], reductions::kernels, 240),
    family("sort", &["utils.h", "sort.h"], sorts::kernels, 100),
    family("gemv", &["utils.h", "gemv.h"], vectors::kernels, 100),
    family("sdpa_vector", &["utils.h", "sdpa_vector.h"], attention::kernels, 100),
    family("steel_attention", &["utils.h", "steel/attn/kernels/steel_attention.h"], steel::attention, 42),
    family(
        "steel_gemm_fused",
        &["utils.h", "steel/gemm/gemm.h", "steel/gemm/kernels/steel_gemm_fused.h"],
        steel::fused,
        24,
    ),
    Family {
        text: indexing::GATHER,
        ..family(
            "gather",
            &["utils.h", "indexing/gather.h", "indexing/gather_axis.h", "indexing/gather_front.h"],
            indexing::gather,
            200,
        )
    },
    Family {
        text: indexing::SCATTER,
        ..family(
            "scatter",
            &["utils.h", "atomic.h", "reduction/ops.h", "indexing/scatter.h", "indexing/scatter_axis.h"],
            indexing::scatter,
            200,
        )
    },
    large("quantized", &["utils.h", "steel/gemm/gemm.h", "quantized_utils.h", "quantized.h"], quantized::kernels, 114),
    large(
        "fp_quantized",
        &["utils.h", "steel/gemm/gemm.h", "quantized_utils.h", "fp_quantized.h"],
        small_floats::kernels,
        160,
    ),
    large(
        "steel_gemm_gather",
        &["utils.h", "steel/gemm/gemm.h", "steel/gemm/kernels/steel_gemm_gather.h"],
        tiles::gathered,
        66,
    ),
    large(
        "steel_gemm_segmented",
        &["utils.h", "steel/gemm/gemm.h", "steel/gemm/kernels/steel_gemm_segmented.h"],
        tiles::segmented,
        60,
    ),
    large(
        "steel_gemm_splitk",
        &["utils.h", "steel/gemm/gemm.h", "steel/gemm/kernels/steel_gemm_splitk.h"],
        tiles::split,
        132,
    ),
    large(
        "steel_gemm_masked",
        &["utils.h", "steel/gemm/gemm.h", "steel/gemm/kernels/steel_gemm_masked.h"],
        masked::matrices,
        128,
    ),
    large("gemv_masked", &["utils.h", "gemv_masked.h"], masked::vectors, 132),
    large("binary_two", &["utils.h", "binary_ops.h", "binary_two.h"], binary::two, 120),
    large("ternary", &["utils.h", "ternary_ops.h", "ternary.h"], copies::choices, 212),
    large("copy", &["utils.h", "copy.h"], copies::copies, 416),
];

/// Kernels that are wrong by their own text; docs/emulator.md says why of each.
const FAULTS: [(&str, fn(&str) -> bool); 2] = [
    // Rows of bits that do not fill words: MLX asks for these kernels with two, four and eight bits only.
    ("quantized", |kernel| {
        kernel.starts_with("affine_qmv_quad") && ["_b_3_", "_b_5_", "_b_6_"].iter().any(|bits| kernel.contains(bits))
    }),
    // More threadgroup memory than Apple GPUs have.
    ("steel_attention", |kernel| {
        kernel.contains("_float32_bq32_bk16_bd256_") || kernel.contains("_float32_bq32_bk16_bd192_")
    }),
];

/// One kernel without function constants.
pub fn kernel(name: String, instance: String, case: impl Fn() -> Case + Send + Sync + 'static) -> Kernel {
    Kernel { name, instance: Some(instance), variants: vec![Variant { constants: Vec::new(), case: Box::new(case) }] }
}

/// Runs every family, or one, and says what became of it.
pub fn run(source: &Path, only: Option<&str>) -> Vec<Line> {
    let chosen = FAMILIES.iter().filter(|family| only.is_none_or(|only| only == family.name));
    chosen.map(|family| run_family(source, family)).collect()
}

fn run_family(source: &Path, family: &Family) -> Line {
    let kernels = (family.kernels)();
    let mut line = Line { file: family.name.to_owned(), kernels: kernels.len(), ..Line::default() };
    let missing = family.files.iter().find(|file| !source.join(KERNELS).join(file).is_file());
    if let Some(file) = missing {
        line.refused.push(format!("{file} is not in {}", source.display()));
        return line;
    }
    let compiled = compile_all(source, family, &kernels);
    let found: Vec<Line> = kernels
        .par_iter()
        .zip(compiled)
        .map(|(kernel, libraries)| {
            let mut line = Line::default();
            judge(&mut line, family.name, kernel, libraries);
            line
        })
        .collect();
    found.into_iter().for_each(|of_kernel| line.take(of_kernel));
    eprintln!("{}: {} compiled, {} right of {}", line.file, line.compiled, line.right, line.kernels);
    line
}

/// Runs the cases of a kernel, if it is compiled.
fn judge(line: &mut Line, family: &str, kernel: &Kernel, libraries: Vec<Compiled>) {
    if kernel.variants.is_empty() {
        return line.not_run.push(kernel.name.clone());
    }
    let libraries = match libraries.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(libraries) => libraries,
        Err(reason) => return line.refused.push(format!("{}: {reason}", kernel.name)),
    };
    line.compiled += 1;
    let cases: Vec<Case> = kernel.variants.iter().map(|variant| (variant.case)()).collect();
    let all = |loosely: bool| {
        cases.iter().zip(&libraries).try_for_each(|(case, library)| case.run(library, &kernel.name, loosely))
    };
    let faulty = FAULTS.iter().any(|(name, is_one)| *name == family && is_one(&kernel.name));
    let name = &kernel.name;
    match all(false) {
        Ok(()) if faulty => line.wrong.push(format!("{name}: right, though it is listed as wrong by its own text")),
        Ok(()) => line.right += 1,
        Err(what) if faulty => line.faulty.push(format!("{name}: {what}")),
        Err(what) if what.contains("wait at the barrier") && all(true).is_ok() => line.loose.push(what),
        Err(what) => line.wrong.push(format!("{name}: {what}")),
    }
}

type Compiled = Result<Arc<Library>, String>;

/// The library of each variant of each kernel, or why there is none. Kernels with the same constants are compiled together.
fn compile_all(source: &Path, family: &Family, kernels: &[Kernel]) -> Vec<Vec<Compiled>> {
    let not_yet = |kernel: &Kernel| kernel.variants.iter().map(|_| Err("not compiled".to_owned())).collect();
    let mut libraries: Vec<Vec<Compiled>> = kernels.iter().map(not_yet).collect();
    let mut groups: Vec<(&Constants, Vec<(usize, usize)>)> = Vec::new();
    for (at, kernel) in kernels.iter().enumerate() {
        for (which, variant) in kernel.variants.iter().enumerate() {
            match groups.iter_mut().find(|(constants, _)| **constants == variant.constants) {
                Some((_, members)) => members.push((at, which)),
                None => groups.push((&variant.constants, vec![(at, which)])),
            }
        }
    }
    let parts: Vec<_> = groups
        .iter()
        .flat_map(|(constants, members)| members.chunks(family.together).map(move |part| (*constants, part)))
        .collect();
    let results = parts.par_iter().map(|(constants, part)| {
        let names: Vec<&Kernel> = part.iter().map(|(at, _)| &kernels[*at]).collect();
        let mut results = Vec::new();
        compile(source, family, constants, &names, &mut results);
        results
    });
    for ((_, part), results) in parts.iter().zip(results.collect::<Vec<_>>()) {
        for ((at, which), result) in part.iter().zip(results) {
            libraries[*at][*which] = result;
        }
    }
    libraries
}

/// Compiles some kernels together; where that is refused, in two halves, until each that is refused stands alone.
fn compile(source: &Path, family: &Family, constants: &Constants, kernels: &[&Kernel], results: &mut Vec<Compiled>) {
    match library(source, family, constants, kernels) {
        Ok(library) => {
            let library = Arc::new(library);
            let has = |name: &str| library.function_names().any(|known| known == name);
            results.extend(kernels.iter().map(|kernel| {
                if has(&kernel.name) { Ok(library.clone()) } else { Err("there is no such kernel".to_owned()) }
            }));
        }
        Err(_) if kernels.len() > 1 && kernels[0].instance.is_some() => {
            let (first, second) = kernels.split_at(kernels.len() / 2);
            compile(source, family, constants, first, results);
            compile(source, family, constants, second, results);
        }
        Err(reason) => results.extend(kernels.iter().map(|_| Err(reason.clone()))),
    }
}

fn library(source: &Path, family: &Family, constants: &Constants, kernels: &[&Kernel]) -> Result<Library, String> {
    let mut text = String::from("#include <metal_stdlib>\nusing namespace metal;\n");
    for file in family.files {
        text += &format!("#include \"{KERNELS}/{file}\"\n");
    }
    text += family.text;
    for Kernel { name, instance, .. } in kernels {
        if let Some(instance) = instance {
            text += &format!("template [[host_name(\"{name}\")]] [[kernel]] decltype({instance}) {instance};\n");
        }
    }
    let options = Options {
        constants: constants.iter().copied().collect(),
        include: vec![source.to_path_buf()],
        bfloat_functions: true,
        optimisation: family.optimisation,
        ..Options::default()
    };
    Library::compile_with(&text, &options).map_err(|error| error.to_string())
}
