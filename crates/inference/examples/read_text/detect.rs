//! Boxes around text from the detector's map of probabilities (differentiable binarization, arXiv:1911.08947): regions above a threshold,
//! the smallest rectangle around each, grown by what the network was trained to shrink it.

/// Left top, right top, right bottom, left bottom, in pixels.
pub type Corners = [(f32, f32); 4];

/// Pixels are text above this probability.
const PIXEL: f32 = 0.3;

/// Boxes are text whose mean is at least this.
const BOX: f32 = 0.5;

/// How far a box grows: this times its area over its circumference.
const GROWTH: f64 = 1.6;

/// The shorter side of a region, and of a grown box, at least.
const SHORTEST: [f32; 2] = [3.0, 5.0];

/// Whole pixels of either side of a box in the picture: more than these.
const SMALLEST: f32 = 3.0;

/// Boxes whose tops differ by less stand on one line.
const SAME_LINE: f32 = 10.0;

/// The boxes in a map of this size, in pixels of the picture, from the top to the bottom and from left to right.
pub fn boxes(map: &[f32], width: usize, height: usize, to_width: u32, to_height: u32) -> Vec<Corners> {
    let is_text = |x: usize, y: usize| map[y * width + x] > PIXEL;
    // A pixel's neighbours to the right and below count as well: letters grow together.
    let grown =
        |x: usize, y: usize| (y.saturating_sub(1)..=y).any(|y| (x.saturating_sub(1)..=x).any(|x| is_text(x, y)));
    let mask = (0..width * height).map(|at| grown(at % width, at / width)).collect();
    let mut boxes = Vec::new();
    for region in regions(mask, width) {
        let region = smallest_rectangle(region);
        if shorter_side(&region) < SHORTEST[0] || mean(map, width, height, &region) < BOX {
            continue;
        }
        let region = smallest_rectangle(grow(&region));
        if shorter_side(&region) >= SHORTEST[1] {
            let scale = |at: f32, from: usize, to: u32| {
                (at / from as f32 * to as f32).round_ties_even().clamp(0.0, to.saturating_sub(1) as f32)
            };
            let region = region.map(|(x, y)| (scale(x, width, to_width), scale(y, height, to_height)));
            if length(region[0], region[1]).min(length(region[0], region[3])).floor() > SMALLEST {
                boxes.push(region);
            }
        }
    }
    in_reading_order(boxes)
}

/// The pixels of each region of a mask whose pixels touch each other.
fn regions(mut mask: Vec<bool>, width: usize) -> Vec<Vec<(f32, f32)>> {
    let mut regions = Vec::new();
    for start in 0..mask.len() {
        let (mut open, mut pixels) = (vec![start], Vec::new());
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut mask[at], false) {
                continue;
            }
            let (x, y) = (at % width, at / width);
            pixels.push((x as f32, y as f32));
            for y in y.saturating_sub(1)..=(y + 1).min(mask.len() / width - 1) {
                open.extend((x.saturating_sub(1)..=(x + 1).min(width - 1)).map(|x| y * width + x));
            }
        }
        if !pixels.is_empty() {
            regions.push(pixels);
        }
    }
    regions
}

/// The corners of the smallest convex region around points, by Andrew's monotone chain.
fn hull(mut points: Vec<(f32, f32)>) -> Vec<(f32, f32)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let turns = |a: (f32, f32), b: (f32, f32), c: (f32, f32)| (b.0 - a.0) * (c.1 - a.1) > (b.1 - a.1) * (c.0 - a.0);
    let half = |points: &mut dyn Iterator<Item = &(f32, f32)>| {
        let mut chain: Vec<(f32, f32)> = Vec::new();
        for &point in points {
            while chain.len() > 1 && !turns(chain[chain.len() - 2], chain[chain.len() - 1], point) {
                chain.pop();
            }
            chain.push(point);
        }
        chain.pop();
        chain
    };
    let mut corners = half(&mut points.iter());
    corners.extend(half(&mut points.iter().rev()));
    if corners.is_empty() { points } else { corners }
}

fn length((ax, ay): (f32, f32), (bx, by): (f32, f32)) -> f32 {
    (ax - bx).hypot(ay - by)
}

fn shorter_side(of: &Corners) -> f32 {
    length(of[0], of[1]).min(length(of[1], of[2]))
}

/// The rectangle of the smallest area around points: one of its sides lies along their hull.
fn smallest_rectangle(points: Vec<(f32, f32)>) -> Corners {
    let hull = hull(points);
    let mut best = (f32::INFINITY, [hull[0]; 4]);
    for (at, &from) in hull.iter().enumerate() {
        let to = hull[(at + 1) % hull.len()];
        let side = length(from, to);
        if side == 0.0 {
            continue;
        }
        let (x, y) = ((to.0 - from.0) / side, (to.1 - from.1) / side);
        let extent = |(x, y): (f32, f32)| {
            let along = hull.iter().map(|point| point.0 * x + point.1 * y);
            along.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)))
        };
        let (along, across) = (extent((x, y)), extent((-y, x)));
        let area = (along.1 - along.0) * (across.1 - across.0);
        if area < best.0 {
            let corner = |a: f32, b: f32| (a * x - b * y, a * y + b * x);
            let corners = [(along.0, across.0), (along.1, across.0), (along.1, across.1), (along.0, across.1)];
            best = (area, corners.map(|(a, b)| corner(a, b)));
        }
    }
    in_order(best.1)
}

/// The left corners and the right ones, the upper one of each first.
fn in_order(mut corners: Corners) -> Corners {
    corners.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [a, b, c, d] = corners;
    let (left_top, left_bottom) = if b.1 > a.1 { (a, b) } else { (b, a) };
    let (right_top, right_bottom) = if d.1 > c.1 { (c, d) } else { (d, c) };
    [left_top, right_top, right_bottom, left_bottom]
}

/// The mean of the map inside a box.
fn mean(map: &[f32], width: usize, height: usize, corners: &Corners) -> f32 {
    let range = |of: fn(&(f32, f32)) -> f32, size: usize| {
        let low = corners.iter().map(of).fold(f32::INFINITY, f32::min).floor().max(0.0) as usize;
        let high = corners.iter().map(of).fold(0.0, f32::max).ceil() as usize;
        low.min(size - 1)..=high.min(size - 1)
    };
    let is_inside = |x: usize, y: usize| {
        (0..4).all(|at| {
            let (from, to) = (corners[at], corners[(at + 1) % 4]);
            let side = length(from, to).max(1e-6);
            let distance = ((to.0 - from.0) * (y as f32 - from.1) - (to.1 - from.1) * (x as f32 - from.0)) / side;
            distance > -0.5
        })
    };
    let (mut sum, mut count) = (0.0, 0);
    for y in range(|corner| corner.1, height) {
        for x in range(|corner| corner.0, width).filter(|&x| is_inside(x, y)) {
            (sum, count) = (sum + map[y * width + x], count + 1);
        }
    }
    if count == 0 { 0.0 } else { sum / count as f32 }
}

/// How far an arc may be from its chords, in pixels.
const ARC: f64 = 0.25;

/// The outline of a box with every side moved out and the corners round, on whole pixels, as the library that grows polygons in Python has it (Clipper,
/// after Chen and McMains, 2005).
fn grow(of: &Corners) -> Vec<(f32, f32)> {
    use std::f64::consts::PI;
    let corners = of.map(|(x, y)| [f64::from(x), f64::from(y)]);
    let sides = [0, 1, 2, 3].map(|i| (corners[i], corners[(i + 1) % 4]));
    let area = sides.iter().map(|(a, b)| a[0] * b[1] - b[0] * a[1]).sum::<f64>().abs() / 2.0;
    let around: f64 = sides.iter().map(|(a, b)| (b[0] - a[0]).hypot(b[1] - a[1])).sum();
    let distance = area * GROWTH / around;
    let steps = (PI / (1.0 - ARC / distance).acos()).min(distance * PI);
    let (sine, cosine) = (2.0 * PI / steps).sin_cos();
    // From here on the box has whole pixels, too.
    let corners = corners.map(|corner| corner.map(f64::trunc));
    let outward = [0, 1, 2, 3].map(|i| {
        let [x, y] = [0, 1].map(|axis| corners[(i + 1) % 4][axis] - corners[i][axis]);
        [y / x.hypot(y), -x / x.hypot(y)]
    });
    let mut outline = Vec::new();
    for (i, corner) in corners.iter().enumerate() {
        let mut push = |[x, y]: [f64; 2]| {
            let at = |axis: usize, by: f64| (corner[axis] + by * distance).round() as f32;
            outline.push((at(0, x), at(1, y)));
        };
        let (from, to) = (outward[(i + 3) % 4], outward[i]);
        let turn = (from[0] * to[1] - to[0] * from[1]).atan2(from[0] * to[0] + from[1] * to[1]);
        let mut arm = from;
        for _ in 0..((steps / (2.0 * PI) * turn.abs()).round() as usize).max(1) {
            push(arm);
            arm = [arm[0] * cosine - sine * arm[1], arm[0] * sine + arm[1] * cosine];
        }
        push(to);
    }
    outline
}

/// Lines from the top to the bottom, on each from left to right.
fn in_reading_order(mut boxes: Vec<Corners>) -> Vec<Corners> {
    boxes.sort_by(|a, b| a[0].1.total_cmp(&b[0].1).then(a[0].0.total_cmp(&b[0].0)));
    for end in 1..boxes.len() {
        for at in (0..end).rev() {
            let is_left = boxes[at + 1][0].0 < boxes[at][0].0;
            if (boxes[at + 1][0].1 - boxes[at][0].1).abs() >= SAME_LINE || !is_left {
                break;
            }
            boxes.swap(at, at + 1);
        }
    }
    boxes
}
