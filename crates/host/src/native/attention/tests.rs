//! Attention in float32 against float64 on sizes around every block's edge.

use super::*;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 1013) as f32 / 506.0 - 1.0).collect()
}

#[test]
fn every_edge_agrees_with_float64() {
    let cases = [
        // batch, heads, key heads, rows, keys, depth, columns
        [1, 1, 1, 1, 1, 1, 1],
        [2, 4, 2, 7, 9, 8, 16],
        [1, 2, 1, 13, 33, 32, 32],
        [2, 6, 6, 50, 50, 20, 24],
        [1, 3, 3, 64, 65, 64, 64],
        [1, 1, 1, 5, 300, 33, 7],
        [1, 2, 2, 9, 4, 16, 16],
        [2, 8, 2, 1, 777, 64, 40],
        [1, 6, 2, 5, 70, 128, 128],
        [1, 1, 1, 24, 0, 8, 8],
        [1, 2, 2, 60, 200, 16, 32],
    ];
    for [batch, heads, key_heads, rows, keys, depth, columns] in cases {
        let forms = [
            (false, false, None, None),
            (true, false, None, None),
            (false, true, None, None),
            (true, true, None, None),
            (true, false, Some(1), None),
            (true, true, Some(7), Some(0.5)),
            (false, false, Some(3), Some(20.0)),
            (true, false, Some(1000), Some(0.01)),
        ];
        for (causal, masked, window, soft_cap) in forms {
            let scale = 1.0 / (depth as f64).sqrt();
            let sizes =
                Attention { batch, heads, key_heads, rows, keys, depth, columns, scale, causal, window, soft_cap };
            let q = numbers(batch * heads * rows * depth, 1);
            let k = numbers(batch * key_heads * keys * depth, 2);
            let v = numbers(batch * key_heads * keys * columns, 3);
            let mut m = numbers(rows * keys, 4);
            m.iter_mut().step_by(5).for_each(|x| *x = f32::NEG_INFINITY);
            m[..keys.min(rows * keys)].fill(f32::NEG_INFINITY);
            let strides = [dense(heads, rows, depth), dense(key_heads, keys, depth), dense(key_heads, keys, columns)];
            let (mask_strides, out_strides) = ([0, 0, keys as isize, 1], dense(heads, rows, columns));
            let mut out = vec![f32::NAN; batch * heads * rows * columns];
            let operands = |at: [usize; 5]| Operands {
                queries: Memory::new(at[0], &strides[0]),
                keys: Memory::new(at[1], &strides[1]),
                values: Memory::new(at[2], &strides[2]),
                mask: masked.then(|| Memory::new(at[3], &mask_strides)),
                out: Memory::new(at[4], &out_strides),
            };
            let address = |x: &[f32]| x.as_ptr() as usize;
            let own = operands([address(&q), address(&k), address(&v), address(&m), out.as_mut_ptr() as usize]);
            let wide = [&q, &k, &v, &m].map(|x| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>());
            let mut expected = vec![f64::NAN; out.len()];
            let [q64, k64, v64, m64] = wide.each_ref().map(|x| x.as_ptr() as usize);
            let reference = operands([q64, k64, v64, m64, expected.as_mut_ptr() as usize]);
            // SAFETY: dense tensors of these sizes, and a mask that broadcasts.
            unsafe {
                attention(&sizes, DType::F32, &own);
                attention(&sizes, DType::F64, &reference);
            }
            for (place, (got, expected)) in out.iter().zip(&expected).enumerate() {
                let error = (f64::from(*got) - expected).abs();
                assert!(error < 2e-6, "{sizes:?} masked {masked}: element {place} is {got}, expected {expected}");
            }
        }
    }
}
