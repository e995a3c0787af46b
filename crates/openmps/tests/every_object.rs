//! Every object of the crate refuses freed buffers, buffers and command buffers of other devices, results it may not write, wrong shapes and
//! wrong element types, each with its typed error: the objects in one list, so that a new one comes with all refusals.

use openmps::tile::{Scalar, Type};
use openmps::{
    Access, Argument, Buffer, CommandBuffer, DataType, Device, Distribution, Error, Graph, Kernel, LayerNorm, Matrix,
    MatrixDescriptor, MatrixFindTopK, MatrixLogSoftMax, MatrixMultiplication, MatrixRandom, MatrixSoftMax,
    MatrixVectorMultiplication, Result, RmsNorm, TensorData, Vector,
};

fn device() -> Device {
    Device::get(0).expect("there is a device")
}

/// The operands of every object: 3 x 3 matrices and vectors of 3 over buffers of their own.
#[derive(Clone)]
struct Operands {
    input: Matrix,
    other: Matrix,
    vector: Vector,
    result: Matrix,
    vector_result: Vector,
}

impl Operands {
    fn new(device: &Device, dtype: DataType, size: usize) -> Operands {
        let matrix = || Matrix::zeros(device, &MatrixDescriptor::dense(size, size, dtype)?);
        let vector = || Vector::zeros(device, &openmps::VectorDescriptor::new(size, dtype)?);
        let make = || -> Result<Operands> {
            Ok(Operands {
                input: matrix()?,
                other: matrix()?,
                vector: vector()?,
                result: matrix()?,
                vector_result: vector()?,
            })
        };
        make().expect("operands")
    }
}

type Encode = fn(&Device, &CommandBuffer, &Operands) -> Result<()>;

/// Each object: its name, how it is encoded, and whether it has an input.
const OBJECTS: [(&str, Encode, bool); 9] = [
    (
        "product",
        |device, to, with| {
            MatrixMultiplication::builder(3, 3, 3).build(device)?.encode(to, &with.input, &with.other, &with.result)
        },
        true,
    ),
    (
        "matrix times vector",
        |device, to, with| {
            let kernel = MatrixVectorMultiplication::new(device, false, 3, 3, 1.0, 0.0);
            kernel.encode(to, &with.input, &with.vector, &with.vector_result)
        },
        true,
    ),
    ("softmax", |device, to, with| MatrixSoftMax::new(device).encode(to, &with.input, &with.result), true),
    ("log-softmax", |device, to, with| MatrixLogSoftMax::new(device).encode(to, &with.input, &with.result), true),
    (
        "rms norm",
        |device, to, with| RmsNorm::new(device, 1e-5)?.encode(to, &with.input, Some(&with.vector), &with.result),
        true,
    ),
    (
        "layer norm",
        |device, to, with| {
            LayerNorm::new(device, 1e-5)?.encode(to, &with.input, Some(&with.vector), Some(&with.vector), &with.result)
        },
        true,
    ),
    (
        "top k",
        |device, to, with| {
            let indices = Matrix::zeros(with.input.data().device(), &MatrixDescriptor::dense(3, 3, DataType::I32)?)?;
            MatrixFindTopK::new(device, 3).encode(to, &with.input, &indices, &with.result)
        },
        true,
    ),
    (
        "random",
        |device, to, with| {
            let law = Distribution::Uniform { minimum: 0.0, maximum: 1.0 };
            MatrixRandom::new(device, DataType::F32, 7, law)?.encode(to, &with.result)
        },
        false,
    ),
    (
        "kernel",
        |device, to, with| {
            let copy = Kernel::from_tiles(device, "copy", |b| {
                let [from, out] = ["from", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
                let x = b.load(from, None, None);
                b.store(out, x, None);
            })?;
            let arguments = [Argument::Read(with.input.data(), 0), Argument::Write(with.result.data(), 0)];
            copy.encode(to, [1, 1, 1], &arguments)
        },
        true,
    ),
];

/// A fresh command buffer for each call, which is not committed.
fn encoded(encode: Encode, device: &Device, with: &Operands) -> Result<()> {
    encode(device, &device.new_queue().command_buffer(), with)
}

#[test]
fn what_is_right_is_taken() {
    let with = Operands::new(&device(), DataType::F32, 3);
    for (name, encode, _) in OBJECTS {
        encoded(encode, &device(), &with).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn freed_buffers() {
    for (name, encode, has_input) in OBJECTS {
        let with = Operands::new(&device(), DataType::F32, 3);
        if has_input {
            with.input.data().free();
            let error = encoded(encode, &device(), &with).expect_err(name);
            assert!(matches!(error, Error::Freed { .. }), "{name}: {error}");
        }
        let with = Operands::new(&device(), DataType::F32, 3);
        with.result.data().free();
        with.vector_result.data().free();
        let error = encoded(encode, &device(), &with).expect_err(name);
        assert!(matches!(error, Error::Freed { .. }), "{name}: {error}");
    }
}

#[test]
fn other_devices() {
    let (other, _recorder) = Device::recorder();
    let with = Operands::new(&device(), DataType::F32, 3);
    for (name, encode, _) in OBJECTS {
        // The object and the command buffer of one device, the operands of another; then the object's device is the odd one.
        let error = encoded(encode, &other, &with).expect_err(name);
        assert!(matches!(error, Error::Device { .. }), "{name}: {error}");
        let error = encode(&other, &device().queue().command_buffer(), &with).expect_err(name);
        assert!(matches!(error, Error::Device { what: "the kernel", .. }), "{name}: {error}");
    }
}

#[test]
fn results_that_may_only_be_read() {
    let values = vec![0.0f32; 9];
    let address = values.as_ptr() as usize;
    // SAFETY: the vector is the owner.
    let buffer =
        unsafe { Buffer::no_copy(&device(), address, 36, Access::Read, values) }.expect("memory of the process");
    let descriptor = MatrixDescriptor::dense(3, 3, DataType::F32).expect("a layout");
    let vector = openmps::VectorDescriptor::new(3, DataType::F32).expect("a layout");
    for (name, encode, _) in OBJECTS {
        let mut with = Operands::new(&device(), DataType::F32, 3);
        with.result = Matrix::new(&buffer, &descriptor).expect("a matrix");
        with.vector_result = Vector::new(&buffer, 0, &vector).expect("a vector");
        let error = encoded(encode, &device(), &with).expect_err(name);
        assert!(matches!(error, Error::ReadOnly { .. }), "{name}: {error}");
    }
}

#[test]
fn wrong_shapes_and_element_types() {
    for (name, encode, has_input) in OBJECTS {
        // A kernel of tiles knows addresses only, and random numbers fill what they are given.
        if !has_input || name == "kernel" {
            continue;
        }
        let mut with = Operands::new(&device(), DataType::F32, 3);
        let small = Operands::new(&device(), DataType::F32, 2);
        (with.result, with.vector_result) = (small.result, small.vector_result);
        let error = encoded(encode, &device(), &with).expect_err(name);
        assert!(matches!(error, Error::Shape { .. }), "{name}: {error}");
        let mut with = Operands::new(&device(), DataType::F32, 3);
        let double = Operands::new(&device(), DataType::F64, 3);
        (with.result, with.vector_result) = (double.result, double.vector_result);
        let error = encoded(encode, &device(), &with).expect_err(name);
        assert!(matches!(error, Error::DataType { got: DataType::F64, .. }), "{name}: {error}");
    }
    let mut with = Operands::new(&device(), DataType::F32, 3);
    with.result = Operands::new(&device(), DataType::F64, 3).result;
    let error = encoded(OBJECTS[7].1, &device(), &with).expect_err("random numbers of another type");
    assert!(matches!(error, Error::DataType { .. }), "{error}");
}

#[test]
fn feeds_of_graphs() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[2], DataType::F32).expect("a placeholder");
    let y = graph.add(x, x).expect("a sum");
    let executable = graph.compile(&device(), &[y]).expect("compiled");
    let feed = TensorData::from_slice(&device(), &[2], &[1.0f32; 2]).expect("a feed");
    feed.data().free();
    let error = executable.run(&device().queue(), &[("x", &feed)]).expect_err("its memory is gone");
    assert!(matches!(error, Error::Freed { .. }), "{error}");
    let (other, _recorder) = Device::recorder();
    let feed = TensorData::from_slice(&device(), &[2], &[1.0f32; 2]).expect("a feed");
    let error = executable.run(&other.queue(), &[("x", &feed)]).expect_err("another device's queue");
    assert!(matches!(error, Error::Device { .. }), "{error}");
}
