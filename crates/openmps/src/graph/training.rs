//! Variables that a graph's runs change, and steps of optimizers: what training needs beside gradients.

use super::{Executable, Graph, OptimizationLevel, Source, Tensor, TensorData, cache};
use crate::error::{Error, Result};
use openmps_graph::operators::elementwise::{Call, Elementwise, Optimizer, Unary};
use openmps_graph::operators::optimizer::{Adam, Momentum};
use openmps_runtime::Device;
use openmps_tile::Number;
use std::sync::Arc;

/// What a variable is set to at the end of a run: `assignVariable:withValueOfTensor:name:`.
///
/// ```
/// use openmps::{Device, Graph, TensorData};
/// let (device, mut graph) = (Device::get(0)?, Graph::new());
/// let count = TensorData::from_slice(&device, &[1], &[0.0f32])?;
/// let (x, one) = (graph.variable(&count), graph.constant(&[1], &[1.0f32])?);
/// let next = graph.add(x, one)?;
/// let counter = graph.compile_training(&device, &[], &[graph.assign(x, next)?])?;
/// counter.run(&device.queue(), &[])?;
/// counter.run(&device.queue(), &[])?;
/// assert_eq!(count.read::<f32>()?, [2.0]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub(super) variable: Tensor,
    pub(super) value: Tensor,
}

/// How [`Graph::minimize`] changes variables.
///
/// ```
/// assert!(matches!(openmps::GraphOptimizer::adam(), openmps::GraphOptimizer::Adam { .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GraphOptimizer {
    /// `value - rate * gradient`: `stochasticGradientDescentWithLearningRateTensor:...`.
    GradientDescent,
    /// The same along a running sum of gradients (Sutskever et al., 2013).
    Momentum {
        /// How much of the sum is kept.
        mu: f64,
        /// Whether the gradient is taken where the sum leads.
        nesterov: bool,
    },
    /// Adam (Kingma and Ba, 2015), with decay AdamW (Loshchilov and Hutter, 2019): `adamWithLearningRateTensor:...`.
    Adam {
        /// How much of the first and second moment is kept.
        betas: [f64; 2],
        /// Added to the root of the second moment.
        epsilon: f64,
        /// How much of the value is taken away, times the rate.
        decay: f64,
    },
}

impl GraphOptimizer {
    /// Adam as its paper has it: betas 0.9 and 0.999, epsilon 1e-8, no decay.
    ///
    /// ```
    /// let optimizer = openmps::GraphOptimizer::adam();
    /// assert_eq!(optimizer, openmps::GraphOptimizer::Adam { betas: [0.9, 0.999], epsilon: 1e-8, decay: 0.0 });
    /// ```
    pub fn adam() -> GraphOptimizer {
        GraphOptimizer::Adam { betas: [0.9, 0.999], epsilon: 1e-8, decay: 0.0 }
    }
}

impl Graph {
    /// A value that runs of compiled graphs read and change: `variableWithData:shape:dataType:name:`. The graph runs on the device of this
    /// memory only.
    ///
    /// ```
    /// use openmps::{Device, Graph, TensorData};
    /// let (device, mut graph) = (Device::get(0)?, Graph::new());
    /// let weight = TensorData::from_slice(&device, &[2], &[2.0f32, 3.0])?;
    /// let x = graph.variable(&weight);
    /// assert_eq!(graph.shape(x)?, [2]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn variable(&mut self, tensor: &TensorData) -> Tensor {
        self.push(tensor.meta.clone(), Source::Variable(tensor.clone()))
    }

    /// What a variable is set to at the end of each run of a graph that is compiled with it.
    ///
    /// ```
    /// use openmps::{Device, Graph, TensorData};
    /// let (device, mut graph) = (Device::get(0)?, Graph::new());
    /// let x = graph.variable(&TensorData::from_slice(&device, &[2], &[2.0f32, 3.0])?);
    /// let y = graph.constant(&[3], &[0.0f32; 3])?;
    /// assert!(graph.assign(x, y).is_err(), "of another shape");
    /// assert!(graph.assign(y, y).is_err(), "no variable");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn assign(&self, variable: Tensor, value: Tensor) -> Result<Assignment> {
        let operation = "assign";
        let (to, from) = (&self.values[self.index(variable)?], self.meta(value)?);
        if !matches!(to.source, Source::Variable(_)) {
            let (got, expected) = ("no variable".to_owned(), "a value of Graph::variable".to_owned());
            return Err(Error::Attribute { operation, attribute: "variable", got, expected });
        }
        if to.meta.shape != from.shape {
            let (got, expected) = (format!("{:?}", from.shape), format!("{:?}", to.meta.shape));
            return Err(Error::Shape { operation, what: "the value", got, expected });
        }
        if to.meta.dtype != from.dtype {
            let expected = to.meta.dtype.to_string();
            return Err(Error::DataType { operation, what: "the value", got: from.dtype, expected });
        }
        Ok(Assignment { variable, value })
    }

    /// Makes a value smaller, summed up where it has several elements: one step of an optimizer for each variable, as assignments for
    /// [`Graph::compile_training`]. `rate` is the learning rate, one element. What an optimizer remembers is held by variables of its own,
    /// which begin at zero, in memory of the variables' device.
    ///
    /// ```
    /// use openmps::{DataType, Device, Graph, GraphOptimizer, TensorData};
    /// let (device, mut graph) = (Device::get(0)?, Graph::new());
    /// let line = TensorData::from_slice(&device, &[1], &[0.0f32])?;
    /// let x = graph.placeholder("x", &[4], DataType::F32)?;
    /// let y = graph.placeholder("y", &[4], DataType::F32)?;
    /// let slope = graph.variable(&line);
    /// let guess = graph.multiply(x, slope)?;
    /// let error = graph.subtract(guess, y)?;
    /// let loss = graph.multiply(error, error)?;
    /// let rate = graph.constant(&[1], &[0.1f32])?;
    /// let updates = graph.minimize(loss, &[slope], rate, GraphOptimizer::adam())?;
    /// let step = graph.compile_training(&device, &[loss], &updates)?;
    ///
    /// let x = TensorData::from_slice(&device, &[4], &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let y = TensorData::from_slice(&device, &[4], &[2.0f32, 4.0, 6.0, 8.0])?;
    /// for _ in 0..200 {
    ///     step.run(&device.queue(), &[("x", &x), ("y", &y)])?;
    /// }
    /// assert!((line.read::<f32>()?[0] - 2.0).abs() < 0.01);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn minimize(
        &mut self,
        loss: Tensor,
        variables: &[Tensor],
        rate: Tensor,
        optimizer: GraphOptimizer,
    ) -> Result<Vec<Assignment>> {
        let gradients = self.gradients(loss, variables)?;
        let mut assignments = Vec::new();
        let powers = match optimizer {
            GraphOptimizer::Adam { betas, .. } => self.powers(variables, betas, &mut assignments)?,
            _ => Vec::new(),
        };
        for (&variable, gradient) in variables.iter().zip(gradients) {
            match optimizer {
                GraphOptimizer::GradientDescent => {
                    let call = Call::new(Elementwise::Optimizer(Optimizer::Sgd));
                    let value = self.operator(call, &[variable, gradient, rate])?[0];
                    assignments.push(self.assign(variable, value)?);
                }
                GraphOptimizer::Momentum { mu, nesterov } => {
                    let operator = Momentum { mu, nesterov, rescale: 1.0, decay: 0.0 };
                    let sum = self.zeros_beside(variable)?;
                    let inputs = [variable, gradient, sum, rate];
                    self.assign_all(operator, &inputs, &[variable, sum], &mut assignments)?;
                }
                GraphOptimizer::Adam { betas, epsilon, decay } => {
                    let moments = [self.zeros_beside(variable)?, self.zeros_beside(variable)?];
                    let powers = self.powers_as(variable, &powers)?;
                    let inputs = [variable, gradient, moments[0], moments[1], rate, powers[0], powers[1]];
                    let states = [variable, moments[0], moments[1]];
                    self.assign_all(Adam { betas, epsilon, decay }, &inputs, &states, &mut assignments)?;
                }
            }
        }
        Ok(assignments)
    }

    /// The graph compiled for these results, each of whose runs ends with these assignments: `compileWithDevice:feeds:targetTensors:
    /// targetOperations:...`. Runs of one such executable must not overlap: each reads what the one before has written.
    ///
    /// ```
    /// use openmps::{Device, Graph};
    /// let graph = Graph::new();
    /// assert!(graph.compile_training(&Device::get(0)?, &[], &[]).is_ok());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn compile_training(
        &self,
        device: &Device,
        results: &[Tensor],
        assignments: &[Assignment],
    ) -> Result<Arc<Executable>> {
        cache::SHARED.compile_training(self, device, results, assignments, OptimizationLevel::Level1)
    }

    fn assign_all(
        &mut self,
        operator: impl openmps_graph::Operator,
        inputs: &[Tensor],
        states: &[Tensor],
        assignments: &mut Vec<Assignment>,
    ) -> Result<()> {
        for (&state, value) in states.iter().zip(self.operator(operator, inputs)?) {
            assignments.push(self.assign(state, value)?);
        }
        Ok(())
    }

    /// A variable of zeros in memory of another's device.
    fn zeros_beside(&mut self, variable: Tensor) -> Result<Tensor> {
        let Source::Variable(tensor) = &self.values[self.index(variable)?].source else {
            let (got, expected) = ("no variable".to_owned(), "a value of Graph::variable".to_owned());
            return Err(Error::Attribute { operation: "minimize", attribute: "variables", got, expected });
        };
        let (meta, device) = (tensor.meta.clone(), tensor.buffer.device().clone());
        let zeros = TensorData::from_bytes(&device, &meta.shape, meta.dtype, &vec![0; meta.bytes()?])?;
        Ok(self.variable(&zeros))
    }

    /// The powers of both betas after this step, float32, of which every variable's step needs the same.
    fn powers(
        &mut self,
        variables: &[Tensor],
        betas: [f64; 2],
        assignments: &mut Vec<Assignment>,
    ) -> Result<Vec<Tensor>> {
        let Some(&first) = variables.first() else { return Ok(Vec::new()) };
        let Source::Variable(tensor) = &self.values[self.index(first)?].source else { return Ok(Vec::new()) };
        let device = tensor.buffer.device().clone();
        let mut powers = Vec::new();
        for beta in betas {
            let power = self.variable(&TensorData::from_slice(&device, &[1], &[1.0f32])?);
            let scalars = vec![Number::Float(beta), Number::Float(0.0)];
            let call = Call { operator: Elementwise::Unary(Unary::Scale), scalars, output: None };
            let next = self.operator(call, &[power])?[0];
            assignments.push(self.assign(power, next)?);
            powers.push(next);
        }
        Ok(powers)
    }

    /// The powers in a variable's element type.
    fn powers_as(&mut self, variable: Tensor, powers: &[Tensor]) -> Result<[Tensor; 2]> {
        let dtype = self.meta(variable)?.dtype;
        let [first, second] = powers else { return Err(Error::ForeignTensor { index: variable.index }) };
        let mut as_own =
            |power: Tensor| if dtype == self.meta(power)?.dtype { Ok(power) } else { self.cast(power, dtype) };
        Ok([as_own(*first)?, as_own(*second)?])
    }
}
