//! roi_align and its gradient: means of samples, each a weighted sum of four elements.

use super::super::values::{expect, floats, store_floats};
use super::{Regions, turn};
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
    let size = regions.bins() * channels;
    let mut result = vec![0.0; regions.regions.len() * size];
    result.par_chunks_mut(size.max(1)).zip(&regions.regions).zip(&weights).for_each_init(
        || vec![0.0; size],
        |sums, ((result, &(_, image)), weights)| {
            let image = &values[image * regions.plane() * channels..];
            sums.fill(0.0);
            for (sums, weights) in sums.chunks_exact_mut(channels).zip(weights) {
                for &(place, weight) in weights {
                    add_scaled(sums, &image[place * channels..][..channels], weight);
                }
            }
            turn(sums, [regions.bins(), channels], result);
        },
    );
    store_floats(context, &out, regions.dtype, &regions.shape(channels), &result)
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
    let upstream = floats(context, &upstream)?;
    let (of_image, of_region) = (plane * channels, bins * channels);
    let mut result = vec![0.0; regions.image[0] * of_image];
    // An image is one thread's, so that its regions are added up in their order.
    result.par_chunks_mut(of_image.max(1)).enumerate().for_each(|(image, result)| {
        let (mut sum, mut turned) = (vec![0.0; of_image], vec![0.0; of_region]);
        let own = weights.iter().enumerate().filter(|(region, _)| regions.regions[*region].1 == image);
        for (region, weights) in own {
            turn(&upstream[region * of_region..][..of_region], [channels, bins], &mut turned);
            for (upstream, weights) in turned.chunks_exact(channels).zip(weights) {
                for &(place, weight) in weights {
                    add_scaled(&mut sum[place * channels..][..channels], upstream, weight);
                }
            }
        }
        turn(&sum, [plane, channels], result);
    });
    store_floats(context, &dx, regions.dtype, &regions.image, &result)
}

fn add_scaled(sums: &mut [f64], values: &[f64], weight: f64) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value * weight;
    }
}
