//! Operations on volumes, as sums over what operators on images make of their planes.

use super::image::{layout, padding_algorithm, sizes};
use super::onnx::window::{Axis, convolution_along, halves, transposed_along};
use super::{Lowering, Table, Value, size_of, wrong};
use crate::error::{Error, Result};
use crate::program::Operation;
use openmps::operators::image::{ImageLayout, PaddingAlgorithm};
use openmps::operators::operators::convolution::Convolution;
use openmps::operators::operators::convolution_transpose::ConvolutionTranspose;
use openmps::operators::operators::pooling::{Pooling, PoolingType};

pub(super) const TABLE: Table = &[("conv3d", convolution), ("conv3d_transpose", transposed), ("pool3d", pool)];

/// Where channels are in a volume that has them last, and back.
const TO_FIRST: [i64; 5] = [0, 4, 1, 2, 3];
const TO_LAST: [i64; 5] = [0, 2, 3, 4, 1];

/// Three numbers, or one for all; ones where there are none.
fn three(operation: &Operation, name: &str) -> Result<[usize; 3]> {
    match sizes(operation, name)?.as_deref() {
        Some(&[all]) => Ok([all; 3]),
        Some(&[depth, height, width]) => Ok([depth, height, width]),
        None | Some([]) => Ok([1; 3]),
        Some(other) => Err(wrong(operation, format!("{name} of {other:?}"))),
    }
}

/// Elements before and behind each dimension.
fn borders(operation: &Operation) -> Result<[[usize; 2]; 3]> {
    match sizes(operation, "paddings")?.as_deref() {
        Some(&[front, back, top, bottom, left, right]) => Ok([[front, back], [top, bottom], [left, right]]),
        Some(&[depth, height, width]) => Ok([[depth; 2], [height; 2], [width; 2]]),
        Some(&[all]) => Ok([[all; 2]; 3]),
        None | Some([]) => Ok([[0; 2]; 3]),
        Some(other) => Err(wrong(operation, format!("paddings of {other:?}"))),
    }
}

/// The dimensions of a window of this size, with the paddings of an algorithm worked out.
fn axes(operation: &Operation, shape: &[usize], kernel: &[usize]) -> Result<[Axis; 3]> {
    let (&[_, _, depth, height, width], &[kernel_depth, kernel_height, kernel_width]) = (shape, kernel) else {
        return Err(wrong(operation, format!("a window of {kernel:?} over a volume of shape {shape:?}")));
    };
    let (sizes, kernel) = ([depth, height, width], [kernel_depth, kernel_height, kernel_width]);
    let (strides, dilations) = (three(operation, "strides")?, three(operation, "dilations")?);
    if [strides, dilations, kernel].concat().contains(&0) {
        return Err(wrong(operation, format!("a window of {kernel:?}, strides {strides:?}, dilations {dilations:?}")));
    }
    let (algorithm, borders) = (padding_algorithm(operation)?, borders(operation)?);
    Ok([0, 1, 2].map(|at| {
        let (size, kernel, stride) = (sizes[at], kernel[at], strides[at]);
        let axis = |dilation, padding| Axis { size, kernel, stride, dilation, padding };
        match algorithm {
            PaddingAlgorithm::Explicit => axis(dilations[at], borders[at]),
            PaddingAlgorithm::Valid => axis(dilations[at], [0; 2]),
            PaddingAlgorithm::Same => {
                let covered = (size.div_ceil(stride).max(1) - 1) * stride + kernel;
                axis(1, halves(covered.saturating_sub(size), true))
            }
        }
    }))
}

impl Lowering<'_> {
    /// An operation's volume with its channels as the second dimension.
    fn volume(&mut self, operation: &Operation) -> Result<Value> {
        let x = self.input(operation, 0)?;
        if layout(operation)? == ImageLayout::Nchw { Ok(x) } else { self.transpose(&x, &TO_FIRST) }
    }

    /// A volume as the operation's are laid out.
    fn laid_out(&mut self, operation: &Operation, y: Value) -> Result<Vec<Value>> {
        let y = if layout(operation)? == ImageLayout::Nchw { y } else { self.transpose(&y, &TO_LAST)? };
        Ok(vec![y])
    }

    /// The sum of what each plane of the filters makes of the planes that it meets.
    pub(super) fn volume_convolution(
        &mut self,
        of: &Convolution,
        depth: &Axis,
        x: &Value,
        weight: &Value,
    ) -> Result<Value> {
        let x = self.padded(x, 2, depth.padding, 0.0)?;
        let planes = depth.windows();
        let mut sum: Option<Value> = None;
        for tap in 0..depth.kernel {
            let met = self.every(&x, 2, tap * depth.dilation, depth.stride, planes)?;
            let filter = self.narrow(weight, 2, tap, tap + 1)?;
            let filter = self.without(&filter, &[2])?;
            let product = self.by_planes(&met, |lowering, planes| lowering.one(of.clone(), &[planes, filter]))?;
            sum = Some(self.added(sum, product)?);
        }
        sum.ok_or_else(|| Error::program("a filter of no planes"))
    }

    /// The sum of what each plane of the filters makes of all planes, each at its place, with `more` planes behind.
    pub(super) fn volume_transposed(
        &mut self,
        of: &ConvolutionTranspose,
        depth: &Axis,
        more: usize,
        x: &Value,
        weight: &Value,
    ) -> Result<Value> {
        let mut sum: Option<Value> = None;
        for tap in 0..depth.kernel {
            let filter = self.narrow(weight, 2, tap, tap + 1)?;
            let filter = self.without(&filter, &[2])?;
            let planes = self.by_planes(x, |lowering, planes| lowering.one(of.clone(), &[planes, filter]))?;
            // Planes of zeros between its own.
            let mut shape = self.shape(&planes)?;
            shape.insert(3, 1);
            let apart = self.reshape(&planes, &shape)?;
            let apart = self.padded(&apart, 3, [0, depth.stride - 1], 0.0)?;
            shape.remove(3);
            shape[2] *= depth.stride;
            let apart = self.reshape(&apart, &shape)?;
            let apart = self.narrow(&apart, 2, 0, shape[2].saturating_sub(depth.stride - 1))?;
            let place = [tap * depth.dilation, depth.reach() - 1 - tap * depth.dilation + more];
            let placed = self.padded(&apart, 2, place, 0.0)?;
            sum = Some(self.added(sum, placed)?);
        }
        let sum = sum.ok_or_else(|| Error::program("a filter of no planes"))?;
        let size = self.shape(&sum)?[2];
        self.narrow(&sum, 2, depth.padding[0], size.saturating_sub(depth.padding[1]))
    }

    /// What an operator on images makes of each plane of volumes, as volumes.
    fn by_planes(&mut self, x: &Value, of: impl FnOnce(&mut Self, Value) -> Result<Value>) -> Result<Value> {
        let x = self.transpose(x, &[0, 2, 1, 3, 4])?;
        let [batch, planes, channels, height, width] = <[usize; 5]>::try_from(self.shape(&x)?).unwrap_or_default();
        let images = self.reshape(&x, &[batch * planes, channels, height, width])?;
        let y = of(self, images)?;
        let [_, filters, height, width] = <[usize; 4]>::try_from(self.shape(&y)?).unwrap_or_default();
        let y = self.reshape(&y, &[batch, planes, filters, height, width])?;
        self.transpose(&y, &[0, 2, 1, 3, 4])
    }
}

fn convolution(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, weight) = (lowering.volume(operation)?, lowering.input(operation, 1)?);
    let (shape, filters) = (lowering.shape(&x)?, lowering.shape(&weight)?);
    let axes = axes(operation, &shape, filters.get(2..).unwrap_or_default())?;
    let of = convolution_along(&axes, size_of(operation, operation.integer("groups", 1)?)?);
    let y = lowering.volume_convolution(&of, &axes[0], &x, &weight)?;
    lowering.laid_out(operation, y)
}

fn transposed(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, weight) = (lowering.volume(operation)?, lowering.input(operation, 1)?);
    let (shape, filters) = (lowering.shape(&x)?, lowering.shape(&weight)?);
    let axes = axes(operation, &shape, filters.get(2..).unwrap_or_default())?;
    let asked = sizes(operation, "output_size")?.filter(|asked| !asked.is_empty());
    let more = match asked.as_deref() {
        None if sizes(operation, "output_padding")?.is_none_or(|sizes| sizes.is_empty()) => [0; 3],
        None => three(operation, "output_padding")?,
        Some(asked) => {
            let whole = |axis: &Axis| axis.stride * axis.size.saturating_sub(1) + axis.reach();
            let least = axes.each_ref().map(|axis| whole(axis).saturating_sub(axis.padding[0] + axis.padding[1]));
            let sizes = <[usize; 3]>::try_from(asked).ok();
            let more = sizes.filter(|asked| asked.iter().zip(least).all(|(&asked, least)| asked >= least));
            let more = more.ok_or_else(|| wrong(operation, format!("an output of {asked:?}, at least {least:?}")))?;
            [0, 1, 2].map(|at| more[at] - least[at])
        }
    };
    let of = transposed_along(&axes, size_of(operation, operation.integer("groups", 1)?)?, [more[1], more[2]]);
    let y = lowering.volume_transposed(&of, &axes[0], more[0], &x, &weight)?;
    lowering.laid_out(operation, y)
}

/// Windows of planes, then windows through them: largest and mean values of both are those of the whole.
fn pool(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.volume(operation)?;
    let shape = lowering.shape(&x)?;
    let &[batch, channels, depth, height, width] = &shape[..] else {
        return Err(wrong(operation, format!("a volume of shape {shape:?}")));
    };
    let kind = match operation.text("pooling_type", "max")? {
        "max" => PoolingType::Max,
        "avg" => PoolingType::Average,
        other => return Err(wrong(operation, format!("pooling of type {other}"))),
    };
    let (window, strides, [through, rows, columns]) =
        (three(operation, "kernel_size")?, three(operation, "strides")?, borders(operation)?);
    let of = Pooling {
        kind,
        kernel_size: [window[1], window[2]],
        strides: [strides[1], strides[2]],
        paddings: [rows, columns].concat(),
        padding_algorithm: padding_algorithm(operation)?,
        ceil_mode: operation.flag("ceil_mode", false)?,
        exclusive: operation.flag("exclusive", true)?,
        global: operation.flag("global_pooling", false)?,
        adaptive: operation.flag("adaptive", false)?,
        indices: false,
        layout: ImageLayout::Nchw,
    };
    let planes = lowering.reshape(&x, &[batch, channels * depth, height, width])?;
    let planes = lowering.one(of.clone(), &[planes])?;
    let [_, _, height, width] = <[usize; 4]>::try_from(lowering.shape(&planes)?).unwrap_or_default();
    let lines = lowering.reshape(&planes, &[batch, channels, depth, height * width])?;
    // The other dimension of these windows stays as it is.
    let rest = if of.adaptive { height * width } else { 1 };
    let of = Pooling {
        kernel_size: [window[0], rest],
        strides: [strides[0], 1],
        paddings: [through, [0; 2]].concat(),
        ..of
    };
    // A window over all is one over each line.
    let whole = Pooling {
        kernel_size: [depth, 1],
        strides: [1, 1],
        paddings: vec![0; 4],
        padding_algorithm: PaddingAlgorithm::Explicit,
        global: false,
        ..of.clone()
    };
    let of = if of.global { whole } else { of };
    let y = lowering.one(of, &[lines])?;
    let depth = lowering.shape(&y)?.get(2).copied().unwrap_or(0);
    let y = lowering.reshape(&y, &[batch, channels, depth, height, width])?;
    lowering.laid_out(operation, y)
}
