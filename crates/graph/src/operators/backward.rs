//! What an operator is asked for its gradient with. It is a recorder, too, so that gradients are said in the words of `words.rs`.

use crate::error::Result;
use crate::gradient::{Backward, Gradients, Node, Recorder};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use std::sync::Arc;

impl Recorder for Backward<'_> {
    fn meta(&self, value: Node) -> Meta {
        self.recorder.meta(value)
    }

    fn record(&mut self, operator: Arc<dyn Operator>, inputs: &[Node]) -> Result<Vec<Node>> {
        self.recorder.record(operator, inputs)
    }

    fn record_reshape(&mut self, x: Node, dims: &[usize]) -> Result<Node> {
        self.recorder.record_reshape(x, dims)
    }
}

impl Backward<'_> {
    /// The gradient of the first output, which exists where an operator has one output.
    pub fn dy(&mut self) -> Result<Node> {
        self.of_output(0)
    }

    /// The gradient of an output; zeros where nothing depends on it.
    pub fn of_output(&mut self, index: usize) -> Result<Node> {
        match self.upstream[index] {
            Some(gradient) => Ok(gradient),
            None => self.zeros_like(self.outputs[index]),
        }
    }

    /// No gradient for any input.
    pub fn nothing(&self) -> Gradients {
        vec![None; self.inputs.len()]
    }

    /// The gradients that are wanted, of those that these closures record, one for each input.
    pub fn each<const N: usize>(&mut self, rules: [&dyn Fn(&mut Self) -> Result<Node>; N]) -> Result<Gradients> {
        let mut gradients = self.nothing();
        for (index, rule) in rules.into_iter().enumerate() {
            if self.wanted.get(index) == Some(&true) {
                gradients[index] = Some(rule(self)?);
            }
        }
        Ok(gradients)
    }
}
