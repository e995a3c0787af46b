//! The gradient of pooling.

use super::{Pooling, PoolingType, samples, tiles};
use crate::entry::{Case, Entry, Input};
use crate::error::Result;
use crate::image::write;
use crate::layout::{Dense, call, check, computes, expect_dtype, expect_inputs, expect_shape, takes_native};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{Shape, View, dense_strides};
use half::{bf16, f16};
use openmps_host::native::memory::slice;
use openmps_host::native::pooling as native;
use openmps_host::native::pooling::{Pooled, PoolingWindow};
use openmps_tile::{DType, dtype};

/// The gradient of [`Pooling`]. Inputs: its input, the gradient of its first output, and with `indices` its second output. Of equal largest elements the
/// first one receives the gradient.
///
/// The places of the second output follow from the input. GPUs find them again, the host takes those that are given; what has no place in its plane goes
/// nowhere.
#[derive(Clone, Debug)]
pub struct PoolingGradient {
    /// The pooling.
    pub of: Pooling,
}

impl Operator for PoolingGradient {
    fn name(&self) -> &'static str {
        "pooling_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2 + usize::from(self.of.indices))?;
        let (x, upstream) = (&inputs[0], &inputs[1]);
        expect_dtype(self.name(), "input", x.dtype, dtype::FLOATS)?;
        expect_dtype(self.name(), "upstream", upstream.dtype, &[x.dtype])?;
        let windows = self.of.windows(self.name(), &x.shape)?;
        expect_shape(self.name(), "upstream", &upstream.shape, &self.of.out_shape(&x.shape, &windows))?;
        if let Some(places) = inputs.get(2) {
            expect_dtype(self.name(), "places", places.dtype, &[DType::I32])?;
            expect_shape(self.name(), "places", &places.shape, &upstream.shape)?;
        }
        Ok(vec![x.clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let windows = self.of.windows(self.name(), &inputs[0].shape)?;
        let nchw = |view: &View| self.of.layout.nchw(view);
        let (x, upstream, out) = (nchw(&inputs[0]), nchw(&inputs[1]), nchw(&outputs[0]));
        if !takes_native(queue, computes(queue, x.dtype)) {
            return tiles::gradient(queue, &self.of, &x, &upstream, &out);
        }
        if let Some(places) = inputs.get(2) {
            let places = nchw(places);
            return call(queue, self.name(), || match x.dtype {
                DType::F16 => scatter_at::<f16>(&places, &upstream, &out),
                DType::BF16 => scatter_at::<bf16>(&places, &upstream, &out),
                DType::F64 => scatter_at::<f64>(&places, &upstream, &out),
                _ => scatter_at::<f32>(&places, &upstream, &out),
            });
        }
        call(queue, self.name(), || match x.dtype {
            DType::F16 => self.scatter::<f16>(&x, &upstream, &out, &windows),
            DType::BF16 => self.scatter::<bf16>(&x, &upstream, &out, &windows),
            DType::F64 => self.scatter::<f64>(&x, &upstream, &out, &windows),
            _ => self.scatter::<f32>(&x, &upstream, &out, &windows),
        })
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, upstream) = (&inputs[0], &inputs[1]);
        let windows = self.of.windows(self.name(), &x.shape).expect("a legal call");
        let layout = self.of.layout;
        let mut out = Array::from_fn(&x.shape, x.dtype, |_| 0.0);
        let strides = dense_strides(&x.shape);
        let width = layout.sizes(&x.shape)[3];
        crate::reference::for_each_index(&upstream.shape, |index| {
            let ([row, column], count) = self.of.window_of(index, &windows);
            let [n, c, ..] = layout.sizes(index);
            let mut add = |y: usize, w: usize, value: f64| {
                let at = layout.index([n, c, y, w]);
                let at: usize = at.iter().zip(&strides).map(|(&i, &stride)| i * stride as usize).sum();
                out.data[at] += value;
            };
            if self.of.kind == PoolingType::Max {
                let place = self.of.largest(x, index, [row, column]).1;
                if place >= 0.0 {
                    add(place as usize / width, place as usize % width, upstream.at(index));
                }
                return;
            }
            for y in row.begin..row.end {
                for w in column.begin..column.end {
                    add(y, w, upstream.at(index) / count);
                }
            }
        });
        vec![out]
    }
}

impl PoolingGradient {
    fn scatter<T: Pooled + Default>(
        &self,
        x: &View,
        upstream: &View,
        out: &View,
        [rows, columns]: &[Vec<PoolingWindow>; 2],
    ) -> std::result::Result<(), openmps_host::Error> {
        let (from, up) = (Dense::of(x), Dense::of(upstream));
        // SAFETY: dense tensors whose type `run` chose `T` by.
        let (from, up) = unsafe { (slice::<T>(from.address, x.len()), slice::<T>(up.address, upstream.len())) };
        let (planes, size) = (x.shape[0] * x.shape[1], [x.shape[2], x.shape[3]]);
        let kind = self.of.window_kind();
        write::<T>(out, |to| native::pool_backward(kind, planes, size, rows, columns, from, up, to))
    }
}

/// The gradient by the places that pooling gave.
fn scatter_at<T: Pooled + Default>(
    places: &View,
    upstream: &View,
    out: &View,
) -> std::result::Result<(), openmps_host::Error> {
    let (at, up) = (Dense::of(places), Dense::of(upstream));
    // SAFETY: dense tensors whose types `infer` and `run` have seen to.
    let (at, up) = unsafe { (slice::<i32>(at.address, places.len()), slice::<T>(up.address, upstream.len())) };
    let planes = out.shape[0] * out.shape[1];
    write::<T>(out, |to| native::pool_backward_at(planes, up, at, to))
}

/// For the list of operators.
pub static GRADIENT: Entry = Entry {
    name: "pooling_gradient",
    summary: "The gradient of two-dimensional pooling.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |(of, x): (Pooling, [usize; 4])| {
            let shape: Shape = of.layout.shape(x).into_iter().collect();
            let windows = of.windows("case", &shape).expect("a legal case");
            let inputs = vec![Input::new(&shape), Input::new(&of.out_shape(&shape, &windows))];
            Case::new(PoolingGradient { of }, inputs)
        };
        samples().into_iter().map(case).collect()
    },
    tolerance: 8.0,
};
