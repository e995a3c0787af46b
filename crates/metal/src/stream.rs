//! A queue over the trait: batches commands into command buffers, keeps what they use alive until they have ended, puts barriers where
//! dispatches depend on each other, and delivers errors at the next synchronisation.

mod events;
mod staging;
mod transfers;
mod work;

pub use staging::Staged;
pub use transfers::pieces;

use crate::arguments::{self, Kernel, Resolved};
use crate::completions::{CompletionTracker, Deferred, StreamStatistics};
use crate::encode;
use crate::error::{Error, Result};
use crate::hazards::{Access, Hazards};
use crate::interface::{CommandBuffer, Completion, Grid, Metal, PipelineLimits};
use crate::limits;
use crate::matrix::{MatrixCall, Operand, TensorView};
use staging::Staging;
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// When commands are handed to the GPU without anybody waiting for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPolicy {
    /// Commands of a command buffer.
    pub commands: usize,
    /// Bytes that the commands of a command buffer touch, counted once a command.
    pub bytes: usize,
    /// Multiplications with an addition that its commands may do, by an estimate.
    pub multiplications: u64,
    /// Command buffers on their way at once; a further one waits for the oldest.
    pub in_flight: usize,
}

impl Default for CommitPolicy {
    /// A command buffer costs about 10 us and a dispatch under 1 us, so some tens of dispatches hide the cost; large ones go at once. The
    /// system ends a command buffer that keeps the GPU for seconds: 2^36 multiplications are a twentieth of one at the peak of an M1.
    fn default() -> CommitPolicy {
        CommitPolicy { commands: 48, bytes: 256 << 20, multiplications: 1 << 36, in_flight: 16 }
    }
}

/// A kernel with all that one run of it needs.
pub struct Launch<'a, M: Metal> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The compiled kernel.
    pub pipeline: &'a M::Pipeline,
    /// How large a threadgroup the compiled kernel allows.
    pub limits: PipelineLimits,
    /// Threadgroups along x, y and z.
    pub grid: Grid,
    /// One 64-bit value for each parameter: an address, or a scalar's bits.
    pub arguments: &'a [u64],
}

/// What the commands of one command buffer need until they have ended.
struct Kept<M: Metal> {
    buffers: HashMap<usize, M::Buffer>,
    values: Vec<Box<dyn Any + Send>>,
    callbacks: Vec<Box<dyn FnOnce() + Send>>,
}

impl<M: Metal> Default for Kept<M> {
    fn default() -> Kept<M> {
        Kept { buffers: HashMap::new(), values: Vec::new(), callbacks: Vec::new() }
    }
}

impl<M: Metal> Kept<M> {
    fn buffer(&mut self, metal: &M, buffer: &M::Buffer) {
        self.buffers.entry(metal.contents(buffer).0).or_insert_with(|| buffer.clone());
    }
}

/// The command buffer that takes commands now.
struct Open<M: Metal> {
    commands: M::CommandBuffer,
    kept: Kept<M>,
    hazards: Hazards,
    count: usize,
    bytes: usize,
    multiplications: u64,
}

struct State<M: Metal> {
    open: Option<Open<M>>,
    committed: VecDeque<M::Committed>,
    number: u64,
    /// How often the stream was recorded.
    records: u64,
}

/// An ordered stream of commands on one queue of Metal's. Every call may come from any thread.
pub struct Stream<M: Metal> {
    metal: Arc<M>,
    queue: M::Queue,
    label: String,
    policy: CommitPolicy,
    completions: Arc<CompletionTracker>,
    state: Mutex<State<M>>,
    staging: Mutex<Staging<M>>,
    /// Bound in the place of pointers behind which there is nothing.
    nothing: OnceLock<M::Buffer>,
    /// Set when the commands of a `record` have ended: to its number.
    timeline: OnceLock<M::Event>,
}

impl<M: Metal> Stream<M> {
    /// A stream on a queue of its own.
    pub fn new(metal: Arc<M>, label: &str, policy: CommitPolicy) -> Result<Stream<M>> {
        let policy = CommitPolicy { in_flight: policy.in_flight.max(1), ..policy };
        // Room beyond what the policy lets through: callbacks commit, too, and Metal would block them.
        let queue = metal.autorelease_pool(|| metal.queue(label, (2 * policy.in_flight).max(64)))?;
        let state = Mutex::new(State { open: None, committed: VecDeque::new(), number: 0, records: 0 });
        let (completions, label) = (Arc::new(CompletionTracker::default()), label.to_string());
        let (staging, nothing, timeline) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        Ok(Stream { metal, queue, label, policy, completions, state, staging, nothing, timeline })
    }

    /// The device.
    pub fn metal(&self) -> &Arc<M> {
        &self.metal
    }

    /// The queue itself, for captures.
    pub fn queue(&self) -> &M::Queue {
        &self.queue
    }

    /// Runs a kernel over a grid; an empty one is no command. `resolve` finds the buffer of an address.
    ///
    /// # Safety
    /// Under these arguments the kernel stays inside the buffers that `resolve` gives, as for [`CommandBuffer::dispatch`].
    pub unsafe fn dispatch(
        &self,
        launch: &Launch<'_, M>,
        resolve: impl Fn(usize) -> Option<Resolved<M::Buffer>>,
    ) -> Result<()> {
        let kernel = launch.kernel;
        let memory = kernel.given_threadgroup_memory();
        let device = self.metal.properties();
        limits::check_dispatch(kernel.name(), device, &launch.limits, launch.grid, kernel.threads, memory)?;
        let table = arguments::bind(kernel, launch.arguments, resolve, || self.nothing())?;
        if launch.grid.is_empty() || kernel.threads.contains(&0) {
            return Ok(());
        }
        self.encode(kernel.name(), &table.accesses(), Ordering::Concurrent, |commands, kept| {
            table.buffers.iter().for_each(|(_, found, _)| kept.buffer(&self.metal, &found.buffer));
            // SAFETY: passed on to the caller.
            unsafe { encode::kernel(&mut encode::Seam::<M>(commands), kernel, launch.pipeline, &table, launch.grid) }
        })
    }

    /// A call of MPS.
    pub fn matrix(&self, call: &MatrixCall<M::Buffer>) -> Result<()> {
        call.check(|buffer| self.metal.contents(buffer).1)?;
        let operands = call.operands();
        self.encode(call.name(), &self.accesses(&operands), Ordering::Encoder, |commands, kept| {
            operands.iter().for_each(|operand| kept.buffer(&self.metal, &operand.buffer));
            // SAFETY: the call was checked above.
            unsafe { commands.matrix(call) }
        })
    }

    /// Runs a compiled graph.
    pub fn graph(
        &self,
        executable: &M::Executable,
        inputs: &[TensorView<M::Buffer>],
        outputs: &[TensorView<M::Buffer>],
    ) -> Result<()> {
        for view in inputs.iter().chain(outputs) {
            view.check("graph", self.metal.contents(&view.buffer).1)?;
        }
        let reads = inputs.iter().map(|view| view.operand(false));
        let operands: Vec<Operand<M::Buffer>> = reads.chain(outputs.iter().map(|view| view.operand(true))).collect();
        self.encode("graph", &self.accesses(&operands), Ordering::Encoder, |commands, kept| {
            operands.iter().for_each(|operand| kept.buffer(&self.metal, &operand.buffer));
            kept.values.push(Box::new(executable.clone()));
            // SAFETY: each view was checked above.
            unsafe { commands.graph(executable, inputs, outputs) }
        })
    }

    /// Calls a function, on a thread of Metal's, when the commands so far have ended.
    pub fn add_callback(&self, callback: impl FnOnce() + Send + 'static) -> Result<()> {
        self.metal.autorelease_pool(|| {
            let mut state = self.lock_with_room();
            self.open(&mut state)?.kept.callbacks.push(Box::new(callback));
            self.commit(&mut state);
            Ok(())
        })
    }

    /// What tells the first error among the commands from here on, once they have ended: in a callback behind them. The commands so far are
    /// handed to the GPU, so that theirs are not among them; those that another thread puts between them are.
    pub fn failures(&self) -> impl FnOnce() -> Option<Error> + Send + 'static {
        let first = self.metal.autorelease_pool(|| {
            let mut state = self.lock();
            self.commit(&mut state);
            state.number
        });
        let completions = self.completions.clone();
        move || completions.failure_since(first)
    }

    /// Keeps a value alive until the commands so far have ended.
    pub fn keep(&self, value: impl Any + Send) -> Result<()> {
        self.metal.autorelease_pool(|| {
            self.open(&mut self.lock_with_room())?.kept.values.push(Box::new(value));
            Ok(())
        })
    }

    /// Hands what is encoded to the GPU.
    pub fn flush(&self) -> Result<()> {
        self.metal.autorelease_pool(|| self.commit(&mut self.lock()));
        Ok(())
    }

    /// Waits for every command so far and delivers, once, the first error since the last call. Not to be called from a callback of this stream.
    pub fn finish(&self) -> std::result::Result<(), Deferred> {
        self.wait();
        self.completions.settle()
    }

    /// Waits for every command so far; errors stay for the next `finish`.
    pub fn wait(&self) {
        self.metal.autorelease_pool(|| {
            let mut state = self.lock();
            self.commit(&mut state);
            let (last, count) = (std::mem::take(&mut state.committed), state.number);
            drop(state);
            if let Some(last) = last.back() {
                self.metal.wait(last);
            }
            self.completions.wait(count);
        });
    }

    /// Waits until the GPU is done with every command so far; callbacks may still run, and what is kept may still be there. So the caller may
    /// hold a lock that a callback wants.
    pub fn drain(&self) {
        if !self.metal.ends_by_itself() {
            return self.wait();
        }
        let count = self.metal.autorelease_pool(|| {
            let mut state = self.lock();
            self.commit(&mut state);
            state.number
        });
        self.completions.wait_arrived(count);
    }

    /// Whether every command so far has ended. What is encoded is handed over, so that it ends without anybody waiting.
    pub fn is_idle(&self) -> bool {
        let count = self.metal.autorelease_pool(|| {
            let mut state = self.lock();
            self.commit(&mut state);
            state.number
        });
        self.completions.statistics().ended >= count
    }

    /// Command buffers so far, and the GPU's time.
    pub fn statistics(&self) -> StreamStatistics {
        self.completions.statistics()
    }

    /// Whether there is nothing that the GPU has still to do, or to be told. Hands nothing over.
    pub fn is_empty(&self) -> bool {
        let state = self.lock();
        state.open.is_none() && self.completions.statistics().ended >= state.number
    }

    fn nothing(&self) -> Result<M::Buffer> {
        get_or_make(&self.nothing, || self.metal.autorelease_pool(|| self.metal.allocate(NOTHING)))
    }

    fn encode(
        &self,
        name: &str,
        accesses: &[Access],
        ordering: Ordering,
        encode: impl FnOnce(&mut M::CommandBuffer, &mut Kept<M>) -> Result<()>,
    ) -> Result<()> {
        self.metal.autorelease_pool(|| {
            let mut state = self.lock_with_room();
            let Open { commands, kept, hazards, count, bytes, multiplications } = self.open(&mut state)?;
            match ordering {
                Ordering::Concurrent if hazards.add(accesses) => commands.barrier()?,
                Ordering::Concurrent => {}
                Ordering::Encoder => hazards.clear(),
            }
            commands.push_group(name);
            let result = encode(commands, kept);
            commands.pop_group();
            *count += 1;
            *bytes += accesses.iter().map(|access| access.range.len()).sum::<usize>();
            *multiplications = multiplications.saturating_add(work::multiplications(accesses));
            let full = *count >= self.policy.commands
                || *bytes >= self.policy.bytes
                || *multiplications >= self.policy.multiplications;
            if full {
                self.commit(&mut state);
            }
            result
        })
    }

    fn open<'a>(&self, state: &'a mut State<M>) -> Result<&'a mut Open<M>> {
        if state.open.is_none() {
            let label = format!("{} {}", self.label, state.number);
            let commands = self.metal.command_buffer(&self.queue, &label)?;
            let (kept, hazards) = Default::default();
            state.open = Some(Open { commands, kept, hazards, count: 0, bytes: 0, multiplications: 0 });
        }
        state.open.as_mut().ok_or(Error::NotMade { what: "command buffer" })
    }

    fn commit(&self, state: &mut State<M>) {
        let Some(Open { commands, kept, .. }) = state.open.take() else { return };
        self.completions.commit();
        let (completions, number) = (self.completions.clone(), state.number);
        state.number += 1;
        let completed = move |completion: Completion| {
            let Kept { buffers, values, callbacks } = kept;
            completions.arrive(number, completion.error.as_ref());
            for callback in callbacks {
                // A panic must not unwind into Metal, nor keep those who wait waiting. The panic hook has reported it.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(callback));
            }
            drop((buffers, values));
            completions.end(completion);
        };
        state.committed.push_back(commands.commit(Box::new(completed)));
    }

    fn accesses(&self, operands: &[Operand<M::Buffer>]) -> Vec<Access> {
        let access = |operand: &Operand<M::Buffer>| {
            let begin = self.metal.contents(&operand.buffer).0 + operand.offset;
            Access { range: begin..begin + operand.span, written: operand.written }
        };
        operands.iter().map(access).collect()
    }

    /// The state, after waiting until a command buffer more may be on its way. Nothing is locked meanwhile: a callback of a command buffer that
    /// ends may encode commands of its own.
    fn lock_with_room(&self) -> MutexGuard<'_, State<M>> {
        loop {
            let mut state = self.lock();
            let room = state.open.is_some() || state.committed.len() < self.policy.in_flight;
            let oldest = if room { None } else { state.committed.pop_front() };
            let Some(oldest) = oldest else { return state };
            drop(state);
            self.metal.wait(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Metal> Drop for Stream<M> {
    /// Hands over and waits for what is left: the memory that it uses may go next.
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!("a queue was dropped with an error that nobody asked for: {error}");
        }
    }
}

/// Bytes of the buffer that is bound for nothing.
const NOTHING: usize = 16;

fn get_or_make<T: Clone>(place: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<T> {
    match place.get() {
        Some(value) => Ok(value.clone()),
        None => make().map(|value| place.get_or_init(|| value).clone()),
    }
}

/// How a command is put in order with the ones before it.
enum Ordering {
    /// It may overlap with the dispatches before it, up to a barrier.
    Concurrent,
    /// It has an encoder of its own; Metal tracks what buffers encoders share.
    Encoder,
}
