//! The general convolution: the micro-kernel reads a padded copy of a band of the input through a table of taps.

use super::finish::finish_row;
use super::shape::Convolution;
use super::window::{SLACK, Window};
use crate::native::epilogue::Epilogue;
use crate::native::microkernel::{Block, Channels, LeftAt, RowsAt, SideBySide, kernels};
use crate::native::panels::Panels;
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Numbers in a band's copy of the input and in its sums that together fit the second-level cache.
const BAND: usize = 64 << 10;
/// Terms of a sum in one go, so that what a strip reads stays in the first-level cache.
const DEPTH: usize = 640;

/// A group's channels, cut to as many at a time as keep the depth in bounds, evenly.
#[derive(Clone, Copy)]
struct Cuts {
    channels: usize,
    count: usize,
}

impl Cuts {
    fn of(shape: &Convolution) -> Cuts {
        let channels = shape.channels / shape.groups;
        Cuts { channels, count: (channels * shape.kernel[0] * shape.kernel[1]).div_ceil(DEPTH).min(channels) }
    }

    /// The first channel of cut `i`, or their number when there is no such cut.
    fn start(self, i: usize) -> usize {
        i * self.channels / self.count
    }

    fn longest(self) -> usize {
        self.channels.div_ceil(self.count)
    }
}

/// Numbers of the packed filters.
pub(super) fn packed_len(shape: &Convolution) -> usize {
    let depth = shape.channels / shape.groups * shape.kernel[0] * shape.kernel[1];
    shape.groups * Panels::new(shape.filters / shape.groups).packed_len(depth)
}

/// Packs the filters: group by group, cut by cut, panel by panel.
pub(super) fn pack(shape: &Convolution, weight: &[f32], packed: &mut [f32]) {
    let (filters, taps, cuts) = (shape.filters / shape.groups, shape.kernel[0] * shape.kernel[1], Cuts::of(shape));
    let (panels, depth) = (Panels::new(filters), cuts.channels * taps);
    let per_group = panels.packed_len(depth);
    for group in 0..shape.groups {
        for i in 0..cuts.count {
            let (begin, end) = (cuts.start(i) * taps, cuts.start(i + 1) * taps);
            let to = &mut packed[group * per_group + begin * panels.count * panels.height..];
            let from = weight[group * filters * depth + begin..].as_ptr();
            // SAFETY: `from` is the first of `filters` rows of `depth` numbers, of which columns begin..end are read.
            unsafe { panels.pack((0, panels.count), from, (depth as isize, 1), end - begin, 1.0, to) };
        }
    }
}

/// The convolution with filters from [`pack`].
pub(super) fn run(shape: &Convolution, input: &[f32], packed: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let [out_height, out_width] = shape.output();
    let (own, filters) = (shape.channels / shape.groups, shape.filters / shape.groups);
    let taps = shape.kernel[0] * shape.kernel[1];
    let kernels = kernels();
    let (panels, cuts) = (Panels::new(filters), Cuts::of(shape));
    let most_channels = cuts.longest();

    let single = Window::new(shape, 1, 1);
    let row_cost = most_channels * single.channel / (1 + (shape.kernel[0] - 1) * shape.dilation[0] / shape.stride[0])
        + filters * single.pitch;
    let enough = (shape.batch * out_height).div_ceil(4 * crate::threads::count());
    let rows = (BAND / row_cost.max(1)).clamp(1, enough.clamp(1, 64)).min(out_height);
    let window = Window::new(shape, rows, 1);
    let bands = out_height.div_ceil(rows);
    let columns = rows * window.pitch;
    let out_stride = columns.next_multiple_of(kernels.width) + 16;

    let table: Vec<usize> = (0..most_channels * taps)
        .map(|k| {
            let (channel, tap) = (k / taps, k % taps);
            channel * window.channel + window.offset(shape, tap / shape.kernel[1], tap % shape.kernel[1])
        })
        .collect();
    let per_group = panels.packed_len(own * taps);
    let [height, width] = shape.input;

    let output = Shared::new(output);
    let table = &table;
    let ns = shape.products() / (shape.batch * bands) / 30;
    parallel_for(shape.batch * bands, ns, |from, to| {
        let copied = most_channels * window.channel + SLACK + kernels.width;
        scratch::with(copied + filters * out_stride, |memory: &mut [f32]| {
            let (copy, sums) = memory.split_at_mut(copied);
            window.clear_unused(most_channels, copy);
            for task in from..to {
                let (image, first) = (task / bands, task % bands * rows);
                let rows = rows.min(out_height - first);
                let columns = rows * window.pitch;
                for group in 0..shape.groups {
                    for i in 0..cuts.count {
                        let (begin, end) = (cuts.start(i), cuts.start(i + 1));
                        for channel in begin..end {
                            let plane = image * shape.channels + group * own + channel;
                            let plane = &input[plane * height * width..][..height * width];
                            let to = &mut copy[(channel - begin) * window.channel..][..window.channel];
                            window.fill(shape, plane, first, to);
                        }
                        let left = &packed[group * per_group + begin * taps * panels.count * panels.height..];
                        let depth = (end - begin) * taps;
                        for p in 0..panels.count {
                            let (row, last) = (panels.start(p), panels.start(p + 1));
                            let block = Block {
                                depth,
                                part: Block::PART,
                                left: left[p * panels.height * depth..].as_ptr(),
                                left_at: LeftAt::Packed,
                                right: copy.as_ptr(),
                                rows_at: RowsAt::Table(table.as_ptr()),
                                out: sums[row * out_stride..].as_mut_ptr(),
                                out_stride,
                                accumulate: i > 0,
                                epilogue: None,
                                channels: Channels::Rows(0),
                                index: 0,
                                ahead: Block::NOTHING,
                                tiles: SideBySide { count: columns.div_ceil(kernels.width), step: kernels.width },
                            };
                            // SAFETY: the table's offsets plus any column stay in the copy, whose slack covers the last
                            // block's unused lanes; the sums have whole blocks.
                            unsafe { kernels.run(&block, last - row, kernels.width) };
                        }
                    }
                    for filter in 0..filters {
                        let channel = group * filters + filter;
                        for row in 0..rows {
                            let at = ((image * shape.filters + channel) * out_height + first + row) * out_width;
                            let from = &sums[filter * out_stride + row * window.pitch..][..out_width];
                            // SAFETY: this task alone writes these rows.
                            let to = unsafe { output.part(at, out_width) };
                            finish_row(from, to, epilogue, channel, at);
                        }
                    }
                }
            }
        });
    });
}
