//! Operations on images: convolutions, pooling, resizing, padding.

use super::{Lowering, Table, Value, size_of, sizes_of, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::operators::image::{ImageLayout, PaddingAlgorithm};
use openmps::operators::operators::convolution::{Convolution, Fused};
use openmps::operators::operators::convolution_transpose::ConvolutionTranspose;
use openmps::operators::operators::interpolation::{Interpolation, InterpolationMode};
use openmps::operators::operators::pad::{Mode, Pad};
use openmps::operators::operators::pooling::{Pooling, PoolingType};
use openmps::tile::Number;

pub(super) const TABLE: Table = &[
    ("conv2d", convolution),
    ("depthwise_conv2d", convolution),
    ("conv2d_transpose", transposed),
    ("depthwise_conv2d_transpose", transposed),
    ("conv2d_transpose_bias", transposed_with_bias),
    ("pool2d", pool2d),
    ("max_pool2d_with_index", max_pool2d_with_index),
    ("nearest_interp", |lowering, operation| resize(lowering, operation, InterpolationMode::Nearest)),
    ("bilinear_interp", |lowering, operation| resize(lowering, operation, InterpolationMode::Bilinear)),
    ("pixel_shuffle", pixel_shuffle),
    ("pixel_unshuffle", pixel_unshuffle),
    ("channel_shuffle", channel_shuffle),
    ("shuffle_channel", channel_shuffle),
    ("pad", pad),
    ("pad3d", pad3d),
];

pub(super) fn layout(operation: &Operation) -> Result<ImageLayout> {
    let name = operation.text("data_format", "NCHW")?;
    Ok(if name.ends_with('C') { ImageLayout::Nhwc } else { ImageLayout::Nchw })
}

pub(super) fn sizes(operation: &Operation, name: &str) -> Result<Option<Vec<usize>>> {
    operation.integers(name)?.map(|numbers| sizes_of(operation, numbers)).transpose()
}

/// Two numbers, or one for both; ones where there are none.
fn pair(operation: &Operation, name: &str) -> Result<[usize; 2]> {
    match sizes(operation, name)?.as_deref() {
        Some([both]) => Ok([*both; 2]),
        Some([height, width]) => Ok([*height, *width]),
        None | Some([]) => Ok([1, 1]),
        Some(other) => Err(wrong(operation, format!("{name} of {other:?}"))),
    }
}

pub(super) fn padding_algorithm(operation: &Operation) -> Result<PaddingAlgorithm> {
    Ok(match operation.text("padding_algorithm", "EXPLICIT")? {
        "SAME" => PaddingAlgorithm::Same,
        "VALID" => PaddingAlgorithm::Valid,
        _ => PaddingAlgorithm::Explicit,
    })
}

fn convolution(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let inputs = [lowering.input(operation, 0)?, lowering.input(operation, 1)?];
    let of = Convolution {
        strides: pair(operation, "strides")?,
        paddings: sizes(operation, "paddings")?.unwrap_or_else(|| vec![0, 0]),
        padding_algorithm: padding_algorithm(operation)?,
        dilations: pair(operation, "dilations")?,
        groups: size_of(operation, operation.integer("groups", 1)?)?,
        layout: layout(operation)?,
        fused: Fused::default(),
    };
    Ok(vec![lowering.one(of, &inputs)?])
}

fn transposed_by(lowering: &mut Lowering, operation: &Operation, size_at: usize) -> Result<Value> {
    let inputs = [lowering.input(operation, 0)?, lowering.input(operation, 1)?];
    let output_size = match lowering.integers(operation, size_at, "output_size")?.as_deref() {
        Some(&[height, width]) => Some([size_of(operation, height)?, size_of(operation, width)?]),
        _ => None,
    };
    let output_padding = match sizes(operation, "output_padding")?.as_deref() {
        Some(&[height, width]) => [height, width],
        Some(&[both]) => [both; 2],
        _ => [0, 0],
    };
    let of = ConvolutionTranspose {
        strides: pair(operation, "strides")?,
        paddings: sizes(operation, "paddings")?.unwrap_or_else(|| vec![0, 0]),
        padding_algorithm: padding_algorithm(operation)?,
        dilations: pair(operation, "dilations")?,
        groups: size_of(operation, operation.integer("groups", 1)?)?,
        output_padding,
        output_size,
        layout: layout(operation)?,
        fused: Fused::default(),
    };
    lowering.one(of, &inputs)
}

fn transposed(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    Ok(vec![transposed_by(lowering, operation, 2)?])
}

fn transposed_with_bias(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    use openmps::operators::operators::elementwise::Binary;
    let y = transposed_by(lowering, operation, 3)?;
    let bias = lowering.input(operation, 2)?;
    let channels = lowering.shape(&bias)?.iter().product();
    let bias = lowering.reshape(&bias, &[channels, 1, 1])?;
    Ok(vec![lowering.binary(Binary::Add, &y, &bias)?])
}

fn pooling(
    lowering: &mut Lowering,
    operation: &Operation,
    kind: PoolingType,
    kernel: [usize; 2],
) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let of = Pooling {
        kind,
        kernel_size: kernel,
        strides: pair(operation, "strides")?,
        paddings: sizes(operation, "paddings")?.unwrap_or_else(|| vec![0, 0]),
        padding_algorithm: padding_algorithm(operation)?,
        ceil_mode: operation.flag("ceil_mode", false)?,
        exclusive: operation.flag("exclusive", true)?,
        global: operation.flag("global_pooling", false)?,
        adaptive: operation.flag("adaptive", false)?,
        indices: operation.name == "max_pool2d_with_index",
        layout: layout(operation)?,
    };
    lowering.apply(of, &[x])
}

fn pool2d(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let mut kernel = match lowering.integers(operation, 1, "kernel_size")?.as_deref() {
        Some(&[both]) => [both; 2],
        Some(&[height, width]) => [height, width],
        other => return Err(wrong(operation, format!("a window of {other:?}"))),
    };
    if operation.flag("adaptive", false)? {
        // An output size of -1 is the input's.
        let shape = lowering.shape(&lowering.input(operation, 0)?)?;
        let [_, _, height, width] = match shape[..] {
            [_, _, _, _] => layout(operation)?.sizes(&shape),
            _ => return Err(wrong(operation, format!("an image of shape {shape:?}"))),
        };
        for (size, input) in kernel.iter_mut().zip([height, width]) {
            *size = if *size < 0 { input as i64 } else { *size };
        }
    }
    let kernel = [size_of(operation, kernel[0])?, size_of(operation, kernel[1])?];
    let kind = match operation.text("pooling_type", "max")? {
        "max" => PoolingType::Max,
        "avg" => PoolingType::Average,
        other => return Err(wrong(operation, format!("pooling of type {other}"))),
    };
    pooling(lowering, operation, kind, kernel)
}

fn max_pool2d_with_index(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    pooling(lowering, operation, PoolingType::Max, pair(operation, "kernel_size")?)
}

/// The output's size: of a list of tensors, of a tensor, of scales, or as attributes.
fn resize(lowering: &mut Lowering, operation: &Operation, mode: InterpolationMode) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let layout = layout(operation)?;
    let shape = lowering.shape(&x)?;
    if shape.len() != 4 {
        return Err(wrong(operation, format!("an image of shape {shape:?}")));
    }
    let [_, _, height, width] = layout.sizes(&shape);
    let scale = match lowering.optional(operation, 3)? {
        Some(scale) => lowering.known(&scale)?.data,
        None => match operation.attributes.get("scale") {
            Some(crate::program::Attribute::Float(both)) => vec![*both],
            _ => operation.floats("scale")?.unwrap_or_default(),
        },
    };
    let scale = match scale[..] {
        [both] => [both; 2],
        [vertical, horizontal] => [vertical, horizontal],
        _ => [0.0; 2],
    };
    let scaled = scale[0] > 0.0 && scale[1] > 0.0;
    let listed = lowering.integers(operation, 2, "")?.filter(|sizes| sizes.len() == 2);
    let given = lowering.integers(operation, 1, "")?.filter(|sizes| sizes.len() == 2);
    let has_list = listed.is_some();
    let size = match listed.or(given) {
        Some(sizes) => [size_of(operation, sizes[0])?, size_of(operation, sizes[1])?],
        None if scaled => [(height as f64 * scale[0]) as usize, (width as f64 * scale[1]) as usize],
        None => {
            [size_of(operation, operation.integer("out_h", 0)?)?, size_of(operation, operation.integer("out_w", 0)?)?]
        }
    };
    let of = Interpolation {
        mode,
        size,
        // The size is a product in float64, the distance between pixels one in float32.
        scale: if scaled && !has_list { scale.map(|scale| scale as f32) } else { [0.0; 2] },
        align_corners: operation.flag("align_corners", true)?,
        align_mode: operation.integer("align_mode", 1)?,
        layout,
    };
    Ok(vec![lowering.one(of, &[x])?])
}

/// `[n, c r r, h, w]` as `[n, c, h r, w r]`.
fn pixel_shuffle(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let factor = size_of(operation, operation.integer("upscale_factor", 1)?)?;
    let (x, [n, c, h, w]) = nchw(lowering, operation, x)?;
    if factor == 0 || !c.is_multiple_of(factor * factor) {
        return Err(wrong(operation, format!("{c} channels by a factor of {factor}")));
    }
    let c = c / (factor * factor);
    let y = lowering.reshape(&x, &[n, c, factor, factor, h, w])?;
    let y = lowering.transpose(&y, &[0, 1, 4, 2, 5, 3])?;
    Ok(vec![lowering.reshape(&y, &[n, c, h * factor, w * factor])?])
}

fn pixel_unshuffle(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let factor = size_of(operation, operation.integer("downscale_factor", 1)?)?;
    let (x, [n, c, h, w]) = nchw(lowering, operation, x)?;
    if factor == 0 || !h.is_multiple_of(factor) || !w.is_multiple_of(factor) {
        return Err(wrong(operation, format!("{h} x {w} pixels by a factor of {factor}")));
    }
    let y = lowering.reshape(&x, &[n, c, h / factor, factor, w / factor, factor])?;
    let y = lowering.transpose(&y, &[0, 1, 3, 5, 2, 4])?;
    Ok(vec![lowering.reshape(&y, &[n, c * factor * factor, h / factor, w / factor])?])
}

fn channel_shuffle(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let groups = operation.integer("groups", operation.integer("group", 1)?)?;
    let groups = size_of(operation, groups)?;
    let (x, [n, c, h, w]) = nchw(lowering, operation, x)?;
    if groups == 0 || !c.is_multiple_of(groups) {
        return Err(wrong(operation, format!("{c} channels in {groups} groups")));
    }
    let y = lowering.reshape(&x, &[n, groups, c / groups, h, w])?;
    let y = lowering.transpose(&y, &[0, 2, 1, 3, 4])?;
    Ok(vec![lowering.reshape(&y, &[n, c, h, w])?])
}

fn nchw(lowering: &mut Lowering, operation: &Operation, x: Value) -> Result<(Value, [usize; 4])> {
    let shape = lowering.shape(&x)?;
    match (layout(operation)?, <[usize; 4]>::try_from(shape)) {
        (ImageLayout::Nchw, Ok(sizes)) => Ok((x, sizes)),
        (layout, _) => Err(wrong(operation, format!("an image in {layout:?} of other than four dimensions"))),
    }
}

/// Before and after each dimension, from the first on.
fn pad(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let numbers = operation.integers("paddings")?.unwrap_or_default();
    let paddings = numbers.chunks(2).map(|both| (both[0], both.get(1).copied().unwrap_or(0))).collect();
    let value = lowering.number(operation, 1, "pad_value", 0.0)?;
    Ok(vec![lowering.one(Pad { paddings, mode: Mode::Constant, value: Number::Float(value) }, &[x])?])
}

/// Left, right, top, bottom, front, back of `NCDHW`.
fn pad3d(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let numbers = lowering.integers(operation, 1, "paddings")?.unwrap_or_default();
    let &[left, right, top, bottom, front, back] = &numbers[..] else {
        return Err(wrong(operation, format!("{} paddings", numbers.len())));
    };
    let last = operation.text("data_format", "NCDHW")?.ends_with('C');
    let space = [(front, back), (top, bottom), (left, right)];
    let mut paddings = vec![(0, 0); 2];
    space.into_iter().enumerate().for_each(|(at, both)| paddings.insert(if last { 1 + at } else { 2 + at }, both));
    let mode = match operation.text("mode", "constant")? {
        "reflect" => Mode::Reflect,
        "replicate" => Mode::Replicate,
        "circular" => Mode::Circular,
        _ => Mode::Constant,
    };
    let value = Number::Float(operation.float("pad_value", operation.float("value", 0.0)?)?);
    Ok(vec![lowering.one(Pad { paddings, mode, value }, &[x])?])
}
