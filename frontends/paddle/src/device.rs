//! Paddle's device interface over the runtime: devices, streams, events. A stream is a queue, an event an event. Memory and copies are in
//! `memory`, communication between processes in `collective`, what a profiler asks in `profiler`.

pub(crate) mod collective;
mod memory;
mod profiler;

use crate::abi::device_ext::{CCallback, CDevice, CEvent, CStream, DeviceInterface};
use crate::abi::types::{FAILED, INTERNAL_ERROR, SUCCESS, Status};
use crate::abi::unwind::payload_text;
use openmps_runtime::{Device, Error, Event, Queue, Result};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::raw::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};

/// What a `C_Stream` points to.
pub struct Stream {
    queue: Queue,
}

impl Stream {
    /// The queue that the stream is.
    #[inline]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Copies bytes to the host after the stream's commands so far. `address` may be the device's or the host's.
    ///
    /// # Safety
    /// So many bytes at `address` live and are not written meanwhile.
    pub unsafe fn read(&self, address: usize, bytes: &mut [u8]) -> crate::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.queue.device().resolve(address, bytes.len()).is_ok() {
            // SAFETY: the caller's promise.
            unsafe { self.queue.read(bytes, address) }?;
            return Ok(());
        }
        // SAFETY: the caller's promise; what is not the device's is the host's.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}

thread_local! {
    /// The device that this thread has chosen, as with CUDA.
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

/// Fills the interface. Members that stay empty have an answer of Paddle's own.
pub(crate) fn fill(interface: &mut DeviceInterface) {
    interface.initialize = Some(initialize);
    interface.finalize = Some(finalize);
    interface.init_device = Some(init_device);
    interface.deinit_device = Some(deinit_device);
    interface.set_device = Some(set_device);
    interface.get_device = Some(get_device);
    interface.create_stream = Some(create_stream);
    interface.destroy_stream = Some(destroy_stream);
    interface.query_stream = Some(query_stream);
    interface.stream_add_callback = Some(stream_add_callback);
    interface.create_event = Some(create_event);
    interface.destroy_event = Some(destroy_event);
    interface.record_event = Some(record_event);
    interface.query_event = Some(query_event);
    interface.synchronize_device = Some(synchronize_device);
    interface.synchronize_stream = Some(synchronize_stream);
    interface.synchronize_event = Some(synchronize_event);
    interface.stream_wait_event = Some(stream_wait_event);
    memory::fill(interface);
    collective::fill(interface);
    profiler::fill(interface);
    interface.get_device_count = Some(get_device_count);
    interface.get_device_list = Some(get_device_list);
    interface.get_compute_capability = Some(zero);
    interface.get_runtime_version = Some(zero);
    interface.get_driver_version = Some(zero);
    interface.get_multi_process = Some(get_multi_process);
    interface.get_max_threads_per_mp = Some(zero);
    interface.get_max_threads_per_block = Some(zero);
    interface.get_device_properties = Some(get_device_properties);
    interface.is_float16_supported = Some(supported);
    interface.is_bfloat16_supported = Some(supported);
}

/// Runs one call of the interface. Its error goes to stderr, since the interface has no channel for the text.
fn call(operation: &'static str, work: impl FnOnce() -> Result<()>) -> Status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(error)) => {
            eprintln!("openmps: {operation}: {error}");
            FAILED
        }
        Err(payload) => {
            eprintln!("openmps: {operation} panicked: {}", payload_text(&payload));
            INTERNAL_ERROR
        }
    }
}

/// As [`call`], of a question: no is said as a failure.
fn ask(operation: &'static str, question: impl FnOnce() -> Result<bool>) -> Status {
    let mut answer = false;
    let status = call(operation, || {
        answer = question()?;
        Ok(())
    });
    if status == SUCCESS && !answer { FAILED } else { status }
}

/// # Safety
/// `device` is a device that Paddle holds.
unsafe fn device(device: *const CDevice) -> Result<&'static Device> {
    // SAFETY: the caller's promise.
    let id = unsafe { (*device).id };
    let known = usize::try_from(id).ok().and_then(|index| Device::all().get(index));
    known.ok_or(Error::NoSuchDevice { index: id.into(), count: Device::all().len() })
}

/// # Safety
/// `stream` is a stream that `create_stream` made and `destroy_stream` has not taken.
unsafe fn queue<'a>(stream: CStream) -> &'a Queue {
    // SAFETY: the caller's promise.
    unsafe { &(*stream.cast::<Stream>()).queue }
}

/// # Safety
/// `event` is an event that `create_event` made and `destroy_event` has not taken.
unsafe fn event<'a>(event: CEvent) -> &'a Event {
    // SAFETY: the caller's promise.
    unsafe { &*event.cast::<Event>() }
}

/// The queue of a stream of Paddle's, by its address (`raw_stream`).
///
/// # Safety
/// It is the address of a live stream of device `mps`.
pub unsafe fn queue_of(stream: usize) -> Queue {
    // SAFETY: the caller's promise.
    unsafe { queue(stream as CStream) }.clone()
}

/// Milliseconds between two events of Paddle, by their addresses (`raw_event`).
///
/// # Safety
/// Both are addresses of live events of device `mps`.
pub unsafe fn elapsed_ms(earlier: usize, later: usize) -> Result<f64> {
    // SAFETY: the caller's promise.
    unsafe { event(later as CEvent).elapsed_ms(event(earlier as CEvent)) }
}

unsafe extern "C-unwind" fn initialize() -> Status {
    call("initialize", || Device::get(0).map(|_| ()))
}

unsafe extern "C-unwind" fn finalize() -> Status {
    SUCCESS
}

unsafe extern "C-unwind" fn init_device(at: *mut CDevice) -> Status {
    // SAFETY (here and in every function of the interface): the pointers are what `device_ext.h` says they are, valid for the call.
    // SAFETY: Paddle passes a live device record.
    call("init_device", || unsafe { device(at) }.map(|_| ()))
}

unsafe extern "C-unwind" fn deinit_device(_: *mut CDevice) -> Status {
    SUCCESS
}

unsafe extern "C-unwind" fn set_device(at: *mut CDevice) -> Status {
    call("set_device", || {
        // SAFETY: see `init_device`.
        let device = unsafe { device(at) }?;
        CURRENT.set(device.index() as i32);
        Ok(())
    })
}

unsafe extern "C-unwind" fn get_device(at: *mut CDevice) -> Status {
    // SAFETY: see `init_device`.
    unsafe { (*at).id = CURRENT.get() };
    SUCCESS
}

/// Addresses of the streams that are in use.
static STREAMS: RwLock<BTreeSet<usize>> = RwLock::new(BTreeSet::new());

/// Whether this is a stream, and not something else that was taken for one.
fn is_live(stream: CStream) -> bool {
    STREAMS.read().unwrap_or_else(PoisonError::into_inner).contains(&stream.addr())
}

unsafe extern "C-unwind" fn create_stream(at: *const CDevice, stream: *mut CStream) -> Status {
    call("create_stream", || {
        // SAFETY: see `init_device`.
        let made = Box::into_raw(Box::new(Stream { queue: unsafe { device(at) }?.new_queue() }));
        // A fork meanwhile would leave the lock to a thread that the child has not.
        let _section = openmps_runtime::fork::section();
        STREAMS.write().unwrap_or_else(PoisonError::into_inner).insert(made.addr());
        // SAFETY: the pointer is Paddle's to fill.
        unsafe { *stream = made.cast() };
        Ok(())
    })
}

unsafe extern "C-unwind" fn destroy_stream(_: *const CDevice, stream: CStream) -> Status {
    call("destroy_stream", || {
        {
            let _section = openmps_runtime::fork::section();
            STREAMS.write().unwrap_or_else(PoisonError::into_inner).remove(&stream.addr());
        }
        // SAFETY: made by `create_stream`, and Paddle gives it up here.
        unsafe { Box::from_raw(stream.cast::<Stream>()) }.queue.synchronize()
    })
}

unsafe extern "C-unwind" fn query_stream(_: *const CDevice, stream: CStream) -> Status {
    // SAFETY: see `init_device`.
    ask("query_stream", || unsafe { queue(stream) }.is_idle())
}

unsafe extern "C-unwind" fn stream_add_callback(
    at: *const CDevice,
    stream: CStream,
    callback: CCallback,
    data: *mut c_void,
) -> Status {
    struct Call(*const CDevice, CStream, CCallback, *mut c_void);
    // SAFETY: Paddle's callback may run on any thread; its data belongs to it alone.
    unsafe impl Send for Call {}
    impl Call {
        fn run(self) {
            let mut status = SUCCESS;
            // SAFETY: Paddle's function with Paddle's arguments, which live until it has run.
            unsafe { self.2(self.0, self.1, self.3, &mut status) };
        }
    }
    let call_later = Call(at, stream, callback, data);
    // SAFETY: see `init_device`.
    call("stream_add_callback", || unsafe { queue(stream) }.add_callback(move || call_later.run()))
}

unsafe extern "C-unwind" fn create_event(_: *const CDevice, event: *mut CEvent) -> Status {
    call("create_event", || {
        // SAFETY: see `init_device`.
        unsafe { *event = Box::into_raw(Box::new(Event::new())).cast() };
        Ok(())
    })
}

unsafe extern "C-unwind" fn destroy_event(_: *const CDevice, event: CEvent) -> Status {
    call("destroy_event", || {
        // SAFETY: made by `create_event`, and Paddle gives it up here.
        drop(unsafe { Box::from_raw(event.cast::<Event>()) });
        Ok(())
    })
}

unsafe extern "C-unwind" fn record_event(_: *const CDevice, stream: CStream, at: CEvent) -> Status {
    // SAFETY: see `init_device`.
    call("record_event", || unsafe { queue(stream).record(event(at)) })
}

unsafe extern "C-unwind" fn query_event(_: *const CDevice, at: CEvent) -> Status {
    // SAFETY: see `init_device`.
    ask("query_event", || Ok(unsafe { event(at) }.query()))
}

unsafe extern "C-unwind" fn synchronize_device(at: *mut CDevice) -> Status {
    // SAFETY: see `init_device`.
    call("synchronize_device", || unsafe { device(at) }?.synchronize())
}

unsafe extern "C-unwind" fn synchronize_stream(_: *const CDevice, stream: CStream) -> Status {
    // SAFETY: see `init_device`.
    call("synchronize_stream", || unsafe { queue(stream) }.synchronize())
}

unsafe extern "C-unwind" fn synchronize_event(_: *const CDevice, at: CEvent) -> Status {
    // SAFETY: see `init_device`.
    call("synchronize_event", || unsafe { event(at) }.synchronize())
}

unsafe extern "C-unwind" fn stream_wait_event(_: *const CDevice, stream: CStream, at: CEvent) -> Status {
    // SAFETY: see `init_device`.
    call("stream_wait_event", || unsafe { queue(stream).wait(event(at)) })
}

unsafe extern "C-unwind" fn get_device_count(count: *mut usize) -> Status {
    call("get_device_count", || {
        // SAFETY: see `init_device`.
        unsafe { *count = Device::all().len() };
        Ok(())
    })
}

unsafe extern "C-unwind" fn get_device_list(list: *mut usize) -> Status {
    call("get_device_list", || {
        for device in Device::all() {
            // SAFETY: Paddle's array holds as many numbers as `get_device_count` said.
            unsafe { *list.add(device.index()) = device.index() };
        }
        Ok(())
    })
}

unsafe extern "C-unwind" fn get_multi_process(at: *const CDevice, cores: *mut usize) -> Status {
    call("get_multi_process", || {
        // SAFETY: see `init_device`.
        unsafe { *cores = device(at)?.properties().cores };
        Ok(())
    })
}

unsafe extern "C-unwind" fn zero(_: *const CDevice, number: *mut usize) -> Status {
    // SAFETY: see `init_device`.
    unsafe { *number = 0 };
    SUCCESS
}

/// The argument is a C++ object with Paddle's defaults, which stay: `paddle.mps.get_device_properties` tells more.
unsafe extern "C-unwind" fn get_device_properties(_: *const CDevice, _: *mut c_void) -> Status {
    SUCCESS
}

unsafe extern "C-unwind" fn supported(_: *const CDevice, answer: *mut bool) -> Status {
    // SAFETY: see `init_device`.
    unsafe { *answer = true };
    SUCCESS
}
