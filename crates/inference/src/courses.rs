//! The courses that runs of a program took, for one set of shapes, as a tree: those that begin alike are one up to where they read different contents.

use crate::course::{AtHand, Content, Course, Event, Origin, Segment, content};
use crate::error::Result;
use crate::lower::read;
use openmps::{CommandQueue, TensorData};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Courses that are kept for a set of shapes.
const MOST: usize = 64;
/// Nodes of the tree at most: each may hold a compiled graph.
const MOST_NODES: usize = 1 << 13;
/// So many more runs that took a course of their own than such that followed one: their contents differ by nature, as counts of what was found do.
const PATIENCE: usize = 32;

/// What comes next in a course; others are named by their place in the tree.
enum Node {
    Run(Arc<Segment>, usize),
    /// The content of a tensor says what comes.
    Read(Origin, Vec<Branch>),
    Last(Arc<Segment>),
}

struct Branch {
    content: Content,
    /// What courses behind it still read of what there is by then.
    needed: HashSet<Origin>,
    next: usize,
}

/// The courses of a program for one set of shapes.
#[derive(Default)]
pub(crate) struct Courses(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The first one is where all courses begin.
    nodes: Vec<Node>,
    courses: usize,
    followed: usize,
    others: usize,
}

/// What a run does next.
enum Move {
    Run(Arc<Segment>, usize),
    Read(Origin),
    Last(Arc<Segment>),
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
        let (mut held, mut at) = (AtHand::of(inputs), 0);
        loop {
            // No lock is held while a graph runs: other runs follow at the same time.
            let Some(next) = self.kept().at(at) else { return Ok(None) };
            match next {
                Move::Run(segment, next) => {
                    let results = segment.run(queue, &held)?;
                    held.add(results);
                    at = next;
                }
                Move::Read(origin) => {
                    let Some(tensor) = held.get(origin) else { return Ok(None) };
                    let content = content(&read(tensor)?.data);
                    let kept = self.kept();
                    let Some(branch) = kept.branch(at, &content) else { return Ok(None) };
                    held.keep(&branch.needed);
                    at = branch.next;
                }
                Move::Last(segment) => {
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
        let has_room = kept.courses < MOST && kept.nodes.len() + course.events.len() < MOST_NODES;
        if course.is_beyond_limits || kept.others > kept.followed + PATIENCE {
            // For good: no further course is kept, and none is there to be followed.
            (kept.nodes, kept.courses) = (Vec::new(), MOST);
        } else if has_room {
            kept.courses += 1;
            kept.add(&course.events, &Arc::new(last));
        }
    }
}

impl Kept {
    fn at(&self, at: usize) -> Option<Move> {
        Some(match self.nodes.get(at)? {
            Node::Run(segment, next) => Move::Run(Arc::clone(segment), *next),
            Node::Read(origin, _) => Move::Read(*origin),
            Node::Last(segment) => Move::Last(Arc::clone(segment)),
        })
    }

    fn branch(&self, at: usize, content: &Content) -> Option<&Branch> {
        let Node::Read(_, branches) = self.nodes.get(at)? else { return None };
        branches.iter().find(|branch| branch.content == *content)
    }

    /// Adds a course to those that begin alike.
    fn add(&mut self, events: &[Event], last: &Arc<Segment>) {
        let mut needed = needed(events, last);
        let mut at = 0;
        for (number, event) in events.iter().enumerate() {
            // Where a new part begins, if one does: behind what has been added by then.
            let end = self.nodes.len();
            at = match (self.nodes.get_mut(at), event) {
                (None, _) => return self.chain(&events[number..], &mut needed[number..], last),
                (Some(Node::Run(_, next)), Event::Ran(_)) => *next,
                (Some(Node::Read(of, branches)), Event::Read(origin, content)) if of == origin => {
                    let needed = std::mem::take(&mut needed[number]);
                    match branches.iter_mut().find(|branch| branch.content == *content) {
                        Some(branch) => {
                            branch.needed.extend(needed);
                            branch.next
                        }
                        None => {
                            branches.push(Branch { content: content.clone(), needed, next: end });
                            end
                        }
                    }
                }
                _ => return,
            };
        }
        if at == self.nodes.len() {
            self.nodes.push(Node::Last(Arc::clone(last)));
        }
    }

    /// The rest of a course, which no other shares, behind all nodes that there are.
    fn chain(&mut self, events: &[Event], needed: &mut [HashSet<Origin>], last: &Arc<Segment>) {
        for (event, needed) in events.iter().zip(needed) {
            let next = self.nodes.len() + 1;
            self.nodes.push(match event {
                Event::Ran(segment) => Node::Run(Arc::clone(segment), next),
                Event::Read(origin, content) => {
                    let branch = Branch { content: content.clone(), needed: std::mem::take(needed), next };
                    Node::Read(*origin, vec![branch])
                }
            });
        }
        self.nodes.push(Node::Last(Arc::clone(last)));
    }
}

/// By event: what is read behind it, of what there is by then; of events that read a content alone.
fn needed(events: &[Event], last: &Segment) -> Vec<HashSet<Origin>> {
    let fed = |segment: &Segment| segment.feeds.iter().map(|(_, origin)| *origin).collect::<Vec<_>>();
    let mut number = events.iter().filter(|event| matches!(event, Event::Ran(_))).count();
    let mut open: HashSet<Origin> = fed(last).into_iter().collect();
    let mut needed = vec![HashSet::new(); events.len()];
    for (event, needed) in events.iter().zip(&mut needed).rev() {
        match event {
            Event::Ran(segment) => {
                number -= 1;
                open.retain(|origin| !matches!(origin, Origin::Graph { number: of, .. } if *of == number));
                open.extend(fed(segment));
            }
            Event::Read(origin, _) => {
                needed.clone_from(&open);
                open.insert(*origin);
            }
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::{Feed, Held};
    use openmps::graph::Executable;
    use openmps::{DataType, Device, Graph, OptimizationLevel};

    /// `y = x + 1`
    fn next_number(device: &Device) -> (Arc<Executable>, openmps::graph::Tensor) {
        let mut graph = Graph::new();
        let x = graph.placeholder("x", &[1], DataType::F32).unwrap();
        let one = graph.constant(&[1], &[1.0f32]).unwrap();
        let y = graph.add(x, one).unwrap();
        (graph.compile_with(device, &[y], OptimizationLevel::Level1).unwrap(), x)
    }

    /// Counts from the input on in so many rounds, each of which reads how far it got.
    fn count(device: &Device, rounds: usize, input: &TensorData) -> (Course, Segment) {
        let (executable, placeholder) = next_number(device);
        let (mut course, mut held) = (Course::default(), Held { tensor: input.clone(), origin: Origin::Input(0) });
        for _ in 0..rounds {
            let feed = Feed { name: "x".to_owned(), placeholder, held };
            let (segment, results) = Segment::first(Arc::clone(&executable), &device.queue(), vec![feed]).unwrap();
            let origin = Origin::Graph { number: course.ran(segment), result: 0 };
            held = Held { tensor: results[0].clone(), origin };
            course.read(origin, &read(&held.tensor).unwrap().data);
        }
        let feed = Feed { name: "x".to_owned(), placeholder, held };
        let (last, _) = Segment::first(executable, &device.queue(), vec![feed]).unwrap();
        (course, last)
    }

    /// A loop of more rounds than a stack has room for is followed to its end, and so is one that takes another way from the first read on.
    #[test]
    fn long_courses_are_followed() {
        let device = Device::get(0).unwrap();
        let (courses, queue) = (Courses::default(), device.queue());
        let input = |value: f32| TensorData::from_slice(&device, &[1], &[value]).unwrap();
        for (value, rounds) in [(0.0, 3000), (0.5, 2)] {
            assert!(courses.follow(&queue, &[input(value)]).unwrap().is_none());
            let (course, last) = count(&device, rounds, &input(value));
            courses.keep(course, last);
        }
        for (value, last) in [(0.0f32, 3001.0f32), (0.5, 3.5)] {
            let results = courses.follow(&queue, &[input(value)]).unwrap().expect("a course that is known");
            assert_eq!(results[0].read::<f32>().unwrap(), [last]);
        }
        assert!(courses.follow(&queue, &[input(0.25)]).unwrap().is_none());
        assert_eq!(format!("{courses:?}"), "2 courses, followed by 2 runs and not by 2");
    }
}
