//! Passes over a module. Each walks it once and leaves what it does not know.

mod copy;
mod descriptors;
mod fold;
mod hoist;
mod inline;
mod product;
mod prune;
mod simplify;

pub use descriptors::rewrite_descriptors;
pub use hoist::hoist;
pub use inline::inline;
pub use product::sum_into_products;
pub use prune::{drop_unreachable_blocks, drop_unused_functions, drop_unused_operations};
pub use simplify::simplify;

use crate::context::{Context, OperationId};

/// Whether an operation does nothing but define its results: without effect, and without regions.
fn is_pure(context: &Context, operation: OperationId) -> bool {
    let operation = context.operation(operation);
    let name = operation.name;
    let has_effect = name.starts_with("tt.atomic")
        || name.starts_with("tt.descriptor")
        || name.starts_with("llvm.")
        || matches!(name, "tt.load" | "tt.store" | "tt.print" | "tt.assert" | "tt.call" | "ttg.barrier" | "tt.func")
        || name == "tt.elementwise_inline_asm"
        || name == "tt.extern_elementwise";
    !has_effect && operation.regions.is_empty() && !operation.is_terminator()
}
