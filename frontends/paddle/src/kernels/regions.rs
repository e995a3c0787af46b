//! Regions of images brought to one size: roi_align, roi_pool, psroi_pool and their gradients. Regions are taken in parallel.

use super::values::{SINGLE, dims, expect, expect_len, floats, integers, lengths, positive, required};
use super::values::{rounded, store_floats, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;
use rayon::prelude::*;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("roi_align", FLOATS, roi_align);
    table.add("roi_align_grad", FLOATS, roi_align_grad);
    table.add("roi_pool", SINGLE, roi_pool).output(1, DType::I64);
    table.add("roi_pool_grad", SINGLE, roi_pool_grad);
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

    /// A gradient of the images: of each region the places and weights of (channel, bin) are added up, region after region.
    fn scatter(
        &self,
        upstream: &[f64],
        channels: usize,
        shares: impl Fn(usize) -> Vec<(usize, usize, f64)> + Sync + Send,
    ) -> Vec<f64> {
        let mut sum = vec![0.0; self.image.iter().product()];
        let shares: Vec<_> = (0..self.regions.len()).into_par_iter().map(shares).collect();
        for (region, shares) in shares.into_iter().enumerate() {
            let upstream = &upstream[region * channels * self.bins()..];
            for (from, to, weight) in shares {
                sum[to] += upstream[from] * weight;
            }
        }
        sum
    }
}

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
                let mut weights = Vec::new();
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

fn roi_align(
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
    let (values, channels, plane) = (floats(context, &x)?, regions.image[1], regions.plane());
    let result = regions.each(|region| {
        let planes = &values[regions.regions[region].1 * channels * plane..][..channels * plane];
        let bin = |channel: usize, bin: usize| {
            weights[region][bin].iter().map(|&(place, weight)| planes[channel * plane + place] * weight).sum()
        };
        (0..channels * regions.bins()).map(|number| bin(number / regions.bins(), number % regions.bins())).collect()
    });
    store_floats(context, &out, regions.dtype, &regions.shape(channels), &result)
}

fn roi_align_grad(
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
    let sum = regions.scatter(&floats(context, &upstream)?, channels, |region| {
        let first = regions.regions[region].1 * channels * plane;
        let mut shares = Vec::new();
        for channel in 0..channels {
            for (bin, weights) in weights[region].iter().enumerate() {
                shares.extend(
                    weights
                        .iter()
                        .map(|&(place, weight)| (channel * bins + bin, first + channel * plane + place, weight)),
                );
            }
        }
        shares
    });
    store_floats(context, &dx, regions.dtype, &regions.image, &sum)
}

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

fn roi_pool(
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
    let (values, channels, plane) = (floats(context, &x)?, regions.image[1], regions.plane());
    let [rows, columns] = regions.pooled;
    let found = regions.each(|region| {
        let ([left, top, right, bottom], image) = regions.regions[region];
        let mut largest = Vec::with_capacity(channels * regions.bins());
        for channel in 0..channels {
            let plane = &values[(image * channels + channel) * plane..][..plane];
            for bin in 0..regions.bins() {
                let ys = whole_bin(regions.dtype, [top, bottom], scale.into(), [bin / columns, rows], regions.image[2]);
                let xs =
                    whole_bin(regions.dtype, [left, right], scale.into(), [bin % columns, columns], regions.image[3]);
                let places = ys.flat_map(|y| xs.clone().map(move |x| y * regions.image[3] + x));
                largest.push(places.reduce(|best, place| if plane[place] > plane[best] { place } else { best }));
            }
        }
        largest
            .into_iter()
            .enumerate()
            .map(|(number, place)| {
                let first = (image * channels + number / regions.bins()) * plane;
                (place.map_or(0.0, |place| values[first + place]), place.map_or(-1, |place| place as i64))
            })
            .collect::<Vec<(f64, i64)>>()
    });
    let (values, places): (Vec<f64>, Vec<i64>) = found.into_iter().unzip();
    store_integers(context, &arg_max, DType::I64, &regions.shape(channels), &places)?;
    store_floats(context, &out, regions.dtype, &regions.shape(channels), &values)
}

fn roi_pool_grad(
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
    let sum = regions.scatter(&floats(context, &upstream)?, channels, |region| {
        let first = regions.regions[region].1 * channels * plane;
        let own = &places[region * channels * bins..][..channels * bins];
        let to = |(number, &place): (usize, &i64)| {
            usize::try_from(place).ok().map(|place| (number, first + number / bins * plane + place, 1.0))
        };
        own.iter().enumerate().filter_map(to).collect()
    });
    store_floats(context, &dx, regions.dtype, &regions.image, &sum)
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
    let sum = regions.scatter(&floats(context, &upstream)?, channels, |region| {
        let bins = bins_of_channels(&regions, scale.into(), channels, region).into_iter().enumerate();
        bins.flat_map(|(number, places)| {
            let share = 1.0 / places.len().max(1) as f64;
            places.into_iter().map(move |place| (number, place, share)).collect::<Vec<_>>()
        })
        .collect()
    });
    store_floats(context, &dx, regions.dtype, &regions.image, &sum)
}
