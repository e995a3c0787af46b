//! Every format at every level of instructions against float64, and how much rounding x to 8 bits costs.

use super::*;

fn random(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state >> 8
}

/// Blocks whose scales are ordinary numbers.
fn blocks(format: BlockFormat, count: usize, state: &mut u32) -> Vec<u8> {
    let scales: &[usize] = match format {
        BlockFormat::Q4_0 | BlockFormat::Q8_0 => &[1],
        BlockFormat::Q4_1 | BlockFormat::Q4K | BlockFormat::Q5K => &[1, 3],
        BlockFormat::Q6K => &[209],
    };
    let mut bytes: Vec<u8> = (0..count * format.bytes()).map(|_| random(state) as u8).collect();
    for block in bytes.chunks_exact_mut(format.bytes()) {
        scales.iter().for_each(|&at| block[at] = 0x20 + (block[at] % 12) + (block[at] & 0x80));
    }
    bytes
}

/// The weight in float64, by way of [`widen`], which the graph's tests compare with the formats' definitions.
fn wide(weight: &Weight) -> Vec<f64> {
    let mut to = vec![f32::NAN; weight.rows * weight.columns];
    // SAFETY: the weight of the test.
    unsafe { widen(weight, &mut to) };
    to.into_iter().map(f64::from).collect()
}

#[test]
fn both_products_of_every_format() {
    let mut state = 1;
    for format in BlockFormat::ALL {
        for (rows, outputs, blocks_of_row) in [(1, 1, 1), (1, 7, 9), (3, 10, 3), (17, 33, 2)] {
            let columns = blocks_of_row * format.elements();
            let bytes = blocks(format, outputs * blocks_of_row, &mut state);
            let weight = Weight { format, address: bytes.as_ptr() as usize, rows: outputs, columns };
            let wide = wide(&weight);
            let x: Vec<f32> = (0..rows * columns).map(|_| random(&mut state) as f32 / (1 << 23) as f32 - 1.0).collect();
            let mut y = vec![f32::NAN; rows * outputs];
            // SAFETY: the weight of the test.
            unsafe { linear(&weight, rows, &x, &mut y) };
            for (o, &got) in y.iter().enumerate() {
                let (x, row) = (&x[o / outputs * columns..][..columns], &wide[o % outputs * columns..][..columns]);
                let want: f64 = x.iter().zip(row).map(|(&x, w)| f64::from(x) * w).sum();
                // Each x errs by half of 1/127 of the largest of its 32: independent errors, of which this is six deviations.
                let error = 6.0 / 254.0 / 3f64.sqrt() * row.iter().map(|w| w * w).sum::<f64>().sqrt();
                assert!((f64::from(got) - want).abs() <= error, "{format:?} {o}: {got} for {want} ± {error}");
            }
            let gradient: Vec<f32> = y.iter().map(|y| y.signum() * 0.5).collect();
            let mut back = vec![f32::NAN; rows * columns];
            // SAFETY: the weight of the test.
            unsafe { transposed(&weight, rows, &gradient, &mut back).unwrap() };
            for (o, &got) in back.iter().enumerate() {
                let terms = (0..outputs)
                    .map(|k| f64::from(gradient[o / columns * outputs + k]) * wide[k * columns + o % columns]);
                let (want, size) = terms.fold((0.0, 1e-6), |(sum, size), term| (sum + term, size + term.abs()));
                assert!((f64::from(got) - want).abs() <= 1e-5 * size, "{format:?} {o}: {got} for {want}");
            }
        }
    }
}

/// Whole numbers up to 127 lose nothing, so that all levels agree to the rounding of float32.
#[test]
fn instructions_agree() {
    let mut state = 7;
    for format in BlockFormat::ALL {
        let columns = 256 * 3;
        let bytes = blocks(format, SIDE_BY_SIDE * columns / format.elements(), &mut state);
        let weight = Weight { format, address: bytes.as_ptr() as usize, rows: SIDE_BY_SIDE, columns };
        let wide = wide(&weight);
        let x: Vec<f32> = (0..columns)
            .map(|i| if i % 32 == 0 { -127.0 } else { (random(&mut state) % 255) as f32 - 127.0 })
            .collect();
        let groups = columns / planes::GROUP;
        let mut memory = vec![0.0; Activations::singles(1, groups)];
        let activations = Activations::new(format, &x, 1, groups, &mut memory);
        let mut rows = vec![0.0; SIDE_BY_SIDE * Planes::singles(groups)];
        let mut planes = Planes::several(groups, &mut rows);
        for (i, planes) in planes.iter_mut().enumerate() {
            // SAFETY: a row of the weight.
            planes.unpack(format, unsafe { weight.row(i) });
        }
        // SAFETY: rows of the weight.
        let lines = std::array::from_fn(|i| unsafe { weight.row(i) });
        let x_row = activations.row(0);
        let found = Instructions::all().into_iter().flat_map(|instructions| {
            let unpacked = dots::dots(instructions, format, &planes, &x_row);
            [unpacked, in_place::dots(instructions, format, lines, &x_row)]
        });
        for found in found {
            for (j, &got) in found.iter().enumerate() {
                let terms = x.iter().zip(&wide[j * columns..]).map(|(&x, w)| f64::from(x) * w);
                let (want, size) =
                    terms.fold((0.0, 0.0), |(sum, size): (f64, f64), term| (sum + term, size + term.abs()));
                assert!((f64::from(got) - want).abs() <= 1e-6 * size, "{format:?} {j}: {got} for {want}");
            }
        }
    }
}

#[test]
fn what_is_not_a_number_stays_so() {
    let bytes = blocks(BlockFormat::Q4_0, 2, &mut 3);
    let weight = Weight { format: BlockFormat::Q4_0, address: bytes.as_ptr() as usize, rows: 1, columns: 64 };
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = vec![1.0; 64];
        x[40] = wrong;
        let mut y = [0.0];
        // SAFETY: the weight of the test.
        unsafe { linear(&weight, 1, &x, &mut y) };
        assert!(y[0].is_nan(), "{wrong}: {}", y[0]);
    }
}
