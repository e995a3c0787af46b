//! Products of half types by Metal 4's tensor operations, executed on a CPU and compared with the interpreter; what their text must say.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod harness;
#[path = "../../tile/tests/launch/mod.rs"]
#[allow(unused_imports, unused_macros, reason = "the kernels that stand there are run by executed.rs")]
mod launch;

use harness::{SCHEDULES, compare, executed, library};
use launch::Given::{self, Buffer};
use launch::{assert_close, from_singles, halves, interpreted, singles, wave};
use openmps_codegen::{MatrixUnit, Target, compile};
use openmps_tile::kernel::Compare;
use openmps_tile::{Builder, Kernel, Scalar, Type, Value, verify};

/// What a loop carries its sum with.
#[derive(Clone, Copy, PartialEq)]
enum Sum {
    /// From zeros on.
    Zeros,
    /// From what is in memory on.
    Loaded,
    /// The sum is halved in every iteration, as attention scales it: it is read in the loop.
    Halved,
    /// The product of the iteration is carried too, and so read twice.
    Seen,
}

/// A product of matrices in memory, of sizes that no tile divides.
#[derive(Clone, Copy)]
struct Case {
    narrow: Scalar,
    /// Rows, depth, columns.
    sizes: [usize; 3],
    /// Of the tiles.
    tile: [usize; 3],
    /// Whether neighbours of each factor in memory are along the other axis.
    turned: [bool; 2],
    sum: Sum,
}

const CASE: Case =
    Case { narrow: Scalar::F16, sizes: [29, 77, 45], tile: [32, 32, 64], turned: [false, false], sum: Sum::Zeros };

/// A tile of a matrix from where it begins: pointers, and which are inside.
fn tile(
    b: &mut Builder,
    base: Value,
    dims: [usize; 2],
    sizes: [usize; 2],
    from: [Value; 2],
    turned: bool,
) -> [Value; 2] {
    let steps = if turned { [1, sizes[0]] } else { [sizes[1], 1] };
    let mut places = Vec::new();
    for axis in 0..2 {
        let index = b.range(dims[axis]);
        let begin = b.splat_like(from[axis], index);
        let index = b.add(index, begin);
        let index = b.expand_dims(index, 1 - axis);
        places.push(b.broadcast(index, &dims));
    }
    let [mut inside, mut offsets] = [None; 2];
    for axis in 0..2 {
        let (size, step) =
            (b.constant_like(sizes[axis] as f64, places[axis]), b.constant_like(steps[axis] as f64, places[axis]));
        let within = b.compare(Compare::Less, places[axis], size);
        let offset = b.multiply(places[axis], step);
        inside = Some(inside.map_or(within, |other| b.and(other, within)));
        offsets = Some(offsets.map_or(offset, |other| b.add(other, offset)));
    }
    let (Some(inside), Some(offsets)) = (inside, offsets) else { unreachable!("two axes") };
    [b.add_pointer(base, offsets), inside]
}

fn kernel(case: Case) -> Kernel {
    let ([rows, depth, columns], [of_rows, of_depth, of_columns]) = (case.sizes, case.tile);
    let mut b = Builder::new("product");
    let [x, y] = ["x", "y"].map(|name| b.parameter(name, Type::pointer(case.narrow)));
    let out = b.parameter("out", Type::pointer(Scalar::F32));
    let [zero, end, step] = [0, depth, of_depth].map(|bound| b.integer(bound as i64, Scalar::I64));
    let sums = Type::tile(Scalar::F32, &[of_rows, of_columns]);
    let none = b.constant(0.0, &sums);
    let [to, within] = tile(&mut b, out, [of_rows, of_columns], [rows, columns], [zero, zero], false);
    let initial = if case.sum == Sum::Loaded { b.load(to, Some(within), Some(none)) } else { none };
    let results = b.for_loop([zero, end, step], &[initial, none], |b, at, carried| {
        let [left, in_left] = tile(b, x, [of_rows, of_depth], [rows, depth], [zero, at], case.turned[0]);
        let [right, in_right] = tile(b, y, [of_depth, of_columns], [depth, columns], [at, zero], case.turned[1]);
        let factors = [(left, in_left), (right, in_right)].map(|(pointers, inside)| {
            let dims = b.type_of(pointers).dims.clone();
            let other = b.constant(0.0, &Type::tile(case.narrow, &dims));
            b.load(pointers, Some(inside), Some(other))
        });
        let sum = match case.sum {
            Sum::Halved => {
                let half = b.constant(0.5, &sums);
                b.multiply(carried[0], half)
            }
            _ => carried[0],
        };
        let product = b.dot(factors[0], factors[1], sum);
        vec![product, if case.sum == Sum::Seen { product } else { carried[1] }]
    });
    let result = if case.sum == Sum::Seen { b.add(results[0], results[1]) } else { results[0] };
    b.store(to, result, Some(within));
    b.finish()
}

fn buffers(case: Case) -> [Vec<u8>; 3] {
    let [rows, depth, columns] = case.sizes;
    let encode = |values: Vec<f32>| match case.narrow {
        Scalar::F16 => halves(values),
        _ => values.into_iter().flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect(),
    };
    [
        encode(wave(rows * depth).collect()),
        encode(wave(depth * columns).map(|x| 0.5 - x).collect()),
        singles(wave(rows * columns)),
    ]
}

const GIVEN: [Given; 3] = [Buffer(0), Buffer(1), Buffer(2)];

fn check(case: Case) {
    compare(&kernel(case), [1, 1, 1], &buffers(case), &GIVEN, &|found, expected| {
        assert_close(&from_singles(&found[2]), &from_singles(&expected[2]), 1e-4);
    });
}

fn text(case: Case, target: &Target) -> String {
    let kernel = kernel(case);
    let verified = verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    compile(verified, target).unwrap_or_else(|error| panic!("{error}")).text
}

#[test]
fn factors_lie_either_way() {
    for turned in [[false, false], [true, false], [false, true], [true, true]] {
        check(Case { turned, ..CASE });
    }
    check(Case { narrow: Scalar::BF16, ..CASE });
    check(Case { narrow: Scalar::BF16, turned: [true, true], ..CASE });
}

#[test]
fn tiles_of_many_shapes() {
    for tile in [[16, 16, 32], [16, 64, 128], [128, 16, 32], [64, 32, 64]] {
        check(Case { tile, sizes: [tile[0] - 3, 2 * tile[1] + 5, tile[2] - 7], ..CASE });
    }
}

#[test]
fn sums_are_carried_through_the_loop() {
    for sum in [Sum::Loaded, Sum::Halved, Sum::Seen] {
        check(Case { sum, ..CASE });
    }
}

/// What the loop does not read stays in the tensor: it goes through threadgroup memory once, after the loop.
#[test]
fn a_sum_that_the_loop_only_adds_to_is_moved_once() {
    let target = Target::metal_with_tensor_operations(128);
    for (sum, is_inside) in [(Sum::Zeros, false), (Sum::Loaded, false), (Sum::Halved, true), (Sum::Seen, true)] {
        let text = text(Case { sum, ..CASE }, &target);
        let (before, _) = text.split_once(".run(").expect("a product");
        let begin = before.find("for (ulong").expect("a loop");
        assert_eq!(before[begin..].contains("get_destination_cooperative_tensor"), is_inside, "{text}");
        assert!(text.contains("mode::multiply_accumulate"), "{text}");
    }
}

/// Without one of its barriers the text is wrong in some schedule: between staging, multiplying and staging again, and on the way out of the
/// tensor, which goes piece by piece.
#[test]
fn a_missing_barrier_is_caught() {
    let case = Case { tile: [32, 16, 128], sizes: [31, 45, 120], sum: Sum::Zeros, ..CASE };
    let (kernel, buffers) = (kernel(case), buffers(case));
    let expected = from_singles(&interpreted(&kernel, [1, 1, 1], &buffers, &GIVEN)[2]);
    let target = Target::metal_with_tensor_operations(64);
    let source = compile(verify(&kernel).expect("verified"), &target).expect("written");
    let is_right = |text: &str| {
        let library = library(&source, text).expect("compiles");
        SCHEDULES.into_iter().all(|schedule| {
            let found = executed(&library, &source, schedule, [1, 1, 1], &buffers, &GIVEN);
            let close = |(found, expected): (&f32, &f32)| (found - expected).abs() < 1e-3;
            found.is_ok_and(|found| from_singles(&found[2]).iter().zip(&expected).all(close))
        })
    };
    assert!(is_right(&source.text));
    for barrier in
        ["threadgroup_barrier(mem_flags::mem_threadgroup);", "simdgroup_barrier(mem_flags::mem_threadgroup);"]
    {
        let count = source.text.matches(barrier).count();
        assert!(count >= 2, "{}", source.text);
        for missing in 0..count {
            let (at, _) = source.text.match_indices(barrier).nth(missing).expect("counted");
            let text = format!("{}{}", &source.text[..at], &source.text[at + barrier.len()..]);
            assert!(!is_right(&text), "{barrier} number {missing} is not needed, or its absence is not seen");
        }
    }
}

#[test]
fn only_half_types_and_large_tiles_are_multiplied_by_them() {
    let target = Target::metal_with_tensor_operations(128);
    let is_used = |case: Case| text(case, &target).contains("mpp::");
    assert!(is_used(CASE));
    assert!(!is_used(Case { narrow: Scalar::F32, ..CASE }), "float32 would be rounded");
    assert!(!is_used(Case { tile: [16, 16, 16], ..CASE }));
    assert!(text(Case { tile: [16, 16, 16], ..CASE }, &target).contains("simdgroup_matrix<half, 8, 8>"));
    assert!(!text(CASE, &Target::metal(128)).contains("mpp::"));
    assert_eq!(Target::metal(128).matrix_unit, MatrixUnit::Simdgroup);
}
