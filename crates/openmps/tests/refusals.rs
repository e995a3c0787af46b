//! What the objects refuse: wrong shapes, element types, row bytes, devices, freed and overlapping buffers. Each has its typed error.

use openmps::{
    Access, Argument, Buffer, CommandBuffer, CommandQueue, DataType, Device, Distribution, Error, Event, Graph,
    GraphOptimizer, Kernel, LayerNorm, Matrix, MatrixDescriptor, MatrixFindTopK, MatrixLogSoftMax,
    MatrixMultiplication, MatrixRandom, MatrixSoftMax, MatrixVectorMultiplication, RmsNorm, TensorData, Vector,
    VectorDescriptor,
};

fn device() -> Device {
    Device::get(0).expect("there is a device")
}

fn matrix(rows: usize, columns: usize) -> Matrix {
    Matrix::from_slice(&device(), rows, columns, &vec![1.0f32; rows * columns]).expect("a matrix")
}

macro_rules! refused {
    ($call:expr, $pattern:pat) => {
        match $call {
            Err($pattern) => {}
            other => panic!("expected {}, got {other:?}", stringify!($pattern)),
        }
    };
}

#[test]
fn descriptors() {
    refused!(MatrixDescriptor::new(2, 3, 11, DataType::F32), Error::RowBytes { row_bytes: 11, needed: 12, .. });
    refused!(MatrixDescriptor::new(2, 3, 14, DataType::F32), Error::RowBytes { row_bytes: 14, .. });
    let short = MatrixDescriptor::builder(2, 3, DataType::F16).matrices(2).matrix_bytes(10).build();
    refused!(short, Error::MatrixBytes { matrix_bytes: 10, needed: 12, .. });
    refused!(MatrixDescriptor::dense(usize::MAX, 2, DataType::F32), Error::Overflow { .. });
    refused!(MatrixDescriptor::dense(2, usize::MAX, DataType::F32), Error::Overflow { .. });
    let many = MatrixDescriptor::builder(1 << 30, 1 << 20, DataType::F32).matrices(1 << 20).build();
    refused!(many, Error::Overflow { .. });
    refused!(VectorDescriptor::with_vectors(3, 2, 11, DataType::F32), Error::RowBytes { .. });
    refused!(VectorDescriptor::new(usize::MAX, DataType::F32), Error::Overflow { .. });
}

#[test]
fn buffers() {
    let buffer = Buffer::new(&device(), 32).expect("a buffer");
    let descriptor = MatrixDescriptor::new(2, 3, 16, DataType::F32).expect("a layout");
    refused!(Matrix::with_offset(&buffer, 2, &descriptor), Error::Offset { offset: 2, size: 4 });
    refused!(Matrix::with_offset(&buffer, 8, &descriptor), Error::BufferTooSmall { length: 32, offset: 8, needed: 28 });
    // The padding of the last row need not be there.
    assert!(Matrix::with_offset(&buffer, 4, &descriptor).is_ok());
    refused!(buffer.write(30, &[0.0f32]), Error::BufferTooSmall { .. });
    let pair = VectorDescriptor::new(2, DataType::F32).unwrap();
    refused!(Vector::new(&buffer, 2, &pair), Error::Offset { offset: 2, size: 4 });
    refused!(Vector::new(&buffer, 28, &pair), Error::BufferTooSmall { length: 32, offset: 28, needed: 8 });
    refused!(buffer.read::<f32>(usize::MAX, 1), Error::Overflow { .. });
    refused!(buffer.read::<f32>(0, usize::MAX), Error::Overflow { .. });
    refused!(matrix(2, 2).write(&[1.0f32; 3]), Error::Shape { .. });
    refused!(matrix(2, 2).write(&[1i32; 4]), Error::DataType { got: DataType::F32, .. });
    refused!(matrix(2, 2).read::<f64>(), Error::DataType { .. });
    let values = vec![1.0f32; 4];
    let address = values.as_ptr() as usize;
    // SAFETY: the vector is the owner.
    let shared =
        unsafe { Buffer::no_copy(&device(), address, 16, Access::Read, values) }.expect("memory of the process");
    refused!(shared.write(0, &[2.0f32]), Error::ReadOnly { .. });
    assert_eq!(shared.read::<f32>(0, 4).expect("readable"), [1.0; 4]);
}

#[test]
fn products() {
    let command_buffer = device().queue().command_buffer();
    let kernel = MatrixMultiplication::builder(2, 3, 4).build(&device()).expect("a kernel");
    let (left, right, result) = (matrix(2, 4), matrix(4, 3), matrix(2, 3));
    assert!(kernel.encode(&command_buffer, &left, &right, &result).is_ok());
    let wrong = matrix(4, 2);
    refused!(kernel.encode(&command_buffer, &wrong, &right, &result), Error::Shape { what: "the left matrix", .. });
    refused!(
        kernel.encode(&command_buffer, &left, &matrix(3, 3), &result),
        Error::Shape { what: "the right matrix", .. }
    );
    refused!(kernel.encode(&command_buffer, &left, &right, &wrong), Error::Shape { what: "the result", .. });
    let halves = Matrix::zeros(&device(), &MatrixDescriptor::dense(4, 3, DataType::F16).unwrap()).unwrap();
    refused!(kernel.encode(&command_buffer, &left, &halves, &result), Error::DataType { got: DataType::F16, .. });
    refused!(
        MatrixMultiplication::builder(1, 1, 1).alpha(f64::NAN).build(&device()),
        Error::Attribute { attribute: "alpha", .. }
    );
    let batch = MatrixMultiplication::builder(2, 3, 4).batch(0, 2).build(&device()).unwrap();
    refused!(batch.encode(&command_buffer, &left, &right, &result), Error::Shape { .. });
    let square = matrix(3, 3);
    let kernel = MatrixMultiplication::builder(3, 3, 3).build(&device()).unwrap();
    refused!(
        kernel.encode(&command_buffer, &square, &matrix(3, 3), &square.clone()),
        Error::Overlap { what: "the left matrix", .. }
    );
    let vector = |length| Vector::from_slice(&device(), &vec![0.0f32; length]).unwrap();
    let kernel = MatrixVectorMultiplication::new(&device(), false, 2, 4, 1.0, 0.0);
    refused!(kernel.encode(&command_buffer, &left, &vector(3), &vector(2)), Error::Shape { what: "the vector", .. });
    refused!(kernel.encode(&command_buffer, &left, &vector(4), &vector(4)), Error::Shape { what: "the result", .. });
    let two = VectorDescriptor::with_vectors(4, 2, 16, DataType::F32).unwrap();
    let two = Vector::new(&Buffer::new(&device(), 32).unwrap(), 0, &two).unwrap();
    refused!(kernel.encode(&command_buffer, &left, &two, &vector(2)), Error::Shape { what: "the vector", .. });
    let kernel = MatrixVectorMultiplication::new(&device(), false, 2, 4, f64::INFINITY, 0.0);
    refused!(
        kernel.encode(&command_buffer, &left, &vector(4), &vector(2)),
        Error::Attribute { operation: "MatrixVectorMultiplication", attribute: "alpha", .. }
    );
    let whole = |numbers: [i32; 4]| Matrix::from_slice(&device(), 2, 2, &numbers).unwrap();
    let (left, right, result) = (whole([1, 2, 3, 4]), whole([5, 6, 7, 8]), whole([10; 4]));
    let of = |alpha: f64, beta: f64| {
        let kernel = MatrixMultiplication::builder(2, 2, 2).alpha(alpha).beta(beta).build(&device()).unwrap();
        let command_buffer = device().queue().command_buffer();
        kernel.encode(&command_buffer, &left, &right, &result)?;
        command_buffer.commit()?;
        command_buffer.wait_until_completed()
    };
    refused!(of(0.5, 0.0), Error::Attribute { attribute: "alpha", .. });
    refused!(of(1.0, -1.5), Error::Attribute { attribute: "beta", .. });
    of(-2.0, 3.0).unwrap();
    assert_eq!(result.read::<i32>().unwrap(), [30 - 38, 30 - 44, 30 - 86, 30 - 100]);
}

#[test]
fn ranges_of_random_numbers() {
    let of = |data_type, minimum: f64, maximum: f64| {
        MatrixRandom::new(&device(), data_type, 1, Distribution::Uniform { minimum, maximum })
    };
    let beyond = [
        (DataType::I8, 0.0, 300.0),
        (DataType::U8, -5.0, 5.0),
        (DataType::I32, 0.2, 0.8),
        (DataType::I32, 0.0, 4_294_967_296.0),
        (DataType::F16, 0.0, 1e5),
        (DataType::F32, -3e38, 3e38),
    ];
    for (data_type, minimum, maximum) in beyond {
        refused!(of(data_type, minimum, maximum), Error::Attribute { attribute: "maximum", .. });
    }
    refused!(of(DataType::U32, 0.0, 5.0), Error::DataType { got: DataType::U32, .. });
    for (data_type, minimum, maximum) in
        [(DataType::I8, -128.0, 128.0), (DataType::U8, 0.0, 256.0), (DataType::F16, -3e4, 3e4)]
    {
        of(data_type, minimum, maximum).unwrap();
    }
}

#[test]
fn what_results_do_not_need_may_be_fed() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[2], DataType::F32).unwrap();
    graph.placeholder("labels", &[2], DataType::F32).unwrap();
    let y = graph.square(x).unwrap();
    let feed = TensorData::from_slice(&device(), &[2], &[1.0f32, 2.0]).unwrap();
    let executable = graph.compile(&device(), &[y]).unwrap();
    let results = executable.run(&device().queue(), &[("x", &feed), ("labels", &feed)]).unwrap();
    assert_eq!(results[0].read::<f32>().unwrap(), [1.0, 4.0]);
}

#[test]
fn kernels_over_rows() {
    let command_buffer = device().queue().command_buffer();
    let integers = Matrix::from_slice(&device(), 2, 2, &[1i32; 4]).unwrap();
    let other = Matrix::from_slice(&device(), 2, 2, &[1i32; 4]).unwrap();
    refused!(MatrixSoftMax::new(&device()).encode(&command_buffer, &integers, &other), Error::Operator(_));
    refused!(
        MatrixLogSoftMax::new(&device()).encode(&command_buffer, &matrix(2, 2), &matrix(2, 3)),
        Error::Shape { .. }
    );
    refused!(MatrixSoftMax::new(&device()).encode(&command_buffer, &matrix(2, 2), &integers), Error::DataType { .. });
    refused!(RmsNorm::new(&device(), f64::INFINITY), Error::Attribute { attribute: "epsilon", .. });
    let norm = LayerNorm::new(&device(), 1e-5).unwrap();
    let bias = Vector::from_slice(&device(), &[0.0f32; 3]).unwrap();
    let encoded = norm.encode(&command_buffer, &matrix(2, 2), None, Some(&bias), &matrix(2, 2));
    refused!(encoded, Error::Shape { what: "the bias", .. });
    let bias = Vector::from_slice(&device(), &[0.0f64; 2]).unwrap();
    let encoded = norm.encode(&command_buffer, &matrix(2, 2), None, Some(&bias), &matrix(2, 2));
    refused!(encoded, Error::DataType { what: "the bias", .. });
    refused!(norm.encode(&command_buffer, &integers, None, None, &other), Error::DataType { .. });
    let top = MatrixFindTopK::new(&device(), 3);
    refused!(
        top.encode(&command_buffer, &matrix(2, 2), &integers, &matrix(2, 3)),
        Error::Attribute { attribute: "k", .. }
    );
    let top = MatrixFindTopK::new(&device(), 2);
    refused!(top.encode(&command_buffer, &matrix(2, 2), &matrix(2, 2), &matrix(2, 2)), Error::DataType { .. });
    refused!(
        MatrixRandom::new(&device(), DataType::F32, 0, Distribution::Uniform { minimum: 1.0, maximum: 1.0 }),
        Error::Attribute { attribute: "maximum", .. }
    );
    refused!(
        MatrixRandom::new(&device(), DataType::F32, 0, Distribution::Normal { mean: 1.0, deviation: -1.0 }),
        Error::Attribute { attribute: "deviation", .. }
    );
}

#[test]
fn other_devices() {
    let (other, _recorder) = Device::recorder();
    let kernel = MatrixSoftMax::new(&other);
    let command_buffer = device().queue().command_buffer();
    refused!(kernel.encode(&command_buffer, &matrix(1, 1), &matrix(1, 1)), Error::Device { what: "the kernel", .. });
    let elsewhere = other.queue().command_buffer();
    refused!(kernel.encode(&elsewhere, &matrix(1, 1), &matrix(1, 1)), Error::Device { what: "the input", .. });
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[2], DataType::F32).unwrap();
    let y = graph.add(x, x).unwrap();
    let feed = TensorData::from_slice(&device(), &[2], &[1.0f32; 2]).unwrap();
    let executable = graph.compile(&other, &[y]).unwrap();
    refused!(executable.encode(&elsewhere, &[("x", &feed)]), Error::Device { what: "a feed", .. });
}

#[test]
fn freed_buffers() {
    let (input, result) = (matrix(2, 2), matrix(2, 2));
    let kernel = MatrixSoftMax::new(&device());
    let encoded_before = device().new_queue().command_buffer();
    kernel.encode(&encoded_before, &input, &result).expect("alive");
    input.data().free();
    refused!(Matrix::new(input.data(), input.descriptor()), Error::Freed { .. });
    refused!(input.read::<f32>(), Error::Freed { .. });
    refused!(input.write(&[0.0f32; 4]), Error::Freed { .. });
    refused!(
        kernel.encode(&device().queue().command_buffer(), &input, &result),
        Error::Freed { what: "the input", .. }
    );
    // What was encoded while the buffer lived fails when it runs, and says so to who waits.
    encoded_before.commit().expect("a full buffer");
    let error = encoded_before.wait_until_completed().expect_err("its input is gone").to_string();
    assert!(error.contains("the buffer of the input was freed"), "{error}");
    assert!(encoded_before.queue().synchronize().is_err());
}

#[test]
fn graphs() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[2, 3], DataType::F32).unwrap();
    let y = graph.placeholder("y", &[2, 3], DataType::I32).unwrap();
    refused!(graph.add(x, y), Error::DataType { .. });
    refused!(graph.matmul(x, x), Error::Operator(_));
    refused!(graph.transpose(x, &[0, 0]), Error::Operator(_));
    refused!(graph.reshape(x, &[7]), Error::Shape { .. });
    refused!(graph.placeholder("x", &[1], DataType::F32), Error::Feed { .. });
    refused!(graph.placeholder("z", &[1; 11], DataType::F32), Error::Operator(_));
    let mut other = Graph::new();
    refused!(other.softmax(x, 0), Error::ForeignTensor { .. });
    let z = graph.softmax(x, 1).unwrap();
    let executable = graph.compile(&device(), &[z]).unwrap();
    let feed = TensorData::from_slice(&device(), &[3, 2], &[0.0f32; 6]).unwrap();
    let run = |name: &str, feed: &TensorData| executable.run(&device().queue(), &[(name, feed)]);
    refused!(run("x", &feed), Error::Shape { what: "a feed", .. });
    let feed = TensorData::from_slice(&device(), &[2, 3], &[0i32; 6]).unwrap();
    refused!(run("x", &feed), Error::DataType { what: "a feed", .. });
    refused!(run("w", &feed), Error::Feed { what: "no tensor was given", .. });
    refused!(executable.run(&device().queue(), &[]), Error::Feed { what: "no tensor was given", .. });
    let twice = [("x", &feed), ("x", &feed)];
    refused!(executable.run(&device().queue(), &twice), Error::Feed { what: "it was given two tensors", .. });
}

#[test]
fn operators_of_the_wrong_operands() {
    use openmps::operators::operators::elementwise::{Binary, Call, Elementwise, Unary};
    use openmps::operators::operators::layer_norm::LayerNorm;
    use openmps::operators::operators::pad::{Mode, Pad, PadGradient};
    use openmps::operators::operators::reduce::{Reduce, Reduction};
    use openmps::operators::operators::scan::ProductGradient;
    use openmps::operators::operators::softmax::Softmax;
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[2, 3], DataType::F32).unwrap();
    let wide = graph.placeholder("wide", &[2, 3], DataType::F64).unwrap();
    let integers = graph.placeholder("integers", &[2, 3], DataType::I32).unwrap();
    let bytes = graph.placeholder("bytes", &[2, 3], DataType::U8).unwrap();
    let row = graph.constant(&[3], &[1.0f32; 3]).unwrap();
    let unary = |of| Call::new(Elementwise::Unary(of));
    let add = || Call::new(Elementwise::Binary(Binary::Add));
    refused!(graph.operator(unary(Unary::Exp), &[]), Error::Operator(_));
    refused!(graph.operator(unary(Unary::Scale), &[x]), Error::Operator(_));
    refused!(graph.operator(unary(Unary::Erf), &[integers]), Error::Operator(_));
    refused!(graph.operator(add(), &[x]), Error::Operator(_));
    refused!(graph.operator(add(), &[x; 7]), Error::Operator(_));
    refused!(graph.operator(add(), &[x, integers]), Error::Operator(_));
    let softmax = || Softmax { axis: -1, logarithm: false };
    refused!(graph.operator(softmax(), &[]), Error::Operator(_));
    refused!(graph.operator(softmax(), &[x, x]), Error::Operator(_));
    let sum = Reduce { reduction: Reduction::Sum, axes: vec![0], keep_dims: false, output: None };
    refused!(graph.operator(sum, &[]), Error::Operator(_));
    let norm = |bias| LayerNorm { begin: -1, epsilon: 1e-5, scale: true, bias, centred: true, statistics: false };
    refused!(graph.operator(norm(true), &[x, row]), Error::Operator(_));
    refused!(graph.operator(norm(false), &[x]), Error::Operator(_));
    refused!(graph.operator(norm(false), &[integers, row]), Error::Operator(_));
    refused!(graph.operator(Reduce::new(Reduction::Norm, &[0], false), &[integers]), Error::Operator(_));
    refused!(graph.operator(ProductGradient { axis: 0 }, &[wide, wide, bytes]), Error::Operator(_));
    refused!(graph.operator(ProductGradient { axis: 0 }, &[integers; 3]), Error::Operator(_));
    let pad = |paddings| PadGradient {
        pad: Pad { paddings, mode: Mode::Constant, value: openmps::tile::Number::Float(0.0) },
    };
    refused!(graph.operator(pad(vec![(0, 0)]), &[x]), Error::Operator(_));
    refused!(graph.operator(pad(vec![(i64::MIN, 0), (i64::MAX, i64::MAX)]), &[x]), Error::Operator(_));
}

#[test]
fn steps_of_half_types() {
    let mut graph = Graph::new();
    let variable = graph.variable(&TensorData::from_slice(&device(), &[1], &[openmps::f16::ONE]).unwrap());
    let loss = graph.multiply(variable, variable).unwrap();
    let rate = graph.constant(&[1], &[0.1f32]).unwrap();
    for optimizer in [GraphOptimizer::adam(), GraphOptimizer::Momentum { mu: 0.9, nesterov: false }] {
        let step = graph.minimize(loss, &[variable], rate, optimizer);
        refused!(step, Error::DataType { operation: "minimize", got: DataType::F16, .. });
    }
}

#[test]
fn kernels_of_tiles() {
    use openmps::tile::{Scalar, Type};
    let kernel = Kernel::from_tiles(&device(), "store", |b| {
        let pointer = b.parameter("x", Type::pointer(Scalar::F32));
        let value = b.parameter("value", Type::scalar(Scalar::F32));
        b.store(pointer, value, None);
    })
    .unwrap();
    let buffer = Buffer::new(&device(), 4).unwrap();
    let command_buffer = device().new_queue().command_buffer();
    let grid = [1, 1, 1];
    refused!(kernel.encode(&command_buffer, grid, &[Argument::Write(&buffer, 0)]), Error::Argument { .. });
    let integer = [Argument::Write(&buffer, 0), Argument::Integer(1)];
    refused!(kernel.encode(&command_buffer, grid, &integer), Error::Argument { index: 1, .. });
    for (offset, expected) in [(2, "one at which an element of 4 bytes may begin"), (5, "one within the buffer")] {
        let wrong = [Argument::Write(&buffer, offset), Argument::Float(1.0)];
        refused!(kernel.encode(&command_buffer, grid, &wrong), Error::Argument { index: 0, .. });
        // SAFETY: refused before anything runs.
        let error =
            unsafe { kernel.encode_unchecked(&command_buffer, grid, &wrong) }.expect_err("an offset").to_string();
        let want = format!("argument 0 (x) is byte {offset} of a buffer of 4 bytes, expected {expected}");
        assert!(error.contains(&want), "{error}");
    }
    // Storing to what was given to read.
    kernel.encode(&command_buffer, grid, &[Argument::Read(&buffer, 0), Argument::Float(1.0)]).unwrap();
    command_buffer.commit().unwrap();
    let error = command_buffer.wait_until_completed().expect_err("a store to a read-only argument").to_string();
    assert!(error.contains("reading only"), "{error}");
    let malformed = Kernel::from_tiles(&device(), "malformed", |b| {
        let x = b.parameter("x", Type::scalar(Scalar::F32));
        let y = b.parameter("y", Type::scalar(Scalar::I32));
        b.add(x, y);
    });
    refused!(malformed, Error::Unverified { .. });
}

/// No conversion stands between a call and this crate's result.
#[test]
fn one_error_type() {
    use std::sync::mpsc::channel;
    type Done = openmps::Result<()>;
    fn devices(index: usize) -> openmps::Result<Device> {
        [Device::get, Device::host, Device::cuda, Device::metal]
            .into_iter()
            .try_fold(Device::get(0)?, |_, of| of(index))
    }
    fn queues(queue: &CommandQueue, event: &Event) -> openmps::Result<bool> {
        let calls: [fn(&CommandQueue, &Event) -> Done; 4] =
            [CommandQueue::record, CommandQueue::wait, |queue, _| queue.synchronize(), |queue, _| queue.finish()];
        calls.iter().try_for_each(|call| call(queue, event))?;
        queue.is_idle()
    }
    fn commands(commands: &CommandBuffer, event: &Event) -> Done {
        let calls: [fn(&CommandBuffer, &Event) -> Done; 3] =
            [CommandBuffer::record, CommandBuffer::wait, |commands, _| commands.enqueue()];
        calls.iter().try_for_each(|call| call(commands, event))?;
        commands.commit()
    }
    async fn awaited(commands: CommandBuffer) -> Done {
        commands.await
    }
    refused!(devices(99), Error::Runtime(_));
    let (queue, event) = (device().new_queue(), Event::new());
    assert!(queues(&queue, &event).is_ok() && event.synchronize().is_ok());
    refused!(event.elapsed_ms(&Event::new()), Error::Runtime(_));
    let twice = queue.command_buffer();
    commands(&twice, &event).unwrap();
    refused!(commands(&twice, &event), Error::Runtime(_));
    drop(awaited(queue.command_buffer()));
    // What fails when it runs is told to the handlers, by `error` and by the wait in the same words.
    let (input, result) = (matrix(2, 2), matrix(2, 2));
    let (failing, (say, hear)) = (queue.command_buffer(), channel());
    MatrixSoftMax::new(&device()).encode(&failing, &input, &result).unwrap();
    failing
        .add_completed_handler(move |done: Result<(), &Error>| say.send(done.map_err(Error::to_string)).unwrap())
        .unwrap();
    input.data().free();
    failing.commit().unwrap();
    let told = failing.wait_until_completed().expect_err("a freed buffer").to_string();
    assert!(told.contains("freed"), "{told}");
    assert_eq!(hear.recv().unwrap(), Err(told.clone()));
    assert_eq!(failing.error().map(|error| error.to_string()), Some(told));
    refused!(queue.synchronize(), Error::Runtime(_));
    // Those of the crates below become it by `?`.
    let below = || -> openmps::Result<()> { Ok(openmps::runtime::Device::get(99).map(drop)?) };
    refused!(below(), Error::Runtime(_));
    let parsed = || -> openmps::Result<openmps::tile::Kernel> { Ok(openmps::tile::parse("no kernel")?) };
    refused!(parsed(), Error::Parse(_));
}
