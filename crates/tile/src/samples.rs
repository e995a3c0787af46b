//! Kernels that tests share.

use crate::kernel::*;
use crate::types::{Scalar, Type};
use crate::{Builder, Kernel};

/// `out[i] = x[i] + y[i]` for `i` below `n`, in tiles of `size`.
pub fn vector_add(size: usize) -> Kernel {
    let mut b = Builder::new("vector_add");
    let [x, y, out] = ["x", "y", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
    let n = b.parameter("n", Type::scalar(Scalar::I64));
    let (id, lanes, count) = (b.program_id(0), b.range(size), b.integer(size as i64, Scalar::I64));
    let start = b.multiply(id, count);
    let start = b.splat(start, &[size]);
    let offsets = b.add(start, lanes);
    let limit = b.splat(n, &[size]);
    let mask = b.compare(Compare::Less, offsets, limit);
    let loaded = [x, y].map(|pointer| {
        let pointers = b.add_pointer(pointer, offsets);
        b.load(pointers, Some(mask), None)
    });
    let sum = b.add(loaded[0], loaded[1]);
    let pointers = b.add_pointer(out, offsets);
    b.store(pointers, sum, Some(mask));
    b.finish()
}

/// The softmax of each row of `columns` elements, one row a program, `size` columns at a time.
pub fn row_softmax(size: usize) -> Kernel {
    let mut b = Builder::new("row_softmax");
    let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
    let columns = b.parameter("columns", Type::scalar(Scalar::I64));
    let row = b.program_id(0);
    let offset = b.multiply(row, columns);
    let [x, out] = [x, out].map(|pointer| b.add_pointer(pointer, offset));
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(size as i64, Scalar::I64));
    let bounds = [zero, columns, step];
    let lowest = b.constant(f64::NEG_INFINITY, &Type::scalar(Scalar::F32));
    let largest = b.for_loop(bounds, &[lowest], |b, start, carried| {
        let (loaded, ..) = row_part(b, x, start, columns, size);
        let largest = b.reduce(Combine::Maximum, loaded, 0);
        vec![b.maximum(carried[0], largest)]
    })[0];
    let none = b.constant(0.0, &Type::scalar(Scalar::F32));
    let sum = b.for_loop(bounds, &[none], |b, start, carried| {
        let (loaded, ..) = row_part(b, x, start, columns, size);
        let exponential = shifted_exp(b, loaded, largest);
        let sum = b.reduce(Combine::Sum, exponential, 0);
        vec![b.add(carried[0], sum)]
    })[0];
    b.for_loop(bounds, &[], |b, start, _| {
        let (loaded, offsets, mask) = row_part(b, x, start, columns, size);
        let exponential = shifted_exp(b, loaded, largest);
        let sum = b.splat(sum, &[size]);
        let result = b.divide(exponential, sum);
        let pointers = b.add_pointer(out, offsets);
        b.store(pointers, result, Some(mask));
        Vec::new()
    });
    b.finish()
}

/// The elements of a row from `start` on, `-inf` behind its end; their offsets and which there are.
fn row_part(b: &mut Builder, x: Value, start: Value, columns: Value, size: usize) -> (Value, Value, Value) {
    let lanes = b.range(size);
    let start = b.splat(start, &[size]);
    let offsets = b.add(start, lanes);
    let columns = b.splat(columns, &[size]);
    let mask = b.compare(Compare::Less, offsets, columns);
    let pointers = b.add_pointer(x, offsets);
    let other = b.constant(f64::NEG_INFINITY, &Type::tile(Scalar::F32, &[size]));
    (b.load(pointers, Some(mask), Some(other)), offsets, mask)
}

fn shifted_exp(b: &mut Builder, x: Value, largest: Value) -> Value {
    let largest = b.splat_like(largest, x);
    let shifted = b.subtract(x, largest);
    b.exp(shifted)
}
