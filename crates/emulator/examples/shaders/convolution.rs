//! Convolutions by patches, transposed convolutions, pooling, upsampling.

use crate::case::{Arg, Case, exact, float, input, near, output, sizes, threads};
use crate::kind::Kind;

const STRIDE: usize = 2;
const PADDING: usize = 1;
const DILATION: usize = 2;

/// A batch of images, as batch, channels and two sides; the channels lie innermost in memory.
struct Image {
    kind: Kind,
    values: Vec<f64>,
    dims: [usize; 4],
}

impl Image {
    fn new(kind: Kind, dims: [usize; 4], seed: u64) -> Image {
        Image { kind, values: kind.numbers(dims.iter().product(), seed), dims }
    }

    fn strides(&self) -> [usize; 4] {
        let [_, channels, height, width] = self.dims;
        [channels * height * width, 1, width * channels, channels]
    }

    fn at(&self, place: [usize; 4]) -> f64 {
        self.values[place.iter().zip(self.strides()).map(|(at, stride)| at * stride).sum::<usize>()]
    }

    /// Dimensions, strides and contents.
    fn args(&self) -> Vec<Arg> {
        vec![sizes(&self.dims), sizes(&self.strides()), input(self.kind, &self.values)]
    }

    /// As [`Image::args`], of an image that is one line.
    fn line_args(&self) -> Vec<Arg> {
        let ([batch, channels, _, width], [of_batch, of_channel, _, of_place]) = (self.dims, self.strides());
        let dims = sizes(&[batch, channels, width]);
        vec![dims, sizes(&[of_batch, of_channel, of_place]), input(self.kind, &self.values)]
    }
}

/// Every place of dimensions, the last the fastest.
fn places([n, a, b, c]: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..n * a * b * c).map(move |at| [at / (a * b * c), at / (b * c) % a, at / c % b, at % c])
}

fn each(values: &[usize]) -> Vec<Arg> {
    values.iter().map(|value| sizes(&[*value])).collect()
}

pub fn convolution(name: &str) -> Option<Case> {
    let (operation, kind) = name.rsplit_once('_')?;
    let kind = Kind::named(kind)?;
    Some(match operation {
        "im2col" => patches(kind),
        "im2col1d" => patches_of_line(kind),
        "col2im1d" => line_of_patches(kind),
        "upsample_nearest2d" => nearest(kind),
        "upsample_bilinear2d" => bilinear(kind),
        "max_pool2d" | "avg_pool2d" => pooled(kind, operation == "max_pool2d"),
        "conv_transpose1d" => transposed(kind, true),
        "conv_transpose2d" => transposed(kind, false),
        _ => return None,
    })
}

/// The windows of a side, and the place that a step of a window falls on, none in the padding.
fn windows(size: usize, steps: usize) -> usize {
    (size + 2 * PADDING - DILATION * (steps - 1) - 1) / STRIDE + 1
}

fn inside(window: usize, step: usize, size: usize) -> Option<usize> {
    (window * STRIDE + step * DILATION).checked_sub(PADDING).filter(|at| *at < size)
}

fn patches(kind: Kind) -> Case {
    let (image, high, wide) = (Image::new(kind, [2, 3, 7, 6], 41), 2, 3);
    let [batch, channels, height, width] = image.dims;
    let (rows, columns) = (windows(height, high), windows(width, wide));
    let mut expected = Vec::new();
    for [b, y, x, c] in places([batch, rows, columns, channels]) {
        for (down, right) in (0..high).flat_map(|down| (0..wide).map(move |right| (down, right))) {
            let place = inside(y, down, height).zip(inside(x, right, width));
            expected.push(place.map_or(0.0, |(y, x)| image.at([b, c, y, x])));
        }
    }
    let count = expected.len();
    let mut args = each(&[count, rows, columns, high, wide, STRIDE, PADDING, DILATION]);
    args.extend(image.args());
    args.push(output(kind, count));
    threads(count, args, exact(kind, expected))
}

fn patches_of_line(kind: Kind) -> Case {
    let (image, wide) = (Image::new(kind, [2, 3, 1, 9], 42), 3);
    let [batch, channels, _, width] = image.dims;
    let columns = windows(width, wide);
    let value = |[b, x, c, right]: [usize; 4]| inside(x, right, width).map_or(0.0, |x| image.at([b, c, 0, x]));
    let expected: Vec<f64> = places([batch, columns, channels, wide]).map(value).collect();
    let count = expected.len();
    let mut args = each(&[count, columns, wide, STRIDE, PADDING, DILATION]);
    args.extend(image.line_args());
    args.push(output(kind, count));
    threads(count, args, exact(kind, expected))
}

/// The sum of overlapping patches, each of `steps` numbers.
fn line_of_patches(kind: Kind) -> Case {
    let (batch, patches, channels, steps) = (2, 5, 3, 3);
    let values = kind.numbers(batch * patches * channels * steps, 43);
    let length = (patches - 1) * STRIDE + steps;
    let mut expected = vec![0.0; batch * channels * length];
    for ([b, patch, c, step], value) in places([batch, patches, channels, steps]).zip(&values) {
        expected[(b * channels + c) * length + patch * STRIDE + step] += value;
    }
    let count = expected.len();
    let mut args = each(&[count, length, patches, channels, steps, STRIDE]);
    args.extend([input(kind, &values), output(kind, count)]);
    threads(count, args, near(kind, expected, 2.0, 4.0))
}

fn nearest(kind: Kind) -> Case {
    let (image, rows, columns) = (Image::new(kind, [2, 3, 3, 5], 44), 7, 8);
    let [batch, channels, height, width] = image.dims;
    let value = |[b, c, y, x]: [usize; 4]| image.at([b, c, y * height / rows, x * width / columns]);
    let expected: Vec<f64> = places([batch, channels, rows, columns]).map(value).collect();
    // What they call width is the first of the sides, everywhere in this file but in bilinear upsampling and transposed convolutions.
    let mut args = each(&[rows, columns]);
    args.extend([float(height as f64 / rows as f64), float(width as f64 / columns as f64)]);
    args.extend(image.args());
    args.push(output(kind, expected.len()));
    threads(expected.len(), args, exact(kind, expected))
}

/// How far apart results are in the source.
#[derive(Clone, Copy, PartialEq)]
enum Spacing {
    /// The corners fall on corners.
    Corners,
    /// One factor is given, the other follows from the sizes.
    Factor(f64),
    Sizes,
}

/// The place before a result, the one after it, and how far the result is on the way.
fn between(at: usize, size: usize, results: usize, spacing: Spacing) -> (usize, usize, f64) {
    let (at, last) = (at as f64, size as f64 - 1.0);
    let place = match spacing {
        Spacing::Corners => at * last / (results as f64 - 1.0),
        Spacing::Factor(factor) => (at + 0.5) / factor - 0.5,
        Spacing::Sizes => (at + 0.5) * size as f64 / results as f64 - 0.5,
    };
    let place = place.max(0.0);
    (place.floor() as usize, (place.floor() as usize + 1).min(size - 1), place.fract())
}

fn bilinear(kind: Kind) -> Case {
    let (image, rows, columns) = (Image::new(kind, [2, 3, 3, 5], 45), 7, 8);
    let [batch, channels, height, width] = image.dims;
    // Every type another way.
    let (factor, spacing) = match kind {
        Kind::F32 | Kind::U8 => (None, Spacing::Sizes),
        Kind::F16 => (None, Spacing::Corners),
        _ => (Some(2.5), Spacing::Factor(2.5)),
    };
    let value = |[b, c, y, x]: [usize; 4]| {
        let (top, bottom, down) = between(y, height, rows, spacing);
        let across = if factor.is_some() { Spacing::Sizes } else { spacing };
        let (left, right, over) = between(x, width, columns, across);
        let line = |y: usize| image.at([b, c, y, left]) * (1.0 - over) + image.at([b, c, y, right]) * over;
        line(top) * (1.0 - down) + line(bottom) * down
    };
    let expected: Vec<f64> = places([batch, channels, rows, columns]).map(value).collect();
    let mut args = each(&[columns, rows]);
    args.extend([spacing == Spacing::Corners, factor.is_some()].map(|flag| Arg::Bytes(vec![u8::from(flag)])));
    args.extend([float(factor.unwrap_or(0.0)), Arg::Bytes(vec![0]), float(0.0)]);
    args.extend(image.args());
    args.push(output(kind, expected.len()));
    let count = expected.len();
    let whole = Box::new(move |outputs: &[Vec<f64>]| {
        // A sum in float may fall on either side of a whole number.
        let may_be = |got: f64, value: f64| got == (value - 1e-4).floor() || got == (value + 1e-4).floor();
        let wrong = outputs[0].iter().zip(&expected).find(|(got, value)| !may_be(**got, **value));
        wrong.map_or(Ok(()), |(got, value)| Err(format!("{got}, not {value} cut off")))
    });
    if kind.is_float() {
        let expected = places([batch, channels, rows, columns]).map(value).collect();
        return threads(count, args, near(kind, expected, 4.0, 2.0));
    }
    threads(count, args, whole)
}

fn pooled(kind: Kind, most: bool) -> Case {
    let (image, high, wide, down, right) = (Image::new(kind, [2, 3, 7, 6], 46), 2, 3, 2, 1);
    let [batch, channels, height, width] = image.dims;
    let (rows, columns) = ((height - high) / down + 1, (width - wide) / right + 1);
    let value = |[b, c, y, x]: [usize; 4]| {
        let window = (0..high * wide).map(|at| image.at([b, c, y * down + at / wide, x * right + at % wide]));
        if most { window.fold(f64::MIN, f64::max) } else { window.sum::<f64>() / (high * wide) as f64 }
    };
    let expected: Vec<f64> = places([batch, channels, rows, columns]).map(value).collect();
    let count = expected.len();
    let mut args = each(&[high, wide, down, right]);
    args.extend(image.args());
    args.push(output(kind, count));
    threads(count, args, if most { exact(kind, expected) } else { near(kind, expected, 1.0, 2.0) })
}

/// Every number of the source is spread over a window of the result; a line is an image of height one, with a window of height one.
fn transposed(kind: Kind, line: bool) -> Case {
    let (image, out_channels, more) = (Image::new(kind, [2, 3, if line { 1 } else { 3 }, 4], 47), 2, 1);
    let [batch, channels, height, width] = image.dims;
    let (high, wide) = (if line { 1 } else { 2 }, 3);
    let weights = kind.numbers(channels * out_channels * high * wide, 48);
    let length = |size: usize, steps: usize| (size - 1) * STRIDE + DILATION * (steps - 1) + more + 1 - 2 * PADDING;
    let (rows, columns) = (if line { 1 } else { length(height, high) }, length(width, wide));
    let landed = |at: usize, step: usize, size: usize| {
        (at * STRIDE + step * DILATION).checked_sub(PADDING).filter(|place| *place < size)
    };
    let mut expected = vec![0.0; batch * out_channels * rows * columns];
    for [b, c, y, x] in places(image.dims) {
        for (weight, [_, out, down, right]) in
            weights[c * out_channels * high * wide..].iter().zip(places([1, out_channels, high, wide]))
        {
            let row = if line { Some(0) } else { landed(y, down, rows) };
            let Some((row, column)) = row.zip(landed(x, right, columns)) else { continue };
            expected[((b * out_channels + out) * rows + row) * columns + column] += image.at([b, c, y, x]) * weight;
        }
    }
    if kind == Kind::U8 {
        // Sums of bytes wrap around.
        expected.iter_mut().for_each(|sum| *sum %= 256.0);
    }
    let count = expected.len();
    let (mut args, shape, strides) = if line {
        let shape = (sizes(&[channels, out_channels, wide]), sizes(&[out_channels * wide, wide, 1]));
        (each(&[columns, STRIDE, PADDING, more, DILATION]), shape.0, shape.1)
    } else {
        let of_channel = high * wide;
        let shape = sizes(&[channels, out_channels, high, wide]);
        let strides = sizes(&[out_channels * of_channel, of_channel, wide, 1]);
        (each(&[columns, rows, STRIDE, PADDING, more, DILATION]), shape, strides)
    };
    let mut source = if line { image.line_args() } else { image.args() };
    let contents = source.pop();
    args.extend(source);
    args.extend([shape, strides]);
    args.extend(contents);
    args.extend([input(kind, &weights), output(kind, count)]);
    threads(count, args, near(kind, expected, 4.0, 8.0))
}
