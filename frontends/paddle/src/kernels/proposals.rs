//! Regions that a detector proposes: anchors, proposals made of them, their levels, and which box is whose.

use super::suppression::{Corners, Edges, corners};
use super::values::{
    SINGLE, by_score, dims, expect, expect_len, floats, lengths, positive, required, rounded, store_floats,
    store_integers,
};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("anchor_generator", SINGLE, anchor_generator);
    table.add("generate_proposals", SINGLE, generate_proposals).output(2, DType::I32);
    table.add("legacy_generate_proposals", SINGLE, legacy_generate_proposals).output(2, DType::I32);
    table.add("distribute_fpn_proposals", SINGLE, distribute_fpn_proposals).output(1, DType::I32).output(2, DType::I32);
    table.add("collect_fpn_proposals", SINGLE, collect_fpn_proposals).output(1, DType::I32);
    table.add("bipartite_match", SINGLE, bipartite_match).output(0, DType::I32);
}

fn anchor_generator(
    context: &Context,
    x: Tensor,
    sizes: Vec<f32>,
    ratios: Vec<f32>,
    variances: Vec<f32>,
    stride: Vec<f32>,
    offset: f32,
    anchors: Output,
    variance: Output,
) -> Result<()> {
    let ([_, _, rows, columns], dtype) = (dims("input", &x)?, x.dtype()?);
    let &[width, height] = stride.as_slice() else { return Err(refuse("stride", stride, "two numbers")) };
    if variances.len() != 4 || [width, height].iter().chain(&ratios).any(|number| number.is_nan() || *number <= 0.0) {
        return Err(refuse(
            "variances, stride, aspect_ratios",
            (variances, stride, ratios),
            "four variances, and above 0",
        ));
    }
    let (width, height, offset) = (f64::from(width), f64::from(height), f64::from(offset));
    let mut halves = Vec::with_capacity(ratios.len() * sizes.len());
    for &ratio in &ratios {
        // Rounded where Paddle rounds: whole sides of a box as large as a step, then the anchor's size.
        let base = rounded(rounded(width * height, dtype) / f64::from(ratio), dtype).sqrt().round();
        let tall = rounded(base * f64::from(ratio), dtype).round();
        for &size in &sizes {
            let side = |base: f64, step: f64| (f64::from(size) / step * base - 1.0) / 2.0;
            halves.push([side(base, width), side(tall, height)]);
        }
    }
    let mut boxes = Vec::with_capacity(rows * columns * halves.len() * 4);
    for place in 0..rows * columns {
        let x = (place % columns) as f64 * width + offset * (width - 1.0);
        let y = (place / columns) as f64 * height + offset * (height - 1.0);
        boxes.extend(halves.iter().flat_map(|half| [x - half[0], y - half[1], x + half[0], y + half[1]]));
    }
    let dims = [rows, columns, halves.len(), 4];
    let variances: Vec<f64> = variances.iter().map(|&number| number.into()).collect();
    store_floats(context, &variance, dtype, &dims, &variances.repeat(boxes.len() / 4))?;
    store_floats(context, &anchors, dtype, &dims, &boxes)
}

/// What proposals of an image are chosen by.
#[derive(Clone, Copy)]
struct Choice {
    dtype: DType,
    before: usize,
    after: usize,
    threshold: f64,
    least: f64,
    eta: f64,
    /// Whether corners are elements.
    pixels: bool,
    /// Whether the least size is one before the image was scaled, by the third number of the image.
    scaled: bool,
}

/// All, where a number of boxes is not above 0.
fn most(number: i32) -> usize {
    usize::try_from(number).ok().filter(|&number| number > 0).unwrap_or(usize::MAX)
}

impl Choice {
    fn edges(self) -> Edges {
        Edges::of(!self.pixels)
    }

    /// An anchor moved and stretched, inside the image.
    fn decoded(self, anchor: &[f64], variance: &[f64], delta: &[f64], image: &[f64]) -> Corners {
        let (added, most) = (f64::from(u8::from(self.pixels)), (1000.0f64 / 16.0).ln());
        let along = |axis: usize| {
            let size = anchor[axis + 2] - anchor[axis] + added;
            let centre = anchor[axis] + 0.5 * size + variance[axis] * delta[axis] * size;
            let half = (variance[axis + 2] * delta[axis + 2]).min(most).exp() * size / 2.0;
            let bound = image[1 - axis] - added;
            [centre - half, centre + half - added].map(|corner| rounded(corner, self.dtype).min(bound).max(0.0))
        };
        let [x, y] = [along(0), along(1)];
        [x[0], y[0], x[1], y[1]]
    }

    fn is_large_enough(self, corners: &Corners, image: &[f64]) -> bool {
        let added = f64::from(u8::from(self.pixels));
        (0..2).all(|axis| {
            let length = corners[axis + 2] - corners[axis];
            let centre = corners[axis] + (length + added) / 2.0;
            let size = if self.scaled { length / image[2] + 1.0 } else { length + added };
            size >= self.least && (!self.pixels || centre <= image[1 - axis])
        })
    }

    /// The boxes and scores that stay; where none does, one of zeros.
    fn of_image(self, boxes: impl Fn(usize) -> Corners, scores: &[f64], image: &[f64]) -> (Vec<Corners>, Vec<f64>) {
        let mut order = by_score(scores);
        order.truncate(self.before);
        let mut kept: Vec<(Corners, f64)> = order.iter().map(|&place| (boxes(place), scores[place])).collect();
        kept.retain(|(corners, _)| self.is_large_enough(corners, image));
        if kept.is_empty() {
            return (vec![[0.0; 4]], vec![0.0]);
        }
        if self.threshold > 0.0 {
            kept = self.suppressed(kept);
        }
        kept.into_iter().unzip()
    }

    fn suppressed(self, boxes: Vec<(Corners, f64)>) -> Vec<(Corners, f64)> {
        let (mut threshold, mut kept) = (self.threshold, Vec::<(Corners, f64)>::new());
        for found in boxes {
            if kept.len() == self.after {
                break;
            }
            let overlap = |other: &(Corners, f64)| rounded(self.edges().overlap(&found.0, &other.0), self.dtype);
            if kept.iter().all(|other| overlap(other) <= threshold) {
                kept.push(found);
                if self.eta < 1.0 && threshold > 0.5 {
                    threshold = rounded(threshold * self.eta, self.dtype);
                }
            }
        }
        kept
    }
}

/// The inputs of proposals: scores and deltas of images with channels first, and anchors with variances.
struct Proposed {
    scores: Tensor,
    deltas: Tensor,
    images: Tensor,
    anchors: Tensor,
    variances: Tensor,
}

impl Proposed {
    /// That each image is told by so many numbers or more: detectors give height, width and a scale that is not read.
    fn expect_sizes(&self, images: usize, least: usize) -> Result<()> {
        let shape = self.images.shape();
        let numbers: usize = shape.iter().product();
        if numbers >= images * least && numbers.is_multiple_of(images.max(1)) {
            return Ok(());
        }
        Err(refuse("im_shape", shape, &format!("{least} numbers or more for each of {images} images")))
    }

    fn store(
        &self,
        context: &Context,
        choice: Choice,
        [out, probabilities]: [&Output; 2],
        counts: Option<Output>,
    ) -> Result<()> {
        let [images, kinds, rows, columns] = dims("scores", &self.scores)?;
        expect("bbox_deltas", &self.deltas, &[images, kinds * 4, rows, columns])?;
        let (plane, count) = (rows * columns, rows * columns * kinds);
        expect_len("anchors", &self.anchors, count * 4)?;
        expect_len("variances", &self.variances, count * 4)?;
        self.expect_sizes(images, if choice.scaled { 3 } else { 2 })?;
        let (scores, deltas) = (floats(context, &self.scores)?, floats(context, &self.deltas)?);
        let sizes = floats(context, &self.images)?;
        let (anchors, variances) = (floats(context, &self.anchors)?, floats(context, &self.variances)?);
        let (mut boxes, mut kept, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for image in 0..images {
            let size = &sizes[image * sizes.len() / images..][..sizes.len() / images];
            // Anchors are counted place by place, the kinds of one place in a row.
            let at =
                |place: usize, channels: usize, channel: usize| (image * channels + channel) * plane + place / kinds;
            let own: Vec<f64> = (0..count).map(|place| scores[at(place, kinds, place % kinds)]).collect();
            let decoded = |place: usize| {
                let delta: [f64; 4] =
                    std::array::from_fn(|number| deltas[at(place, kinds * 4, place % kinds * 4 + number)]);
                choice.decoded(&anchors[place * 4..][..4], &variances[place * 4..][..4], &delta, size)
            };
            let (found, of_found) = choice.of_image(decoded, &own, size);
            numbers.push(found.len() as i64);
            boxes.extend(found.into_iter().flatten());
            kept.extend(of_found);
        }
        if let Some(counts) = counts {
            store_integers(context, &counts, DType::I32, &[images], &numbers)?;
        }
        store_floats(context, probabilities, choice.dtype, &[kept.len(), 1], &kept)?;
        store_floats(context, out, choice.dtype, &[kept.len(), 4], &boxes)
    }
}

fn generate_proposals(
    context: &Context,
    scores: Tensor,
    deltas: Tensor,
    images: Tensor,
    anchors: Tensor,
    variances: Tensor,
    before: i32,
    after: i32,
    threshold: f32,
    least: f32,
    eta: f32,
    pixels: bool,
    out: Output,
    probabilities: Output,
    counts: Option<Output>,
) -> Result<()> {
    let choice = Choice {
        dtype: scores.dtype()?,
        before: most(before),
        after: most(after),
        threshold: threshold.into(),
        least: f64::from(least).max(1.0),
        eta: eta.into(),
        pixels,
        scaled: false,
    };
    Proposed { scores, deltas, images, anchors, variances }.store(context, choice, [&out, &probabilities], counts)
}

/// An image is told by height, width and scale, and corners are elements.
fn legacy_generate_proposals(
    context: &Context,
    scores: Tensor,
    deltas: Tensor,
    images: Tensor,
    anchors: Tensor,
    variances: Tensor,
    before: i32,
    after: i32,
    threshold: f32,
    least: f32,
    eta: f32,
    out: Output,
    probabilities: Output,
    counts: Option<Output>,
) -> Result<()> {
    let choice = Choice {
        dtype: scores.dtype()?,
        before: most(before),
        after: most(after),
        threshold: threshold.into(),
        least: f64::from(least).max(1.0),
        eta: eta.into(),
        pixels: true,
        scaled: true,
    };
    Proposed { scores, deltas, images, anchors, variances }.store(context, choice, [&out, &probabilities], counts)
}

/// Boxes by the level that their size belongs to, and where each box has gone.
fn distribute_fpn_proposals(
    context: &Context,
    boxes: Tensor,
    counts: Option<Tensor>,
    least: i32,
    most: i32,
    refer_level: i32,
    refer_scale: i32,
    pixels: bool,
    out: Vec<Option<Output>>,
    out_counts: Vec<Option<Output>>,
    restore: Output,
) -> Result<()> {
    let ([count, _], dtype) = (dims("fpn_rois", &boxes)?, boxes.dtype()?);
    expect("fpn_rois", &boxes, &[count, 4])?;
    let levels = positive("max_level - min_level + 1", most.saturating_sub(least).saturating_add(1))?;
    let counts = lengths(context, "rois_num", &required("rois_num", counts)?, count)?;
    if counts.iter().sum::<usize>() != count || out.len() != levels {
        return Err(refuse(
            "rois_num, levels",
            (counts, levels),
            &format!("{count} boxes in all, {} levels", out.len()),
        ));
    }
    let corners = corners(&floats(context, &boxes)?);
    let level_of = |corners: &Corners| {
        let scale = rounded(rounded(Edges::of(!pixels).area(corners), dtype).sqrt(), dtype);
        let level =
            rounded(rounded(scale / f64::from(refer_scale) + 1e-6, dtype).log2(), dtype) + f64::from(refer_level);
        (level.floor().clamp(least.into(), most.into()) - f64::from(least)) as usize
    };
    let level: Vec<usize> = corners.iter().map(level_of).collect();
    let image: Vec<usize> = counts.iter().enumerate().flat_map(|(image, &count)| vec![image; count]).collect();
    let (mut restored, mut placed) = (vec![0; count], 0);
    for at in 0..levels {
        let own: Vec<usize> = (0..count).filter(|&place| level[place] == at).collect();
        for &place in &own {
            restored[place] = placed;
            placed += 1;
        }
        if let Some(out) = &out[at] {
            let found: Vec<f64> = own.iter().flat_map(|&place| corners[place]).collect();
            store_floats(context, out, dtype, &[own.len(), 4], &found)?;
        }
        if let Some(Some(out)) = out_counts.get(at) {
            let of_image = |number: usize| own.iter().filter(|&&place| image[place] == number).count() as i64;
            let numbers: Vec<i64> = (0..counts.len()).map(of_image).collect();
            store_integers(context, out, DType::I32, &[counts.len()], &numbers)?;
        }
    }
    store_integers(context, &restore, DType::I32, &[count, 1], &restored)
}

/// The best boxes of all levels, by image.
fn collect_fpn_proposals(
    context: &Context,
    boxes: Vec<Tensor>,
    scores: Vec<Tensor>,
    counts: Option<Vec<Tensor>>,
    most: i32,
    out: Output,
    out_counts: Option<Output>,
) -> Result<()> {
    let counts = required("multi_level_rois_num", counts.filter(|counts| !counts.is_empty()))?;
    if boxes.is_empty() || boxes.len() != scores.len() || boxes.len() != counts.len() {
        let got = (boxes.len(), scores.len(), counts.len());
        return Err(refuse("multi_level_rois, multi_level_scores, multi_level_rois_num", got, "as many of each"));
    }
    let most = usize::try_from(most).map_err(|_| refuse("post_nms_topn", most, "a number from 0 on"))?;
    let (dtype, images) = (boxes[0].dtype()?, counts[0].shape().iter().product());
    let mut found: Vec<(usize, f64, Corners)> = Vec::new();
    for ((boxes, scores), counts) in boxes.iter().zip(&scores).zip(&counts) {
        let [count, _] = dims("multi_level_rois", boxes)?;
        expect("multi_level_rois", boxes, &[count, 4])?;
        expect_len("multi_level_scores", scores, count)?;
        expect_len("multi_level_rois_num", counts, images)?;
        let counts = lengths(context, "multi_level_rois_num", counts, count)?;
        if counts.iter().sum::<usize>() != count {
            return Err(refuse("multi_level_rois_num", counts, &format!("{count} boxes in all")));
        }
        let image = counts.iter().enumerate().flat_map(|(image, &count)| vec![image; count]);
        let numbers = image.zip(floats(context, scores)?).zip(corners(&floats(context, boxes)?));
        found.extend(numbers.map(|((image, score), corners)| (image, score, corners)));
    }
    found.sort_by(|left, right| right.1.total_cmp(&left.1));
    found.truncate(most);
    found.sort_by_key(|&(image, ..)| image);
    if let Some(out_counts) = out_counts {
        let of_image = |number: usize| found.iter().filter(|&&(image, ..)| image == number).count() as i64;
        let numbers: Vec<i64> = (0..images).map(of_image).collect();
        store_integers(context, &out_counts, DType::I32, &[images], &numbers)?;
    }
    let rows: Vec<f64> = found.iter().flat_map(|&(_, _, corners)| corners).collect();
    store_floats(context, &out, dtype, &[found.len(), 4], &rows)
}

/// Rows and columns matched greedily, the largest number first; then each column left over with its best row, if that is asked for.
fn bipartite_match(
    context: &Context,
    distances: Tensor,
    kind: String,
    threshold: f32,
    indices: Output,
    matched: Output,
) -> Result<()> {
    const NOTHING: f64 = 1e-6;
    let ([rows, columns], dtype) = (dims("DistMat", &distances)?, distances.dtype()?);
    let numbers = floats(context, &distances)?;
    let mut pairs: Vec<usize> = by_score(&numbers);
    // Of many rows Paddle takes all that are above 0.
    pairs.retain(|&pair| if rows >= 130 { numbers[pair] > 0.0 } else { numbers[pair] >= NOTHING });
    let (mut found, mut taken) = (vec![-1; columns], vec![false; rows]);
    let mut best = vec![0.0; columns];
    for pair in pairs {
        let (row, column) = (pair / columns, pair % columns);
        if found[column] < 0 && !taken[row] {
            (found[column], best[column], taken[row]) = (row as i64, numbers[pair], true);
        }
    }
    if kind == "per_prediction" {
        for column in (0..columns).filter(|&column| found[column] < 0).collect::<Vec<_>>() {
            for row in 0..rows {
                let number = numbers[row * columns + column];
                let counts = number >= NOTHING && number >= f64::from(threshold);
                if counts && (found[column] < 0 || number > best[column]) {
                    (found[column], best[column]) = (row as i64, number);
                }
            }
        }
    }
    store_integers(context, &indices, DType::I32, &[1, columns], &found)?;
    store_floats(context, &matched, dtype, &[1, columns], &best)
}
