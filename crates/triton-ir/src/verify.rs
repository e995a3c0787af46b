//! Whether a module is one: what the passes and the text rely on.

use crate::attribute::Attribute;
use crate::build::function_type;
use crate::context::{Context, OperationId, RegionId, ValueId};
use std::collections::HashSet;

/// The first thing that is wrong with a module.
pub fn verify(context: &Context, module: OperationId) -> Result<(), String> {
    for &function in context.functions(module) {
        let mut known = HashSet::new();
        region(context, module, function, context.operation(function).regions[0], &mut known)?;
    }
    Ok(())
}

/// A region: each block ends with its only terminator where there are several, and uses what is defined before or outside.
fn region(
    context: &Context,
    module: OperationId,
    function: OperationId,
    id: RegionId,
    known: &mut HashSet<ValueId>,
) -> Result<(), String> {
    let blocks = &context.region(id).blocks;
    // A block may use what another one defines; that it comes first is the front end's promise.
    let one = blocks.len() == 1;
    for &block in blocks {
        known.extend(&context.block(block).arguments);
        if !one {
            let operations = context.block(block).operations.iter();
            known.extend(operations.flat_map(|&operation| &context.operation(operation).results));
        }
    }
    for &block in blocks {
        let operations = &context.block(block).operations;
        for (index, &id) in operations.iter().enumerate() {
            let operation = context.operation(id);
            let name = operation.name;
            if let Some(operand) = operation.operands.iter().position(|operand| !known.contains(operand)) {
                return Err(format!("{name}: operand {operand} is not defined before"));
            }
            if operation.is_terminator() != (index + 1 == operations.len()) && (operation.is_terminator() || !one) {
                return Err(format!("{name}: a block ends with one operation that ends blocks"));
            }
            match name {
                "tt.return" => {
                    let (_, expected) = function_type(context, function);
                    let given = context.types_of(&operation.operands);
                    if given != expected {
                        return Err(format!("tt.return: {given:?}, expected {expected:?}"));
                    }
                }
                "tt.call" => {
                    let callee = operation.attribute("callee");
                    let callee = if let Some(Attribute::Symbol(callee)) = callee { callee } else { "" };
                    if context.function(module, callee).is_none() {
                        return Err(format!("tt.call: no function @{callee}"));
                    }
                }
                _ => {}
            }
            for &inner in &operation.regions {
                region(context, module, function, inner, &mut known.clone())?;
            }
            known.extend(&operation.results);
        }
    }
    Ok(())
}
