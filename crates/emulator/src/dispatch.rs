//! Dispatching a kernel: checks against Metal's limits, memory of threadgroups, distribution over operating system threads.

mod checks;
mod counting;

use crate::count::Counters;
use crate::error::Result;
use crate::frame::Frame;
use crate::grid::{Grid, Order, Permutation, Schedule, position};
use crate::image::Image;
use crate::library::Function;
use crate::limits;
use crate::threadgroup::Runner;
use checks::{check_arguments, check_sizes};
use counting::Recorded;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What threadgroup memory holds before each threadgroup, as half, bfloat and float alike: a huge number, NaN, a huge negative one. A
/// maximum hides the second, a minimum the first, so it depends on the schedule.
const POISONS: [u16; 3] = [0x7bff, 0x7fff, 0xfbff];
/// Threadgroups that a worker takes at a time.
const BATCH: u64 = 16;
/// Threads below which a second operating system thread is not worth its wake-up.
const WORTH_SHARING: u64 = 8192;

/// What is bound to one index of the buffer table.
#[derive(Debug, Clone, Copy)]
pub enum Argument<'a> {
    /// The address in a buffer: setBuffer with its offset added.
    Buffer(*mut c_void),
    /// Bytes that are copied at the dispatch: setBytes.
    Bytes(&'a [u8]),
    /// Nothing; an error where the kernel declares the index.
    Unbound,
}

// SAFETY: an address is a number until a kernel uses it, and for that the caller of `Function::dispatch` answers.
unsafe impl Send for Argument<'_> {}
// SAFETY: as above.
unsafe impl Sync for Argument<'_> {}

/// One dispatch.
#[derive(Debug, Clone)]
pub struct Dispatch<'a> {
    /// How much is run.
    pub grid: Grid,
    /// Threads of a whole threadgroup, x first; at most 1024.
    pub threads_per_threadgroup: [u32; 3],
    /// By index.
    pub arguments: &'a [Argument<'a>],
    /// Bytes of each `[[threadgroup(i)]]`, multiples of 16: setThreadgroupMemoryLength.
    pub threadgroup_memory: &'a [usize],
    /// The order of what Metal leaves open.
    pub schedule: Schedule,
    /// Runs one threadgroup after the other on the calling thread, in the schedule's order; else several operating system threads take part.
    pub sequential: bool,
    /// Barriers do not wait for threads that are over. Metal says that every thread must reach a barrier, and a kernel that breaks this is
    /// refused otherwise; published ones do, and count on GPUs that go on.
    pub ignore_finished: bool,
    /// After this time the dispatch ends with [`crate::Error::Runaway`].
    pub time_limit: Duration,
}

impl<'a> Dispatch<'a> {
    /// A dispatch in ascending order, on all processors, without threadgroup memory arguments, that may take a minute.
    pub fn new(grid: Grid, threads_per_threadgroup: [u32; 3], arguments: &'a [Argument<'a>]) -> Dispatch<'a> {
        let (threadgroup_memory, time_limit) = (&[], Duration::from_secs(60));
        Dispatch {
            grid,
            threads_per_threadgroup,
            arguments,
            threadgroup_memory,
            schedule: Schedule::Ascending,
            sequential: false,
            ignore_finished: false,
            time_limit,
        }
    }
}

/// What a dispatch did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Threadgroups that ran.
    pub threadgroups: u64,
    /// Threads that ran.
    pub threads: u64,
    /// Times that a thread waited for others.
    pub switches: u64,
    /// What the kernel did, where the text was compiled with [`Options::counted`](crate::Options::counted).
    pub counters: Option<Counters>,
}

/// A dispatch after all checks.
struct Checked<'a> {
    function: &'a Function,
    dispatch: &'a Dispatch<'a>,
    threadgroups: [u32; 3],
    threads: [u32; 3],
    buffers: [u64; limits::BUFFERS],
    /// Keeps the copies of bytes.
    copies: Vec<Box<[u128]>>,
    begun: Instant,
}

impl Function {
    /// Runs the kernel to its end.
    ///
    /// # Errors
    /// [`crate::Error::Limit`] and the errors of arguments before anything runs; then [`crate::Error::DivergentBarrier`], [`crate::Error::Fault`],
    /// [`crate::Error::Runaway`], which leave buffers partly written.
    ///
    /// # Safety
    /// What the kernel reads and writes through its buffers is live, and no one else writes or reads it meanwhile.
    pub unsafe fn dispatch(&self, dispatch: &Dispatch) -> Result<Report> {
        let checked = Checked::new(self, dispatch)?;
        let count: u64 = checked.threadgroups.iter().map(|&n| u64::from(n)).product();
        let threads: u64 = checked.threads.iter().map(|&n| u64::from(n)).product();
        let workers =
            if dispatch.sequential || threads < WORTH_SHARING { 1 } else { rayon::current_num_threads() as u64 };
        let workers = workers.min(count.div_ceil(BATCH)).max(1);
        let shared = Shared {
            order: Permutation::new(dispatch.schedule, count),
            next: AtomicU64::new(0),
            count,
            batch: if workers == 1 { count } else { BATCH.min(count.div_ceil(workers * 4)).max(1) },
            failed: AtomicBool::new(false),
            outcome: Mutex::new(Ok(0)),
            recorded: Mutex::default(),
        };
        rayon::in_place_scope(|scope| {
            for _ in 1..workers {
                scope.spawn(|_| checked.work(&shared));
            }
            checked.work(&shared);
        });
        let switches = shared.outcome.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let counters =
            self.images.counted.then(|| shared.recorded.into_inner().unwrap_or_else(PoisonError::into_inner).sum());
        Ok(Report { threadgroups: count, threads, switches, counters })
    }
}

/// What the workers of one dispatch share.
struct Shared {
    order: Permutation,
    next: AtomicU64,
    count: u64,
    batch: u64,
    failed: AtomicBool,
    /// Switches so far, or the first error.
    outcome: Mutex<Result<u64>>,
    recorded: Mutex<Recorded>,
}

impl Checked<'_> {
    fn new<'a>(function: &'a Function, dispatch: &'a Dispatch<'a>) -> Result<Checked<'a>> {
        check_sizes(function, dispatch).map_err(|limit| function.beyond(limit))?;
        let mut copies = Vec::new();
        let mut buffers = [0; limits::BUFFERS];
        for (index, argument) in dispatch.arguments.iter().enumerate() {
            buffers[index] = match argument {
                Argument::Buffer(address) => *address as u64,
                Argument::Bytes(bytes) => {
                    let mut copy = vec![0_u128; bytes.len().div_ceil(16)].into_boxed_slice();
                    let address = copy.as_mut_ptr().cast::<u8>();
                    // SAFETY: the copy has at least as many bytes.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) };
                    copies.push(copy);
                    address as u64
                }
                Argument::Unbound => 0,
            };
        }
        check_arguments(function, dispatch)?;
        let (grid, size) = (dispatch.grid, dispatch.threads_per_threadgroup);
        Ok(Checked {
            function,
            dispatch,
            threadgroups: grid.threadgroups(size),
            threads: grid.threads(size),
            buffers,
            copies,
            begun: Instant::now(),
        })
    }

    /// Runs threadgroups until none are left or one has failed.
    fn work(&self, shared: &Shared) {
        let result = self.function.images.take().and_then(|image| {
            let result = self.run(&image, shared);
            self.function.images.give_back(image);
            result
        });
        let mut outcome = shared.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match (result, &mut *outcome) {
            (Ok(more), Ok(switches)) => *switches += more,
            (Err(error), Ok(_)) => *outcome = Err(error),
            (_, Err(_)) => {}
        }
    }

    fn run(&self, image: &Image, shared: &Shared) -> Result<u64> {
        let entry = self.function.entry(image)?;
        let frame = image.frame();
        let mut memory: Vec<Vec<u128>> =
            self.dispatch.threadgroup_memory.iter().map(|length| vec![0; length.div_ceil(16)]).collect();
        // SAFETY: the image is this worker's alone until it is given back.
        let mut runner = unsafe {
            self.fill(&mut *frame, &mut memory);
            Runner::new(
                frame,
                entry,
                &self.function.kernel.name,
                Order::new(self.dispatch.schedule),
                self.begun,
                self.dispatch.time_limit,
            )
        };
        runner.ignore_finished = self.dispatch.ignore_finished;
        let mut positions = Positions::default();
        if self.function.images.counted {
            runner.record(self.recorder(image, &memory));
        }
        while !shared.failed.load(Ordering::Relaxed) {
            let begin = shared.next.fetch_add(shared.batch, Ordering::Relaxed);
            if begin >= shared.count {
                break;
            }
            for index in begin..(begin + shared.batch).min(shared.count) {
                let index = shared.order.at(index);
                self.poison(image, &mut memory);
                // SAFETY: as above; no thread of a kernel runs now.
                unsafe { self.place(&mut *frame, index, &mut positions) };
                if let Err(error) = runner.run(index) {
                    shared.failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        if let Some(recorder) = runner.recorded() {
            shared.recorded.lock().unwrap_or_else(PoisonError::into_inner).take(recorder);
        }
        Ok(runner.switches)
    }

    /// What is the same for all threadgroups.
    fn fill(&self, frame: &mut Frame, memory: &mut [Vec<u128>]) {
        frame.buffers = self.buffers;
        for (address, memory) in frame.threadgroup_memory.iter_mut().zip(memory) {
            *address = memory.as_mut_ptr() as u64;
        }
        frame.threads_per_grid = self.threads;
        frame.threadgroups_per_grid = self.threadgroups;
        frame.dispatch_threads_per_threadgroup = self.dispatch.threads_per_threadgroup;
    }

    /// The threadgroup's place, and its size where the grid's edge cuts it off.
    fn place(&self, frame: &mut Frame, index: u64, positions: &mut Positions) {
        let place = position(index, self.threadgroups);
        let size = self.dispatch.threads_per_threadgroup;
        let origin = [0, 1, 2].map(|axis| place[axis] * size[axis]);
        let size = [0, 1, 2].map(|axis| size[axis].min(self.threads[axis] - origin[axis]));
        frame.threadgroup_position_in_grid = place;
        frame.origin = origin;
        frame.threads_per_threadgroup = size;
        frame.threads = size.iter().product();
        frame.positions = positions.of(size);
    }

    /// Nothing that an earlier threadgroup left can be read for a value.
    fn poison(&self, image: &Image, memory: &mut [Vec<u128>]) {
        let choice = match self.dispatch.schedule {
            Schedule::Ascending => 0,
            Schedule::Descending => 1,
            Schedule::Shuffled(seed) => seed % POISONS.len() as u64,
        };
        let poison = (0..8).fold(0, |bits, _| bits << 16 | u128::from(POISONS[choice as usize]));
        for memory in memory {
            memory.fill(poison);
        }
        for range in &self.function.declared {
            let bytes = poison.to_ne_bytes();
            let address = image.memory(range);
            for at in 0..range.len() {
                // SAFETY: the range is a variable of the image, which is this worker's alone.
                unsafe { address.add(at).write(bytes[at % 16]) };
            }
        }
    }
}

/// Positions of a threadgroup's threads, for the last size asked for.
#[derive(Default)]
struct Positions {
    size: [u32; 3],
    table: Vec<[u32; 4]>,
}

impl Positions {
    fn of(&mut self, size: [u32; 3]) -> *const [u32; 4] {
        if self.size != size {
            self.size = size;
            let threads: u32 = size.iter().product();
            let place = |thread: u32| position(u64::from(thread), size);
            self.table.clear();
            self.table.extend((0..threads).map(place).map(|[x, y, z]| [x, y, z, 0]));
        }
        self.table.as_ptr()
    }
}
