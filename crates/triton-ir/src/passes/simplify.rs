//! What is known is not computed, and what is computed once is not computed again.

use super::fold::{self, Folded};
use super::is_pure;
use crate::attribute::Attribute;
use crate::context::{BlockId, Context, OperationId, ValueId};
use crate::types::Type;
use std::collections::HashMap;

/// What makes two operations the same.
type Key = (&'static str, Vec<ValueId>, Vec<(String, Attribute)>, Vec<Type>);

/// Results of operations that are known at a place, scope by scope.
#[derive(Default)]
struct Known {
    scopes: Vec<HashMap<Key, Vec<ValueId>>>,
    /// What stands for a value that is no longer computed.
    replaced: HashMap<ValueId, ValueId>,
}

/// Computes operations on constants, takes away what changes nothing, and keeps one of operations that are the same.
pub fn simplify(context: &mut Context, module: OperationId) {
    for function in context.functions(module).to_vec() {
        let mut known = Known::default();
        inside(context, function, &mut known);
    }
}

fn inside(context: &mut Context, operation: OperationId, known: &mut Known) {
    for region in context.operation(operation).regions.clone() {
        let blocks = context.region(region).blocks.clone();
        // What the first block of a function knows, all of its blocks do; of the others none comes surely before another one.
        known.scopes.push(HashMap::new());
        for (index, block) in blocks.into_iter().enumerate() {
            if index > 0 {
                known.scopes.push(HashMap::new());
            }
            in_block(context, block, known);
            if index > 0 {
                known.scopes.pop();
            }
        }
        known.scopes.pop();
    }
}

fn in_block(context: &mut Context, block: BlockId, known: &mut Known) {
    for id in std::mem::take(&mut context.block_mut(block).operations) {
        let operands = context.operation(id).operands.iter().map(|operand| known.current(*operand)).collect();
        context.operation_mut(id).operands = operands;
        match fold::fold(context, id) {
            Some(Folded::Value(value)) => {
                known.replace(context, id, &[value]);
                continue;
            }
            Some(Folded::Constant(number)) => become_constant(context, id, number),
            Some(Folded::Operands(operands)) => context.operation_mut(id).operands = operands,
            None => {}
        }
        if is_pure(context, id) {
            let operation = context.operation(id);
            let types = context.types_of(&operation.results);
            let key = (operation.name, operation.operands.clone(), operation.attributes.clone(), types);
            if let Some(results) = known.scopes.iter().rev().find_map(|scope| scope.get(&key)).cloned() {
                known.replace(context, id, &results);
                continue;
            }
            if let Some(scope) = known.scopes.last_mut() {
                scope.insert(key, operation.results.clone());
            }
        }
        context.append(id, block);
        inside(context, id, known);
    }
}

fn become_constant(context: &mut Context, id: OperationId, number: crate::attribute::Number) {
    let operation = context.operation_mut(id);
    operation.name = "arith.constant";
    operation.operands.clear();
    operation.attributes = vec![("value".to_owned(), Attribute::Number(number))];
}

impl Known {
    fn current(&self, value: ValueId) -> ValueId {
        self.replaced.get(&value).copied().unwrap_or(value)
    }

    fn replace(&mut self, context: &Context, id: OperationId, by: &[ValueId]) {
        let results = &context.operation(id).results;
        self.replaced.extend(results.iter().copied().zip(by.iter().copied()));
    }
}
