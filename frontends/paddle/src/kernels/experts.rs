//! Which rows go to which expert: what `SwitchGate` needs. Paddle's own kernel for plug-in devices leaves its result unwritten.

use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_tile::DType;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("prune_gate_by_capacity", &[DType::I64], prune_gate_by_capacity);
}

/// Each row's expert, or -1 where the rows before it have taken all of the expert's places.
fn prune_gate_by_capacity(
    context: &Context,
    experts: Tensor,
    places: Tensor,
    _experts_of_rank: i64,
    _ranks: i64,
    out: Output,
) -> Result<()> {
    let mut left = context.integers(&places.view()?)?;
    let mut chosen = context.integers(&experts.view()?)?;
    for expert in chosen.iter_mut().filter(|expert| **expert != -1) {
        let count = left.len();
        let place = usize::try_from(*expert).ok().and_then(|expert| left.get_mut(expert));
        let place = place.ok_or_else(|| Error::Attribute {
            attribute: "gate_idx",
            got: expert.to_string(),
            expected: format!("-1, or one of {count} experts"),
        })?;
        *place -= 1;
        if *place < 0 {
            *expert = -1;
        }
    }
    let view = context.allocate(&out, DType::I64)?;
    let elements: Vec<u8> = chosen.into_iter().flat_map(i64::to_ne_bytes).collect();
    if !elements.is_empty() {
        context.queue().write(&view, &elements)?;
    }
    Ok(())
}
