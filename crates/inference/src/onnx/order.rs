//! The order of a graph's nodes: each after those that make what it reads, whatever the order of the file. ONNX wants that order; ONNX Runtime makes it.

use super::format::{GraphProto, NodeProto};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};

/// How far a node is on its way into the order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Unseen,
    /// Nodes that it reads from are being put before it.
    Open,
    Done,
}

/// The nodes in an order in which they can be read; the file's own where that is one.
pub(super) fn in_order(nodes: &[NodeProto]) -> Result<Vec<&NodeProto>> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        node.output.iter().for_each(|name| _ = makers.entry(name).or_insert(at));
    }
    let sources: Vec<Vec<usize>> = nodes.iter().map(|node| sources(node, &makers)).collect();
    if sources.iter().enumerate().all(|(at, sources)| sources.iter().all(|&source| source < at)) {
        return Ok(nodes.iter().collect());
    }
    let mut progress = vec![Progress::Unseen; nodes.len()];
    let mut ordered = Vec::with_capacity(nodes.len());
    for first in 0..nodes.len() {
        // A list instead of calls within calls: how long a chain is, the file says.
        let mut open = vec![first];
        while let Some(&at) = open.last() {
            if progress[at] == Progress::Done {
                open.pop();
                continue;
            }
            progress[at] = Progress::Open;
            let missing = sources[at].iter().copied().find(|&source| progress[source] != Progress::Done);
            match missing {
                None => {
                    progress[at] = Progress::Done;
                    ordered.push(&nodes[at]);
                }
                Some(source) if progress[source] == Progress::Open => return Err(circle(&nodes[at])),
                Some(source) => open.push(source),
            }
        }
    }
    Ok(ordered)
}

fn circle(node: &NodeProto) -> Error {
    Error::program(format!("a node {} whose result {:?} is made of itself", node.op_type, node.output))
}

/// The nodes that make what a node reads.
fn sources(node: &NodeProto, makers: &HashMap<&str, usize>) -> Vec<usize> {
    let mut names = Vec::new();
    collect(node, &mut names);
    names.into_iter().filter_map(|name| makers.get(name).copied()).collect()
}

/// The names that a node reads, those that graphs inside it read of what is around them among them.
fn collect<'a>(node: &'a NodeProto, names: &mut Vec<&'a str>) {
    names.extend(node.input.iter().filter(|name| !name.is_empty()).map(|name| &name[..]));
    for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
        let mut read = Vec::new();
        graph.node.iter().for_each(|inner| collect(inner, &mut read));
        read.extend(graph.output.iter().map(|output| &output.name[..]));
        let own = made_in(graph);
        names.extend(read.into_iter().filter(|name| !own.contains(name)));
    }
}

fn made_in(graph: &GraphProto) -> HashSet<&str> {
    let given = graph.input.iter().map(|input| &input.name[..]);
    let held = graph.initializer.iter().map(|tensor| &tensor.name[..]);
    let made = graph.node.iter().flat_map(|node| node.output.iter().map(|name| &name[..]));
    given.chain(held).chain(made).collect()
}
