//! The boxes of a detector that stay, with the place of each and how many there are in each image.
//!
//! How many stay depends on the values: the outputs have room for all that may, and the numbers tell how much of it is filled.

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::layout::{Dense, call, check, expect_dense, expect_dtype, expect_inputs};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{View, elements, shape_of};
pub use openmps_host::native::detection::Suppression;
use openmps_host::native::detection::{Kept, suppress};
use openmps_host::native::memory::{slice, slice_mut};
use openmps_tile::DType::{F32, I32};

/// Boxes [images, boxes, 4] and scores [images, classes, boxes]. Outputs: class, score and box of each that stays, as rows of six; its
/// number among all images' boxes; how many stay in each image. Rows that nothing was written to are zero.
#[derive(Clone, Copy, Debug)]
pub struct MulticlassNms {
    /// How boxes are chosen.
    pub how: Suppression,
}

const NAME: &str = "multiclass_nms";

/// Images, classes and boxes.
type Sizes = [usize; 3];

impl MulticlassNms {
    fn sizes(&self, boxes: &[usize], scores: &[usize]) -> Result<Sizes> {
        match (boxes, scores) {
            (&[images, count, 4], &[of_images, classes, of_boxes]) if (images, count) == (of_images, of_boxes) => {
                Ok([images, classes, count])
            }
            _ => {
                let got = shape_of(scores)?;
                let expected = format!("[images, classes, boxes] for boxes of shape {boxes:?}, [images, boxes, 4]");
                Err(Error::Shape { operator: NAME, what: "scores", got, expected })
            }
        }
    }

    /// Boxes that may stay in one image.
    fn most(&self, [_, classes, count]: Sizes) -> usize {
        let of_classes = classes.saturating_mul(self.how.candidates.unwrap_or(usize::MAX).min(count));
        of_classes.min(self.how.kept.unwrap_or(usize::MAX))
    }
}

impl Operator for MulticlassNms {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(NAME, inputs, 2)?;
        inputs.iter().try_for_each(|input| expect_dtype(NAME, "input", input.dtype, &[F32]))?;
        let sizes = self.sizes(&inputs[0].shape, &inputs[1].shape)?;
        let rows = elements(&[sizes[0], self.most(sizes)])?;
        let meta = |dtype, dims: &[usize]| Ok(Meta { dtype, shape: shape_of(dims)? });
        Ok(vec![meta(F32, &[rows, 6])?, meta(I32, &[rows, 1])?, meta(I32, &[sizes[0]])?])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        outputs.iter().try_for_each(|output| expect_dense(NAME, output))?;
        let [images, classes, count] = self.sizes(&inputs[0].shape, &inputs[1].shape)?;
        call(queue, NAME, || {
            let (boxes, scores) = (Dense::of(&inputs[0]), Dense::of(&inputs[1]));
            // SAFETY: dense tensors of the checked shapes and types; the queue's owner vouches for them.
            let (boxes, scores, rows, places, numbers) = unsafe {
                (
                    slice::<[f32; 4]>(boxes.address, images * count),
                    slice::<f32>(scores.address, images * classes * count),
                    slice_mut::<[f32; 6]>(outputs[0].address, outputs[0].shape[0]),
                    slice_mut::<i32>(outputs[1].address, outputs[1].shape[0]),
                    slice_mut::<i32>(outputs[2].address, images),
                )
            };
            rows.fill([0.0; 6]);
            places.fill(0);
            let mut next = 0;
            for (image, number) in numbers.iter_mut().enumerate() {
                let boxes = &boxes[image * count..][..count];
                let kept = suppress(boxes, &scores[image * classes * count..][..classes * count], &self.how);
                *number = kept.len() as i32;
                for Kept { class, index, score } in kept {
                    let [left, top, right, bottom] = boxes[index];
                    rows[next] = [class as f32, score, left, top, right, bottom];
                    places[next] = (image * count + index) as i32;
                    next += 1;
                }
            }
            Ok(())
        })
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (boxes, scores) = (&inputs[0], &inputs[1]);
        let sizes = self.sizes(&boxes.shape, &scores.shape).expect("checked by infer");
        let rows = sizes[0] * self.most(sizes);
        let (mut found, mut places, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for image in 0..sizes[0] {
            let kept = reference_of_image(self.how, sizes, image, boxes, scores);
            numbers.push(kept.len() as f64);
            for (class, index) in kept {
                let corners = (0..4).map(|at| boxes.at(&[image, index, at]));
                found.extend([class as f64, scores.at(&[image, class, index])].into_iter().chain(corners));
                places.push((image * sizes[2] + index) as f64);
            }
        }
        found.resize(rows * 6, 0.0);
        places.resize(rows, 0.0);
        let places = Array::new(&[rows, 1], places, I32);
        vec![Array::new(&[rows, 6], found, F32), places, Array::new(&[sizes[0]], numbers, I32)]
    }
}

/// Class and box of what stays, by definition: round by round the best one left, whose followers go.
fn reference_of_image(
    how: Suppression,
    [_, classes, count]: Sizes,
    image: usize,
    boxes: &Array,
    scores: &Array,
) -> Vec<(usize, usize)> {
    let score = |class: usize, index: usize| scores.at(&[image, class, index]);
    let side = |index: usize, low: usize| (boxes.at(&[image, index, low]), boxes.at(&[image, index, low + 2]));
    let last = if how.normalised { 0.0 } else { 1.0 };
    let length = |(low, high): (f64, f64)| if high < low { 0.0 } else { high - low + last };
    let shared = |a: (f64, f64), b: (f64, f64)| length((a.0.max(b.0), a.1.min(b.1)));
    let overlap = |a: usize, b: usize| {
        let both = shared(side(a, 0), side(b, 0)) * shared(side(a, 1), side(b, 1));
        let areas: f64 = [a, b].into_iter().map(|of| length(side(of, 0)) * length(side(of, 1))).sum();
        both / (areas - both)
    };
    let mut kept = Vec::new();
    for class in (0..classes).filter(|&class| how.background != Some(class)) {
        let mut left: Vec<usize> = (0..count).filter(|&index| score(class, index) > f64::from(how.score)).collect();
        left.sort_by(|&a, &b| score(class, b).total_cmp(&score(class, a)));
        left.truncate(how.candidates.unwrap_or(usize::MAX));
        let mut threshold = f64::from(how.overlap);
        let mut own: Vec<usize> = Vec::new();
        for index in left {
            if own.iter().all(|&better| overlap(index, better) <= threshold) {
                own.push(index);
                threshold *= if how.eta < 1.0 && threshold > 0.5 { f64::from(how.eta) } else { 1.0 };
            }
        }
        kept.extend(own.into_iter().map(|index| (class, index)));
    }
    kept.sort_by(|&(a, i), &(b, j)| score(b, j).total_cmp(&score(a, i)));
    kept.truncate(how.kept.unwrap_or(usize::MAX));
    kept.sort_by_key(|&(class, _)| class);
    kept
}

/// Boxes around places that repeat, so that many overlap.
fn boxes(images: usize, count: usize, scale: f64) -> Input {
    let mut values = Vec::with_capacity(images * count * 4);
    for index in 0..images * count {
        let at = |step: usize, range: usize| (index * step % range) as f64 / range as f64;
        let (x, y, width, height) = (at(37, 11), at(53, 7), 0.1 + at(29, 13) / 2.0, 0.1 + at(31, 17) / 2.0);
        values.extend([x, y, x + width, y + height].map(|corner| corner * scale));
    }
    Input::of(&[images, count, 4], Values::Given(values)).typed(F32)
}

fn cases() -> Vec<Case> {
    let how = Suppression {
        score: 0.05,
        overlap: 0.45,
        eta: 1.0,
        candidates: Some(20),
        kept: Some(12),
        background: None,
        normalised: true,
    };
    let case = |how: Suppression, [images, classes, count]: Sizes| {
        let scale = if how.normalised { 1.0 } else { 64.0 };
        let scores = Input::of(&[images, classes, count], Values::Uniform(0.0, 1.0)).typed(F32);
        Case::new(MulticlassNms { how }, vec![boxes(images, count, scale), scores])
    };
    vec![
        case(how, [1, 3, 40]),
        case(Suppression { kept: None, candidates: None, ..how }, [2, 2, 30]),
        case(Suppression { normalised: false, background: Some(0), ..how }, [2, 4, 25]),
        case(Suppression { overlap: 0.9, eta: 0.8, ..how }, [1, 1, 60]),
        case(Suppression { score: 2.0, ..how }, [1, 2, 8]),
        case(how, [1, 0, 4]),
        case(how, [2, 3, 0]),
    ]
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: NAME,
    summary: "The boxes of each class that overlap no better one, of several images.",
    dtypes: &[F32],
    cases,
    tolerance: 0.0,
};
