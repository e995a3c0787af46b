//! What older programs count and look up element by element, on the host: areas under curves, trees of items, tables of bytes.

use super::values::{SINGLE, dims, expect_len, floats, integers, positive, store_floats, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, DataType, Output, Tensor};
use openmps_tile::DType;

const WHOLE: &[DType] = &[DType::I32, DType::I64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("auc", &[DType::F32], auc).output(0, DType::F64).output(1, DType::I64).output(2, DType::I64);
    table
        .add("tdm_child", &[DType::I32, DType::I64, DType::F32, DType::F64], tdm_child)
        .output_as_inferred(0)
        .output_as_inferred(1);
    table.add("lookup_table_dequant", &[DType::F32], lookup_table_dequant);
    table.add("shape_broadcast", WHOLE, shape_broadcast);
    table.add("check_numerics", SINGLE, check_numerics).output(0, DType::I64).output(1, DType::F32);
}

/// Counts of scores by bins: of what is true and of what is not, of some last steps, their sum, and the step's number.
struct Counts {
    bins: usize,
    steps: usize,
    of: [Vec<i64>; 2],
}

impl Counts {
    /// Where the counts of this step begin, and those that the area is of.
    fn places(&self) -> [usize; 2] {
        if self.steps == 0 {
            return [0, 0];
        }
        let step = self.of[0][(self.steps + 1) * self.bins].rem_euclid(self.steps as i64) as usize;
        [step * self.bins, self.steps * self.bins]
    }

    /// Forgets the oldest step and counts this one, which is one of the sum if it is real.
    fn add(&mut self, found: &[(usize, usize)], is_real: bool) {
        let [own, sum] = self.places();
        for (kind, counts) in self.of.iter_mut().enumerate() {
            if self.steps > 0 {
                for bin in 0..self.bins {
                    counts[sum + bin] -= std::mem::take(&mut counts[own + bin]);
                }
            }
            for &(_, bin) in found.iter().filter(|(of, _)| *of == kind) {
                counts[own + bin] += 1;
                if self.steps > 0 && is_real {
                    counts[sum + bin] += 1;
                }
            }
        }
    }

    /// The area under the curve of true over false ones.
    fn area(&self) -> f64 {
        let ([_, first], mut area, mut totals) = (self.places(), 0.0, [0.0, 0.0]);
        for bin in (0..self.bins).rev() {
            let more = [0, 1].map(|kind| self.of[kind][first + bin] as f64);
            area += more[1] * (2.0 * totals[0] + more[0]) / 2.0;
            totals = [totals[0] + more[0], totals[1] + more[1]];
        }
        if totals.iter().all(|&total| total > 0.0) { area / totals[0] / totals[1] } else { area }
    }
}

fn auc(
    context: &Context,
    scores: Tensor,
    label: Tensor,
    positive_counts: Tensor,
    negative_counts: Tensor,
    weight: Option<Tensor>,
    _curve: String,
    thresholds: i32,
    steps: i32,
    area: Output,
    positive_out: Output,
    negative_out: Output,
) -> Result<()> {
    let [count, width] = dims("Predict", &scores)?;
    expect_len("Label", &label, count)?;
    let (bins, steps) = (positive("num_thresholds", thresholds)? + 1, usize::try_from(steps).unwrap_or(0));
    let len = (1 + steps) * bins + usize::from(steps > 0);
    expect_len("StatPos", &positive_counts, len)?;
    expect_len("StatNeg", &negative_counts, len)?;
    let of = [integers(context, &positive_counts)?, integers(context, &negative_counts)?];
    let mut counts = Counts { bins, steps, of };
    let (scores, labels) = (floats(context, &scores)?, integers(context, &label)?);
    let mut found = Vec::with_capacity(count);
    for (row, &label) in labels.iter().enumerate() {
        let score = scores[row * width + width - 1];
        if !(0.0..=1.0).contains(&score) {
            return Err(refuse("Predict", score, "probabilities, from 0 to 1"));
        }
        let bin = (score as f32 * thresholds as f32) as usize;
        if label >= 0 {
            found.push((usize::from(label == 0), bin));
        }
    }
    // A weight of 0 marks rows that only fill a batch.
    let is_real = match weight {
        Some(weight) => floats(context, &weight)?.first().is_none_or(|&weight| weight != 0.0),
        None => true,
    };
    if is_real || steps > 0 {
        counts.add(&found, is_real);
    }
    let value = counts.area();
    if steps > 0 {
        counts.of.iter_mut().for_each(|counts| counts[len - 1] += 1);
    }
    store_integers(context, &positive_out, DType::I64, &positive_out.shape(), &counts.of[0])?;
    store_integers(context, &negative_out, DType::I64, &negative_out.shape(), &counts.of[1])?;
    store_floats(context, &area, DType::F64, &area.shape(), &[value])
}

/// The children of a tree's nodes, and which of them are items. A row of the tree is an item, a layer, a parent, and the children.
fn tdm_child(
    context: &Context,
    nodes: Tensor,
    tree: Tensor,
    children: i32,
    data_type: DataType,
    child: Output,
    leaves: Output,
) -> Result<()> {
    let ([rows, length], children) = (dims("TreeInfo", &tree)?, positive("child_nums", children)?);
    if length < 3 + children {
        return Err(refuse("TreeInfo", tree.shape(), &format!("rows of {} numbers", 3 + children)));
    }
    let (tree, dtype) = (integers(context, &tree)?, data_type.or(DType::I32)?);
    let row = |node: i64| {
        let row = usize::try_from(node).ok().filter(|&row| row < rows);
        row.map(|row| &tree[row * length..][..length])
            .ok_or_else(|| refuse("X", node, &format!("nodes 0 to {}", rows as i64 - 1)))
    };
    let (mut found, mut items) = (Vec::new(), Vec::new());
    for node in integers(context, &nodes)? {
        let own = row(node)?;
        let has_children = node != 0 && own[3] != 0;
        for &child in &own[3..3 + children] {
            let child = if has_children { child } else { 0 };
            found.push(child);
            items.push(i64::from(has_children && row(child)?[0] != 0));
        }
    }
    let mut shape = nodes.shape().to_vec();
    shape.push(children);
    store_integers(context, &child, dtype, &shape, &found)?;
    store_integers(context, &leaves, dtype, &shape, &items)
}

/// Rows of bytes between a least and a greatest number, which stand before them.
fn lookup_table_dequant(context: &Context, table: Tensor, index: Tensor, padded: i64, out: Output) -> Result<()> {
    let [rows, words] = dims("W", &table)?;
    if words < 3 {
        return Err(refuse("W", table.shape(), "rows of at least three numbers"));
    }
    let bytes = context.bytes(&table.view()?)?;
    let number = |at: usize| f32::from_ne_bytes(std::array::from_fn(|byte| bytes[at * 4 + byte]));
    let width = (words - 2) * 4;
    let mut found = Vec::new();
    for index in integers(context, &index)? {
        if padded != -1 && index == padded {
            found.extend(std::iter::repeat_n(0.0, width));
            continue;
        }
        let row = usize::try_from(index).ok().filter(|&row| row < rows);
        let row = row.ok_or_else(|| refuse("Ids", index, &format!("rows 0 to {}", rows as i64 - 1)))?;
        let (least, most) = (number(row * words), number(row * words + 1));
        let step = (most - least) / 256.0;
        let levels = &bytes[(row * words + 2) * 4..][..width];
        found.extend(levels.iter().map(|&level| f64::from(step * f32::from(level) + least)));
    }
    store_floats(context, &out, DType::F32, &out.shape(), &found)
}

/// The sizes that two shapes have together.
fn shape_broadcast(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let (dtype, x, y) = (x.dtype()?, integers(context, &x)?, integers(context, &y)?);
    let rank = x.len().max(y.len());
    let size = |sizes: &[i64], axis: usize| axis.checked_sub(rank - sizes.len()).map_or(1, |axis| sizes[axis]);
    let both = |axis: usize| match (size(&x, axis), size(&y, axis)) {
        (left, right) if left == right || right == 1 => Ok(left),
        (1, right) => Ok(right),
        _ => Err(refuse("shapes", (&x, &y), &format!("sizes that fit at position {axis}"))),
    };
    let sizes = (0..rank).map(both).collect::<Result<Vec<i64>>>()?;
    store_integers(context, &out, dtype, &[rank], &sizes)
}

/// How many numbers are NaN, infinite and zero; and the largest, the smallest and the mean.
fn check_numerics(
    context: &Context,
    x: Tensor,
    operator: String,
    name: String,
    level: i32,
    _stack: i32,
    _folder: String,
    counts: Output,
    values: Output,
) -> Result<()> {
    let numbers = floats(context, &x)?;
    let count = |is: fn(&f64) -> bool| numbers.iter().filter(|number| is(number)).count() as i64;
    let found = [count(|x| x.is_nan()), count(|x| x.is_infinite()), count(|&x| x == 0.0)];
    store_integers(context, &counts, DType::I64, &[3], &found)?;
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    store_floats(context, &values, DType::F32, &[3], &[most, least, mean])?;
    if level == 0 && found[0] + found[1] > 0 {
        let got = format!("{} NaN and {} infinite numbers", found[0], found[1]);
        return Err(refuse("tensor", (operator, name, got), "finite numbers"));
    }
    Ok(())
}
