//! Resizing of images: nearest element or bilinear, with Paddle's rules for where a pixel's centre lies.

mod tiles;

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::image::{ImageLayout, expect_image, write};
use crate::layout::{Dense, call, check, computes, expect_dtype, expect_inputs, takes_native};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::vendor::{VendorGraph, try_vendor};
use crate::view::View;
use half::{bf16, f16};
use openmps_host::native::interpolation::{Tap, bilinear, gradient, nearest};
use openmps_host::native::memory::slice;
use openmps_runtime::vendor::graph::Operation;
use openmps_runtime::vendor::graph::operation::Resize;
use openmps_runtime::vendor::{Family, VendorCall};
use openmps_tile::{DType, dtype};

/// How a pixel is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpolationMode {
    /// The nearest pixel of the input.
    Nearest,
    /// The weighted mean of the four pixels around the point.
    Bilinear,
}

/// Resizes the last two dimensions (or the middle two of NHWC) of an image to `size`.
#[derive(Clone, Copy, Debug)]
pub struct Interpolation {
    /// How a pixel is made.
    pub mode: InterpolationMode,
    /// Height and width of the output.
    pub size: [usize; 2],
    /// The scale that the caller gave, vertically and horizontally; where it is above 0, pixels are `1 / scale` apart instead of
    /// `input / output`.
    pub scale: [f32; 2],
    /// The corners' centres of input and output coincide.
    pub align_corners: bool,
    /// Bilinear without aligned corners: 0 puts a pixel's centre at its middle, 1 at its corner.
    pub align_mode: i64,
    /// The images' layout.
    pub layout: ImageLayout,
}

/// Who asks for the place of a pixel's middle.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Forward,
    Gradient,
}

impl Pass {
    /// As Paddle's CPU computes it: forward in float64 for rows, else in float32. The weights are what is left of the place, so that a rounding
    /// of it is several of theirs.
    fn rounds_once(self, axis: usize) -> bool {
        self == Pass::Forward && axis == 0
    }
}

impl Interpolation {
    /// The distance in the input between neighbours of the output.
    fn ratio(&self, axis: usize, input: usize) -> f32 {
        let output = self.size[axis];
        if output <= 1 {
            0.0
        } else if self.align_corners {
            (input as f32 - 1.0) / (output as f32 - 1.0)
        } else if self.scale[axis] > 0.0 {
            1.0 / self.scale[axis]
        } else {
            input as f32 / output as f32
        }
    }

    fn places(&self, axis: usize, input: usize) -> Vec<usize> {
        let ratio = self.ratio(axis, input);
        let shift = if self.align_corners { 0.5 } else { 0.0 };
        (0..self.size[axis]).map(|i| ((ratio * i as f32 + shift) as usize).min(input.saturating_sub(1))).collect()
    }

    fn taps(&self, axis: usize, input: usize, pass: Pass) -> Vec<Tap> {
        let ratio = self.ratio(axis, input);
        let middle = self.align_mode == 0 && !self.align_corners;
        let last = input.saturating_sub(1);
        let tap = |i: usize| {
            let point = match (middle, pass.rounds_once(axis)) {
                (false, _) => ratio * i as f32,
                (true, true) => ratio.mul_add(i as f32 + 0.5, -0.5),
                (true, false) => ratio * (i as f32 + 0.5) - 0.5,
            };
            let point = point.max(0.0);
            let low = (point as usize).min(last);
            Tap { low, high: (low + 1).min(last), weight: (point - low as f32).min(1.0) }
        };
        (0..self.size[axis]).map(tap).collect()
    }
}

impl Interpolation {
    /// Where the distance between pixels is the lengths' ratio; a scale of the caller's, one pixel and the nearest are rounded otherwise.
    fn vendor_call(&self, x: &View, out: &View) -> Option<VendorCall> {
        let given = self.scale.iter().any(|&scale| scale > 0.0) && !self.align_corners;
        if self.mode == InterpolationMode::Nearest || given || self.size.contains(&1) {
            return None;
        }
        let (mut graph, nodes) = VendorGraph::new(&[x])?;
        let center = self.align_mode == 0 && !self.align_corners;
        let resize = Resize { size: self.size, bilinear: true, center, align_corners: self.align_corners };
        let y = graph.add(Operation::Resize(resize), &nodes)?;
        graph.finish(Family::Resize, out.len(), y, out)
    }
}

impl Operator for Interpolation {
    fn name(&self) -> &'static str {
        match self.mode {
            InterpolationMode::Nearest => "nearest_interpolation",
            InterpolationMode::Bilinear => "bilinear_interpolation",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let Meta { dtype, shape } = &inputs[0];
        expect_image(self.name(), "input", shape)?;
        if self.mode == InterpolationMode::Bilinear {
            expect_dtype(self.name(), "input", *dtype, dtype::FLOATS)?;
        }
        let [batch, channels, height, width] = self.layout.sizes(shape);
        if (height == 0 || width == 0) && !self.size.contains(&0) {
            let expected = "pixels to read from".to_owned();
            return Err(Error::Shape { operator: self.name(), what: "input", got: shape.clone(), expected });
        }
        let [out_height, out_width] = self.size;
        let shape = self.layout.shape([batch, channels, out_height, out_width]).into_iter().collect();
        Ok(vec![Meta { dtype: *dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let (x, out) = (self.layout.nchw(&inputs[0]), self.layout.nchw(&outputs[0]));
        if try_vendor(queue, self.name(), || self.vendor_call(&x, &out))? {
            return Ok(());
        }
        // The nearest is copied as an integer of its size, which every device has.
        if !takes_native(queue, self.mode == InterpolationMode::Nearest || computes(queue, out.dtype)) {
            return tiles::run(queue, self, &x, &out);
        }
        let (planes, size) = (x.shape[0] * x.shape[1], [x.shape[2], x.shape[3]]);
        call(queue, self.name(), || {
            if out.is_empty() {
                return Ok(());
            }
            let (dense, len) = (Dense::of(&x), x.len());
            macro_rules! copied {
                ($type:ty) => {{
                    let (rows, columns) = (self.places(0, size[0]), self.places(1, size[1]));
                    // SAFETY: a dense tensor whose elements have this size.
                    let from = unsafe { slice::<$type>(dense.address, len) };
                    write::<$type>(&out, |to| nearest(planes, size, &rows, &columns, from, to))
                }};
            }
            macro_rules! mixed {
                ($type:ty) => {{
                    let (rows, columns) = (self.taps(0, size[0], Pass::Forward), self.taps(1, size[1], Pass::Forward));
                    // SAFETY: a dense tensor of this type.
                    let from = unsafe { slice::<$type>(dense.address, len) };
                    write::<$type>(&out, |to| bilinear(planes, size, &rows, &columns, from, to))
                }};
            }
            match (self.mode, out.dtype, out.dtype.size()) {
                (InterpolationMode::Nearest, _, 1) => copied!(u8),
                (InterpolationMode::Nearest, _, 2) => copied!(u16),
                (InterpolationMode::Nearest, _, 4) => copied!(u32),
                (InterpolationMode::Nearest, ..) => copied!(u64),
                (_, DType::F16, _) => mixed!(f16),
                (_, DType::BF16, _) => mixed!(bf16),
                (_, DType::F64, _) => mixed!(f64),
                _ => mixed!(f32),
            }
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let [_, _, height, width] = self.layout.sizes(&b.shape(b.inputs[0]));
        let dy = b.dy()?;
        Ok(vec![Some(b.one(InterpolationGradient { of: *self, input: [height, width] }, &[dy])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let [batch, channels, height, width] = self.layout.sizes(&x.shape);
        let at = |n, c, y, w| x.at(&self.layout.index([n, c, y, w]));
        let shape = self.layout.shape([batch, channels, self.size[0], self.size[1]]);
        vec![Array::from_fn(&shape, x.dtype, |index| {
            let [n, c, y, w] = self.layout.sizes(index);
            if self.mode == InterpolationMode::Nearest {
                return at(n, c, self.places(0, height)[y], self.places(1, width)[w]);
            }
            let [row, column] =
                [(0, height, y), (1, width, w)].map(|(axis, size, i)| self.taps(axis, size, Pass::Forward)[i]);
            let (b, d) = (f64::from(row.weight), f64::from(column.weight));
            let line = |y| at(n, c, y, column.low) * (1.0 - d) + at(n, c, y, column.high) * d;
            line(row.low) * (1.0 - b) + line(row.high) * b
        })]
    }
}

/// The gradient of [`Interpolation`] by its input, from the gradient of its output; `input` is the input's height and width.
#[derive(Clone, Copy, Debug)]
pub struct InterpolationGradient {
    /// The operator.
    pub of: Interpolation,
    /// Height and width before it.
    pub input: [usize; 2],
}

impl InterpolationGradient {
    fn taps(&self, axis: usize) -> Vec<Tap> {
        let input = self.input[axis];
        match self.of.mode {
            InterpolationMode::Bilinear => self.of.taps(axis, input, Pass::Gradient),
            InterpolationMode::Nearest => {
                self.of.places(axis, input).into_iter().map(|low| Tap { low, high: low, weight: 0.0 }).collect()
            }
        }
    }
}

impl Operator for InterpolationGradient {
    fn name(&self) -> &'static str {
        match self.of.mode {
            InterpolationMode::Nearest => "nearest_interpolation_gradient",
            InterpolationMode::Bilinear => "bilinear_interpolation_gradient",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let Meta { dtype, shape } = &inputs[0];
        expect_image(self.name(), "upstream gradient", shape)?;
        expect_dtype(self.name(), "upstream gradient", *dtype, dtype::FLOATS)?;
        let [batch, channels, height, width] = self.of.layout.sizes(shape);
        if [height, width] != self.of.size {
            let expected = format!("height and width {:?}", self.of.size);
            return Err(Error::Shape {
                operator: self.name(),
                what: "upstream gradient",
                got: shape.clone(),
                expected,
            });
        }
        let shape = self.of.layout.shape([batch, channels, self.input[0], self.input[1]]).into_iter().collect();
        Ok(vec![Meta { dtype: *dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let (upstream, out) = (self.of.layout.nchw(&inputs[0]), self.of.layout.nchw(&outputs[0]));
        if !takes_native(queue, computes(queue, out.dtype)) {
            return tiles::gradient(queue, self.name(), &self.of, &upstream, &out);
        }
        let planes = upstream.shape[0] * upstream.shape[1];
        call(queue, self.name(), || {
            if out.is_empty() {
                return Ok(());
            }
            let (dense, len) = (Dense::of(&upstream), upstream.len());
            let (rows, columns) = (self.taps(0), self.taps(1));
            macro_rules! typed {
                ($type:ty) => {{
                    // SAFETY: a dense tensor of this type.
                    let from = unsafe { slice::<$type>(dense.address, len) };
                    write::<$type>(&out, |to| gradient(planes, self.input, &rows, &columns, from, to))
                }};
            }
            match out.dtype {
                DType::F16 => typed!(f16),
                DType::BF16 => typed!(bf16),
                DType::F64 => typed!(f64),
                _ => typed!(f32),
            }
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let dy = b.dy()?;
        Ok(vec![Some(b.one(self.of, &[dy])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let upstream = &inputs[0];
        let [batch, channels, ..] = self.of.layout.sizes(&upstream.shape);
        let share = |taps: &[Tap], out: usize, own: usize| {
            let tap = &taps[out];
            let weight = f64::from(tap.weight);
            (if tap.low == own { 1.0 - weight } else { 0.0 }) + if tap.high == own { weight } else { 0.0 }
        };
        let (rows, columns) = (self.taps(0), self.taps(1));
        let shape = self.of.layout.shape([batch, channels, self.input[0], self.input[1]]);
        vec![Array::from_fn(&shape, upstream.dtype, |index| {
            let [n, c, y, x] = self.of.layout.sizes(index);
            let pixels = (0..rows.len()).flat_map(|i| (0..columns.len()).map(move |j| (i, j)));
            pixels
                .map(|(i, j)| {
                    let weight = share(&rows, i, y) * share(&columns, j, x);
                    if weight == 0.0 { 0.0 } else { weight * upstream.at(&self.of.layout.index([n, c, i, j])) }
                })
                .sum()
        })]
    }
}

fn gradient_cases(mode: InterpolationMode) -> Vec<Case> {
    let mut cases = Vec::new();
    for (dims, size, scale) in [
        ([2, 3, 5, 7], [10, 14], [0.0; 2]),
        ([1, 2, 9, 11], [4, 5], [0.0; 2]),
        ([1, 1, 6, 5], [1, 13], [0.0; 2]),
        ([0, 2, 3, 3], [6, 6], [0.0; 2]),
        ([1, 1, 1, 1], [5, 3], [0.0; 2]),
        ([1, 2, 5, 7], [10, 14], [0.5, 3.0]),
    ] {
        for (align_corners, align_mode) in [(false, 0), (false, 1), (true, 0)] {
            for layout in [ImageLayout::Nchw, ImageLayout::Nhwc] {
                let of = Interpolation { mode, size, scale, align_corners, align_mode, layout };
                let upstream = Input::new(&layout.shape([dims[0], dims[1], size[0], size[1]]));
                cases.push(Case::new(InterpolationGradient { of, input: [dims[2], dims[3]] }, vec![upstream]));
            }
        }
    }
    cases
}

fn cases(mode: InterpolationMode) -> Vec<Case> {
    let mut cases = Vec::new();
    for (dims, size, scale) in [
        ([2, 3, 5, 7], [10, 14], [2.0, 2.0]),
        ([1, 2, 5, 37], [10, 74], [0.0, 0.0]),
        ([1, 3, 4, 5], [32, 40], [8.0, 8.0]),
        ([1, 2, 9, 11], [4, 5], [0.0, 0.0]),
        ([2, 1, 7, 3], [7, 3], [0.0, 0.0]),
        ([1, 1, 6, 5], [1, 13], [0.0, 2.6]),
        ([0, 2, 3, 3], [6, 6], [2.0, 2.0]),
        ([1, 2, 1, 1], [5, 3], [0.0, 0.0]),
        ([1, 2, 5, 7], [10, 14], [0.5, 3.0]),
    ] {
        for (align_corners, align_mode) in [(false, 0), (false, 1), (true, 0)] {
            for layout in [ImageLayout::Nchw, ImageLayout::Nhwc] {
                let operator = Interpolation { mode, size, scale, align_corners, align_mode, layout };
                cases.push(Case::new(operator, vec![Input::new(&layout.shape(dims))]));
            }
        }
    }
    cases
}

/// For the list of operators.
pub static NEAREST: Entry = Entry {
    name: "nearest_interpolation",
    summary: "Images resized to the nearest pixel.",
    dtypes: dtype::ALL,
    cases: || cases(InterpolationMode::Nearest),
    tolerance: 0.0,
};

/// For the list of operators.
pub static BILINEAR: Entry = Entry {
    name: "bilinear_interpolation",
    summary: "Images resized bilinearly.",
    dtypes: dtype::FLOATS,
    cases: || cases(InterpolationMode::Bilinear),
    tolerance: 4.0,
};

/// For the list of operators.
pub static NEAREST_GRADIENT: Entry = Entry {
    name: "nearest_interpolation_gradient",
    summary: "The gradient of images resized to the nearest pixel.",
    dtypes: dtype::FLOATS,
    cases: || gradient_cases(InterpolationMode::Nearest),
    tolerance: 8.0,
};

/// For the list of operators.
pub static BILINEAR_GRADIENT: Entry = Entry {
    name: "bilinear_interpolation_gradient",
    summary: "The gradient of images resized bilinearly.",
    dtypes: dtype::FLOATS,
    cases: || gradient_cases(InterpolationMode::Bilinear),
    tolerance: 16.0,
};
