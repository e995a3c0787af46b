//! Products and convolutions of float32 as shares of the machine's own ceiling: the rate of a loop of fused multiply-adds on registers.
//!
//! One thread unless `OPENMPS_NUM_THREADS` says otherwise. One thread is timed by the processor time that it takes, so that what else the machine
//! does counts little; more threads by the clock. Each shape's figure is that of the best twentieth of many runs. Words of a shape's line may be given to run only those.

use openmps_host::native::ceiling::multiply_adds;
use openmps_host::native::convolution::{Convolution, FilterOrder, PackedFilters, forward, forward_packed};
use openmps_host::native::matmul::{Matrices, MatrixProduct, linear, matmul};
use openmps_host::native::{Activation, Epilogue};
use openmps_host::{DType, level};
use std::time::{Duration, Instant};

/// How long one shape is run.
const TURN: Duration = Duration::from_millis(400);

/// Processor time of this thread in seconds.
fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is one that every thread has, and the structure is this function's.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Seconds of one call of the work: a twentieth of the runs were faster. The very fastest are the clock's errors on a shared machine.
fn best(threads: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let now = || if threads == 1 { thread_seconds() } else { start.elapsed().as_secs_f64() };
    let (mut runs, mut calls) = (Vec::new(), 1);
    while start.elapsed() < TURN {
        let begin = now();
        (0..calls).for_each(|_| work());
        let seconds = (now() - begin) / f64::from(calls);
        runs.push(seconds);
        // Tens of microseconds are short beside the scheduler's turns and long beside the clock's grain.
        calls = ((50e-6 / seconds) as u32).clamp(1, 10_000);
    }
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 20]
}

/// Operations a second of one thread at most.
fn ceiling() -> f64 {
    let mut operations = 0;
    let seconds = best(1, || operations = multiply_adds());
    operations as f64 / seconds
}

/// The lines that are printed: those with one of the words that the caller gave.
struct Report {
    words: Vec<String>,
    threads: usize,
}

impl Report {
    /// Times the work and prints its line; `products` is the number of multiplications of one call.
    fn line(&self, name: &str, products: usize, work: impl FnMut()) {
        if !self.words.is_empty() && !self.words.iter().any(|word| name.contains(word.as_str())) {
            return;
        }
        // The ceiling moves with the clock rate: measured before and after each line, the higher counts.
        let before = ceiling();
        let seconds = best(self.threads, work);
        let ceiling = before.max(ceiling()) * self.threads as f64;
        let rate = 2.0 * products as f64 / seconds;
        println!("{name:44} {:9.1} us {:7.1} GFLOP/s {:5.2}", seconds * 1e6, rate / 1e9, rate / ceiling);
    }

    fn product(&self, [rows, depth, columns]: [usize; 3], layout: Layout) {
        let (left, right) = (numbers(rows * depth), numbers(depth * columns));
        let mut out = vec![0.0f32; rows * columns];
        let mut product = MatrixProduct::dense(rows, depth, columns);
        match layout {
            Layout::LeftTransposed => product.left = [1, rows as isize],
            Layout::RightTransposed => product.right = [1, depth as isize],
            Layout::Dense | Layout::Followed => {}
        }
        let (address, epilogue) = (|x: &[f32]| x.as_ptr().expose_provenance(), followed(&right, columns));
        let at = Matrices { left: address(&left), right: address(&right), out: out.as_mut_ptr().expose_provenance() };
        self.line(&format!("matmul {rows} x {depth} x {columns}, {layout:?}"), rows * depth * columns, || {
            // SAFETY: matrices of these sizes; the epilogue has a bias for each column.
            unsafe {
                match layout {
                    Layout::Followed => linear(&product, [DType::F32; 2], at, &[[0; 3]], &epilogue),
                    _ => matmul(&product, DType::F32, at, &[[0; 3]]).expect("a product of float32"),
                }
            }
        });
    }

    fn batched(&self, count: usize, [rows, depth, columns]: [usize; 3]) {
        let (left, right) = (numbers(count * rows * depth), numbers(count * depth * columns));
        let mut out = vec![0.0f32; count * rows * columns];
        let product = MatrixProduct::dense(rows, depth, columns);
        let address = |x: &[f32]| x.as_ptr().expose_provenance();
        let at = Matrices { left: address(&left), right: address(&right), out: out.as_mut_ptr().expose_provenance() };
        let offset = |size: usize, batch: usize| (size * batch) as isize;
        let batches: Vec<[isize; 3]> = (0..count)
            .map(|batch| [offset(rows * depth, batch), offset(depth * columns, batch), offset(rows * columns, batch)])
            .collect();
        self.line(&format!("batched {count} of {rows} x {depth} x {columns}"), count * rows * depth * columns, || {
            // SAFETY: as many matrices of these sizes one after the other.
            unsafe { matmul(&product, DType::F32, at, &batches) }.expect("a product of float32");
        });
    }

    fn convolution(&self, shape: Convolution) {
        let [input, weight, output] = shape.lens();
        let (input, weight, mut output) = (numbers(input), numbers(weight), vec![0.0f32; output]);
        let epilogue = followed(&input, shape.filters);
        let [height, width] = shape.output();
        let Convolution { batch, channels, input: image, filters, kernel, stride, groups, .. } = shape;
        let name = format!("conv {batch}x{channels}x{image:?} f{filters} k{kernel:?} s{stride:?} g{groups}");
        let products = output.len() / (height * width) * height * width * channels / groups * kernel[0] * kernel[1];
        // As inference programs run: filters that have an order of their own are packed once.
        let size = [filters, channels / groups, kernel[0], kernel[1]];
        let packed = FilterOrder::kept(&shape).map(|order| PackedFilters::new(order, size, groups, &weight));
        let packed = packed.transpose().expect("filters of these sizes");
        self.line(&name.replace(", ", "x"), products, || {
            match &packed {
                Some(packed) => forward_packed(&shape, &input, packed, &mut output, &epilogue),
                None => forward(&shape, &input, &weight, &mut output, &epilogue),
            }
            .expect("sizes that fit");
        });
    }
}

/// How the matrices lie, or what follows.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Dense,
    LeftTransposed,
    RightTransposed,
    Followed,
}

fn followed(numbers: &[f32], channels: usize) -> Epilogue<'_> {
    Epilogue { activation: Activation::HardSwish, ..Epilogue::bias(Some(&numbers[..channels])) }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + 13) % 1021) as f32 / 512.0 - 1.0).collect()
}

fn main() {
    // Cargo's own argument is no word.
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if openmps_settings::NUM_THREADS.get().is_none() {
        // Settings are read once: the same program, with one thread.
        let program = std::env::current_exe().expect("the program has a name");
        let again =
            std::process::Command::new(program).args(std::env::args().skip(1)).env("OPENMPS_NUM_THREADS", "1").status();
        std::process::exit(again.expect("it starts").code().unwrap_or(1));
    }
    let report = Report { words, threads: openmps_host::threads::count() };
    println!(
        "{}, {} threads, multiply-adds on registers: {:.1} GFLOP/s a thread",
        level().name(),
        report.threads,
        ceiling() / 1e9
    );
    for size in [16, 32, 64, 96, 128, 200, 256, 512, 1024, 2048] {
        report.product([size; 3], Layout::Dense);
    }
    for layout in [Layout::LeftTransposed, Layout::RightTransposed, Layout::Followed] {
        [128, 512, 1024].into_iter().for_each(|size| report.product([size; 3], layout));
    }
    for sizes in [[8, 512, 512], [16, 1024, 1024], [32, 768, 768], [64, 1024, 1024], [128, 768, 3072], [1000, 64, 1000]]
    {
        report.product(sizes, Layout::Dense);
        report.product(sizes, Layout::RightTransposed);
    }
    report.batched(48, [40, 15, 40]);
    report.batched(48, [128, 64, 128]);
    report.batched(96, [32, 32, 32]);
    // Layers of PP-OCRv5's text detection and recognition, and of residual networks.
    let plain = Convolution {
        batch: 1,
        channels: 0,
        input: [0; 2],
        filters: 0,
        kernel: [1; 2],
        stride: [1; 2],
        padding: [0; 4],
        dilation: [1; 2],
        groups: 1,
    };
    for (channels, filters, input) in [
        (480, 480, [3, 80]),
        (480, 480, [3, 160]),
        (480, 480, [24, 80]),
        (240, 480, [3, 160]),
        (240, 240, [6, 160]),
        (120, 120, [12, 160]),
        (120, 240, [6, 320]),
        (60, 120, [24, 160]),
        (32, 64, [120, 160]),
        (24, 24, [160, 160]),
        (96, 24, [184, 184]),
        (2048, 512, [7, 7]),
        (512, 2048, [7, 7]),
        (256, 1024, [14, 14]),
        (112, 672, [14, 14]),
        (160, 960, [7, 7]),
        (960, 160, [7, 7]),
        (256, 64, [56, 56]),
    ] {
        report.convolution(Convolution { channels, filters, input, ..plain });
    }
    report.convolution(Convolution { batch: 6, channels: 480, filters: 480, input: [3, 80], ..plain });
    for (channels, filters, size, stride, kernel) in [
        (64, 64, 56, 1, 3),
        (64, 128, 56, 2, 3),
        (128, 256, 28, 2, 3),
        (3, 64, 224, 2, 7),
        (256, 256, 14, 1, 3),
        (512, 512, 14, 2, 3),
        (512, 512, 7, 1, 3),
        (24, 48, 160, 2, 3),
        (512, 1024, 28, 2, 1),
        (1024, 2048, 14, 2, 1),
    ] {
        let shape =
            Convolution { channels, filters, input: [size; 2], stride: [stride; 2], kernel: [kernel; 2], ..plain };
        report.convolution(Convolution { padding: [kernel / 2; 4], ..shape });
    }
    for (channels, size, stride, kernel) in [
        (240, 40, 1, 5),
        (120, 80, 2, 3),
        (480, 24, 1, 5),
        (672, 14, 1, 5),
        (960, 7, 1, 5),
        (184, 14, 1, 3),
        (240, 28, 2, 5),
        (64, 112, 2, 3),
    ] {
        let shape = Convolution { channels, filters: channels, input: [size; 2], groups: channels, ..plain };
        report.convolution(Convolution { stride: [stride; 2], kernel: [kernel; 2], padding: [kernel / 2; 4], ..shape });
    }
}
