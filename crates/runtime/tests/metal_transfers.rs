//! Memory, order and what is kept on disk over a Metal device: nobody waits where the GPU can put things in order. Over the recorder for what is
//! said, over the emulator for the bytes.

#[path = "harness/addresses.rs"]
mod addresses;
#[path = "harness/ends.rs"]
mod ends;
mod harness;

use addresses::ByAddress;
use ends::ends;
use harness::{ADD, settle};
use openmps_metal::Recorder;
use openmps_metal::interface::Properties;
use openmps_metal::recorder::{Disk, Said};
use openmps_runtime::{Device, Event, Pipeline, Queue};
use openmps_tile::kernel::Atomic;
use openmps_tile::{Builder as Kernel, Operation, Scalar, Type, parse};

fn device() -> (Device, Recorder) {
    let recorder = Recorder::default();
    (Device::over(0, recorder.clone()), recorder)
}

fn has_waited(recorder: &Recorder) -> bool {
    recorder.said().iter().any(|said| matches!(said, Said::Ended(_)))
}

fn add(queue: &Queue, pipeline: &Pipeline, [x, y, out]: [usize; 3]) {
    // SAFETY: nothing runs on the recorder.
    unsafe { queue.dispatch("add", pipeline, [1, 1, 1], &[x as u64, y as u64, out as u64, 1000]) }.unwrap();
}

#[test]
fn writes_and_odd_copies_wait_for_nobody() {
    let (device, recorder) = device();
    let queue = device.queue();
    let (x, y) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    queue.fill_at(x.address(), 1, 4096).unwrap();
    queue.write_at(x.address(), &[7; 64]).unwrap();
    queue.write_at(x.address() + 1, &[8; 3]).unwrap();
    queue.copy_at(y.address() + 1, x.address(), 3).unwrap();
    queue.fill_at(y.address() + 5, 9, 3).unwrap();
    assert!(!has_waited(&recorder));
    queue.synchronize().unwrap();
    let said = recorder.said();
    assert!(said.iter().any(|said| matches!(said, Said::Copy { bytes: 64, .. })), "{said:?}");
    assert_eq!(recorder.pipelines(), ["copy_bytes", "fill_bytes"]);
    drop((x, y));
    settle(device, &recorder);
}

/// The kernels for single bytes count them in 32 bits.
#[test]
fn odd_copies_and_fills_of_gibibytes_go_in_pieces() {
    const GIB: usize = 1 << 30;
    let (device, recorder) = device();
    let queue = device.queue();
    let (x, y) = (device.allocate(2 * GIB + 64).unwrap(), device.allocate(2 * GIB + 64).unwrap());
    queue.copy_at(y.address() + 1, x.address(), 2 * GIB + 3).unwrap();
    queue.fill_at(x.address() + 1, 7, 2 * GIB + 3).unwrap();
    queue.synchronize().unwrap();
    let said = recorder.said();
    let counts: Vec<&[u8]> = said
        .iter()
        .filter_map(|said| match said {
            Said::Bytes { index: 2, bytes } => Some(&bytes[..]),
            _ => None,
        })
        .collect();
    let [long, rest] = [GIB as u32, 3].map(u32::to_le_bytes);
    assert_eq!(counts, [long, long, rest, long, long, rest]);
    drop((x, y));
    settle(device, &recorder);
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn transfers_are_right_in_every_length_and_place() {
    use openmps_metal::emulated::Emulated;
    let device = Device::over(0, Emulated::of_environment());
    let queue = device.queue();
    let (x, y) = (device.allocate(2000).unwrap(), device.allocate(2000).unwrap());
    let mut expected = [vec![0u8; 2000], vec![0u8; 2000]];
    queue.fill_at(x.address(), 0, 2000).unwrap();
    queue.fill_at(y.address(), 0, 2000).unwrap();
    for (round, (to, from, bytes)) in
        [(0, 0, 2000), (1, 4, 3), (8, 3, 64), (100, 101, 1), (7, 9, 1500), (1999, 0, 1), (0, 0, 0)]
            .into_iter()
            .enumerate()
    {
        let values: Vec<u8> = (0..bytes).map(|at| (at * 7 + round) as u8).collect();
        queue.write_at(x.address() + from, &values).unwrap();
        expected[0][from..from + bytes].copy_from_slice(&values);
        queue.copy_at(y.address() + to, x.address() + from, bytes).unwrap();
        expected[1][to..to + bytes].copy_from_slice(&values);
        queue.fill_at(x.address() + to, round as u8, bytes / 2).unwrap();
        expected[0][to..to + bytes / 2].fill(round as u8);
    }
    for (buffer, expected) in [x, y].iter().zip(&expected) {
        let mut back = vec![0; 2000];
        queue.read_at(&mut back, buffer.address()).unwrap();
        assert_eq!(&back, expected);
    }
}

#[test]
fn a_queue_waits_for_another_one_on_the_gpu() {
    let (device, recorder) = device();
    let (first, second) = (device.queue(), device.new_queue());
    let x = device.allocate(64).unwrap();
    let event = Event::new();
    first.fill_at(x.address(), 1, 64).unwrap();
    first.record(&event).unwrap();
    // On the recorder nothing ends by itself: who waited here would wait for ever.
    ends("waiting for another queue", {
        let (first, second, event) = (first.clone(), second.clone(), event.clone());
        move || {
            second.wait(&event).unwrap();
            first.wait(&event).unwrap();
        }
    });
    second.fill_at(x.address(), 2, 64).unwrap();
    assert!(!event.query() && !has_waited(&recorder));
    device.synchronize().unwrap();
    assert!(event.query());
    let said = recorder.said();
    let place = |wanted: &Said| said.iter().position(|said| said == wanted);
    assert!(place(&Said::Signal(1)).unwrap() < place(&Said::Wait(1)).unwrap(), "{said:?}");
    assert_eq!(said.iter().filter(|said| matches!(said, Said::Wait(_))).count(), 1, "its own order needs no wait");
    drop(x);
    settle(device, &recorder);
}

/// The GPU's watchdog ends command buffers of seconds; and until the first one is committed, the GPU has nothing to do.
#[test]
fn much_memory_is_handed_over_before_there_are_many_commands() {
    let (device, recorder) = device();
    let pipeline = Pipeline::new(parse(ADD).unwrap()).unwrap();
    let [x, y, out] = [0; 3].map(|_| device.allocate(128 << 20).unwrap());
    let small = [0; 3].map(|_| device.allocate(4096).unwrap());
    let commits = || recorder.said().iter().filter(|said| matches!(said, Said::Commit(_))).count();
    for _ in 0..10 {
        add(&device.queue(), &pipeline, small.each_ref().map(|buffer| buffer.address()));
    }
    assert_eq!(commits(), 0);
    for expected in 1..=3 {
        add(&device.queue(), &pipeline, [x.address(), y.address(), out.address()]);
        assert_eq!(commits(), expected);
    }
    drop((x, y, out, small));
    settle(device, &recorder);
}

/// 192 MiB each, but three operands may be a product of 2^36 multiplications.
#[test]
fn what_may_be_much_arithmetic_is_handed_over_before_what_is_not() {
    const MIB: usize = 1 << 20;
    let (device, recorder) = device();
    let pipeline = Pipeline::new(parse(ADD).unwrap()).unwrap();
    let commits = || recorder.said().iter().filter(|said| matches!(said, Said::Commit(_))).count();
    let pair = [0; 2].map(|_| device.allocate(96 * MIB).unwrap());
    device.queue().copy_at(pair[0].address(), pair[1].address(), 96 * MIB).unwrap();
    assert_eq!(commits(), 0);
    device.synchronize().unwrap();
    let before = commits();
    let three = [0; 3].map(|_| device.allocate(64 * MIB).unwrap());
    add(&device.queue(), &pipeline, three.each_ref().map(|buffer| buffer.address()));
    assert_eq!(commits(), before + 1);
    drop((pair, three));
    settle(device, &recorder);
}

/// Memory alone: a fill is no arithmetic.
#[test]
fn a_quarter_of_a_gibibyte_is_handed_over() {
    let (device, recorder) = device();
    let x = device.allocate(128 << 20).unwrap();
    let commits = || recorder.said().iter().filter(|said| matches!(said, Said::Commit(_))).count();
    for expected in [0, 1] {
        device.queue().fill_at(x.address(), 7, 128 << 20).unwrap();
        assert_eq!(commits(), expected);
    }
    drop(x);
    settle(device, &recorder);
}

#[test]
fn the_next_process_finds_the_pipelines_of_this_one() {
    let disk = Disk::default();
    let run = |expected: &[&str]| {
        let recorder = Recorder::with_disk(&disk);
        let device = Device::over(0, recorder.clone());
        let pipeline = Pipeline::new(parse(ADD).unwrap()).unwrap();
        let memory = [0; 3].map(|_| device.allocate(4096).unwrap());
        add(&device.queue(), &pipeline, memory.each_ref().map(|buffer| buffer.address()));
        device.synchronize().unwrap();
        assert_eq!(recorder.pipelines(), expected);
        // A process ends without dropping its devices.
        std::mem::forget((device, memory));
        recorder.said().iter().filter(|said| matches!(said, Said::Save(_))).count()
    };
    assert_eq!(run(&[pipeline_name()]), 1);
    assert_eq!(disk.pipelines(), 1);
    assert_eq!(run(&[]), 0, "nothing new");
}

fn pipeline_name() -> &'static str {
    "add_kernel"
}

/// A kernel for whose needs this macOS is too old runs on the host, in its place among the other commands: macOS 13 has no `bfloat`, macOS 14
/// nothing for memory that threadgroups pass to each other.
#[test]
fn a_kernel_that_this_macos_has_no_text_for_runs_on_the_host() {
    let twice = |scalar| {
        let mut b = Kernel::new("twice");
        let x = b.parameter("x", Type::pointer(scalar));
        let value = b.load(x, None, None);
        let sum = b.add(value, value);
        b.store(x, sum, None);
        b.finish()
    };
    let count = || {
        let mut b = Kernel::new("count");
        let x = b.parameter("x", Type::pointer(Scalar::I32));
        let three = b.integer(3, Scalar::I32);
        let old = b.emit(Operation::Atomic(Atomic::Add), &[x, three], Type::scalar(Scalar::I32));
        let sum = b.add(old, three);
        b.store(x, sum, None);
        b.finish()
    };
    let all = openmps_metal::recorder::properties();
    // 1.25 and 2.5 in bfloat16.
    let cases: [(&dyn Fn() -> openmps_tile::Kernel, _, _, _); 2] = [
        (&|| twice(Scalar::BF16), Properties { bfloat: false, ..all.clone() }, 0x3FA0_u32, 0x4020_u32),
        (&count, Properties { coherence: false, ..all.clone() }, 4, 7),
    ];
    for (kernel, properties, before, after) in cases {
        for (properties, on_host) in [(properties, true), (all.clone(), false)] {
            let pipeline = Pipeline::new(kernel()).unwrap();
            let recorder = Recorder::new(properties);
            let device = Device::over(0, recorder.clone());
            let (memory, queue) = (device.allocate(4).unwrap(), device.queue());
            queue.write_at(memory.address(), &before.to_ne_bytes()).unwrap();
            // SAFETY: the kernel reads and writes the buffer's first element.
            unsafe { queue.dispatch("it", &pipeline, [1, 1, 1], &[memory.address() as u64]) }.unwrap();
            let mut result = [0; 4];
            queue.read_at(&mut result, memory.address()).unwrap();
            assert_eq!(u32::from_ne_bytes(result), if on_host { after } else { before });
            assert_eq!(recorder.pipelines().is_empty(), on_host);
            drop(memory);
            settle(device, &recorder);
        }
    }
}
