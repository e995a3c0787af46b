//! Suppression of boxes that overlap better ones: nms, and the forms of it for many classes.

use super::values::{SINGLE, by_score, dims, expect, floats, lengths, required, rounded, store_floats, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;
use rayon::prelude::*;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("nms", SINGLE, nms).output(0, DType::I64);
    table.add("multiclass_nms3", SINGLE, multiclass_nms).output(1, DType::I32).output(2, DType::I32);
    table.add("multiclass_nms", SINGLE, older_multiclass_nms);
    table.add("matrix_nms", SINGLE, matrix_nms).output(1, DType::I32).output(2, DType::I32);
}

/// Left, top, right, bottom.
pub(super) type Corners = [f64; 4];

/// Whether corners lie between elements, or are elements themselves, which are 1 wide.
#[derive(Clone, Copy)]
pub(super) struct Edges {
    added: f64,
}

impl Edges {
    pub fn of(normalized: bool) -> Edges {
        Edges { added: if normalized { 0.0 } else { 1.0 } }
    }

    pub fn area(self, corners: &Corners) -> f64 {
        let [width, height] = [corners[2] - corners[0], corners[3] - corners[1]];
        if width < 0.0 || height < 0.0 { 0.0 } else { (width + self.added) * (height + self.added) }
    }

    /// What two boxes share, over what they cover.
    pub fn overlap(self, x: &Corners, y: &Corners) -> f64 {
        let [width, height] = [x[2].min(y[2]) - x[0].max(y[0]), x[3].min(y[3]) - x[1].max(y[1])];
        if width < 0.0 || height < 0.0 {
            return 0.0;
        }
        let shared = (width + self.added) * (height + self.added);
        shared / (self.area(x) + self.area(y) - shared)
    }
}

pub(super) fn corners(boxes: &[f64]) -> Vec<Corners> {
    boxes.chunks_exact(4).map(|corners| std::array::from_fn(|number| corners[number])).collect()
}

/// The boxes, of which an earlier one suppresses a later one.
fn nms(context: &Context, boxes: Tensor, threshold: f32, out: Output) -> Result<()> {
    let ([count, four], dtype) = (dims("boxes", &boxes)?, boxes.dtype()?);
    if four != 4 {
        return Err(refuse("boxes", boxes.shape(), "boxes of four numbers"));
    }
    let boxes = corners(&floats(context, &boxes)?);
    let area = |corners: &Corners| (corners[2] - corners[0]) * (corners[3] - corners[1]);
    let overlap = |x: &Corners, y: &Corners| {
        let sides = [x[2].min(y[2]) - x[0].max(y[0]), x[3].min(y[3]) - x[1].max(y[1])].map(|side| side.max(0.0));
        let shared = sides[0] * sides[1];
        rounded(shared / (area(x) + area(y) - shared), dtype)
    };
    let mut kept: Vec<usize> = Vec::new();
    for place in 0..count {
        if !kept.iter().any(|&before| overlap(&boxes[before], &boxes[place]) > f64::from(threshold)) {
            kept.push(place);
        }
    }
    let kept: Vec<i64> = kept.into_iter().map(|place| place as i64).collect();
    store_integers(context, &out, DType::I64, &[kept.len()], &kept)
}

/// One that is found.
struct Detection {
    class: usize,
    score: f64,
    corners: Corners,
    index: usize,
}

/// The boxes and scores of one image, which each class may have of its own.
struct Image<'a> {
    dtype: DType,
    boxes: &'a [Corners],
    scores: &'a [f64],
    count: usize,
    classes: usize,
    /// Whether classes come last, and have a box each.
    own_boxes: bool,
}

impl Image<'_> {
    fn place(&self, class: usize, number: usize) -> usize {
        if self.own_boxes { number * self.classes + class } else { number }
    }

    fn scores(&self, class: usize) -> Vec<f64> {
        let place = |number| if self.own_boxes { number * self.classes + class } else { class * self.count + number };
        (0..self.count).map(|number| self.scores[place(number)]).collect()
    }

    /// The best boxes of a class above a score, in order.
    fn candidates(&self, scores: &[f64], above: f64, most: i32) -> Vec<usize> {
        let mut order: Vec<usize> = by_score(scores).into_iter().filter(|&number| scores[number] > above).collect();
        if let Ok(most) = usize::try_from(most) {
            order.truncate(most);
        }
        order
    }

    fn detection(&self, class: usize, number: usize, score: f64) -> Detection {
        let index = self.place(class, number);
        Detection { class, score, corners: self.boxes[index], index }
    }
}

/// What `multiclass_nms3` goes by.
#[derive(Clone, Copy)]
struct Rule {
    above: f64,
    candidates: i32,
    kept: i32,
    threshold: f64,
    eta: f64,
    edges: Edges,
    background: i32,
}

impl Rule {
    fn of_class(&self, image: &Image, class: usize) -> Vec<Detection> {
        let scores = image.scores(class);
        let mut threshold = self.threshold;
        let mut kept: Vec<usize> = Vec::new();
        for number in image.candidates(&scores, self.above, self.candidates) {
            let own = &image.boxes[image.place(class, number)];
            let overlap =
                |other: &usize| rounded(self.edges.overlap(own, &image.boxes[image.place(class, *other)]), image.dtype);
            // A NaN suppresses, as no box is known to lie apart from it.
            if kept.iter().all(|other| overlap(other) <= threshold) {
                kept.push(number);
                if self.eta < 1.0 && threshold > 0.5 {
                    threshold = rounded(threshold * self.eta, image.dtype);
                }
            }
        }
        if image.own_boxes {
            kept.sort_unstable();
        }
        kept.into_iter().map(|number| image.detection(class, number, scores[number])).collect()
    }

    /// All of an image, by class.
    fn of_image(&self, image: &Image) -> Vec<Detection> {
        let classes = (0..image.classes).filter(|&class| i64::from(self.background) != class as i64);
        let mut found: Vec<Detection> = classes.flat_map(|class| self.of_class(image, class)).collect();
        if let Some(kept) = usize::try_from(self.kept).ok().filter(|&kept| found.len() > kept) {
            found.sort_by(|left, right| right.score.total_cmp(&left.score));
            found.truncate(kept);
            found.sort_by_key(|detection| (detection.class, if image.own_boxes { detection.index } else { 0 }));
        }
        found
    }
}

/// Writes the detections of all images: rows of class, score and corners; which box each is; how many each image has.
fn store(
    context: &Context,
    dtype: DType,
    images: &[(usize, Vec<Detection>)],
    out: &Output,
    index: Option<Output>,
    counts: Option<Output>,
) -> Result<()> {
    let every = || images.iter().flat_map(|(first, found)| found.iter().map(move |detection| (first, detection)));
    let rows: Vec<f64> =
        every().flat_map(|(_, found)| [found.class as f64, found.score].into_iter().chain(found.corners)).collect();
    let places: Vec<i64> = every().map(|(first, found)| (first + found.index) as i64).collect();
    let numbers: Vec<i64> = images.iter().map(|(_, found)| found.len() as i64).collect();
    if let Some(index) = index {
        store_integers(context, &index, DType::I32, &[places.len(), 1], &places)?;
    }
    if let Some(counts) = counts {
        store_integers(context, &counts, DType::I32, &[numbers.len()], &numbers)?;
    }
    store_floats(context, out, dtype, &[places.len(), 6], &rows)
}

fn multiclass_nms(
    context: &Context,
    boxes: Tensor,
    scores: Tensor,
    counts: Option<Tensor>,
    above: f32,
    candidates: i32,
    kept: i32,
    threshold: f32,
    normalized: bool,
    eta: f32,
    background: i32,
    out: Output,
    index: Option<Output>,
    found: Option<Output>,
) -> Result<()> {
    let (dtype, shape) = (boxes.dtype()?, scores.shape());
    let own_boxes = shape.len() == 2;
    // (first box, boxes, classes) of each image.
    let (parts, classes): (Vec<[usize; 2]>, usize) = if own_boxes {
        expect("bboxes", &boxes, &[shape[0], shape[1], 4])?;
        let counts = lengths(context, "rois_num", &required("rois_num", counts)?, shape[0])?;
        if counts.iter().sum::<usize>() > shape[0] {
            return Err(refuse("rois_num", counts, &format!("numbers that add up to at most {} boxes", shape[0])));
        }
        let ends = counts.iter().scan(0, |end, &count| {
            *end += count;
            Some([*end - count, count])
        });
        (ends.collect(), shape[1])
    } else {
        let [images, classes, count] = dims("scores", &scores)?;
        expect("bboxes", &boxes, &[images, count, 4])?;
        ((0..images).map(|image| [image * count, count]).collect(), classes)
    };
    let (boxes, scores) = (corners(&floats(context, &boxes)?), floats(context, &scores)?);
    let rule = Rule {
        above: above.into(),
        candidates,
        kept,
        threshold: threshold.into(),
        eta: eta.into(),
        edges: Edges::of(normalized),
        background,
    };
    let found_of = |&[first, count]: &[usize; 2]| {
        let (from, len) = if own_boxes { (first * classes, count * classes) } else { (first, count) };
        let image = Image {
            dtype,
            boxes: &boxes[from..from + len],
            scores: &scores[first * classes..][..count * classes],
            count,
            classes,
            own_boxes,
        };
        (from, rule.of_image(&image))
    };
    let images: Vec<_> = parts.par_iter().map(found_of).collect();
    store(context, dtype, &images, &out, index, found)
}

/// The older form: without an index, and where nothing is found one number, -1.
fn older_multiclass_nms(
    context: &Context,
    boxes: Tensor,
    scores: Tensor,
    above: f32,
    candidates: i32,
    kept: i32,
    threshold: f32,
    eta: f32,
    normalized: bool,
    background: i32,
    out: Output,
) -> Result<()> {
    let dtype = boxes.dtype()?;
    multiclass_nms(
        context, boxes, scores, None, above, candidates, kept, threshold, normalized, eta, background, out, None, None,
    )?;
    if out.shape().contains(&0) { store_floats(context, &out, dtype, &[1, 1], &[-1.0]) } else { Ok(()) }
}

/// How `matrix_nms` lowers scores.
#[derive(Clone, Copy)]
struct Decay {
    gaussian: Option<f64>,
    above: f64,
    after: f64,
    candidates: i32,
    edges: Edges,
}

impl Decay {
    fn factor(self, overlap: f64, most: f64) -> f64 {
        match self.gaussian {
            Some(sigma) => ((most * most - overlap * overlap) * sigma).exp(),
            None => (1.0 - overlap) / (1.0 - most),
        }
    }

    /// The boxes of a class whose scores stay high enough.
    fn of_class(self, image: &Image, class: usize) -> Vec<Detection> {
        let scores = image.scores(class);
        let order = image.candidates(&scores, self.above, self.candidates);
        let mut most: Vec<f64> = Vec::with_capacity(order.len());
        let mut found = Vec::new();
        for (rank, &number) in order.iter().enumerate() {
            let overlap = |other: &usize| self.edges.overlap(&image.boxes[number], &image.boxes[*other]);
            let overlaps: Vec<f64> = order[..rank].iter().map(overlap).collect();
            let decay = overlaps.iter().zip(&most).map(|(&overlap, &most)| self.factor(overlap, most));
            let score = scores[number] * decay.fold(1.0, f64::min);
            most.push(overlaps.iter().copied().fold(0.0, f64::max));
            if score > self.after {
                found.push(image.detection(class, number, score));
            }
        }
        found
    }
}

fn matrix_nms(
    context: &Context,
    boxes: Tensor,
    scores: Tensor,
    above: f32,
    candidates: i32,
    kept: i32,
    after: f32,
    gaussian: bool,
    sigma: f32,
    background: i32,
    normalized: bool,
    out: Output,
    index: Option<Output>,
    counts: Option<Output>,
) -> Result<()> {
    let ([images, classes, count], dtype) = (dims("scores", &scores)?, boxes.dtype()?);
    expect("bboxes", &boxes, &[images, count, 4])?;
    let (boxes, scores) = (corners(&floats(context, &boxes)?), floats(context, &scores)?);
    let decay = Decay {
        gaussian: gaussian.then_some(sigma.into()),
        above: above.into(),
        after: after.into(),
        candidates,
        edges: Edges::of(normalized),
    };
    let found_of = |number: usize| {
        let image = Image {
            dtype,
            boxes: &boxes[number * count..][..count],
            scores: &scores[number * classes * count..][..classes * count],
            count,
            classes,
            own_boxes: false,
        };
        let classes = (0..classes).filter(|&class| i64::from(background) != class as i64);
        let mut found: Vec<Detection> = classes.flat_map(|class| decay.of_class(&image, class)).collect();
        found.sort_by(|left, right| right.score.total_cmp(&left.score));
        found.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        (number * count, found)
    };
    let images: Vec<_> = (0..images).into_par_iter().map(found_of).collect();
    store(context, dtype, &images, &out, index, counts)
}
