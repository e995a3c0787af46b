//! A chain of formulas as an operator, with a reduction of its results at the end where there is one.

use super::kernel::Signature;
use super::layout::MAX_TENSORS;
use super::tiling::Tiling;
use super::{Activation, Binary, Chain, Elementwise, Operand, Stage, Unary, kernel};
use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::operator::{Meta, Operator};
use crate::operators::reduce::{Reduce, Reduction};
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use arrayvec::ArrayVec;
use openmps_tile::{Builder, DType, Value, dtype};

/// A chain, with a reduction of its results where there is one, as one operator.
#[derive(Clone, Debug)]
pub struct Fused {
    /// The formulas.
    pub chain: Chain,
    /// What is done with their results.
    pub reduction: Option<Reduce>,
}

impl Fused {
    fn meta(&self, inputs: &[Meta]) -> Result<Meta> {
        let last = self.chain.metas(inputs)?.pop();
        let (got, expected) = ("none".to_owned(), "one at least".to_owned());
        last.ok_or(Error::Attribute { operator: "fused", attribute: "formulas", got, expected })
    }

    fn run_chain(&self, queue: &Queue, inputs: &[View], output: &View) -> Result<()> {
        let operator = self.name();
        let mut tensors: ArrayVec<&View, MAX_TENSORS> = inputs.iter().collect();
        tensors.push(output);
        let Some(tiling) = Tiling::over(operator, &tensors)? else { return Ok(()) };
        let dtypes: Vec<DType> = inputs.iter().map(|x| x.dtype).collect();
        let (chain, numbers) = (self.chain.text(), Vec::new());
        let key =
            Key::Chain { chain, reduction: "", dtypes: dtypes.clone(), layout: Some(tiling.layout.clone()), numbers };
        let build = || {
            let scalars = self.chain.scalar_types(&dtypes);
            let signature = Signature { name: operator, inputs: &dtypes, output: output.dtype, scalars };
            let body =
                |b: &mut Builder, loaded: &[Value], scalars: &[Value]| self.chain.apply(b, loaded, &dtypes, scalars);
            kernel::build_with(signature, &tiling.layout, body)
        };
        let pipeline = program::get(operator, &key, build)?;
        let mut arguments: Vec<u64> = tensors.iter().map(|x| x.address as u64).collect();
        arguments.extend(self.chain.numbers(&dtypes));
        tiling.launch(operator, queue, &pipeline, arguments)
    }
}

impl Operator for Fused {
    fn name(&self) -> &'static str {
        "fused"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let meta = self.meta(inputs)?;
        match &self.reduction {
            Some(reduction) => reduction.infer(&[meta]),
            None => Ok(vec![meta]),
        }
    }

    fn arithmetic(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        let formulas = self.chain.names().count() + usize::from(self.reduction.is_some());
        formulas as u64 * self.meta(inputs).map_or(0, |meta| meta.count())
    }

    fn includes(&self) -> Vec<&'static str> {
        let reduction = self.reduction.as_ref().map(|reduction| reduction.name());
        self.chain.names().chain(reduction).collect()
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        let Some(reduction) = &self.reduction else { return self.run_chain(queue, inputs, &outputs[0]) };
        let metas: Vec<Meta> = inputs.iter().map(|x| Meta { dtype: x.dtype, shape: x.shape.clone() }).collect();
        let Meta { dtype, shape } = self.meta(&metas)?;
        if reduction.run_chain(queue, &self.chain, (inputs, &shape), &outputs[0])? {
            return Ok(());
        }
        let bytes = shape.iter().product::<usize>() * dtype.size();
        let operator = self.name();
        let stored = queue.allocate(bytes.max(1)).map_err(|source| Error::Device { operator, source })?;
        let stored_view = View::dense(stored.address(), dtype, &shape)?;
        self.run_chain(queue, inputs, &stored_view)?;
        reduction.run(queue, &[stored_view], outputs)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let last: Vec<Array> = self.chain.reference(inputs).into_iter().collect();
        match &self.reduction {
            Some(reduction) => reduction.reference(&last),
            None => last,
        }
    }
}

/// `max(x * y, z)` and further formulas of it: an activation, a square root, a comparison's result as a number.
fn sample() -> Chain {
    let stage = |operator: Elementwise, operands: &[Operand]| Stage::new(operator, operands, operator.row().sample);
    let [x, y, z] = [0, 1, 2].map(Operand::Input);
    let s = Operand::Stage;
    Chain::new(vec![
        stage(Elementwise::Binary(Binary::Multiply), &[x, y]),
        stage(Elementwise::Binary(Binary::Maximum), &[s(0), z]),
        stage(Elementwise::Activation(Activation::LeakyRelu), &[s(1)]),
        stage(Elementwise::Unary(Unary::Abs), &[s(2)]),
        stage(Elementwise::Unary(Unary::Sqrt), &[s(3)]),
        stage(Elementwise::Binary(Binary::Subtract), &[s(4), s(2)]),
    ])
}

fn cases() -> Vec<Case> {
    let shapes: [[&[usize]; 3]; 8] = [
        [&[4], &[4], &[4]],
        [&[7, 33], &[33], &[1]],
        [&[3, 1, 5], &[4, 1], &[3, 4, 5]],
        [&[0, 3], &[3], &[3]],
        [&[], &[], &[]],
        [&[2, 9000], &[2, 1], &[9000]],
        [&[70_000], &[70_000], &[1]],
        [&[40, 7], &[7], &[40, 1]],
    ];
    let reductions = [
        None,
        Some(Reduce::new(Reduction::Sum, &[], false)),
        Some(Reduce::new(Reduction::Maximum, &[-1], true)),
        Some(Reduce::new(Reduction::Mean, &[0], false)),
    ];
    let mut cases = Vec::new();
    for shapes in shapes {
        for reduction in &reductions {
            if reduction.as_ref().is_some_and(|reduce| !reduce.axes.is_empty() && shapes[0].is_empty()) {
                continue;
            }
            let inputs = shapes.iter().map(|shape| Input::new(shape)).collect();
            cases.push(Case::new(Fused { chain: sample(), reduction: reduction.clone() }, inputs));
        }
    }
    cases
}

/// The chain in the list of operators.
pub static ENTRY: Entry = Entry {
    name: "fused",
    summary: "Formulas one after the other in one kernel, and a reduction of their results.",
    dtypes: dtype::FLOATS,
    cases,
    tolerance: 64.0,
};
