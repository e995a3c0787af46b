//! How much arithmetic a command may do, from nothing but the memory that it touches.

use crate::hazards::Access;

/// Bytes of an element: float32. Of two bytes there are more, and the estimate is low by less than three times; of one byte, eight times.
const ELEMENT: f64 = 4.0;

/// Multiplications with an addition. A product of `m x k` and `k x n` does `m k n`, which is the square root of the product of its three sizes;
/// attention does about that with its queries, keys and values, and a convolution no more than its window's side times that. What only walks
/// over its memory is overestimated: above some ten million elements such a command is handed over alone, which costs it little. A buffer counts
/// whole where a kernel is told no more than its address.
pub(super) fn multiplications(accesses: &[Access]) -> u64 {
    let mut sizes: Vec<f64> = accesses.iter().map(|access| access.range.len() as f64 / ELEMENT).collect();
    sizes.sort_by(|one, other| other.total_cmp(one));
    match sizes[..] {
        // As a cast, which ends at the largest number.
        [first, second, third, ..] => (first * second * third).sqrt() as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(elements: &[usize]) -> u64 {
        let access = |&count: &usize| Access { range: 4096..4096 + 4 * count, written: false };
        multiplications(&elements.iter().map(access).collect::<Vec<_>>())
    }

    #[test]
    fn a_product_is_counted_exactly_and_a_copy_not_at_all() {
        let (m, k, n) = (64, 4096, 256);
        assert_eq!(of(&[m * k, k * n, m * n]), (m * k * n) as u64);
        assert_eq!(of(&[n, m * k, k * n, m * n]), (m * k * n) as u64, "with a bias");
        assert_eq!(of(&[1 << 20, 1 << 20]), 0);
    }
}
