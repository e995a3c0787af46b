//! What is counted, for kernels whose accesses are known by hand, in every schedule.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod harness;

use harness::{SCHEDULES, buffer, dispatch, run};
use openmps_emulator::{Argument, Counters, DeviceAccesses, Grid, Library, Options, Schedule, ThreadgroupAccesses};

/// Numbers that begin where a line does.
#[repr(align(128))]
struct Lines<const N: usize>([f32; N]);

fn lines<const N: usize>() -> Box<Lines<N>> {
    let mut lines = Box::new(Lines([0.0; N]));
    lines.0.iter_mut().enumerate().for_each(|(at, number)| *number = at as f32);
    lines
}

fn counted(text: &str) -> Library {
    let options = Options { counted: true, ..Options::default() };
    Library::compile_with(text, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn kernels() -> Library {
    counted(include_str!("kernels/counters.metal"))
}

/// The same in every schedule.
fn count(library: &Library, kernel: &str, grid: Grid, size: [u32; 3], arguments: &[Argument<'_>]) -> Counters {
    let of = |schedule: Schedule| {
        let report = run(library, kernel, &dispatch(grid, size, arguments, schedule)).unwrap();
        report.counters.expect("the text is counted")
    };
    let all = SCHEDULES.map(of);
    assert!(all.iter().all(|counters| *counters == all[0]), "{all:#?}");
    all[0]
}

#[test]
fn a_copy_in_order_touches_each_sector_once() {
    let (mut from, mut to) = (lines::<1024>(), lines::<1024>());
    let arguments = [buffer(&mut from.0), buffer(&mut to.0), Argument::Bytes(&1_u32.to_ne_bytes())];
    let counters = count(&kernels(), "copied", Grid::Threads([1024, 1, 1]), [128, 1, 1], &arguments);
    let whole = DeviceAccesses { instructions: 32, bytes: 4096, sectors: 128, lines: 32 };
    assert_eq!((counters.device_loads, counters.device_stores), (whole, whole));
    assert_eq!((counters.footprint, counters.threadgroup_bytes()), (8192, 0));
    assert_eq!(to.0, from.0);
}

#[test]
fn strides_touch_a_sector_a_lane() {
    let (mut from, mut to) = (lines::<4096>(), lines::<128>());
    for (stride, sectors, touched) in [(2_u32, 8, 2), (8, 32, 8), (32, 32, 32)] {
        let arguments = [buffer(&mut from.0), buffer(&mut to.0), Argument::Bytes(&stride.to_ne_bytes())];
        let counters = count(&kernels(), "copied", Grid::Threads([128, 1, 1]), [64, 1, 1], &arguments);
        let expected = DeviceAccesses { instructions: 4, bytes: 512, sectors: 4 * sectors, lines: 4 * touched };
        assert_eq!(counters.device_loads, expected, "{stride}");
    }
}

#[test]
fn vectors_are_one_access() {
    let (mut from, mut to) = (lines::<4096>(), lines::<4096>());
    let arguments = [buffer(&mut from.0), buffer(&mut to.0)];
    let counters = count(&kernels(), "copied_wide", Grid::Threads([1024, 1, 1]), [128, 1, 1], &arguments);
    let whole = DeviceAccesses { instructions: 32, bytes: 16384, sectors: 512, lines: 128 };
    assert_eq!((counters.device_loads, counters.device_stores), (whole, whole));
}

#[test]
fn structures_are_copied_in_pieces() {
    let (mut from, mut to) = (lines::<256>(), lines::<32>());
    let arguments = [buffer(&mut from.0), buffer(&mut to.0)];
    let counters = count(&kernels(), "copied_pieces", Grid::Threads([32, 1, 1]), [32, 1, 1], &arguments);
    // Two pieces a lane; each piece is half of a sector.
    let loads = DeviceAccesses { instructions: 2, bytes: 1024, sectors: 64, lines: 16 };
    assert_eq!((counters.device_loads, counters.footprint), (loads, 1024 + 128));
    // Eight lanes ask for 32 words at once, 32 bytes apart: two of them share each bank that is asked.
    let stores = ThreadgroupAccesses { instructions: 2, bytes: 1024, passes: 16, conflicts: 8 };
    assert_eq!(counters.threadgroup_stores, stores);
    assert_eq!(to.0, from.0[..32]);
}

#[test]
fn loops_are_counted_and_private_memory_is_not() {
    let mut to = lines::<1024>();
    let arguments = [buffer(&mut to.0), Argument::Bytes(&8_u32.to_ne_bytes())];
    let counters = count(&kernels(), "cleared", Grid::Threads([64, 1, 1]), [32, 1, 1], &arguments);
    let expected = DeviceAccesses { instructions: 32, bytes: 4096, sectors: 1024, lines: 32 * 8 };
    assert_eq!((counters.device_stores, counters.device_loads), (expected, DeviceAccesses::default()));
}

#[test]
fn padding_takes_bank_conflicts_away() {
    let (mut from, mut to) = (lines::<1024>(), lines::<1024>());
    for (kernel, passes, memory) in [("transposed_plain", 32 * 32, 4096), ("transposed_padded", 32, 4224)] {
        let arguments = [buffer(&mut from.0), buffer(&mut to.0)];
        let counters = count(&kernels(), kernel, Grid::Threads([32, 4, 1]), [32, 4, 1], &arguments);
        let stores = ThreadgroupAccesses { instructions: 32, bytes: 4096, passes: 32, conflicts: 0 };
        assert_eq!(counters.threadgroup_stores, stores, "{kernel}");
        assert_eq!(counters.threadgroup_loads, ThreadgroupAccesses { passes, conflicts: passes - 32, ..stores });
        assert_eq!((counters.threadgroup_barriers, counters.threadgroup_memory), (1, memory));
        assert_eq!(to.0[1], from.0[32]);
    }
}

#[test]
fn operations_of_simdgroups_are_counted_once() {
    let (mut from, mut to) = (lines::<256>(), lines::<32>());
    let arguments = [buffer(&mut from.0), buffer(&mut to.0)];
    let counters = count(&kernels(), "summed", Grid::Threads([256, 1, 1]), [64, 1, 1], &arguments);
    assert_eq!((counters.simdgroup_operations, counters.simdgroup_barriers, counters.threadgroup_barriers), (8, 8, 0));
    assert_eq!(counters.device_stores, DeviceAccesses { instructions: 8, bytes: 32, sectors: 8, lines: 8 });
}

#[test]
fn a_product_of_matrices() {
    let library = counted(include_str!("kernels/product.metal"));
    let (mut a, mut b, mut c) = (lines::<4096>(), lines::<4096>(), lines::<4096>());
    let size = 64_u32.to_ne_bytes();
    let arguments = [buffer(&mut a.0), buffer(&mut b.0), buffer(&mut c.0), Argument::Bytes(&size)];
    let counters = count(&library, "product", Grid::Threadgroups([2, 2, 1]), [128, 1, 1], &arguments);
    // 4 threadgroups of 4 simdgroups, 2 steps of 4 eights, 4 products with 4 loads each.
    assert_eq!((counters.matrix_multiplications, counters.matrix_loads, counters.matrix_stores), (512, 512, 64));
    assert_eq!(counters.threadgroup_barriers, 4 * 4);
    // Each tile of 32 by 32 is read by two threadgroups; results are written once.
    assert_eq!((counters.device_loads.bytes, counters.device_stores.bytes), (4 * 2 * 2 * 4096, 16384));
    assert_eq!((counters.footprint, counters.threadgroup_memory), (3 * 16384, 8192));
    // A matrix is read in two parts; in rows 128 bytes apart its eight rows share banks: four of them in each part.
    assert_eq!(counters.threadgroup_loads.passes, 512 * 2 * 4);
    assert_eq!(counters.threadgroup_loads.conflicts, 512 * 2 * 3);
}

#[test]
fn operations_of_blocks_are_counted_as_often_as_these_run() {
    let library = kernels();
    let (mut from, mut to) = (lines::<256>(), lines::<256>());
    let mut of = |kernel: &str, turns: u32, threads: u32| {
        let turns = turns.to_ne_bytes();
        let arguments = [buffer(&mut from.0), buffer(&mut to.0), Argument::Bytes(&turns)];
        let counters = count(&library, kernel, Grid::Threads([threads, 1, 1]), [32, 1, 1], &arguments);
        [counters.integer_operations, counters.float_operations]
    };
    // A turn: an exponential and a sum; a shift, an exclusive or, and the loop's own addition and comparison.
    let (few, many) = (of("computed", 2, 64), of("computed", 12, 64));
    assert_eq!([many[0] - few[0], many[1] - few[1]], [64 * 10 * 4, 64 * 10 * 2]);
    // Outside of the loop there are one sum, one conversion; of twice the threads everything is twice, but for the threads' own loop.
    assert_eq!(few[1], 64 * (2 * 2 + 2));
    assert_eq!(of("computed", 2, 128)[1], 2 * few[1]);
    // A product and a sum of four.
    let (few, many) = (of("computed_wide", 1, 64), of("computed_wide", 3, 64));
    assert_eq!(many[1] - few[1], 64 * 2 * 4 * 2);
    assert_eq!(of("computed_wide", 0, 64)[1], 0);
}

#[test]
fn registers_are_estimated_by_what_is_alive() {
    let library = kernels();
    let (mut from, mut to) = (lines::<512>(), lines::<256>());
    let [few, many] = ["kept_4", "kept_24"].map(|kernel| {
        let arguments = [buffer(&mut from.0), buffer(&mut to.0)];
        count(&library, kernel, Grid::Threads([64, 1, 1]), [64, 1, 1], &arguments).registers
    });
    // Twenty numbers more are alive at the barrier.
    assert_eq!(many - few, 20, "{few} and {many}");
    assert!((4..20).contains(&few), "{few}");
}

#[test]
fn nothing_is_counted_unless_asked_for() {
    let library = harness::compile(include_str!("kernels/counters.metal"));
    let (mut from, mut to) = (lines::<256>(), lines::<32>());
    let arguments = [buffer(&mut from.0), buffer(&mut to.0)];
    let dispatch = dispatch(Grid::Threads([256, 1, 1]), [64, 1, 1], &arguments, Schedule::Ascending);
    assert_eq!(run(&library, "summed", &dispatch).unwrap().counters, None);
}
