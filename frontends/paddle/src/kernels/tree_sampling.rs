//! Samples of a tree's layers, as tree-based deep models train with: on each layer the node on the way to an item, and some others.

use super::graph_sampling::Numbers;
use super::values::{dims, integers, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;

/// Adds this family.
pub fn register(table: &mut Table) {
    let row = table.add("tdm_sampler", &[DType::I32, DType::I64], tdm_sampler);
    (0..3).fold(row, |row, output| row.output_as_inferred(output));
}

/// The layers of a tree, one after the other, with the nodes of each.
struct Layers {
    nodes: Vec<i64>,
    /// Where each layer begins, and where the last one ends.
    places: Vec<usize>,
}

impl Layers {
    fn new(nodes: Vec<i64>, offsets: &[i32], negatives: &[i32]) -> Result<Layers> {
        let place = |&offset: &i32| usize::try_from(offset).ok().filter(|&place| place <= nodes.len());
        let places: Option<Vec<usize>> = offsets.iter().map(place).collect();
        let expected = format!("{} places in {} nodes, in order", negatives.len() + 1, nodes.len());
        let places = places.filter(|places| places.len() == negatives.len() + 1 && places.is_sorted());
        let places = places.ok_or_else(|| refuse("layer_offset", offsets, &expected))?;
        for (layer, &count) in negatives.iter().enumerate() {
            let most = (places[layer + 1] - places[layer]) as i32 - 1;
            if !(0..=most).contains(&count) {
                return Err(refuse("neg_samples_num_list", negatives, &format!("0 to {most} of layer {layer}")));
            }
        }
        Ok(Layers { nodes, places })
    }

    /// Some nodes of a layer, none of them this one, each at most once.
    fn others(&self, layer: usize, but: i64, count: usize, numbers: &mut Numbers) -> Vec<i64> {
        let own = &self.nodes[self.places[layer]..self.places[layer + 1]];
        let mut rest: Vec<i64> = own.iter().copied().filter(|&node| node != but).collect();
        let count = count.min(rest.len());
        for at in 0..count {
            let other = at + numbers.below(rest.len() - at);
            rest.swap(at, other);
        }
        rest.truncate(count);
        rest
    }
}

fn tdm_sampler(
    context: &Context,
    items: Tensor,
    ways: Tensor,
    layer: Tensor,
    output_positive: bool,
    negatives: Vec<i32>,
    offsets: Vec<i32>,
    seed: i32,
    dtype: i32,
    out: Output,
    labels: Output,
    mask: Output,
) -> Result<()> {
    let layers = Layers::new(integers(context, &layer)?, &offsets, &negatives)?;
    let [count, length] = dims("Travel", &ways)?;
    if length != negatives.len() {
        return Err(refuse("Travel", ways.shape(), &format!("a node for each of {} layers", negatives.len())));
    }
    // The types of Paddle's oldest programs, by their numbers.
    let dtype = match dtype {
        2 => DType::I32,
        3 => DType::I64,
        _ => return Err(refuse("dtype", dtype, "2 (int32) or 3 (int64)")),
    };
    let mut numbers = Numbers(if seed == 0 { context.random() } else { seed as u64 });
    let ways = integers(context, &ways)?;
    let mut found: [Vec<i64>; 3] = Default::default();
    let mut add = |node: i64, label: i64, counts: i64| {
        for (list, value) in found.iter_mut().zip([node, label, counts]) {
            list.push(value);
        }
    };
    for item in integers(context, &items)? {
        let item = usize::try_from(item).ok().filter(|&row| row < count);
        let item = item.ok_or_else(|| refuse("X", item, &format!("items 0 to {}", count as i64 - 1)))?;
        for (layer, &wanted) in negatives.iter().enumerate() {
            let (node, wanted) = (ways[item * length + layer], wanted as usize);
            // Ways that end above the last layer go on with node 0, which is none.
            if node == 0 {
                (0..wanted + usize::from(output_positive)).for_each(|_| add(0, 0, 0));
                continue;
            }
            if output_positive {
                add(node, 1, 1);
            }
            let others = layers.others(layer, node, wanted, &mut numbers);
            if others.len() < wanted {
                return Err(refuse("Layer", others, &format!("{wanted} nodes of layer {layer} beside {node}")));
            }
            others.into_iter().for_each(|node| add(node, 0, 1));
        }
    }
    for (out, values) in [out, labels, mask].iter().zip(&found) {
        store_integers(context, out, dtype, &out.shape(), values)?;
    }
    Ok(())
}
