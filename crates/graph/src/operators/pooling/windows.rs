//! Where the windows of pooling lie, in kernels of tiles: the elements of results, and the results of elements.

use openmps_tile::{Builder, Scalar, Type, Value};

/// What both kernels know of windows.
pub(super) struct Windows {
    adaptive: bool,
    pub input: [Value; 2],
    pub output: [Value; 2],
    pub size: [Value; 2],
    stride: [Value; 2],
    before: [Value; 2],
    after: [Value; 2],
}

/// A tile of windows along an axis: the first element and the one past the last inside the input, and how many there are with padding.
pub(super) struct Window {
    pub begin: Value,
    pub end: Value,
    pub size: Value,
}

impl Windows {
    pub fn parameters(b: &mut Builder, adaptive: bool) -> Windows {
        let mut pair =
            |name: &str| ["y", "x"].map(|axis| b.parameter(format!("{name}_{axis}"), Type::scalar(Scalar::I64)));
        let [input, output, size, stride, before, after] =
            ["input", "output", "window", "stride", "before", "after"].map(&mut pair);
        Windows { adaptive, input, output, size, stride, before, after }
    }

    /// The windows of these results, as `strided_windows` and `adaptive_windows` of the native kernels have them.
    pub fn of(&self, b: &mut Builder, axis: usize, result: Value) -> Window {
        let [input, output, size, stride, before, after] =
            [self.input, self.output, self.size, self.stride, self.before, self.after]
                .map(|pair| b.splat_like(pair[axis], result));
        let zero = b.constant_like(0.0, result);
        if self.adaptive {
            let first = b.multiply(result, input);
            let begin = b.divide(first, output);
            let last = b.add(first, input);
            let end = rounded_up(b, last, output);
            return Window { begin, end, size: b.subtract(end, begin) };
        }
        let first = b.multiply(result, stride);
        let padded = b.add(input, before);
        let padded = b.add(padded, after);
        let last = b.add(first, size);
        let last = b.minimum(last, padded);
        let clamped = |b: &mut Builder, place: Value| {
            let place = b.subtract(place, before);
            let place = b.maximum(place, zero);
            b.minimum(place, input)
        };
        let begin = clamped(b, first);
        let end = clamped(b, last);
        let size = b.subtract(last, first);
        Window { begin, end: b.maximum(end, begin), size: b.maximum(size, zero) }
    }

    /// The last results whose windows may hold these pixels.
    pub fn last(&self, b: &mut Builder, axis: usize, pixel: Value) -> Value {
        let [input, output, stride, before] =
            [self.input, self.output, self.stride, self.before].map(|pair| b.splat_like(pair[axis], pixel));
        let one = b.constant_like(1.0, pixel);
        if self.adaptive {
            let next = b.add(pixel, one);
            let next = b.multiply(next, output);
            let bound = rounded_up(b, next, input);
            return b.subtract(bound, one);
        }
        let place = b.add(pixel, before);
        b.divide(place, stride)
    }
}

/// The quotient of positive numbers, rounded up.
fn rounded_up(b: &mut Builder, x: Value, by: Value) -> Value {
    let one = b.constant_like(1.0, by);
    let more = b.subtract(by, one);
    let more = b.add(x, more);
    b.divide(more, by)
}
