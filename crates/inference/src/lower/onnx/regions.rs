//! Images read at points between their elements: grids, regions, and the grids of affine maps.

use super::{along, integers};
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, size_of, sizes_of, wrong};
use crate::program::Operation;
use openmps::operators::operators::elementwise::{Binary, Unary};
use openmps::operators::operators::gather::Gather;
use openmps::operators::operators::grid_sample::{Beyond, Coordinates, GridSample, Sampling};
use openmps::operators::operators::reduce::Reduction;
use std::collections::BTreeMap;

pub(super) const TABLE: Table = &[("GridSample", grid_sample), ("RoiAlign", regions), ("AffineGrid", affine_grid)];

fn grid_sample(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let inputs = [lowering.input(operation, 0)?, lowering.input(operation, 1)?];
    let beyond = match operation.text("padding_mode", "zeros")? {
        "border" => Beyond::Border,
        "reflection" => Beyond::Reflection,
        _ => Beyond::Zeros,
    };
    let coordinates = if operation.flag("align_corners", false)? { Coordinates::Centres } else { Coordinates::Sides };
    let sampling = match operation.text("mode", "linear")? {
        "nearest" => Sampling::Nearest,
        "linear" | "bilinear" => Sampling::Linear,
        "cubic" | "bicubic" => return cubic(lowering, operation, &inputs, beyond, coordinates),
        other => return Err(wrong(operation, format!("the mode {other:?}"))),
    };
    Ok(vec![lowering.one(GridSample { sampling, beyond, coordinates }, &inputs)?])
}

/// The weights of four neighbours by how far a point is behind the second one, as factors of its powers, the third first.
const CUBIC: [[f64; 4]; 4] =
    [[-0.75, 1.5, -0.75, 0.0], [1.25, -2.25, 0.0, 1.0], [-1.25, 1.5, 0.75, 0.0], [0.75, -0.75, 0.0, 0.0]];

/// A weighted sum of the 16 elements around each point, each of which is read on its own: the border's rule is each one's.
fn cubic(
    lowering: &mut Lowering,
    operation: &Operation,
    [x, grid]: &[Value; 2],
    beyond: Beyond,
    coordinates: Coordinates,
) -> Result<Vec<Value>> {
    let ([_, _, height, width], [batch, rows, columns, 2]) = (&lowering.shape(x)?[..], &lowering.shape(grid)?[..])
    else {
        return Err(wrong(operation, "cubic sampling of other than images"));
    };
    let (mut places, mut weights) = (Vec::new(), Vec::new());
    for (at, size) in [*width as f64, *height as f64].into_iter().enumerate() {
        let (factor, addend) = match coordinates {
            Coordinates::Sides => (size / 2.0, (size - 1.0) / 2.0),
            _ => ((size - 1.0) / 2.0, (size - 1.0) / 2.0),
        };
        let own = lowering.narrow(grid, 3, at, at + 1)?;
        let point = lowering.scaled(&own, factor, addend)?;
        let floor = lowering.unary(Unary::Floor, &point)?;
        let behind = lowering.binary(Binary::Subtract, &point, &floor)?;
        let behind = lowering.reshape(&behind, &[*batch, 1, *rows, *columns])?;
        for (tap, powers) in CUBIC.iter().enumerate() {
            let place = lowering.scaled(&floor, 1.0, tap as f64 - 1.0)?;
            // A mirror beside the outermost elements needs coordinates that know of it.
            places.push(match coordinates {
                Coordinates::Sides => lowering.scaled(&place, 1.0 / factor, -addend / factor)?,
                _ => place,
            });
            let mut weight = lowering.number_like(&behind, powers[0])?;
            for &power in &powers[1..] {
                let product = lowering.binary(Binary::Multiply, &weight, &behind)?;
                weight = lowering.scaled(&product, 1.0, power)?;
            }
            weights.push(weight);
        }
    }
    let coordinates = if coordinates == Coordinates::Sides { coordinates } else { Coordinates::Elements };
    let sample = GridSample { sampling: Sampling::Nearest, beyond, coordinates };
    let mut sum = None;
    for (row, column) in (0..16).map(|tap| (4 + tap / 4, tap % 4)) {
        let grid = lowering.concat(&[places[column].clone(), places[row].clone()], 3)?;
        let read = lowering.one(sample, &[x.clone(), grid])?;
        let weight = lowering.binary(Binary::Multiply, &weights[row], &weights[column])?;
        let term = lowering.binary(Binary::Multiply, &read, &weight)?;
        sum = Some(lowering.added(sum, term)?);
    }
    Ok(sum.into_iter().collect())
}

/// How regions become boxes of one size.
struct Boxes {
    /// Height and width.
    sizes: [usize; 2],
    scale: f64,
    /// Whether coordinates are of elements' sides, not their centres.
    aligned: bool,
}

/// Points of a cell along a side at most.
const MOST_POINTS: usize = 1 << 12;

/// The number of an image, and how many points a box's cell has along each side.
type Kind = (usize, [usize; 2]);

/// Images, regions as two corners each, the number of each region's image. Each cell of the result is the mean of what is read at points in it.
fn regions(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (old, new) = ("output_half_pixel", "half_pixel");
    // ONNX's is the largest of the four elements around a point, each times its weight.
    if operation.text("mode", "avg")? == "max" {
        return Err(wrong(operation, "the largest of what is read, where ONNX's rule is of its own"));
    }
    let default = if lowering.opset() < 16 { old } else { new };
    let sizes = ["output_height", "output_width"].map(|name| operation.integer(name, 1));
    let [height, width] = sizes;
    let of = Boxes {
        sizes: [size_of(operation, height?)?, size_of(operation, width?)?],
        scale: operation.float("spatial_scale", 1.0)?,
        aligned: operation.text("coordinate_transformation_mode", default)? == new,
    };
    if of.sizes.contains(&0) {
        return Err(wrong(operation, format!("boxes of {:?} cells", of.sizes)));
    }
    // What is read runs the graph so far: inputs come after that.
    let kinds = kinds(lowering, operation, &of)?;
    let (x, rois) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let shape = lowering.shape(&x)?;
    let [images, channels, _, _] = shape[..] else { return Err(wrong(operation, format!("images of {shape:?}"))) };
    let (mut order, mut parts) = (Vec::new(), Vec::new());
    for ((image, points), members) in kinds {
        if image >= images {
            return Err(wrong(operation, format!("image {image} of {images}")));
        }
        let own = integers(members.iter().map(|&at| at as i64));
        let own = lowering.one(Gather { axis: 0 }, &[rois.clone(), own])?;
        let plane = lowering.narrow(&x, 0, image, image + 1)?;
        parts.push(if points.contains(&0) {
            lowering.filled(&[members.len(), channels, of.sizes[0], of.sizes[1]], lowering.data_type(&x)?, 0.0)?
        } else {
            boxes(lowering, &of, &plane, &own, points)?
        });
        order.extend(members);
    }
    if parts.is_empty() {
        return Ok(vec![lowering.filled(&[0, channels, of.sizes[0], of.sizes[1]], lowering.data_type(&x)?, 0.0)?]);
    }
    let y = lowering.concat(&parts, 0)?;
    if order.is_sorted() {
        return Ok(vec![y]);
    }
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &at)| places[at] = place as i64);
    Ok(vec![lowering.one(Gather { axis: 0 }, &[y, integers(places)])?])
}

/// The regions of each kind, by their numbers.
fn kinds(lowering: &mut Lowering, operation: &Operation, of: &Boxes) -> Result<BTreeMap<Kind, Vec<usize>>> {
    let asked = size_of(operation, operation.integer("sampling_ratio", 0)?)?;
    let images = lowering.input(operation, 2)?;
    let images = lowering.known(&images)?.data;
    let corners = match asked {
        0 => {
            let corners = lowering.input(operation, 1)?;
            lowering.known(&corners)?.data
        }
        _ => Vec::new(),
    };
    let mut kinds: BTreeMap<Kind, Vec<usize>> = BTreeMap::new();
    for (at, &image) in images.iter().enumerate() {
        let points = match corners.get(4 * at..4 * at + 4) {
            Some(corners) => [0, 1].map(|side| of.points(corners, side)),
            None if asked > 0 => [asked; 2],
            None => return Err(wrong(operation, format!("{} images of {} regions", images.len(), corners.len() / 4))),
        };
        if image < 0.0 || points.iter().any(|&points| points > MOST_POINTS) {
            return Err(wrong(operation, format!("region {at} of image {image}, with {points:?} points a cell")));
        }
        kinds.entry((image as usize, points)).or_default().push(at);
    }
    Ok(kinds)
}

impl Boxes {
    /// Points of a cell along a side, vertical ones first, where the operation leaves it to the region's size.
    fn points(&self, corners: &[f64], side: usize) -> usize {
        let scaled = |at: usize| corners[at] as f32 * self.scale as f32 - if self.aligned { 0.5 } else { 0.0 };
        let size = scaled(3 - side) - scaled(1 - side);
        let size = if self.aligned { size } else { size.max(1.0) };
        (size / self.sizes[side] as f32).ceil().max(0.0) as usize
    }
}

/// Boxes of regions of one image.
fn boxes(lowering: &mut Lowering, of: &Boxes, image: &Value, rois: &Value, points: [usize; 2]) -> Result<Value> {
    let shape = lowering.shape(image)?;
    let (count, channels) = (lowering.shape(rois)?[0], shape[1]);
    let [rows, columns] = [0, 1].map(|side| of.sizes[side] * points[side]);
    let (mut places, mut within) = (Vec::with_capacity(2), Vec::with_capacity(2));
    for (side, len) in [rows, columns].into_iter().enumerate() {
        let mut ends = Vec::with_capacity(2);
        for corner in [1 - side, 3 - side] {
            let end = lowering.narrow(rois, 1, corner, corner + 1)?;
            ends.push(lowering.scaled(&end, of.scale, if of.aligned { -0.5 } else { 0.0 })?);
        }
        let mut size = lowering.binary(Binary::Subtract, &ends[1], &ends[0])?;
        if !of.aligned {
            let least = lowering.number_like(&size, 1.0)?;
            size = lowering.binary(Binary::Maximum, &size, &least)?;
        }
        let step = lowering.scaled(&size, 1.0 / len as f64, 0.0)?;
        let place = lowering.stepped(0.5, 1.0, len, lowering.data_type(&step)?)?;
        let place = lowering.reshape(&place, &[1, len])?;
        let place = lowering.binary(Binary::Multiply, &step, &place)?;
        let place = lowering.binary(Binary::Add, &ends[0], &place)?;
        // More than an element beyond the border there is nothing.
        let mut inside = Vec::with_capacity(2);
        for (order, edge) in [(Binary::GreaterEqual, -1.0), (Binary::LessEqual, shape[2 + side] as f64)] {
            let edge = lowering.number_like(&place, edge)?;
            inside.push(lowering.binary(order, &place, &edge)?);
        }
        let inside = lowering.binary(Binary::LogicalAnd, &inside[0], &inside[1])?;
        let mut along = [1, count, 1, 1];
        along[2 + side] = len;
        within.push(lowering.reshape(&inside, &along)?);
        let place = lowering.reshape(&place, &along)?;
        let place = lowering.expanded(&place, &[1, count, rows, columns])?;
        places.insert(0, lowering.reshape(&place, &[1, count * rows, columns, 1])?);
    }
    let grid = lowering.concat(&places, 3)?;
    let sample = GridSample { sampling: Sampling::Linear, beyond: Beyond::Border, coordinates: Coordinates::Elements };
    let read = lowering.one(sample, &[image.clone(), grid])?;
    let read = lowering.reshape(&read, &[channels, count, rows, columns])?;
    let inside = lowering.binary(Binary::LogicalAnd, &within[0], &within[1])?;
    let nothing = lowering.number_like(&read, 0.0)?;
    let read = lowering.choose(&inside, &read, &nothing)?;
    let cells = [channels * count, of.sizes[0], points[0], of.sizes[1], points[1]];
    let cells = lowering.reshape(&read, &cells)?;
    let y = lowering.reduce(Reduction::Mean, &cells, &[2, 4], false)?;
    let y = lowering.reshape(&y, &[channels, count, of.sizes[0], of.sizes[1]])?;
    lowering.transpose(&y, &[1, 0, 2, 3])
}

/// Matrices `[batch, 2, 3]` or `[batch, 3, 4]` and an image's or a volume's sizes: where each of its elements comes from, the innermost coordinate first.
fn affine_grid(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let sizes = sizes_of(operation, lowering.integers(operation, 1, "")?.unwrap_or_default())?;
    let theta = lowering.input(operation, 0)?;
    let (dtype, shape) = (lowering.data_type(&theta)?, lowering.shape(&theta)?);
    let spatial = sizes.get(2..).unwrap_or_default();
    let rank = spatial.len();
    let [batch, rows, columns] = shape[..] else { return Err(wrong(operation, format!("matrices of {shape:?}"))) };
    if !matches!(rank, 2 | 3) || [rows, columns] != [rank, rank + 1] {
        return Err(wrong(operation, format!("matrices of {shape:?} for sizes {sizes:?}")));
    }
    let aligned = operation.flag("align_corners", false)?;
    let mut coordinates = Vec::with_capacity(rank + 1);
    for (at, &size) in spatial.iter().enumerate().rev() {
        let parts = if aligned { size.saturating_sub(1).max(1) } else { size.max(1) } as f64;
        let first = if aligned { -1.0 } else { 1.0 / parts - 1.0 };
        let line = lowering.stepped(first, 2.0 / parts, size, dtype)?;
        let line = lowering.reshape(&line, &along(rank + 1, at, size))?;
        coordinates.push(lowering.expanded(&line, &[spatial, &[1]].concat())?);
    }
    coordinates.push(lowering.filled(&[spatial, &[1]].concat(), dtype, 1.0)?);
    let points = lowering.concat(&coordinates, rank)?;
    let points = lowering.reshape(&points, &[1, spatial.iter().product(), rank + 1])?;
    let grid = lowering.matmul(&points, &theta, [false, true])?;
    Ok(vec![lowering.reshape(&grid, &[&[batch], spatial, &[rank]].concat())?])
}
