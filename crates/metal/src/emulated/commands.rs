//! The emulated GPU's command buffer: commands are noted down, and executed when the queue's thread comes to them.

use super::worker::{EmulatedCommit, EmulatedEvent, EmulatedQueue, Job};
use super::{Emulated, EmulatedBuffer, EmulatedPipeline, Fault, count, graph, matrix};
use crate::answers::Class;
use crate::defects::{self, Defect, Outcome};
use crate::error::{Error, Result};
use crate::graph::{Graph, Operation};
use crate::interface::{CommandBuffer, Completed, Grid, Properties, Size};
use crate::matrix::{MatrixCall, Operand, TensorView};
use openmps_emulator::{Argument, Dispatch, Schedule};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// After this time a wait for an event is a failure, as the GPU's own watchdog has it.
const EVENT_LIMIT: Duration = Duration::from_secs(60);

/// What is bound to one index.
#[derive(Clone)]
enum Bound {
    Buffer(EmulatedBuffer, usize),
    Bytes(Vec<u8>),
}

/// A kernel with its argument table as it was at the dispatch.
pub(super) struct Run {
    pipeline: EmulatedPipeline,
    table: BTreeMap<usize, Bound>,
    threadgroup_memory: Vec<usize>,
    grid: Grid,
    threads: Size,
}

/// What an encoder was told to do; the worker does it later.
pub(super) enum Action {
    Run(Run),
    Barrier,
    Fill(EmulatedBuffer, Range<usize>, u8),
    Copy { destination: (EmulatedBuffer, usize), source: (EmulatedBuffer, usize), bytes: usize },
    Matrix(MatrixCall<EmulatedBuffer>),
    Graph { graph: Arc<Graph>, inputs: Vec<TensorView<EmulatedBuffer>>, outputs: Vec<TensorView<EmulatedBuffer>> },
    Signal(EmulatedEvent, u64),
    Wait(EmulatedEvent, u64),
}

/// A command buffer that takes commands.
pub struct EmulatedCommands {
    queue: EmulatedQueue,
    label: String,
    actions: Vec<Action>,
    pipeline: Option<EmulatedPipeline>,
    table: BTreeMap<usize, Bound>,
    threadgroup_memory: Vec<usize>,
}

impl EmulatedCommands {
    pub(super) fn new(queue: EmulatedQueue, label: &str) -> EmulatedCommands {
        let (label, table) = (label.to_string(), BTreeMap::new());
        EmulatedCommands { queue, label, actions: Vec::new(), pipeline: None, table, threadgroup_memory: Vec::new() }
    }
}

impl CommandBuffer<Emulated> for EmulatedCommands {
    fn set_pipeline(&mut self, pipeline: &EmulatedPipeline) -> Result<()> {
        self.pipeline = Some(pipeline.clone());
        Ok(())
    }

    fn set_buffer(&mut self, index: usize, buffer: &EmulatedBuffer, offset: usize) -> Result<()> {
        self.table.insert(index, Bound::Buffer(buffer.clone(), offset));
        Ok(())
    }

    fn set_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        self.table.insert(index, Bound::Bytes(bytes.to_vec()));
        Ok(())
    }

    fn set_threadgroup_memory(&mut self, index: usize, bytes: usize) -> Result<()> {
        self.threadgroup_memory.resize(self.threadgroup_memory.len().max(index + 1), 0);
        self.threadgroup_memory[index] = bytes;
        Ok(())
    }

    unsafe fn dispatch(&mut self, grid: Grid, threads: Size) -> Result<()> {
        let pipeline = self.pipeline.clone().ok_or(Error::NotMade { what: "pipeline before a dispatch" })?;
        let (table, threadgroup_memory) = (self.table.clone(), self.threadgroup_memory.clone());
        self.actions.push(Action::Run(Run { pipeline, table, threadgroup_memory, grid, threads }));
        Ok(())
    }

    fn barrier(&mut self) -> Result<()> {
        self.actions.push(Action::Barrier);
        Ok(())
    }

    unsafe fn fill(&mut self, buffer: &EmulatedBuffer, range: Range<usize>, byte: u8) -> Result<()> {
        self.actions.push(Action::Fill(buffer.clone(), range, byte));
        Ok(())
    }

    unsafe fn copy(
        &mut self,
        destination: (&EmulatedBuffer, usize),
        source: (&EmulatedBuffer, usize),
        bytes: usize,
    ) -> Result<()> {
        let (destination, source) = ((destination.0.clone(), destination.1), (source.0.clone(), source.1));
        self.actions.push(Action::Copy { destination, source, bytes });
        Ok(())
    }

    unsafe fn matrix(&mut self, call: &MatrixCall<EmulatedBuffer>) -> Result<()> {
        self.actions.push(Action::Matrix(call.clone()));
        Ok(())
    }

    unsafe fn graph(
        &mut self,
        executable: &Arc<Graph>,
        inputs: &[TensorView<EmulatedBuffer>],
        outputs: &[TensorView<EmulatedBuffer>],
    ) -> Result<()> {
        graph::check(executable, inputs, outputs)?;
        let (graph, inputs, outputs) = (executable.clone(), inputs.to_vec(), outputs.to_vec());
        self.actions.push(Action::Graph { graph, inputs, outputs });
        Ok(())
    }

    fn signal(&mut self, event: &EmulatedEvent, value: u64) -> Result<()> {
        self.actions.push(Action::Signal(event.clone(), value));
        Ok(())
    }

    fn wait(&mut self, event: &EmulatedEvent, value: u64) -> Result<()> {
        self.actions.push(Action::Wait(event.clone(), value));
        Ok(())
    }

    fn push_group(&mut self, _name: &str) {}

    fn pop_group(&mut self) {}

    fn commit(self, completed: Completed) -> EmulatedCommit {
        let commit = EmulatedCommit::default();
        self.queue.send(Job { label: self.label, actions: self.actions, completed, commit: commit.clone() });
        commit
    }
}

/// Executes commands up to the first error. Dispatches without a barrier between them may run in any order on a GPU; here they run backwards
/// unless the schedule is the ascending one.
pub(super) fn run(
    label: &str,
    actions: &[Action],
    schedule: Schedule,
    (device, fault): (&Properties, Option<Fault>),
) -> Result<()> {
    let mut together: Vec<&Run> = Vec::new();
    for action in actions {
        if let Action::Run(run) = action {
            together.push(run);
            continue;
        }
        run_together(label, &mut together, schedule, fault)?;
        match action {
            Action::Run(_) | Action::Barrier => {}
            Action::Fill(buffer, range, byte) => {
                let address = buffer.contents().0 + range.start;
                // SAFETY: whoever called `fill` vouched for the range; the buffer lives, and what else uses it runs before or after.
                unsafe { std::ptr::write_bytes(address as *mut u8, *byte, range.len()) };
            }
            Action::Copy { destination, source, bytes } => {
                let (to, from) = (destination.0.contents().0 + destination.1, source.0.contents().0 + source.1);
                // SAFETY: whoever called `copy` vouched for both ranges; the buffers live.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, *bytes) };
            }
            Action::Matrix(call) => {
                let written = || -> Vec<_> { call.operands().into_iter().filter(|operand| operand.written).collect() };
                with_defect(label, defects::of_matrix_call(call, device), || matrix::run(call), written)?;
                spoil(fault, matches!(call, MatrixCall::Multiplication { .. }).then_some(Class::Product), &written());
            }
            Action::Graph { graph, inputs, outputs } => {
                let written = || -> Vec<_> { outputs.iter().map(|out| out.operand(true)).collect() };
                let run = || graph::run(graph, inputs, outputs);
                with_defect(label, defects::of_graph(graph, device), run, written)?;
                spoil(fault, class_of(graph), &written());
            }
            Action::Signal(event, value) => event.set(*value),
            Action::Wait(event, value) => {
                if !event.wait(*value, EVENT_LIMIT) {
                    let message = format!("an event did not reach {value}, it is at {}", event.value());
                    return Err(failed(label, "timeout", message));
                }
            }
        }
    }
    run_together(label, &mut together, schedule, fault)
}

/// What Apple's libraries do on a machine with a defect: nothing ends this process, but the command buffer fails; and where numbers would be
/// wrong, the first ones are.
fn with_defect(
    label: &str,
    defect: Option<&Defect>,
    run: impl FnOnce() -> Result<()>,
    written: impl FnOnce() -> Vec<Operand<EmulatedBuffer>>,
) -> Result<()> {
    match defect {
        Some(Defect { outcome: Outcome::Abort, about, .. }) => Err(failed(label, "abort", (*about).to_string())),
        Some(Defect { outcome: Outcome::Wrong, .. }) => {
            run()?;
            for Operand { buffer, offset, span, .. } in written() {
                let address = (buffer.contents().0 + offset) as *mut u8;
                // SAFETY: the operand was checked to lie in its buffer, which lives, and `run` has just written it.
                unsafe { std::ptr::write_bytes(address, 0xFF, span.min(size_of::<u64>())) };
            }
            Ok(())
        }
        None => run(),
    }
}

/// What a graph is asked for as, where it is one operation of a class.
fn class_of(graph: &Graph) -> Option<Class> {
    graph.nodes().iter().find_map(|node| match node.operation {
        Operation::MatrixMultiplication => Some(Class::Product),
        Operation::Convolution { .. } => Some(Class::Convolution),
        Operation::Attention { .. } => Some(Class::Attention),
        _ => None,
    })
}

/// How long a kernel may take whose commands are counted: products of a model's size are, and take minutes.
const COUNTED_LIMIT: Duration = Duration::from_secs(3600);

/// Bytes that a fault makes zero, in the middle of a result.
const SPOILT: usize = 64;

fn spoil(fault: Option<Fault>, class: Option<Class>, written: &[Operand<EmulatedBuffer>]) {
    let Some(Fault::Library { class: of, bytes }) = fault else { return };
    if class == Some(of) {
        written
            .iter()
            .filter(|operand| operand.span >= bytes)
            .for_each(|operand| zero_some(&operand.buffer, operand.offset, operand.span));
    }
}

/// Makes some bytes in the middle of a buffer's part zero.
fn zero_some(buffer: &EmulatedBuffer, offset: usize, span: usize) {
    let (begin, bytes) = buffer.contents();
    if span >= SPOILT && offset + span <= bytes {
        let address = begin + offset + (span - SPOILT) / 2;
        // SAFETY: the part was found to lie in the buffer, which lives, and the command that uses it has ended.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, SPOILT) };
    }
}

fn run_together(label: &str, runs: &mut Vec<&Run>, schedule: Schedule, fault: Option<Fault>) -> Result<()> {
    if !matches!(schedule, Schedule::Ascending) {
        runs.reverse();
    }
    runs.drain(..).try_for_each(|run| {
        dispatch(label, run, schedule)?;
        if fault == Some(Fault::TensorOperations) && run.pipeline.metal4 {
            spoil_last(run);
        }
        Ok(())
    })
}

/// A kernel's results come last among its buffers.
fn spoil_last(run: &Run) {
    let buffers = run.table.values().rev().find_map(|bound| match bound {
        Bound::Buffer(buffer, offset) => Some((buffer, *offset)),
        Bound::Bytes(_) => None,
    });
    // Where its results begin: the buffer may be a heap of much else.
    if let Some((buffer, offset)) = buffers {
        zero_some(buffer, offset, SPOILT.min(buffer.contents().1 - offset));
    }
}

fn dispatch(label: &str, run: &Run, schedule: Schedule) -> Result<()> {
    let count = run.table.last_key_value().map_or(0, |(&index, _)| index + 1);
    let argument = |index: usize| match run.table.get(&index) {
        Some(Bound::Buffer(buffer, offset)) => Argument::Buffer((buffer.contents().0 + offset) as *mut _),
        Some(Bound::Bytes(bytes)) => Argument::Bytes(bytes),
        None => Argument::Unbound,
    };
    let arguments: Vec<Argument<'_>> = (0..count).map(argument).collect();
    let grid = match run.grid {
        Grid::Threadgroups(count) => openmps_emulator::Grid::Threadgroups(count.map(|size| size as u32)),
        Grid::Threads(count) => openmps_emulator::Grid::Threads(count.map(|size| size as u32)),
    };
    let plan = Dispatch::new(grid, run.threads.map(|size| size as u32), &arguments);
    let counted = openmps_settings::EMULATOR_COUNT.get().is_some();
    let time_limit = if counted { COUNTED_LIMIT } else { plan.time_limit };
    let plan = Dispatch { threadgroup_memory: &run.threadgroup_memory, schedule, time_limit, ..plan };
    // SAFETY: whoever dispatched vouched for the addresses among the arguments; the buffers live until the commands have ended, and commands
    // that share memory run one after the other.
    let ran = unsafe { run.pipeline.function.dispatch(&plan) };
    let report = ran.map_err(|error| failed(label, "fault", error.to_string()))?;
    count::note(run.pipeline.function.name(), &report);
    Ok(())
}

fn failed(label: &str, kind: &'static str, message: String) -> Error {
    Error::CommandBuffer { label: label.to_string(), kind, message }
}
