//! Resizing and its gradient as kernels of tiles, for GPUs: a pixel reads its one or four neighbours, a gradient every pixel that read it.

use super::{Interpolation, InterpolationMode, Pass};
use crate::error::Result;
use crate::operator::Operator;
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{Images, dimensions, index_type, is_wide, load, load_wide, numbers, of_program};
use crate::view::View;
use openmps_tile::{Builder, Cast, Combine, Compare, DType, Kernel, Number, Operation, Scalar, Type, Value};

/// Pixels of a tile.
const TILE: usize = 256;

/// What a kernel depends on.
struct Form {
    dtype: DType,
    mode: InterpolationMode,
    /// A point is at the middle of its pixel.
    middle: bool,
    /// A place is rounded to the nearest instead of down.
    rounded: bool,
    narrow: Scalar,
    pass: Pass,
}

impl Form {
    fn of(of: &Interpolation, dtype: DType, count: usize, pass: Pass) -> Form {
        let bilinear = of.mode == InterpolationMode::Bilinear;
        let middle = bilinear && of.align_mode == 0 && !of.align_corners;
        let rounded = !bilinear && of.align_corners;
        Form { dtype, mode: of.mode, middle, rounded, narrow: index_type(count + TILE), pass }
    }

    fn key(&self, operator: &'static str) -> Key {
        Key::Other(operator, vec![self.dtype], vec![self.middle.into(), self.rounded.into(), is_wide(self.narrow)])
    }
}

fn dispatch(
    queue: &Queue,
    operator: &'static str,
    form: &Form,
    build: fn(&'static str, &Form) -> Kernel,
    out: &View,
    arguments: &[u64],
) -> Result<()> {
    let pipeline = program::get(operator, &form.key(operator), || build(operator, form))?;
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive.
    unsafe { program::launch(queue, operator, &pipeline, [out.len().div_ceil(TILE), 1, 1], arguments) }
}

fn arguments(of: &Interpolation, [from, out]: [&View; 2], input: [usize; 2]) -> Vec<u64> {
    let mut arguments: Vec<u64> = [from, out].into_iter().flat_map(Images::arguments).collect();
    let sizes = [out.len(), out.shape[1], input[0], input[1], of.size[0], of.size[1]];
    arguments.extend(sizes.map(|size| size as u64));
    let ratios = [0, 1].map(|axis| of.ratio(axis, input[axis]));
    arguments.extend(ratios.map(|ratio| scalar_bits(Number::Float(f64::from(ratio)), DType::F32)));
    arguments
}

/// Images in NCHW order.
pub(super) fn run(queue: &Queue, of: &Interpolation, x: &View, out: &View) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let dtype = if of.mode == InterpolationMode::Nearest { out.dtype.bits() } else { out.dtype };
    let arguments = arguments(of, [x, out], [x.shape[2], x.shape[3]]);
    dispatch(queue, of.name(), &Form::of(of, dtype, out.len(), Pass::Forward), kernel, out, &arguments)
}

/// The gradient of the resized images, and that of the images, in NCHW order.
pub(super) fn gradient(
    queue: &Queue,
    operator: &'static str,
    of: &Interpolation,
    upstream: &View,
    out: &View,
) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let input = [out.shape[2], out.shape[3]];
    let mut arguments = arguments(of, [upstream, out], input);
    // How many resized pixels there are between two neighbours; without a distance every one reads the same.
    let inverse = |ratio: f32| if ratio > 0.0 { f64::from(1.0 / ratio) } else { 0.0 };
    let inverses = [0, 1].map(|axis| inverse(of.ratio(axis, input[axis])));
    arguments.extend(inverses.map(|inverse| scalar_bits(Number::Float(inverse), DType::F32)));
    dispatch(queue, operator, &Form::of(of, out.dtype, out.len(), Pass::Gradient), gradient_kernel, out, &arguments)
}

/// What both kernels know: sizes before and after, and how far resized pixels are apart in the image.
struct Scale {
    input: [Value; 2],
    output: [Value; 2],
    ratio: [Value; 2],
}

/// Where a tile of resized rows or columns reads: `(1 - weight) * low + weight * high`; the nearest has no weight.
struct Taps {
    low: Value,
    high: Value,
    weight: Option<Value>,
}

fn float(b: &mut Builder, index: Value) -> Value {
    b.cast(Cast::SignedToFloat, index, Scalar::F32)
}

/// The whole part of numbers that are not negative.
fn whole(b: &mut Builder, x: Value) -> Value {
    let zero = b.constant_like(0.0, x);
    let x = b.maximum(x, zero);
    let x = b.cast(Cast::FloatToSigned, x, Scalar::I32);
    b.cast(Cast::Signed, x, Scalar::I64)
}

impl Scale {
    fn parameters(b: &mut Builder) -> Scale {
        let [height, width, out_height, out_width] = numbers(b, ["height", "width", "out_height", "out_width"]);
        let ratio = ["ratio_y", "ratio_x"].map(|name| b.parameter(name, Type::scalar(Scalar::F32)));
        Scale { input: [height, width], output: [out_height, out_width], ratio }
    }

    /// The last row or column of the images.
    fn last(&self, b: &mut Builder, axis: usize) -> Value {
        let one = b.integer(1, Scalar::I64);
        b.subtract(self.input[axis], one)
    }

    /// As `Interpolation::places` and `taps` have them, operation by operation.
    fn taps(&self, b: &mut Builder, form: &Form, axis: usize, index: Value) -> Taps {
        let index = float(b, index);
        let (half, ratio) = (b.constant_like(0.5, index), b.splat_like(self.ratio[axis], index));
        let place = if form.middle { b.add(index, half) } else { index };
        let point = if form.middle && form.pass.rounds_once(axis) {
            let (ty, less_half) = (b.type_of(place).clone(), b.constant_like(-0.5, index));
            b.emit(Operation::MultiplyAdd, &[ratio, place, less_half], ty)
        } else {
            let point = b.multiply(ratio, place);
            match (form.middle, form.rounded) {
                (true, _) => b.subtract(point, half),
                (false, true) => b.add(point, half),
                (false, false) => point,
            }
        };
        let last = self.last(b, axis);
        let last = b.splat_like(last, index);
        let low = whole(b, point);
        let low = b.minimum(low, last);
        if form.mode == InterpolationMode::Nearest {
            return Taps { low, high: low, weight: None };
        }
        let (zero, one) = (b.constant_like(0.0, point), b.constant_like(1.0, point));
        let point = b.maximum(point, zero);
        let floor = float(b, low);
        let weight = b.subtract(point, floor);
        let weight = b.minimum(weight, one);
        let next = b.constant_like(1.0, low);
        let high = b.add(low, next);
        Taps { low, high: b.minimum(high, last), weight: Some(convert(b, weight, DType::F32, form.dtype.compute())) }
    }
}

/// `x * (1 - weight) + y * weight`
fn mixed(b: &mut Builder, [x, y]: [Value; 2], weight: Value) -> Value {
    let one = b.constant_like(1.0, weight);
    let rest = b.subtract(one, weight);
    let (x, y) = (b.multiply(x, rest), b.multiply(y, weight));
    b.add(x, y)
}

fn kernel(operator: &'static str, form: &Form) -> Kernel {
    let mut b = Builder::new(operator);
    let (x, out) = (Images::parameter(&mut b, "x", form.dtype), Images::parameter(&mut b, "out", form.dtype));
    let [size, channels] = numbers(&mut b, ["size", "channels"]);
    let scale = Scale::parameters(&mut b);
    let (index, inside) = of_program(&mut b, 0, TILE, size);
    let sizes = [size, channels, scale.output[0], scale.output[1]];
    let parts = dimensions(&mut b, index, &sizes, form.narrow);
    let at = [parts[0], parts[1], parts[2], parts[3]];
    let (row, column) = (scale.taps(&mut b, form, 0, at[2]), scale.taps(&mut b, form, 1, at[3]));
    let to = out.at(&mut b, at);
    let result = match (row.weight, column.weight) {
        (Some(of_row), Some(of_column)) => {
            let lines = [row.low, row.high].map(|row| {
                let pixels = [column.low, column.high].map(|column| {
                    let pointers = x.at(&mut b, [at[0], at[1], row, column]);
                    load_wide(&mut b, pointers, inside, form.dtype)
                });
                mixed(&mut b, pixels, of_column)
            });
            let mixed = mixed(&mut b, lines, of_row);
            convert(&mut b, mixed, form.dtype.compute(), form.dtype)
        }
        _ => {
            let pointers = x.at(&mut b, [at[0], at[1], row.low, column.low]);
            load(&mut b, pointers, inside)
        }
    };
    b.store(to, result, Some(inside));
    b.finish()
}

/// The resized rows or columns that may read a pixel: the first of them, one past the last, and how many at most in the tile.
struct Readers {
    first: Value,
    end: Value,
    most: Value,
}

/// Points grow with the index, so readers follow each other; how far is computed with room for rounding.
fn readers(b: &mut Builder, form: &Form, scale: &Scale, inverse: Value, axis: usize, pixel: Value) -> Readers {
    let ratio = scale.ratio[axis];
    let half = b.constant(0.5, &Type::scalar(Scalar::F32));
    let mut shift = b.constant(0.0, &Type::scalar(Scalar::F32));
    if form.middle {
        shift = b.multiply(ratio, half);
        shift = b.subtract(shift, half);
    } else if form.rounded {
        shift = half;
    }
    let own = float(b, pixel);
    let (shift, inverse) = (b.splat_like(shift, own), b.splat_like(inverse, own));
    let one = b.constant_like(1.0, own);
    let index_of = |b: &mut Builder, point: Value| {
        let distance = b.subtract(point, shift);
        let index = b.multiply(distance, inverse);
        whole(b, index)
    };
    let (before, after) = (b.subtract(own, one), b.add(own, one));
    let (first, end) = (index_of(b, before), index_of(b, after));
    let (two, three, zero) = (b.constant_like(2.0, pixel), b.constant_like(3.0, pixel), b.constant_like(0.0, pixel));
    let first = b.subtract(first, two);
    let first = b.maximum(first, zero);
    let output = b.splat_like(scale.output[axis], pixel);
    let end = b.add(end, three);
    let end = b.minimum(end, output);
    // Whatever points beyond the image reads its last pixel.
    let last = scale.last(b, axis);
    let last = b.splat_like(last, pixel);
    let is_last = b.compare(Compare::Equal, pixel, last);
    let end = b.select(is_last, output, end);
    let count = b.subtract(end, first);
    Readers { first, end, most: b.reduce(Combine::Maximum, count, 0) }
}

impl Readers {
    /// The `i`-th reader, which of them exist, and the share of the pixel in it.
    fn share(&self, b: &mut Builder, form: &Form, scale: &Scale, (axis, pixel): (usize, Value), i: Value) -> Share {
        let i = b.splat_like(i, self.first);
        let reader = b.add(self.first, i);
        let exists = b.compare(Compare::Less, reader, self.end);
        let taps = scale.taps(b, form, axis, reader);
        let is_low = b.compare(Compare::Equal, taps.low, pixel);
        let ty = b.type_of(pixel).with_scalar(form.dtype.compute().into());
        let (zero, one) = (b.constant(0.0, &ty), b.constant(1.0, &ty));
        let weight = match taps.weight {
            None => b.select(is_low, one, zero),
            Some(weight) => {
                let is_high = b.compare(Compare::Equal, taps.high, pixel);
                let rest = b.subtract(one, weight);
                let (low, high) = (b.select(is_low, rest, zero), b.select(is_high, weight, zero));
                b.add(low, high)
            }
        };
        Share { reader, exists, weight }
    }
}

struct Share {
    reader: Value,
    exists: Value,
    weight: Value,
}

fn gradient_kernel(operator: &'static str, form: &Form) -> Kernel {
    let mut b = Builder::new(operator);
    let upstream = Images::parameter(&mut b, "upstream", form.dtype);
    let out = Images::parameter(&mut b, "out", form.dtype);
    let [size, channels] = numbers(&mut b, ["size", "channels"]);
    let scale = Scale::parameters(&mut b);
    let inverse = ["inverse_y", "inverse_x"].map(|name| b.parameter(name, Type::scalar(Scalar::F32)));
    let (index, inside) = of_program(&mut b, 0, TILE, size);
    let sizes = [size, channels, scale.input[0], scale.input[1]];
    let parts = dimensions(&mut b, index, &sizes, form.narrow);
    let at = [parts[0], parts[1], parts[2], parts[3]];
    let [rows, columns] = [0, 1].map(|axis| readers(&mut b, form, &scale, inverse[axis], axis, at[2 + axis]));
    let (zero, one) = (b.integer(0, Scalar::I64), b.integer(1, Scalar::I64));
    let none = b.constant(0.0, &Type::tile(form.dtype.compute().into(), &[TILE]));
    let sum = b.for_loop([zero, rows.most, one], &[none], |b, i, carried| {
        let row = rows.share(b, form, &scale, (0, at[2]), i);
        let exists = b.and(inside, row.exists);
        b.for_loop([zero, columns.most, one], carried, |b, j, carried| {
            let column = columns.share(b, form, &scale, (1, at[3]), j);
            let mask = b.and(exists, column.exists);
            let pointers = upstream.at(b, [at[0], at[1], row.reader, column.reader]);
            let gradient = load_wide(b, pointers, mask, form.dtype);
            let weight = b.multiply(row.weight, column.weight);
            let gradient = b.multiply(gradient, weight);
            vec![b.add(carried[0], gradient)]
        })
    })[0];
    let pointers = out.at(&mut b, at);
    let sum = convert(&mut b, sum, form.dtype.compute(), form.dtype);
    b.store(pointers, sum, Some(inside));
    b.finish()
}
