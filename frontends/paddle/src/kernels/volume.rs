//! Convolution of volumes, as sums over what operators on images give for their planes; half types are summed in float32 and rounded once.

use super::compose::Compose;
use super::images::{padding_algorithm, sizes};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::image::{ImageLayout, PaddingAlgorithm};
use openmps_graph::operators::convolution::{Convolution, ConvolutionWeightGradient, Fused};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary, run};
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;

/// Those of double gradients.
const WIDE: &[DType] = &[DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("conv3d", FLOATS, conv3d);
    table.add("conv3d_grad", FLOATS, conv3d_grad);
    table.add("conv3d_double_grad", WIDE, conv3d_double_grad);
    table.add("conv3d_transpose", FLOATS, conv3d_transpose);
    table.add("conv3d_transpose_grad", FLOATS, conv3d_transpose_grad);
}

/// A number for each of depth, height and width; a single one is all three.
pub(super) fn three<T: std::marker::Copy + TryInto<usize> + std::fmt::Debug>(
    attribute: &'static str,
    numbers: &[T],
) -> Result<[usize; 3]> {
    match *sizes(attribute, numbers)? {
        [depth, height, width] => Ok([depth, height, width]),
        [all] => Ok([all; 3]),
        _ => Err(refuse(attribute, numbers, "one or three numbers")),
    }
}

/// Borders before and after, of depth, height and width.
pub(super) fn borders<T: std::marker::Copy + TryInto<usize> + std::fmt::Debug>(
    numbers: &[T],
) -> Result<[[usize; 2]; 3]> {
    match *sizes("paddings", numbers)? {
        [front, back, top, bottom, left, right] => Ok([[front, back], [top, bottom], [left, right]]),
        [depth, height, width] => Ok([[depth; 2], [height; 2], [width; 2]]),
        [all] => Ok([[all; 2]; 3]),
        _ => Err(refuse("paddings", numbers, "one, three or six numbers")),
    }
}

/// Volumes with their channels as the second dimension, whichever way they lie. Paddle's transposed convolution says NHWC of volumes, too.
pub(super) fn channels_first(view: &View, format: &str) -> View {
    if matches!(format, "NDHWC" | "NHWC") && view.rank() == 5 { view.permuted(&[0, 4, 1, 2, 3]) } else { view.clone() }
}

/// A dense copy, where it is not dense already.
pub(super) fn dense(c: &Compose, view: &View) -> Result<View> {
    if view.is_dense() {
        return Ok(view.clone());
    }
    let copy = c.temporary(view.dtype, &view.shape)?;
    c.launch(&Copy, std::slice::from_ref(view), std::slice::from_ref(&copy))?;
    Ok(copy)
}

/// A convolution of volumes.
struct Volumes<'c> {
    context: &'c Context,
    c: Compose<'c>,
    strides: [usize; 3],
    paddings: [[usize; 2]; 3],
    dilations: [usize; 3],
    groups: usize,
}

/// The planes that one plane of the kernel is multiplied with: `count` of the output from `output` on, and of the input every `stride`-th
/// from `input` on.
struct Planes {
    kernel: usize,
    input: usize,
    output: usize,
    count: usize,
}

impl<'c> Volumes<'c> {
    fn new(
        context: &'c Context,
        [strides, paddings, dilations]: [&[i32]; 3],
        algorithm: &str,
        groups: i32,
        [input, kernel]: [&[usize]; 2],
    ) -> Result<Volumes<'c>> {
        let strides = three("strides", strides)?;
        let mut dilations = three("dilations", dilations)?;
        if strides.contains(&0) || dilations.contains(&0) || input.len() != 5 || kernel.len() != 5 {
            return Err(refuse(
                "strides, dilations, ranks",
                (strides, dilations, input.len(), kernel.len()),
                "positive numbers, and 5",
            ));
        }
        let algorithm = padding_algorithm(algorithm)?;
        let paddings = match algorithm {
            PaddingAlgorithm::Explicit => borders(paddings)?,
            PaddingAlgorithm::Valid => [[0; 2]; 3],
            PaddingAlgorithm::Same => {
                dilations = [1; 3];
                [0, 1, 2].map(|axis| {
                    let (size, stride, kernel) = (input[axis + 2], strides[axis], kernel[axis + 2]);
                    let needed = ((size.div_ceil(stride).max(1) - 1) * stride + kernel).saturating_sub(size);
                    [needed / 2, needed - needed / 2]
                })
            }
        };
        Ok(Volumes {
            context,
            c: Compose::new(context),
            strides,
            paddings,
            dilations,
            groups: sizes("groups", &[groups])?[0],
        })
    }

    /// The convolution of planes.
    fn images(&self) -> Convolution {
        let [_, [top, bottom], [left, right]] = self.paddings;
        Convolution {
            strides: [self.strides[1], self.strides[2]],
            paddings: vec![top, bottom, left, right],
            padding_algorithm: PaddingAlgorithm::Explicit,
            dilations: [self.dilations[1], self.dilations[2]],
            groups: self.groups,
            layout: ImageLayout::Nchw,
            fused: Fused::default(),
        }
    }

    /// Sizes of the output.
    fn output(&self, input: &[usize], kernel: &[usize]) -> Result<Vec<usize>> {
        let along = |axis: usize| -> Result<usize> {
            let reach = self.dilations[axis] * (kernel[axis + 2].max(1) - 1) + 1;
            let size = input[axis + 2] + self.paddings[axis][0] + self.paddings[axis][1];
            let rest =
                size.checked_sub(reach).ok_or_else(|| refuse("kernel", kernel, "no more than the padded volume"))?;
            Ok(rest / self.strides[axis] + 1)
        };
        Ok(vec![input[0], kernel[0], along(0)?, along(1)?, along(2)?])
    }

    /// The pairs of planes for each plane of the kernel that has any.
    fn planes(&self, input: usize, output: usize, kernel: usize) -> Vec<Planes> {
        let (stride, before) = (self.strides[0], self.paddings[0][0]);
        let of = |kernel: usize| {
            let offset = kernel * self.dilations[0];
            let first = before.saturating_sub(offset).div_ceil(stride);
            let end = (input + before).checked_sub(offset + 1).map_or(0, |last| (last / stride + 1).min(output));
            let count = end.checked_sub(first).filter(|&count| count > 0)?;
            Some(Planes { kernel, input: first * stride + offset - before, output: first, count })
        };
        (0..kernel).filter_map(of).collect()
    }

    /// Planes of a volume as images, batch by batch.
    fn as_images(&self, volume: &View, first: usize, stride: usize, count: usize) -> View {
        volume.narrowed(2, first, stride as isize, count).permuted(&[0, 2, 1, 3, 4])
    }

    fn gathered(&self, planes: &View) -> Result<View> {
        let copy = dense(&self.c, planes)?;
        let [n, count, channels, height, width] = [0, 1, 2, 3, 4].map(|axis| planes.shape[axis]);
        self.c.shaped(&copy, &[n * count, channels, height, width])
    }

    fn kernel_plane(&self, kernel: &View, at: usize) -> Result<View> {
        dense(&self.c, &kernel.narrowed(2, at, 1, 1).without_axis(2))
    }

    fn accumulate(&self, images: &View, planes: &View) -> Result<()> {
        let images = self.c.shaped(images, &planes.shape)?;
        Ok(run(Elementwise::Binary(Binary::Add), self.context.queue(), &[planes, &images], &[], planes)?)
    }

    /// The convolution of `x` with the kernel, all with channels first.
    fn forward(&self, x: &View, kernel: &View) -> Result<View> {
        let out = self.c.constant(x.dtype, &self.output(&x.shape, &kernel.shape)?, 0.0)?;
        for planes in self.planes(x.shape[2], out.shape[2], kernel.shape[2]) {
            let images = self.gathered(&self.as_images(x, planes.input, self.strides[0], planes.count))?;
            let part = self.c.apply(&self.images(), &[images, self.kernel_plane(kernel, planes.kernel)?])?;
            self.accumulate(&part, &self.as_images(&out, planes.output, 1, planes.count))?;
        }
        Ok(out)
    }

    /// The gradient of the input, which has these dimensions.
    fn input_gradient(&self, dims: &[usize], kernel: &View, upstream: &View) -> Result<View> {
        let dx = self.c.constant(upstream.dtype, dims, 0.0)?;
        let of_planes = |dims: &[usize]| [0, 1, 3, 4].map(|axis| dims[axis]).into_iter().collect();
        let operator = self.images().reversed(&of_planes(dims), &of_planes(&kernel.shape))?;
        for planes in self.planes(dims[2], upstream.shape[2], kernel.shape[2]) {
            let images = self.gathered(&self.as_images(upstream, planes.output, 1, planes.count))?;
            let part = self.c.apply(&operator, &[images, self.kernel_plane(kernel, planes.kernel)?])?;
            self.accumulate(&part, &self.as_images(&dx, planes.input, self.strides[0], planes.count))?;
        }
        Ok(dx)
    }

    /// The gradient of the kernel, which has these dimensions.
    fn kernel_gradient(&self, x: &View, dims: &[usize], upstream: &View) -> Result<View> {
        let dkernel = self.c.constant(x.dtype, dims, 0.0)?;
        let operator = ConvolutionWeightGradient { of: self.images(), kernel: [dims[3], dims[4]] };
        for planes in self.planes(x.shape[2], upstream.shape[2], dims[2]) {
            let images = self.gathered(&self.as_images(x, planes.input, self.strides[0], planes.count))?;
            let upstream = self.gathered(&self.as_images(upstream, planes.output, 1, planes.count))?;
            let part = self.c.apply(&operator, &[images, upstream])?;
            let to = dkernel.narrowed(2, planes.kernel, 1, 1).without_axis(2);
            run(Elementwise::Unary(Unary::Cast), self.context.queue(), &[&part], &[], &to)?;
        }
        Ok(dkernel)
    }

    fn store(&self, out: Option<&Output>, dtype: DType, value: &View, format: &str) -> Result<()> {
        let Some(out) = out else { return Ok(()) };
        self.c.store_as(out, dtype, value, |to| channels_first(to, format))
    }
}

fn conv3d(
    context: &Context,
    input: Tensor,
    filter: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), input.dtype()?);
    let (x, kernel) = (channels_first(&c.input(&input)?, &format), c.input(&filter)?);
    let attributes = [&strides[..], &paddings, &dilations];
    let of = Volumes::new(context, attributes, &algorithm, groups, [&x.shape, &kernel.shape])?;
    of.store(Some(&out), dtype, &of.forward(&x, &kernel)?, &format)
}

fn conv3d_grad(
    context: &Context,
    input: Tensor,
    filter: Tensor,
    upstream: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    dinput: Option<Output>,
    dfilter: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), input.dtype()?);
    let (x, kernel) = (channels_first(&c.input(&input)?, &format), c.input(&filter)?);
    let upstream = channels_first(&c.input(&upstream)?, &format);
    let attributes = [&strides[..], &paddings, &dilations];
    let of = Volumes::new(context, attributes, &algorithm, groups, [&x.shape, &kernel.shape])?;
    if dinput.is_some() {
        of.store(dinput.as_ref(), dtype, &of.input_gradient(&x.shape, &kernel, &upstream)?, &format)?;
    }
    match &dfilter {
        Some(dfilter) => of.c.store_value(dfilter, dtype, &of.kernel_gradient(&x, &kernel.shape, &upstream)?),
        None => Ok(()),
    }
}

/// A convolution is linear in both: its gradients' gradients are gradients and convolutions of what comes in.
fn conv3d_double_grad(
    context: &Context,
    input: Tensor,
    filter: Tensor,
    upstream: Tensor,
    ddinput: Option<Tensor>,
    ddfilter: Option<Tensor>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    dinput: Option<Output>,
    dfilter: Option<Output>,
    ddout: Option<Output>,
) -> Result<()> {
    let first = |tensor: &Tensor| -> Result<View> { Ok(channels_first(&tensor.view()?, &format)) };
    let (x, kernel, upstream) = (first(&input)?, filter.view()?, first(&upstream)?);
    let attributes = [&strides[..], &paddings, &dilations];
    let of = Volumes::new(context, attributes, &algorithm, groups, [&x.shape, &kernel.shape])?;
    let ddx = match &ddinput {
        Some(ddinput) => first(ddinput)?,
        None => of.c.constant(x.dtype, &x.shape, 0.0)?,
    };
    let ddkernel = of.c.or_zeros(ddfilter.as_ref(), &kernel)?;
    of.store(dinput.as_ref(), x.dtype, &of.input_gradient(&x.shape, &ddkernel, &upstream)?, &format)?;
    if let Some(dfilter) = &dfilter {
        of.c.store_value(dfilter, x.dtype, &of.kernel_gradient(&ddx, &kernel.shape, &upstream)?)?;
    }
    let sum = of.c.add(&of.forward(&ddx, &kernel)?, &of.forward(&x, &ddkernel)?)?;
    of.store(ddout.as_ref(), x.dtype, &sum, &format)
}

/// The gradient of a convolution whose input has the dimensions that Paddle's rule gives the result.
fn conv3d_transpose(
    context: &Context,
    x: Tensor,
    filter: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    _output_padding: Vec<i32>,
    _output_size: Vec<i32>,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, kernel) = (channels_first(&c.input(&x)?, &format), c.input(&filter)?);
    let attributes = [&strides[..], &paddings, &dilations];
    let of = Volumes::new(context, attributes, &algorithm, groups, [&x.shape, &kernel.shape])?;
    let dims = channels_first(&View::dense(0, x.dtype, &out.shape())?, &format).shape;
    of.store(Some(&out), dtype, &of.input_gradient(&dims, &kernel, &x)?, &format)
}

fn conv3d_transpose_grad(
    context: &Context,
    x: Tensor,
    filter: Tensor,
    upstream: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    _output_padding: Vec<i32>,
    _output_size: Vec<i32>,
    algorithm: String,
    groups: i32,
    dilations: Vec<i32>,
    format: String,
    dx: Option<Output>,
    dfilter: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, kernel) = (channels_first(&c.input(&x)?, &format), c.input(&filter)?);
    let upstream = channels_first(&c.input(&upstream)?, &format);
    let attributes = [&strides[..], &paddings, &dilations];
    let of = Volumes::new(context, attributes, &algorithm, groups, [&x.shape, &kernel.shape])?;
    if dx.is_some() {
        let value = of.forward(&upstream, &kernel)?;
        // What output padding adds is read by no window of the input.
        let value = (2..5).fold(value, |value, axis| value.narrowed(axis, 0, 1, x.shape[axis]));
        of.store(dx.as_ref(), dtype, &dense(&of.c, &value)?, &format)?;
    }
    match &dfilter {
        Some(dfilter) => of.c.store_value(dfilter, dtype, &of.kernel_gradient(&upstream, &kernel.shape, &x)?),
        None => Ok(()),
    }
}
