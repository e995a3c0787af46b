//! Every path against sums in float64.

use super::winograd::Transformed;
use super::*;
use crate::native::epilogue::Activation;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 20) as usize % limit
    }

    fn numbers(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| ((self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale).collect()
    }
}

fn taps(of: &Convolution, mut each: impl FnMut(usize, usize, usize)) {
    let [height, width] = of.output();
    let (own, filters) = (of.channels / of.groups, of.filters / of.groups);
    for image in 0..of.batch {
        for filter in 0..of.filters {
            for y in 0..height {
                for x in 0..width {
                    for channel in 0..own {
                        for i in 0..of.kernel[0] {
                            for j in 0..of.kernel[1] {
                                let v = (y * of.stride[0] + i * of.dilation[0]).wrapping_sub(of.padding[0]);
                                let u = (x * of.stride[1] + j * of.dilation[1]).wrapping_sub(of.padding[2]);
                                if v < of.input[0] && u < of.input[1] {
                                    let plane = image * of.channels + filter / filters * own + channel;
                                    each(
                                        (plane * of.input[0] + v) * of.input[1] + u,
                                        ((filter * own + channel) * of.kernel[0] + i) * of.kernel[1] + j,
                                        ((image * of.filters + filter) * height + y) * width + x,
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn compare<T: Copy + Into<f64>>(
    what: &str,
    shape: &Convolution,
    got: &[T],
    want: &[f64],
    magnitude: &[f64],
    limit: f64,
) {
    let most = magnitude.iter().fold(1e-30f64, |a, &b| a.max(b));
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let got: f64 = got.into();
        let error = (got - want).abs() / most;
        assert!(
            error <= limit,
            "{what} {shape:?}: element {i} is {got}, expected {want} (error {error:e} of {most:e})"
        );
    }
}

fn check(shape: &Convolution, scale: f32) {
    let mut random = Random(shape.products() as u64 * 77 + 12345);
    let [input_len, weight_len, output_len] = shape.lens();
    let input = random.numbers(input_len, scale);
    let weight = random.numbers(weight_len, 1.0);
    let bias = random.numbers(shape.filters, scale);
    let residual = random.numbers(output_len, scale);
    let mut want = vec![0.0f64; output_len];
    let mut size = vec![0.0f64; output_len];
    taps(shape, |i, w, o| {
        want[o] += f64::from(input[i]) * f64::from(weight[w]);
        size[o] += (f64::from(input[i]) * f64::from(weight[w])).abs();
    });
    let mut got = vec![f32::NAN; output_len];
    forward(shape, &input, &weight, &mut got, &Epilogue::default()).unwrap();
    compare("forward", shape, &got, &want, &size, 3e-6);

    let epilogue = Epilogue {
        scale: Some(&bias),
        bias: Some(&bias),
        residual: Some(&residual),
        activation: Activation::LeakyRelu { slope: 0.25 },
        after: Some((2.0, 1.0)),
    };
    let pixels = (output_len / (shape.batch * shape.filters).max(1)).max(1);
    let finished: Vec<f64> = (0..output_len)
        .map(|o| {
            let b = f64::from(bias[o / pixels % shape.filters]);
            let y = want[o] * b + b + f64::from(residual[o]);
            2.0 * y.max(0.25 * y) + 1.0
        })
        .collect();
    let sizes: Vec<f64> = size.iter().map(|s| s * f64::from(scale) * 2.0 + 4.0 * f64::from(scale) + 1.0).collect();
    let mut got = vec![f32::NAN; output_len];
    forward(shape, &input, &weight, &mut got, &epilogue).unwrap();
    compare("epilogue", shape, &got, &finished, &sizes, 4e-6);
    if let Some(order) = FilterOrder::kept(shape) {
        let [height, width] = shape.kernel;
        let size = [shape.filters, shape.channels / shape.groups, height, width];
        let kept = PackedFilters::new(order, size, shape.groups, &weight).unwrap();
        got.fill(f32::NAN);
        forward_packed(shape, &input, &kept, &mut got, &epilogue).unwrap();
        compare("kept filters", shape, &got, &finished, &sizes, 4e-6);
    }

    let mut back = vec![0.0f64; input_len];
    let mut back_size = vec![0.0f64; input_len];
    let mut filter = vec![0.0f64; weight_len];
    let mut filter_size = vec![0.0f64; weight_len];
    taps(shape, |i, w, o| {
        let up = f64::from(residual[o]);
        back[i] += up * f64::from(weight[w]);
        back_size[i] += (up * f64::from(weight[w])).abs();
        filter[w] += up * f64::from(input[i]);
        filter_size[w] += (up * f64::from(input[i])).abs();
    });
    let mut got = vec![f32::NAN; input_len];
    transposed(&TransposedConvolution { of: *shape }, &residual, &weight, &mut got, &Epilogue::default()).unwrap();
    compare("transposed", shape, &got, &back, &back_size, 3e-6);
    let mut got = vec![f32::NAN; weight_len];
    backward_filter(shape, &input, &residual, &mut got).unwrap();
    compare("filter gradient", shape, &got, &filter, &filter_size, 3e-6);

    let [input, weight, up] = [input, weight, residual].map(|x| x.into_iter().map(f64::from).collect::<Vec<f64>>());
    let mut got = vec![f64::NAN; output_len];
    forward_f64(shape, &input, &weight, &mut got).unwrap();
    compare("forward in float64", shape, &got, &want, &size, 1e-14);
    let mut got = vec![f64::NAN; input_len];
    transposed_f64(shape, &up, &weight, &mut got).unwrap();
    compare("transposed in float64", shape, &got, &back, &back_size, 1e-14);
    let mut got = vec![f64::NAN; weight_len];
    backward_filter_f64(shape, &input, &up, &mut got).unwrap();
    compare("filter gradient in float64", shape, &got, &filter, &filter_size, 1e-14);
}

fn shape(batch: usize, channels: usize, input: [usize; 2], filters: usize, kernel: [usize; 2]) -> Convolution {
    Convolution {
        batch,
        channels,
        input,
        filters,
        kernel,
        stride: [1, 1],
        padding: [0; 4],
        dilation: [1, 1],
        groups: 1,
    }
}

#[test]
fn pointwise_sizes() {
    for (batch, channels, input, filters) in [
        (1, 1, [1, 1], 1),
        (3, 5, [1, 1], 7),
        (2, 33, [1, 3], 19),
        (2, 7, [5, 5], 11),
        (1, 16, [13, 17], 32),
        (2, 24, [23, 23], 25),
        (1, 1030, [3, 11], 26),
        (1, 1030, [7, 7], 5),
        (3, 16, [16, 32], 13),
        (0, 4, [3, 3], 5),
    ] {
        check(&shape(batch, channels, input, filters, [1, 1]), 1.0);
    }
    check(&Convolution { groups: 3, ..shape(2, 9, [6, 7], 15, [1, 1]) }, 1000.0);
    check(&Convolution { groups: 3, ..shape(2, 9, [1, 2], 15, [1, 1]) }, 1.0);
}

/// Packed filters, in each of the orders, give the bits that the others give, and what does not fit is refused.
#[test]
fn packed_filters() {
    use FilterOrder::{Bands, Columns, Product, Winograd};
    let (mut random, wide) = (Random(8), [1, 1]);
    for (of, want) in [
        (shape(1, 5, [5, 5], 3, wide), Some(Product)),
        (shape(2, 70, [9, 30], 41, wide), Some(Product)),
        (shape(1, 600, [6, 7], 50, wide), Some(Product)),
        (Convolution { groups: 3, ..shape(2, 9, [6, 7], 15, wide) }, Some(Product)),
        (Convolution { padding: [1; 4], ..shape(2, 20, [40, 36], 16, [3, 3]) }, Some(Winograd)),
        (Convolution { stride: [2; 2], ..shape(2, 90, [19, 21], 23, [3, 3]) }, Some(Bands)),
        (Convolution { stride: [2; 2], ..shape(2, 90, [19, 21], 64, [3, 3]) }, Some(Columns)),
        (Convolution { stride: [3, 2], ..shape(2, 30, [19, 21], 70, wide) }, Some(Columns)),
        (Convolution { groups: 2, ..shape(1, 6, [11, 9], 10, [5, 3]) }, Some(Bands)),
        (Convolution { groups: 8, ..shape(1, 8, [11, 9], 8, [3, 3]) }, None),
        (shape(4, 64, [1, 1], 32, wide), None),
        (shape(4, 64, [3, 3], 32, wide), None),
        (shape(0, 4, [8, 8], 5, wide), None),
    ] {
        assert_eq!(FilterOrder::kept(&of), want, "{of:?}");
        let [input, weight, output] = of.lens();
        let (input, weight) = (random.numbers(input, 1.0), random.numbers(weight, 1.0));
        let Some(order) = want else { continue };
        let size = [of.filters, of.channels / of.groups, of.kernel[0], of.kernel[1]];
        let packed = PackedFilters::new(order, size, of.groups, &weight).unwrap();
        assert!(
            packed.bytes() >= 4 * weight.len() && PackedFilters::new(order, size, of.groups, &weight[1..]).is_err()
        );
        let unlike = if of.kernel == [3, 3] { Product } else { Winograd };
        assert!(PackedFilters::new(unlike, size, of.groups, &weight).is_err());
        let bias = random.numbers(of.filters, 1.0);
        let epilogue = Epilogue { activation: Activation::HardSwish, ..Epilogue::bias(Some(&bias)) };
        let (mut got, mut want) = (vec![f32::NAN; output], vec![f32::NAN; output]);
        forward(&of, &input, &weight, &mut want, &epilogue).unwrap();
        forward_packed(&of, &input, &packed, &mut got, &epilogue).unwrap();
        assert_eq!(got, want, "{of:?}");
        let other = Convolution { kernel: [2, 2], ..of };
        assert!(forward_packed(&other, &input, &packed, &mut got, &epilogue).is_err());
        assert!(forward_packed(&of, &input[1..], &packed, &mut got, &epilogue).is_err());
    }
}

/// Images that are gathered to the columns of a product: of a few pixels, of many in several bands, with steps, dilation, and filters that are mostly
/// outside.
#[test]
fn gathered_columns() {
    let padded = |padding: usize, of: Convolution| Convolution { padding: [padding; 4], ..of };
    for of in [
        padded(1, shape(2, 33, [7, 7], 65, [3, 3])),
        padded(2, shape(1, 90, [25, 15], 64, [5, 5])),
        Convolution { stride: [2, 2], ..padded(1, shape(2, 30, [14, 13], 70, [3, 3])) },
        Convolution { stride: [2, 3], ..shape(2, 20, [17, 31], 64, [1, 1]) },
        Convolution { stride: [3, 2], dilation: [2, 3], ..padded(3, shape(1, 29, [16, 19], 67, [3, 3])) },
        Convolution { padding: [4, 3, 5, 0], ..shape(1, 13, [3, 40], 64, [5, 4]) },
        Convolution { padding: [6, 0, 0, 6], ..shape(1, 11, [4, 6], 64, [5, 5]) },
        // Images that are dealt out whole.
        Convolution { stride: [2, 2], ..padded(1, shape(17, 30, [11, 10], 64, [3, 3])) },
    ] {
        assert_eq!(FilterOrder::once(&of), Some(FilterOrder::Columns), "{of:?}");
        check(&of, 1.0);
    }
}

#[test]
fn winograd_sizes() {
    for (channels, input, filters) in
        [(20, [40, 36], 16), (13, [31, 37], 25), (96, [23, 23], 24), (17, [4, 323], 31), (64, [80, 11], 19)]
    {
        for padding in [[1; 4], [0; 4], [2, 0, 1, 3]] {
            let shape = Convolution { padding, ..shape(2, channels, input, filters, [3, 3]) };
            check(&shape, 1.0);
        }
    }
    check(&Convolution { padding: [1; 4], ..shape(1, 16, [40, 40], 16, [3, 3]) }, 1e6);
    let of = Convolution { padding: [1; 4], ..shape(2, 20, [40, 36], 16, [3, 3]) };
    assert!(winograd::suits(&of, Transformed::Once), "{of:?}");
    // Blocks of tiles of several images, and filters that are transformed where they are kept.
    check(&Convolution { padding: [1; 4], ..shape(7, 25, [9, 7], 30, [3, 3]) }, 1.0);
    let of = Convolution { padding: [1; 4], ..shape(1, 40, [13, 14], 33, [3, 3]) };
    assert!(
        [Transformed::Once, Transformed::Kept].map(|transformed| winograd::suits(&of, transformed)) == [false, true]
    );
    check(&of, 1.0);
}

/// Whatever the way and however many terms: an error of a few roundings of the result, far below that of one sum after the other.
#[test]
fn sums_of_many_terms_stay_exact() {
    for (channels, size, filters, kernel, limit) in
        [(64, 40, 16, 3, 0.7), (64, 24, 16, 5, 0.4), (512, 14, 12, 1, 0.4), (200, 8, 12, 3, 0.4)]
    {
        let shape =
            Convolution { padding: [kernel / 2; 4], ..shape(1, channels, [size, size], filters, [kernel, kernel]) };
        let (mut random, [input, weight, output]) = (Random(4711), shape.lens());
        let (input, weight) = (random.numbers(input, 1.0), random.numbers(weight, 1.0));
        let (mut want, mut direct, mut got) = (vec![0.0f64; output], vec![0.0f32; output], vec![f32::NAN; output]);
        taps(&shape, |i, w, o| {
            want[o] += f64::from(input[i]) * f64::from(weight[w]);
            direct[o] += input[i] * weight[w];
        });
        forward(&shape, &input, &weight, &mut got, &Epilogue::default()).unwrap();
        let error = |values: &[f32]| {
            values.iter().zip(&want).map(|(&value, want)| (f64::from(value) - want).abs()).fold(0.0, f64::max)
        };
        let (got, direct) = (error(&got), error(&direct));
        assert_eq!(winograd::suits(&shape, Transformed::Once), (channels, kernel) == (64, 3));
        assert!(got <= limit * direct, "{shape:?}: {got:e}, of direct sums {direct:e}");
    }
}

#[test]
fn small_images() {
    let sizes = [
        (8, 48, [2, 2], 12, [1, 1]),
        (9, 70, [1, 1], 50, [1, 1]),
        (2, 600, [1, 1], 7, [1, 1]),
        (3, 64, [4, 4], 40, [1, 1]),
        (40, 50, [4, 4], 13, [1, 1]),
        (2, 20, [4, 3], 17, [3, 3]),
    ];
    for (batch, channels, input, filters, kernel) in sizes {
        let shape = shape(batch, channels, input, filters, kernel);
        assert!(gathered::suits(&shape) || rows::suits(&shape), "{shape:?}");
        check(&shape, 1.0);
    }
    check(&Convolution { stride: [2, 1], padding: [1, 2, 0, 1], ..shape(5, 9, [7, 4], 16, [3, 2]) }, 1.0);
    check(&Convolution { padding: [1; 4], dilation: [2, 1], ..shape(9, 7, [5, 3], 12, [3, 3]) }, 1.0);
    // Planes of one size, whose input gradients are shifted sums; panels that are all whole.
    for (padding, dilation, input) in [
        ([1; 4], [1, 1], [4, 4]),
        ([1; 4], [1, 1], [1, 1]),
        ([2, 0, 1, 1], [1, 1], [2, 3]),
        ([2, 2, 1, 1], [2, 1], [4, 5]),
        ([4, 4, 3, 3], [4, 3], [3, 2]),
    ] {
        for batch in [1, 9, 70] {
            check(&Convolution { padding, dilation, ..shape(batch, 24, input, 48, [3, 3]) }, 1.0);
        }
    }
}

/// Outputs of one column: of filters as wide as the image, of images that are a column, with steps, dilation, zeros around and groups.
#[test]
fn columns_of_outputs() {
    for of in [
        shape(3, 1, [40, 33], 70, [3, 33]),
        shape(2, 1, [30, 20], 9, [1, 20]),
        shape(2, 5, [37, 9], 17, [2, 9]),
        shape(2, 6, [50, 1], 66, [3, 1]),
        Convolution { stride: [2, 3], dilation: [2, 1], ..shape(2, 7, [61, 11], 12, [4, 10]) },
        Convolution { padding: [2, 1, 3, 2], ..shape(1, 4, [27, 8], 20, [3, 13]) },
        Convolution { groups: 3, ..shape(2, 9, [32, 5], 15, [3, 5]) },
    ] {
        assert!(turned::suits(&of) && FilterOrder::kept(&of).is_none(), "{of:?}");
        check(&of, 1.0);
    }
}

#[test]
fn depthwise_sizes() {
    for kernel in [[3, 3], [5, 5], [1, 5], [4, 2], [7, 7]] {
        for stride in [[1, 1], [2, 2], [2, 1], [1, 2], [3, 3]] {
            // Few channels, and more than a register of them.
            for (channels, input) in
                [(3, [7, 7]), (3, [17, 23]), (3, [46, 46]), (3, [9, 70]), (19, [7, 7]), (21, [17, 23]), (16, [9, 31])]
            {
                let p = [kernel[0] / 2, kernel[1] / 2];
                let base = shape(2, channels, input, channels, kernel);
                let shape = Convolution { groups: channels, stride, padding: [p[0], p[0], p[1], p[1]], ..base };
                check(&shape, 1.0);
            }
        }
    }
    for (dilation, kernel) in [([2, 3], [3, 3]), ([1, 1], [3, 3]), ([1, 1], [5, 5])] {
        check(&Convolution { groups: 5, dilation, ..shape(1, 5, [19, 31], 10, kernel) }, 1.0);
    }
    // Gradients whose rows of taps meet every second, and every third, row of pixels.
    for (stride, dilation) in [([2, 2], [2, 1]), ([2, 1], [3, 1]), ([3, 1], [2, 1]), ([4, 2], [6, 1])] {
        let base = shape(2, 17, [23, 12], 17, [3, 3]);
        check(&Convolution { groups: 17, stride, dilation, padding: [3, 2, 1, 1], ..base }, 1.0);
    }
    check(&Convolution { groups: 2, padding: [1; 4], ..shape(1, 2, [131, 130], 2, [3, 3]) }, 1.0);
}

/// A register of channels at a time, and of pixels: blocks that are not full, rows that no tile fills, zeros above and below that are not there, several
/// bands, and what follows with and without formulas that stay in registers.
#[test]
fn depthwise_in_registers() {
    let hard_swish = |y: f64| y * (y + 3.0).clamp(0.0, 6.0) / 6.0;
    let sigmoid = |y: f64| 1.0 / (1.0 + (-y).exp());
    let shapes = [
        ([3, 3], [1, 1], [1, 1, 1, 1], [7, 7]),
        ([5, 5], [2, 2], [2, 2, 2, 2], [14, 14]),
        ([5, 5], [1, 1], [2, 2, 2, 2], [7, 7]),
        ([3, 3], [2, 2], [0, 1, 0, 1], [28, 30]),
        ([3, 3], [2, 1], [1, 1, 1, 1], [9, 41]),
        ([1, 5], [1, 2], [0, 0, 3, 1], [6, 23]),
        ([4, 3], [1, 1], [3, 4, 2, 2], [2, 3]),
        ([3, 3], [1, 1], [1, 1, 1, 1], [150, 19]),
        ([5, 5], [2, 2], [2, 2, 2, 2], [120, 61]),
        ([3, 3], [1, 1], [1, 1, 1, 1], [9, 56]),
        ([3, 3], [1, 1], [2, 0, 7, 1], [5, 25]),
        ([3, 3], [2, 2], [1, 1, 1, 1], [30, 112]),
        ([3, 3], [2, 2], [0, 1, 0, 1], [7, 57]),
        ([5, 5], [1, 1], [4, 4, 4, 4], [3, 26]),
        ([5, 5], [2, 2], [1, 2, 2, 1], [13, 71]),
    ];
    for (kernel, stride, padding, input) in shapes {
        for (channels, dilation) in [(8, [1, 1]), (21, [2, 1]), (32, [1, 1])] {
            let of = shape(2, channels, input, channels, kernel);
            let of = Convolution { groups: channels, stride, padding, dilation, ..of };
            let [input, weight, output] = of.lens();
            let mut random = Random(7 + input as u64);
            let (input, weight) = (random.numbers(input, 1.0), random.numbers(weight, 1.0));
            let (scale, bias) = (random.numbers(channels, 1.0), random.numbers(channels, 1.0));
            let (mut want, mut size) = (vec![0.0; output], vec![1.0; output]);
            taps(&of, |i, w, o| {
                want[o] += f64::from(input[i]) * f64::from(weight[w]);
                size[o] += (f64::from(input[i]) * f64::from(weight[w])).abs();
            });
            let quick = Epilogue { bias: Some(&bias), activation: Activation::HardSwish, ..Epilogue::default() };
            let slow =
                Epilogue { scale: Some(&scale), activation: Activation::Sigmoid, after: Some((2.0, -1.0)), ..quick };
            let pixels = output / 2 / channels;
            for (what, epilogue) in [("plain", Epilogue::default()), ("quick", quick), ("slow", slow)] {
                let finished: Vec<f64> = (0..output)
                    .map(|o| {
                        let channel = o / pixels % channels;
                        let (scale, bias) = (f64::from(scale[channel]), f64::from(bias[channel]));
                        match what {
                            "quick" => hard_swish(want[o] + bias),
                            "slow" => 2.0 * sigmoid(want[o] * scale + bias) - 1.0,
                            _ => want[o],
                        }
                    })
                    .collect();
                let mut got = vec![f32::NAN; output];
                forward(&of, &input, &weight, &mut got, &epilogue).unwrap();
                compare(what, &of, &got, &finished, &size, 2e-6);
            }
        }
    }
}

/// Taps whose rows are a million apart: the middle one alone meets the plane, and only rows that are there are copied.
#[test]
fn depthwise_taps_far_apart() {
    let far = shape(1, 16, [7, 7], 16, [3, 3]);
    let far = Convolution { groups: 16, dilation: [1 << 20, 1], padding: [1 << 20, 1 << 20, 1, 1], ..far };
    let mut random = Random(3);
    let [input, weight, output] = far.lens();
    let (input, weight) = (random.numbers(input, 1.0), random.numbers(weight, 1.0));
    let (mut got, mut want) = (vec![f32::NAN; output], vec![f32::NAN; output]);
    forward(&far, &input, &weight, &mut got, &Epilogue::default()).unwrap();
    let near = Convolution { kernel: [1, 3], dilation: [1; 2], padding: [0, 0, 1, 1], ..far };
    let middle: Vec<f32> = weight.chunks_exact(9).flat_map(|taps| taps[3..6].to_vec()).collect();
    forward(&near, &input, &middle, &mut want, &Epilogue::default()).unwrap();
    assert_eq!(got, want);
}

/// Images without pixels, and zeros around them: what is left is the epilogue of nothing.
#[test]
fn images_without_pixels() {
    for (groups, filters) in [(1, 8), (1, 2), (3, 3), (16, 16)] {
        let of = shape(1, groups.max(3), [0, 5], filters, [3, 3]);
        let of = Convolution { groups, padding: [2; 4], ..of };
        let [input, weight, output] = of.lens();
        assert!(input == 0 && output > 0);
        let bias: Vec<f32> = (0..filters).map(|i| i as f32).collect();
        let mut got = vec![f32::NAN; output];
        forward(&of, &[], &vec![1.0; weight], &mut got, &Epilogue::bias(Some(&bias))).unwrap();
        assert!(got.iter().enumerate().all(|(i, &value)| value == (i / (output / filters)) as f32), "{got:?}");
    }
}

#[test]
fn random_shapes() {
    let mut random = Random(99);
    for _ in 0..400 {
        let groups = [1, 1, 2, 3][random.below(4)];
        let channels = groups * (1 + random.below(7));
        let filters = groups * (1 + random.below(9));
        let input = [1 + random.below(17), 1 + random.below(17)];
        let shape = Convolution {
            batch: 1 + random.below(3),
            channels,
            input,
            filters,
            kernel: [1 + random.below(5), 1 + random.below(5)],
            stride: [1 + random.below(3), 1 + random.below(3)],
            padding: [random.below(4), random.below(4), random.below(4), random.below(4)],
            dilation: [1 + random.below(3), 1 + random.below(3)],
            groups,
        };
        if !shape.output().contains(&0) {
            check(&shape, 1.0);
        }
    }
    check(&Convolution { stride: [2, 2], padding: [1; 4], ..shape(2, 3, [61, 95], 16, [3, 3]) }, 1.0);
    check(&Convolution { padding: [0, 0, 1, 1], ..shape(6, 480, [1, 40], 60, [1, 3]) }, 1.0);
    check(&Convolution { stride: [2, 2], ..shape(2, 24, [26, 34], 5, [2, 2]) }, 1.0);
}

/// Images whose padded copies are made in parts: one at a time, and in bands of rows.
#[test]
fn weight_gradients_of_large_images() {
    check(&Convolution { stride: [2, 1], ..shape(3, 20, [332, 331], 2, [1, 1]) }, 1.0);
    check(&Convolution { stride: [3, 2], padding: [1, 0, 2, 0], ..shape(1, 20, [461, 463], 1, [3, 2]) }, 1.0);
}

/// What is computed side by side does not reach each other's sums: an infinite number and NaN stay in their channels and filters.
#[test]
fn weight_gradients_keep_what_is_not_finite_to_its_channel() {
    for groups in [1, 37] {
        let of = Convolution { groups, padding: [1; 4], ..shape(2, 37, [5, 6], 74, [3, 3]) };
        let (mut random, [input_len, weight_len, output_len]) = (Random(5), of.lens());
        let (mut input, mut upstream) = (random.numbers(input_len, 1.0), random.numbers(output_len, 1.0));
        let gradient = |input: &[f32], upstream: &[f32]| {
            let mut gradient = vec![-1.0f32; weight_len];
            backward_filter(&of, input, upstream, &mut gradient).unwrap();
            gradient
        };
        let clean = gradient(&input, &upstream);
        // A pixel in the middle is read by every tap.
        input[(37 + 33) * 30 + 2 * 6 + 3] = f32::INFINITY;
        upstream[(74 + 2) * 30 + 2 * 6 + 3] = f32::NAN;
        let (own, each) = (37 / groups, 74 / groups);
        for (at, (got, clean)) in gradient(&input, &upstream).into_iter().zip(clean).enumerate() {
            let filter = at / 9 / own;
            let (channel, nan) = (filter / each * own + at / 9 % own, filter == 2);
            let same = if nan {
                got.is_nan()
            } else if channel == 33 {
                !got.is_finite()
            } else {
                got == clean
            };
            assert!(same, "groups {groups}, filter {filter}, channel {channel}, tap {}: {got}, {clean}", at % 9);
        }
    }
}
