//! Operations by NVIDIA's library, on a stream of the rank's GPU. What it lacks, or answers otherwise than the other transports do, is left to
//! them: 16-bit integers, averages of integers, products of complex numbers, and extremes of floats, of which it drops a NaN.

mod api;

use crate::algorithm::Member;
use crate::element::{ElementType, Reduction};
use crate::error::{Error, Result};
use crate::request::{Message, Request};
use crate::task::{Part, size};
use crate::watch::Watch;
use api::{Api, Handle, Id, Status};
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a guard looks whether the communicator has failed.
const INTERVAL: Duration = Duration::from_millis(50);
/// `ncclInProgress`: no error.
const IN_PROGRESS: Status = 7;
/// `ncclUint8`, as which everything moves that is not reduced.
const BYTES: c_int = 1;

/// The bytes by which ranks find each other, made by one of them.
pub(crate) type Bytes = [u8; 128];

/// The library's communicator, with a thread that ends it where a rank has failed: its kernels would wait for ever.
pub(crate) struct Gpus {
    shared: Arc<Shared>,
    guard: Option<JoinHandle<()>>,
}

struct Shared {
    api: &'static Api,
    /// The address of the communicator, while it can be used.
    communicator: Mutex<Option<usize>>,
    ends: Condvar,
    watch: Arc<Watch>,
    limit: Duration,
}

/// Whether the library is there.
pub(crate) fn is_there() -> Result<()> {
    Api::get().map(|_| ())
}

/// New bytes to find each other by.
pub(crate) fn unique_bytes() -> Result<Bytes> {
    let (api, mut id) = (Api::get()?, Id([0; 128]));
    // SAFETY: writes the id.
    api.check("ncclGetUniqueId", unsafe { (api.unique_id)(&mut id) }, std::ptr::null_mut())?;
    Ok(id.0)
}

impl Gpus {
    /// Comes together with the other ranks. The context of this rank's GPU is current.
    pub fn join(bytes: Bytes, member: Member, watch: Arc<Watch>, limit: Duration) -> Result<Gpus> {
        let (api, mut handle) = (Api::get()?, std::ptr::null_mut());
        let Member { rank, ranks } = member;
        // SAFETY: writes one handle; the id was made by the library.
        let status = unsafe { (api.init)(&mut handle, ranks as c_int, Id(bytes), rank as c_int) };
        api.check("ncclCommInitRank", status, std::ptr::null_mut())?;
        let communicator = Mutex::new(Some(handle as usize));
        let shared = Arc::new(Shared { api, communicator, ends: Condvar::new(), watch, limit });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name(format!("openmps-nccl-{rank}"));
        let guard = thread.spawn(move || of_thread.guard()).map_err(Error::system("a thread"))?;
        Ok(Gpus { shared, guard: Some(guard) })
    }

    /// Puts an operation on a stream; none where the library has no such.
    ///
    /// # Safety
    /// The memory of the request is the GPU's, for commands of the stream, which is one of the current context.
    pub unsafe fn submit(&self, request: &Request<'_>, stream: usize) -> Result<Option<()>> {
        if !has(request) {
            return Ok(None);
        }
        let communicator = self.shared.lock();
        let Some(handle) = *communicator else {
            let ended = || Error::Transport { name: "nccl", reason: "the communicator has ended".to_owned() };
            return Err(self.shared.watch.failure().unwrap_or_else(ended));
        };
        let call = Call { api: self.shared.api, handle: handle as Handle, stream: stream as Handle };
        // SAFETY: the caller's promise; the lock keeps the communicator alive.
        let result = unsafe { call.run(request) };
        drop(communicator);
        result.map(Some).map_err(|error| self.shared.watch.fail(error))
    }

    /// Leaves everything to the process that made it.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Gpus {
    fn drop(&mut self) {
        if let Some(handle) = self.shared.lock().take() {
            let (api, handle) = (self.shared.api, handle as Handle);
            let failed = self.shared.watch.failure().is_some();
            // SAFETY: the handle was taken out, so it is ended once. What is on streams ends first, or is given up.
            unsafe { if failed { (api.abort)(handle) } else { (api.destroy)(handle) } };
        }
        self.shared.ends.notify_all();
        if let Some(guard) = self.guard.take() {
            // A panic of it was said already.
            let _ = guard.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<usize>> {
        self.communicator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard(&self) {
        let mut communicator = self.lock();
        while let Some(handle) = *communicator {
            if let Some(silent) = self.watch.silent(self.limit, "an operation of a stream") {
                self.watch.fail(silent);
            }
            if self.watch.failure().is_some() || self.has_failed(handle as Handle) {
                *communicator = None;
                // SAFETY: the handle was taken out under the lock, so nobody uses it any more; kernels that wait end.
                unsafe { (self.api.abort)(handle as Handle) };
                return;
            }
            communicator = self.ends.wait_timeout(communicator, INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether something went wrong on a stream, which all ranks are told then.
    fn has_failed(&self, handle: Handle) -> bool {
        let mut error: Status = 0;
        // SAFETY: a live communicator; writes one number.
        let asked = unsafe { (self.api.asynchronous_error)(handle, &mut error) };
        if (asked, error) == (0, IN_PROGRESS) {
            return false;
        }
        let result = self.api.check("a stream's operation", if asked == 0 { error } else { asked }, handle);
        result.map_err(|error| self.watch.fail(error)).is_err()
    }
}

/// Where calls of one request go.
struct Call {
    api: &'static Api,
    handle: Handle,
    stream: Handle,
}

impl Call {
    /// # Safety
    /// As for [`Gpus::submit`]; `has` was asked.
    unsafe fn run(&self, request: &Request<'_>) -> Result<()> {
        let &Call { api, handle, stream } = self;
        let check = |name, status| api.check(name, status, handle);
        // SAFETY: the caller's promise, for each of these.
        unsafe {
            match *request {
                Request::AllReduce { input, output, count, element, reduction } => {
                    let Some((kind, operation, each)) = reduced(element, reduction) else { return Ok(()) };
                    let (input, output, count) = (input.cast(), output.cast(), count * each);
                    check("ncclAllReduce", (api.all_reduce)(input, output, count, kind, operation, handle, stream))
                }
                Request::Reduce { input, output, count, element, reduction, root } => {
                    let Some((kind, operation, each)) = reduced(element, reduction) else { return Ok(()) };
                    let (input, output, count, root) = (input.cast(), output.cast(), count * each, root as c_int);
                    check("ncclReduce", (api.reduce)(input, output, count, kind, operation, root, handle, stream))
                }
                Request::ReduceScatter { input, output, count, element, reduction } => {
                    let Some((kind, operation, each)) = reduced(element, reduction) else { return Ok(()) };
                    let (input, output, count) = (input.cast(), output.cast(), count * each);
                    let status = (api.reduce_scatter)(input, output, count, kind, operation, handle, stream);
                    check("ncclReduceScatter", status)
                }
                Request::Broadcast { memory, count, element, root } => {
                    let (memory, bytes, root) = (memory.cast(), size(count, element)?, root as c_int);
                    check("ncclBroadcast", (api.broadcast)(memory, memory, bytes, BYTES, root, handle, stream))
                }
                Request::AllGather { input, output, count, element } => {
                    let (input, output, bytes) = (input.cast(), output.cast(), size(count, element)?);
                    check("ncclAllGather", (api.all_gather)(input, output, bytes, BYTES, handle, stream))
                }
                Request::AllToAll { sends, receives } => {
                    let send = |(to, part): (usize, &Part)| Message::Send { to, part: *part };
                    let receive = |(from, part): (usize, &Part)| Message::Receive { from, part: *part };
                    let sends = sends.iter().enumerate().map(send);
                    self.group(sends.chain(receives.iter().enumerate().map(receive)))
                }
                Request::Messages(messages) => self.group(messages.iter().copied()),
            }
        }
    }

    /// Sends and receives at once. A group that was begun is ended, whatever happens.
    ///
    /// # Safety
    /// As for [`Gpus::submit`].
    unsafe fn group(&self, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        let &Call { api, handle, stream } = self;
        let one = |message| match message {
            Message::Send { to, part: Part { address, count, element } } => {
                let bytes = size(count, element)?;
                // SAFETY: the caller's promise.
                let status = unsafe { (api.send)(address.cast(), bytes, BYTES, to as c_int, handle, stream) };
                api.check("ncclSend", status, handle)
            }
            Message::Receive { from, part: Part { address, count, element } } => {
                let bytes = size(count, element)?;
                // SAFETY: the caller's promise.
                let status = unsafe { (api.receive)(address.cast(), bytes, BYTES, from as c_int, handle, stream) };
                api.check("ncclRecv", status, handle)
            }
        };
        // SAFETY: takes nothing; ended below.
        api.check("ncclGroupStart", unsafe { (api.group_start)() }, handle)?;
        let called = messages.try_for_each(one);
        // SAFETY: a group was begun on this thread.
        let ended = api.check("ncclGroupEnd", unsafe { (api.group_end)() }, handle);
        called.and(ended)
    }
}

/// Whether the library has an operation: the same answer on all ranks, since it goes by what all ranks say alike.
fn has(request: &Request<'_>) -> bool {
    match *request {
        Request::AllReduce { element, reduction, .. }
        | Request::Reduce { element, reduction, .. }
        | Request::ReduceScatter { element, reduction, .. } => reduced(element, reduction).is_some(),
        _ => true,
    }
}

/// How the library reduces elements: its number of the type, that of the operation, and how many numbers an element is.
fn reduced(element: ElementType, reduction: Reduction) -> Option<(c_int, c_int, usize)> {
    use ElementType::*;
    let (kind, each) = match element {
        I8 => (0, 1),
        Bool | U8 => (BYTES, 1),
        I32 => (2, 1),
        U32 => (3, 1),
        I64 => (4, 1),
        U64 => (5, 1),
        F16 => (6, 1),
        F32 => (7, 1),
        F64 => (8, 1),
        BF16 => (9, 1),
        Complex64 => (7, 2),
        Complex128 => (8, 2),
        I16 | U16 => return None,
    };
    let [sum, product, maximum, minimum, average]: [c_int; 5] = [0, 1, 2, 3, 4];
    let is_float = matches!(element, F16 | F32 | F64 | BF16 | Complex64 | Complex128);
    let operation = match reduction {
        // Of booleans "or" and "and".
        Reduction::Sum | Reduction::Maximum if element == Bool => maximum,
        Reduction::Product | Reduction::Minimum if element == Bool => minimum,
        Reduction::Sum => sum,
        Reduction::Product if each == 1 => product,
        Reduction::Average if is_float => average,
        Reduction::Maximum if !is_float => maximum,
        Reduction::Minimum if !is_float => minimum,
        _ => return None,
    };
    Some((kind, operation, each))
}
