//! Layer norm and RMS norm over the last dimensions. MPS has no class for either: they are own kernels on every device.

mod gradient;

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, call, is_host};
use crate::operator::{Meta, Operator};
use crate::operators::full::Full;
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::reference::Array;
use crate::rows::{Piece, RowBlock, Rows, convert, tile_width};
use crate::vendor::{VendorGraph, try_vendor};
use crate::view::View;
use openmps_host::native::layer_norm as native;
use openmps_runtime::vendor::graph::{Operation, Reduction};
use openmps_runtime::vendor::{Family, VendorCall};
use openmps_tile::{Builder, Cast, Combine, Compare, DType, Kernel, Number, Scalar, Type, Value, dtype};

/// Each row brought to mean 0 and variance 1 (RMS norm: to mean square 1), times a scale, plus a bias.
///
/// Inputs: x, then the scale if there is one, then the bias if there is one, each of the row's size. Outputs: y, then for
/// layer norm with statistics the rows' means and variances in the compute type.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// The first dimension of a row; negative ones count from the end.
    pub begin: i64,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether a scale is given.
    pub scale: bool,
    /// Whether a bias is given.
    pub bias: bool,
    /// Whether the mean is subtracted; RMS norm does not.
    pub centred: bool,
    /// Whether means and variances are outputs.
    pub statistics: bool,
}

/// Mean and variance of rows of nothing.
const NOTHING: Number = Number::Float(f64::NAN);

impl LayerNorm {
    fn begin(&self, rank: usize) -> Result<usize> {
        axis_of(self.name(), self.begin, rank)
    }

    fn vendor_call(&self, inputs: &[View], begin: usize, outputs: &[View]) -> Option<VendorCall> {
        if !(self.centred && self.scale && self.bias) {
            return None;
        }
        let x = &inputs[0];
        let (mut graph, mut nodes) = VendorGraph::new(&inputs.iter().collect::<Vec<_>>())?;
        for node in &mut nodes {
            *node = graph.cast(*node, DType::F32)?;
        }
        for weight in &mut nodes[1..] {
            *weight = graph.reshaped(*weight, &x.shape[begin..])?;
        }
        let axes: Vec<usize> = (begin..x.rank()).collect();
        let epsilon = (self.epsilon as f32).to_bits();
        let y = graph.add(Operation::Normalisation { axes: axes.clone(), epsilon }, &nodes)?;
        let mut results = vec![(graph.cast(y, x.dtype)?, &outputs[0])];
        for (statistic, out) in [Reduction::Mean, Reduction::Variance].into_iter().zip(&outputs[1..]) {
            results.push((graph.add(Operation::Reduce(statistic, axes.clone()), &nodes[..1])?, out));
        }
        graph.finish_all(Family::Normalisation, x.len(), &results)
    }
}

impl LayerNorm {
    /// Dense rows of float32, as the native kernel takes them.
    fn in_library(
        &self,
        inputs: &[View],
        rows: &Rows,
        weights: &[Rows],
        outputs: &[View],
    ) -> Option<(native::LayerNorm, native::Operands)> {
        let dense = |rows: &Rows| rows.stride == 1 || rows.length == 1;
        let single = inputs.iter().all(|input| input.dtype == DType::F32);
        if !single || !dense(rows) || !weights.iter().all(dense) {
            return None;
        }
        let Rows { count, length, row_stride: stride, .. } = *rows;
        let sizes = native::LayerNorm { count, length, stride, epsilon: self.epsilon as f32, centred: self.centred };
        let mut weights = weights.iter().map(|weight| weight.address);
        let operands = native::Operands {
            x: rows.address,
            scale: self.scale.then(|| weights.next()).flatten(),
            bias: self.bias.then(|| weights.next()).flatten(),
            out: outputs[0].address,
            statistics: self.statistics.then(|| [1, 2].map(|i| outputs[i].address)),
        };
        Some((sizes, operands))
    }
}

impl Operator for LayerNorm {
    fn name(&self) -> &'static str {
        if self.centred { "layer_norm" } else { "rms_norm" }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let (operator, x) = (self.name(), &inputs[0]);
        let begin = self.begin(x.shape.len())?;
        let length: usize = x.shape[begin..].iter().product();
        for (input, what) in inputs[1..].iter().zip(["the scale or bias", "the bias"]) {
            if input.shape.iter().product::<usize>() != length {
                let (got, expected) = (input.shape.clone(), format!("{length} elements, those of a row"));
                return Err(Error::Shape { operator, what, got, expected });
            }
        }
        let mut outputs = vec![x.clone()];
        if self.statistics {
            let rows = x.shape[..begin].iter().product();
            let per_row = Meta { dtype: x.dtype.compute(), shape: [rows].into_iter().collect() };
            outputs.extend([per_row.clone(), per_row]);
        }
        Ok(outputs)
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        crate::layout::check(self, inputs, outputs)?;
        let (operator, x) = (self.name(), &inputs[0]);
        if x.is_empty() {
            // Rows of nothing have no mean.
            return outputs[1..].iter().try_for_each(|statistic| {
                let operator = Full { dims: statistic.shape.clone(), dtype: statistic.dtype, value: NOTHING };
                operator.run(queue, &[], std::slice::from_ref(statistic))
            });
        }
        let begin = self.begin(x.rank())?;
        if try_vendor(queue, operator, || self.vendor_call(inputs, begin, outputs))? {
            return Ok(());
        }
        let rows = Rows::of(operator, queue, x, &(begin..x.rank()).collect::<Vec<_>>())?;
        let weights: Vec<Rows> = inputs[1..]
            .iter()
            .map(|weight| Rows::of(operator, queue, weight, &(0..weight.rank()).collect::<Vec<_>>()))
            .collect::<Result<_>>()?;
        if is_host(queue)
            && let Some((sizes, operands)) = self.in_library(inputs, &rows, &weights, outputs)
        {
            return call(queue, operator, || {
                // SAFETY: rows and weights are those of the views, which the frontend keeps alive; outputs are dense.
                unsafe { native::layer_norm(&sizes, &operands) };
                Ok(())
            });
        }
        let width = tile_width(rows.length);
        let dtypes = inputs.iter().map(|input| input.dtype).collect();
        let flags = usize::from(self.scale) + 2 * usize::from(self.bias) + 4 * usize::from(self.statistics);
        let key = Key::Other(operator, dtypes, vec![width.unwrap_or(0), flags]);
        let pipeline = program::get(operator, &key, || self.kernel(inputs, width))?;
        let mut arguments = vec![rows.address as u64, outputs[0].address as u64];
        arguments.extend(outputs[1..].iter().map(|output| output.address as u64));
        arguments.extend([rows.count, rows.length].map(|size| size as u64));
        arguments.extend([rows.row_stride as u64, rows.stride as u64, rows.length as u64]);
        // In the compute type: Apple's GPUs have no float64.
        arguments.push(scalar_bits(Number::Float(self.epsilon), x.dtype.compute()));
        for weight in &weights {
            arguments.extend([weight.address as u64, weight.stride as u64]);
        }
        let block = width.map_or(1, RowBlock::rows_for);
        // SAFETY: rows and strides are those of the views, which the frontend keeps alive.
        unsafe { program::launch(queue, operator, &pipeline, [rows.count.div_ceil(block), 1, 1], &arguments) }
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        gradient::gradient(self, b)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let begin = self.begin.rem_euclid(x.shape.len() as i64) as usize;
        let length: usize = x.shape[begin..].iter().product();
        let rows: usize = x.shape[..begin].iter().product();
        let (mut means, mut variances, mut data) = (vec![], vec![], vec![]);
        for row in 0..rows {
            let row = &x.data[row * length..(row + 1) * length];
            let average = |from: f64| row.iter().map(|x| x - from).sum::<f64>() / length as f64;
            let first = if self.centred { average(0.0) } else { 0.0 };
            let mean = if self.centred { first + average(first) } else { 0.0 };
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / length as f64;
            for (i, x) in row.iter().enumerate() {
                let scale = if self.scale { inputs[1].data[i] } else { 1.0 };
                let bias = if self.bias { inputs[inputs.len() - 1].data[i] } else { 0.0 };
                data.push((x - mean) / (variance + self.epsilon).sqrt() * scale + bias);
            }
            means.push(mean);
            variances.push(variance);
        }
        let mut outputs = vec![Array::new(&x.shape, data, x.dtype)];
        if self.statistics {
            outputs.push(Array::new(&[rows], means, x.dtype.compute()));
            outputs.push(Array::new(&[rows], variances, x.dtype.compute()));
        }
        outputs
    }
}

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

    fn kernel(&self, inputs: &[View], width: Option<usize>) -> Kernel {
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

fn cases(centred: bool) -> Vec<Case> {
    let of = |begin: i64, dims: &[usize], row: &[usize], scale: bool, bias: bool| {
        let operator = LayerNorm { begin, epsilon: 1e-5, scale, bias, centred, statistics: centred };
        let weights = usize::from(scale) + usize::from(bias);
        let inputs = std::iter::once(Input::new(dims)).chain(std::iter::repeat_n(Input::new(row), weights));
        Case::new(operator, inputs.collect())
    };
    let bias = centred;
    vec![
        of(-1, &[3, 7], &[7], true, bias),
        of(1, &[4, 3, 5], &[15], true, false),
        of(-1, &[2, 3, 120], &[120], true, bias),
        of(-1, &[5, 1024], &[1024], false, false),
        of(-1, &[2, 9001], &[9001], true, bias),
        of(-1, &[0, 4], &[4], true, bias),
        of(-1, &[3, 0], &[0], true, bias),
    ]
}

/// Rows of equal elements, whose distances from the mean are 0.
fn equal(dims: &[usize]) -> Case {
    let operator = LayerNorm { begin: -1, epsilon: 1e-5, scale: false, bias: false, centred: true, statistics: false };
    Case::new(operator, vec![Input::of(dims, Values::Given(vec![1.7]))])
}

/// Layer norm in the list of operators.
pub static ENTRY: Entry = Entry {
    name: "layer_norm",
    summary: "Rows brought to mean 0 and variance 1, scaled and shifted.",
    dtypes: dtype::FLOATS,
    cases: || cases(true).into_iter().chain([&[3, 7][..], &[2, 1000], &[2, 9001]].map(equal)).collect(),
    tolerance: 32.0,
};

/// RMS norm in the list of operators.
pub static RMS: Entry = Entry {
    name: "rms_norm",
    summary: "Rows brought to mean square 1, scaled.",
    dtypes: dtype::FLOATS,
    cases: || cases(false),
    tolerance: 32.0,
};
