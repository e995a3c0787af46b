//! Windows that move over lines, images and volumes.

use crate::error::Result;
use crate::lower::{Lowering, Value, number_of, sizes_of, wrong};
use crate::program::Operation;
use openmps::operators::operators::convolution::Convolution;
use openmps::operators::operators::convolution_transpose::ConvolutionTranspose;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::pad::{Mode, Pad};
use openmps::operators::operators::slice::{Range, Slice};
use std::slice::from_ref;

/// One spatial dimension of a window that moves over an image.
#[derive(Clone, Copy, Debug)]
pub(in crate::lower) struct Axis {
    pub size: usize,
    pub kernel: usize,
    pub stride: usize,
    pub dilation: usize,
    /// Elements before and behind.
    pub padding: [usize; 2],
}

impl Axis {
    /// Elements from the first to behind the last one that a window covers.
    pub(in crate::lower) fn reach(&self) -> usize {
        self.dilation.saturating_mul(self.kernel.saturating_sub(1)).saturating_add(1)
    }

    pub(in crate::lower) fn padded_size(&self) -> usize {
        self.padding.iter().fold(self.size, |size, &more| size.saturating_add(more))
    }

    /// Whole windows.
    pub(in crate::lower) fn windows(&self) -> usize {
        self.padded_size().checked_sub(self.reach()).map_or(0, |rest| rest / self.stride + 1)
    }

    /// Windows of a pooling; with `ceil` a last one that is partly outside counts, unless it begins behind the image.
    pub(in crate::lower) fn outputs(&self, ceil: bool) -> usize {
        let rest = self.padded_size().checked_sub(self.reach());
        match rest {
            Some(rest) if ceil => {
                let windows = rest.div_ceil(self.stride) + 1;
                windows - usize::from((windows - 1) * self.stride >= self.size + self.padding[0])
            }
            _ => self.windows(),
        }
    }

    /// Elements of the image that a window takes.
    pub(in crate::lower) fn inside(&self, output: usize) -> usize {
        let own = |tap: usize| (output * self.stride + tap * self.dilation).checked_sub(self.padding[0]);
        (0..self.kernel).filter(|&tap| own(tap).is_some_and(|at| at < self.size)).count()
    }
}

/// The spatial dimensions of an operation's windows: strides, dilations and paddings, given or to be computed.
pub(in crate::lower) fn axes(operation: &Operation, sizes: &[usize], kernel: &[usize]) -> Result<Vec<Axis>> {
    let rank = sizes.len();
    let listed = |name: &str, default: usize, count: usize| -> Result<Vec<usize>> {
        let numbers = operation.integers(name)?.filter(|numbers| !numbers.is_empty());
        let numbers = numbers.map_or_else(|| Ok(vec![default; count]), |numbers| sizes_of(operation, numbers))?;
        if numbers.len() == count { Ok(numbers) } else { Err(wrong(operation, format!("{name} of {numbers:?}"))) }
    };
    if kernel.len() != rank {
        return Err(wrong(operation, format!("a window of {kernel:?} over {sizes:?}")));
    }
    let (strides, dilations) = (listed("strides", 1, rank)?, listed("dilations", 1, rank)?);
    let pads = listed("pads", 0, 2 * rank)?;
    if strides.contains(&0) || dilations.contains(&0) || kernel.contains(&0) {
        return Err(wrong(operation, format!("a window of {kernel:?}, strides {strides:?}, dilations {dilations:?}")));
    }
    let kind = operation.text("auto_pad", "NOTSET")?;
    let axis = |at: usize| {
        let padding = [pads[at], pads[rank + at]];
        let mut axis =
            Axis { size: sizes[at], kernel: kernel[at], stride: strides[at], dilation: dilations[at], padding };
        if kind != "NOTSET" {
            axis.padding = [0, 0];
        }
        if kind.starts_with("SAME") {
            let covered = (axis.size.div_ceil(axis.stride).max(1) - 1) * axis.stride + axis.reach();
            axis.padding = halves(covered.saturating_sub(axis.size), kind == "SAME_UPPER");
        }
        axis
    };
    Ok((0..rank).map(axis).collect())
}

/// A number in two parts, of which the second or the first has the odd one.
pub(in crate::lower) fn halves(whole: usize, upper: bool) -> [usize; 2] {
    let less = whole / 2;
    if upper { [less, whole - less] } else { [whole - less, less] }
}

/// Batch, channels, and at least one more dimension.
pub(in crate::lower) fn spatial<'s>(operation: &Operation, shape: &'s [usize]) -> Result<&'s [usize]> {
    match shape {
        [_, _, rest @ ..] if !rest.is_empty() => Ok(rest),
        _ => Err(wrong(operation, format!("an image of shape {shape:?}"))),
    }
}

/// Numbers of height and width: of a line, the height's are those of one row.
pub(in crate::lower) fn pair<T: Copy>(axes: &[Axis], of: impl Fn(&Axis) -> T, row: T) -> [T; 2] {
    match axes {
        [.., height, width] => [of(height), of(width)],
        [width] => [row, of(width)],
        [] => [row; 2],
    }
}

pub(in crate::lower) fn paddings(axes: &[Axis]) -> Vec<usize> {
    let [[top, bottom], [left, right]] = pair(axes, |axis| axis.padding, [0, 0]);
    vec![top, bottom, left, right]
}

/// The convolution along these axes, of images or of a volume's planes.
pub(in crate::lower) fn convolution_along(axes: &[Axis], groups: usize) -> Convolution {
    Convolution {
        strides: pair(axes, |axis| axis.stride, 1),
        paddings: paddings(axes),
        dilations: pair(axes, |axis| axis.dilation, 1),
        groups,
        ..Convolution::default()
    }
}

/// The same for a transposed one, with so many more rows and columns at the end.
pub(in crate::lower) fn transposed_along(
    axes: &[Axis],
    groups: usize,
    output_padding: [usize; 2],
) -> ConvolutionTranspose {
    ConvolutionTranspose {
        strides: pair(axes, |axis| axis.stride, 1),
        paddings: paddings(axes),
        dilations: pair(axes, |axis| axis.dilation, 1),
        groups,
        output_padding,
        ..ConvolutionTranspose::default()
    }
}

impl Lowering<'_> {
    /// A line as an image of one row; an image stays.
    pub(in crate::lower) fn as_image(&mut self, x: &Value) -> Result<Value> {
        let mut shape = self.shape(x)?;
        if shape.len() == 3 {
            shape.insert(2, 1);
        }
        self.reshape(x, &shape)
    }

    /// An image of one row as a line, where a line was given.
    pub(in crate::lower) fn like_given(&mut self, y: Value, rank: usize) -> Result<Value> {
        if rank == 3 { self.without(&y, &[2]) } else { Ok(y) }
    }

    /// A bias for each channel.
    pub(in crate::lower) fn with_bias(&mut self, operation: &Operation, y: Value) -> Result<Vec<Value>> {
        let Some(bias) = self.optional(operation, 2)? else { return Ok(vec![y]) };
        let bias = self.spread_along(&bias, &y, 1)?;
        Ok(vec![self.binary(Binary::Add, &y, &bias)?])
    }

    /// Every `stride`-th slice along an axis, `count` of them.
    pub(in crate::lower) fn every(
        &mut self,
        x: &Value,
        axis: usize,
        start: usize,
        stride: usize,
        count: usize,
    ) -> Result<Value> {
        let end = (start + stride * count.saturating_sub(1) + usize::from(count > 0)) as i64;
        let range = Range { axis: axis as i64, start: start as i64, end, step: stride as i64 };
        self.one(Slice { ranges: vec![range] }, from_ref(x))
    }

    /// More elements of one value along an axis.
    pub(in crate::lower) fn padded(
        &mut self,
        x: &Value,
        axis: usize,
        [before, behind]: [usize; 2],
        number: f64,
    ) -> Result<Value> {
        if [before, behind] == [0, 0] {
            return Ok(x.clone());
        }
        let mut paddings = vec![(0, 0); self.shape(x)?.len()];
        paddings[axis] = (before as i64, behind as i64);
        self.one(Pad { paddings, mode: Mode::Constant, value: number_of(self.data_type(x)?, number) }, from_ref(x))
    }
}
