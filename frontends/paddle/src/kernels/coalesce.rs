//! Several tensors made views of one piece of memory, so that one call works on them all.

use super::compose::Compose;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, DataType, Output, Tensor};
use openmps_graph::operators::elementwise::{Elementwise, Unary, run};
use openmps_graph::view::dense_strides;
use openmps_tile::dtype::ALL;

/// Adds the kernel.
pub fn register(table: &mut Table) {
    table.add("coalesce_tensor", ALL, coalesce_tensor).output_as_inferred(0).output_as_inferred(1);
}

/// Where each tensor begins, in bytes, when nothing else is asked for.
const ALIGNMENT: usize = 256;

fn coalesce_tensor(
    context: &Context,
    inputs: Vec<Tensor>,
    data_type: DataType,
    copy: bool,
    set: bool,
    _persist: bool,
    constant: f32,
    align: bool,
    align_size: i32,
    _element_size: i32,
    shapes: Vec<i64>,
    ranks: Vec<i64>,
    outputs: Vec<Option<Output>>,
    fused: Output,
) -> Result<()> {
    let dtype = data_type.dtype()?;
    let shapes = dims_of(&inputs, &shapes, &ranks)?;
    let alignment =
        if !align { 1 } else { usize::try_from(align_size).ok().filter(|&size| size > 0).unwrap_or(ALIGNMENT) };
    let mut places = Vec::new();
    let mut bytes = 0usize;
    for shape in &shapes {
        places.push(bytes);
        bytes += (shape.iter().product::<usize>() * dtype.size()).next_multiple_of(alignment);
    }
    fused.set_dims(&[(bytes / dtype.size()).max(fused.shape().iter().product())]);
    // The inputs' memory goes when an output that is its input gets a part of the new one: it is read before.
    let sources = inputs.iter().map(Tensor::view).collect::<std::result::Result<Vec<_>, _>>();
    let whole = context.allocate(&fused, dtype)?;
    let c = Compose::new(context);
    c.fill(&whole, if set { constant.into() } else { 0.0 })?;
    if copy {
        for ((from, shape), place) in sources?.iter().zip(&shapes).zip(&places) {
            let to = openmps_graph::View::dense(whole.address + place, dtype, shape)?;
            if !from.is_empty() {
                let from = c.shaped(from, shape)?;
                run(Elementwise::Unary(Unary::Cast), context.queue(), &[&from], &[], &to)?;
            }
        }
    }
    for ((output, shape), &place) in outputs.iter().zip(&shapes).zip(&places) {
        let Some(output) = output else { continue };
        output.share(fused.tensor());
        let strides = dense_strides(shape);
        output.set_view(shape, &strides, place as i64);
    }
    Ok(())
}

/// The tensors' shapes: their own, or those given one after the other, for tensors that are not there yet.
fn dims_of(inputs: &[Tensor], shapes: &[i64], ranks: &[i64]) -> Result<Vec<Vec<usize>>> {
    if ranks.is_empty() {
        return Ok(inputs.iter().map(|input| input.shape().to_vec()).collect());
    }
    let wrong = || Error::Attribute {
        attribute: "concated_shapes",
        got: format!("{shapes:?} of ranks {ranks:?}"),
        expected: format!("the sizes of {} tensors, none negative", inputs.len()),
    };
    let mut rest = shapes;
    let mut take = |rank: &i64| {
        let (dims, after) = rest.split_at_checked(usize::try_from(*rank).ok()?)?;
        rest = after;
        dims.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<Vec<usize>>>()
    };
    let dims: Option<Vec<_>> = ranks.iter().map(&mut take).collect();
    dims.filter(|dims| dims.len() == inputs.len()).ok_or_else(wrong)
}
