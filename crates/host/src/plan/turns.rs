//! Programs that add to one of a few places under its lock, as gradients of weights are summed: those of one place run one after the other, and keep
//! it in the first-level cache, and those of another place on another thread.
//!
//! A grid's programs may run in any order, and none of these waits for a certain other one: each takes the lock, which is the same for all when it is free, and
//! gives it back. So a kernel has one loop that waits, by numbers that do not depend on the program.

use openmps_tile::kernel::Atomic;
use openmps_tile::{Binary, Block, Instruction, Kernel, Number, Operation, Value};

/// By what a program's number is divided so that the remainder is its place; none for other kernels.
pub(super) fn places(kernel: &Kernel) -> Option<usize> {
    let instructions = &kernel.body.instructions;
    let taken = instructions.iter().position(|instruction| matches!(instruction.operation, Operation::While))?;
    let made_by = |value: Value| instructions.iter().find(|instruction| instruction.results.contains(&value));
    let constant = |value: Value| match made_by(value)?.operation {
        Operation::Constant(Number::Integer(number)) => Some(number),
        _ => None,
    };
    let &[lock, free, held] = &swap(&instructions[taken])?.operands[..] else { return None };
    if loops_that_wait(&kernel.body) > 1 || constant(free).is_none() || constant(held).is_none() {
        return None;
    }
    let gives_back = |instruction: &Instruction| {
        let writes = matches!(instruction.operation, Operation::Atomic(Atomic::Exchange) | Operation::Store);
        writes && instruction.operands[0] == lock
    };
    instructions[taken..].iter().any(gives_back).then_some(())?;
    let address = made_by(lock).filter(|by| matches!(by.operation, Operation::AddPointer))?;
    let place =
        made_by(address.operands[1]).filter(|by| matches!(by.operation, Operation::Binary(Binary::Remainder)))?;
    let is_number = |by: &Instruction| matches!(by.operation, Operation::ProgramId(0));
    let places = usize::try_from(constant(place.operands[1])?).ok().filter(|&places| places > 1)?;
    made_by(place.operands[0]).is_some_and(is_number).then_some(places)
}

/// The comparison and exchange in a loop.
fn swap(instruction: &Instruction) -> Option<&Instruction> {
    let mut within = instruction.blocks.iter().flat_map(|block| &block.instructions);
    within.find(|instruction| matches!(instruction.operation, Operation::CompareSwap))
}

/// Loops without a number of rounds, in a block and those within it.
fn loops_that_wait(block: &Block) -> usize {
    let of = |instruction: &Instruction| {
        let within: usize = instruction.blocks.iter().map(loops_that_wait).sum();
        within + usize::from(matches!(instruction.operation, Operation::While))
    };
    block.instructions.iter().map(of).sum()
}

/// The programs of a grid of one axis, those of one place after the other.
#[derive(Clone, Copy)]
pub(super) struct Turns {
    programs: usize,
    places: usize,
}

impl Turns {
    pub fn new(programs: usize, places: usize) -> Turns {
        Turns { programs, places }
    }

    /// The number of the program whose turn is the `turn`th.
    pub fn at(self, turn: usize) -> usize {
        let (each, more) = (self.programs / self.places, self.programs % self.places);
        // The first places have a program more.
        let of_more = more * (each + 1);
        let (place, round) = if turn < of_more {
            (turn / (each + 1), turn % (each + 1))
        } else {
            (more + (turn - of_more) / each, (turn - of_more) % each)
        };
        round * self.places + place
    }

    /// The program behind this one.
    pub fn after(self, program: usize) -> usize {
        let next = program + self.places;
        if next < self.programs { next } else { program % self.places + 1 }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::plan::Program;

    /// Rows of 100 numbers, of a program each, are added to three rows of sums, each under its lock; the first to come finds what is no number.
    pub const ADD_UNDER_LOCKS: &str = r#"module {
  tt.func public @add_rows(%x: !tt.ptr<f32>, %sums: !tt.ptr<f32>, %locks: !tt.ptr<i32>, %columns: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %true = arith.constant true
    %zeros = arith.constant dense<0.000000e+00> : tensor<128xf32>
    %id = tt.get_program_id x : i32
    %range = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %ends = tt.splat %columns : i32 -> tensor<128xi32>
    %mask = arith.cmpi slt, %range, %ends : tensor<128xi32>
    %first = arith.muli %id, %columns : i32
    %row = tt.addptr %x, %first : !tt.ptr<f32>, i32
    %rows = tt.splat %row : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %from = tt.addptr %rows, %range : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %numbers = tt.load %from, %mask, %zeros : tensor<128x!tt.ptr<f32>>
    %doubled = arith.addf %numbers, %numbers : tensor<128xf32>
    %place = arith.remsi %id, %c3 : i32
    %lock = tt.addptr %locks, %place : !tt.ptr<i32>, i32
    %counts = tt.addptr %locks, %c3 : !tt.ptr<i32>, i32
    %count = tt.addptr %counts, %place : !tt.ptr<i32>, i32
    %begin = arith.muli %place, %columns : i32
    %sum = tt.addptr %sums, %begin : !tt.ptr<f32>, i32
    %all = tt.splat %sum : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %to = tt.addptr %all, %range : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    scf.while : () -> () {
      %old = tt.atomic_cas acq_rel, gpu, %lock, %c0, %c1 : (!tt.ptr<i32>, i32, i32) -> i32
      %held = arith.cmpi eq, %old, %c1 : i32
      scf.condition(%held)
    } do {
      scf.yield
    }
    %before = tt.load %count : !tt.ptr<i32>
    %is_first = arith.cmpi eq, %before, %c0 : i32
    %added = scf.if %is_first -> (tensor<128xf32>) {
      %noted = tt.atomic_rmw exch, acq_rel, gpu, %count, %c1, %true : (!tt.ptr<i32>, i32, i1) -> i32
      scf.yield %doubled : tensor<128xf32>
    } else {
      %there = tt.load %to, %mask : tensor<128x!tt.ptr<f32>>
      %both = arith.addf %doubled, %there : tensor<128xf32>
      scf.yield %both : tensor<128xf32>
    }
    tt.store %to, %added, %mask : tensor<128x!tt.ptr<f32>>
    %given = tt.atomic_rmw exch, acq_rel, gpu, %lock, %c0, %true : (!tt.ptr<i32>, i32, i1) -> i32
    tt.return
  }
}
"#;

    /// The plan of a kernel in Triton's text.
    pub fn planned(text: &str) -> Program {
        Program::new(&openmps_tile::parse(text).expect("a kernel")).expect("planned")
    }

    #[test]
    fn every_program_has_its_turn_behind_those_of_its_place() {
        for (programs, places) in [(1, 2), (2, 3), (7, 3), (8, 4), (64, 64), (100, 64), (4096, 64)] {
            let turns = Turns::new(programs, places);
            let order: Vec<usize> = (0..programs).map(|turn| turns.at(turn)).collect();
            let mut expected: Vec<usize> = (0..programs).collect();
            expected.sort_by_key(|program| (program % places, program / places));
            assert_eq!(order, expected, "{programs} {places}");
            for pair in order.windows(2) {
                assert_eq!(turns.after(pair[0]), pair[1], "{programs} {places}");
            }
        }
    }

    #[test]
    fn rows_are_added_whatever_the_grid_and_a_kernel_without_a_lock_keeps_its_order() {
        let program = planned(ADD_UNDER_LOCKS);
        assert_eq!(program.places, Some(3));
        for (rows, columns) in [(1, 100), (2, 128), (3, 1), (500, 100), (3000, 128)] {
            let x: Vec<f32> = (0..rows * columns).map(|i| (i % 17) as f32).collect();
            let (mut sums, mut locks) = (vec![f32::NAN; 3 * columns], [0_i32; 6]);
            let addresses = [x.as_ptr().expose_provenance(), sums.as_mut_ptr().expose_provenance()];
            let locks = locks.as_mut_ptr().expose_provenance();
            let arguments = [addresses[0], addresses[1], locks, columns].map(|argument| argument as u64);
            // SAFETY: rows of `x`, three of sums, three locks and three counts.
            unsafe { program.run([rows, 1, 1], &arguments) }.expect("runs");
            for place in 0..rows.min(3) {
                for column in 0..columns {
                    let of_place = (place..rows).step_by(3).map(|row| 2.0 * x[row * columns + column]);
                    let (found, expected) = (sums[place * columns + column], of_place.sum::<f32>());
                    assert_eq!(found, expected, "{rows} x {columns}: sum {place}, {column}");
                }
            }
        }
        let unlocked = ADD_UNDER_LOCKS
            .replace("tt.atomic_rmw exch, acq_rel, gpu, %lock", "tt.atomic_rmw add, acq_rel, gpu, %lock");
        assert_eq!(planned(&unlocked).places, None);
        let by_turn = ADD_UNDER_LOCKS.replace("%lock, %c0, %c1 : (", "%lock, %id, %c1 : (");
        assert_eq!(planned(&by_turn).places, None, "who comes first is another's business");
    }
}
