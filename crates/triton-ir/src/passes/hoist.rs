//! What is the same in each iteration of a loop is computed before it.

use super::is_pure;
use crate::context::{BlockId, Context, OperationId, ValueId};
use std::collections::HashSet;

/// Moves operations without effect out of loops whose values they do not use.
pub fn hoist(context: &mut Context, module: OperationId) {
    for function in context.functions(module).to_vec() {
        let region = context.operation(function).regions[0];
        for block in context.region(region).blocks.clone() {
            in_block(context, block);
        }
    }
}

/// Hoists within the operations of a block, from the inside to the outside.
fn in_block(context: &mut Context, block: BlockId) {
    for id in std::mem::take(&mut context.block_mut(block).operations) {
        for region in context.operation(id).regions.clone() {
            for inner in context.region(region).blocks.clone() {
                in_block(context, inner);
            }
        }
        if context.operation(id).name == "scf.for" && !is_kept(context, id) {
            let body = context.region(context.operation(id).regions[0]).blocks[0];
            out_of(context, body, block);
        }
        context.append(id, block);
    }
}

/// Whether the author asked for nothing to be moved out of this loop.
fn is_kept(context: &Context, operation: OperationId) -> bool {
    context.operation(operation).attribute("llvm.loop_annotation").is_some()
}

/// Moves what depends on nothing inside from a loop's body to the end of the block before it.
fn out_of(context: &mut Context, body: BlockId, before: BlockId) {
    let mut inside: HashSet<ValueId> = context.block(body).arguments.iter().copied().collect();
    for id in std::mem::take(&mut context.block_mut(body).operations) {
        let operation = context.operation(id);
        let stays = !is_pure(context, id)
            || may_trap(operation.name)
            || operation.operands.iter().any(|operand| inside.contains(operand));
        if stays {
            inside.extend(&operation.results);
            context.append(id, body);
        } else {
            context.append(id, before);
        }
    }
}

/// A division by zero in a loop that never runs must not happen.
fn may_trap(name: &str) -> bool {
    matches!(name, "arith.divsi" | "arith.divui" | "arith.remsi" | "arith.remui")
}
