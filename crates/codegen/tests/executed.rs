//! The Metal text of kernels, executed on a CPU in three thread schedules, against the interpreter.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod harness;
#[path = "../../tile/tests/launch/mod.rs"]
mod launch;

use harness::{SCHEDULES, compare};
use launch::Given::Buffer;
use launch::{assert_close, from_singles, halves, singles, wave};
use openmps_codegen::{Target, compile};
use openmps_emulator::{Argument, Dispatch, Grid, Library};
use openmps_tile::kernel::Atomic;
use openmps_tile::{Binary, Builder, Compare, Kernel, Operation, Scalar, Type, parse, verify};

launch::cases::tests! { compare }

/// A row that every row of a tile meets: with few threads each has registers of several columns, and more of several rows.
#[test]
fn a_row_repeated_along_registers() {
    const ROWS: usize = 8;
    const COLUMNS: usize = 384;
    let mut b = Builder::new("scaled");
    let [x, weight, out] = ["x", "weight", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
    let (column, row) = (b.range(COLUMNS), b.range(ROWS));
    let pointers = b.add_pointer(weight, column);
    let weights = b.load(pointers, None, None);
    let (weights, column) = (b.expand_dims(weights, 0), b.expand_dims(column, 0));
    let [weights, column] = [weights, column].map(|line| b.broadcast(line, &[ROWS, COLUMNS]));
    let columns = b.constant_like(COLUMNS as f64, row);
    let start = b.multiply(row, columns);
    let start = b.expand_dims(start, 1);
    let start = b.broadcast(start, &[ROWS, COLUMNS]);
    let place = b.add(start, column);
    let pointers = b.add_pointer(x, place);
    let loaded = b.load(pointers, None, None);
    let scaled = b.multiply(loaded, weights);
    let pointers = b.add_pointer(out, place);
    b.store(pointers, scaled, None);
    let count = ROWS * COLUMNS;
    let buffers = [singles(wave(count)), singles(wave(COLUMNS).map(|x| x + 3.0)), vec![0x11; count * 4]];
    compare(&b.finish(), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Buffer(2)], &|found, expected| {
        assert_eq!(found[2], expected[2]);
    });
}

#[test]
fn programs_add_to_one_place_at_once() {
    let mut b = Builder::new("count");
    let out = b.parameter("out", Type::pointer(Scalar::I32));
    let zeros = b.constant(0.0, &Type::tile(Scalar::I32, &[64]));
    let pointers = b.add_pointer(out, zeros);
    let ones = b.constant(1.0, &Type::tile(Scalar::I32, &[64]));
    b.emit(Operation::Atomic(Atomic::Add), &[pointers, ones], Type::tile(Scalar::I32, &[64]));
    compare(&b.finish(), [50, 1, 1], &[vec![0; 4]], &[Buffer(0)], &|found, expected| {
        assert_eq!(found, expected);
        assert_eq!(found[0], 3200_i32.to_le_bytes());
    });
}

/// What the schedules are for: a text without one of its barriers must fail.
#[test]
fn a_missing_barrier_is_caught() {
    let kernel = parse(include_str!("../../tile/tests/ttir/softmax.ttir")).expect("Triton's text");
    let source = compile(verify(&kernel).expect("verified"), &Target::metal(128)).expect("written");
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    assert_eq!(source.text.matches(barrier).count(), 4);
    let expected: Vec<f32> = {
        let x: Vec<f64> = wave(900).map(f64::from).collect();
        let sum: f64 = x.iter().map(|x| x.exp()).sum();
        x.iter().map(|x| (x.exp() / sum) as f32).collect()
    };
    for missing in 0..4 {
        let mut parts: Vec<&str> = source.text.split(barrier).collect();
        let joined = format!("{}{}", parts[missing], parts[missing + 1]);
        parts.splice(missing..=missing + 1, [joined.as_str()]);
        let library = Library::compile(&parts.join(barrier)).expect("compiles");
        let wrong = SCHEDULES.into_iter().any(|schedule| {
            let mut x: Vec<f32> = wave(900).chain(wave(900).map(|x| x + 1.0)).collect();
            let mut out = vec![0.0_f32; 1800];
            let numbers: Vec<u8> = [900_i32, 900, 2, 900].into_iter().flat_map(i32::to_le_bytes).collect();
            let bound = [
                Argument::Buffer(out.as_mut_ptr().cast()),
                Argument::Buffer(x.as_mut_ptr().cast()),
                Argument::Bytes(&numbers),
            ];
            let dispatch = Dispatch::new(Grid::Threadgroups([1, 1, 1]), [128, 1, 1], &bound);
            let function = library.function(&source.entry).expect("there");
            // SAFETY: both buffers hold two rows.
            let run = unsafe { function.dispatch(&Dispatch { schedule, ..dispatch }) };
            // Adding a number to a whole row changes nothing.
            let twice = expected.iter().chain(&expected);
            run.is_err() || !out.iter().zip(twice).all(|(found, expected)| (found - expected).abs() < 1e-6)
        });
        assert!(wrong, "barrier {missing} is not needed, or its absence is not seen");
    }
}

/// `out = x * y + sum` of whole tiles.
fn product(narrow: Scalar, [rows, depth, columns]: [usize; 3]) -> Kernel {
    let mut b = Builder::new("product");
    let matrix = |b: &mut Builder, name: &str, scalar: Scalar, dims: [usize; 2]| {
        let base = b.parameter(name, Type::pointer(scalar));
        let (row, column) = (b.range(dims[0]), b.range(dims[1]));
        let width = b.constant(dims[1] as f64, &Type::tile(Scalar::I64, &dims[..1]));
        let row = b.multiply(row, width);
        let (row, column) = (b.expand_dims(row, 1), b.expand_dims(column, 0));
        let (row, column) = (b.broadcast(row, &dims), b.broadcast(column, &dims));
        let offsets = b.add(row, column);
        b.add_pointer(base, offsets)
    };
    let x = matrix(&mut b, "x", narrow, [rows, depth]);
    let y = matrix(&mut b, "y", narrow, [depth, columns]);
    let sum = matrix(&mut b, "sum", Scalar::F32, [rows, columns]);
    let [x, y, initial] = [x, y, sum].map(|pointers| b.load(pointers, None, None));
    let product = b.dot(x, y, initial);
    b.store(sum, product, None);
    b.finish()
}

#[test]
fn products_by_threads_and_on_simdgroup_matrices() {
    for sizes @ [rows, depth, columns] in [[4, 4, 4], [16, 32, 8], [64, 16, 32], [2, 64, 128], [8, 128, 64]] {
        for narrow in [Scalar::F32, Scalar::F16, Scalar::BF16] {
            let encode = |values: Vec<f32>| match narrow {
                Scalar::F32 => singles(values),
                Scalar::F16 => halves(values),
                _ => values.into_iter().flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect(),
            };
            let buffers = [
                encode(wave(rows * depth).collect()),
                encode(wave(depth * columns).map(|x| 0.5 - x).collect()),
                singles(wave(rows * columns)),
            ];
            let given = [Buffer(0), Buffer(1), Buffer(2)];
            compare(&product(narrow, sizes), [1, 1, 1], &buffers, &given, &|found, expected| {
                assert_close(&from_singles(&found[2]), &from_singles(&expected[2]), 1e-4);
            });
        }
    }
}

/// Programs that all add halves to two neighbours in one word of 32 bits, exchange, and compare and exchange others.
#[test]
fn programs_change_the_halves_of_a_word_at_once() {
    for scalar in [Scalar::F16, Scalar::BF16] {
        let mut b = Builder::new("halves");
        let [sums, places] = ["sums", "places"].map(|name| b.parameter(name, Type::pointer(scalar)));
        let at = b.range(64);
        let two = b.constant_like(2.0, at);
        let at = b.emit(Operation::Binary(Binary::RemainderUnsigned), &[at, two], Type::tile(Scalar::I64, &[64]));
        let pointers = b.add_pointer(sums, at);
        let ones = b.constant(1.0, &Type::tile(scalar, &[64]));
        b.emit(Operation::Atomic(Atomic::AddFloat), &[pointers, ones], Type::tile(scalar, &[64]));
        let own = b.range(64);
        let pointers = b.add_pointer(places, own);
        let [zero, one, two] = [0.0, 1.0, 2.0].map(|x| b.constant(x, &Type::tile(scalar, &[64])));
        b.emit(Operation::CompareSwap, &[pointers, zero, one], Type::tile(scalar, &[64]));
        let first = b.constant(32.0, &Type::tile(Scalar::I64, &[64]));
        let is_first = b.emit(Operation::Compare(Compare::Less), &[own, first], Type::tile(Scalar::I1, &[64]));
        b.emit(Operation::Atomic(Atomic::Exchange), &[pointers, two, is_first], Type::tile(scalar, &[64]));
        let buffers = [vec![0; 4], vec![0; 130]];
        compare(&b.finish(), [6, 1, 1], &buffers, &[Buffer(0), Buffer(1)], &|found, expected| {
            // 6 programs of 64 ones, half of them in each place: what both types hold.
            assert_eq!(found, expected);
            let sum = if scalar == Scalar::F16 { 0x5a00_u16 } else { 0x4340 };
            assert_eq!(found[0], [sum.to_le_bytes(), sum.to_le_bytes()].concat());
            assert_ne!(found[1][..64], found[1][64..128]);
        });
    }
}

/// Batches of products, of floats and of bytes, and a single product of bytes.
#[test]
fn batches_of_products_and_products_of_bytes() {
    for (factor, [batches, rows, depth, columns]) in [
        (Scalar::F32, [4, 16, 8, 32]),
        (Scalar::F16, [2, 32, 64, 16]),
        (Scalar::I8, [4, 8, 32, 16]),
        (Scalar::I8, [1, 64, 128, 32]),
        (Scalar::F32, [1, 32, 32, 32]),
    ] {
        let sum = if factor == Scalar::I8 { Scalar::I32 } else { Scalar::F32 };
        let mut b = Builder::new("batches");
        let [x, y] = ["x", "y"].map(|name| b.parameter(name, Type::pointer(factor)));
        let out = b.parameter("out", Type::pointer(sum));
        let tile = |b: &mut Builder, pointer, dims: &[usize]| {
            let at = b.range(dims.iter().product());
            let at = b.emit(Operation::Reshape, &[at], Type::tile(Scalar::I64, dims));
            b.add_pointer(pointer, at)
        };
        let (from_x, from_y) = (tile(&mut b, x, &[batches, rows, depth]), tile(&mut b, y, &[batches, depth, columns]));
        let to = tile(&mut b, out, &[batches, rows, columns]);
        let (x, y) = (b.load(from_x, None, None), b.load(from_y, None, None));
        let none = b.constant(0.0, &Type::tile(sum, &[batches, rows, columns]));
        let product = b.dot(x, y, none);
        b.store(to, product, None);
        let given = |count: usize| match factor {
            Scalar::F32 => singles(wave(count)),
            Scalar::F16 => halves(wave(count)),
            _ => (0..count).map(|i| (i * 37 % 251) as u8).collect(),
        };
        let buffers =
            [given(batches * rows * depth), given(batches * depth * columns), vec![0x11; batches * rows * columns * 4]];
        compare(
            &b.finish(),
            [1, 1, 1],
            &buffers,
            &[Buffer(0), Buffer(1), Buffer(2)],
            &|found, expected| match factor {
                Scalar::I8 => assert_eq!(found[2], expected[2]),
                _ => assert_close(&from_singles(&found[2]), &from_singles(&expected[2]), 1e-5),
            },
        );
    }
}
