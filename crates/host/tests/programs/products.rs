//! Matrix products of tiles against the interpreter.

use crate::launch::Given::Buffer;
use crate::launch::{assert_close, bfloats, bytes, from_singles, halves, interpreted, prepared, singles, wave};
use crate::tiles::{at, both, keep, pointer};
use openmps_host::Program;
use openmps_tile::{Builder, Compare, Dims, Kernel, Operation, Scalar, Type, Value};

#[test]
fn products_of_turned_factors_and_of_batches() {
    use Scalar::*;
    for (scalar, batch) in [(F32, 1), (F32, 4), (F16, 1), (BF16, 1), (BF16, 4), (F64, 1), (I8, 1), (I8, 2)] {
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
                Scalar::BF16 => bfloats(wave(count)),
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

#[test]
fn a_product_is_stored_upside_down() {
    let (rows, depth, columns) = (19, 16, 24);
    for scalar in [Scalar::F32, Scalar::BF16] {
        let mut b = Builder::new("product");
        let [x, y] = ["x", "y"].map(|name| pointer(&mut b, name, scalar));
        let out = pointer(&mut b, "out", Scalar::F32);
        let [x, y] = [(x, [rows, depth]), (y, [depth, columns])].map(|(base, dims)| {
            let from = at(&mut b, base, &dims, &[dims[1] as i64, 1]);
            b.load(from, None, None)
        });
        let sum = b.constant(2.0, &Type::tile(Scalar::F32, &[rows, columns]));
        let product = b.dot(x, y, sum);
        let last = b.constant(((rows - 1) * columns) as f64, &Type::scalar(Scalar::I64));
        let last = b.add_pointer(out, last);
        let to = at(&mut b, last, &[rows, columns], &[-(columns as i64), 1]);
        b.store(to, product, None);
        let numbers = as_stored(scalar, wave(depth * columns));
        let buffers = [numbers.clone(), numbers, vec![0; 4 * rows * columns]];
        let [found, expected] = both(&b.finish(), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Buffer(2)]);
        assert_close(&from_singles(&found[2]), &from_singles(&expected[2]), 1e-4);
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
                let scalar = match rounds {
                    2 => Scalar::BF16,
                    7 => Scalar::F16,
                    _ => Scalar::F32,
                };
                let kernel = pieces(scalar, size, rounds, what);
                let numbers = |count: usize| {
                    let numbers = wave(count.max(1)).map(|x| x * 0.25);
                    as_stored(scalar, numbers)
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

/// Numbers as elements of a float type.
fn as_stored(scalar: Scalar, numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    match scalar {
        Scalar::F16 => halves(numbers),
        Scalar::BF16 => bfloats(numbers),
        _ => singles(numbers),
    }
}

/// A product of `x` with `depth` columns as programs share it: each has a block of rows and one of columns; what is beyond the depth is masked.
fn shared(scalar: Scalar, depth: i64, [rows, terms, columns]: [usize; 3], all_columns: i64, within: bool) -> Kernel {
    let mut b = Builder::new("shared");
    let [x, y] = ["x", "y"].map(|name| pointer(&mut b, name, scalar));
    let out = pointer(&mut b, "out", Scalar::F32);
    let moved = |b: &mut Builder, base: Value, axis: u8, by: i64| {
        let program = b.program_id(axis);
        let by = b.constant_like(by as f64, program);
        let by = b.multiply(program, by);
        b.add_pointer(base, by)
    };
    let x = moved(&mut b, x, 0, rows as i64 * depth);
    let y = moved(&mut b, y, 1, columns as i64);
    let out = moved(&mut b, out, 0, rows as i64 * all_columns);
    let out = moved(&mut b, out, 1, columns as i64);
    let x = at(&mut b, x, &[rows, terms], &[depth, 1]);
    let y = at(&mut b, y, &[terms, columns], &[all_columns, 1]);
    let bounds = [0, depth, terms as i64].map(|number| b.integer(number, Scalar::I64));
    let sum = b.constant(0.0, &Type::tile(Scalar::F32, &[rows, columns]));
    let sums = b.for_loop(bounds, &[x, y, sum], |b, from, carried| {
        // depth - from, which is less than the terms in the last piece only.
        let all = b.constant_like(depth as f64, from);
        let left = b.subtract(all, from);
        let mask = |b: &mut Builder, axis: usize, dims: [usize; 2]| {
            let index = b.range(terms);
            let index = b.expand_dims(index, 1 - axis);
            let bound = b.splat(left, &if axis == 0 { [terms, 1] } else { [1, terms] });
            let inside = b.compare(Compare::Less, index, bound);
            b.broadcast(inside, &dims)
        };
        let (x_mask, y_mask) = (mask(b, 1, [rows, terms]), mask(b, 0, [terms, columns]));
        let zero = |b: &mut Builder, dims: &[usize]| b.constant(0.0, &Type::tile(scalar, dims));
        let (x_other, y_other) = (zero(b, &[rows, terms]), zero(b, &[terms, columns]));
        let x = b.load(carried[0], Some(x_mask), Some(x_other));
        let y = b.load(carried[1], Some(y_mask), Some(y_other));
        let product = if within {
            let again = b.integer(1, Scalar::I64);
            let always = b.compare(Compare::Equal, again, again);
            b.if_else(always, |b| vec![b.dot(x, y, carried[2])], |_| vec![carried[2]])[0]
        } else {
            b.dot(x, y, carried[2])
        };
        let along_x = b.constant(terms as f64, &Type::tile(Scalar::I32, &[rows, terms]));
        let along_y = b.constant((terms as i64 * all_columns) as f64, &Type::tile(Scalar::I32, &[terms, columns]));
        vec![b.add_pointer(carried[0], along_x), b.add_pointer(carried[1], along_y), product]
    });
    let to = at(&mut b, out, &[rows, columns], &[all_columns, 1]);
    b.store(to, sums[2], None);
    b.finish()
}

#[test]
fn programs_that_share_factors_and_launches_that_do_not() {
    let cases = [(100, [32, 32, 64], false), (256, [32, 64, 64], false), (100, [32, 32, 64], true)];
    for (scalar, (depth, size, within)) in
        [Scalar::F32, Scalar::BF16].into_iter().flat_map(|scalar| cases.map(|case| (scalar, case)))
    {
        let [rows, _, columns] = size;
        let grid = [3, 2, 1];
        let all_columns = 2 * columns;
        let kernel = shared(scalar, depth, size, all_columns as i64, within);
        let program = Program::new(&kernel).unwrap_or_else(|error| panic!("{error}"));
        let given = [Buffer(0), Buffer(1), Buffer(2)];
        let numbers = |count: usize, factor: f32| as_stored(scalar, wave(count).map(|x| x * factor));
        let (x, y) = (3 * rows * depth as usize, depth as usize * all_columns);
        let buffers = [numbers(x, 1.0), numbers(y, 1.0), vec![0; 4 * 3 * rows * all_columns]];
        let (mut copies, arguments) = prepared(&buffers, &given);
        // The second launch finds other numbers in the same places.
        for factor in [1.0, -0.5] {
            let now = [numbers(x, factor), buffers[1].clone(), buffers[2].clone()];
            for (word, bytes) in copies.iter_mut().flatten().zip(now.iter().flat_map(|bytes| bytes.chunks_exact(8))) {
                *word = u64::from_le_bytes(bytes.try_into().unwrap());
            }
            // SAFETY: the kernel stays inside of its buffers, whose addresses are exposed.
            unsafe { program.run(grid, &arguments) }.unwrap_or_else(|error| panic!("{error}"));
            let (found, expected) = (bytes(&copies, &now), interpreted(&kernel, grid, &now, &given));
            assert_close(&from_singles(&found[2]), &from_singles(&expected[2]), 1e-4);
        }
    }
}
