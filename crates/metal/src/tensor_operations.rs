//! Whether products of half types are written with Metal 4's tensor operations (`mpp::tensor_ops::matmul2d`). The system alone does not decide:
//! GPUs before the M5's have no units for them, and run them slower than `simdgroup_matrix` (mlx pull request 3470: 0.36 to 1.0 times as fast
//! on the M4; llama.cpp gained nothing there).

use crate::interface::Properties;

/// The first generation of Apple's GPUs with units for them, the M5's, and the first one of those that are built into phones.
const FIRST: u32 = 17;
const FIRST_OF_PHONES: u32 = 18;

/// What ends the architecture's name of a phone's GPU.
const PHONE: char = 'p';

/// Whether a device has tensor operations, and units for them.
pub fn are_fast_on(device: &Properties) -> bool {
    let has_units = generation(&device.architecture).is_some_and(|(generation, variant)| {
        generation >= if variant.starts_with(PHONE) { FIRST_OF_PHONES } else { FIRST }
    });
    device.tensor_operations && has_units
}

/// The generation in an architecture's name, and what follows it: 16 and "s" for "applegpu_g16s".
fn generation(architecture: &str) -> Option<(u32, &str)> {
    let name = architecture.strip_prefix("applegpu_g")?;
    let end = name.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(name.len());
    let (number, variant) = name.split_at(end);
    Some((number.parse().ok()?, variant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder;

    fn device(architecture: &str, tensor_operations: bool) -> Properties {
        Properties { architecture: architecture.to_string(), tensor_operations, ..recorder::properties() }
    }

    #[test]
    fn both_the_gpu_and_the_system_must_have_them() {
        for architecture in ["applegpu_g17g", "applegpu_g17s", "applegpu_g18p", "applegpu_g20d", "applegpu_g17"] {
            assert!(are_fast_on(&device(architecture, true)), "{architecture}");
            assert!(!are_fast_on(&device(architecture, false)), "{architecture} before macOS 26.2");
        }
    }

    #[test]
    fn the_system_alone_is_not_enough() {
        let others = ["applegpu_g13g", "applegpu_g14s", "applegpu_g16d", "applegpu_g17p", "applegpu_g1", ""];
        let unknown = ["applegpu_", "applegpu_gg17s", "g17s", "Apple Paravirtual device", "applegpu_g99999999999s"];
        for architecture in others.into_iter().chain(unknown) {
            assert!(!are_fast_on(&device(architecture, true)), "{architecture}");
        }
    }
}
