//! Calls of functions that are one block become the function's operations.

use super::copy;
use crate::context::{BlockId, Context, OperationId, ValueId};
use std::collections::HashMap;
use std::sync::Arc;

/// Calls inside of calls: deeper ones stay calls, so that functions that call each other end.
const DEEPEST: usize = 64;

/// Operations of a module: where there are more, further calls stay calls.
const LONGEST: usize = 1 << 20;

/// Inlines every call whose function is one block and may be inlined. Blocks that nothing reaches must be gone.
pub fn inline(context: &mut Context, module: OperationId) {
    let mut made = 0;
    for function in context.functions(module).to_vec() {
        inside(context, module, function, &mut made, 0);
    }
}

/// Inlines calls in everything that an operation has inside.
fn inside(context: &mut Context, module: OperationId, operation: OperationId, made: &mut usize, depth: usize) {
    for region in context.operation(operation).regions.clone() {
        for block in context.region(region).blocks.clone() {
            in_block(context, module, block, made, depth);
        }
    }
}

fn in_block(context: &mut Context, module: OperationId, block: BlockId, made: &mut usize, depth: usize) {
    let operations = std::mem::take(&mut context.block_mut(block).operations);
    for id in operations {
        let body = (context.operation(id).name == "tt.call").then(|| body(context, module, id)).flatten();
        match body.filter(|_| depth < DEEPEST && *made < LONGEST) {
            Some(body) => in_place_of(context, module, id, body, block, made, depth),
            None => {
                context.append(id, block);
                inside(context, module, id, made, depth);
            }
        }
    }
}

/// The only block of the function that a call calls.
fn body(context: &Context, module: OperationId, call: OperationId) -> Option<BlockId> {
    let function = context.function(module, context.operation(call).symbol("callee")?)?;
    let operation = context.operation(function);
    let stays = operation.attribute("noinline") == Some(&crate::Attribute::Truth(true));
    match context.region(operation.regions[0]).blocks[..] {
        [block] if !stays => Some(block),
        _ => None,
    }
}

fn in_place_of(
    context: &mut Context,
    module: OperationId,
    call: OperationId,
    body: BlockId,
    block: BlockId,
    made: &mut usize,
    depth: usize,
) {
    let caller = Arc::new(context.operation(call).location.clone());
    let (arguments, results) = (context.operation(call).operands.clone(), context.operation(call).results.clone());
    let parameters = context.block(body).arguments.clone();
    let mut values: HashMap<ValueId, ValueId> = parameters.into_iter().zip(arguments).collect();
    // In a block of its own first, where the calls inside are found.
    let inlined = context.new_block();
    for id in context.block(body).operations.clone() {
        if context.operation(id).name == "tt.return" {
            for (result, returned) in results.iter().zip(context.operation(id).operands.clone()) {
                let value = values.get(&returned).copied().unwrap_or(returned);
                context.replace_uses(*result, value);
            }
            break;
        }
        let copy = copy::operation(context, id, &mut values, &caller);
        context.append(copy, inlined);
        *made += 1;
    }
    in_block(context, module, inlined, made, depth + 1);
    for id in std::mem::take(&mut context.block_mut(inlined).operations) {
        context.append(id, block);
    }
}
