//! Names of kernels and parameters as identifiers of both languages. A prefix or an ending of their own keeps them apart from keywords,
//! functions of the languages, and names that the emitter uses itself; so no list of those is needed.

use openmps_tile::Kernel;

/// The letters, digits and underscores of a name; whatever else it has becomes an underscore.
fn letters(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The name of a kernel's function, which begins with a letter and ends in `_kernel`.
pub(crate) fn entry(name: &str) -> String {
    let mut name = letters(name);
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert(0, 'k');
    }
    if name.ends_with("_kernel") { name } else { format!("{name}_kernel") }
}

/// The parameters' names, each different from the others.
pub(crate) fn parameters(kernel: &Kernel) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(kernel.parameters.len());
    for parameter in &kernel.parameters {
        let mut name = format!("p_{}", letters(&parameter.name));
        while names.contains(&name) {
            name.push('_');
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use openmps_tile::{Builder, Scalar, Type};

    #[test]
    fn parameters_are_called_as_nothing_else_is() {
        let mut b = Builder::new("k");
        for name in ["x_ptr", "register", "a.b", "a_b", "v7", ""] {
            b.parameter(name, Type::pointer(Scalar::F32));
        }
        assert_eq!(parameters(&b.finish()), ["p_x_ptr", "p_register", "p_a_b", "p_a_b_", "p_v7", "p_"]);
    }

    #[test]
    fn functions_end_in_kernel() {
        for (name, expected) in
            [("exp", "exp_kernel"), ("3x", "k3x_kernel"), ("add_kernel", "add_kernel"), ("", "k_kernel")]
        {
            assert_eq!(entry(name), expected);
        }
    }
}
