//! A Metal that runs nothing, notes down everything that is said to it, and holds the speaker to Metal's rules: what breaks one is kept as a
//! violation. Tests of the encoder read both.

mod commands;
mod said;

pub use commands::RecordedCommands;
pub use said::Said;

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::interface::{Completed, Completion, Language, Metal, PipelineKey, PipelineLimits, Properties};
use crate::limits;
use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

thread_local! {
    /// Autorelease pools that are open on this thread.
    static POOLS: Cell<usize> = const { Cell::new(0) };
}

/// Real memory under a recorded buffer.
pub struct Memory {
    /// A number of its own, for the record.
    pub number: u64,
    address: usize,
    bytes: usize,
    /// Host memory that was imported belongs to somebody else.
    owned: Option<Box<[u128]>>,
}

/// A recorded buffer. Equal to another when it is the same memory.
#[derive(Clone)]
pub struct RecordedBuffer(pub Arc<Memory>);

impl PartialEq for RecordedBuffer {
    fn eq(&self, other: &RecordedBuffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for RecordedBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.0.owned.is_some() { "own" } else { "imported" };
        write!(out, "buffer {} ({} bytes, {kind})", self.0.number, self.0.bytes)
    }
}

/// A command buffer that was committed and has not ended.
struct Pending {
    number: u64,
    label: String,
    buffers: Vec<Weak<Memory>>,
    completed: Completed,
}

#[derive(Default)]
struct Log {
    said: Vec<Said>,
    violations: Vec<String>,
    pending: VecDeque<Pending>,
    /// Numbers of the command buffers that are to end with an error.
    failing: Vec<(u64, Error)>,
    pools_opened: u64,
    pools_closed: u64,
    command_buffers: u64,
    open_command_buffers: u64,
    pipelines: Vec<String>,
    executables: usize,
    failing_kernels: Vec<String>,
    /// What was compiled since the pipelines were saved last.
    unsaved: Vec<PipelineKey>,
}

/// Pipelines on a disk that the recorders of a test share, as processes do.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<HashSet<PipelineKey>>>);

impl Disk {
    /// How many pipelines are on it.
    pub fn pipelines(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<PipelineKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The recorder, which is at the same time the test's handle: clones are the same.
#[derive(Clone)]
pub struct Recorder {
    properties: Arc<Properties>,
    log: Arc<Mutex<Log>>,
    memory: Arc<AtomicU64>,
    disk: Disk,
}

/// The properties of an M2 under macOS 15.
pub fn properties() -> Properties {
    Properties {
        name: "recorder".to_string(),
        registry: 1,
        unified_memory: true,
        working_set: 16 << 30,
        max_buffer: 8 << 30,
        max_threads: [1024, 1024, 1024],
        max_threadgroup_memory: limits::THREADGROUP_MEMORY,
        cores: 10,
        family: 8,
        architecture: "applegpu_g14g".to_string(),
        bfloat: true,
        coherence: true,
        tensor_offsets: true,
        attention: true,
        long_products: true,
        long_convolutions: true,
        tensor_operations: false,
        os_build: String::new(),
        mps: true,
    }
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new(properties())
    }
}

impl Recorder {
    /// A recorder with these properties.
    pub fn new(properties: Properties) -> Recorder {
        Recorder {
            properties: Arc::new(properties),
            log: Arc::default(),
            memory: Arc::default(),
            disk: Disk::default(),
        }
    }

    /// A recorder that finds on a disk what others have saved there.
    pub fn with_disk(disk: &Disk) -> Recorder {
        Recorder { disk: disk.clone(), ..Recorder::default() }
    }

    /// Everything said so far, in order.
    pub fn said(&self) -> Vec<Said> {
        self.lock().said.clone()
    }

    /// Rules of Metal's that were broken so far.
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Autorelease pools opened and closed so far.
    pub fn pools(&self) -> (u64, u64) {
        let log = self.lock();
        (log.pools_opened, log.pools_closed)
    }

    /// Entries of the pipelines that were compiled, in order.
    pub fn pipelines(&self) -> Vec<String> {
        self.lock().pipelines.clone()
    }

    /// How many graphs were compiled.
    pub fn executables(&self) -> usize {
        self.lock().executables
    }

    /// Command buffers that take commands, and those that were committed and have not ended.
    pub fn outstanding(&self) -> (u64, usize) {
        let log = self.lock();
        (log.open_command_buffers, log.pending.len())
    }

    /// Lets the command buffer with this number (from 0 on, in the order of their making) end with an error.
    pub fn fail_command_buffer(&self, number: u64, error: Error) {
        self.lock().failing.push((number, error));
    }

    /// Lets a kernel's compilation fail.
    pub fn fail_kernel(&self, entry: &str) {
        self.lock().failing_kernels.push(entry.to_string());
    }

    /// Ends the oldest command buffer; false when there is none.
    pub fn complete_one(&self) -> bool {
        let mut log = self.lock();
        let Some(pending) = log.pending.pop_front() else { return false };
        let failing = log.failing.iter().position(|(number, _)| *number == pending.number);
        let error = failing.map(|at| log.failing.remove(at).1);
        if pending.buffers.iter().any(|buffer| buffer.strong_count() == 0) {
            log.violations.push(format!("{} used a buffer that went before it ended", pending.label));
        }
        log.said.push(Said::Ended(pending.label.clone()));
        drop(log);
        let start = pending.number as f64;
        (pending.completed)(Completion { error, gpu_start: start, gpu_end: start + 0.5 });
        true
    }

    /// Ends every command buffer.
    pub fn complete(&self) {
        while self.complete_one() {}
    }

    pub(crate) fn say(&self, said: Said) {
        self.lock().said.push(said);
    }

    pub(crate) fn violate(&self, what: String) {
        self.lock().violations.push(what);
    }

    /// Notes a violation where no autorelease pool is open on this thread.
    pub(crate) fn in_pool(&self, call: &str) {
        if POOLS.get() == 0 {
            self.violate(format!("{call} outside an autorelease pool"));
        }
    }

    pub(crate) fn commit(&self, number: u64, label: String, buffers: Vec<Weak<Memory>>, completed: Completed) {
        let mut log = self.lock();
        log.said.push(Said::Commit(label.clone()));
        log.open_command_buffers -= 1;
        log.pending.push_back(Pending { number, label, buffers, completed });
    }

    pub(crate) fn drop_open(&self, label: &str) {
        let mut log = self.lock();
        log.open_command_buffers -= 1;
        log.violations.push(format!("{label} was never committed"));
    }

    fn remember(&self, address: usize, bytes: usize, owned: Option<Box<[u128]>>) -> RecordedBuffer {
        let number = self.memory.fetch_add(1, Ordering::Relaxed);
        RecordedBuffer(Arc::new(Memory { number, address, bytes, owned }))
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A committed command buffer's number.
pub struct RecordedCommit(pub(crate) u64);

/// A shared event that nobody sets.
#[derive(Clone, Default)]
pub struct RecordedEvent(Arc<AtomicU64>);

// SAFETY: buffers are memory of the host, owned by their handles.
unsafe impl Metal for Recorder {
    type Buffer = RecordedBuffer;
    type Pipeline = Arc<PipelineKey>;
    type Queue = String;
    type CommandBuffer = RecordedCommands;
    type Committed = RecordedCommit;
    type Event = RecordedEvent;
    type Executable = Arc<Graph>;

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn autorelease_pool<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Closes the pool when a panic unwinds, too, as Objective-C's does.
        struct Close<'a>(&'a Recorder);
        impl Drop for Close<'_> {
            fn drop(&mut self) {
                POOLS.set(POOLS.get() - 1);
                self.0.lock().pools_closed += 1;
            }
        }
        POOLS.set(POOLS.get() + 1);
        self.lock().pools_opened += 1;
        let _close = Close(self);
        work()
    }

    fn allocate(&self, bytes: usize) -> Result<RecordedBuffer> {
        self.in_pool("allocate");
        if bytes > self.properties.max_buffer {
            return Err(Error::OutOfMemory { bytes, limit: self.properties.max_buffer });
        }
        let mut memory = vec![0u128; bytes.div_ceil(size_of::<u128>())].into_boxed_slice();
        let address = memory.as_mut_ptr() as usize;
        Ok(self.remember(address, bytes, Some(memory)))
    }

    unsafe fn import(&self, address: NonNull<u8>, bytes: usize) -> Result<RecordedBuffer> {
        self.in_pool("import");
        let (address, page) = (address.as_ptr() as usize, limits::PAGE);
        if !address.is_multiple_of(page) || !bytes.is_multiple_of(page) || bytes == 0 {
            return Err(Error::NotPageAligned { address, bytes, page });
        }
        Ok(self.remember(address, bytes, None))
    }

    fn contents(&self, buffer: &RecordedBuffer) -> (usize, usize) {
        (buffer.0.address, buffer.0.bytes)
    }

    fn pipeline(&self, key: &PipelineKey) -> Result<Arc<PipelineKey>> {
        self.in_pool("pipeline");
        let mut log = self.lock();
        if log.failing_kernels.contains(&key.entry) {
            return Err(Error::Library { entry: key.entry.clone(), message: "it was told to fail".to_string() });
        }
        if !self.disk.lock().contains(key) {
            log.pipelines.push(key.entry.clone());
            log.unsaved.push(key.clone());
        }
        Ok(Arc::new(key.clone()))
    }

    fn kernel_names(&self, _source: &str, _language: Language) -> Result<Vec<String>> {
        Err(Error::Unsupported { what: "the names of a library's kernels", device: "the recorder".to_string() })
    }

    fn pipeline_limits(&self, key: &Arc<PipelineKey>) -> PipelineLimits {
        let max_threads = limits::most_threads(key.threads);
        PipelineLimits { max_threads, simd_width: limits::SIMD_WIDTH, static_threadgroup_memory: 0 }
    }

    fn executable(&self, graph: &Graph) -> Result<Arc<Graph>> {
        self.in_pool("executable");
        self.lock().executables += 1;
        Ok(Arc::new(graph.clone()))
    }

    fn queue(&self, label: &str, _in_flight: usize) -> Result<String> {
        self.in_pool("queue");
        Ok(label.to_string())
    }

    fn command_buffer(&self, _queue: &String, label: &str) -> Result<RecordedCommands> {
        self.in_pool("command_buffer");
        let mut log = self.lock();
        log.said.push(Said::CommandBuffer(label.to_string()));
        let number = log.command_buffers;
        log.command_buffers += 1;
        log.open_command_buffers += 1;
        Ok(RecordedCommands::new(self.clone(), number, label.to_string()))
    }

    fn ends_by_itself(&self) -> bool {
        false
    }

    /// Ends command buffers up to this one.
    fn wait(&self, committed: &RecordedCommit) {
        self.in_pool("wait");
        while self.lock().pending.front().is_some_and(|oldest| oldest.number <= committed.0) {
            self.complete_one();
        }
    }

    fn event(&self) -> Result<RecordedEvent> {
        self.in_pool("event");
        Ok(RecordedEvent::default())
    }

    fn event_value(&self, event: &RecordedEvent) -> u64 {
        event.0.load(Ordering::Acquire)
    }

    fn wait_event(&self, event: &RecordedEvent, value: u64, _timeout: Duration) -> bool {
        self.complete();
        self.event_value(event) >= value
    }

    fn save_pipelines(&self) -> Result<()> {
        self.in_pool("save_pipelines");
        let unsaved = std::mem::take(&mut self.lock().unsaved);
        if unsaved.is_empty() {
            return Ok(());
        }
        self.say(Said::Save(unsaved.len()));
        self.disk.lock().extend(unsaved);
        Ok(())
    }

    fn begin_capture(&self, queue: &String, file: &Path) -> Result<()> {
        self.say(Said::Capture(format!("{queue} into {}", file.display())));
        Ok(())
    }

    fn end_capture(&self) {
        self.say(Said::EndCapture);
    }
}

impl RecordedEvent {
    pub(crate) fn set(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Release);
    }
}
