//! The preprocessor, run before kernels are looked for: macros may declare them. A text that includes the standard library and does nothing
//! else with the preprocessor is left alone.

use crate::cache::Cache;
use crate::compile::{language, run};
use crate::error::Result;
use crate::options::Options;
use crate::prelude;
use crate::toolchain::Toolchain;
use std::borrow::Cow;

/// The name of the text in diagnostics.
pub(crate) const SOURCE: &str = "program_source";

/// The text after the preprocessor, with line markers.
pub(crate) fn preprocess<'a>(text: &'a str, options: &Options) -> Result<Cow<'a, str>> {
    if is_plain(text) && options.macros.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    let tools = Toolchain::get()?;
    let cache = Cache::open(&prelude::recipe(tools, options))?;
    let headers = cache.write_empty_headers()?;
    let work = cache.entry(text).workplace()?;
    let unit = work.path("text.metal");
    work.write(&unit, &format!("# 1 \"{SOURCE}\"\n{text}\n"))?;
    let mut compiler = tools.compiler();
    language(&mut compiler).args(["-x", "clcpp", "-E"]);
    for (name, value) in prelude::features(options) {
        compiler.arg(format!("-D{name}={value}"));
    }
    for (name, value) in &options.macros {
        compiler.arg(format!("-D{name}={value}"));
    }
    for folder in &options.include {
        compiler.arg("-I").arg(folder);
    }
    compiler.arg("-internal-isystem").arg(headers).arg(&unit);
    // The compiler's own file names would make every text a new one.
    let markers = unit.display().to_string();
    Ok(Cow::Owned(run(&mut compiler)?.lines().filter(|line| !is_noise(line, &markers)).collect::<Vec<_>>().join("\n")))
}

/// Whether the preprocessor has nothing to do but to find the standard library.
fn is_plain(text: &str) -> bool {
    let plain = |line: &str| {
        let line = line.trim_start();
        let directive = line.strip_prefix('#').map(str::trim_start);
        directive.is_none_or(|directive| {
            let header = directive.strip_prefix("include").map(str::trim);
            let known =
                |name: &str| prelude::HEADERS.contains(&name.trim_start_matches('<').split('>').next().unwrap_or(""));
            header.is_some_and(known) || directive.starts_with("pragma") && !directive.contains("once")
        })
    };
    text.lines().all(plain) && !text.contains("_Pragma")
}

/// Markers of what comes before the text.
fn is_noise(line: &str, unit: &str) -> bool {
    line.starts_with("# ") && (line.contains("<built-in>") || line.contains("<command line>") || line.contains(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_library_alone_needs_no_preprocessor() {
        assert!(is_plain("#include <metal_stdlib>\n# include <simd/simd.h>\n  #pragma unroll\nint x;"));
        for text in [
            "#define A 1",
            "#include \"a.h\"",
            "#include <a.h>",
            "#if 1\n#endif",
            "#pragma once",
            "_Pragma(\"unroll\")",
        ] {
            assert!(!is_plain(text), "{text}");
        }
    }
}
