//! Convolution as a product of matrices: rows are channels of the result, columns its places, the depth channels and taps.

use super::gather::{Parameters, Places};
use super::{Form, Summation};
use crate::tiles::{
    Images, Side, block, both, broadcast_along, crossed, dimensions, load, moved, of_program, offset, scaled,
};
use openmps_tile::{Builder, Cast, Kernel, Scalar, Type, Value};

pub(super) fn kernel(operator: &'static str, form: &Form) -> Kernel {
    let mut b = Builder::new(operator);
    let mut p = Parameters::new(&mut b, form);
    let [rows, depth, count, _] = p.sizes;
    let [rows_of_block, columns_of_block, _] = form.block;
    let row = of_program(&mut b, 1, rows_of_block, rows);
    let (position, exists) = of_program(&mut b, 0, columns_of_block, count);
    let sizes = [rows, p.places[0], p.places[1]];
    let of_position = dimensions(&mut b, position, &sizes, form.narrow);
    let places = Places::new(&mut b, &p, of_position[0], (of_position[1], exists), of_position[2]);

    // What belongs to this group.
    let first_channel = b.multiply(p.group, depth);
    p.image.pointer = moved(&mut b, p.image.pointer, [(first_channel, p.image.strides[1])]);
    p.weight = moved(&mut b, p.weight, [(p.group, p.weight_strides[0])]);
    let compute = form.dtype.compute();
    let none = b.constant(0.0, &Type::tile(compute.into(), &[rows_of_block, columns_of_block]));
    let sum = match form.summation {
        Summation::Window(window) => of_windows(&mut b, &p, form, window, (row, &places), none),
        _ => of_taps(&mut b, &p, form, (row, &places), none),
    };
    store(&mut b, &p, (row, &places), sum);
    b.finish()
}

/// The sums, tap after tap, over blocks of channels.
fn of_taps(b: &mut Builder, p: &Parameters, form: &Form, (row, places): (Side, &Places), none: Value) -> Value {
    let [_, of_row, of_depth, ..] = p.weight_strides;
    let by_row = scaled(b, row.0, of_row);
    let by_column = places.of_image(b, &p.image);
    p.for_taps(b, none, |b, sum, tap| {
        let reads = places.reads(b, p, &tap);
        let (zero, step) = (b.integer(0, Scalar::I64), b.integer(form.block[2] as i64, Scalar::I64));
        b.for_loop([zero, tap.depth, step], &[sum], |b, at, carried| {
            let channel = block(b, at, form.block[2], p.sizes[1]);
            let by_channel = scaled(b, channel.0, of_depth);
            let pointers = crossed(b, tap.weight, by_row, by_channel);
            let mask = both(b, row.1, channel.1);
            let weight = load(b, pointers, mask);
            let by_channel = scaled(b, channel.0, p.image.strides[1]);
            let pointers = crossed(b, tap.image, by_channel, by_column);
            let mask = both(b, channel.1, reads);
            let image = load(b, pointers, mask);
            vec![b.dot(weight, image, carried[0])]
        })[0]
    })
}

/// The sums over blocks of channels and taps, for windows whose size the kernel knows: it divides by numbers that the compiler sees.
fn of_windows(
    b: &mut Builder,
    p: &Parameters,
    form: &Form,
    window: [usize; 2],
    (row, places): (Side, &Places),
    none: Value,
) -> Value {
    let [_, of_row, of_depth, of_tap_row, of_tap_column] = p.weight_strides;
    let by_row = scaled(b, row.0, of_row);
    let by_column = places.of_image(b, &p.image);
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(form.block[2] as i64, Scalar::I64));
    let sizes = [1, window[0], window[1]].map(|size| b.integer(size as i64, Scalar::I32));
    let taps = b.integer((window[0] * window[1]) as i64, Scalar::I64);
    let depth = b.multiply(p.sizes[1], taps);
    b.for_loop([zero, depth, step], &[none], |b, at, carried| {
        let (index, exists) = block(b, at, form.block[2], depth);
        let narrow = b.cast(Cast::Signed, index, Scalar::I32);
        let parts = dimensions(b, narrow, &sizes, Scalar::I32);
        let (channel, taps) = (parts[0], [parts[1], parts[2]]);
        let rest = [(taps[0], of_tap_row), (taps[1], of_tap_column)];
        let by_depth = offset(b, (channel, of_depth), rest);
        let pointers = crossed(b, p.weight, by_row, by_depth);
        let mask = both(b, row.1, exists);
        let weight = load(b, pointers, mask);
        let shifts = [0, 1].map(|axis| p.shifts(b, axis, taps[axis]));
        let rest = [(shifts[0], p.image.strides[2]), (shifts[1], p.image.strides[3])];
        let by_depth = offset(b, (channel, p.image.strides[1]), rest);
        let pointers = crossed(b, p.image.pointer, by_depth, by_column);
        let mask = places.reads_all(b, p, shifts, exists);
        let image = load(b, pointers, mask);
        vec![b.dot(weight, image, carried[0])]
    })[0]
}

fn store(b: &mut Builder, p: &Parameters, (row, places): (Side, &Places), sum: Value) {
    let dims = [row.0, places.inside].map(|side| b.type_of(side).dims[0]);
    let first = b.multiply(p.group, p.sizes[0]);
    let first = b.splat_like(first, row.0);
    let channel = b.add(row.0, first);
    let at = |b: &mut Builder, images: &Images| {
        let (by_row, by_column) = (scaled(b, channel, images.strides[1]), places.of_result(b, images));
        (crossed(b, images.pointer, by_row, by_column), both(b, row.1, places.inside))
    };
    let along = |b: &mut Builder, x: Value| broadcast_along(b, x, 0, dims);
    let result = p.epilogue.apply(b, sum, (channel, row.1), along, at);
    let (pointers, mask) = at(b, &p.out);
    b.store(pointers, result, Some(mask));
}
