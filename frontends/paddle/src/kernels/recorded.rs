//! Kernels whose operators are recorded before they run, so that gradients are taken of them: those of a kernel that is made of several operators, and
//! gradients of gradients.

use super::compose::Compose;
use crate::error::Result;
use crate::{Context, Output, Tensor};
use openmps_graph::gradient::{Node, Recorder};
use openmps_graph::operators::words::Words;
use openmps_graph::tape::Tape;
use openmps_graph::{DType, Meta, Operator, View};
use std::sync::Arc;

/// A kernel's tensors, which are computed in one type and stored in another, and what is recorded of them.
pub(super) struct Recorded<'c> {
    pub c: Compose<'c>,
    tape: Tape<'c>,
    dtype: DType,
}

impl Recorder for Recorded<'_> {
    fn meta(&self, value: Node) -> Meta {
        self.tape.meta(value)
    }

    fn record(&mut self, operator: Arc<dyn Operator>, inputs: &[Node]) -> openmps_graph::Result<Vec<Node>> {
        self.tape.record(operator, inputs)
    }

    fn record_reshape(&mut self, x: Node, dims: &[usize]) -> openmps_graph::Result<Node> {
        self.tape.record_reshape(x, dims)
    }
}

impl<'c> Recorded<'c> {
    /// Of results of this type.
    pub fn new(context: &'c Context, dtype: DType) -> Recorded<'c> {
        Recorded { c: Compose::new(context), tape: Tape::new("a recorded kernel", context.queue()), dtype }
    }

    /// A tensor in the type in which it is computed. Of one in that type no element is read unless a result needs it: where only shapes are needed,
    /// Paddle has freed them in static programs.
    pub fn input(&mut self, x: &Tensor) -> Result<Node> {
        self.view(&x.view()?)
    }

    /// As [`Recorded::input`], of a tensor that is seen in another way.
    pub fn view(&mut self, x: &View) -> Result<Node> {
        let node = self.given(x);
        Ok(self.cast(node, self.dtype.compute())?)
    }

    /// As [`Recorded::input`], of one that may be missing.
    pub fn optional(&mut self, x: Option<&Tensor>) -> Result<Option<Node>> {
        x.map(|x| self.input(x)).transpose()
    }

    /// As [`Recorded::input`], or zeros.
    pub fn or_zeros(&mut self, x: Option<&Tensor>, like: Node) -> Result<Node> {
        match x {
            Some(x) => self.input(x),
            None => Ok(self.zeros_like(like)?),
        }
    }

    /// A tensor in its own type: a product of halves is summed up in float32 without copies of them.
    pub fn given(&mut self, x: &View) -> Node {
        self.tape.given(x.clone())
    }

    /// Gradients of values by others, where the gradients of these values are given. What has none, or is none, does not count.
    pub fn gradients<const N: usize>(
        &mut self,
        of: &[(Option<Node>, Option<Node>)],
        by: [Node; N],
    ) -> Result<[Option<Node>; N]> {
        let of: Vec<(Node, Node)> = of.iter().filter_map(|&(value, upstream)| value.zip(upstream)).collect();
        let found = self.tape.gradients(&of, &by)?;
        Ok(found.try_into().expect("one for each"))
    }

    /// The gradients of an operator's call by both of its tensors, where that of its result is given.
    pub fn of_both(
        &mut self,
        operator: impl Operator,
        by: [Node; 2],
        upstream: Option<Node>,
    ) -> Result<[Option<Node>; 2]> {
        let result = self.one(operator, &by)?;
        self.gradients(&[(Some(result), upstream)], by)
    }

    /// The gradients of a kernel's result, into outputs of which each may be missing.
    pub fn store_gradients(
        mut self,
        (result, upstream): (Node, &Tensor),
        by: &[Node],
        outputs: Vec<Option<Output>>,
    ) -> Result<()> {
        let upstream = self.input(upstream)?;
        let upstream = self.reshape(upstream, &self.shape(result))?;
        let found = self.tape.gradients(&[(result, upstream)], by)?;
        self.store(outputs, found)
    }

    /// Ends the kernel: writes each value that is asked for, zeros where there is none. All are computed before one is written, since Paddle may give an
    /// output the memory of an input.
    pub fn store(
        mut self,
        outputs: impl IntoIterator<Item = Option<Output>>,
        values: impl IntoIterator<Item = Option<Node>>,
    ) -> Result<()> {
        let mut computed = Vec::new();
        for (output, value) in outputs.into_iter().zip(values) {
            if let Some(output) = output {
                computed.push((output, value.map(|value| self.tape.value(value)).transpose()?));
            }
        }
        for (output, value) in computed {
            match value {
                Some(value) => self.c.store_value(&output, self.dtype, &value)?,
                None => self.c.fill(&self.c.place(&output, self.dtype)?, 0.0)?,
            }
        }
        Ok(())
    }
}
