//! The part of Paddle's device interface that `paddle.profiler` asks: the commands of a profiled part of a program, as events of the device.
//!
//! An event goes to Paddle as a C++ structure (PaddlePaddle 3's `phi/api/profiler/trace_event.h`). Each command is two: a call on the
//! thread that made it, which Paddle places among that thread's operators, and what the device did, which it finds by the call's number.

use super::call;
use crate::abi::device_ext::DeviceInterface;
use crate::abi::symbols;
use crate::abi::types::Status;
use openmps_runtime::CommandKind;
use openmps_runtime::trace::{Record, Recorder};
use std::ffi::CString;
use std::os::raw::{c_char, c_int, c_void};

/// Fills these members of the interface, where this Paddle takes events.
pub(super) fn fill(interface: &mut DeviceInterface) {
    if Sink::find().is_none() {
        return;
    }
    interface.profiler_initialize = Some(initialize);
    interface.profiler_finalize = Some(finalize);
    interface.profiler_prepare_tracing = Some(prepare);
    interface.profiler_start_tracing = Some(start);
    interface.profiler_stop_tracing = Some(stop);
    interface.profiler_collect_trace_data = Some(collect);
}

/// What a profiler of Paddle holds of this device.
#[derive(Default)]
struct Profile {
    recorder: Option<Recorder>,
    records: Vec<Record>,
}

unsafe extern "C-unwind" fn initialize(_: *mut c_void, profile: *mut *mut c_void) -> Status {
    call("profiler_initialize", || {
        // SAFETY (here and below): the pointers are what `device_ext.h` says they are, valid for the call.
        // SAFETY: Paddle keeps this pointer, and hands it to the other functions until `finalize`.
        unsafe { *profile = Box::into_raw(Box::<Profile>::default()).cast() };
        Ok(())
    })
}

unsafe extern "C-unwind" fn finalize(_: *mut c_void, profile: *mut c_void) -> Status {
    call("profiler_finalize", || {
        if !profile.is_null() {
            // SAFETY: `initialize` made it, and Paddle finalizes once.
            drop(unsafe { Box::from_raw(profile.cast::<Profile>()) });
        }
        Ok(())
    })
}

unsafe extern "C-unwind" fn prepare(_: *mut c_void, _: *mut c_void) -> Status {
    call("profiler_prepare_tracing", || Ok(()))
}

unsafe extern "C-unwind" fn start(_: *mut c_void, profile: *mut c_void) -> Status {
    call("profiler_start_tracing", || {
        // SAFETY: see `initialize`; one thread controls a profiler.
        let profile = unsafe { &mut *profile.cast::<Profile>() };
        profile.records.clear();
        profile.recorder = Some(Recorder::start()?);
        Ok(())
    })
}

unsafe extern "C-unwind" fn stop(_: *mut c_void, profile: *mut c_void) -> Status {
    call("profiler_stop_tracing", || {
        // SAFETY: see `start`.
        let profile = unsafe { &mut *profile.cast::<Profile>() };
        profile.records = profile.recorder.take().map(Recorder::stop).unwrap_or_default();
        Ok(())
    })
}

unsafe extern "C-unwind" fn collect(collector: *mut c_void, since_ns: u64, profile: *mut c_void) -> Status {
    call("profiler_collect_trace_data", || {
        // SAFETY: see `start`.
        let records = std::mem::take(unsafe { &mut (*profile.cast::<Profile>()).records });
        let Some(sink) = Sink::find() else { return Ok(()) };
        for (record, number) in records.iter().filter(|record| record.begin_ns >= since_ns).zip(1..) {
            // SAFETY: the collector is Paddle's, for which the sink's functions are.
            unsafe { sink.add(collector, record, number) };
        }
        Ok(())
    })
}

type Add = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

/// Where events go.
struct Sink {
    add_call: Add,
    add_device: Add,
}

impl Sink {
    /// Paddle's functions; none in one that has no profiler of plug-in devices, or where its strings are not libstdc++'s.
    fn find() -> Option<Sink> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        // SAFETY: the types are those of `device_ext.h`.
        unsafe {
            Some(Sink {
                add_call: symbols::optional("profiler_add_runtime_trace_event")?,
                add_device: symbols::optional("profiler_add_device_trace_event")?,
            })
        }
    }

    /// Adds both events of a record, which Paddle copies.
    ///
    /// # Safety
    /// The collector is one of Paddle's, in use by this thread alone.
    unsafe fn add(&self, collector: *mut c_void, record: &Record, number: u32) {
        let text = CString::new(record.operation).unwrap_or_default();
        let name =
            Text { first: text.as_ptr(), length: text.as_bytes().len(), capacity: text.as_bytes().len(), rest: 0 };
        let &Record { begin_ns, end_ns, thread, .. } = record;
        let process = std::process::id().into();
        let mut of_call = CallEvent { name, kind: CALL, begin_ns, end_ns, process, thread, number, callback: 0 };
        let (device, queue, (kind, detail)) = (record.device as u64, record.queue, Detail::of(record));
        let mut of_device = DeviceEvent { name, kind, begin_ns, end_ns, device, context: 0, queue, number, detail };
        // SAFETY: the structures are those of `trace_event.h`; both functions copy them, with the text, which lives as long as this call.
        unsafe {
            (self.add_call)(collector, (&raw mut of_call).cast());
            (self.add_device)(collector, (&raw mut of_device).cast());
        }
    }
}

/// A `std::string` of libstdc++, good for being copied: nobody may change or destroy it, as its text is not its own.
#[derive(Clone, Copy)]
#[repr(C)]
struct Text {
    first: *const c_char,
    length: usize,
    capacity: usize,
    rest: u64,
}

/// `phi::RuntimeTraceEvent`.
#[repr(C)]
struct CallEvent {
    name: Text,
    kind: c_int,
    begin_ns: u64,
    end_ns: u64,
    process: u64,
    thread: u64,
    number: u32,
    callback: u32,
}

/// `phi::DeviceTraceEvent`.
#[repr(C)]
struct DeviceEvent {
    name: Text,
    kind: c_int,
    begin_ns: u64,
    end_ns: u64,
    device: u64,
    context: u64,
    queue: u64,
    number: u32,
    detail: Detail,
}

// Values of `phi::TracerEventType`.
const CALL: c_int = 3;
const KERNEL: c_int = 4;
const COPY: c_int = 5;
const FILL: c_int = 6;

/// The union at the end of `phi::DeviceTraceEvent`.
#[repr(C)]
union Detail {
    kernel: [u64; 11],
    copy: CopyDetail,
    fill: FillDetail,
}

/// A name of memory, or of a way between two.
type Memory = [u8; 50];

#[derive(Clone, Copy)]
#[repr(C)]
struct CopyDetail {
    bytes: u64,
    way: Memory,
    source: Memory,
    destination: Memory,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct FillDetail {
    bytes: u64,
    memory: Memory,
    value: u32,
}

// The sizes that a C++ compiler gives those structures on x86-64 and aarch64.
const _: () = assert!(size_of::<CallEvent>() == 80 && size_of::<DeviceEvent>() == 248 && size_of::<Detail>() == 160);

impl Detail {
    /// What Paddle calls a command, and says of it.
    fn of(record: &Record) -> (c_int, Detail) {
        let bytes = record.bytes.unwrap_or(0) as u64;
        let [host, device] = ["Pageable", "Device"].map(memory);
        let copy = |way, source, destination| {
            (COPY, Detail { copy: CopyDetail { bytes, way: memory(way), source, destination } })
        };
        match record.kind {
            CommandKind::Copy => copy("DtoD", device, device),
            CommandKind::Write => copy("HtoD", host, device),
            CommandKind::Read => copy("DtoH", device, host),
            CommandKind::Fill => (FILL, Detail { fill: FillDetail { bytes, memory: device, value: 0 } }),
            // Paddle shows threads and registers of kernels, which are not the same ones from call to call here.
            _ => (KERNEL, Detail { kernel: [0; 11] }),
        }
    }
}

/// A name with zero bytes behind it.
fn memory(name: &str) -> Memory {
    std::array::from_fn(|i| name.as_bytes().get(i).copied().unwrap_or(0))
}
