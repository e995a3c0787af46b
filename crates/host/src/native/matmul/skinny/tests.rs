//! Every block of few rows, in matrices of which each size takes a way of its own.

use crate::native::matmul::tests::check_f32;

/// `x weight`: rows of a wide and of a narrow block, columns behind the last, small and large matrices.
#[test]
fn across_rows_of_every_length() {
    for rows in (1..=13).chain([16, 23, 64, 65]) {
        for (depth, columns) in [(7, 33), (300, 230), (270, 1000), (520, 530), (9, 30_000), (2100, 131)] {
            check_f32(rows, depth, columns, 0, 1.0, 0.0, 1);
        }
        check_f32(rows, 300, 230, 0, 0.5, 2.0, 1);
    }
}

/// `x weight^T`: sums that are one pass, and several.
#[test]
fn sums_along_rows_of_every_length() {
    const TURNED: usize = 3;
    for rows in (1..=13).chain([39, 40, 41]) {
        for (depth, columns) in [(48, 5), (385, 19), (1100, 33), (6200, 18)] {
            check_f32(rows, depth, columns, TURNED, 1.0, 0.0, 1);
        }
        check_f32(rows, 385, 19, TURNED, 0.5, 2.0, 1);
    }
}
