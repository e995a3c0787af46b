//! Products with weights of two to eight bits, a factor and an offset for each group of them.

use super::types::{FLOATS, Type};
use super::{Kernel, kernel};
use crate::case::{Arg, Case, groups, input, ints, near, output, sizes, threads};
use crate::kind::Kind;
use openmps_emulator::Value;

const BITS: [usize; 6] = [2, 3, 4, 5, 6, 8];
const GROUPS: [usize; 3] = [128, 64, 32];
/// Types under the names that these kernels have them.
const TYPES: [(usize, &str); 3] = [(1, "float"), (0, "float16_t"), (2, "bfloat16_t")];
const BATCH: usize = 2;
/// What has no case here yet: name and arguments after type, group and bits.
const WITHOUT_CASE: [(&str, &[&str]); 9] = [
    ("affine_gather_qmv_fast", &[""]),
    ("affine_gather_qmv", &[""]),
    ("affine_gather_qvm", &[""]),
    ("affine_gather_qmm_n", &[""]),
    ("affine_gather_qmm_t", &["_alN_true", "_alN_false"]),
    ("affine_qvm_split_k", &["_spk_8", "_spk_32"]),
    ("affine_qmm_t_splitk", &["_alN_true", "_alN_false"]),
    ("affine_gather_qmm_rhs", &["_nt", "_nn"]),
    ("affine_qmv_wide", &["_nv_2_0", "_nv_3_0", "_nv_4_0", "_nv_5_0", "_nv_2_1", "_nv_3_1", "_nv_4_1", "_nv_5_1"]),
];

#[derive(Clone, Copy)]
struct Format {
    of: Type,
    group: usize,
    bits: usize,
}

/// A form of product: rows of x, elements of a row, elements of a row of results, and whether the weights' rows are those of the results.
#[derive(Clone, Copy)]
struct Product {
    m: usize,
    k: usize,
    n: usize,
    by_result: bool,
    batched: bool,
    /// Whether M is an argument.
    tells_rows: bool,
    /// Threadgroups in x and y, and threads.
    grid: [usize; 2],
    threads: [usize; 3],
}

pub fn kernels() -> Vec<Kernel> {
    let mut list = all();
    // Constants of a header that they include.
    let aligned = || [200, 201, 202].map(|at| (at, Value::Bool(false))).to_vec();
    list.iter_mut().flat_map(|kernel| &mut kernel.variants).for_each(|variant| variant.constants = aligned());
    list
}

fn all() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (bits, group) in BITS.into_iter().flat_map(|bits| GROUPS.map(|group| (bits, group))) {
        for (at, text) in TYPES {
            let format = Format { of: FLOATS[at], group, bits };
            let (name, arguments) = (format!("{text}_gs_{group}_b_{bits}"), format!("{text}, {group}, {bits}"));
            let instance = |of: &str, rest: &str| format!("{of}<{arguments}{rest}>");
            list.push(kernel(format!("affine_quantize_{name}"), instance("affine_quantize", ""), move || {
                format.packed()
            }));
            list.push(kernel(format!("affine_dequantize_{name}"), instance("affine_dequantize", ""), move || {
                format.unpacked()
            }));
            for batched in [true, false] {
                let batch = u8::from(batched);
                let mut push = |of: &str, tail: &str, rest: &str, product: Product| {
                    let instance = instance(of, &format!("{rest}, {batch}"));
                    let product = Product { batched, ..product };
                    list.push(kernel(format!("{of}_{name}{tail}_batch_{batch}"), instance, move || {
                        format.product(product)
                    }));
                };
                push("affine_qmv_fast", "", "", Product::rows(3, 1024, 24));
                push("affine_qmv", "", "", Product::rows(3, 384, 21));
                push("affine_qvm", "", "", Product::columns(3, 45, 128));
                push("affine_qmm_n", "", "", Product::tiles(37, 77, 128, false));
                push("affine_qmm_t", "_alN_true", ", true", Product::tiles(37, 256, 64, true));
                push("affine_qmm_t", "_alN_false", ", false", Product::tiles(37, 256, 45, true));
                for d in [64, 128] {
                    let (tail, rest) = (format!("_d_{d}"), format!(", {d}"));
                    if d >= group {
                        push("affine_qmv_quad", &tail, &rest, Product::quads(3, d, 77));
                    }
                }
                if group > 64 {
                    // A group is longer than the row.
                    list.push(skipped(format!("affine_qmv_quad_{name}_d_64_batch_{batch}")));
                }
            }
            for (of, tails) in WITHOUT_CASE {
                list.extend(tails.iter().map(|tail| skipped(format!("{of}_{name}{tail}"))));
            }
        }
    }
    list
}

fn skipped(name: String) -> Kernel {
    Kernel { name, instance: None, variants: Vec::new() }
}

impl Product {
    const fn of(m: usize, k: usize, n: usize, by_result: bool, grid: [usize; 2], threads: [usize; 3]) -> Product {
        Product { m, k, n, by_result, batched: false, tells_rows: false, grid, threads }
    }

    /// Eight results a threadgroup.
    fn rows(m: usize, k: usize, n: usize) -> Product {
        Product::of(m, k, n, true, [m, n.div_ceil(8)], [32, 2, 1])
    }

    /// 64 results a threadgroup.
    fn columns(m: usize, k: usize, n: usize) -> Product {
        Product::of(m, k, n, false, [m, n.div_ceil(64)], [32, 2, 1])
    }

    fn quads(m: usize, k: usize, n: usize) -> Product {
        Product::of(m, k, n, true, [m, n.div_ceil(64)], [32, 1, 1])
    }

    fn tiles(m: usize, k: usize, n: usize, by_result: bool) -> Product {
        let product = Product::of(m, k, n, by_result, [n.div_ceil(32), m.div_ceil(32)], [32, 2, 2]);
        Product { tells_rows: true, ..product }
    }
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
        let per_group = |seed: u64| self.of.numbers(count / self.group, seed);
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

    fn product(&self, product: Product) -> Case {
        let Product { m, k, n, by_result, batched, .. } = product;
        let (batch, kind) = (if batched { BATCH } else { 1 }, self.of.kind);
        let weights = self.weights(batch * k * n);
        let x = self.of.numbers(batch * m * k, 153);
        let mut expected = Vec::new();
        for (of_batch, row) in x.chunks(k).enumerate().map(|(at, row)| (at / m, row)) {
            let weights = &weights.numbers[of_batch * k * n..][..k * n];
            let place = |at: usize, column: usize| if by_result { column * k + at } else { at * n + column };
            expected.extend((0..n).map(|column| (0..k).map(|at| row[at] * weights[place(at, column)]).sum::<f64>()));
        }
        let mut args = vec![Arg::Buffer(weights.bytes), input(kind, &weights.scales), input(kind, &weights.biases)];
        args.extend([input(kind, &x), output(kind, expected.len()), ints(&[k]), ints(&[n])]);
        if product.tells_rows {
            args.push(ints(&[m]));
        }
        args.extend([ints(&[1]), ints(&[batch, m, k]), sizes(&[m * k]), ints(&[1]), ints(&[batch, n, k])]);
        args.extend([sizes(&[k * n * self.bits / 32]), sizes(&[k * n / self.group]), sizes(&[k * n / self.group])]);
        let [x, y] = product.grid;
        // float32 is as exact as its sums are; others round weights first.
        let scale = if kind == Kind::F32 { k as f64 } else { 16.0 };
        groups([x, y, batch], product.threads, args, near(kind, expected, 8.0, scale))
    }
}
