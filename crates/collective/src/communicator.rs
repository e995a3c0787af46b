//! A communicator: ranks that do the same operations in the same order. This file has them over plain addresses; `typed` over slices.

use crate::algorithm::{self, Algorithm, Layout, Member};
use crate::element::{ElementType, Reduction};
use crate::engine::{Engine, Memory};
use crate::error::{Error, Result};
use crate::identity::{UNIQUE_ID_BYTES, UniqueId};
use crate::nccl::Gpus;
use crate::options::Options;
use crate::program::{Kind, Operation, Program};
use crate::rendezvous::{Meeting, Pair};
use crate::request::Message;
use crate::task::{Part, Task, size};
use crate::transport::shared::{End, Shared};
use crate::transport::tcp::Tcp;
use crate::transport::{Transport, TransportKind};
use crate::watch::{Watch, Watcher};
use std::fmt;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of shared memory that all of a rank's rings together may have, and the most and fewest of one.
const RINGS: usize = 32 << 20;
const MOST_RING: usize = 1 << 20;
const LEAST_RING: usize = 64 << 10;

/// One rank of a communicator.
///
/// All ranks call the same operations in the same order, each with its own data. An operation returns when this rank's part is done. Calls of
/// several threads come one after the other. After an error the communicator does nothing more.
pub struct Communicator {
    pub(crate) member: Member,
    identity: [u8; UNIQUE_ID_BYTES],
    name: String,
    algorithm: Option<Algorithm>,
    layout: Layout,
    pub(crate) process: u32,
    pub(crate) limit: Duration,
    pub(crate) gpus: Option<Gpus>,
    state: Mutex<State>,
}

struct State {
    engine: Engine,
    watcher: Watcher,
    sequence: u64,
}

// SAFETY: the engine's scratch memory and streams are used under the lock only.
unsafe impl std::marker::Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl fmt::Debug for Communicator {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.name)
    }
}

impl Communicator {
    /// Comes together with the other ranks of this id.
    pub fn new(id: &UniqueId, rank: usize, ranks: usize, options: &Options) -> Result<Communicator> {
        if rank >= ranks {
            return Err(Error::Argument(format!("rank {rank} of {ranks} ranks")));
        }
        let member = Member { rank, ranks };
        let pairs = Meeting::new(id, member, options.sockets.max(1), options.limit).meet()?;
        let (mut peers, mut controls) = (Vec::new(), Vec::new());
        for (other, pair) in pairs.into_iter().enumerate() {
            let Some(Pair { control, data }) = pair else {
                peers.push(None);
                controls.push(None);
                continue;
            };
            peers.push(Some(transport(member, other, data, options)?));
            controls.push(Some(control));
        }
        let watcher = Watcher::start(member, controls, options.limit)?;
        let engine = Engine::new(member, peers, watcher.watch.clone(), options.limit);
        let mut communicator = Communicator {
            member,
            identity: id.to_bytes(),
            name: format!("openmps {} rank {rank} of {ranks}", id.address()),
            algorithm: options.algorithm,
            layout: Layout::Alike,
            process: std::process::id(),
            limit: options.limit,
            gpus: None,
            state: Mutex::new(State { engine, watcher, sequence: 0 }),
        };
        communicator.layout = communicator.agree_on_layout()?;
        Ok(communicator)
    }

    /// All ranks must choose the same algorithms, so they tell each other with how many each shares memory.
    fn agree_on_layout(&self) -> Result<Layout> {
        let ranks = self.member.ranks;
        if ranks <= 2 {
            return Ok(Layout::Alike);
        }
        let together = 1 + self.transports().iter().filter(|&&name| name == Shared::NAME).count() as u64;
        let mut all = vec![0; ranks];
        self.all_gather(&[together], &mut all)?;
        Ok(Layout::of(ranks, all.into_iter().max().unwrap_or(1) as usize))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.member.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.member.ranks
    }

    /// Orders communicators in the same way on all of their ranks.
    pub fn identity(&self) -> impl Ord + use<> {
        self.identity
    }

    /// A name for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The transport to each of the other ranks.
    pub fn transports(&self) -> Vec<&'static str> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).engine.transports().collect()
    }

    pub(crate) fn check_to_all(&self, sends: &[Part], receives: &[Part]) -> Result<()> {
        let ranks = self.member.ranks;
        if sends.len() != ranks || receives.len() != ranks {
            let (sends, receives) = (sends.len(), receives.len());
            return Err(Error::Argument(format!("all_to_all of {sends} and {receives} parts on {ranks} ranks")));
        }
        sends.iter().chain(receives).try_for_each(|part| size(part.count, part.element).map(|_| ()))
    }

    pub(crate) fn check_messages(&self, messages: &[Message]) -> Result<()> {
        messages.iter().try_for_each(|message| {
            let (Message::Send { to: other, part } | Message::Receive { from: other, part }) = message;
            self.check_root(*other).and(size(part.count, part.element).map(|_| ()))
        })
    }

    /// What this rank knows of the others.
    pub(crate) fn watch(&self) -> Arc<Watch> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).watcher.watch.clone()
    }

    /// Runs a program, which is made for the operation's number and may bring buffers beside the first three.
    ///
    /// # Safety
    /// As for [`Engine::run`], for the program's places in this input and output and in the buffers that come with it.
    unsafe fn run(
        &self,
        make: impl FnOnce(u64) -> Result<(Program, Vec<*mut u8>)>,
        input: Span,
        output: Span,
    ) -> Result<()> {
        if std::process::id() != self.process {
            return Err(Error::Forked);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (program, buffers) = make(state.sequence + 1)?;
        let Some(operation) = program.operations.first() else { return Ok(()) };
        state.sequence = state.sequence.max(operation.sequence);
        let copied;
        let mut begin = input.address;
        if input.overlaps(output) && (program.keeps_input || input.address != output.address) {
            // SAFETY: the caller's promise.
            copied = unsafe { std::slice::from_raw_parts(input.address, input.bytes) }.to_vec();
            begin = copied.as_ptr().cast_mut();
        }
        let scratch = state.engine.scratch(program.scratch * operation.element.partial().size());
        let buffers = [begin, output.address, scratch].into_iter().chain(buffers).collect();
        // SAFETY: the caller's promise; the scratch memory has the size that the program asks for.
        unsafe { state.engine.run(&program, &Memory { buffers }) }
    }

    /// Runs the program of an operation, which gets its number here.
    ///
    /// # Safety
    /// As for [`Communicator::run`].
    unsafe fn run_operation(
        &self,
        operation: Operation,
        program: impl FnOnce(Operation) -> Program,
        input: Span,
        output: Span,
    ) -> Result<()> {
        let make = |sequence| Ok((program(Operation { sequence, ..operation }), Vec::new()));
        // SAFETY: the caller's promise.
        unsafe { self.run(make, input, output) }
    }

    pub(crate) fn check_root(&self, root: usize) -> Result<()> {
        if root < self.member.ranks {
            return Ok(());
        }
        Err(Error::Argument(format!("rank {root} of a communicator of {} ranks", self.member.ranks)))
    }

    /// The reduction of `input` over all ranks goes to every rank's `output`, which may be the input.
    ///
    /// # Safety
    /// `count` elements are readable at `input` and writable at `output`, and nobody else touches them during the call.
    pub unsafe fn all_reduce_raw(
        &self,
        input: *const u8,
        output: *mut u8,
        count: usize,
        element: ElementType,
        reduction: Reduction,
    ) -> Result<()> {
        let bytes = size(count, element)?;
        let algorithm = self.algorithm.unwrap_or_else(|| Algorithm::suited(bytes, self.member.ranks, self.layout));
        let operation = Operation::new(Kind::AllReduce, element, count).with_reduction(reduction);
        let program = |operation| algorithm::all_reduce(operation, self.member, algorithm);
        let (input, output) = (Span { address: input.cast_mut(), bytes }, Span { address: output, bytes });
        // SAFETY: the caller's promise, for programs of this input and output.
        unsafe { self.run_operation(operation, program, input, output) }
    }

    /// The root's elements go to all.
    ///
    /// # Safety
    /// `count` elements are readable and writable at `address`, and nobody else touches them during the call.
    pub unsafe fn broadcast_raw(
        &self,
        address: *mut u8,
        count: usize,
        element: ElementType,
        root: usize,
    ) -> Result<()> {
        self.check_root(root)?;
        let span = Span { address, bytes: size(count, element)? };
        let operation = Operation::new(Kind::Broadcast, element, count).with_root(root);
        let program = |operation| algorithm::broadcast(operation, self.member, root);
        // SAFETY: the caller's promise, for programs of this output; they read no input.
        unsafe { self.run_operation(operation, program, Span::NONE, span) }
    }

    /// The reduction of `input` over all ranks goes to the root's `output`, which may be its input; other outputs are not touched.
    ///
    /// # Safety
    /// `count` elements are readable at `input` and, at the root, writable at `output`, and nobody else touches them during the call.
    pub unsafe fn reduce_raw(
        &self,
        input: *const u8,
        output: *mut u8,
        count: usize,
        element: ElementType,
        reduction: Reduction,
        root: usize,
    ) -> Result<()> {
        self.check_root(root)?;
        let bytes = size(count, element)?;
        let operation = Operation::new(Kind::Reduce, element, count).with_reduction(reduction).with_root(root);
        let program = |operation| algorithm::reduce(operation, self.member, root);
        let written = if self.member.rank == root { bytes } else { 0 };
        let (input, output) = (Span { address: input.cast_mut(), bytes }, Span { address: output, bytes: written });
        // SAFETY: the caller's promise, for programs of this input and output.
        unsafe { self.run_operation(operation, program, input, output) }
    }

    /// The inputs of all ranks go to every rank's `output`, in the order of the ranks. The input may be this rank's part of the output.
    ///
    /// # Safety
    /// `count` elements are readable at `input` and `count` times the ranks writable at `output`, and nobody else touches them during the call.
    pub unsafe fn all_gather_raw(
        &self,
        input: *const u8,
        output: *mut u8,
        count: usize,
        element: ElementType,
    ) -> Result<()> {
        let (bytes, all) = (size(count, element)?, size(count.saturating_mul(self.member.ranks), element)?);
        let operation = Operation::new(Kind::AllGather, element, count);
        let program = |operation| algorithm::all_gather(operation, self.member);
        let in_place = output.wrapping_add(self.member.rank * bytes).cast_const() == input;
        // Where the input is its own part of the output, nothing that is still sent is written.
        let output = Span { address: output, bytes: if in_place { 0 } else { all } };
        // SAFETY: the caller's promise, for programs of this input and output.
        unsafe { self.run_operation(operation, program, Span { address: input.cast_mut(), bytes }, output) }
    }

    /// The reduction of part r of `input` over all ranks goes to rank r's `output`, which may be that part. `count` is of one part.
    ///
    /// # Safety
    /// `count` times the ranks elements are readable at `input` and `count` writable at `output`, and nobody else touches them during the call.
    pub unsafe fn reduce_scatter_raw(
        &self,
        input: *const u8,
        output: *mut u8,
        count: usize,
        element: ElementType,
        reduction: Reduction,
    ) -> Result<()> {
        let (bytes, all) = (size(count, element)?, size(count.saturating_mul(self.member.ranks), element)?);
        let operation = Operation::new(Kind::ReduceScatter, element, count).with_reduction(reduction);
        let program = |operation| algorithm::reduce_scatter(operation, self.member);
        let in_place = input.wrapping_add(self.member.rank * bytes) == output.cast_const();
        let output = Span { address: output, bytes: if in_place { 0 } else { bytes } };
        // SAFETY: the caller's promise, for programs of this input and output.
        unsafe { self.run_operation(operation, program, Span { address: input.cast_mut(), bytes: all }, output) }
    }

    /// Part r of `sends` goes to rank r, and part r of `receives` comes from it. Each has an entry for every rank.
    ///
    /// # Safety
    /// The elements of `sends` are readable and those of `receives` writable, none of these overlaps another, and nobody else touches them
    /// during the call.
    pub unsafe fn all_to_all_raw(&self, sends: &[Part], receives: &[Part]) -> Result<()> {
        let Member { rank, ranks } = self.member;
        self.check_to_all(sends, receives)?;
        let make = |sequence| {
            let mut task = Task::new(Kind::AllToAll, sequence);
            for other in (0..ranks).map(|distance| (rank + distance) % ranks) {
                if other == rank {
                    task.copy(sends[other], receives[other])?;
                } else {
                    task.send(other, sends[other]);
                    task.receive(other, receives[other]);
                }
            }
            Ok((task.program, task.buffers))
        };
        // SAFETY: the caller's promise, for a program of these parts.
        unsafe { self.run(make, Span::NONE, Span::NONE) }
    }

    /// Sends and receives at once: in any order among ranks, in the order of the list between two.
    ///
    /// # Safety
    /// The elements of what is sent are readable and those of what is received writable, none of these overlaps another, and nobody else
    /// touches them during the call.
    pub unsafe fn messages_raw(&self, messages: &[Message]) -> Result<()> {
        let mut to_self = Vec::new();
        self.check_messages(messages)?;
        let make = |_| {
            let mut task = Task::new(Kind::Message, 0);
            for &message in messages {
                match message {
                    Message::Send { to, part } if to == self.member.rank => to_self.push(part),
                    Message::Send { to, part } => task.send(to, part),
                    Message::Receive { .. } => {}
                }
            }
            let mut to_self = to_self.into_iter();
            for &message in messages {
                let Message::Receive { from, part } = message else { continue };
                if from == self.member.rank {
                    let sent =
                        to_self.next().ok_or_else(|| Error::Argument("a receive of what no rank sends".into()))?;
                    task.copy(sent, part)?;
                } else {
                    task.receive(from, part);
                }
            }
            match to_self.next() {
                Some(_) => Err(Error::Argument("a rank sends to itself what it does not receive".into())),
                None => Ok((task.program, task.buffers)),
            }
        };
        // SAFETY: the caller's promise, for a program of these parts.
        unsafe { self.run(make, Span::NONE, Span::NONE) }
    }
}

/// The caller's memory, by address and length.
#[derive(Clone, Copy)]
struct Span {
    address: *mut u8,
    bytes: usize,
}

impl Span {
    const NONE: Span = Span { address: std::ptr::null_mut(), bytes: 0 };

    fn overlaps(self, other: Span) -> bool {
        let (own, others) = (self.address as usize, other.address as usize);
        own < others + other.bytes && others < own + self.bytes
    }
}

/// The transport to a rank.
fn transport(member: Member, other: usize, mut data: Vec<TcpStream>, options: &Options) -> Result<Box<dyn Transport>> {
    let end = if member.rank < other { End::Lower } else { End::Higher };
    let capacity = match options.transport {
        TransportKind::Tcp => 0,
        TransportKind::Automatic | TransportKind::Shared | TransportKind::Nccl => {
            (RINGS / 2 / (member.ranks - 1)).clamp(LEAST_RING, MOST_RING).next_multiple_of(4096)
        }
    };
    match Shared::agree(data.remove(0), end, capacity, options.limit)? {
        Ok(shared) => Ok(Box::new(shared)),
        Err(_) if options.transport == TransportKind::Shared => Err(Error::Transport {
            name: "shared",
            reason: "a rank of the communicator can map no memory with this one".to_owned(),
        }),
        Err(stream) => {
            data.insert(0, stream);
            Ok(Box::new(Tcp::new(data)?))
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let of_this_process = std::process::id() == self.process;
        match self.gpus.take() {
            Some(gpus) if !of_this_process => gpus.forget(),
            gpus => drop(gpus),
        }
        if of_this_process { state.watcher.end() } else { state.watcher.forget() }
    }
}
