//! Tiles of many dimensions, addresses known by row and by column only at run time, branches and folds against the interpreter.

use crate::launch::Given::{Buffer, Integer};
use crate::launch::{Given, assert_close, bytes, from_singles, halves, interpreted, prepared, singles, wave};
use openmps_host::Program;
use openmps_tile::kernel::Atomic;
use openmps_tile::{Binary, Builder, Cast, Combine, Compare, Dims, Kernel, Operation, Scalar, Type, Unary, Value};

/// The host's buffers and the interpreter's after the kernel.
pub fn both(kernel: &Kernel, grid: [usize; 3], buffers: &[Vec<u8>], given: &[Given]) -> [Vec<Vec<u8>>; 2] {
    let expected = interpreted(kernel, grid, buffers, given);
    let program = Program::new(kernel).unwrap_or_else(|error| panic!("{error}"));
    let (copies, arguments) = prepared(buffers, given);
    // SAFETY: every kernel here stays inside of its buffers, whose addresses are exposed.
    unsafe { program.run(grid, &arguments) }.unwrap_or_else(|error| panic!("{error}"));
    [bytes(&copies, buffers), expected]
}

fn assert_same(kernel: &Kernel, buffers: &[Vec<u8>], given: &[Given]) {
    let [found, expected] = both(kernel, [1, 1, 1], buffers, given);
    assert_eq!(found, expected);
}

fn integers(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

pub fn pointer(b: &mut Builder, name: &str, to: Scalar) -> Value {
    b.parameter(name, Type::pointer(to))
}

/// The index along one dimension of a tile, as wide as the tile.
fn index(b: &mut Builder, dims: &[usize], axis: usize) -> Value {
    let mut index = b.range(dims[axis]);
    for before in 0..axis {
        index = b.expand_dims(index, before);
    }
    for behind in axis + 1..dims.len() {
        index = b.expand_dims(index, behind);
    }
    index
}

/// `base + sum of index * stride` over the dimensions of a tile.
pub fn at(b: &mut Builder, base: Value, dims: &[usize], strides: &[i64]) -> Value {
    let mut pointers = b.splat(base, dims);
    for (axis, &stride) in strides.iter().enumerate() {
        let index = index(b, dims, axis);
        let stride = b.constant_like(stride as f64, index);
        let offset = b.multiply(index, stride);
        let offset = b.broadcast(offset, dims);
        pointers = b.add_pointer(pointers, offset);
    }
    pointers
}

/// Stores a tile one element after the other.
pub fn keep(b: &mut Builder, out: Value, tile: Value) {
    let dims = b.type_of(tile).dims.clone();
    if dims.is_empty() {
        return b.store(out, tile, None);
    }
    let strides: Vec<i64> = (0..dims.len()).map(|axis| dims[axis + 1..].iter().product::<usize>() as i64).collect();
    let to = at(b, out, &dims, &strides);
    b.store(to, tile, None);
}

#[test]
fn three_dimensions_in_any_order_of_memory() {
    let dims = [4, 2, 8];
    for strides in [[16, 8, 1], [1, 4, 8], [2, 1, 8], [0, 8, 1], [16, 0, 1]] {
        let mut b = Builder::new("three");
        let [x, y, out] = ["x", "y", "out"].map(|name| pointer(&mut b, name, Scalar::F32));
        let from = at(&mut b, x, &dims, &strides);
        let middle = index(&mut b, &dims, 1);
        let last = index(&mut b, &dims, 2);
        let first = index(&mut b, &dims, 0);
        let [bound, second] = [5.0, 1.0].map(|number| b.constant_like(number, last));
        let inside = b.compare(Compare::Less, last, bound);
        let inside = b.broadcast(inside, &dims);
        let limit = b.constant_like(1.0, middle);
        let is_second = b.compare(Compare::Equal, middle, limit);
        let is_second = b.broadcast(is_second, &dims);
        let three = b.constant_like(3.0, first);
        let early = b.compare(Compare::Less, first, three);
        let early = b.broadcast(early, &dims);
        let mask = b.and(inside, early);
        let mask = b.or(mask, is_second);
        let other = b.constant(7.0, &Type::tile(Scalar::F32, &dims));
        let loaded = b.load(from, Some(mask), Some(other));
        let whole = b.load(from, None, None);
        let rows = at(&mut b, y, &[1, 2, 1], &[0, 1, 0]);
        let rows = b.load(rows, None, None);
        let rows = b.broadcast(rows, &dims);
        let columns = at(&mut b, y, &[1, 1, 8], &[0, 0, 1]);
        let columns = b.load(columns, None, None);
        let columns = b.broadcast(columns, &dims);
        let planes = at(&mut b, y, &[4, 1, 1], &[1, 0, 0]);
        let planes = b.load(planes, None, None);
        let planes = b.broadcast(planes, &dims);
        let mut sum = b.multiply(loaded, whole);
        for term in [rows, columns, planes] {
            sum = b.add(sum, term);
        }
        keep(&mut b, out, sum);
        let _ = second;
        assert_same(
            &b.finish(),
            &[singles(wave(64)), singles(wave(8)), vec![0; 64 * 4]],
            &[Buffer(0), Buffer(1), Buffer(2)],
        );
    }
}

#[test]
fn reductions_of_three_dimensions_along_each() {
    let combinations = [
        (Scalar::F32, Combine::Maximum),
        (Scalar::I32, Combine::Sum),
        (Scalar::I32, Combine::Xor),
        (Scalar::F16, Combine::Minimum),
    ];
    for ((scalar, combine), dims) in
        combinations.into_iter().flat_map(|of| [[4, 2, 8], [8, 8, 1]].map(|dims| (of, dims)))
    {
        for axis in 0..3 {
            let mut b = Builder::new("reduced");
            let [x, out] = ["x", "out"].map(|name| pointer(&mut b, name, scalar));
            let from = at(&mut b, x, &dims, &[(dims[1] * dims[2]) as i64, dims[2] as i64, 1]);
            let tile = b.load(from, None, None);
            let reduced = b.reduce(combine, tile, axis);
            let again = b.reduce(combine, reduced, 0);
            let wide = b.expand_dims(again, 0);
            let wide = b.broadcast(wide, &[2, b.type_of(again).len()]);
            keep(&mut b, out, wide);
            let numbers = match scalar {
                Scalar::F32 => singles(wave(64)),
                Scalar::F16 => halves(wave(64)),
                _ => integers((0..64).map(|i| i * 7 % 31)),
            };
            assert_same(&b.finish(), &[numbers, vec![0; 64 * 4]], &[Buffer(0), Buffer(1)]);
        }
    }
}

/// A tile whose rows and columns are taken modulo a size, read and written.
fn wrapped(scalar: Scalar, [rows, columns]: [i64; 2], masked: bool) -> Kernel {
    let dims = [8, 16];
    let mut b = Builder::new("wrapped");
    let [x, out] = ["x", "out"].map(|name| pointer(&mut b, name, Scalar::F32));
    let start = b.parameter("start", Type::scalar(scalar));
    let mut offsets = Vec::new();
    for (axis, size) in [(0, rows), (1, columns)] {
        let index = index(&mut b, &dims, axis);
        let index = b.cast(Cast::Signed, index, scalar);
        let start = b.splat_like(start, index);
        let index = b.add(index, start);
        let size = b.constant_like(size as f64, index);
        offsets.push(b.binary(Binary::Remainder, index, size));
    }
    let stride = b.constant_like(20.0, offsets[0]);
    let row = b.multiply(offsets[0], stride);
    let [row, column] = [row, offsets[1]].map(|offset| b.broadcast(offset, &dims));
    let offset = b.add(row, column);
    let from = b.splat(x, &dims);
    let from = b.add_pointer(from, offset);
    let mask = masked.then(|| {
        let column = index(&mut b, &dims, 1);
        let bound = b.constant_like(11.0, column);
        let inside = b.compare(Compare::Less, column, bound);
        b.broadcast(inside, &dims)
    });
    let tile = b.load(from, mask, None);
    let tile = match mask {
        Some(mask) => {
            let none = b.constant_like(-1.0, tile);
            b.select(mask, tile, none)
        }
        None => tile,
    };
    keep(&mut b, out, tile);
    // Written back where it came from, twice as large: rows that wrap are written more than once, always with the same numbers.
    let doubled = b.add(tile, tile);
    b.store(from, doubled, mask);
    b.finish()
}

#[test]
fn rows_and_columns_that_wrap_around() {
    for scalar in [Scalar::I32, Scalar::I64] {
        for sizes in [[100, 100], [5, 100], [100, 7], [5, 7], [1, 16], [8, 1]] {
            for start in [0, 3, 99] {
                for masked in [false, true] {
                    let kernel = wrapped(scalar, sizes, masked);
                    let buffers = [singles(wave(2200 + 200)), vec![0; 128 * 4]];
                    assert_same(&kernel, &buffers, &[Buffer(0), Buffer(1), Integer(start)]);
                }
            }
        }
    }
}

#[test]
fn branches_and_loops_hand_on_tiles_numbers_and_addresses() {
    for (flag, rounds) in [(0, 0), (1, 3), (0, 4), (1, 1)] {
        let mut b = Builder::new("branches");
        let [x, y, out] = ["x", "y", "out"].map(|name| pointer(&mut b, name, Scalar::F32));
        let flag_parameter = b.parameter("flag", Type::scalar(Scalar::I64));
        let rounds_parameter = b.parameter("rounds", Type::scalar(Scalar::I64));
        let one = b.integer(1, Scalar::I64);
        let condition = b.compare(Compare::Equal, flag_parameter, one);
        let from_x = at(&mut b, x, &[16], &[1]);
        let from_y = at(&mut b, y, &[16], &[2]);
        let chosen = b.if_else(
            condition,
            |b| {
                let tile = b.load(from_x, None, None);
                vec![from_x, tile, x]
            },
            |b| {
                let tile = b.load(from_y, None, None);
                let tile = b.negate(tile);
                vec![from_y, tile, y]
            },
        );
        let again = b.load(chosen[0], None, None);
        let first = b.load(chosen[2], None, None);
        let first = b.splat(first, &[16]);
        let sum = b.add(again, chosen[1]);
        let sum = b.add(sum, first);
        // While the number is positive: the tile grows, the pointers move by one.
        let types = [Type::tile(Scalar::F32, &[16]), b.type_of(chosen[0]).clone(), Type::scalar(Scalar::I64)];
        let arguments = b.begin_block(&types);
        let zero = b.integer(0, Scalar::I64);
        let goes_on = b.compare(Compare::Greater, arguments[2], zero);
        let before = b.end_block(Operation::Condition, &[goes_on, arguments[0], arguments[1], arguments[2]]);
        let arguments = b.begin_block(&types);
        let tile = b.load(arguments[1], None, None);
        let tile = b.add(arguments[0], tile);
        let one_each = b.constant(1.0, &Type::tile(Scalar::I32, &[16]));
        let moved = b.add_pointer(arguments[1], one_each);
        let less = b.subtract(arguments[2], one);
        let after = b.end_block(Operation::Yield, &[tile, moved, less]);
        let initial = [sum, chosen[0], rounds_parameter];
        let last = b.emit_with_blocks(Operation::While, &initial, &types, vec![before, after]);
        let at_last = b.load(last[1], None, None);
        let result = b.add(last[0], at_last);
        keep(&mut b, out, result);
        let given = [Buffer(0), Buffer(1), Buffer(2), Integer(flag), Integer(rounds)];
        assert_same(&b.finish(), &[singles(wave(64)), singles(wave(80).map(|x| x * 0.5)), vec![0; 64]], &given);
    }
}

#[test]
fn pointers_that_a_loop_carries_in_two_forms() {
    let mut b = Builder::new("forms");
    let [x, out] = ["x", "out"].map(|name| pointer(&mut b, name, Scalar::F32));
    let index_pointer = pointer(&mut b, "index", Scalar::I32);
    let from = at(&mut b, x, &[16], &[1]);
    let indices = at(&mut b, index_pointer, &[16], &[1]);
    let [zero, four, one] = [0, 4, 1].map(|number| b.integer(number, Scalar::I64));
    let sums = b.constant(0.0, &Type::tile(Scalar::F32, &[16]));
    let results = b.for_loop([zero, four, one], &[from, sums], |b, _, carried| {
        let tile = b.load(carried[0], None, None);
        let steps = b.load(indices, None, None);
        let next = b.add_pointer(carried[0], steps);
        vec![next, b.add(carried[1], tile)]
    });
    let tile = b.load(results[0], None, None);
    let sum = b.add(results[1], tile);
    keep(&mut b, out, sum);
    let steps = integers((0..16).map(|i| i % 3));
    assert_same(&b.finish(), &[singles(wave(64)), vec![0; 64], steps], &[Buffer(0), Buffer(1), Buffer(2)]);
}

#[test]
fn carried_tiles_that_are_made_of_each_other() {
    let mut b = Builder::new("views");
    let [x, out] = ["x", "out"].map(|name| pointer(&mut b, name, Scalar::F32));
    let row = at(&mut b, x, &[1, 8], &[0, 1]);
    let row = b.load(row, None, None);
    let tile = at(&mut b, x, &[8, 8], &[8, 1]);
    let tile = b.load(tile, None, None);
    let [zero, three, one] = [0, 3, 1].map(|number| b.integer(number, Scalar::I64));
    let results = b.for_loop([zero, three, one], &[row, tile], |b, _, carried| {
        let repeated = b.broadcast(carried[0], &[8, 8]);
        let sums = b.reduce(Combine::Sum, carried[1], 0);
        let sums = b.expand_dims(sums, 0);
        vec![sums, repeated]
    });
    keep(&mut b, out, results[1]);
    let to = b.constant(64.0, &Type::scalar(Scalar::I64));
    let behind = b.add_pointer(out, to);
    keep(&mut b, behind, results[0]);
    let [found, expected] =
        both(&b.finish(), [1, 1, 1], &[singles(wave(64)), vec![0; 72 * 4]], &[Buffer(0), Buffer(1)]);
    assert_close(&from_singles(&found[1]), &from_singles(&expected[1]), 1e-5);
}

/// Two operations that follow each other are one step where nothing in between changes what they read.
#[test]
fn operations_in_pairs() {
    let (rows, columns) = (4, 96);
    let dims = [rows, columns];
    let mut b = Builder::new("pairs");
    let [x_ptr, y_ptr, out] = ["x", "y", "out"].map(|name| pointer(&mut b, name, Scalar::F32));
    let factor = b.parameter("factor", Type::scalar(Scalar::F32));
    let (to_x, from_y) = (at(&mut b, x_ptr, &dims, &[96, 1]), at(&mut b, y_ptr, &dims, &[96, 1]));
    let (x, y) = (b.load(to_x, None, None), b.load(from_y, None, None));
    // One number a row, and one for all.
    let of_rows = at(&mut b, y_ptr, &[rows, 1], &[96, 1]);
    let of_rows = b.load(of_rows, None, None);
    let of_rows = b.broadcast(of_rows, &dims);
    let factor = b.splat(factor, &dims);
    let product = b.multiply(x, y);
    let difference = b.subtract(of_rows, product);
    let scaled = b.multiply(difference, factor);
    let sum = b.add(scaled, x);
    let sum = b.subtract(sum, of_rows);
    // What this is made of is overwritten before its only reader comes.
    let before = b.add(x, factor);
    b.store(to_x, sum, None);
    let behind = b.multiply(before, y);
    // Read twice.
    let shared = b.subtract(behind, y);
    let square = b.multiply(shared, shared);
    let last = b.subtract(square, shared);
    keep(&mut b, out, last);
    let numbers = || singles(wave(rows * columns));
    let buffers = [numbers(), singles(wave(rows * columns).map(|x| x + 0.5)), numbers()];
    let given = [Buffer(0), Buffer(1), Buffer(2), Given::Float(-1.25)];
    assert_same(&b.finish(), &buffers, &given);
}

#[test]
fn folds_of_few_and_of_many_lines() {
    for dims in [&[64][..], &[1], &[4, 16], &[16, 4], &[64, 8], &[8, 64], &[4, 8, 4], &[2, 4, 32]] {
        for axis in 0..dims.len() {
            for scan in [None, Some(false), Some(true)] {
                let mut b = Builder::new("fold");
                let [x, out] = ["x", "out"].map(|name| pointer(&mut b, name, Scalar::I32));
                let strides: Vec<i64> =
                    (0..dims.len()).map(|axis| dims[axis + 1..].iter().product::<usize>() as i64).collect();
                let from = at(&mut b, x, dims, &strides);
                let tile = b.load(from, None, None);
                let three = b.constant_like(3.0, tile);
                let other = b.multiply(tile, three);
                let bias = b.integer(5, Scalar::I32);
                // Affine maps one after the other, `x -> a x + c`: associative, and not commutative. A reduction takes sums.
                let element = Type::scalar(Scalar::I32);
                let sides = b.begin_block(&[element.clone(), element.clone(), element.clone(), element.clone()]);
                let yielded = if scan.is_some() {
                    let factor = b.multiply(sides[0], sides[2]);
                    let offset = b.multiply(sides[1], sides[2]);
                    [factor, b.add(offset, sides[3])]
                } else {
                    // Yields change places, and a number from outside takes part where it changes nothing.
                    let nothing = b.subtract(bias, bias);
                    let first = b.add(sides[0], sides[2]);
                    [b.add(first, nothing), b.maximum(sides[1], sides[3])]
                };
                let block = b.end_block(Operation::Yield, &yielded);
                let mut result = b.type_of(tile).clone();
                let operation = match scan {
                    Some(reverse) => Operation::Scan { axis, reverse },
                    None => {
                        result.dims.remove(axis);
                        Operation::ReduceBlock { axis }
                    }
                };
                let results = b.emit_with_blocks(operation, &[tile, other], &[result.clone(), result], vec![block]);
                keep(&mut b, out, results[0]);
                let behind = b.constant(1024.0, &Type::scalar(Scalar::I64));
                let behind = b.add_pointer(out, behind);
                keep(&mut b, behind, results[1]);
                let numbers = integers((0..1024).map(|i| i * 7919 % 61 - 30));
                assert_same(&b.finish(), &[numbers, vec![0; 2048 * 4]], &[Buffer(0), Buffer(1)]);
            }
        }
    }
}

#[test]
fn bits_of_a_number_are_an_integer_with_its_sign() {
    let mut b = Builder::new("bits");
    let (x, out) = (pointer(&mut b, "x", Scalar::F32), pointer(&mut b, "out", Scalar::I64));
    let number = b.load(x, None, None);
    let number = b.negate(number);
    let bits = b.cast(Cast::Bits, number, Scalar::I32);
    let two = b.constant_like(2.0, bits);
    let half = b.divide(bits, two);
    let wide = b.cast(Cast::Signed, half, Scalar::I64);
    b.store(out, wide, None);
    let [found, expected] = both(&b.finish(), [1, 1, 1], &[singles([1.5]), vec![0; 8]], &[Buffer(0), Buffer(1)]);
    assert_eq!(found, expected);
    assert!(i64::from_le_bytes(found[1][..8].try_into().unwrap()) < 0);
}

#[test]
fn elements_move_within_and_between_tiles() {
    let mut b = Builder::new("moved");
    let [x, out] = ["x", "out"].map(|name| pointer(&mut b, name, Scalar::F32));
    let from = at(&mut b, x, &[4, 8], &[8, 1]);
    let tile = b.load(from, None, None);
    let turned = b.transpose(tile);
    let exponential = b.unary(Unary::Absolute, turned);
    let flat = b.emit(Operation::Reshape, &[exponential], Type::tile(Scalar::F32, &[32]));
    let cube = b.emit(Operation::Reshape, &[flat], Type::tile(Scalar::F32, &[2, 2, 8]));
    let order = Dims::from_iter([2, 0, 1]);
    let cube = b.emit(Operation::Permute { order }, &[cube], Type::tile(Scalar::F32, &[8, 2, 2]));
    let joined = b.emit(Operation::Join, &[cube, cube], Type::tile(Scalar::F32, &[8, 2, 2, 2]));
    let summed = b.reduce(Combine::Sum, joined, 1);
    let fused = b.emit(Operation::MultiplyAdd, &[summed, summed, summed], b.type_of(summed).clone());
    let half = Type::tile(Scalar::F32, &[8, 2]);
    let halves = b.emit_with_blocks(Operation::Split, &[fused], &[half.clone(), half], Vec::new());
    let both_halves = b.emit(Operation::Concatenate, &[halves[0], halves[1]], Type::tile(Scalar::F32, &[16, 2]));
    // As addresses and back, and through one that is an integer.
    let to = at(&mut b, out, &[16, 2], &[2, 1]);
    let to = b.emit(Operation::PointerToInteger, &[to], Type::tile(Scalar::I64, &[16, 2]));
    let to = b.emit(Operation::IntegerToPointer, &[to], Type::pointer(Scalar::F32).with_dims(&[16, 2]));
    b.store(to, both_halves, None);
    let counts = b.emit(Operation::Atomic(Atomic::AddFloat), &[to, both_halves], Type::tile(Scalar::F32, &[16, 2]));
    let moved = b.constant(32.0, &Type::tile(Scalar::I32, &[16, 2]));
    let behind = b.add_pointer(to, moved);
    b.store(behind, counts, None);
    let [found, expected] =
        both(&b.finish(), [1, 1, 1], &[singles(wave(32)), vec![0; 64 * 4]], &[Buffer(0), Buffer(1)]);
    assert_close(&from_singles(&found[1]), &from_singles(&expected[1]), 1e-6);
}
