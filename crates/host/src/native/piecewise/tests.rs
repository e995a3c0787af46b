//! Products in pieces against one sum of all terms.

use super::*;

/// `x * y` added to ones, in `count` pieces.
fn multiplied(product: &mut Piecewise, [x, y]: [&[f32]; 2], count: usize, stays: bool) -> Vec<f32> {
    let Size { rows, columns, depth, .. } = product.size();
    let mut out = vec![1.0; rows * columns];
    let sum = Out { first: out.as_mut_ptr(), stride: columns, accumulate: true };
    for piece in 0..count {
        let left = Piece { first: (&raw const x[piece * depth]).cast(), strides: [(depth * count) as isize, 1], stays };
        let right =
            Piece { first: (&raw const y[piece * depth * columns]).cast(), strides: [columns as isize, 1], stays };
        // SAFETY: pieces lie in the factors, the sum is of this size.
        unsafe { product.add(left, right, sum) };
    }
    // SAFETY: as above.
    unsafe { product.finish(sum) };
    out
}

fn expected([x, y]: [&[f32]; 2], columns: usize) -> Vec<f32> {
    let depth = y.len() / columns;
    let sum = |i: usize| (0..depth).map(|k| x[i / columns * depth + k] * y[k * columns + i % columns]).sum::<f32>();
    (0..x.len() / depth * columns).map(|i| 1.0 + sum(i)).collect()
}

#[test]
fn pieces_of_every_size_add_up_to_the_product() {
    for (rows, columns, depth, count) in [(1, 1, 1, 300), (7, 33, 3, 100), (64, 48, 32, 9), (13, 100, 64, 5)] {
        let mut product = Piecewise::new(Size::new((rows, columns, depth), Elements::Singles).unwrap(), 1);
        let x: Vec<f32> = (0..rows * depth * count).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
        let mut y: Vec<f32> = (0..depth * count * columns).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
        for stays in [false, true, true] {
            assert_eq!(
                multiplied(&mut product, [&x, &y], count, stays),
                expected([&x, &y], columns),
                "{rows} x {columns}"
            );
        }
        // What has been packed is what counts, until it is forgotten.
        let before = expected([&x, &y], columns);
        y[0] += 1.0;
        assert_eq!(multiplied(&mut product, [&x, &y], count, true), before);
        product.forget();
        assert_eq!(multiplied(&mut product, [&x, &y], count, true), expected([&x, &y], columns));
    }
}

#[test]
fn pairs_of_bfloat16_lie_in_any_order() {
    if crate::level::bfloats_at_once().is_none() {
        return;
    }
    for (rows, columns, depth, first) in
        [(16, 33, 32, 0), (7, 64, 2, 0), (13, 100, 64, 1), (1, 1, 4, 1), (1, 1, 32, 1), (50, 70, 96, 0)]
    {
        let Some(size) = Size::one_by_one((rows, columns, depth), Elements::BfloatPairs) else { continue };
        // An odd first element is no number of 32 bits.
        let numbers = |count: usize| -> Vec<f32> { (0..count + first).map(|i| (i * 7 % 11) as f32 - 5.0).collect() };
        let (x, y) = (numbers(rows * depth), numbers(depth * columns));
        let stored = |x: &[f32]| x.iter().map(|&x| half::bf16::from_f32(x)).collect::<Vec<_>>();
        let (halves_x, halves_y) = (stored(&x), stored(&y));
        for [x_strides, y_strides] in [[[depth, 1], [columns, 1]], [[1, rows], [1, depth]]] {
            let mut out = vec![1.0_f32; rows * columns];
            let sum = Out { first: out.as_mut_ptr(), stride: columns, accumulate: true };
            let piece = |from: &[half::bf16], strides: [usize; 2]| Piece {
                first: from[first..].as_ptr().cast(),
                strides: strides.map(|stride| stride as isize),
                stays: false,
            };
            let at = |of: &[f32], strides: [usize; 2], i: usize, j: usize| of[first + i * strides[0] + j * strides[1]];
            // SAFETY: the strides stay within the factors, the sum is of this size.
            unsafe { Piecewise::new(size, 1).add(piece(&halves_x, x_strides), piece(&halves_y, y_strides), sum) };
            for (i, &found) in out.iter().enumerate() {
                let (row, column) = (i / columns, i % columns);
                let term = |k: usize| at(&x, x_strides, row, k) * at(&y, y_strides, k, column);
                assert_eq!(found, 1.0 + (0..depth).map(term).sum::<f32>(), "{rows} x {columns}, {depth} terms");
            }
        }
    }
}

#[test]
fn a_factor_that_is_read_once_is_multiplied_where_it_lies() {
    for (rows, columns, depth) in [(1, 1, 1), (7, 33, 3), (64, 64, 128), (13, 100, 64)] {
        let mut product = Piecewise::new(Size::one_by_one((rows, columns, depth), Elements::Singles).unwrap(), 1);
        let x: Vec<f32> = (0..rows * depth).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
        let y: Vec<f32> = (0..depth * columns).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
        for stays in [false, true] {
            assert_eq!(multiplied(&mut product, [&x, &y], 1, stays), expected([&x, &y], columns), "{rows} x {columns}");
            assert_eq!(product.left.chunks.is_empty(), !stays);
        }
    }
}

#[test]
fn more_chunks_than_are_kept() {
    let size = Size::new((128, 256, 128), Elements::Singles).unwrap();
    let mut product = Piecewise::new(size, 1);
    let x: Vec<f32> = (0..128 * 128 * 64).map(|i| (i * 7 % 5) as f32 - 2.0).collect();
    let y: Vec<f32> = (0..128 * 64 * 256).map(|i| (i * 3 % 7) as f32 - 3.0).collect();
    let once = multiplied(&mut product, [&x, &y], 64, true);
    assert_eq!(once, multiplied(&mut product, [&x, &y], 64, true));
    assert_eq!(once, multiplied(&mut product, [&x, &y], 64, false));
    assert_eq!(product.right.chunks.len(), product.right.most);
    assert!(product.right.most * product.right.numbers <= KEPT / 2);
}
