//! Products and attention at a few sizes on the emulated GPU, once each, for `OPENMPS_EMULATOR_COUNT` (docs/performance.md). Arguments are words
//! that a case's name must have.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn main() {
    use openmps_emulator::Schedule;
    use openmps_graph::operators::attention::Attention;
    use openmps_graph::operators::matmul::Matmul;
    use openmps_graph::{DType, Operator, Queue, View};
    use openmps_metal::emulated::Emulated;
    use openmps_runtime::Device;
    use openmps_runtime::vendor::Engine;

    let words: Vec<String> = std::env::args().skip(1).collect();
    let device = Device::over_with_engine(0, Emulated::with_schedule(Schedule::Ascending), Some(Engine::Kernels));
    let run = |name: &str, operator: &dyn Operator, dtype: DType, inputs: &[&[usize]], out: &[usize]| {
        if !words.iter().all(|word| name.contains(word.as_str())) {
            return;
        }
        println!("{name}");
        let queue = device.queue();
        // SAFETY: the views below are of buffers of their own, which live until the queue was waited for.
        let queue = unsafe { Queue::vouched(&queue) };
        let shapes: Vec<&[usize]> = inputs.iter().copied().chain([out]).collect();
        let bytes = |shape: &[usize]| shape.iter().product::<usize>() * dtype.size();
        let buffers: Vec<_> = shapes.iter().map(|shape| device.allocate(bytes(shape)).expect("memory")).collect();
        let views: Vec<View> = buffers
            .iter()
            .zip(&shapes)
            .map(|(buffer, shape)| View::dense(buffer.address(), dtype, shape).expect("a shape"))
            .collect();
        let (out, inputs) = views.split_last().expect("an output");
        inputs.iter().for_each(|view| queue.write(view, &vec![0; view.len() * dtype.size()]).expect("a copy"));
        operator.run(queue, inputs, std::slice::from_ref(out)).expect("an operator");
        device.synchronize().expect("a run");
    };
    for (word, dtype) in [("float32", DType::F32), ("float16", DType::F16), ("bfloat16", DType::BF16)] {
        let turned = [("nn", false, false), ("nt", false, true), ("tn", true, false)];
        for (n, turned) in
            [(509, &turned[..]), (512, &turned), (1024, &turned), (2048, &turned[..1]), (4096, &turned[..1])]
        {
            for &(turns, transpose_left, transpose_right) in turned {
                let name = format!("product {word} {n} {turns}");
                run(&name, &Matmul { transpose_left, transpose_right }, dtype, &[&[n, n], &[n, n]], &[n, n]);
            }
        }
        for (rows, keys) in [(512, 512), (1024, 1024), (4096, 4096), (1, 8192)] {
            for (depth, causal) in [(64, false), (64, true), (128, false), (128, true)] {
                let name =
                    format!("attention {word} {rows}x{keys} {depth} {}", if causal { "causal" } else { "whole" });
                let (q, k) = ([1, 1, rows, depth], [1, 1, keys, depth]);
                run(&name, &Attention { causal, ..Attention::default() }, dtype, &[&q, &k, &k], &q);
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn main() {}
