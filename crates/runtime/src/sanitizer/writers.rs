//! Which program stored a byte last, and whether anything orders it before the program at hand.
//!
//! Programs run one after the other here, side by side on a device. Two stores to a byte by different programs are a race, unless both are
//! atomic, or the first program went through an atomic operation after its store and the second through one on the same address before:
//! that is how locks and counters order programs.

use std::collections::{HashMap, HashSet};

/// Bytes of a page of the record.
const PAGE: u64 = 4096;

/// In a byte's mark: the store was atomic. The rest of the mark is a stretch's number.
const ATOMIC: u32 = 1 << 31;

/// The last store to each byte.
#[derive(Default)]
pub(super) struct Writers {
    /// A mark for each byte; 0 where nothing was stored.
    pages: HashMap<u64, Box<[u32]>>,
    programs: Vec<[usize; 3]>,
    /// The program of each stretch, from number 1 on: what a program does up to an atomic operation, or to its end.
    stretches: Vec<u32>,
    /// By address: stretches that ended with an atomic operation on it, the last of each program, rising.
    released: HashMap<u64, Vec<u32>>,
    /// Addresses of atomic operations of the program at hand.
    acquired: HashSet<u64>,
    /// A stretch that is known to come before what the program does now.
    ordered: u32,
}

impl Writers {
    /// What follows is done by this program.
    pub fn begin_program(&mut self, program: [usize; 3]) {
        self.programs.push(program);
        self.acquired.clear();
        self.ordered = 0;
        self.begin_stretch();
    }

    /// Notes a store; the other program where it is a race.
    pub fn store(&mut self, address: u64, size: usize) -> Result<(), [usize; 3]> {
        self.mark(address, size, 0)
    }

    /// Notes an atomic operation; the other program where it meets a plain store in no order.
    pub fn replace(&mut self, address: u64, size: usize) -> Result<(), [usize; 3]> {
        self.acquire(address);
        self.mark(address, size, ATOMIC)?;
        let (stretch, program) = (self.stretch(), self.program());
        let released = self.released.entry(address).or_default();
        if released.last().is_some_and(|&last| self.stretches[last as usize - 1] == program) {
            released.pop();
        }
        released.push(stretch);
        self.begin_stretch();
        Ok(())
    }

    /// Notes that this program comes after what others did before their atomic operations at an address.
    pub fn acquire(&mut self, address: u64) {
        self.acquired.insert(address);
    }

    fn begin_stretch(&mut self) {
        self.stretches.push((self.programs.len() as u32).wrapping_sub(1));
    }

    /// The number of the stretch at hand. They do not run out: one takes four bytes here.
    fn stretch(&self) -> u32 {
        self.stretches.len() as u32
    }

    fn program(&self) -> u32 {
        self.program_of(self.stretch())
    }

    fn program_of(&self, stretch: u32) -> u32 {
        self.stretches[stretch as usize - 1]
    }

    fn mark(&mut self, address: u64, size: usize, atomic: u32) -> Result<(), [usize; 3]> {
        let mark = self.stretch() | atomic;
        for byte in (0..size as u64).map(|i| address.wrapping_add(i)) {
            let (page, place) = (byte / PAGE, (byte % PAGE) as usize);
            let before = self.pages.get(&page).map_or(0, |page| page[place]);
            if self.is_race(before, atomic) {
                return Err(self.programs[self.program_of(before & !ATOMIC) as usize]);
            }
            self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into())[place] = mark;
        }
        Ok(())
    }

    fn is_race(&mut self, before: u32, atomic: u32) -> bool {
        let stretch = before & !ATOMIC;
        before != 0 && self.program_of(stretch) != self.program() && before & atomic == 0 && !self.is_ordered(stretch)
    }

    /// Whether a stretch's program later released an address that the program at hand has acquired.
    fn is_ordered(&mut self, stretch: u32) -> bool {
        if self.ordered == stretch {
            return true;
        }
        let program = self.program_of(stretch);
        let after = |address: &u64| {
            let released = self.released.get(address).map_or(&[][..], Vec::as_slice);
            let next = released.get(released.partition_point(|&other| other < stretch));
            next.is_some_and(|&next| self.program_of(next) == program)
        };
        let found = self.acquired.iter().any(after);
        if found {
            self.ordered = stretch;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: [usize; 3] = [0, 0, 0];
    const SECOND: [usize; 3] = [1, 0, 0];
    const THIRD: [usize; 3] = [2, 0, 0];
    const LOCK: u64 = 64;

    fn begun(program: [usize; 3]) -> Writers {
        let mut writers = Writers::default();
        writers.begin_program(program);
        writers
    }

    #[test]
    fn a_program_may_store_again_and_others_beside_it() {
        let mut writers = begun(FIRST);
        assert_eq!(writers.store(4094, 4), Ok(()));
        assert_eq!(writers.store(4094, 4), Ok(()));
        writers.begin_program(SECOND);
        assert_eq!(writers.store(4098, 4), Ok(()));
        assert_eq!(writers.store(4090, 4), Ok(()));
        assert_eq!(writers.store(4091, 4), Err(FIRST), "one byte in common, on the page before");
    }

    #[test]
    fn atomic_operations_race_with_plain_stores_only() {
        let mut writers = begun(FIRST);
        assert_eq!(writers.replace(8, 4), Ok(()));
        assert_eq!(writers.store(16, 4), Ok(()));
        writers.begin_program(SECOND);
        assert_eq!(writers.replace(8, 4), Ok(()));
        assert_eq!(writers.replace(16, 4), Err(FIRST));
        writers.begin_program(THIRD);
        assert_eq!(writers.store(8, 4), Err(SECOND));
    }

    #[test]
    fn a_lock_orders_stores_made_before_its_release() {
        let mut writers = begun(FIRST);
        assert_eq!(writers.replace(LOCK, 4), Ok(()));
        assert_eq!(writers.store(0, 8), Ok(()));
        assert_eq!(writers.replace(LOCK, 4), Ok(()));
        assert_eq!(writers.store(8, 8), Ok(()), "behind the release");
        writers.begin_program(SECOND);
        assert_eq!(writers.replace(LOCK, 4), Ok(()));
        assert_eq!(writers.store(0, 8), Ok(()));
        assert_eq!(writers.store(8, 8), Err(FIRST));
        writers.begin_program(THIRD);
        assert_eq!(writers.replace(LOCK + 4, 4), Ok(()), "another lock");
        assert_eq!(writers.store(0, 8), Err(SECOND));
    }
}
