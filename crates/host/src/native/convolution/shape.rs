//! The sizes of a convolution.

use crate::Error;
use crate::native::elements;
use crate::native::product::shared_by_columns;
use crate::threads;

/// Rows or columns of an input with the zeros around it at most, and of what a filter reaches: sums of places are far from overflowing.
const LONGEST: usize = 1 << 40;

/// A two-dimensional convolution of `batch` images of `channels` x `height` x `width` (row-major, NCHW) with `filters` filters of
/// `channels / groups` x `kernel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Images.
    pub batch: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Channels of the output.
    pub filters: usize,
    /// Height and width of a filter.
    pub kernel: [usize; 2],
    /// Steps between outputs.
    pub stride: [usize; 2],
    /// Zeros around the input: top, bottom, left, right.
    pub padding: [usize; 4],
    /// Steps between taps of a filter.
    pub dilation: [usize; 2],
    /// Channels and filters are cut into this many independent groups.
    pub groups: usize,
}

impl Convolution {
    /// A convolution with filters of these sizes (filters, channels of a group, height, width), of which no more is known.
    pub(crate) fn filters([filters, channels, height, width]: [usize; 4], groups: usize) -> Convolution {
        Convolution {
            batch: 0,
            channels: channels.saturating_mul(groups),
            input: [0; 2],
            filters,
            kernel: [height, width],
            stride: [1; 2],
            padding: [0; 4],
            dilation: [1; 2],
            groups,
        }
    }

    /// Height and width of the output.
    pub fn output(&self) -> [usize; 2] {
        let size = |axis: usize| {
            let padded = self.with_padding(axis);
            let reach = self.reach(axis);
            if padded < reach { 0 } else { (padded - reach) / self.stride[axis] + 1 }
        };
        [size(0), size(1)]
    }

    /// Rows or columns of the input and of the zeros around it.
    fn with_padding(&self, axis: usize) -> usize {
        let [before, after] = [self.padding[2 * axis], self.padding[2 * axis + 1]];
        self.input[axis].saturating_add(before).saturating_add(after)
    }

    /// Rows of the output that a thread has of each plane in kernels that work on a plane at a time: where the products around such a convolution are
    /// shared out by pixels, so is this, so that a thread finds what it has written in its own cache.
    pub(crate) fn rows_of_a_thread(&self) -> usize {
        let [height, width] = self.output();
        let by_pixels = self.batch < threads::count() && shared_by_columns(height * width);
        if by_pixels { height.div_ceil(threads::count()) } else { height }
    }

    /// How far a filter reaches.
    pub(crate) fn reach(&self, axis: usize) -> usize {
        self.dilation[axis].saturating_mul(self.kernel[axis] - 1).saturating_add(1)
    }

    /// How far so many outputs reach, in the input with the zeros around it; at least one.
    pub fn padded(&self, axis: usize, outputs: usize) -> usize {
        (outputs - 1) * self.stride[axis] + self.reach(axis)
    }

    /// Elements of the input, the weight and the output.
    pub fn lens(&self) -> [usize; 3] {
        let [height, width] = self.output();
        [
            elements(&[self.batch, self.channels, self.input[0], self.input[1]]),
            elements(&[self.filters, self.channels / self.groups, self.kernel[0], self.kernel[1]]),
            elements(&[self.batch, self.filters, height, width]),
        ]
    }

    pub(crate) fn check(&self, lens: [usize; 3]) -> Result<(), Error> {
        let fail = |what: String| Err(Error::Invalid(format!("convolution: {what} in {self:?}")));
        if self.groups == 0 || !self.channels.is_multiple_of(self.groups) || !self.filters.is_multiple_of(self.groups) {
            return fail("groups do not divide channels and filters".into());
        }
        if self.kernel.contains(&0) || self.stride.contains(&0) || self.dilation.contains(&0) {
            return fail("a kernel size, stride or dilation is zero".into());
        }
        if (0..2).any(|axis| self.with_padding(axis).max(self.reach(axis)) > LONGEST) {
            return fail(format!("an axis with its padding, or a filter with its dilation, is longer than {LONGEST}"));
        }
        if lens != self.lens() {
            return fail(format!("input, weight and output have {lens:?} elements, expected {:?}", self.lens()));
        }
        Ok(())
    }

    pub(crate) fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0; 4]
    }

    pub(crate) fn is_depthwise(&self) -> bool {
        self.groups == self.channels && self.groups > 1
    }

    /// What one output is a sum of: the channels of a group times the taps of a filter.
    pub(crate) fn depth(&self) -> usize {
        self.channels / self.groups * self.kernel[0] * self.kernel[1]
    }

    /// Multiplications of the whole convolution, for estimates of time.
    pub(crate) fn products(&self) -> usize {
        let [height, width] = self.output();
        self.batch * self.filters * height * width * self.depth()
    }
}
