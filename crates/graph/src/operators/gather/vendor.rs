//! Reading by index as a call of MPSGraph, which counts no index from the end and may not tell one outside from zero: the indices have
//! been checked, and one that is negative is not handed over. Only call these when the CPU has seen the indices.

use super::indices;
use crate::layout::Dense;
use crate::vendor::VendorGraph;
use crate::view::View;
use openmps_runtime::vendor::graph::Operation;
use openmps_runtime::vendor::{Family, VendorCall};

/// Whether no index is counted from the end.
pub fn from_start(index: &View) -> bool {
    let dense = Dense::of(index);
    let list = indices(&dense, index);
    (0..list.len()).all(|position| list.get(position) >= 0)
}

/// Whether shapes are the same but along an axis, as `gatherAlongAxis` wants them.
pub fn differ_along(x: &View, index: &View, axis: usize) -> bool {
    let others = |view: &View| [&view.shape[..axis], &view.shape[axis + 1..]].concat();
    x.rank() == index.rank() && others(x) == others(index)
}

fn read(operation: Operation, x: &View, index: &View, out: &View) -> Option<VendorCall> {
    if out.is_empty() || !from_start(index) {
        return None;
    }
    let (mut graph, nodes) = VendorGraph::new(&[x, index])?;
    let y = graph.add(operation, &nodes)?;
    graph.finish(Family::Gather, out.len(), y, out)
}

pub fn slices(x: &View, axis: usize, index: &View, out: &View) -> Option<VendorCall> {
    read(Operation::Gather { axis }, x, index, out)
}

pub fn elements(x: &View, axis: usize, index: &View, out: &View) -> Option<VendorCall> {
    differ_along(x, index, axis).then(|| read(Operation::GatherAlong { axis }, x, index, out)).flatten()
}

pub fn tuples(x: &View, index: &View, out: &View) -> Option<VendorCall> {
    read(Operation::GatherTuples, x, index, out)
}
