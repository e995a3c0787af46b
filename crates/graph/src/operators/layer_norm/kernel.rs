//! The kernels of layer norm and RMS norm: rows that fit a tile in one piece, others in several.

use super::LayerNorm;
use crate::operator::Operator;
use crate::rows::{Piece, RowBlock, convert};
use crate::view::View;
use openmps_tile::{Builder, Cast, Combine, Compare, DType, Kernel, Scalar, Type, Value};

/// The kernel's parameters.
struct Parameters {
    x: Value,
    y: Value,
    statistics: Vec<Value>,
    count: Value,
    length: Value,
    from: [Value; 2],
    to: [Value; 2],
    epsilon: Value,
    /// Scale and bias: pointer, stride, element type.
    weights: Vec<(Value, Value, DType)>,
}

impl LayerNorm {
    fn parameters(&self, b: &mut Builder, inputs: &[View]) -> Parameters {
        let dtype = inputs[0].dtype;
        let x = b.parameter("x", Type::pointer(dtype.into()));
        let y = b.parameter("y", Type::pointer(dtype.into()));
        let names: &[&str] = if self.statistics { &["mean", "variance"] } else { &[] };
        let compute = Scalar::from(dtype.compute());
        let statistics = names.iter().map(|&name| b.parameter(name, Type::pointer(compute))).collect();
        let [count, length, from_row, from_column, to_row] = ["rows", "length", "from_row", "from_column", "to_row"]
            .map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
        // Not always float64, which Apple's GPUs lack.
        let epsilon = b.parameter("epsilon", Type::scalar(compute));
        let weights = inputs[1..]
            .iter()
            .enumerate()
            .map(|(i, weight)| {
                let pointer = b.parameter(format!("weight{i}"), Type::pointer(weight.dtype.into()));
                let stride = b.parameter(format!("weight_stride{i}"), Type::scalar(Scalar::I64));
                (pointer, stride, weight.dtype)
            })
            .collect();
        let one = b.integer(1, Scalar::I64);
        Parameters {
            x,
            y,
            statistics,
            count,
            length,
            from: [from_row, from_column],
            to: [to_row, one],
            epsilon,
            weights,
        }
    }

    pub(super) fn kernel(&self, inputs: &[View], width: Option<usize>) -> Kernel {
        let mut b = Builder::new(self.name());
        let p = self.parameters(&mut b, inputs);
        let dtype = inputs[0].dtype;
        match width {
            Some(width) => self.short(&mut b, &p, dtype, width),
            None => self.long(&mut b, &p, dtype),
        }
        b.finish()
    }

    fn short(&self, b: &mut Builder, p: &Parameters, dtype: DType, width: usize) {
        let compute = dtype.compute();
        let rows = RowBlock::new(b, RowBlock::rows_for(width), width, p.count);
        let from = b.integer(0, Scalar::I64);
        let piece = rows.piece(b, from, p.length);
        let x = rows.load(b, p.x, p.from, &piece, (dtype, compute));
        let (mut centred, mut mean) = (x, None);
        if self.centred {
            let average = |b: &mut Builder, x: Value| {
                let x = piece.or(b, x, 0.0);
                let sum = b.reduce(Combine::Sum, x, 1);
                over_length(b, sum, p.length)
            };
            let distance = |b: &mut Builder, mean: Value| {
                let along = rows.along(b, mean);
                b.subtract(x, along)
            };
            let mut value = average(b, x);
            if has_rounded_sums(dtype) {
                let distance = distance(b, value);
                let shift = average(b, distance);
                value = b.add(value, shift);
            }
            centred = distance(b, value);
            mean = Some(value);
        }
        let squares = b.multiply(centred, centred);
        // Beyond the row's end the distance from the mean is not zero, and must not count.
        let squares = piece.or(b, squares, 0.0);
        let sum = b.reduce(Combine::Sum, squares, 1);
        let variance = over_length(b, sum, p.length);
        let inverse = self.inverse_deviation(b, p, variance);
        let inverse = rows.along(b, inverse);
        let y = b.multiply(centred, inverse);
        let y = self.weighted(b, p, &rows, y, &piece, compute);
        rows.store(b, p.y, p.to, &piece, y, (compute, dtype));
        self.store_statistics(b, p, &rows, mean, variance, compute);
    }

    /// A row too long for registers: its sum, its squared distances from the mean, its results, piece by piece.
    fn long(&self, b: &mut Builder, p: &Parameters, dtype: DType) {
        const PIECE: usize = 4096;
        let compute = dtype.compute();
        let rows = RowBlock::new(b, 1, PIECE, p.count);
        let (zero, step) = (b.integer(0, Scalar::I64), b.integer(PIECE as i64, Scalar::I64));
        let bounds = [zero, p.length, step];
        let initial = b.constant(0.0, &Type::tile(compute.into(), &[1, PIECE]));
        let mut mean = self.centred.then(|| {
            let sum = b.for_loop(bounds, &[initial], |b, at, carried| {
                let piece = rows.piece(b, at, p.length);
                let x = rows.load(b, p.x, p.from, &piece, (dtype, compute));
                vec![b.add(carried[0], x)]
            })[0];
            let sum = b.reduce(Combine::Sum, sum, 1);
            over_length(b, sum, p.length)
        });
        let first = mean.map(|mean| rows.along(b, mean));
        let is_moved = self.centred && has_rounded_sums(dtype);
        let sums = b.for_loop(bounds, &vec![initial; 1 + usize::from(is_moved)], |b, at, carried| {
            let piece = rows.piece(b, at, p.length);
            let x = rows.load(b, p.x, p.from, &piece, (dtype, compute));
            let distance = first.map_or(x, |mean| b.subtract(x, mean));
            // Beyond the row's end the distance from the mean is not zero, and must not count.
            let distance = piece.or(b, distance, 0.0);
            let square = b.multiply(distance, distance);
            carried.iter().zip([square, distance]).map(|(&sum, term)| b.add(sum, term)).collect()
        });
        let sum = b.reduce(Combine::Sum, sums[0], 1);
        let mut variance = over_length(b, sum, p.length);
        if let (Some(first), Some(&distances)) = (mean, sums.get(1)) {
            let sum = b.reduce(Combine::Sum, distances, 1);
            let shift = over_length(b, sum, p.length);
            mean = Some(b.add(first, shift));
            variance = from_moved_mean(b, variance, shift);
        }
        let mean_along = mean.map(|mean| rows.along(b, mean));
        let inverse = self.inverse_deviation(b, p, variance);
        let inverse = rows.along(b, inverse);
        b.for_loop(bounds, &[], |b, at, _| {
            let piece = rows.piece(b, at, p.length);
            let x = rows.load(b, p.x, p.from, &piece, (dtype, compute));
            let centred = mean_along.map_or(x, |mean| b.subtract(x, mean));
            let y = b.multiply(centred, inverse);
            let y = self.weighted(b, p, &rows, y, &piece, compute);
            rows.store(b, p.y, p.to, &piece, y, (compute, dtype));
            vec![]
        });
        self.store_statistics(b, p, &rows, mean, variance, compute);
    }

    fn inverse_deviation(&self, b: &mut Builder, p: &Parameters, variance: Value) -> Value {
        let epsilon = b.splat_like(p.epsilon, variance);
        let sum = b.add(variance, epsilon);
        b.rsqrt(sum)
    }

    fn weighted(
        &self,
        b: &mut Builder,
        p: &Parameters,
        rows: &RowBlock,
        y: Value,
        piece: &Piece,
        compute: DType,
    ) -> Value {
        let mut y = y;
        for (number, &(pointer, stride, dtype)) in p.weights.iter().enumerate() {
            let weight = rows.load_per_column(b, pointer, stride, piece);
            let weight = convert(b, weight, dtype, compute);
            let weight = rows.down(b, weight);
            y = if number == 0 && self.scale { b.multiply(y, weight) } else { b.add(y, weight) };
        }
        y
    }

    fn store_statistics(
        &self,
        b: &mut Builder,
        p: &Parameters,
        rows: &RowBlock,
        mean: Option<Value>,
        variance: Value,
        compute: DType,
    ) {
        if let [mean_out, variance_out] = p.statistics[..] {
            let mean = mean.unwrap_or_else(|| b.constant_like(0.0, variance));
            rows.store_per_row(b, mean_out, mean, (compute, compute));
            rows.store_per_row(b, variance_out, variance, (compute, compute));
        }
    }
}

/// Whether sums of rows are rounded so that the mean of equal elements may not be that element. It is then moved by the mean of the distances
/// from it: by how much rounding has moved it. (Sums of a half's equal elements fit float32.)
fn has_rounded_sums(dtype: DType) -> bool {
    dtype.compute() == dtype
}

/// The variance of what has this mean square around a mean that was moved since.
fn from_moved_mean(b: &mut Builder, square: Value, shift: Value) -> Value {
    let moved = b.multiply(shift, shift);
    let variance = b.subtract(square, moved);
    let zero = b.constant_like(0.0, variance);
    let variance = b.maximum(variance, zero);
    // Where squares overflow there may be no difference.
    let infinity = b.constant_like(f64::INFINITY, square);
    let is_infinite = b.compare(Compare::Equal, square, infinity);
    b.select(is_infinite, square, variance)
}

fn over_length(b: &mut Builder, sum: Value, length: Value) -> Value {
    let scalar = b.scalar_of(sum);
    let length = b.cast(Cast::SignedToFloat, length, scalar);
    let length = b.splat_like(length, sum);
    b.divide(sum, length)
}
