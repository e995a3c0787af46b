//! One threadgroup at a time: its threads are coroutines that run until they wait for each other. Simdgroups run depth first: one goes on
//! until all its lanes wait at a threadgroup barrier or are over, then the next.

mod barriers;
mod counting;

use crate::count::Recorder;
use crate::error::{Error, Result};
use crate::frame::{Frame, Resolve, Stop};
use crate::grid::Order;
use crate::image::Entry;
use crate::limits::{SIMD_WIDTH, THREADS_PER_THREADGROUP};
use crate::stack::Stack;
use crate::trap::{self, Outcome, Running};
use crate::watchdog::Watch;
use corosensei::stack::Stack as _;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::ffi::CStr;
use std::time::{Duration, Instant};

type Thread = Coroutine<(), (), Outcome, Stack>;
type Suspend = Yielder<(), ()>;

/// Where a waiting thread waits.
#[derive(Clone, Copy)]
struct Wait {
    stop: Stop,
    line: u32,
    site: u64,
    resolve: Option<Resolve>,
}

/// What running threads write; reached by address only, since the runner is borrowed while they run.
struct Meeting {
    frame: *mut Frame,
    /// The yielder of the coroutine that runs.
    yielder: *const Suspend,
    running: Running,
    /// Of counted texts.
    recorder: Option<Box<Recorder>>,
    /// Of the thread that runs: its stack, from the lowest address on.
    stack: [u64; 2],
    /// The stacks of threads that wait.
    stacks: Vec<[u64; 2]>,
    waits: [Wait; THREADS_PER_THREADGROUP as usize],
}

/// Lanes of one simdgroup by state, as masks.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Wait and may go on.
    ready: u32,
    /// Wait for lanes of the simdgroup.
    waiting: u32,
    /// Wait at a threadgroup barrier.
    barrier: u32,
}

/// Runs threadgroups on one operating system thread.
pub(crate) struct Runner {
    frame: *mut Frame,
    entry: Entry,
    threads: Vec<Option<Thread>>,
    meeting: *mut Meeting,
    groups: Vec<Group>,
    stacks: Vec<Stack>,
    /// Stacks made here.
    made: usize,
    /// Whether a thread of this kernel has stopped yet: until then all threads of a threadgroup run in one go.
    stops: bool,
    kernel: String,
    limit: Duration,
    watch: Watch,
    pub(crate) order: Order,
    /// Barriers do not wait for threads that are over.
    pub(crate) ignore_finished: bool,
    /// Times that a thread stopped.
    pub(crate) switches: u64,
}

thread_local! {
    static MEETING: Cell<*mut Meeting> = const { Cell::new(std::ptr::null_mut()) };
    /// Stacks of earlier dispatches.
    static STACKS: Cell<Vec<Stack>> = const { Cell::new(Vec::new()) };
}

/// Called by the running thread: lets others run.
extern "C" fn stop(kind: u32, line: u32, site: u64, resolve: Option<Resolve>) {
    let meeting = MEETING.get();
    // SAFETY: kernels run only inside `Runner::run`, which sets the pointer, and one thread at a time uses what it points to. The yielder is
    // that of the coroutine that runs, which lives as long as it.
    unsafe {
        (*meeting).running.in_kernel = false;
        let running = (*(*meeting).frame).running as usize;
        (*meeting).waits[running] = Wait { stop: Stop::from_number(kind), line, site, resolve };
        let yielder = (*meeting).yielder;
        (*yielder).suspend(());
        (*meeting).yielder = yielder;
        (*meeting).running.in_kernel = true;
    }
}

impl Runner {
    /// # Safety
    /// The frame is that of the image of `entry`, used by this thread alone while the runner lives.
    pub(crate) unsafe fn new(
        frame: *mut Frame,
        entry: Entry,
        kernel: &str,
        order: Order,
        begun: Instant,
        limit: Duration,
    ) -> Runner {
        trap::install();
        // SAFETY: the caller's promise.
        unsafe {
            (*frame).stop = Some(stop);
            (*frame).access = Some(counting::access);
        }
        let wait = Wait { stop: Stop::Barrier, line: 0, site: 0, resolve: None };
        let meeting = Meeting {
            frame,
            yielder: std::ptr::null(),
            running: Running { handler: None, in_kernel: false },
            recorder: None,
            stack: [0; 2],
            stacks: vec![[0; 2]; THREADS_PER_THREADGROUP as usize],
            waits: [wait; THREADS_PER_THREADGROUP as usize],
        };
        Runner {
            frame,
            entry,
            threads: std::iter::repeat_with(|| None).take(THREADS_PER_THREADGROUP as usize).collect(),
            meeting: Box::into_raw(Box::new(meeting)),
            groups: Vec::new(),
            stacks: STACKS.take(),
            made: 0,
            stops: false,
            kernel: kernel.to_owned(),
            limit,
            watch: Watch::start(begun + limit),
            order,
            ignore_finished: false,
            switches: 0,
        }
    }

    /// Runs the threadgroup that the frame describes; `mix` tells threadgroups apart for shuffled schedules.
    pub(crate) fn run(&mut self, mix: u64) -> Result<()> {
        // SAFETY: the frame is this runner's own.
        let threads = unsafe { (*self.frame).threads };
        self.order.renew(threads, mix);
        self.groups.clear();
        self.groups.resize(threads.div_ceil(SIMD_WIDTH) as usize, Group::default());
        // SAFETY: as above; the order lives until the threadgroup is over.
        unsafe {
            (*self.frame).order = self.order.threads.as_ptr();
            (*self.frame).next = 0;
        }
        self.check_time()?;
        MEETING.set(self.meeting);
        // SAFETY: the meeting is this runner's own and outlives the threads.
        trap::watch(unsafe { &raw const (*self.meeting).running });
        let result = self.start_all(threads).and_then(|()| self.pass_barriers(threads));
        self.meet();
        trap::watch(std::ptr::null());
        MEETING.set(std::ptr::null_mut());
        if result.is_err() {
            self.abandon();
        }
        result
    }

    /// Starts every thread, one simdgroup after the other.
    fn start_all(&mut self, threads: u32) -> Result<()> {
        let mut begin = 0;
        while begin < threads {
            let group = self.order.threads[begin as usize] / SIMD_WIDTH;
            let size = (threads - group * SIMD_WIDTH).min(SIMD_WIDTH);
            if !self.stops {
                if self.start(begin, threads)? {
                    return Ok(());
                }
                // The first stop: finish the simdgroup it happened in; those before it are over.
                begin = self.end_of_group(threads);
            } else {
                while !self.start_rest(begin + size)? {}
                begin += size;
            }
            let group = self.order.threads[begin as usize - 1] / SIMD_WIDTH;
            self.settle(group)?;
        }
        Ok(())
    }

    /// Runs all threads from `begin` on in one go; false where one stopped, whose simdgroup has then been started whole.
    fn start(&mut self, begin: u32, threads: u32) -> Result<bool> {
        // SAFETY: the frame is this runner's own.
        unsafe { (*self.frame).next = begin };
        if self.start_rest(threads)? {
            return Ok(true);
        }
        self.stops = true;
        let end = self.end_of_group(threads);
        while !self.start_rest(end)? {}
        Ok(false)
    }

    /// The end, in the order, of the simdgroup of the thread that runs or has just stopped.
    fn end_of_group(&self, threads: u32) -> u32 {
        // SAFETY: the frame is this runner's own.
        let next = unsafe { (*self.frame).next };
        let group = self.order.threads[next as usize - 1] / SIMD_WIDTH;
        let after = self.order.threads[next as usize..threads as usize].iter().take_while(|t| *t / SIMD_WIDTH == group);
        next + after.count() as u32
    }

    /// Starts threads until one stops, which gives false, or all before `end` are over or have stopped.
    fn start_rest(&mut self, end: u32) -> Result<bool> {
        // SAFETY: the frame is this runner's own.
        let frame = unsafe { &mut *self.frame };
        frame.end = end;
        if frame.next == end {
            return Ok(true);
        }
        let stack = self.stacks.pop().map_or_else(|| self.new_stack(), Ok);
        let stack =
            stack.map_err(|error| Error::Toolchain { program: "stacks".to_owned(), reason: error.to_string() })?;
        let (meeting, entry) = (self.meeting, self.entry);
        let range = [stack.limit().get() as u64, stack.base().get() as u64];
        // SAFETY: the meeting is this runner's own, and no thread runs now.
        unsafe { (*meeting).stack = range };
        let mut thread: Thread = Coroutine::with_stack(stack, move |yielder: &Suspend, ()| {
            // SAFETY: the runner, which owns the meeting, waits for this coroutine; the entry is the image's own.
            unsafe {
                (*meeting).yielder = yielder;
                (*meeting).running.in_kernel = true;
                entry();
                (*meeting).running.in_kernel = false;
            }
            Outcome::Finished
        });
        // SAFETY: the meeting is this runner's own, and no thread runs now.
        unsafe { (*self.meeting).running.handler = Some(thread.trap_handler()) };
        match thread.resume(()) {
            CoroutineResult::Yield(()) => {
                // SAFETY: the frame is this runner's own.
                let index = unsafe { (*self.frame).running };
                self.threads[index as usize] = Some(thread);
                // SAFETY: as above.
                unsafe { (&mut (*self.meeting).stacks)[index as usize] = range };
                self.stopped(index);
                Ok(false)
            }
            CoroutineResult::Return(outcome) => {
                self.stacks.push(thread.into_stack());
                self.judge(outcome).map(|()| true)
            }
        }
    }

    fn new_stack(&mut self) -> std::io::Result<Stack> {
        self.made += 1;
        Stack::new(self.made)
    }

    /// Resumes a thread that waited.
    fn resume(&mut self, index: u32) -> Result<()> {
        // SAFETY: the frame and the meeting are this runner's own, and no thread runs now.
        let result = unsafe {
            (*self.frame).running = index;
            (*self.meeting).stack = (&(*self.meeting).stacks)[index as usize];
            let thread = self.threads[index as usize].as_mut().expect("a waiting thread has a coroutine");
            (*self.meeting).running.handler = Some(thread.trap_handler());
            thread.resume(())
        };
        match result {
            CoroutineResult::Yield(()) => {
                self.stopped(index);
                Ok(())
            }
            CoroutineResult::Return(outcome) => {
                self.stacks.extend(self.threads[index as usize].take().map(Thread::into_stack));
                self.judge(outcome)
            }
        }
    }

    /// The error of a thread that did not end by returning.
    fn judge(&self, outcome: Outcome) -> Result<()> {
        let what = match outcome {
            Outcome::Finished => return Ok(()),
            Outcome::Expired => return Err(self.runaway()),
            Outcome::Memory { address } => format!("there is nothing to read or write at address {address:#x}"),
            Outcome::Division => "an integer is divided by zero, or its quotient does not fit".to_owned(),
            Outcome::Undefined => self.own_words().unwrap_or("undefined behaviour: an invalid instruction".to_owned()),
        };
        // SAFETY: the frame is this runner's own.
        let (threadgroup, thread) = unsafe { ((*self.frame).threadgroup_position_in_grid, (*self.frame).running) };
        Err(Error::Fault { kernel: self.kernel.clone(), threadgroup, thread, what })
    }

    /// What a thread that ended itself has said about it.
    fn own_words(&self) -> Option<String> {
        // SAFETY: the frame is this runner's own; the text is a constant of the image, which is loaded as long as the frame is there.
        unsafe {
            let text = std::mem::replace(&mut (*self.frame).fault, std::ptr::null());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    fn runaway(&self) -> Error {
        // SAFETY: the frame is this runner's own.
        let (threadgroup, thread) = unsafe { ((*self.frame).threadgroup_position_in_grid, (*self.frame).running) };
        let seconds = self.limit.as_secs_f64();
        Error::Runaway { kernel: self.kernel.clone(), threadgroup, thread, seconds }
    }

    /// The watchdog ends threads that stay in the kernel; this ends those that meet without end.
    fn check_time(&self) -> Result<()> {
        if Instant::now() >= self.watch.deadline { Err(self.runaway()) } else { Ok(()) }
    }

    /// Gives up the threads that wait. Their stacks hold kernel code only, which owns nothing.
    fn abandon(&mut self) {
        for thread in &mut self.threads {
            if let Some(mut thread) = thread.take() {
                // SAFETY: nothing on the coroutine's stack needs to be dropped.
                unsafe { thread.force_reset() };
                self.stacks.push(thread.into_stack());
            }
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.abandon();
        STACKS.set(std::mem::take(&mut self.stacks));
        // SAFETY: made from a box in `new`; no coroutine is left that knows it.
        drop(unsafe { Box::from_raw(self.meeting) });
    }
}
