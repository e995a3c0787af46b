//! Convolutions whose outputs are one column, as those over the words of a text are whose filters are as wide as the words' vectors: neighbours in memory
//! are the taps of one output there, and not what a register can hold of several. With rows and columns exchanged the outputs are one row.

use super::shape::Convolution;
use super::summed;
use crate::native::copy::copy;
use crate::native::epilogue::Epilogue;
use crate::native::memory::{Memory, dense_strides};
use crate::native::scratch;

/// Shorter columns than this are gathered, or as fast as they are.
const SHORTEST: usize = 16;

/// Whether this convolution is the faster one with rows and columns exchanged.
pub(super) fn suits(shape: &Convolution) -> bool {
    let [height, width] = shape.output();
    let is_column = width == 1 && height >= SHORTEST && !shape.lens().contains(&0);
    is_column && !shape.is_pointwise() && !shape.is_depthwise()
}

/// The output, which lies in memory as that of the exchanged convolution.
pub(super) fn forward(shape: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    scratch::with(input.len() + weight.len(), |memory: &mut [f32]| {
        let (images, filters) = memory.split_at_mut(input.len());
        turn(input, shape.input, images);
        turn(weight, shape.kernel, filters);
        summed(&exchanged(shape), images, filters, output, epilogue);
    });
}

fn exchanged(shape: &Convolution) -> Convolution {
    let exchange = |[rows, columns]: [usize; 2]| [columns, rows];
    let [top, bottom, left, right] = shape.padding;
    Convolution {
        input: exchange(shape.input),
        kernel: exchange(shape.kernel),
        stride: exchange(shape.stride),
        padding: [left, right, top, bottom],
        dilation: exchange(shape.dilation),
        ..*shape
    }
}

/// Exchanges the rows and columns of each plane.
fn turn(from: &[f32], [rows, columns]: [usize; 2], to: &mut [f32]) {
    let plane = rows * columns;
    let dims = [from.len() / plane, columns, rows];
    let (dense, exchanged) = (dense_strides(&dims), [plane, 1, columns].map(|stride| stride as isize));
    let to = Memory::new(to.as_mut_ptr() as usize, &dense[..dims.len()]);
    let from = Memory::new(from.as_ptr() as usize, &exchanged);
    // SAFETY: both hold the numbers of all planes, each of which the strides reach once; the one is written by nobody else.
    unsafe { copy(size_of::<f32>(), &dims, to, from) };
}
