//! Convolutions (by the host's library), pooling and resizing of NCHW images.

use super::{Tensor, failed};
use crate::error::Result;
use crate::graph::Window;
use crate::graph::operation::Resize;
use openmps_host::native::Epilogue;
use openmps_host::native::convolution::{Convolution, TransposedConvolution, forward, transposed as spread};

fn narrow(tensor: &Tensor) -> Vec<f32> {
    tensor.data.iter().map(|&x| x as f32).collect()
}

fn sizes(image: &[usize], weight: &[usize], window: &Window, groups: usize) -> Convolution {
    Convolution {
        batch: image[0],
        channels: image[1],
        input: [image[2], image[3]],
        filters: weight[0],
        kernel: window.size,
        stride: window.strides,
        padding: [window.before[0], window.after[0], window.before[1], window.after[1]],
        dilation: window.dilations,
        groups,
    }
}

/// A convolution in groups.
pub fn convolution(inputs: &[&Tensor], window: &Window, groups: usize, shape: &[usize]) -> Result<Vec<f64>> {
    let of = sizes(&inputs[0].of.shape, &inputs[1].of.shape, window, groups);
    let mut out = vec![0.0; super::count(shape)];
    forward(&of, &narrow(inputs[0]), &narrow(inputs[1]), &mut out, &Epilogue::default()).map_err(failed)?;
    Ok(out.into_iter().map(f64::from).collect())
}

/// The transposed convolution: the gradient of the convolution that maps its result to its input.
pub fn transposed(inputs: &[&Tensor], window: &Window, groups: usize, shape: &[usize]) -> Result<Vec<f64>> {
    let of = TransposedConvolution { of: sizes(shape, &inputs[1].of.shape, window, groups) };
    let mut out = vec![0.0; super::count(shape)];
    spread(&of, &narrow(inputs[0]), &narrow(inputs[1]), &mut out, &Epilogue::default()).map_err(failed)?;
    Ok(out.into_iter().map(f64::from).collect())
}

/// What pooling keeps of a window.
#[derive(Clone, Copy)]
pub enum Kind {
    Largest,
    Mean { padding_counts: bool },
}

/// Pooling: `shape` says how often the window fits.
pub fn pool(x: &Tensor, window: &Window, shape: &[usize], kind: Kind) -> Vec<f64> {
    let [height, width] = [x.of.shape[2], x.of.shape[3]];
    let mut data = Vec::with_capacity(super::count(shape));
    for plane in x.data.chunks(height * width) {
        for (row, column) in (0..shape[2]).flat_map(|row| (0..shape[3]).map(move |column| (row, column))) {
            let axis = |axis: usize, at: usize, length: usize| {
                let taps =
                    (0..window.size[axis]).map(move |tap| at * window.strides[axis] + tap * window.dilations[axis]);
                // What hangs over the padded edge is no part of the window, even where padding counts.
                taps.filter(move |&place| place < length + window.before[axis] + window.after[axis])
            };
            let (mut largest, mut sum, mut inside, mut all) = (f64::NEG_INFINITY, 0.0, 0, 0);
            for y in axis(0, row, height) {
                for x in axis(1, column, width) {
                    all += 1;
                    let (y, x) = (y.wrapping_sub(window.before[0]), x.wrapping_sub(window.before[1]));
                    if y < height && x < width {
                        let value = plane[y * width + x];
                        largest = if value.is_nan() || largest.is_nan() { f64::NAN } else { largest.max(value) };
                        sum += value;
                        inside += 1;
                    }
                }
            }
            data.push(match kind {
                Kind::Largest => largest,
                Kind::Mean { padding_counts } => sum / f64::from(if padding_counts { all } else { inside }),
            });
        }
    }
    data
}

/// Another size: bilinear, or the nearest pixel, halves rounded up.
pub fn resize(x: &Tensor, resize: &Resize, shape: &[usize]) -> Vec<f64> {
    let [height, width] = [x.of.shape[2], x.of.shape[3]];
    // Places are float32, as the operator has them.
    let source = |at: usize, from: usize, to: usize| {
        let (at, from_length, to_length) = (at as f32, from as f32, to as f32);
        let place = if resize.align_corners {
            if to > 1 { at * ((from_length - 1.0) / (to_length - 1.0)) } else { 0.0 }
        } else if resize.center {
            (at + 0.5) * (from_length / to_length) - 0.5
        } else {
            at * (from_length / to_length)
        };
        f64::from(place.clamp(0.0, from_length - 1.0))
    };
    let mut data = Vec::with_capacity(super::count(shape));
    for plane in x.data.chunks(height * width) {
        for (row, column) in (0..shape[2]).flat_map(|row| (0..shape[3]).map(move |column| (row, column))) {
            let (y, x) = (source(row, height, shape[2]), source(column, width, shape[3]));
            if !resize.bilinear {
                let near = |place: f64, length: usize| ((place + 0.5).floor() as usize).min(length - 1);
                data.push(plane[near(y, height) * width + near(x, width)]);
                continue;
            }
            let (top, left) = (y.floor() as usize, x.floor() as usize);
            let (bottom, right) = ((top + 1).min(height - 1), (left + 1).min(width - 1));
            let (down, across) = (y - top as f64, x - left as f64);
            let line = |row: usize| plane[row * width + left] * (1.0 - across) + plane[row * width + right] * across;
            data.push(line(top) * (1.0 - down) + line(bottom) * down);
        }
    }
    data
}
