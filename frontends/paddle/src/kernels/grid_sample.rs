//! Kernels that read images at points, grid_sample, and that make the points, affine_grid, with gradients.

use super::compose::Compose;
use super::linear_algebra::product;
use super::movement::many;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::operators::grid_sample::{
    Beyond, Coordinates, GridSample, GridSampleGridGradient, GridSampleInputGradient, Sampling,
};
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("grid_sample", FLOATS, grid_sample).strided();
    table.add("grid_sample_grad", FLOATS, grid_sample_grad).strided();
    table.add("affine_grid", FLOATS, affine_grid);
    table.add("affine_grid_grad", FLOATS, affine_grid_grad);
}

fn operator(mode: &str, padding: &str, align_corners: bool) -> Result<GridSample> {
    let sampling = match mode {
        "bilinear" => Sampling::Linear,
        "nearest" => Sampling::Nearest,
        _ => return Err(refuse("mode", mode, "bilinear or nearest")),
    };
    let beyond = match padding {
        "zeros" => Beyond::Zeros,
        "border" => Beyond::Border,
        "reflection" => Beyond::Reflection,
        _ => return Err(refuse("padding_mode", padding, "zeros, border or reflection")),
    };
    let coordinates = if align_corners { Coordinates::Centres } else { Coordinates::Sides };
    Ok(GridSample { sampling, beyond, coordinates })
}

fn grid_sample(
    context: &Context,
    x: Tensor,
    grid: Tensor,
    mode: String,
    padding: String,
    align_corners: bool,
    out: Output,
) -> Result<()> {
    many(context, &operator(&mode, &padding, align_corners)?, &[x.view()?, grid.view()?], &[Some(&out)])
}

fn grid_sample_grad(
    context: &Context,
    x: Tensor,
    grid: Tensor,
    upstream: Tensor,
    mode: String,
    padding: String,
    align_corners: bool,
    dx: Option<Output>,
    dgrid: Option<Output>,
) -> Result<()> {
    let of = operator(&mode, &padding, align_corners)?;
    let (x, grid, upstream) = (x.view()?, grid.view()?, upstream.view()?);
    if let Some(dx) = &dx {
        let operator = GridSampleInputGradient { of, shape: x.shape.clone() };
        many(context, &operator, &[grid.clone(), upstream.clone()], &[Some(dx)])?;
    }
    if let Some(dgrid) = &dgrid {
        many(context, &GridSampleGridGradient { of }, &[x, grid, upstream], &[Some(dgrid)])?;
    }
    Ok(())
}

/// The points of an image of these sizes, from -1 to 1 along each axis, the last axis first, each followed by a 1: (points, rank + 1).
fn points(c: &Compose, sizes: &[usize], align_corners: bool, dtype: DType) -> Result<View> {
    let along = |at: usize, size: usize| {
        let step = if align_corners { 2.0 / (size.max(2) - 1) as f64 } else { 2.0 / size as f64 };
        at as f64 * step - if align_corners { 1.0 } else { 1.0 - step / 2.0 }
    };
    let count = openmps_graph::view::elements(sizes)?;
    let mut numbers = Vec::with_capacity(count * (sizes.len() + 1));
    for point in 0..count {
        let mut rest = point;
        for &size in sizes.iter().rev() {
            numbers.push(along(rest % size, size));
            rest /= size;
        }
        numbers.push(1.0);
    }
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    c.cast(&c.upload(DType::F64, &[count, sizes.len() + 1], &bytes)?, dtype)
}

/// The sizes after batch and channels.
fn image_sizes(shape: &IntArray) -> Result<Vec<usize>> {
    match &shape.dims()?[..] {
        [_, _, sizes @ ..] if matches!(sizes.len(), 2 | 3) => Ok(sizes.to_vec()),
        _ => Err(refuse("out_shape", &shape[..], "4 or 5 numbers")),
    }
}

/// Points moved by a matrix for each image.
fn affine_grid(context: &Context, theta: Tensor, shape: IntArray, align_corners: bool, out: Output) -> Result<()> {
    let (c, dtype, sizes) = (Compose::new(context), theta.dtype()?, image_sizes(&shape)?);
    let theta = c.input(&theta)?;
    let points = points(&c, &sizes, align_corners, theta.dtype)?;
    let single = c.shaped(&points, &[1, points.shape[0], points.shape[1]])?;
    out.set_dims(&[&theta.shape[..1], &sizes[..], &[sizes.len()]].concat());
    c.store_value(&out, dtype, &product(&c, (&single, false), (&theta, true))?)
}

fn affine_grid_grad(
    context: &Context,
    upstream: Tensor,
    shape: IntArray,
    align_corners: bool,
    dtheta: Output,
) -> Result<()> {
    let (c, dtype, sizes) = (Compose::new(context), upstream.dtype()?, image_sizes(&shape)?);
    let upstream = c.input(&upstream)?;
    let points = points(&c, &sizes, align_corners, upstream.dtype)?;
    let single = c.shaped(&points, &[1, points.shape[0], points.shape[1]])?;
    let upstream = c.shaped(&upstream, &[upstream.shape[0], points.shape[0], sizes.len()])?;
    c.store_value(&dtheta, dtype, &product(&c, (&upstream, true), (&single, false))?)
}
