//! Errors of dispatches: each of Metal's limits, arguments, barriers that not all threads reach, faults, kernels that do not end.
#![cfg(target_os = "linux")]

mod harness;

use harness::{SCHEDULES, buffer, compile, dispatch, run};
use openmps_emulator::limits::Limit;
use openmps_emulator::{Argument, Dispatch, Error, Grid, Library, Result};
use std::time::{Duration, Instant};

const TEXT: &str = include_str!("kernels/errors.metal");

fn limit(result: Result<openmps_emulator::Report>) -> (Limit, String) {
    match result {
        Err(error @ Error::Limit { limit, .. }) => (limit, error.to_string()),
        other => panic!("not a limit: {other:?}"),
    }
}

/// The first line with a word in a kernel.
fn line_of(kernel: &str, word: &str) -> u32 {
    let begin = TEXT.find(&format!("kernel void {kernel}(")).unwrap();
    let at = begin + TEXT[begin..].find(word).unwrap();
    TEXT[..at].matches('\n').count() as u32 + 1
}

fn one(threads: u32) -> (Grid, [u32; 3]) {
    (Grid::Threadgroups([1, 1, 1]), [threads, 1, 1])
}

#[test]
fn each_limit_is_an_error_of_its_own() {
    let library = compile(TEXT);
    let mut out = [0_u32; 2048];
    let arguments = [buffer(&mut out)];
    let of = |grid, size| limit(run(&library, "fill", &Dispatch::new(grid, size, &arguments)));
    let (limit_of, text) = of(Grid::Threadgroups([1, 1, 1]), [32, 33, 1]);
    assert_eq!(limit_of, Limit::Threads { given: 1056 });
    assert_eq!(text, "kernel fill: 1056 threads a threadgroup are 32 more than the 1024 there can be");
    assert_eq!(
        of(Grid::Threadgroups([1, 1, 1]), [u32::MAX, u32::MAX, 1]).0,
        Limit::Threads { given: u64::from(u32::MAX).pow(2) }
    );
    assert_eq!(of(Grid::Threadgroups([1, 0, 1]), [32, 1, 1]).0, Limit::Empty { given: [1, 0, 1] });
    assert_eq!(of(Grid::Threads([1, 1, 1]), [32, 1, 0]).0, Limit::Empty { given: [32, 1, 0] });
    let (grid, size) = one(96);
    let few = limit(run(&library, "few_threads", &Dispatch::new(grid, size, &arguments)));
    assert_eq!(few.0, Limit::DeclaredThreads { given: 96, most: 64 });
    let memory = |lengths: &[usize]| {
        let (grid, size) = one(32);
        run(
            &library,
            "given_memory",
            &Dispatch { threadgroup_memory: lengths, ..Dispatch::new(grid, size, &arguments) },
        )
    };
    memory(&[16 * 1024]).unwrap();
    let (limit_of, text) = limit(memory(&[20 * 1024]));
    assert_eq!(limit_of, Limit::ThreadgroupMemory { declared: 16 * 1024, given: 20 * 1024 });
    assert!(
        text.contains("36864 bytes of threadgroup memory (16384 declared, 20480 given) are 4096 more than"),
        "{text}"
    );
    assert_eq!(limit(memory(&[24])).0, Limit::ThreadgroupMemoryStep { index: 0, given: 24 });
    assert_eq!(limit(memory(&[16; 32])).0, Limit::ThreadgroupArguments { given: 32 });
    assert!(matches!(memory(&[]), Err(Error::MissingThreadgroupMemory { index: 0, .. })));
}

#[test]
fn arguments_are_checked() {
    let library = compile(TEXT);
    let mut out = [0_u32; 64];
    let address = out.as_mut_ptr();
    let call = |arguments: &[Argument]| {
        let (grid, size) = one(32);
        run(&library, "offset", &Dispatch::new(grid, size, arguments))
    };
    let (first, bytes) = (buffer(&mut out), [1_u8; 5000]);
    call(&[first, Argument::Bytes(&bytes[..16])]).unwrap();
    assert_eq!(limit(call(&[first; 32])).0, Limit::Buffers { given: 32 });
    assert_eq!(limit(call(&[first, Argument::Bytes(&bytes)])).0, Limit::Bytes { index: 1, given: 5000 });
    let odd = Argument::Buffer(address.wrapping_byte_add(2).cast());
    assert!(matches!(
        limit(call(&[odd, Argument::Bytes(&bytes[..16])])).0,
        Limit::Alignment { index: 0, needed: 4, .. }
    ));
    let odd = Argument::Buffer(address.wrapping_byte_add(4).cast());
    assert!(matches!(limit(call(&[first, odd])).0, Limit::Alignment { index: 1, needed: 16, .. }));
    assert!(matches!(call(&[first]), Err(Error::MissingArgument { index: 1, .. })));
    assert!(matches!(
        call(&[Argument::Unbound, Argument::Bytes(&bytes[..16])]),
        Err(Error::MissingArgument { index: 0, .. })
    ));
    let short = call(&[first, Argument::Bytes(&bytes[..8])]).unwrap_err();
    assert_eq!(short.to_string(), "kernel offset: buffer(1), `constant uint4 & by`, takes 16 bytes; 8 were given");
    let unknown = library.function("nothing").err().unwrap().to_string();
    assert!(unknown.starts_with("there is no kernel nothing; there are: fill, "), "{unknown}");
}

#[test]
fn barriers_that_not_all_threads_reach_are_errors() {
    let library = compile(TEXT);
    for schedule in SCHEDULES {
        for (kernel, expected) in [
            ("barrier_in_branch", (40, 24, 0, 64, line_of("barrier_in_branch", "threadgroup_barrier"))),
            ("barrier_after_return", (63, 1, 0, 64, line_of("barrier_after_return", "threadgroup_barrier"))),
            ("two_barriers", (10, 0, 54, 64, line_of("two_barriers", "threadgroup_barrier"))),
            (
                "simdgroup_barrier_in_branch",
                (8, 24, 0, 32, line_of("simdgroup_barrier_in_branch", "simdgroup_barrier(mem")),
            ),
            ("matrix_in_branch", (31, 1, 0, 32, line_of("matrix_in_branch", "simdgroup_multiply"))),
        ] {
            let mut out = [0.0_f32; 64];
            let arguments = [buffer(&mut out)];
            let (grid, size) = one(64);
            match run(&library, kernel, &dispatch(grid, size, &arguments, schedule)) {
                Err(Error::DivergentBarrier { arrived, finished, elsewhere, threads, line, .. }) => {
                    assert_eq!((arrived, finished, elsewhere, threads, line), expected, "{kernel}, {schedule:?}");
                }
                other => panic!("{kernel}, {schedule:?}: {other:?}"),
            }
        }
        let mut out = [0.0_f32; 64];
        let arguments = [buffer(&mut out)];
        let (grid, size) = one(64);
        run(&library, "all_barriers", &dispatch(grid, size, &arguments, schedule)).unwrap();
        assert!(out.iter().all(|x| *x == 64.0), "the library works after errors");
    }
}

#[test]
fn finished_threads_may_be_ignored() {
    let library = compile(TEXT);
    for (kernel, passes) in [("barrier_in_branch", true), ("barrier_after_return", true), ("two_barriers", false)] {
        let mut out = [0.0_f32; 64];
        let arguments = [buffer(&mut out)];
        let (grid, size) = one(64);
        let result =
            run(&library, kernel, &Dispatch { ignore_finished: true, ..Dispatch::new(grid, size, &arguments) });
        assert_eq!(result.is_ok(), passes, "{kernel}: {result:?}");
    }
}

fn fault(library: &Library, kernel: &str, arguments: &[Argument]) -> (u32, String) {
    match run(library, kernel, &Dispatch::new(Grid::Threads([64, 1, 1]), [64, 1, 1], arguments)) {
        Err(Error::Fault { thread, what, .. }) => (thread, what),
        other => panic!("{kernel}: {other:?}"),
    }
}

#[test]
fn faults_name_the_thread() {
    let library = compile(TEXT);
    let mut out = [0_i32; 64];
    out[7] = 1 << 30;
    let (thread, what) = fault(&library, "far_away", &[buffer(&mut out)]);
    let address = out.as_ptr() as usize + (4 << 30);
    assert_eq!((thread, what), (7, format!("there is nothing to read or write at address {address:#x}")));
    let (thread, what) = fault(&library, "far_away", &[Argument::Buffer(std::ptr::null_mut())]);
    assert_eq!((thread, what.as_str()), (0, "there is nothing to read or write at address 0x0"));
    out.fill(1);
    out[9] = 0;
    let (thread, what) = fault(&library, "divide", &[buffer(&mut out)]);
    assert!(thread == 9 && what.contains("divided by zero"), "{thread} {what}");
    let (_, what) = fault(&library, "deep", &[buffer(&mut out)]);
    assert!(what.contains("nothing to read or write"), "{what}");
}

#[test]
fn kernels_that_do_not_end_are_stopped() {
    let library = compile(TEXT);
    for kernel in ["spin", "spin_at_barriers", "spin_in_sums", "spin_on_flag"] {
        let mut out = [0_u32; 64];
        let arguments = [buffer(&mut out)];
        let (grid, size) = one(64);
        let begun = Instant::now();
        let limited = Dispatch { time_limit: Duration::from_millis(200), ..Dispatch::new(grid, size, &arguments) };
        match run(&library, kernel, &limited) {
            Err(error @ Error::Runaway { .. }) => {
                assert!(error.to_string().contains("still running after 0.2 s"), "{error}")
            }
            other => panic!("{kernel}: {other:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{kernel}");
    }
}
