//! Boxes from shapes and from other boxes: prior_box, box_coder, box_clip.

use super::values::{SINGLE, dims, expect, expect_len, floats, rounded, store_floats};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("prior_box", SINGLE, prior_box);
    table.add("box_coder", SINGLE, box_coder);
    table.add("box_clip", SINGLE, box_clip);
}

/// The numbers of an attribute as the kernel reckons with them.
fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&number| number.into()).collect()
}

/// 1, and each ratio that is not there yet, with its inverse where that is asked for.
fn ratios(given: &[f32], flip: bool) -> Vec<f64> {
    let mut ratios = vec![1.0_f64];
    for ratio in wide(given) {
        if ratios.iter().all(|known| (known - ratio).abs() >= 1e-6) {
            ratios.push(ratio);
            if flip {
                ratios.push(1.0 / ratio);
            }
        }
    }
    ratios
}

/// Half the width and half the height of every box at one place.
fn halves(least: &[f32], most: &[f32], ratios: &[f64], most_is_second: bool) -> Vec<[f64; 2]> {
    let mut halves = Vec::new();
    for (number, size) in wide(least).into_iter().enumerate() {
        let of_ratio = |ratio: &f64| [size * ratio.sqrt() / 2.0, size / ratio.sqrt() / 2.0];
        let square = most.get(number).map(|&most| [(size * f64::from(most)).sqrt() / 2.0; 2]);
        let (first, others) = if most_is_second { (&ratios[..1], &ratios[1..]) } else { (ratios, &[][..]) };
        halves.extend(first.iter().map(of_ratio));
        halves.extend(square);
        halves.extend(others.iter().map(of_ratio));
    }
    halves
}

fn prior_box(
    context: &Context,
    x: Tensor,
    image: Tensor,
    least: Vec<f32>,
    most: Vec<f32>,
    given: Vec<f32>,
    variances: Vec<f32>,
    flip: bool,
    clip: bool,
    step_width: f32,
    step_height: f32,
    offset: f32,
    most_is_second: bool,
    out: Output,
    variance: Output,
) -> Result<()> {
    let ([_, _, rows, columns], dtype) = (dims("input", &x)?, x.dtype()?);
    let [_, _, tall, wide_image]: [usize; 4] = dims("image", &image)?;
    if least.iter().chain(&most).chain(&given).any(|number| number.is_nan() || *number <= 0.0) || variances.len() != 4 {
        let got = (&least, &most, &given, &variances);
        return Err(refuse("min_sizes, max_sizes, aspect_ratios, variances", got, "above 0, and four variances"));
    }
    // Where one is missing, both follow from the image.
    let steps = if step_width == 0.0 || step_height == 0.0 {
        [wide_image as f64 / columns as f64, tall as f64 / rows as f64]
    } else {
        [f64::from(step_width), f64::from(step_height)]
    };
    let halves = halves(&least, &most, &ratios(&given, flip), most_is_second);
    let sizes = [wide_image as f64, tall as f64];
    let mut boxes = Vec::with_capacity(rows * columns * halves.len() * 4);
    for place in 0..rows * columns {
        let centre = [place % columns, place / columns];
        let centre: [f64; 2] = std::array::from_fn(|axis| (centre[axis] as f64 + f64::from(offset)) * steps[axis]);
        for half in &halves {
            for side in [-1.0, 1.0] {
                let corner = |axis: usize| (centre[axis] + side * half[axis]) / sizes[axis];
                let clipped = |number: f64| if clip { number.clamp(0.0, 1.0) } else { number };
                boxes.extend([clipped(corner(0)), clipped(corner(1))]);
            }
        }
    }
    let dims = [rows, columns, halves.len(), 4];
    let repeated = wide(&variances).repeat(boxes.len() / 4);
    store_floats(context, &variance, dtype, &dims, &repeated)?;
    store_floats(context, &out, dtype, &dims, &boxes)
}

/// Centre and size of a box; `added` where corners are elements.
fn centred(corners: &[f64], added: f64) -> [f64; 4] {
    let [width, height] = [corners[2] - corners[0] + added, corners[3] - corners[1] + added];
    [corners[0] + width / 2.0, corners[1] + height / 2.0, width, height]
}

fn encoded(target: &[f64], prior: &[f64; 4], added: f64) -> [f64; 4] {
    let [_, _, width, height] = centred(target, added);
    [
        ((target[0] + target[2]) / 2.0 - prior[0]) / prior[2],
        ((target[1] + target[3]) / 2.0 - prior[1]) / prior[3],
        (width / prior[2]).abs().ln(),
        (height / prior[3]).abs().ln(),
    ]
}

fn decoded(target: &[f64], prior: &[f64; 4], variance: &[f64], added: f64) -> [f64; 4] {
    let centre = |axis: usize| variance[axis] * target[axis] * prior[axis + 2] + prior[axis];
    let half = |axis: usize| (variance[axis + 2] * target[axis + 2]).exp() * prior[axis + 2] / 2.0;
    let [x, y] = [0, 1].map(|axis| (centre(axis), half(axis)));
    [x.0 - x.1, y.0 - y.1, x.0 + x.1 - added, y.0 + y.1 - added]
}

fn box_coder(
    context: &Context,
    prior: Tensor,
    prior_variance: Option<Tensor>,
    target: Tensor,
    code: String,
    normalized: bool,
    axis: i32,
    variance: Vec<f32>,
    out: Output,
) -> Result<()> {
    let ([priors, _], dtype, added) = (dims("prior_box", &prior)?, target.dtype()?, f64::from(u8::from(!normalized)));
    expect("prior_box", &prior, &[priors, 4])?;
    let variances = match (prior_variance, &variance[..]) {
        (Some(given), _) => {
            expect("prior_box_var", &given, &[priors, 4])?;
            floats(context, &given)?
        }
        (None, []) => vec![1.0; priors * 4],
        (None, numbers) if numbers.len() == 4 => wide(numbers).repeat(priors),
        (None, numbers) => return Err(refuse("variance", numbers, "four numbers, or none")),
    };
    let of_prior: Vec<[f64; 4]> = floats(context, &prior)?.chunks_exact(4).map(|b| centred(b, added)).collect();
    let (shape, targets) = (target.shape(), floats(context, &target)?);
    let variance_of = |number: usize| &variances[number * 4..][..4];
    let (dims, boxes): ([usize; 3], Vec<f64>) = match (code.as_str(), shape.as_slice(), axis) {
        ("encode_center_size", &[rows, 4], _) => {
            let each = |number: usize| {
                let (row, column) = (number / priors, number % priors);
                let code = encoded(&targets[row * 4..][..4], &of_prior[column], added);
                std::array::from_fn::<f64, 4, _>(|entry| code[entry] / variance_of(column)[entry])
            };
            ([rows, priors, 4], (0..rows * priors).flat_map(each).collect())
        }
        ("decode_center_size", &[rows, columns, 4], 0 | 1) if [columns, rows][axis as usize] == priors => {
            let each = |number: usize| {
                let prior = if axis == 0 { number % columns } else { number / columns };
                decoded(&targets[number * 4..][..4], &of_prior[prior], variance_of(prior), added)
            };
            ([rows, columns, 4], (0..rows * columns).flat_map(each).collect())
        }
        _ => {
            let expected =
                "encode_center_size of [N, 4], or decode_center_size of [N, M, 4] with a box for each along axis";
            return Err(refuse("code_type, target_box, axis", (code, shape, axis), expected));
        }
    };
    store_floats(context, &out, dtype, &dims, &boxes)
}

/// The boxes of one image, inside it; the image is told by height, width and scale.
fn box_clip(context: &Context, boxes: Tensor, image: Tensor, out: Output) -> Result<()> {
    expect_len("ImInfo", &image, 3)?;
    let (shape, dtype, image) = (boxes.shape(), boxes.dtype()?, floats(context, &image)?);
    if shape.last() != Some(&4) {
        return Err(refuse("Input", shape, "boxes of four numbers"));
    }
    let bounds = [1, 0].map(|side| rounded(image[side] / image[2], dtype).round() - 1.0);
    let clipped = |(at, &corner): (usize, &f64)| corner.min(bounds[at % 2]).max(0.0);
    let found: Vec<f64> = floats(context, &boxes)?.iter().enumerate().map(clipped).collect();
    store_floats(context, &out, dtype, &shape, &found)
}
