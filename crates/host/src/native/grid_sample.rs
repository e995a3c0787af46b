//! Images read at points, and the gradients. The channels of an element are neighbours: what is done to all of them is vector instructions, and elements and weights
//! are worked out once for a point.

use super::Shared;
use super::lanes::{Lanes, at_level, dot_lanes};
use crate::Error;
use crate::threads::{count, parallel_for};

/// Elements that a point reads at most.
pub const CORNERS: usize = 4;

/// An element that a point reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corner {
    /// Its number in the image; none beyond the border, where zeros are.
    pub place: Option<u32>,
    /// Its share.
    pub weight: f32,
}

impl Corner {
    /// Nothing is read.
    pub const NONE: Corner = Corner { place: None, weight: 0.0 };
}

/// The points of some images, and what they read.
#[derive(Clone, Copy, Debug)]
pub struct Points<'a> {
    /// How many images there are.
    pub images: usize,
    /// The elements of an image, of one channel.
    pub plane: usize,
    /// The channels.
    pub channels: usize,
    /// Those of every point, image after image, as many in each.
    pub corners: &'a [[Corner; CORNERS]],
}

/// Channels that a thread has at least: those of a line of the cache.
const LEAST: usize = 16;

impl Points<'_> {
    fn check(&self, x: usize, samples: usize) -> Result<(), Error> {
        let Points { images, plane, channels, corners } = *self;
        let product = |sizes: [usize; 3]| sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        let is_even = if images == 0 { corners.is_empty() } else { corners.len().is_multiple_of(images) };
        if !is_even
            || product([images, plane, channels]) != Some(x)
            || product([corners.len(), channels, 1]) != Some(samples)
        {
            let points = corners.len();
            return Err(Error::Invalid(format!(
                "grid_sample: {images} images of {plane} x {channels}, {points} points, but {x} elements and {samples} samples"
            )));
        }
        let outside = corners.iter().flatten().filter_map(|corner| corner.place).find(|&place| place as usize >= plane);
        outside.map_or(Ok(()), |place| {
            Err(Error::Invalid(format!("grid_sample: a point reads element {place} of {plane}")))
        })
    }

    /// The image of a point.
    #[inline(always)]
    fn image(&self, point: usize) -> usize {
        point / (self.corners.len() / self.images)
    }

    /// Where a row of channels begins.
    #[inline(always)]
    fn row(&self, image: usize, place: u32) -> usize {
        (image * self.plane + place as usize) * self.channels
    }
}

/// The weighted sums of what points read of `x` (images, elements, channels), to `out` (images, points, channels).
pub fn sample(points: &Points<'_>, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
    points.check(x.len(), out.len())?;
    let out = Shared::new(out);
    parallel_for(points.corners.len(), points.channels / 2 + 20, |first, to| {
        // SAFETY: this task alone writes the rows of these points.
        unsafe {
            let rows = out.part(first * points.channels, (to - first) * points.channels);
            at_level!(read(points: &Points<'_>, x: &[f32], first: usize, rows: &mut [f32]));
        }
    });
    Ok(())
}

/// Adds the gradient of [`sample`]'s result to that of the elements, `dx`.
pub fn spread(points: &Points<'_>, upstream: &[f32], dx: &mut [f32]) -> Result<(), Error> {
    points.check(dx.len(), upstream.len())?;
    let Points { images, channels, .. } = *points;
    // Sums are in the order of the points whatever the number of threads: an image, or some channels of one, is one thread's.
    let parts = if images >= count() { 1 } else { (channels / LEAST).clamp(1, count()) };
    let (dx, each) = (Shared::new(dx), channels.div_ceil(parts));
    let of_image = points.corners.len().checked_div(images).unwrap_or(0);
    parallel_for(images * parts, of_image * (each / 2 + 20), |from, to| {
        for task in from..to {
            let (image, first) = (task / parts, task % parts * each);
            let some = [first, channels.min(first + each)];
            // SAFETY: this task alone touches these channels of this image.
            unsafe {
                at_level!(add(points: &Points<'_>, image: usize, some: [usize; 2], upstream: &[f32], dx: Shared<f32>))
            }
        }
    });
    Ok(())
}

/// For each corner of each point the sum over channels of element times gradient of [`sample`]'s result; 0 where nothing is read.
pub fn products(points: &Points<'_>, x: &[f32], upstream: &[f32], out: &mut [[f32; CORNERS]]) -> Result<(), Error> {
    points.check(x.len(), upstream.len())?;
    if out.len() != points.corners.len() {
        return Err(Error::Invalid(format!("grid_sample: {} points, {} results", points.corners.len(), out.len())));
    }
    let out = Shared::new(out);
    parallel_for(points.corners.len(), points.channels / 2 + 20, |first, to| {
        // SAFETY: this task alone writes what is of these points.
        unsafe {
            let sums = out.part(first, to - first);
            at_level!(multiply(points: &Points<'_>, x: &[f32], upstream: &[f32], first: usize, sums: &mut [[f32; CORNERS]]));
        }
    });
    Ok(())
}

#[inline(always)]
unsafe fn read<V: Lanes>(points: &Points<'_>, x: &[f32], first: usize, rows: &mut [f32]) {
    for (point, row) in (first..).zip(rows.chunks_exact_mut(points.channels.max(1))) {
        row.fill(0.0);
        for corner in points.corners[point] {
            match corner.place {
                Some(place) => {
                    let from = &x[points.row(points.image(point), place)..][..points.channels];
                    row.iter_mut().zip(from).for_each(|(sum, element)| *sum += element * corner.weight);
                }
                // A point that is no number reads none.
                None if corner.weight.is_nan() => row.fill(f32::NAN),
                None => {}
            }
        }
    }
}

/// # Safety
/// Nobody else touches these channels of this image.
#[inline(always)]
unsafe fn add<V: Lanes>(
    points: &Points<'_>,
    image: usize,
    [first, end]: [usize; 2],
    upstream: &[f32],
    dx: Shared<f32>,
) {
    let of_image = points.corners.len() / points.images;
    for point in image * of_image..(image + 1) * of_image {
        let from = &upstream[point * points.channels..][first..end];
        for corner in points.corners[point] {
            let Some(place) = corner.place else { continue };
            // SAFETY: the caller's promise; the element lies in the image.
            let sums = unsafe { dx.part(points.row(image, place) + first, end - first) };
            sums.iter_mut().zip(from).for_each(|(sum, element)| *sum += element * corner.weight);
        }
    }
}

#[inline(always)]
unsafe fn multiply<V: Lanes>(
    points: &Points<'_>,
    x: &[f32],
    upstream: &[f32],
    first: usize,
    sums: &mut [[f32; CORNERS]],
) {
    for (point, sums) in (first..).zip(sums) {
        let upstream = &upstream[point * points.channels..][..points.channels];
        for (sum, corner) in sums.iter_mut().zip(points.corners[point]) {
            *sum = corner.place.map_or(0.0, |place| {
                let x = &x[points.row(points.image(point), place)..][..points.channels];
                // SAFETY: lanes of the level in use, and both rows have a number for each channel.
                unsafe { dot_lanes::<V>(x.as_ptr(), upstream.as_ptr(), points.channels) }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images of three elements, two points each, so many channels.
    fn corners() -> Vec<[Corner; CORNERS]> {
        let corner = |place: u32, weight: f32| Corner { place: Some(place), weight };
        let outside = Corner { place: None, weight: 0.5 };
        vec![
            [corner(0, 0.5), corner(2, 0.25), outside, Corner::NONE],
            [corner(1, 1.0), Corner::NONE, Corner::NONE, Corner::NONE],
            [corner(2, 0.5), corner(2, 0.5), corner(0, -1.0), outside],
            [outside; CORNERS],
        ]
    }

    fn numbers(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i * 7 % 13) as f32 - 6.0).collect()
    }

    #[test]
    fn points_read_spread_and_multiply_every_channel() {
        for channels in [0, 1, 3, 16, 17, 40, 70] {
            let corners = corners();
            let points = Points { images: 2, plane: 3, channels, corners: &corners };
            let (x, upstream) = (numbers(6 * channels), numbers(4 * channels));
            let (mut out, mut dx) = (vec![f32::NAN; 4 * channels], vec![0.0; 6 * channels]);
            let mut sums = vec![[f32::NAN; CORNERS]; 4];
            sample(&points, &x, &mut out).expect("reads");
            spread(&points, &upstream, &mut dx).expect("spreads");
            products(&points, &x, &upstream, &mut sums).expect("multiplies");
            let (mut expected_out, mut expected_dx) = (vec![0.0; 4 * channels], vec![0.0; 6 * channels]);
            let mut expected_sums = vec![[0.0; CORNERS]; 4];
            for (point, corners) in corners.iter().enumerate() {
                for (number, corner) in corners.iter().enumerate() {
                    let Some(place) = corner.place else { continue };
                    for channel in 0..channels {
                        let (element, sample) =
                            ((point / 2 * 3 + place as usize) * channels + channel, point * channels + channel);
                        expected_out[sample] += x[element] * corner.weight;
                        expected_dx[element] += upstream[sample] * corner.weight;
                        expected_sums[point][number] += x[element] * upstream[sample];
                    }
                }
            }
            // Small integers and quarters: every order of sums is exact.
            assert_eq!((out, dx, sums), (expected_out, expected_dx, expected_sums), "{channels}");
        }
    }

    #[test]
    fn a_point_that_is_no_number_reads_none() {
        let corners = [[Corner { place: None, weight: f32::NAN }; CORNERS]];
        let points = Points { images: 1, plane: 1, channels: 2, corners: &corners };
        let mut out = [0.0; 2];
        sample(&points, &[1.0, 2.0], &mut out).expect("reads");
        assert!(out.iter().all(|number| number.is_nan()));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let outside = [[Corner { place: Some(3), weight: 1.0 }; CORNERS]];
        for (images, corners, x) in [(1, &outside[..], 6), (1, &corners()[..1], 5), (3, &corners()[..], 18)] {
            let points = Points { images, plane: 3, channels: 2, corners };
            let mut out = vec![0.0; corners.len() * 2];
            sample(&points, &vec![0.0; x], &mut out).expect_err("does not fit");
        }
    }
}
