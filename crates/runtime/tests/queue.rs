//! Queues and events on the host.

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::{ByAddress, Encoded};
use openmps_runtime::{CommandKind, Device, Error, Event, Queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn queue() -> Queue {
    Device::get(0).expect("the host").new_queue()
}

fn failing(queue: &Queue, text: &str) -> Error {
    let text = text.to_string();
    queue.run_native("failing", || Err(openmps_host::Error::Invalid(text))).expect_err("fails")
}

#[test]
fn work_runs_at_submission() {
    let queue = queue();
    let mut ran = false;
    queue
        .run_native("work", || {
            ran = true;
            Ok(())
        })
        .expect("runs");
    assert!(ran);
    queue.synchronize().expect("nothing failed");
}

#[test]
fn an_error_that_is_known_at_once_is_delivered_once() {
    let queue = queue();
    let error = failing(&queue, "the shapes differ");
    assert!(matches!(error, Error::Kernel { operation: "failing", .. }));
    failing(&queue, "another");
    queue.synchronize().expect("both were delivered");
    assert_eq!(queue.counts().errors, 2);
}

#[test]
fn a_device_delivers_the_errors_of_all_its_command_buffers() {
    let (device, recorder) = Device::recorder();
    for queue in [device.queue(), device.new_queue()] {
        let buffer = queue.command_buffer();
        buffer.fill_at(1, 0, 1).expect("encoded");
        buffer.commit().expect("committed");
    }
    assert!(device.synchronize().is_err());
    device.synchronize().expect("both were delivered");
    assert!(recorder.commands().is_empty(), "what is refused never reaches the device");
}

#[test]
fn bytes_travel_between_host_and_buffers() {
    let queue = queue();
    let (a, b) = (queue.allocate(3000).expect("memory"), queue.allocate(3000).expect("memory"));
    let sent: Vec<u8> = (0..3000).map(|i| i as u8).collect();
    queue.fill_at(b.address(), 9, 3000).expect("filled");
    queue.write_at(a.address(), &sent).expect("written");
    queue.copy_at(b.address() + 100, a.address(), 1000).expect("copied");
    let mut got = vec![0; 3000];
    queue.read_at(&mut got, b.address()).expect("read");
    assert_eq!(got[..100], [9; 100]);
    assert_eq!(got[100..1100], sent[..1000]);
    assert_eq!(got[1100..], [9; 1900]);
    queue.copy_at(a.address() + 1, a.address(), 2999).expect("overlap is allowed");
    queue.read_at(&mut got, a.address()).expect("read");
    assert_eq!(got[1..], sent[..2999]);
}

#[test]
fn ranges_outside_of_buffers_are_refused_before_anything_is_touched() {
    let queue = queue();
    let buffer = queue.allocate(256).expect("memory");
    let address = buffer.address();
    for error in [
        queue.fill_at(address, 0, 257).expect_err("too long"),
        queue.copy_at(address, 0x10, 1).expect_err("no source"),
        queue.copy_at(0x10, address, 1).expect_err("no destination"),
        queue.fill_at(usize::MAX, 0, 2).expect_err("beyond the end of memory"),
    ] {
        assert!(matches!(error, Error::UnknownAddress { .. }), "{error}");
    }
    queue.fill_at(0, 0, 0).expect("nothing to touch");
    queue.synchronize().expect("the callers have their errors");
}

#[test]
fn callbacks_run_in_order() {
    let queue = queue();
    let count = Arc::new(AtomicUsize::new(0));
    for expected in 0..3 {
        let count = count.clone();
        queue.add_callback(move || assert_eq!(count.fetch_add(1, Ordering::SeqCst), expected)).expect("taken");
    }
    queue.synchronize().expect("fine");
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[test]
fn events_measure_time_between_them() {
    let queue = queue();
    let (start, end, never) = (Event::new(), Event::new(), Event::new());
    queue.record(&start).expect("recorded");
    start.synchronize().expect("reached");
    std::thread::sleep(std::time::Duration::from_millis(5));
    queue.record(&end).expect("recorded");
    queue.wait(&start).expect("reached");
    queue.wait(&never).expect("holds nothing");
    end.synchronize().expect("reached");
    assert!(end.query() && !never.query());
    let elapsed = end.elapsed_ms(&start).expect("both recorded");
    assert!((5.0..5000.0).contains(&elapsed), "{elapsed}");
    assert!(start.elapsed_ms(&end).expect("both recorded") < 0.0);
    assert!(matches!(end.elapsed_ms(&never), Err(Error::NotRecorded { which: "the earlier event" })));
    assert!(matches!(never.elapsed_ms(&start), Err(Error::NotRecorded { which: "the later event" })));
}

#[test]
fn commands_are_counted_by_kind() {
    let queue = queue();
    queue.run_native("a", || Ok(())).expect("runs");
    queue.clone().run_native("b", || Ok(())).expect("runs");
    queue.record(&Event::new()).expect("recorded");
    let counts = queue.counts();
    assert_eq!((counts.of(CommandKind::Native), counts.of(CommandKind::Record), counts.total()), (2, 1, 3));
    assert_eq!(queue.device().new_queue().counts().total(), 0);
}

#[test]
fn threads_share_a_queue() {
    let queue = queue();
    let buffer = queue.allocate(8 * 256).expect("memory");
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let (queue, address) = (queue.clone(), buffer.address() + thread as usize * 256);
            scope.spawn(move || (0..500).for_each(|_| queue.fill_at(address, thread, 256).expect("filled")));
        }
    });
    let mut got = vec![0; 8 * 256];
    queue.read_at(&mut got, buffer.address()).expect("read");
    assert!(got.chunks(256).enumerate().all(|(thread, bytes)| bytes.iter().all(|&byte| byte == thread as u8)));
    assert_eq!(queue.counts().of(CommandKind::Fill), 4000);
}

#[test]
fn a_queue_that_is_gone_leaves_its_number_and_nothing_else() {
    let (device, _recorder) = Device::recorder();
    let kept = device.new_queue();
    let gone = device.new_queue();
    let number = gone.id();
    let clone = gone.clone();
    drop(gone);
    let meanwhile = device.new_queue();
    assert!(![kept.id(), number].contains(&meanwhile.id()), "a clone still has it");
    clone.run_native("work", || Ok(())).expect("recorded");
    assert_eq!(clone.counts().of(CommandKind::Native), 1);
    drop(clone);
    let next = device.new_queue();
    assert_eq!(next.id(), number);
    assert_eq!(next.counts().of(CommandKind::Native), 0, "they were another queue's");
    next.synchronize().expect("nothing failed");
}

#[test]
fn devices_of_one_index_are_told_apart() {
    let [(one, _), (other, _)] = [Device::recorder(), Device::recorder()];
    assert_eq!(one.index(), other.index());
    assert!(one.identity() != other.identity() && one.identity() == one.clone().identity());
}
