//! What grid sampling and its gradients are tested with.

use super::{Beyond, Coordinates, GridSample, GridSampleGridGradient, GridSampleInputGradient, Sampling};
use crate::entry::{Case, Entry, Input, Values};
use openmps_tile::dtype;

/// Points within, on the borders, just beyond and far beyond, which half types hold as they are; none is half-way between two elements'
/// slopes of a gradient that the test could see either way.
const POINTS: [f64; 17] = [
    -1.0, 1.0, 0.3125, -0.625, -1.25, 1.375, 0.0, 0.8125, -0.1875, 2.75, -3.5, 0.5625, 6.125, -0.9375, -7.25, 0.0625,
    1.0625,
];

/// The shapes of x and grid.
const SHAPES: [(&[usize], &[usize]); 7] = [
    (&[2, 3, 5, 7], &[2, 4, 6, 2]),
    (&[1, 2, 2, 3, 4], &[1, 3, 2, 5, 3]),
    (&[1, 9, 6, 5], &[1, 1, 300, 2]),
    (&[3, 1, 1, 1], &[3, 2, 2, 2]),
    (&[1, 1, 0, 4], &[1, 2, 3, 2]),
    (&[2, 0, 3, 3], &[2, 2, 2, 2]),
    (&[1, 2, 3, 3], &[1, 0, 2, 2]),
];

fn cases(make: impl Fn(GridSample, &[usize], &[usize]) -> Case) -> Vec<Case> {
    let every = [Sampling::Linear, Sampling::Nearest].into_iter().flat_map(|sampling| {
        let beyond = [Beyond::Zeros, Beyond::Border, Beyond::Reflection].into_iter();
        beyond.flat_map(move |beyond| {
            let coordinates = [Coordinates::Centres, Coordinates::Sides, Coordinates::Elements];
            coordinates.map(|coordinates| GridSample { sampling, beyond, coordinates })
        })
    });
    let (image, volume) = (SHAPES[0], SHAPES[1]);
    let mut cases: Vec<Case> = every.clone().map(|of| make(of, image.0, image.1)).collect();
    // Of a volume each rule once; of odd shapes the one with most arithmetic.
    cases.extend(every.clone().step_by(4).map(|of| make(of, volume.0, volume.1)));
    let reflected = every.filter(|of| of.sampling == Sampling::Linear && of.beyond == Beyond::Reflection);
    cases.extend(
        reflected
            .flat_map(|of| SHAPES[2..].iter().map(move |(x, grid)| (of, x, grid)))
            .map(|(of, x, grid)| make(of, x, grid)),
    );
    cases
}

fn points(dims: &[usize]) -> Input {
    Input::of(dims, Values::Given(POINTS.to_vec()))
}

fn output(x: &[usize], grid: &[usize]) -> Input {
    Input::new(&[&x[..2], &grid[1..grid.len() - 1]].concat())
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "grid_sample",
    summary: "Images or volumes read at points, linearly or at the nearest element.",
    dtypes: dtype::FLOATS,
    cases: || cases(|of, x, grid| Case::new(of, vec![Input::new(x), points(grid)])),
    tolerance: 16.0,
};

/// For the list of operators.
pub static INPUT_GRADIENT: Entry = Entry {
    name: "grid_sample_input_gradient",
    summary: "The gradient of grid_sample by the images.",
    dtypes: dtype::FLOATS,
    cases: || {
        cases(|of, x, grid| {
            let shape = x.iter().copied().collect();
            Case::new(GridSampleInputGradient { of, shape }, vec![points(grid), output(x, grid)])
        })
    },
    tolerance: 32.0,
};

/// For the list of operators.
pub static GRID_GRADIENT: Entry = Entry {
    name: "grid_sample_grid_gradient",
    summary: "The gradient of grid_sample by the points.",
    dtypes: dtype::FLOATS,
    cases: || {
        cases(|of, x, grid| {
            Case::new(GridSampleGridGradient { of }, vec![Input::new(x), points(grid), output(x, grid)])
        })
    },
    tolerance: 32.0,
};
