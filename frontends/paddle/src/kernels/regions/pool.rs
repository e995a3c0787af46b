//! roi_pool and its gradient: the largest element of each bin of a region.

use super::super::values::{expect, floats, integers, rounded, store_floats, store_integers};
use super::Regions;
use crate::error::{Result, refuse};
use crate::{Context, Output, Tensor};
use openmps_tile::DType;
use rayon::prelude::*;

/// The rows or columns of a bin of `roi_pool`: corners are rounded to elements, and a region has at least one.
fn whole_bin(
    dtype: DType,
    corners: [f64; 2],
    scale: f64,
    [bin, bins]: [usize; 2],
    size: usize,
) -> std::ops::Range<usize> {
    let [low, high] = corners.map(|place| rounded(place * scale, dtype).round());
    let length = (high - low + 1.0).max(1.0);
    let end = |bin: usize| bin as f64 * length / bins as f64;
    let within = |place: f64| (place + low).clamp(0.0, size as f64) as usize;
    within(end(bin).floor())..within(end(bin + 1).ceil())
}

/// Channels whose largest elements are looked for side by side, in registers.
const TOGETHER: usize = 8;

/// The largest of the elements at some places of each channel, and where it is: the first of those that are equal. 0 and -1 where there is no place. Stored for
/// each channel at the bin.
fn largest(
    pixels: &[f64],
    channels: usize,
    places: impl Iterator<Item = usize> + Clone,
    [bin, bins]: [usize; 2],
    (values, found): (&mut [f64], &mut [i64]),
) {
    for first in (0..channels).step_by(TOGETHER) {
        let count = TOGETHER.min(channels - first);
        let elements = |place: usize| {
            let mut elements = [0.0; TOGETHER];
            elements[..count].copy_from_slice(&pixels[place * channels + first..][..count]);
            elements
        };
        let mut places = places.clone();
        let (mut best, mut at) = match places.next() {
            Some(place) => (elements(place), [place as i64; TOGETHER]),
            None => ([0.0; TOGETHER], [-1; TOGETHER]),
        };
        for place in places {
            let elements = elements(place);
            for i in 0..TOGETHER {
                let is_larger = elements[i] > best[i];
                best[i] = if is_larger { elements[i] } else { best[i] };
                at[i] = if is_larger { place as i64 } else { at[i] };
            }
        }
        for i in 0..count {
            (values[(first + i) * bins + bin], found[(first + i) * bins + bin]) = (best[i], at[i]);
        }
    }
}

pub(super) fn roi_pool(
    context: &Context,
    x: Tensor,
    boxes: Tensor,
    counts: Option<Tensor>,
    height: i32,
    width: i32,
    scale: f32,
    out: Output,
    arg_max: Output,
) -> Result<()> {
    let regions = Regions::new(context, &x, &boxes, counts, [height, width])?;
    let channels = regions.image[1];
    let values = regions.channels_last(&floats(context, &x)?);
    let [rows, columns] = regions.pooled;
    let size = channels * regions.bins();
    let (mut maxima, mut places) = (vec![0.0; regions.regions.len() * size], vec![-1; regions.regions.len() * size]);
    let results = maxima.par_chunks_mut(size.max(1)).zip(places.par_chunks_mut(size.max(1)));
    results.zip(&regions.regions).for_each(|((maxima, places), &([left, top, right, bottom], image))| {
        let pixels = &values[image * regions.plane() * channels..];
        let (dtype, scale) = (regions.dtype, scale.into());
        for bin in 0..regions.bins() {
            let ys = whole_bin(dtype, [top, bottom], scale, [bin / columns, rows], regions.image[2]);
            let xs = whole_bin(dtype, [left, right], scale, [bin % columns, columns], regions.image[3]);
            let of_bin = ys.flat_map(|y| xs.clone().map(move |x| y * regions.image[3] + x));
            largest(pixels, channels, of_bin, [bin, regions.bins()], (maxima, places));
        }
    });
    store_integers(context, &arg_max, DType::I64, &regions.shape(channels), &places)?;
    store_floats(context, &out, regions.dtype, &regions.shape(channels), &maxima)
}

pub(super) fn roi_pool_grad(
    context: &Context,
    x: Tensor,
    boxes: Tensor,
    counts: Option<Tensor>,
    arg_max: Tensor,
    upstream: Tensor,
    height: i32,
    width: i32,
    _scale: f32,
    dx: Output,
) -> Result<()> {
    let regions = Regions::new(context, &x, &boxes, counts, [height, width])?;
    let (channels, plane, bins) = (regions.image[1], regions.plane(), regions.bins());
    expect("out_grad", &upstream, &regions.shape(channels))?;
    expect("arg_max", &arg_max, &regions.shape(channels))?;
    let places = integers(context, &arg_max)?;
    if let Some(place) = places.iter().find(|&&place| place >= plane as i64) {
        return Err(refuse("arg_max", place, &format!("below {plane}")));
    }
    let upstream = floats(context, &upstream)?;
    let mut sum = vec![0.0; regions.image.iter().product()];
    let of_region = (channels * bins).max(1);
    let regions_of = places.chunks_exact(of_region).zip(upstream.chunks_exact(of_region)).zip(&regions.regions);
    for ((places, upstream), &(_, image)) in regions_of {
        let of_channel = places.chunks_exact(bins).zip(upstream.chunks_exact(bins)).enumerate();
        for (channel, (places, upstream)) in of_channel {
            let sum = &mut sum[(image * channels + channel) * plane..][..plane];
            // A bin without elements has none.
            for (place, &upstream) in places.iter().zip(upstream).filter(|(place, _)| **place >= 0) {
                sum[*place as usize] += upstream;
            }
        }
    }
    store_floats(context, &dx, regions.dtype, &regions.image, &sum)
}
