//! Names of kernels and parameters as identifiers of both languages.

use crate::helpers;
use openmps_tile::Kernel;

/// Keywords that a parameter must not be called: keywords of either language, and names and functions that the emitter uses itself.
const RESERVED: &[&str] = &[
    "acos",
    "as_type",
    "asin",
    "atan",
    "atan2",
    "blockIdx",
    "ceil",
    "cos",
    "cosh",
    "exp",
    "exp2",
    "fabs",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "gridDim",
    "log",
    "log2",
    "moved",
    "left",
    "right",
    "other",
    "own",
    "part",
    "parts",
    "pow",
    "rint",
    "rsqrt",
    "sin",
    "sinh",
    "sqrt",
    "step",
    "tan",
    "tanh",
    "trunc",
    "alignas",
    "asm",
    "auto",
    "bfloat",
    "bool",
    "break",
    "case",
    "char",
    "class",
    "const",
    "constant",
    "continue",
    "default",
    "delete",
    "device",
    "do",
    "double",
    "else",
    "enum",
    "extern",
    "false",
    "float",
    "for",
    "fragment",
    "goto",
    "half",
    "if",
    "inline",
    "int",
    "k",
    "kernel",
    "long",
    "main",
    "metal",
    "namespace",
    "new",
    "numbers",
    "operator",
    "precise",
    "private",
    "program",
    "programs",
    "public",
    "return",
    "sampler",
    "schar",
    "scratch",
    "old",
    "counts",
    "row",
    "walked",
    "short",
    "signed",
    "sizeof",
    "slong",
    "static",
    "struct",
    "switch",
    "template",
    "texture",
    "this",
    "thread",
    "thread_index",
    "threadgroup",
    "true",
    "typedef",
    "uchar",
    "uint",
    "ulong",
    "union",
    "unsigned",
    "ushort",
    "using",
    "vertex",
    "void",
    "volatile",
    "while",
];

/// A name made of letters, digits and underscores that means nothing else.
pub(crate) fn identifier(name: &str) -> String {
    let mut text: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    // `v1`, `e1` and so on are how values are called, `0x` would be a number.
    let letters = text.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    let is_value = letters.len() < text.len() && ["v", "e", "n", "next", "other"].contains(&letters);
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit() || c == '_') || is_value {
        text.insert(0, 'p');
    }
    if RESERVED.contains(&text.as_str()) || helpers::exists(&text) {
        text.push('_');
    }
    text
}

/// The name of a kernel's function, which ends in `_kernel`: both languages have functions called `exp` and the like.
pub(crate) fn entry(name: &str) -> String {
    let name = identifier(name);
    if name.ends_with("_kernel") { name } else { format!("{name}_kernel") }
}

/// The parameters' names, each different from the others.
pub(crate) fn parameters(kernel: &Kernel) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(kernel.parameters.len());
    for parameter in &kernel.parameters {
        let mut name = identifier(&parameter.name);
        while names.contains(&name) {
            name.push('_');
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::identifier;

    #[test]
    fn names_become_identifiers() {
        for (name, expected) in [
            ("x_ptr", "x_ptr"),
            ("device", "device_"),
            ("v7", "pv7"),
            ("3", "p3"),
            ("a.b", "a_b"),
            ("exp", "exp_"),
            ("", "p"),
            ("value", "value"),
        ] {
            assert_eq!(identifier(name), expected);
        }
    }
}
