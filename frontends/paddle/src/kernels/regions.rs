//! Regions of images brought to one size: roi_align, roi_pool, psroi_pool and their gradients. Regions are taken in parallel.

mod align;
mod pool;

use super::values::{SINGLE, dims, expect, expect_len, floats, lengths, positive, required};
use super::values::{rounded, store_floats};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;
use rayon::prelude::*;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("roi_align", FLOATS, align::roi_align);
    table.add("roi_align_grad", FLOATS, align::roi_align_grad);
    table.add("roi_pool", SINGLE, pool::roi_pool).output(1, DType::I64);
    table.add("roi_pool_grad", SINGLE, pool::roi_pool_grad);
    table.add("psroi_pool", SINGLE, psroi_pool);
    table.add("psroi_pool_grad", SINGLE, psroi_pool_grad);
}

/// The images, the regions with the image of each, and the size that they are brought to.
struct Regions {
    dtype: DType,
    image: [usize; 4],
    pooled: [usize; 2],
    regions: Vec<([f64; 4], usize)>,
}

impl Regions {
    fn new(context: &Context, x: &Tensor, boxes: &Tensor, counts: Option<Tensor>, pooled: [i32; 2]) -> Result<Regions> {
        let counts = required("boxes_num", counts)?;
        let image: [usize; 4] = dims("x", x)?;
        let [count, four] = dims("boxes", boxes)?;
        if four != 4 {
            return Err(refuse("boxes", boxes.shape(), "boxes of four numbers"));
        }
        expect_len("boxes_num", &counts, image[0])?;
        let counts = lengths(context, "boxes_num", &counts, count)?;
        let images: Vec<usize> = counts.iter().enumerate().flat_map(|(image, &n)| vec![image; n]).collect();
        if images.len() != count {
            return Err(refuse("boxes_num", counts, &format!("numbers that add up to {count} boxes")));
        }
        let boxes = floats(context, boxes)?;
        if let Some(number) = boxes.iter().find(|number| !number.is_finite() || number.abs() > 1e9) {
            return Err(refuse("boxes", number, "finite numbers of at most 1e9"));
        }
        let regions = boxes
            .chunks_exact(4)
            .zip(images)
            .map(|(corners, image)| ([corners[0], corners[1], corners[2], corners[3]], image));
        let pooled = [positive("pooled_height", pooled[0])?, positive("pooled_width", pooled[1])?];
        Ok(Regions { dtype: x.dtype()?, image, pooled, regions: regions.collect() })
    }

    fn plane(&self) -> usize {
        self.image[2] * self.image[3]
    }

    fn bins(&self) -> usize {
        self.pooled[0] * self.pooled[1]
    }

    fn shape(&self, channels: usize) -> [usize; 4] {
        [self.regions.len(), channels, self.pooled[0], self.pooled[1]]
    }

    /// The values of every region, from a function of the region's number.
    fn each<T: Send>(&self, of: impl Fn(usize) -> Vec<T> + Sync + Send) -> Vec<T> {
        (0..self.regions.len()).into_par_iter().flat_map_iter(of).collect()
    }

    /// The images' values with the channels of an element as neighbours, so that what is done to all of them are vector instructions.
    fn channels_last(&self, values: &[f64]) -> Vec<f64> {
        let (channels, plane) = (self.image[1], self.plane());
        let mut result = vec![0.0; values.len()];
        let images = result.par_chunks_mut((channels * plane).max(1)).zip(values.par_chunks((channels * plane).max(1)));
        images.for_each(|(to, from)| turn(from, [channels, plane], to));
        result
    }
}

/// A matrix of rows and columns, transposed.
fn turn(from: &[f64], [rows, columns]: [usize; 2], to: &mut [f64]) {
    for (column, to) in to.chunks_exact_mut(rows.max(1)).enumerate() {
        to.iter_mut().enumerate().for_each(|(row, to)| *to = from[row * columns + column]);
    }
}

/// The rows or columns of a bin of `psroi_pool`, in the elements' type: which element an end falls into depends on it.
fn rounded_bin(
    dtype: DType,
    [low, high]: [f64; 2],
    scale: f64,
    [bin, bins]: [usize; 2],
    size: usize,
) -> std::ops::Range<usize> {
    let round = |value: f64| rounded(value, dtype);
    let (low, high) = (round(low.round() * scale), round((high.round() + 1.0) * scale));
    let step = round(round(high - low).max(round(0.1)) / bins as f64);
    let end = |bin: usize| round(round(bin as f64 * step) + low).clamp(0.0, size as f64);
    end(bin).floor() as usize..end(bin + 1).ceil() as usize
}

/// The elements of the images that each number of a region's result is the mean of: each bin has a channel of its own.
fn bins_of_channels(regions: &Regions, scale: f64, channels: usize, region: usize) -> Vec<Vec<usize>> {
    let ([left, top, right, bottom], image) = regions.regions[region];
    let [rows, columns] = regions.pooled;
    let places = |number: usize| {
        let bin = number % regions.bins();
        let ys = rounded_bin(regions.dtype, [top, bottom], scale, [bin / columns, rows], regions.image[2]);
        let xs = rounded_bin(regions.dtype, [left, right], scale, [bin % columns, columns], regions.image[3]);
        let first = (image * regions.image[1] + number) * regions.plane();
        ys.flat_map(|y| xs.clone().map(move |x| first + y * regions.image[3] + x)).collect()
    };
    (0..channels * regions.bins()).map(places).collect()
}

/// How many channels the result has, each made of as many as there are bins.
fn output_channels(regions: &Regions, channels: i32) -> Result<usize> {
    let count = positive("output_channels", channels)?;
    if count.checked_mul(regions.bins()) == Some(regions.image[1]) {
        return Ok(count);
    }
    Err(refuse("x", regions.image, &format!("{channels} channels for each of {} bins", regions.bins())))
}

fn psroi_pool(
    context: &Context,
    x: Tensor,
    boxes: Tensor,
    counts: Option<Tensor>,
    height: i32,
    width: i32,
    channels: i32,
    scale: f32,
    out: Output,
) -> Result<()> {
    let regions = Regions::new(context, &x, &boxes, counts, [height, width])?;
    let (values, channels) = (floats(context, &x)?, output_channels(&regions, channels)?);
    let result = regions.each(|region| {
        let mean =
            |places: Vec<usize>| places.iter().map(|&place| values[place]).sum::<f64>() / places.len().max(1) as f64;
        bins_of_channels(&regions, scale.into(), channels, region).into_iter().map(mean).collect()
    });
    store_floats(context, &out, regions.dtype, &regions.shape(channels), &result)
}

fn psroi_pool_grad(
    context: &Context,
    x: Tensor,
    boxes: Tensor,
    counts: Option<Tensor>,
    upstream: Tensor,
    height: i32,
    width: i32,
    channels: i32,
    scale: f32,
    dx: Output,
) -> Result<()> {
    let regions = Regions::new(context, &x, &boxes, counts, [height, width])?;
    let channels = output_channels(&regions, channels)?;
    expect("out_grad", &upstream, &regions.shape(channels))?;
    let bins = regions.each(|region| bins_of_channels(&regions, scale.into(), channels, region));
    let mut sum = vec![0.0; regions.image.iter().product()];
    for (places, upstream) in bins.iter().zip(floats(context, &upstream)?) {
        let share = 1.0 / places.len().max(1) as f64;
        places.iter().for_each(|&place| sum[place] += upstream * share);
    }
    store_floats(context, &dx, regions.dtype, &regions.image, &sum)
}
