//! Writing by index as a call of MPSGraph. As for reading, negative indices are not handed over. Which of several writers MPSGraph keeps is not
//! determined, so a replacement is handed over only where no index comes twice; what it does with NaN in a minimum or maximum is not documented,
//! and it has no mean.

use super::Reduce;
use crate::layout::Dense;
use crate::operators::gather::indices;
use crate::operators::gather::vendor::{differ_along, from_start};
use crate::vendor::VendorGraph;
use crate::view::View;
use openmps_runtime::vendor::graph::{Operation, ScatterMode, Tensor};
use openmps_runtime::vendor::{Family, VendorCall};
use openmps_tile::DType;

/// Whether every index of an axis comes once at most. They have been checked.
fn distinct(index: &View, size: usize) -> bool {
    let dense = Dense::of(index);
    let (list, mut seen) = (indices(&dense, index), vec![false; size]);
    (0..list.len()).all(|position| !std::mem::replace(&mut seen[list.wrapped(position, size)], true))
}

fn zeros(graph: &mut VendorGraph, shape: &[usize], dtype: DType) -> Option<Tensor> {
    graph.add(Operation::Constant { bits: 0, shape: shape.to_vec(), dtype }, &[])
}

/// A graph with x, the index in one dimension, and values with one dimension for it.
fn along(axis: usize, inputs: &[View]) -> Option<(VendorGraph, [Tensor; 3])> {
    let (mut graph, nodes) = VendorGraph::new(&[&inputs[0], &inputs[1], &inputs[2]])?;
    let mut shape = inputs[0].shape.to_vec();
    shape[axis] = inputs[1].len();
    let index = graph.reshaped(nodes[1], &[inputs[1].len()])?;
    let values = graph.reshaped(nodes[2], &shape)?;
    Some((graph, [nodes[0], index, values]))
}

/// Rows replaced, or zeroed and added to.
pub(super) fn rows(overwrite: bool, inputs: &[View], out: &View) -> Option<VendorCall> {
    if !from_start(&inputs[1]) || overwrite && !distinct(&inputs[1], out.shape[0]) {
        return None;
    }
    let (mut graph, [x, index, values]) = along(0, inputs)?;
    let set = Operation::Scatter { axis: 0, mode: ScatterMode::Set };
    let y = if overwrite {
        graph.add(set, &[x, index, values])?
    } else {
        let shape = [&[inputs[1].len()], &out.shape[1..]].concat();
        let zeros = zeros(&mut graph, &shape, out.dtype)?;
        let cleared = graph.add(set, &[x, index, zeros])?;
        graph.add(Operation::Scatter { axis: 0, mode: ScatterMode::Add }, &[cleared, index, values])?
    };
    graph.finish(Family::Scatter, out.len(), y, out)
}

/// Slices added along an axis.
pub(super) fn slices(axis: usize, inputs: &[View], out: &View) -> Option<VendorCall> {
    if !from_start(&inputs[1]) {
        return None;
    }
    let (mut graph, nodes) = along(axis, inputs)?;
    let y = graph.add(Operation::Scatter { axis, mode: ScatterMode::Add }, &nodes)?;
    graph.finish(Family::Scatter, out.len(), y, out)
}

/// Slices added at tuples of indices.
pub(super) fn tuples(inputs: &[View], out: &View) -> Option<VendorCall> {
    if !from_start(&inputs[1]) {
        return None;
    }
    let (mut graph, nodes) = VendorGraph::new(&[&inputs[0], &inputs[1], &inputs[2]])?;
    let y = graph.add(Operation::ScatterTuples { mode: ScatterMode::Add }, &nodes)?;
    graph.finish(Family::Scatter, out.len(), y, out)
}

/// One value for each index along an axis.
pub(super) fn elements(reduce: Reduce, axis: usize, inputs: &[View], out: &View) -> Option<VendorCall> {
    let mode = match reduce {
        Reduce::Add => ScatterMode::Add,
        Reduce::Multiply => ScatterMode::Multiply,
        Reduce::Assign | Reduce::Minimum | Reduce::Maximum | Reduce::Mean => return None,
    };
    if !from_start(&inputs[1]) || !differ_along(&inputs[0], &inputs[1], axis) {
        return None;
    }
    let (mut graph, nodes) = VendorGraph::new(&[&inputs[0], &inputs[1], &inputs[2]])?;
    let y = graph.add(Operation::ScatterAlong { axis, mode }, &nodes)?;
    graph.finish(Family::Scatter, out.len(), y, out)
}

/// Rows added to a table of zeros, and the padding's row cleared.
pub(super) fn table(padding: Option<i64>, inputs: &[View], out: &View) -> Option<VendorCall> {
    if out.is_empty() || !from_start(&inputs[0]) {
        return None;
    }
    let (mut graph, nodes) = VendorGraph::new(&[&inputs[0], &inputs[1]])?;
    let (count, width) = (inputs[0].len(), out.shape[1]);
    let index = graph.reshaped(nodes[0], &[count])?;
    let values = graph.reshaped(nodes[1], &[count, width])?;
    let table = zeros(&mut graph, &out.shape, out.dtype)?;
    let mut y = graph.add(Operation::Scatter { axis: 0, mode: ScatterMode::Add }, &[table, index, values])?;
    if let Some(padding) = padding {
        let constant = Operation::Constant { bits: (padding as f64).to_bits(), shape: vec![1], dtype: DType::I32 };
        let row = graph.add(constant, &[])?;
        let nothing = zeros(&mut graph, &[1, width], out.dtype)?;
        y = graph.add(Operation::Scatter { axis: 0, mode: ScatterMode::Set }, &[y, row, nothing])?;
    }
    graph.finish(Family::Scatter, out.len(), y, out)
}
