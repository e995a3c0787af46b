//! The head of YOLOv3: boxes and scores from what a network gives, the loss and its gradient. Images are taken in parallel.

use super::values::{SINGLE, dims, expect, floats, integers, positive, store_floats, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;
use rayon::prelude::*;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("yolo_box", SINGLE, yolo_box);
    table.add("yolo_loss", SINGLE, yolo_loss).output(2, DType::I32);
    table.add("yolo_loss_grad", SINGLE, yolo_loss_grad);
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The sizes of anchors in pairs.
fn anchor_sizes(anchors: &[i32]) -> Result<Vec<[f64; 2]>> {
    if anchors.is_empty() || anchors.len() % 2 == 1 || anchors.iter().any(|&size| size <= 0) {
        return Err(refuse("anchors", anchors, "pairs of sizes above 0"));
    }
    Ok(anchors.chunks_exact(2).map(|pair| [f64::from(pair[0]), f64::from(pair[1])]).collect())
}

fn yolo_box(
    context: &Context,
    x: Tensor,
    sizes: Tensor,
    anchors: Vec<i32>,
    classes: i32,
    threshold: f32,
    downsample: i32,
    clip: bool,
    scale: f32,
    aware: bool,
    aware_factor: f32,
    boxes: Output,
    scores: Output,
) -> Result<()> {
    let ([batch, channels, height, width], dtype) = (dims("x", &x)?, x.dtype()?);
    let (anchors, classes) = (anchor_sizes(&anchors)?, positive("class_num", classes)?);
    let downsample = positive("downsample_ratio", downsample)? as f64;
    let (plane, overlaps) = (height * width, if aware { anchors.len() } else { 0 });
    if channels != anchors.len() * (5 + classes) + overlaps {
        let expected = format!("{} anchors of 5 numbers and {classes} classes", anchors.len());
        return Err(refuse("channels of x", channels, &expected));
    }
    expect("img_size", &sizes, &[batch, 2])?;
    let (values, sizes) = (floats(context, &x)?, integers(context, &sizes)?);
    let (scale, factor) = (f64::from(scale), f64::from(aware_factor));
    let bias = -0.5 * (scale - 1.0);
    let of_anchor = |image: usize, number: usize, place: usize| -> ([f64; 4], Vec<f64>) {
        let value = |channel: usize| values[(image * channels + channel) * plane + place];
        let entry = |entry: usize| value(overlaps + number * (5 + classes) + entry);
        let mut certain = sigmoid(entry(4));
        if aware {
            certain = certain.powf(1.0 - factor) * sigmoid(value(number)).powf(factor);
        }
        if certain < f64::from(threshold) {
            return ([0.0; 4], vec![0.0; classes]);
        }
        let [tall, wide] = [sizes[image * 2] as f64, sizes[image * 2 + 1] as f64];
        let [column, row] = [(place % width) as f64, (place / width) as f64];
        let across = (column + sigmoid(entry(0)) * scale + bias) * wide / width as f64;
        let down = (row + sigmoid(entry(1)) * scale + bias) * tall / height as f64;
        let half_width = entry(2).exp() * anchors[number][0] * wide / (downsample * width as f64) / 2.0;
        let half_height = entry(3).exp() * anchors[number][1] * tall / (downsample * height as f64) / 2.0;
        let mut corners = [across - half_width, down - half_height, across + half_width, down + half_height];
        if clip {
            corners =
                [corners[0].max(0.0), corners[1].max(0.0), corners[2].min(wide - 1.0), corners[3].min(tall - 1.0)];
        }
        (corners, (0..classes).map(|class| certain * sigmoid(entry(5 + class))).collect())
    };
    let count = anchors.len() * plane;
    let found: Vec<_> = (0..batch * count)
        .into_par_iter()
        .map(|number| of_anchor(number / count, number % count / plane, number % plane))
        .collect();
    let corners: Vec<f64> = found.iter().flat_map(|(corners, _)| *corners).collect();
    let certain: Vec<f64> = found.into_iter().flat_map(|(_, scores)| scores).collect();
    store_floats(context, &boxes, dtype, &[batch, count, 4], &corners)?;
    store_floats(context, &scores, dtype, &[batch, count, classes], &certain)
}

/// Centre and size, in parts of the image.
type Centred = [f64; 4];

fn overlap(x: &Centred, y: &Centred) -> f64 {
    let side = |axis: usize| {
        let [low, high] = [-0.5, 0.5].map(|half| [x, y].map(|b| b[axis] + half * b[axis + 2]));
        high[0].min(high[1]) - low[0].max(low[1])
    };
    let [width, height] = [side(0), side(1)];
    let shared = if width < 0.0 || height < 0.0 { 0.0 } else { width * height };
    shared / (x[2] * x[3] + y[2] * y[3] - shared)
}

/// The cross entropy of a number before its sigmoid.
fn entropy(x: f64, label: f64) -> f64 {
    x.max(0.0) - x * label + (-x.abs()).exp().ln_1p()
}

/// What the loss and its gradient share.
struct Head {
    dtype: DType,
    batch: usize,
    height: usize,
    width: usize,
    classes: usize,
    anchors: Vec<[f64; 2]>,
    mask: Vec<usize>,
    values: Vec<f64>,
    truths: usize,
    boxes: Vec<Centred>,
    labels: Vec<usize>,
    scores: Vec<f64>,
    input_size: f64,
    smooth: f64,
}

/// A true box at the anchor that fits it best: where its numbers begin, its class, its targets and its weights.
struct Match {
    first: usize,
    object: usize,
    label: usize,
    targets: [f64; 4],
    weight: f64,
    score: f64,
}

impl Head {
    fn new(
        context: &Context,
        [x, boxes, labels]: [&Tensor; 3],
        scores: Option<Tensor>,
        (anchors, mask): (&[i32], &[i32]),
        classes: i32,
        downsample: i32,
        smooth: bool,
    ) -> Result<Head> {
        let [batch, channels, height, width] = dims("x", x)?;
        let (anchors, classes) = (anchor_sizes(anchors)?, positive("class_num", classes)?);
        let of_mask = |&number: &i32| usize::try_from(number).ok().filter(|&number| number < anchors.len());
        let chosen: Option<Vec<usize>> = mask.iter().map(of_mask).collect();
        let chosen = chosen.ok_or_else(|| refuse("anchor_mask", mask, &format!("of {} anchors", anchors.len())))?;
        if channels != chosen.len() * (5 + classes) || height != width {
            let expected = format!("square, {} anchors of 5 numbers and {classes} classes", chosen.len());
            return Err(refuse("x", x.shape(), &expected));
        }
        let [_, truths, _]: [usize; 3] = dims("gt_box", boxes)?;
        expect("gt_box", boxes, &[batch, truths, 4])?;
        expect("gt_label", labels, &[batch, truths])?;
        let scores = match scores {
            Some(scores) => {
                expect("gt_score", &scores, &[batch, truths])?;
                floats(context, &scores)?
            }
            None => vec![1.0; batch * truths],
        };
        // A box of no size is none, whatever its label says.
        let is_none = |b: &Centred| b[2] < 1e-6 || b[3] < 1e-6;
        let label = |(label, b): (i64, &Centred)| {
            if is_none(b) {
                return Ok(0);
            }
            let known = usize::try_from(label).ok().filter(|&label| label < classes);
            known.ok_or_else(|| refuse("gt_label", label, &format!("one of {classes} classes")))
        };
        let boxes: Vec<Centred> = floats(context, boxes)?.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]).collect();
        let inside = |b: &&Centred| is_none(b) || b[..2].iter().all(|c| (0.0..1.0).contains(c));
        if let Some(outside) = boxes.iter().find(|b| !inside(b)) {
            return Err(refuse("gt_box", outside, "a centre within the image: from 0 to below 1"));
        }
        Ok(Head {
            dtype: x.dtype()?,
            batch,
            height,
            width,
            classes,
            anchors,
            mask: chosen,
            values: floats(context, x)?,
            truths,
            labels: integers(context, labels)?.into_iter().zip(&boxes).map(label).collect::<Result<_>>()?,
            boxes,
            scores,
            input_size: positive("downsample_ratio", downsample)? as f64 * height as f64,
            smooth: if smooth { (1.0 / classes as f64).min(1.0 / 40.0) } else { 0.0 },
        })
    }

    fn plane(&self) -> usize {
        self.height * self.width
    }

    /// Where an anchor's numbers of an image begin.
    fn first(&self, image: usize, anchor: usize) -> usize {
        (image * self.mask.len() + anchor) * (5 + self.classes) * self.plane()
    }

    /// Where the certainties of an image are.
    fn objects(&self) -> usize {
        self.mask.len() * self.plane()
    }

    fn is_real(&self, truth: usize) -> bool {
        let [_, _, width, height] = self.boxes[truth];
        width >= 1e-6 && height >= 1e-6
    }

    /// Which of the masked anchors fits a true box best, if it is a masked one.
    fn fitting(&self, truth: usize) -> Option<usize> {
        let [_, _, width, height] = self.boxes[truth];
        let of_anchor = |size: &[f64; 2]| {
            overlap(&[0.0, 0.0, size[0] / self.input_size, size[1] / self.input_size], &[0.0, 0.0, width, height])
        };
        let fits = self.anchors.iter().map(of_anchor).enumerate();
        let best = fits.fold((0, 0.0), |best, (number, fit)| if fit > best.1 { (number, fit) } else { best }).0;
        self.mask.iter().position(|&anchor| anchor == best)
    }

    fn matched(&self, truth: usize, anchor: usize) -> Match {
        let [x, y, width, height] = self.boxes[truth];
        let (columns, rows) = (self.width as f64, self.height as f64);
        let [column, row] = [(x * columns) as usize, (y * rows) as usize];
        let (size, place) = (self.anchors[self.mask[anchor]], row * self.width + column);
        Match {
            first: self.first(truth / self.truths, anchor) + place,
            object: anchor * self.plane() + place,
            label: self.labels[truth],
            targets: [
                x * rows - column as f64,
                y * rows - row as f64,
                (width * self.input_size / size[0]).ln(),
                (height * self.input_size / size[1]).ln(),
            ],
            weight: (2.0 - width * height) * self.scores[truth],
            score: self.scores[truth],
        }
    }

    fn target(&self, found: &Match, class: usize) -> f64 {
        if class == found.label { 1.0 - self.smooth } else { self.smooth }
    }

    /// The loss without the certainties of one true box.
    fn loss(&self, found: &Match) -> f64 {
        let value = |entry: usize| self.values[found.first + entry * self.plane()];
        let of_box = |entry: usize| match entry {
            0 | 1 => entropy(value(entry), found.targets[entry]),
            _ => (value(entry) - found.targets[entry]).abs(),
        };
        let of_class = |class: usize| entropy(value(5 + class), self.target(found, class)) * found.score;
        (0..4).map(of_box).sum::<f64>() * found.weight + (0..self.classes).map(of_class).sum::<f64>()
    }

    /// Where a predicted box overlaps a true one by more than the threshold, its certainty does not count.
    fn ignored(&self, image: usize, anchor: usize, place: usize, threshold: f64, scale: f64) -> bool {
        let value = |entry: usize| self.values[self.first(image, anchor) + entry * self.plane() + place];
        let [column, row] = [place % self.width, place / self.width].map(|number| number as f64);
        let (bias, cells, size) = (-0.5 * (scale - 1.0), self.height as f64, self.anchors[self.mask[anchor]]);
        let predicted = [
            (column + sigmoid(value(0)) * scale + bias) / cells,
            (row + sigmoid(value(1)) * scale + bias) / cells,
            value(2).exp() * size[0] / self.input_size,
            value(3).exp() * size[1] / self.input_size,
        ];
        let mut truths = (image * self.truths..(image + 1) * self.truths).filter(|&truth| self.is_real(truth));
        truths.any(|truth| overlap(&predicted, &self.boxes[truth]) > threshold)
    }
}

/// The loss of one image, the weight of each certainty, and the anchor of each true box.
type ImageLoss = (f64, Vec<f64>, Vec<i64>);

fn yolo_loss(
    context: &Context,
    x: Tensor,
    boxes: Tensor,
    labels: Tensor,
    scores: Option<Tensor>,
    anchors: Vec<i32>,
    mask: Vec<i32>,
    classes: i32,
    threshold: f32,
    downsample: i32,
    smooth: bool,
    scale: f32,
    loss: Output,
    objects: Output,
    matches: Output,
) -> Result<()> {
    let head = Head::new(context, [&x, &boxes, &labels], scores, (&anchors, &mask), classes, downsample, smooth)?;
    let of_image = |image: usize| -> ImageLoss {
        let ignored = |number: usize| {
            let (anchor, place) = (number / head.plane(), number % head.plane());
            head.ignored(image, anchor, place, threshold.into(), scale.into())
        };
        let mut weights: Vec<f64> =
            (0..head.objects()).map(|number| if ignored(number) { -1.0 } else { 0.0 }).collect();
        let (mut sum, mut found) = (0.0, Vec::with_capacity(head.truths));
        for truth in image * head.truths..(image + 1) * head.truths {
            let anchor = Some(truth).filter(|&truth| head.is_real(truth)).and_then(|truth| head.fitting(truth));
            found.push(anchor.map_or(-1, |anchor| anchor as i64));
            let Some(anchor) = anchor else { continue };
            let own = head.matched(truth, anchor);
            sum += head.loss(&own);
            weights[own.object] = own.score;
        }
        for (number, &weight) in weights.iter().enumerate() {
            let at = head.first(image, number / head.plane()) + 4 * head.plane() + number % head.plane();
            sum += match weight {
                weight if weight > 1e-5 => entropy(head.values[at], 1.0) * weight,
                weight if weight > -0.5 => entropy(head.values[at], 0.0),
                _ => 0.0,
            };
        }
        (sum, weights, found)
    };
    let results: Vec<ImageLoss> = (0..head.batch).into_par_iter().map(of_image).collect();
    let sums: Vec<f64> = results.iter().map(|result| result.0).collect();
    let weights: Vec<f64> = results.iter().flat_map(|result| &result.1).copied().collect();
    let found: Vec<i64> = results.iter().flat_map(|result| &result.2).copied().collect();
    let dims = [head.batch, head.mask.len(), head.height, head.width];
    store_floats(context, &objects, head.dtype, &dims, &weights)?;
    store_integers(context, &matches, DType::I32, &[head.batch, head.truths], &found)?;
    store_floats(context, &loss, head.dtype, &[head.batch], &sums)
}

fn yolo_loss_grad(
    context: &Context,
    x: Tensor,
    boxes: Tensor,
    labels: Tensor,
    scores: Option<Tensor>,
    objects: Tensor,
    matches: Tensor,
    upstream: Tensor,
    anchors: Vec<i32>,
    mask: Vec<i32>,
    classes: i32,
    _threshold: f32,
    downsample: i32,
    smooth: bool,
    _scale: f32,
    dx: Output,
    dboxes: Option<Output>,
    dlabels: Option<Output>,
    dscores: Option<Output>,
) -> Result<()> {
    let head = Head::new(context, [&x, &boxes, &labels], scores, (&anchors, &mask), classes, downsample, smooth)?;
    expect("objectness_mask", &objects, &[head.batch, head.mask.len(), head.height, head.width])?;
    expect("gt_match_mask", &matches, &[head.batch, head.truths])?;
    expect("loss_grad", &upstream, &[head.batch])?;
    let (weights, matches) = (floats(context, &objects)?, integers(context, &matches)?);
    let (upstream, plane) = (floats(context, &upstream)?, head.plane());
    let mut gradient = vec![0.0; head.values.len()];
    for (truth, &anchor) in matches.iter().enumerate() {
        let Some(anchor) = usize::try_from(anchor).ok().filter(|&anchor| anchor < head.mask.len()) else { continue };
        let (own, of_loss) = (head.matched(truth, anchor), upstream[truth / head.truths]);
        let at = |entry: usize| own.first + entry * plane;
        for entry in 0..4 {
            let value = head.values[at(entry)];
            let slope = match entry {
                0 | 1 => sigmoid(value) - own.targets[entry],
                _ => {
                    if value > own.targets[entry] {
                        1.0
                    } else {
                        -1.0
                    }
                }
            };
            gradient[at(entry)] += slope * own.weight * of_loss;
        }
        for class in 0..head.classes {
            let slope = sigmoid(head.values[at(5 + class)]) - head.target(&own, class);
            gradient[at(5 + class)] += slope * own.score * of_loss;
        }
    }
    for (number, &weight) in weights.iter().enumerate() {
        let (image, within) = (number / head.objects(), number % head.objects());
        let at = head.first(image, within / plane) + 4 * plane + within % plane;
        gradient[at] = upstream[image]
            * match weight {
                weight if weight > 1e-5 => (sigmoid(head.values[at]) - 1.0) * weight,
                weight if weight > -0.5 => sigmoid(head.values[at]),
                _ => 0.0,
            };
    }
    // Boxes, labels and scores are no variables.
    for (out, like) in [(dboxes, boxes.shape()), (dlabels, labels.shape()), (dscores, labels.shape())] {
        if let Some(out) = out {
            store_floats(context, &out, head.dtype, &like, &vec![0.0; like.iter().product()])?;
        }
    }
    store_floats(context, &dx, head.dtype, &x.shape(), &gradient)
}
