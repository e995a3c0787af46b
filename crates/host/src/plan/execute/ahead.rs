//! Memory that the next program or iteration will read or write is asked for while this one computes.
//!
//! Rows of a few kilobytes are too short for the CPU's own prefetching, which begins anew on each page. Where a load or store has moved on twice by the same
//! distance, it is expected to do so again; lines of the row that it will reach are asked for before each step on tiles, as many at a time as are
//! needed for all to have been asked for when the program ends, since many at once would keep what the step itself reads waiting.

use crate::level;
use crate::native::lanes::{Lanes, Portable};
use crate::plan::operand::Register;

/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Lines that are asked for one after the other, without a look at where the row ends.
const GROUP: usize = 4;
/// Groups that are asked for before a step at most, for the second-level cache: the first has no room to spare. Layer norm over rows of 4,096 bytes takes 15 %
/// longer with 4, and is as fast with 16 (Zen 4); its gradient, whose steps are many, takes 40 % longer with 8 than with 5 (Zen 5).
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
    /// Groups of lines that are left of all of them.
    left: usize,
    turn: usize,
    pace: Pace,
    /// Whether the CPU fetches rows that follow each other.
    cpu_goes_on: bool,
}

/// How many groups are asked for before a step.
#[derive(Clone, Copy)]
struct Pace {
    groups: usize,
    /// Groups that the program expects so far, and its steps.
    expected: usize,
    steps: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { groups: GROUPS, expected: 0, steps: 0 }
    }
}

impl Pace {
    /// That of the next program, by what this one expected.
    fn next(self) -> Pace {
        if self.steps == 0 {
            return self;
        }
        Pace { groups: self.expected.div_ceil(self.steps).min(GROUPS), expected: 0, steps: 0 }
    }
}

impl Ahead {
    /// Forgets what other programs did.
    pub fn begin(&mut self, registers: usize) {
        self.before.clear();
        self.before.resize(registers, (0, 0));
        (self.streams, self.left, self.turn, self.pace) = Default::default();
        self.cpu_goes_on = level::prefetches_across_pages();
    }

    /// Notes that a program begins.
    #[inline(always)]
    pub fn begin_program(&mut self) {
        self.pace = self.pace.next();
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
        let is_fetched = distance == bytes && (self.cpu_goes_on || bytes > LONGEST);
        if !goes_on || is_fetched || self.streams.iter().any(|stream| stream.begin == begin) {
            return;
        }
        // What was expected has come, or the next in turn gives way.
        let place = self.streams.iter().position(|stream| stream.begin == now).unwrap_or(self.turn);
        self.turn = (place + 1) % STREAMS;
        let groups = bytes.min(LONGEST).div_ceil(GROUP * LINE);
        self.left = self.left - self.streams[place].left + groups;
        self.streams[place] = Stream { begin, at: begin, left: groups };
        self.pace.expected += groups;
    }

    /// Asks for the next lines.
    #[inline(always)]
    pub fn fetch(&mut self) {
        self.pace.steps += 1;
        if self.left > 0 {
            self.fetch_some();
        }
    }

    fn fetch_some(&mut self) {
        let mut most = self.pace.groups;
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
            self.left -= groups;
            most -= groups;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: usize = 4096;

    /// Of a CPU that fetches nothing behind a page.
    fn begun(registers: usize) -> Ahead {
        let mut ahead = Ahead::default();
        ahead.begin(registers);
        ahead.cpu_goes_on = false;
        ahead
    }

    /// What is expected of registers that stand for rows at these addresses, one after the other.
    fn after(addresses: &[(Register, usize)]) -> Ahead {
        let mut ahead = begun(2);
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
            let mut ahead = begun(1);
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

    #[test]
    fn rows_that_follow_each_other_are_left_to_a_cpu_that_fetches_them() {
        let expected = |by: usize| {
            let mut ahead = begun(1);
            ahead.cpu_goes_on = true;
            (0..3).for_each(|row| ahead.note(0, std::ptr::without_provenance(0x10000 + row * by), ROW));
            begins(&ahead)
        };
        assert_eq!([expected(ROW), expected(2 * ROW)], [vec![], vec![0x10000 + 6 * ROW]]);
    }

    #[test]
    fn a_program_asks_for_as_many_groups_before_each_step_as_the_last_one_expected() {
        let mut ahead = begun(1);
        let groups = ROW / LINE / GROUP;
        let mut paces = Vec::new();
        for (row, steps) in [1, 1, 5, 2, 1, 0].into_iter().enumerate() {
            ahead.begin_program();
            ahead.note(0, std::ptr::without_provenance(0x10000 + row * ROW), ROW);
            (0..steps).for_each(|_| ahead.fetch());
            paces.push(ahead.pace.groups);
        }
        // Nothing is expected before the third program.
        assert_eq!(paces, [GROUPS, 0, 0, groups.div_ceil(5), GROUPS.min(groups / 2), GROUPS.min(groups)]);
    }
}
