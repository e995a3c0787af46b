//! Softmax by rows: threadgroup memory, barriers, shuffles and simdgroup reductions, in every schedule; and the same without one barrier.
#![cfg(target_os = "linux")]

mod harness;

use harness::{SCHEDULES, buffer, compile, dispatch, numbers, run};
use openmps_emulator::{Argument, Grid, Library, Schedule};

const TEXT: &str = include_str!("kernels/softmax.metal");
const ROWS: usize = 19;

fn reference(input: &[f32], columns: usize) -> Vec<f64> {
    let row = |row: &[f32]| {
        let high = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|x| (f64::from(*x) - f64::from(high)).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(move |power| power / sum)
    };
    input.chunks_exact(columns).flat_map(row).collect()
}

/// The largest difference from the reference; infinite where a result is not a number.
fn difference(library: &Library, columns: usize, threads: u32, schedule: Schedule) -> f64 {
    let mut input: Vec<f32> = numbers(ROWS * columns).iter().map(|x| x * 30.0).collect();
    let mut output = vec![f32::NAN; input.len()];
    let count = (columns as u32).to_ne_bytes();
    let arguments = [buffer(&mut input), buffer(&mut output), Argument::Bytes(&count)];
    let grid = Grid::Threadgroups([ROWS as u32, 1, 1]);
    let report = run(library, "softmax_row", &dispatch(grid, [threads, 1, 1], &arguments, schedule)).unwrap();
    assert_eq!(report.threads, ROWS as u64 * u64::from(threads));
    let pairs = output.iter().zip(reference(&input, columns));
    pairs
        .map(|(got, expected)| (f64::from(*got) - expected).abs())
        .map(|d| if d.is_nan() { f64::INFINITY } else { d })
        .fold(0.0, f64::max)
}

#[test]
fn softmax_is_right_in_every_schedule() {
    let library = compile(TEXT);
    for schedule in SCHEDULES {
        for (columns, threads) in [(1000, 256), (1, 32), (77, 64), (4099, 1024)] {
            let difference = difference(&library, columns, threads, schedule);
            assert!(difference < 1e-6, "{columns} columns, {threads} threads, {schedule:?}: {difference:e}");
        }
    }
}

/// Each of the kernel's barriers that guards something is needed: without it at least one schedule is wrong.
#[test]
fn a_missing_barrier_shows() {
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    assert_eq!(TEXT.matches(barrier).count(), 4);
    for missing in 0..4 {
        let (at, _) = TEXT.match_indices(barrier).nth(missing).unwrap();
        let library = compile(&format!("{}{}", &TEXT[..at], &TEXT[at + barrier.len()..]));
        let differences = SCHEDULES.map(|schedule| difference(&library, 1000, 256, schedule));
        assert!(differences.iter().any(|difference| *difference > 1e-3), "without barrier {missing}: {differences:?}");
    }
}
