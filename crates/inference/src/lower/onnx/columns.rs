//! Windows as columns: back into images, and read where offsets say.

use super::along;
use super::window::axes;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, size_of, sizes_of, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::grid_sample::{Beyond, Coordinates, GridSample, Sampling};
use openmps::operators::operators::scatter::IndexAdd;
use openmps::operators::view::elements;

pub(super) const TABLE: Table = &[("Col2Im", images), ("DeformConv", deformable)];

/// `[batch, channels times the window's elements, windows]`, and the sizes of images and windows. What windows share is added up.
fn images(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let sizes = sizes_of(operation, lowering.integers(operation, 1, "")?.unwrap_or_default())?;
    let window = sizes_of(operation, lowering.integers(operation, 2, "")?.unwrap_or_default())?;
    let x = lowering.input(operation, 0)?;
    let axes = axes(operation, &sizes, &window)?;
    let (padded, windows): (Vec<usize>, Vec<usize>) =
        axes.iter().map(|axis| (axis.padded_size(), axis.windows())).unzip();
    let (cells, count) = (elements(&window)?, elements(&windows)?);
    let shape = lowering.shape(&x)?;
    let channels = match shape[..] {
        [_, rows, columns] if columns == count && rows.is_multiple_of(cells) => rows / cells,
        _ => return Err(wrong(operation, format!("columns of shape {shape:?} for {count} windows of {window:?}"))),
    };
    let whole = elements(&[&[shape[0], channels], &padded[..]].concat())?;
    let planes = shape[0] * channels;
    // Each element's place is a sum of one number for each axis of the window, and one for each of the windows.
    let (rank, mut place) = (axes.len(), None);
    for (at, axis) in axes.iter().enumerate() {
        let pitch = padded[at + 1..].iter().product::<usize>();
        for (own, step, len) in [(at, axis.dilation, axis.kernel), (rank + at, axis.stride, windows[at])] {
            let numbers = lowering.stepped(0.0, step as f64 * pitch as f64, len, DataType::I64)?;
            let numbers = lowering.reshape(&numbers, &along(2 * rank, own, len))?;
            place = Some(lowering.added(place, numbers)?);
        }
    }
    let place = place.ok_or_else(|| wrong(operation, "no sizes of images"))?;
    let place = lowering.reshape(&place, &[cells * count])?;
    let nothing = lowering.filled(&[planes, whole.checked_div(planes).unwrap_or(0)], lowering.data_type(&x)?, 0.0)?;
    let columns = lowering.reshape(&x, &[planes, cells * count])?;
    let mut y = lowering.one(IndexAdd { axis: 1 }, &[nothing, place, columns])?;
    y = lowering.reshape(&y, &[&[shape[0], channels], &padded[..]].concat())?;
    for (at, axis) in axes.iter().enumerate() {
        y = lowering.narrow(&y, 2 + at, axis.padding[0], axis.padding[0] + axis.size)?;
    }
    Ok(vec![y])
}

/// Images, weights `[outputs, channels, height, width]`, offsets of the places that each window's elements are read at (rows before columns), a bias, and factors of
/// what is read.
fn deformable(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let [x, weight, offset] = [0, 1, 2].map(|at| lowering.input(operation, at));
    let (x, weight, offset) = (x?, weight?, offset?);
    let (of_x, of_weight) = (lowering.shape(&x)?, lowering.shape(&weight)?);
    let ([batch, channels, height, width], [outputs, each, tall, wide]) = (&of_x[..], &of_weight[..]) else {
        return Err(wrong(operation, format!("{of_x:?} by weights of {of_weight:?}: images only")));
    };
    let (batch, channels, outputs, each, taps) = (*batch, *channels, *outputs, *each, tall * wide);
    let [groups, sets] = ["group", "offset_group"].map(|name| operation.integer(name, 1));
    let (groups, sets) = (size_of(operation, groups?)?.max(1), size_of(operation, sets?)?.max(1));
    let fits = channels == each.saturating_mul(groups) && outputs.is_multiple_of(groups);
    if !fits || sets > channels || !channels.is_multiple_of(sets) {
        let what = format!("{channels} channels by weights of {of_weight:?} in {groups} groups, {sets} of offsets");
        return Err(wrong(operation, what));
    }
    let axes = axes(operation, &[*height, *width], &[*tall, *wide])?;
    let (rows, columns) = (axes[0].windows(), axes[1].windows());
    if lowering.shape(&offset)? != [batch, sets * taps * 2, rows, columns] {
        return Err(wrong(
            operation,
            format!("offsets of {:?} for {rows} x {columns} windows", lowering.shape(&offset)?),
        ));
    }
    let offset = lowering.reshape(&offset, &[batch * sets, taps, 2, rows, columns])?;
    let mut sides = Vec::with_capacity(2);
    for (at, axis) in axes.iter().enumerate() {
        let mut place = lowering.narrow(&offset, 2, at, at + 1)?;
        place = lowering.reshape(&place, &[batch * sets, *tall, *wide, rows, columns])?;
        let (first, dtype) = (-(axis.padding[0] as f64), lowering.data_type(&place)?);
        for (own, first, step, len) in
            [(1 + at, first, axis.dilation, axis.kernel), (3 + at, 0.0, axis.stride, axis.windows())]
        {
            let numbers = lowering.stepped(first, step as f64, len, dtype)?;
            let numbers = lowering.reshape(&numbers, &along(5, own, len))?;
            place = lowering.binary(Binary::Add, &place, &numbers)?;
        }
        sides.insert(0, lowering.reshape(&place, &[batch * sets, taps * rows, columns, 1])?);
    }
    let grid = lowering.concat(&sides, 3)?;
    let planes = lowering.reshape(&x, &[batch * sets, channels / sets, *height, *width])?;
    let sample = GridSample { sampling: Sampling::Linear, beyond: Beyond::Zeros, coordinates: Coordinates::Elements };
    let mut read = lowering.one(sample, &[planes, grid])?;
    if let Some(factors) = lowering.optional(operation, 4)? {
        let factors = lowering.reshape(&factors, &[batch * sets, 1, taps * rows, columns])?;
        read = lowering.binary(Binary::Multiply, &read, &factors)?;
    }
    let read = lowering.reshape(&read, &[batch, groups, each * taps, rows * columns])?;
    let weight = lowering.reshape(&weight, &[1, groups, outputs / groups, each * taps])?;
    let y = lowering.matmul(&weight, &read, [false; 2])?;
    let y = lowering.reshape(&y, &[batch, outputs, rows, columns])?;
    let Some(bias) = lowering.optional(operation, 3)? else { return Ok(vec![y]) };
    let bias = lowering.spread_along(&bias, &y, 1)?;
    Ok(vec![lowering.binary(Binary::Add, &y, &bias)?])
}
