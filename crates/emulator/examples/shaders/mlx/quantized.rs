//! Products with weights of two to eight bits, a factor and an offset for each group of them.

use super::packed::{Form, Packed, Product};
use super::types::{FLOATS, Type};
use super::{Kernel, kernel};
use crate::case::{Arg, Case, input, near, output, threads};
use crate::kind::Kind;
use openmps_emulator::Value;

const BITS: [usize; 6] = [2, 3, 4, 5, 6, 8];
const GROUPS: [usize; 3] = [128, 64, 32];
/// Types under the names that these kernels have them.
pub const TYPES: [(usize, &str); 3] = [(1, "float"), (0, "float16_t"), (2, "bfloat16_t")];

#[derive(Clone, Copy)]
struct Format {
    of: Type,
    group: usize,
    bits: usize,
    /// One factor and one offset for all groups.
    uniform: bool,
}

/// A kernel of the list: its name after type, group and bits, its template, arguments after these, and the product.
pub struct Row {
    pub name: &'static str,
    pub tail: String,
    pub template: &'static str,
    pub rest: String,
    pub product: Product,
}

fn row(name: &'static str, tail: String, template: &'static str, rest: String, product: Product) -> Row {
    Row { name, tail, template, rest, product }
}

/// The products of one format, after what its names begin with; `lanes` share a row where several vectors are multiplied at once, `wide` is
/// the template's argument for them. Forms without matrices in a row are last.
pub fn products() -> Vec<Row> {
    let mut rows = Vec::new();
    let gathered = |product: Product| Product { form: Form::Gathered, ..product };
    for (batch, form) in [(1, Form::Batched), (0, Form::Single)] {
        let mut push = |name: &'static str, tail: String, rest: String, product: Product| {
            let (tail, rest) = (format!("{tail}_batch_{batch}"), format!("{rest}, {batch}"));
            rows.push(row(name, tail, name, rest, Product { form, ..product }));
        };
        push("qmv_fast", String::new(), String::new(), Product::rows(3, 1024, 24, 8));
        push("qmv", String::new(), String::new(), Product::rows(3, 384, 21, 8));
        push("qvm", String::new(), String::new(), Product::columns(3, 45, 128));
        push("qmm_n", String::new(), String::new(), Product::tiles(37, 77, 128, false));
        for (aligned, n) in [(true, 64), (false, 45)] {
            push("qmm_t", format!("_alN_{aligned}"), format!(", {aligned}"), Product::tiles(37, 256, n, true));
        }
        for d in [64, 128] {
            push("qmv_quad", format!("_d_{d}"), format!(", {d}"), Product::quads(3, d, 77));
        }
    }
    let plain = String::new;
    rows.push(row("gather_qmv_fast", plain(), "gather_qmv_fast", plain(), gathered(Product::rows(2, 1024, 24, 8))));
    rows.push(row("gather_qmv", plain(), "gather_qmv", plain(), gathered(Product::rows(2, 384, 21, 8))));
    rows.push(row("gather_qvm", plain(), "gather_qvm", plain(), gathered(Product::columns(2, 45, 128))));
    rows.push(row("gather_qmm_n", plain(), "gather_qmm_n", plain(), gathered(Product::tiles(37, 77, 128, false))));
    for (aligned, n) in [(true, 64), (false, 45)] {
        let (tail, rest) = (format!("_alN_{aligned}"), format!(", {aligned}"));
        let product = gathered(Product::tiles(37, 256, n, true));
        rows.push(row("gather_qmm_t", tail.clone(), "gather_qmm_t", rest.clone(), product));
        let product = Product { form: Form::SplitTiles(2), ..Product::tiles(37, 256, n, true) };
        rows.push(row("qmm_t_splitk", tail, "qmm_t_splitk", rest, product));
    }
    for parts in [8, 32] {
        let (tail, rest) = (format!("_spk_{parts}"), format!(", {parts}"));
        rows.push(row("qvm_split_k", tail, "qvm_split_k", rest, Product::split(1, 128, parts)));
    }
    for (name, turned, k, n) in [("gather_qmm_rhs_nt", true, 256, 45), ("gather_qmm_rhs_nn", false, 77, 128)] {
        let tail = "_bm_16_bn_32_bk_32_wm_1_wn_2".to_owned();
        let rest = format!(", 16, 32, 32, 1, 2, {turned}");
        rows.push(row(name, tail, "gather_qmm_rhs", rest, Product::of_rows(37, k, n, turned)));
    }
    rows
}

/// The products of several vectors at once, whose rows are shared by some lanes.
pub fn wide(lanes: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for (vectors, (batch, form)) in
        [2, 3, 4, 5].into_iter().flat_map(|n| [(1, Form::Batched), (0, Form::Single)].map(|form| (n, form)))
    {
        let (tail, rest) =
            (format!("_nv_{vectors}_kl_{lanes}_batch_{batch}"), format!(", {vectors}, {lanes}, {batch}"));
        let product = Product { form, ..Product::wide(7, 384, 21, vectors, lanes) };
        rows.push(row("qmv_wide", tail, "qmv_wide", rest, product));
    }
    rows
}

/// Constants of a header that these kernels include: whether M, N and K are multiples of a tile's sides.
pub fn constants(product: Option<&Product>) -> Vec<(u32, Value)> {
    let is_aligned = product.is_some_and(|product| product.form == Form::OfRows && product.k % 32 == 0);
    vec![(200, Value::Bool(false)), (201, Value::Bool(false)), (202, Value::Bool(is_aligned))]
}

/// A kernel with these constants.
pub fn with_constants(mut kernel: Kernel, product: Option<&Product>) -> Kernel {
    kernel.variants.iter_mut().for_each(|variant| variant.constants = constants(product));
    kernel
}

pub fn kernels() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (bits, group) in BITS.into_iter().flat_map(|bits| GROUPS.map(|group| (bits, group))) {
        for (at, text) in TYPES {
            let format = Format { of: FLOATS[at], group, bits, uniform: false };
            let (name, arguments) = (format!("{text}_gs_{group}_b_{bits}"), format!("{text}, {group}, {bits}"));
            let mut push = |of: &str, case: fn(&Format) -> Case| {
                let kernel = kernel(format!("{of}_{name}"), format!("{of}<{arguments}>"), move || case(&format));
                list.push(with_constants(kernel, None));
            };
            push("affine_quantize", Format::packed);
            push("affine_dequantize", Format::unpacked);
            for Row { name: of, tail, template, rest, product } in products().into_iter().chain(wide(8)) {
                // A group that is longer than a row has the first group's factor for every row.
                let format = Format { uniform: product.by_result && group > product.k, ..format };
                let (name, instance) =
                    (format!("affine_{of}_{name}{tail}"), format!("affine_{template}<{arguments}{rest}>"));
                let case = move || product.case(format.of.kind, |count, matrices| format.matrices(count, matrices));
                list.push(with_constants(kernel(name, instance, case), Some(&product)));
            }
        }
    }
    list
}

/// Rows of weights: bits in order, the lowest first, and what they stand for.
struct Weights {
    bytes: Vec<u8>,
    scales: Vec<f64>,
    biases: Vec<f64>,
    numbers: Vec<f64>,
}

impl Format {
    fn weights(&self, count: usize) -> Weights {
        let codes: Vec<usize> = (0..count).map(|at| at * 7919 % 10_007 % (1 << self.bits)).collect();
        let per_group = |seed: u64| {
            let numbers = self.of.numbers(count.div_ceil(self.group), seed);
            if self.uniform { vec![numbers[0]; numbers.len()] } else { numbers }
        };
        let scales: Vec<f64> = per_group(150).iter().map(|x| self.of.kind.round(x / (1 << self.bits) as f64)).collect();
        let biases = per_group(151);
        let number = |(at, code): (usize, &usize)| scales[at / self.group] * *code as f64 + biases[at / self.group];
        let numbers = codes.iter().enumerate().map(number).collect();
        let mut bytes = vec![0_u8; count * self.bits / 8];
        for at in 0..count * self.bits {
            bytes[at / 8] |= ((codes[at / self.bits] >> (at % self.bits) & 1) as u8) << (at % 8);
        }
        Weights { bytes, scales, biases, numbers }
    }

    fn code(&self, bytes: &[f64], at: usize) -> f64 {
        let bit = |at: usize| (bytes[at / 8] as usize) >> (at % 8) & 1;
        (0..self.bits).map(|place| bit(at * self.bits + place) << place).sum::<usize>() as f64
    }

    /// Weights that a byte, or the fewest whole bytes, have.
    fn per_pack(&self) -> usize {
        match self.bits {
            3 | 5 => 8,
            6 => 4,
            bits => 8 / bits,
        }
    }

    fn unpacked(&self) -> Case {
        let count = 6 * self.group;
        let weights = self.weights(count);
        let kind = self.of.kind;
        let args = vec![
            Arg::Buffer(weights.bytes),
            input(kind, &weights.scales),
            input(kind, &weights.biases),
            output(kind, count),
        ];
        threads(count / self.per_pack(), args, near(kind, weights.numbers, 2.0, 2.0))
    }

    /// Each weight is within half a step of what its bits stand for, and a little for the roundings of step and offset.
    fn packed(&self) -> Case {
        let (count, format, kind) = (6 * self.group, *self, self.of.kind);
        let values = self.of.numbers(count, 152);
        let args = vec![
            input(kind, &values),
            output(Kind::U8, count * self.bits / 8),
            output(kind, count / self.group),
            output(kind, count / self.group),
        ];
        let check = Box::new(move |outputs: &[Vec<f64>]| {
            for (at, value) in values.iter().enumerate() {
                let (scale, bias) = (outputs[1][at / format.group], outputs[2][at / format.group]);
                let got = scale * format.code(&outputs[0], at) + bias;
                let most = 4.2 / ((1 << format.bits) - 1) as f64;
                // The step is made to fit one end of a group; the other may be cut off.
                let code = format.code(&outputs[0], at);
                let is_end = code == 0.0 || code == f64::from((1 << format.bits) - 1);
                let share = if is_end { 1.02 } else { 0.51 };
                if !((got - value).abs() <= share * scale.abs() + 4.0 * kind.epsilon() && scale.abs() <= 2.0 * most) {
                    return Err(format!("{got} at {at}, not {value}, in steps of {scale}"));
                }
            }
            Ok(())
        });
        threads(count / (self.group / 32), args, check)
    }

    /// Weights of some matrices, as they are bound.
    fn matrices(&self, count: usize, matrices: usize) -> Packed {
        let weights = self.weights(count * matrices);
        let kind = self.of.kind;
        let args = vec![Arg::Buffer(weights.bytes), input(kind, &weights.scales), input(kind, &weights.biases)];
        let strides = vec![count * self.bits / 32, count / self.group, count / self.group];
        Packed { args, strides, global: None, numbers: weights.numbers }
    }
}
