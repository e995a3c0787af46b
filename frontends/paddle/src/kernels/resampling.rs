//! Kernels that resize lines and volumes linearly, images by cubic pieces, and images by filters as wide as the step between new elements:
//! along each axis a product with a small matrix of weights.

use super::compose::Compose;
use super::interpolation::{Request, Resize, Scale, Sizes, channels_first, resizing, store_channels_first};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::{Shape, View};
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("linear_interp", FLOATS, linear_interp);
    table.add("linear_interp_grad", FLOATS, linear_interp_grad);
    table.add("trilinear_interp", FLOATS, trilinear_interp);
    table.add("trilinear_interp_grad", FLOATS, trilinear_interp_grad);
    table.add("bicubic_interp", FLOATS, bicubic_interp);
    table.add("bicubic_interp_grad", FLOATS, bicubic_interp_grad);
    table.add("interp_antialias", FLOATS, interp_antialias);
    table.add("interp_antialias_grad", FLOATS, interp_antialias_grad);
}

/// What lies between two elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Curve {
    Linear,
    Cubic,
    /// A triangle, as wide as the step where that is more than one element.
    Triangle,
    /// A cubic curve, widened as the triangle is.
    WideCubic,
}

impl Curve {
    /// The filter of `interp_antialias` by its name in Paddle.
    fn of_filter(name: &str) -> Result<Curve> {
        match name {
            "bilinear" => Ok(Curve::Triangle),
            "bicubic" => Ok(Curve::WideCubic),
            _ => Err(refuse("interp_method", name, "bilinear or bicubic")),
        }
    }
}

/// A request, and along how many axes a curve answers it.
struct Resampling<'a> {
    curve: Curve,
    axes: usize,
    request: &'a Request,
}

/// One axis: its sizes before and after, and the distance of two new elements in old ones.
struct Axis {
    input: usize,
    output: usize,
    step: f64,
}

impl Resampling<'_> {
    /// The axes that are resized, first one first.
    fn axes(&self, context: &Context, input: &[usize]) -> Result<Vec<Axis>> {
        let (scale, sizes) = self.request.sizes.of(context, input)?;
        let axis = |at: usize| {
            let (input, output) = (input[at], sizes[at]);
            let step = match self.request.align_corners {
                true if output > 1 => (input as f64 - 1.0) / (output as f64 - 1.0),
                true => 0.0,
                // A single element is one around the first, not around the middle: Paddle's rule for cubic pieces alone.
                false if output == 1 && self.curve == Curve::Cubic => 0.0,
                false if scale[at] > 0.0 => 1.0 / f64::from(scale[at]),
                false => input as f64 / output as f64,
            };
            Axis { input, output, step }
        };
        Ok((0..self.axes).map(axis).collect())
    }

    /// The weights of the old elements for each new one, as rows.
    fn weights(&self, axis: &Axis) -> Vec<f64> {
        let mut weights = vec![0.0; axis.output * axis.input];
        for (at, row) in weights.chunks_exact_mut(axis.input).enumerate() {
            match self.curve {
                Curve::Linear | Curve::Cubic => self.interpolate(axis, at, row),
                Curve::Triangle => filter(axis, at, 1.0, |x| (1.0 - x.abs()).max(0.0), row),
                Curve::WideCubic => filter(axis, at, 2.0, |x| cubic(x, -0.5), row),
            }
        }
        weights
    }

    /// The weights of the elements around a new one.
    fn interpolate(&self, axis: &Axis, at: usize, row: &mut [f64]) {
        let last = axis.input as isize - 1;
        let mut add = |place: isize, weight: f64| row[place.clamp(0, last) as usize] += weight;
        let centred = !self.request.align_corners && (self.curve == Curve::Cubic || self.request.align_mode == 0);
        let place = if centred { axis.step * (at as f64 + 0.5) - 0.5 } else { axis.step * at as f64 };
        if self.curve == Curve::Linear {
            let place = place.max(0.0);
            let first = place.floor().min(last as f64);
            add(first as isize, 1.0 - (place - first));
            return add(first as isize + 1, place - first);
        }
        let first = place.floor();
        for offset in -1..=2 {
            add(first as isize + offset, cubic(place - first - offset as f64, -0.75));
        }
    }

    /// Products with the weights of each axis, or with their transposes, which is the gradient.
    fn resize(&self, context: &Context, x: &View, shape: &[usize], is_gradient: bool, out: &Output) -> Result<()> {
        if x.rank() != self.axes + 2 || shape.len() != x.rank() {
            return Err(refuse("rank of x", x.rank(), &(self.axes + 2).to_string()));
        }
        let c = Compose::new(context);
        if x.is_empty() || out.is_empty() {
            // An image of nothing is black.
            return c.fill(&c.place(out, x.dtype)?, 0.0);
        }
        let first = channels_first(x, &self.request.format);
        // The sizes before resizing: of a gradient those of its result.
        let before = channels_first(&View::dense(0, x.dtype, shape)?, &self.request.format).shape;
        let mut value = c.temporary(x.dtype, &first.shape)?;
        c.launch(&Copy, &[first], std::slice::from_ref(&value))?;
        value = c.cast(&value, x.dtype.compute())?;
        for (at, axis) in self.axes(context, &before[2..])?.iter().enumerate() {
            let bytes: Vec<u8> = self.weights(axis).iter().flat_map(|weight| weight.to_ne_bytes()).collect();
            let wide = c.upload(DType::F64, &[axis.output, axis.input], &bytes)?;
            let weights = c.cast(&wide, value.dtype)?;
            let (leading, rest) = value.shape.split_at(at + 2);
            let (outer, inner) = (leading.iter().product(), rest[1..].iter().product());
            let size = if is_gradient { axis.input } else { axis.output };
            let dims = [leading, &[size], &rest[1..]].concat();
            let lines = c.shaped(&value, &[outer, rest[0], inner])?;
            let product = Matmul { transpose_left: is_gradient, transpose_right: false };
            let weights = c.shaped(&weights, &[1, axis.output, axis.input])?;
            value = c.shaped(&c.apply(&product, &[weights, lines])?, &dims)?;
        }
        store_channels_first(&c, out, x.dtype, &value, &self.request.format)
    }
}

/// The weights of all elements under a filter around a new one, whose sum is 1; `reach` is half the filter's width in steps.
fn filter(axis: &Axis, at: usize, reach: f64, curve: impl Fn(f64) -> f64, row: &mut [f64]) {
    let (width, centre) = (axis.step.max(1.0), axis.step * (at as f64 + 0.5));
    let first = (centre - reach * width + 0.5).max(0.0) as usize;
    let end = ((centre + reach * width + 0.5) as usize).min(axis.input);
    let mut sum = 0.0;
    for place in first..end {
        row[place] = curve((place as f64 - centre + 0.5) / width);
        sum += row[place];
    }
    if sum != 0.0 {
        row.iter_mut().for_each(|weight| *weight /= sum);
    }
}

/// Keys' cubic convolution kernel with parameter a (Keys, 1981).
fn cubic(distance: f64, a: f64) -> f64 {
    let x = distance.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        a * (((x - 5.0) * x + 8.0) * x - 4.0)
    } else {
        0.0
    }
}

resizing! {
    linear_interp linear_interp_grad, Vec<f64>, Way::Curve(Curve::Linear, 1);
    trilinear_interp trilinear_interp_grad, Vec<f64>, Way::Curve(Curve::Linear, 3);
    bicubic_interp bicubic_interp_grad, Vec<f64>, Way::Curve(Curve::Cubic, 2);
    interp_antialias interp_antialias_grad, Vec<f64>, Way::Filter;
}

/// What a kernel resizes by.
enum Way {
    /// A curve, along so many axes.
    Curve(Curve, usize),
    /// The filter that an attribute names, along both axes of an image.
    Filter,
}

impl Way {
    fn with<'a>(&self, request: &'a Request) -> Result<Resampling<'a>> {
        let (curve, axes) = match *self {
            Way::Curve(curve, axes) => (curve, axes),
            Way::Filter => (Curve::of_filter(&request.method)?, 2),
        };
        Ok(Resampling { curve, axes, request })
    }
}

impl Resize for Way {
    fn resize(&self, context: &Context, x: &View, request: &Request, out: &Output) -> Result<()> {
        self.with(request)?.resize(context, x, &x.shape, false, out)
    }

    fn gradient(&self, context: &Context, x: &Shape, upstream: &View, request: &Request, dx: &Output) -> Result<()> {
        self.with(request)?.resize(context, upstream, x, true, dx)
    }
}
