//! Calls that Apple's libraries are known to compute wrongly, or to end the process over: public records, each with the machines and the
//! shapes that it was seen on. Every call of MPS and MPSGraph is held against this table before it is made; what meets a row is computed by
//! own kernels. The emulated stand-ins have these defects too, so that a test sees the guard work.

use crate::graph::{Graph, Operation, TensorType};
use crate::interface::Properties;
use crate::matrix::{MatrixCall, MatrixView};
use openmps_tile::DType;

/// The longest depth of a product that the M1 and M2 sum up rightly, and the shortest side of a result that is affected.
const LONGEST_DEPTH: usize = 32_766;
const SHORTEST_SIDE: usize = 16;
/// The longest dimension, and the longest row with its gap, of a product before macOS 14.4.
const LONGEST_OF_PRODUCT: usize = 32_768;
/// The most rows, or columns, that a kernel of MPS's takes which minds gaps between rows of halves, and the gaps that it does not mind.
const FEW: usize = 16;
const LONGEST_GAP: usize = 15;
const GAP_STEP: usize = 4;
/// The longest side of a convolution's window that comes out right, on every machine.
const LONGEST_WINDOW: usize = 255;
/// The longest dimension of a convolution's operand before macOS 15.1.
const LONGEST_DIMENSION: usize = 65_536;
/// The most bytes of a matrix of MPS's, and of a tensor of MPSGraph's, intermediate ones included.
const MOST_BYTES: u128 = 1 << 32;
/// `MTLGPUFamilyApple` of the M2 and of the M5.
const M2: u32 = 8;
const M5: u32 = 10;

/// What becomes of a call that meets a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Wrong numbers.
    Wrong,
    /// An assertion in Apple's framework ends the process.
    Abort,
}

/// A defect of Apple's libraries.
#[derive(Debug)]
pub struct Defect {
    /// What Apple's method computes wrongly, for people.
    pub about: &'static str,
    /// Where it is on record.
    pub record: &'static str,
    /// What becomes of the call.
    pub outcome: Outcome,
    affects: fn(&Properties) -> bool,
    meets: fn(&Work) -> bool,
}

/// What a call computes, as far as a defect asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work<'a> {
    /// A product of matrices; `gaps` are the elements between two rows of either factor.
    Product { dtype: DType, rank: usize, rows: usize, columns: usize, depth: usize, gaps: [usize; 2] },
    /// A convolution: its window, and the longest dimension of its operands and result.
    Convolution { window: [usize; 2], longest: usize },
    /// A tensor of a graph.
    Tensor(&'a TensorType),
    /// Bytes of a matrix, or of what MPSGraph uses on the way: attention's scores.
    Bytes(u128),
}

/// The table.
static DEFECTS: &[Defect] = &[
    Defect {
        about: "products of half precision and rank above 2 are not deterministic on the M5",
        record: "pytorch#180776, pytorch#197796",
        outcome: Outcome::Wrong,
        affects: |device| device.family >= M5,
        meets: |work| matches!(work, Work::Product { dtype: DType::F16 | DType::BF16, rank, .. } if *rank > 2),
    },
    Defect {
        about: "products of a depth of 32,767 and more read beyond their operands on the M1 and M2",
        record: "pytorch#195163, pytorch#183535",
        outcome: Outcome::Wrong,
        affects: |device| device.family <= M2,
        meets: |work| {
            let Work::Product { rows, columns, depth, .. } = work else { return false };
            *depth > LONGEST_DEPTH && *rows >= SHORTEST_SIDE && *columns >= SHORTEST_SIDE
        },
    },
    Defect {
        about: "products with a dimension, or a step between a factor's rows, above 32,768 are wrong before macOS 14.4",
        record: "pytorch#111634, pytorch#116769",
        outcome: Outcome::Wrong,
        affects: |device| !device.long_products,
        meets: |work| {
            let Work::Product { rows, columns, depth, gaps, .. } = work else { return false };
            (*rows).max(*columns).max(*depth) + gaps[0].max(gaps[1]) > LONGEST_OF_PRODUCT
        },
    },
    Defect {
        about: "float16 products of few rows or columns read what lies between the rows of a factor",
        record: "pytorch#178056",
        outcome: Outcome::Wrong,
        affects: |_| true,
        meets: |work| {
            let Work::Product { dtype: DType::F16, rows, columns, gaps, .. } = work else { return false };
            (*rows).min(*columns) <= FEW && gaps.iter().any(|&gap| gap > LONGEST_GAP || !gap.is_multiple_of(GAP_STEP))
        },
    },
    Defect {
        about: "convolutions with a window of 256 and more in one direction are wrong",
        record: "pytorch pull request 188359",
        outcome: Outcome::Wrong,
        affects: |_| true,
        meets: |work| matches!(work, Work::Convolution { window, .. } if window.iter().any(|&side| side > LONGEST_WINDOW)),
    },
    Defect {
        about: "convolutions of dimensions above 65,536 are wrong before macOS 15.1",
        record: "pytorch#129207, pytorch#142836",
        outcome: Outcome::Wrong,
        affects: |device| !device.long_convolutions,
        meets: |work| matches!(work, Work::Convolution { longest, .. } if *longest > LONGEST_DIMENSION),
    },
    Defect {
        about: "a tensor of more than 2^32 bytes ends the process in an assertion of MPSNDArray",
        record: "pytorch#149261",
        outcome: Outcome::Abort,
        affects: |_| true,
        meets: |work| match work {
            Work::Tensor(tensor) => bytes(tensor) > MOST_BYTES,
            Work::Bytes(bytes) => *bytes > MOST_BYTES,
            _ => false,
        },
    },
];

/// The defect that a call of MPS would meet on a device.
pub fn of_matrix_call<B: Clone + PartialEq>(call: &MatrixCall<B>, device: &Properties) -> Option<&'static Defect> {
    // MPS lays an array over a matrix as MPSGraph does, and its assertion is the same.
    let mut work: Vec<Work> = call.operands().iter().map(|operand| Work::Bytes(operand.span as u128)).collect();
    if let MatrixCall::Multiplication { left, right, result, transpose_left, .. } = call {
        let depth = left.shape(*transpose_left).1;
        // The records name MPSGraph and MPSNDArray. Whether the class of matrices has kernels of its own for batches is not documented.
        let rank = if result.matrices == 1 { 2 } else { 3 };
        let (rows, columns) = (result.rows, result.columns);
        work.push(Work::Product { dtype: right.dtype, rank, rows, columns, depth, gaps: [gap(left), gap(right)] });
    }
    if let MatrixCall::VectorMultiplication { matrix, transpose, .. } = call {
        // No record names the class of vectors. It is held to the products' all the same.
        let (rows, depth) = matrix.shape(*transpose);
        work.push(Work::Product { dtype: matrix.dtype, rank: 2, rows, columns: 1, depth, gaps: [gap(matrix), 0] });
    }
    first(device, &work)
}

/// Elements between two rows.
fn gap<B>(matrix: &MatrixView<B>) -> usize {
    (matrix.row_bytes / matrix.dtype.size()).saturating_sub(matrix.columns)
}

/// The defect that a graph of MPSGraph's would meet on a device.
pub fn of_graph(graph: &Graph, device: &Properties) -> Option<&'static Defect> {
    let inputs = graph.inputs().iter().map(Work::Tensor);
    let mut work: Vec<Work> = inputs.collect();
    for node in graph.nodes() {
        work.push(Work::Tensor(&node.result));
        let of = |index: usize| graph.type_of(node.inputs[index]);
        match &node.operation {
            Operation::MatrixMultiplication => {
                let [.., rows, columns] = node.result.shape[..] else { continue };
                let depth = of(0).shape.last().copied().unwrap_or(1);
                let (dtype, rank) = (of(0).dtype, node.result.shape.len());
                work.push(Work::Product { dtype, rank, rows, columns, depth, gaps: [0; 2] });
            }
            Operation::Convolution { window, .. }
            | Operation::DepthwiseConvolution { window }
            | Operation::ConvolutionTranspose { window, .. } => {
                let all = [of(0), of(1), &node.result];
                let longest = all.iter().flat_map(|tensor| &tensor.shape).copied().max().unwrap_or(0);
                work.push(Work::Convolution { window: window.size, longest });
            }
            Operation::Attention { .. } => {
                let (dtype, rank) = (of(0).dtype, of(0).shape.len());
                let ([.., rows, head], [.., keys, _]) = (&of(0).shape[..], &of(1).shape[..]) else { continue };
                let ((rows, keys, head), gaps) = ((*rows, *keys, *head), [0; 2]);
                let heads: u128 = of(0).shape[..rank - 2].iter().map(|&size| size as u128).product();
                work.push(Work::Bytes(heads * rows as u128 * keys as u128 * dtype.size() as u128));
                // Scores, and values by their weights. That it computes these by the kernels of products is not documented.
                work.push(Work::Product { dtype, rank, rows, columns: keys, depth: head, gaps });
                work.push(Work::Product { dtype, rank, rows, columns: head, depth: keys, gaps });
            }
            _ => {}
        }
    }
    first(device, &work)
}

fn first(device: &Properties, work: &[Work]) -> Option<&'static Defect> {
    DEFECTS.iter().find(|defect| (defect.affects)(device) && work.iter().any(defect.meets))
}

fn bytes(tensor: &TensorType) -> u128 {
    tensor.shape.iter().map(|&size| size as u128).product::<u128>() * tensor.dtype.size() as u128
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Builder, Window};
    use crate::matrix::VectorView;
    use crate::recorder;

    fn device(family: u32) -> Properties {
        Properties { family, ..recorder::properties() }
    }

    fn records(of: Option<&'static Defect>) -> &'static str {
        of.map_or("", |defect| defect.record)
    }

    fn product(dtype: DType, [matrices, rows, depth, columns]: [usize; 4]) -> Graph {
        let mut b = Builder::new();
        let shape = |rows, columns| if matrices == 1 { vec![rows, columns] } else { vec![matrices, rows, columns] };
        let (x, y) = (b.input(dtype, &shape(rows, depth)).unwrap(), b.input(dtype, &shape(depth, columns)).unwrap());
        let result = b.add(Operation::MatrixMultiplication, &[x, y]).unwrap();
        b.finish(&[result]).unwrap()
    }

    fn multiplication<B: Clone>([left, right, result]: [MatrixView<B>; 3], transpose_left: bool) -> MatrixCall<B> {
        let (transpose_right, alpha, beta) = (false, 1.0, 0.0);
        MatrixCall::Multiplication { left, right, result, transpose_left, transpose_right, alpha, beta }
    }

    /// Attention of two heads.
    fn attention(dtype: DType, [rows, keys, head]: [usize; 3]) -> Graph {
        let mut b = Builder::new();
        let [q, k, v] = [rows, keys, keys].map(|rows| b.input(dtype, &[1, 2, rows, head]).unwrap());
        let result = b.add(Operation::Attention { scale: 1f32.to_bits(), mask: false }, &[q, k, v]).unwrap();
        b.finish(&[result]).unwrap()
    }

    #[test]
    fn half_products_of_rank_3_stay_off_the_m5() {
        for dtype in [DType::F16, DType::BF16] {
            let graph = product(dtype, [2, 64, 64, 64]);
            assert!(records(of_graph(&graph, &device(10))).contains("180776"));
            assert!(of_graph(&graph, &device(9)).is_none());
            assert!(of_graph(&product(dtype, [1, 64, 64, 64]), &device(10)).is_none());
        }
        assert!(of_graph(&product(DType::F32, [2, 64, 64, 64]), &device(10)).is_none());
        for (dtype, matrices, known) in [(DType::F16, 2, true), (DType::F16, 1, false), (DType::F32, 2, false)] {
            let views = [0, 1, 2].map(|buffer| MatrixView::dense(buffer, 0, dtype, matrices, 64, 64));
            assert_eq!(
                of_matrix_call(&multiplication(views, false), &device(10)).is_some(),
                known,
                "{dtype} {matrices}"
            );
        }
        assert!(of_graph(&attention(DType::F16, [64, 64, 64]), &device(10)).is_some());
        assert!(of_graph(&attention(DType::F32, [64, 64, 64]), &device(10)).is_none());
    }

    #[test]
    fn deep_products_stay_off_the_m1_and_m2() {
        let view = |rows, columns| MatrixView::dense((), 0, DType::F32, 1, rows, columns);
        let call = |depth, rows| multiplication([view(depth, rows), view(depth, 16), view(rows, 16)], true);
        for family in [7, 8] {
            assert!(records(of_matrix_call(&call(32_767, 16), &device(family))).contains("195163"));
            assert!(of_matrix_call(&call(32_766, 16), &device(family)).is_none());
            assert!(of_matrix_call(&call(40_000, 15), &device(family)).is_none(), "one side is short");
            assert!(of_graph(&product(DType::F32, [1, 16, 40_000, 16]), &device(family)).is_some());
            assert!(of_graph(&attention(DType::F32, [16, 32_767, 64]), &device(family)).is_some());
            assert!(of_graph(&attention(DType::F32, [1, 32_767, 64]), &device(family)).is_none(), "one row");
        }
        assert!(of_matrix_call(&call(40_000, 16), &device(9)).is_none());
        assert!(of_graph(&attention(DType::F32, [16, 32_767, 64]), &device(9)).is_none());
    }

    #[test]
    fn long_products_stay_off_macos_before_14_4() {
        let old = Properties { long_products: false, ..device(9) };
        for (sizes, known) in [([1, 911, 9, 32_769], true), ([1, 8, 32_769, 8], true), ([1, 32_768, 8, 32_768], false)]
        {
            let found = of_graph(&product(DType::F32, sizes), &old);
            assert_eq!(records(found).contains("116769"), known, "{sizes:?}");
            assert!(of_graph(&product(DType::F32, sizes), &device(9)).is_none());
        }
        let view = |rows, columns| MatrixView::dense(0, 0, DType::F32, 1, rows, columns);
        let wide = MatrixView { row_bytes: 32_772 * 4, ..view(8, 8) };
        let call = multiplication([view(8, 8), wide, view(8, 8)], false);
        assert!(of_matrix_call(&call, &old).is_some(), "a step of 32,772 elements");
        assert!(of_matrix_call(&call, &device(9)).is_none());
        assert!(of_matrix_call(&vector(DType::F32, 40_000, 0), &old).is_some());
        assert!(of_matrix_call(&vector(DType::F32, 40_000, 0), &device(9)).is_none());
    }

    /// A matrix of so many rows with a gap, times a vector.
    fn vector(dtype: DType, rows: usize, gap: usize) -> MatrixCall<u8> {
        let matrix = MatrixView { row_bytes: (64 + gap) * dtype.size(), ..MatrixView::dense(0, 0, dtype, 1, rows, 64) };
        let (vector, result) = (VectorView::dense(1, 0, dtype, 64), VectorView::dense(2, 0, dtype, rows));
        MatrixCall::VectorMultiplication { matrix, vector, result, transpose: false, alpha: 1.0, beta: 0.0 }
    }

    #[test]
    fn few_rows_of_halves_with_gaps_stay_out_of_mps() {
        let view = |dtype: DType, rows: usize, gap: usize| MatrixView {
            row_bytes: (64 + gap) * dtype.size(),
            ..MatrixView::dense(0, 0, dtype, 1, rows, 64)
        };
        let call = |dtype, rows, gap| {
            multiplication([view(dtype, rows, gap), view(dtype, 64, 0), view(dtype, rows, 0)], false)
        };
        for (dtype, rows, gap, known) in [
            (DType::F16, 16, 2, true),
            (DType::F16, 16, 16, true),
            (DType::F16, 16, 12, false),
            (DType::F16, 16, 0, false),
            (DType::F16, 17, 2, false),
            (DType::F32, 16, 2, false),
        ] {
            let found = of_matrix_call(&call(dtype, rows, gap), &device(9));
            assert_eq!(records(found).contains("178056"), known, "{dtype} {rows} {gap}");
        }
        assert!(of_matrix_call(&vector(DType::F16, 2048, 2), &device(9)).is_some());
        assert!(of_matrix_call(&vector(DType::F16, 2048, 0), &device(9)).is_none());
    }

    #[test]
    fn long_windows_and_dimensions_are_kept_from_convolutions() {
        let graph = |window: usize, width: usize| {
            let mut b = Builder::new();
            let image = b.input(DType::F32, &[1, 1, 1, width]).unwrap();
            let weights = b.input(DType::F32, &[1, 1, 1, window]).unwrap();
            let window = Window::of(1, window);
            let result = b.add(Operation::Convolution { window, groups: 1 }, &[image, weights]).unwrap();
            b.finish(&[result]).unwrap()
        };
        assert!(records(of_graph(&graph(256, 300), &device(9))).contains("188359"));
        assert!(of_graph(&graph(255, 300), &device(9)).is_none());
        let old = Properties { long_convolutions: false, ..device(9) };
        assert!(records(of_graph(&graph(3, 65_537), &old)).contains("129207"));
        assert!(of_graph(&graph(3, 65_537), &device(9)).is_none());
        assert!(of_graph(&graph(3, 65_536), &old).is_none());
    }

    #[test]
    fn so_are_they_from_depthwise_and_transposed_ones() {
        for (operation, image) in [
            (Operation::DepthwiseConvolution { window: Window::of(1, 256) }, 300),
            (Operation::ConvolutionTranspose { window: Window::of(1, 256), groups: 1, extra: [0, 0] }, 3),
        ] {
            let mut b = Builder::new();
            let image = b.input(DType::F32, &[1, 1, 1, image]).unwrap();
            let weights = b.input(DType::F32, &[1, 1, 1, 256]).unwrap();
            let result = b.add(operation.clone(), &[image, weights]).unwrap();
            let graph = b.finish(&[result]).unwrap();
            assert!(records(of_graph(&graph, &device(9))).contains("188359"), "{operation:?}");
        }
    }

    #[test]
    fn matrices_of_more_than_4_gib_stay_out_of_mps() {
        let softmax = |rows: usize| {
            let view = |buffer: u8| MatrixView::dense(buffer, 0, DType::F32, 1, rows, 1 << 15);
            MatrixCall::SoftMax { input: view(0), result: view(1), logarithm: false }
        };
        let found = of_matrix_call(&softmax((1 << 15) + 1), &device(9));
        assert_eq!(found.map(|defect| defect.outcome), Some(Outcome::Abort));
        assert!(of_matrix_call(&softmax(1 << 15), &device(9)).is_none(), "exactly 4 GiB");
    }

    #[test]
    fn tensors_of_more_than_4_gib_stay_out_of_graphs() {
        let graph = |length: usize| {
            let mut b = Builder::new();
            let x = b.input(DType::F32, &[length]).unwrap();
            let result = b.add(Operation::Relu, &[x]).unwrap();
            b.finish(&[result]).unwrap()
        };
        assert_eq!(of_graph(&graph((1 << 30) + 1), &device(9)).map(|defect| defect.outcome), Some(Outcome::Abort));
        assert!(of_graph(&graph(1 << 30), &device(9)).is_none());
        let mut b = Builder::new();
        let x = b.input(DType::F32, &[1]).unwrap();
        let result = b.add(Operation::Broadcast(vec![(1 << 30) + 1]), &[x]).unwrap();
        assert!(of_graph(&b.finish(&[result]).unwrap(), &device(9)).is_some(), "the result is more than 4 GiB");
        let mut b = Builder::new();
        let [q, k, v] = [8192, 1 << 17, 1 << 17].map(|rows| b.input(DType::F32, &[1, 4, rows, 8]).unwrap());
        let attention = Operation::Attention { scale: 1f32.to_bits(), mask: false };
        let result = b.add(attention, &[q, k, v]).unwrap();
        assert!(of_graph(&b.finish(&[result]).unwrap(), &device(9)).is_some(), "the scores are 16 GiB");
    }
}
