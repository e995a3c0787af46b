//! Messages between two ranks, alone or in groups: what is called between `group_start` and `group_end` is one request.

use super::{communicator, element, guard, perform};
use crate::abi::device_ext::{CComm, CStream};
use crate::abi::types::Status;
use crate::device::queue;
use openmps_collective::{Communicator, Error, Message, Part, Request, Result};
use openmps_runtime::Queue;
use std::cell::RefCell;
use std::os::raw::{c_int, c_void};
use std::sync::Arc;

/// What is called between `group_start` and `group_end` waits here, by communicator.
struct Grouped {
    communicator: Arc<Communicator>,
    queue: Queue,
    message: Message,
}

#[derive(Default)]
struct Group {
    depth: usize,
    waiting: Vec<Grouped>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Sends or receives, now or at the group's end. Where that fails within a group Paddle throws before the group's end, which then never comes: nothing
/// of it is done.
///
/// # Safety
/// `comm` and `stream` are live, and the part is memory of the stream's order.
unsafe fn message(
    operation: &'static str,
    comm: CComm,
    stream: CStream,
    memory: *mut c_void,
    count: usize,
    data_type: c_int,
    of: impl FnOnce(Part) -> Message,
) -> Result<()> {
    let now_or_later = || {
        // SAFETY: the caller's promise.
        let (communicator, queue) = unsafe { (communicator(comm)?, queue(stream)) };
        let message = of(Part { address: memory.cast(), count, element: element(data_type)? });
        let waits = GROUP.with_borrow_mut(|group| {
            if group.depth > 0 {
                group.waiting.push(Grouped { communicator: communicator.clone(), queue: queue.clone(), message });
            }
            group.depth > 0
        });
        if waits {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { perform(communicator, queue, operation, &Request::Messages(&[message])) }
    };
    now_or_later().inspect_err(|_| drop(GROUP.take()))
}

/// Does what waits, one communicator after the other, in the same order on all ranks.
fn end_group(mut waiting: Vec<Grouped>) -> Result<()> {
    waiting.sort_by_key(|grouped| grouped.communicator.identity());
    for of_one in waiting.chunk_by(|one, other| Arc::ptr_eq(&one.communicator, &other.communicator)) {
        for grouped in &of_one[1..] {
            grouped.queue.finish().map_err(|error| Error::System { what: "the stream", reason: error.to_string() })?;
        }
        let messages: Vec<Message> = of_one.iter().map(|grouped| grouped.message).collect();
        let Grouped { communicator, queue, .. } = &of_one[0];
        // SAFETY: Paddle keeps the memory of grouped messages until the group's end, in the order of their streams.
        unsafe { perform(communicator, queue, "group", &Request::Messages(&messages)) }?;
    }
    Ok(())
}

pub(super) unsafe extern "C-unwind" fn group_start() -> Status {
    // SAFETY: called from C++ by way of `extern "C-unwind"`.
    unsafe {
        guard("group_start", || {
            GROUP.with_borrow_mut(|group| group.depth += 1);
            Ok(())
        })
    }
}

pub(super) unsafe extern "C-unwind" fn group_end() -> Status {
    // SAFETY: called from C++ by way of `extern "C-unwind"`.
    unsafe {
        guard("group_end", || {
            end_group(GROUP.with_borrow_mut(|group| {
                group.depth = group.depth.saturating_sub(1);
                if group.depth == 0 { std::mem::take(&mut group.waiting) } else { Vec::new() }
            }))
        })
    }
}

pub(super) unsafe extern "C-unwind" fn send(
    memory: *mut c_void,
    count: usize,
    data_type: c_int,
    to: usize,
    comm: CComm,
    stream: CStream,
) -> Status {
    // SAFETY: the pointers are what `device_ext.h` says they are, valid for the call.
    unsafe {
        guard("send", || message("send", comm, stream, memory, count, data_type, |part| Message::Send { to, part }))
    }
}

pub(super) unsafe extern "C-unwind" fn recv(
    memory: *mut c_void,
    count: usize,
    data_type: c_int,
    from: usize,
    comm: CComm,
    stream: CStream,
) -> Status {
    // SAFETY: the pointers are what `device_ext.h` says they are, valid for the call.
    unsafe {
        guard("recv", || {
            message("recv", comm, stream, memory, count, data_type, |part| Message::Receive { from, part })
        })
    }
}
