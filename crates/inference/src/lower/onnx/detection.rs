//! Boxes. What is chosen depends on the boxes, so that the graph before is run, and the choice is made here.

use super::integers;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, wrong};
use crate::program::Operation;

pub(super) const TABLE: Table = &[("NonMaxSuppression", suppress)];

/// A box by its corners: [least, most] vertically and horizontally.
#[derive(Clone, Copy)]
struct Corners([[f32; 2]; 2]);

impl Corners {
    /// Of four numbers: two opposite corners, vertical coordinates first, or the centre and the sizes, horizontal ones first.
    fn of(numbers: &[f64], is_centre: bool) -> Corners {
        let n = |at: usize| numbers[at] as f32;
        if is_centre {
            let side = |centre: f32, size: f32| [centre - size / 2.0, centre + size / 2.0];
            return Corners([side(n(1), n(3)), side(n(0), n(2))]);
        }
        let side = |a: f32, b: f32| [a.min(b), a.max(b)];
        Corners([side(n(0), n(2)), side(n(1), n(3))])
    }

    fn area(&self) -> f32 {
        self.0.iter().map(|[least, most]| most - least).product()
    }

    /// The area that both cover over that which either covers.
    fn overlap(&self, other: &Corners) -> f32 {
        let both: f32 = (0..2)
            .map(|axis| {
                let ([a, b], [c, d]) = (self.0[axis], other.0[axis]);
                (b.min(d) - a.max(c)).max(0.0)
            })
            .product();
        let either = self.area() + other.area() - both;
        if either > 0.0 { both / either } else { 0.0 }
    }
}

/// Boxes [batch, boxes, 4] and scores [batch, classes, boxes]; of each class at most so many, which overlap with no better one by more than a
/// threshold, and score more than another. Output: rows of batch, class and box.
fn suppress(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (boxes, scores) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let ([batches, count, 4], [_, classes, _]) = (&lowering.shape(&boxes)?[..], &lowering.shape(&scores)?[..]) else {
        return Err(wrong(operation, "boxes of [batch, boxes, 4] and scores of [batch, classes, boxes]"));
    };
    let (batches, count, classes) = (*batches, *count, *classes);
    if lowering.shape(&scores)? != [batches, classes, count] {
        return Err(wrong(
            operation,
            format!("scores of {:?} for {batches} x {count} boxes", lowering.shape(&scores)?),
        ));
    }
    let most = lowering.number_at(operation, 2)?.unwrap_or(0.0).max(0.0) as usize;
    let threshold = lowering.number_at(operation, 3)?.unwrap_or(0.0) as f32;
    let least = lowering.number_at(operation, 4)?;
    let is_centre = operation.flag("center_point_box", false)?;
    // The first of these runs the graph, so that both are asked for again.
    let boxes = lowering.known(&boxes)?.data;
    let scores = lowering.input(operation, 1)?;
    let scores = lowering.known(&scores)?.data;
    let mut rows = Vec::new();
    for batch in 0..batches {
        let corners: Vec<Corners> =
            (0..count).map(|at| Corners::of(&boxes[(batch * count + at) * 4..][..4], is_centre)).collect();
        for class in 0..classes {
            let own = &scores[(batch * classes + class) * count..][..count];
            let kept = chosen(&corners, own, most, threshold, least);
            rows.extend(kept.into_iter().flat_map(|at| [batch, class, at].map(|number| number as i64)));
        }
    }
    let found = rows.len() / 3;
    let rows = integers(rows);
    Ok(vec![lowering.reshape(&rows, &[found, 3])?])
}

/// The boxes of one class that stay, the best first; of equal scores the first one.
fn chosen(corners: &[Corners], scores: &[f64], most: usize, threshold: f32, least: Option<f64>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).filter(|&at| least.is_none_or(|least| scores[at] > least)).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut kept: Vec<usize> = Vec::new();
    for at in order {
        if kept.len() >= most {
            break;
        }
        if kept.iter().all(|&better| corners[better].overlap(&corners[at]) <= threshold) {
            kept.push(at);
        }
    }
    kept
}
