//! Pipelines on a queue and in a command buffer.

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::ByAddress;
use openmps_runtime::{Buffer, CommandKind, Device, Error, Pipeline, Queue};
use openmps_tile::kernel::Compare;
use openmps_tile::types::{Scalar, Type};
use openmps_tile::{Builder, Kernel};
use std::sync::Arc;

/// `out[i] = x[i] + x[i]` for `i` below `n`, 128 at a time.
fn double() -> Kernel {
    const SIZE: usize = 128;
    let mut b = Builder::new("double");
    let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
    let n = b.parameter("n", Type::scalar(Scalar::I64));
    let (id, lanes, count) = (b.program_id(0), b.range(SIZE), b.integer(SIZE as i64, Scalar::I64));
    let start = b.multiply(id, count);
    let (start, limit) = (b.splat(start, &[SIZE]), b.splat(n, &[SIZE]));
    let offsets = b.add(start, lanes);
    let mask = b.compare(Compare::Less, offsets, limit);
    let from = b.add_pointer(x, offsets);
    let loaded = b.load(from, Some(mask), None);
    let sum = b.add(loaded, loaded);
    let to = b.add_pointer(out, offsets);
    b.store(to, sum, Some(mask));
    b.finish()
}

const COUNT: usize = 1000;

fn input(queue: &Queue) -> (Buffer, Buffer) {
    let (x, out) = (queue.allocate(COUNT * 4).expect("memory"), queue.allocate(COUNT * 4).expect("memory"));
    let bytes: Vec<u8> = (0..COUNT).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    queue.write_at(x.address(), &bytes).expect("written");
    (x, out)
}

fn check(queue: &Queue, out: &Buffer) {
    let mut bytes = vec![0; COUNT * 4];
    queue.read_at(&mut bytes, out.address()).expect("read");
    for (i, value) in bytes.chunks_exact(4).enumerate() {
        assert_eq!(f32::from_ne_bytes(value.try_into().expect("four bytes")), 2.0 * i as f32);
    }
}

fn arguments(x: &Buffer, out: &Buffer) -> [u64; 3] {
    [x.address() as u64, out.address() as u64, COUNT as u64]
}

const GRID: [usize; 3] = [COUNT.div_ceil(128), 1, 1];

#[test]
fn a_pipeline_runs_over_its_grid() {
    let queue = Device::get(0).expect("the host").new_queue();
    let pipeline = Pipeline::new(double()).expect("verified");
    let (x, out) = input(&queue);
    // SAFETY: both buffers hold `COUNT` elements and do not overlap.
    unsafe { queue.dispatch("double", &pipeline, GRID, &arguments(&x, &out)) }.expect("runs");
    check(&queue, &out);
    assert_eq!(queue.counts().of(CommandKind::Dispatch), 1);
    // SAFETY: refused before anything is touched.
    let error = unsafe { queue.dispatch("double", &pipeline, GRID, &[]) }.expect_err("arguments are missing");
    let is_refused = matches!(error, Error::Kernel { operation: "double", .. } | Error::ArgumentCount { .. });
    assert!(is_refused, "{error}");
    assert!(error.to_string().contains("arguments"), "{error}");
}

#[test]
fn a_pipeline_runs_from_a_command_buffer() {
    let queue = Device::get(0).expect("the host").new_queue();
    let pipeline = Arc::new(Pipeline::new(double()).expect("verified"));
    let (x, out) = input(&queue);
    let commands = queue.command_buffer();
    // SAFETY: both buffers hold `COUNT` elements, do not overlap and live to the end of this function.
    unsafe { commands.dispatch("double", pipeline, GRID, &arguments(&x, &out)) }.expect("encoded");
    commands.commit().expect("committed");
    commands.wait_until_completed().expect("no error");
    check(&queue, &out);
}

#[test]
fn a_recorder_notes_grid_and_arguments() {
    let (device, recorder) = Device::recorder();
    let pipeline = Pipeline::new(double()).expect("verified");
    // SAFETY: the recorder runs nothing, so the addresses are never used.
    unsafe { device.queue().dispatch("double", &pipeline, GRID, &[1, 2, 3]) }.expect("taken");
    assert_eq!(recorder.commands()[0].to_string(), "queue 0: double: grid [8, 1, 1], 3 arguments");
}
