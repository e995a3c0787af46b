//! Planes of channels copied so that the channels of a pixel lie side by side.

use super::shape::Convolution;
use crate::native::transpose::transpose;

/// Some neighbouring channels of an image, and the numbers that a pixel of the copy has for them and others.
#[derive(Clone, Copy)]
pub(super) struct Pixels {
    pub image: usize,
    pub channel: usize,
    pub count: usize,
    pub lanes: usize,
}

impl Pixels {
    /// Writes row `row` of the padded input, as many columns of it as `to` has. Lanes without a channel keep what they hold, or are 0.
    pub fn padded_row(self, of: &Convolution, input: &[f32], row: usize, to: &mut [f32]) {
        let ([height, width], lanes) = (of.input, self.lanes);
        let columns = to.len() / lanes;
        let (begin, end) = (of.padding[2].min(columns), (of.padding[2] + width).min(columns));
        let y = row.wrapping_sub(of.padding[0]);
        if y >= height || begin == end {
            return to.fill(0.0);
        }
        to[..begin * lanes].fill(0.0);
        to[end * lanes..].fill(0.0);
        let from = &input[((self.image * of.channels + self.channel) * height + y) * width..];
        side_by_side(from, height * width, (self.count, lanes), &mut to[begin * lanes..end * lanes]);
    }
}

/// `to[x][c] = from[c * plane + x]` for `count` channels of `lanes`; the other lanes keep what they hold.
pub(super) fn side_by_side(from: &[f32], plane: usize, (count, lanes): (usize, usize), to: &mut [f32]) {
    let columns = to.len() / lanes;
    assert!((1..=lanes).contains(&count) && from.len() >= (count - 1) * plane + columns);
    // SAFETY: both sides hold these channels and columns.
    unsafe {
        let from = (from.as_ptr() as isize, 4 * plane as isize);
        let to = (to.as_mut_ptr() as isize, 4 * lanes as isize);
        transpose(4, false, (count, columns), to, from);
    }
}
