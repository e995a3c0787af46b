//! Weights in ggml's quantized formats: random blocks, and the numbers that they stand for.

use crate::kind::Kind;
use half::f16;

/// Rows of weights that lie one after the other.
pub struct Weights {
    pub bytes: Vec<u8>,
    pub numbers: Vec<f64>,
}

/// What a block is made of.
struct Layout {
    /// Weights of a block.
    count: usize,
    bytes: usize,
    /// Where factors in half precision are, which must not be random bits: first the one of the weights, then the one of what is added.
    factors: &'static [usize],
}

fn layout(format: &str) -> Option<Layout> {
    let (count, bytes, factors): (_, _, &[usize]) = match format {
        "q4_0" | "iq4_nl" => (32, 18, &[0]),
        "q4_1" => (32, 20, &[0, 2]),
        "q5_0" => (32, 22, &[0]),
        "q5_1" => (32, 24, &[0, 2]),
        "q8_0" => (32, 34, &[0]),
        "q2_K" => (256, 84, &[80, 82]),
        "q3_K" => (256, 110, &[108]),
        "q4_K" => (256, 144, &[0, 2]),
        "q5_K" => (256, 176, &[0, 2]),
        "q6_K" => (256, 210, &[208]),
        "iq1_s" => (256, 50, &[0]),
        "iq1_m" => (256, 56, &[]),
        "iq2_xxs" => (256, 66, &[0]),
        "iq2_xs" => (256, 74, &[0]),
        "iq2_s" => (256, 82, &[0]),
        "iq3_xxs" => (256, 98, &[0]),
        "iq3_s" => (256, 110, &[0]),
        "iq4_xs" => (256, 136, &[0]),
        _ => return None,
    };
    Some(Layout { count, bytes, factors })
}

/// Weights and bytes of a block; numbers that are not quantized have blocks of 16.
pub fn block_size(format: &str) -> Option<(usize, usize)> {
    if let Some(kind) = Kind::named(format) {
        return Some((16, 16 * kind.size()));
    }
    layout(format).map(|layout| (layout.count, layout.bytes))
}

/// Values that a format picks from, which are read from the source that is run: they are part of the format, and long.
struct Table(Vec<u64>);

impl Table {
    fn of(format: &str, text: &str) -> Option<Table> {
        let name = match format {
            "iq1_s" | "iq1_m" => "iq1s_grid_gpu",
            "iq2_xxs" => "iq2xxs_grid",
            "iq2_xs" => "iq2xs_grid",
            "iq2_s" => "iq2s_grid",
            "iq3_xxs" => "iq3xxs_grid",
            "iq3_s" => "iq3s_grid",
            _ => return Some(Table(Vec::new())),
        };
        let (_, rest) =
            text.split_once(&format!("_BEGIN(uint{}_t, {name}, ", if name.contains("q2") { 64 } else { 32 }))?;
        let (_, rest) = rest.split_once(')')?;
        let (values, _) = rest.split_once("GGML_TABLE_END")?;
        let values = values.split(',').map(str::trim).filter(|value| !value.is_empty());
        let values: Option<Vec<u64>> =
            values.map(|value| u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()).collect();
        values.map(Table)
    }

    /// A byte of a value, the lowest first.
    fn byte(&self, index: usize, at: usize) -> u8 {
        self.0[index].to_le_bytes()[at]
    }
}

/// The 16 levels of formats with 4 bits that are not evenly spaced.
pub fn levels(text: &str) -> Option<Vec<f64>> {
    let (_, rest) = text.split_once("kvalues_iq4nl_f[16] = {")?;
    let (values, _) = rest.split_once('}')?;
    values.split(',').map(|value| value.trim().trim_end_matches('f').parse().ok()).collect()
}

/// Bytes from a linear congruential generator.
struct Random(u32);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 24) as u8
    }

    fn block(&mut self, format: &str, layout: &Layout) -> Vec<u8> {
        let mut block: Vec<u8> = (0..layout.bytes).map(|_| self.byte()).collect();
        let scale = f16::from_f32(0.01 + f32::from(self.byte()) / 4096.0);
        let least = f16::from_f32(f32::from(self.byte()) / -512.0);
        for (at, factor) in layout.factors.iter().zip([scale, least]) {
            block[*at..at + 2].copy_from_slice(&factor.to_le_bytes());
        }
        if format == "iq1_m" {
            // The factor is spread over the highest bits of four numbers.
            for part in 0..4 {
                let byte = &mut block[49 + 2 * part];
                *byte = (*byte & 15) | ((scale.to_bits() >> (4 * part)) as u8 & 15) << 4;
            }
        }
        block
    }
}

/// `count` weights.
pub fn weights(format: &str, count: usize, text: &str) -> Option<Weights> {
    if let Some(kind) = Kind::named(format) {
        let numbers = kind.numbers(count, 36);
        return Some(Weights { bytes: kind.encode(&numbers), numbers });
    }
    let (layout, mut random) = (layout(format)?, Random(40));
    let blocks: Vec<Vec<u8>> = (0..count / layout.count).map(|_| random.block(format, &layout)).collect();
    let bytes = blocks.concat();
    Some(Weights { numbers: decoded(format, &bytes, text)?, bytes })
}

/// The numbers that blocks stand for.
pub fn decoded(format: &str, bytes: &[u8], text: &str) -> Option<Vec<f64>> {
    let (layout, table, levels) = (layout(format)?, Table::of(format, text)?, levels(text)?);
    let one = |block: &[u8], at: usize| match format {
        "q4_0" | "q4_1" | "q5_0" | "q5_1" | "q8_0" => small(format, block, at),
        "q2_K" | "q3_K" => two_bits(format, block, at),
        "q4_K" | "q5_K" => four_bits(format, block, at),
        "q6_K" => six_bits(block, at),
        "iq1_s" | "iq1_m" => ternary(format, block, at, &table),
        "iq3_xxs" | "iq3_s" => fours(format, block, at, &table),
        "iq4_nl" | "iq4_xs" => of_levels(format, block, at, &levels),
        _ => eights(format, block, at, &table),
    };
    let blocks = bytes.chunks_exact(layout.bytes);
    Some(blocks.flat_map(|block| (0..layout.count).map(move |at| one(block, at))).collect())
}

fn half(block: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f64()
}

fn word(block: &[u8], at: usize) -> usize {
    usize::from(block[at]) + 256 * usize::from(block[at + 1])
}

fn long(block: &[u8], at: usize) -> usize {
    word(block, at) + 65_536 * word(block, at + 2)
}

/// Some bits of a byte, from `first` on.
fn bits(byte: u8, first: usize, count: usize) -> usize {
    usize::from(byte) >> first & ((1 << count) - 1)
}

/// Blocks of 32 with one factor.
fn small(format: &str, block: &[u8], at: usize) -> f64 {
    let added = if format.ends_with('1') { half(block, 2) } else { 0.0 };
    let begin = if format.ends_with('1') { 4 } else { 2 };
    let (high, begin) = if format.starts_with("q5") { (begin, begin + 4) } else { (0, begin) };
    let fifth = if format.starts_with("q5") { bits(block[high + at / 8], at % 8, 1) * 16 } else { 0 };
    let least = match format {
        "q4_0" => 8.0,
        "q5_0" => 16.0,
        _ => 0.0,
    };
    if format == "q8_0" {
        return half(block, 0) * f64::from(block[begin + at] as i8);
    }
    let value = bits(block[begin + at % 16], at / 16 * 4, 4) + fifth;
    half(block, 0) * (value as f64 - least) + added
}

/// Two bits of each of 256, in `q3_K` with a third.
fn two_bits(format: &str, block: &[u8], at: usize) -> f64 {
    let place = 32 * (at / 128) + at % 32;
    let shift = at / 32 % 4 * 2;
    let part = at / 16;
    if format == "q2_K" {
        let value = bits(block[16 + place], shift, 2) as f64;
        let (factor, least) = (bits(block[part], 0, 4) as f64, bits(block[part], 4, 4) as f64);
        return half(block, 80) * factor * value - half(block, 82) * least;
    }
    let value = bits(block[32 + place], shift, 2) + 4 * bits(block[at % 32], at / 32, 1);
    let factor = bits(block[96 + part % 8], part / 8 * 4, 4) + 16 * bits(block[104 + part % 4], part / 4 * 2, 2);
    half(block, 108) * (factor as f64 - 32.0) * (value as f64 - 4.0)
}

/// Factor and least value of the eighths of a block, six bits each in twelve bytes.
fn eighth(scales: &[u8], part: usize) -> (f64, f64) {
    let (factor, least) = if part < 4 {
        (bits(scales[part], 0, 6), bits(scales[part + 4], 0, 6))
    } else {
        let (low, high) = (bits(scales[part + 4], 0, 4), bits(scales[part + 4], 4, 4));
        (low + 16 * bits(scales[part - 4], 6, 2), high + 16 * bits(scales[part], 6, 2))
    };
    (factor as f64, least as f64)
}

fn four_bits(format: &str, block: &[u8], at: usize) -> f64 {
    let (factor, least) = eighth(&block[4..16], at / 32);
    let begin = if format == "q5_K" { 48 } else { 16 };
    let fifth = if format == "q5_K" { 16 * bits(block[16 + at % 32], at / 32, 1) } else { 0 };
    let value = bits(block[begin + at / 64 * 32 + at % 32], at / 32 % 2 * 4, 4) + fifth;
    half(block, 0) * factor * value as f64 - half(block, 2) * least
}

fn six_bits(block: &[u8], at: usize) -> f64 {
    let (side, place) = (at / 128, at % 128);
    let low = bits(block[64 * side + place % 64], place / 64 * 4, 4);
    let high = bits(block[128 + 32 * side + place % 32], place / 32 * 2, 2);
    half(block, 208) * f64::from(block[192 + at / 16] as i8) * ((low + 16 * high) as f64 - 32.0)
}

/// The sign of one of eight, of which seven bits are stored and the last makes the number of minuses even.
fn seven_signs(stored: usize, at: usize) -> f64 {
    let minus = if at < 7 { stored >> at & 1 } else { (stored & 127).count_ones() as usize & 1 };
    if minus == 1 { -1.0 } else { 1.0 }
}

fn eight_signs(stored: u8, at: usize) -> f64 {
    if bits(stored, at, 1) == 1 { -1.0 } else { 1.0 }
}

/// Eight weights by an index of a table.
fn eights(format: &str, block: &[u8], at: usize, table: &Table) -> f64 {
    let (group, eight, place) = (at / 32, at / 8, at % 8);
    let (index, factor, sign) = match format {
        "iq2_xxs" => {
            let (begin, rest) = (2 + 8 * group, long(block, 6 + 8 * group));
            let sign = seven_signs(rest >> (7 * (eight % 4)) & 127, place);
            (usize::from(block[begin + eight % 4]), rest >> 28, sign)
        }
        "iq2_xs" => {
            let stored = word(block, 2 + 2 * eight);
            (stored & 511, bits(block[66 + group], at / 16 % 2 * 4, 4), seven_signs(stored >> 9, place))
        }
        _ => {
            let index = usize::from(block[2 + eight]) + 256 * bits(block[66 + group], eight % 4 * 2, 2);
            (index, bits(block[74 + group], at / 16 % 2 * 4, 4), eight_signs(block[34 + eight], place))
        }
    };
    half(block, 0) * (0.5 + factor as f64) * 0.25 * f64::from(table.byte(index, place)) * sign
}

/// Four weights by an index of a table.
fn fours(format: &str, block: &[u8], at: usize, table: &Table) -> f64 {
    let (group, four, place) = (at / 32, at / 4, at % 8);
    let (index, factor, sign) = if format == "iq3_xxs" {
        let rest = long(block, 66 + 4 * group);
        let sign = seven_signs(rest >> (7 * (at / 8 % 4)) & 127, place);
        (usize::from(block[2 + four]), (0.5 + (rest >> 28) as f64) * 0.5, sign)
    } else {
        let index = usize::from(block[2 + four]) + 256 * bits(block[66 + group], four % 8, 1);
        let factor = 1 + 2 * bits(block[106 + at / 64], group % 2 * 4, 4);
        (index, factor as f64, eight_signs(block[74 + at / 8], place))
    };
    half(block, 0) * factor * f64::from(table.byte(index, at % 4)) * sign
}

/// Minus one, zero and one by an index of a table, all moved by an eighth.
fn ternary(format: &str, block: &[u8], at: usize, table: &Table) -> f64 {
    let (group, eight, place) = (at / 32, at / 8, at % 8);
    let (index, scale, factor, down) = if format == "iq1_s" {
        let rest = word(block, 34 + 2 * group);
        let index = usize::from(block[2 + eight]) + 256 * (rest >> (eight % 4 * 3) & 7);
        (index, half(block, 0), rest >> 12 & 7, rest >> 15 == 1)
    } else {
        let rest = bits(block[32 + eight / 2], eight % 2 * 4, 4);
        let scale: usize = (0..4).map(|part| word(block, 48 + 2 * part) >> 12 << (4 * part)).sum();
        let factor = word(block, 48 + at / 64 * 2) >> (group % 2 * 6 + at / 16 % 2 * 3) & 7;
        (usize::from(block[eight]) + 256 * (rest & 7), f16::from_bits(scale as u16).to_f64(), factor, rest >> 3 == 1)
    };
    let value = bits(table.byte(index, place % 4), place / 4 * 4, 4) as f64 - 1.0;
    scale * (2 * factor + 1) as f64 * (value + if down { -0.125 } else { 0.125 })
}

fn of_levels(format: &str, block: &[u8], at: usize, levels: &[f64]) -> f64 {
    let group = at / 32;
    let value = |begin: usize| levels[bits(block[begin + at % 16], at / 16 % 2 * 4, 4)];
    if format == "iq4_nl" {
        return half(block, 0) * value(2);
    }
    let factor = bits(block[4 + group / 2], group % 2 * 4, 4) + 16 * (word(block, 2) >> (2 * group) & 3);
    half(block, 0) * (factor as f64 - 32.0) * value(8 + 16 * group)
}
