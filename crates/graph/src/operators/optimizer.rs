//! Steps of optimizers with all their states: on the CPU one pass, elsewhere the formulas of the elementwise tables, one after the other.

use crate::entry::{Case, Entry, Input, Values};
use crate::error::Result;
use crate::formula::Formula;
use crate::layout::{call, check, expect_dtype, expect_inputs, expect_shape, takes_singles};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::{Elementwise, Optimizer};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_host::native::{memory::slice, optimizer as native};
use openmps_tile::dtype;

/// A step with momentum. Inputs: value, gradient, velocity, learning rate (one element). Outputs: value and velocity after it, each of which
/// may be its input.
#[derive(Clone, Debug)]
pub struct Momentum {
    /// How much of the velocity is kept.
    pub mu: f64,
    /// Whether the gradient is taken where the velocity leads.
    pub nesterov: bool,
    /// The gradient's factor.
    pub rescale: f64,
    /// How much of the value is added to the gradient.
    pub decay: f64,
}

/// A step of Adam, or with decay of AdamW. Inputs: value, gradient, first and second moment, learning rate and the powers of both betas (one
/// element each). Outputs: value and moments after it, each of which may be its input.
#[derive(Clone, Debug)]
pub struct Adam {
    /// How much of the moments is kept.
    pub betas: [f64; 2],
    /// Added to the root, against division by zero.
    pub epsilon: f64,
    /// How much of the value is taken away first, times the rate.
    pub decay: f64,
}

/// What a step's inputs must be: `states` of one shape, then `numbers` of one element.
fn expect(operator: &'static str, inputs: &[Meta], states: usize, numbers: usize) -> Result<()> {
    expect_inputs(operator, inputs, states + numbers)?;
    expect_dtype(operator, "value", inputs[0].dtype, dtype::FLOATS)?;
    for input in &inputs[1..] {
        expect_dtype(operator, "state", input.dtype, &[inputs[0].dtype])?;
    }
    for state in &inputs[1..states] {
        expect_shape(operator, "state", &state.shape, &inputs[0].shape)?;
    }
    for number in &inputs[states..] {
        expect_shape(operator, "number", &[number.shape.iter().product()], &[1])?;
    }
    Ok(())
}

/// The number that a view of one float32 holds.
fn number(view: &View) -> f32 {
    // SAFETY: a view of one element, which the queue's owner vouches for, read when the command runs.
    unsafe { slice::<f32>(view.address, 1)[0] }
}

/// A number as it broadcasts against a state.
fn scalar(view: &View) -> Result<View> {
    View::dense(view.address, view.dtype, &[])
}

impl Operator for Momentum {
    fn name(&self) -> &'static str {
        "momentum"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect(self.name(), inputs, 3, 1)?;
        Ok(vec![inputs[0].clone(), inputs[2].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let [value, gradient, velocity, rate] = inputs else { unreachable!("checked by infer") };
        if takes_singles(queue, inputs, outputs) {
            return call(queue, self.name(), || {
                let step = native::Momentum {
                    rate: number(rate),
                    mu: self.mu as f32,
                    nesterov: self.nesterov,
                    rescale: self.rescale as f32,
                    decay: self.decay as f32,
                };
                let states = [[value, &outputs[0]], [velocity, &outputs[1]]].map(|pair| pair.map(|view| view.address));
                // SAFETY: dense float32 views of one shape, which the queue's owner vouches for.
                unsafe { native::momentum(&step, value.len(), gradient.address, states[0], states[1]) };
                Ok(())
            });
        }
        let (f, rate) = (Formula::new(self.name(), queue), scalar(rate)?);
        let step =
            |operator, inputs: &[&View], numbers: &[f64]| f.map(Elementwise::Optimizer(operator), inputs, numbers);
        let gradient = step(Optimizer::Regularized, &[gradient, value], &[self.rescale, self.decay])?;
        let velocity = step(Optimizer::Velocity, &[velocity, &gradient], &[self.mu])?;
        let value = match self.nesterov {
            true => step(Optimizer::Nesterov, &[value, &gradient, &velocity, &rate], &[self.mu])?,
            false => step(Optimizer::Sgd, &[value, &velocity, &rate], &[])?,
        };
        f.store(&value, &outputs[0])?;
        f.store(&velocity, &outputs[1])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let [p, g, v] = [0, 1, 2].map(|i| &inputs[i].data);
        let gradient: Vec<f64> = g.iter().zip(p).map(|(g, p)| g * self.rescale + p * self.decay).collect();
        let velocity: Vec<f64> = v.iter().zip(&gradient).map(|(v, g)| v * self.mu + g).collect();
        let change = |i: usize| if self.nesterov { gradient[i] + self.mu * velocity[i] } else { velocity[i] };
        let value = (0..p.len()).map(|i| p[i] - inputs[3].data[0] * change(i)).collect();
        [value, velocity].map(|data| Array::new(&inputs[0].shape, data, inputs[0].dtype)).into()
    }
}

impl Operator for Adam {
    fn name(&self) -> &'static str {
        "adam"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect(self.name(), inputs, 4, 3)?;
        Ok(vec![inputs[0].clone(), inputs[2].clone(), inputs[3].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let [value, gradient, moment, square, rate, power1, power2] = inputs else { unreachable!("checked by infer") };
        if takes_singles(queue, inputs, outputs) {
            return call(queue, self.name(), || {
                let (rate, correction) = (number(rate), (1.0 - number(power2)).sqrt());
                let step = native::Adam {
                    rate: rate * correction / (1.0 - number(power1)),
                    floor: correction * self.epsilon as f32,
                    betas: self.betas.map(|beta| beta as f32),
                    keep: 1.0 - rate * self.decay as f32,
                };
                let states = [[value, &outputs[0]], [moment, &outputs[1]], [square, &outputs[2]]];
                let [value, moments @ ..] = states.map(|pair| pair.map(|view| view.address));
                // SAFETY: as above.
                unsafe { native::adam(&step, inputs[0].len(), gradient.address, value, moments) };
                Ok(())
            });
        }
        let f = Formula::new(self.name(), queue);
        let (rate, power1, power2) = (scalar(rate)?, scalar(power1)?, scalar(power2)?);
        let step =
            |operator, inputs: &[&View], numbers: &[f64]| f.map(Elementwise::Optimizer(operator), inputs, numbers);
        let value = match self.decay {
            0.0 => value.clone(),
            decay => step(Optimizer::Decay, &[value, &rate], &[decay])?,
        };
        let moment = step(Optimizer::Moment, &[moment, gradient], &self.betas[..1])?;
        let square = step(Optimizer::SquareMoment, &[square, gradient], &self.betas[1..])?;
        let rate = step(Optimizer::AdamRate, &[&rate, &power1, &power2], &[])?;
        let floor = step(Optimizer::AdamFloor, &[&power2], &[self.epsilon])?;
        let value = step(Optimizer::AdamStep, &[&value, &moment, &square, &rate, &floor], &[])?;
        f.store(&value, &outputs[0])?;
        f.store(&moment, &outputs[1])?;
        f.store(&square, &outputs[2])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let [p, g, m, v] = [0, 1, 2, 3].map(|i| &inputs[i].data);
        let [rate, power1, power2] = [4, 5, 6].map(|i| inputs[i].data[0]);
        let [b1, b2] = self.betas;
        let moment: Vec<f64> = m.iter().zip(g).map(|(m, g)| m * b1 + g * (1.0 - b1)).collect();
        let square: Vec<f64> = v.iter().zip(g).map(|(v, g)| v * b2 + g * g * (1.0 - b2)).collect();
        let correction = (1.0 - power2).sqrt();
        let change = |i: usize| moment[i] / (square[i].sqrt() + self.epsilon * correction);
        let kept = 1.0 - rate * self.decay;
        let value = (0..p.len()).map(|i| p[i] * kept - rate * correction / (1.0 - power1) * change(i)).collect();
        [value, moment, square].map(|data| Array::new(&inputs[0].shape, data, inputs[0].dtype)).into()
    }
}

const SHAPES: [&[usize]; 5] = [&[], &[7], &[3, 35], &[1100], &[0, 3]];

fn between(dims: &[usize], low: f64, high: f64) -> Input {
    Input::of(dims, Values::Uniform(low, high))
}

/// For the list of operators.
pub static MOMENTUM: Entry = Entry {
    name: "momentum",
    summary: "A step of gradient descent with momentum: value and velocity.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |(i, dims): (usize, &&[usize])| {
            let operator = Momentum { mu: 0.75, nesterov: i % 2 == 0, rescale: 0.5, decay: 0.25 };
            let states = [Input::new(dims), Input::new(dims), Input::new(dims), between(&[1], 0.1, 0.9)];
            Case::new(operator, states.into())
        };
        SHAPES.iter().enumerate().map(case).collect()
    },
    tolerance: 16.0,
};

/// For the list of operators.
pub static ADAM: Entry = Entry {
    name: "adam",
    summary: "A step of Adam or AdamW: value and both moments.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |(i, dims): (usize, &&[usize])| {
            let operator = Adam { betas: [0.75, 0.875], epsilon: 0.125, decay: if i % 2 == 0 { 0.25 } else { 0.0 } };
            let states = [Input::new(dims), Input::new(dims), Input::new(dims), between(dims, 0.5, 3.0)];
            let numbers = [between(&[1], 0.1, 0.9), between(&[], 0.1, 0.7), between(&[1], 0.1, 0.7)];
            Case::new(operator, states.into_iter().chain(numbers).collect())
        };
        SHAPES.iter().enumerate().map(case).collect()
    },
    tolerance: 1024.0,
};
