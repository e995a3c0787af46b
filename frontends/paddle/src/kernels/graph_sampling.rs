//! Neighbours of a graph's nodes, sampled on the host: how many there are is known only then. Edges are stored by columns.

use super::values::{expect_len, floats, integers, lengths, required, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;
use std::collections::HashMap;

const NODES: &[DType] = &[DType::I32, DType::I64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("graph_sample_neighbors", NODES, graph_sample_neighbors).output(1, DType::I32);
    table.add("weighted_sample_neighbors", NODES, weighted_sample_neighbors).output(1, DType::I32);
    table.add("graph_reindex", NODES, graph_reindex);
    table.add("graph_khop_sampler", NODES, graph_khop_sampler);
}

/// Random numbers of one call (SplitMix64).
pub(super) struct Numbers(pub u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Between 0 and 1, and never 0.
    pub fn share(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

/// A graph: the neighbours of a node stand in a row, from one place to the next node's.
struct Graph {
    neighbors: Vec<i64>,
    places: Vec<usize>,
    names: Option<Vec<i64>>,
    weights: Option<Vec<f64>>,
}

impl Graph {
    fn new(context: &Context, row: &Tensor, places: &Tensor, names: Option<Tensor>, named: bool) -> Result<Graph> {
        let neighbors = integers(context, row)?;
        let places = lengths(context, "colptr", places, neighbors.len())?;
        let names = if named {
            let names = required("eids", names)?;
            expect_len("eids", &names, neighbors.len())?;
            Some(integers(context, &names)?)
        } else {
            None
        };
        Ok(Graph { neighbors, places, names, weights: None })
    }

    /// The edges of a node.
    fn edges(&self, node: i64) -> Result<std::ops::Range<usize>> {
        let edges = usize::try_from(node).ok().and_then(|node| Some(self.places[node]..*self.places.get(node + 1)?));
        edges
            .filter(|edges| edges.start <= edges.end)
            .ok_or_else(|| refuse("x", node, &format!("nodes 0 to {}", self.places.len() as i64 - 2)))
    }

    /// Some edges, all of them if there are no more: without weights each as likely as any other, else by the largest of numbers
    /// between 0 and 1 to the power of 1 over the weight (Efraimidis and Spirakis, 2006).
    fn sampled(&self, edges: std::ops::Range<usize>, most: usize, numbers: &mut Numbers) -> Vec<usize> {
        let mut edges: Vec<usize> = edges.collect();
        if edges.len() <= most {
            return edges;
        }
        match &self.weights {
            None => {
                for at in 0..most {
                    let other = at + numbers.below(edges.len() - at);
                    edges.swap(at, other);
                }
            }
            Some(weights) => {
                let key = |edge: usize| (numbers.share().log2() / weights[edge], edge);
                let mut keys: Vec<(f64, usize)> = edges.into_iter().map(key).collect();
                keys.sort_by(|left, right| right.0.total_cmp(&left.0));
                edges = keys.into_iter().map(|(_, edge)| edge).collect();
            }
        }
        edges.truncate(most);
        edges
    }

    fn store(
        &self,
        context: &Context,
        nodes: &Tensor,
        most: i32,
        [out, count]: [&Output; 2],
        names_out: Option<Output>,
    ) -> Result<()> {
        let dtype = nodes.dtype()?;
        // Of a negative number all.
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut numbers = Numbers(context.random());
        let (mut edges, mut counts) = (Vec::new(), Vec::new());
        for node in integers(context, nodes)? {
            let found = self.sampled(self.edges(node)?, most, &mut numbers);
            counts.push(found.len() as i64);
            edges.extend(found);
        }
        let of = |list: &[i64]| edges.iter().map(|&edge| list[edge]).collect::<Vec<i64>>();
        if let (Some(names), Some(out)) = (&self.names, names_out) {
            store_integers(context, &out, dtype, &[edges.len()], &of(names))?;
        }
        store_integers(context, count, DType::I32, &[counts.len()], &counts)?;
        store_integers(context, out, dtype, &[edges.len()], &of(&self.neighbors))
    }
}

fn graph_sample_neighbors(
    context: &Context,
    row: Tensor,
    places: Tensor,
    nodes: Tensor,
    names: Option<Tensor>,
    _buffer: Option<Tensor>,
    most: i32,
    named: bool,
    _buffered: bool,
    out: Output,
    count: Output,
    names_out: Option<Output>,
) -> Result<()> {
    Graph::new(context, &row, &places, names, named)?.store(context, &nodes, most, [&out, &count], names_out)
}

fn weighted_sample_neighbors(
    context: &Context,
    row: Tensor,
    places: Tensor,
    weights: Tensor,
    nodes: Tensor,
    names: Option<Tensor>,
    most: i32,
    named: bool,
    out: Output,
    count: Output,
    names_out: Option<Output>,
) -> Result<()> {
    let mut graph = Graph::new(context, &row, &places, names, named)?;
    // As on the CPU, more weights than edges do not matter.
    if weights.shape().iter().product::<usize>() < graph.neighbors.len() {
        return Err(refuse("edge_weight", weights.shape(), &format!("at least {} elements", graph.neighbors.len())));
    }
    graph.weights = Some(floats(context, &weights)?);
    graph.store(context, &nodes, most, [&out, &count], names_out)
}

/// Nodes and their neighbours numbered anew: the nodes first, and then each neighbour when it is first met.
fn graph_reindex(
    context: &Context,
    nodes: Tensor,
    neighbors: Tensor,
    counts: Tensor,
    _values: Option<Tensor>,
    _index: Option<Tensor>,
    source: Output,
    target: Output,
    every: Output,
) -> Result<()> {
    let (dtype, mut every_node) = (nodes.dtype()?, integers(context, &nodes)?);
    let neighbors = integers(context, &neighbors)?;
    // Of a graph with several types of edges, the counts of all nodes for each type.
    let [got, each] = [counts.view()?.len(), every_node.len().max(1)];
    if !got.is_multiple_of(each) {
        return Err(refuse("length of count", got, &format!("{each} for each type of edges")));
    }
    let counts = lengths(context, "count", &counts, neighbors.len())?;
    if counts.iter().sum::<usize>() != neighbors.len() {
        return Err(refuse("count", counts, &format!("numbers that add up to {} neighbors", neighbors.len())));
    }
    let mut numbers: HashMap<i64, i64> = every_node.iter().copied().zip(0..).collect();
    let targets = every_node
        .iter()
        .cycle()
        .zip(&counts)
        .flat_map(|(node, &count)| vec![numbers[node]; count])
        .collect::<Vec<_>>();
    let mut sources = Vec::with_capacity(neighbors.len());
    for node in neighbors {
        let next = every_node.len() as i64;
        let number = *numbers.entry(node).or_insert(next);
        if number == next {
            every_node.push(node);
        }
        sources.push(number);
    }
    store_integers(context, &source, dtype, &[sources.len()], &sources)?;
    store_integers(context, &target, dtype, &[targets.len()], &targets)?;
    store_integers(context, &every, dtype, &[every_node.len()], &every_node)
}

/// Neighbours, their neighbours, and so on, a number of them for each round, and all nodes numbered anew: first those that neighbours were asked of, in
/// the order of the rounds, then each other one when it is first met. A node is asked once.
fn graph_khop_sampler(
    context: &Context,
    row: Tensor,
    places: Tensor,
    nodes: Tensor,
    names: Option<Tensor>,
    most: Vec<i32>,
    named: bool,
    source: Output,
    target: Output,
    every: Output,
    own: Output,
    names_out: Option<Output>,
) -> Result<()> {
    let graph = Graph::new(context, &row, &places, names, named)?;
    let (dtype, first) = (nodes.dtype()?, integers(context, &nodes)?);
    let mut draws = Numbers(context.random());
    let (mut every_node, mut numbers): (Vec<i64>, HashMap<i64, i64>) = (Vec::new(), HashMap::new());
    let mut meet = |nodes: &mut Vec<i64>, node: i64| {
        let next = nodes.len() as i64;
        *numbers.entry(node).or_insert_with(|| {
            nodes.push(node);
            next
        })
    };
    let (mut edges, mut targets, mut asked): (Vec<usize>, Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new(), first.clone());
    for most in most {
        let begin = edges.len();
        let mut round: Vec<i64> = Vec::new();
        for node in std::mem::take(&mut asked) {
            let number = meet(&mut every_node, node);
            // A node that comes again is no new one.
            if round.contains(&node) {
                continue;
            }
            round.push(node);
            let found = graph.sampled(graph.edges(node)?, usize::try_from(most).unwrap_or(usize::MAX), &mut draws);
            targets.extend(found.iter().map(|_| number));
            edges.extend(found);
        }
        if edges.is_empty() {
            return Err(refuse("x", &first, "nodes with at least one neighbor"));
        }
        asked = edges[begin..].iter().map(|&edge| graph.neighbors[edge]).collect();
        asked.sort_unstable();
        asked.dedup();
        asked.retain(|node| !every_node.contains(node));
    }
    let sources: Vec<i64> = edges.iter().map(|&edge| meet(&mut every_node, graph.neighbors[edge])).collect();
    let reindexed: Vec<i64> = first.iter().map(|&node| meet(&mut every_node, node)).collect();
    if let (Some(names), Some(out)) = (&graph.names, names_out) {
        let found: Vec<i64> = edges.iter().map(|&edge| names[edge]).collect();
        store_integers(context, &out, dtype, &[found.len()], &found)?;
    }
    store_integers(context, &source, dtype, &[sources.len(), 1], &sources)?;
    store_integers(context, &target, dtype, &[targets.len(), 1], &targets)?;
    store_integers(context, &every, dtype, &[every_node.len()], &every_node)?;
    store_integers(context, &own, dtype, &[reindexed.len()], &reindexed)
}
