//! Memory that the next program or iteration will read or write is asked for while this one computes.
//!
//! Rows of a few kilobytes are too short for the CPU's own prefetching, which begins anew on each page. Where a load or store has moved on twice by the same
//! distance, it is expected to do so again; lines of the row that it will reach are asked for a few at a time before each step on tiles, since many
//! at once would keep what the step itself reads waiting.

use crate::native::lanes::{Lanes, Portable};
use crate::plan::operand::Register;

/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Lines that are asked for one after the other, without a look at where the row ends.
const GROUP: usize = 4;
/// Groups that are asked for before a step, for the second-level cache: the first has no room to spare. Layer norm over rows of 4,096 bytes takes 15 % longer
/// with 4, and is as fast with 16.
const GROUPS: usize = 8;
/// Shorter rows are fetched soon enough, of longer ones the CPU fetches the rest, and all of it where one follows the other: pieces of a tensor of 16M elements
/// that are asked for take 3 to 10 % longer to be summed or to become exponentials.
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
    /// What has not been asked for, and how many groups of lines that is.
    at: usize,
    left: usize,
}

/// What is expected of one thread's programs.
#[derive(Default)]
pub(super) struct Ahead {
    /// Where each register's load or store was before, and how far that was from the one before it.
    before: Vec<(usize, usize)>,
    streams: [Stream; STREAMS],
    turn: usize,
}

impl Ahead {
    /// Forgets what other programs did.
    pub fn begin(&mut self, registers: usize) {
        self.before.clear();
        self.before.resize(registers, (0, 0));
        (self.streams, self.turn) = Default::default();
    }

    /// Notes where a row is that a register stands for.
    #[inline(always)]
    pub fn note(&mut self, register: Register, address: *const u8, bytes: usize) {
        if bytes >= SHORTEST {
            self.expect(register, address as usize, bytes);
        }
    }

    fn expect(&mut self, register: Register, now: usize, bytes: usize) {
        let (before, moved) = self.before[register];
        let distance = now.wrapping_sub(before);
        self.before[register] = (now, distance);
        let goes_on = distance == moved && distance != 0 && distance.wrapping_add(FAR) <= 2 * FAR;
        let begin = now.wrapping_add(distance);
        let is_fetched = distance == bytes && bytes > LONGEST;
        if !goes_on || is_fetched || self.streams.iter().any(|stream| stream.begin == begin) {
            return;
        }
        // What was expected has come, or the next in turn gives way.
        let place = self.streams.iter().position(|stream| stream.begin == now).unwrap_or(self.turn);
        self.turn = (place + 1) % STREAMS;
        self.streams[place] = Stream { begin, at: begin, left: bytes.min(LONGEST).div_ceil(GROUP * LINE) };
    }

    /// Asks for the next lines.
    #[inline(always)]
    pub fn fetch(&mut self) {
        let mut most = GROUPS;
        for stream in &mut self.streams {
            let groups = stream.left.min(most);
            for _ in 0..groups {
                for line in 0..GROUP {
                    let address = std::ptr::without_provenance(stream.at.wrapping_add(line * LINE));
                    // SAFETY: a hint, which reads nothing.
                    unsafe { Portable::prefetch_to_second(address) };
                }
                stream.at = stream.at.wrapping_add(GROUP * LINE);
            }
            stream.left -= groups;
            most -= groups;
        }
    }
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
        let rows = |begin: usize, by: isize| [0, 1, 2].map(|row| (0, begin.wrapping_add_signed(row * by)));
        assert_eq!(begins(&after(&rows(0x10000, 0x1000)[..2])), []);
        assert_eq!(begins(&after(&rows(0x10000, 0x1000))), [0x13000]);
        assert_eq!(
            begins(&after(&[(0, 0x10000), (0, 0x11000), (0, 0x12000), (0, 0x13000)])),
            [0x14000],
            "in its place"
        );
        assert_eq!(begins(&after(&rows(0x13000, -0x1000))), [0x10000], "backwards");
        assert_eq!(begins(&after(&rows(0x10000, 0))), [], "the same again");
        assert_eq!(begins(&after(&rows(0x10000, 0x1000_0000))), [], "too far");
        assert_eq!(begins(&after(&[(0, 0x10000), (0, 0x11000), (0, 0x17000)])), [], "by index");
        let twice = rows(0x10000, 0x1000).into_iter().flat_map(|(_, address)| [(0, address), (1, address)]);
        assert_eq!(begins(&after(&twice.collect::<Vec<_>>())), [0x13000], "read by two loads");
    }

    #[test]
    fn of_long_rows_the_first_lines_are_asked_for_where_there_are_gaps() {
        let after = |bytes: usize, by: usize| {
            let mut ahead = Ahead::default();
            ahead.begin(1);
            for row in 0..3 {
                ahead.note(0, std::ptr::without_provenance(0x10000 + row * by), bytes);
            }
            ahead.streams.iter().map(|stream| stream.left * GROUP * LINE).sum::<usize>()
        };
        assert_eq!([after(LONGEST, LONGEST), after(4 * LONGEST, 4 * LONGEST)], [LONGEST, 0]);
        assert_eq!(after(4 * LONGEST, 5 * LONGEST), LONGEST);
    }

    #[test]
    fn lines_are_asked_for_a_few_at_a_time_and_once() {
        let mut ahead = after(&[(0, 0x10000), (0, 0x11000), (0, 0x12000), (1, 0x40000), (1, 0x41000), (1, 0x42000)]);
        let all = ROW / LINE / GROUP * 2;
        let mut left = vec![all];
        while left.last() != Some(&0) {
            ahead.fetch();
            left.push(ahead.streams.iter().map(|stream| stream.left).sum());
        }
        assert!(left.windows(2).all(|pair| pair[0] - pair[1] <= GROUPS), "{left:?}");
        assert_eq!(left.len() - 1, all.div_ceil(GROUPS));
    }
}
