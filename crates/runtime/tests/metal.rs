//! The Metal device over the recorder: what a queue's commands say to Metal, and what the runtime owes whoever says them.

#[path = "harness/addresses.rs"]
mod addresses;
mod harness;

use addresses::ByAddress;
use harness::{ADD, settle};
use openmps_metal::Recorder;
use openmps_metal::interface::Grid;
use openmps_metal::recorder::Said;
use openmps_runtime::{Backend, Device, Error, Event, Pipeline};
use openmps_tile::parse;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn device() -> (Device, Recorder) {
    let recorder = Recorder::default();
    (Device::over(0, recorder.clone()), recorder)
}

#[test]
fn a_kernel_is_compiled_once_and_its_arguments_become_buffers_and_numbers() {
    let (device, recorder) = device();
    assert_eq!(device.properties().backend, Backend::Metal);
    let pipeline = Pipeline::new(parse(ADD).unwrap()).unwrap();
    let (x, y, out) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    let queue = device.queue();
    let arguments = [x.address() as u64 + 16, y.address() as u64, out.address() as u64, 1000];
    for _ in 0..2 {
        // SAFETY: nothing runs on the recorder.
        unsafe { queue.dispatch("add", &pipeline, [4, 1, 1], &arguments) }.unwrap();
    }
    queue.synchronize().unwrap();
    assert_eq!(recorder.pipelines().len(), 1);
    let said = recorder.said();
    let base = said.iter().find_map(|said| match said {
        Said::Buffer { index: 1, offset, .. } => Some(*offset),
        _ => None,
    });
    let first = said.iter().find_map(|said| match said {
        Said::Buffer { index: 0, offset, .. } => Some(*offset),
        _ => None,
    });
    // One heap holds all three; the second buffer lies 4096 bytes after the first.
    assert_eq!(base.unwrap() + 16 - first.unwrap(), y.address() - x.address());
    assert!(said.contains(&Said::Bytes { index: 3, bytes: 1000u32.to_le_bytes().to_vec() }), "{said:?}");
    let dispatches: Vec<_> = said.iter().filter(|said| matches!(said, Said::Dispatch { .. })).collect();
    assert_eq!(dispatches.len(), 2);
    assert!(matches!(dispatches[0], Said::Dispatch { grid: Grid::Threadgroups([4, 1, 1]), .. }));
    drop((x, y, out));
    settle(device, &recorder);
}

#[test]
fn a_capture_is_of_the_queue_and_ends_behind_its_commands() {
    let (device, recorder) = device();
    let queue = device.queue();
    let memory = device.allocate(4096).unwrap();
    queue.begin_capture(Path::new("of.gputrace")).unwrap();
    queue.fill_at(memory.address(), 0, 4096).unwrap();
    queue.end_capture().unwrap();
    let said = recorder.said();
    let at = |what: &dyn Fn(&Said) -> bool| said.iter().position(what).unwrap();
    let begun = at(&|said| matches!(said, Said::Capture(of) if of.ends_with("into of.gputrace")));
    let (ended, filled) = (at(&|said| *said == Said::EndCapture), at(&|said| matches!(said, Said::Fill { .. })));
    assert!(begun < filled && filled < ended, "{said:?}");
    let refused = Device::host(0).unwrap().queue().begin_capture(Path::new("of.gputrace"));
    assert!(matches!(refused, Err(Error::NoCaptures)));
    drop(memory);
    settle(device, &recorder);
}

#[test]
fn memory_moves_on_the_gpu_where_it_can_and_on_the_host_where_not() {
    let (device, recorder) = device();
    let queue = device.queue();
    let (x, y) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    queue.write_at(x.address(), &[1, 2, 3, 4, 5]).unwrap();
    let mut back = [0; 5];
    queue.read_at(&mut back, x.address()).unwrap();
    assert_eq!(back, [1, 2, 3, 4, 5]);
    // An overlap: the host copies.
    queue.copy_at(x.address() + 1, x.address(), 4).unwrap();
    assert!(recorder.said().is_empty());
    queue.read_at(&mut back, x.address()).unwrap();
    assert_eq!(back, [1, 1, 2, 3, 4]);
    // Apart: the GPU does.
    queue.copy_at(y.address(), x.address(), 4096).unwrap();
    queue.fill_at(x.address(), 9, 64).unwrap();
    queue.synchronize().unwrap();
    let said = recorder.said();
    assert!(said.iter().any(|said| matches!(said, Said::Copy { bytes: 4096, .. })));
    assert!(said.iter().any(|said| matches!(said, Said::Fill { byte: 9, .. })));
    drop((x, y));
    settle(device, &recorder);
}

#[test]
fn a_failed_command_buffer_is_an_error_at_the_next_synchronisation_only() {
    let (device, recorder) = device();
    let queue = device.queue();
    let x = device.allocate(64).unwrap();
    let broken = openmps_metal::Error::CommandBuffer {
        label: "it".to_string(),
        kind: "timeout",
        message: "too long".to_string(),
    };
    recorder.fail_command_buffer(0, broken);
    queue.fill_at(x.address(), 0, 64).unwrap();
    // A native kernel waits, and does not take the error away.
    queue.run_native("on the host", || Ok(())).unwrap();
    let error = queue.synchronize().unwrap_err();
    assert!(matches!(&error, Error::Deferred { further: 0, .. }), "{error}");
    assert!(error.to_string().contains("the command buffer it failed (timeout): too long"), "{error}");
    queue.synchronize().unwrap();
    drop(x);
    settle(device, &recorder);
}

#[test]
fn events_and_callbacks_come_when_the_gpu_gets_there() {
    let (device, recorder) = device();
    let queue = device.queue();
    let x = device.allocate(64).unwrap();
    let (event, called) = (Event::new(), Arc::new(AtomicUsize::new(0)));
    queue.fill_at(x.address(), 1, 64).unwrap();
    queue.record(&event).unwrap();
    assert!(!event.query());
    let count = called.clone();
    queue.add_callback(move || _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
    recorder.complete_one();
    assert!(event.query());
    event.synchronize().unwrap();
    assert_eq!(called.load(Ordering::Relaxed), 0);
    device.synchronize().unwrap();
    assert_eq!(called.load(Ordering::Relaxed), 1);
    drop(x);
    settle(device, &recorder);
}

#[test]
fn a_text_that_metal_refuses_is_an_error_of_the_dispatch() {
    let (device, recorder) = device();
    let pipeline = Pipeline::new(parse(ADD).unwrap()).unwrap();
    recorder.fail_kernel(pipeline.name());
    let x = device.allocate(64).unwrap();
    let address = x.address() as u64;
    // SAFETY: nothing runs on the recorder.
    let error = unsafe { device.queue().dispatch("add", &pipeline, [1, 1, 1], &[address, address, address, 16]) };
    assert!(error.unwrap_err().to_string().contains("was not compiled: it was told to fail"));
    // An address outside every buffer.
    let second = Pipeline::new(parse(ADD).unwrap()).unwrap();
    let (device_two, recorder_two) = self::device();
    // SAFETY: as above.
    let error = unsafe { device_two.queue().dispatch("add", &second, [1, 1, 1], &[16, 16, 16, 16]) };
    assert!(error.unwrap_err().to_string().contains("lies in no buffer of the device"));
    drop(x);
    settle(device_two, &recorder_two);
    settle(device, &recorder);
}

#[test]
fn memory_is_freed_when_the_commands_that_use_it_have_ended() {
    let (device, recorder) = device();
    let queue = device.queue();
    let x = device.allocate(1 << 20).unwrap();
    queue.fill_at(x.address(), 1, 1 << 20).unwrap();
    drop(x);
    queue.synchronize().unwrap();
    device.empty_cache();
    assert_eq!(device.statistics().reserved, 0);
    settle(device, &recorder);
}
