//! Convolutions as products: what each output pixel reads is a column of a matrix, gathered in the order of the micro-kernel.
//!
//! Gathering writes each number of the input once for each tap, which many filters pay for: the product then shares itself out by filters as well as by
//! pixels, so that small images keep all threads and all lanes busy.

use super::shape::Convolution;
use super::window::{SLACK, Window};
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, at_level};
use crate::native::microkernel::{Channels, Terms, kernels};
use crate::native::product::{self, Goal, Operand, Product};
use crate::native::{Shared, scratch};
use crate::threads::{self, parallel_for};

/// Fewer filters than this do not pay for gathering.
const FEWEST_FILTERS: usize = 64;
/// With shorter columns than this, the first layer's of three channels, bands that are read in place are as fast.
const SHORTEST: usize = 256;
/// Numbers of the matrix at most, unless one row of pixels has more: half of them for each of two threads fit the second-level cache.
const MATRIX: usize = 512 << 10;

/// Whether [`run`] is the fastest way but for Winograd's.
pub(super) fn suits(shape: &Convolution) -> bool {
    let is_worth_it = || shape.kernel == [1, 1] || shape.depth() >= SHORTEST;
    shape.groups == 1 && shape.filters >= FEWEST_FILTERS && is_worth_it()
}

/// Numbers of the packed filters.
pub(super) fn packed_len(shape: &Convolution) -> usize {
    product::left_len(shape.filters, shape.depth())
}

/// Packs the filters as the left operand.
pub(super) fn pack(shape: &Convolution, weight: &[f32], packed: &mut [f32]) {
    let depth = shape.depth();
    assert_eq!(weight.len(), shape.filters * depth);
    // SAFETY: the weight has a row of `depth` numbers for each filter.
    unsafe {
        product::pack_left(
            kernels(),
            (shape.filters, depth),
            Operand::Strided(weight.as_ptr(), [depth as isize, 1]),
            1.0,
            packed,
        )
    };
}

/// The convolution with filters from [`pack`], some rows of pixels at a time.
pub(super) fn run(shape: &Convolution, input: &[f32], packed: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let [height, width] = shape.output();
    let (depth, image) = (shape.depth(), shape.channels * shape.input[0] * shape.input[1]);
    // As many equal bands as it takes.
    let most = (MATRIX / (depth * width)).clamp(1, height);
    let rows = height.div_ceil(height.div_ceil(most));
    let bands = height.div_ceil(rows);
    let (tasks, output) = (shape.batch * bands, Shared::new(output));
    let run = |from: usize, to: usize| {
        scratch::with(product::right_len(depth, rows * width), |matrix: &mut [f32]| {
            for task in from..to {
                let (i, first) = (task / bands, task % bands * rows);
                let rows = rows.min(height - first);
                let matrix = &mut matrix[..product::right_len(depth, rows * width)];
                gather(shape, &input[i * image..][..image], (first, rows), matrix);
                let index = i * shape.filters * height * width + first * width;
                let product = Product {
                    rows: shape.filters,
                    depth,
                    columns: rows * width,
                    terms: Terms::Singles,
                    left: Operand::Packed(packed),
                    right: Operand::Packed(matrix),
                    factor: 1.0,
                    goal: Goal::Memory { first: output.at(index), stride: height * width, accumulate: false },
                    epilogue: (!epilogue.is_identity()).then_some(epilogue),
                    channels: Channels::Rows(0),
                    index,
                };
                // SAFETY: both operands are packed with these sizes; nobody else has these rows of the planes of the output.
                unsafe { product.run() };
            }
        });
    };
    // Many bands are dealt out to the threads whole, few are shared out inside.
    if tasks >= 4 * threads::count() {
        parallel_for(tasks, shape.products() / tasks / 30 + 200, run);
    } else {
        run(0, tasks);
    }
}

/// What `rows` rows of output pixels of an image read, from row `first` on: a row of the matrix for each tap of each channel.
fn gather(shape: &Convolution, image: &[f32], (first, rows): (usize, usize), matrix: &mut [f32]) {
    let (plane, width) = (shape.input[0] * shape.input[1], shape.output()[1]);
    let taps = shape.kernel[0] * shape.kernel[1];
    let window = Window::new(shape, rows, 1);
    let offsets: Vec<usize> =
        (0..taps).map(|tap| window.offset(shape, tap / shape.kernel[1], tap % shape.kernel[1])).collect();
    let line = (rows * width).next_multiple_of(crate::native::microkernel::kernels().width) + SLACK;
    product::fill_right((shape.channels * taps, rows * width), taps, matrix, |channel, write| {
        scratch::with(window.channel + line + SLACK, |memory: &mut [f32]| {
            let (line, copy) = memory.split_at_mut(line);
            window.fill(shape, &image[channel * plane..][..plane], first, &mut copy[..window.channel]);
            for (tap, &offset) in offsets.iter().enumerate() {
                let size = (rows, width);
                let (from, pitch, to) = (copy[offset..].as_ptr(), window.pitch, line.as_mut_ptr());
                // SAFETY: from the offset on, the copy has `rows` lines of the window and its slack; the line has room for `rows * width` numbers and
                // a vector more.
                unsafe { at_level!(together(from: *const f32, pitch: usize, size: (usize, usize), to: *mut f32)) };
                line[rows * width..].fill(0.0);
                write(tap, line);
            }
        });
    });
}

/// The first `width` numbers of `rows` lines, one after the other. What a vector writes past a line's end, the next line overwrites.
#[inline(always)]
unsafe fn together<V: Lanes>(from: *const f32, pitch: usize, (rows, width): (usize, usize), to: *mut f32) {
    for row in 0..rows {
        for x in (0..width).step_by(V::N) {
            // SAFETY: the caller vouches for the lines and a vector more on both sides.
            unsafe { V::load(from.add(row * pitch + x)).store(to.add(row * width + x)) };
        }
    }
}
