//! Elements of every type for each rank, and what operations must make of them.

use openmps_collective::{ElementType, Reduction};

/// After so many elements the numbers of a rank repeat: a prime, so that no segment or part of another place looks alike.
const PERIOD: usize = 4_099;

/// A small number for an element of a rank; complex ones have an imaginary part, too. Sums, and products of eight, are exact in float32.
pub fn number(rank: usize, index: usize) -> [i64; 2] {
    let mixed = ((index % PERIOD) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (rank as u64 + 1) << 40;
    let mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32;
    [[-2, -1, 1, 2, 3][(mixed % 5) as usize], (mixed / 5 % 3) as i64]
}

/// `count` elements from `begin` on, of which `one` makes those of a period.
fn repeated(begin: usize, count: usize, element: ElementType, one: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let total = count * element.size();
    let mut bytes = Vec::with_capacity(total);
    bytes.extend((begin..begin + count.min(PERIOD)).flat_map(one));
    while bytes.len() < total {
        bytes.extend_from_within(..bytes.len().min(total - bytes.len()));
    }
    bytes
}

/// Whether elements are the same numbers; a product may have made a zero negative.
pub fn same(some: &[u8], others: &[u8], element: ElementType) -> bool {
    let zero = match element {
        ElementType::F16 | ElementType::BF16 => 2,
        ElementType::F32 | ElementType::Complex64 => 4,
        ElementType::F64 | ElementType::Complex128 => 8,
        _ => return some == others,
    };
    let is_zero = |bytes: &[u8]| bytes[..zero - 1].iter().all(|&byte| byte == 0) && bytes[zero - 1] & 0x7f == 0;
    let pairs = || some.chunks(zero).zip(others.chunks(zero));
    some.len() == others.len() && pairs().all(|(one, other)| one == other || (is_zero(one) && is_zero(other)))
}

/// A number as an element: wrapped, as a boolean, or as the nearest.
pub fn encode([real, imaginary]: [i64; 2], element: ElementType) -> Vec<u8> {
    match element {
        ElementType::Bool => vec![u8::from(real > 0)],
        ElementType::U8 | ElementType::I8 => (real as u8).to_ne_bytes().to_vec(),
        ElementType::U16 | ElementType::I16 => (real as u16).to_ne_bytes().to_vec(),
        ElementType::U32 | ElementType::I32 => (real as u32).to_ne_bytes().to_vec(),
        ElementType::U64 | ElementType::I64 => (real as u64).to_ne_bytes().to_vec(),
        ElementType::F16 => half::f16::from_f64(real as f64).to_ne_bytes().to_vec(),
        ElementType::BF16 => half::bf16::from_f64(real as f64).to_ne_bytes().to_vec(),
        ElementType::F32 => (real as f32).to_ne_bytes().to_vec(),
        ElementType::F64 => (real as f64).to_ne_bytes().to_vec(),
        ElementType::Complex64 => [real as f32, imaginary as f32].into_iter().flat_map(f32::to_ne_bytes).collect(),
        ElementType::Complex128 => [real as f64, imaginary as f64].into_iter().flat_map(f64::to_ne_bytes).collect(),
    }
}

/// A rank's input of `count` elements, from element `begin`.
pub fn input(rank: usize, begin: usize, count: usize, element: ElementType) -> Vec<u8> {
    repeated(begin, count, element, |index| encode(number(rank, index), element))
}

/// Whether a type has a reduction.
pub fn has(element: ElementType, reduction: Reduction) -> bool {
    match element {
        ElementType::Bool => reduction != Reduction::Average,
        ElementType::Complex64 | ElementType::Complex128 => {
            !matches!(reduction, Reduction::Maximum | Reduction::Minimum)
        }
        _ => true,
    }
}

/// What a reduction over all ranks gives, from element `begin`.
pub fn reduced(ranks: usize, begin: usize, count: usize, element: ElementType, reduction: Reduction) -> Vec<u8> {
    repeated(begin, count, element, |index| reduced_one(ranks, index, element, reduction))
}

fn reduced_one(ranks: usize, index: usize, element: ElementType, reduction: Reduction) -> Vec<u8> {
    let is_complex = matches!(element, ElementType::Complex64 | ElementType::Complex128);
    let wrapped = |value: i64| match element {
        ElementType::Bool => i64::from(value > 0),
        ElementType::U8 => i64::from(value as u8),
        ElementType::U16 => i64::from(value as u16),
        ElementType::U32 => i64::from(value as u32),
        _ => value,
    };
    let numbers = (0..ranks).map(|rank| number(rank, index)).map(|[real, imaginary]| [wrapped(real), imaginary]);
    let unsigned_64 = element == ElementType::U64;
    let whole = numbers.reduce(|[a, b], [c, d]| match reduction {
        Reduction::Sum | Reduction::Average => [a.wrapping_add(c), b + d],
        Reduction::Product if is_complex => [a * c - b * d, a * d + b * c],
        Reduction::Product => [a.wrapping_mul(c), 0],
        Reduction::Maximum if unsigned_64 => [(a as u64).max(c as u64) as i64, 0],
        Reduction::Minimum if unsigned_64 => [(a as u64).min(c as u64) as i64, 0],
        Reduction::Maximum => [a.max(c), 0],
        Reduction::Minimum => [a.min(c), 0],
    });
    let [real, imaginary] = whole.expect("a rank");
    if reduction != Reduction::Average {
        return encode([real, imaginary], element);
    }
    let (count, real_average) = (ranks as i64, real as f64 / ranks as f64);
    match element {
        ElementType::U64 => (real as u64 / count as u64).to_ne_bytes().to_vec(),
        ElementType::U8 => encode([i64::from(real as u8) / count, 0], element),
        ElementType::U16 => encode([i64::from(real as u16) / count, 0], element),
        ElementType::U32 => encode([i64::from(real as u32) / count, 0], element),
        ElementType::F16 => half::f16::from_f32(real as f32 / ranks as f32).to_ne_bytes().to_vec(),
        ElementType::BF16 => half::bf16::from_f32(real as f32 / ranks as f32).to_ne_bytes().to_vec(),
        ElementType::F32 => (real as f32 / ranks as f32).to_ne_bytes().to_vec(),
        ElementType::F64 => real_average.to_ne_bytes().to_vec(),
        ElementType::Complex64 => [real as f32 / ranks as f32, imaginary as f32 / ranks as f32]
            .into_iter()
            .flat_map(f32::to_ne_bytes)
            .collect(),
        ElementType::Complex128 => {
            [real_average, imaginary as f64 / ranks as f64].into_iter().flat_map(f64::to_ne_bytes).collect()
        }
        _ => encode([real / count, 0], element),
    }
}
