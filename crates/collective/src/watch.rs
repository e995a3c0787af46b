//! What ranks know of each other beside the data: a thread that listens to every other rank's words, and says this one's.
//!
//! Each rank says now and then what it is in and whom it waits for. So whoever has waited too long can follow the chain of ranks that wait for
//! each other to the one that does not, and name that one. A rank that fails says so to all, with the name; a connection that ends without a
//! farewell is a rank that died.

mod lane;
mod word;

pub(crate) use word::{Doing, Word};

use crate::algorithm::Member;
use crate::error::{Error, Result};
use crate::program::Operation;
use lane::Lane;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a broken connection of elements waits for the word that says why.
const EXPLANATION: Duration = Duration::from_millis(500);
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_millis(500);

/// What is known of another rank.
#[derive(Clone, Debug)]
struct Known {
    heard: Instant,
    doing: Doing,
    left: bool,
    /// Why its connection ended.
    gone: Option<String>,
}

struct State {
    own: Doing,
    known: Vec<Known>,
    failure: Option<Error>,
    /// Words for all.
    outgoing: Vec<Word>,
    ends: bool,
}

/// Shared by the thread that does operations and the one that listens.
pub(crate) struct Watch {
    member: Member,
    interval: Duration,
    failed: AtomicBool,
    state: Mutex<State>,
    /// Wakes who waits for elements.
    pub wake: (OwnedFd, OwnedFd),
    /// Wakes the thread that listens.
    stir: (OwnedFd, OwnedFd),
}

/// The thread, which ends when this is dropped.
pub(crate) struct Watcher {
    pub watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let make = || {
        let (reader, writer) = rustix::pipe::pipe()?;
        for end in [&reader, &writer] {
            rustix::io::ioctl_fionbio(end, true)?;
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        Ok((reader, writer))
    };
    make().map_err(|error: rustix::io::Errno| Error::system("a pipe")(error.into()))
}

/// Waits for one of these for some time. It says nothing: whoever waits looks at everything then.
pub(crate) fn wait(descriptors: &mut [PollFd<'_>], most: Duration) {
    let _ = poll(descriptors, Timespec::try_from(most).ok().as_ref());
}

/// Empties a pipe that was written to wake somebody.
pub(crate) fn drain(pipe: &OwnedFd) {
    while matches!(rustix::io::read(pipe, &mut [0; 64]), Ok(64)) {}
}

fn ring(pipe: &OwnedFd) {
    // A full pipe wakes too.
    let _ = rustix::io::write(pipe, &[1]);
}

impl Watcher {
    /// Listens to these connections, by rank.
    pub fn start(member: Member, lanes: Vec<Option<TcpStream>>, limit: Duration) -> Result<Watcher> {
        let known = Known { heard: Instant::now(), doing: Doing::default(), left: false, gone: None };
        let state = State {
            own: Doing::default(),
            known: vec![known; member.ranks],
            failure: None,
            outgoing: Vec::new(),
            ends: false,
        };
        let watch = Arc::new(Watch {
            member,
            interval: (limit / 8).clamp(Duration::from_millis(20), Duration::from_secs(1)),
            failed: AtomicBool::new(false),
            state: Mutex::new(state),
            wake: pipe()?,
            stir: pipe()?,
        });
        let lanes: Vec<Lane> =
            lanes.into_iter().enumerate().filter_map(|(rank, lane)| Some(Lane::new(rank, lane?))).collect();
        for lane in &lanes {
            lane.stream.set_nonblocking(true).map_err(Error::system("the options of a connection"))?;
        }
        let of_thread = watch.clone();
        let name = format!("openmps-watch-{}", member.rank);
        let thread = std::thread::Builder::new().name(name).spawn(move || of_thread.run(lanes));
        Ok(Watcher { watch, thread: Some(thread.map_err(Error::system("a thread"))?) })
    }

    /// Says farewell and ends the thread; a fork leaves both to its parent.
    pub fn end(&mut self) {
        let mut state = self.watch.lock();
        state.ends = true;
        if state.failure.is_none() {
            state.outgoing.push(Word::Farewell);
        }
        drop(state);
        ring(&self.watch.stir.1);
        if let Some(thread) = self.thread.take() {
            // It catches what it can; a panic of it was said already.
            let _ = thread.join();
        }
    }

    /// Leaves the thread alone, which this process does not have.
    pub fn forget(&mut self) {
        std::mem::forget(self.thread.take());
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what this rank is in from now on.
    pub fn enter(&self, operation: &Operation) {
        self.lock().own = Doing { kind: Some(operation.kind), sequence: operation.sequence, waits_for: None };
    }

    /// Says whom this rank waits for.
    pub fn wait_for(&self, rank: usize) {
        self.lock().own.waits_for = Some(rank);
    }

    /// Says that the operation has ended.
    pub fn leave(&self) {
        let mut state = self.lock();
        state.own = Doing { kind: None, waits_for: None, ..state.own };
    }

    /// Why nothing more can be done, where that is so.
    pub fn failure(&self) -> Option<Error> {
        if self.failed.load(Ordering::Acquire) { self.lock().failure.clone() } else { None }
    }

    /// Makes the communicator fail, and says so to all. The first failure stays.
    pub fn fail(&self, error: Error) -> Error {
        let word = Word::Failed { rank: error.rank().unwrap_or(self.member.rank), text: error.to_string() };
        self.fail_saying(error, word)
    }

    fn fail_saying(&self, error: Error, word: Word) -> Error {
        let mut state = self.lock();
        let error = state.failure.get_or_insert(error).clone();
        if !self.failed.swap(true, Ordering::AcqRel) {
            state.outgoing.push(word);
        }
        drop(state);
        ring(&self.stir.1);
        ring(&self.wake.1);
        error
    }

    /// What a broken connection of elements to a rank means. The word of the rank itself, or of another, says more than the system does.
    pub fn explain(&self, rank: usize, reason: &std::io::Error) -> Error {
        let begin = Instant::now();
        while begin.elapsed() < EXPLANATION {
            let state = self.lock();
            if let Some(failure) = &state.failure {
                return failure.clone();
            }
            if state.known[rank].left {
                return Error::Left { rank };
            }
            if state.known[rank].gone.is_some() {
                break;
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(2));
        }
        Error::Gone { rank, reason: reason.to_string() }
    }

    /// A rank of which nothing was heard for so long, where there is one: for operations that wait where this rank cannot see whom they wait for.
    pub fn silent(&self, limit: Duration, operation: &str) -> Option<Error> {
        let state = self.lock();
        let others = state.known.iter().enumerate().filter(|(rank, known)| *rank != self.member.rank && !known.left);
        let (rank, silent) =
            others.map(|(rank, known)| (rank, known.heard.elapsed())).max_by_key(|(_, silent)| *silent)?;
        let operation = operation.to_owned();
        (silent > limit).then_some(Error::Silent { rank, silent, operation, waited: silent })
    }

    /// Whom to name after an operation has waited for a rank for too long.
    pub fn blame(&self, operation: &Operation, waits_for: usize, waited: Duration) -> Error {
        let state = self.lock();
        let operation = operation.to_string();
        let mut rank = waits_for;
        for _ in 0..self.member.ranks {
            let known = &state.known[rank];
            let silent = known.heard.elapsed();
            if silent > self.interval * 3 {
                return Error::Silent { rank, silent, operation, waited };
            }
            // A rank that is in the same operation and waits for another one is not to blame, but the last of the chain.
            let next = known.doing.waits_for.filter(|&next| next != self.member.rank && next != waits_for);
            match next.filter(|_| known.doing.sequence >= state.own.sequence) {
                Some(next) => rank = next,
                None => break,
            }
        }
        Error::Late { rank, doing: state.known[rank].doing.describe(), operation, waited }
    }

    fn run(&self, mut lanes: Vec<Lane>) {
        let mut said = Instant::now();
        loop {
            let (words, ends) = {
                let mut state = self.lock();
                let mut words = std::mem::take(&mut state.outgoing);
                if said.elapsed() >= self.interval {
                    words.push(Word::Doing(state.own));
                    said = Instant::now();
                }
                (words, state.ends)
            };
            let patience = if ends { FAREWELL } else { Duration::ZERO };
            for word in &words {
                for lane in &mut lanes {
                    lane.say(word, patience);
                }
            }
            if ends {
                return;
            }
            self.sleep(&lanes, self.interval.saturating_sub(said.elapsed()));
            drain(&self.stir.0);
            for lane in &mut lanes {
                self.hear(lane);
            }
            lanes.retain(|lane| lane.open);
        }
    }

    fn sleep(&self, lanes: &[Lane], most: Duration) {
        let mut descriptors = vec![PollFd::new(&self.stir.0, PollFlags::IN)];
        for lane in lanes {
            let waits = if lane.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            descriptors.push(PollFd::new(&lane.stream, waits));
        }
        wait(&mut descriptors, most);
    }

    fn hear(&self, lane: &mut Lane) {
        lane.flush();
        loop {
            match lane.read() {
                Ok(None) => return,
                Ok(Some(bytes)) => match Word::decode(&bytes, self.member.ranks) {
                    Some(word) => self.take(lane.rank, word),
                    None => {
                        let what = "a word about its state".to_owned();
                        self.fail(Error::Malformed { rank: lane.rank, what });
                    }
                },
                Err(error) => {
                    lane.open = false;
                    let mut state = self.lock();
                    state.known[lane.rank].gone = Some(error.to_string());
                    let left = state.known[lane.rank].left;
                    drop(state);
                    if !left {
                        self.fail(Error::Gone { rank: lane.rank, reason: error.to_string() });
                    }
                    return;
                }
            }
        }
    }

    fn take(&self, from: usize, word: Word) {
        let mut state = self.lock();
        let known = &mut state.known[from];
        known.heard = Instant::now();
        match word {
            Word::Doing(doing) => known.doing = doing,
            Word::Farewell => known.left = true,
            Word::Failed { rank, text } => {
                drop(state);
                // A report is passed on as it is: else who sees this rank leave before it hears the report would blame this rank.
                let report = Word::Failed { rank, text: text.clone() };
                // Where two differ, each names the other.
                let rank = if rank == self.member.rank { from } else { rank };
                self.fail_saying(Error::Reported { rank, by: from, text }, report);
            }
        }
    }
}
