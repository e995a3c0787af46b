//! Products with weights of four and eight bits that are floats, and a scale for each group of 16 or 32 that is a float of eight bits too:
//! nvfp4, mxfp4, mxfp8.

use super::packed::Packed;
use super::quantized::{Row, TYPES, products, wide, with_constants};
use super::types::{FLOATS, Type};
use super::{Kernel, kernel};
use crate::case::{Arg, Case, Check, input, near, output};
use crate::kind::Kind;
use openmps_emulator::Grid;

/// Lanes that share a row where several vectors are multiplied at once.
const LANES: usize = 16;
/// The largest numbers of the two formats.
const LARGEST: [f64; 2] = [6.0, 448.0];
/// Magnitudes of four bits.
const FOUR: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
/// The factor of all weights that is bound where a kernel takes one.
const GLOBAL: f64 = 1344.0;
/// Rows of threads where weights are made.
const ROWS: usize = 3;

#[derive(Clone, Copy)]
struct Format {
    of: Type,
    name: &'static str,
    group: usize,
    bits: usize,
}

/// What becomes of a format that has a factor for all weights.
#[derive(Clone, Copy, PartialEq)]
enum Global {
    /// The kernel has no place for one.
    Absent,
    /// Bound, and not used.
    Ignored,
    Used,
}

const FORMATS: [(&str, usize, usize); 3] = [("nvfp4", 16, 4), ("mxfp8", 32, 8), ("mxfp4", 32, 4)];
/// Products that have a place for the factor of all weights, and those that are instantiated twice without using it.
const WITH_GLOBAL: [&str; 6] = ["qmv_fast", "qmv", "qvm", "gather_qmv_fast", "gather_qmv", "gather_qvm"];
const TWICE: [&str; 2] = ["qmm_n", "gather_qmm_n"];

pub fn kernels() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (at, text) in TYPES {
        for (name, group, bits) in FORMATS {
            let format = Format { of: FLOATS[at], name, group, bits };
            for row in products().into_iter().chain(wide(LANES)) {
                push(&mut list, format, text, &row);
            }
            for global in [Global::Absent, Global::Used].into_iter().take(if group == 16 { 2 } else { 1 }) {
                push_conversions(&mut list, format, text, global);
            }
        }
    }
    list
}

fn push(list: &mut Vec<Kernel>, format: Format, text: &str, row: &Row) {
    let Row { name: of, tail, template, rest, product } = row;
    let (Format { name: mode, group, bits, .. }, product) = (format, *product);
    let mut one = |tail: String, rest: String, global: Global, together: usize| {
        let name = format!("{mode}_{of}_{text}_gs_{group}_b_{bits}{tail}");
        let instance = format!("fp_{template}<{text}, {group}, {bits}{rest}>");
        let mut product = product;
        if together != 8 {
            product.grid[1] = product.n.div_ceil(together);
        }
        if of.contains("qvm") {
            // A simdgroup has the results of a group, of at most 32.
            product.grid[1] = product.n.div_ceil(2 * group.min(32));
        }
        let case = move || product.case(format.of.kind, |count, matrices| format.matrices(count, matrices, global));
        list.push(with_constants(kernel(name, instance, case), Some(&product)));
    };
    if !WITH_GLOBAL.contains(of) && !TWICE.contains(of) {
        return one(tail.clone(), rest.clone(), Global::Absent, 8);
    }
    let [unused, used] = if TWICE.contains(of) { [Global::Absent; 2] } else { [Global::Ignored, Global::Used] };
    one(tail.clone(), rest.clone(), unused, 8);
    one(format!("{tail}_hgs"), format!("{rest}, true"), used, 8);
    if *of == "qmv_fast" && group == 16 {
        // Two results a simdgroup instead of four.
        one(format!("_r_2{tail}"), format!("{rest}, false, 2"), unused, 4);
        one(format!("_r_2{tail}_hgs"), format!("{rest}, true, 2"), used, 4);
    }
}

fn push_conversions(list: &mut Vec<Kernel>, format: Format, text: &str, global: Global) {
    let Format { name: mode, group, bits, .. } = format;
    let is_used = global == Global::Used;
    let conversions: [(&str, fn(Format, Global) -> Case); 3] = [
        ("quantize_dequantize", Format::there_and_back),
        ("quantize", Format::packed),
        ("dequantize", Format::unpacked),
    ];
    for (of, case) in conversions {
        let name = format!("{mode}_{of}_{text}_gs_{group}_b_{bits}_hgs_{is_used}");
        let instance = format!("fp_{of}<{text}, {group}, {bits}, {is_used}>");
        list.push(with_constants(kernel(name, instance, move || case(format, global)), None));
    }
}

/// A number of four bits: a sign, two bits of exponent, one of mantissa.
fn four(code: usize) -> f64 {
    if code & 8 == 0 { FOUR[code & 7] } else { -FOUR[code & 7] }
}

/// A number of eight bits: a sign, four bits of exponent, three of mantissa.
fn eight(code: usize) -> f64 {
    let (exponent, mantissa) = (code >> 3 & 15, (code & 7) as f64 / 8.0);
    let size =
        if exponent == 0 { mantissa * 2_f64.powi(-6) } else { (1.0 + mantissa) * 2_f64.powi(exponent as i32 - 7) };
    if code & 128 == 0 { size } else { -size }
}

fn bound_global() -> Arg {
    input(Kind::F32, &[GLOBAL])
}

impl Format {
    fn weight(&self, code: usize) -> f64 {
        if self.bits == 4 { four(code) } else { eight(code) }
    }

    /// A group's scale: a power of two, but for groups of 16.
    fn scale(&self, code: usize) -> f64 {
        if self.group == 16 { eight(code) } else { 2_f64.powi(code as i32 - 127) }
    }

    /// Codes of weights and scales, and bytes of the weights; no NaN.
    fn codes(&self, count: usize) -> (Vec<usize>, Vec<usize>, Vec<u8>) {
        // Sixteen bits of exponent and mantissa are used where weights are small, so that sums stay near one.
        let code = |at: usize| match self.bits {
            4 => at * 7919 % 10_007 % 16,
            _ => (at * 7919 % 10_007 % 64) | ((at * 31 % 2) << 7),
        };
        let weights: Vec<usize> = (0..count).map(code).collect();
        let base = if self.group == 16 { 40 } else { 125 };
        let scales = (0..count.div_ceil(self.group)).map(|at| base + at * 13 % 3).collect();
        let bytes = match self.bits {
            4 => weights.chunks(2).map(|pair| (pair[0] | pair[1] << 4) as u8).collect(),
            _ => weights.iter().map(|code| *code as u8).collect(),
        };
        (weights, scales, bytes)
    }

    fn numbers(&self, weights: &[usize], scales: &[usize], factor: f64) -> Vec<f64> {
        let number = |(at, code): (usize, &usize)| self.weight(*code) * self.scale(scales[at / self.group]) * factor;
        weights.iter().enumerate().map(number).collect()
    }

    fn matrices(&self, count: usize, matrices: usize, global: Global) -> Packed {
        let (weights, scales, bytes) = self.codes(count * matrices);
        let factor = if global == Global::Used { GLOBAL / (LARGEST[0] * LARGEST[1]) } else { 1.0 };
        let args = vec![Arg::Buffer(bytes), Arg::Buffer(scales.iter().map(|code| *code as u8).collect())];
        let strides = vec![count * self.bits / 32, count / self.group];
        let bound = (global != Global::Absent).then(bound_global);
        Packed { args, strides, global: bound, numbers: self.numbers(&weights, &scales, factor) }
    }

    fn of_threads(threads: usize, args: Vec<Arg>, check: Check) -> Case {
        let (grid, group) = (Grid::Threads([(threads / ROWS) as u32, ROWS as u32, 1]), [64, 1, 1]);
        Case { grid, group, args, memory: Vec::new(), check }
    }

    fn unpacked(self, global: Global) -> Case {
        let count = ROWS * 128;
        let (weights, scales, bytes) = self.codes(count);
        let factor = if global == Global::Used { GLOBAL / (LARGEST[0] * LARGEST[1]) } else { 1.0 };
        let expected = self.numbers(&weights, &scales, factor);
        let scales = Arg::Buffer(scales.iter().map(|code| *code as u8).collect());
        let args = vec![Arg::Buffer(bytes), scales, bound_global(), output(self.of.kind, count)];
        Format::of_threads(count * self.bits / 8, args, near(self.of.kind, expected, 2.0, 0.0))
    }

    /// A value and what became of it: within half a step, or a little beyond where a scale was rounded down.
    fn is_near(&self, value: f64, got: f64, scale: f64) -> bool {
        let size = (value / scale).abs();
        let step = match self.bits {
            4 if size < 2.0 => 0.5,
            4 if size < 4.0 => 1.0,
            4 => 2.0,
            _ => 2_f64.powi((size.log2().floor() as i32).max(-6) - 3),
        };
        let beyond = (size - LARGEST[usize::from(self.bits == 8)]).max(0.0);
        (value - got).abs() <= (0.5 * step * 1.01 + beyond) * scale + 2.0 * self.of.kind.epsilon() * value.abs()
    }

    /// The scale that a group's largest number asks for, and the nearest that there is is at most 1.42 or 1.07 of it.
    fn is_scale(&self, values: &[f64], scale: f64) -> bool {
        let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let (asked, most) =
            (largest / LARGEST[usize::from(self.bits == 8)], if self.group == 16 { 1.07 } else { 1.42 });
        scale <= asked * most && scale * most >= asked
    }

    fn packed(self, global: Global) -> Case {
        let count = ROWS * 128;
        let values = self.of.numbers(count, 154);
        let factor = if global == Global::Used { GLOBAL / (LARGEST[0] * LARGEST[1]) } else { 1.0 };
        let args = vec![
            input(self.of.kind, &values),
            output(Kind::U8, count * self.bits / 8),
            output(Kind::U8, count / self.group),
            bound_global(),
        ];
        let check = Box::new(move |outputs: &[Vec<f64>]| {
            for (at, value) in values.iter().enumerate() {
                let scale = self.scale(outputs[1][at / self.group] as usize) * factor;
                let byte = outputs[0][at * self.bits / 8] as usize;
                let code = if self.bits == 4 { byte >> (at % 2 * 4) & 15 } else { byte };
                let got = self.weight(code) * scale;
                let group = &values[at / self.group * self.group..][..self.group];
                if !(self.is_scale(group, scale) && self.is_near(*value, got, scale)) {
                    return Err(format!("{got} at {at}, not {value}, with the scale {scale}"));
                }
            }
            Ok(())
        });
        Format::of_threads(count, args, check)
    }

    fn there_and_back(self, global: Global) -> Case {
        let count = ROWS * 128;
        let values = self.of.numbers(count, 155);
        let factor = if global == Global::Used { GLOBAL / (LARGEST[0] * LARGEST[1]) } else { 1.0 };
        let args = vec![input(self.of.kind, &values), bound_global(), output(self.of.kind, count)];
        let check = Box::new(move |outputs: &[Vec<f64>]| {
            for (at, value) in values.iter().enumerate() {
                let (group, got) = (&values[at / self.group * self.group..][..self.group], outputs[0][at]);
                // The scale itself is not told: any that the group may have.
                let mut scales = (1..150).map(|code| self.scale(code) * factor);
                if !scales.any(|scale| self.is_scale(group, scale) && self.is_near(*value, got, scale)) {
                    return Err(format!("{got} at {at}, not {value}"));
                }
            }
            Ok(())
        });
        Format::of_threads(count, args, check)
    }
}
