//! Grids, the order in which threadgroups and threads run, and random numbers for it.

use crate::limits::SIMD_WIDTH;

/// How much is run. x comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// Whole threadgroups: dispatchThreadgroups.
    Threadgroups([u32; 3]),
    /// Threads; threadgroups at the edges are cut off: dispatchThreads.
    Threads([u32; 3]),
}

/// The order in which simdgroups and their lanes run where Metal leaves it open. A kernel that lacks a barrier gives other results in at
/// least one of several schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// The first simdgroup runs to its barrier, then the second, ...; lanes and threadgroups ascend too.
    #[default]
    Ascending,
    /// The last comes first.
    Descending,
    /// A new random order after each barrier, from this seed.
    Shuffled(u64),
}

impl Grid {
    /// Threadgroups in each direction.
    pub(crate) fn threadgroups(&self, size: [u32; 3]) -> [u32; 3] {
        match *self {
            Grid::Threadgroups(count) => count,
            Grid::Threads(threads) => [0, 1, 2].map(|axis| threads[axis].div_ceil(size[axis])),
        }
    }

    /// Threads in each direction.
    pub(crate) fn threads(&self, size: [u32; 3]) -> [u32; 3] {
        match *self {
            Grid::Threadgroups(count) => [0, 1, 2].map(|axis| count[axis].saturating_mul(size[axis])),
            Grid::Threads(threads) => threads,
        }
    }
}

/// Splits a linear index; x runs fastest.
pub(crate) fn position(index: u64, size: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(size[0]), u64::from(size[1]));
    [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
}

/// A permutation of `0..count` without a table: `(index * step + start) % count`.
pub(crate) struct Permutation {
    count: u64,
    step: u64,
    start: u64,
}

impl Permutation {
    pub(crate) fn new(schedule: Schedule, count: u64) -> Permutation {
        let (step, start) = match schedule {
            Schedule::Ascending => (1, 0),
            Schedule::Descending => (count.saturating_sub(1), count.saturating_sub(1)),
            Schedule::Shuffled(seed) => {
                let mut random = Random::new(seed);
                let mut step = random.below(count.max(1));
                while gcd(step, count) != 1 {
                    step += 1;
                }
                (step, random.below(count.max(1)))
            }
        };
        Permutation { count, step, start }
    }

    pub(crate) fn at(&self, index: u64) -> u64 {
        ((u128::from(index) * u128::from(self.step) + u128::from(self.start)) % u128::from(self.count)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// xorshift64*: good enough to mix orders.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((u128::from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)) * u128::from(bound)) >> 64) as u64
    }

    fn shuffle(&mut self, items: &mut [u32]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// The order of a threadgroup's simdgroups, and of the threads within them.
pub(crate) struct Order {
    schedule: Schedule,
    random: Random,
    /// Simdgroups in order.
    pub groups: Vec<u32>,
    /// Threads in the order of `groups`.
    pub threads: Vec<u32>,
    /// Where in `threads` each simdgroup begins, by its index.
    pub begins: Vec<u32>,
}

impl Order {
    pub(crate) fn new(schedule: Schedule) -> Order {
        let seed = if let Schedule::Shuffled(seed) = schedule { seed } else { 0 };
        Order { schedule, random: Random::new(seed), groups: Vec::new(), threads: Vec::new(), begins: Vec::new() }
    }

    /// An order for a threadgroup of so many threads; a shuffled one is new each time, `mix` tells threadgroups apart.
    pub(crate) fn renew(&mut self, threads: u32, mix: u64) {
        let unchanged = self.threads.len() == threads as usize && !matches!(self.schedule, Schedule::Shuffled(_));
        if unchanged {
            return;
        }
        if let Schedule::Shuffled(seed) = self.schedule {
            self.random = Random::new(seed ^ mix.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        }
        self.groups.clear();
        self.groups.extend(0..threads.div_ceil(SIMD_WIDTH));
        match self.schedule {
            Schedule::Ascending => {}
            Schedule::Descending => self.groups.reverse(),
            Schedule::Shuffled(_) => self.random.shuffle(&mut self.groups),
        }
        self.threads.clear();
        self.begins.resize(self.groups.len(), 0);
        for &group in &self.groups {
            let begin = self.threads.len();
            self.begins[group as usize] = begin as u32;
            self.threads.extend(group * SIMD_WIDTH..((group + 1) * SIMD_WIDTH).min(threads));
            match self.schedule {
                Schedule::Ascending => {}
                Schedule::Descending => self.threads[begin..].reverse(),
                Schedule::Shuffled(_) => self.random.shuffle(&mut self.threads[begin..]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schedule_visits_everything_once() {
        for schedule in [Schedule::Ascending, Schedule::Descending, Schedule::Shuffled(7)] {
            for count in [1, 2, 31, 96, 1000] {
                let permutation = Permutation::new(schedule, count);
                let mut seen: Vec<u64> = (0..count).map(|index| permutation.at(index)).collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..count), "{schedule:?} of {count}");
                let mut order = Order::new(schedule);
                order.renew(count as u32, 3);
                let mut threads = order.threads.clone();
                threads.sort_unstable();
                assert!(threads.iter().copied().eq(0..count as u32));
            }
        }
    }

    #[test]
    fn ragged_grids_are_covered() {
        let grid = Grid::Threads([7, 5, 1]);
        assert_eq!(grid.threadgroups([4, 4, 1]), [2, 2, 1]);
        assert_eq!(grid.threads([4, 4, 1]), [7, 5, 1]);
        assert_eq!(position(5, [3, 2, 1]), [2, 1, 0]);
    }
}
