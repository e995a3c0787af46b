//! Accesses of lanes, put together to those of simdgroups: lanes that execute the same instruction for the same time since they last met at
//! a threadgroup barrier make one access.

use super::{Counters, DeviceAccesses, ThreadgroupAccesses};
use std::collections::HashSet;
use std::ops::Range;

const SECTOR: u64 = 32;
const LINE: u64 = 128;
const BANKS: usize = 32;
const WORD: u64 = 4;
/// Bits of an access's kind, as in `msl/count.h`.
const STORE: u32 = 1;
const MATRIX: u32 = 2;
/// What is no access: operations of a block, and the kernel's registers.
const OPERATIONS: u32 = 4;
const REGISTERS: u32 = 8;

/// Where memory lies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Regions {
    /// Threadgroup memory.
    pub threadgroup: Vec<Range<u64>>,
    /// The image, copies of bytes, tables of the emulator's own: constants, and what a GPU has in registers.
    pub unseen: Vec<Range<u64>>,
    /// Where buffers begin, ascending, and whether a kernel reads them as `constant`. Their ends are not known here.
    pub buffers: Vec<(u64, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Device,
    Threadgroup,
    Unseen,
}

impl Regions {
    fn space(&self, address: u64) -> Space {
        let within = |ranges: &[Range<u64>]| ranges.iter().any(|range| range.contains(&address));
        if within(&self.threadgroup) {
            return Space::Threadgroup;
        }
        let buffer = self.buffers.partition_point(|(begin, _)| *begin <= address).checked_sub(1);
        let constant = buffer.is_some_and(|at| self.buffers[at].1);
        if constant || within(&self.unseen) { Space::Unseen } else { Space::Device }
    }
}

/// One access of one lane.
#[derive(Clone, Copy)]
struct Access {
    site: u64,
    address: u64,
    thread: u32,
    /// Which time the thread is here.
    turn: u32,
    bytes: u32,
    kind: u32,
    threadgroup: bool,
}

/// Counts what the threadgroups of one worker do.
#[derive(Default)]
pub(crate) struct Recorder {
    regions: Regions,
    pub counters: Counters,
    /// Numbers of the lines that were touched.
    pub lines: HashSet<u64>,
    accesses: Vec<Access>,
}

impl Recorder {
    pub(crate) fn new(regions: Regions, counters: Counters) -> Recorder {
        Recorder { regions, counters, ..Recorder::default() }
    }

    /// Takes what a block says of itself; false where it is an access.
    pub(crate) fn takes_block(&mut self, first: u64, second: u32, kind: u32) -> bool {
        match kind {
            OPERATIONS => {
                self.counters.integer_operations += first;
                self.counters.float_operations += u64::from(second);
            }
            REGISTERS => self.counters.registers = self.counters.registers.max(first),
            _ => return false,
        }
        true
    }

    /// Notes an access that is not to the thread's own stack.
    pub(crate) fn note(&mut self, thread: u32, address: u64, bytes: u32, kind: u32, site: u64) {
        let threadgroup = match self.regions.space(address) {
            Space::Unseen => return,
            space => space == Space::Threadgroup,
        };
        // A copy loads and stores at one place.
        let site = site << 1 | u64::from(kind & STORE);
        self.accesses.push(Access { site, address, thread, turn: 0, bytes, kind, threadgroup });
    }

    /// Puts the accesses so far together: their threads meet now, or are over.
    pub(crate) fn meet(&mut self) {
        let mut accesses = std::mem::take(&mut self.accesses);
        // Stable: a thread's accesses stay in their order.
        accesses.sort_by_key(|access| (access.thread / 32, access.site, access.thread));
        let mut last = (0, 0, 0);
        for access in &mut accesses {
            let same = (last.0, last.1) == (access.thread, access.site);
            access.turn = if same { last.2 } else { 0 };
            last = (access.thread, access.site, access.turn + 1);
        }
        accesses.sort_by_key(|access| (access.thread / 32, access.site, access.turn));
        let together = |a: &Access, b: &Access| {
            (a.thread / 32, a.site, a.turn, a.threadgroup) == (b.thread / 32, b.site, b.turn, b.threadgroup)
        };
        for lanes in accesses.chunk_by(together) {
            self.count(lanes);
        }
        accesses.clear();
        self.accesses = accesses;
    }

    /// Counts one access of a simdgroup.
    fn count(&mut self, lanes: &[Access]) {
        let (kind, counters) = (lanes[0].kind, &mut self.counters);
        if kind & MATRIX != 0 {
            *(if kind & STORE != 0 { &mut counters.matrix_stores } else { &mut counters.matrix_loads }) += 1;
        }
        match (lanes[0].threadgroup, kind & STORE != 0) {
            (true, true) => in_threadgroup(&mut counters.threadgroup_stores, lanes),
            (true, false) => in_threadgroup(&mut counters.threadgroup_loads, lanes),
            (false, true) => in_device(&mut counters.device_stores, &mut self.lines, lanes),
            (false, false) => in_device(&mut counters.device_loads, &mut self.lines, lanes),
        }
    }
}

/// Pieces of memory of a size that lanes touch, ascending, each once.
fn pieces(lanes: &[Access], size: u64) -> Vec<u64> {
    let of_lane = |lane: &Access| lane.address / size..=(lane.address + u64::from(lane.bytes) - 1) / size;
    let mut pieces: Vec<u64> = lanes.iter().flat_map(of_lane).collect();
    pieces.sort_unstable();
    pieces.dedup();
    pieces
}

fn bytes(lanes: &[Access]) -> u64 {
    lanes.iter().map(|lane| u64::from(lane.bytes)).sum()
}

fn in_device(sum: &mut DeviceAccesses, touched: &mut HashSet<u64>, lanes: &[Access]) {
    let lines = pieces(lanes, LINE);
    sum.instructions += 1;
    sum.bytes += bytes(lanes);
    sum.sectors += pieces(lanes, SECTOR).len() as u64;
    sum.lines += lines.len() as u64;
    touched.extend(lines);
}

/// Lanes with more than 4 bytes each go in parts that ask for at most 128 bytes, as far as is known of GPUs.
fn in_threadgroup(sum: &mut ThreadgroupAccesses, lanes: &[Access]) {
    sum.instructions += 1;
    sum.bytes += bytes(lanes);
    let part = (BANKS as u64 * WORD / u64::from(lanes[0].bytes).max(WORD)).max(1) as u32;
    for lanes in lanes.chunk_by(|a, b| a.thread % 32 / part == b.thread % 32 / part) {
        let mut of_bank = [0_u64; BANKS];
        for word in pieces(lanes, WORD) {
            of_bank[word as usize % BANKS] += 1;
        }
        let passes = of_bank.into_iter().max().unwrap_or(1);
        sum.passes += passes;
        sum.conflicts += passes - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Recorder {
        let (threadgroup, unseen) = (vec![0x1000..0x2000, 0x2000..0x9000], vec![0x10..0x18, 0x18..0x20]);
        let regions =
            Regions { threadgroup, unseen, buffers: vec![(0x10000, false), (0x20000, true), (0x30000, false)] };
        Recorder::new(regions, Counters::default())
    }

    #[test]
    fn spaces_are_told_apart() {
        let regions = recorder().regions;
        let expected = [(0x10, Space::Unseen), (0x1000, Space::Threadgroup), (0x9000, Space::Device)];
        let more = [(0x1ffff, Space::Device), (0x20004, Space::Unseen), (0x30000, Space::Device)];
        for (address, space) in expected.into_iter().chain(more) {
            assert_eq!(regions.space(address), space, "{address:#x}");
        }
    }

    #[test]
    fn turns_of_lanes_are_matched() {
        let mut recorder = recorder();
        // Lane by lane, each the same loop; the last lane leaves it early.
        for lane in 0..32 {
            for turn in 0..if lane == 31 { 2 } else { 3 } {
                recorder.note(lane, 0x10000 + turn * 0x1000 + u64::from(lane) * 4, 4, 0, 77);
            }
        }
        recorder.meet();
        let loads = recorder.counters.device_loads;
        assert_eq!(loads, DeviceAccesses { instructions: 3, bytes: 4 * 95, sectors: 12, lines: 3 });
    }

    #[test]
    fn wide_accesses_go_in_parts() {
        let mut recorder = recorder();
        (0..32).for_each(|lane| recorder.note(lane, 0x1000 + u64::from(lane) * 16, 16, 1, 5));
        (0..32).for_each(|lane| recorder.note(lane, 0x1000 + u64::from(lane) * 128, 4, 0, 6));
        recorder.meet();
        let (stores, loads) = (recorder.counters.threadgroup_stores, recorder.counters.threadgroup_loads);
        assert_eq!((stores.passes, stores.conflicts), (4, 0));
        assert_eq!((loads.passes, loads.conflicts), (32, 31));
    }
}
