//! What a compiled graph does: its steps in order, and where what they compute lies.

use super::fuse::fuse;
use super::memory::{Layout, lifetimes};
use super::passes::{Constant, numbers};
use super::{Assignment, Graph, OptimizationLevel, Source, Step, Tensor, TensorData, Value};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{Error, Result};
use openmps_graph::cache::Cache;
use openmps_graph::operators::copy::Copy;
use openmps_graph::prepared::{Form, Preparation, Prepared};
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
    pub prepared: Vec<Option<(usize, Arc<Prepared>)>>,
    /// By value: constants that a step or a result reads as they are.
    pub constants: Vec<Option<TensorData>>,
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
        cache: Option<&Cache<PreparedKey, Prepared>>,
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
        let prepare = |step| cache.map_or(Ok(None), |cache| prepared(&values, step, device, cache));
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
            Source::Stored(stored) if is_read => Ok(Some(TensorData { meta: value.meta.clone(), ..stored.tensor()? })),
            Source::Folded(of, output) if is_read => {
                Ok(Some(TensorData { meta: value.meta.clone(), ..of.tensors()?[*output].clone() }))
            }
            _ => Ok(None),
        };
        let constants = values.iter().zip(&is_read).map(constant).collect::<Result<_>>()?;
        let results = goals.results().to_vec();
        let assignments: Vec<[usize; 2]> = goals.assignments().collect();
        let mut is_set = vec![false; values.len()];
        assignments.iter().for_each(|&[_, variable]| is_set[variable] = true);
        Ok(Plan { values, steps, results, assignments, is_set, roots, layout, prepared, constants })
    }

    /// Runs the steps; views of fed values and results are given.
    pub fn run(&self, queue: &Queue, mut views: Vec<Option<View>>, observer: &Observer) -> Result<()> {
        // It is kept until the last step has been encoded: memory that is given back may be another buffer's at once.
        let block = if self.layout.bytes > 0 { Some(queue.allocate(self.layout.bytes)?) } else { None };
        if let Some(block) = &block {
            for (value, offset) in self.layout.offsets.iter().enumerate() {
                if let Some(offset) = offset {
                    let meta = &self.values[value].meta;
                    views[value] = Some(View::dense(block.address() + offset, meta.dtype, &meta.shape)?);
                }
            }
        }
        for (step, prepared) in self.steps.iter().zip(&self.prepared) {
            let view = |(input, &value): (usize, &usize)| match prepared {
                Some((own, _)) if *own == input => self.unread(value),
                _ => self.view(&views, value),
            };
            let inputs: Vec<View> = step.inputs.iter().enumerate().map(view).collect::<Result<_>>()?;
            let outputs: Vec<View> =
                step.outputs.iter().map(|&value| self.view(&views, value)).collect::<Result<_>>()?;
            observer.watch(queue, || {
                match prepared {
                    Some((_, prepared)) => step.operator.run_prepared(queue, prepared, &inputs, &outputs)?,
                    None => step.operator.run(queue, &inputs, &outputs)?,
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Sets the variables. What goes from variable to variable is copied aside first: one may be overwritten before the other is read.
    pub fn assign(&self, queue: &Queue, views: &[Option<View>]) -> Result<()> {
        let mut aside = Vec::new();
        let mut pairs = Vec::new();
        for &[value, variable] in &self.assignments {
            let (mut from, to) = (self.view(views, value)?, self.view(views, variable)?);
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

    fn without_memory(&self, value: usize) -> Error {
        Error::Feed { name: format!("value {value}"), what: "it has no memory" }
    }

    /// A value's view, through reshapes.
    pub fn view(&self, views: &[Option<View>], value: usize) -> Result<View> {
        let meta: &Meta = &self.values[value].meta;
        let root = views[self.roots[value]].as_ref();
        let root = root.ok_or_else(|| self.without_memory(value))?;
        Ok(View::dense(root.address, meta.dtype, &meta.shape)?)
    }

    /// Constants in forms of their own, each once.
    pub fn packed(&self) -> Vec<&Arc<Prepared>> {
        let mut packed: Vec<&Arc<Prepared>> = self.prepared.iter().flatten().map(|(_, prepared)| prepared).collect();
        packed.sort_by_key(|prepared| Arc::as_ptr(prepared));
        packed.dedup_by(|a, b| Arc::ptr_eq(a, b));
        packed
    }

    /// A view of a value that no kernel reads.
    fn unread(&self, value: usize) -> Result<View> {
        let meta = &self.values[value].meta;
        Ok(View::dense(0, meta.dtype, &meta.shape)?)
    }
}

pub(super) fn copy(queue: &Queue, from: &View, to: &View) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    Ok(Copy.run(queue, std::slice::from_ref(from), std::slice::from_ref(to))?)
}

/// The constant that a step's operator would rather read in another form, in that form.
fn prepared(
    values: &[Value],
    step: &Step,
    device: &Device,
    cache: &Cache<PreparedKey, Prepared>,
) -> Result<Option<(usize, Arc<Prepared>)>> {
    let metas: Vec<Meta> = step.inputs.iter().map(|&input| values[input].meta.clone()).collect();
    let Some(Preparation { input, form }) = step.operator.prepares(device.runtime(), &metas) else { return Ok(None) };
    let value = &values[step.inputs[input]];
    let Some(constant) = Constant::of(value) else { return Ok(None) };
    let make = || -> Result<Prepared> { Ok(form.prepare(step.operator.name(), &value.meta, &numbers(value)?)?) };
    Ok(Some((input, cache.get_or_make(&PreparedKey { form, constant }, make)?)))
}
