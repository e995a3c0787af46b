//! Library and language features that published kernels use: tests/kernels/library.metal.
#![cfg(target_os = "linux")]

mod harness;

use half::bf16;
use harness::{SCHEDULES, buffer, dispatch, run};
use openmps_emulator::{Argument, Grid, Library, Options};

fn library() -> Library {
    let options = Options { bfloat_functions: true, ..Options::default() };
    Library::compile_with(include_str!("kernels/library.metal"), &options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn objects_of_a_class_live_in_every_address_space() {
    let library = library();
    for schedule in SCHEDULES {
        let (mut x, mut y) = ([1_i32, 2, 3, 4, 5, 6], [0_i32; 4]);
        let count = 3_i32.to_ne_bytes();
        let arguments = [buffer(&mut x), buffer(&mut y), Argument::Bytes(&count)];
        run(&library, "pairs_int", &dispatch(Grid::Threads([4, 1, 1]), [4, 1, 1], &arguments, schedule)).unwrap();
        let rest = 10_000 * (7 + 3 - 3);
        assert_eq!(y, [3 + 1400 + rest, 7 + 300 + rest, 11 + 700 + rest, -3 + 1100 + rest], "{schedule:?}");
    }
}

#[test]
fn quadgroups_and_uniform_values() {
    let library = library();
    for schedule in SCHEDULES {
        let mut x: Vec<i32> = (0..64).map(|i| i * 7 % 23).collect();
        let mut y = vec![0_i32; 96];
        let strides: Vec<u8> = [2_i64, 3].iter().flat_map(|stride| stride.to_ne_bytes()).collect();
        let arguments = [buffer(&mut x), buffer(&mut y), Argument::Bytes(&strides)];
        run(&library, "quads", &dispatch(Grid::Threads([32, 1, 1]), [32, 1, 1], &arguments, schedule)).unwrap();
        for i in 0..32 {
            let of = |lane: usize| x[2 * (i / 4 * 4 + lane)];
            let (all, lane) = ([of(0), of(1), of(2), of(3)], i % 4);
            let (up, down) = (of(lane.saturating_sub(1)), of(if lane < 2 { lane + 2 } else { lane }));
            let expected = all.iter().sum::<i32>() * 2 + all.iter().max().unwrap() - up + down;
            assert_eq!(y[3 * i], expected, "thread {i}, {schedule:?}");
        }
    }
}

#[test]
fn a_function_added_to_a_namespace_hides_none() {
    let library = library();
    let mut x = [bf16::from_f32(4.0), bf16::from_f32(9.0)];
    let mut y = [0.0_f32; 2];
    let arguments = [buffer(&mut x), buffer(&mut y)];
    run(&library, "roots", &dispatch(Grid::Threads([2, 1, 1]), [2, 1, 1], &arguments, SCHEDULES[0])).unwrap();
    assert_eq!(y, [13.0, 15.0]);
}
