//! Dropout as a kernel of tiles, for GPUs. It keeps the same elements as the native kernel.

use super::Dropout;
use crate::error::Result;
use crate::operator::Operator;
use crate::operators::copy::Copy;
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles;
use crate::view::View;
use openmps_tile::{Binary, Builder, Cast, Compare, DType, Kernel, Number, Scalar, Type, Value};

const OPERATOR: &str = "dropout";

/// Elements of a tile.
const TILE: usize = 1024;

/// The result and the mask of kept elements, both dense.
pub(super) fn dropout(queue: &Queue, dropout: &Dropout, scale: f64, x: &View, outputs: &[View]) -> Result<()> {
    let (out, mask) = (&outputs[0], &outputs[1]);
    if x.is_empty() {
        return Ok(());
    }
    // The kernel counts elements, so it wants them dense; it may read what it overwrites.
    let mut from = x;
    if !x.is_dense() {
        Copy.run(queue, std::slice::from_ref(x), std::slice::from_ref(out))?;
        from = out;
    }
    let pipeline = program::get(OPERATOR, &Key::Other(OPERATOR, vec![x.dtype], Vec::new()), || kernel(x.dtype))?;
    let bound = (dropout.probability * (1_u64 << 32) as f64).round() as u64;
    let scale = scalar_bits(Number::Float(scale), x.dtype.compute());
    let (seed, offset) = (dropout.source.seed, dropout.source.offset);
    let pointers = [from.address, out.address, mask.address].map(|address| address as u64);
    let arguments = [&pointers[..], &[out.len() as u64, seed, offset, bound, scale]].concat();
    // SAFETY: three dense tensors of one shape, which the frontend keeps alive.
    unsafe { program::launch(queue, OPERATOR, &pipeline, [out.len().div_ceil(TILE), 1, 1], &arguments) }
}

fn kernel(dtype: DType) -> Kernel {
    let mut b = Builder::new(OPERATOR);
    let compute = dtype.compute();
    let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(dtype.into())));
    let mask = b.parameter("mask", Type::pointer(Scalar::I8));
    let index = Type::scalar(Scalar::I64);
    let [count, seed, offset, bound] =
        ["count", "seed", "offset", "bound"].map(|name| b.parameter(name, index.clone()));
    let scale = b.parameter("scale", Type::scalar(compute.into()));
    let (at, inside) = tiles::of_program(&mut b, 0, TILE, count);
    let random = number(&mut b, at, seed, offset);
    let random = b.cast(Cast::Unsigned, random, Scalar::I64);
    let bound = b.splat_like(bound, random);
    let kept = b.compare(Compare::GreaterEqual, random, bound);

    let pointers = b.add_pointer(x, at);
    let loaded = b.load(pointers, Some(inside), None);
    let loaded = convert(&mut b, loaded, dtype, compute);
    let (scale, zeros) = (b.splat_like(scale, loaded), b.constant_like(0.0, loaded));
    let scaled = b.multiply(loaded, scale);
    let result = b.select(kept, scaled, zeros);
    let result = convert(&mut b, result, compute, dtype);
    let pointers = b.add_pointer(out, at);
    b.store(pointers, result, Some(inside));
    let pointers = b.add_pointer(mask, at);
    let kept = b.cast(Cast::Unsigned, kept, Scalar::I8);
    b.store(pointers, kept, Some(inside));
    b.finish()
}

/// Number `at` of a source, as `openmps_host::native::random` has it: 64 of them are the four words of 16 neighbouring counters, all first
/// words first.
fn number(b: &mut Builder, at: Value, seed: Value, offset: Value) -> Value {
    let sixteen = b.constant_like(16.0, at);
    let (line, lane) = (b.divide(at, sixteen), b.remainder(at, sixteen));
    let four = b.constant_like(4.0, at);
    let (block, word) = (b.divide(line, four), b.remainder(line, four));
    let counter = b.multiply(block, sixteen);
    let counter = b.add(counter, lane);
    let [key, stream] = [seed, offset].map(|value| halves(b, value));
    let [low, high] = halves(b, counter);
    let [third, fourth] = stream.map(|half| b.splat_like(half, low));
    let words = philox(b, [low, high, third, fourth], key);
    // The word that this element takes.
    (1..4).fold(words[0], |chosen, i| {
        let number = b.constant_like(i as f64, word);
        let takes = b.compare(Compare::Equal, word, number);
        b.select(takes, words[i], chosen)
    })
}

/// The lower and the upper 32 bits.
fn halves(b: &mut Builder, x: Value) -> [Value; 2] {
    let distance = b.constant_like(32.0, x);
    let upper = b.binary(Binary::ShiftRightUnsigned, x, distance);
    [x, upper].map(|half| b.cast(Cast::Signed, half, Scalar::I32))
}

/// Philox 4x32 in ten rounds.
fn philox(b: &mut Builder, mut words: [Value; 4], key: [Value; 2]) -> [Value; 4] {
    let constant = |b: &mut Builder, value: u32, like: Value| {
        let scalar = b.integer(i64::from(value as i32), Scalar::I32);
        b.splat_like(scalar, like)
    };
    let multipliers = [0xD251_1F53, 0xCD9E_8D57].map(|value| constant(b, value, words[0]));
    for round in 0..10_u32 {
        let [low, high] = [(0, 0x9E37_79B9_u32), (1, 0xBB67_AE85)].map(|(i, weyl)| {
            let step = b.integer(i64::from(weyl.wrapping_mul(round) as i32), Scalar::I32);
            let sum = b.add(key[i], step);
            b.splat_like(sum, words[0])
        });
        let [a, c] = [(0, 0), (2, 1)].map(|(word, i): (usize, usize)| {
            let upper = b.binary(Binary::MultiplyHighUnsigned, words[word], multipliers[i]);
            (b.multiply(words[word], multipliers[i]), upper)
        });
        let mix = |b: &mut Builder, x: Value, y: Value, key: Value| {
            let mixed = b.binary(Binary::Xor, x, y);
            b.binary(Binary::Xor, mixed, key)
        };
        words = [mix(b, c.1, words[1], low), c.0, mix(b, a.1, words[3], high), a.0];
    }
    words
}
