//! A product and a sum become one operation, which matrix units have.

use super::fold::bare_product;
use crate::context::{Context, OperationId, ValueId};
use std::collections::HashMap;

/// `a . b + c` of a product that nothing else uses begins with `c` instead of zero.
pub fn sum_into_products(context: &mut Context, module: OperationId) {
    let (mut uses, mut sums) = (HashMap::<ValueId, usize>::new(), Vec::new());
    context.walk(module, &mut |id| {
        for &operand in &context.operation(id).operands {
            *uses.entry(operand).or_default() += 1;
        }
        sums.extend(bare_product(context, id).map(|(product, sum)| (id, product, sum)));
    });
    for (id, product, sum) in sums {
        let product = context.operation(product);
        if uses.get(&product.results[0]) != Some(&1) {
            continue;
        }
        let (operands, attributes) = (vec![product.operands[0], product.operands[1], sum], product.attributes.clone());
        let operation = context.operation_mut(id);
        (operation.name, operation.operands, operation.attributes) = ("tt.dot", operands, attributes);
    }
}
