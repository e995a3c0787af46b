//! One problem put to whoever computes it: operands in memory of the device, the call on a stream of its own, the answer held against float64.

use super::check::{self, Attention, Convolution, Product};
use super::{Class, Computation, Question};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, Operation, Window};
use crate::interface::Metal;
use crate::matrix::{MatrixCall, MatrixView, TensorView};
use crate::numbers;
use crate::stream::{CommitPolicy, Stream};
use openmps_tile::DType;
use std::sync::Arc;

/// 1024 x 2048 times 2048 x 1024: a layer of a language model.
const PRODUCT: Product = Product { rows: 1024, depth: 2048, columns: 1024 };
/// 64 channels of 56 x 56: the middle of a network for images.
const CONVOLUTION: Convolution = Convolution { channels: 64, side: 56, window: 3 };
/// Two heads of 512 keys.
const ATTENTION: Attention = Attention { heads: 2, rows: 512, depth: 64, scale: 0.5 };

/// An operand: its elements as float64, and where they are on the device.
struct Operand<M: Metal> {
    values: Vec<f64>,
    view: TensorView<M::Buffer>,
}

/// Puts a question; an error says what is wrong with the answer.
pub(super) fn ask<M: Metal>(shared: &Arc<M>, question: Question, computation: &Computation<'_, M>) -> Result<()> {
    let metal = &**shared;
    let stream = Stream::new(shared.clone(), "known answers", CommitPolicy::default())?;
    let shapes = match question.class {
        Class::Product => PRODUCT.shapes(),
        Class::Convolution => CONVOLUTION.shapes(),
        Class::Attention => ATTENTION.shapes(),
    };
    let (inputs, out) = shapes.split_at(shapes.len() - 1);
    let mut seed = 1;
    let inputs = inputs
        .iter()
        .map(|shape| operand(metal, question.dtype, shape, || next(&mut seed)))
        .collect::<Result<Vec<Operand<M>>>>()?;
    // What is never written is no number, and so not right.
    let out: Operand<M> = operand(metal, question.dtype, &out[0], || f64::NAN)?;
    let views: Vec<_> = inputs.iter().map(|input| input.view.clone()).collect();
    computation(&stream, &views, &out.view)?;
    stream.finish().map_err(|failure| failure.first)?;
    let answer = read(metal, &out.view);
    let values: Vec<&[f64]> = inputs.iter().map(|input| &input.values[..]).collect();
    let worst = match question.class {
        Class::Product => PRODUCT.worst(values[0], values[1], &answer, question.dtype),
        Class::Convolution => CONVOLUTION.worst(values[0], values[1], &answer, question.dtype),
        Class::Attention => ATTENTION.worst([values[0], values[1], values[2]], &answer, question.dtype),
    };
    let message = format!("the answer is {worst:.1} times as far off as rounding explains");
    if worst <= 1.0 { Ok(()) } else { Err(Error::System { what: "a known answer", message }) }
}

/// How Apple's libraries compute a question.
pub(super) fn by_library<M: Metal>(
    metal: &M,
    question: Question,
    stream: &Stream<M>,
    inputs: &[TensorView<M::Buffer>],
    out: &TensorView<M::Buffer>,
) -> Result<()> {
    match question.engine {
        Engine::Kernels => {
            Err(Error::System { what: "a known answer", message: "own kernels are no library".to_string() })
        }
        Engine::Mps => stream.matrix(&matrix_call(question, inputs, out)?),
        Engine::MpsGraph => {
            let graph = graph(question, inputs)?;
            let executable = metal.autorelease_pool(|| metal.executable(&graph))?;
            stream.graph(&executable, inputs, std::slice::from_ref(out))
        }
    }
}

fn operand<M: Metal>(metal: &M, dtype: DType, shape: &[usize], mut value: impl FnMut() -> f64) -> Result<Operand<M>> {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| value()).collect();
    let buffer = metal.autorelease_pool(|| metal.allocate(count * dtype.size()))?;
    let view = TensorView { buffer, offset: 0, shape: shape.to_vec(), dtype };
    // SAFETY: the buffer has room for the elements, and nobody else has it.
    unsafe { numbers::write(dtype, addresses(metal, &view), &values) };
    Ok(Operand { values, view })
}

fn read<M: Metal>(metal: &M, view: &TensorView<M::Buffer>) -> Vec<f64> {
    // SAFETY: the view was checked to lie in its buffer, and the commands that write it have ended.
    unsafe { numbers::read(view.dtype, addresses(metal, view)) }
}

fn addresses<M: Metal>(metal: &M, view: &TensorView<M::Buffer>) -> impl Iterator<Item = usize> {
    let (begin, size) = (metal.contents(&view.buffer).0 + view.offset, view.dtype.size());
    let count: usize = view.shape.iter().product();
    (0..count).map(move |at| begin + at * size)
}

/// Numbers of few bits, which every type holds as they are: 0.5 and 1, and the same below zero.
fn next(seed: &mut u64) -> f64 {
    let bits = check::random(seed);
    let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
    if bits & 2 == 0 { sign } else { 0.5 * sign }
}

fn matrix_call<B: Clone + PartialEq>(
    question: Question,
    inputs: &[TensorView<B>],
    out: &TensorView<B>,
) -> Result<MatrixCall<B>> {
    let (Class::Product, [left, right]) = (question.class, inputs) else {
        return Err(Error::Type { operation: question.class.name(), dtype: question.dtype, engine: "MPS" });
    };
    let view = |of: &TensorView<B>| MatrixView::dense(of.buffer.clone(), 0, of.dtype, 1, of.shape[0], of.shape[1]);
    let (left, right, result) = (view(left), view(right), view(out));
    Ok(MatrixCall::Multiplication {
        left,
        right,
        result,
        transpose_left: false,
        transpose_right: false,
        alpha: 1.0,
        beta: 0.0,
    })
}

fn graph<B>(question: Question, inputs: &[TensorView<B>]) -> Result<Graph> {
    let mut b = Builder::new();
    let inputs = inputs.iter().map(|input| b.input(question.dtype, &input.shape)).collect::<Result<Vec<_>>>()?;
    let operation = match question.class {
        Class::Product => Operation::MatrixMultiplication,
        Class::Convolution => {
            let side = CONVOLUTION.window;
            let around = [side / 2; 2];
            let window = Window { before: around, after: around, ..Window::of(side, side) };
            Operation::Convolution { window, groups: 1 }
        }
        Class::Attention => Operation::Attention { scale: (ATTENTION.scale as f32).to_bits(), mask: false },
    };
    let result = b.add(operation, &inputs)?;
    b.finish(&[result])
}
