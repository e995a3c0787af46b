//! Reading and writing by index, in MPSGraph's place. An index outside is an error here: operators check theirs before they offer a call.

use super::shape::{count, strides};
use super::{Tensor, combine};
use crate::error::{Error, Result};
use crate::graph::{Binary, ScatterMode};

/// Where index `number` of a gather or scatter points to.
fn place(index: f64, length: usize) -> Result<usize> {
    let place = index as usize;
    let inside = index >= 0.0 && place < length;
    let outside =
        || Error::Shape { operation: "gather or scatter", why: format!("the index {index} is not below {length}") };
    inside.then_some(place).ok_or_else(outside)
}

pub fn gather(x: &Tensor, indices: &Tensor, axis: usize) -> Result<Vec<f64>> {
    let (length, inner) = (x.of.shape[axis], count(&x.of.shape[axis + 1..]));
    let mut data = Vec::new();
    for outer in x.data.chunks(length * inner) {
        for &index in &indices.data {
            let at = place(index, length)? * inner;
            data.extend_from_slice(&outer[at..at + inner]);
        }
    }
    Ok(data)
}

pub fn scatter(inputs: &[&Tensor], axis: usize, mode: ScatterMode) -> Result<Vec<f64>> {
    let [x, indices, updates] = [inputs[0], inputs[1], inputs[2]];
    let (length, inner) = (x.of.shape[axis], count(&x.of.shape[axis + 1..]));
    let mut data = x.data.clone();
    let of_outer = data.chunks_mut(length * inner).zip(updates.data.chunks(indices.data.len() * inner));
    for (to, from) in of_outer {
        for (&index, from) in indices.data.iter().zip(from.chunks(inner)) {
            let at = place(index, length)? * inner;
            for (old, &new) in to[at..at + inner].iter_mut().zip(from) {
                *old = mixed(mode, *old, new);
            }
        }
    }
    Ok(data)
}

fn mixed(mode: ScatterMode, old: f64, new: f64) -> f64 {
    match mode {
        ScatterMode::Set => new,
        ScatterMode::Add => old + new,
        ScatterMode::Multiply => old * new,
        ScatterMode::Maximum => combine(Binary::Maximum, old, new),
        ScatterMode::Minimum => combine(Binary::Minimum, old, new),
    }
}

/// The elements of `x` that indices along an axis name, in the indices' order.
fn along(x: &Tensor, indices: &Tensor, axis: usize) -> Result<Vec<usize>> {
    let (length, inner) = (x.of.shape[axis], count(&x.of.shape[axis + 1..]));
    let block = indices.of.shape[axis] * inner;
    let named =
        |(at, &index): (usize, &f64)| place(index, length).map(|row| (at / block * length + row) * inner + at % inner);
    indices.data.iter().enumerate().map(named).collect()
}

/// The first elements of the slices that tuples of indices name, and the length of a slice.
fn tuples(x: &Tensor, indices: &Tensor) -> Result<(Vec<usize>, usize)> {
    let width = indices.of.shape.last().copied().unwrap_or(1);
    let (lengths, steps) = (&x.of.shape[..width], strides(&x.of.shape));
    let first = |tuple: &[f64]| {
        tuple.iter().enumerate().try_fold(0, |at, (d, &index)| Ok(at + place(index, lengths[d])? * steps[d]))
    };
    let firsts: Result<Vec<usize>> = indices.data.chunks(width).map(first).collect();
    Ok((firsts?, count(&x.of.shape[width..])))
}

pub fn gather_along(x: &Tensor, indices: &Tensor, axis: usize) -> Result<Vec<f64>> {
    Ok(along(x, indices, axis)?.into_iter().map(|at| x.data[at]).collect())
}

pub fn gather_tuples(x: &Tensor, indices: &Tensor) -> Result<Vec<f64>> {
    let (firsts, length) = tuples(x, indices)?;
    Ok(firsts.into_iter().flat_map(|first| x.data[first..first + length].iter().copied()).collect())
}

pub fn scatter_along(inputs: &[&Tensor], axis: usize, mode: ScatterMode) -> Result<Vec<f64>> {
    let mut data = inputs[0].data.clone();
    for (at, &new) in along(inputs[0], inputs[1], axis)?.into_iter().zip(&inputs[2].data) {
        data[at] = mixed(mode, data[at], new);
    }
    Ok(data)
}

pub fn scatter_tuples(inputs: &[&Tensor], mode: ScatterMode) -> Result<Vec<f64>> {
    let mut data = inputs[0].data.clone();
    let (firsts, length) = tuples(inputs[0], inputs[1])?;
    for (first, slice) in firsts.into_iter().zip(inputs[2].data.chunks(length)) {
        for (old, &new) in data[first..first + length].iter_mut().zip(slice) {
            *old = mixed(mode, *old, new);
        }
    }
    Ok(data)
}
