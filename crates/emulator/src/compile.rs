//! From Metal Shading Language text to a shared object: the stand-in library as a precompiled header, the address-space check, an entry
//! function for each kernel, clang, the linker; results are kept on disk by content.

use crate::address_space;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::prelude;
use crate::source::{Binding, Kernel};
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
    "-Wno-unknown-attributes",
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

/// What the host runs: triple and processor. Half precision needs the conversion instructions of the third x86-64 level.
const TARGET: &[&str] = if cfg!(target_arch = "x86_64") {
    &["-triple", "x86_64-unknown-linux-gnu", "-target-cpu", "x86-64-v3"]
} else {
    &["-triple", "aarch64-unknown-linux-gnu"]
};

/// The shared object of a text with these kernels.
pub(crate) fn shared_object(text: &str, kernels: &[Kernel]) -> Result<PathBuf> {
    let tools = Toolchain::get()?;
    let prelude = prelude::text();
    let recipe = format!("{}\n{LANGUAGE:?}\n{TARGET:?}\n{prelude}", tools.version);
    let cache = Cache::open(&recipe)?;
    let entry = cache.entry(text);
    if entry.is_present(text) {
        return Ok(entry.object());
    }
    let header = precompiled(tools, &cache, &prelude)?;
    let compiler = || {
        let mut compiler = tools.compiler();
        compiler.args(TARGET).args(LANGUAGE).args(["-x", "clcpp", "-include-pch"]).arg(&header);
        compiler.arg("-internal-isystem").arg(cache.headers());
        compiler
    };
    let work = entry.workplace()?;
    let unit = work.path("unit.metal");
    // The attribute is the keyword spelled otherwise; columns stay.
    let text_of_unit = text.replace("[[kernel]]", "kernel    ");
    work.write(
        &unit,
        &format!("# 1 \"program_source\"\n{text_of_unit}\n# 1 \"openmps_entries\"\n{}", entries(kernels)),
    )?;
    let (object, shared) = (work.path("unit.o"), work.path("unit.so"));
    // Both read the text: where it is wrong, the first one's diagnostics are the error.
    let (checked, compiled) = rayon::join(
        || run(compiler().arg("-ast-dump").arg(&unit)).and_then(|tree| address_space::check(&tree)),
        || run(compiler().args(["-O2", "-emit-obj"]).arg(&unit).arg("-o").arg(&object)),
    );
    checked.and(compiled)?;
    link(tools, &object, &shared)?;
    entry.keep(text, &shared)?;
    Ok(entry.object())
}

/// The stand-in library, compiled once for every text.
fn precompiled(tools: &Toolchain, cache: &Cache, prelude: &str) -> Result<PathBuf> {
    let header = cache.header();
    if header.is_file() {
        return Ok(header);
    }
    let text = cache.write_headers(prelude)?;
    let fresh = cache.temporary("prelude.pch");
    let mut compiler = tools.compiler();
    compiler.args(TARGET).args(LANGUAGE).args(["-x", "clcpp-header", "-emit-pch", "-fno-pch-timestamp"]);
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
fn run(command: &mut Command) -> Result<String> {
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

/// An entry function and a table of sizes and alignments for each kernel.
fn entries(kernels: &[Kernel]) -> String {
    let mut text = String::from("extern \"C\" {\n");
    for kernel in kernels {
        let arguments: Vec<String> = kernel.parameters.iter().map(|parameter| argument(&parameter.binding)).collect();
        let (name, arguments) = (&kernel.name, arguments.join(", "));
        let _ = writeln!(
            text,
            "void {} () {{ uint i; while (openmps::start(i)) ::{name}({arguments}); }}",
            entry_name(name)
        );
        let sizes: String = kernel.parameters.iter().map(|parameter| sizes(&parameter.binding)).collect();
        let _ = writeln!(
            text,
            "extern __global const uint {0}[]; __global const uint {0}[] = {{ {sizes}0 }};",
            sizes_name(name)
        );
    }
    text.push_str("}\n");
    text
}

/// The symbol that runs a kernel's threads.
pub(crate) fn entry_name(kernel: &str) -> String {
    format!("openmps_entry_{kernel}")
}

/// The symbol of the sizes and alignments: two numbers a parameter.
pub(crate) fn sizes_name(kernel: &str) -> String {
    format!("openmps_sizes_{kernel}")
}

fn argument(binding: &Binding) -> String {
    match binding {
        Binding::Buffer { index, .. } => format!("openmps::buffer_argument{{openmps_frame.buffers[{index}]}}"),
        Binding::Threadgroup { index } => {
            format!("openmps::threadgroup_argument{{openmps_frame.threadgroup_memory[{index}]}}")
        }
        Binding::Builtin(name) => format!("openmps::{name}(i)"),
    }
}

fn sizes(binding: &Binding) -> String {
    match binding {
        Binding::Buffer { pointee, .. } if !pointee.ends_with("void") => {
            format!("sizeof({pointee}), alignof({pointee}), ")
        }
        _ => "1, 1, ".to_owned(),
    }
}
