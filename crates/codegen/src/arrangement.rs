//! How the simdgroups of a threadgroup share the blocks of a product, and how many there are.

use crate::target::SIMD_WIDTH;
use openmps_tile::{Block, Instruction, Kernel, Operation, Scalar, Type, Value};
use std::collections::HashSet;

/// Simdgroups of a threadgroup at most, unless somebody asks for more.
const MOST_SIMDGROUPS: usize = 8;

/// Rows that a simdgroup has where it has whole rows: those of NVIDIA's matrix unit, two blocks of Apple's.
const ROWS: usize = 16;

/// Sums of a product that suit a thread otherwise, times the bytes of a factor's element: 4 x 4 blocks of Apple's in a simdgroup for float32,
/// 8 x 4 for half types, whose blocks take half the registers.
const SUMS: usize = 128;

/// Elements of a tile that suit a thread where there is no product.
const ELEMENTS: usize = 8;

/// Which blocks a simdgroup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// About as many along the rows as along the columns, so that little of both factors is read.
    Square,
    /// Whole rows: what is reduced along them stays in a simdgroup, and a product is the left factor of the next one as it lies.
    Rows,
}

impl Arrangement {
    /// Rows where a kernel has products and reduces tiles along their rows, as attention does, or multiplies by what it computes from a product,
    /// as attention's gradients do.
    pub fn of(kernel: &Kernel) -> Arrangement {
        let along_rows = |instruction: &Instruction| match instruction.operation {
            Operation::Reduce { axis: 1, .. } | Operation::ReduceBlock { axis: 1 } => {
                kernel.dims_of(instruction.operands[0]).len() == 2
            }
            _ => false,
        };
        let has_products = Product::largest(kernel).is_some();
        match has_products && (any(&kernel.body, &mut { along_rows }) || chains_products(&kernel.body)) {
            true => Arrangement::Rows,
            false => Arrangement::Square,
        }
    }
}

/// Whether some product's left factor is computed element by element from another product of the same block.
fn chains_products(block: &Block) -> bool {
    let mut from_product: HashSet<Value> = HashSet::new();
    block.instructions.iter().any(|instruction| {
        let from = |values: &[Value]| values.iter().any(|value| from_product.contains(value));
        let is_product = instruction.operation == Operation::Dot;
        let is_chained = is_product && from(&instruction.operands[..1]);
        if is_product || instruction.operation.is_elementwise() && from(&instruction.operands) {
            from_product.extend(&instruction.results);
        }
        is_chained || instruction.blocks.iter().any(chains_products)
    })
}

/// Whether a kernel multiplies matrices.
pub fn has_products(kernel: &Kernel) -> bool {
    Product::largest(kernel).is_some()
}

/// How many threads suit a kernel.
pub fn threads_for(kernel: &Kernel) -> usize {
    let largest = kernel.types.iter().map(Type::len).max().unwrap_or(1);
    let threads = match (Product::largest(kernel), Arrangement::of(kernel)) {
        (Some(product), Arrangement::Rows) => product.rows / ROWS * SIMD_WIDTH,
        (Some(product), Arrangement::Square) => largest * product.element_size / SUMS,
        (None, _) => largest / ELEMENTS,
    };
    threads.next_power_of_two().clamp(SIMD_WIDTH, MOST_SIMDGROUPS * SIMD_WIDTH)
}

/// What counts of a product.
#[derive(Clone, Copy)]
struct Product {
    rows: usize,
    columns: usize,
    /// Bytes of a factor's element.
    element_size: usize,
}

impl Product {
    /// The one with the most elements.
    fn largest(kernel: &Kernel) -> Option<Product> {
        let mut largest: Option<Product> = None;
        any(&kernel.body, &mut |instruction: &Instruction| {
            if instruction.operation == Operation::Dot
                && let [rows, columns] = kernel.dims_of(instruction.results[0])[..]
                && largest.is_none_or(|known| known.rows * known.columns < rows * columns)
            {
                let element_size = kernel.type_of(instruction.operands[0]).number().map_or(4, Scalar::size);
                largest = Some(Product { rows, columns, element_size });
            }
            false
        });
        largest
    }
}

fn any(block: &Block, is: &mut dyn FnMut(&Instruction) -> bool) -> bool {
    block
        .instructions
        .iter()
        .any(|instruction| is(instruction) || instruction.blocks.iter().any(|block| any(block, is)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_for_products_that_follow_one_another() {
        for (ttir, arrangement) in [
            (include_str!("../../tile/tests/ttir/half_attention.ttir"), Arrangement::Rows),
            (include_str!("../../tile/tests/ttir/half_attention_gradient.ttir"), Arrangement::Rows),
            (include_str!("../../tile/tests/ttir/half_matmul.ttir"), Arrangement::Square),
        ] {
            let kernel = openmps_tile::parse(ttir).expect("a kernel");
            assert_eq!(Arrangement::of(&kernel), arrangement, "{}", kernel.name);
        }
    }
}
