//! Memory that the next program will read or write is asked for while this one computes.
//!
//! Rows of a few kilobytes are too short for the CPU's own prefetching, which begins anew on each page. Where a load or store is as far from the one before
//! as that was from its own, the next will be too; its lines are asked for a few at a time before each step on tiles, since many at once would
//! keep what the step itself reads waiting.

use crate::plan::operand::Register;

/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Lines that are asked for before a step, for the second-level cache: the first has no room to spare. With 12 to 20 layer norm over rows of 4,096 bytes is as fast.
const LINES: usize = 16;
/// Shorter rows are fetched soon enough, of longer ones the CPU fetches the rest.
const SHORTEST: usize = 512;
const LONGEST: usize = 8192;
/// Places further apart are no rows of one tensor.
const FAR: usize = 1 << 20;
/// Rows that are asked for at a time.
const STREAMS: usize = 4;

/// A row that will be read or written.
#[derive(Clone, Copy, Default)]
struct Stream {
    begin: usize,
    /// What has not been asked for.
    at: usize,
    end: usize,
}

/// What is expected of one thread's programs.
#[derive(Default)]
pub(super) struct Ahead {
    /// Where each register's load or store was before.
    before: Vec<usize>,
    streams: [Stream; STREAMS],
    turn: usize,
}

impl Ahead {
    /// Forgets what other programs did.
    pub fn begin(&mut self, registers: usize) {
        self.before.clear();
        self.before.resize(registers, 0);
        self.streams = Default::default();
    }

    /// Notes where a row is that a register stands for.
    #[inline(always)]
    pub fn note(&mut self, register: Register, address: *const u8, bytes: usize) {
        if bytes >= SHORTEST {
            self.expect(register, address as usize, bytes.min(LONGEST));
        }
    }

    fn expect(&mut self, register: Register, now: usize, bytes: usize) {
        let before = std::mem::replace(&mut self.before[register], now);
        let distance = now.wrapping_sub(before);
        let is_near = before != 0 && distance != 0 && distance.wrapping_add(FAR) <= 2 * FAR;
        let begin = now.wrapping_add(distance);
        if !is_near || self.streams.iter().any(|stream| stream.begin == begin) {
            return;
        }
        // What was expected has come, or the oldest gives way.
        let place = self.streams.iter().position(|stream| stream.begin == now).unwrap_or(self.turn);
        self.turn = (place + 1) % STREAMS;
        self.streams[place] = Stream { begin, at: begin, end: begin.wrapping_add(bytes) };
    }

    /// Asks for the next lines.
    #[inline(always)]
    pub fn fetch(&mut self) {
        let mut left = LINES;
        for stream in &mut self.streams {
            while stream.at < stream.end && left > 0 {
                prefetch(stream.at);
                stream.at += LINE;
                left -= 1;
            }
        }
    }
}

/// Asks for the line at an address, which need not be one.
#[inline(always)]
fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: usize = 4096;

    /// What is expected of registers that stand for rows at these addresses, one after the other.
    fn after(addresses: &[(Register, usize)]) -> Ahead {
        let mut ahead = Ahead::default();
        ahead.begin(2);
        for &(register, address) in addresses {
            ahead.note(register, std::ptr::without_provenance(address), ROW);
        }
        ahead
    }

    fn begins(ahead: &Ahead) -> Vec<usize> {
        ahead.streams.iter().map(|stream| stream.begin).filter(|&begin| begin != 0).collect()
    }

    #[test]
    fn a_row_is_expected_as_far_away_as_the_last_was() {
        assert_eq!(begins(&after(&[(0, 0x10000)])), []);
        assert_eq!(begins(&after(&[(0, 0x10000), (0, 0x11000)])), [0x12000]);
        assert_eq!(begins(&after(&[(0, 0x10000), (0, 0x11000), (0, 0x12000)])), [0x13000], "in its place");
        assert_eq!(begins(&after(&[(0, 0x11000), (0, 0x10000)])), [0xf000], "backwards");
        assert_eq!(begins(&after(&[(0, 0x10000), (0, 0x10000)])), [], "the same again");
        assert_eq!(begins(&after(&[(0, 0x10000), (0, 0x1000_0000)])), [], "another tensor");
        let twice = [(0, 0x10000), (1, 0x10000), (0, 0x11000), (1, 0x11000)];
        assert_eq!(begins(&after(&twice)), [0x12000], "read by two loads");
    }

    #[test]
    fn lines_are_asked_for_a_few_at_a_time_and_once() {
        let mut ahead = after(&[(0, 0x10000), (0, 0x11000), (1, 0x40000), (1, 0x41000)]);
        let mut left = vec![ROW / LINE * 2];
        while left.last() != Some(&0) {
            ahead.fetch();
            left.push(ahead.streams.iter().map(|stream| (stream.end - stream.at) / LINE).sum());
        }
        assert!(left.windows(2).all(|pair| pair[0] - pair[1] <= LINES), "{left:?}");
        assert_eq!(left.len() - 1, (ROW / LINE * 2).div_ceil(LINES));
    }
}
