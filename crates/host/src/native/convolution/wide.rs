//! Convolutions of float64: products with a matrix that holds what each output pixel reads, a row for each tap of each channel.

use super::shape::Convolution;
use crate::Error;
use crate::native::matmul::{Matrices, MatrixProduct, matmul};
use crate::native::{Shared, scratch};
use crate::threads::{self, parallel_for};
use openmps_tile::DType;

/// Numbers of the matrix at most, unless one row of pixels has more: they stay in the second-level cache.
const MATRIX: usize = 64 << 10;

/// Some rows of pixels of one group of one image.
#[derive(Clone, Copy)]
struct Band {
    image: usize,
    group: usize,
    first: usize,
    rows: usize,
}

/// Pixels next to each other in a row of the matrix, and the first of the input's that they are.
struct Run {
    pixels: std::ops::Range<usize>,
    input: usize,
}

impl Convolution {
    /// Rows of pixels of one band.
    fn band_rows(&self) -> usize {
        let [height, width] = self.output();
        let most = (MATRIX / (self.depth() * width).max(1)).clamp(1, height.max(1));
        height.div_ceil(height.div_ceil(most).max(1)).max(1)
    }

    /// The bands of an image's group.
    fn bands(&self, image: usize, group: usize) -> impl Iterator<Item = Band> + use<> {
        let (height, most) = (self.output()[0], self.band_rows());
        (0..height).step_by(most).map(move |first| Band { image, group, first, rows: most.min(height - first) })
    }

    /// What a row of the matrix reads of the input; the other pixels read zeros around it.
    fn runs(&self, band: Band, row: usize, mut each: impl FnMut(Run)) {
        let (width, [input_height, input_width]) = (self.output()[1], self.input);
        let taps = self.kernel[0] * self.kernel[1];
        let (channel, tap) = (row / taps, row % taps);
        let plane = band.image * self.channels + band.group * (self.channels / self.groups) + channel;
        let shift = tap % self.kernel[1] * self.dilation[1];
        let begin = self.padding[2].saturating_sub(shift).div_ceil(self.stride[1]);
        let end = (input_width + self.padding[2]).saturating_sub(shift).div_ceil(self.stride[1]).min(width);
        for y in 0..band.rows {
            let v = (band.first + y) * self.stride[0] + tap / self.kernel[1] * self.dilation[0];
            if v >= self.padding[0] && v < self.padding[0] + input_height && begin < end {
                let input = (plane * input_height + v - self.padding[0]) * input_width;
                let input = input + begin * self.stride[1] + shift - self.padding[2];
                each(Run { pixels: y * width + begin..y * width + end, input });
            }
        }
    }

    /// Fills the matrix of a band.
    fn gather(&self, band: Band, input: &[f64], matrix: &mut [f64]) {
        let pixels = band.rows * self.output()[1];
        for (row, to) in matrix.chunks_exact_mut(pixels).enumerate() {
            to.fill(0.0);
            self.runs(band, row, |run| {
                let to = &mut to[run.pixels];
                match self.stride[1] {
                    1 => to.copy_from_slice(&input[run.input..][..to.len()]),
                    step => {
                        to.iter_mut().zip(input[run.input..].iter().step_by(step)).for_each(|(to, from)| *to = *from)
                    }
                }
            });
        }
    }

    /// The product of a band: filters by depth by pixels.
    fn product(&self, band: Band) -> MatrixProduct {
        let [height, width] = self.output();
        let dense = MatrixProduct::dense(self.filters / self.groups, self.depth(), band.rows * width);
        MatrixProduct { out: [(height * width) as isize, 1], ..dense }
    }

    /// The first of the output's numbers that a band has.
    fn first_output(&self, band: Band) -> usize {
        let [height, width] = self.output();
        let filter = band.image * self.filters + band.group * (self.filters / self.groups);
        filter * height * width + band.first * width
    }

    /// The first of the weight's numbers that a group has.
    fn first_weight(&self, group: usize) -> usize {
        group * (self.filters / self.groups) * self.depth()
    }

    fn with_matrix(&self, work: impl FnOnce(&mut [f64])) {
        scratch::with(self.depth() * self.band_rows() * self.output()[1], work);
    }
}

/// The address of element `index`.
fn address(of: &[f64], index: usize) -> usize {
    of.as_ptr().wrapping_add(index) as usize
}

/// # Safety
/// As [`matmul`], of float64.
unsafe fn multiply(product: &MatrixProduct, left: usize, right: usize, out: usize) {
    // SAFETY: the caller's promise.
    unsafe { matmul(product, DType::F64, Matrices { left, right, out }, &[[0; 3]]) }.expect("float64 is multiplied");
}

/// Many tasks are dealt out to the threads whole; the products of few are shared out inside.
fn deal(tasks: usize, products: usize, work: impl Fn(usize) + Sync) {
    if tasks >= 4 * threads::count() {
        parallel_for(tasks, products / tasks / 10 + 200, |from, to| (from..to).for_each(&work));
    } else {
        (0..tasks).for_each(work);
    }
}

/// [`super::forward`] for float64, without an epilogue.
pub fn forward_f64(of: &Convolution, input: &[f64], weight: &[f64], output: &mut [f64]) -> Result<(), Error> {
    of.check([input.len(), weight.len(), output.len()])?;
    let output = Shared::new(output);
    let bands: Vec<Band> =
        (0..of.batch * of.groups).flat_map(|task| of.bands(task / of.groups, task % of.groups)).collect();
    deal(bands.len(), of.products(), |task| {
        let band = bands[task];
        of.with_matrix(|matrix| {
            let product = of.product(band);
            let matrix = &mut matrix[..product.depth * product.columns];
            of.gather(band, input, matrix);
            let (left, right) = (address(weight, of.first_weight(band.group)), address(matrix, 0));
            // SAFETY: the group's filters, a row of `depth` numbers each; the matrix, a row of pixels for each of them; the band's rows of the planes of
            // the group's filters, which this task alone writes.
            unsafe { multiply(&product, left, right, output.at(of.first_output(band)) as usize) };
        });
    });
    Ok(())
}

/// [`super::transposed`] for float64, without an epilogue: `input` has the shape of `of`'s output.
pub fn transposed_f64(of: &Convolution, input: &[f64], weight: &[f64], output: &mut [f64]) -> Result<(), Error> {
    of.check([output.len(), weight.len(), input.len()])?;
    let channels = of.channels / of.groups;
    let plane = of.input[0] * of.input[1];
    let output = Shared::new(output);
    deal(of.batch * of.groups, of.products(), |task| {
        let (image, group) = (task / of.groups, task % of.groups);
        let first = (image * of.channels + group * channels) * plane;
        // SAFETY: this task alone writes these channels of this image.
        let own = unsafe { output.part(first, channels * plane) };
        own.fill(0.0);
        of.with_matrix(|matrix| {
            for band in of.bands(image, group) {
                let forward = of.product(band);
                let (depth, pixels) = (forward.depth, forward.columns);
                let dense = MatrixProduct::dense(depth, forward.rows, pixels);
                let product = MatrixProduct { left: [1, depth as isize], right: forward.out, ..dense };
                let matrix = &mut matrix[..depth * pixels];
                let (left, right) = (address(weight, of.first_weight(group)), address(input, of.first_output(band)));
                // SAFETY: the group's filters, read by columns; the band's rows of the planes that are its filters'; the matrix.
                unsafe { multiply(&product, left, right, matrix.as_mut_ptr() as usize) };
                for (row, from) in matrix.chunks_exact(pixels).enumerate() {
                    of.runs(band, row, |run| {
                        let to = own[run.input - first..].iter_mut().step_by(of.stride[1]);
                        to.zip(&from[run.pixels]).for_each(|(to, value)| *to += value);
                    });
                }
            }
        });
    });
    Ok(())
}

/// [`super::backward_filter`] for float64.
pub fn backward_filter_f64(
    of: &Convolution,
    input: &[f64],
    upstream: &[f64],
    gradient: &mut [f64],
) -> Result<(), Error> {
    of.check([input.len(), gradient.len(), upstream.len()])?;
    gradient.fill(0.0);
    let gradient = Shared::new(gradient);
    deal(of.groups, of.products(), |group| {
        of.with_matrix(|matrix| {
            for band in (0..of.batch).flat_map(|image| of.bands(image, group)) {
                let forward = of.product(band);
                let (depth, pixels) = (forward.depth, forward.columns);
                let matrix = &mut matrix[..depth * pixels];
                of.gather(band, input, matrix);
                let dense = MatrixProduct::dense(forward.rows, pixels, depth);
                let product = MatrixProduct { left: forward.out, right: [1, pixels as isize], beta: 1.0, ..dense };
                let (left, right) = (address(upstream, of.first_output(band)), address(matrix, 0));
                // SAFETY: the band's rows of the planes of the group's filters; the matrix, read by columns; the group's filters, which this task alone
                // writes.
                unsafe { multiply(&product, left, right, gradient.at(of.first_weight(group)) as usize) };
            }
        });
    });
    Ok(())
}
