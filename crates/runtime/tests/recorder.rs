//! The recording device: the order of commands, and what lives how long.

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::ByAddress;
use openmps_runtime::{Backend, CommandKind, Device, Event};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn commands_are_noted_in_order_and_none_runs() {
    let (device, recorder) = Device::recorder();
    assert_eq!(device.properties().backend, Backend::Recorder);
    let (queue, other) = (device.queue(), device.new_queue());
    let buffer = device.allocate(64).expect("memory");
    queue.fill_at(buffer.address(), 0, 64).expect("taken");
    queue.run_native_with_detail("matmul", || "2x3x4".into(), || panic!("must not run")).expect("taken");
    other.write_at(buffer.address(), &[1, 2, 3]).expect("taken");
    queue.record(&Event::new()).expect("taken");
    assert_eq!(recorder.operations(), ["fill", "matmul", "write", "record"]);
    let commands = recorder.commands();
    assert_eq!(commands[1].to_string(), "queue 0: matmul: 2x3x4");
    assert_eq!((commands[2].queue, commands[2].kind), (1, CommandKind::Write));
    assert!(commands[0].detail.starts_with("64 bytes of 0x00"), "{}", commands[0]);
    recorder.clear();
    assert!(recorder.commands().is_empty());
}

#[test]
fn a_command_buffer_reaches_the_device_only_when_committed() {
    let (device, recorder) = Device::recorder();
    let commands = device.queue().command_buffer();
    commands.run_native("softmax", || Ok(())).expect("encoded");
    assert!(recorder.commands().is_empty());
    commands.commit().expect("committed");
    assert_eq!(recorder.operations(), ["softmax", "callback"]);
}

#[test]
fn buffers_outlive_the_commands_that_use_them() {
    let (device, recorder) = Device::recorder();
    let queue = device.queue();
    let (kept, captured) = (Arc::new(device.allocate(256).expect("memory")), device.allocate(256).expect("memory"));
    let commands = queue.command_buffer();
    commands.keep(kept.clone()).expect("kept");
    let uses = move || {
        assert!(!captured.is_empty(), "never called, but it owns the buffer");
        Ok(())
    };
    commands.run_native("uses", uses).expect("encoded");
    drop(kept);
    commands.commit().expect("committed");
    assert_eq!(device.statistics().allocated, 512, "the device has not come to the end yet");
    recorder.complete();
    assert_eq!(device.statistics().allocated, 0);
    commands.wait_until_completed().expect("ended");
}

#[test]
fn waiting_for_a_command_buffer_ends_it() {
    let (device, _recorder) = Device::recorder();
    let commands = device.new_queue().command_buffer();
    commands.commit().expect("committed");
    assert_eq!(commands.status(), openmps_runtime::Status::Committed);
    commands.wait_until_completed().expect("ended");
    assert_eq!(commands.status(), openmps_runtime::Status::Completed);
}

#[test]
fn callbacks_wait_for_the_end_of_their_queue() {
    let (device, _recorder) = Device::recorder();
    let (queue, other) = (device.queue(), device.new_queue());
    let called = Arc::new(AtomicBool::new(false));
    let by_callback = called.clone();
    queue.add_callback(move || by_callback.store(true, Ordering::SeqCst)).expect("taken");
    other.synchronize().expect("fine");
    assert!(!called.load(Ordering::SeqCst));
    queue.synchronize().expect("fine");
    assert!(called.load(Ordering::SeqCst));
}

#[test]
fn freed_memory_is_reused_in_the_order_of_its_queue() {
    let (device, _recorder) = Device::recorder();
    let (queue, other) = (device.queue(), device.new_queue());
    let address = queue.allocate(5000).expect("memory").address();
    let elsewhere = other.allocate(5000).expect("memory");
    assert_ne!(elsewhere.address(), address, "the other queue does not know when the first is done with it");
    assert_eq!(queue.allocate(5000).expect("memory").address(), address);
}
