//! What nothing uses goes: blocks, operations, functions.

use super::is_pure;
use crate::context::{BlockId, Context, OperationId, ValueId};
use std::collections::HashSet;

/// Takes blocks away that no branch leads to, such as what follows a `return`, and joins a block to the only one that leads to it.
pub fn drop_unreachable_blocks(context: &mut Context, module: OperationId) {
    for function in context.functions(module).to_vec() {
        let region = context.operation(function).regions[0];
        let entry = context.region(region).blocks[0];
        let mut reached = HashSet::from([entry]);
        let mut next = vec![entry];
        while let Some(block) = next.pop() {
            next.extend(successors(context, block).into_iter().filter(|&successor| reached.insert(successor)));
        }
        for block in context.region(region).blocks.clone() {
            if !reached.contains(&block) {
                context.remove_block(block);
            }
        }
        while join_one(context, region) {}
    }
}

fn successors(context: &Context, block: BlockId) -> Vec<BlockId> {
    let last = context.block(block).operations.last();
    last.map_or_else(Vec::new, |&last| context.operation(last).successors.clone())
}

/// Joins one block to the only one that goes on with it; whether there was such a pair.
fn join_one(context: &mut Context, region: crate::RegionId) -> bool {
    let blocks = context.region(region).blocks.clone();
    for &block in &blocks {
        let &[successor] = &successors(context, block)[..] else { continue };
        let leading = blocks.iter().flat_map(|&other| successors(context, other)).filter(|&other| other == successor);
        if leading.count() != 1 || successor == block {
            continue;
        }
        let Some(branch) = context.block_mut(block).operations.pop() else { continue };
        let arguments = context.block(successor).arguments.clone();
        for (argument, value) in arguments.into_iter().zip(context.operation(branch).operands.clone()) {
            context.replace_uses(argument, value);
        }
        for operation in std::mem::take(&mut context.block_mut(successor).operations) {
            context.append(operation, block);
        }
        context.remove_block(successor);
        return true;
    }
    false
}

/// Takes operations away that have no effect and whose results nothing uses.
pub fn drop_unused_operations(context: &mut Context, module: OperationId) {
    for function in context.functions(module).to_vec() {
        let mut used = HashSet::new();
        prune(context, function, &mut used);
    }
}

/// From the end to the beginning, so that what only unused operations use goes too.
fn prune(context: &mut Context, operation: OperationId, used: &mut HashSet<ValueId>) {
    for region in context.operation(operation).regions.clone() {
        for block in context.region(region).blocks.clone().into_iter().rev() {
            let mut kept = Vec::new();
            for id in std::mem::take(&mut context.block_mut(block).operations).into_iter().rev() {
                let inner = context.operation(id);
                if is_pure(context, id) && !inner.results.iter().any(|result| used.contains(result)) {
                    continue;
                }
                used.extend(&inner.operands);
                prune(context, id, used);
                kept.push(id);
            }
            kept.reverse();
            context.block_mut(block).operations = kept;
        }
    }
}

/// Takes private functions away that nothing calls.
pub fn drop_unused_functions(context: &mut Context, module: OperationId) {
    let mut called = HashSet::new();
    context.walk(module, &mut |id| {
        let operation = context.operation(id);
        if operation.name == "tt.call" {
            called.extend(operation.symbol("callee").map(str::to_owned));
        }
    });
    let body = context.region(context.operation(module).regions[0]).blocks[0];
    let mut functions = std::mem::take(&mut context.block_mut(body).operations);
    functions.retain(|&function| {
        let operation = context.operation(function);
        let is_public = operation.attribute("sym_visibility") == Some(&crate::Attribute::Word("public"));
        is_public || operation.symbol("sym_name").is_some_and(|name| called.contains(name))
    });
    context.block_mut(body).operations = functions;
}
