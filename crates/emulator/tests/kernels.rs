//! Kernels of every kind against float64 references, in every schedule: element by element, atomics, simdgroup operations and matrices.
#![cfg(target_os = "linux")]

mod harness;

use half::{bf16, f16};
use harness::{SCHEDULES, buffer, compile, dispatch, numbers, run};
use openmps_emulator::{Argument, Dispatch, Grid, Library, Schedule};

const ELEMENTWISE: &str = include_str!("kernels/elementwise.metal");
const SIMDGROUP: &str = include_str!("kernels/simdgroup.metal");

/// Bytes of the struct `Parameters`.
fn parameters(count: u32, scale: f32) -> [u8; 8] {
    [count.to_ne_bytes(), scale.to_ne_bytes()].concat().try_into().unwrap()
}

/// All schedules, over several operating system threads and on one.
fn each(mut test: impl FnMut(Schedule, bool)) {
    for schedule in SCHEDULES {
        test(schedule, false);
        test(schedule, true);
    }
}

#[test]
fn sums_are_exact() {
    let library = compile(ELEMENTWISE);
    for count in [1_u32, 255, 256, 100_003] {
        let (mut a, mut b) = (numbers(count as usize), numbers(2 * count as usize).split_off(count as usize));
        a[0] = f32::NEG_INFINITY;
        b[count as usize / 2] = -0.0;
        a[count as usize / 2] = -0.0;
        each(|schedule, sequential| {
            let mut out = vec![f32::NAN; count as usize + 1];
            let bytes = count.to_ne_bytes();
            let arguments = [buffer(&mut a), buffer(&mut b), buffer(&mut out), Argument::Bytes(&bytes)];
            let grid = Grid::Threadgroups([count.div_ceil(256), 1, 1]);
            let dispatch = Dispatch { sequential, ..dispatch(grid, [256, 1, 1], &arguments, schedule) };
            run(&library, "add", &dispatch).unwrap();
            assert!(out.pop().unwrap().is_nan());
            let expected = a.iter().zip(&b).map(|(a, b)| a + b);
            assert!(out.iter().zip(expected).all(|(got, expected)| got.to_bits() == expected.to_bits()));
        });
    }
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x * x * x)).tanh())
}

#[test]
fn gelu_rounds_to_half_and_bfloat() {
    let library = compile(ELEMENTWISE);
    let values: Vec<f32> = numbers(1000).iter().map(|x| x * 4.0).chain([0.0, -0.0, f32::INFINITY, f32::NAN]).collect();
    let (count, scale) = (values.len() as u32, 2.0);
    let mut halves: Vec<f16> = values.iter().map(|x| f16::from_f32(*x)).collect();
    let mut bfloats: Vec<bf16> = values.iter().map(|x| bf16::from_f32(*x)).collect();
    each(|schedule, sequential| {
        let bytes = parameters(count, scale);
        let grid = Grid::Threads([count + 100, 1, 1]);
        let mut out = vec![f16::from_f32(-7.0); values.len() + 1];
        let arguments = [buffer(&mut halves), buffer(&mut out), Argument::Bytes(&bytes)];
        run(&library, "gelu_half", &Dispatch { sequential, ..dispatch(grid, [64, 1, 1], &arguments, schedule) })
            .unwrap();
        assert_eq!(out.pop(), Some(f16::from_f32(-7.0)));
        for (x, got) in halves.iter().zip(out) {
            let expected = f16::from_f64(gelu(x.to_f64())).to_f64() * f64::from(scale);
            close(got.to_f64(), expected, 1.0 / 1024.0, &format!("half gelu of {x}"));
        }
        let mut out = vec![bf16::ZERO; values.len()];
        let arguments = [buffer(&mut bfloats), buffer(&mut out), Argument::Bytes(&bytes)];
        run(&library, "gelu_bfloat", &Dispatch { sequential, ..dispatch(grid, [64, 1, 1], &arguments, schedule) })
            .unwrap();
        for (x, got) in bfloats.iter().zip(out) {
            let expected = bf16::from_f64(gelu(x.to_f64())).to_f64() * f64::from(scale);
            close(got.to_f64(), expected, 1.0 / 128.0, &format!("bfloat gelu of {x}"));
        }
    });
}

/// Equal but for one rounding of the given size; NaN equals NaN.
fn close(got: f64, expected: f64, rounding: f64, what: &str) {
    let same = got == expected || got.is_nan() && expected.is_nan();
    assert!(same || (got - expected).abs() <= rounding * expected.abs() + 1e-7, "{what}: {got}, not {expected}");
}

#[test]
fn ragged_grids_know_their_places() {
    let library = compile(ELEMENTWISE);
    for (width, height, size) in [(7, 5, [4, 4, 1]), (1, 1, [32, 32, 1]), (100, 33, [16, 8, 1]), (33, 1, [32, 1, 1])] {
        let mut input = numbers((width * height) as usize);
        each(|schedule, sequential| {
            let mut out = vec![f32::NAN; input.len()];
            let arguments = [buffer(&mut input), buffer(&mut out)];
            let dispatch = dispatch(Grid::Threads([width, height, 1]), size, &arguments, schedule);
            let report = run(&library, "ragged", &Dispatch { sequential, ..dispatch }).unwrap();
            assert_eq!(report.threads, u64::from(width * height));
            for (index, got) in out.iter().enumerate() {
                assert_eq!(*got, input[index] * 2.0 + (index / width as usize) as f32, "{width}x{height} at {index}");
            }
        });
    }
}

#[test]
fn places_agree_with_each_other() {
    let library = compile(ELEMENTWISE);
    for (groups, size) in [([3, 2, 2], [5, 3, 4]), ([1, 1, 1], [1024, 1, 1]), ([2, 1, 1], [1, 1, 33])] {
        each(|schedule, sequential| {
            let threads = size.iter().product::<u32>();
            let mut out = vec![u32::MAX; (groups.iter().product::<u32>() * threads) as usize];
            let arguments = [buffer(&mut out)];
            let dispatch = dispatch(Grid::Threadgroups(groups), size, &arguments, schedule);
            run(&library, "places", &Dispatch { sequential, ..dispatch }).unwrap();
            assert!(out.iter().enumerate().all(|(index, flat)| *flat == index as u32 % threads), "{groups:?} {size:?}");
        });
    }
}

#[test]
fn vectors_have_swizzles_conversions_and_comparisons() {
    let library = compile(ELEMENTWISE);
    let mut input = numbers(400);
    input[8] = f32::NAN;
    each(|schedule, sequential| {
        let mut out = vec![0.0_f32; 400];
        let bytes = parameters(100, 2.0);
        let arguments = [buffer(&mut input), buffer(&mut out), Argument::Bytes(&bytes)];
        let dispatch = dispatch(Grid::Threads([100, 1, 1]), [32, 1, 1], &arguments, schedule);
        run(&library, "vectors", &Dispatch { sequential, ..dispatch }).unwrap();
        for (v, got) in input.chunks_exact(4).zip(out.chunks_exact(4)) {
            let w = [v[2] + 2.0 + 1.0, v[3] + 1.0, (v[1] + 3.0) * 2.0, (v[0] + 4.0) * 2.0];
            let w = w.map(|w| f16::from_f32(w).to_f32() * 2.0 + v[0]);
            let w: Vec<f32> = (0..4).map(|i| if v[3 - i] < v[i] { w[i].max(0.5) } else { w[i] }).collect();
            let dot = v[0] * w[1] + v[1] * w[2] + v[2] * w[3] + if v.iter().any(|v| v.is_nan()) { 1.0 } else { 0.0 };
            for (got, expected) in got.iter().zip([w[2], w[1], w[0], dot]) {
                close(f64::from(*got), f64::from(expected), 1e-6, &format!("{v:?}"));
            }
        }
    });
}

#[test]
fn addresses_come_as_numbers() {
    let library = compile(ELEMENTWISE);
    let (input, mut out) = (numbers(100), vec![0.0_f32; 100]);
    let addresses = [input.as_ptr() as u64, out.as_mut_ptr() as u64];
    let bytes = addresses.map(u64::to_ne_bytes).concat();
    let arguments = [Argument::Bytes(&bytes)];
    run(&library, "by_address", &Dispatch::new(Grid::Threads([100, 1, 1]), [32, 1, 1], &arguments)).unwrap();
    assert!(input.iter().zip(&out).all(|(x, y)| x + 1.0 == *y));
}

#[test]
fn histograms_count_everything() {
    let library = compile(SIMDGROUP);
    let count = 100_000_u32;
    let mut input: Vec<u32> = numbers(count as usize).iter().map(|x| (x * 1e6) as i32 as u32).collect();
    let mut expected = [0_u32; 16];
    input.iter().for_each(|x| expected[(x & 15) as usize] += 1);
    each(|schedule, sequential| {
        let mut counts = [0_u32; 16];
        let bytes = count.to_ne_bytes();
        let arguments = [buffer(&mut input), buffer(&mut counts), Argument::Bytes(&bytes)];
        let dispatch = dispatch(Grid::Threadgroups([count.div_ceil(256), 1, 1]), [256, 1, 1], &arguments, schedule);
        run(&library, "histogram", &Dispatch { sequential, threadgroup_memory: &[64], ..dispatch }).unwrap();
        assert_eq!(counts, expected);
    });
}

#[test]
fn device_atomics_are_atomic_between_threadgroups() {
    let library = compile(SIMDGROUP);
    let threads = 50_000_u32;
    each(|schedule, sequential| {
        let (mut u, mut i, mut f, mut l) = ([0, 0, 0, u32::MAX, 0, 0, 0], [0_i32; 2], [0.0_f32], [0_u64]);
        let arguments = [buffer(&mut u), buffer(&mut i), buffer(&mut f), buffer(&mut l)];
        let dispatch = dispatch(Grid::Threads([threads, 1, 1]), [64, 1, 1], &arguments, schedule);
        run(&library, "atomics", &Dispatch { sequential, ..dispatch }).unwrap();
        let mixed = (0..threads).fold(0, |mixed, index| mixed ^ index);
        assert_eq!(u, [3 * threads, threads.wrapping_neg(), u32::MAX, 0xffff_0000, mixed, 2 * threads, 77]);
        let last = threads as i32 - 1;
        assert_eq!((i, f[0], l[0]), ([last, 1 - last], threads as f32 * 0.5, u64::from(threads - 1) << 32));
    });
}

#[test]
fn simdgroup_operations_agree_with_their_definitions() {
    let library = compile(SIMDGROUP);
    let mut input = numbers(32);
    let x: Vec<f64> = input.iter().map(|x| f64::from(*x)).collect();
    let sum = |range: std::ops::Range<usize>| x[range].iter().sum::<f64>();
    let ballot = x.iter().enumerate().fold(0_u64, |bits, (lane, x)| bits | u64::from(*x > 0.0) << lane) as f32;
    let expected: [&dyn Fn(usize) -> f64; 20] = [
        &|_| sum(0..32),
        &|_| x.iter().copied().fold(f64::MIN, f64::max),
        &|_| x.iter().copied().fold(f64::MAX, f64::min),
        &|_| x.iter().product(),
        &|lane| sum(0..lane + 1),
        &|lane| sum(0..lane),
        &|lane| x[(lane * 7 + 3) % 32],
        &|lane| x[lane ^ 5],
        &|lane| if lane >= 3 { x[lane - 3] } else { x[lane] },
        &|lane| if lane < 29 { x[lane + 3] } else { x[lane] },
        &|_| x[9],
        &|_| x[0],
        &|_| f64::from(ballot),
        &|_| f64::from(u8::from(x.iter().any(|x| *x > 0.9))),
        &|_| 1.0,
        &|_| f64::from((0..32_u32).fold(0, |mixed, lane| mixed ^ (lane * 3))),
        &|lane| x[(lane + 29) % 32],
        &|lane| if lane < 29 { x[lane + 3] } else { -x[lane - 29] },
        &|_| 496.0,
        &|_| 64.0,
    ];
    each(|schedule, sequential| {
        let mut out = vec![f32::NAN; 20 * 32];
        let arguments = [buffer(&mut input), buffer(&mut out)];
        let dispatch = dispatch(Grid::Threadgroups([1, 1, 1]), [32, 1, 1], &arguments, schedule);
        run(&library, "exchanges", &Dispatch { sequential, ..dispatch }).unwrap();
        for (index, got) in out.iter().enumerate() {
            let (operation, lane) = (index / 32, index % 32);
            let what = format!("operation {operation}, lane {lane}, {schedule:?}");
            let expected = expected[operation](lane);
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{what}: {got}, not {expected}");
        }
    });
}

#[test]
fn branches_take_the_lanes_that_come() {
    let library = compile(SIMDGROUP);
    each(|schedule, sequential| {
        let mut out = [0_u32; 64];
        let arguments = [buffer(&mut out)];
        let dispatch = dispatch(Grid::Threadgroups([1, 1, 1]), [32, 1, 1], &arguments, schedule);
        run(&library, "branches", &Dispatch { sequential, ..dispatch }).unwrap();
        for lane in 0..32 {
            let expected = if lane < 10 { 10 } else { (lane as u32 & 1) * 1100 };
            assert_eq!((out[lane], out[32 + lane]), (expected, 32), "lane {lane}, {schedule:?}");
        }
    });
}

fn product(library: &Library, kernel: &str, a: Argument, b: Argument, size: [u32; 3], schedule: Schedule) -> Vec<f32> {
    let mut c = vec![f32::NAN; (size[0] * size[1]) as usize];
    let bytes = [size[0], size[1], size[2], 0].map(u32::to_ne_bytes).concat();
    let arguments = [a, b, buffer(&mut c), Argument::Bytes(&bytes)];
    let grid = Grid::Threadgroups([size[1] / 8, size[0] / 8, 1]);
    run(library, kernel, &dispatch(grid, [32, 1, 1], &arguments, schedule)).unwrap();
    c
}

#[test]
fn simdgroup_matrices_multiply() {
    let library = compile(SIMDGROUP);
    let size = [24, 40, 64_u32];
    let [m, n, k] = size.map(|size| size as usize);
    let (a, b) = (numbers(m * k), numbers(k * n));
    let check = |kernel: &str, a: &[f64], b: &[f64], c: Vec<f32>| {
        for (index, got) in c.iter().enumerate() {
            let expected: f64 = (0..k).map(|at| a[index / n * k + at] * b[at * n + index % n]).sum();
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{kernel} at {index}: {got}, not {expected}");
        }
    };
    for schedule in SCHEDULES {
        let (mut x, mut y) = (a.clone(), b.clone());
        let c = product(&library, "product_float", buffer(&mut x), buffer(&mut y), size, schedule);
        check(
            "float",
            &x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(),
            &y.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(),
            c,
        );
        let narrow = |x: &[f32]| x.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>();
        let (mut x, mut y) = (narrow(&a), narrow(&b));
        let c = product(&library, "product_half", buffer(&mut x), buffer(&mut y), size, schedule);
        check(
            "half",
            &x.iter().map(|x| x.to_f64()).collect::<Vec<_>>(),
            &y.iter().map(|x| x.to_f64()).collect::<Vec<_>>(),
            c,
        );
        let narrow = |x: &[f32]| x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
        let (mut x, mut y) = (narrow(&a), narrow(&b));
        let c = product(&library, "product_bfloat", buffer(&mut x), buffer(&mut y), size, schedule);
        check(
            "bfloat",
            &x.iter().map(|x| x.to_f64()).collect::<Vec<_>>(),
            &y.iter().map(|x| x.to_f64()).collect::<Vec<_>>(),
            c,
        );
    }
}

/// Largest difference of the staged product from float64; infinite where a result is not a number.
fn staged_difference(text: &str, schedule: Schedule) -> f64 {
    let library = compile(text);
    let n = 96_usize;
    let (mut a, mut b, mut c) = (numbers(n * n), numbers(n * n + 1).split_off(1), vec![f32::NAN; n * n]);
    let bytes = (n as u32).to_ne_bytes();
    let arguments = [buffer(&mut a), buffer(&mut b), buffer(&mut c), Argument::Bytes(&bytes)];
    run(&library, "product", &dispatch(Grid::Threadgroups([3, 3, 1]), [128, 1, 1], &arguments, schedule)).unwrap();
    let expected =
        |index: usize| (0..n).map(|k| f64::from(a[index / n * n + k]) * f64::from(b[k * n + index % n])).sum::<f64>();
    let differences = c.iter().enumerate().map(|(index, got)| (f64::from(*got) - expected(index)).abs());
    differences.map(|d| if d.is_nan() { f64::INFINITY } else { d }).fold(0.0, f64::max)
}

#[test]
fn staged_products_need_both_barriers() {
    const TEXT: &str = include_str!("kernels/product.metal");
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    for schedule in SCHEDULES {
        let difference = staged_difference(TEXT, schedule);
        assert!(difference < 1e-5, "{schedule:?}: {difference:e}");
    }
    for (at, _) in TEXT.match_indices(barrier) {
        let racy = format!("{}{}", &TEXT[..at], &TEXT[at + barrier.len()..]);
        let differences = SCHEDULES.map(|schedule| staged_difference(&racy, schedule));
        assert!(
            differences.iter().any(|difference| *difference > 1e-3),
            "without the barrier at {at}: {differences:?}"
        );
    }
}

#[test]
fn simdgroup_matrices_are_transposed_and_touched_by_element() {
    let library = compile(SIMDGROUP);
    let mut input = numbers(64);
    each(|schedule, sequential| {
        let mut out = vec![f32::NAN; 64];
        let arguments = [buffer(&mut input), buffer(&mut out)];
        let dispatch = dispatch(Grid::Threadgroups([1, 1, 1]), [32, 1, 1], &arguments, schedule);
        run(&library, "transpose", &Dispatch { sequential, ..dispatch }).unwrap();
        assert!((0..64).all(|index| out[index] == input[index % 8 * 8 + index / 8] + 1.0), "{schedule:?}: {out:?}");
    });
}
