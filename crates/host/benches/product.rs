//! Triton's matrix product in float32 beside the crate `gemm`, both on all cores. Prints milliseconds and the ratio, measured in turns.

use openmps_host::Program;
use openmps_tile::parse;
use std::time::{Duration, Instant};

const SIZE: usize = 1024;
/// The rows and columns of a program's tile, as the text has them.
const TILE: [usize; 2] = [128, 256];
const TEXT: &str = include_str!("../../tile/tests/ttir/product.ttir");
const ROUNDS: usize = 40;
/// One turn is many calls: rayon's threads stay awake for a while after each.
const TURN: Duration = Duration::from_millis(50);

fn gemm(out: &mut [f32], x: &[f32], y: &[f32]) {
    let (row, n) = (SIZE as isize, SIZE);
    let (out, x, y) = (out.as_mut_ptr(), x.as_ptr(), y.as_ptr());
    let threads = gemm::Parallelism::Rayon(0);
    // SAFETY: each has SIZE x SIZE elements, rows one after the other.
    unsafe { gemm::gemm(n, n, n, out, 1, row, false, x, 1, row, y, 1, row, 0.0, 1.0, false, false, false, threads) }
}

/// Calls the work for one turn; the first call is not counted.
fn turn(times: &mut Vec<f64>, mut work: impl FnMut()) {
    work();
    let end = Instant::now() + TURN;
    while Instant::now() < end {
        let begin = Instant::now();
        work();
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let kernel = parse(TEXT).expect("the text is Triton's");
    let program = Program::new(&kernel).expect("the host has all operations of it");
    let values = |step: f32| (0..SIZE * SIZE).map(|i| (i as f32 * step).sin()).collect::<Vec<_>>();
    let (x, y) = (values(0.37), values(0.73));
    let (mut ours, mut theirs) = (vec![0.0f32; SIZE * SIZE], vec![0.0f32; SIZE * SIZE]);
    let address = |pointer: *const f32| pointer.expose_provenance() as u64;
    let size = SIZE as u64;
    let arguments = [address(x.as_ptr()), address(y.as_ptr()), address(ours.as_mut_ptr()), size, size, size];
    let grid = [SIZE / TILE[0], SIZE / TILE[1], 1];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        // SAFETY: the kernel stays inside of the three matrices, whose addresses are exposed.
        turn(&mut times[0], || unsafe { program.run(grid, &arguments) }.expect("a launch"));
        turn(&mut times[1], || gemm(&mut theirs, &x, &y));
    }
    let furthest = ours.iter().zip(&theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max);
    assert!(furthest < 1e-3, "the results differ by {furthest}");
    let [ours, theirs] = times.map(median);
    println!("product of float32, {SIZE}: {ours:.2} ms, gemm {theirs:.2} ms ({:.2}x)", theirs / ours);
}
