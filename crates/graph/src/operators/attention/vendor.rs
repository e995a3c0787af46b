//! Attention as a call of MPSGraph: what is hidden from a query is an additive mask there, also what lies behind it.

use super::Attention;
use crate::vendor::VendorGraph;
use crate::view::View;
use openmps_host::native::attention::Attention as Sizes;
use openmps_runtime::vendor::graph::{Operation, Reduction, Tensor, Unary};
use openmps_runtime::vendor::{Family, VendorCall};
use openmps_tile::DType;

impl Attention {
    /// Windows, soft caps and heads in groups are not to be had, nor queries before the first key: a diagonal below the main one is not.
    pub(super) fn vendor_call(&self, sizes: &Sizes, inputs: &[View], out: &View) -> Option<VendorCall> {
        let plain = self.window.is_none() && self.soft_cap.is_none();
        if !plain || sizes.heads != sizes.key_heads || self.causal && sizes.rows > sizes.keys {
            return None;
        }
        let (mut graph, mut nodes) = VendorGraph::new(&inputs.iter().collect::<Vec<_>>())?;
        let given = match inputs.get(3) {
            Some(mask) => Some(graph.reshaped(nodes[3], &four(&mask.shape))?),
            None => None,
        };
        nodes.truncate(3);
        let behind = if self.causal && sizes.rows > 1 { Some(causal(&mut graph, sizes, out.dtype)?) } else { None };
        let mask = match (given, behind) {
            (Some(given), Some(behind)) => Some(graph.sum(given, behind)?),
            (given, behind) => given.or(behind),
        };
        nodes.extend(mask);
        let scale = (sizes.scale as f32).to_bits();
        let mut y = graph.add(Operation::Attention { scale, mask: mask.is_some() }, &nodes)?;
        if let (Some(mask), Some(_)) = (mask, given) {
            y = without_hidden(&mut graph, mask, y, out)?;
        }
        let work = 2 * sizes.batch * sizes.heads * sizes.rows * sizes.keys * (sizes.depth + sizes.columns);
        graph.finish(Family::Attention, work, y, out)
    }
}

/// A shape with four axes.
fn four(shape: &[usize]) -> Vec<usize> {
    [&vec![1; 4 - shape.len()], shape].concat()
}

fn constant(graph: &mut VendorGraph, value: f64, shape: &[usize], dtype: DType) -> Option<Tensor> {
    graph.add(Operation::Constant { bits: value.to_bits(), shape: shape.to_vec(), dtype }, &[])
}

/// 0 where a query sees a key, minus infinity behind it: the logarithm of a band of ones.
fn causal(graph: &mut VendorGraph, sizes: &Sizes, dtype: DType) -> Option<Tensor> {
    let ones = constant(graph, 1.0, &[1, 1, sizes.rows, sizes.keys], dtype)?;
    let band = graph.add(Operation::Band { above: sizes.keys - sizes.rows }, &[ones])?;
    graph.add(Operation::Unary(Unary::Logarithm), &[band])
}

/// Zeros for queries from which the mask hides every key: the softmax of nothing is NaN.
fn without_hidden(graph: &mut VendorGraph, mask: Tensor, y: Tensor, out: &View) -> Option<Tensor> {
    let shape = out.shape.to_vec();
    let largest = graph.add(Operation::Reduce(Reduction::Maximum, vec![3]), &[mask])?;
    let largest = graph.add(Operation::Broadcast(shape.clone()), &[largest])?;
    let none = constant(graph, f64::NEG_INFINITY, &[1], out.dtype)?;
    let hidden = graph.add(Operation::Equal, &[largest, none])?;
    let zeros = constant(graph, 0.0, &shape, out.dtype)?;
    graph.add(Operation::Select, &[hidden, zeros, y])
}
