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
    let own = (height as f64 * (f64::from(picture.width()) / f64::from(picture.height()))).ceil() as usize;
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

/// One, where weights of pixels are whole numbers.
const ONE: f32 = 2048.0;

/// The picture at another size, with the whole numbers of OpenCV's linear interpolation.
fn resized(picture: &RgbImage, width: usize, height: usize) -> RgbImage {
    let (columns, rows) = (neighbours(picture.width(), width), neighbours(picture.height(), height));
    RgbImage::from_fn(width as u32, height as u32, |x, y| {
        let (column, row) = (&columns[x as usize], &rows[y as usize]);
        let line = |y: u32| {
            let [left, right] = column.at.map(|x| picture.get_pixel(x, y).0.map(i32::from));
            [0, 1, 2].map(|colour| column.weights[0] * left[colour] + column.weights[1] * right[colour])
        };
        let lines = row.at.map(line);
        let part = |i: usize, colour: usize| (row.weights[i] * (lines[i][colour] >> 4)) >> 16;
        Rgb([0, 1, 2].map(|colour| ((part(0, colour) + part(1, colour) + 2) >> 2).clamp(0, 255) as u8))
    })
}

/// The two pixels between which one of another size lies, and how much they count.
struct Neighbours {
    at: [u32; 2],
    weights: [i32; 2],
}

/// Those of each pixel along an axis; beyond the edge they are the edge's.
fn neighbours(from: u32, to: usize) -> Vec<Neighbours> {
    let step = 1.0 / (to as f64 / f64::from(from));
    let of = |i: usize| {
        let place = ((i as f64 + 0.5) * step - 0.5) as f32;
        let part = place - place.floor();
        let at = |pixel: f32| (pixel.max(0.0) as u32).min(from - 1);
        let weights = [1.0 - part, part].map(|weight| (weight * ONE).round_ties_even() as i32);
        Neighbours { at: [at(place.floor()), at(place.floor() + 1.0)], weights }
    };
    (0..to).map(of).collect()
}

/// What lies between four corners, upright; text that runs down is turned.
pub fn cut(picture: &RgbImage, corners: &Corners) -> RgbImage {
    let length = |a: usize, b: usize| (corners[a].0 - corners[b].0).hypot(corners[a].1 - corners[b].1);
    let width = length(0, 1).max(length(2, 3)).max(1.0).floor();
    let height = length(0, 3).max(length(1, 2)).max(1.0).floor();
    let square = Projection::of(corners);
    let cut = RgbImage::from_fn(width as u32, height as u32, |x, y| {
        let (x, y) = square.at(f64::from(x) / f64::from(width), f64::from(y) / f64::from(height));
        sample(picture, x, y)
    });
    if height / width >= 1.5 { rotate270(&cut) } else { cut }
}

/// The unit square as a camera sees it that sees its corners there (Heckbert, 1989): corners of boxes are whole numbers, and so those of no rectangle.
struct Projection {
    across: [f64; 3],
    down: [f64; 3],
    behind: [f64; 2],
}

impl Projection {
    fn of(corners: &Corners) -> Projection {
        let [a, b, c, d] = corners.map(|(x, y)| [f64::from(x), f64::from(y)]);
        let [[bx, by], [dx, dy]] = [[b[0] - c[0], b[1] - c[1]], [d[0] - c[0], d[1] - c[1]]];
        let [sx, sy] = [0, 1].map(|axis| a[axis] - b[axis] + c[axis] - d[axis]);
        let area = bx * dy - dx * by;
        let behind = if area == 0.0 { [0.0; 2] } else { [(sx * dy - dx * sy) / area, (bx * sy - sx * by) / area] };
        let axis = |i: usize| [b[i] - a[i] + behind[0] * b[i], d[i] - a[i] + behind[1] * d[i], a[i]];
        Projection { across: axis(0), down: axis(1), behind }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let depth = self.behind[0] * x + self.behind[1] * y + 1.0;
        let along = |[a, b, c]: [f64; 3]| (a * x + b * y + c) / depth;
        (along(self.across), along(self.down))
    }
}

/// The weights of the four pixels around a place that lies `at` behind the second: cubic convolution (Keys, 1981) with a slope of -0.75.
fn cubic(at: f32) -> [f32; 4] {
    const SLOPE: f32 = -0.75;
    let near = |x: f32| ((SLOPE + 2.0) * x - (SLOPE + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((SLOPE * x - 5.0 * SLOPE) * x + 8.0 * SLOPE) * x - 4.0 * SLOPE;
    [far(1.0 + at), near(at), near(1.0 - at), far(2.0 - at)]
}

/// The colour at a place between pixels; beyond the edge it is the edge's.
fn sample(picture: &RgbImage, x: f64, y: f64) -> Rgb<u8> {
    let (left, top) = (x.floor(), y.floor());
    let (across, down) = (cubic((x - left) as f32), cubic((y - top) as f32));
    let at = |first: f64, i: usize, size: u32| ((first + i as f64 - 1.0).max(0.0) as u32).min(size - 1);
    let mut sums = [0.0; 3];
    for (row, down) in down.into_iter().enumerate() {
        for (column, across) in across.into_iter().enumerate() {
            let colour = picture.get_pixel(at(left, column, picture.width()), at(top, row, picture.height())).0;
            for (sum, value) in sums.iter_mut().zip(colour) {
                *sum += across * down * f32::from(value);
            }
        }
    }
    Rgb(sums.map(|sum| sum.round_ties_even().clamp(0.0, 255.0) as u8))
}
