//! Grid sampling of dense float32 images on the host device: what a point reads is worked out once, for all channels.

use super::{Beyond, Coordinates, GridSample, Sampling};
use crate::error::Result;
use crate::image::write;
use crate::layout::{Dense, call, takes_singles};
use crate::queue::Queue;
use crate::view::View;
use openmps_host::native::grid_sample::{CORNERS, Corner, Points, products, sample, spread};
use openmps_host::native::memory::{slice, slice_mut};

/// Whether images are read here, and not by the kernels of tiles.
pub(super) fn takes(queue: &Queue, inputs: &[View], outputs: &[View]) -> bool {
    let is_counted = |view: &View| u32::try_from(view.len()).is_ok();
    takes_singles(queue, inputs, outputs) && inputs[0].rank() == 4 && inputs.iter().chain(outputs).all(is_counted)
}

/// What a point reads along one dimension: elements and their weights, in float32 as the kernels of tiles compute them.
#[derive(Clone, Copy)]
struct Tap {
    elements: [Option<usize>; 2],
    weights: [f32; 2],
    /// How far the point moves with its coordinate.
    slope: f32,
}

impl Tap {
    fn new(of: &GridSample, coordinate: f32, size: usize) -> Tap {
        let factor = of.factor(size) as f32;
        let point = match of.coordinates {
            Coordinates::Elements => coordinate,
            Coordinates::Centres => (coordinate + 1.0) * factor,
            Coordinates::Sides => (coordinate + 1.0) * factor - 0.5,
        };
        let (point, slope) = held(of, point, factor, size);
        let exists = |place: f32| (place >= 0.0 && place < size as f32).then_some(place as usize);
        if of.sampling == Sampling::Nearest {
            return Tap { elements: [exists(point.round_ties_even()), None], weights: [1.0, 0.0], slope };
        }
        let low = point.floor();
        let high = if of.beyond == Beyond::Zeros { low + 1.0 } else { (low + 1.0).min(size as f32 - 1.0) };
        let weight = point - low;
        Tap { elements: [exists(low), exists(high)], weights: [1.0 - weight, weight], slope }
    }
}

/// A point and its slope as the rule for what lies beyond the border has them.
fn held(of: &GridSample, mut point: f32, mut slope: f32, size: usize) -> (f32, f32) {
    if of.beyond == Beyond::Zeros {
        return (point, slope);
    }
    let last = size as f32 - 1.0;
    if of.beyond == Beyond::Reflection {
        // Mirrors stand at the outermost elements' centres, or half an element beyond.
        let shift = of.shift() as f32;
        let range = 2.0 * if of.coordinates == Coordinates::Sides { size as f32 } else { last };
        let own = point + shift;
        let rest = own.abs() - (own.abs() / range).floor() * range;
        let back = range - rest;
        if (rest > back) != (own < 0.0) {
            slope = -slope;
        }
        point = match (range > 0.0, rest.is_nan()) {
            (false, _) => 0.0,
            (true, true) => f32::NAN,
            (true, false) => rest.min(back) - shift,
        };
    }
    if point < 0.0 || point > last {
        slope = 0.0;
    }
    // What is no number stays none.
    (if point.is_nan() { point } else { point.clamp(0.0, last.max(0.0)) }, slope)
}

/// What every point reads, along rows and along columns.
fn taps(of: &GridSample, sizes: &[usize], grid: &[f32]) -> Vec<[Tap; 2]> {
    let point = |&[x, y]: &[f32; 2]| [Tap::new(of, y, sizes[0]), Tap::new(of, x, sizes[1])];
    grid.as_chunks().0.iter().map(point).collect()
}

/// The sides of a corner along rows and columns.
fn sides(corner: usize) -> [usize; 2] {
    [corner % 2, corner / 2]
}

fn corners(of: &GridSample, taps: &[[Tap; 2]], width: usize) -> Vec<[Corner; CORNERS]> {
    let corner = |[row, column]: &[Tap; 2], number: usize| {
        let [y, x] = sides(number);
        let place = row.elements[y].zip(column.elements[x]).map(|(y, x)| (y * width + x) as u32);
        Corner { place, weight: row.weights[y] * column.weights[x] }
    };
    let of_point = |taps: &[Tap; 2]| match of.sampling {
        Sampling::Nearest => [corner(taps, 0), Corner::NONE, Corner::NONE, Corner::NONE],
        Sampling::Linear => std::array::from_fn(|number| corner(taps, number)),
    };
    taps.iter().map(of_point).collect()
}

/// An image's, or its samples', channels as neighbours.
fn channels_last(view: &View) -> View {
    let order = [0, 2, 3, 1];
    View {
        shape: order.iter().map(|&d| view.shape[d]).collect(),
        strides: order.iter().map(|&d| view.strides[d]).collect(),
        ..view.clone()
    }
}

/// The images and points of a call; `work` is handed them with what each point reads along rows and columns.
fn with_points(
    (queue, name): (&Queue, &'static str),
    of: &GridSample,
    [x, grid]: [&View; 2],
    work: impl FnOnce(&Points<'_>, &[[Tap; 2]]) -> std::result::Result<(), openmps_host::Error>,
) -> Result<()> {
    call(queue, name, || {
        // SAFETY: a dense tensor of float32, which the frontend keeps alive.
        let grid = unsafe { slice::<f32>(grid.address, grid.len()) };
        let taps = taps(of, &x.shape[2..], grid);
        let corners = corners(of, &taps, x.shape[3]);
        let points =
            Points { images: x.shape[0], plane: x.shape[2] * x.shape[3], channels: x.shape[1], corners: &corners };
        work(&points, &taps)
    })
}

/// The elements of a view with the channels as neighbours.
///
/// # Safety
/// The view was dense before its dimensions were moved, of float32, and alive; so is the copy, while it is borrowed.
unsafe fn elements<'a>(dense: &'a Dense, view: &View) -> &'a [f32] {
    // SAFETY: the caller's promise.
    unsafe { slice(dense.address, view.len()) }
}

pub(super) fn run(queue: &Queue, name: &'static str, of: &GridSample, [x, grid, out]: [&View; 3]) -> Result<()> {
    with_points((queue, name), of, [x, grid], |points, _| {
        let dense = Dense::of(&channels_last(x));
        // SAFETY: a copy of a tensor of float32 that has as many elements.
        let elements = unsafe { elements(&dense, x) };
        write(&channels_last(out), |out| sample(points, elements, out))
    })
}

pub(super) fn input_gradient(
    queue: &Queue,
    name: &'static str,
    of: &GridSample,
    [grid, upstream, out]: [&View; 3],
) -> Result<()> {
    with_points((queue, name), of, [out, grid], |points, _| {
        let dense = Dense::of(&channels_last(upstream));
        // SAFETY: as in `run`.
        let upstream = unsafe { elements(&dense, upstream) };
        write::<f32>(&channels_last(out), |dx| {
            dx.fill(0.0);
            spread(points, upstream, dx)
        })
    })
}

pub(super) fn grid_gradient(
    queue: &Queue,
    name: &'static str,
    of: &GridSample,
    [x, grid, upstream, out]: [&View; 4],
) -> Result<()> {
    with_points((queue, name), of, [x, grid], |points, taps| {
        let [dense_x, dense_upstream] = [x, upstream].map(|view| Dense::of(&channels_last(view)));
        // SAFETY: as in `run`.
        let (x, upstream) = unsafe { (elements(&dense_x, x), elements(&dense_upstream, upstream)) };
        let mut sums = vec![[0.0; CORNERS]; taps.len()];
        products(points, x, upstream, &mut sums)?;
        // SAFETY: a dense output of float32, live and the caller's own.
        let out = unsafe { slice_mut::<f32>(out.address, out.len()) };
        for ((slopes, taps), sums) in out.as_chunks_mut::<2>().0.iter_mut().zip(taps).zip(&sums) {
            // The innermost coordinate, along columns, is the first one.
            *slopes = [slope(taps, 1, sums), slope(taps, 0, sums)];
        }
        Ok(())
    })
}

/// Along a dimension the corners behind less those before, weighed by the other dimension.
fn slope(taps: &[Tap; 2], along: usize, sums: &[f32; CORNERS]) -> f32 {
    let term = |(number, sum): (usize, &f32)| {
        let sides = sides(number);
        let weighed = sum * taps[1 - along].weights[sides[1 - along]];
        if sides[along] == 1 { weighed } else { -weighed }
    };
    sums.iter().enumerate().map(term).sum::<f32>() * taps[along].slope
}
