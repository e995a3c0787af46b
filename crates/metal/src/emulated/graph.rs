//! What MPSGraph computes, in place of it: one operation after the other in float64, each result rounded to its type. Convolutions and
//! products go through the host's library.

mod indexing;
mod shape;
mod window;

use super::{EmulatedBuffer, matrix, numbers};
use crate::error::{Error, Result};
use crate::graph::{Binary, Graph, Node, Operation, Reduction, TensorType, Unary};
use crate::matrix::TensorView;
use openmps_host::native::matmul::{Matrices, MatrixProduct, matmul};
use openmps_tile::DType;
use shape::{Walk, count, split};

/// A tensor's elements, row-major.
pub(super) struct Tensor {
    pub of: TensorType,
    pub data: Vec<f64>,
}

/// Whether operands are what the graph was compiled for, as MPSGraph demands.
pub(super) fn check(
    graph: &Graph,
    inputs: &[TensorView<EmulatedBuffer>],
    outputs: &[TensorView<EmulatedBuffer>],
) -> Result<()> {
    let fits = |view: &TensorView<EmulatedBuffer>, of: &TensorType| view.shape == of.shape && view.dtype == of.dtype;
    let types: Vec<&TensorType> = graph.outputs().iter().map(|&tensor| graph.type_of(tensor)).collect();
    let all = inputs.len() == graph.inputs().len()
        && outputs.len() == types.len()
        && inputs.iter().zip(graph.inputs()).all(|(view, of)| fits(view, of))
        && outputs.iter().zip(types).all(|(view, of)| fits(view, of));
    if all {
        Ok(())
    } else {
        Err(Error::Shape { operation: "graph", why: "operands do not fit the graph".to_string() })
    }
}

/// Runs a graph on checked operands.
pub(super) fn run(
    graph: &Graph,
    inputs: &[TensorView<EmulatedBuffer>],
    outputs: &[TensorView<EmulatedBuffer>],
) -> Result<()> {
    let mut tensors: Vec<Tensor> = inputs.iter().zip(graph.inputs()).map(|(view, of)| feed(view, of)).collect();
    for node in graph.nodes() {
        let operands: Vec<&Tensor> = node.inputs.iter().map(|tensor| &tensors[tensor.0]).collect();
        let mut data = evaluate(node, &operands)?;
        if data.len() != count(&node.result.shape) {
            let why = format!("{} elements for {:?}", data.len(), node.result.shape);
            return Err(Error::Shape { operation: node.operation.name(), why });
        }
        data.iter_mut().for_each(|value| *value = numbers::round(node.result.dtype, *value));
        tensors.push(Tensor { of: node.result.clone(), data });
    }
    for (view, tensor) in outputs.iter().zip(graph.outputs()) {
        // SAFETY: the view was checked: it lies in its buffer, aligned; what else uses it runs before or after.
        unsafe { numbers::write(view.dtype, addresses(view), &tensors[tensor.0].data) };
    }
    Ok(())
}

fn feed(view: &TensorView<EmulatedBuffer>, of: &TensorType) -> Tensor {
    // SAFETY: as above.
    Tensor { of: of.clone(), data: unsafe { numbers::read(view.dtype, addresses(view)) } }
}

fn addresses(view: &TensorView<EmulatedBuffer>) -> impl Iterator<Item = usize> {
    let (first, size) = (view.buffer.contents().0 + view.offset, view.dtype.size());
    (0..count(&view.shape)).map(move |place| first + place * size)
}

fn evaluate(node: &Node, inputs: &[&Tensor]) -> Result<Vec<f64>> {
    let shape = &node.result.shape;
    let map = |of: &dyn Fn(f64) -> f64| inputs[0].data.iter().map(|&x| of(x)).collect();
    Ok(match &node.operation {
        Operation::Unary(unary) => map(&|x| apply(*unary, x)),
        Operation::Binary(binary) => {
            let (x, y) = (inputs[0].stretched(shape), inputs[1].stretched(shape));
            x.into_iter().zip(y).map(|(x, y)| combine(*binary, x, y)).collect()
        }
        Operation::Relu => map(&|x| if x.is_nan() { x } else { x.max(0.0) }),
        Operation::Sigmoid => map(&|x| 1.0 / (1.0 + (-x).exp())),
        Operation::Constant { bits, .. } => vec![f64::from_bits(*bits); count(shape)],
        Operation::Cast(_) | Operation::Reshape(_) => inputs[0].data.clone(),
        Operation::Transpose(permutation) => transpose(inputs[0], permutation, shape),
        Operation::Broadcast(_) => inputs[0].stretched(shape),
        Operation::MatrixMultiplication => product(inputs[0], inputs[1], shape)?,
        Operation::Convolution { window, groups } => window::convolution(inputs, window, *groups, shape)?,
        Operation::DepthwiseConvolution { window } => {
            window::convolution(inputs, window, inputs[0].of.shape[1], shape)?
        }
        Operation::ConvolutionTranspose { window, groups, .. } => window::transposed(inputs, window, *groups, shape)?,
        Operation::MaxPooling { window, .. } => window::pool(inputs[0], window, shape, window::Kind::Largest),
        Operation::AveragePooling { window, padding_counts, .. } => {
            window::pool(inputs[0], window, shape, window::Kind::Mean { padding_counts: *padding_counts })
        }
        Operation::Reduce(reduction, axes) => inputs[0].along(axes, |values| reduce(*reduction, values)),
        Operation::SoftMax(axis) => inputs[0].lines(*axis, |row| matrix::softmax(row, false)),
        Operation::LogSoftMax(axis) => inputs[0].lines(*axis, |row| matrix::softmax(row, true)),
        Operation::Normalisation { axes, epsilon } => {
            let statistic = |of: Reduction| {
                let reduced = inputs[0].along(axes, |values| reduce(of, values));
                let keep = |(axis, &length): (usize, &usize)| if axes.contains(&axis) { 1 } else { length };
                let shape = inputs[0].of.shape.iter().enumerate().map(keep).collect();
                Tensor { of: TensorType { dtype: DType::F64, shape }, data: reduced }
            };
            let (mean, variance) = (statistic(Reduction::Mean), statistic(Reduction::Variance));
            normalise([inputs[0], &mean, &variance, inputs[1], inputs[2]], *epsilon)
        }
        Operation::FixedNormalisation { epsilon } => {
            normalise([inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]], *epsilon)
        }
        Operation::Gather { axis } => indexing::gather(inputs[0], inputs[1], *axis)?,
        Operation::GatherAlong { axis } => indexing::gather_along(inputs[0], inputs[1], *axis)?,
        Operation::GatherTuples => indexing::gather_tuples(inputs[0], inputs[1])?,
        Operation::Scatter { axis, mode } => indexing::scatter(inputs, *axis, *mode)?,
        Operation::ScatterAlong { axis, mode } => indexing::scatter_along(inputs, *axis, *mode)?,
        Operation::ScatterTuples { mode } => indexing::scatter_tuples(inputs, *mode)?,
        Operation::Band { above } => band(inputs[0], *above),
        Operation::Equal => {
            let (x, y) = (inputs[0].stretched(shape), inputs[1].stretched(shape));
            x.into_iter().zip(y).map(|(x, y)| f64::from(u8::from(x == y))).collect()
        }
        Operation::Select => {
            let choices = inputs[1].data.iter().zip(&inputs[2].data);
            inputs[0].data.iter().zip(choices).map(|(&c, (&x, &y))| if c != 0.0 { x } else { y }).collect()
        }
        Operation::Resize(resize) => window::resize(inputs[0], resize, shape),
        Operation::Attention { scale, .. } => attention(inputs, f64::from(f32::from_bits(*scale))),
        Operation::Concat { axis } => concat(inputs, *axis),
    })
}

fn apply(unary: Unary, x: f64) -> f64 {
    match unary {
        Unary::Absolute => x.abs(),
        Unary::Exponent => x.exp(),
        Unary::Logarithm => x.ln(),
        Unary::SquareRoot => x.sqrt(),
        Unary::ReciprocalSquareRoot => 1.0 / x.sqrt(),
        Unary::Negative => -x,
        Unary::Reciprocal => 1.0 / x,
        Unary::Square => x * x,
        Unary::Tanh => x.tanh(),
        Unary::Erf => libm::erf(x),
        Unary::Sine => x.sin(),
        Unary::Cosine => x.cos(),
        Unary::Floor => x.floor(),
        Unary::Ceiling => x.ceil(),
    }
}

fn combine(binary: Binary, x: f64, y: f64) -> f64 {
    match binary {
        Binary::Addition => x + y,
        Binary::Subtraction => x - y,
        Binary::Multiplication => x * y,
        Binary::Division => x / y,
        Binary::Maximum if x.is_nan() || y.is_nan() => f64::NAN,
        Binary::Minimum if x.is_nan() || y.is_nan() => f64::NAN,
        Binary::Maximum => x.max(y),
        Binary::Minimum => x.min(y),
        Binary::Power => x.powf(y),
    }
}

fn reduce(reduction: Reduction, values: &[f64]) -> f64 {
    let (sum, length) = (|| values.iter().sum::<f64>(), values.len() as f64);
    match reduction {
        Reduction::Sum => sum(),
        Reduction::Product => values.iter().product(),
        Reduction::Maximum => values.iter().copied().fold(f64::NEG_INFINITY, |x, y| combine(Binary::Maximum, x, y)),
        Reduction::Minimum => values.iter().copied().fold(f64::INFINITY, |x, y| combine(Binary::Minimum, x, y)),
        Reduction::Mean => sum() / length,
        Reduction::Variance => {
            let mean = sum() / length;
            values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / length
        }
    }
}

fn transpose(x: &Tensor, permutation: &[usize], shape: &[usize]) -> Vec<f64> {
    let strides = shape::strides(&x.of.shape);
    let steps: Vec<usize> = permutation.iter().map(|&axis| strides[axis]).collect();
    Walk::new(shape, &steps).map(|place| x.data[place]).collect()
}

/// By the host's library, in float32 as MPSGraph accumulates.
fn product(left: &Tensor, right: &Tensor, shape: &[usize]) -> Result<Vec<f64>> {
    let (outer, [rows, columns]) = split(shape);
    let depth = left.of.shape[left.of.shape.len() - 1];
    let narrow = |tensor: &Tensor| tensor.data.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let (a, b, mut c) = (narrow(left), narrow(right), vec![0.0_f32; count(shape)]);
    let starts = |tensor: &Tensor| {
        let (own, matrix) = split(&tensor.of.shape);
        let steps = shape::stretched_strides(own, outer, matrix[0] * matrix[1]);
        Walk::new(outer, &steps).map(|place| place as isize).collect::<Vec<isize>>()
    };
    let size = (rows * columns) as isize;
    let starts = starts(left).into_iter().zip(starts(right)).enumerate();
    let batches: Vec<[isize; 3]> = starts.map(|(i, (left, right))| [left, right, i as isize * size]).collect();
    let at = Matrices { left: a.as_ptr() as usize, right: b.as_ptr() as usize, out: c.as_mut_ptr() as usize };
    // SAFETY: dense vectors of these sizes.
    unsafe { matmul(&MatrixProduct::dense(rows, depth, columns), DType::F32, at, &batches) }.map_err(failed)?;
    Ok(c.into_iter().map(f64::from).collect())
}

pub(super) fn failed(error: openmps_host::Error) -> Error {
    Error::System { what: "the host's library", message: error.to_string() }
}

fn normalise([x, mean, variance, gamma, beta]: [&Tensor; 5], epsilon: u32) -> Vec<f64> {
    let parts = [mean, variance, gamma, beta].map(|part| part.stretched(&x.of.shape));
    let epsilon = f64::from(f32::from_bits(epsilon));
    let one = |(i, &x): (usize, &f64)| (x - parts[0][i]) / (parts[1][i] + epsilon).sqrt() * parts[2][i] + parts[3][i];
    x.data.iter().enumerate().map(one).collect()
}

fn attention(inputs: &[&Tensor], scale: f64) -> Vec<f64> {
    let [query, key, value] = [inputs[0], inputs[1], inputs[2]];
    let (q, k, v) = (&query.of.shape, &key.of.shape, &value.of.shape);
    let (length, depth, keys, columns) = (q[2], q[3], k[2], v[3]);
    let mask = inputs.get(3).map(|mask| mask.stretched(&[q[0], q[1], length, keys]));
    let mut data = Vec::with_capacity(q[0] * q[1] * length * columns);
    for head in 0..q[0] * q[1] {
        for row in 0..length {
            let query = &query.data[(head * length + row) * depth..][..depth];
            let score = |at: usize| {
                let key = &key.data[(head * keys + at) * depth..][..depth];
                let dot: f64 = query.iter().zip(key).map(|(x, y)| x * y).sum();
                dot * scale + mask.as_ref().map_or(0.0, |mask| mask[(head * length + row) * keys + at])
            };
            let weights = matrix::softmax(&(0..keys).map(score).collect::<Vec<f64>>(), false);
            let sum = |column: usize| -> f64 {
                weights.iter().enumerate().map(|(at, w)| w * value.data[(head * keys + at) * columns + column]).sum()
            };
            data.extend((0..columns).map(sum));
        }
    }
    data
}

fn concat(inputs: &[&Tensor], axis: usize) -> Vec<f64> {
    let outer = count(&inputs[0].of.shape[..axis]);
    let part = |tensor: &&Tensor| count(&tensor.of.shape[axis..]);
    let rows = |at: usize| {
        inputs.iter().flat_map(move |tensor| tensor.data[at * part(tensor)..][..part(tensor)].iter().copied())
    };
    (0..outer).flat_map(rows).collect()
}

/// The two innermost axes up to a diagonal.
fn band(x: &Tensor, above: usize) -> Vec<f64> {
    let (_, [rows, columns]) = split(&x.of.shape);
    let kept = |at: usize| at % columns <= at / columns % rows + above;
    x.data.iter().enumerate().map(|(at, &value)| if kept(at) { value } else { 0.0 }).collect()
}
