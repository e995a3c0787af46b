//! Convolution with every result by itself: one product after the other, for groups of few channels.

use super::Form;
use super::gather::{Parameters, Places};
use crate::tiles::{Images, dimensions, load_wide, moved, of_program, offset, scaled};
use openmps_tile::{Builder, Kernel, Operation, Scalar, Type, Value};

pub(super) fn kernel(operator: &'static str, form: &Form) -> Kernel {
    let mut b = Builder::new(operator);
    let p = Parameters::new(&mut b, form);
    let [rows, _, count, channels] = p.sizes;
    let tile = form.block[1];
    let (index, exists) = of_program(&mut b, 0, tile, count);
    let sizes = [channels, channels, p.places[0], p.places[1]];
    let parts = dimensions(&mut b, index, &sizes, form.narrow);
    let channel = parts[1];
    let places = Places::new(&mut b, &p, parts[0], (parts[2], exists), parts[3]);
    let of_channel = dimensions(&mut b, channel, &[rows, rows], form.narrow);
    let (group, row) = (of_channel[0], of_channel[1]);

    let none = b.constant(0.0, &Type::tile(form.dtype.compute().into(), &[tile]));
    let sum = sums(&mut b, &p, form, [group, row], &places, none);
    let at = |b: &mut Builder, images: &Images| {
        let own = places.of_result(b, images);
        let offset = along(b, own, channel, images.strides[1]);
        (b.add_pointer(images.pointer, offset), places.inside)
    };
    let result = p.epilogue.apply(&mut b, sum, (channel, exists), |_, x| x, at);
    let (pointers, mask) = at(&mut b, &p.out);
    b.store(pointers, result, Some(mask));
    b.finish()
}

/// An offset, further along by `index * stride`.
fn along(b: &mut Builder, offset: Value, index: Value, stride: Value) -> Value {
    let step = scaled(b, index, stride);
    b.add(offset, step)
}

fn sums(b: &mut Builder, p: &Parameters, form: &Form, [group, row]: [Value; 2], places: &Places, none: Value) -> Value {
    let [of_group, of_row, of_depth, ..] = p.weight_strides;
    let of_weight = offset(b, (group, of_group), [(row, of_row)]);
    let of_image = places.of_image(b, &p.image);
    let first = b.multiply(p.sizes[1], p.image.strides[1]);
    let of_image = along(b, of_image, group, first);
    p.for_taps(b, none, |b, sum, tap| {
        let reads = places.reads(b, p, &tap);
        let (zero, one) = (b.integer(0, Scalar::I64), b.integer(1, Scalar::I64));
        b.for_loop([zero, tap.depth, one], &[sum], |b, at, carried| {
            let weight = moved(b, tap.weight, [(at, of_depth)]);
            let pointers = b.add_pointer(weight, of_weight);
            let weight = load_wide(b, pointers, places.inside, form.dtype);
            let image = moved(b, tap.image, [(at, p.image.strides[1])]);
            let pointers = b.add_pointer(image, of_image);
            let image = load_wide(b, pointers, reads, form.dtype);
            let ty = b.type_of(image).clone();
            vec![b.emit(Operation::MultiplyAdd, &[weight, image, carried[0]], ty)]
        })[0]
    })
}
