//! Kernels that resize images: nearest and bilinear interpolation, and pixels made of channels.

use super::images::{layout, refuse};
use super::movement::many;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
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
    table.add("pixel_shuffle", ALL, pixel_shuffle).strided();
    table.add("pixel_shuffle_grad", ALL, pixel_shuffle_grad).strided();
}

/// The numbers of a small tensor, wherever it is.
pub(super) fn numbers(context: &Context, x: &Tensor) -> Result<Vec<f64>> {
    let view = x.view()?;
    let (size, stride) = (view.dtype.size(), view.strides.last().copied().unwrap_or(1));
    let number = |i: usize| {
        let mut bytes = [0; 8];
        let skipped = i as isize * stride * size as isize;
        context.read(view.address.wrapping_add_signed(skipped), &mut bytes[..size])?;
        let [a, b, c, d, ..] = bytes;
        Ok(match view.dtype {
            DType::I32 => i32::from_ne_bytes([a, b, c, d]).into(),
            DType::I64 => i64::from_ne_bytes(bytes) as f64,
            DType::F32 => f32::from_ne_bytes([a, b, c, d]).into(),
            DType::F64 => f64::from_ne_bytes(bytes),
            other => return Err(refuse("size or scale", other, "a tensor of int32, int64, float32 or float64")),
        })
    };
    (0..view.len()).map(number).collect()
}

/// How the output's size is given; the first that is there counts, but a size tensor before a scale.
struct Sizes<'a> {
    out_size: Option<Tensor>,
    size_tensor: Option<Vec<Tensor>>,
    scale_tensor: Option<Tensor>,
    size: [i32; 2],
    scale: &'a [f64],
}

impl Sizes<'_> {
    /// The scale that was given, or zeros, and the output's size.
    fn of(&self, context: &Context, input: [usize; 2]) -> Result<([f32; 2], [usize; 2])> {
        let both = |numbers: &[f64]| match *numbers {
            [height, width, ..] => Some([height, width]),
            [both] => Some([both, both]),
            [] => None,
        };
        let list = self.size_tensor.iter().flatten().map(|x| numbers(context, x)).collect::<Result<Vec<_>>>()?;
        if let [height, width] = &*list.concat() {
            return Ok(([0.0; 2], [*height as usize, *width as usize]));
        }
        let scale = match &self.scale_tensor {
            Some(tensor) => both(&numbers(context, tensor)?),
            None => both(self.scale),
        };
        let scale = scale.map_or([0.0; 2], |scale| scale.map(|scale| scale as f32));
        let scaled = scale[0] > 0.0 && scale[1] > 0.0;
        let mut size = self.size.map(|size| size.max(0) as usize);
        if scaled {
            size = [0, 1].map(|axis| (input[axis] as f32 * scale[axis]) as usize);
        }
        if let Some(tensor) = &self.out_size {
            size = both(&numbers(context, tensor)?).map_or(size, |given| given.map(|size| size as usize));
        }
        if size.contains(&0) {
            return Err(refuse("output size", size, "sizes above 0"));
        }
        Ok((if scaled { scale } else { [0.0; 2] }, size))
    }
}

macro_rules! interpolation {
    ($name:ident $gradient:ident $mode:ident) => {
        fn $name(
            context: &Context,
            x: Tensor,
            out_size: Option<Tensor>,
            size_tensor: Option<Vec<Tensor>>,
            scale_tensor: Option<Tensor>,
            format: String,
            _: i32,
            height: i32,
            width: i32,
            scale: Vec<f64>,
            _: String,
            align_corners: bool,
            align_mode: i32,
            out: Output,
        ) -> Result<()> {
            let x = x.view()?;
            let sizes = Sizes { out_size, size_tensor, scale_tensor, size: [height, width], scale: &scale };
            let aligned = (align_corners, align_mode);
            let (of, _) = interpolation(context, InterpolationMode::$mode, &x.shape, &sizes, &format, aligned)?;
            many(context, &of, &[x], &[Some(&out)])
        }

        fn $gradient(
            context: &Context,
            x: Tensor,
            out_size: Option<Tensor>,
            size_tensor: Option<Vec<Tensor>>,
            scale_tensor: Option<Tensor>,
            upstream: Tensor,
            format: String,
            _: i32,
            height: i32,
            width: i32,
            scale: Vec<f64>,
            _: String,
            align_corners: bool,
            align_mode: i32,
            dx: Output,
        ) -> Result<()> {
            // Of x only the shape is there: Paddle has let go of its memory.
            let sizes = Sizes { out_size, size_tensor, scale_tensor, size: [height, width], scale: &scale };
            let aligned = (align_corners, align_mode);
            let (of, input) = interpolation(context, InterpolationMode::$mode, &x.shape(), &sizes, &format, aligned)?;
            many(context, &InterpolationGradient { of, input }, &[upstream.view()?], &[Some(&dx)])
        }
    };
}

/// The operator of a kernel's attributes, and the input's height and width.
fn interpolation(
    context: &Context,
    mode: InterpolationMode,
    x: &Shape,
    sizes: &Sizes,
    format: &str,
    (align_corners, align_mode): (bool, i32),
) -> Result<(Interpolation, [usize; 2])> {
    let layout = layout(format);
    if x.len() != 4 {
        return Err(refuse("rank of x", x.len(), "4"));
    }
    let [.., rows, columns] = layout.sizes(x);
    let (scale, size) = sizes.of(context, [rows, columns])?;
    let align_mode = align_mode.into();
    Ok((Interpolation { mode, size, scale, align_corners, align_mode, layout }, [rows, columns]))
}

interpolation!(nearest_interp nearest_interp_grad Nearest);
interpolation!(bilinear_interp bilinear_interp_grad Bilinear);

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
