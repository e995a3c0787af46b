//! Training with graphs on every device: gradients, variables, optimizers, against the same steps in float64.

use openmps::operators::operators::elementwise::{Activation, Binary};
use openmps::operators::operators::gather::Negative;
use openmps::operators::operators::gather::TakeAlongAxis;
use openmps::operators::operators::reduce::Reduction;
use openmps::{DataType, Device, Error, Graph, GraphOptimizer, OptimizationLevel, Result, TensorData};

const ROWS: usize = 12;
const COUNT: i32 = 20;
const SIZES: [usize; 3] = [5, 7, 3];

/// Numbers between -1 and 1, the same for each seed.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| f64::from(next() as f32)).collect()
}

fn singles(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|&number| number as f32).collect()
}

fn labels() -> Vec<i64> {
    (0..ROWS).map(|row| (row * row % SIZES[2]) as i64).collect()
}

/// A network of two layers with tanh between and cross entropy behind: weights, then biases.
struct Network {
    weights: [Vec<f64>; 4],
    x: Vec<f64>,
}

impl Network {
    fn new() -> Network {
        let [inputs, hidden, classes] = SIZES;
        let sizes = [inputs * hidden, hidden * classes, hidden, classes];
        let weights = std::array::from_fn(|part| numbers(sizes[part], part as u64 + 1));
        Network { weights, x: numbers(ROWS * inputs, 9) }
    }

    /// The loss and its gradients in float64, written out.
    fn gradients(&self) -> (f64, [Vec<f64>; 4]) {
        let [inputs, hidden, classes] = SIZES;
        let [first, second, first_bias, second_bias] = &self.weights;
        let mut gradients = self.weights.clone().map(|part| vec![0.0; part.len()]);
        let mut loss = 0.0;
        for (row, label) in labels().into_iter().enumerate() {
            let x = &self.x[row * inputs..][..inputs];
            let h: Vec<f64> = (0..hidden)
                .map(|j| (first_bias[j] + (0..inputs).map(|i| x[i] * first[i * hidden + j]).sum::<f64>()).tanh())
                .collect();
            let z: Vec<f64> = (0..classes)
                .map(|k| second_bias[k] + (0..hidden).map(|j| h[j] * second[j * classes + k]).sum::<f64>())
                .collect();
            let total: f64 = z.iter().map(|z| z.exp()).sum();
            loss -= (z[label as usize] - total.ln()) / ROWS as f64;
            let dz: Vec<f64> =
                (0..classes).map(|k| (z[k].exp() / total - f64::from(k == label as usize)) / ROWS as f64).collect();
            for j in 0..hidden {
                let dh: f64 = (0..classes).map(|k| dz[k] * second[j * classes + k]).sum::<f64>() * (1.0 - h[j] * h[j]);
                (0..classes).for_each(|k| gradients[1][j * classes + k] += h[j] * dz[k]);
                (0..inputs).for_each(|i| gradients[0][i * hidden + j] += x[i] * dh);
                gradients[2][j] += dh;
            }
            (0..classes).for_each(|k| gradients[3][k] += dz[k]);
        }
        (loss, gradients)
    }
}

/// The same network as a graph over variables: the tensors of these, their values, and the loss.
fn graph_of(
    network: &Network,
    device: &Device,
) -> Result<(Graph, Vec<TensorData>, Vec<openmps::graph::Tensor>, openmps::graph::Tensor)> {
    let [inputs, hidden, classes] = SIZES;
    let shapes: [&[usize]; 4] = [&[inputs, hidden], &[hidden, classes], &[hidden], &[classes]];
    let mut graph = Graph::new();
    let mut tensors = Vec::new();
    for (shape, part) in shapes.into_iter().zip(&network.weights) {
        tensors.push(TensorData::from_slice(device, shape, &singles(part))?);
    }
    let v: Vec<_> = tensors.iter().map(|tensor| graph.variable(tensor)).collect();
    let x = graph.placeholder("x", &[ROWS, inputs], DataType::F32)?;
    let label = graph.placeholder("label", &[ROWS, 1], DataType::I64)?;
    let h = graph.matmul(x, v[0])?;
    let h = graph.add(h, v[2])?;
    let h = graph.unary(openmps::operators::operators::elementwise::Unary::Tanh, h)?;
    let z = graph.matmul(h, v[1])?;
    let z = graph.add(z, v[3])?;
    let z = graph.log_softmax(z, 1)?;
    let chosen = graph.operator(TakeAlongAxis { axis: 1, negative: Negative::Refused }, &[z, label])?[0];
    let mean = graph.reduce(Reduction::Mean, chosen, &[], false)?;
    let loss = graph.unary(openmps::operators::operators::elementwise::Unary::Negate, mean)?;
    Ok((graph, tensors, v, loss))
}

fn close(got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    for (&got, &expected) in got.iter().zip(expected) {
        assert!((f64::from(got) - expected).abs() <= tolerance * expected.abs().max(1.0), "{got} is not {expected}");
    }
}

#[test]
fn gradients_are_those_written_out_at_every_level() -> Result<()> {
    for device in Device::all() {
        let network = Network::new();
        let (mut graph, _, variables, loss) = graph_of(&network, device)?;
        let gradients = graph.gradients(loss, &variables)?;
        let results: Vec<_> = std::iter::once(loss).chain(gradients).collect();
        let (expected_loss, expected) = network.gradients();
        let x = TensorData::from_slice(device, &[ROWS, SIZES[0]], &singles(&network.x))?;
        let label = TensorData::from_slice(device, &[ROWS, 1], &labels())?;
        for level in [OptimizationLevel::Level0, OptimizationLevel::Level1] {
            let executable = graph.compile_with(device, &results, level)?;
            let found = executable.run(&device.queue(), &[("x", &x), ("label", &label)])?;
            close(&found[0].read()?, &[expected_loss], 1e-6);
            for (found, expected) in found[1..].iter().zip(&expected) {
                close(&found.read()?, expected, 1e-6);
            }
        }
    }
    Ok(())
}

/// Steps of an optimizer in float64, as its paper has them.
fn steps(network: &mut Network, optimizer: GraphOptimizer, rate: f64, count: i32) -> f64 {
    let mut states =
        [network.weights.clone(), network.weights.clone()].map(|state| state.map(|part| vec![0.0; part.len()]));
    let mut loss = 0.0;
    for step in 1..=count {
        let (now, gradients) = network.gradients();
        loss = now;
        let [first, second] = &mut states;
        for (part, gradient) in gradients.iter().enumerate() {
            for (i, &g) in gradient.iter().enumerate() {
                let (value, m, v) = (&mut network.weights[part][i], &mut first[part][i], &mut second[part][i]);
                match optimizer {
                    GraphOptimizer::GradientDescent => *value -= rate * g,
                    GraphOptimizer::Momentum { mu, nesterov } => {
                        *m = mu * *m + g;
                        *value -= rate * if nesterov { g + mu * *m } else { *m };
                    }
                    GraphOptimizer::Adam { betas: [b1, b2], epsilon, decay } => {
                        *m = b1 * *m + (1.0 - b1) * g;
                        *v = b2 * *v + (1.0 - b2) * g * g;
                        let (m, v) = (*m / (1.0 - b1.powi(step)), *v / (1.0 - b2.powi(step)));
                        *value = *value * (1.0 - rate * decay) - rate * m / (v.sqrt() + epsilon);
                    }
                }
            }
        }
    }
    loss
}

#[test]
fn twenty_steps_of_every_optimizer_end_where_float64_does() -> Result<()> {
    let adam_w = GraphOptimizer::Adam { betas: [0.9, 0.99], epsilon: 1e-6, decay: 0.1 };
    let momenta = [false, true].map(|nesterov| GraphOptimizer::Momentum { mu: 0.9, nesterov });
    for device in Device::all() {
        for optimizer in [GraphOptimizer::GradientDescent, momenta[0], momenta[1], GraphOptimizer::adam(), adam_w] {
            let mut network = Network::new();
            let (mut graph, tensors, variables, loss) = graph_of(&network, device)?;
            let rate = graph.constant(&[1], &[0.05f32])?;
            let updates = graph.minimize(loss, &variables, rate, optimizer)?;
            let executable = graph.compile_training(device, &[loss], &updates)?;
            let x = TensorData::from_slice(device, &[ROWS, SIZES[0]], &singles(&network.x))?;
            let label = TensorData::from_slice(device, &[ROWS, 1], &labels())?;
            let mut found = Vec::new();
            for _ in 0..COUNT {
                found = executable.run(&device.queue(), &[("x", &x), ("label", &label)])?;
            }
            let expected = steps(&mut network, optimizer, 0.05, COUNT);
            // Twenty steps of float32, each of which is off by one rounding of numbers below 2.
            close(&found[0].read()?, &[expected], 20.0 * 2.4e-7);
            for (tensor, expected) in tensors.iter().zip(&network.weights) {
                close(&tensor.read()?, expected, 1e-5);
            }
        }
    }
    Ok(())
}

#[test]
fn variables_change_places() -> Result<()> {
    let device = Device::get(0)?;
    let [left, right] = [[1.0f32, 2.0], [3.0, 4.0]].map(|values| TensorData::from_slice(&device, &[2], &values));
    let (left, right, mut graph) = (left?, right?, Graph::new());
    let (a, b) = (graph.variable(&left), graph.variable(&right));
    let swap = [graph.assign(a, b)?, graph.assign(b, a)?];
    let results = graph.compile_training(&device, &[a], &swap)?.run(&device.queue(), &[])?;
    assert_eq!(results[0].read::<f32>()?, [1.0, 2.0], "a result is what was read");
    assert_eq!((left.read::<f32>()?, right.read::<f32>()?), (vec![3.0, 4.0], vec![1.0, 2.0]));
    Ok(())
}

#[test]
fn what_is_read_twice_gets_both_gradients_and_what_is_not_read_none() -> Result<()> {
    let device = Device::get(0)?;
    let mut graph = Graph::new();
    let x = graph.constant(&[2, 2], &[1.0f32, -2.0, 3.0, -4.0])?;
    let unread = graph.constant(&[3], &[1.0f32; 3])?;
    let flat = graph.reshape(x, &[4])?;
    let relu = graph.activation(Activation::Relu, flat, &[])?;
    let bounded = graph.binary(Binary::Maximum, flat, relu)?;
    let sum = graph.add(bounded, flat)?;
    let found = graph.gradients(sum, &[x, unread, sum])?;
    let results = graph.compile(&device, &found)?.run(&device.queue(), &[])?;
    // x: itself, half of the maximum where both are equal, the other half through relu; nothing of the maximum where relu is larger.
    assert_eq!(results[0].read::<f32>()?, [2.0, 1.0, 2.0, 1.0]);
    assert_eq!(results[0].shape(), [2, 2]);
    assert_eq!(results[1].read::<f32>()?, [0.0; 3]);
    assert_eq!(results[2].read::<f32>()?, [1.0; 4]);
    Ok(())
}

#[test]
fn what_has_no_gradient_says_so() -> Result<()> {
    let mut graph = Graph::new();
    let x = graph.constant(&[2], &[1i32, 2])?;
    let message = graph.gradients(x, &[x]).unwrap_err().to_string();
    assert_eq!(message, "gradients: a value has int32 elements, expected floats");
    let matrix = graph.constant(&[2, 2], &[2.0f32, 0.0, 0.0, 2.0])?;
    let decomposition = openmps::operators::operators::linear_algebra::Algorithm::Qr { complete: false };
    let q = graph.operator(openmps::operators::operators::linear_algebra::LinearAlgebra(decomposition), &[matrix])?[0];
    let error = graph.gradients(q, &[matrix]).unwrap_err();
    assert!(matches!(error, Error::Operator(openmps::operators::Error::NoGradient { operator: "qr" })), "{error}");
    Ok(())
}

/// The first step of Adam is the rate, whatever the gradient is.
#[test]
fn a_first_step_is_as_exact_as_its_type() {
    let device = Device::get(0).expect("a device");
    let variable = TensorData::from_slice(&device, &[1], &[1.0f64]).expect("memory");
    let mut graph = Graph::new();
    let x = graph.variable(&variable);
    let loss = graph.multiply(x, x).expect("a loss");
    let rate = graph.constant(&[1], &[0.05f64]).expect("a rate");
    let step = graph.minimize(loss, &[x], rate, GraphOptimizer::adam()).expect("a step");
    graph.compile_training(&device, &[], &step).expect("compiles").run(&device.queue(), &[]).expect("runs");
    let moved = 1.0 - variable.read::<f64>().expect("read")[0];
    assert!((moved - 0.05).abs() < 1e-9, "{moved}");
}

#[test]
fn a_variable_is_set_once_in_a_run() -> Result<()> {
    let device = Device::get(0)?;
    let mut graph = Graph::new();
    let x = graph.variable(&TensorData::from_slice(&device, &[1], &[1.0f32])?);
    let loss = graph.multiply(x, x)?;
    let rate = graph.constant(&[1], &[0.1f32])?;
    for optimizer in [GraphOptimizer::GradientDescent, GraphOptimizer::adam()] {
        let twice = graph.minimize(loss, &[x, x], rate, optimizer);
        assert!(matches!(twice, Err(Error::Attribute { attribute: "variables", .. })), "{twice:?}");
    }
    let mut updates = graph.minimize(loss, &[x], rate, GraphOptimizer::GradientDescent)?;
    updates.extend(graph.minimize(loss, &[x], rate, GraphOptimizer::GradientDescent)?);
    let twice = graph.compile_training(&device, &[loss], &updates);
    assert!(matches!(twice, Err(Error::Attribute { operation: "compile_training", .. })), "{twice:?}");
    assert!(graph.compile_training(&device, &[loss], &updates[..1]).is_ok());
    Ok(())
}

#[test]
fn optimizers_of_no_sensible_numbers() -> Result<()> {
    let mut graph = Graph::new();
    let x = graph.variable(&TensorData::from_slice(&Device::get(0)?, &[1], &[1.0f32])?);
    let rate = graph.constant(&[1], &[0.1f32])?;
    let adam = |betas, epsilon, decay| GraphOptimizer::Adam { betas, epsilon, decay };
    for (optimizer, wrong) in [
        (adam([f64::NAN, 0.999], 1e-8, 0.0), "betas"),
        (adam([0.9, f64::NAN], 1e-8, 0.0), "betas"),
        (adam([0.9, 1.0], 1e-8, 0.0), "betas"),
        (adam([-0.1, 0.999], 1e-8, 0.0), "betas"),
        (adam([0.9, 0.999], -1.0, 0.0), "epsilon"),
        (adam([0.9, 0.999], f64::NAN, 0.0), "epsilon"),
        (adam([0.9, 0.999], 1e-8, f64::INFINITY), "decay"),
        (GraphOptimizer::Momentum { mu: f64::NAN, nesterov: false }, "mu"),
    ] {
        match graph.minimize(x, &[x], rate, optimizer) {
            Err(Error::Attribute { operation: "minimize", attribute, .. }) => assert_eq!(attribute, wrong),
            other => panic!("{optimizer:?}: {other:?}"),
        }
    }
    Ok(())
}
