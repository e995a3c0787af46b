//! The stand-in for `metal_stdlib`: its parts under `msl/`, joined, with the swizzles of vectors written out.

use crate::options::Options;
use crate::toolchain::Toolchain;
use std::fmt::Write;

/// The parts in the order in which they build on each other.
const PARTS: [(&str, &str); 12] = [
    ("types.h", include_str!("../msl/types.h")),
    ("vector.h", include_str!("../msl/vector.h")),
    ("math.h", include_str!("../msl/math.h")),
    ("columns.h", include_str!("../msl/columns.h")),
    ("integer.h", include_str!("../msl/integer.h")),
    ("frame.h", include_str!("../msl/frame.h")),
    ("count.h", include_str!("../msl/count.h")),
    ("simdgroup.h", include_str!("../msl/simdgroup.h")),
    ("matrix.h", include_str!("../msl/matrix.h")),
    ("atomic.h", include_str!("../msl/atomic.h")),
    ("uniform.h", include_str!("../msl/uniform.h")),
    ("names.h", include_str!("../msl/names.h")),
];
/// What MSL 4.0 adds.
const TENSORS: &str = include_str!("../msl/tensor.h");
/// Comes last: it may use everything.
const ENTRY: &str = include_str!("../msl/entry.h");
/// What a text may ask the preprocessor for. The language is that of version 3.1 and later, with `bfloat`.
pub(crate) fn features(options: &Options) -> [(&'static str, &'static str); 4] {
    let version = if options.metal4 { "400" } else { "310" };
    [("__METAL_VERSION__", version), ("__METAL__", "1"), ("__METAL_MACOS__", "1"), ("__HAVE_BFLOAT__", "1")]
}
/// OpenCL's keywords that are plain names in the Metal Shading Language.
const PLAIN_NAMES: [&str; 5] = ["local", "global", "generic", "pipe", "vec_step"];

/// Where `mpp::tensor_ops` is.
pub(crate) const PRIMITIVES: &str = "MetalPerformancePrimitives/MetalPerformancePrimitives.h";

/// Headers that a program may include; all of them are here already.
pub(crate) const HEADERS: [&str; 19] = [
    PRIMITIVES,
    "metal_stdlib",
    "metal_atomic",
    "metal_common",
    "metal_compute",
    "metal_geometric",
    "metal_integer",
    "metal_limits",
    "metal_math",
    "metal_matrix",
    "metal_numeric",
    "metal_pack",
    "metal_relational",
    "metal_simdgroup",
    "metal_simdgroup_matrix",
    "metal_tensor",
    "metal_types",
    "metal_uniform",
    "simd/simd.h",
];

/// A kernel becomes part of its entry function, and no code is made for it elsewhere.
const KERNEL: &str = "#define kernel __attribute__((always_inline)) inline __kernel";

/// The text that is compiled before every program.
pub(crate) fn text(options: &Options) -> String {
    let mut text = swizzles();
    for (name, value) in features(options) {
        let _ = writeln!(text, "#define {name} {value}");
    }
    let _ = writeln!(text, "#define EMULATOR_BFLOAT_FUNCTIONS {}", u32::from(options.bfloat_functions));
    let _ = writeln!(text, "#define EMULATOR_COUNTED {}", u32::from(options.counted));
    for (name, part) in PARTS {
        let _ = writeln!(text, "# 1 \"/metal_stdlib/{name}\"\n{part}");
    }
    if options.metal4 {
        let _ = writeln!(text, "# 1 \"/metal_stdlib/tensor.h\"\n{TENSORS}");
    }
    let _ = writeln!(text, "# 1 \"/metal_stdlib/entry.h\"\n{ENTRY}");
    for name in PLAIN_NAMES {
        let _ = writeln!(text, "#define {name} openmps_name_{name}");
    }
    text.push_str(KERNEL);
    text.push('\n');
    text
}

/// What every compiled object depends on besides its own text.
pub(crate) fn recipe(tools: &Toolchain, options: &Options) -> String {
    format!("{}\n{}\n{}\n{}", tools.version, crate::compile::flags(), options.optimisation.flag(), text(options))
}

/// `OPENMPS_SWIZZLES_2` to `_4`: every choice of two to four components, by position and by colour.
fn swizzles() -> String {
    let mut text = String::new();
    for components in 2..=4_usize {
        let _ = write!(text, "#define OPENMPS_SWIZZLES_{components}");
        for letters in ["xyzw", "rgba"] {
            for length in 2..=4_u32 {
                for choice in 0..components.pow(length) {
                    text.push(' ');
                    text.push_str(&swizzle(components, letters, length, choice));
                }
            }
        }
        text.push('\n');
    }
    text
}

fn swizzle(components: usize, letters: &str, length: u32, choice: usize) -> String {
    let index = |at: u32| if at < length { (choice / components.pow(at) % components) as i32 } else { -1 };
    let name: String = (0..length).map(|at| letters.as_bytes()[index(at) as usize] as char).collect();
    format!("swizzle<T, {components}, {}, {}, {}, {}> {name};", index(0), index(1), index(2), index(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swizzles_name_their_components_in_order() {
        assert_eq!(swizzle(4, "xyzw", 3, 3 + 4), "swizzle<T, 4, 3, 1, 0, -1> wyx;");
        assert_eq!(swizzles().matches(';').count(), 2 * (28 + 117 + 336));
    }
}
