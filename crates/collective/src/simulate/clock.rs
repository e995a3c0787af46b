//! Virtual time: events in their order, and the cores and lines that ranks wait for.

use super::tasks::{Task, Tasks};
use super::{Cluster, Fault, Outcome};
use crate::error::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

/// Picoseconds: whole numbers, so that the same model gives the same time everywhere.
type Time = u64;

const SECOND: f64 = 1e12;

fn time(seconds: f64) -> Time {
    (seconds * SECOND) as Time
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A rank has done what it was at.
    Done,
    /// A message of a rank, by number, is there.
    Came { from: u32, number: u32 },
}

/// A rank's thread.
struct Rank {
    tasks: Tasks,
    sends: BTreeSet<u32>,
    folds: BTreeSet<u32>,
    left: usize,
    at: Option<Task>,
    /// Messages to each rank so far.
    sent: HashMap<u32, u32>,
    /// Whether folds have their turn: the engine sends what it can, then folds what it can.
    folds_next: bool,
    ended: Time,
}

/// A job in the middle of an operation.
pub(super) struct Clock {
    cluster: Cluster,
    ranks: Vec<Rank>,
    fault: Option<Fault>,
    events: BinaryHeap<Reverse<(Time, u32, Event)>>,
    /// By host: when each core has time.
    cores: Vec<BinaryHeap<Reverse<Time>>>,
    /// By host: when its line has.
    lines: Vec<Time>,
    messages: usize,
    bytes: u64,
}

impl Clock {
    pub fn new(cluster: Cluster, tasks: Vec<Tasks>, fault: Option<Fault>) -> Clock {
        let hosts = cluster.ranks.div_ceil(cluster.ranks_per_host);
        let ranks = tasks.into_iter().map(|tasks| {
            let ready =
                |it: Vec<bool>| it.iter().enumerate().filter(|(_, ready)| **ready).map(|(at, _)| at as u32).collect();
            Rank {
                sends: ready(tasks.sends.iter().map(|send| send.missing == 0).collect()),
                folds: ready(tasks.folds.iter().map(|fold| fold.missing == 0).collect()),
                left: tasks.sends.len() + tasks.folds.len(),
                at: None,
                sent: HashMap::new(),
                folds_next: false,
                ended: 0,
                tasks,
            }
        });
        Clock {
            ranks: ranks.collect(),
            fault,
            events: BinaryHeap::new(),
            cores: vec![(0..cluster.cores_per_host).map(|_| Reverse(0)).collect(); hosts],
            lines: vec![0; hosts],
            messages: 0,
            bytes: 0,
            cluster,
        }
    }

    /// Until nothing more happens.
    pub fn run(mut self) -> Result<Outcome> {
        for rank in 0..self.ranks.len() {
            self.begin(rank, 0);
        }
        let mut last = 0;
        while let Some(Reverse((now, rank, event))) = self.events.pop() {
            let index = rank as usize;
            if self.is_dead(index, now) {
                continue;
            }
            last = now;
            match event {
                Event::Done => self.finish(index, now),
                Event::Came { from, number } => {
                    if let Some(fold) = self.ranks[index].tasks.fold_of(from, number) {
                        self.ranks[index].release(Task::Fold(fold));
                    }
                }
            }
            self.begin(index, now);
        }
        self.outcome(last)
    }

    fn is_dead(&self, index: usize, now: Time) -> bool {
        match self.fault {
            Some(Fault::Killed { rank, at } | Fault::Hung { rank, at, .. }) => rank == index && now >= time(at),
            _ => false,
        }
    }

    /// Begins the next thing that a rank can do, if it is not at one already.
    fn begin(&mut self, index: usize, now: Time) {
        if self.ranks[index].at.is_some() || self.is_dead(index, now) {
            return;
        }
        let Some(task) = self.ranks[index].take() else {
            self.look(index, now);
            return;
        };
        self.ranks[index].at = Some(task);
        let sleeps = now > self.ranks[index].ended + time(self.cluster.patience);
        let seconds = self.cost(index, task) + if sleeps { self.cluster.wake } else { 0.0 };
        let cores = &mut self.cores[self.cluster.host(index)];
        // The first core that has time; there is one at least.
        let Reverse(free) = cores.pop().unwrap_or(Reverse(now));
        let end = now.max(free) + time(seconds);
        cores.push(Reverse(end));
        self.events.push(Reverse((end, index as u32, Event::Done)));
    }

    /// A rank that waits keeps a core that others could use, for a while.
    fn look(&mut self, index: usize, now: Time) {
        let rank = &mut self.ranks[index];
        let others_wait = self.cluster.ranks_per_host > self.cluster.cores_per_host;
        if others_wait && rank.left > 0 && rank.ended == now {
            let cores = &mut self.cores[self.cluster.host(index)];
            let Reverse(free) = cores.pop().unwrap_or(Reverse(now));
            cores.push(Reverse(now.max(free) + time(self.cluster.patience)));
        }
    }

    /// Seconds that a core is at it.
    fn cost(&self, index: usize, task: Task) -> f64 {
        let tasks = &self.ranks[index].tasks;
        match task {
            Task::Send(send) => {
                let send = tasks.sends[send as usize];
                let link = self.cluster.link(index, send.to as usize);
                link.message + f64::from(send.bytes) / link.handling
            }
            Task::Fold(fold) => {
                let fold = tasks.folds[fold as usize];
                // Which ranks they came from makes no difference that is worth keeping.
                let link = if self.cluster.ranks > self.cluster.ranks_per_host {
                    self.cluster.between
                } else {
                    self.cluster.inside
                };
                f64::from(fold.messages) * link.message + fold.bytes as f64 / self.cluster.fold
            }
        }
    }

    fn finish(&mut self, index: usize, now: Time) {
        let rank = &mut self.ranks[index];
        let Some(task) = rank.at.take() else { return };
        rank.left -= 1;
        rank.ended = now;
        match task {
            Task::Fold(fold) => {
                let next: Vec<Task> = rank.tasks.after(fold).collect();
                next.into_iter().for_each(|task| rank.release(task));
            }
            Task::Send(send) => {
                let send = rank.tasks.sends[send as usize];
                if let Some(next) = send.next {
                    rank.release(Task::Send(next));
                }
                let number = rank.sent.entry(send.to).or_default();
                let event = Event::Came { from: index as u32, number: *number };
                *number += 1;
                self.messages += 1;
                self.bytes += u64::from(send.bytes);
                let arrival = self.carry(index, send.to as usize, send.bytes, now);
                self.events.push(Reverse((arrival, send.to, event)));
            }
        }
    }

    /// When what leaves a rank now is at another.
    fn carry(&mut self, from: usize, to: usize, bytes: u32, now: Time) -> Time {
        let link = self.cluster.link(from, to);
        let mut leaves = now;
        if let Some(bandwidth) = link.bandwidth {
            let line = &mut self.lines[self.cluster.host(from)];
            leaves = now.max(*line) + time(f64::from(bytes) / bandwidth);
            *line = leaves;
        }
        leaves + time(link.latency) + self.lateness(from, to)
    }

    /// The same messages are late in every run.
    fn lateness(&self, from: usize, to: usize) -> Time {
        let Some(Fault::Loss { share, delay }) = self.fault else { return 0 };
        if self.cluster.host(from) == self.cluster.host(to) {
            return 0;
        }
        let mixed = (self.messages as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (from as u64) << 32 ^ to as u64;
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        if (mixed as f64) < share * 2.0_f64.powi(32) { time(delay) } else { 0 }
    }

    fn outcome(self, last: Time) -> Result<Outcome> {
        let waits = |dead: usize| self.ranks.iter().enumerate().any(|(rank, it)| rank != dead && it.left > 0);
        let done = |seconds, failed| Outcome { seconds, messages: self.messages, bytes: self.bytes, failed };
        match self.fault {
            Some(Fault::Killed { rank, at }) if waits(rank) => {
                let latency = self.cluster.inside.latency.max(self.cluster.between.latency);
                Ok(done(at + latency, Some(rank)))
            }
            Some(Fault::Hung { rank, limit, .. }) if waits(rank) => Ok(done(last as f64 / SECOND + limit, Some(rank))),
            _ if !waits(usize::MAX) || matches!(self.fault, Some(Fault::Killed { .. } | Fault::Hung { .. })) => {
                let end = self.ranks.iter().map(|rank| rank.ended).max().unwrap_or(0);
                Ok(done(end as f64 / SECOND, None))
            }
            _ => {
                Err(Error::System { what: "a simulation", reason: "a program waits for what no rank sends".to_owned() })
            }
        }
    }
}

impl Rank {
    /// One thing less is missing for this.
    fn release(&mut self, task: Task) {
        match task {
            Task::Send(index) => {
                let send = &mut self.tasks.sends[index as usize];
                send.missing -= 1;
                if send.missing == 0 {
                    self.sends.insert(index);
                }
            }
            Task::Fold(index) => {
                let fold = &mut self.tasks.folds[index as usize];
                fold.missing -= 1;
                if fold.missing == 0 {
                    self.folds.insert(index);
                }
            }
        }
    }

    /// Sends and folds in turn, each in the order of the list.
    fn take(&mut self) -> Option<Task> {
        let folds_next = self.folds_next;
        self.folds_next = !folds_next;
        let (send, fold) = (self.sends.first().copied(), self.folds.first().copied());
        let task = match (send, fold) {
            (Some(send), None) => Task::Send(send),
            (None, Some(fold)) => Task::Fold(fold),
            (Some(_), Some(fold)) if folds_next => Task::Fold(fold),
            (Some(send), Some(_)) => Task::Send(send),
            (None, None) => return None,
        };
        match task {
            Task::Send(index) => self.sends.remove(&index),
            Task::Fold(index) => self.folds.remove(&index),
        };
        Some(task)
    }
}
