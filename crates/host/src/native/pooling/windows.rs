//! The windows of a pooling, and which of them are alike.

/// What a window is reduced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolingKind {
    /// The largest element; NaN if there is one.
    Max,
    /// The sum divided by the number of elements inside the input.
    Average,
    /// The sum divided by the number of elements of the window inside the padded input.
    AverageWithPadding,
}

/// The windows of one axis: output i reduces the elements from `begin` to `end`, of `size` with padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolingWindow {
    /// The first element.
    pub begin: usize,
    /// One past the last element.
    pub end: usize,
    /// How many elements there are when padding counts.
    pub size: usize,
}

impl PoolingWindow {
    /// Whether it is one of an axis of so many elements.
    pub(super) fn lies_in(&self, size: usize) -> bool {
        self.begin <= self.end && self.end <= size
    }
}

/// The windows of an axis with a kernel: `kernel` elements every `stride`, the input padded by `padding` on both ends.
pub fn strided_windows(
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    padding: [usize; 2],
) -> Vec<PoolingWindow> {
    (0..output)
        .map(|i| {
            let last = (i * stride + kernel).min(input + padding[0] + padding[1]);
            let begin = (i * stride).saturating_sub(padding[0]).min(input);
            let end = last.saturating_sub(padding[0]).clamp(begin, input);
            PoolingWindow { begin, end, size: last.saturating_sub(i * stride) }
        })
        .collect()
}

/// The windows that cut an axis into `output` parts of nearly equal size, which may overlap by one element.
pub fn adaptive_windows(input: usize, output: usize) -> Vec<PoolingWindow> {
    (0..output)
        .map(|i| {
            let (begin, end) = (i * input / output, ((i + 1) * input).div_ceil(output));
            PoolingWindow { begin, end, size: end - begin }
        })
        .collect()
}

/// By what a window's sum is divided.
#[inline(always)]
pub(super) fn divisor(kind: PoolingKind, row: &PoolingWindow, column: &PoolingWindow) -> usize {
    match kind {
        PoolingKind::AverageWithPadding => row.size * column.size,
        PoolingKind::Average | PoolingKind::Max => (row.end - row.begin) * (column.end - column.begin),
    }
}

/// The windows in the middle of an axis that are equally long, with padding, too, and equally far apart: all but those at the padding.
pub(super) struct Regular {
    /// Which windows.
    pub range: std::ops::Range<usize>,
    pub begin: usize,
    pub stride: usize,
    pub length: usize,
}

impl Regular {
    /// Longer windows are summed up by several sums each.
    const LONGEST: usize = 8;

    pub fn of(windows: &[PoolingWindow]) -> Regular {
        let len = |window: &PoolingWindow| window.end - window.begin;
        let length = windows.iter().map(len).max().unwrap_or(0);
        let none = Regular { range: 0..0, begin: 0, stride: 1, length: 0 };
        let Some(first) = windows.iter().position(|window| len(window) == length) else { return none };
        let Some(next) = windows.get(first + 1) else { return none };
        let (begin, stride) = (windows[first].begin, next.begin.saturating_sub(windows[first].begin));
        let size = windows[first].size;
        let is_next = |(k, window): &(usize, &PoolingWindow)| {
            len(window) == length && window.size == size && window.begin == begin + k * stride
        };
        let count = windows[first..].iter().enumerate().take_while(is_next).count();
        if stride == 0 || !(1..=Regular::LONGEST).contains(&length) {
            return none;
        }
        Regular { range: first..first + count, begin, stride, length }
    }

    /// Panics where so many of these windows leave a line of so many elements.
    pub fn assert_inside(&self, windows: usize, elements: usize) {
        let last = self.begin + windows.saturating_sub(1) * self.stride + self.length;
        assert!(windows == 0 || last <= elements, "a window leaves the line");
    }

    /// All other windows, of so many.
    pub fn others(&self, count: usize) -> impl Iterator<Item = usize> {
        (0..self.range.start).chain(self.range.end..count)
    }
}
