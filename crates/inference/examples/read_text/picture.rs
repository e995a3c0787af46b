//! Pictures as models take them: resized, cut out, as planes of numbers.

use crate::detect::Corners;
use image::imageops::rotate270;
use image::{Rgb, RgbImage};

/// Planes of blue, green and red, from -1 to 1, at another size.
pub fn planes(picture: &RgbImage, width: usize, height: usize) -> Vec<f32> {
    padded_to(&resized(picture, width, height), width)
}

/// The same of a line of text: its height fits, it keeps its shape where it is not too wide, and zeros follow it.
pub fn padded(picture: &RgbImage, width: usize, height: usize) -> Vec<f32> {
    let own = (height as f32 * picture.width() as f32 / picture.height() as f32).ceil() as usize;
    padded_to(&resized(picture, own.clamp(1, width), height), width)
}

fn padded_to(picture: &RgbImage, width: usize) -> Vec<f32> {
    let plane = width * picture.height() as usize;
    let mut planes = vec![0.0; 3 * plane];
    for (x, y, Rgb([red, green, blue])) in picture.enumerate_pixels() {
        for (at, value) in [blue, green, red].into_iter().enumerate() {
            planes[at * plane + y as usize * width + x as usize] = f32::from(*value) / 127.5 - 1.0;
        }
    }
    planes
}

fn resized(picture: &RgbImage, width: usize, height: usize) -> RgbImage {
    let (across, down) = (picture.width() as f32 / width as f32, picture.height() as f32 / height as f32);
    RgbImage::from_fn(width as u32, height as u32, |x, y| {
        sample(picture, (x as f32 + 0.5) * across - 0.5, (y as f32 + 0.5) * down - 0.5, linear)
    })
}

/// What lies between four corners, upright; text that runs down is turned.
pub fn cut(picture: &RgbImage, corners: &Corners) -> RgbImage {
    let length = |a: usize, b: usize| (corners[a].0 - corners[b].0).hypot(corners[a].1 - corners[b].1);
    let width = length(0, 1).max(length(2, 3)).max(1.0).floor();
    let height = length(0, 3).max(length(1, 2)).max(1.0).floor();
    // The corners are those of a rectangle: three of them say where a pixel comes from.
    let [origin, right, _, below] = *corners;
    let cut = RgbImage::from_fn(width as u32, height as u32, |x, y| {
        let (x, y) = (x as f32 / width, y as f32 / height);
        let along =
            |of: fn((f32, f32)) -> f32| of(origin) + (of(right) - of(origin)) * x + (of(below) - of(origin)) * y;
        sample(picture, along(|point| point.0), along(|point| point.1), cubic)
    });
    if height / width >= 1.5 { rotate270(&cut) } else { cut }
}

/// The weights of the four pixels around a place that lies `at` behind the second.
type Kernel = fn(f32) -> [f32; 4];

fn linear(at: f32) -> [f32; 4] {
    [0.0, 1.0 - at, at, 0.0]
}

/// Cubic convolution (Keys, 1981) with a slope of -0.75.
fn cubic(at: f32) -> [f32; 4] {
    const SLOPE: f32 = -0.75;
    let near = |x: f32| ((SLOPE + 2.0) * x - (SLOPE + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((SLOPE * x - 5.0 * SLOPE) * x + 8.0 * SLOPE) * x - 4.0 * SLOPE;
    [far(1.0 + at), near(at), near(1.0 - at), far(2.0 - at)]
}

/// The colour at a place between pixels; beyond the edge it is the edge's.
fn sample(picture: &RgbImage, x: f32, y: f32, kernel: Kernel) -> Rgb<u8> {
    let pixel = |x: f32, y: f32| {
        let at = |at: f32, size: u32| (at.max(0.0) as u32).min(size - 1);
        picture.get_pixel(at(x, picture.width()), at(y, picture.height())).0
    };
    let (left, top) = (x.floor(), y.floor());
    let (across, down) = (kernel(x - left), kernel(y - top));
    let mut sums = [0.0; 3];
    for (row, down) in down.into_iter().enumerate().filter(|(_, weight)| *weight != 0.0) {
        for (column, across) in across.into_iter().enumerate().filter(|(_, weight)| *weight != 0.0) {
            let colour = pixel(left + column as f32 - 1.0, top + row as f32 - 1.0);
            for (sum, value) in sums.iter_mut().zip(colour) {
                *sum += across * down * f32::from(value);
            }
        }
    }
    Rgb(sums.map(|sum| sum.round().clamp(0.0, 255.0) as u8))
}
