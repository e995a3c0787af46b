//! Deformable convolution with gradients: the image is read at moved points, and the rest is a product of matrices.

use super::compose::Compose;
use super::images::pair;
use super::linear_algebra::product;
use super::values::{dims, expect, positive};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::grid_sample::{
    Beyond, Coordinates, GridSample, GridSampleGridGradient, GridSampleInputGradient, Sampling,
};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("deformable_conv", FLOATS, deformable_conv);
    table.add("deformable_conv_grad", FLOATS, deformable_conv_grad);
}

/// Between elements, and zero beyond them.
const READ: GridSample =
    GridSample { sampling: Sampling::Linear, beyond: Beyond::Zeros, coordinates: Coordinates::Elements };

/// A convolution's inputs and sizes.
struct Deformed<'c> {
    c: Compose<'c>,
    /// What the results are stored in; they are computed in the type of `x`.
    dtype: DType,
    /// Images of a deformable group: (images x groups, channels of a group, height, width).
    x: View,
    /// Where each of them is read: (images x groups, taps, points, x and y).
    grid: View,
    /// By which the numbers there are multiplied: (images x groups, 1, taps, points).
    mask: Option<View>,
    /// (1, groups, filters of a group, channels of a group x taps).
    filter: View,
    images: usize,
    groups: usize,
    taps: usize,
    points: usize,
}

/// Attributes, as Paddle has them.
struct Attributes {
    strides: Vec<i32>,
    paddings: Vec<i32>,
    dilations: Vec<i32>,
    deformable_groups: i32,
    groups: i32,
}

impl<'c> Deformed<'c> {
    fn new(
        context: &'c Context,
        [x, offset, filter]: [&Tensor; 3],
        mask: Option<&Tensor>,
        attributes: &Attributes,
    ) -> Result<Deformed<'c>> {
        let c = Compose::new(context);
        let [images, channels, height, width] = dims("x", x)?;
        let [filters, of_group, down, across] = dims("filter", filter)?;
        let [_, _, rows, columns] = dims("offset", offset)?;
        let moved = positive("deformable_groups", attributes.deformable_groups)?;
        let groups = positive("groups", attributes.groups)?;
        let (taps, points) = (down * across, rows * columns);
        if channels != of_group * groups || channels % moved != 0 || filters % groups != 0 {
            let expected = format!("sizes that fit {channels} channels and {filters} filters");
            return Err(refuse("groups, deformable_groups, filter", (groups, moved, filter.shape()), &expected));
        }
        expect("offset", offset, &[images, moved * taps * 2, rows, columns])?;
        if let Some(mask) = mask {
            expect("mask", mask, &[images, moved * taps, rows, columns])?;
        }
        let parts = images * moved;
        let own = own_points(attributes, [down, across], [rows, columns])?;
        let bytes: Vec<u8> = own.iter().flat_map(|place| place.to_ne_bytes()).collect();
        let base = c.upload(DType::F64, &[1, taps, points, 2], &bytes)?;
        let dtype = x.dtype()?;
        let offsets = across_first(&c.shaped(&c.input(offset)?, &[parts, taps, 2, points])?);
        let grid = c.add(&c.cast(&base, dtype.compute())?, &offsets)?;
        let mask = mask.map(|mask| c.shaped(&c.input(mask)?, &[parts, 1, taps, points])).transpose()?;
        Ok(Deformed {
            dtype,
            x: c.shaped(&c.input(x)?, &[parts, channels / moved, height, width])?,
            filter: c.shaped(&c.input(filter)?, &[1, groups, filters / groups, of_group * taps])?,
            c,
            grid,
            mask,
            images,
            groups,
            taps,
            points,
        })
    }

    /// What is read at the points: (images x deformable groups, channels of one, taps, points).
    fn read(&self) -> Result<View> {
        self.c.apply(&READ, &[self.x.clone(), self.grid.clone()])
    }

    /// The same as numbers times the mask.
    fn masked(&self, x: &View) -> Result<View> {
        self.mask.as_ref().map_or_else(|| Ok(x.clone()), |mask| self.c.multiply(x, mask))
    }

    /// As the product reads it: (images, groups, channels of a group x taps, points).
    fn columns(&self, x: &View) -> Result<View> {
        self.c.shaped(x, &[self.images, self.groups, self.filter.shape[3], self.points])
    }

    fn result(&self) -> Result<View> {
        let columns = self.columns(&self.masked(&self.read()?)?)?;
        product(&self.c, (&self.filter, false), (&columns, false))
    }

    fn gradients(&self, upstream: &View, outputs: [Option<Output>; 4]) -> Result<()> {
        let (c, [dx, of_offset, of_filter, of_mask]) = (&self.c, outputs);
        let upstream = c.shaped(upstream, &[self.images, self.groups, self.filter.shape[2], self.points])?;
        let (dtype, read) = (self.dtype, self.read()?);
        if let Some(of_filter) = of_filter {
            let columns = self.columns(&self.masked(&read)?)?;
            let each = product(c, (&upstream, false), (&columns, true))?;
            c.store_value(&of_filter, dtype, &c.reduce(Reduction::Sum, &each, &[0])?)?;
        }
        let of_columns = product(c, (&self.filter, true), (&upstream, false))?;
        let of_columns = c.shaped(&of_columns, &read.shape)?;
        if let Some(of_mask) = of_mask {
            let of_mask_each = c.reduce(Reduction::Sum, &c.multiply(&of_columns, &read)?, &[1])?;
            c.store_value(&of_mask, dtype, &of_mask_each)?;
        }
        let of_read = self.masked(&of_columns)?;
        if let Some(dx) = dx {
            let operator = GridSampleInputGradient { of: READ, shape: self.x.shape.clone() };
            c.store_value(&dx, dtype, &c.apply(&operator, &[self.grid.clone(), of_read.clone()])?)?;
        }
        let Some(of_offset) = of_offset else { return Ok(()) };
        let operator = GridSampleGridGradient { of: READ };
        let of_grid = c.apply(&operator, &[self.x.clone(), self.grid.clone(), of_read])?;
        // A point a whole element before the first one moves nothing, in Paddle's words.
        let before = c.constant(self.grid.dtype, &[1], -1.0)?;
        let inside = c.map(Elementwise::Binary(Binary::GreaterThan), &[&self.grid, &before], &[])?;
        let of_grid = c.map(Elementwise::Gradient(Gradient::Chosen), &[&inside, &of_grid], &[])?;
        let parts = self.grid.shape[0];
        let to = c.place(&of_offset, dtype)?;
        let to = across_first(&c.shaped(&to, &[parts, self.taps, 2, self.points])?);
        c.run(Elementwise::Unary(Unary::Cast), &[&of_grid], &to)
    }
}

/// Offsets (.., y and x, points) as points of a grid (.., points, x and y).
fn across_first(offset: &View) -> View {
    offset.permuted(&[0, 1, 3, 2]).narrowed(3, 1, -1, 2)
}

/// The points of a convolution that nothing has moved: taps, points, x and y.
fn own_points(attributes: &Attributes, [down, across]: [usize; 2], [rows, columns]: [usize; 2]) -> Result<Vec<f64>> {
    let (strides, dilations) = (pair("strides", &attributes.strides)?, pair("dilations", &attributes.dilations)?);
    let paddings = pair("paddings", &attributes.paddings)?;
    let place = |side: usize, point: usize, tap: usize| {
        (point * strides[side] + tap * dilations[side]) as f64 - paddings[side] as f64
    };
    let mut own = Vec::with_capacity(down * across * rows * columns * 2);
    for tap in 0..down * across {
        for point in 0..rows * columns {
            own.extend([place(1, point % columns, tap % across), place(0, point / columns, tap / across)]);
        }
    }
    Ok(own)
}

fn deformable_conv(
    context: &Context,
    x: Tensor,
    offset: Tensor,
    filter: Tensor,
    mask: Option<Tensor>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    dilations: Vec<i32>,
    deformable_groups: i32,
    groups: i32,
    _im2col_step: i32,
    out: Output,
) -> Result<()> {
    let attributes = Attributes { strides, paddings, dilations, deformable_groups, groups };
    let deformed = Deformed::new(context, [&x, &offset, &filter], mask.as_ref(), &attributes)?;
    deformed.c.store_value(&out, x.dtype()?, &deformed.result()?)
}

fn deformable_conv_grad(
    context: &Context,
    x: Tensor,
    offset: Tensor,
    filter: Tensor,
    mask: Option<Tensor>,
    upstream: Tensor,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    dilations: Vec<i32>,
    deformable_groups: i32,
    groups: i32,
    _im2col_step: i32,
    dx: Option<Output>,
    of_offset: Option<Output>,
    of_filter: Option<Output>,
    of_mask: Option<Output>,
) -> Result<()> {
    let attributes = Attributes { strides, paddings, dilations, deformable_groups, groups };
    let deformed = Deformed::new(context, [&x, &offset, &filter], mask.as_ref(), &attributes)?;
    let of_mask = of_mask.filter(|_| mask.is_some());
    deformed.gradients(&deformed.c.input(&upstream)?, [dx, of_offset, of_filter, of_mask])
}
