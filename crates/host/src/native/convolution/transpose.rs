//! Transposed convolutions: also the gradient of a convolution with respect to its input.

use super::adjoint::Adjoint;
use super::finish::finish_row;
use super::rows;
use super::shape::Convolution;
use crate::Error;
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, at_level};
use crate::native::microkernel::{Channels, Terms, kernels};
use crate::native::product::{self, Goal, Operand, Product};
use crate::native::{Shared, scratch};
use crate::threads::{self, parallel_for};

/// A transposed convolution: the map from outputs to inputs of the convolution `of`, whose `filters` are this one's input channels
/// and whose `channels` are its output channels. The weight is laid out as in `of`: (filters, channels / groups, kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransposedConvolution {
    /// The convolution that this one reverses; `of.input` is this one's output size.
    pub of: Convolution,
}

/// Spreads `input` (batch, of.filters, of.output()) over `output` (batch, of.channels, of.input), dense float32.
pub fn transposed(
    shape: &TransposedConvolution,
    input: &[f32],
    weight: &[f32],
    output: &mut [f32],
    epilogue: &Epilogue,
) -> Result<(), Error> {
    let of = &shape.of;
    of.check([output.len(), weight.len(), input.len()])?;
    let fits = |channels: Option<&[f32]>| channels.is_none_or(|c| c.len() == of.channels);
    if !fits(epilogue.scale) || !fits(epilogue.bias) || epilogue.residual.is_some_and(|r| r.len() != output.len()) {
        return Err(Error::Invalid(format!("transposed convolution: scale, bias or residual do not fit {of:?}")));
    }
    if output.is_empty() {
        return Ok(());
    }
    if weight.is_empty() {
        // Sums of nothing.
        let plane = of.input[0] * of.input[1];
        let zeros = vec![0.0; plane];
        for (at, to) in output.chunks_exact_mut(plane).enumerate() {
            finish_row(&zeros, to, epilogue, at % of.channels, at * plane);
        }
        return Ok(());
    }
    if rows::suits(of) && epilogue.is_identity() {
        rows::input_gradient(of, input, weight, output);
        return Ok(());
    }
    if let Some(adjoint) = Adjoint::of(of) {
        adjoint.run(input, weight, output, epilogue);
        return Ok(());
    }
    let [height, width] = of.output();
    let disjoint = of.stride == of.kernel && of.padding == [0; 4] && of.dilation == [1, 1];
    if disjoint && of.input == [height * of.stride[0], width * of.stride[1]] {
        spread_disjoint(of, input, weight, output, epilogue);
    } else {
        spread(of, input, weight, output, epilogue);
    }
    Ok(())
}

/// Packs the transposed weight of `group`: a row for each (channel, tap), a column for each filter.
fn pack(of: &Convolution, weight: &[f32], group: usize, packed: &mut [f32]) {
    let (channels, filters) = (of.channels / of.groups, of.filters / of.groups);
    let rows = channels * of.kernel[0] * of.kernel[1];
    let from = weight[group * filters * rows..].as_ptr();
    // SAFETY: the group's weight is `filters` rows of `rows` numbers.
    unsafe { product::pack_left(kernels(), (rows, filters), Operand::Strided(from, [1, rows as isize]), 1.0, packed) };
}

/// Kernel and stride equal: every input pixel has a block of the output to itself.
fn spread_disjoint(of: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let [height, width] = of.output();
    let [kernel_height, kernel_width] = of.kernel;
    let (channels, filters) = (of.channels / of.groups, of.filters / of.groups);
    let taps = kernel_height * kernel_width;
    let pixels = height * width;
    let per_group = product::left_len(channels * taps, filters);
    scratch::with(per_group * of.groups, |packed: &mut [f32]| {
        for group in 0..of.groups {
            pack(of, weight, group, &mut packed[group * per_group..][..per_group]);
        }
        let packed = &*packed;
        let output = Shared::new(output);
        // Rows at a time, so that the products stay in the second-level cache.
        let rows = ((32 << 10) / (width * channels * taps).max(1)).clamp(1, height);
        let bands = height.div_ceil(rows);
        let columns = rows * width;
        let padded = columns.next_multiple_of(kernels().width);
        let ns = columns * filters * channels * taps / 30 + 100;
        parallel_for(of.batch * of.groups * bands, ns, |from, to| {
            let sums_len = padded * channels * taps;
            let line_len = width * kernel_width;
            scratch::with(sums_len + line_len, |memory: &mut [f32]| {
                let (sums, line) = memory.split_at_mut(sums_len);
                for task in from..to {
                    let (image, first) = (task / bands, task % bands * rows);
                    let (batch, group) = (image / of.groups, image % of.groups);
                    let rows = rows.min(height - first);
                    let right = input[(batch * of.filters + group * filters) * pixels + first * width..].as_ptr();
                    let product = Product {
                        rows: channels * taps,
                        depth: filters,
                        columns: rows * width,
                        terms: Terms::Singles,
                        left: Operand::Packed(&packed[group * per_group..][..per_group]),
                        right: Operand::Strided(right, [pixels as isize, 1]),
                        factor: 1.0,
                        goal: Goal::Memory { first: sums.as_mut_ptr(), stride: padded, accumulate: false },
                        epilogue: None,
                        channels: Channels::Rows(0),
                        index: 0,
                    };
                    // SAFETY: the rows lie in the input; `sums` belongs to this task.
                    unsafe { product.run() };
                    for channel in 0..channels {
                        let own = group * channels + channel;
                        for y in 0..rows * kernel_height {
                            let (row, i) = (y / kernel_height, y % kernel_height);
                            let at = ((batch * of.channels + own) * of.input[0] + first * kernel_height + y) * line_len;
                            let tap = |j: usize| {
                                &sums[((channel * kernel_height + i) * kernel_width + j) * padded + row * width..]
                                    [..width]
                            };
                            interleave(kernel_width, tap, line);
                            // SAFETY: this task alone writes these rows.
                            let to = unsafe { output.part(at, line_len) };
                            finish_row(line, to, epilogue, own, at);
                        }
                    }
                }
            });
        });
    });
}

/// `line[x * count + j] = row(j)[x]`.
fn interleave<'a>(count: usize, row: impl Fn(usize) -> &'a [f32], line: &mut [f32]) {
    if count == 2 {
        let (a, b) = (row(0), row(1));
        let len = a.len().min(b.len()).min(line.len() / 2);
        let (a, b, line) = (a.as_ptr(), b.as_ptr(), line.as_mut_ptr());
        // SAFETY: both rows have `len` numbers and the line twice as many.
        return unsafe { at_level!(zip(a: *const f32, b: *const f32, line: *mut f32, len: usize)) };
    }
    for j in 0..count {
        for (to, value) in line[j..].iter_mut().step_by(count).zip(row(j)) {
            *to = *value;
        }
    }
}

#[inline(always)]
unsafe fn zip<V: Lanes>(a: *const f32, b: *const f32, line: *mut f32, len: usize) {
    let mut x = 0;
    // SAFETY: the caller vouches for `len` numbers of both rows and twice as many of the line.
    unsafe {
        while x + V::N <= len {
            V::store_by_2([V::load(a.add(x)), V::load(b.add(x))], line.add(2 * x));
            x += V::N;
        }
        while x < len {
            *line.add(2 * x) = *a.add(x);
            *line.add(2 * x + 1) = *b.add(x);
            x += 1;
        }
    }
}

/// The outputs that tap `tap` of a row reads or writes: `(first output, one past the last, position of the first)`.
fn reach(of: &Convolution, axis: usize, tap: usize) -> (usize, usize, usize) {
    let (stride, padding) = (of.stride[axis], of.padding[2 * axis]);
    let shift = tap * of.dilation[axis];
    let begin = padding.saturating_sub(shift).div_ceil(stride);
    let end = (of.input[axis] + padding).saturating_sub(shift).div_ceil(stride).min(of.output()[axis]);
    let begin = begin.min(end);
    (begin, end, (begin * stride + shift).saturating_sub(padding))
}

/// The general case: a product gives every tap's contribution, which is then added where it belongs. Small images are taken together.
fn spread(of: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let pixels = of.output().iter().product::<usize>();
    let channels = of.channels / of.groups;
    let images = (TOGETHER / pixels.max(1)).clamp(1, of.batch);
    let parts = of.batch.div_ceil(images);
    // A few channels at a time bound the memory for contributions, and are enough tasks for the threads.
    let enough = (of.groups * parts * channels).div_ceil(4 * threads::count());
    let taps = of.kernel[0] * of.kernel[1];
    let some = (CONTRIBUTIONS / (taps * images * pixels).max(1)).min(enough).clamp(1, channels);
    let cuts = channels.div_ceil(some);
    let shifts = Shifts::of(of, images);
    let job = Spread { of, input, weight, output: Shared::new(output), epilogue, images, some, shifts };
    let ns = some * taps * images * pixels * (of.filters / of.groups) / 30 + 200;
    parallel_for(parts * of.groups * cuts, ns, |from, to| {
        scratch::with(job.sizes().iter().sum(), |memory: &mut [f32]| {
            for task in from..to {
                let (part, begin) = (task / cuts, task % cuts * some);
                job.run(part / of.groups * images, part % of.groups, begin, memory);
            }
        });
    });
}

/// Columns of a product at least, if there are so many images: packing the weight is worth it.
const TOGETHER: usize = 256;
/// Contributions of one task.
const CONTRIBUTIONS: usize = 1 << 18;

struct Spread<'a> {
    of: &'a Convolution,
    input: &'a [f32],
    weight: &'a [f32],
    output: Shared<f32>,
    epilogue: &'a Epilogue<'a>,
    /// Images and channels of a task.
    images: usize,
    some: usize,
    shifts: Option<Shifts>,
}

/// How contributions lie to the planes that they are added to, where both have one size: a tap's are shifted by one distance, all images' at once.
struct Shifts {
    /// By tap: how far, and a mask for each contribution, without bits where it belongs outside of its plane.
    taps: Vec<(isize, Vec<u32>)>,
}

impl Shifts {
    fn of(of: &Convolution, images: usize) -> Option<Shifts> {
        let [height, width] = of.input;
        if of.stride != [1, 1] || of.output() != of.input {
            return None;
        }
        let tap = |tap: usize| {
            let at = |axis: usize, tap: usize| (tap * of.dilation[axis]) as isize - of.padding[2 * axis] as isize;
            let (down, along) = (at(0, tap / of.kernel[1]), at(1, tap % of.kernel[1]));
            let is_inside = |x: usize, by: isize, size: usize| x.checked_add_signed(by).is_some_and(|x| x < size);
            let mask = |i: usize| {
                let (y, x) = (i / width % height, i % width);
                if is_inside(y, down, height) && is_inside(x, along, width) { u32::MAX } else { 0 }
            };
            (down * width as isize + along, (0..images * height * width).map(mask).collect())
        };
        Some(Shifts { taps: (0..of.kernel[0] * of.kernel[1]).map(tap).collect() })
    }

    /// Adds every tap's contributions to the planes of one channel, image after image.
    fn add_up<'a>(&self, contributions: impl Fn(usize) -> &'a [f32], sums: &mut [f32]) {
        sums.fill(0.0);
        for (tap, (shift, masks)) in self.taps.iter().enumerate() {
            // Contributions that would be added before the first plane, or behind the last one, are masked.
            let (before, behind) = (shift.min(&0).unsigned_abs(), shift.max(&0).unsigned_abs());
            let from = contributions(tap).iter().zip(masks).skip(before);
            for (sum, (value, mask)) in sums.iter_mut().skip(behind).zip(from) {
                *sum += f32::from_bits(value.to_bits() & mask);
            }
        }
    }
}

impl Spread<'_> {
    /// Columns of the product, in whole blocks.
    fn columns(&self) -> usize {
        (self.images * self.of.output().iter().product::<usize>()).next_multiple_of(kernels().width)
    }

    /// Elements of the packed weight, the gathered input, the contributions, and the sums of a channel.
    fn sizes(&self) -> [usize; 4] {
        let (of, columns) = (self.of, self.columns());
        let filters = of.filters / of.groups;
        let rows = self.some * of.kernel[0] * of.kernel[1];
        let gathered = if self.images > 1 { filters * columns } else { 0 };
        [product::left_len(rows, filters), gathered, rows * columns, self.images * of.input[0] * of.input[1]]
    }

    /// Some channels from `begin` on of a group, of some images from `image` on.
    fn run(&self, image: usize, group: usize, begin: usize, memory: &mut [f32]) {
        let (of, [packed, gathered, sums, _]) = (self.of, self.sizes());
        let (packed, rest) = memory.split_at_mut(packed);
        let (gathered, rest) = rest.split_at_mut(gathered);
        let (sums, sum) = rest.split_at_mut(sums);
        let (channels, filters) = (of.channels / of.groups, of.filters / of.groups);
        let pixels = of.output().iter().product::<usize>();
        let taps = of.kernel[0] * of.kernel[1];
        let (count, images) = (self.some.min(channels - begin), self.images.min(of.batch - image));
        if filters > 0 && pixels > 0 {
            let left = self.weight[(group * filters * channels + begin) * taps..].as_ptr();
            // SAFETY: columns of the group's weight, `filters` rows of `channels * taps` numbers.
            unsafe {
                let strides = [1, (channels * taps) as isize];
                product::pack_left(kernels(), (count * taps, filters), Operand::Strided(left, strides), 1.0, packed);
            }
            let first = |image: usize| &self.input[(image * of.filters + group * filters) * pixels..];
            for own in (0..images).filter(|_| self.images > 1) {
                let lines = gathered.chunks_exact_mut(self.columns()).zip(first(image + own).chunks_exact(pixels));
                lines.take(filters).for_each(|(to, from)| to[own * pixels..][..pixels].copy_from_slice(from));
            }
            let (right, stride) =
                if self.images > 1 { (gathered.as_ptr(), self.columns()) } else { (first(image).as_ptr(), pixels) };
            let product = Product {
                rows: count * taps,
                depth: filters,
                columns: images * pixels,
                terms: Terms::Singles,
                left: Operand::Packed(packed),
                right: Operand::Strided(right, [stride as isize, 1]),
                factor: 1.0,
                goal: Goal::Memory { first: sums.as_mut_ptr(), stride: self.columns(), accumulate: false },
                epilogue: None,
                channels: Channels::Rows(0),
                index: 0,
            };
            // SAFETY: the planes lie in the input or its copy; `sums` belongs to this task.
            unsafe { product.run() };
        }
        let plane = of.input[0] * of.input[1];
        for channel in 0..count {
            let contributions = |tap: usize| &sums[(channel * taps + tap) * self.columns()..][..images * pixels];
            if let Some(shifts) = &self.shifts {
                shifts.add_up(contributions, &mut sum[..images * plane]);
            } else {
                for (own, sum) in sum.chunks_exact_mut(plane).take(images).enumerate() {
                    self.add_up(|tap| &contributions(tap)[own * pixels..][..pixels], sum);
                }
            }
            let channel = group * channels + begin + channel;
            for (own, sum) in sum.chunks_exact(plane).take(images).enumerate() {
                let at = ((image + own) * of.channels + channel) * plane;
                // SAFETY: this task alone writes this plane.
                let to = unsafe { self.output.part(at, plane) };
                finish_row(sum, to, self.epilogue, channel, at);
            }
        }
    }

    /// Adds every tap's contributions to a plane where they belong.
    fn add_up<'a>(&self, contributions: impl Fn(usize) -> &'a [f32], sum: &mut [f32]) {
        let (of, width, out_width) = (self.of, self.of.output()[1], self.of.input[1]);
        sum.fill(0.0);
        for tap in 0..of.kernel[0] * of.kernel[1] {
            let (y_begin, y_end, y_first) = reach(of, 0, tap / of.kernel[1]);
            let (x_begin, x_end, x_first) = reach(of, 1, tap % of.kernel[1]);
            let from = contributions(tap);
            for y in (y_begin..y_end).filter(|_| x_begin < x_end) {
                let from = &from[y * width..][x_begin..x_end];
                let row = &mut sum[(y_first + (y - y_begin) * of.stride[0]) * out_width..][..out_width];
                if of.stride[1] == 1 {
                    row[x_first..].iter_mut().zip(from).for_each(|(to, value)| *to += value);
                } else {
                    let to = row[x_first..].iter_mut().step_by(of.stride[1]);
                    to.zip(from).for_each(|(to, value)| *to += value);
                }
            }
        }
    }
}
