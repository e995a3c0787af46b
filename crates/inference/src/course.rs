//! Courses of runs: which graphs a program ran, and what it read of their results, where what it does next depends on that.
//!
//! A program is lowered for its inputs' shapes and for the contents that it reads on the way, and for nothing else: runs that read the same run the same
//! graphs. So a run's course is kept, and the next run follows it as far as it reads the same; only what is new is lowered.

use crate::error::Result;
use crate::lower::Feed;
use openmps::graph::Executable;
use openmps::{CommandQueue, TensorData};
use std::collections::HashSet;
use std::sync::Arc;

/// Graphs that are run and contents that are read in a course at most: a loop's rounds are all part of it.
const LONGEST: usize = 8192;
/// Compiled graphs of a course at most: those of a loop's rounds are one and the same where neither shapes nor what is known of the round differ.
const MOST_GRAPHS: usize = 1024;
/// Numbers of a content at most.
const LARGEST: usize = 64;

/// Where a run has a tensor from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// The program's input of this number.
    Input(usize),
    /// A result of a graph that the run ran before.
    Graph {
        /// Which of the graphs.
        number: usize,
        /// Which of its results.
        result: usize,
    },
}

/// What a run has at hand of what it was given and has computed, by its origin.
pub(crate) struct AtHand {
    inputs: Vec<Option<TensorData>>,
    /// By the graph's number; nothing where all has gone.
    graphs: Vec<Vec<Option<TensorData>>>,
}

impl AtHand {
    pub(crate) fn of(inputs: &[TensorData]) -> AtHand {
        AtHand { inputs: inputs.iter().cloned().map(Some).collect(), graphs: Vec::new() }
    }

    /// Adds the results of the next graph.
    pub(crate) fn add(&mut self, results: Vec<TensorData>) {
        self.graphs.push(results.into_iter().map(Some).collect());
    }

    pub(crate) fn get(&self, origin: Origin) -> Option<&TensorData> {
        let place = match origin {
            Origin::Input(at) => self.inputs.get(at),
            Origin::Graph { number, result } => self.graphs.get(number)?.get(result),
        };
        place?.as_ref()
    }

    /// Lets go of the rest: its memory serves what comes.
    pub(crate) fn keep(&mut self, needed: &HashSet<Origin>) {
        for (at, input) in self.inputs.iter_mut().enumerate() {
            input.take_if(|_| !needed.contains(&Origin::Input(at)));
        }
        for (number, graph) in self.graphs.iter_mut().enumerate() {
            for (result, tensor) in graph.iter_mut().enumerate() {
                tensor.take_if(|_| !needed.contains(&Origin::Graph { number, result }));
            }
            if graph.iter().all(Option::is_none) {
                graph.clear();
            }
        }
    }
}

/// A compiled graph, and what its placeholders are fed.
#[derive(Debug)]
pub(crate) struct Segment {
    executable: Arc<Executable>,
    pub(crate) feeds: Vec<(String, Origin)>,
}

impl Segment {
    /// Runs a graph for the first time: the segment for later runs, and the results.
    pub(crate) fn first(
        executable: Arc<Executable>,
        queue: &CommandQueue,
        feeds: Vec<Feed>,
    ) -> Result<(Segment, Vec<TensorData>)> {
        let fed: Vec<(&str, &TensorData)> = feeds.iter().map(|feed| (&feed.name[..], &feed.held.tensor)).collect();
        let results = executable.run(queue, &fed)?;
        let feeds = feeds.into_iter().map(|feed| (feed.name, feed.held.origin)).collect();
        Ok((Segment { executable, feeds }, results))
    }

    /// Runs the graph with what it is fed of what the run holds.
    pub(crate) fn run(&self, queue: &CommandQueue, held: &AtHand) -> Result<Vec<TensorData>> {
        let feeds: Vec<(&str, &TensorData)> =
            self.feeds.iter().filter_map(|(name, origin)| Some((&name[..], held.get(*origin)?))).collect();
        Ok(self.executable.run(queue, &feeds)?)
    }
}

/// The numbers that were read of a tensor, by their bits.
pub(crate) type Content = Vec<u64>;

/// What a run did.
#[derive(Debug)]
pub(crate) enum Event {
    /// A graph.
    Ran(Arc<Segment>),
    /// What a tensor held.
    Read(Origin, Content),
}

/// What a run did before its last graph.
#[derive(Debug, Default)]
pub(crate) struct Course {
    pub(crate) events: Vec<Event>,
    graphs: usize,
    /// The compiled graphs among them, by their addresses.
    compiled: HashSet<usize>,
    pub(crate) is_beyond_limits: bool,
}

impl Course {
    /// Whether nothing was run and nothing read: the program is one graph.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.is_beyond_limits
    }

    /// Notes that a graph was run; its number.
    pub(crate) fn ran(&mut self, segment: Segment) -> usize {
        self.compiled.insert(Arc::as_ptr(&segment.executable) as usize);
        self.is_beyond_limits |= self.compiled.len() > MOST_GRAPHS;
        self.note(Event::Ran(Arc::new(segment)));
        self.graphs += 1;
        self.graphs - 1
    }

    /// Notes what was read of a tensor.
    pub(crate) fn read(&mut self, origin: Origin, numbers: &[f64]) {
        self.is_beyond_limits |= numbers.len() > LARGEST;
        if !self.is_beyond_limits {
            self.note(Event::Read(origin, content(numbers)));
        }
    }

    fn note(&mut self, event: Event) {
        self.is_beyond_limits |= self.events.len() >= LONGEST;
        if self.is_beyond_limits {
            self.events.clear();
        } else {
            self.events.push(event);
        }
    }
}

/// The numbers of a content.
pub(crate) fn content(numbers: &[f64]) -> Content {
    numbers.iter().map(|number| number.to_bits()).collect()
}
