//! What a kernel does, counted: accesses to memory as a simdgroup makes them, barriers, operations of simdgroups.

mod liveness;
mod operations;
mod recorder;
mod roofline;

pub(crate) use operations::annotate;

pub(crate) use recorder::{Recorder, Regions};
pub use roofline::{GPUS, Gpu};

use std::fmt;

/// Bytes of a sector.
const SECTOR: u64 = 32;

/// Accesses to device memory of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceAccesses {
    /// Instructions, once a simdgroup.
    pub instructions: u64,
    /// Bytes that lanes asked for.
    pub bytes: u64,
    /// Sectors of 32 bytes that instructions touch, each once an instruction.
    pub sectors: u64,
    /// Lines of 128 bytes that instructions touch, each once an instruction.
    pub lines: u64,
}

/// Accesses to threadgroup memory of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadgroupAccesses {
    /// Instructions, once a simdgroup.
    pub instructions: u64,
    /// Bytes that lanes asked for.
    pub bytes: u64,
    /// Times that 32 banks of 4 bytes are asked, those of conflicts included.
    pub passes: u64,
    /// Passes that are there because lanes want different words of one bank.
    pub conflicts: u64,
}

/// What a dispatch did, summed over all threadgroups. It is a model: docs/emulator.md says what of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Loads from device memory.
    pub device_loads: DeviceAccesses,
    /// Stores to device memory.
    pub device_stores: DeviceAccesses,
    /// Loads from threadgroup memory.
    pub threadgroup_loads: ThreadgroupAccesses,
    /// Stores to threadgroup memory.
    pub threadgroup_stores: ThreadgroupAccesses,
    /// Bytes of the lines of 128 bytes in device memory that are touched at all: what an endless cache would still move.
    pub footprint: u64,
    /// Threadgroup barriers, once a threadgroup.
    pub threadgroup_barriers: u64,
    /// Simdgroup barriers, once a simdgroup.
    pub simdgroup_barriers: u64,
    /// Shuffles, reductions and the like, once a simdgroup.
    pub simdgroup_operations: u64,
    /// Products of matrices of 8 by 8, once a simdgroup.
    pub matrix_multiplications: u64,
    /// Matrices that were loaded, from whichever memory.
    pub matrix_loads: u64,
    /// Matrices that were stored.
    pub matrix_stores: u64,
    /// Operations of lanes on integers, addresses among them, in clang's intermediate form; products of matrices are apart.
    pub integer_operations: u64,
    /// Those on floats; a function of mathematics is one.
    pub float_operations: u64,
    /// Registers of 32 bits that are alive at the worst place of the function that has most, of one lane: an estimate.
    pub registers: u64,
    /// Bytes of threadgroup memory of one threadgroup, declared and given.
    pub threadgroup_memory: u64,
}

impl Counters {
    /// Bytes that lanes loaded from device memory and stored there.
    pub fn device_bytes(&self) -> u64 {
        self.device_loads.bytes + self.device_stores.bytes
    }

    /// Bytes that lanes loaded from threadgroup memory and stored there.
    pub fn threadgroup_bytes(&self) -> u64 {
        self.threadgroup_loads.bytes + self.threadgroup_stores.bytes
    }

    /// Bank conflicts of loads and stores.
    pub fn bank_conflicts(&self) -> u64 {
        self.threadgroup_loads.conflicts + self.threadgroup_stores.conflicts
    }

    /// Adds what another worker counted, or another dispatch.
    pub fn add(&mut self, other: &Counters) {
        self.device_loads.add(&other.device_loads);
        self.device_stores.add(&other.device_stores);
        self.threadgroup_loads.add(&other.threadgroup_loads);
        self.threadgroup_stores.add(&other.threadgroup_stores);
        self.footprint += other.footprint;
        self.threadgroup_barriers += other.threadgroup_barriers;
        self.simdgroup_barriers += other.simdgroup_barriers;
        self.simdgroup_operations += other.simdgroup_operations;
        self.matrix_multiplications += other.matrix_multiplications;
        self.matrix_loads += other.matrix_loads;
        self.matrix_stores += other.matrix_stores;
        self.integer_operations += other.integer_operations;
        self.float_operations += other.float_operations;
        self.registers = self.registers.max(other.registers);
        self.threadgroup_memory = self.threadgroup_memory.max(other.threadgroup_memory);
    }
}

impl DeviceAccesses {
    fn add(&mut self, other: &DeviceAccesses) {
        self.instructions += other.instructions;
        self.bytes += other.bytes;
        self.sectors += other.sectors;
        self.lines += other.lines;
    }
}

impl ThreadgroupAccesses {
    fn add(&mut self, other: &ThreadgroupAccesses) {
        self.instructions += other.instructions;
        self.bytes += other.bytes;
        self.passes += other.passes;
        self.conflicts += other.conflicts;
    }
}

impl Counters {
    /// What is counted, by names: bytes, times, and of one threadgroup or thread its memory and registers.
    pub fn numbers(&self) -> [(&'static str, u64); 13] {
        [
            ("device_bytes", self.device_bytes()),
            ("sector_bytes", self.sector_bytes()),
            ("footprint_bytes", self.footprint),
            ("threadgroup_bytes", self.threadgroup_bytes()),
            ("bank_conflicts", self.bank_conflicts()),
            ("threadgroup_barriers", self.threadgroup_barriers),
            ("simdgroup_barriers", self.simdgroup_barriers),
            ("simdgroup_operations", self.simdgroup_operations),
            ("matrix_products", self.matrix_multiplications),
            ("integer_operations", self.integer_operations),
            ("float_operations", self.float_operations),
            ("registers", self.registers),
            ("threadgroup_memory", self.threadgroup_memory),
        ]
    }

    /// Bytes of the sectors that loads from device memory and stores there touch.
    pub fn sector_bytes(&self) -> u64 {
        (self.device_loads.sectors + self.device_stores.sectors) * SECTOR
    }
}

/// Cells of a Markdown table, in the order of [`Counters::HEAD`].
impl fmt::Display for Counters {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        let mega = |bytes: u64| format!("{:.2}", bytes as f64 / 1e6);
        write!(
            to,
            "{} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}",
            mega(self.device_bytes()),
            mega(self.sector_bytes()),
            mega(self.footprint),
            mega(self.threadgroup_bytes()),
            self.bank_conflicts(),
            self.threadgroup_barriers,
            self.matrix_multiplications,
            self.threadgroup_memory,
            self.integer_operations,
            self.float_operations,
            self.registers
        )
    }
}

impl Counters {
    /// The columns of its text.
    pub const HEAD: &str = "device MB | sectors MB | footprint MB | threadgroup MB | bank conflicts | barriers | matrix products | threadgroup memory | integer operations | float operations | registers, estimated";
}
