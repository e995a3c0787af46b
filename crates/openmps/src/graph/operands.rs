//! What the steps of a plan read and write, as views that are made once and serve run after run: a run says where they lie, and no more.

use super::memory::Layout;
use super::{Step, TensorData, Value};
use crate::error::{Error, Result};
use openmps_graph::{View, prepared};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Sets of views that are kept for the next runs; so many runs at the same time make none.
const KEPT: usize = 8;

/// A constant input in a form of its own: which input, and the form.
pub(super) type Prepared = Option<(usize, Arc<prepared::Prepared>)>;

/// Where an operand lies.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The same memory in every run, or none that a kernel reads.
    Known(usize),
    /// So many bytes into the run's block.
    Block(usize),
    /// Memory of this value, which the run brings.
    Brought(usize),
}

/// The operands of all steps, one step after the other, inputs first.
#[derive(Debug)]
pub(super) struct Operands {
    places: Vec<Place>,
    /// The values that they are.
    values: Vec<usize>,
    steps: Vec<Span>,
    /// What runs have left.
    kept: Mutex<Vec<Vec<View>>>,
}

/// A step's part of them.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub inputs: Range<usize>,
    pub outputs: Range<usize>,
}

/// What a run is given: the block, and the addresses of what it brings, by value.
pub(super) struct Memory<'a> {
    pub block: usize,
    pub brought: &'a [Option<usize>],
}

impl Operands {
    /// Those of these steps. `constants` are known for good where they are no other's.
    pub fn new(
        steps: &[Step],
        prepared: &[Prepared],
        roots: &[usize],
        layout: &Layout,
        constants: &[Option<TensorData>],
        is_private: impl Fn(usize) -> bool,
    ) -> Operands {
        let place = |value: usize| {
            let root = roots[value];
            match (&constants[root], layout.offsets[root]) {
                (Some(tensor), _) if is_private(root) => Place::Known(tensor.address()),
                (None, Some(offset)) => Place::Block(offset),
                _ => Place::Brought(root),
            }
        };
        let mut operands =
            Operands { places: Vec::new(), values: Vec::new(), steps: Vec::new(), kept: Mutex::new(Vec::new()) };
        for (step, prepared) in steps.iter().zip(prepared) {
            let begin = operands.values.len();
            let own = prepared.as_ref().map(|(input, _)| *input);
            let inputs = step.inputs.iter().enumerate();
            operands.places.extend(inputs.map(|(input, &value)| {
                // What the operator reads in a form of its own it does not read as it was.
                if own == Some(input) { Place::Known(0) } else { place(value) }
            }));
            operands.places.extend(step.outputs.iter().map(|&value| place(value)));
            operands.values.extend(step.inputs.iter().chain(&step.outputs));
            let middle = begin + step.inputs.len();
            operands.steps.push(Span { inputs: begin..middle, outputs: middle..operands.values.len() });
        }
        operands
    }

    /// The steps' parts, in order.
    pub fn steps(&self) -> &[Span] {
        &self.steps
    }

    /// The views for a run, to be given back with [`Operands::keep`].
    pub fn views(&self, values: &[Value], memory: &Memory) -> Result<Vec<View>> {
        let mut views = match self.lock().pop() {
            Some(views) => views,
            None => self.made(values)?,
        };
        for (operand, (view, place)) in views.iter_mut().zip(&self.places).enumerate() {
            view.address = match *place {
                Place::Known(_) => continue,
                Place::Block(offset) => memory.block + offset,
                Place::Brought(value) => memory.brought[value].ok_or_else(|| without_memory(self.values[operand]))?,
            };
        }
        Ok(views)
    }

    /// Keeps views for other runs.
    pub fn keep(&self, views: Vec<View>) {
        let mut kept = self.lock();
        if kept.len() < KEPT {
            kept.push(views);
        }
    }

    fn made(&self, values: &[Value]) -> Result<Vec<View>> {
        let view = |(&value, place): (&usize, &Place)| {
            let (address, meta) = (if let Place::Known(address) = place { *address } else { 0 }, &values[value].meta);
            Ok(View::dense(address, meta.dtype, &meta.shape)?)
        };
        self.values.iter().zip(&self.places).map(view).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<View>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn without_memory(value: usize) -> Error {
    Error::Feed { name: format!("value {value}"), what: "it has no memory" }
}

#[cfg(test)]
mod tests {
    use crate::graph::StoredTensor;
    use crate::{DataType, Device, Graph, TensorData};

    /// Constants of a graph's own are no one else's: a run locks what it is fed and what it gives back. A tensor that the user has is locked, too.
    #[test]
    fn what_is_the_users_is_shared() {
        let (device, mut graph) = (Device::get(0).unwrap(), Graph::new());
        let x = graph.placeholder("x", &[2], DataType::F32).unwrap();
        let own = graph.constant(&[2], &[1.0f32, 2.0]).unwrap();
        let stored = StoredTensor::new(&device, &[2], DataType::F32, || {
            Ok([10.0f32, 20.0].iter().flat_map(|x| x.to_ne_bytes()).collect())
        })
        .unwrap();
        let (y, stored_value) = (graph.add(x, own).unwrap(), graph.stored(&stored));
        let y = graph.add(y, stored_value).unwrap();
        let users = TensorData::from_slice(&device, &[2], &[100.0f32, 200.0]).unwrap();
        let users_value = graph.data(&users);
        let y = graph.add(y, users_value).unwrap();
        let executable = graph.compile(&device, &[y]).unwrap();
        assert_eq!(executable.plan.shared.len(), 2);
        let feed = TensorData::from_slice(&device, &[2], &[1000.0f32, 2000.0]).unwrap();
        // Whoever asks for the stored tensor gets one for himself.
        stored.tensor().unwrap().data().free();
        let results = executable.run(&device.queue(), &[("x", &feed)]).unwrap();
        assert_eq!(results[0].read::<f32>().unwrap(), [1111.0, 2222.0]);
        users.data().free();
        assert!(executable.run(&device.queue(), &[("x", &feed)]).is_err(), "it was freed");
    }

    /// Threads that run one graph at the same time have views of their own.
    #[test]
    fn runs_at_the_same_time_are_apart() {
        let (device, mut graph) = (Device::get(0).unwrap(), Graph::new());
        let x = graph.placeholder("x", &[64, 64], DataType::F32).unwrap();
        let mut y = graph.matmul(x, x).unwrap();
        for _ in 0..4 {
            y = graph.softmax(y, -1).unwrap();
            y = graph.matmul(y, x).unwrap();
        }
        let executable = graph.compile(&device, &[y]).unwrap();
        let feeds: Vec<TensorData> = (0..16)
            .map(|i| {
                let numbers: Vec<f32> = (0..4096).map(|at| ((at * 31 + i * 7919) % 97) as f32 / 97.0).collect();
                TensorData::from_slice(&device, &[64, 64], &numbers).unwrap()
            })
            .collect();
        let run = |feed| executable.run(&device.new_queue(), &[("x", feed)]).unwrap()[0].read::<f32>().unwrap();
        let expected: Vec<Vec<f32>> = feeds.iter().map(run).collect();
        std::thread::scope(|scope| {
            for (feed, expected) in feeds.iter().zip(&expected) {
                let run = &run;
                scope.spawn(move || (0..20).for_each(|_| assert_eq!(run(feed), *expected)));
            }
        });
    }
}
