//! The shape rules against shapes known from Paddle, and the seeds' table of methods.

use super::operation::Resize;
use super::*;
use crate::error::Result;
use openmps_tile::DType::{self, *};

/// The result's shape of one operation on inputs of these types.
fn infer(operation: Operation, inputs: &[(DType, &[usize])]) -> Result<Vec<usize>> {
    let mut builder = Builder::new();
    let tensors: Vec<Tensor> =
        inputs.iter().map(|(dtype, shape)| builder.input(*dtype, shape)).collect::<Result<_>>()?;
    let result = builder.add(operation, &tensors)?;
    Ok(builder.type_of(result).shape.clone())
}

fn refused(operation: Operation, inputs: &[(DType, &[usize])]) -> String {
    infer(operation, inputs).unwrap_err().to_string()
}

#[test]
fn the_seeds_table_of_methods_is_kept() {
    let binary = [
        (Binary::Addition, "additionWithPrimaryTensor:secondaryTensor:"),
        (Binary::Multiplication, "multiplicationWithPrimaryTensor:secondaryTensor:"),
        (Binary::Subtraction, "subtractionWithPrimaryTensor:secondaryTensor:"),
        (Binary::Division, "divisionWithPrimaryTensor:secondaryTensor:"),
    ];
    assert!(binary.iter().all(|(operation, method)| operation.method() == *method));
    let unary = [
        (Unary::Absolute, "absoluteWithTensor:"),
        (Unary::Exponent, "exponentWithTensor:"),
        (Unary::Logarithm, "logarithmWithTensor:"),
        (Unary::SquareRoot, "squareRootWithTensor:"),
    ];
    assert!(unary.iter().all(|(operation, method)| operation.method() == *method));
    for operation in [Operation::Relu, Operation::Sigmoid] {
        assert_eq!(infer(operation, &[(F32, &[2, 3])]).unwrap(), [2, 3]);
    }
}

#[test]
fn elementwise_operations_broadcast_and_refuse_what_has_no_arithmetic() {
    for &unary in Unary::ALL {
        assert_eq!(infer(Operation::Unary(unary), &[(F16, &[4, 1])]).unwrap(), [4, 1]);
    }
    for &binary in Binary::ALL {
        assert_eq!(infer(Operation::Binary(binary), &[(F32, &[4, 1, 3]), (F32, &[5, 1])]).unwrap(), [4, 5, 3]);
        assert_eq!(infer(Operation::Binary(binary), &[(I32, &[]), (I32, &[7])]).unwrap(), [7]);
    }
    let add = Operation::Binary(Binary::Addition);
    assert!(refused(add.clone(), &[(F32, &[4]), (F32, &[3])]).contains("[4] and [3] cannot be broadcast"));
    assert!(refused(add.clone(), &[(F32, &[4]), (F16, &[4])]).contains("the types [\"float32\", \"float16\"] differ"));
    assert!(refused(add.clone(), &[(F32, &[4])]).contains("1 inputs were given, 2 are taken"));
    assert!(refused(add, &[(F64, &[4]), (F64, &[4])]).contains("input does not compute in float64 on MPSGraph"));
    assert!(refused(Operation::Unary(Unary::Exponent), &[(I32, &[4])]).contains("int32"));
    assert!(refused(Operation::Relu, &[(Bool, &[4])]).contains("bool"));
}

#[test]
fn matrix_products_and_attention_match_their_inner_lengths() {
    let product = Operation::MatrixMultiplication;
    assert_eq!(infer(product.clone(), &[(F32, &[7, 2, 3]), (F32, &[3, 5])]).unwrap(), [7, 2, 5]);
    assert!(refused(product.clone(), &[(F32, &[2, 3]), (F32, &[2, 3])]).contains("do not match"));
    assert!(refused(product, &[(F32, &[3]), (F32, &[3, 2])]).contains("are no matrices"));

    let attention = |mask| Operation::Attention { scale: 0.125f32.to_bits(), mask };
    let (query, key, value) = ([2, 8, 10, 64], [2, 8, 12, 64], [2, 8, 12, 32]);
    let three: [(DType, &[usize]); 3] = [(F16, &query), (F16, &key), (F16, &value)];
    assert_eq!(infer(attention(false), &three).unwrap(), [2, 8, 10, 32]);
    let four = |mask: &'static [usize]| [three[0], three[1], three[2], (F16, mask)];
    assert_eq!(infer(attention(true), &four(&[10, 12])).unwrap(), [2, 8, 10, 32]);
    assert!(refused(attention(true), &four(&[12, 10])).contains("cannot be broadcast"));
    assert!(refused(attention(false), &[(F16, &query), (F16, &value), (F16, &value)]).contains("do not match"));
}

#[test]
fn convolutions_have_paddle_s_shapes() {
    let window = Window { strides: [2, 2], before: [1, 1], after: [1, 1], ..Window::of(3, 3) };
    let plain = Operation::Convolution { window, groups: 1 };
    assert_eq!(infer(plain.clone(), &[(F32, &[2, 3, 224, 224]), (F32, &[64, 3, 3, 3])]).unwrap(), [2, 64, 112, 112]);
    assert!(refused(plain.clone(), &[(F32, &[2, 4, 224, 224]), (F32, &[64, 3, 3, 3])]).contains("4 channels"));
    assert!(refused(plain.clone(), &[(F32, &[2, 3, 8, 8]), (F32, &[64, 3, 5, 5])]).contains("weights are 5x5"));
    assert!(refused(plain, &[(F32, &[3, 8, 8]), (F32, &[64, 3, 3, 3])]).contains("four axes"));

    let grouped = Operation::Convolution { window: Window::of(1, 1), groups: 4 };
    assert_eq!(infer(grouped, &[(F16, &[1, 8, 5, 5]), (F16, &[12, 2, 1, 1])]).unwrap(), [1, 12, 5, 5]);

    let dilated = Window { dilations: [2, 2], ..Window::of(3, 3) };
    let depthwise = Operation::DepthwiseConvolution { window: dilated };
    assert_eq!(infer(depthwise.clone(), &[(F32, &[1, 6, 9, 9]), (F32, &[12, 1, 3, 3])]).unwrap(), [1, 12, 5, 5]);
    assert!(refused(depthwise, &[(F32, &[1, 6, 9, 9]), (F32, &[6, 2, 3, 3])]).contains("multiplier"));

    let up = Operation::ConvolutionTranspose { window, groups: 1, extra: [1, 1] };
    assert_eq!(infer(up, &[(F32, &[1, 16, 7, 7]), (F32, &[16, 8, 3, 3])]).unwrap(), [1, 8, 14, 14]);
    let up = Operation::ConvolutionTranspose { window, groups: 1, extra: [2, 0] };
    assert!(refused(up, &[(F32, &[1, 16, 7, 7]), (F32, &[16, 8, 3, 3])]).contains("2 extra rows"));
}

#[test]
fn pooling_hangs_over_the_edge_only_where_asked() {
    let window = Window { strides: [2, 2], ..Window::of(3, 3) };
    let max = |ceil| Operation::MaxPooling { window, ceil };
    assert_eq!(infer(max(false), &[(F32, &[1, 2, 8, 8])]).unwrap(), [1, 2, 3, 3]);
    assert_eq!(infer(max(true), &[(F32, &[1, 2, 8, 8])]).unwrap(), [1, 2, 4, 4]);
    let padded = Window { before: [1, 1], after: [1, 1], ..window };
    let average = Operation::AveragePooling { window: padded, ceil: true, padding_counts: false };
    assert_eq!(infer(average, &[(F32, &[1, 2, 7, 7])]).unwrap(), [1, 2, 4, 4]);
    let behind = Window { after: [2, 2], strides: [4, 4], ..window };
    assert!(
        refused(Operation::MaxPooling { window: behind, ceil: true }, &[(F32, &[1, 2, 4, 4])]).contains("begin in")
    );
    let wide = Window { before: [3, 0], ..window };
    assert!(refused(Operation::MaxPooling { window: wide, ceil: false }, &[(F32, &[1, 2, 8, 8])]).contains("padding"));
    assert!(refused(max(false), &[(F32, &[1, 2, 2, 8])]).contains("does not fit"));
}

#[test]
fn reductions_softmax_and_normalisation_keep_their_axes() {
    for &reduction in Reduction::ALL {
        assert_eq!(infer(Operation::Reduce(reduction, vec![0, 2]), &[(F32, &[2, 3, 4])]).unwrap(), [1, 3, 1]);
    }
    assert!(refused(Operation::Reduce(Reduction::Sum, vec![1, 1]), &[(F32, &[2, 3])]).contains("are no axes"));
    assert!(refused(Operation::Reduce(Reduction::Mean, vec![0]), &[(I32, &[2, 3])]).contains("int32"));
    assert_eq!(infer(Operation::SoftMax(1), &[(F32, &[2, 3])]).unwrap(), [2, 3]);
    assert!(refused(Operation::LogSoftMax(2), &[(F32, &[2, 3])]).contains("are no axes"));
    let layer = Operation::Normalisation { axes: vec![1], epsilon: 1e-5f32.to_bits() };
    assert_eq!(infer(layer.clone(), &[(F32, &[2, 3]), (F32, &[3]), (F32, &[3])]).unwrap(), [2, 3]);
    assert!(refused(layer, &[(F32, &[2, 3]), (F32, &[2]), (F32, &[3])]).contains("cannot be broadcast"));
    let batch = Operation::FixedNormalisation { epsilon: 1e-5f32.to_bits() };
    let of: (DType, &[usize]) = (F32, &[1, 3, 1, 1]);
    assert_eq!(infer(batch, &[(F32, &[2, 3, 4, 4]), of, of, of, of]).unwrap(), [2, 3, 4, 4]);
}

#[test]
fn gather_scatter_resize_and_shapes() {
    assert_eq!(infer(Operation::Gather { axis: 1 }, &[(F32, &[2, 5, 3]), (I64, &[7, 4])]).unwrap(), [2, 7, 4, 3]);
    assert!(refused(Operation::Gather { axis: 0 }, &[(F32, &[2]), (F32, &[7])]).contains("float32"));
    let scatter = Operation::Scatter { axis: 1, mode: ScatterMode::Add };
    assert_eq!(infer(scatter.clone(), &[(F32, &[2, 5]), (I32, &[3]), (F32, &[2, 3])]).unwrap(), [2, 5]);
    assert!(refused(scatter, &[(F32, &[2, 5]), (I32, &[3]), (F32, &[3, 2])]).contains("[2, 3] is needed"));
    let resize = Resize { size: [9, 7], bilinear: true, center: true, align_corners: false };
    assert_eq!(infer(Operation::Resize(resize), &[(F32, &[1, 2, 3, 4])]).unwrap(), [1, 2, 9, 7]);
    assert_eq!(infer(Operation::Transpose(vec![2, 0, 1]), &[(F32, &[2, 3, 4])]).unwrap(), [4, 2, 3]);
    assert!(refused(Operation::Transpose(vec![0, 0, 1]), &[(F32, &[2, 3, 4])]).contains("no order of 3 axes"));
    assert_eq!(infer(Operation::Reshape(vec![6]), &[(F32, &[2, 3])]).unwrap(), [6]);
    assert!(refused(Operation::Reshape(vec![5]), &[(F32, &[2, 3])]).contains("6 elements"));
    assert_eq!(infer(Operation::Broadcast(vec![4, 3]), &[(F32, &[1, 3])]).unwrap(), [4, 3]);
    assert!(refused(Operation::Broadcast(vec![1, 3]), &[(F32, &[4, 3])]).contains("does not become"));
    assert_eq!(infer(Operation::Concat { axis: 1 }, &[(F32, &[2, 3]), (F32, &[2, 4])]).unwrap(), [2, 7]);
    assert!(refused(Operation::Concat { axis: 0 }, &[(F32, &[2, 3]), (F32, &[2, 4])]).contains("more than axis 0"));
    assert!(refused(Operation::Cast(F64), &[(F32, &[2])]).contains("float64"));
}

#[test]
fn graphs_are_compared_as_a_whole() {
    let graph = |bits: u64| {
        let mut builder = Builder::new();
        let x = builder.input(F32, &[4]).unwrap();
        let constant = Operation::Constant { bits, shape: vec![1], dtype: F32 };
        let constant = builder.add(constant, &[]).unwrap();
        let sum = builder.add(Operation::Binary(Binary::Addition), &[x, constant]).unwrap();
        assert!(builder.input(F32, &[4]).is_err(), "inputs come before operations");
        builder.finish(&[sum]).unwrap()
    };
    assert_eq!(graph(1.0f64.to_bits()), graph(1.0f64.to_bits()));
    assert_ne!(graph(1.0f64.to_bits()), graph((1.0f64 + f64::EPSILON).to_bits()));
    assert_ne!(graph(0.0f64.to_bits()), graph((-0.0f64).to_bits()));
    assert_eq!(graph(0).type_of(graph(0).outputs()[0]).shape, [4]);
    assert!(!graph(0).needs_attention());
}

#[test]
fn results_must_be_computed_and_inputs_not_empty() {
    let mut builder = Builder::new();
    assert!(builder.input(F32, &[0, 4]).unwrap_err().to_string().contains("no empty tensors"));
    let x = builder.input(F32, &[4]).unwrap();
    assert!(builder.add(Operation::Relu, &[Tensor(9)]).unwrap_err().to_string().contains("not there yet"));
    assert!(builder.finish(&[x]).is_err());
}
