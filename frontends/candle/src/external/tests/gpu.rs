//! An emulated Apple GPU as Candle's own is: external: one open encoder, and barriers by what is bound to be read and to be written.

use openmps::runtime::external::ExternalGpu;
use openmps_emulator::Schedule;
use openmps_metal::Result;
use openmps_metal::arguments::{Kernel, Table};
use openmps_metal::emulated::{Emulated, EmulatedBuffer, EmulatedCommands, EmulatedQueue};
use openmps_metal::encode::{self, Seam};
use openmps_metal::interface::{CommandBuffer, Completion, Grid, Metal, Properties};
use openmps_metal::pipelines::Pipelines;
use std::collections::HashSet;
use std::sync::{Mutex, mpsc};

pub const SCHEDULES: [Schedule; 3] = [Schedule::Ascending, Schedule::Descending, Schedule::Shuffled(7)];

/// The open command buffer, and Candle's record of what its dispatches touch since the last barrier.
struct Open {
    commands: EmulatedCommands,
    read: HashSet<usize>,
    written: HashSet<usize>,
}

pub struct EmulatedGpu {
    metal: Emulated,
    queue: EmulatedQueue,
    pipelines: Pipelines<Emulated>,
    open: Mutex<Option<Open>>,
    bound: Mutex<HashSet<usize>>,
    allocations: Mutex<usize>,
}

impl EmulatedGpu {
    pub fn new(schedule: Schedule) -> EmulatedGpu {
        let metal = Emulated::with_schedule(schedule);
        let queue = metal.queue("external", 4).expect("a queue");
        let pipelines = Pipelines::new(256);
        EmulatedGpu {
            metal,
            queue,
            pipelines,
            open: Mutex::default(),
            bound: Mutex::default(),
            allocations: Mutex::default(),
        }
    }

    pub fn fresh(&self, bytes: usize) -> EmulatedBuffer {
        self.metal.allocate(bytes).expect("memory")
    }

    /// A fresh buffer, to be borrowed and to be kept.
    pub fn fresh_twice(&self, bytes: usize) -> (EmulatedBuffer, EmulatedBuffer) {
        let buffer = self.fresh(bytes);
        (buffer.clone(), buffer)
    }

    pub fn buffer(&self, bytes: &[u8]) -> EmulatedBuffer {
        let buffer = self.fresh(bytes.len());
        // SAFETY: the buffer is as long as the bytes, and fresh.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.metal.contents(&buffer).0 as *mut u8, bytes.len())
        };
        buffer
    }

    /// The bytes, while no command runs.
    pub fn contents(&self, buffer: &EmulatedBuffer) -> Vec<u8> {
        let (address, bytes) = self.metal.contents(buffer);
        // SAFETY: the buffer lives, and nothing writes it between `end` and `begin`.
        unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }.to_vec()
    }

    /// Opens a command buffer, as Candle has one open at all times.
    pub fn begin(&self) {
        let commands = self.metal.command_buffer(&self.queue, "external").expect("a command buffer");
        let open = Open { commands, read: HashSet::new(), written: HashSet::new() };
        *self.open.lock().expect("no panic") = Some(open);
        self.bound.lock().expect("no panic").clear();
    }

    /// Commits it and waits.
    pub fn end(&self) {
        let Open { commands, .. } = self.open.lock().expect("no panic").take().expect("an open command buffer");
        let (tell, told) = mpsc::channel::<Completion>();
        let committed = commands.commit(Box::new(move |completion| tell.send(completion).expect("somebody waits")));
        self.metal.wait(&committed);
        let completion = told.recv().expect("the handler was called");
        assert_eq!(completion.error, None);
    }

    /// Whether a dispatch since `begin` had this very buffer.
    pub fn bound(&self, buffer: &EmulatedBuffer) -> bool {
        self.bound.lock().expect("no panic").contains(&self.metal.contents(buffer).0)
    }

    /// How often memory beside operands and results was wanted.
    pub fn allocations(&self) -> usize {
        *self.allocations.lock().expect("no panic")
    }
}

// SAFETY: buffers are the emulator's of that length, bound as the table says.
unsafe impl ExternalGpu for EmulatedGpu {
    type Buffer = EmulatedBuffer;

    fn properties(&self) -> &Properties {
        self.metal.properties()
    }

    fn allocate(&self, bytes: usize) -> Result<EmulatedBuffer> {
        *self.allocations.lock().expect("no panic") += 1;
        self.metal.allocate(bytes)
    }

    unsafe fn launch(&self, kernel: &Kernel, table: &Table<EmulatedBuffer>, grid: Grid) -> Result<()> {
        let (pipeline, limits) = self.pipelines.get(&self.metal, &kernel.pipeline)?;
        let mut open = self.open.lock().expect("no panic");
        let Open { commands, read, written } = open.as_mut().expect("an open command buffer");
        let barrier = barrier(&self.metal, table, read, written);
        if barrier {
            commands.barrier()?;
        }
        let mut bound = self.bound.lock().expect("no panic");
        bound.extend(table.buffers.iter().map(|(_, found, _)| self.metal.contents(&found.buffer).0));
        let device = self.metal.properties();
        // SAFETY: passed on to the caller.
        unsafe { encode::checked(&mut Seam::<Emulated>(commands), device, &limits, kernel, &pipeline, table, grid) }
    }
}

/// Candle's rule: reading what was written, or writing what was read or written, waits; so what is wrongly said to be read only runs in the
/// wrong order here, as it would there.
fn barrier(
    metal: &Emulated,
    table: &Table<EmulatedBuffer>,
    read: &mut HashSet<usize>,
    written: &mut HashSet<usize>,
) -> bool {
    let touched: Vec<(usize, bool)> =
        table.buffers.iter().map(|(_, found, written)| (metal.contents(&found.buffer).0, *written)).collect();
    let needs = touched.iter().any(|(at, writes)| written.contains(at) || (*writes && read.contains(at)));
    if needs {
        read.clear();
        written.clear();
    }
    for (at, writes) in touched {
        if writes {
            written.insert(at)
        } else {
            read.insert(at)
        };
    }
    needs
}
