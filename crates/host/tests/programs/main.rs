//! Programs against the interpreter, which is the definition: the same kernel, arguments and memory.

#[path = "../../../tile/tests/launch/mod.rs"]
mod launch;
mod order;
mod products;
mod tiles;
mod turned;

use launch::Given::{Buffer, Integer};
use launch::{Given, assert_close, bytes, from_singles, interpreted, prepared, singles, wave};
use openmps_host::Program;
use openmps_tile::kernel::Atomic;
use openmps_tile::{Builder, Combine, Kernel, Operation, Scalar, Type, parse};

/// Hands `check` the buffers after the host has executed the kernel, and after the interpreter.
fn compare(
    kernel: &Kernel,
    grid: [usize; 3],
    buffers: &[Vec<u8>],
    given: &[Given],
    check: &dyn Fn(&[Vec<u8>], &[Vec<u8>]),
) {
    let expected = interpreted(kernel, grid, buffers, given);
    let program = Program::new(kernel).unwrap_or_else(|error| panic!("{error}"));
    let (copies, arguments) = prepared(buffers, given);
    // SAFETY: every kernel here stays inside of its buffers, whose addresses are exposed.
    unsafe { program.run(grid, &arguments) }.unwrap_or_else(|error| panic!("{error}"));
    check(&bytes(&copies, buffers), &expected);
}

launch::cases::tests! { compare }
launch::cases::tests! { compare: memory_that_is_read_and_written }

#[test]
fn an_assertion_that_does_not_hold_has_its_line() {
    const TEXT: &str = include_str!("../../../tile/tests/ttir/sort.ttir");
    let program = Program::new(&parse(TEXT).expect("Triton's text")).expect("executed");
    let (_copies, arguments) = prepared(&[singles(wave(64)), vec![0; 64 * 4]], &[Buffer(0), Buffer(1), Integer(0)]);
    // SAFETY: as for every kernel here.
    let error = unsafe { program.run([1, 1, 1], &arguments) }.expect_err("0 is not above 0").to_string();
    assert!(error.contains("assertion failed: n must be positive") && error.contains("k.py:"), "{error}");
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
    compare(&b.finish(), [1, 1, 1], &buffers, &[Buffer(0), Buffer(1), Buffer(2)], &|found, expected| {
        assert_close(&from_singles(&found[2]), &from_singles(&expected[2]), 1e-6);
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
    compare(&kernel, [500, 1, 1], &[vec![0; 4]], &[Buffer(0)], &|found, _| {
        assert_eq!(from_singles(&found[0]), [32_000.0]);
    });
}

/// Rows of a masked tile, reduced along an axis. Outside of the mask the tile holds `rest`, which is not always what changes nothing.
fn masked_reduction(combine: Combine, axis: usize, rest: f64, squared: bool) -> Kernel {
    let mut b = Builder::new("masked_reduction");
    let pointer = Type::pointer(Scalar::F32);
    let (x, out) = (b.parameter("x", pointer.clone()), b.parameter("out", pointer));
    let [rows, columns] = ["rows", "columns"].map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    let dims = [8, 16];
    let side = |b: &mut Builder, axis: usize, size| {
        let (index, bound) = (b.range(dims[axis]), b.splat(size, &[dims[axis]]));
        let inside = b.compare(openmps_tile::Compare::Less, index, bound);
        [index, inside].map(|side| {
            let expanded = b.expand_dims(side, 1 - axis);
            b.broadcast(expanded, &dims)
        })
    };
    let ([row, row_inside], [column, column_inside]) = (side(&mut b, 0, rows), side(&mut b, 1, columns));
    let width = b.integer(16, Scalar::I64);
    let width = b.splat(width, &dims);
    let offset = b.multiply(row, width);
    let offset = b.add(offset, column);
    let pointers = b.splat(x, &dims);
    let pointers = b.add_pointer(pointers, offset);
    let mask = b.and(row_inside, column_inside);
    let loaded = b.load(pointers, Some(mask), None);
    let loaded = if squared { b.multiply(loaded, loaded) } else { loaded };
    let rest = b.constant_like(rest, loaded);
    let filled = b.select(mask, loaded, rest);
    let reduced = b.reduce(combine, filled, axis);
    let (index, out_pointers) = (b.range(dims[1 - axis]), b.splat(out, &[dims[1 - axis]]));
    let out_pointers = b.add_pointer(out_pointers, index);
    b.store(out_pointers, reduced, None);
    b.finish()
}

#[test]
fn what_a_mask_leaves_out_of_a_reduction_counts_as_what_stands_there() {
    let values = singles(wave(8 * 16));
    for (combine, rest) in [
        (Combine::Sum, 0.0),
        (Combine::Sum, 0.25),
        (Combine::Maximum, f64::NEG_INFINITY),
        (Combine::Maximum, 0.0),
        (Combine::Product, 1.0),
    ] {
        for (axis, squared) in [(0, false), (1, false), (0, true), (1, true)] {
            let kernel = masked_reduction(combine, axis, rest, squared);
            for [rows, columns] in [[8, 16], [5, 11], [0, 11], [5, 0], [8, 3], [2, 16], [100, -1]] {
                let given = [Buffer(0), Buffer(1), Integer(rows), Integer(columns)];
                let out = vec![7; 16 * 4];
                compare(&kernel, [1, 1, 1], &[values.clone(), out], &given, &|found, expected| {
                    assert_close(&from_singles(&found[1]), &from_singles(&expected[1]), 1e-6);
                });
            }
        }
    }
}

#[test]
fn nothing_is_read_where_a_mask_leaves_nothing() {
    let mut b = Builder::new("nothing");
    let pointer = Type::pointer(Scalar::F32);
    let (x, out) = (b.parameter("x", pointer.clone()), b.parameter("out", pointer));
    let [count, stride] = ["count", "stride"].map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    let (index, bound, step) = (b.range(16), b.splat(count, &[16]), b.splat(stride, &[16]));
    let mask = b.compare(openmps_tile::Compare::Less, index, bound);
    let (offset, pointers) = (b.multiply(index, step), b.splat(x, &[16]));
    let pointers = b.add_pointer(pointers, offset);
    let loaded = b.load(pointers, Some(mask), None);
    let zero = b.constant_like(0.0, loaded);
    let filled = b.select(mask, loaded, zero);
    let sum = b.reduce(Combine::Sum, filled, 0);
    b.store(out, sum, None);
    let kernel = b.finish();
    let (copies, arguments) = prepared(&[singles(vec![7.0])], &[Integer(0), Buffer(0), Integer(0), Integer(0)]);
    // SAFETY: the mask leaves nothing of the address that is none.
    unsafe { Program::new(&kernel).unwrap().run([1, 1, 1], &arguments) }.unwrap();
    assert_eq!(from_singles(&bytes(&copies, &[singles(vec![7.0])])[0]), [0.0]);
}

#[test]
fn bits_on_the_way_to_a_logistic_function_are_divided_as_integers() {
    let mut b = Builder::new("bits");
    let pointer = |b: &mut Builder, name: &str, to| b.parameter(name, Type::pointer(to));
    let (x, out) = (pointer(&mut b, "x", Scalar::F32), pointer(&mut b, "out", Scalar::I32));
    let index = b.range(16);
    let [from, to] = [x, out].map(|base| {
        let pointers = b.splat(base, &[16]);
        b.add_pointer(pointers, index)
    });
    let loaded = b.load(from, None, None);
    let negated = b.unary(openmps_tile::Unary::Negate, loaded);
    let exponential = b.exp(negated);
    let one = b.constant_like(1.0, exponential);
    let divisor = b.add(one, exponential);
    let divisor = b.cast(openmps_tile::Cast::Bits, divisor, Scalar::I32);
    let number = b.constant_like(2_000_000_000.0, divisor);
    let quotient = b.divide(number, divisor);
    b.store(to, quotient, None);
    compare(&b.finish(), [1, 1, 1], &[singles(wave(16)), vec![0; 64]], &[Buffer(0), Buffer(1)], &|found, expected| {
        assert_eq!(found[1], expected[1]);
        assert_eq!(found[1][..4], 1i32.to_le_bytes(), "a little below 2^31 by the bits of a number between 1 and 4");
    });
}
