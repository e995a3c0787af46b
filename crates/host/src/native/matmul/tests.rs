//! Every type, stride and size against sums in float64.

use super::*;
use crate::Level;
use crate::native::Activation;
use crate::native::stored::{Stored, widened};
use openmps_tile::Scalar;

fn value(i: usize) -> f64 {
    ((i * 7919 + 13) % 23) as f64 / 4.0 - 2.5
}

pub(super) fn check_f32(rows: usize, depth: usize, columns: usize, layout: usize, alpha: f64, beta: f64, batch: usize) {
    let strides = |rows: usize, columns: usize, kind: usize| match kind {
        0 => [columns as isize, 1],
        1 => [1, rows as isize],
        _ => [3 * columns as isize + 5, 3],
    };
    let product = MatrixProduct {
        left: strides(rows, depth, layout % 3),
        right: strides(depth, columns, layout / 3 % 3),
        out: strides(rows, columns, layout / 9 % 3),
        alpha,
        beta,
        ..MatrixProduct::dense(rows, depth, columns)
    };
    let len = |rows: usize, columns: usize| (3 * columns + 6) * (rows + 1) + 9;
    let a: Vec<f32> = (0..len(rows, depth) * batch).map(|i| value(i) as f32).collect();
    let b: Vec<f32> = (0..len(depth, columns)).map(|i| value(i + 5) as f32).collect();
    let mut c: Vec<f32> = (0..len(rows, columns) * batch).map(|i| value(i + 9) as f32).collect();
    let before = c.clone();
    let batches: Vec<[isize; 3]> =
        (0..batch).map(|i| [(i * len(rows, depth)) as isize, 0, (i * len(rows, columns)) as isize]).collect();
    let at = Matrices { left: a.as_ptr() as usize, right: b.as_ptr() as usize, out: c.as_mut_ptr() as usize };
    // SAFETY: the vectors are long enough for every stride.
    unsafe { matmul(&product, DType::F32, at, &batches).unwrap() };
    for [x, y, z] in batches {
        for i in 0..rows as isize {
            for j in 0..columns as isize {
                let sum: f64 = (0..depth as isize)
                    .map(|k| {
                        let left = a[(x + i * product.left[0] + k * product.left[1]) as usize];
                        let right = b[(y + k * product.right[0] + j * product.right[1]) as usize];
                        f64::from(left) * f64::from(right)
                    })
                    .sum();
                let o = (z + i * product.out[0] + j * product.out[1]) as usize;
                let want = alpha * sum + beta * f64::from(before[o]);
                let error = (f64::from(c[o]) - want).abs();
                assert!(error <= 2e-5 * (1.0 + depth as f64), "{product:?} at {i},{j}: {} for {want}", c[o]);
            }
        }
    }
}

#[test]
fn sizes_and_layouts() {
    for layout in 0..27 {
        for (rows, depth, columns) in [
            (1, 1, 1),
            (1, 40, 33),
            (17, 31, 1),
            (2, 0, 3),
            (7, 13, 17),
            (5, 53, 7),
            (32, 64, 9),
            (40, 15, 40),
            (19, 900, 35),
            (64, 389, 18),
            (65, 521, 290),
            (100, 50, 130),
            // Few columns behind the last tile.
            (9, 0, 17),
            (7, 1, 33),
            (31, 500, 49),
            (33, 200, 36),
            (60, 9, 66),
        ] {
            check_f32(rows, depth, columns, layout, 1.0, 0.0, 1);
            check_f32(rows, depth, columns, layout, 0.5, 2.0, 3);
        }
    }
    check_f32(6, 20, 512, 0, 1.0, 1.0, 50);
}

#[test]
fn other_types() {
    let (rows, depth, columns) = (9, 21, 18);
    let product = MatrixProduct::dense(rows, depth, columns);
    let want: Vec<f64> = (0..rows * columns)
        .map(|o| (0..depth).map(|k| value(o / columns * depth + k) * value(k * columns + o % columns)).sum())
        .collect();
    fn of<T: Copy>(product: &MatrixProduct, dtype: DType, to: impl Fn(f64) -> T, from: impl Fn(T) -> f64) -> Vec<f64> {
        let a: Vec<T> = (0..product.rows * product.depth).map(|i| to(value(i))).collect();
        let b: Vec<T> = (0..product.depth * product.columns).map(|i| to(value(i))).collect();
        let mut c: Vec<T> = vec![to(f64::NAN); product.rows * product.columns];
        let at = Matrices { left: a.as_ptr() as usize, right: b.as_ptr() as usize, out: c.as_mut_ptr() as usize };
        // SAFETY: dense matrices.
        unsafe { matmul(product, dtype, at, &[[0; 3]]).unwrap() };
        c.into_iter().map(from).collect()
    }
    assert_eq!(of::<f64>(&product, DType::F64, |x| x, |x| x), want);
    let rounded: Vec<f64> = want.iter().map(|&x| f16::from_f64(x).to_f64()).collect();
    assert_eq!(of(&product, DType::F16, f16::from_f64, f16::to_f64), rounded);
    let rounded: Vec<f64> = want.iter().map(|&x| bf16::from_f64(x).to_f64()).collect();
    assert_eq!(of(&product, DType::BF16, bf16::from_f64, bf16::to_f64), rounded);
    let whole: Vec<f64> = (0..rows * columns)
        .map(|o| {
            (0..depth).map(|k| value(o / columns * depth + k).trunc() * value(k * columns + o % columns).trunc()).sum()
        })
        .collect();
    assert_eq!(of::<i64>(&product, DType::I64, |x| x as i64, |x| x as f64), whole);
    assert_eq!(of::<i32>(&product, DType::I32, |x| x as i32, f64::from), whole);
    assert_eq!(of::<i16>(&product, DType::I16, |x| x as i16, f64::from), whole);
}

/// Half precision of every layout, and as many rows as each kernel takes: each result is the float32 sum, rounded once.
#[test]
fn halves_of_few_rows_and_of_many() {
    fn check<T: half::Half>(sizes: (usize, usize, usize), layout: usize, [alpha, beta]: [f64; 2], batch: usize) {
        let (rows, depth, columns) = sizes;
        let strides = |rows: usize, columns: usize, kind: usize| match kind {
            0 => [columns as isize, 1],
            1 => [1, rows as isize],
            _ => [3 * columns as isize + 5, 3],
        };
        let product = MatrixProduct {
            left: strides(rows, depth, layout % 3),
            right: strides(depth, columns, layout / 3 % 3),
            out: strides(rows, columns, layout / 9),
            alpha,
            beta,
            ..MatrixProduct::dense(rows, depth, columns)
        };
        let len = |rows: usize, columns: usize| (3 * columns + 6) * (rows + 1);
        let numbers =
            |len: usize, from: usize| (0..len).map(|i| T::rounded(value(i + from) as f32)).collect::<Vec<T>>();
        let (a, b) = (numbers(len(rows, depth) * batch, 0), numbers(len(depth, columns) * batch, 5));
        let mut c = numbers(len(rows, columns) * batch, 9);
        let before = c.clone();
        let step = [len(rows, depth), len(depth, columns), len(rows, columns)];
        let batches: Vec<_> = (0..batch).map(|i| step.map(|step| (i * step) as isize)).collect();
        let at = Matrices { left: a.as_ptr() as usize, right: b.as_ptr() as usize, out: c.as_mut_ptr() as usize };
        // SAFETY: the vectors are long enough for every stride.
        unsafe { matmul(&product, T::DTYPE, at, &batches).unwrap() };
        for &[x, y, z] in &batches {
            for (i, j) in (0..rows as isize).flat_map(|i| (0..columns as isize).map(move |j| (i, j))) {
                let term = |k: isize| {
                    let left = a[(x + i * product.left[0] + k * product.left[1]) as usize];
                    let right = b[(y + k * product.right[0] + j * product.right[1]) as usize];
                    f64::from(left.single()) * f64::from(right.single())
                };
                let o = (z + i * product.out[0] + j * product.out[1]) as usize;
                // Quarters: the sums are exact in float32, so that nothing but the last rounding is left.
                let want = alpha * (0..depth as isize).map(term).sum::<f64>() + beta * f64::from(before[o].single());
                let (got, want) = (c[o].single(), T::rounded(want as f32).single());
                assert_eq!(got, want, "{product:?} at {i},{j}");
            }
        }
    }
    // Sums of so many terms come back to what earlier parts have left, by columns and by rows.
    for layout in [0, 4, 12, 17] {
        for sizes in [(20, 4_500, 33), (50, 4_500, 20)] {
            check::<::half::f16>(sizes, layout, [1.0, 0.0], 1);
            check::<::half::bf16>(sizes, layout, [0.5, 2.0], 1);
        }
    }
    for layout in 0..27 {
        for (i, sizes) in [
            (1, 1, 1),
            (1, 70, 33),
            (2, 0, 3),
            (3, 49, 130),
            (7, 400, 19),
            (12, 65, 70),
            (64, 50, 35),
            (70, 50, 3),
            (66, 48, 67),
            (16, 16, 16),
            (40, 33, 24),
            (21, 800, 50),
            (34, 17, 33),
            (13, 400, 67),
            (65, 80, 64),
            (90, 129, 35),
        ]
        .into_iter()
        .enumerate()
        {
            let (factors, batch) = if i % 2 == 0 { ([1.0, 0.0], 1) } else { ([0.5, 2.0], 2) };
            check::<::half::f16>(sizes, layout, factors, batch);
            check::<::half::bf16>(sizes, layout, factors, batch);
        }
        // More batches than threads are dealt out whole.
        let many = 4 * crate::threads::count();
        check::<::half::f16>((17, 20, 18), layout, [1.0, 0.0], many);
        check::<::half::bf16>((17, 20, 18), layout, [1.0, 0.0], many);
    }
}

/// Every float16 and bfloat16, converted on its way into a register, at every level.
#[test]
fn every_half_is_the_same_number_in_a_register() {
    fn same<T: Stored>(of: fn(u16) -> T, want: fn(T) -> f32) {
        let all: Vec<T> = (0..=u16::MAX).map(of).collect();
        let mut found = vec![0.0f32; all.len()];
        #[inline(always)]
        unsafe fn convert<V: crate::native::lanes::Lanes, T: Stored>(from: &[T], to: &mut [f32]) {
            // SAFETY: as many numbers as there is room for.
            unsafe { widened::<V, T>(from.as_ptr(), to.as_mut_ptr(), to.len()) };
        }
        // SAFETY: the baseline's instructions.
        unsafe { convert::<crate::native::lanes::Portable, T>(&all, &mut found) };
        for (&half, &single) in all.iter().zip(&found) {
            assert!(single.to_bits() == want(half).to_bits() || single.is_nan() && want(half).is_nan());
        }
    }
    same(::half::f16::from_bits, ::half::f16::to_f32);
    same(::half::bf16::from_bits, ::half::bf16::to_f32);
    for dtype in [DType::F16, DType::BF16] {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let mut found = vec![0.0f32; all.len()];
        // SAFETY: a dense row of as many numbers.
        unsafe { half::widen(dtype, all.as_ptr() as usize, [0, 1], &mut found, all.len()) };
        for (&bits, &single) in all.iter().zip(&found) {
            let want = match dtype {
                DType::F16 => ::half::f16::from_bits(bits).to_f32(),
                _ => ::half::bf16::from_bits(bits).to_f32(),
            };
            assert!(single.to_bits() == want.to_bits() || single.is_nan() && want.is_nan(), "{dtype:?} {bits:#x}");
        }
    }
}

/// Every float16, what lies half way to the next one, and what lies just beside that, is rounded as the crate `half` does, by the conversion of tiles.
#[test]
fn every_number_is_rounded_to_the_nearest_half() {
    let around = |bits: u16| {
        let [this, next] = [bits, bits.wrapping_add(1)].map(|bits| ::half::f16::from_bits(bits).to_f32());
        let middle = (this + next) / 2.0;
        [this, middle, f32::from_bits(middle.to_bits() ^ 1), -middle, this * 1.0001, f32::from_bits(bits.into())]
    };
    let numbers: Vec<f32> = (0..=u16::MAX).flat_map(around).chain([65_519.9, 65_520.0, 1e9, f32::MIN]).collect();
    let cast = crate::vector::cast::cast(openmps_tile::Cast::Float, Scalar::F32, Scalar::F16).unwrap();
    let mut found = vec![0_u16; numbers.len()];
    // SAFETY: as many numbers at both addresses.
    unsafe { cast(found.as_mut_ptr().cast(), numbers.as_ptr().cast(), numbers.len()) };
    for (&number, &bits) in numbers.iter().zip(&found) {
        let (found, want) = (::half::f16::from_bits(bits), ::half::f16::from_f32(number));
        assert!(found == want && bits >> 15 == want.to_bits() >> 15 || found.is_nan() && want.is_nan(), "{number:e}");
    }
}

/// `activation(scale * product + bias + residual)` of two batches, by every path that a product takes.
#[test]
fn what_follows_a_product() {
    let activations =
        [Activation::None, Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::Swish { beta: 1.0 }];
    let numbers = |count: usize, from: usize| (from..from + count).map(|i| value(i) as f32 / 3.0).collect::<Vec<_>>();
    for (i, (rows, depth, columns)) in
        [(1, 1, 1), (3, 9, 5), (7, 60, 19), (40, 401, 35), (70, 90, 130), (65, 530, 64)].into_iter().enumerate()
    {
        for (transposed, activation) in activations.iter().enumerate().map(|(j, &it)| ((i + j) % 2 == 1, it)) {
            let strides = if transposed { [1, depth as isize] } else { [columns as isize, 1] };
            let product = MatrixProduct { right: strides, alpha: 0.25, ..MatrixProduct::dense(rows, depth, columns) };
            let (x, mut weight) = (numbers(2 * rows * depth, 1), numbers(depth * columns, 2));
            let right_type = [DType::F32, DType::F16, DType::BF16][i % 3];
            let (scale, bias, residual) = (numbers(columns, 3), numbers(columns, 4), numbers(2 * rows * columns, 5));
            let halves: Vec<u16> = match right_type {
                DType::F16 => weight.iter().map(|&x| f16::from_f32(x).to_bits()).collect(),
                _ => weight.iter().map(|&x| bf16::from_f32(x).to_bits()).collect(),
            };
            let right = match right_type {
                DType::F32 => weight.as_ptr() as usize,
                _ => halves.as_ptr() as usize,
            };
            match right_type {
                DType::F32 => {}
                DType::F16 => weight.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32()),
                _ => weight.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32()),
            }
            let mut out = vec![f32::NAN; 2 * rows * columns];
            let at = Matrices { left: x.as_ptr() as usize, right, out: out.as_mut_ptr() as usize };
            let batches =
                [0, 1].map(|batch: isize| [batch * (rows * depth) as isize, 0, batch * (rows * columns) as isize]);
            let (scale, bias, residual) = (Some(&scale[..]), Some(&bias[..]), Some(&residual[..]));
            let epilogue = Epilogue { scale, bias, residual, activation, after: Some((0.5, 0.25)) };
            // SAFETY: matrices of these sizes; the batches of the left one follow each other as those of the result do.
            unsafe { linear(&product, [DType::F32, right_type], at, &batches, &epilogue) };
            for (o, &got) in out.iter().enumerate() {
                let (row, column) = (o / columns, o % columns);
                let term = |k: usize| {
                    let y = if transposed { weight[column * depth + k] } else { weight[k * columns + column] };
                    f64::from(x[row * depth + k]) * f64::from(y)
                };
                let sum = 0.25 * (0..depth).map(term).sum::<f64>();
                let [scale, bias, residual] =
                    [(scale, column), (bias, column), (residual, o)].map(|(of, at)| f64::from(of.unwrap()[at]));
                let want = 0.5 * reference(activation, scale * sum + bias + residual) + 0.25;
                let bound = 2e-6 * (depth as f64 + want.abs());
                assert!((f64::from(got) - want).abs() <= bound, "{product:?} {activation:?} {o}: {got} for {want}");
            }
        }
    }
}

/// As above with both matrices of half precision, which the CPU multiplies as they are, or packing widens: products of one part and of several, a left
/// matrix that lies transposed, batches that do not follow each other, and a factor.
#[test]
fn what_follows_a_product_of_halves() {
    fn check<T: half::Half>((rows, depth, columns): (usize, usize, usize), turned: [bool; 2], alpha: f64) {
        let numbers =
            |count: usize, from: usize| (from..from + count).map(|i| value(i) as f32 / 3.0).collect::<Vec<_>>();
        let rounded = |numbers: Vec<f32>| numbers.into_iter().map(T::rounded).collect::<Vec<T>>();
        let strides =
            |turned: bool, lines: usize, terms: usize| if turned { [1, lines as isize] } else { [terms as isize, 1] };
        let (left, right) = (strides(turned[0], rows, depth), strides(turned[1], depth, columns));
        let product = MatrixProduct { left, right, alpha, ..MatrixProduct::dense(rows, depth, columns) };
        let (size, apart) = (rows * columns, rows * depth + 6);
        let batches = [[0; 3], [apart as isize, 0, size as isize]];
        let (x, weight) = (rounded(numbers(2 * apart, 1)), rounded(numbers(depth * columns, 2)));
        let (bias, residual) = (numbers(columns, 4), numbers(2 * size, 5));
        let epilogue = Epilogue { residual: Some(&residual), ..Epilogue::bias(Some(&bias)) };
        let single: Vec<f32> = x.iter().map(|x| x.single()).collect();
        let (address, types) = match multiplies(&product, [T::DTYPE; 2], &batches) {
            true => (x.as_ptr() as usize, [T::DTYPE; 2]),
            false => (single.as_ptr() as usize, [DType::F32, T::DTYPE]),
        };
        let mut out = vec![f32::NAN; 2 * size];
        let at = Matrices { left: address, right: weight.as_ptr() as usize, out: out.as_mut_ptr() as usize };
        // SAFETY: matrices of these sizes and types.
        unsafe { linear(&product, types, at, &batches, &epilogue) };
        for (o, &got) in out.iter().enumerate() {
            let (batch, row, column) = (o / size, o % size / columns, o % columns);
            let term = |k: usize| {
                let x = x[batch * apart + row * left[0] as usize + k * left[1] as usize];
                f64::from(x.single()) * f64::from(weight[k * right[0] as usize + column * right[1] as usize].single())
            };
            let want = alpha * (0..depth).map(term).sum::<f64>() + f64::from(bias[column]) + f64::from(residual[o]);
            let bound = 2e-6 * (depth as f64 + want.abs());
            assert!((f64::from(got) - want).abs() <= bound, "{types:?} {product:?} {o}: {got} for {want}");
        }
    }
    for sizes in [(16, 16, 16), (40, 401, 35), (70, 90, 130), (90, 129, 35)] {
        for turned in [[false, false], [false, true], [true, false]] {
            for alpha in [1.0, 0.5] {
                check::<::half::f16>(sizes, turned, alpha);
                check::<::half::bf16>(sizes, turned, alpha);
            }
        }
    }
}

/// Batches that follow each other are one product of more rows.
#[test]
fn batches_of_few_rows_are_multiplied_as_one() {
    let product = MatrixProduct::dense(8, 64, 32);
    let batches: Vec<[isize; 3]> = (0..4).map(|i| [i * 8 * 64, 0, i * 8 * 32]).collect();
    let types = [DType::BF16; 2];
    assert_eq!(multiplies(&product, types, &batches), crate::level::bfloats_at_once().is_some());
    assert!(!multiplies(&product, types, &batches[..1]));
    assert!(!multiplies(&product, [DType::F32, DType::BF16], &batches));
}

fn reference(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu => 0.5 * x * libm::erfc(-x / 2f64.sqrt()),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        _ => x / (1.0 + (-x).exp()),
    }
}

/// Packed weights, of both layouts, give the bits of products that pack for themselves; what does not fit is refused.
#[test]
fn packed_weights() {
    for (rows, depth, columns) in [(1, 7, 5), (5, 530, 70), (90, 64, 33), (70, 600, 100), (0, 3, 4), (3, 0, 4)] {
        let x: Vec<f32> = (0..rows * depth).map(|i| value(i) as f32).collect();
        let weight: Vec<f32> = (0..depth * columns).map(|i| value(i + 5) as f32).collect();
        let bias: Vec<f32> = (0..columns).map(|i| value(i + 9) as f32).collect();
        let epilogue = Epilogue { activation: Activation::Relu, ..Epilogue::bias(Some(&bias)) };
        for strides in [[columns, 1], [1, depth]] {
            let packed = PackedMatrix::new(Side::Right, [depth, columns], strides, &weight).unwrap();
            let mut got = vec![f32::NAN; rows * columns];
            linear_packed(&x, &packed, &mut got, &epilogue).unwrap();
            for (o, got) in got.iter().enumerate() {
                let (i, j) = (o / columns, o % columns);
                let terms = (0..depth)
                    .map(|k| f64::from(x[i * depth + k]) * f64::from(weight[k * strides[0] + j * strides[1]]));
                let want = (terms.sum::<f64>() + f64::from(bias[j])).max(0.0);
                assert!((f64::from(*got) - want).abs() <= 2e-5 * (1.0 + depth as f64), "{i},{j}: {got} for {want}");
            }
        }
    }
    let packed = PackedMatrix::new(Side::Left, [2, 3], [3, 1], &[0.0; 6]).unwrap();
    assert!(linear_packed(&[0.0; 2], &packed, &mut [0.0; 3], &Epilogue::default()).is_err());
    assert!(PackedMatrix::new(Side::Right, [2, 3], [3, 1], &[0.0; 5]).is_err());
}

/// Sizes around those of tiles, panels and groups, of every level; numbers that are not finite stay in their row and column.
#[test]
fn edges_of_tiles() {
    let sizes = [1, 2, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 100];
    for (i, &rows) in sizes.iter().enumerate() {
        for (j, &columns) in sizes.iter().enumerate() {
            let depth = [1, 3, 64, 65, 130, 17, 40][(i + 3 * j) % 7];
            check_f32(rows, depth, columns, (i * 5 + j) % 9, 1.0, ((i + j) % 2) as f64, 1 + (i + j) % 2);
        }
    }
    // Sums in several parts, and strips and rows that several tasks share.
    for (rows, depth, columns) in [(33, 1100, 70), (300, 520, 41), (41, 520, 300), (9, 1025, 520), (520, 513, 9)] {
        for layout in 0..9 {
            check_f32(rows, depth, columns, layout, 1.0, 0.0, 1);
        }
    }
}

#[test]
fn numbers_that_are_not_finite_stay_in_their_row_and_column() {
    fn check<T: Copy>(dtype: DType, depth: usize, of: fn(f64) -> T, to: fn(T) -> f64) {
        let (rows, columns) = (19, 45);
        let product = MatrixProduct::dense(rows, depth, columns);
        let mut a: Vec<T> = (0..rows * depth).map(|i| of(value(i))).collect();
        let mut b: Vec<T> = (0..depth * columns).map(|i| of(value(i))).collect();
        (a[4 * depth + 66], b[3 * columns + 40]) = (of(f64::NAN), of(f64::INFINITY));
        let mut c = vec![of(f64::NAN); rows * columns];
        let at = Matrices { left: a.as_ptr() as usize, right: b.as_ptr() as usize, out: c.as_mut_ptr() as usize };
        // SAFETY: dense matrices.
        unsafe { matmul(&product, dtype, at, &[[0; 3]]).unwrap() };
        for (o, got) in c.into_iter().map(to).enumerate() {
            let (row, column) = (o / columns, o % columns);
            let none = to(a[row * depth + 3]) == 0.0;
            assert_eq!(got.is_nan(), row == 4 || column == 40 && none, "{dtype} {row},{column}: {got}");
            assert_eq!(got.is_infinite(), row != 4 && column == 40 && !none, "{dtype} {row},{column}: {got}");
        }
    }
    // An odd depth leaves half of a pair of terms empty.
    for depth in [70, 71] {
        check(DType::F32, depth, |x| x as f32, f64::from);
        check(DType::F16, depth, ::half::f16::from_f64, ::half::f16::to_f64);
        check(DType::BF16, depth, bf16::from_f64, bf16::to_f64);
    }
}

/// The tests of products, and of convolutions by products, at the levels below this CPU's own, each in a process of its own: the level is chosen once.
#[test]
fn lower_levels() {
    let all = [Level::Portable, Level::Avx2, Level::Avx512].map(Level::name);
    for lower in all.into_iter().take_while(|level| *level != crate::level::name()) {
        let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
        let convolutions =
            ["pointwise", "packed", "random", "depthwise"].map(|test| format!("convolution::tests::{test}"));
        tests.arg("native::matmul::").args(convolutions).args(["--skip", "lower_levels"]);
        let output = tests.env("OPENMPS_HOST_LEVEL", lower).output().unwrap();
        assert!(output.status.success(), "{lower}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
