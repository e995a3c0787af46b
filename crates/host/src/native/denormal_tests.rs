//! Lanes that are computed and dropped, and numbers of an activation that is another one, are not denormal, whatever memory was left over: on an Intel CPU
//! each denormal number takes a hundred times as long as another.

use super::convolution::{Convolution, TransposedConvolution, backward_filter, forward, transposed};
use super::matmul::{Matrices, MatrixProduct, matmul};
use super::{Activation, Epilogue, scratch};
use openmps_tile::DType;
use std::arch::asm;

/// Flags of the state of float32's arithmetic: an operand was denormal, a result was.
const DENORMAL: u32 = 1 << 1 | 1 << 4;
const FLAGS: u32 = 0x3f;

/// Whether the calling thread meets or makes a denormal number in this call, with memory left over that is full of them.
fn meets_denormals(mut call: impl FnMut()) -> bool {
    scratch::with(4 << 20, |left_over: &mut [f32]| left_over.fill(1e-40));
    let mut state = 0_u32;
    // SAFETY: the state is read, and written with its flags cleared, on which no result depends.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &mut state, options(nostack));
        state &= !FLAGS;
        asm!("ldmxcsr [{}]", in(reg) &state, options(nostack));
    }
    call();
    // SAFETY: as above.
    unsafe { asm!("stmxcsr [{}]", in(reg) &mut state, options(nostack)) };
    state & DENORMAL != 0
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 113) as f32 / 64.0 - 0.9).collect()
}

/// Three by three, with as many zeros around as keep the size.
fn shape(batch: usize, channels: usize, input: [usize; 2], filters: usize, kernel: [usize; 2]) -> Convolution {
    let [height, width] = kernel.map(|size| size / 2);
    let padding = [height, height, width, width];
    Convolution { batch, channels, input, filters, kernel, stride: [1; 2], padding, dilation: [1; 2], groups: 1 }
}

fn shapes() -> Vec<Convolution> {
    vec![
        Convolution { stride: [2; 2], ..shape(1, 3, [30, 34], 16, [3, 3]) },
        shape(1, 16, [29, 37], 18, [3, 3]),
        shape(1, 16, [28, 40], 18, [3, 3]),
        shape(2, 20, [15, 13], 26, [1, 1]),
        shape(1, 400, [9, 11], 7, [1, 1]),
        shape(3, 40, [3, 3], 30, [3, 3]),
        shape(1, 12, [11, 13], 48, [5, 5]),
        Convolution { stride: [2; 2], ..shape(2, 90, [19, 21], 64, [3, 3]) },
        Convolution { groups: 3, ..shape(1, 12, [17, 15], 18, [3, 3]) },
        Convolution { groups: 24, ..shape(1, 24, [19, 21], 24, [3, 3]) },
        Convolution { groups: 24, stride: [2; 2], ..shape(1, 24, [19, 21], 24, [5, 5]) },
    ]
}

#[test]
fn of_convolutions() {
    let activations = [
        Activation::None,
        Activation::Relu,
        Activation::HardSwish,
        Activation::HardSigmoid { slope: 0.2, offset: 0.5 },
        Activation::LeakyRelu { slope: 0.1 },
    ];
    for shape in shapes() {
        let [input, weight, output] = shape.lens().map(numbers);
        let (bias, mut out) = (numbers(shape.filters), output.clone());
        for activation in activations {
            let epilogue = Epilogue { bias: Some(&bias), activation, ..Epilogue::default() };
            let found = meets_denormals(|| forward(&shape, &input, &weight, &mut out, &epilogue).unwrap());
            assert!(!found, "{shape:?} with {activation:?}");
        }
    }
}

#[test]
fn of_their_gradients() {
    for shape in shapes() {
        let [mut input, mut weight, output] = shape.lens().map(numbers);
        let given = input.clone();
        assert!(!meets_denormals(|| backward_filter(&shape, &given, &output, &mut weight).unwrap()), "{shape:?}");
        let of = TransposedConvolution { of: shape };
        let weight = numbers(weight.len());
        let found = meets_denormals(|| transposed(&of, &output, &weight, &mut input, &Epilogue::default()).unwrap());
        assert!(!found, "transposed {shape:?}");
    }
}

#[test]
fn of_products() {
    for (rows, depth, columns) in
        [(1, 33, 65), (7, 40, 13), (13, 129, 27), (64, 400, 100), (97, 77, 24), (130, 512, 70)]
    {
        let (left, right, mut out) = (numbers(rows * depth), numbers(depth * columns), numbers(rows * columns));
        let product = MatrixProduct::dense(rows, depth, columns);
        let at =
            Matrices { left: left.as_ptr() as usize, right: right.as_ptr() as usize, out: out.as_mut_ptr() as usize };
        // SAFETY: dense matrices of these sizes.
        let found = meets_denormals(|| unsafe { matmul(&product, DType::F32, at, &[[0; 3]]) }.unwrap());
        assert!(!found, "{rows} x {depth} x {columns}");
    }
}
