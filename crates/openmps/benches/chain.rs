//! Chains of formulas in one kernel beside one kernel for each formula. Prints milliseconds and the ratio, measured in turns.

use openmps::graph::{Executable, Tensor};
use openmps::operators::operators::elementwise::Activation;
use openmps::operators::operators::reduce::Reduction;
use openmps::{DataType, Device, Graph, OptimizationLevel, Result, TensorData};
use std::sync::Arc;
use std::time::Instant;

/// Elements of each tensor.
const COUNT: usize = 16 << 20;
const ROUNDS: usize = 15;

/// `(relu(x * y + x) - y) * x`
fn chain(graph: &mut Graph, x: Tensor, y: Tensor) -> Result<Tensor> {
    let product = graph.multiply(x, y)?;
    let sum = graph.add(product, x)?;
    let kept = graph.activation(Activation::Relu, sum, &[])?;
    let difference = graph.subtract(kept, y)?;
    graph.multiply(difference, x)
}

fn compiled(device: &Device, reduce: bool, level: OptimizationLevel) -> Result<Arc<Executable>> {
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[COUNT], DataType::F32)?;
    let y = graph.placeholder("y", &[COUNT], DataType::F32)?;
    let mut result = chain(&mut graph, x, y)?;
    if reduce {
        result = graph.reduce(Reduction::Sum, result, &[], false)?;
    }
    graph.compile_with(device, &[result], level)
}

fn main() -> Result<()> {
    let device = Device::get(0)?;
    let values: Vec<f32> = (0..COUNT).map(|i| (i as f32 * 0.37).sin()).collect();
    let feed = TensorData::from_slice(&device, &[COUNT], &values)?;
    let queue = device.queue();
    println!("{}, {COUNT} elements of float32", device.properties().name);
    println!("{:<34} {:>12} {:>12} {:>7}", "work", "one by one", "one kernel", "ratio");
    for (name, reduce) in [("five formulas", false), ("five formulas and a sum", true)] {
        let plain = compiled(&device, reduce, OptimizationLevel::Level0)?;
        let fused = compiled(&device, reduce, OptimizationLevel::Level1)?;
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (executable, times) in [&plain, &fused].into_iter().zip(&mut times) {
                let start = Instant::now();
                executable.run(&queue, &[("x", &feed), ("y", &feed)])?;
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        let [plain, fused] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        });
        println!("{name:<34} {plain:>9.2} ms {fused:>9.2} ms {:>6.2}x", plain / fused);
    }
    Ok(())
}
