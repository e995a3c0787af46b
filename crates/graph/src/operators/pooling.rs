//! Pooling of images: the largest element or the average of windows.

mod gradient;
mod tiles;
mod windows;

pub use gradient::{GRADIENT, PoolingGradient};

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::image::{ImageLayout, PaddingAlgorithm, expect_image, expect_positive, paddings, write};
use crate::layout::{Dense, call, check, computes, expect_dtype, expect_inputs, takes_native};
use crate::operator::{Meta, Operator};
use crate::operators::reduce::{Reduce, Reduction};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::vendor::{VendorGraph, try_vendor};
use crate::view::{Shape, View};
use half::{bf16, f16};
use openmps_host::native::memory::slice;
use openmps_host::native::pooling as native;
use openmps_host::native::pooling::{Pooled, PoolingKind, PoolingWindow};
use openmps_runtime::vendor::graph::{Operation, Window};
use openmps_runtime::vendor::{Family, VendorCall};
use openmps_tile::{DType, dtype};

/// What a window is reduced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolingType {
    /// The largest element; NaN if there is one.
    Max,
    /// The average.
    Average,
}

/// The smallest finite number, which an empty window gives.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65504.0,
        DType::BF16 => -f64::from(half::bf16::MAX.to_f32()),
        DType::F64 => f64::MIN,
        _ => f64::from(f32::MIN),
    }
}

/// Input: image in `layout`. Outputs: the image of windows' results, and with `indices` the place of each largest element in its
/// plane (row * width + column) as int32.
#[derive(Clone, Debug)]
pub struct Pooling {
    /// What a window is reduced to.
    pub kind: PoolingType,
    /// Height and width of windows; of the output when `adaptive`.
    pub kernel_size: [usize; 2],
    /// Steps between windows.
    pub strides: [usize; 2],
    /// (vertical, horizontal) or (top, bottom, left, right).
    pub paddings: Vec<usize>,
    /// Whether `paddings` is used or computed.
    pub padding_algorithm: PaddingAlgorithm,
    /// A last window that is only partly inside counts.
    pub ceil_mode: bool,
    /// Averages divide by the elements inside the input only.
    pub exclusive: bool,
    /// One window over the whole image.
    pub global: bool,
    /// Windows cut the image evenly to the output size `kernel_size`.
    pub adaptive: bool,
    /// There is a second output with places; for [`PoolingType::Max`] only.
    pub indices: bool,
    /// The images' layout.
    pub layout: ImageLayout,
}

impl Pooling {
    /// Windows of `kernel_size`, one next to the other, without padding.
    pub fn new(kind: PoolingType, kernel_size: [usize; 2]) -> Pooling {
        Pooling {
            kind,
            kernel_size,
            strides: kernel_size,
            paddings: vec![0, 0],
            padding_algorithm: PaddingAlgorithm::Explicit,
            ceil_mode: false,
            exclusive: true,
            global: false,
            adaptive: false,
            indices: false,
            layout: ImageLayout::Nchw,
        }
    }

    fn window_kind(&self) -> PoolingKind {
        match self.kind {
            PoolingType::Max => PoolingKind::Max,
            PoolingType::Average if self.exclusive || self.adaptive => PoolingKind::Average,
            PoolingType::Average => PoolingKind::AverageWithPadding,
        }
    }

    /// The windows' rows and columns for an input of this shape.
    fn windows(&self, operator: &'static str, x: &Shape) -> Result<[Vec<PoolingWindow>; 2]> {
        expect_image(operator, "input", x)?;
        expect_positive(operator, "kernel_size", &self.kernel_size)?;
        expect_positive(operator, "strides", &self.strides)?;
        let [_, _, height, width] = self.layout.sizes(x);
        let input = [height, width];
        if self.global {
            return Ok(input.map(|size| native::adaptive_windows(size, usize::from(size > 0))));
        }
        if self.adaptive {
            return Ok([0, 1].map(|axis| native::adaptive_windows(input[axis], self.kernel_size[axis])));
        }
        let sizes = [input, self.kernel_size, self.strides];
        let padding = paddings(operator, self.padding_algorithm, &self.paddings, sizes)?;
        let mut windows = [Vec::new(), Vec::new()];
        for axis in 0..2 {
            let (kernel, stride) = (self.kernel_size[axis], self.strides[axis]);
            let both = [padding[2 * axis], padding[2 * axis + 1]];
            // A window that is larger than the padded input by less than a step pools what there is, as in Paddle.
            let room = (input[axis] + both[0] + both[1]) as i64 - kernel as i64;
            let steps = if self.ceil_mode { room + stride as i64 - 1 } else { room } / stride as i64 + 1;
            let Some(output) = usize::try_from(steps).ok().filter(|&output| output > 0) else {
                let expected = format!("with room for the kernel {:?} after padding {padding:?}", self.kernel_size);
                return Err(Error::Shape { operator, what: "input", got: x.clone(), expected });
            };
            windows[axis] = native::strided_windows(input[axis], output, kernel, stride, both);
        }
        Ok(windows)
    }

    fn out_shape(&self, x: &Shape, [rows, columns]: &[Vec<PoolingWindow>; 2]) -> Shape {
        let [batch, channels, ..] = self.layout.sizes(x);
        self.layout.shape([batch, channels, rows.len(), columns.len()]).into_iter().collect()
    }

    fn vendor_call(&self, x: &View, out: &View) -> Option<VendorCall> {
        // Windows of different sizes, and places of the largest, are not to be had.
        if self.adaptive || self.global || self.indices {
            return None;
        }
        let sizes = [[x.shape[2], x.shape[3]], self.kernel_size, self.strides];
        let [top, bottom, left, right] = paddings(self.name(), self.padding_algorithm, &self.paddings, sizes).ok()?;
        let (before, after) = ([top, left], [bottom, right]);
        let fits = |axis: usize| sizes[0][axis] + before[axis] + after[axis] >= self.kernel_size[axis];
        if !fits(0) || !fits(1) {
            return None;
        }
        let window =
            Window { before, after, strides: self.strides, ..Window::of(self.kernel_size[0], self.kernel_size[1]) };
        let (mut graph, nodes) = VendorGraph::new(&[x])?;
        let (ceil, padding_counts) = (self.ceil_mode, !self.exclusive);
        let operation = match self.kind {
            PoolingType::Max => Operation::MaxPooling { window, ceil },
            PoolingType::Average => Operation::AveragePooling { window, ceil, padding_counts },
        };
        let y = graph.add(operation, &nodes)?;
        graph.finish(Family::Pooling, out.len() * self.kernel_size[0] * self.kernel_size[1], y, out)
    }

    /// The windows of element `index` of the output, and what its sum is divided by.
    fn window_of(&self, index: &[usize], [rows, columns]: &[Vec<PoolingWindow>; 2]) -> ([PoolingWindow; 2], f64) {
        let [_, _, y, x] = self.layout.sizes(index);
        let (row, column) = (rows[y], columns[x]);
        let count = match self.window_kind() {
            PoolingKind::AverageWithPadding => row.size * column.size,
            _ => (row.end - row.begin) * (column.end - column.begin),
        };
        ([row, column], count.max(1) as f64)
    }

    /// The largest element of a window of the reference's input and its place.
    fn largest(&self, x: &Array, index: &[usize], [row, column]: [PoolingWindow; 2]) -> (f64, f64) {
        let [n, c, ..] = self.layout.sizes(index);
        let width = self.layout.sizes(&x.shape)[3];
        let mut best: Option<(f64, usize)> = None;
        for y in row.begin..row.end {
            for w in column.begin..column.end {
                let value = x.at(&self.layout.index([n, c, y, w]));
                if best.is_none_or(|(most, _)| value > most || value.is_nan() && !most.is_nan()) {
                    best = Some((value, y * width + w));
                }
            }
        }
        best.map_or((lowest(x.dtype), -1.0), |(value, place)| (value, place as f64))
    }
}

impl Operator for Pooling {
    fn name(&self) -> &'static str {
        "pooling"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let Meta { dtype, shape } = &inputs[0];
        expect_dtype(self.name(), "input", *dtype, dtype::FLOATS)?;
        if self.indices && self.kind != PoolingType::Max {
            let (got, expected) = (format!("{:?}", self.kind), "Max with indices".to_owned());
            return Err(Error::Attribute { operator: self.name(), attribute: "kind", got, expected });
        }
        let windows = self.windows(self.name(), shape)?;
        let shape = self.out_shape(shape, &windows);
        let mut metas = vec![Meta { dtype: *dtype, shape: shape.clone() }];
        if self.indices {
            metas.push(Meta { dtype: DType::I32, shape });
        }
        Ok(metas)
    }

    fn arithmetic(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        let all = self.global || self.adaptive;
        let taps = self.kernel_size.iter().product::<usize>() as u64;
        if all { inputs[0].count() } else { taps * outputs[0].count() }
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let windows = self.windows(self.name(), &inputs[0].shape)?;
        let (x, out) = (self.layout.nchw(&inputs[0]), self.layout.nchw(&outputs[0]));
        let places = outputs.get(1).map(|view| self.layout.nchw(view));
        let whole = windows[0].len() == 1 && windows[1].len() == 1;
        if try_vendor(queue, self.name(), || self.vendor_call(&x, &out))? {
            return Ok(());
        }
        let covered = whole && self.padding_is_absent(&x, &windows);
        if !takes_native(queue, computes(queue, x.dtype)) {
            return match covered && places.is_none() && out.is_dense() {
                true => self.reduce_planes(queue, &x, &out),
                false => tiles::run(queue, self, &x, &out, places.as_ref()),
            };
        }
        let average = self.kind == PoolingType::Average && covered;
        call(queue, self.name(), || {
            if out.is_empty() {
                return Ok(());
            }
            if average && x.dtype == DType::F32 && !x.is_empty() {
                let (dense, len) = (Dense::of(&x), x.len());
                // SAFETY: a dense float32 tensor.
                let from = unsafe { slice::<f32>(dense.address, len) };
                return write(&out, |to| native::global_average(x.shape[2] * x.shape[3], from, to));
            }
            match x.dtype {
                DType::F16 => self.reduce::<f16>(&x, &out, places.as_ref(), &windows),
                DType::BF16 => self.reduce::<bf16>(&x, &out, places.as_ref(), &windows),
                DType::F64 => self.reduce::<f64>(&x, &out, places.as_ref(), &windows),
                _ => self.reduce::<f32>(&x, &out, places.as_ref(), &windows),
            }
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, dy) = (b.inputs[0], b.dy()?);
        let inputs: Vec<_> = [x, dy].into_iter().chain(b.outputs.get(1).copied()).collect();
        Ok(vec![Some(b.one(PoolingGradient { of: self.clone() }, &inputs)?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let windows = self.windows(self.name(), &x.shape).expect("a legal call");
        let shape = self.out_shape(&x.shape, &windows);
        let value = Array::from_fn(&shape, x.dtype, |index| {
            let ([row, column], count) = self.window_of(index, &windows);
            if self.kind == PoolingType::Max {
                return self.largest(x, index, [row, column]).0;
            }
            let [n, c, ..] = self.layout.sizes(index);
            let pixels = (row.begin..row.end).flat_map(|y| (column.begin..column.end).map(move |w| (y, w)));
            pixels.map(|(y, w)| x.at(&self.layout.index([n, c, y, w]))).sum::<f64>() / count
        });
        if !self.indices {
            return vec![value];
        }
        let places =
            Array::from_fn(&shape, DType::I32, |index| self.largest(x, index, self.window_of(index, &windows).0).1);
        vec![value, places]
    }
}

impl Pooling {
    /// Whether the one window is the whole plane and nothing else.
    fn padding_is_absent(&self, x: &View, windows: &[Vec<PoolingWindow>; 2]) -> bool {
        let whole = |window: Option<&PoolingWindow>, size: usize| {
            window.is_some_and(|w| *w == PoolingWindow { begin: 0, end: size, size })
        };
        whole(windows[0].first(), x.shape[2]) && whole(windows[1].first(), x.shape[3])
    }

    /// One window that is the whole plane is a reduction, which cuts a plane among threads; a window belongs to one.
    fn reduce_planes(&self, queue: &Queue, x: &View, out: &View) -> Result<()> {
        let reduction = match self.kind {
            PoolingType::Max => Reduction::Maximum,
            PoolingType::Average => Reduction::Mean,
        };
        let reduce = Reduce { reduction, axes: vec![2, 3], keep_dims: true, output: None };
        reduce.run(queue, std::slice::from_ref(x), std::slice::from_ref(out))
    }

    fn reduce<T: Pooled + Default>(
        &self,
        x: &View,
        out: &View,
        places: Option<&View>,
        [rows, columns]: &[Vec<PoolingWindow>; 2],
    ) -> std::result::Result<(), openmps_host::Error> {
        let (dense, len) = (Dense::of(x), x.len());
        // SAFETY: a dense tensor whose type `run` chose `T` by.
        let from = unsafe { slice::<T>(dense.address, len) };
        let (planes, size) = (x.shape[0] * x.shape[1], [x.shape[2], x.shape[3]]);
        let kind = self.window_kind();
        write::<T>(out, |to| match places {
            Some(view) => {
                write::<i32>(view, |places| native::pool(kind, planes, size, rows, columns, from, to, Some(places)))
            }
            None => native::pool(kind, planes, size, rows, columns, from, to, None),
        })
    }
}

fn samples() -> Vec<(Pooling, [usize; 4])> {
    let mut samples = Vec::new();
    for kind in [PoolingType::Max, PoolingType::Average] {
        let of = |kernel: [usize; 2]| Pooling::new(kind, kernel);
        samples.extend([
            (of([2, 2]), [2, 3, 8, 10]),
            (of([3, 2]), [1, 2, 7, 9]),
            (Pooling { strides: [1, 1], paddings: vec![1, 1], ..of([3, 3]) }, [1, 2, 5, 17]),
            (Pooling { strides: [2, 2], paddings: vec![1, 1], ceil_mode: true, ..of([3, 3]) }, [1, 2, 6, 8]),
            (Pooling { strides: [2, 1], paddings: vec![0, 1, 1, 2], exclusive: false, ..of([3, 4]) }, [2, 1, 9, 7]),
            (Pooling { strides: [2, 2], padding_algorithm: PaddingAlgorithm::Same, ..of([3, 3]) }, [1, 1, 7, 8]),
            (Pooling { padding_algorithm: PaddingAlgorithm::Valid, ..of([2, 3]) }, [1, 1, 7, 8]),
            (Pooling { adaptive: true, ..of([1, 1]) }, [2, 3, 7, 11]),
            (Pooling { adaptive: true, ..of([3, 5]) }, [1, 2, 7, 11]),
            (Pooling { adaptive: true, ..of([4, 4]) }, [1, 1, 3, 2]),
            (Pooling { global: true, ..of([2, 2]) }, [2, 5, 6, 7]),
            (Pooling { layout: ImageLayout::Nhwc, ..of([2, 2]) }, [1, 3, 4, 6]),
            (of([2, 2]), [0, 3, 4, 4]),
            (Pooling { strides: [1, 1], paddings: vec![1, 1], ..of([3, 3]) }, [1, 2, 1, 1]),
            (Pooling { strides: [3, 4], paddings: vec![2, 0, 1, 2], ceil_mode: true, ..of([3, 3]) }, [1, 2, 19, 23]),
        ]);
    }
    samples
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "pooling",
    summary: "Two-dimensional pooling: maximum (with indices) or average; strided, adaptive or global.",
    dtypes: dtype::FLOATS,
    cases: || {
        let samples = samples().into_iter().flat_map(|(of, x)| {
            let indexed = (of.kind == PoolingType::Max).then(|| Pooling { indices: true, ..of.clone() });
            std::iter::once(of).chain(indexed).map(move |of| (of, x))
        });
        samples
            .map(|(of, x)| {
                let dims = of.layout.shape(x);
                Case::new(of, vec![Input::new(&dims)])
            })
            .collect()
    },
    // Averages may cancel: their rounding is relative to the elements.
    tolerance: 128.0,
};
