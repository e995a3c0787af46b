//! Safe programs that mean harm: sizes that wrap around, offsets between elements, counts without end, handlers
//! that wait for themselves. Each is an error, and none a panic or a wait without end.
//! (What reaches memory by its address does not compile: see the examples of `operators::Queue` and `runtime::Device`.)
#![forbid(unsafe_code)]

use openmps::operators::operators::slice::{Range, Slice};
use openmps::tile::{Scalar, Type};
use openmps::{
    Argument, Buffer, CommandBuffer, DataType, Device, Error, Graph, Kernel, Matrix, MatrixDescriptor, MatrixFindTopK,
    MatrixMultiplication, TensorData, Vector, VectorDescriptor,
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
