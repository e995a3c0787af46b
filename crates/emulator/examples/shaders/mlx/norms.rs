//! Normalization of rows: root mean square and layer norms with their gradients, and softmax.

use super::types::{FLOATS, Type};
use super::{Kernel, Variant, kernel};
use crate::case::{Case, Check, float, groups, input, ints, near, output};
use openmps_emulator::Value;

const ROWS: usize = 3;
/// No multiple of what a thread reads. No thread is wholly beyond the end, at 4 or 8 elements each: such threads of `layer_norm` and of its
/// gradient write in front of an array of their own.
const COLUMNS: usize = 254;
const EPSILON: f64 = 1e-5;

/// Threads of a threadgroup, which has a row: 4 elements each, 8 each, or less than the row in one step.
const FOUR: usize = 64;
const EIGHT: usize = 32;
const LOOPED: usize = 32;
/// The kernel counts on all simdgroups that there can be.
const WHOLE: usize = 1024;

struct Given {
    x: Vec<f64>,
    w: Vec<f64>,
    b: Vec<f64>,
    g: Vec<f64>,
}

fn given(of: Type) -> Given {
    let [x, w, b, g] = [(ROWS * COLUMNS, 80), (COLUMNS, 81), (COLUMNS, 82), (ROWS * COLUMNS, 83)]
        .map(|(count, seed)| of.numbers(count, seed));
    Given { x, w, b, g }
}

/// Each output against its own numbers.
fn both(checks: [Check; 2]) -> Check {
    Box::new(move |outputs| {
        let one =
            |(at, check): (usize, &Check)| check(&outputs[at..=at]).map_err(|what| format!("output {at}: {what}"));
        checks.iter().enumerate().try_for_each(one)
    })
}

fn in_file(name: String, variants: Vec<Variant>) -> Kernel {
    Kernel { name, instance: None, variants }
}

fn variants(gradient: bool, case: impl Fn(bool) -> Case + Clone + Send + Sync + 'static) -> Vec<Variant> {
    let with = |has_w: bool| {
        let case = case.clone();
        Variant { constants: vec![(20, Value::Bool(has_w))], case: Box::new(move || case(has_w)) }
    };
    if gradient { vec![with(false), with(true)] } else { vec![with(true)] }
}

pub fn rms_norm() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS {
        for (looped, width) in [("", FOUR), ("_looped", LOOPED)] {
            list.push(in_file(format!("rms{looped}{}", of.name), variants(false, move |_| rms(of, width))));
            let rows_per_group = if looped.is_empty() { Some(2) } else { None };
            let case = move |has_w| rms_gradient(of, width, has_w, rows_per_group);
            list.push(in_file(format!("vjp_rms{looped}{}", of.name), variants(true, case)));
        }
    }
    list
}

fn scale(x: &[f64]) -> f64 {
    1.0 / (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + EPSILON).sqrt()
}

fn rms(of: Type, width: usize) -> Case {
    let Given { x, w, .. } = given(of);
    let row = |x: &[f64]| x.iter().zip(&w).map(|(value, w)| value * scale(x) * w).collect::<Vec<f64>>();
    let expected = x.chunks(COLUMNS).flat_map(row).collect();
    let mut args = vec![input(of.kind, &x), input(of.kind, &w), output(of.kind, x.len())];
    args.extend([float(EPSILON), ints(&[COLUMNS]), ints(&[1])]);
    groups([ROWS, 1, 1], [width, 1, 1], args, near(of.kind, expected, 8.0, 1.0))
}

fn rms_gradient(of: Type, width: usize, has_w: bool, rows_per_group: Option<usize>) -> Case {
    let Given { x, w, g, .. } = given(of);
    let (mut of_x, mut of_w) = (Vec::new(), Vec::new());
    for (x, g) in x.chunks(COLUMNS).zip(g.chunks(COLUMNS)) {
        let scale = scale(x);
        let mean = (0..COLUMNS).map(|at| x[at] * w[at] * g[at]).sum::<f64>() / COLUMNS as f64;
        of_x.extend((0..COLUMNS).map(|at| g[at] * w[at] * scale - x[at] * mean * scale.powi(3)));
        of_w.push((0..COLUMNS).map(|at| g[at] * x[at] * scale).collect::<Vec<f64>>());
    }
    // Rows that one threadgroup takes are added.
    let together = of_w.chunks(rows_per_group.unwrap_or(1));
    let groups_of_rows = together.len();
    let sum = |rows: &[Vec<f64>]| (0..COLUMNS).map(|at| rows.iter().map(|row| row[at]).sum()).collect::<Vec<f64>>();
    let mut weights: Vec<f64> = together.flat_map(sum).collect();
    if !has_w {
        weights.iter_mut().for_each(|x| *x = 0.0);
    }
    let mut args = vec![input(of.kind, &x), input(of.kind, &w), input(of.kind, &g), output(of.kind, x.len())];
    args.extend([output(of.kind, weights.len()), float(EPSILON), ints(&[COLUMNS]), ints(&[1])]);
    if let Some(rows) = rows_per_group {
        args.extend([ints(&[ROWS]), ints(&[rows])]);
    }
    let check = both([near(of.kind, of_x, 8.0, 1.0), near(of.kind, weights, 8.0, 1.0)]);
    groups([groups_of_rows, 1, 1], [width, 1, 1], args, check)
}

pub fn layer_norm() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS {
        for (looped, width) in [("", EIGHT), ("_looped", LOOPED)] {
            list.push(in_file(format!("layer_norm{looped}{}", of.name), variants(false, move |_| layer(of, width))));
            let case = move |has_w| layer_gradient(of, width, has_w);
            list.push(in_file(format!("vjp_layer_norm{looped}{}", of.name), variants(true, case)));
        }
    }
    list
}

/// Numbers with mean 0 and deviation 1, and what they were multiplied with.
fn normal(x: &[f64]) -> (Vec<f64>, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let centred: Vec<f64> = x.iter().map(|x| x - mean).collect();
    let scale = scale(&centred);
    (centred.into_iter().map(|x| x * scale).collect(), scale)
}

fn layer(of: Type, width: usize) -> Case {
    let Given { x, w, b, .. } = given(of);
    let row = |x: &[f64]| normal(x).0.iter().enumerate().map(|(at, x)| x * w[at] + b[at]).collect::<Vec<f64>>();
    let expected = x.chunks(COLUMNS).flat_map(row).collect();
    let mut args = vec![input(of.kind, &x), input(of.kind, &w), input(of.kind, &b), output(of.kind, x.len())];
    args.extend([float(EPSILON), ints(&[COLUMNS]), ints(&[1]), ints(&[1])]);
    groups([ROWS, 1, 1], [width, 1, 1], args, near(of.kind, expected, 8.0, 2.0))
}

fn layer_gradient(of: Type, width: usize, has_w: bool) -> Case {
    let Given { x, w, g, .. } = given(of);
    let (mut of_x, mut of_w) = (Vec::new(), Vec::new());
    for (x, g) in x.chunks(COLUMNS).zip(g.chunks(COLUMNS)) {
        let (x, scale) = normal(x);
        let weighted: Vec<f64> = g.iter().zip(&w).map(|(g, w)| g * w).collect();
        let mean = weighted.iter().sum::<f64>() / COLUMNS as f64;
        let along = weighted.iter().zip(&x).map(|(g, x)| g * x).sum::<f64>() / COLUMNS as f64;
        of_x.extend((0..COLUMNS).map(|at| scale * (weighted[at] - mean - x[at] * along)));
        of_w.extend((0..COLUMNS).map(|at| if has_w { g[at] * x[at] } else { 0.0 }));
    }
    let mut args = vec![input(of.kind, &x), input(of.kind, &w), input(of.kind, &g), output(of.kind, x.len())];
    args.extend([output(of.kind, x.len()), float(EPSILON), ints(&[COLUMNS]), ints(&[1])]);
    let check = both([near(of.kind, of_x, 8.0, 2.0), near(of.kind, of_w, 8.0, 2.0)]);
    groups([ROWS, 1, 1], [width, 1, 1], args, check)
}

pub fn softmax() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS {
        for (form, template, width) in [("block", "softmax_single_row", FOUR), ("looped", "softmax_looped", WHOLE)] {
            let name = format!("{form}_softmax_{}", of.name);
            list.push(kernel(name, format!("{template}<{}>", of.text), move || exponentials(of, width)));
            if of.name != "float32" {
                let name = format!("{form}_softmax_precise_{}", of.name);
                list.push(kernel(name, format!("{template}<{}, float>", of.text), move || exponentials(of, width)));
            }
        }
    }
    list
}

fn exponentials(of: Type, width: usize) -> Case {
    let columns = if width == WHOLE { 4099 } else { COLUMNS };
    let x = of.numbers(ROWS * columns, 84);
    let row = |x: &[f64]| {
        let sum: f64 = x.iter().map(|x| x.exp()).sum();
        x.iter().map(|x| x.exp() / sum).collect::<Vec<f64>>()
    };
    let expected = x.chunks(columns).flat_map(row).collect();
    let args = vec![input(of.kind, &x), output(of.kind, x.len()), ints(&[columns])];
    groups([ROWS, 1, 1], [width, 1, 1], args, near(of.kind, expected, 16.0, 0.02))
}
