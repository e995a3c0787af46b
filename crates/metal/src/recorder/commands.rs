//! The recorder's command buffer, which checks what Metal's validation layer would.

use super::{Memory, RecordedBuffer, RecordedCommit, RecordedEvent, Recorder, Said};
use crate::error::Result;
use crate::graph::Graph;
use crate::interface::{CommandBuffer, Completed, Grid, PipelineKey, Size};
use crate::limits;
use crate::matrix::{MatrixCall, TensorView};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// A command buffer that takes commands.
pub struct RecordedCommands {
    recorder: Recorder,
    number: u64,
    label: String,
    buffers: Vec<Weak<Memory>>,
    pipeline: Option<Arc<PipelineKey>>,
    /// Indices of the argument table that were bound since the pipeline was set.
    bound: BTreeSet<usize>,
    groups: usize,
    signals: Vec<(RecordedEvent, u64)>,
    committed: bool,
}

impl RecordedCommands {
    pub(super) fn new(recorder: Recorder, number: u64, label: String) -> RecordedCommands {
        let (buffers, bound, signals) = (Vec::new(), BTreeSet::new(), Vec::new());
        RecordedCommands {
            recorder,
            number,
            label,
            buffers,
            pipeline: None,
            bound,
            groups: 0,
            signals,
            committed: false,
        }
    }

    fn say(&self, call: &str, said: Said) {
        self.recorder.in_pool(call);
        self.recorder.say(said);
    }

    /// Notes a violation where a rule does not hold.
    fn demand(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.recorder.violate(format!("{}: {}", self.label, what()));
        }
    }

    fn uses(&mut self, buffer: &RecordedBuffer, offset: usize, bytes: usize) -> u64 {
        let length = buffer.0.bytes;
        self.demand(offset + bytes <= length, || format!("{bytes} bytes from {offset} on leave {buffer:?}"));
        self.buffers.push(Arc::downgrade(&buffer.0));
        buffer.0.number
    }

    fn blit(&self, what: &str, values: &[usize]) {
        let aligned = values.iter().all(|value| value.is_multiple_of(limits::BLIT_ALIGNMENT));
        self.demand(aligned, || format!("{what} with offsets and lengths {values:?}"));
    }
}

impl CommandBuffer<Recorder> for RecordedCommands {
    fn set_pipeline(&mut self, pipeline: &Arc<PipelineKey>) -> Result<()> {
        self.pipeline = Some(pipeline.clone());
        self.bound.clear();
        self.say("set_pipeline", Said::Pipeline(pipeline.entry.clone()));
        Ok(())
    }

    fn set_buffer(&mut self, index: usize, buffer: &RecordedBuffer, offset: usize) -> Result<()> {
        self.demand(index < limits::BUFFERS, || format!("a buffer at index {index}"));
        self.demand(offset < buffer.0.bytes, || format!("{buffer:?} bound at its end"));
        self.bound.insert(index);
        let buffer = self.uses(buffer, offset, 0);
        self.say("set_buffer", Said::Buffer { index, buffer, offset });
        Ok(())
    }

    fn set_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        let length = bytes.len();
        self.demand(index < limits::BUFFERS, || format!("bytes at index {index}"));
        self.demand((1..=limits::BYTES).contains(&length), || format!("{length} bytes in place"));
        self.bound.insert(index);
        self.say("set_bytes", Said::Bytes { index, bytes: bytes.to_vec() });
        Ok(())
    }

    fn set_threadgroup_memory(&mut self, index: usize, bytes: usize) -> Result<()> {
        let fits = bytes.is_multiple_of(limits::THREADGROUP_MEMORY_ALIGNMENT) && bytes <= limits::THREADGROUP_MEMORY;
        self.demand(fits, || format!("{bytes} bytes of threadgroup memory"));
        self.say("set_threadgroup_memory", Said::ThreadgroupMemory { index, bytes });
        Ok(())
    }

    unsafe fn dispatch(&mut self, grid: Grid, threads: Size) -> Result<()> {
        self.demand(self.pipeline.is_some(), || "a dispatch without a pipeline".to_string());
        let empty = grid.is_empty() || threads.contains(&0);
        self.demand(!empty, || format!("a dispatch of {grid:?} in threadgroups of {threads:?}"));
        let gap = (0..self.bound.len()).find(|index| !self.bound.contains(index));
        self.demand(gap.is_none(), || format!("a dispatch with nothing at index {gap:?}"));
        let most = self.pipeline.as_ref().map_or(0, |pipeline| pipeline.threads);
        let count: usize = threads.iter().product();
        self.demand(count <= most, || format!("{count} threads, where the pipeline allows {most}"));
        self.say("dispatch", Said::Dispatch { grid, threads });
        Ok(())
    }

    fn barrier(&mut self) -> Result<()> {
        self.say("barrier", Said::Barrier);
        Ok(())
    }

    unsafe fn fill(&mut self, buffer: &RecordedBuffer, range: Range<usize>, byte: u8) -> Result<()> {
        self.blit("fill", &[range.start, range.len()]);
        let buffer = self.uses(buffer, range.start, range.len());
        self.say("fill", Said::Fill { buffer, range, byte });
        Ok(())
    }

    unsafe fn copy(
        &mut self,
        destination: (&RecordedBuffer, usize),
        source: (&RecordedBuffer, usize),
        bytes: usize,
    ) -> Result<()> {
        self.blit("copy", &[destination.1, source.1, bytes]);
        self.demand(bytes <= limits::PIECE, || format!("a copy of {bytes} bytes"));
        let (to, from) = (self.uses(destination.0, destination.1, bytes), self.uses(source.0, source.1, bytes));
        self.say("copy", Said::Copy { destination: (to, destination.1), source: (from, source.1), bytes });
        Ok(())
    }

    unsafe fn matrix(&mut self, call: &MatrixCall<RecordedBuffer>) -> Result<()> {
        for operand in call.operands() {
            self.uses(&operand.buffer, operand.offset, operand.span);
        }
        self.say("matrix", Said::Matrix(call.name()));
        Ok(())
    }

    unsafe fn graph(
        &mut self,
        executable: &Arc<Graph>,
        inputs: &[TensorView<RecordedBuffer>],
        outputs: &[TensorView<RecordedBuffer>],
    ) -> Result<()> {
        let (graph, of_outputs) = (executable, |&tensor| executable.type_of(tensor));
        let fits = |views: &[TensorView<RecordedBuffer>], types: Vec<&crate::graph::TensorType>| {
            views.len() == types.len()
                && views.iter().zip(types).all(|(view, of)| view.shape == of.shape && view.dtype == of.dtype)
        };
        self.demand(fits(inputs, graph.inputs().iter().collect()), || "inputs do not fit the graph".to_string());
        self.demand(fits(outputs, graph.outputs().iter().map(of_outputs).collect()), || {
            "outputs do not fit the graph".to_string()
        });
        let mut places = |views: &[TensorView<RecordedBuffer>]| -> Vec<(u64, usize)> {
            views.iter().map(|view| (self.uses(&view.buffer, view.offset, view.span()), view.offset)).collect()
        };
        let (inputs, outputs) = (places(inputs), places(outputs));
        self.say("graph", Said::Graph { inputs, outputs });
        Ok(())
    }

    fn signal(&mut self, event: &RecordedEvent, value: u64) -> Result<()> {
        self.signals.push((event.clone(), value));
        self.say("signal", Said::Signal(value));
        Ok(())
    }

    fn wait(&mut self, _event: &RecordedEvent, value: u64) -> Result<()> {
        self.say("wait", Said::Wait(value));
        Ok(())
    }

    fn push_group(&mut self, name: &str) {
        self.groups += 1;
        self.say("push_group", Said::Group(name.to_string()));
    }

    fn pop_group(&mut self) {
        self.demand(self.groups > 0, || "a group ends that never began".to_string());
        self.groups = self.groups.saturating_sub(1);
        self.say("pop_group", Said::EndGroup);
    }

    fn commit(mut self, completed: Completed) -> RecordedCommit {
        self.demand(self.groups == 0, || format!("{} groups are open at the end", self.groups));
        self.recorder.in_pool("commit");
        self.committed = true;
        let signals = std::mem::take(&mut self.signals);
        let completed: Completed = Box::new(move |completion| {
            signals.iter().for_each(|(event, value)| event.set(*value));
            completed(completion);
        });
        let (label, buffers) = (self.label.clone(), std::mem::take(&mut self.buffers));
        self.recorder.commit(self.number, label, buffers, completed);
        RecordedCommit(self.number)
    }
}

impl Drop for RecordedCommands {
    fn drop(&mut self) {
        if !self.committed {
            self.recorder.drop_open(&self.label);
        }
    }
}
