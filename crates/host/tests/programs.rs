//! Planned programs, and those executed operation by operation, against the interpreter, which is the definition: the same kernel,
//! arguments and memory.

use half::f16;
use openmps_host::Program;
use openmps_tile::kernel::Atomic;
use openmps_tile::{Builder, Combine, Kernel, Operation, RawMemory, Scalar, Type, interpret, parse, verify};

/// An argument of a kernel under test.
#[derive(Clone, Copy)]
enum Argument {
    /// The address of a buffer.
    Buffer(usize),
    Integer(i64),
    Float(f32),
}

/// Runs a kernel on a copy of the buffers.
fn run(buffers: &[Vec<u8>], arguments: &[Argument], work: impl FnOnce(&[u64])) -> Vec<Vec<u8>> {
    let mut copies = buffers.to_vec();
    let addresses: Vec<u64> = copies.iter_mut().map(|copy| copy.as_mut_ptr().expose_provenance() as u64).collect();
    let bits = |argument: &Argument| match *argument {
        Argument::Buffer(index) => addresses[index],
        Argument::Integer(number) => number as u64,
        Argument::Float(number) => number.to_bits().into(),
    };
    work(&arguments.iter().map(bits).collect::<Vec<_>>());
    copies
}

/// Hands `check` the buffers after the interpreter, and after each way in which the host executes the kernel.
fn compare(
    kernel: &Kernel,
    grid: [usize; 3],
    buffers: &[Vec<u8>],
    arguments: &[Argument],
    check: impl Fn(&[Vec<u8>], &[Vec<u8>]),
) {
    let verified = verify(kernel).unwrap_or_else(|error| panic!("{error}"));
    let expected = run(buffers, arguments, |bits| {
        // SAFETY: every kernel here stays inside of its buffers, whose addresses are exposed.
        let mut memory = unsafe { RawMemory::new() };
        interpret(verified, grid, bits, &mut memory).unwrap_or_else(|error| panic!("{error}"));
    });
    for program in [Program::new(kernel), Program::without_plan(kernel)] {
        let program = program.unwrap_or_else(|error| panic!("{error}"));
        let found = run(buffers, arguments, |bits| {
            // SAFETY: as above.
            unsafe { program.run(grid, bits) }.unwrap_or_else(|error| panic!("{error}"));
        });
        check(&found, &expected);
    }
}

fn singles(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn from_singles(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn halves(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(|x| f16::from_f32(x).to_le_bytes()).collect()
}

fn from_halves(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
}

/// Numbers between -2 and 2 that look random.
fn wave(count: usize) -> impl Iterator<Item = f32> {
    (0..count).map(|i| 2.0 * (i as f32 * 1.618).sin())
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let same = found == expected || found.is_nan() && expected.is_nan();
        assert!(same || (found - expected).abs() <= tolerance * expected.abs().max(1.0), "{i}: {found}, {expected}");
    }
}

macro_rules! ttir {
    ($name:literal) => {
        parse(include_str!(concat!("../../tile/tests/ttir/", $name, ".ttir"))).unwrap_or_else(|error| panic!("{error}"))
    };
}

use Argument::{Buffer, Float, Integer};

#[test]
fn vector_add() {
    let buffers = [singles(wave(3000)), singles(wave(3000).map(|x| x * 0.3)), vec![0x11; 3100 * 4]];
    let arguments = [Buffer(0), Buffer(1), Buffer(2), Integer(2999)];
    compare(&ttir!("vector_add"), [3, 1, 1], &buffers, &arguments, |found, expected| {
        assert_eq!(found, expected);
        assert_eq!(found[2][2999 * 4..], [0x11; 101 * 4]);
    });
}

#[test]
fn softmax() {
    let buffers = [vec![0x11; 9 * 900 * 4], singles(wave(9 * 900))];
    let arguments = [Buffer(0), Buffer(1), Integer(900), Integer(900), Integer(9), Integer(781)];
    compare(&ttir!("softmax"), [2, 1, 1], &buffers, &arguments, |found, expected| {
        assert_close(&from_singles(&found[0]), &from_singles(&expected[0]), 2e-6);
    });
}

#[test]
fn dropout() {
    let buffers = [singles(wave(2000)), vec![0x11; 2048 * 4]];
    let arguments = [Buffer(0), Buffer(1), Integer(2000), Float(0.4), Integer(77)];
    compare(&ttir!("dropout"), [2, 1, 1], &buffers, &arguments, |found, expected| {
        assert_close(&from_singles(&found[1]), &from_singles(&expected[1]), 1e-6);
    });
}

#[test]
fn matrix_product_whose_rows_wrap_around() {
    let (m, n, k) = (45, 50, 37);
    let buffers = [halves(wave(m * k)), halves(wave(k * n)), vec![0x11; m * n * 2]];
    let sizes = [m, n, k, k, n, n].map(|size| Integer(size as i64));
    let arguments: Vec<Argument> = [Buffer(0), Buffer(1), Buffer(2)].into_iter().chain(sizes).collect();
    compare(&ttir!("matmul"), [2, 2, 1], &buffers, &arguments, |found, expected| {
        assert_close(&from_halves(&found[2]), &from_halves(&expected[2]), 2e-3);
    });
}

#[test]
fn gathered_rows_repeated_over_columns() {
    let mut b = Builder::new("rows");
    let pointer = |b: &mut Builder, name: &str, to| b.parameter(name, Type::pointer(to));
    let (x, index, out) =
        (pointer(&mut b, "x", Scalar::F32), pointer(&mut b, "index", Scalar::I64), pointer(&mut b, "out", Scalar::F32));
    let range = b.range(8);
    let at = b.splat(index, &[8]);
    let at = b.add_pointer(at, range);
    let rows = b.load(at, None, None);
    let width = b.integer(16, Scalar::I64);
    let width = b.splat(width, &[8]);
    let starts = b.multiply(rows, width);
    let starts = b.expand_dims(starts, 1);
    let from = b.splat(x, &[8, 1]);
    let from = b.add_pointer(from, starts);
    let from = b.broadcast(from, &[8, 16]);
    let columns = b.range(16);
    let columns = b.expand_dims(columns, 0);
    let columns = b.broadcast(columns, &[8, 16]);
    let from = b.add_pointer(from, columns);
    let tile = b.load(from, None, None);
    let sums = b.reduce(Combine::Sum, tile, 1);
    let to = b.splat(out, &[8]);
    let to = b.add_pointer(to, range);
    b.store(to, sums, None);
    let indices: Vec<u8> = [3_i64, 0, 9, 9, 1, 7, 2, 5].into_iter().flat_map(i64::to_le_bytes).collect();
    let buffers = [singles(wave(10 * 16)), indices, vec![0; 8 * 4]];
    compare(&b.finish(), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Buffer(2)], |found, expected| {
        assert_close(&from_singles(&found[2]), &from_singles(&expected[2]), 1e-6);
    });
}

#[test]
fn control_flow_atomics_and_shapes() {
    for n in [2, 4, 7] {
        let buffers = [singles(wave(64)), vec![0; 64 * 4]];
        let kernel = ttir!("control");
        assert!(!Program::new(&kernel).expect("executed").is_planned());
        compare(&kernel, [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Integer(n)], |found, expected| {
            assert_close(&from_singles(&found[0]), &from_singles(&expected[0]), 1e-5);
            assert_eq!(found[1], expected[1]);
        });
    }
}

#[test]
fn sort_flip_and_an_assertion() {
    let kernel = ttir!("sort");
    let buffers = [singles(wave(64)), vec![0; 64 * 4]];
    compare(&kernel, [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Integer(1)], |found, expected| {
        assert_close(&from_singles(&found[0]), &from_singles(&expected[0]), 1e-5);
        assert_eq!(found[1], expected[1]);
    });
    let program = Program::new(&kernel).expect("executed");
    run(&buffers, &[Buffer(0), Buffer(1), Integer(0)], |bits| {
        // SAFETY: as for every kernel here.
        let error = unsafe { program.run([1, 1, 1], bits) }.expect_err("0 is not above 0").to_string();
        assert!(error.contains("assertion failed: n must be positive") && error.contains("k.py:"), "{error}");
    });
}

#[test]
fn programs_add_to_one_place_at_once() {
    let mut b = Builder::new("count");
    let out = b.parameter("out", Type::pointer(Scalar::F32));
    let zeros = b.constant(0.0, &Type::tile(Scalar::I32, &[64]));
    let pointers = b.add_pointer(out, zeros);
    let ones = b.constant(1.0, &Type::tile(Scalar::F32, &[64]));
    b.emit(Operation::Atomic(Atomic::AddFloat), &[pointers, ones], Type::tile(Scalar::F32, &[64]));
    let kernel = b.finish();
    compare(&kernel, [500, 1, 1], &[vec![0; 4]], &[Buffer(0)], |found, _| {
        assert_eq!(from_singles(&found[0]), [32_000.0]);
    });
}
