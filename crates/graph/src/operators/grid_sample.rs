//! Images, or volumes, read at points: grid sampling, and its gradients by the image and by the points.

mod cases;
mod native;
mod reference;
mod tiles;

pub use cases::{ENTRY, GRID_GRADIENT, INPUT_GRADIENT};

use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::image::MOST;
use crate::layout::{check, check_dense, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{Shape, View};
use openmps_tile::dtype;

/// How a point is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sampling {
    /// The weighted mean of the elements around the point: 4 of an image, 8 of a volume.
    Linear,
    /// The nearest element; halves go to the even one.
    Nearest,
}

/// What lies beyond the border.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Beyond {
    /// Zeros.
    Zeros,
    /// The border's elements.
    Border,
    /// The image again, reflected as often as it takes.
    Reflection,
}

/// What a point's coordinates mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coordinates {
    /// -1 and 1 are the centres of the outermost elements.
    Centres,
    /// -1 and 1 are the outer sides of the outermost elements.
    Sides,
    /// Elements' numbers: 0 is the centre of the first one, 1 that of the second.
    Elements,
}

/// Reads `x` (batch, channels, sizes) at the points of `grid` (batch, sizes of the output, coordinates), the innermost coordinate first.
/// Inputs: x, grid.
#[derive(Clone, Copy, Debug)]
pub struct GridSample {
    /// How a point is read.
    pub sampling: Sampling,
    /// What lies beyond the border.
    pub beyond: Beyond,
    /// What coordinates mean.
    pub coordinates: Coordinates,
}

/// The gradient of [`GridSample`] by x, whose shape is given. Inputs: grid, the gradient of the output.
///
/// On a GPU sums are atomic, so that elements that many points read may differ in the last places from one run to the next.
#[derive(Clone, Debug)]
pub struct GridSampleInputGradient {
    /// The operator.
    pub of: GridSample,
    /// The shape of x.
    pub shape: Shape,
}

/// The gradient of [`GridSample`] by the grid. Inputs: x, grid, the gradient of the output.
///
/// Where the sides differ, it is that towards larger coordinates.
#[derive(Clone, Copy, Debug)]
pub struct GridSampleGridGradient {
    /// The operator.
    pub of: GridSample,
}

impl GridSample {
    /// From one element to the next a coordinate moves by 1 over this.
    fn factor(&self, size: usize) -> f64 {
        match self.coordinates {
            Coordinates::Centres => (size as f64 - 1.0) * 0.5,
            Coordinates::Sides => size as f64 * 0.5,
            Coordinates::Elements => 1.0,
        }
    }

    /// How far the outermost mirrors are from the centres of the outermost elements.
    fn shift(&self) -> f64 {
        if self.coordinates == Coordinates::Sides { 0.5 } else { 0.0 }
    }

    /// The output's shape.
    fn shape(&self, operator: &'static str, x: &[usize], grid: &[usize]) -> Result<Shape> {
        let spatial = x.len().wrapping_sub(2);
        if !matches!(spatial, 2 | 3) || x.iter().any(|&size| size > MOST) {
            let (got, expected) = (x.iter().copied().collect(), format!("4 or 5 dimensions up to {MOST}"));
            return Err(Error::Shape { operator, what: "input", got, expected });
        }
        let fits = grid.len() == x.len() && grid[0] == x[0] && grid[spatial + 1] == spatial;
        if !fits || grid.iter().any(|&size| size > MOST) {
            let (got, expected) = (grid.iter().copied().collect(), format!("[{}, sizes .., {spatial}]", x[0]));
            return Err(Error::Shape { operator, what: "grid", got, expected });
        }
        Ok([&x[..2], &grid[1..=spatial]].concat().into_iter().collect())
    }
}

impl Operator for GridSample {
    fn name(&self) -> &'static str {
        "grid_sample"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        let (x, grid) = (&inputs[0], &inputs[1]);
        expect_dtype(self.name(), "input", x.dtype, dtype::FLOATS)?;
        expect_dtype(self.name(), "grid", grid.dtype, &[x.dtype])?;
        Ok(vec![Meta { dtype: x.dtype, shape: self.shape(self.name(), &x.shape, &grid.shape)? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        if native::takes(queue, inputs, outputs) {
            return native::run(queue, self.name(), self, [&inputs[0], &inputs[1], &outputs[0]]);
        }
        tiles::sample(queue, self, &inputs[0], &inputs[1], &outputs[0])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, grid, dy) = (b.inputs[0], b.inputs[1], b.dy()?);
        b.each([&|b| b.one(GridSampleInputGradient { of: *self, shape: b.shape(x) }, &[grid, dy]), &|b| {
            b.one(GridSampleGridGradient { of: *self }, &[x, grid, dy])
        }])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        vec![reference::sample(self, &inputs[0], &inputs[1])]
    }
}

impl Operator for GridSampleInputGradient {
    fn name(&self) -> &'static str {
        "grid_sample_input_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        let (grid, upstream) = (&inputs[0], &inputs[1]);
        expect_dtype(self.name(), "grid", grid.dtype, dtype::FLOATS)?;
        expect_dtype(self.name(), "upstream gradient", upstream.dtype, &[grid.dtype])?;
        let expected = self.of.shape(self.name(), &self.shape, &grid.shape)?;
        expect_shape(self.name(), "upstream gradient", &upstream.shape, &expected)?;
        Ok(vec![Meta { dtype: grid.dtype, shape: self.shape.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        if native::takes(queue, inputs, outputs) {
            return native::input_gradient(queue, self.name(), &self.of, [&inputs[0], &inputs[1], &outputs[0]]);
        }
        tiles::input_gradient(queue, &self.of, &inputs[0], &inputs[1], &outputs[0])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        vec![reference::input_gradient(&self.of, &self.shape, &inputs[0], &inputs[1])]
    }
}

impl Operator for GridSampleGridGradient {
    fn name(&self) -> &'static str {
        "grid_sample_grid_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 3)?;
        let (x, grid, upstream) = (&inputs[0], &inputs[1], &inputs[2]);
        expect_dtype(self.name(), "input", x.dtype, dtype::FLOATS)?;
        expect_dtype(self.name(), "grid", grid.dtype, &[x.dtype])?;
        expect_dtype(self.name(), "upstream gradient", upstream.dtype, &[x.dtype])?;
        let expected = self.of.shape(self.name(), &x.shape, &grid.shape)?;
        expect_shape(self.name(), "upstream gradient", &upstream.shape, &expected)?;
        Ok(vec![grid.clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        if native::takes(queue, inputs, outputs) && self.of.sampling == Sampling::Linear {
            let views = [&inputs[0], &inputs[1], &inputs[2], &outputs[0]];
            return native::grid_gradient(queue, self.name(), &self.of, views);
        }
        tiles::grid_gradient(queue, &self.of, &inputs[0], &inputs[1], &inputs[2], &outputs[0])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        vec![reference::grid_gradient(&self.of, &inputs[0], &inputs[1], &inputs[2])]
    }
}
