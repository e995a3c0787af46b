//! What a kernel is written for, by what the device says about itself.

use super::*;
use openmps_metal::interface::Language;
use openmps_metal::recorder;
use openmps_tile::kernel::Atomic;
use openmps_tile::{Builder, Operation, Scalar, Type};

/// `out = x * y` of tiles.
fn product(factor: Scalar) -> Pipeline {
    let mut b = Builder::new("product");
    let base = b.parameter("x", Type::pointer(factor));
    let out = b.parameter("out", Type::pointer(Scalar::F32));
    let range = b.range(32);
    let row = b.expand_dims(range, 0);
    let row = b.broadcast(row, &[32, 32]);
    let from = b.add_pointer(base, row);
    let x = b.load(from, None, None);
    let none = b.constant(0.0, &Type::tile(Scalar::F32, &[32, 32]));
    let sums = b.dot(x, x, none);
    let to = b.add_pointer(out, row);
    b.store(to, sums, None);
    Pipeline::new(b.finish()).unwrap()
}

/// Adds to an element and stores what it was: memory that threadgroups pass to each other.
fn count() -> Pipeline {
    let mut b = Builder::new("count");
    let x = b.parameter("x", Type::pointer(Scalar::I32));
    let one = b.integer(1, Scalar::I32);
    let old = b.emit(Operation::Atomic(Atomic::Add), &[x, one], Type::scalar(Scalar::I32));
    b.store(x, old, None);
    Pipeline::new(b.finish()).unwrap()
}

/// Whoever compiles: a device's own queue, or an encoder that is somebody else's.
#[test]
fn a_kernel_is_written_in_the_language_that_has_what_it_needs_or_not_at_all() {
    let new = recorder::properties();
    let old = Properties { bfloat: false, coherence: false, ..new.clone() };
    let language =
        |pipeline: Pipeline, device| text_of(&pipeline, device, || true).map(|kernel| kernel.pipeline.language);
    assert_eq!(language(product(Scalar::F32), &old).unwrap(), Language::Metal3_0);
    assert_eq!(language(product(Scalar::F32), &new).unwrap(), Language::Metal3_1);
    assert_eq!(language(count(), &new).unwrap(), Language::Metal3_2);
    assert!(language(product(Scalar::BF16), &old).unwrap_err().to_string().contains("macOS 14"));
    assert!(language(count(), &old).unwrap_err().to_string().contains("macOS 15"));
}

fn device(architecture: &str, tensor_operations: bool) -> Properties {
    Properties { architecture: architecture.to_string(), tensor_operations, ..recorder::properties() }
}

#[test]
fn half_types_are_multiplied_by_tensor_operations_where_gpu_and_system_have_them() {
    let written = |factor, device: &Properties| {
        let key = text_of(&product(factor), device, || true).unwrap().pipeline;
        (key.source.contains("mpp::tensor_ops"), key.language)
    };
    let m5 = device("applegpu_g17g", true);
    for factor in [Scalar::F16, Scalar::BF16] {
        assert_eq!(written(factor, &m5), (true, Language::Metal4_0));
        assert_eq!(written(factor, &device("applegpu_g17g", false)), (false, Language::Metal3_1));
        assert_eq!(written(factor, &device("applegpu_g16s", true)), (false, Language::Metal3_1));
    }
    assert_eq!(written(Scalar::F32, &m5), (false, Language::Metal3_1), "float32 would be rounded");
}
