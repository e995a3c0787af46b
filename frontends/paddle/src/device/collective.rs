//! The part of Paddle's device interface that is communication: the fifteen `xccl` functions over `openmps_collective`.
//!
//! Each runs in the order of the stream that it is given: on the host device at once, elsewhere after the stream's commands so far, on the
//! memory that the CPU shares with the device. Errors are thrown at Paddle with their text, which a status has no room for.

mod group;

use super::{call, queue};
use crate::abi::device_ext::{CComm, CRootId, CStream, Collectives, DeviceInterface};
use crate::abi::exception::{self, Code};
use crate::abi::symbols;
use crate::abi::types::{FAILED, SUCCESS, Status};
use crate::abi::unwind::{catch_panic, payload_text};
use openmps_collective::{
    Communicator, ElementType, Error, Options, Part, Reduction, Request, Result, TransportKind, UNIQUE_ID_BYTES,
    UniqueId,
};
use openmps_runtime::{Backend, Queue};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::os::raw::{c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

/// Bytes that Paddle has for a communicator's name.
const NAME_BYTES: usize = 128;

/// Fills these members of the interface.
pub(super) fn fill(interface: &mut DeviceInterface) {
    interface.collectives = Collectives {
        get_comm_name: Some(get_comm_name),
        get_unique_id_size: Some(get_unique_id_size),
        get_unique_id: Some(get_unique_id),
        comm_init_rank: Some(comm_init_rank),
        destroy_comm: Some(destroy_comm),
        all_reduce: Some(all_reduce),
        broadcast: Some(broadcast),
        reduce: Some(reduce),
        all_gather: Some(all_gather),
        reduce_scatter: Some(reduce_scatter),
        group_start: Some(group::group_start),
        group_end: Some(group::group_end),
        send: Some(group::send),
        recv: Some(group::recv),
        all_to_all: Some(all_to_all),
    };
}

/// Runs one call of the interface; its error and its panic become the C++ exception that Paddle turns into a Python one.
///
/// # Safety
/// Called from C++ by way of `extern "C-unwind"`.
unsafe fn guard(operation: &'static str, work: impl FnOnce() -> Result<()>) -> Status {
    let (code, text) = match catch_panic(work) {
        Ok(Ok(())) => return SUCCESS,
        Ok(Err(error)) => (code(&error), error.to_string()),
        Err(payload) => (Code::Fatal, format!("panicked: {}", payload_text(&payload))),
    };
    // SAFETY: the caller's promise.
    unsafe { exception::throw(code, &format!("mps: {operation}: {text}")) }
}

/// Which Python exception an error becomes.
pub(crate) fn code(error: &Error) -> Code {
    if matches!(error, Error::Argument(_)) { Code::InvalidArgument } else { Code::External }
}

/// `phi::detail::GetCCLComm(phi::Place const&, int)`: the communicator of a process group on a device, null where there is no such group. A Paddle
/// that is built without distributed training lacks it.
const GET_COMMUNICATOR: &str = "_ZN3phi6detail10GetCCLCommERKNS_5PlaceEi";

/// The communicator of Paddle's default group on a device.
///
/// # Safety
/// `place` is a live `phi::Place` of device `mps`.
pub(crate) unsafe fn default_group(place: *const c_void) -> Option<Arc<Communicator>> {
    type Get = unsafe extern "C-unwind" fn(*const c_void, c_int) -> CComm;
    static GET: OnceLock<Option<Get>> = OnceLock::new();
    // SAFETY: the type is that of the function in Paddle's header `sync_batch_norm_kernel.h`.
    let get = (*GET.get_or_init(|| unsafe { symbols::optional(GET_COMMUNICATOR) }))?;
    // SAFETY: the caller's promise; of a group of this device it is what `comm_init_rank` made.
    unsafe { get(place, 0).cast::<Arc<Communicator>>().as_ref() }.cloned()
}

/// # Safety
/// `comm` is a communicator that `comm_init_rank` made and `destroy_comm` has not taken.
unsafe fn communicator<'a>(comm: CComm) -> Result<&'a Arc<Communicator>> {
    // SAFETY: the caller's promise.
    unsafe { comm.cast::<Arc<Communicator>>().as_ref() }.ok_or_else(|| Error::Argument("no communicator".to_owned()))
}

fn element(number: c_int) -> Result<ElementType> {
    let element = usize::try_from(number).ok().and_then(ElementType::from_number);
    element.ok_or_else(|| Error::Argument(format!("no element type has number {number}")))
}

fn reduction(number: c_int) -> Result<Reduction> {
    let reduction = usize::try_from(number).ok().and_then(Reduction::from_number);
    reduction.ok_or_else(|| Error::Argument(format!("no reduction has number {number}")))
}

/// Runs an operation where the stream's order has it.
pub(crate) fn in_order(queue: &Queue, operation: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut result = Ok(());
    let ran = queue.run_native(operation, || {
        result = work();
        Ok(())
    });
    result.and(ran.map_err(|error| Error::System { what: "the stream", reason: error.to_string() }))
}

/// Runs an operation in the stream's order: on the stream, where the ranks' GPUs have it between them; else on the CPU.
///
/// # Safety
/// As for [`Communicator::perform`], on memory of the stream's order.
unsafe fn perform(
    communicator: &Communicator,
    queue: &Queue,
    operation: &'static str,
    request: &Request<'_>,
) -> Result<()> {
    if communicator.has_gpus()
        && let Some(stream) = queue.handle()
    {
        // SAFETY: the caller's promise; the handle is a stream whose context `handle` has made current.
        if unsafe { communicator.submit(request, stream) }?.is_some() {
            return Ok(());
        }
    }
    // SAFETY: the caller's promise.
    in_order(queue, operation, || unsafe { communicator.perform(request) })
}

/// The queue of this thread's device, which must be one of NVIDIA's GPUs.
fn queue_of_gpu() -> Result<Queue> {
    let refused = |reason: String| Error::Transport { name: "nccl", reason };
    let index = super::CURRENT.get() as usize;
    let device = openmps_runtime::Device::get(index).map_err(|error| refused(error.to_string()))?;
    match device.properties().backend {
        Backend::Cuda => Ok(device.queue()),
        other => Err(refused(format!("it is for NVIDIA's GPUs, and device {index} is {other:?}; use auto"))),
    }
}

/// The address at which the first rank of a communicator listens: as set, else that of Paddle's endpoint, else this machine for itself.
fn address() -> Result<IpAddr> {
    let endpoint = || std::env::var("PADDLE_CURRENT_ENDPOINT").ok().filter(|endpoint| !endpoint.is_empty());
    let (host, from) = match (openmps_settings::COLLECTIVE_ADDRESS.get(), endpoint()) {
        (Some(host), _) => (host, "OPENMPS_COLLECTIVE_ADDRESS"),
        (None, Some(endpoint)) => {
            (endpoint.rsplit_once(':').map_or(endpoint.clone(), |(host, _)| host.to_owned()), "PADDLE_CURRENT_ENDPOINT")
        }
        (None, None) => return Ok(Ipv4Addr::LOCALHOST.into()),
    };
    let host = host.trim_matches(['[', ']']);
    let found = (host, 0).to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    found.map(|address| address.ip()).ok_or_else(|| Error::Argument(format!("{from} has no address: {host:?}")))
}

unsafe extern "C-unwind" fn get_comm_name(comm: CComm, name: *mut c_char) -> Status {
    // SAFETY (here and in every function below): the pointers are what `device_ext.h` says they are, valid for the call.
    // SAFETY: see above; Paddle has 128 bytes for the name.
    unsafe {
        guard("get_comm_name", || {
            let communicator = communicator(comm)?;
            let text = communicator.name().as_bytes();
            let length = text.len().min(NAME_BYTES - 1);
            std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), length);
            *name.add(length) = 0;
            Ok(())
        })
    }
}

unsafe extern "C-unwind" fn get_unique_id_size(size: *mut usize) -> Status {
    // SAFETY: see `get_comm_name`.
    unsafe { *size = UNIQUE_ID_BYTES };
    SUCCESS
}

unsafe extern "C-unwind" fn get_unique_id(id: *mut CRootId) -> Status {
    // SAFETY: see `get_comm_name`; Paddle's memory has the size that it says.
    unsafe {
        guard("get_unique_id", || {
            let CRootId { bytes, data } = *id;
            if bytes < UNIQUE_ID_BYTES {
                return Err(Error::Argument(format!("{bytes} bytes have no room for a unique id")));
            }
            let made = UniqueId::listen(address()?)?.to_bytes();
            std::ptr::copy_nonoverlapping(made.as_ptr(), data.cast(), made.len());
            Ok(())
        })
    }
}

unsafe extern "C-unwind" fn comm_init_rank(ranks: usize, id: *mut CRootId, rank: usize, comm: *mut CComm) -> Status {
    // SAFETY: see `get_comm_name`; the id has the size that it says.
    unsafe {
        guard("comm_init_rank", || {
            let bytes = std::slice::from_raw_parts((*id).data.cast::<u8>(), (*id).bytes);
            let id = UniqueId::from_bytes(bytes.get(..UNIQUE_ID_BYTES).unwrap_or(bytes))?;
            let options = Options::from_settings()?;
            let gpu = if options.transport == TransportKind::Nccl { Some(queue_of_gpu()?) } else { None };
            let mut communicator = Communicator::new(&id, rank, ranks, &options)?;
            // The handle of a queue makes its GPU's context current.
            if gpu.is_some_and(|queue| queue.handle().is_some()) {
                communicator.join_gpus()?;
            }
            *comm = Box::into_raw(Box::new(Arc::new(communicator))).cast();
            Ok(())
        })
    }
}

/// Called where Paddle takes itself down, so its errors are a status.
unsafe extern "C-unwind" fn destroy_comm(comm: CComm) -> Status {
    if comm.is_null() {
        return FAILED;
    }
    call("destroy_comm", || {
        // SAFETY: made by `comm_init_rank`, and Paddle gives it up here.
        drop(unsafe { Box::from_raw(comm.cast::<Arc<Communicator>>()) });
        Ok(())
    })
}

unsafe extern "C-unwind" fn all_reduce(
    input: *mut c_void,
    output: *mut c_void,
    count: usize,
    data_type: c_int,
    operation: c_int,
    comm: CComm,
    stream: CStream,
) -> Status {
    // SAFETY: see `get_comm_name`; the memory is of the stream's order.
    unsafe {
        guard("all_reduce", || {
            let (element, reduction) = (element(data_type)?, reduction(operation)?);
            let communicator = communicator(comm)?;
            let (input, output) = (input.cast_const().cast(), output.cast());
            let request = Request::AllReduce { input, output, count, element, reduction };
            perform(communicator, queue(stream), "all_reduce", &request)
        })
    }
}

unsafe extern "C-unwind" fn broadcast(
    memory: *mut c_void,
    count: usize,
    data_type: c_int,
    root: usize,
    comm: CComm,
    stream: CStream,
) -> Status {
    // SAFETY: see `all_reduce`.
    unsafe {
        guard("broadcast", || {
            let (element, communicator) = (element(data_type)?, communicator(comm)?);
            let request = Request::Broadcast { memory: memory.cast(), count, element, root };
            perform(communicator, queue(stream), "broadcast", &request)
        })
    }
}

unsafe extern "C-unwind" fn reduce(
    input: *mut c_void,
    output: *mut c_void,
    count: usize,
    data_type: c_int,
    operation: c_int,
    root: usize,
    comm: CComm,
    stream: CStream,
) -> Status {
    // SAFETY: see `all_reduce`.
    unsafe {
        guard("reduce", || {
            let (element, reduction) = (element(data_type)?, reduction(operation)?);
            let communicator = communicator(comm)?;
            let (input, output) = (input.cast_const().cast(), output.cast());
            let request = Request::Reduce { input, output, count, element, reduction, root };
            perform(communicator, queue(stream), "reduce", &request)
        })
    }
}

unsafe extern "C-unwind" fn all_gather(
    input: *mut c_void,
    output: *mut c_void,
    count: usize,
    data_type: c_int,
    comm: CComm,
    stream: CStream,
) -> Status {
    // SAFETY: see `all_reduce`.
    unsafe {
        guard("all_gather", || {
            let (element, communicator) = (element(data_type)?, communicator(comm)?);
            let request =
                Request::AllGather { input: input.cast_const().cast(), output: output.cast(), count, element };
            perform(communicator, queue(stream), "all_gather", &request)
        })
    }
}

unsafe extern "C-unwind" fn reduce_scatter(
    input: *mut c_void,
    output: *mut c_void,
    count: usize,
    data_type: c_int,
    operation: c_int,
    comm: CComm,
    stream: CStream,
) -> Status {
    // SAFETY: see `all_reduce`.
    unsafe {
        guard("reduce_scatter", || {
            let (element, reduction) = (element(data_type)?, reduction(operation)?);
            let communicator = communicator(comm)?;
            let (input, output) = (input.cast_const().cast(), output.cast());
            let request = Request::ReduceScatter { input, output, count, element, reduction };
            perform(communicator, queue(stream), "reduce_scatter", &request)
        })
    }
}

/// # Safety
/// Each list has an entry for each of the ranks.
unsafe fn parts(
    ranks: usize,
    addresses: *const *mut c_void,
    counts: *const usize,
    data_types: *const c_int,
) -> Result<Vec<Part>> {
    // SAFETY: the caller's promise.
    let part = |rank| unsafe {
        let element = element(*data_types.add(rank))?;
        Ok(Part { address: (*addresses.add(rank)).cast(), count: *counts.add(rank), element })
    };
    (0..ranks).map(part).collect()
}

unsafe extern "C-unwind" fn all_to_all(
    send_addresses: *mut *const c_void,
    send_counts: *const usize,
    send_types: *const c_int,
    receive_addresses: *mut *mut c_void,
    receive_counts: *const usize,
    receive_types: *const c_int,
    _rank: usize,
    ranks: usize,
    comm: CComm,
    stream: CStream,
) -> Status {
    // SAFETY: see `all_reduce`; the lists have an entry for each rank.
    unsafe {
        guard("all_to_all", || {
            let sends = parts(ranks, send_addresses.cast_const().cast(), send_counts, send_types)?;
            let receives = parts(ranks, receive_addresses.cast_const(), receive_counts, receive_types)?;
            let communicator = communicator(comm)?;
            let request = Request::AllToAll { sends: &sends, receives: &receives };
            perform(communicator, queue(stream), "all_to_all", &request)
        })
    }
}
