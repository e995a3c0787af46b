//! Noise contrastive estimation (Gutmann and Hyvärinen, 2010), as older programs have it: the true classes beside some that are drawn, walked on the host.

use super::graph_sampling::Numbers;
use super::values::{SINGLE, dims, expect_len, floats, integers, positive, required, store_floats, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("nce", SINGLE, nce).output(2, DType::I64);
    table.add("nce_grad", SINGLE, nce_grad);
}

/// How classes are drawn.
enum Law {
    Uniform,
    /// The less likely the larger the class: `log(1 + 1 / (1 + class))`, over the logarithm of how many there are.
    LogUniform,
    Given(Vec<f64>),
}

impl Law {
    fn new(context: &Context, sampler: i32, classes: usize, probabilities: Option<Tensor>) -> Result<Law> {
        match sampler {
            0 => Ok(Law::Uniform),
            1 => Ok(Law::LogUniform),
            2 => {
                let probabilities = required("CustomDistProbs", probabilities)?;
                expect_len("CustomDistProbs", &probabilities, classes)?;
                Ok(Law::Given(floats(context, &probabilities)?))
            }
            _ => Err(refuse("sampler", sampler, "0 (uniform), 1 (log-uniform) or 2 (given)")),
        }
    }

    /// How likely a class is, in float32 as Paddle has it.
    fn probability(&self, class: usize, classes: usize) -> f64 {
        match self {
            Law::Uniform => f64::from(1.0 / classes as f32),
            Law::LogUniform => f64::from((((class as f32 + 2.0) / (class as f32 + 1.0)).ln()) / (classes as f32).ln()),
            Law::Given(probabilities) => probabilities[class],
        }
    }

    fn draw(&self, numbers: &mut Numbers, classes: usize) -> usize {
        match self {
            Law::Uniform => numbers.below(classes),
            Law::LogUniform => {
                let value = (numbers.share() * (classes as f64).ln()).exp() as usize;
                value.saturating_sub(1).min(classes - 1)
            }
            Law::Given(probabilities) => {
                let mut rest = numbers.share() * probabilities.iter().sum::<f64>();
                let found = probabilities.iter().position(|&probability| {
                    rest -= probability;
                    rest < 0.0
                });
                found.unwrap_or(classes - 1)
            }
        }
    }
}

/// Rows of an input with their classes, and how likely noise is to have drawn these.
struct Rows {
    input: Vec<f64>,
    weight: Vec<f64>,
    width: usize,
    /// Classes of a row, the true ones first.
    of_row: usize,
    true_classes: usize,
    classes: Vec<usize>,
    law: Law,
    class_count: usize,
    negatives: i32,
}

impl Rows {
    /// The product of a row with the weight of one of its classes.
    fn score(&self, number: usize) -> f64 {
        let row = &self.input[number / self.of_row * self.width..][..self.width];
        let weight = &self.weight[self.classes[number] * self.width..][..self.width];
        row.iter().zip(weight).map(|(x, w)| x * w).sum()
    }

    fn noise(&self, number: usize) -> f64 {
        f64::from(self.law.probability(self.classes[number], self.class_count) as f32 * self.negatives as f32)
    }

    fn is_true(&self, number: usize) -> bool {
        number % self.of_row < self.true_classes
    }
}

fn checked(class: i64, classes: usize) -> Result<usize> {
    let fits = usize::try_from(class).ok().filter(|&class| class < classes);
    fits.ok_or_else(|| refuse("Label", class, &format!("classes 0 to {}", classes as i64 - 1)))
}

#[allow(clippy::too_many_arguments, reason = "Paddle's parameters")]
fn nce(
    context: &Context,
    input: Tensor,
    label: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    sample_weight: Option<Tensor>,
    probabilities: Option<Tensor>,
    _alias: Option<Tensor>,
    _alias_probabilities: Option<Tensor>,
    class_count: i32,
    given: Vec<i32>,
    negatives: i32,
    sampler: i32,
    seed: i32,
    _is_sparse: bool,
    _remote: bool,
    is_test: bool,
    cost: Output,
    logits: Option<Output>,
    samples: Option<Output>,
) -> Result<()> {
    let class_count = positive("num_total_classes", class_count)?;
    let ([count, width], [_, rows_of_weight]) = (dims("Input", &input)?, [0, class_count]);
    expect_len("Weight", &weight, rows_of_weight * width)?;
    let labels = integers(context, &label)?;
    let true_classes = labels.len().checked_div(count).unwrap_or(0);
    expect_len("Label", &label, true_classes * count)?;
    let law = Law::new(context, sampler, class_count, probabilities)?;
    let mut numbers = Numbers(if seed == 0 { context.random() } else { seed as u64 });
    let mut classes = Vec::new();
    for row in 0..count {
        for &class in &labels[row * true_classes..][..true_classes] {
            classes.push(checked(class, class_count)?);
        }
        if given.is_empty() {
            classes.extend((0..negatives).map(|_| law.draw(&mut numbers, class_count)));
        } else {
            for &class in &given {
                classes.push(checked(class.into(), class_count)?);
            }
        }
    }
    let of_row = classes.len().checked_div(count).unwrap_or(0);
    let dtype = input.dtype()?;
    let (input, weight) = (floats(context, &input)?, floats(context, &weight)?);
    let rows = Rows { input, weight, width, of_row, true_classes, classes, law, class_count, negatives };
    let bias = bias.map(|bias| floats(context, &bias)).transpose()?;
    let factors = sample_weight.map(|factors| floats(context, &factors)).transpose()?;
    let mut open = Vec::with_capacity(rows.classes.len());
    let mut costs = vec![0.0; count];
    for number in 0..rows.classes.len() {
        let bias = bias.as_ref().map_or(0.0, |bias| bias[rows.classes[number]]);
        let o = 1.0 / (1.0 + (-(rows.score(number) + bias)).exp());
        let b = rows.noise(number);
        let factor = factors.as_ref().map_or(1.0, |factors| factors[number / rows.of_row]);
        costs[number / rows.of_row] -= factor * (if rows.is_true(number) { o / (o + b) } else { b / (o + b) }).ln();
        open.push(o);
    }
    let shape = [count, rows.of_row];
    if let (Some(logits), false) = (logits, is_test) {
        store_floats(context, &logits, dtype, &shape, &open)?;
    }
    if let (Some(samples), false) = (samples, is_test) {
        let classes: Vec<i64> = rows.classes.iter().map(|&class| class as i64).collect();
        store_integers(context, &samples, DType::I64, &shape, &classes)?;
    }
    store_floats(context, &cost, dtype, &cost.shape(), &costs)
}

#[allow(clippy::too_many_arguments, reason = "Paddle's parameters")]
fn nce_grad(
    context: &Context,
    input: Tensor,
    label: Tensor,
    bias: Option<Tensor>,
    weight: Tensor,
    logits: Tensor,
    samples: Tensor,
    sample_weight: Option<Tensor>,
    probabilities: Option<Tensor>,
    _alias: Option<Tensor>,
    _alias_probabilities: Option<Tensor>,
    upstream: Tensor,
    class_count: i32,
    _given: Vec<i32>,
    negatives: i32,
    sampler: i32,
    _seed: i32,
    _is_sparse: bool,
    _remote: bool,
    _is_test: bool,
    of_input: Option<Output>,
    of_bias: Option<Output>,
    of_weight: Option<Output>,
) -> Result<()> {
    let class_count = positive("num_total_classes", class_count)?;
    let ([count, width], [_, of_row]) = (dims("Input", &input)?, dims("SampleLabels", &samples)?);
    expect_len("Weight", &weight, class_count * width)?;
    expect_len("SampleLogits", &logits, count * of_row)?;
    let true_classes = label.shape().iter().product::<usize>().checked_div(count).unwrap_or(0);
    let classes = integers(context, &samples)?;
    let classes = classes.into_iter().map(|class| checked(class, class_count)).collect::<Result<Vec<usize>>>()?;
    let law = Law::new(context, sampler, class_count, probabilities)?;
    let (dtype, bias_shape) = (input.dtype()?, bias.map(|bias| bias.shape()));
    let (input_shape, weight_shape) = (input.shape(), weight.shape());
    let (input, weight) = (floats(context, &input)?, floats(context, &weight)?);
    let rows = Rows { input, weight, width, of_row, true_classes, classes, law, class_count, negatives };
    let factors = sample_weight.map(|factors| floats(context, &factors)).transpose()?;
    let (open, upstream) = (floats(context, &logits)?, floats(context, &upstream)?);
    let mut dinput = vec![0.0; count * width];
    let mut dweight = vec![0.0; class_count * width];
    let mut dbias = vec![0.0; class_count];
    for (number, &o) in open.iter().enumerate() {
        let (row, class, b) = (number / of_row, rows.classes[number], rows.noise(number));
        let slope = if rows.is_true(number) { b / (o + b) * (o - 1.0) } else { o * (1.0 - o) / (o + b) };
        let gradient = slope * upstream[row] * factors.as_ref().map_or(1.0, |factors| factors[row]);
        dbias[class] += gradient;
        for at in 0..width {
            dinput[row * width + at] += gradient * rows.weight[class * width + at];
            dweight[class * width + at] += gradient * rows.input[row * width + at];
        }
    }
    if let (Some(out), Some(shape)) = (of_bias, bias_shape) {
        store_floats(context, &out, dtype, &shape, &dbias)?;
    }
    if let Some(out) = of_input {
        store_floats(context, &out, dtype, &input_shape, &dinput)?;
    }
    match of_weight {
        Some(out) => store_floats(context, &out, dtype, &weight_shape, &dweight),
        None => Ok(()),
    }
}
