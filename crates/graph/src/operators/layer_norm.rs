//! Layer norm and RMS norm over the last dimensions. MPS has no class for either: they are own kernels on every device.

mod gradient;
mod kernel;

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, call, expect_float, expect_inputs};
use crate::operator::{Meta, Operator};
use crate::operators::full::Full;
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::reference::Array;
use crate::rows::{RowBlock, Rows, tile_width};
use crate::vendor::{VendorGraph, try_vendor};
use crate::view::View;
use openmps_host::native::layer_norm as native;
use openmps_runtime::vendor::graph::{Operation, Reduction};
use openmps_runtime::vendor::{Family, VendorCall};
use openmps_tile::{DType, Number, dtype};

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
        let operator = self.name();
        expect_inputs(operator, inputs, 1 + usize::from(self.scale) + usize::from(self.bias))?;
        let x = &inputs[0];
        inputs.iter().try_for_each(|input| expect_float(operator, "an input", input.dtype))?;
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
        if queue.is_host()
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
