//! Rotary embedding as a kernel of tiles, for GPUs.

use crate::error::Result;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{moved, of_program, offset};
use crate::view::{Strides, View};
use openmps_host::native::rope::Rope;
use openmps_tile::{Builder, DType, Kernel, Scalar, Type, Value};

const OPERATOR: &str = "rope";

/// Pairs of a tile.
const TILE: usize = 512;

/// x, cosines and sines, the strides of both tables [batch, row, pair], and a dense output.
pub(super) fn run(queue: &Queue, sizes: &Rope, inputs: &[View], angles: &[Strides; 2], out: &View) -> Result<()> {
    let x = &inputs[0];
    let key = Key::Other(OPERATOR, vec![x.dtype], vec![sizes.interleaved.into(), sizes.inverse.into()]);
    let pipeline = program::get(OPERATOR, &key, || kernel(x.dtype, sizes.interleaved, sizes.inverse))?;
    let mut arguments: Vec<u64> = inputs.iter().chain([out]).map(|view| view.address as u64).collect();
    arguments.extend([sizes.heads, sizes.rows, sizes.pairs].map(|size| size as u64));
    let strides = x.strides.iter().chain(&angles[0]).chain(&angles[1]);
    arguments.extend(strides.map(|&stride| stride as u64));
    let grid = [(sizes.rows * sizes.pairs).div_ceil(TILE), sizes.heads, sizes.batch];
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive.
    unsafe { program::launch(queue, OPERATOR, &pipeline, grid, &arguments) }
}

/// Pointers to `row * stride + place * step`.
fn pointers_to(b: &mut Builder, pointer: Value, by: [(Value, Value); 2]) -> Value {
    let offset = offset(b, by[0], [by[1]]);
    b.add_pointer(pointer, offset)
}

fn kernel(dtype: DType, interleaved: bool, inverse: bool) -> Kernel {
    let mut b = Builder::new(OPERATOR);
    let compute = dtype.compute();
    let [x, cos, sin, out] = ["x", "cos", "sin", "out"].map(|name| b.parameter(name, Type::pointer(dtype.into())));
    let index = Type::scalar(Scalar::I64);
    let [heads, rows, pairs] = ["heads", "rows", "pairs"].map(|name| b.parameter(name, index.clone()));
    let of_x = [0, 1, 2, 3].map(|d| b.parameter(format!("x_stride{d}"), index.clone()));
    let [of_cos, of_sin] =
        ["cos", "sin"].map(|name| [0, 1, 2].map(|d| b.parameter(format!("{name}_stride{d}"), index.clone())));

    let (head, batch) = (b.program_id(1), b.program_id(2));
    let count = b.multiply(rows, pairs);
    let (at, inside) = of_program(&mut b, 0, TILE, count);
    let by = b.splat_like(pairs, at);
    let (row, pair) = (b.divide(at, by), b.remainder(at, by));
    // Where both elements of a pair are in their row.
    let (one, two) = (b.integer(1, Scalar::I64), b.integer(2, Scalar::I64));
    let size = b.multiply(pairs, two);
    let places = if interleaved {
        let (two, one) = (b.splat_like(two, at), b.splat_like(one, at));
        let first = b.multiply(pair, two);
        [first, b.add(first, one)]
    } else {
        [pair, b.add(pair, by)]
    };

    let x = moved(&mut b, x, [(batch, of_x[0]), (head, of_x[1])]);
    let [first_of_pair, second_of_pair] = places.map(|place| {
        let pointers = pointers_to(&mut b, x, [(row, of_x[2]), (place, of_x[3])]);
        let loaded = b.load(pointers, Some(inside), None);
        convert(&mut b, loaded, dtype, compute)
    });
    let [cos, sin] = [(cos, of_cos), (sin, of_sin)].map(|(table, strides)| {
        let table = moved(&mut b, table, [(batch, strides[0])]);
        let pointers = pointers_to(&mut b, table, [(row, strides[1]), (pair, strides[2])]);
        let loaded = b.load(pointers, Some(inside), None);
        convert(&mut b, loaded, dtype, compute)
    });
    let sin = if inverse { b.negate(sin) } else { sin };
    let (a, c) = (b.multiply(first_of_pair, cos), b.multiply(second_of_pair, sin));
    let (d, e) = (b.multiply(first_of_pair, sin), b.multiply(second_of_pair, cos));
    let turned = [b.subtract(a, c), b.add(d, e)];
    // The output is dense: [batch, heads, rows, size].
    let of_head = b.multiply(rows, size);
    let of_batch = b.multiply(heads, of_head);
    let out = moved(&mut b, out, [(batch, of_batch), (head, of_head)]);
    for (place, value) in places.into_iter().zip(turned) {
        let pointers = pointers_to(&mut b, out, [(row, size), (place, one)]);
        let value = convert(&mut b, value, compute, dtype);
        b.store(pointers, value, Some(inside));
    }
    b.finish()
}
