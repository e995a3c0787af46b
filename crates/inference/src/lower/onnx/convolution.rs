//! Convolutions and transposed ones. Lines are images of one row; volumes are computed plane by plane.

use super::window::{Axis, axes, halves, paddings, pair, spatial};
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, size_of, sizes_of, wrong};
use crate::program::Operation;
use openmps::operators::Operator;
use openmps::operators::image::{ImageLayout, PaddingAlgorithm};
use openmps::operators::operators::convolution::{Convolution, Fused};
use openmps::operators::operators::convolution_transpose::ConvolutionTranspose;

pub(super) const TABLE: Table = &[("Conv", convolution), ("ConvTranspose", transposed)];

fn convolution(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, weight) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let y = lowering.convolution(operation, &x, &weight)?;
    lowering.with_bias(operation, y)
}

impl Lowering<'_> {
    /// An operation's convolution of these, without a bias.
    pub(super) fn convolution(&mut self, operation: &Operation, x: &Value, weight: &Value) -> Result<Value> {
        let (shape, filters) = (self.shape(x)?, self.shape(weight)?);
        let axes = axes(operation, spatial(operation, &shape)?, spatial(operation, &filters)?)?;
        let of = Convolution {
            strides: pair(&axes, |axis| axis.stride, 1),
            paddings: paddings(&axes),
            padding_algorithm: PaddingAlgorithm::Explicit,
            dilations: pair(&axes, |axis| axis.dilation, 1),
            groups: size_of(operation, operation.integer("group", 1)?)?,
            layout: ImageLayout::Nchw,
            fused: Fused::default(),
        };
        match &axes[..] {
            [_] | [_, _] => self.on_images(of, x, weight),
            [depth, _, _] => self.volume_convolution(&of, depth, x, weight),
            _ => Err(wrong(operation, format!("an image of shape {shape:?}"))),
        }
    }

    /// What an operator makes of lines or images.
    fn on_images(&mut self, of: impl Operator, x: &Value, weight: &Value) -> Result<Value> {
        let rank = self.shape(x)?.len();
        let inputs = [self.as_image(x)?, self.as_image(weight)?];
        let y = self.one(of, &inputs)?;
        self.like_given(y, rank)
    }

    /// The sum of what each plane of the filters makes of the planes that it meets.
    fn volume_convolution(&mut self, of: &Convolution, depth: &Axis, x: &Value, weight: &Value) -> Result<Value> {
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
        sum.ok_or_else(|| crate::Error::program("a filter of no planes"))
    }
}

fn transposed(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, weight) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let (shape, filters) = (lowering.shape(&x)?, lowering.shape(&weight)?);
    let sizes = spatial(operation, &shape)?;
    let mut axes = axes(operation, sizes, spatial(operation, &filters)?)?;
    let mut more = vec![0; axes.len()];
    if let Some(listed) = operation.integers("output_padding")?.filter(|listed| listed.len() == axes.len()) {
        more = sizes_of(operation, listed)?;
    }
    let asked = operation.integers("output_shape")?.filter(|asked| !asked.is_empty());
    let asked = asked.map(|asked| sizes_of(operation, asked.into_iter().rev().take(axes.len()).rev())).transpose()?;
    let kind = operation.text("auto_pad", "NOTSET")?;
    for (at, axis) in axes.iter_mut().enumerate() {
        let size = match (&asked, kind.starts_with("SAME")) {
            (Some(asked), _) => asked.get(at).copied().unwrap_or(0),
            (None, true) => axis.size * axis.stride,
            (None, false) => continue,
        };
        let whole = axis.stride * axis.size.saturating_sub(1) + more[at] + axis.reach();
        axis.padding = halves(whole.saturating_sub(size), kind == "SAME_UPPER");
        // More than there is, is added behind.
        more[at] += size.saturating_sub(whole);
    }
    let of = ConvolutionTranspose {
        strides: pair(&axes, |axis| axis.stride, 1),
        paddings: paddings(&axes),
        padding_algorithm: PaddingAlgorithm::Explicit,
        dilations: pair(&axes, |axis| axis.dilation, 1),
        groups: size_of(operation, operation.integer("group", 1)?)?,
        output_padding: match more[..] {
            [.., height, width] => [height, width],
            [width] => [0, width],
            [] => [0, 0],
        },
        output_size: None,
        layout: ImageLayout::Nchw,
        fused: Fused::default(),
    };
    let y = match &axes[..] {
        [_] | [_, _] => lowering.on_images(of, &x, &weight)?,
        [depth, _, _] => lowering.volume_transposed(&of, depth, more[0], &x, &weight)?,
        _ => return Err(wrong(operation, format!("an image of shape {shape:?}"))),
    };
    lowering.with_bias(operation, y)
}

impl Lowering<'_> {
    /// The sum of what each plane of the filters makes of all planes, each at its place, with `more` planes behind.
    fn volume_transposed(
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
        let sum = sum.ok_or_else(|| crate::Error::program("a filter of no planes"))?;
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
