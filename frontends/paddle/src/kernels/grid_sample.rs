//! Kernels that read images at points: grid_sample and its gradients.

use super::images::refuse;
use super::movement::many;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::grid_sample::{
    Beyond, GridSample, GridSampleGridGradient, GridSampleInputGradient, Sampling,
};
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("grid_sample", FLOATS, grid_sample).strided();
    table.add("grid_sample_grad", FLOATS, grid_sample_grad).strided();
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
    Ok(GridSample { sampling, beyond, align_corners })
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
