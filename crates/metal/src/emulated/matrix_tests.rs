//! The stand-ins of MPS, on a stream: decompositions and solves by what they must satisfy, the rest by values.

use super::*;
use crate::arguments::Resolved;
use crate::completions::Deferred;
use crate::graph::{Builder, Operation, Window};
use crate::matrix::{Distribution, MatrixCall, MatrixView, TensorView, VectorView};
use crate::{CommitPolicy, Stream};
use openmps_tile::DType;

struct Gpu {
    metal: Arc<Emulated>,
    stream: Stream<Emulated>,
}

type View = MatrixView<EmulatedBuffer>;

impl Gpu {
    fn new() -> Gpu {
        Gpu::over(Emulated::with_schedule(Schedule::Ascending))
    }

    fn over(metal: Emulated) -> Gpu {
        let metal = Arc::new(metal);
        let stream = Stream::new(metal.clone(), "test", CommitPolicy::default()).unwrap();
        Gpu { metal, stream }
    }

    fn matrix(&self, values: &[f32], columns: usize) -> View {
        let buffer = self.metal.allocate(size_of_val(values)).unwrap();
        let view = View::dense(buffer, 0, DType::F32, 1, values.len() / columns, columns);
        let wide: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
        matrix::write(&view, 0, &wide);
        view
    }

    fn empty(&self, dtype: DType, rows: usize, columns: usize) -> View {
        let buffer = self.metal.allocate(rows * columns * dtype.size()).unwrap();
        View::dense(buffer, 0, dtype, 1, rows, columns)
    }

    fn run(&self, call: MatrixCall<EmulatedBuffer>) {
        self.stream.matrix(&call).unwrap();
        self.stream.finish().unwrap();
    }

    /// What a graph of one operation makes of ones.
    fn run_graph(
        &self,
        dtype: DType,
        shapes: &[&[usize]],
        operation: Operation,
    ) -> std::result::Result<Vec<f64>, Deferred> {
        let mut b = Builder::new();
        let nodes: Vec<_> = shapes.iter().map(|shape| b.input(dtype, shape).unwrap()).collect();
        let result = b.add(operation, &nodes).unwrap();
        let shape = b.type_of(result).shape.clone();
        let graph = b.finish(&[result]).unwrap();
        let line = |shape: &[usize]| self.empty(dtype, 1, shape.iter().product());
        let tensor = |line: &View, shape: &[usize]| TensorView {
            buffer: line.buffer.clone(),
            offset: 0,
            shape: shape.to_vec(),
            dtype,
        };
        let ones = |shape: &&[usize]| {
            let line = line(shape);
            matrix::write(&line, 0, &vec![1.0; line.columns]);
            tensor(&line, shape)
        };
        let (inputs, out): (Vec<_>, _) = (shapes.iter().map(ones).collect(), line(&shape));
        let executable = self.metal.executable(&graph).unwrap();
        self.stream.graph(&executable, &inputs, &[tensor(&out, &shape)]).unwrap();
        self.stream.finish()?;
        Ok(matrix::read(&out, 0))
    }
}

fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let columns = b.len() / n;
    let element = |at: usize| (0..n).map(|k| a[at / columns * n + k] * b[k * columns + at % columns]).sum();
    (0..a.len() / n * columns).map(element).collect()
}

fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{found} where {expected} was expected");
    }
}

const SQUARE: [f32; 9] = [1.0, 2.0, -1.0, 4.0, 1.0, 2.0, -3.0, 5.0, 1.0];
const POSITIVE: [f32; 9] = [4.0, 1.0, 0.5, 1.0, 3.0, -1.0, 0.5, -1.0, 5.0];
const RIGHT: [f32; 6] = [1.0, 0.0, 2.0, -1.0, 0.5, 3.0];

#[test]
fn a_decomposition_solves_its_system() {
    let gpu = Gpu::new();
    let (source, result) = (gpu.matrix(&SQUARE, 3), gpu.empty(DType::F32, 3, 3));
    let (pivots, right, solution) = (gpu.empty(DType::I32, 1, 3), gpu.matrix(&RIGHT, 2), gpu.empty(DType::F32, 3, 2));
    let status = gpu.empty(DType::I32, 1, 1);
    let said = Some(status.operand(true));
    gpu.run(MatrixCall::DecompositionLu {
        source: source.clone(),
        result: result.clone(),
        pivots: pivots.clone(),
        status: said,
    });
    assert_eq!(matrix::read(&status, 0), [0.0]);
    for transpose in [false, true] {
        let (factors, pivots, right_hand_side) = (result.clone(), pivots.clone(), right.clone());
        gpu.run(MatrixCall::SolveLu { factors, pivots, right_hand_side, solution: solution.clone(), transpose });
        let a = matrix::read(&source, 0);
        let a: Vec<f64> = (0..9).map(|at| if transpose { a[at % 3 * 3 + at / 3] } else { a[at] }).collect();
        assert_close(&product(&a, &matrix::read(&solution, 0), 3), &matrix::read(&right, 0));
    }
    let singular = gpu.matrix(&[1.0, 2.0, 2.0, 4.0], 2);
    let (result, pivots, said) = (gpu.empty(DType::F32, 2, 2), gpu.empty(DType::I32, 1, 2), Some(status.operand(true)));
    gpu.run(MatrixCall::DecompositionLu { source: singular, result, pivots, status: said });
    assert_eq!(matrix::read(&status, 0), [-2.0]);
}

#[test]
fn a_positive_matrix_has_a_root_on_either_side() {
    let gpu = Gpu::new();
    let (source, right) = (gpu.matrix(&POSITIVE, 3), gpu.matrix(&RIGHT, 2));
    for lower in [true, false] {
        let (factor, solution) = (gpu.empty(DType::F32, 3, 3), gpu.empty(DType::F32, 3, 2));
        gpu.run(MatrixCall::DecompositionCholesky {
            source: source.clone(),
            result: factor.clone(),
            lower,
            status: None,
        });
        let (right_hand_side, solved) = (right.clone(), solution.clone());
        gpu.run(MatrixCall::SolveCholesky { factor, right_hand_side, solution: solved, upper: !lower });
        assert_close(&product(&matrix::read(&source, 0), &matrix::read(&solution, 0), 3), &matrix::read(&right, 0));
    }
    let status = gpu.empty(DType::I32, 1, 1);
    let (source, result) = (gpu.matrix(&[1.0, 2.0, 2.0, 1.0], 2), gpu.empty(DType::F32, 2, 2));
    gpu.run(MatrixCall::DecompositionCholesky { source, result, lower: true, status: Some(status.operand(true)) });
    assert_eq!(matrix::read(&status, 0), [-3.0]);
}

#[test]
fn a_triangle_is_solved_in_each_of_its_ways() {
    let gpu = Gpu::new();
    let (source, right) = (gpu.matrix(&SQUARE, 3), gpu.matrix(&RIGHT, 2));
    for way in 0..8 {
        let [upper, transpose, unit] = [1, 2, 4].map(|bit| way & bit != 0);
        let solution = gpu.empty(DType::F32, 3, 2);
        let (source, right_hand_side, result) = (source.clone(), right.clone(), solution.clone());
        let alpha = 2.0;
        gpu.run(MatrixCall::SolveTriangular {
            source,
            right_hand_side,
            solution: result,
            upper,
            transpose,
            unit,
            alpha,
        });
        let element = |i: usize, j: usize| match i.cmp(&j) {
            std::cmp::Ordering::Equal if unit => 1.0,
            std::cmp::Ordering::Less if !upper => 0.0,
            std::cmp::Ordering::Greater if upper => 0.0,
            _ => f64::from(SQUARE[i * 3 + j]),
        };
        let a: Vec<f64> =
            (0..9).map(|at| if transpose { element(at % 3, at / 3) } else { element(at / 3, at % 3) }).collect();
        let expected: Vec<f64> = RIGHT.iter().map(|&x| 2.0 * f64::from(x)).collect();
        assert_close(&product(&a, &matrix::read(&solution, 0), 3), &expected);
    }
}

#[test]
fn rows_are_sorted_summed_and_differentiated() {
    let gpu = Gpu::new();
    let input = gpu.matrix(&[3.0, 1.0, 3.0, -2.0, 0.0, 5.0, 4.0, 9.0], 4);
    let (indices, values) = (gpu.empty(DType::I32, 2, 2), gpu.empty(DType::F32, 2, 2));
    gpu.run(MatrixCall::TopK { input: input.clone(), indices: indices.clone(), values: values.clone() });
    assert_eq!(matrix::read(&indices, 0), [0.0, 2.0, 3.0, 1.0]);
    assert_eq!(matrix::read(&values, 0), [3.0, 3.0, 9.0, 5.0]);
    let sum = gpu.empty(DType::F32, 2, 4);
    gpu.run(MatrixCall::Sum { sources: vec![input.clone(), input.clone(), input.clone()], result: sum.clone() });
    assert_eq!(matrix::read(&sum, 0)[..2], [9.0, 3.0]);
    for logarithm in [false, true] {
        let (output, result) = (gpu.empty(DType::F32, 2, 4), gpu.empty(DType::F32, 2, 4));
        gpu.run(MatrixCall::SoftMax { input: input.clone(), result: output.clone(), logarithm });
        let gradient = gpu.matrix(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], 4);
        let (of_output, to) = (output.clone(), result.clone());
        gpu.run(MatrixCall::SoftMaxGradient { gradient, output: of_output, result: to, logarithm });
        // A constant added to a row changes nothing.
        let found = matrix::read(&result, 0);
        assert!(found.chunks(4).all(|row| row.iter().sum::<f64>().abs() < 1e-6), "{found:?}");
        let y = matrix::read(&output, 0)[0];
        assert_close(&found[..1], &[if logarithm { 1.0 - y.exp() } else { y * (1.0 - y) }]);
    }
}

#[test]
fn a_vector_is_a_column_and_half_products_may_be_single() {
    let gpu = Gpu::new();
    let (a, x) = (gpu.matrix(&SQUARE, 3), gpu.matrix(&[1.0, 2.0, 3.0], 1));
    let out = gpu.matrix(&[10.0, 10.0, 10.0], 1);
    let vector = |view: &View| VectorView::dense(view.buffer.clone(), 0, DType::F32, 3);
    let (vector, result) = (vector(&x), vector(&out));
    gpu.run(MatrixCall::VectorMultiplication { matrix: a, vector, result, transpose: true, alpha: 1.0, beta: 0.5 });
    assert_eq!(matrix::read(&out, 0), [5.0 + 0.0, 5.0 + 19.0, 5.0 + 6.0]);
    let half = gpu.empty(DType::F16, 2, 2);
    matrix::write(&half, 0, &[1.0, 2.0, 3.0, 4.0]);
    let out = gpu.empty(DType::F32, 2, 2);
    let (left, right, result) = (half.clone(), half, out.clone());
    let [transpose_left, transpose_right] = [false, true];
    gpu.run(MatrixCall::Multiplication { left, right, result, transpose_left, transpose_right, alpha: 2.0, beta: 0.0 });
    assert_eq!(matrix::read(&out, 0), [10.0, 22.0, 22.0, 50.0]);
}

#[test]
fn random_numbers_keep_to_their_law_and_what_overlaps_is_refused() {
    let gpu = Gpu::new();
    let out = gpu.empty(DType::F32, 64, 64);
    let (distribution, seed) = (Distribution::Normal(3.0, 0.5), 7);
    gpu.run(MatrixCall::Random { result: out.clone(), distribution, seed, philox: true });
    let values = matrix::read(&out, 0);
    let mean = values.iter().sum::<f64>() / 4096.0;
    let deviation = (values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 4096.0).sqrt();
    assert!((mean - 3.0).abs() < 0.05 && (deviation - 0.5).abs() < 0.05, "{mean} {deviation}");
    let call = MatrixCall::SoftMax { input: out.clone(), result: out.clone(), logarithm: false };
    assert!(gpu.stream.matrix(&call).unwrap_err().to_string().contains("overlaps"));
    let place = Resolved { buffer: out.buffer.clone(), offset: 0, extent: 0..0 };
    gpu.stream.fill(&place, 64, 0).unwrap();
    gpu.stream.finish().unwrap();
}

/// Every number that these inputs lead to, on a GPU like this, is this one.
fn all_are(
    expected: f64,
    (dtype, shapes): (DType, [&[usize]; 2]),
    operation: Operation,
    like: fn(Properties) -> Properties,
) -> bool {
    let result = Gpu::over(Emulated::like(like)).run_graph(dtype, &shapes, operation).unwrap();
    result.iter().all(|&number| number == expected)
}

#[test]
fn the_stand_in_of_mpsgraph_has_each_defect() {
    let m1 = |of| Properties { family: 7, long_convolutions: true, ..of };
    let m3 = |of| Properties { family: 9, long_convolutions: true, ..of };
    let m5 = |of| Properties { family: 10, long_convolutions: true, ..of };
    let old = |of| Properties { family: 9, long_convolutions: false, ..of };
    let before_14_4 = |of| Properties { family: 9, long_products: false, ..of };
    let product = || Operation::MatrixMultiplication;
    let halves: (_, [&[usize]; 2]) = (DType::F16, [&[2, 16, 16], &[2, 16, 16]]);
    assert!(!all_are(16.0, halves, product(), m5));
    assert!(all_are(16.0, halves, product(), m1));
    let deep: (_, [&[usize]; 2]) = (DType::F32, [&[16, 32_767], &[32_767, 16]]);
    assert!(!all_are(32_767.0, deep, product(), m1));
    assert!(all_are(32_767.0, deep, product(), m5));
    let long: (_, [&[usize]; 2]) = (DType::F32, [&[2, 1], &[1, 32_769]]);
    assert!(!all_are(1.0, long, product(), before_14_4));
    assert!(all_are(1.0, long, product(), m3));
    let of_window = |window| Operation::Convolution { window: Window::of(1, window), groups: 1 };
    let wide: (_, [&[usize]; 2]) = (DType::F32, [&[1, 1, 1, 65_537], &[1, 1, 1, 3]]);
    assert!(!all_are(3.0, wide, of_window(3), old));
    assert!(all_are(3.0, wide, of_window(3), m3));
    assert!(!all_are(256.0, (DType::F32, [&[1, 1, 1, 300], &[1, 1, 1, 256]]), of_window(256), m3));
    assert!(all_are(255.0, (DType::F32, [&[1, 1, 1, 300], &[1, 1, 1, 255]]), of_window(255), m3));
}

#[test]
fn a_graph_whose_scores_exceed_4_gib_ends_its_command_buffer() {
    let shapes: [&[usize]; 3] = [&[1, 1, 32_769, 1], &[1, 1, 32_768, 1], &[1, 1, 32_768, 1]];
    let attention = Operation::Attention { scale: 1f32.to_bits(), mask: false };
    let error = Gpu::new().run_graph(DType::F32, &shapes, attention).unwrap_err();
    assert!(error.to_string().contains("abort"));
}

/// The table of defects is only worth something where the stand-ins have them: without the guard, wrong numbers come out.
#[test]
fn the_stand_in_of_an_m1_sums_deep_products_wrongly() {
    const DEPTH: usize = 32_767;
    for (family, right) in [(7, false), (9, true)] {
        let gpu = Gpu::over(Emulated::like(|properties| Properties { family, ..properties }));
        let (left, other) = (gpu.matrix(&vec![1.0; 16 * DEPTH], DEPTH), gpu.matrix(&vec![1.0; DEPTH * 16], 16));
        let result = gpu.empty(DType::F32, 16, 16);
        gpu.run(MatrixCall::Multiplication {
            left,
            right: other,
            result: result.clone(),
            transpose_left: false,
            transpose_right: false,
            alpha: 1.0,
            beta: 0.0,
        });
        let expected = vec![DEPTH as f64; 256];
        assert_eq!(matrix::read(&result, 0) == expected, right, "family {family}");
    }
}
