//! Kernels that resize images: nearest and bilinear interpolation, and pixels made of channels.

use super::compose::Compose;
use super::images::layout;
use super::movement::{gave_memory_alone, many};
use super::normalisation::is_channels_last;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::image::ImageLayout;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::interpolation::{Interpolation, InterpolationGradient, InterpolationMode};
use openmps_graph::{Operator, Shape, View};
use openmps_tile::DType;
use openmps_tile::dtype::{ALL, FLOATS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("nearest_interp", ALL, nearest_interp).strided();
    table.add("bilinear_interp", FLOATS, bilinear_interp).strided();
    table.add("nearest_interp_grad", FLOATS, nearest_interp_grad).strided();
    table.add("bilinear_interp_grad", FLOATS, bilinear_interp_grad).strided();
    table.add("legacy_nearest_interp", ALL, legacy_nearest_interp).strided();
    table.add("legacy_bilinear_interp", FLOATS, legacy_bilinear_interp).strided();
    table.add("legacy_nearest_interp_grad", FLOATS, legacy_nearest_interp_grad).strided();
    table.add("legacy_bilinear_interp_grad", FLOATS, legacy_bilinear_interp_grad).strided();
    table.add("pixel_shuffle", ALL, pixel_shuffle).strided();
    table.add("pixel_shuffle_grad", ALL, pixel_shuffle_grad).strided();
}

/// The numbers of a small tensor, wherever it is.
fn numbers(context: &Context, x: &Tensor) -> Result<Vec<f64>> {
    Ok(context.elements(&x.view()?)?.into_iter().map(|element| element.float).collect())
}

/// How the output's size is given; the first that is there counts, but a size tensor before a scale.
pub(super) struct Sizes {
    pub out_size: Option<Tensor>,
    pub size_tensor: Option<Vec<Tensor>>,
    pub scale_tensor: Option<Tensor>,
    /// Depth, height and width, of which as many count as there are axes.
    pub size: [i32; 3],
    /// One for each axis, or one, or none.
    pub scale: Vec<f64>,
}

impl Sizes {
    /// The scale that was given, or zeros, and the output's size along each axis.
    pub fn of(&self, context: &Context, input: &[usize]) -> Result<(Vec<f32>, Vec<usize>)> {
        let axes = input.len();
        let all = |numbers: Vec<f64>| match numbers.len() {
            1 => Some(vec![numbers[0]; axes]),
            count if count >= axes => Some(numbers[..axes].to_vec()),
            _ => None,
        };
        let list = self.size_tensor.iter().flatten().map(|x| numbers(context, x)).collect::<Result<Vec<_>>>()?;
        let scale = match &self.scale_tensor {
            Some(tensor) => all(numbers(context, tensor)?),
            None => all(self.scale.clone()),
        };
        let list = list.concat();
        let scale = scale.filter(|scale| list.is_empty() && scale.iter().all(|&scale| scale > 0.0));
        let mut size: Vec<usize> = self.size[3 - axes..].iter().map(|&size| size.max(0) as usize).collect();
        if let Some(scale) = &scale {
            // The size is a product in float64, the distance between pixels one in float32.
            size = input.iter().zip(scale).map(|(&input, scale)| (input as f64 * scale) as usize).collect();
        }
        let scale = scale.map_or(vec![0.0; axes], |scale| scale.iter().map(|&scale| scale as f32).collect());
        let given = match &self.out_size {
            _ if list.len() == axes => Some(list),
            Some(tensor) => all(numbers(context, tensor)?),
            None => None,
        };
        if let Some(given) = given {
            size = given.iter().map(|&size| size as usize).collect();
        }
        if size.contains(&0) {
            return Err(refuse("output size", format!("{size:?}"), "sizes above 0"));
        }
        Ok((scale, size))
    }
}

/// What kernels that resize are given beside their tensors.
pub(super) struct Request {
    pub sizes: Sizes,
    pub format: String,
    pub method: String,
    pub align_corners: bool,
    pub align_mode: i32,
}

/// A way to resize.
pub(super) trait Resize {
    fn resize(&self, context: &Context, x: &View, request: &Request, out: &Output) -> Result<()>;

    /// Of x only the shape is there: Paddle has let go of its memory.
    fn gradient(&self, context: &Context, x: &Shape, upstream: &View, request: &Request, dx: &Output) -> Result<()>;
}

/// The attribute `scale`: a list, or in the older form one number for all axes.
pub(super) trait Scale {
    fn per_axis(self) -> Vec<f64>;
}

impl Scale for Vec<f64> {
    fn per_axis(self) -> Vec<f64> {
        self
    }
}

impl Scale for f32 {
    fn per_axis(self) -> Vec<f64> {
        if self > 0.0 { vec![self.into()] } else { Vec::new() }
    }
}

/// A way to resize and its gradient in the signatures of Paddle's kernels, with a scale of this type.
macro_rules! resizing {
    ($($name:ident $gradient:ident, $scale:ty, $way:expr;)*) => { $(
        fn $name(
            context: &Context,
            x: Tensor,
            out_size: Option<Tensor>,
            size_tensor: Option<Vec<Tensor>>,
            scale_tensor: Option<Tensor>,
            format: String,
            depth: i32,
            height: i32,
            width: i32,
            scale: $scale,
            method: String,
            align_corners: bool,
            align_mode: i32,
            out: Output,
        ) -> Result<()> {
            let (size, scale) = ([depth, height, width], scale.per_axis());
            let sizes = Sizes { out_size, size_tensor, scale_tensor, size, scale };
            $way.resize(context, &x.view()?, &Request { sizes, format, method, align_corners, align_mode }, &out)
        }

        fn $gradient(
            context: &Context,
            x: Tensor,
            out_size: Option<Tensor>,
            size_tensor: Option<Vec<Tensor>>,
            scale_tensor: Option<Tensor>,
            upstream: Tensor,
            format: String,
            depth: i32,
            height: i32,
            width: i32,
            scale: $scale,
            method: String,
            align_corners: bool,
            align_mode: i32,
            dx: Output,
        ) -> Result<()> {
            let (size, scale) = ([depth, height, width], scale.per_axis());
            let sizes = Sizes { out_size, size_tensor, scale_tensor, size, scale };
            let request = Request { sizes, format, method, align_corners, align_mode };
            $way.gradient(context, &x.shape(), &upstream.view()?, &request, &dx)
        }
    )* };
}
pub(super) use resizing;

resizing! {
    nearest_interp nearest_interp_grad, Vec<f64>, InterpolationMode::Nearest;
    bilinear_interp bilinear_interp_grad, Vec<f64>, InterpolationMode::Bilinear;
    legacy_nearest_interp legacy_nearest_interp_grad, f32, InterpolationMode::Nearest;
    legacy_bilinear_interp legacy_bilinear_interp_grad, f32, InterpolationMode::Bilinear;
}

impl Resize for InterpolationMode {
    fn resize(&self, context: &Context, x: &View, request: &Request, out: &Output) -> Result<()> {
        if gave_memory_alone(context, out, x.dtype)? {
            return Ok(());
        }
        if *self == InterpolationMode::Nearest && x.rank() == 5 {
            return Volume::new(context, &x.shape, request)?.resize(context, x, out);
        }
        let (of, _) = interpolation(context, *self, &x.shape, request)?;
        many(context, &of, std::slice::from_ref(x), &[Some(out)])
    }

    fn gradient(&self, context: &Context, x: &Shape, upstream: &View, request: &Request, dx: &Output) -> Result<()> {
        if gave_memory_alone(context, dx, upstream.dtype)? {
            return Ok(());
        }
        if *self == InterpolationMode::Nearest && x.len() == 5 {
            return Volume::new(context, x, request)?.gradient(context, upstream, dx);
        }
        let (of, input) = interpolation(context, *self, x, request)?;
        many(context, &InterpolationGradient { of, input }, std::slice::from_ref(upstream), &[Some(dx)])
    }
}

/// The operator of a kernel's attributes, and the input's height and width.
fn interpolation(
    context: &Context,
    mode: InterpolationMode,
    x: &Shape,
    request: &Request,
) -> Result<(Interpolation, [usize; 2])> {
    let layout = layout(&request.format);
    if x.len() != 4 {
        return Err(refuse("rank of x", x.len(), "4"));
    }
    let [.., rows, columns] = layout.sizes(x);
    let (scale, size) = request.sizes.of(context, &[rows, columns])?;
    let (scale, size) = ([scale[0], scale[1]], [size[0], size[1]]);
    let (align_corners, align_mode) = (request.align_corners, request.align_mode.into());
    Ok((Interpolation { mode, size, scale, align_corners, align_mode, layout }, [rows, columns]))
}

/// The same elements with channels before the axes that are resized.
pub(super) fn channels_first(x: &View, format: &str) -> View {
    if !is_channels_last(format) {
        return x.clone();
    }
    let last = x.rank() - 1;
    x.permuted(&[0, last].into_iter().chain(1..last).collect::<Vec<_>>())
}

/// Stores a result with channels first. Paddle infers sizes in float32; they are those that were computed.
pub(super) fn store_channels_first(c: &Compose, out: &Output, dtype: DType, value: &View, format: &str) -> Result<()> {
    let mut dims = value.shape.to_vec();
    if is_channels_last(format) {
        dims[1..].rotate_left(1);
    }
    out.set_dims(&dims);
    c.store_as(out, dtype, value, |to| channels_first(to, format))
}

/// A volume's nearest elements, as images twice: the images of each depth, and depths as rows of whole images.
struct Volume<'a> {
    format: &'a str,
    /// Batch, channels, depth, height and width before.
    input: [usize; 5],
    /// Depth, height and width afterwards.
    size: [usize; 3],
    scale: [f32; 3],
    align_corners: bool,
}

impl<'a> Volume<'a> {
    fn new(context: &Context, shape: &Shape, request: &'a Request) -> Result<Volume<'a>> {
        let (format, align_corners) = (&request.format[..], request.align_corners);
        let input = channels_first(&View::dense(0, DType::F32, shape)?, format).shape;
        let [n, c, d, h, w] = input[..] else { return Err(refuse("rank of x", shape.len(), "5")) };
        let (scale, size) = request.sizes.of(context, &[d, h, w])?;
        let (scale, size) = ([scale[0], scale[1], scale[2]], [size[0], size[1], size[2]]);
        Ok(Volume { format, input: [n, c, d, h, w], size, scale, align_corners })
    }

    fn step(&self, size: [usize; 2], scale: [f32; 2]) -> Interpolation {
        let (mode, layout) = (InterpolationMode::Nearest, ImageLayout::Nchw);
        Interpolation { mode, size, scale, align_corners: self.align_corners, align_mode: 0, layout }
    }

    /// Of the images, and of the depths.
    fn steps(&self) -> [Interpolation; 2] {
        let [d, h, w] = self.size;
        [self.step([h, w], [self.scale[1], self.scale[2]]), self.step([d, h * w], [self.scale[0], 0.0])]
    }

    fn resize(&self, context: &Context, x: &View, out: &Output) -> Result<()> {
        let (c, [n, channels, d, h, w], [images, depths]) = (Compose::new(context), self.input, self.steps());
        let dense = c.apply(&Copy, &[channels_first(x, self.format)])?;
        let flat = c.apply(&images, &[c.shaped(&dense, &[n, channels * d, h, w])?])?;
        let [depth, height, width] = self.size;
        let deep = c.apply(&depths, &[c.shaped(&flat, &[n, channels, d, height * width])?])?;
        let value = c.shaped(&deep, &[n, channels, depth, height, width])?;
        store_channels_first(&c, out, x.dtype, &value, self.format)
    }

    fn gradient(&self, context: &Context, upstream: &View, dx: &Output) -> Result<()> {
        let (c, [n, channels, d, h, w], [images, depths]) = (Compose::new(context), self.input, self.steps());
        let [depth, height, width] = self.size;
        let dense = c.apply(&Copy, &[channels_first(upstream, self.format)])?;
        let of_depths = InterpolationGradient { of: depths, input: [d, height * width] };
        let flat = c.apply(&of_depths, &[c.shaped(&dense, &[n, channels, depth, height * width])?])?;
        let of_images = InterpolationGradient { of: images, input: [h, w] };
        let value = c.apply(&of_images, &[c.shaped(&flat, &[n, channels * d, height, width])?])?;
        let value = c.shaped(&value, &[n, channels, d, h, w])?;
        store_channels_first(&c, dx, upstream.dtype, &value, self.format)
    }
}

/// The small image's channels and the large image's pixels, both as (batch, channels, factor, factor, height, width).
pub(super) fn shuffled(small: &View, large: &View, factor: i32, format: &str) -> Result<[View; 2]> {
    if small.rank() != 4 || large.rank() != 4 {
        return Err(refuse("rank of x", small.rank(), "4"));
    }
    let layout = layout(format);
    let (from, to) = (layout.nchw(small), layout.nchw(large));
    let r = usize::try_from(factor).unwrap_or(0);
    let fits = r > 0 && from.shape[1] == to.shape[1] * r * r;
    if !fits || to.shape[2] != from.shape[2] * r || to.shape[3] != from.shape[3] * r {
        let expected = format!("a factor between shapes {:?} and {:?}", small.shape, large.shape);
        return Err(refuse("upscale_factor", factor, &expected));
    }
    let (step, dims) = (r as isize, [to.shape[0], to.shape[1], r, r, from.shape[2], from.shape[3]]);
    let [n, c, h, w] = [0, 1, 2, 3].map(|axis| from.strides[axis]);
    let channels = [n, c * step * step, c * step, c, h, w];
    let [n, c, h, w] = [0, 1, 2, 3].map(|axis| to.strides[axis]);
    let pixels = [n, c, h, w, h * step, w * step];
    Ok([
        View::strided(from.address, from.dtype, &dims, &channels)?,
        View::strided(to.address, to.dtype, &dims, &pixels)?,
    ])
}

fn pixel_shuffle(context: &Context, x: Tensor, factor: i32, format: String, out: Output) -> Result<()> {
    let (x, out) = (x.view()?, context.allocate(&out, x.dtype()?)?);
    let [channels, pixels] = shuffled(&x, &out, factor, &format)?;
    Ok(Copy.run(context.queue(), &[channels], &[pixels])?)
}

fn pixel_shuffle_grad(context: &Context, upstream: Tensor, factor: i32, format: String, dx: Output) -> Result<()> {
    let (upstream, dx) = (upstream.view()?, context.allocate(&dx, upstream.dtype()?)?);
    let [channels, pixels] = shuffled(&dx, &upstream, factor, &format)?;
    Ok(Copy.run(context.queue(), &[pixels], &[channels])?)
}
