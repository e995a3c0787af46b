//! Matrix products of tiles against the interpreter.

use crate::launch::Given::Buffer;
use crate::launch::{assert_close, from_singles, halves, singles, wave};
use crate::tiles::{at, both, keep, pointer};
use openmps_tile::{Builder, Dims, Kernel, Operation, Scalar, Type, Value};

#[test]
fn products_of_turned_factors_and_of_batches() {
    for (scalar, batch) in
        [(Scalar::F32, 1), (Scalar::F16, 1), (Scalar::F32, 4), (Scalar::F64, 1), (Scalar::I8, 1), (Scalar::I8, 2)]
    {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            let (rows, depth, columns) = (16, 32, 8);
            let mut b = Builder::new("product");
            let [x, y] = ["x", "y"].map(|name| pointer(&mut b, name, scalar));
            let wide = match scalar {
                Scalar::I8 => Scalar::I32,
                Scalar::F64 => Scalar::F64,
                _ => Scalar::F32,
            };
            let out = pointer(&mut b, "out", wide);
            let factor = |b: &mut Builder, base: Value, [rows, columns]: [usize; 2], turned: bool| {
                let [r, c] = if turned { [columns, rows] } else { [rows, columns] };
                let outer: &[usize] = if batch > 1 { &[batch] } else { &[] };
                let dims = [outer, &[r, c]].concat();
                let strides = if batch > 1 { vec![(r * c) as i64, c as i64, 1] } else { vec![c as i64, 1] };
                let from = at(b, base, &dims, &strides);
                let tile = b.load(from, None, None);
                match (turned, batch > 1) {
                    (false, _) => tile,
                    (true, false) => b.transpose(tile),
                    (true, true) => {
                        let ty = b.type_of(tile).with_dims(&[batch, rows, columns]);
                        b.emit(Operation::Permute { order: Dims::from_iter([0, 2, 1]) }, &[tile], ty)
                    }
                }
            };
            let x = factor(&mut b, x, [rows, depth], turned[0]);
            let y = factor(&mut b, y, [depth, columns], turned[1]);
            let dims = if batch > 1 { vec![batch, rows, columns] } else { vec![rows, columns] };
            let sum = b.constant(2.0, &Type::tile(wide, &dims));
            let product = b.dot(x, y, sum);
            keep(&mut b, out, product);
            let count = batch * depth * 16;
            let numbers = match scalar {
                Scalar::F16 => halves(wave(count)),
                Scalar::F32 => singles(wave(count)),
                Scalar::F64 => wave(count).flat_map(|x| f64::from(x).to_le_bytes()).collect(),
                _ => (0..count).map(|i| (i * 37 % 255) as u8).collect(),
            };
            let buffers = [numbers.clone(), numbers, vec![0; batch * rows * columns * wide.size()]];
            let [found, expected] = both(&b.finish(), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Buffer(2)]);
            if wide == Scalar::F32 {
                assert_close(&from_singles(&found[2]), &from_singles(&expected[2]), 1e-4);
            } else if wide == Scalar::I32 {
                assert_eq!(found[2], expected[2]);
            } else {
                let doubles = |bytes: &[u8]| -> Vec<f32> {
                    bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()) as f32).collect()
                };
                assert_close(&doubles(&found[2]), &doubles(&expected[2]), 1e-6);
            }
        }
    }
}

/// What a loop does with its sum beside adding products to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    OnlyAdded,
    /// Each iteration reads it.
    Read,
    /// Two products a round, of which the second has a sum of its own, as well.
    Two,
    /// The loop runs several times, within another.
    Nested,
}

/// `rounds` pieces of `depth` terms; the result is what has been summed up.
fn pieces(scalar: Scalar, [rows, depth, columns]: [usize; 3], rounds: i64, what: Sum) -> Kernel {
    let mut b = Builder::new("pieces");
    let [x, y] = ["x", "y"].map(|name| pointer(&mut b, name, scalar));
    let out = pointer(&mut b, "out", Scalar::F32);
    let all = depth as i64 * rounds;
    let x = at(&mut b, x, &[rows, depth], &[all, 1]);
    let y = at(&mut b, y, &[depth, columns], &[columns as i64, 1]);
    let bounds = [0, rounds, 1].map(|number| b.integer(number, Scalar::I64));
    let sum = b.constant(0.5, &Type::tile(Scalar::F32, &[rows, columns]));
    let inner = |b: &mut Builder, sum: Value| {
        b.for_loop(bounds, &[x, y, sum, sum], |b, _, carried| {
            let [x, y] = [0, 1].map(|i| b.load(carried[i], None, None));
            let mut product = b.dot(x, y, carried[2]);
            let mut other = carried[3];
            match what {
                Sum::Read => other = b.add(other, carried[2]),
                Sum::Two => {
                    other = b.dot(x, y, other);
                    let half = b.constant_like(0.5, product);
                    product = b.multiply(product, half);
                }
                _ => {}
            }
            let along_x = b.constant(depth as f64, &Type::tile(Scalar::I32, &[rows, depth]));
            let along_y = b.constant((depth * columns) as f64, &Type::tile(Scalar::I32, &[depth, columns]));
            vec![b.add_pointer(carried[0], along_x), b.add_pointer(carried[1], along_y), product, other]
        })
    };
    let results = if what == Sum::Nested {
        let twice = [0, 2, 1].map(|number| b.integer(number, Scalar::I64));
        let sums = b.for_loop(twice, &[sum], |b, _, carried| vec![inner(b, carried[0])[2]]);
        vec![sums[0], sums[0]]
    } else {
        let results = inner(&mut b, sum);
        vec![results[2], results[3]]
    };
    keep(&mut b, out, results[0]);
    let behind = b.constant((rows * columns) as f64, &Type::scalar(Scalar::I64));
    let behind = b.add_pointer(out, behind);
    keep(&mut b, behind, results[1]);
    b.finish()
}

#[test]
fn sums_that_a_loop_adds_to_piece_by_piece() {
    for what in [Sum::OnlyAdded, Sum::Read, Sum::Two, Sum::Nested] {
        for size in [[16, 16, 16], [4, 32, 64], [32, 8, 4], [1, 1, 1], [2, 128, 2], [2, 256, 2]] {
            for rounds in [0, 1, 2, 7, 40] {
                let [rows, depth, columns] = size;
                let scalar = if rounds == 7 { Scalar::F16 } else { Scalar::F32 };
                let kernel = pieces(scalar, size, rounds, what);
                let numbers = |count: usize| {
                    let numbers = wave(count.max(1)).map(|x| x * 0.25);
                    if scalar == Scalar::F16 { halves(numbers) } else { singles(numbers) }
                };
                let all = depth * rounds as usize;
                let buffers = [numbers(rows * all), numbers(all * columns), vec![0; 8 * rows * columns]];
                let [found, expected] = both(&kernel, [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Buffer(2)]);
                let largest = from_singles(&expected[2]).iter().fold(1.0_f32, |most, x| most.max(x.abs()));
                let near = |bytes: &[u8]| from_singles(bytes).iter().map(|x| x / largest).collect::<Vec<_>>();
                assert_close(&near(&found[2]), &near(&expected[2]), 1e-5);
            }
        }
    }
}
