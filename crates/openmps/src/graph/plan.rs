//! What a compiled graph does: its steps in order, and where what they compute lies.

use super::fuse::fuse;
use super::memory::{Layout, lifetimes};
use super::operands::{Memory, Operands, Prepared, without_memory};
use super::passes::{Constant, numbers};
use super::{Assignment, Graph, OptimizationLevel, Source, Step, Tensor, TensorData, Value};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::Result;
use openmps_graph::cache::Cache;
use openmps_graph::operators::copy::Copy;
use openmps_graph::prepared::{self, Form, Preparation};
use openmps_graph::{Meta, Operator, Queue, View};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a compiled graph is for: first its results, then for each assignment the value and the variable.
#[derive(Clone, Debug)]
pub(super) struct Goals {
    pub values: Vec<usize>,
    results: usize,
}

impl Goals {
    pub fn of(graph: &Graph, results: &[Tensor], assignments: &[Assignment]) -> Result<Goals> {
        let pairs = assignments.iter().flat_map(|assignment| [assignment.value, assignment.variable]);
        let all: Vec<Tensor> = results.iter().copied().chain(pairs).collect();
        Ok(Goals { values: graph.indices(&all)?, results: results.len() })
    }

    /// The same of a graph in which the values have other numbers.
    pub fn renamed(self, values: Vec<usize>) -> Goals {
        Goals { values, ..self }
    }

    fn results(&self) -> &[usize] {
        &self.values[..self.results]
    }

    /// Pairs of a value and the variable that it goes to.
    fn assignments(&self) -> impl Iterator<Item = [usize; 2]> {
        self.values[self.results..].chunks_exact(2).map(|pair| [pair[0], pair[1]])
    }
}

#[derive(Debug)]
pub(super) struct Plan {
    pub values: Vec<Value>,
    pub steps: Vec<Step>,
    pub results: Vec<usize>,
    /// Pairs of a value and the variable that it goes to when all steps have run.
    pub assignments: Vec<[usize; 2]>,
    /// By value: whether it is a variable that runs set.
    pub is_set: Vec<bool>,
    /// By value: the value whose memory it has.
    pub roots: Vec<usize>,
    /// Where values between steps lie.
    pub layout: Layout,
    /// By step: a constant input in the form that its operator reads.
    pub prepared: Vec<Prepared>,
    /// By value: constants that a step or a result reads as they are.
    pub constants: Vec<Option<TensorData>>,
    pub operands: Operands,
    /// Values whose memory others may have, too: what runs are fed, tensors of the graph's user, variables.
    pub shared: Vec<usize>,
}

/// What a constant in a form of its own is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PreparedKey {
    form: Form,
    constant: Constant,
}

/// Who watches a run.
pub(super) enum Observer {
    /// Nobody.
    None,
    /// Notes how long each step takes, which is waited for.
    Clock(Arc<Mutex<Vec<Duration>>>),
}

impl Observer {
    /// Runs a step.
    fn watch(&self, queue: &Queue, step: impl FnOnce() -> Result<()>) -> Result<()> {
        let Observer::Clock(durations) = self else { return step() };
        queue.finish()?;
        let begin = Instant::now();
        step()?;
        queue.finish()?;
        durations.lock().unwrap_or_else(PoisonError::into_inner).push(begin.elapsed());
        Ok(())
    }
}

/// The steps that the results depend on, in order.
pub(super) fn needed_steps(graph: &Graph, results: &[usize]) -> Vec<usize> {
    let mut needed = vec![false; graph.steps.len()];
    let mut open = results.to_vec();
    while let Some(value) = open.pop() {
        match graph.values[value].source {
            Source::Step(step) if !needed[step] => {
                needed[step] = true;
                open.extend(&graph.steps[step].inputs);
            }
            Source::Reshape(from) => open.push(from),
            _ => {}
        }
    }
    (0..needed.len()).filter(|&step| needed[step]).collect()
}

impl Plan {
    /// Whether a step or a result reads the value.
    pub fn needs(&self, value: usize) -> bool {
        let reads = |&input: &usize| self.roots[input] == value;
        let goals = || self.results.iter().chain(self.assignments.iter().map(|[value, _]| value));
        self.steps.iter().any(|step| step.inputs.iter().any(reads)) || goals().any(reads)
    }

    pub fn new(
        graph: &Graph,
        device: &Device,
        goals: &Goals,
        level: OptimizationLevel,
        cache: Option<&Cache<PreparedKey, prepared::Prepared>>,
    ) -> Result<Plan> {
        let values = graph.values.clone();
        let mut roots: Vec<usize> = (0..values.len()).collect();
        let root = |mut index: usize| loop {
            let Source::Reshape(from) = values[index].source else { return index };
            index = from;
        };
        roots.iter_mut().for_each(|index| *index = root(*index));
        let needed = needed_steps(graph, &goals.values);
        let steps: Vec<Step> = match level {
            OptimizationLevel::Level1 => fuse(graph, &needed, &goals.values),
            OptimizationLevel::Level0 => needed.into_iter().map(|step| graph.steps[step].clone()).collect(),
        };
        let layout = Layout::new(&lifetimes(&values, &steps, &roots, &goals.values)?);
        let prepare = |step| cache.map_or(Ok(None), |cache| prepared_for(&values, step, device, cache));
        let prepared = steps.iter().map(prepare).collect::<Result<Vec<_>>>()?;
        let mut is_read = vec![false; values.len()];
        for (step, prepared) in steps.iter().zip(&prepared) {
            let own = prepared.as_ref().map(|(input, _)| *input);
            let read = step.inputs.iter().enumerate().filter(|(input, _)| Some(*input) != own);
            read.for_each(|(_, &value)| is_read[roots[value]] = true);
        }
        goals.values.iter().for_each(|&value| is_read[roots[value]] = true);
        let constant = |(value, &is_read): (&Value, &bool)| match &value.source {
            Source::Constant(bytes) if is_read => {
                let buffer = Buffer::from_slice(device, bytes)?;
                Ok(Some(TensorData { buffer, offset: 0, meta: value.meta.clone() }))
            }
            Source::Data(tensor) | Source::Variable(tensor) if is_read => Ok(Some(tensor.clone())),
            Source::Stored(stored) if is_read => Ok(Some(TensorData { meta: value.meta.clone(), ..stored.shared()? })),
            Source::Folded(of, output) if is_read => {
                Ok(Some(TensorData { meta: value.meta.clone(), ..of.tensors()?[*output].clone() }))
            }
            _ => Ok(None),
        };
        let constants: Vec<_> = values.iter().zip(&is_read).map(constant).collect::<Result<_>>()?;
        let results = goals.results().to_vec();
        let assignments: Vec<[usize; 2]> = goals.assignments().collect();
        let mut is_set = vec![false; values.len()];
        assignments.iter().for_each(|&[_, variable]| is_set[variable] = true);
        let is_private = |value: usize| !values[value].is_shared();
        let operands = Operands::new(&steps, &prepared, &roots, &layout, &constants, is_private);
        let shared = (0..values.len()).filter(|&value| values[value].is_shared()).collect();
        Ok(Plan { values, steps, results, assignments, is_set, roots, layout, prepared, constants, operands, shared })
    }

    /// Runs the steps. The addresses of what is fed, of results and of variables are given, by value.
    pub fn run(&self, queue: &Queue, brought: &[Option<usize>], observer: &Observer) -> Result<()> {
        // It is kept until the last step has been encoded: memory that is given back may be another buffer's at once.
        let block = if self.layout.bytes > 0 { Some(queue.allocate(self.layout.bytes)?) } else { None };
        let address = block.as_ref().map_or(0, |block| block.address());
        let views = self.operands.views(&self.values, &Memory { block: address, brought })?;
        for ((step, prepared), span) in self.steps.iter().zip(&self.prepared).zip(self.operands.steps()) {
            let (inputs, outputs) = (&views[span.inputs.clone()], &views[span.outputs.clone()]);
            observer.watch(queue, || {
                match prepared {
                    Some((_, prepared)) => step.operator.run_prepared(queue, prepared, inputs, outputs)?,
                    None => step.operator.run(queue, inputs, outputs)?,
                }
                Ok(())
            })?;
        }
        self.operands.keep(views);
        Ok(())
    }

    /// Sets the variables. What goes from variable to variable is copied aside first: one may be overwritten before the other is read.
    pub fn assign(&self, queue: &Queue, brought: &[Option<usize>]) -> Result<()> {
        let mut aside = Vec::new();
        let mut pairs = Vec::new();
        for &[value, variable] in &self.assignments {
            let (mut from, to) = (self.view(brought, value)?, self.view(brought, variable)?);
            if matches!(self.values[self.roots[value]].source, Source::Variable(_)) {
                let buffer = queue.allocate(self.values[value].meta.bytes()?.max(1))?;
                let copied = View::dense(buffer.address(), from.dtype, &from.shape)?;
                copy(queue, &from, &copied)?;
                from = copied;
                aside.push(buffer);
            }
            pairs.push((from, to));
        }
        pairs.iter().try_for_each(|(from, to)| copy(queue, from, to))
    }

    /// The view of a value that is fed, a result, a constant or a variable, through reshapes.
    pub fn view(&self, brought: &[Option<usize>], value: usize) -> Result<View> {
        let (root, meta) = (self.roots[value], &self.values[value].meta);
        let constant = || self.constants[root].as_ref().map(TensorData::address);
        let address = brought[root].or_else(constant).ok_or_else(|| without_memory(value))?;
        Ok(View::dense(address, meta.dtype, &meta.shape)?)
    }

    /// Constants in forms of their own, each once.
    pub fn packed(&self) -> Vec<&Arc<prepared::Prepared>> {
        let mut packed: Vec<&Arc<prepared::Prepared>> =
            self.prepared.iter().flatten().map(|(_, prepared)| prepared).collect();
        packed.sort_by_key(|prepared| Arc::as_ptr(prepared));
        packed.dedup_by(|a, b| Arc::ptr_eq(a, b));
        packed
    }
}

pub(super) fn copy(queue: &Queue, from: &View, to: &View) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    Ok(Copy.run(queue, std::slice::from_ref(from), std::slice::from_ref(to))?)
}

/// The constant that a step's operator would rather read in another form, in that form.
fn prepared_for(
    values: &[Value],
    step: &Step,
    device: &Device,
    cache: &Cache<PreparedKey, prepared::Prepared>,
) -> Result<Prepared> {
    let metas: Vec<Meta> = step.inputs.iter().map(|&input| values[input].meta.clone()).collect();
    let Some(Preparation { input, form }) = step.operator.prepares(device.runtime(), &metas) else { return Ok(None) };
    let value = &values[step.inputs[input]];
    let Some(constant) = Constant::of(value) else { return Ok(None) };
    let make =
        || -> Result<prepared::Prepared> { Ok(form.prepare(step.operator.name(), &value.meta, &numbers(value)?)?) };
    Ok(Some((input, cache.get_or_make(&PreparedKey { form, constant }, make)?)))
}
