//! Metal's rules for command buffers, on the host.

#[path = "harness/addresses.rs"]
mod addresses;
#[path = "harness/ends.rs"]
mod ends;

use addresses::{ByAddress, Encoded};
use ends::ends;
use openmps_runtime::{CommandBuffer, Device, Error, Queue, Status};
use std::sync::{Arc, Mutex};

fn queue() -> Queue {
    Device::get(0).expect("the host").new_queue()
}

type Log = Arc<Mutex<Vec<&'static str>>>;

fn note(buffer: &CommandBuffer, log: &Log, word: &'static str) {
    let log = log.clone();
    let work = move || {
        log.lock().expect("not poisoned").push(word);
        Ok(())
    };
    buffer.run_native("note", work).expect("encoded");
}

fn words(log: &Log) -> Vec<&'static str> {
    log.lock().expect("not poisoned").clone()
}

#[test]
fn commands_run_at_commit_in_the_order_of_encoding() {
    let (queue, log) = (queue(), Log::default());
    let memory = queue.allocate(16).expect("memory");
    let commands = queue.command_buffer();
    note(&commands, &log, "first");
    commands.fill_at(memory.address(), 3, 16).expect("encoded");
    commands.copy_at(memory.address() + 8, memory.address(), 8).expect("encoded");
    note(&commands, &log, "second");
    assert_eq!((commands.status(), words(&log).len()), (Status::NotEnqueued, 0));
    commands.commit().expect("committed");
    commands.wait_until_completed().expect("no error");
    assert_eq!(words(&log), ["first", "second"]);
    assert_eq!(commands.status(), Status::Completed);
    assert!(0.0 < commands.gpu_start_time() && commands.gpu_start_time() <= commands.gpu_end_time());
    assert!(commands.error().is_none());
}

#[test]
fn nothing_is_taken_after_commit() {
    let queue = queue();
    let commands = queue.command_buffer();
    commands.commit().expect("committed");
    commands.wait_until_completed().expect("no error");
    for refused in [
        commands.run_native("late", || Ok(())),
        commands.copy_at(0, 0, 0),
        commands.fill_at(0, 0, 0),
        commands.keep(1),
        commands.add_completed_handler(|_| ()),
        commands.enqueue(),
        commands.commit(),
    ] {
        assert!(matches!(refused, Err(Error::CommandBuffer { status: "completed", .. })), "{refused:?}");
    }
}

#[test]
fn waiting_before_commit_is_an_error_and_no_hang() {
    let commands = queue().command_buffer();
    assert!(matches!(commands.wait_until_completed(), Err(Error::CommandBuffer { .. })));
    commands.enqueue().expect("enqueued");
    assert_eq!(commands.status(), Status::Enqueued);
    assert!(commands.wait_until_completed().is_err());
}

#[test]
fn enqueued_buffers_run_in_their_order_whatever_the_order_of_commits() {
    let (queue, log) = (queue(), Log::default());
    let (first, second, third) = (queue.command_buffer(), queue.command_buffer(), queue.command_buffer());
    first.enqueue().expect("enqueued");
    second.enqueue().expect("enqueued");
    note(&third, &log, "third");
    third.commit().expect("committed");
    note(&second, &log, "second");
    second.commit().expect("committed");
    assert_eq!((third.status(), second.status()), (Status::Committed, Status::Committed));
    note(&first, &log, "first");
    first.commit().expect("committed");
    third.wait_until_completed().expect("fine");
    assert_eq!(words(&log), ["first", "second", "third"]);
}

#[test]
fn a_buffer_that_is_dropped_gives_up_its_place() {
    let queue = queue();
    let (first, second) = (queue.command_buffer(), queue.command_buffer());
    first.enqueue().expect("enqueued");
    second.commit().expect("committed");
    assert_eq!(second.status(), Status::Committed);
    drop(first);
    second.wait_until_completed().expect("its turn has come");
    assert_eq!(second.status(), Status::Completed);
}

#[test]
fn an_error_ends_the_buffer_and_reaches_everyone() {
    let (queue, log) = (queue(), Log::default());
    let commands = queue.command_buffer();
    let heard = Log::default();
    note(&commands, &log, "before");
    commands.run_native("broken", || Err(openmps_host::Error::Invalid("no such shape".into()))).expect("encoded");
    note(&commands, &log, "after");
    let handler_heard = heard.clone();
    let handler = move |result: Result<(), &Error>| {
        assert!(result.is_err());
        handler_heard.lock().expect("not poisoned").push("handler");
    };
    commands.add_completed_handler(handler).expect("taken");
    commands.commit().expect("the commit itself is fine");
    assert_eq!((words(&log), words(&heard)), (vec!["before"], vec!["handler"]));
    assert_eq!(commands.status(), Status::Error);
    assert!(commands.error().expect("an error").to_string().contains("no such shape"));
    assert!(commands.wait_until_completed().expect_err("an error").to_string().contains("no such shape"));
    assert!(queue.synchronize().expect_err("kept").to_string().contains("broken failed: no such shape"));
    queue.synchronize().expect("delivered once");
}

#[test]
fn a_panic_is_an_error_and_the_queue_goes_on() {
    let queue = queue();
    let commands = queue.command_buffer();
    commands.run_native("panicking", || panic!("out of range")).expect("encoded");
    commands.commit().expect("committed");
    assert!(
        matches!(&*commands.error().expect("an error"), Error::Panicked { operation: "panicking", message } if message == "out of range")
    );
    let next = queue.command_buffer();
    next.commit().expect("committed");
    next.wait_until_completed().expect("runs");
}

#[test]
fn a_buffer_may_commit_another_and_threads_may_wait() {
    let (queue, log) = (queue(), Log::default());
    let outer = queue.command_buffer();
    let inner = Arc::new(queue.command_buffer());
    note(&inner, &log, "inner");
    let committed = inner.clone();
    outer
        .run_native("commit", move || {
            committed.commit().expect("committed");
            assert_eq!(committed.status(), Status::Committed, "its turn comes after this buffer");
            Ok(())
        })
        .expect("encoded");
    note(&outer, &log, "outer");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            while inner.status() == Status::NotEnqueued {
                std::thread::yield_now();
            }
            inner.wait_until_completed()
        });
        outer.commit().expect("committed");
        waiting.join().expect("no panic").expect("no error");
    });
    assert_eq!(words(&log), ["outer", "inner"]);
}

#[test]
fn buffers_committed_by_many_threads_all_run() {
    let queue = queue();
    let memory = Arc::new(queue.allocate(4).expect("memory"));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (queue, memory) = (queue.clone(), memory.clone());
            scope.spawn(move || (0..200).for_each(|_| add_one(&queue, &memory)));
        }
    });
    let mut got = [0; 4];
    queue.read_at(&mut got, memory.address()).expect("read");
    assert_eq!(u32::from_ne_bytes(got), 1600);
}

/// Reads, adds and writes without an atomic: only the queue's order makes this right.
fn add_one(queue: &Queue, memory: &Arc<openmps_runtime::Buffer>) {
    static ZEROED: std::sync::Once = std::sync::Once::new();
    ZEROED.call_once(|| queue.fill_at(memory.address(), 0, 4).expect("filled"));
    let commands = queue.command_buffer();
    let number = memory.contents() as usize;
    let work = move || {
        // SAFETY: the buffer is kept by the command buffer, aligned, and changed by one command at a time.
        unsafe { *(number as *mut u32) += 1 };
        Ok(())
    };
    commands.run_native("add", work).expect("encoded");
    commands.keep(memory.clone()).expect("kept");
    commands.commit().expect("committed");
    commands.wait_until_completed().expect("no error");
}

#[test]
fn handlers_may_wait_for_their_own_buffer_for_another_and_for_the_queue() {
    ends("its own", || {
        let commands = Arc::new(queue().command_buffer());
        let (own, log) = (commands.clone(), Log::default());
        let heard = log.clone();
        let handler = move |_: Result<(), &Error>| {
            own.wait_until_completed().expect("the commands have ended");
            heard.lock().expect("not poisoned").push("told");
        };
        commands.add_completed_handler(handler).expect("taken");
        commands.commit().expect("committed");
        commands.wait_until_completed().expect("fine");
        assert_eq!(words(&log), ["told"]);
    });
    ends("another, which has a handler too", || {
        let (queue, log) = (queue(), Log::default());
        let commands = queue.command_buffer();
        let heard = log.clone();
        let handler = move |_: Result<(), &Error>| {
            let (next, inner) = (queue.command_buffer(), heard.clone());
            next.add_completed_handler(move |_| inner.lock().expect("not poisoned").push("inner")).expect("taken");
            next.commit().expect("committed");
            next.wait_until_completed().expect("its turn has come");
            queue.synchronize().expect("nothing failed");
            heard.lock().expect("not poisoned").push("outer");
        };
        commands.add_completed_handler(handler).expect("taken");
        commands.commit().expect("committed");
        commands.wait_until_completed().expect("fine");
        assert_eq!(words(&log), ["inner", "outer"]);
    });
}

#[test]
fn a_wait_that_cannot_end_is_an_error() {
    ends("a command that waits for a buffer behind it", || {
        let queue = queue();
        let (first, second) = (queue.command_buffer(), Arc::new(queue.command_buffer()));
        let (behind, log) = (second.clone(), Log::default());
        let heard = log.clone();
        let waits = move || {
            let error = behind.wait_until_completed().expect_err("it is behind this command").to_string();
            assert!(error.contains("waited for by a command"), "{error}");
            heard.lock().expect("not poisoned").push("refused");
            Ok(())
        };
        first.run_native("waits", waits).expect("encoded");
        first.enqueue().expect("enqueued");
        second.commit().expect("committed");
        first.commit().expect("committed");
        second.wait_until_completed().expect("its turn has come");
        assert_eq!(words(&log), ["refused"]);
    });
    ends("a command that waits for its own buffer", || {
        let commands = Arc::new(queue().command_buffer());
        let own = commands.clone();
        let waits = move || {
            assert!(own.wait_until_completed().is_err());
            Ok(())
        };
        commands.run_native("waits", waits).expect("encoded");
        commands.commit().expect("committed");
        commands.wait_until_completed().expect("fine");
    });
    ends("behind one that nobody commits", || {
        let queue = queue();
        let (first, second) = (queue.command_buffer(), queue.command_buffer());
        first.enqueue().expect("enqueued");
        second.commit().expect("committed");
        let error = second.wait_until_completed().expect_err("nobody commits the first").to_string();
        assert!(error.contains("behind one that is enqueued"), "{error}");
    });
}
