//! Convolutions and transposed ones. Lines are images of one row; volumes are in `lower/volume.rs`.

use super::window::{axes, convolution_along, halves, spatial, transposed_along};
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, size_of, sizes_of, wrong};
use crate::program::Operation;
use openmps::operators::Operator;

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
        let of = convolution_along(&axes, size_of(operation, operation.integer("group", 1)?)?);
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
    let output_padding = match more[..] {
        [.., height, width] => [height, width],
        [width] => [0, width],
        [] => [0, 0],
    };
    let of = transposed_along(&axes, size_of(operation, operation.integer("group", 1)?)?, output_padding);
    let y = match &axes[..] {
        [_] | [_, _] => lowering.on_images(of, &x, &weight)?,
        [depth, _, _] => lowering.volume_transposed(&of, depth, more[0], &x, &weight)?,
        _ => return Err(wrong(operation, format!("an image of shape {shape:?}"))),
    };
    lowering.with_bias(operation, y)
}
