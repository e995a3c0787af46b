//! Which dispatches need a barrier between them. Dispatches of one encoder may overlap (`MTLDispatchTypeConcurrent`), so that small
//! kernels on different memory fill the GPU together; a barrier goes where one touches what an earlier one wrote, or writes what it touched.

use std::ops::Range;

/// One use of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The addresses that the command may touch.
    pub range: Range<usize>,
    /// Whether it may write there.
    pub written: bool,
}

/// Uses beyond this many are looked through one by one no longer: a barrier is cheaper.
const MOST: usize = 64;

/// The uses since the last barrier.
#[derive(Default)]
pub struct Hazards {
    accesses: Vec<Access>,
}

impl Hazards {
    /// Notes the uses of one command; true when a barrier must come before it.
    pub fn add(&mut self, accesses: &[Access]) -> bool {
        let conflict = self.accesses.len() + accesses.len() > MOST
            || accesses.iter().any(|new| self.accesses.iter().any(|old| conflicts(old, new)));
        if conflict {
            self.accesses.clear();
        }
        self.accesses.extend_from_slice(accesses);
        conflict
    }

    /// Forgets every use: something else has put the commands in order.
    pub fn clear(&mut self) {
        self.accesses.clear();
    }
}

fn conflicts(old: &Access, new: &Access) -> bool {
    let overlap = old.range.start.max(new.range.start) < old.range.end.min(new.range.end);
    overlap && (old.written || new.written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(range: Range<usize>) -> Access {
        Access { range, written: false }
    }

    fn write(range: Range<usize>) -> Access {
        Access { range, written: true }
    }

    #[test]
    fn only_conflicts_need_a_barrier() {
        let mut hazards = Hazards::default();
        assert!(!hazards.add(&[read(0..64), write(64..128)]));
        // Reads of the same memory may overlap.
        assert!(!hazards.add(&[read(0..64), write(128..192)]));
        // What was written is read.
        assert!(hazards.add(&[read(64..128), write(256..320)]));
        // What was read is written.
        assert!(hazards.add(&[write(100..101)]));
        // What was written is written.
        assert!(hazards.add(&[write(100..164)]));
        // A neighbour does not conflict.
        assert!(!hazards.add(&[write(164..200)]));
        hazards.clear();
        assert!(!hazards.add(&[write(100..164)]));
    }

    #[test]
    fn a_barrier_comes_at_last_when_there_are_many_uses() {
        let mut hazards = Hazards::default();
        let barriers = (0..MOST * 3).filter(|&i| hazards.add(&[write(i * 8..i * 8 + 8)])).count();
        assert_eq!(barriers, 2);
    }

    #[test]
    fn every_conflicting_pair_has_a_barrier_between() {
        // A small generator of numbers, so that the pairs differ and repeat from run to run.
        let mut state = 1u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let mut hazards = Hazards::default();
        let mut since_barrier: Vec<Vec<Access>> = Vec::new();
        for _ in 0..2000 {
            let accesses: Vec<Access> = (0..1 + next(4))
                .map(|_| {
                    let begin = next(200);
                    Access { range: begin..begin + next(20), written: next(3) == 0 }
                })
                .collect();
            if hazards.add(&accesses) {
                since_barrier.clear();
            }
            let clean = since_barrier.iter().flatten().all(|old| accesses.iter().all(|new| !conflicts(old, new)));
            assert!(clean, "{accesses:?} overlaps what ran beside it");
            since_barrier.push(accesses);
        }
    }
}
