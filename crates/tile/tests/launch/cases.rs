//! Kernels of Triton with arguments and memory, which every executor must run as the interpreter does.

use super::Given::{self, Buffer, Float, Integer};
use super::{address_of, assert_close, from_halves, from_singles, halves, singles, wave};
use openmps_tile::{Builder, Cast, Kernel, Scalar, Type, Unary, Value, parse};

/// Runs a kernel with arguments on copies of buffers, in every way that is under test; the last argument compares them with the interpreter's.
pub type Compare = fn(&Kernel, [usize; 3], &[Vec<u8>], &[Given], &dyn Fn(&[Vec<u8>], &[Vec<u8>]));

/// The kernel of a text.
macro_rules! ttir {
    ($name:literal) => {
        parse(include_str!(concat!("../ttir/", $name, ".ttir"))).unwrap_or_else(|error| panic!("{error}"))
    };
}

/// A test of each case here.
macro_rules! tests {
    ($compare:ident) => {
        launch::cases::tests! {
            $compare: vector_add softmax dropout matrix_product_whose_rows_wrap_around control_flow_atomics_and_shapes sort_and_flip
            layer_norm layer_norm_gradient_under_locks attention attention_gradient half_attention_gradient grouped_products
            gathered_product persistent_product block_scaled_product functions_of_the_device_library functions_of_single_elements scans_sorts_and_indices
            a_mask_with_a_flag_loaded_under_it blocks_with_constants_and_nan carried_values_that_change_places
            functions_of_numbers_at_the_edges integers_of_numbers_at_the_edges
        }
    };
    ($compare:ident: $($case:ident)*) => {$(
        #[test]
        fn $case() {
            launch::cases::$case($compare);
        }
    )*};
}
pub(crate) use tests;

fn all_close(found: &[Vec<u8>], expected: &[Vec<u8>], tolerance: f32) {
    for (found, expected) in found.iter().zip(expected) {
        assert_close(&from_singles(found), &from_singles(expected), tolerance);
    }
}

fn empty(elements: usize) -> Vec<u8> {
    vec![0; elements * 4]
}

fn integers(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

fn words(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
    values.into_iter().flat_map(u64::to_le_bytes).collect()
}

pub fn vector_add(compare: Compare) {
    let buffers = [singles(wave(3000)), singles(wave(3000).map(|x| x * 0.3)), vec![0x11; 3100 * 4]];
    let given = [Buffer(0), Buffer(1), Buffer(2), Integer(2999)];
    compare(&ttir!("vector_add"), [3, 1, 1], &buffers, &given, &|found, expected| assert_eq!(found, expected));
}

pub fn softmax(compare: Compare) {
    let buffers = [vec![0x11; 9 * 900 * 4], singles(wave(9 * 900))];
    let given = [Buffer(0), Buffer(1), Integer(900), Integer(900), Integer(9), Integer(781)];
    compare(&ttir!("softmax"), [2, 1, 1], &buffers, &given, &|found, expected| {
        assert_close(&from_singles(&found[0]), &from_singles(&expected[0]), 2e-6);
    });
}

pub fn dropout(compare: Compare) {
    let buffers = [singles(wave(2000)), vec![0x11; 2048 * 4]];
    let given = [Buffer(0), Buffer(1), Integer(2000), Float(0.4), Integer(77)];
    compare(&ttir!("dropout"), [2, 1, 1], &buffers, &given, &|found, expected| {
        assert_close(&from_singles(&found[1]), &from_singles(&expected[1]), 1e-6);
    });
}

pub fn matrix_product_whose_rows_wrap_around(compare: Compare) {
    // The kernel was made for sizes that 16 divides.
    let (m, n, k) = (48, 80, 112);
    let buffers = [halves(wave(m * k)), halves(wave(k * n)), vec![0x11; m * n * 2]];
    let sizes = [m, n, k, k, n, n].map(|size| Integer(size as i64));
    let given: Vec<Given> = [Buffer(0), Buffer(1), Buffer(2)].into_iter().chain(sizes).collect();
    compare(&ttir!("matmul"), [2, 2, 1], &buffers, &given, &|found, expected| {
        assert_close(&from_halves(&found[2]), &from_halves(&expected[2]), 2e-3);
    });
}

pub fn control_flow_atomics_and_shapes(compare: Compare) {
    for n in [2, 4, 7] {
        let buffers = [singles(wave(64)), vec![0; 64 * 4]];
        compare(&ttir!("control"), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Integer(n)], &|found, expected| {
            assert_close(&from_singles(&found[0]), &from_singles(&expected[0]), 1e-5);
            assert_eq!(found[1], expected[1]);
        });
    }
}

pub fn sort_and_flip(compare: Compare) {
    let buffers = [singles(wave(64)), vec![0; 64 * 4]];
    compare(&ttir!("sort"), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Integer(1)], &|found, expected| {
        assert_close(&from_singles(&found[0]), &from_singles(&expected[0]), 1e-5);
        assert_eq!(found[1], expected[1]);
    });
}

pub fn layer_norm(compare: Compare) {
    let buffers = [singles(wave(3 * 200)), empty(3 * 200), singles(wave(200)), singles(wave(200).map(|x| x + 1.0))];
    let given = [Buffer(0), Buffer(1), Buffer(2), Buffer(3), Integer(200), Integer(200), Float(1e-5)];
    compare(&ttir!("layer_norm"), [3, 1, 1], &buffers, &given, &|found, expected| all_close(found, expected, 1e-5));
}

pub fn layer_norm_gradient_under_locks(compare: Compare) {
    let (rows, n) = (5, 100);
    let buffers = [
        empty(rows * n),
        singles(wave(rows * n)),
        empty(2 * n),
        singles(wave(rows * n).map(|x| x * x)),
        singles(wave(n)),
        singles(wave(rows)),
        singles(wave(rows).map(|x| 1.5 + x)),
        integers([0; 4]),
    ];
    let given: Vec<Given> = (0..8).map(Buffer).chain([Integer(n as i64)]).collect();
    compare(&ttir!("layer_norm_gradient"), [rows, 1, 1], &buffers, &given, &|found, expected| {
        all_close(&found[..7], &expected[..7], 1e-4);
        assert_eq!(found[7], expected[7], "locks are open, and both groups have begun");
    });
}

pub fn attention(compare: Compare) {
    let (heads, length, head) = (2, 40, 16);
    let count = heads * length * head;
    let factor = |by: f32| halves(wave(count).map(move |x| x * by));
    let buffers = [factor(0.5), factor(0.7), factor(1.0), vec![0; count * 2], empty(heads * length)];
    let given: Vec<Given> = (0..5).map(Buffer).chain([Float(0.36), Integer(length as i64)]).collect();
    compare(&ttir!("attention"), [3, heads, 1], &buffers, &given, &|found, expected| {
        assert_close(&from_halves(&found[3]), &from_halves(&expected[3]), 4e-3);
        assert_close(&from_singles(&found[4]), &from_singles(&expected[4]), 4e-3);
    });
}

pub fn attention_gradient(compare: Compare) {
    let (heads, length, head) = (2, 32, 16);
    let count = heads * length * head;
    let tensor = |by: f32| singles(wave(count).map(move |x| x * by));
    let rows = |by: f32| singles(wave(heads * length).map(move |x| x * by + 3.0));
    let mut buffers = vec![tensor(0.3), tensor(0.4), tensor(0.5), tensor(0.6), rows(0.1), rows(0.2)];
    buffers.resize(9, empty(count));
    let given: Vec<Given> = (0..9).map(Buffer).chain([Float(0.25), Integer(length as i64)]).collect();
    compare(&ttir!("attention_gradient"), [2, heads, 1], &buffers, &given, &|found, expected| {
        all_close(found, expected, 1e-4);
    });
}

/// Products whose left factors are computed from others, and which transpose what others read as it is.
pub fn half_attention_gradient(compare: Compare) {
    let (heads, length, head) = (1, 128, 16);
    let count = heads * length * head;
    let tensor = |by: f32| halves(wave(count).map(move |x| x * by));
    let rows = |by: f32| singles(wave(heads * length).map(move |x| x * by + 3.0));
    let none = || vec![0; count * 2];
    let buffers = [tensor(0.3), tensor(0.4), tensor(0.5), tensor(0.6), rows(0.1), rows(0.2), none(), none()];
    let given: Vec<Given> = (0..8).map(Buffer).chain([Float(0.25), Integer(length as i64)]).collect();
    compare(&ttir!("half_attention_gradient"), [2, heads, 1], &buffers, &given, &|found, expected| {
        for (found, expected) in found[6..].iter().zip(&expected[6..]) {
            assert_close(&from_halves(found), &from_halves(expected), 4e-3);
        }
    });
}

pub fn grouped_products(compare: Compare) {
    let shapes = [[20, 17, 9], [16, 16, 16]];
    let mut buffers = vec![words((2..8).map(address_of)), integers(shapes.iter().flatten().map(|&size| size as i32))];
    for [m, n, k] in shapes {
        buffers.extend([singles(wave(m * k)), singles(wave(k * n)), empty(m * n)]);
    }
    let given = [Buffer(0), Buffer(1), Integer(2)];
    compare(&ttir!("grouped_matmul"), [2, 1, 1], &buffers, &given, &|found, expected| {
        all_close(&found[2..], &expected[2..], 1e-4);
    });
}

pub fn gathered_product(compare: Compare) {
    let rows: Vec<i32> = (0..128).map(|row| row * 73 % 200).collect();
    let buffers = [empty(64 * 64), halves(wave(200 * 64)), halves(wave(200 * 64)), integers(rows)];
    let given: Vec<Given> = (0..4).map(Buffer).collect();
    compare(&ttir!("gathered_product"), [1, 1, 1], &buffers, &given, &|found, expected| {
        all_close(&found[..1], &expected[..1], 1e-3);
    });
}

pub fn persistent_product(compare: Compare) {
    let (m, n, k) = (40, 35, 20);
    let buffers = [halves(wave(m * k)), halves(wave(k * n)), vec![0; m * n * 2]];
    let sizes = [m, n, k].map(|size| Integer(size as i64));
    let given: Vec<Given> = (0..3).map(Buffer).chain(sizes).collect();
    compare(&ttir!("persistent_matmul"), [2, 1, 1], &buffers, &given, &|found, expected| {
        assert_close(&from_halves(&found[2]), &from_halves(&expected[2]), 1e-2);
    });
}

pub fn block_scaled_product(compare: Compare) {
    let (m, n, k) = (16, 32, 128);
    let bytes = |count: usize, most: usize| (0..count).map(|i| (i * 37 % most) as u8).collect::<Vec<u8>>();
    let scales = |rows: usize| bytes(rows * k / 32, 7).into_iter().map(|byte| 124 + byte).collect::<Vec<u8>>();
    let buffers = [bytes(m * k, 0x7f), scales(m), bytes(n * k / 2, 256), scales(n), empty(m * n)];
    let sizes = [m, n, k].map(|size| Integer(size as i64));
    let given: Vec<Given> = (0..5).map(Buffer).chain(sizes).collect();
    compare(&ttir!("block_scaled_matmul"), [1, 2, 1], &buffers, &given, &|found, expected| {
        assert_close(&from_singles(&found[4]), &from_singles(&expected[4]), 1e-5);
    });
}

pub fn functions_of_the_device_library(compare: Compare) {
    let buffers = [singles(wave(300).map(|x| x * 0.49)), singles(wave(300).map(|x| x * 0.4 + 1.0)), empty(300)];
    let given = [Buffer(0), Buffer(1), Buffer(2), Integer(300)];
    compare(&ttir!("libdevice"), [2, 1, 1], &buffers, &given, &|found, expected| all_close(found, expected, 1e-5));
}

pub fn functions_of_single_elements(compare: Compare) {
    let (x, y) = ((0..32).map(|i| i * 7 % 5), (0..32).map(|i| i % 4));
    let buffers = [integers(x), integers(y), empty(4 * 32)];
    compare(&ttir!("single_elements"), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Buffer(2)], &|found, expected| {
        assert_eq!(found, expected);
    });
}

pub fn scans_sorts_and_indices(compare: Compare) {
    let x = wave(64).map(|x| x * 0.24 + 0.5);
    let buffers = [singles(x), empty(5 * 64), integers([0; 16])];
    compare(&ttir!("along"), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Buffer(2)], &|found, expected| {
        all_close(&found[..2], &expected[..2], 1e-5);
        assert_eq!(found[2], expected[2]);
    });
}

/// For devices that run a program's operations one after the other: on a GPU a program's threads meet only at barriers.
pub fn memory_that_is_read_and_written(compare: Compare) {
    compare(&ttir!("in_place"), [1, 1, 1], &[singles(wave(256))], &[Buffer(0)], &|found, expected| {
        assert_eq!(found, expected);
    });
}

pub fn a_mask_with_a_flag_loaded_under_it(compare: Compare) {
    let n = 300;
    let flags = integers((0..1024).map(|i| if i < n { i % 3 } else { 0 }));
    let buffers = [singles(wave(1024)), flags];
    let given = [Buffer(0), Buffer(1), Integer(n.into())];
    compare(&ttir!("flagged"), [2, 1, 1], &buffers, &given, &|found, expected| assert_eq!(found, expected));
}

pub fn blocks_with_constants_and_nan(compare: Compare) {
    let x = wave(32).enumerate().map(|(i, x)| if [0, 9, 13, 31].contains(&i) { f32::NAN } else { x });
    let buffers = [singles(x), empty(32), integers([0; 8])];
    compare(&ttir!("combine"), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Buffer(2)], &|found, expected| {
        assert_close(&from_singles(&found[1]), &from_singles(&expected[1]), 0.0);
        assert_eq!(found[2], expected[2]);
    });
}

/// Each iteration hands every carried value on to the next name: tiles `a, b, c = b, a + b, a`, numbers `m, n = n, m`.
pub fn carried_values_that_change_places(compare: Compare) {
    let mut b = Builder::new("rotate");
    let out = b.parameter("out", Type::pointer(Scalar::I64));
    let rounds = b.parameter("rounds", Type::scalar(Scalar::I64));
    let range = b.range(16);
    let [zero, one] = [0, 1].map(|number| b.integer(number, Scalar::I64));
    let ones = b.splat(one, &[16]);
    let carried = [range, ones, range, zero, rounds];
    let results = b.for_loop([zero, rounds, one], &carried, |b, _, carried| {
        let [first, second, _, m, n] = *carried else { unreachable!("as many as began") };
        vec![second, b.add(first, second), first, n, m]
    });
    for (row, &result) in results.iter().enumerate() {
        let tile = if row < 3 { result } else { b.splat(result, &[16]) };
        let start = b.integer(16 * row as i64, Scalar::I64);
        let start = b.splat(start, &[16]);
        let at = b.add(range, start);
        let to = b.splat(out, &[16]);
        let to = b.add_pointer(to, at);
        b.store(to, tile, None);
    }
    let kernel = b.finish();
    for rounds in [0, 1, 2, 5] {
        compare(&kernel, [1, 1, 1], &[words([0; 5 * 16])], &[Buffer(0), Integer(rounds)], &|found, expected| {
            assert_eq!(found, expected);
        });
    }
}

/// Zeros, subnormal numbers, what integers do not have, infinities and NaN.
fn edges() -> [f32; 32] {
    let positive = [
        0.0,
        1e-42,
        f32::MIN_POSITIVE,
        1e-20,
        1e-7,
        0.3,
        1.0,
        1.5,
        127.5,
        200.0,
        300.0,
        70_000.0,
        3e9,
        1e30,
        f32::INFINITY,
    ];
    let mut all = [f32::NAN; 32];
    all[..15].copy_from_slice(&positive);
    all[15..30].copy_from_slice(&positive.map(|x| -x));
    all[30] = 32_768.5;
    all
}

/// A kernel that stores what `rows` makes of the edges, one row of 32 elements behind the other.
fn of_edges(to: Scalar, rows: impl FnOnce(&mut Builder, Value) -> Vec<Value>) -> Kernel {
    let mut b = Builder::new("edges");
    let (x, out) = (b.parameter("x", Type::pointer(Scalar::F32)), b.parameter("out", Type::pointer(to)));
    let range = b.range(32);
    let from = b.add_pointer(x, range);
    let x = b.load(from, None, None);
    for (row, result) in rows(&mut b, x).into_iter().enumerate() {
        let start = b.constant_like(32.0 * row as f64, range);
        let at = b.add(range, start);
        let to = b.add_pointer(out, at);
        b.store(to, result, None);
    }
    b.finish()
}

pub fn functions_of_numbers_at_the_edges(compare: Compare) {
    use Unary::*;
    let functions = [
        Negate, Absolute, Exp, Exp2, Expm1, Log, Log2, Log1p, Sqrt, Rsqrt, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh,
        Tanh, Erf, Floor, Ceil, Round, Truncate,
    ];
    let kernel = of_edges(Scalar::F32, |b, x| functions.iter().map(|&function| b.unary(function, x)).collect());
    let buffers = [singles(edges()), empty(32 * functions.len())];
    compare(&kernel, [1, 1, 1], &buffers, &[Buffer(0), Buffer(1)], &|found, expected| {
        for (i, (found, expected)) in from_singles(&found[1]).into_iter().zip(from_singles(&expected[1])).enumerate() {
            let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            // Zeros have their sign.
            let is_near = expected != 0.0 && (found - expected).abs() <= 1e-5 * expected.abs() + 3e-45;
            assert!(is_same || is_near, "{:?} of {}: {found}, {expected}", functions[i / 32], edges()[i % 32]);
        }
    });
}

pub fn integers_of_numbers_at_the_edges(compare: Compare) {
    let kernel = of_edges(Scalar::I64, |b, x| {
        let half = b.cast(Cast::Float, x, Scalar::BF16);
        let mut results = Vec::new();
        for (cast, to) in [Cast::FloatToSigned, Cast::FloatToUnsigned]
            .into_iter()
            .flat_map(|cast| [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64].map(|to| (cast, to)))
        {
            for x in [x, half] {
                let integer = b.cast(cast, x, to);
                results.push(b.cast(Cast::Signed, integer, Scalar::I64));
            }
        }
        results
    });
    let buffers = [singles(edges()), words([0; 32 * 16])];
    compare(&kernel, [1, 1, 1], &buffers, &[Buffer(0), Buffer(1)], &|found, expected| {
        assert_eq!(found[1], expected[1])
    });
}
