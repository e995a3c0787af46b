//! Calls of MPS and MPSGraph: which of them takes an operator, by the table of `openmps_metal::engine`, and the operator as its call. What
//! breaks one of Apple's rules is not taken, and computed as if there were no such library.

use super::{Gpu, failed};
use crate::error::Result;
use crate::vendor::{Engine, Family, Matrices, Tensor, VendorCall};
use openmps_metal::Metal;
use openmps_metal::answers::{self, Class};
use openmps_metal::defects::{self, Defect};
use openmps_metal::engine::{Question, choose};
use openmps_metal::graph::{Builder, Graph, Operation};
use openmps_metal::matrix::{MatrixCall, MatrixView, TensorView, VectorView};
use openmps_tile::DType;
use std::sync::atomic::Ordering;

/// A call of one engine.
pub(super) enum EngineCall<B> {
    Matrix(MatrixCall<B>),
    Graph { graph: Graph, inputs: Vec<TensorView<B>>, outputs: Vec<TensorView<B>> },
}

impl<M: Metal> Gpu<M> {
    /// How one of Apple's libraries computes a call; none where own kernels, or the host's, are to.
    pub fn plan(&self, call: &VendorCall) -> Option<EngineCall<M::Buffer>> {
        let question = self.question(call)?;
        match choose(&question, self.metal.properties(), self.engine) {
            Engine::Kernels => None,
            engine if !self.answers_rightly(&question, engine) => None,
            Engine::Mps => {
                let call = self.matrix_call(call)?;
                call.check(|buffer| self.metal.contents(buffer).1).ok()?;
                self.is_sound(defects::of_matrix_call(&call, self.metal.properties()))
                    .then_some(EngineCall::Matrix(call))
            }
            Engine::MpsGraph => {
                let (graph, inputs, outputs) = as_graph(call)?;
                if !self.is_sound(defects::of_graph(&graph, self.metal.properties()))
                    || !self.is_worth_compiling(&graph)
                {
                    return None;
                }
                let views =
                    |tensors: Vec<Tensor>| tensors.iter().map(|tensor| self.tensor(tensor)).collect::<Option<Vec<_>>>();
                let (inputs, outputs) = (views(inputs)?, views(outputs)?);
                let apart = outputs.iter().all(|out| inputs.iter().all(|input| !overlap(input, out)));
                apart.then_some(EngineCall::Graph { graph, inputs, outputs })
            }
        }
    }

    /// Whether a call meets no defect that Apple's libraries are known for. Own kernels compute it where it does.
    fn is_sound(&self, defect: Option<&Defect>) -> bool {
        if let Some(defect) = defect {
            tracing::debug!(defect.about, defect.record, "computed by own kernels");
        }
        defect.is_none()
    }

    /// Whether an engine has answered what is known for this class of work. One that is forced is not asked.
    fn answers_rightly(&self, question: &Question, engine: Engine) -> bool {
        let class = Class::of(question.family).filter(|_| self.engine.is_none());
        class.is_none_or(|class| {
            self.answers.is_right(&self.metal, answers::Question { class, engine, dtype: question.dtype })
        })
    }

    /// Own kernels compute a graph until it has come in two runs, unless MPSGraph is forced.
    fn is_worth_compiling(&self, graph: &Graph) -> bool {
        let run = self.runs.load(Ordering::Relaxed);
        self.engine.is_some() || self.executables.is_worth_compiling(graph, run)
    }

    /// Puts a planned call behind the queue's commands.
    pub fn run_plan(&self, queue: u64, plan: Option<&EngineCall<M::Buffer>>) -> Result<()> {
        let stream = self.stream(queue)?;
        match plan.ok_or_else(|| failed("a call that no engine takes"))? {
            EngineCall::Matrix(call) => stream.matrix(call).map_err(failed),
            EngineCall::Graph { graph, inputs, outputs } => {
                let executable = self.executables.get(&self.metal, graph).map_err(failed)?;
                stream.graph(&executable, inputs, outputs).map_err(failed)
            }
        }
    }

    fn question(&self, call: &VendorCall) -> Option<Question> {
        let at_begin = |addresses: &[usize]| -> Option<bool> {
            // Every address is looked at: one that nothing lies at is an answer of its own.
            addresses.iter().try_fold(true, |all, &address| Some(all & (self.resolve(address, 0)?.offset == 0)))
        };
        Some(match call {
            VendorCall::Product { left, right, out, transposed, .. } => {
                let depth = if transposed[0] { left.rows } else { left.columns };
                let family =
                    if is_vector(right, transposed[1], out) { Family::MatrixVector } else { Family::MatrixProduct };
                let work = out.matrices * out.rows * out.columns * depth;
                let at_begin = at_begin(&[left.address, right.address, out.address])?;
                Question { family, dtype: out.dtype, work: work as u64, columns: out.columns, at_begin }
            }
            VendorCall::Softmax { input, out, .. } => {
                let work = (input.matrices * input.rows * input.columns) as u64;
                let at_begin = at_begin(&[input.address, out.address])?;
                Question { family: Family::Softmax, dtype: out.dtype, work, columns: input.columns, at_begin }
            }
            VendorCall::Graph { family, work, columns, inputs, outputs, .. } => {
                let addresses: Vec<usize> = inputs.iter().chain(outputs).map(|tensor| tensor.address).collect();
                let dtype = outputs.first().map_or(DType::F32, |tensor| tensor.dtype);
                Question { family: *family, dtype, work: *work, columns: *columns, at_begin: at_begin(&addresses)? }
            }
        })
    }

    fn matrix_call(&self, call: &VendorCall) -> Option<MatrixCall<M::Buffer>> {
        match call {
            VendorCall::Product { left, right, out, transposed, factors: [alpha, beta] }
                if is_vector(right, transposed[1], out) =>
            {
                Some(MatrixCall::VectorMultiplication {
                    matrix: self.matrices(left)?,
                    vector: self.vector(right)?,
                    result: self.vector(out)?,
                    transpose: transposed[0],
                    alpha: *alpha,
                    beta: *beta,
                })
            }
            VendorCall::Product { left, right, out, transposed, factors: [alpha, beta] } => {
                Some(MatrixCall::Multiplication {
                    left: self.matrices(left)?,
                    right: self.matrices(right)?,
                    result: self.matrices(out)?,
                    transpose_left: transposed[0],
                    transpose_right: transposed[1],
                    alpha: *alpha,
                    beta: *beta,
                })
            }
            VendorCall::Softmax { input, out, logarithm } => Some(MatrixCall::SoftMax {
                input: self.matrices(input)?,
                result: self.matrices(out)?,
                logarithm: *logarithm,
            }),
            VendorCall::Graph { .. } => None,
        }
    }

    fn matrices(&self, of: &Matrices) -> Option<MatrixView<M::Buffer>> {
        let size = of.dtype.size();
        let found = self.resolve(of.address, 0)?;
        Some(MatrixView {
            buffer: found.buffer,
            offset: found.offset,
            rows: of.rows,
            columns: of.columns,
            row_bytes: of.row_step * size,
            matrices: of.matrices,
            matrix_bytes: of.matrix_step * size,
            dtype: of.dtype,
        })
    }

    /// One column, or one row, as a vector.
    fn vector(&self, of: &Matrices) -> Option<VectorView<M::Buffer>> {
        let found = self.resolve(of.address, 0)?;
        Some(VectorView::dense(found.buffer, found.offset, of.dtype, of.rows * of.columns))
    }

    fn tensor(&self, of: &Tensor) -> Option<TensorView<M::Buffer>> {
        let bytes = of.shape.iter().product::<usize>() * of.dtype.size();
        let found = self.resolve(of.address, bytes)?;
        let view = TensorView { buffer: found.buffer, offset: found.offset, shape: of.shape.clone(), dtype: of.dtype };
        view.check("graph", self.metal.contents(&view.buffer).1).ok()?;
        Some(view)
    }
}

/// Whether two tensors share memory: what MPSGraph does with a result in the place of an operand is not documented.
fn overlap<B: Clone + PartialEq>(one: &TensorView<B>, other: &TensorView<B>) -> bool {
    one.buffer == other.buffer && one.offset < other.offset + other.span() && other.offset < one.offset + one.span()
}

/// Whether a product is one of a matrix and a vector whose elements follow each other.
fn is_vector(right: &Matrices, transposed: bool, out: &Matrices) -> bool {
    let column = if transposed { right.rows == 1 } else { right.columns == 1 && right.row_step == 1 };
    column && out.matrices == 1 && out.columns == 1 && (out.row_step == 1 || out.rows == 1)
}

type AsGraph = (Graph, Vec<Tensor>, Vec<Tensor>);

/// A call as a graph of MPSGraph's.
fn as_graph(call: &VendorCall) -> Option<AsGraph> {
    match call {
        VendorCall::Graph { graph, inputs, outputs, .. } => Some((graph.clone(), inputs.clone(), outputs.clone())),
        VendorCall::Product { left, right, out, transposed, factors } => {
            let dense = [left, right, out].iter().all(|of| of.is_dense());
            if !dense || *factors != [1.0, 0.0] {
                return None;
            }
            let mut b = Builder::new();
            // One product is one of rank 2: products of rank 3 have defects of their own (see `openmps_metal::defects`).
            let tensors = [left, right, out].map(if out.matrices == 1 { matrix } else { tensor });
            let (x, y) = (b.input(left.dtype, &tensors[0].shape).ok()?, b.input(right.dtype, &tensors[1].shape).ok()?);
            let mut operands = [x, y];
            for (operand, _) in operands.iter_mut().zip(transposed).filter(|(_, transposed)| **transposed) {
                let rank = b.type_of(*operand).shape.len();
                let exchanged = if rank == 2 { vec![1, 0] } else { vec![0, 2, 1] };
                *operand = b.add(Operation::Transpose(exchanged), &[*operand]).ok()?;
            }
            let result = b.add(Operation::MatrixMultiplication, &operands).ok()?;
            let [left, right, out] = tensors;
            Some((b.finish(&[result]).ok()?, vec![left, right], vec![out]))
        }
        VendorCall::Softmax { input, out, logarithm } => {
            if !input.is_dense() || !out.is_dense() {
                return None;
            }
            let mut b = Builder::new();
            let x = b.input(input.dtype, &tensor(input).shape).ok()?;
            let operation = if *logarithm { Operation::LogSoftMax(2) } else { Operation::SoftMax(2) };
            let result = b.add(operation, &[x]).ok()?;
            Some((b.finish(&[result]).ok()?, vec![tensor(input)], vec![tensor(out)]))
        }
    }
}

fn matrix(of: &Matrices) -> Tensor {
    Tensor { address: of.address, dtype: of.dtype, shape: vec![of.rows, of.columns] }
}

fn tensor(of: &Matrices) -> Tensor {
    Tensor { address: of.address, dtype: of.dtype, shape: vec![of.matrices, of.rows, of.columns] }
}
