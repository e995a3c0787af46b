//! Copies of operations with everything inside, as calls that are inlined need them.

use crate::context::{BlockId, Context, OperationId, ValueId};
use crate::location::Location;
use std::collections::HashMap;
use std::sync::Arc;

/// A copy that stands nowhere yet. `values` says what stands for a value of the original, and learns the copy's own.
pub fn operation(
    context: &mut Context,
    id: OperationId,
    values: &mut HashMap<ValueId, ValueId>,
    caller: &Arc<Location>,
) -> OperationId {
    let original = context.operation(id).clone();
    let mapped = |value: &ValueId| values.get(value).copied().unwrap_or(*value);
    let operands: Vec<ValueId> = original.operands.iter().map(mapped).collect();
    let types = context.types_of(&original.results);
    let location = inlined(&original.location, caller);
    let attributes = original.attributes;
    let copy = context.create(original.name, &operands, &types, attributes, original.regions.len(), location);
    for (&from, to) in original.results.iter().zip(context.operation(copy).results.clone()) {
        let location = inlined(&context.value(from).location, caller);
        context.value_mut(to).location = location;
        values.insert(from, to);
    }
    for (from, to) in original.regions.into_iter().zip(context.operation(copy).regions.clone()) {
        for block in context.region(from).blocks.clone() {
            let types = context.types_of(&context.block(block).arguments.clone());
            let target = context.append_block(to, &types);
            self::block(context, block, target, values, caller);
        }
    }
    copy
}

/// Copies a block's arguments' names and its operations into a block that has the arguments.
fn block(
    context: &mut Context,
    from: BlockId,
    to: BlockId,
    values: &mut HashMap<ValueId, ValueId>,
    caller: &Arc<Location>,
) {
    let arguments = context.block(from).arguments.clone().into_iter().zip(context.block(to).arguments.clone());
    for (old, new) in arguments.collect::<Vec<_>>() {
        let location = inlined(&context.value(old).location, caller);
        context.value_mut(new).location = location;
        values.insert(old, new);
    }
    for id in context.block(from).operations.clone() {
        let copy = operation(context, id, values, caller);
        context.append(copy, to);
    }
}

/// A place in a function as seen from its call.
fn inlined(callee: &Location, caller: &Arc<Location>) -> Location {
    Location::Inlined { callee: Arc::new(callee.clone()), caller: caller.clone() }
}
