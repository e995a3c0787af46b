//! `softmax(scale * q k^T + mask) v` is attention: scores are never stored.

use super::{Rewriter, downcast};
use crate::error::Result;
use openmps_graph::Operator;
use openmps_graph::operators::attention::Attention;
use openmps_graph::operators::elementwise::{Binary, Call, Elementwise, Unary};
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::operators::softmax::Softmax;
use openmps_graph::operators::transpose::Transpose;
use openmps_tile::Number;
use std::sync::Arc;

/// What was found on the way from the values back to the scores.
struct Scores {
    /// The steps that attention takes the place of.
    steps: Vec<usize>,
    scale: f64,
    mask: Option<usize>,
    queries: usize,
    /// As attention reads them, [batch, heads, keys, depth].
    keys: usize,
}

impl Rewriter<'_> {
    /// Attention in the place of its last product.
    pub(super) fn attention(
        &mut self,
        operator: &Arc<dyn Operator>,
        inputs: &[usize],
        uses: usize,
    ) -> Result<Option<usize>> {
        let Some(Matmul { transpose_left: false, transpose_right: false }) = downcast::<Matmul>(operator) else {
            return Ok(None);
        };
        let Some(scores) = self.scores(inputs[0]) else { return Ok(None) };
        let attention = Attention { scale: Some(scores.scale), ..Attention::default() };
        let mut operands = vec![scores.queries, scores.keys, inputs[1]];
        operands.extend(scores.mask);
        let metas: Vec<_> = operands.iter().map(|&operand| self.values[operand].meta.clone()).collect();
        if attention.infer(&metas).is_err() {
            return Ok(None);
        }
        for step in scores.steps {
            self.remove(step);
        }
        Ok(Some(self.append(Arc::new(attention), operands, &[uses])?[0]))
    }

    /// Reads probabilities backwards: softmax, mask, scale, product.
    fn scores(&self, probabilities: usize) -> Option<Scores> {
        let last = self.shape(probabilities).len() as i64 - 1;
        let (step, softmax) = self.producer::<Softmax>(probabilities)?;
        if softmax.logarithm || ![-1, last].contains(&softmax.axis) {
            return None;
        }
        let mut steps = vec![step];
        let (mut value, mut scale, mut mask) = (self.input(step, 0), 1.0, None);
        while let Some((step, call)) = self.producer::<Call>(value) {
            match call.operator {
                Elementwise::Binary(Binary::Add) if mask.is_none() && scale == 1.0 => {
                    let inner = (0..2).find(|&at| self.leads_to_product(self.input(step, at)))?;
                    (value, mask) = (self.input(step, inner), Some(self.input(step, 1 - inner)));
                }
                Elementwise::Unary(Unary::Scale) => {
                    let [Number::Float(factor), Number::Float(0.0)] = call.scalars[..] else { return None };
                    (value, scale) = (self.input(step, 0), scale * factor);
                }
                Elementwise::Binary(Binary::Multiply) => {
                    let (scores, factor) = (self.input(step, 0), self.input(step, 1));
                    // One number under more dimensions than the scores have would give them more.
                    if self.shape(factor).len() > self.shape(scores).len() {
                        return None;
                    }
                    (value, scale) = (scores, scale * f64::from(self.number(factor).ok().flatten()?));
                }
                _ => return None,
            }
            steps.push(step);
        }
        let (step, product) = self.producer::<Matmul>(value)?;
        steps.push(step);
        if product.transpose_left {
            return None;
        }
        let (queries, mut keys) = (self.input(step, 0), self.input(step, 1));
        if !product.transpose_right {
            // The keys were transposed for the product; attention reads them as they were.
            let (step, Transpose { axes }) = self.producer::<Transpose>(keys)?;
            if !matches!(axes[..], [0, 1, 3, 2]) {
                return None;
            }
            steps.push(step);
            keys = self.input(step, 0);
        }
        Some(Scores { steps, scale, mask, queries, keys })
    }

    fn leads_to_product(&self, value: usize) -> bool {
        self.producer::<Matmul>(value).is_some()
            || self.producer::<Call>(value).is_some_and(|(step, _)| self.leads_to_product(self.input(step, 0)))
    }

    fn input(&self, step: usize, at: usize) -> usize {
        self.steps[step].as_ref().map_or(usize::MAX, |step| step.inputs[at])
    }
}
