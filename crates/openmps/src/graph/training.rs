//! Variables that a graph's runs change, and steps of optimizers: what training needs beside gradients.

use super::{Executable, Graph, OptimizationLevel, Source, Tensor, TensorData, cache};
use crate::device::Device;
use crate::error::{Error, Result};
use openmps_graph::operators::elementwise::{Call, Elementwise, Optimizer, Unary};
use openmps_graph::operators::optimizer::{Adam, Momentum};
use openmps_tile::{DType, Number};
use std::collections::HashSet;
use std::ops::Range;
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

    /// Refuses numbers with which every step would be NaN, or away from the minimum.
    fn check(&self) -> Result<()> {
        const PART: (Range<f64>, &str) = (0.0..1.0, "at least 0 and less than 1");
        const POSITIVE: (Range<f64>, &str) = (0.0..f64::INFINITY, "a finite number of at least 0");
        const FINITE: (Range<f64>, &str) = (f64::MIN..f64::INFINITY, "a finite number");
        let numbers = match *self {
            GraphOptimizer::GradientDescent => Vec::new(),
            GraphOptimizer::Momentum { mu, .. } => vec![("mu", mu, FINITE)],
            GraphOptimizer::Adam { betas: [first, second], epsilon, decay } => {
                vec![
                    ("betas", first, PART),
                    ("betas", second, PART),
                    ("epsilon", epsilon, POSITIVE),
                    ("decay", decay, FINITE),
                ]
            }
        };
        match numbers.into_iter().find(|(_, number, (range, _))| !range.contains(number)) {
            Some((attribute, number, (_, expected))) => {
                let (got, expected) = (number.to_string(), expected.to_owned());
                Err(Error::Attribute { operation: "minimize", attribute, got, expected })
            }
            None => Ok(()),
        }
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
        let from = self.meta(value)?;
        let to = &self.memory_of(variable, operation, "variable")?.meta;
        if to.shape != from.shape {
            let (got, expected) = (format!("{:?}", from.shape), format!("{:?}", to.shape));
            return Err(Error::Shape { operation, what: "the value", got, expected });
        }
        if to.dtype != from.dtype {
            let expected = to.dtype.to_string();
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
        self.check_variables("minimize", variables.iter().copied())?;
        optimizer.check()?;
        let gradients = self.gradients(loss, variables)?;
        let steps: Vec<(Tensor, Tensor)> = variables.iter().copied().zip(gradients).collect();
        match optimizer {
            GraphOptimizer::GradientDescent => self.descend(&steps, rate),
            GraphOptimizer::Momentum { mu, nesterov } => {
                self.descend_with_momentum(&steps, rate, &Momentum { mu, nesterov, rescale: 1.0, decay: 0.0 })
            }
            GraphOptimizer::Adam { betas, epsilon, decay } => {
                self.descend_by_moments(&steps, rate, &Adam { betas, epsilon, decay })
            }
        }
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
        self.check_variables("compile_training", assignments.iter().map(|assignment| assignment.variable))?;
        cache::SHARED.compile_training(self, device, results, assignments, OptimizationLevel::Level1)
    }

    fn descend(&mut self, steps: &[(Tensor, Tensor)], rate: Tensor) -> Result<Vec<Assignment>> {
        let mut assignments = Vec::new();
        // A rate of one element has no dimension that a variable without any would be given.
        let rate = self.reshape(rate, &[])?;
        for &(variable, gradient) in steps {
            let call = Call::new(Elementwise::Optimizer(Optimizer::Sgd));
            self.assign_all(call, &[variable, gradient, rate], &[variable], &mut assignments)?;
        }
        Ok(assignments)
    }

    fn descend_with_momentum(
        &mut self,
        steps: &[(Tensor, Tensor)],
        rate: Tensor,
        momentum: &Momentum,
    ) -> Result<Vec<Assignment>> {
        let mut assignments = Vec::new();
        for &(variable, gradient) in steps {
            self.whole(variable)?;
            let sum = self.zeros_beside(variable)?;
            let inputs = [variable, gradient, sum, rate];
            self.assign_all(momentum.clone(), &inputs, &[variable, sum], &mut assignments)?;
        }
        Ok(assignments)
    }

    fn descend_by_moments(&mut self, steps: &[(Tensor, Tensor)], rate: Tensor, adam: &Adam) -> Result<Vec<Assignment>> {
        let mut assignments = Vec::new();
        let Some(&(first, _)) = steps.first() else { return Ok(assignments) };
        // One pair for all variables of a type, which is as exact as they are.
        let mut powers: [Option<[Tensor; 2]>; 2] = [None; 2];
        for &(variable, gradient) in steps {
            let moments = [self.zeros_beside(variable)?, self.zeros_beside(variable)?];
            let dtype = self.whole(variable)?;
            let slot = &mut powers[usize::from(dtype == DType::F64)];
            let powers = match slot {
                Some(powers) => *powers,
                None => *slot.insert(self.powers(first, dtype, adam.betas, &mut assignments)?),
            };
            let inputs = [variable, gradient, moments[0], moments[1], rate, powers[0], powers[1]];
            self.assign_all(adam.clone(), &inputs, &[variable, moments[0], moments[1]], &mut assignments)?;
        }
        Ok(assignments)
    }

    /// Refuses a variable that would be set twice: what one of both steps has written would be lost.
    fn check_variables(&self, operation: &'static str, variables: impl Iterator<Item = Tensor>) -> Result<()> {
        let mut seen = HashSet::new();
        for variable in variables {
            let index = self.index(variable)?;
            if !seen.insert(index) {
                let (got, expected) = (format!("variable {index} twice"), "each variable once".to_owned());
                return Err(Error::Attribute { operation, attribute: "variables", got, expected });
            }
        }
        Ok(())
    }

    /// The memory of a variable, or what is said of another value.
    fn memory_of(&self, variable: Tensor, operation: &'static str, attribute: &'static str) -> Result<&TensorData> {
        match &self.values[self.index(variable)?].source {
            Source::Variable(tensor) => Ok(tensor),
            _ => {
                let (got, expected) = ("no variable".to_owned(), "a value of Graph::variable".to_owned());
                Err(Error::Attribute { operation, attribute, got, expected })
            }
        }
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
        let TensorData { meta, buffer, .. } = self.memory_of(variable, "minimize", "variables")?;
        let zeros = TensorData::from_bytes(buffer.device(), &meta.shape, meta.dtype, &vec![0; meta.bytes()?])?;
        Ok(self.variable(&zeros))
    }

    /// The type of a variable that steps with a memory are taken on: half types have no room for small steps.
    fn whole(&self, variable: Tensor) -> Result<DType> {
        match self.meta(variable)?.dtype {
            dtype @ (DType::F32 | DType::F64) => Ok(dtype),
            got => {
                let expected =
                    "float32 or float64, of which the graph may make a half type where it computes".to_owned();
                Err(Error::DataType { operation: "minimize", what: "a variable", got, expected })
            }
        }
    }

    /// The powers of both betas after this step, of which every variable's step needs the same; in memory of one's device.
    fn powers(
        &mut self,
        variable: Tensor,
        dtype: DType,
        betas: [f64; 2],
        assignments: &mut Vec<Assignment>,
    ) -> Result<[Tensor; 2]> {
        let device = self.memory_of(variable, "minimize", "variables")?.buffer.device().clone();
        let mut power = |beta: f64| -> Result<Tensor> {
            let one = match dtype {
                DType::F64 => TensorData::from_slice(&device, &[1], &[1.0f64])?,
                _ => TensorData::from_slice(&device, &[1], &[1.0f32])?,
            };
            let power = self.variable(&one);
            let scalars = vec![Number::Float(beta), Number::Float(0.0)];
            let call = Call { operator: Elementwise::Unary(Unary::Scale), scalars, output: None };
            let next = self.operator(call, &[power])?[0];
            assignments.push(self.assign(power, next)?);
            Ok(next)
        };
        Ok([power(betas[0])?, power(betas[1])?])
    }
}
