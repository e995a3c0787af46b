//! Safe programs that mean harm: sizes that wrap around, offsets between elements, counts without end, handlers
//! that wait for themselves. Each is an error, and none a panic or a wait without end.
//! (What reaches memory by its address does not compile: see the examples of `operators::Queue` and `runtime::Device`.)
#![forbid(unsafe_code)]

use openmps::operators::operators::slice::{Range, Slice};
use openmps::tile::{Scalar, Type};
use openmps::{
    Argument, Buffer, CommandBuffer, DataType, Device, Error, Graph, Kernel, Matrix, MatrixDescriptor, MatrixFindTopK,
    MatrixMultiplication, MatrixVectorMultiplication, TensorData, Vector, VectorDescriptor,
};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const HUGE: usize = usize::MAX;

fn device() -> Device {
    Device::get(0).expect("there is a device")
}

fn matrix() -> Matrix {
    Matrix::from_slice(&device(), 2, 2, &[1.0f32, 2.0, 3.0, 4.0]).expect("a matrix")
}

#[test]
fn shapes_whose_bytes_wrap_around_are_refused_everywhere() {
    let small = Buffer::from_slice(&device(), &[1.0f32; 4]).expect("a buffer");
    for shape in
        [&[1 << 31, 1 << 31][..], &[1 << 62], &[HUGE, HUGE], &[1 << 32, 1 << 32, 1 << 32], &[0, 1 << 40, 1 << 40]]
    {
        assert!(TensorData::new(&small, 0, shape, DataType::F32).is_err(), "{shape:?}");
        assert!(Graph::new().placeholder("x", shape, DataType::F32).is_err(), "{shape:?}");
        assert!(Graph::new().constant::<f32>(shape, &[]).is_err(), "{shape:?}");
    }
    let mut graph = Graph::new();
    let column = graph.placeholder("column", &[1 << 32, 1], DataType::F32).expect("a shape");
    let row = graph.placeholder("row", &[1, 1 << 32], DataType::F32).expect("a shape");
    assert!(graph.add(column, row).is_err(), "a sum of 2^64 elements");
    assert!(graph.matmul(column, row).is_err(), "a product of 2^64 elements");
    assert!(graph.reshape(column, &[1 << 62, 4]).is_err());
    let far = Range { axis: 0, start: i64::MIN, end: i64::MAX, step: i64::MAX };
    assert!(graph.operator(Slice { ranges: vec![far] }, &[column]).is_ok(), "one element");
}

#[test]
fn buffers_keep_to_their_bytes_and_elements() {
    for length in [HUGE, 1 << 63, 1 << 62] {
        assert!(Buffer::new(&device(), length).is_err(), "{length}");
    }
    let buffer = Buffer::new(&device(), 16).expect("a buffer");
    assert!(matches!(buffer.map::<f32>(3..HUGE).map(|_| ()), Err(Error::Overflow { .. })));
    assert!(matches!(buffer.map_mut::<u8>(..=usize::MAX).map(|_| ()), Err(Error::BufferTooSmall { .. })));
    assert!(matches!(buffer.map_mut::<f64>(2..3).map(|_| ()), Err(Error::BufferTooSmall { .. })));
    #[allow(clippy::reversed_empty_ranges, reason = "that is the point")]
    let backwards = buffer.map::<f64>(2..1).expect("nothing").len();
    assert_eq!((backwards, buffer.map::<f64>(2..).expect("nothing").len()), (0, 0));
    assert!(matches!(buffer.read::<f32>(2, HUGE), Err(Error::Overflow { .. })));
    assert!(matches!(buffer.read::<f32>(HUGE, 1), Err(Error::Overflow { .. })));
    assert!(matches!(buffer.read::<f64>(2, 1), Err(Error::BufferTooSmall { offset: 16, needed: 8, .. })));
    assert!(matches!(buffer.write(3, &[1.0f32; 2]), Err(Error::BufferTooSmall { offset: 12, needed: 8, .. })));
    assert!(matches!(TensorData::new(&buffer, HUGE, &[1], DataType::F32), Err(Error::BufferTooSmall { .. })));
    assert!(matches!(TensorData::new(&buffer, 2, &[1], DataType::F32), Err(Error::Offset { .. })));
}

#[test]
fn matrices_and_vectors_of_no_sensible_size() {
    let sizes = [
        (HUGE, 1, 4),
        (1, HUGE, 4),
        (1 << 32, 1 << 32, 1 << 34),
        (2, 2, 3),
        (2, 2, HUGE),
        (HUGE, HUGE, HUGE),
        (2, 2, 9),
    ];
    for (rows, columns, row_bytes) in sizes {
        assert!(
            MatrixDescriptor::new(rows, columns, row_bytes, DataType::F32).is_err(),
            "{rows} {columns} {row_bytes}"
        );
    }
    for (rows, columns, matrices) in [(0, 0, 1), (1 << 40, 0, 1), (0, 1 << 20, 1), (0, 0, 1 << 40)] {
        let Ok(descriptor) = MatrixDescriptor::builder(rows, columns, DataType::F32).matrices(matrices).build() else {
            continue;
        };
        let empty = Matrix::zeros(&device(), &descriptor).expect("no elements");
        assert_eq!(empty.read::<f32>().expect("none"), [0.0f32; 0]);
        empty.write::<f32>(&[]).expect("none");
    }
    assert!(MatrixDescriptor::builder(1, 1, DataType::F32).matrices(HUGE).matrix_bytes(HUGE).build().is_err());
    assert_eq!(MatrixDescriptor::row_bytes_for_columns(HUGE, DataType::F32), HUGE);
    let narrow = MatrixDescriptor::dense(1, 1, DataType::F32).expect("a layout");
    assert!(matches!(Matrix::with_offset(matrix().data(), HUGE, &narrow), Err(Error::BufferTooSmall { .. })));
    assert!(matches!(Matrix::with_offset(matrix().data(), 1, &narrow), Err(Error::Offset { offset: 1, size: 4 })));
    if let Ok(descriptor) = VectorDescriptor::with_vectors(0, 1 << 40, 0, DataType::F32) {
        let empty = Vector::zeros(&device(), &descriptor).expect("no elements");
        assert_eq!(empty.read::<f32>().expect("none"), [0.0f32; 0]);
    }
    let one = VectorDescriptor::new(1, DataType::F32).expect("a layout");
    assert!(Vector::new(matrix().data(), HUGE, &one).is_err());
}

#[test]
fn kernels_of_no_sensible_size() {
    let (a, b, c) = (matrix(), matrix(), matrix());
    let commands = || -> CommandBuffer { device().queue().command_buffer() };
    let huge = MatrixMultiplication::new(&device(), false, false, HUGE, HUGE, HUGE, 1.0, 0.0);
    assert!(huge.and_then(|kernel| kernel.encode(&commands(), &a, &b, &c)).is_err());
    let beyond = MatrixMultiplication::builder(1, 1, 1).batch(HUGE, HUGE).build(&device());
    assert!(beyond.and_then(|kernel| kernel.encode(&commands(), &a, &b, &c)).is_err());
    for k in [0, HUGE] {
        let indices = Matrix::from_slice(&device(), 2, 2, &[0i32; 4]).expect("a matrix");
        assert!(MatrixFindTopK::new(&device(), k).encode(&commands(), &a, &indices, &c).is_err(), "{k}");
    }
    // 2^40 elements are more than any tile has.
    let tile = Kernel::from_tiles(&device(), "tile", |b| {
        b.range(1 << 40);
    });
    assert!(tile.is_err());
}

/// Runs `work` on a thread, which must end in time.
fn ends(what: &str, work: impl FnOnce() + Send + 'static) {
    let (says, hears) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        says.send(()).expect("the test listens");
    });
    match hears.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        _ => thread.join().unwrap_or_else(|_| panic!("{what}: panicked")),
    }
}

/// A command buffer of a queue of its own with one product in it, and the product's result.
fn product() -> (CommandBuffer, Matrix) {
    let (a, c) = (matrix(), matrix());
    let commands = device().new_queue().command_buffer();
    let kernel = MatrixMultiplication::new(&device(), false, false, 2, 2, 2, 1.0, 0.0).expect("a kernel");
    kernel.encode(&commands, &a, &a, &c).expect("encoded");
    (commands, c)
}

const SQUARE: [f32; 4] = [7.0, 10.0, 15.0, 22.0];

#[test]
fn handlers_and_callbacks_may_do_what_they_like() {
    ends("a handler waits for its buffer, reads its result, and waits for its queue", || {
        let (commands, c) = product();
        let commands = Arc::new(commands);
        let (own, seen) = (commands.clone(), Arc::new(Mutex::new(Vec::new())));
        let heard = seen.clone();
        let handler = move |_: Result<(), &Error>| {
            own.wait_until_completed().expect("the commands have ended");
            own.queue().synchronize().expect("nothing failed");
            *heard.lock().expect("no panic") = c.read::<f32>().expect("readable");
        };
        commands.add_completed_handler(handler).expect("taken");
        commands.commit().expect("committed");
        commands.wait_until_completed().expect("fine");
        assert_eq!(*seen.lock().expect("no panic"), SQUARE);
    });
    ends("a handler commits another and waits for it", || {
        let (commands, _) = product();
        let handler = |_: Result<(), &Error>| {
            let (next, c) = product();
            next.commit().expect("committed");
            next.wait_until_completed().expect("fine");
            assert_eq!(c.read::<f32>().expect("readable"), SQUARE);
        };
        commands.add_completed_handler(handler).expect("taken");
        commands.commit().expect("committed");
        commands.wait_until_completed().expect("fine");
    });
    ends("a handler panics", || {
        let (commands, c) = product();
        commands.add_completed_handler(|_| panic!("on purpose")).expect("taken");
        commands.commit().expect("committed");
        commands.wait_until_completed().expect("the commands were fine");
        assert_eq!(c.read::<f32>().expect("readable"), SQUARE);
        commands.queue().synchronize().expect("nothing is poisoned");
    });
    ends("a callback writes to the buffer of a command behind it", || {
        let (commands, c) = product();
        commands.queue().add_callback(move || c.write(&[1.0f32; 4]).expect("writable")).expect("taken");
        commands.commit().expect("committed");
        commands.wait_until_completed().expect("fine");
    });
}

#[test]
fn one_command_buffers_error_is_not_anothers() {
    let queue = device().new_queue();
    let wild = Kernel::from_tiles(&device(), "wild", |b| {
        let pointer = b.parameter("x", Type::pointer(Scalar::I32));
        let places = b.range(8);
        let pointers = b.add_pointer(pointer, places);
        b.load(pointers, None, None);
    })
    .expect("a kernel");
    let small = Buffer::new(&device(), 16).expect("a buffer");
    let bad = queue.command_buffer();
    wild.encode(&bad, [1, 1, 1], &[Argument::Read(&small, 0)]).expect("encoded");
    bad.commit().expect("committed");
    assert!(bad.wait_until_completed().is_err());
    for _ in 0..2 {
        let (a, c, good) = (matrix(), matrix(), queue.command_buffer());
        let kernel = MatrixMultiplication::new(&device(), false, false, 2, 2, 2, 1.0, 0.0).expect("a kernel");
        kernel.encode(&good, &a, &a, &c).expect("encoded");
        good.commit().expect("committed");
        good.wait_until_completed().expect("this one is fine");
        assert_eq!(c.read::<f32>().expect("readable"), SQUARE);
    }
    assert!(queue.synchronize().expect_err("kept for this").to_string().contains("wild"));
    queue.synchronize().expect("delivered once");
}

#[test]
fn a_clone_of_a_graph_goes_its_own_way() {
    let mut graph = Graph::new();
    let x = graph.constant(&[1], &[1.0f32]).expect("a constant");
    let mut clone = graph.clone();
    let first = clone.tanh(x).expect("a value of both");
    let second = clone.tanh(first).expect("a value of its own");
    // Where the clone has its first value the graph has another one.
    let other = graph.constant(&[1], &[42.0f32]).expect("a constant");
    for foreign in [first, second] {
        assert!(matches!(graph.compile(&device(), &[foreign]), Err(Error::ForeignTensor { .. })));
        assert!(matches!(graph.tanh(foreign), Err(Error::ForeignTensor { .. })));
    }
    assert!(matches!(clone.shape(other), Err(Error::ForeignTensor { .. })));
    let mut again = clone.clone();
    assert!(matches!(again.shape(other), Err(Error::ForeignTensor { .. })));
    let sum = again.add(x, second).expect("values of before");
    for graph in [&graph, &clone] {
        assert!(matches!(graph.shape(sum), Err(Error::ForeignTensor { .. })));
        let results = graph.compile(&device(), &[x]).and_then(|graph| graph.run(&device().queue(), &[]));
        assert_eq!(results.expect("a value of all")[0].read::<f32>().expect("readable"), [1.0]);
    }
}

#[test]
fn chains_of_operands_that_are_none() {
    use openmps::operators::operators::elementwise::{Binary, Call, Chain, Elementwise, Fused, Operand, Stage};
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[4], DataType::F32).expect("a shape");
    let add = |operands: [Operand; 2]| Stage {
        call: Call::new(Elementwise::Binary(Binary::Add)),
        operands: operands.to_vec(),
    };
    let mut chain = |stages: Vec<Stage>, inputs: usize| {
        graph.operator(Fused { chain: Chain::new(stages), reduction: None }, &vec![x; inputs]).map(drop)
    };
    let first = Operand::Input(0);
    for wrong in [Operand::Input(99), Operand::Input(1), Operand::Stage(5), Operand::Stage(0)] {
        let error = chain(vec![add([first, wrong])], 1).expect_err("no such operand").to_string();
        assert!(error.contains(&format!("{wrong:?}")), "{error}");
    }
    let few = Stage { operands: vec![first], ..add([first; 2]) };
    assert!(chain(vec![few], 1).is_err(), "a sum of one");
    assert!(chain(vec![add([first; 2])], 0).is_err(), "no inputs");
    assert!(chain(Vec::new(), 1).is_err(), "no formulas");
    assert!(chain(vec![add([first; 2])], Chain::MAX_INPUTS + 1).is_err(), "more than a kernel takes");
    chain(vec![add([first; 2]), add([Operand::Stage(0), first])], 1).expect("three times x");
}

#[test]
fn numbers_that_have_no_place() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[5, 2], DataType::F32).expect("a shape");
    for axis in [2, HUGE, i64::MAX as usize + 1] {
        let error = graph.slice(x, axis, 0, 0).expect_err("no such axis").to_string();
        assert!(error.contains(&axis.to_string()), "{error}");
    }
    let number = |value: i64| Matrix::from_slice(&device(), 1, 1, &[value]).expect("a matrix");
    let of = |alpha: f64| {
        let kernel = MatrixMultiplication::builder(1, 1, 1).alpha(alpha).build(&device()).expect("a kernel");
        let (commands, result) = (device().queue().command_buffer(), number(0));
        kernel.encode(&commands, &number(1), &number(1), &result)?;
        commands.commit()?;
        commands.wait_until_completed()?;
        result.read::<i64>()
    };
    assert_eq!(of(-9_223_372_036_854_775_808.0).expect("the lowest of 64 bits"), [i64::MIN]);
    for alpha in [9_223_372_036_854_775_808.0, -9_223_372_036_854_777_856.0] {
        assert!(matches!(of(alpha), Err(Error::Attribute { attribute: "alpha", .. })), "{alpha}");
    }
}

#[test]
fn integers_that_a_parameters_type_does_not_have() {
    for (scalar, low, high) in [
        (Scalar::I1, 0, 1),
        (Scalar::I8, -128, 255),
        (Scalar::I16, -(1 << 15), (1 << 16) - 1),
        (Scalar::I32, -(1 << 31), (1 << 32) - 1),
        (Scalar::I64, i64::MIN, i64::MAX),
    ] {
        let kernel = Kernel::from_tiles(&device(), "take", |b| {
            b.parameter("value", Type::scalar(scalar));
        })
        .expect("a kernel");
        let given = |value| kernel.encode(&device().queue().command_buffer(), [1, 1, 1], &[Argument::Integer(value)]);
        assert!(given(low).is_ok() && given(high).is_ok(), "{scalar:?}");
        for value in [low.checked_sub(1), high.checked_add(1)].into_iter().flatten() {
            let error = given(value).expect_err("a number of another type").to_string();
            let words = format!("is {value}, expected a number of {}, from {low} to {high}", scalar.name());
            assert!(error.contains(&words), "{error}");
        }
    }
}

#[test]
fn types_that_a_kernel_does_not_compute_in_are_refused_when_it_is_encoded() {
    fn top_k<T: openmps::Element>(values: [T; 2]) -> bool {
        let of = |values: &[T]| Matrix::from_slice(&device(), 1, 2, values).expect("a matrix");
        let indices = Matrix::from_slice(&device(), 1, 2, &[0i64; 2]).expect("a matrix");
        let commands = device().queue().command_buffer();
        MatrixFindTopK::new(&device(), 2).encode(&commands, &of(&values), &indices, &of(&values)).is_ok()
    }
    fn product<T: openmps::Element>(values: [T; 2]) -> bool {
        let of = |values: &[T]| Vector::from_slice(&device(), values).expect("a vector");
        let matrix = Matrix::from_slice(&device(), 1, 2, &values).expect("a matrix");
        let kernel = MatrixVectorMultiplication::new(&device(), false, 1, 2, 1.0, 0.0);
        kernel.encode(&device().queue().command_buffer(), &matrix, &of(&values), &of(&values[..1])).is_ok()
    }
    assert!(top_k([1.0f32, 2.0]) && top_k([1i64, 2]) && product([1.0f32, 2.0]) && product([1i64, 2]));
    assert!(!top_k([1u16, 2]) && !top_k([1u32, 2]) && !top_k([1u64, 2]));
    assert!(!product([1u16, 2]) && !product([1u32, 2]) && !product([1u64, 2]));
    let truth = MatrixDescriptor::dense(1, 2, DataType::Bool).and_then(|layout| Matrix::zeros(&device(), &layout));
    let truths = |length| {
        let layout = VectorDescriptor::new(length, DataType::Bool).expect("a layout");
        Vector::zeros(&device(), &layout).expect("a vector")
    };
    let kernel = MatrixVectorMultiplication::new(&device(), false, 1, 2, 1.0, 0.0);
    let commands = device().queue().command_buffer();
    let refused = kernel.encode(&commands, &truth.expect("a matrix"), &truths(2), &truths(1));
    assert!(matches!(refused, Err(Error::Operator(_))), "{refused:?}");
}
