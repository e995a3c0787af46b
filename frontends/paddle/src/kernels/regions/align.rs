//! roi_align and its gradient: means of samples, each a weighted sum of four elements.

use super::super::values::{expect, floats, store_floats};
use super::Regions;
use crate::error::{Result, refuse};
use crate::{Context, Output, Tensor};
use rayon::prelude::*;

/// How finely `roi_align` samples a region.
#[derive(Clone, Copy)]
struct Sampling {
    scale: f64,
    ratio: i32,
    aligned: bool,
}

/// The two elements next to a place on a line, and the share of the second one; none beyond the line's ends.
fn neighbours(place: f64, size: usize) -> Option<[(usize, f64); 2]> {
    if size == 0 || place < -1.0 || place > size as f64 {
        return None;
    }
    let place = place.clamp(0.0, (size - 1) as f64);
    let low = place as usize;
    let share = place - low as f64;
    Some([(low, 1.0 - share), ((low + 1).min(size - 1), share)])
}

impl Sampling {
    /// Where the samples of each bin lie along one axis: (elements and weights) of each sample, by bin.
    fn line(self, [low, high]: [f64; 2], bins: usize, size: usize) -> Result<Vec<Vec<Option<[(usize, f64); 2]>>>> {
        let offset = if self.aligned { 0.5 } else { 0.0 };
        let low = low * self.scale - offset;
        let span = high * self.scale - offset - low;
        let span = if self.aligned { span } else { span.max(1.0) };
        let samples = if self.ratio > 0 { f64::from(self.ratio) } else { (span / bins as f64).ceil().max(0.0) };
        if samples > 4096.0 {
            return Err(refuse("samples of a bin", samples, "at most 4096 along an axis"));
        }
        let sample = |bin: usize, number: usize| {
            let within = (number as f64 + 0.5) / samples;
            neighbours(low + span / bins as f64 * (bin as f64 + within), size)
        };
        Ok((0..bins).map(|bin| (0..samples as usize).map(|number| sample(bin, number)).collect()).collect())
    }

    /// Elements of a plane and their weights, by bin.
    fn weights(self, regions: &Regions, region: usize) -> Result<Vec<Vec<(usize, f64)>>> {
        let ([left, top, right, bottom], _) = regions.regions[region];
        let rows = self.line([top, bottom], regions.pooled[0], regions.image[2])?;
        let columns = self.line([left, right], regions.pooled[1], regions.image[3])?;
        let mut bins = Vec::with_capacity(regions.bins());
        for row in &rows {
            for column in &columns {
                let share = 1.0 / (row.len() * column.len()).max(1) as f64;
                let mut weights = Vec::with_capacity(4 * row.len() * column.len());
                for (vertical, horizontal) in
                    row.iter().flatten().flat_map(|y| column.iter().flatten().map(move |x| (y, x)))
                {
                    for (y, by_row) in vertical {
                        for (x, by_column) in horizontal {
                            weights.push((y * regions.image[3] + x, by_row * by_column * share));
                        }
                    }
                }
                bins.push(weights);
            }
        }
        Ok(bins)
    }

    fn every(self, regions: &Regions) -> Result<Vec<Vec<Vec<(usize, f64)>>>> {
        (0..regions.regions.len()).into_par_iter().map(|region| self.weights(regions, region)).collect()
    }
}

pub(super) fn roi_align(
    context: &Context,
    x: Tensor,
    boxes: Tensor,
    counts: Option<Tensor>,
    height: i32,
    width: i32,
    scale: f32,
    ratio: i32,
    aligned: bool,
    out: Output,
) -> Result<()> {
    let regions = Regions::new(context, &x, &boxes, counts, [height, width])?;
    let weights = Sampling { scale: scale.into(), ratio, aligned }.every(&regions)?;
    let channels = regions.image[1];
    let values = regions.channels_last(&floats(context, &x)?);
    let result = regions.each(|region| {
        let image = &values[regions.regions[region].1 * regions.plane() * channels..];
        let mut sums = vec![0.0; regions.bins() * channels];
        for (sums, weights) in sums.chunks_exact_mut(channels.max(1)).zip(&weights[region]) {
            for &(place, weight) in weights {
                add_scaled(sums, &image[place * channels..][..channels], weight);
            }
        }
        sums
    });
    store_floats(context, &out, regions.dtype, &regions.shape(channels), &regions.channels_first(&result, channels))
}

pub(super) fn roi_align_grad(
    context: &Context,
    x: Tensor,
    boxes: Tensor,
    counts: Option<Tensor>,
    upstream: Tensor,
    height: i32,
    width: i32,
    scale: f32,
    ratio: i32,
    aligned: bool,
    dx: Output,
) -> Result<()> {
    let regions = Regions::new(context, &x, &boxes, counts, [height, width])?;
    let weights = Sampling { scale: scale.into(), ratio, aligned }.every(&regions)?;
    let (channels, plane, bins) = (regions.image[1], regions.plane(), regions.bins());
    expect("out_grad", &upstream, &regions.shape(channels))?;
    let upstream = super::turned(&floats(context, &upstream)?, [regions.regions.len(), channels, bins]);
    let mut sum = vec![0.0; regions.image.iter().product()];
    // An image is one thread's, so that its regions are added up in their order.
    sum.par_chunks_mut((plane * channels).max(1)).enumerate().for_each(|(image, sum)| {
        for (region, weights) in weights.iter().enumerate().filter(|(region, _)| regions.regions[*region].1 == image) {
            let upstream = upstream[region * bins * channels..].chunks_exact(channels);
            for (upstream, weights) in upstream.zip(weights) {
                for &(place, weight) in weights {
                    add_scaled(&mut sum[place * channels..][..channels], upstream, weight);
                }
            }
        }
    });
    let sum = super::turned(&sum, [regions.image[0], plane, channels]);
    store_floats(context, &dx, regions.dtype, &regions.image, &sum)
}

fn add_scaled(sums: &mut [f64], values: &[f64], weight: f64) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value * weight;
    }
}
