//! The boxes of a detector that stay: the best of each class that do not overlap a better one.

use std::cmp::Ordering;

/// How boxes are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suppression {
    /// Boxes count above this score only.
    pub score: f32,
    /// Boxes stay whose overlap with every better one is at most this part of both together.
    pub overlap: f32,
    /// While the threshold of overlap is above a half, each box that stays lowers it by this factor.
    pub eta: f32,
    /// The best boxes of a class that are looked at; none is all.
    pub candidates: Option<usize>,
    /// The best boxes of an image that stay, of all classes; none is all.
    pub kept: Option<usize>,
    /// A class that is none.
    pub background: Option<usize>,
    /// Coordinates are parts of the image; else they are pixels, and a box includes its last one.
    pub normalised: bool,
}

/// A box that stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// Its class.
    pub class: usize,
    /// Which of the boxes it is.
    pub index: usize,
    /// Its score for the class.
    pub score: f32,
}

/// The boxes of one image that stay, class by class, the best of a class first. `scores` are [classes, boxes]; a box is left, top,
/// right, bottom. Of boxes with one score the first comes first; a score that is NaN counts for nothing.
pub fn suppress(boxes: &[[f32; 4]], scores: &[f32], how: &Suppression) -> Vec<Kept> {
    let mut kept = Vec::new();
    for (class, scores) in scores.chunks_exact(boxes.len().max(1)).enumerate() {
        if how.background != Some(class) {
            kept.extend(of_class(boxes, scores, how).map(|index| Kept { class, index, score: scores[index] }));
        }
    }
    if let Some(most) = how.kept.filter(|&most| most < kept.len()) {
        kept.sort_by(|a, b| descending(a.score, b.score));
        kept.truncate(most);
        kept.sort_by_key(|kept| kept.class);
    }
    kept
}

fn of_class(boxes: &[[f32; 4]], scores: &[f32], how: &Suppression) -> impl Iterator<Item = usize> {
    let mut candidates: Vec<usize> = (0..scores.len()).filter(|&index| scores[index] > how.score).collect();
    candidates.sort_by(|&a, &b| descending(scores[a], scores[b]));
    candidates.truncate(how.candidates.unwrap_or(usize::MAX));
    let (mut kept, mut threshold) = (Vec::new(), how.overlap);
    for index in candidates {
        let fits = |&better: &usize| overlap(&boxes[index], &boxes[better], how.normalised) <= threshold;
        if kept.iter().all(fits) {
            kept.push(index);
            if how.eta < 1.0 && threshold > 0.5 {
                threshold *= how.eta;
            }
        }
    }
    kept.into_iter()
}

fn descending(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}

/// What two boxes share, as a part of what they cover together.
fn overlap(a: &[f32; 4], b: &[f32; 4], normalised: bool) -> f32 {
    if b[0] > a[2] || b[2] < a[0] || b[1] > a[3] || b[3] < a[1] {
        return 0.0;
    }
    let last = if normalised { 0.0 } else { 1.0 };
    let area = |of: &[f32; 4]| match of[2] < of[0] || of[3] < of[1] {
        true => 0.0,
        false => (of[2] - of[0] + last) * (of[3] - of[1] + last),
    };
    let width = a[2].min(b[2]) - a[0].max(b[0]) + last;
    let shared = width * (a[3].min(b[3]) - a[1].max(b[1]) + last);
    shared / (area(a) + area(b) - shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Suppression = Suppression {
        score: 0.1,
        overlap: 0.5,
        eta: 1.0,
        candidates: None,
        kept: None,
        background: None,
        normalised: true,
    };
    const BOXES: [[f32; 4]; 4] =
        [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.9], [2.0, 2.0, 3.0, 3.0], [0.0, 0.0, 0.5, 1.0]];

    fn indices(scores: &[f32], how: &Suppression) -> Vec<(usize, usize)> {
        suppress(&BOXES, scores, how).iter().map(|kept| (kept.class, kept.index)).collect()
    }

    #[test]
    fn what_a_better_box_covers_goes() {
        let scores = [0.5, 0.9, 0.2, 0.05];
        assert_eq!(indices(&scores, &ALL), [(0, 1), (0, 2)]);
        // Half of a box is not more than half of it.
        assert_eq!(indices(&[0.9, 0.2, 0.3, 0.5], &ALL), [(0, 0), (0, 3), (0, 2)]);
        assert_eq!(indices(&scores, &Suppression { candidates: Some(1), ..ALL }), [(0, 1)]);
        assert_eq!(indices(&scores, &Suppression { overlap: 0.95, ..ALL }), [(0, 1), (0, 0), (0, 2)]);
        assert_eq!(indices(&scores, &Suppression { overlap: 0.95, eta: 0.5, ..ALL }), [(0, 1), (0, 2)]);
    }

    #[test]
    fn the_best_of_all_classes_stay_in_the_order_of_classes() {
        let scores = [0.5, f32::NAN, 0.2, 0.05, 0.6, 0.3, 0.9, 0.05];
        assert_eq!(indices(&scores, &ALL), [(0, 0), (0, 2), (1, 2), (1, 0)]);
        assert_eq!(indices(&scores, &Suppression { kept: Some(3), ..ALL }), [(0, 0), (1, 2), (1, 0)]);
        assert_eq!(indices(&scores, &Suppression { background: Some(1), ..ALL }), [(0, 0), (0, 2)]);
    }

    #[test]
    fn no_boxes_are_no_boxes() {
        assert!(suppress(&[], &[], &ALL).is_empty());
    }
}
