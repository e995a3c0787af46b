//! Courses of runs: which graphs a program ran, and what it read of their results, where what it does next depends on that.
//!
//! A program is lowered for its inputs' shapes and for the contents that it reads on the way, and for nothing else: runs that read the same run the same
//! graphs. So a run's course is kept, and the next run follows it as far as it reads the same; only what is new is lowered.

use crate::error::Result;
use crate::lower::{Feed, read};
use openmps::graph::Executable;
use openmps::{CommandQueue, TensorData};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Graphs and contents of a course at most: a loop's rounds are all part of it.
const LONGEST: usize = 256;
/// Numbers of a content at most.
const LARGEST: usize = 64;
/// Courses that are kept for a set of shapes.
const MOST: usize = 64;
/// So many more runs that took a course of their own than such that followed one: their contents differ by nature, as counts of what was found do.
const PATIENCE: usize = 32;

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

/// A compiled graph, and what its placeholders are fed.
#[derive(Debug)]
pub(crate) struct Segment {
    executable: Arc<Executable>,
    feeds: Vec<(String, Origin)>,
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

    fn run(&self, queue: &CommandQueue, held: &HashMap<Origin, TensorData>) -> Result<Vec<TensorData>> {
        let feeds: Vec<(&str, &TensorData)> =
            self.feeds.iter().filter_map(|(name, origin)| Some((&name[..], held.get(origin)?))).collect();
        Ok(self.executable.run(queue, &feeds)?)
    }
}

/// The numbers that were read of a tensor, by their bits.
type Content = Vec<u64>;

/// What a run did.
#[derive(Debug)]
enum Event {
    Ran(Arc<Segment>),
    Read(Origin, Content),
}

/// What a run did before its last graph.
#[derive(Debug, Default)]
pub(crate) struct Course {
    events: Vec<Event>,
    graphs: usize,
    is_beyond_limits: bool,
}

impl Course {
    /// Whether nothing was run and nothing read: the program is one graph.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.is_beyond_limits
    }

    /// Notes that a graph was run; its number.
    pub(crate) fn ran(&mut self, segment: Segment) -> usize {
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

fn content(numbers: &[f64]) -> Content {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// What comes next in a course.
enum Next {
    Run(Arc<Segment>, Arc<Next>),
    /// The content of a tensor says what comes.
    Read(Origin, Mutex<Vec<Branch>>),
    Last(Arc<Segment>),
}

struct Branch {
    content: Content,
    /// What courses behind it still read.
    needed: HashSet<Origin>,
    next: Arc<Next>,
}

/// The courses of a program for one set of shapes.
#[derive(Default)]
pub(crate) struct Courses(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    first: Option<Arc<Next>>,
    courses: usize,
    followed: usize,
    others: usize,
}

impl fmt::Debug for Courses {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept();
        write!(to, "{} courses, followed by {} runs and not by {}", kept.courses, kept.followed, kept.others)
    }
}

impl Courses {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the program as a run before did. None where it reads what none did, which it may find out after some graphs.
    pub(crate) fn follow(&self, queue: &CommandQueue, inputs: &[TensorData]) -> Result<Option<Vec<TensorData>>> {
        let Some(mut next) = self.kept().first.clone() else { return Ok(None) };
        let inputs = inputs.iter().enumerate().map(|(at, input)| (Origin::Input(at), input.clone()));
        let mut held: HashMap<Origin, TensorData> = inputs.collect();
        let mut number = 0;
        loop {
            next = match &*next {
                Next::Run(segment, next) => {
                    let results = segment.run(queue, &held)?.into_iter().enumerate();
                    held.extend(results.map(|(result, tensor)| (Origin::Graph { number, result }, tensor)));
                    number += 1;
                    Arc::clone(next)
                }
                Next::Read(origin, branches) => {
                    let Some(tensor) = held.get(origin) else { return Ok(None) };
                    let content = content(&read(tensor)?.data);
                    let branches = branches.lock().unwrap_or_else(PoisonError::into_inner);
                    let Some(branch) = branches.iter().find(|branch| branch.content == content) else {
                        return Ok(None);
                    };
                    held.retain(|origin, _| branch.needed.contains(origin));
                    Arc::clone(&branch.next)
                }
                Next::Last(segment) => {
                    self.kept().followed += 1;
                    return segment.run(queue, &held).map(Some);
                }
            }
        }
    }

    /// Keeps the course of a run that followed none, with its last graph.
    pub(crate) fn keep(&self, course: Course, last: Segment) {
        let mut kept = self.kept();
        kept.others += 1;
        if course.is_beyond_limits || kept.others > kept.followed + PATIENCE {
            // For good: no further course is kept, and none is there to be followed.
            (kept.first, kept.courses) = (None, MOST);
        } else if kept.courses < MOST {
            kept.courses += 1;
            let last = Arc::new(last);
            match &kept.first {
                Some(first) => add(Arc::clone(first), &course.events, &last),
                None => kept.first = Some(chain(&course.events, &last)),
            }
        }
    }
}

/// A course behind some of its events.
fn chain(events: &[Event], last: &Arc<Segment>) -> Arc<Next> {
    let mut next = Arc::new(Next::Last(Arc::clone(last)));
    for (at, event) in events.iter().enumerate().rev() {
        next = Arc::new(match event {
            Event::Ran(segment) => Next::Run(Arc::clone(segment), next),
            Event::Read(origin, content) => {
                let needed = needed(&events[at + 1..], last);
                Next::Read(*origin, Mutex::new(vec![Branch { content: content.clone(), needed, next }]))
            }
        });
    }
    next
}

/// Adds a course to those that begin alike.
fn add(mut next: Arc<Next>, mut events: &[Event], last: &Arc<Segment>) {
    while let [event, rest @ ..] = events {
        next = match (&*next, event) {
            (Next::Run(_, next), Event::Ran(_)) => Arc::clone(next),
            (Next::Read(of, branches), Event::Read(origin, content)) if of == origin => {
                let mut branches = branches.lock().unwrap_or_else(PoisonError::into_inner);
                let needed = needed(rest, last);
                match branches.iter_mut().find(|branch| branch.content == *content) {
                    Some(branch) => {
                        branch.needed.extend(needed);
                        Arc::clone(&branch.next)
                    }
                    None => {
                        let next = chain(rest, last);
                        return branches.push(Branch { content: content.clone(), needed, next });
                    }
                }
            }
            _ => return,
        };
        events = rest;
    }
}

/// What these events and the last graph read.
fn needed(events: &[Event], last: &Segment) -> HashSet<Origin> {
    let fed = |segment: &Segment| segment.feeds.iter().map(|(_, origin)| *origin).collect::<Vec<_>>();
    let of = |event: &Event| match event {
        Event::Ran(segment) => fed(segment),
        Event::Read(origin, _) => vec![*origin],
    };
    events.iter().flat_map(of).chain(fed(last)).collect()
}
