//! How many elements sizes have, whoever names them.

/// The elements of a tensor of these sizes; `usize::MAX`, which no slice has, where there would be more.
pub(crate) fn elements(sizes: &[usize]) -> usize {
    if sizes.contains(&0) { 0 } else { sizes.iter().fold(1, |all, &size| all.saturating_mul(size)) }
}

#[cfg(test)]
mod tests {
    use super::elements;
    use crate::native::Epilogue;
    use crate::native::convolution::{self, Convolution, TransposedConvolution};
    use crate::native::interpolation::{Tap, bilinear, gradient, nearest};
    use crate::native::matmul::{PackedMatrix, Side};
    use crate::native::pooling::{PoolingKind, PoolingWindow, global_average, pool, pool_backward, pool_backward_at};
    use crate::native::recurrent::{Cell, Forward, Layer, forward};

    const HALF: usize = 1 << 63;

    #[test]
    fn a_product_does_not_wrap() {
        assert_eq!([elements(&[]), elements(&[3, 4]), elements(&[HALF, 2, 0])], [1, 12, 0]);
        assert_eq!(elements(&[HALF, 2]), usize::MAX);
    }

    #[test]
    fn slices_are_not_tensors_of_sizes_whose_product_wraps() {
        let tap = Tap { low: 0, high: 0, weight: 0.0 };
        let window = PoolingWindow { begin: 0, end: 1, size: 1 };
        let (x, out): (&[f32], &mut [f32]) = (&[], &mut []);
        assert!(gradient(HALF, [2, 1], &[], &[], x, out).is_err());
        assert!(bilinear(HALF, [1, 1], &[tap; 2], &[tap], &[0.0; 0], out).is_err());
        assert!(nearest(HALF, [1, 1], &[0; 2], &[0], x, out).is_err());
        assert!(global_average(HALF, x, &mut [0.0; 2]).is_err());
        let average = PoolingKind::Average;
        assert!(pool(average, HALF, [2, 1], &[window; 2], &[window], x, out, None).is_err());
        assert!(pool_backward_at(2, &[0.0], &[0], &mut [0.0; 4]).is_err());
        assert!(pool_backward_at(1, &[0.0; 2], &[0], &mut [0.0; 4]).is_err());
        assert!(pool_backward(average, HALF, [2, 1], &[], &[], x, x, out).is_err());
        let beyond = PoolingWindow { begin: 1, end: 3, size: 2 };
        assert!(pool_backward(average, 1, [2, 1], &[beyond], &[window], &[0.0; 2], &[0.0], &mut [0.0; 2]).is_err());
        assert!(PackedMatrix::new(Side::Right, [1 << 32; 2], [0, 0], &[1.0]).is_err());
        assert!(PackedMatrix::new(Side::Left, [1 << 32; 2], [0, 0], &[1.0]).is_err());
    }

    #[test]
    fn neither_are_they_of_convolutions() {
        let usual = Convolution {
            batch: 1,
            channels: 1,
            input: [1, 1],
            filters: 1,
            kernel: [1, 1],
            stride: [1, 1],
            padding: [0; 4],
            dilation: [1, 1],
            groups: 1,
        };
        let hostile = [
            Convolution { batch: HALF, channels: 2, filters: 2, ..usual },
            Convolution { padding: [usize::MAX, 1, 0, 0], stride: [HALF, 1], ..usual },
            Convolution { kernel: [2, 1], dilation: [usize::MAX, 1], ..usual },
            Convolution { input: [HALF, 2], padding: [HALF, 0, 0, 0], ..usual },
        ];
        for of in hostile {
            let weight = vec![0.0; of.kernel[0] * of.channels * of.filters];
            for len in [0, 1] {
                let (mut out, x, none) = (vec![0.0; len], vec![0.0; len], Epilogue::default());
                assert!(convolution::forward(&of, &x, &weight, &mut out, &none).is_err(), "{of:?}");
                let transposed = TransposedConvolution { of };
                assert!(convolution::transposed(&transposed, &x, &weight, &mut out, &none).is_err(), "{of:?}");
            }
        }
    }

    #[test]
    fn nor_of_recurrent_layers() {
        let layer = Layer { cell: Cell::Lstm, reverse: false, steps: HALF, batch: 2, hidden: 1 };
        let (gates, hidden, cells): (&mut [f32], &mut [f32], &mut [f32]) = (&mut [], &mut [], &mut []);
        let call = Forward {
            products: &[],
            weight: &[0.0; 4],
            bias: &[0.0; 4],
            hidden_before: &[0.0; 2],
            cells_before: &[0.0; 2],
            lengths: None,
            gates,
            hidden,
            cells,
        };
        assert!(forward(&layer, call).is_err());
    }
}
