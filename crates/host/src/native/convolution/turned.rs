//! Convolutions whose outputs are one column, as those over the words of a text are whose filters are as wide as the words' vectors: neighbours in memory
//! are the taps of one output there, and not what a register can hold of several. With rows and columns exchanged the outputs are one row.

use super::shape::Convolution;
use super::summed;
use crate::native::epilogue::Epilogue;
use crate::native::transpose::transpose;
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

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
    let (plane, to) = (rows * columns, Shared::new(to));
    parallel_for(from.len() / plane, plane / 2 + 1, |begin, end| {
        for (from, number) in from[begin * plane..end * plane].chunks_exact(plane).zip(begin..) {
            // SAFETY: this task alone writes this plane; both sides hold as many numbers.
            unsafe {
                let to = to.part(number * plane, plane).as_mut_ptr() as isize;
                let of = size_of::<f32>() as isize;
                let (to, from) = ((to, rows as isize * of), (from.as_ptr() as isize, columns as isize * of));
                transpose(size_of::<f32>(), false, (rows, columns), to, from);
            }
        }
    });
}
