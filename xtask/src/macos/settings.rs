//! What no test on Linux executes and must stay as it is: settings, guards and calls in code for macOS, as text.

use super::calls::without_comments;
use crate::shell::{Result, root};

/// The file, what stands in it, and why it must.
const SETTINGS: &[(&str, &str, &str)] = &[
    (
        "crates/metal/src/apple/graph/mod.rs",
        "descriptor.setOptimizationLevel(MPSGraphOptimization::Level0);",
        "the next level places work on the Neural Engine and the CPU",
    ),
    (
        "crates/metal/src/apple/graph/mod.rs",
        "&NSArray::from_retained_slice(&results), None, Some(&descriptor),",
        "without the descriptor the level is Apple's default",
    ),
    (
        "crates/metal/src/apple/library.rs",
        "options.setFastMathEnabled(fast);",
        "macOS 13 and 14 have fast arithmetic by default",
    ),
    (
        "crates/metal/src/apple/properties.rs",
        "let newer = available!(macos = 15.0);",
        "coherent memory and attention of MPSGraph",
    ),
    (
        "crates/metal/src/apple/properties.rs",
        "bfloat: available!(macos = 14.0), coherence: newer, tensor_offsets: newer, attention: newer, \
         long_products: available!(macos = 14.4), long_convolutions: available!(macos = 15.1), tensor_operations: available!(macos = 26.2),",
        "guards of defects and the language of kernels go by these",
    ),
    (
        "crates/metal/src/apple/properties.rs",
        "[MTLGPUFamily::Apple10, MTLGPUFamily::Apple9, MTLGPUFamily::Apple8, MTLGPUFamily::Apple7]",
        "the family of an M5 that is not asked for is that of an M4",
    ),
    (
        "crates/metal/src/apple/library.rs",
        "let functions = if fast { MTLMathFloatingPointFunctions::Fast } else { MTLMathFloatingPointFunctions::Precise }; \
         options.setMathFloatingPointFunctions(functions);",
        "Apple's default is the approximate functions, whatever the mode of arithmetic is",
    ),
    (
        "crates/metal/src/apple/library.rs",
        "options.setMathMode(if fast { MTLMathMode::Fast } else { MTLMathMode::Safe });",
        "Apple's default is fast arithmetic, which has no NaN",
    ),
    (
        "crates/metal/src/apple/properties.rs",
        "if available!(macos = 14.0) { device.architecture().name().to_string() }",
        "macOS 13 has no such method, and a call of it ends the process",
    ),
    (
        "crates/metal/src/apple/mod.rs",
        "fn save_pipelines(&self) -> Result<()> { self.archive.save() }",
        "an archive that is not written is compiled anew by every process",
    ),
    ("crates/metal/src/apple/archive.rs", "archive.serializeToURL_error(", "this writes the archive"),
    (
        "crates/metal/src/apple/commands.rs",
        "if !matches!(self.encoder, Encoder::Compute(_)) {",
        "kernels that follow each other share an encoder",
    ),
    (
        "frontends/candle/src/metal.rs",
        "pipelines.save_if_due(",
        "the kernels of Candle's device are to be kept for the next process, too",
    ),
    (
        "frontends/candle/src/metal.rs",
        "static DEVICES: LazyLock<HeldDevices<DeviceId, CandleGpu>>",
        "a map without a bound keeps every device that Candle ever made",
    ),
];

/// Holds every file to its settings.
pub fn check() -> Result<()> {
    for setting in SETTINGS {
        let text =
            std::fs::read_to_string(root().join(setting.0)).map_err(|error| format!("{}: {error}", setting.0))?;
        stands(setting, &text)?;
    }
    Ok(())
}

/// A setting stands in a text as it is, outside of comments.
fn stands((file, setting, why): &(&str, &str, &str), text: &str) -> Result<()> {
    let code = without_comments(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if code.contains(setting) { Ok(()) } else { Err(format!("{file} has no longer `{setting}`: {why}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_defects_away_stands_in_the_source_and_is_missed_where_it_does_not() {
        check().unwrap();
        for row in SETTINGS {
            let (file, setting, _) = row;
            let text = std::fs::read_to_string(root().join(file)).unwrap();
            // The other value of each, a comment, nothing at all.
            for (word, other) in [("Level0", "Level1"), ("::Precise", "::Fast"), ("::Safe", "::Relaxed")] {
                let changed = text.replace(word, other);
                assert_eq!(stands(row, &changed).is_err(), setting.contains(word), "{file}: {other}");
            }
            // As much of its end as stands on one line.
            let ends = std::iter::once(0).chain(setting.match_indices(' ').map(|(space, _)| space + 1));
            let last = ends.map(|begin| &setting[begin..]).find(|end| text.contains(end)).expect("a line");
            assert!(stands(row, &text.replace(last, &format!("// {last}"))).is_err(), "{setting}");
            assert!(stands(row, "").is_err());
        }
    }
}
