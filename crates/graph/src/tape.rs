//! Tensors in memory and what is computed of them: operators are recorded first, and run where a value is asked for. So gradients of any order are
//! taken of calls that never run themselves.

use crate::error::Result;
use crate::formula::Formula;
use crate::gradient::{Node, Recorder};
use crate::operator::{Meta, Operator};
use crate::operators::copy::Copy;
use crate::operators::expand::Expand;
use crate::queue::Queue;
use crate::reverse::{self, Origin, Record, Step};
use crate::view::{View, shape_of};
use std::any::Any;
use std::sync::Arc;

/// A record of operators on tensors in memory. Temporaries live as long as it does.
pub struct Tape<'q> {
    formula: Formula<'q>,
    values: Vec<Value>,
    steps: Vec<Step>,
}

struct Value {
    meta: Meta,
    source: Source,
    /// Where it lies, once it is computed.
    view: Option<View>,
}

#[derive(Clone, Copy)]
enum Source {
    Given,
    Reshaped(Node),
    Step(usize),
}

impl<'q> Tape<'q> {
    /// An empty tape; errors of its own name the operator.
    pub fn new(operator: &'static str, queue: &'q Queue) -> Tape<'q> {
        Tape { formula: Formula::new(operator, queue), values: Vec::new(), steps: Vec::new() }
    }

    /// A tensor that is there. Its elements are read where a value that is asked for needs them.
    pub fn given(&mut self, view: View) -> Node {
        let meta = Meta { dtype: view.dtype, shape: view.shape.clone() };
        self.push(meta, Source::Given, Some(view))
    }

    /// The gradients of `of`'s first values, weighted by their second ones and summed up: [`reverse::gradients`].
    pub fn gradients(&mut self, of: &[(Node, Node)], by: &[Node]) -> Result<Vec<Option<Node>>> {
        reverse::gradients(self, of, by)
    }

    /// Computes a value, and what it is made of, where that is not done yet.
    pub fn value(&mut self, node: Node) -> Result<View> {
        if let Some(view) = &self.values[node.0].view {
            return Ok(view.clone());
        }
        match self.values[node.0].source {
            Source::Given => unreachable!("what is given has a view"),
            Source::Reshaped(from) => {
                let view = self.dense(from)?;
                self.values[node.0].view =
                    Some(View::dense(view.address, view.dtype, &self.values[node.0].meta.shape)?);
            }
            Source::Step(step) => self.run(step)?,
        }
        Ok(self.values[node.0].view.clone().expect("computed just now"))
    }

    /// A value whose elements follow each other.
    fn dense(&mut self, node: Node) -> Result<View> {
        let view = self.value(node)?;
        if view.is_dense() { Ok(view) } else { self.formula.apply(&Copy, &[view]) }
    }

    fn run(&mut self, step: usize) -> Result<()> {
        let Step { operator, inputs, outputs } = self.steps[step].clone();
        let inputs = inputs.into_iter().map(|input| self.value(input)).collect::<Result<Vec<View>>>()?;
        // What is repeated need not be copied: operators read any strides.
        if (&*operator as &dyn Any).is::<Expand>()
            && let Some(repeated) = inputs[0].broadcast_to(&self.values[outputs[0].0].meta.shape)
        {
            self.values[outputs[0].0].view = Some(repeated);
            return Ok(());
        }
        let place = |output: &Node| {
            let Meta { dtype, shape } = &self.values[output.0].meta;
            self.formula.temporary(*dtype, shape)
        };
        let places = outputs.iter().map(place).collect::<Result<Vec<View>>>()?;
        operator.run(self.formula.queue(), &inputs, &places)?;
        for (output, place) in outputs.iter().zip(places) {
            self.values[output.0].view = Some(place);
        }
        Ok(())
    }

    fn push(&mut self, meta: Meta, source: Source, view: Option<View>) -> Node {
        self.values.push(Value { meta, source, view });
        Node(self.values.len() - 1)
    }
}

impl Recorder for Tape<'_> {
    fn meta(&self, value: Node) -> Meta {
        self.values[value.0].meta.clone()
    }

    fn record(&mut self, operator: Arc<dyn Operator>, inputs: &[Node]) -> Result<Vec<Node>> {
        let metas: Vec<Meta> = inputs.iter().map(|&input| self.meta(input)).collect();
        let step = self.steps.len();
        let outputs: Vec<Node> =
            operator.infer(&metas)?.into_iter().map(|meta| self.push(meta, Source::Step(step), None)).collect();
        self.steps.push(Step { operator, inputs: inputs.to_vec(), outputs: outputs.clone() });
        Ok(outputs)
    }

    fn record_reshape(&mut self, x: Node, dims: &[usize]) -> Result<Node> {
        let meta = Meta { dtype: self.meta(x).dtype, shape: shape_of(dims)? };
        Ok(self.push(meta, Source::Reshaped(x), None))
    }
}

impl Record for Tape<'_> {
    fn origin(&self, value: Node) -> Origin {
        match self.values[value.0].source {
            Source::Given => Origin::Given,
            Source::Reshaped(from) => Origin::Reshaped(from),
            Source::Step(step) => Origin::Step(self.steps[step].clone()),
        }
    }
}
