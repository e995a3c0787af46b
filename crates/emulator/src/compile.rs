//! From Metal Shading Language text to a shared object: the stand-in library as a precompiled header, the address-space check, an entry
//! function for each kernel, clang, the linker; results are kept on disk by content.

use crate::address_space;
use crate::cache::{Cache, Workplace};
use crate::count::annotate;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::prelude;
use crate::preprocess::SOURCE;
use crate::rewrite::Unit;
use crate::source::{Binding, Kernel, Parameter};
use crate::toolchain::Toolchain;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags of the language. Every operation rounds to its type and none are fused, so that results do not depend on the optimiser.
const LANGUAGE: &[&str] = &[
    "-cl-std=CLC++2021",
    "-cl-ext=-all,+cl_khr_fp16,+__opencl_c_generic_address_space,+__opencl_c_program_scope_global_variables,\
     +__cl_clang_non_portable_kernel_param_types,+__cl_clang_function_pointers",
    "-ffp-contract=off",
    "-ffloat16-excess-precision=none",
    "-fbfloat16-excess-precision=none",
    // Without suffix a number is float.
    "-cl-single-precision-constant",
    // A load from nowhere is a fault where it is made and nothing where its value is not used, but no licence to drop what follows.
    "-fno-delete-null-pointer-checks",
    "-Wno-unknown-attributes",
    // `constant` is `const` too, and may follow one.
    "-Wno-duplicate-decl-specifier",
    "-Werror=return-type",
    "-fshow-overloads=best",
    // Blocks stay in the order of the text: lanes that wait at lower addresses are behind those at higher ones.
    "-mllvm",
    "-disable-block-placement",
    // An array beyond the stack's end touches the page that guards it.
    "-fstack-clash-protection",
    "-mrelocation-model",
    "pic",
    "-pic-level",
    "2",
];

/// Flags of a counted text: a call before each load and store, and no loop that becomes a call of memset or memcpy, which has no such calls.
/// Nothing here vectorises loops, counted or not.
const COUNTED: &[&str] = &[
    "-fsanitize-coverage-type=2",
    // A call in each block, where its operations are said.
    "-fsanitize-coverage-trace-pc",
    "-mllvm",
    "-sanitizer-coverage-prune-blocks=0",
    "-fsanitize-coverage-trace-loads",
    "-fsanitize-coverage-trace-stores",
    "-fno-builtin-memset",
    "-fno-builtin-memcpy",
    // Copies of structures: calls in their place, and nothing else of what this sanitizer does.
    "-fsanitize=thread",
    "-mllvm",
    "-tsan-instrument-memory-accesses=0",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-instrument-atomics=0",
    // A lane's last turns through a loop would be at another place than those of lanes that go on.
    "-mllvm",
    "-unroll-runtime=false",
    // It would compute a vector once for each element that is taken out of it.
    "-mllvm",
    "-disable-vector-combine",
];

/// How a text that is clang's own already becomes an object: nothing of it is optimized again, nothing is fused.
const INTERMEDIATE: &[&str] = &[
    "-x",
    "ir",
    "-O2",
    "-disable-llvm-passes",
    "-ffp-contract=off",
    "-mllvm",
    "-disable-block-placement",
    "-mrelocation-model",
    "pic",
    "-pic-level",
    "2",
    "-emit-obj",
];

/// What the host runs: triple and processor. Half precision needs the conversion instructions of the third x86-64 level.
const TARGET: &[&str] = if cfg!(target_arch = "x86_64") {
    &["-triple", "x86_64-unknown-linux-gnu", "-target-cpu", "x86-64-v3"]
} else {
    &["-triple", "aarch64-unknown-linux-gnu"]
};

/// Adds what every call of the compiler has: language and target.
pub(crate) fn language(compiler: &mut Command) -> &mut Command {
    compiler.args(TARGET).args(LANGUAGE)
}

/// Flags and target as a part of what a compiled object depends on.
pub(crate) fn flags() -> String {
    format!("{LANGUAGE:?}\n{TARGET:?}\n{COUNTED:?}\n{INTERMEDIATE:?}")
}

/// The name of the generated functions in diagnostics.
const ENTRIES: &str = "openmps_entries";

/// The shared object of a unit.
pub(crate) fn shared_object(unit: &Unit, options: &Options) -> Result<PathBuf> {
    let tools = Toolchain::get()?;
    let cache = Cache::open(&prelude::recipe(tools, options))?;
    let text = format!("# 1 \"{SOURCE}\"\n{}\n# 1 \"{ENTRIES}\"\n{}", unit.text, entries(&unit.kernels));
    let entry = cache.entry(&text);
    if entry.is_present(&text) {
        return Ok(entry.object());
    }
    let counted = if options.counted { COUNTED } else { &[] };
    let header = precompiled(tools, &cache, options, counted)?;
    let compiler = || {
        let mut compiler = tools.compiler();
        language(&mut compiler).args(counted).args(["-x", "clcpp", "-include-pch"]).arg(&header);
        compiler.arg("-internal-isystem").arg(cache.headers());
        compiler
    };
    let work = entry.workplace()?;
    let unit = work.path("unit.metal");
    work.write(&unit, &text)?;
    let (object, shared) = (work.path("unit.o"), work.path("unit.so"));
    // Both read the text: where it is wrong, the first one's diagnostics are the error.
    let (checked, compiled) = rayon::join(
        || {
            run(compiler().args([options.optimisation.flag(), "-ast-dump"]).arg(&unit))
                .and_then(|tree| address_space::check(&tree))
        },
        || {
            let mut compiler = compiler();
            compiler.arg(options.optimisation.flag()).arg(&unit);
            if options.counted { with_operations(tools, compiler, &work, &object) } else { assemble(compiler, &object) }
        },
    );
    checked.and(compiled)?;
    link(tools, &object, &shared)?;
    entry.keep(&text, &shared)?;
    Ok(entry.object())
}

fn assemble(mut compiler: Command, object: &Path) -> Result<String> {
    run(compiler.arg("-emit-obj").arg("-o").arg(object))
}

/// The object of a counted text, whose blocks say what they compute.
fn with_operations(tools: &Toolchain, mut compiler: Command, work: &Workplace, object: &Path) -> Result<String> {
    let file = work.path("unit.ll");
    run(compiler.arg("-emit-llvm").arg("-o").arg(&file))?;
    let read = std::fs::read_to_string(&file);
    let text = read.map_err(|error| Error::Toolchain { program: "clang".to_owned(), reason: error.to_string() })?;
    work.write(&file, &annotate(&text))?;
    run(tools.compiler().args(TARGET).args(INTERMEDIATE).arg(&file).arg("-o").arg(object))
}

/// The stand-in library, compiled once for every text.
fn precompiled(tools: &Toolchain, cache: &Cache, options: &Options, counted: &[&str]) -> Result<PathBuf> {
    let header = cache.header();
    if header.is_file() {
        return Ok(header);
    }
    let text = cache.write_headers(&prelude::text(options))?;
    let fresh = cache.temporary("prelude.pch");
    let mut compiler = tools.compiler();
    language(&mut compiler).args(["-x", "clcpp-header", "-emit-pch", "-fno-pch-timestamp"]).args(counted);
    compiler.arg(options.optimisation.flag());
    run(compiler.arg(&text).arg("-o").arg(&fresh))?;
    cache.take(&fresh, &header)?;
    Ok(header)
}

fn link(tools: &Toolchain, object: &Path, shared: &Path) -> Result<()> {
    let mut linker = tools.linker();
    let bind = if linker.get_program() == "cc" { "-Wl,-Bsymbolic" } else { "-Bsymbolic" };
    run(linker.arg(bind).arg(object).arg("-o").arg(shared)).map(|_| ())
}

/// Runs a program; what it prints, or its diagnostics as an error.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |reason: String| Error::Toolchain { program: program.clone(), reason };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let diagnostics = String::from_utf8_lossy(&output.stderr).into_owned();
    if diagnostics.contains("error:") {
        Err(Error::Compile { diagnostics })
    } else {
        Err(failed(format!("{}: {diagnostics}", output.status)))
    }
}

/// An entry function and a table of sizes, alignments and conditions for each kernel.
fn entries(kernels: &[Kernel]) -> String {
    let mut text = String::new();
    for kernel in kernels.iter().filter(|kernel| kernel.instance) {
        let _ = writeln!(text, "struct {};", kernel.tag);
    }
    text.push_str("extern \"C\" {\n");
    for kernel in kernels {
        let arguments: Vec<String> = kernel.parameters.iter().map(argument).collect();
        let (callee, arguments) = (&kernel.callee, arguments.join(", "));
        let _ = writeln!(
            text,
            "void {} () {{ uint i; while (openmps::start(i)) {callee}({arguments}); }}",
            entry_name(&kernel.name)
        );
        let extents: String = (0..kernel.parameters.len()).map(|index| extent(kernel, index)).collect();
        let _ = writeln!(
            text,
            "extern __global const uint {0}[]; __global const uint {0}[] = {{ {extents}0 }};",
            extents_name(&kernel.name)
        );
    }
    text.push_str("}\n");
    text
}

/// The symbol that runs a kernel's threads.
pub(crate) fn entry_name(kernel: &str) -> String {
    format!("openmps_entry_{}", identifier(kernel))
}

/// The symbol of the extents: three numbers a parameter.
pub(crate) fn extents_name(kernel: &str) -> String {
    format!("openmps_extents_{}", identifier(kernel))
}

/// A kernel's name as part of an identifier; the host may give it any signs.
fn identifier(name: &str) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    name.chars().map(|sign| if plain(sign) { sign.to_string() } else { format!("${:x}", sign as u32) }).collect()
}

fn argument(parameter: &Parameter) -> String {
    match parameter.binding {
        Binding::Buffer { index, .. } => format!("openmps::buffer_argument{{openmps_frame.buffers[{index}]}}"),
        Binding::Threadgroup { index } => {
            format!("openmps::threadgroup_argument{{openmps_frame.threadgroup_memory[{index}]}}")
        }
        Binding::Builtin(name) => format!("openmps::{name}(i)"),
    }
}

/// Size and alignment of what a parameter points to, and whether the parameter is there.
fn extent(kernel: &Kernel, index: usize) -> String {
    let parameter = &kernel.parameters[index];
    let present = parameter.condition.as_ref().map_or_else(|| "1".to_owned(), |name| format!("({name}) ? 1 : 0"));
    let extent = match &parameter.binding {
        Binding::Buffer { .. } if kernel.instance => {
            let type_of = format!("openmps::parameter<{index}, decltype({})>", kernel.callee);
            format!("{type_of}::size, {type_of}::alignment")
        }
        Binding::Buffer { pointee, .. } if !pointee.ends_with("void") => {
            format!("sizeof({pointee}), alignof({pointee})")
        }
        _ => "1, 1".to_owned(),
    };
    format!("{extent}, {present}, ")
}
