//! Grid sampling and its gradients in float64, one point after the other.

use super::{Beyond, Coordinates, GridSample, Sampling};
use crate::reference::{Array, for_each_index};
use crate::view::{Shape, dense_strides};

/// Where a coordinate reads along one dimension, and how it moves with the coordinate.
struct Tap {
    /// The elements with their weights and the weights' slopes.
    elements: [(i64, f64, f64); 2],
    size: i64,
}

fn tap(of: &GridSample, coordinate: f64, size: usize) -> Tap {
    let size = size as i64;
    let last = size as f64 - 1.0;
    let (factor, shift) = (of.factor(size as usize), of.shift());
    let (mut point, mut slope) = match of.coordinates {
        Coordinates::Elements => (coordinate, factor),
        Coordinates::Centres | Coordinates::Sides => ((coordinate + 1.0) * factor - shift, factor),
    };
    if of.beyond == Beyond::Reflection {
        let range = 2.0 * (last + 2.0 * shift);
        let own = point + shift;
        let rest = own.abs() % range;
        let turns = (own < 0.0) != (rest > range - rest);
        slope *= if turns { -1.0 } else { 1.0 };
        point = if range > 0.0 { rest.min(range - rest) - shift } else { 0.0 };
    }
    if of.beyond != Beyond::Zeros {
        if point < 0.0 || point > last {
            slope = 0.0;
        }
        point = point.max(0.0).min(last);
    }
    if of.sampling == Sampling::Nearest {
        return Tap { elements: [(point.round_ties_even() as i64, 1.0, 0.0), (-1, 0.0, 0.0)], size };
    }
    let low = point.floor();
    let weight = point - low;
    let next = if of.beyond == Beyond::Zeros { low + 1.0 } else { (low + 1.0).min(last) };
    Tap { elements: [(low as i64, 1.0 - weight, -slope), (next as i64, weight, slope)], size }
}

/// The taps of the point that an element of the output reads.
fn taps(of: &GridSample, x: &[usize], grid: &Array, at: &[usize]) -> Vec<Tap> {
    let spatial = x.len() - 2;
    let coordinate = |d: usize| grid.at(&[&[at[0]], &at[2..], &[spatial - 1 - d]].concat());
    (0..spatial).map(|d| tap(of, coordinate(d), x[2 + d])).collect()
}

/// Calls `visit` with every element that lies inside: its place in `[batch, channel, ..]`, and which element of each tap it is.
fn corners(taps: &[Tap], at: &[usize], mut visit: impl FnMut(&[usize], &[usize])) {
    for_each_index(&vec![2; taps.len()], |chosen| {
        let places = taps.iter().zip(chosen).map(|(tap, &side)| (tap.elements[side].0, tap.size));
        if places.clone().all(|(place, size)| (0..size).contains(&place)) {
            let index: Vec<usize> = at[..2].iter().copied().chain(places.map(|(place, _)| place as usize)).collect();
            visit(&index, chosen);
        }
    });
}

fn weight(taps: &[Tap], chosen: &[usize]) -> f64 {
    taps.iter().zip(chosen).map(|(tap, &side)| tap.elements[side].1).product()
}

fn out_shape(x: &[usize], grid: &[usize]) -> Vec<usize> {
    [&x[..2], &grid[1..grid.len() - 1]].concat()
}

pub(super) fn sample(of: &GridSample, x: &Array, grid: &Array) -> Array {
    Array::from_fn(&out_shape(&x.shape, &grid.shape), x.dtype, |at| {
        let (taps, mut sum) = (taps(of, &x.shape, grid, at), 0.0);
        corners(&taps, at, |index, chosen| sum += x.at(index) * weight(&taps, chosen));
        sum
    })
}

pub(super) fn input_gradient(of: &GridSample, shape: &Shape, grid: &Array, upstream: &Array) -> Array {
    let mut out = Array::from_fn(shape, grid.dtype, |_| 0.0);
    let strides = dense_strides(shape);
    for_each_index(&upstream.shape, |at| {
        let taps = taps(of, shape, grid, at);
        corners(&taps, at, |index, chosen| {
            let place: isize = index.iter().zip(&strides).map(|(&i, &stride)| i as isize * stride).sum();
            out.data[place as usize] += upstream.at(at) * weight(&taps, chosen);
        });
    });
    out
}

pub(super) fn grid_gradient(of: &GridSample, x: &Array, grid: &Array, upstream: &Array) -> Array {
    let spatial = x.shape.len() - 2;
    Array::from_fn(&grid.shape, x.dtype, |place| {
        let d = spatial - 1 - place[1 + spatial];
        let mut sum = 0.0;
        for channel in 0..x.shape[1] {
            let at = [&[place[0], channel], &place[1..=spatial]].concat();
            let taps = taps(of, &x.shape, grid, &at);
            corners(&taps, &at, |index, chosen| {
                let others = (0..spatial).filter(|&other| other != d);
                let weight: f64 = others.map(|other| taps[other].elements[chosen[other]].1).product();
                sum += upstream.at(&at) * x.at(index) * weight * taps[d].elements[chosen[d]].2;
            });
        }
        sum
    })
}
