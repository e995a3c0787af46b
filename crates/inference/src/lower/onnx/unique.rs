//! Elements or slices without those that are there twice. How many there are depends on the values, so that the graph before is run, and the choice is made here.

use super::integers;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::operators::gather::Gather;
use std::cmp::Ordering;

pub(super) const TABLE: Table = &[("Unique", unique)];

/// Outputs: the elements or slices, where each stands first, which of them each one is, and how often each is there.
fn unique(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let given = lowering.input(operation, 0)?;
    let array = lowering.known(&given)?;
    check(operation, &array)?;
    let mut x = lowering.input(operation, 0)?;
    let axis = match operation.attributes.contains_key("axis") {
        true => lowering.axis(operation, &x, 0)?,
        false => {
            x = lowering.reshape(&x, &[array.data.len()])?;
            0
        }
    };
    let shape = lowering.shape(&x)?;
    if shape.is_empty() {
        return Err(wrong(operation, "an axis of a single number"));
    }
    let rows = rows(&array.data, &shape, axis);
    let compare = |a: usize, b: usize| {
        let pairs = rows[a].iter().zip(&rows[b]);
        pairs.map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut order: Vec<usize> = (0..rows.len()).collect();
    // It is stable: of equal ones the first stays the first.
    order.sort_by(|&a, &b| compare(a, b));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in order {
        match groups.last_mut() {
            Some(group) if compare(group[0], at).is_eq() => group.push(at),
            _ => groups.push(vec![at]),
        }
    }
    if !operation.flag("sorted", true)? {
        groups.sort_by_key(|group| group[0]);
    }
    let mut which = vec![0; rows.len()];
    for (number, group) in groups.iter().enumerate() {
        group.iter().for_each(|&at| which[at] = number as i64);
    }
    let first = integers(groups.iter().map(|group| group[0] as i64));
    let counts = integers(groups.iter().map(|group| group.len() as i64));
    let y = lowering.one(Gather { axis: axis as i64 }, &[x, first.clone()])?;
    Ok(vec![y, first, integers(which), counts])
}

/// Numbers are read as float64, which must tell them apart.
fn check(operation: &Operation, array: &Array) -> Result<()> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let is_wide = matches!(array.dtype, DataType::I64 | DataType::U64);
    match array.data.iter().find(|number| is_wide && number.abs() >= EXACT) {
        Some(number) => Err(wrong(operation, format!("the number {number}, beyond 2^53"))),
        None => Ok(()),
    }
}

/// The slices along an axis, each as its numbers; -0 as 0.
fn rows(data: &[f64], shape: &[usize], axis: usize) -> Vec<Vec<f64>> {
    let count = shape.get(axis).copied().unwrap_or(0);
    let inner: usize = shape.iter().skip(axis + 1).product();
    let mut rows = vec![Vec::new(); count];
    for (at, number) in data.iter().enumerate() {
        rows[at / inner.max(1) % count].push(number + 0.0);
    }
    rows
}
