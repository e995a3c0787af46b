//! Batch norm, its statistics and gradients against plain loops in float64.

use super::*;

#[test]
fn channels_of_equal_elements_are_the_bias() {
    for (outer, channels, inner) in [(3, 2, 7), (5, 3, 131), (300, 37, 1), (77, 16, 1)] {
        for value in [0.3f32, -7.1, 1234.567] {
            let (x, bias) = (vec![value; outer * channels * inner], vec![0.25f32; channels]);
            let mut y = vec![f32::NAN; x.len()];
            let mut statistics = [vec![f32::NAN; channels], vec![f32::NAN; channels]];
            let sizes = Channels { outer, channels, inner };
            let operands = Forward {
                x: x.as_ptr() as usize,
                scale: None,
                bias: Some(bias.as_ptr() as usize),
                y: y.as_mut_ptr() as usize,
                statistics: statistics.each_mut().map(|all| all.as_mut_ptr() as usize),
                epsilon: 1e-5,
            };
            // SAFETY: the vectors have the sizes named.
            unsafe { forward(&sizes, &operands) };
            assert!(y.iter().all(|&y| y == 0.25), "{value} in {sizes:?}: {y:?}");
            assert!(statistics[0].iter().all(|&mean| mean == value));
        }
    }
}

/// A few shapes of both kinds, against float64, far from zero.
#[test]
fn result_statistics_and_gradients() {
    for (outer, channels, inner) in
        [(1, 1, 2), (3, 5, 7), (2, 3, 64), (4, 2, 131), (2, 1, 1), (9, 5, 1), (300, 37, 1), (7, 16, 1), (8, 3, 4)]
    {
        let sizes = Channels { outer, channels, inner };
        let wave = |step: f32, offset: f32| move |i: usize| (i as f32 * step).sin() + offset;
        let x: Vec<f32> = (0..outer * channels * inner).map(wave(0.7, 50.0)).collect();
        let g: Vec<f32> = (0..x.len()).map(wave(1.7, 0.1)).collect();
        let [scale, bias] = [1.3, 0.3].map(|step| (0..channels).map(wave(step, 0.5)).collect::<Vec<f32>>());
        let nothing = || vec![f32::NAN; channels];
        let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
        let [mut mean, mut variance, mut dscale, mut dbias] = [nothing(), nothing(), nothing(), nothing()];
        let address = |all: &mut Vec<f32>| all.as_mut_ptr() as usize;
        let forward_operands = Forward {
            x: x.as_ptr() as usize,
            scale: Some(scale.as_ptr() as usize),
            bias: Some(bias.as_ptr() as usize),
            y: address(&mut y),
            statistics: [address(&mut mean), address(&mut variance)],
            epsilon: 1e-3,
        };
        // SAFETY: the vectors have the sizes named.
        unsafe { forward(&sizes, &forward_operands) };
        let mut again = vec![f32::NAN; x.len()];
        // SAFETY: as above.
        unsafe { forward_given(&sizes, &Given(Forward { y: address(&mut again), ..forward_operands })) };
        assert_eq!(again, y, "of the statistics that were found, {sizes:?}");
        let mut inverse: Vec<f32> = variance.iter().map(|v| 1.0 / (v + 1e-3).sqrt()).collect();
        let operands = Gradient {
            x: x.as_ptr() as usize,
            upstream: g.as_ptr() as usize,
            statistics: [address(&mut mean), address(&mut inverse)],
            scale: Some(scale.as_ptr() as usize),
            dx: address(&mut dx),
            weights: [address(&mut dscale), address(&mut dbias)],
        };
        // SAFETY: as above.
        unsafe { gradient(&sizes, &operands) };
        for channel in 0..channels {
            let all = || (0..x.len()).filter(move |at| at / inner % channels == channel);
            let over = 1.0 / sizes.count() as f64;
            let average = |of: &dyn Fn(usize) -> f64| all().map(of).sum::<f64>() * over;
            let m = average(&|at| x[at].into());
            let v = average(&|at| (f64::from(x[at]) - m).powi(2));
            let deviation = (v + 1e-3).sqrt();
            let n = |at: usize| (f64::from(x[at]) - m) / deviation;
            let (up, along) = (average(&|at| g[at].into()), average(&|at| f64::from(g[at]) * n(at)));
            let factor = f64::from(scale[channel]);
            let near = |got: f32, want: f64, what: &str| {
                let error = (f64::from(got) - want).abs() / (1.0 + want.abs());
                assert!(error < 3e-4, "{what} of {sizes:?}, channel {channel}: {got}, expected {want}");
            };
            near(mean[channel], m, "mean");
            near(variance[channel], v, "variance");
            near(dscale[channel] * over as f32, along, "scale's gradient");
            near(dbias[channel] * over as f32, up, "bias's gradient");
            for at in all() {
                near(y[at], n(at) * factor + f64::from(bias[channel]), "result");
                let want = factor / deviation * (f64::from(g[at]) - up - n(at) * along);
                near(dx[at], want, "gradient");
            }
        }
    }
}
