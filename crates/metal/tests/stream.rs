//! The encoder's promises, held by the recorder: every command buffer is committed, every error is delivered, every buffer outlives its
//! commands, every autorelease pool is closed, every cache is bounded.

use openmps_metal::arguments::{Addresses, Kernel, Parameter};
use openmps_metal::graph::{Binary, Builder, Operation};
use openmps_metal::interface::{Grid, Language, MathMode};
use openmps_metal::matrix::{MatrixCall, MatrixView, TensorView};
use openmps_metal::recorder::{RecordedBuffer, Said};
use openmps_metal::{CommitPolicy, Error, Executables, Launch, Metal, PipelineKey, Pipelines, Recorder, Stream};
use openmps_tile::DType;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn kernel(entry: &str, parameters: Vec<Parameter>) -> Kernel {
    let pipeline = PipelineKey {
        source: format!("kernel void {entry}() {{}}").into(),
        entry: entry.to_string(),
        math: MathMode::Safe,
        language: Language::Metal3_0,
        threads: 256,
        constants: Vec::new(),
    };
    let numbers = 4 * parameters.iter().filter(|parameter| matches!(parameter, Parameter::Number { .. })).count();
    Kernel { pipeline, threads: [256, 1, 1], threadgroup_memory: vec![40], parameters, numbers }
}

/// `y[i] = f(x[i])` for `n` elements.
fn unary() -> Kernel {
    let buffer = |index, written| Parameter::Buffer { index, written };
    kernel("unary", vec![buffer(0, false), buffer(1, true), Parameter::Number { offset: 0, size: 4 }])
}

/// A device with a stream and two buffers of 4096 bytes.
struct Bench {
    recorder: Recorder,
    stream: Stream<Recorder>,
    pipelines: Pipelines<Recorder>,
    addresses: Addresses<RecordedBuffer>,
    x: usize,
    y: usize,
}

impl Bench {
    fn new(policy: CommitPolicy) -> Bench {
        let recorder = Recorder::default();
        let stream = Stream::new(Arc::new(recorder.clone()), "test", policy).unwrap();
        let mut addresses = Addresses::default();
        let mut add = || {
            let buffer = recorder.autorelease_pool(|| recorder.allocate(4096)).unwrap();
            let (address, bytes) = recorder.contents(&buffer);
            addresses.insert(address, bytes, buffer);
            address
        };
        let (x, y) = (add(), add());
        Bench { recorder, stream, pipelines: Pipelines::new(4), addresses, x, y }
    }

    fn launch(&self, kernel: &Kernel, threadgroups: usize, arguments: &[u64]) -> Result<(), Error> {
        let (pipeline, limits) = self.pipelines.get(&self.recorder, &kernel.pipeline)?;
        let launch = Launch { kernel, pipeline: &pipeline, limits, grid: [threadgroups, 1, 1].into(), arguments };
        // SAFETY: a recorder runs nothing.
        unsafe { self.stream.dispatch(&launch, |address| self.addresses.resolve(address, 0)) }
    }

    fn run(&self, from: usize, to: usize) {
        self.launch(&unary(), 4, &[from as u64, to as u64, 1000]).unwrap();
    }

    fn buffer(&self, address: usize) -> RecordedBuffer {
        self.addresses.resolve(address, 0).unwrap().buffer
    }

    /// Whatever a test did: nothing is left over, nothing was broken.
    fn settle(self) {
        let Bench { recorder, stream, .. } = self;
        drop(stream);
        assert_eq!(recorder.violations(), Vec::<String>::new());
        assert_eq!(recorder.outstanding(), (0, 0), "a command buffer was left over");
        let (opened, closed) = recorder.pools();
        assert_eq!(opened, closed, "an autorelease pool was left open");
    }
}

fn commits(recorder: &Recorder) -> usize {
    recorder.said().iter().filter(|said| matches!(said, Said::Commit(_))).count()
}

#[test]
fn a_dispatch_is_said_in_full() {
    let bench = Bench::new(CommitPolicy::default());
    bench.launch(&unary(), 4, &[bench.x as u64 + 16, bench.y as u64, 1000]).unwrap();
    bench.stream.finish().unwrap();
    let expected = [
        Said::CommandBuffer("test 0".to_string()),
        Said::Group("unary".to_string()),
        Said::Pipeline("unary".to_string()),
        Said::Buffer { index: 0, buffer: 0, offset: 16 },
        Said::Buffer { index: 1, buffer: 1, offset: 0 },
        Said::Bytes { index: 2, bytes: vec![0xe8, 3, 0, 0] },
        Said::ThreadgroupMemory { index: 0, bytes: 48 },
        Said::Dispatch { grid: Grid::Threadgroups([4, 1, 1]), threads: [256, 1, 1] },
        Said::EndGroup,
        Said::Commit("test 0".to_string()),
        Said::Ended("test 0".to_string()),
    ];
    assert_eq!(bench.recorder.said(), expected);
    bench.settle();
}

#[test]
fn barriers_stand_only_between_dispatches_that_depend_on_each_other() {
    let bench = Bench::new(CommitPolicy::default());
    let barriers = || bench.recorder.said().iter().filter(|said| **said == Said::Barrier).count();
    bench.run(bench.x, bench.y);
    assert_eq!(barriers(), 0);
    bench.run(bench.y, bench.x);
    assert_eq!(barriers(), 1);
    // A copy has an encoder of its own, which orders what comes after it.
    let resolve = |address| bench.addresses.resolve(address, 64).unwrap();
    bench.stream.copy(&resolve(bench.y), &resolve(bench.x), 64).unwrap();
    bench.run(bench.x, bench.y);
    assert_eq!(barriers(), 1);
    bench.settle();
}

#[test]
fn commands_are_batched_by_count() {
    let bench = Bench::new(CommitPolicy { commands: 3, bytes: usize::MAX, in_flight: 8, ..CommitPolicy::default() });
    for _ in 0..7 {
        bench.run(bench.x, bench.y);
    }
    assert_eq!(commits(&bench.recorder), 2);
    assert_eq!(bench.recorder.outstanding(), (1, 2));
    bench.stream.flush().unwrap();
    assert_eq!(commits(&bench.recorder), 3);
    bench.stream.flush().unwrap();
    assert_eq!(commits(&bench.recorder), 3, "nothing was encoded, so nothing is committed");
    bench.settle();
}

#[test]
fn commands_are_batched_by_bytes() {
    let bench =
        Bench::new(CommitPolicy { commands: usize::MAX, bytes: 3 * 8192, in_flight: 8, ..CommitPolicy::default() });
    for _ in 0..7 {
        // Two buffers of 4096 bytes.
        bench.run(bench.x, bench.y);
    }
    assert_eq!(commits(&bench.recorder), 2);
    bench.settle();
}

/// The system ends a command buffer that keeps the GPU for seconds.
#[test]
fn commands_are_batched_by_arithmetic() {
    let most = 3 * 16 * 16 * 16;
    let bench = Bench::new(CommitPolicy { multiplications: most, ..CommitPolicy::default() });
    let view = |address, offset| MatrixView::dense(bench.buffer(address), offset, DType::F32, 1, 16, 16);
    let (left, right, result) = (view(bench.x, 0), view(bench.x, 1024), view(bench.y, 0));
    let (transpose_left, transpose_right, alpha, beta) = (false, false, 1.0, 0.0);
    let product = MatrixCall::Multiplication { left, right, result, transpose_left, transpose_right, alpha, beta };
    for _ in 0..7 {
        bench.stream.matrix(&product).unwrap();
        // What only walks over its memory counts for nothing.
        bench.run(bench.x, bench.y);
    }
    assert_eq!(commits(&bench.recorder), 2);
    drop(product);
    bench.settle();
}

#[test]
fn failures_are_of_the_commands_behind_the_question() {
    let bench = Bench::new(CommitPolicy { commands: 1, ..CommitPolicy::default() });
    let broken = Error::CommandBuffer { label: "it".into(), kind: "timeout", message: "too long".into() };
    bench.recorder.fail_command_buffer(1, broken.clone());
    // Before the first, the second and the third command buffer.
    let failures = [0; 3].map(|_| {
        let failures = bench.stream.failures();
        bench.run(bench.x, bench.y);
        failures
    });
    assert_eq!(bench.stream.finish().unwrap_err().first, broken);
    assert_eq!(failures.map(|failures| failures()), [Some(broken.clone()), Some(broken), None]);
    bench.settle();
}

#[test]
fn no_more_are_in_flight_than_allowed() {
    let bench = Bench::new(CommitPolicy { commands: 1, bytes: usize::MAX, in_flight: 2, ..CommitPolicy::default() });
    for number in 0..20 {
        bench.run(bench.x, bench.y);
        assert!(bench.recorder.outstanding().1 <= 2, "after {number}");
    }
    let statistics = bench.stream.statistics();
    assert_eq!((statistics.committed, statistics.ended, statistics.failed), (20, 18, 0));
    assert_eq!(statistics.gpu_seconds, 9.0);
    bench.settle();
}

#[test]
fn every_error_is_delivered_once_at_the_next_synchronisation() {
    let bench = Bench::new(CommitPolicy { commands: 1, ..CommitPolicy::default() });
    let error = |text: &str| Error::CommandBuffer {
        label: text.to_string(),
        kind: "page fault",
        message: "told to".to_string(),
    };
    bench.recorder.fail_command_buffer(1, error("second"));
    bench.recorder.fail_command_buffer(3, error("fourth"));
    for _ in 0..5 {
        bench.run(bench.x, bench.y);
    }
    bench.recorder.complete();
    // Ended, but nobody has asked yet: commands go on.
    bench.run(bench.x, bench.y);
    let deferred = bench.stream.finish().unwrap_err();
    assert_eq!(deferred.to_string(), "the command buffer second failed (page fault): told to (1 further errors)");
    bench.stream.finish().unwrap();
    bench.recorder.fail_command_buffer(6, error("seventh"));
    bench.run(bench.x, bench.y);
    assert_eq!(bench.stream.finish().unwrap_err().further, 0);
    assert_eq!(bench.stream.statistics().failed, 3);
    bench.settle();
}

#[test]
fn buffers_outlive_their_commands() {
    let mut bench = Bench::new(CommitPolicy::default());
    bench.run(bench.x, bench.y);
    bench.stream.flush().unwrap();
    // The owner lets go while the GPU is at it.
    let memory = Arc::downgrade(&bench.addresses.remove(bench.x).unwrap().0);
    assert_eq!(memory.strong_count(), 1, "the command buffer holds it");
    bench.recorder.complete();
    assert_eq!(memory.strong_count(), 0, "and lets go when it has ended");
    bench.settle();
}

#[test]
fn the_recorder_sees_buffers_that_go_too_early() {
    use openmps_metal::CommandBuffer;
    let recorder = Recorder::default();
    recorder.autorelease_pool(|| {
        let buffer = recorder.allocate(64).unwrap();
        let mut commands = recorder.command_buffer(&"test".to_string(), "early").unwrap();
        commands.set_buffer(0, &buffer, 0).unwrap();
        drop(buffer);
        commands.commit(Box::new(|_| ()));
        recorder.complete();
        // And what is never committed, said outside a pool, or over the limits.
        let mut commands = recorder.command_buffer(&"test".to_string(), "lost").unwrap();
        commands.set_bytes(31, &[0; 4097]).unwrap();
        // SAFETY: a recorder runs nothing.
        unsafe { commands.dispatch([0, 1, 1].into(), [1, 1, 1]) }.unwrap();
        drop(commands);
    });
    assert!(recorder.allocate(64).is_ok());
    let expected = [
        "early used a buffer that went before it ended",
        "lost: bytes at index 31",
        "lost: 4097 bytes in place",
        "lost: a dispatch without a pipeline",
        "lost: a dispatch of Threadgroups([0, 1, 1]) in threadgroups of [1, 1, 1]",
        "lost was never committed",
        "allocate outside an autorelease pool",
    ];
    let violations = recorder.violations();
    for expected in expected {
        assert!(violations.iter().any(|violation| violation == expected), "{expected}: {violations:?}");
    }
}

#[test]
fn callbacks_run_in_order_when_the_commands_before_them_have_ended() {
    let bench = Bench::new(CommitPolicy::default());
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..3 {
        bench.run(bench.x, bench.y);
        let order = order.clone();
        bench.stream.add_callback(move || order.lock().unwrap().push(number)).unwrap();
    }
    assert!(order.lock().unwrap().is_empty());
    bench.recorder.complete_one();
    assert_eq!(*order.lock().unwrap(), [0]);
    bench.stream.add_callback(|| panic!("a callback's panic stays its own")).unwrap();
    bench.stream.finish().unwrap();
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    bench.settle();
}

#[test]
fn a_callback_may_encode() {
    let bench = Bench::new(CommitPolicy { commands: 1, bytes: usize::MAX, in_flight: 1, ..CommitPolicy::default() });
    let Bench { recorder, stream, .. } = &bench;
    let inner = Arc::new(Stream::new(stream.metal().clone(), "inner", CommitPolicy::default()).unwrap());
    let (again, called) = (inner.clone(), Arc::new(AtomicUsize::new(0)));
    let count = called.clone();
    inner
        .add_callback(move || {
            again.keep(1u8).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    recorder.complete();
    assert_eq!(called.load(Ordering::Relaxed), 1);
    inner.finish().unwrap();
    drop(inner);
    bench.settle();
}

#[test]
fn what_is_refused_leaves_the_stream_as_it_was() {
    let bench = Bench::new(CommitPolicy::default());
    bench.run(bench.x, bench.y);
    let text = |result: Result<(), Error>| result.unwrap_err().to_string();
    assert_eq!(
        text(bench.launch(&unary(), 4, &[0x10, bench.y as u64, 1])),
        "unary: argument 0 is the address 0x10, which lies in no buffer of the device"
    );
    let huge = Kernel { threadgroup_memory: vec![40_000], ..unary() };
    assert_eq!(
        text(bench.launch(&huge, 4, &[bench.x as u64, bench.y as u64, 1])),
        "unary: threadgroup memory is 40000, 7232 more than the limit of 32768"
    );
    let wide = Kernel { threads: [257, 1, 1], ..unary() };
    assert!(
        text(bench.launch(&wide, 4, &[bench.x as u64, bench.y as u64, 1]))
            .contains("257, 1 more than the limit of 256")
    );
    // No threadgroups: no command.
    bench.launch(&unary(), 0, &[bench.x as u64, bench.y as u64, 1]).unwrap();
    let dispatches = bench.recorder.said().iter().filter(|said| matches!(said, Said::Dispatch { .. })).count();
    assert_eq!(dispatches, 1);
    bench.stream.finish().unwrap();
    bench.settle();
}

#[test]
fn fills_and_copies_are_checked() {
    let bench = Bench::new(CommitPolicy::default());
    let at = |address| bench.addresses.resolve(address, 0).unwrap();
    let (x, y) = (at(bench.x), at(bench.y + 8));
    bench.stream.fill(&x, 64, 7).unwrap();
    bench.stream.copy(&y, &x, 16).unwrap();
    bench.stream.fill(&x, 0, 7).unwrap();
    let said: Vec<Said> = bench.recorder.said();
    assert!(said.contains(&Said::Fill { buffer: 0, range: 0..64, byte: 7 }));
    assert!(said.contains(&Said::Copy { destination: (1, 8), source: (0, 0), bytes: 16 }));
    let text = |result: Result<(), Error>| result.unwrap_err().to_string();
    assert!(text(bench.stream.fill(&x, 6, 7)).contains("no multiple of 4"));
    assert!(text(bench.stream.fill(&x, 4100, 7)).contains("leaves a buffer of 4096 bytes"));
    assert!(text(bench.stream.copy(&at(bench.x + 4), &x, 16)).contains("overlap"));
    bench.settle();
}

#[test]
fn matrices_and_graphs_are_checked_and_kept_alive() {
    let bench = Bench::new(CommitPolicy::default());
    let (x, y) = (bench.buffer(bench.x), bench.buffer(bench.y));
    let view = |buffer: &RecordedBuffer, offset, rows, columns| {
        MatrixView::dense(buffer.clone(), offset, DType::F32, 1, rows, columns)
    };
    let product = |rows| MatrixCall::Multiplication {
        left: view(&x, 0, 4, 8),
        right: view(&x, 1024, 8, 4),
        result: view(&y, 0, rows, 4),
        transpose_left: false,
        transpose_right: false,
        alpha: 1.0,
        beta: 0.0,
    };
    bench.stream.matrix(&product(4)).unwrap();
    assert!(bench.stream.matrix(&product(5)).is_err());

    let mut builder = Builder::new();
    let (a, b) = (builder.input(DType::F32, &[4]).unwrap(), builder.input(DType::F32, &[4]).unwrap());
    let sum = builder.add(Operation::Binary(Binary::Addition), &[a, b]).unwrap();
    let graph = builder.finish(&[sum]).unwrap();
    let executable = bench.recorder.autorelease_pool(|| bench.recorder.executable(&graph)).unwrap();
    let tensor = |buffer: &RecordedBuffer, offset| TensorView {
        buffer: buffer.clone(),
        offset,
        shape: vec![4],
        dtype: DType::F32,
    };
    bench.stream.graph(&executable, &[tensor(&x, 0), tensor(&x, 16)], &[tensor(&y, 64)]).unwrap();
    assert!(bench.stream.graph(&executable, &[tensor(&x, 2), tensor(&x, 16)], &[tensor(&y, 64)]).is_err());
    assert!(bench.stream.graph(&executable, &[tensor(&x, 4096), tensor(&x, 16)], &[tensor(&y, 64)]).is_err());
    let said = bench.recorder.said();
    assert!(said.contains(&Said::Matrix("MPSMatrixMultiplication")));
    assert!(said.contains(&Said::Graph { inputs: vec![(0, 0), (0, 16)], outputs: vec![(1, 64)] }));
    drop((x, y));
    bench.settle();
}

#[test]
fn events_hand_over_what_was_encoded() {
    let bench = Bench::new(CommitPolicy::default());
    let event = bench.recorder.autorelease_pool(|| bench.recorder.event()).unwrap();
    bench.run(bench.x, bench.y);
    bench.stream.signal(&event, 1).unwrap();
    assert_eq!(commits(&bench.recorder), 1);
    assert_eq!(bench.recorder.event_value(&event), 0);
    bench.run(bench.x, bench.y);
    bench.stream.wait_for(&event, 1).unwrap();
    assert_eq!(commits(&bench.recorder), 2, "what came before the wait does not wait");
    bench.recorder.complete_one();
    assert_eq!(bench.recorder.event_value(&event), 1);
    bench.settle();
}

#[test]
fn pipelines_are_compiled_once_and_bounded() {
    let bench = Bench::new(CommitPolicy::default());
    let compile = |number: usize| {
        let kernel = kernel(&format!("k{number}"), Vec::new());
        bench.pipelines.get(&bench.recorder, &kernel.pipeline)
    };
    for _ in 0..3 {
        (0..4).for_each(|number| drop(compile(number).unwrap()));
    }
    assert_eq!(bench.recorder.pipelines(), ["k0", "k1", "k2", "k3"]);
    (4..40).for_each(|number| drop(compile(number).unwrap()));
    let statistics = bench.pipelines.statistics();
    assert_eq!((statistics.entries, statistics.hits, statistics.misses, statistics.evictions), (4, 8, 40, 36));
    bench.recorder.fail_kernel("k77");
    assert_eq!(compile(77).unwrap_err().to_string(), "the library of k77 was not compiled: it was told to fail");
    bench.settle();
}

#[test]
fn graphs_are_compiled_once_and_bounded() {
    let recorder = Recorder::default();
    let executables: Executables<Recorder> = Executables::new(4);
    let graph = |length: usize| {
        let mut b = Builder::new();
        let x = b.input(DType::F32, &[length]).unwrap();
        let y = b.add(Operation::Relu, &[x]).unwrap();
        b.finish(&[y]).unwrap()
    };
    for length in [1, 2, 1, 2, 3, 4, 5, 6, 6, 1] {
        executables.get(&recorder, &graph(length)).unwrap();
    }
    let statistics = executables.statistics();
    assert_eq!((statistics.entries, statistics.hits, statistics.misses, statistics.evictions), (4, 3, 7, 3));
    assert_eq!(recorder.executables(), 7);
    assert_eq!(recorder.violations(), Vec::<String>::new());
}

#[test]
fn many_threads_share_a_stream() {
    let bench =
        Arc::new(Bench::new(CommitPolicy { commands: 5, bytes: usize::MAX, in_flight: 2, ..CommitPolicy::default() }));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| bench.run(bench.x, bench.y)));
        }
    });
    bench.stream.finish().unwrap();
    let dispatches = bench.recorder.said().iter().filter(|said| matches!(said, Said::Dispatch { .. })).count();
    assert_eq!(dispatches, 200);
    assert_eq!(bench.stream.statistics().ended, 40);
    Arc::into_inner(bench).unwrap().settle();
}
