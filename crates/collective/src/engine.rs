//! Carries programs out: sends and folds advance as far as bytes and room allow, in any order that the program leaves open.

mod folds;

use crate::algorithm::Member;
use crate::error::{Error, Result};
use crate::fold::Fold;
use crate::message::{HEADER, Header, padded};
use crate::peer::Peer;
use crate::program::{Kind, Program, Send, Source};
use crate::transport::{Interest, Transport};
use crate::watch::{Watch, drain, wait};
use rustix::event::{PollFd, PollFlags};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often everything is looked at again before this thread sleeps.
const LOOKS: u32 = 200;
/// Bytes that are written before what came in is looked at.
const TURN: usize = 256 << 10;
/// How long a sleep is at most, since a rank that fails may do so silently.
const NAP: Duration = Duration::from_millis(500);

/// Where the program's buffers lie.
pub(crate) struct Memory {
    pub buffers: Vec<*mut u8>,
}

/// A rank's streams to all others, and what it needs to use them.
pub(crate) struct Engine {
    member: Member,
    peers: Vec<Option<Peer>>,
    watch: Arc<Watch>,
    limit: Duration,
    scratch: Vec<u128>,
}

/// How far a send is, in bytes of header, elements and padding.
#[derive(Clone, Copy, Default)]
struct Sent {
    bytes: usize,
    done: bool,
}

/// How far a fold is.
#[derive(Clone, Default)]
struct Folded {
    /// Sources whose header has been read and was right.
    headers: usize,
    /// Elements that are folded; bytes where they go straight to their place.
    elements: usize,
    /// Sources whose padding has been taken away.
    ends: usize,
    done: bool,
}

/// One program that runs.
struct Run<'a> {
    program: &'a Program,
    memory: &'a Memory,
    kernels: Vec<Fold>,
    sent: Vec<Sent>,
    folded: Vec<Folded>,
    /// The first send and fold that are not done.
    first_send: usize,
    first_fold: usize,
    /// What is waited for, by rank, after a look at everything without any progress.
    interests: Vec<Interest>,
    /// Bytes that have come from a rank and are too few.
    unread: Vec<usize>,
}

impl Run<'_> {
    /// Nothing more can be done before this rank has sent more than the bytes that are there.
    fn wait_to_read(&mut self, rank: usize, there: usize) {
        self.interests[rank].to_read = true;
        self.unread[rank] = there;
    }
}

impl Engine {
    pub fn new(
        member: Member,
        transports: Vec<Option<Box<dyn Transport>>>,
        watch: Arc<Watch>,
        limit: Duration,
    ) -> Engine {
        let peers = transports.into_iter().map(|transport| transport.map(Peer::new)).collect();
        Engine { member, peers, watch, limit, scratch: Vec::new() }
    }

    /// The transport to each other rank.
    pub fn transports(&self) -> impl Iterator<Item = &'static str> {
        self.peers.iter().flatten().map(|peer| peer.transport.name())
    }

    /// Room for partial results.
    pub fn scratch(&mut self, bytes: usize) -> *mut u8 {
        let needed = bytes.div_ceil(16);
        if self.scratch.len() < needed {
            self.scratch = vec![0; needed];
        }
        self.scratch.as_mut_ptr().cast()
    }

    /// Carries a program out.
    ///
    /// # Safety
    /// Every place of the program lies in a buffer of `memory` and is readable, or writable where it is the target of a fold, until this
    /// returns.
    pub unsafe fn run(&mut self, program: &Program, memory: &Memory) -> Result<()> {
        let kernels = program.operations.iter().map(|it| Fold::new(it.element, it.reduction, self.member.ranks));
        let mut run = Run {
            program,
            memory,
            kernels: kernels.collect::<Result<_>>()?,
            sent: vec![Sent::default(); program.sends.len()],
            folded: vec![Folded::default(); program.folds.len()],
            first_send: 0,
            first_fold: 0,
            interests: vec![Interest::default(); self.member.ranks],
            unread: vec![0; self.member.ranks],
        };
        if let Some(failure) = self.watch.failure() {
            return Err(failure);
        }
        if let Some(operation) = program.operations.first() {
            self.watch.enter(operation);
        }
        let result = self.go_on(&mut run);
        match result {
            Ok(()) => self.watch.leave(),
            Err(error) => return Err(self.watch.fail(error)),
        }
        Ok(())
    }

    fn go_on(&mut self, run: &mut Run<'_>) -> Result<()> {
        let (mut looks, mut progress) = (0, Instant::now());
        loop {
            run.interests.fill(Interest::default());
            let moved = self.send(run)? | self.fold(run)?;
            if run.first_send == run.sent.len() && run.first_fold == run.folded.len() {
                return Ok(());
            }
            if moved {
                looks = 0;
                continue;
            }
            if looks == 0 {
                progress = Instant::now();
            }
            looks += 1;
            if let Some(failure) = self.watch.failure() {
                return Err(failure);
            }
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            let first = run.interests.iter().position(|&interest| interest != Interest::default());
            if !self.absorb(run)? {
                self.sleep(run, first, progress)?;
            }
        }
    }

    /// Writes what there is room for; whether anything was.
    fn send(&mut self, run: &mut Run<'_>) -> Result<bool> {
        let mut moved = false;
        let mut busy = Busy::default();
        let end = (run.first_send + self.window()).min(run.sent.len());
        for index in run.first_send..end {
            let send = &run.program.sends[index];
            if run.sent[index].done {
                continue;
            }
            if busy.is(send.to) {
                continue;
            }
            busy.set(send.to);
            if send.after.is_some_and(|fold| !run.folded[fold].done) {
                continue;
            }
            let before = run.sent[index].bytes;
            let peer = peer(&mut self.peers, send.to);
            let result = advance_send(run, index, send, &mut *peer.transport);
            result.map_err(|error| self.watch.explain(send.to, &error))?;
            moved |= run.sent[index].bytes > before;
            if !run.sent[index].done {
                run.interests[send.to].to_write = true;
            }
        }
        while run.sent.get(run.first_send).is_some_and(|sent| sent.done) {
            run.first_send += 1;
        }
        Ok(moved)
    }

    /// While messages wait, takes in what any rank sends before it is received, since that rank may be whom others wait for; whether anything
    /// was.
    fn absorb(&mut self, run: &mut Run<'_>) -> Result<bool> {
        if run.program.operations[0].kind != Kind::Message {
            return Ok(false);
        }
        let mut moved = false;
        for rank in (0..self.member.ranks).filter(|&rank| rank != self.member.rank) {
            let Interest { to_read, to_write } = run.interests[rank];
            if to_read {
                continue;
            }
            match peer(&mut self.peers, rank).absorb() {
                Ok(came) => {
                    moved |= came;
                    run.wait_to_read(rank, 0);
                }
                Err(error) if to_write => return Err(self.watch.explain(rank, &error)),
                // These messages are not for a rank that has left.
                Err(_) => {}
            }
        }
        Ok(moved)
    }

    /// Folds what has come; whether anything was.
    fn fold(&mut self, run: &mut Run<'_>) -> Result<bool> {
        let mut moved = false;
        let mut busy = Busy::default();
        let end = (run.first_fold + self.window()).min(run.folded.len());
        for index in run.first_fold..end {
            let step = &run.program.folds[index];
            if run.folded[index].done {
                continue;
            }
            let held = step.after.is_some_and(|fold| !run.folded[fold].done);
            let behind =
                step.sources.iter().any(|source| matches!(source, Source::Rank { rank, .. } if busy.is(*rank)));
            for source in &step.sources {
                if let Source::Rank { rank, .. } = source {
                    busy.set(*rank);
                }
            }
            if !held && !behind {
                moved |= self.advance_fold(run, index, step)?;
            }
        }
        while run.folded.get(run.first_fold).is_some_and(|folded| folded.done) {
            run.first_fold += 1;
        }
        Ok(moved)
    }

    /// How many items of a list are looked at: more than can be at work at once.
    fn window(&self) -> usize {
        4 * self.member.ranks + 8
    }

    /// Sleeps until a rank that is listened to has done something. The program cannot go on without the first.
    fn sleep(&mut self, run: &Run<'_>, first: Option<usize>, progress: Instant) -> Result<()> {
        let waits: Vec<usize> = (0..self.member.ranks).filter(|&it| run.interests[it] != Interest::default()).collect();
        let Some(first) = first else {
            return Err(Error::System { what: "a program", reason: "it waits for nothing".to_owned() });
        };
        let waited = progress.elapsed();
        self.watch.wait_for(first);
        if waited > self.limit {
            let operation = run.program.operations[0];
            return Err(self.watch.blame(&operation, first, waited));
        }
        let mut ready = false;
        for &rank in &waits {
            ready |= peer(&mut self.peers, rank).before_sleep(run.interests[rank], run.unread[rank]);
        }
        if !ready {
            let mut descriptors = vec![PollFd::new(&self.watch.wake.0, PollFlags::IN)];
            for &rank in &waits {
                let Some(Peer { transport, .. }) = &self.peers[rank] else { continue };
                let [to_read, to_write] = transport.descriptors(run.interests[rank]);
                descriptors.extend(to_read.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
                descriptors.extend(to_write.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)));
            }
            let most = NAP.min(self.limit.saturating_sub(waited)).max(Duration::from_millis(1));
            wait(&mut descriptors, most);
            drain(&self.watch.wake.0);
        }
        for &rank in &waits {
            peer(&mut self.peers, rank).transport.after_sleep().map_err(|error| self.watch.explain(rank, &error))?;
        }
        Ok(())
    }
}

/// Ranks whose stream an earlier item of a list uses.
#[derive(Default)]
struct Busy {
    few: u64,
    many: Vec<usize>,
}

impl Busy {
    fn is(&self, rank: usize) -> bool {
        if rank < 64 { self.few >> rank & 1 == 1 } else { self.many.contains(&rank) }
    }

    fn set(&mut self, rank: usize) {
        if rank < 64 { self.few |= 1 << rank } else { self.many.push(rank) }
    }
}

/// Programs name other ranks only.
fn peer(peers: &mut [Option<Peer>], rank: usize) -> &mut Peer {
    peers[rank].as_mut().expect("a program sends to other ranks, not to its own")
}

fn look<'a>(peers: &'a mut [Option<Peer>], watch: &Watch, rank: usize, wanted: usize) -> Result<&'a [u8]> {
    peer(peers, rank).peek(wanted).map_err(|error| watch.explain(rank, &error))
}

fn address(memory: &Memory, buffer: usize, bytes: usize) -> *const u8 {
    memory.buffers[buffer].wrapping_add(bytes)
}

fn advance_send(run: &mut Run<'_>, index: usize, send: &Send, peer: &mut dyn Transport) -> std::io::Result<()> {
    let form = send.from.form();
    let size = run.kernels[send.operation].size(form);
    let elements = send.count * size;
    let total = HEADER + padded(elements);
    let state = &mut run.sent[index];
    let mut turn = TURN;
    while state.bytes < total && turn > 0 {
        let wrote = if state.bytes < HEADER {
            let operation = run.program.operations[send.operation];
            let header = Header { operation, elements: send.count, form }.encode();
            peer.write(&header[state.bytes..])?
        } else if state.bytes < HEADER + elements {
            let at = state.bytes - HEADER;
            let begin = address(run.memory, send.from.buffer, send.from.begin * size + at);
            // SAFETY: by the promise of `Engine::run`: the place of a send is readable, and its fold, if it has one, has been done.
            peer.write(unsafe { std::slice::from_raw_parts(begin, (elements - at).min(turn)) })?
        } else {
            peer.write(&[0; HEADER][..total - state.bytes])?
        };
        if wrote == 0 {
            return Ok(());
        }
        state.bytes += wrote;
        turn = turn.saturating_sub(wrote);
    }
    state.done = state.bytes == total;
    Ok(())
}
