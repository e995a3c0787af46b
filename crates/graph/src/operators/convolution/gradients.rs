//! The gradient of a convolution with respect to its weight. That with respect to its input is a transposed convolution
//! ([`Convolution::reversed`]).

use super::{Convolution, for_taps, samples, tiles};
use crate::entry::{Case, Entry, Input};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::image::{Singles, expect_image, expect_positive, write, write_singles};
use crate::layout::{Dense, call, check, computes, expect_dtype, expect_inputs, expect_shape, takes_native};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{Shape, View};
use openmps_host::native::Epilogue;
use openmps_host::native::convolution as native;
use openmps_host::native::memory::slice;
use openmps_tile::{DType, dtype};

/// The gradient of a convolution (without anything fused) with respect to its weight. Inputs: its input, and the gradient of the output.
#[derive(Clone, Debug)]
pub struct ConvolutionWeightGradient {
    /// The convolution.
    pub of: Convolution,
    /// Height and width of its filters.
    pub kernel: [usize; 2],
}

/// Runs a transposed convolution on views in NCHW order.
pub(crate) fn transposed(
    of: &native::Convolution,
    x: &View,
    weight: &View,
    out: &View,
    epilogue: &Epilogue,
) -> std::result::Result<(), openmps_host::Error> {
    if out.dtype == DType::F64 {
        let (x, weight, lens) = (Dense::of(x), Dense::of(weight), of.lens());
        // SAFETY: dense float64 tensors of these sizes.
        let (x, weight) = unsafe { (slice(x.address, lens[2]), slice(weight.address, lens[1])) };
        return write(out, |to| native::transposed_f64(of, x, weight, to));
    }
    let (x, weight) = (Singles::of(x), Singles::of(weight));
    let shape = native::TransposedConvolution { of: *of };
    write_singles(out, |to| native::transposed(&shape, x.get(), weight.get(), to, epilogue))
}

impl ConvolutionWeightGradient {
    fn sizes(&self, x: &Shape, upstream: &Shape) -> Result<(Shape, native::Convolution)> {
        expect_image(self.name(), "input", x)?;
        expect_image(self.name(), "upstream", upstream)?;
        expect_positive(self.name(), "groups", &[self.of.groups])?;
        let (channels, filters) = (self.of.layout.sizes(x)[1], self.of.layout.sizes(upstream)[1]);
        let weight = [filters, channels / self.of.groups, self.kernel[0], self.kernel[1]];
        let weight: Shape = weight.into_iter().collect();
        let sizes = self.of.sizes(self.name(), x, &weight)?;
        expect_shape(self.name(), "upstream", upstream, &self.of.out_shape(&sizes))?;
        Ok((weight, sizes))
    }
}

impl Operator for ConvolutionWeightGradient {
    fn name(&self) -> &'static str {
        "convolution_weight_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        let (x, upstream) = (&inputs[0], &inputs[1]);
        expect_dtype(self.name(), "input", x.dtype, dtype::FLOATS)?;
        expect_dtype(self.name(), "upstream", upstream.dtype, &[x.dtype])?;
        let (shape, _) = self.sizes(&x.shape, &upstream.shape)?;
        Ok(vec![Meta { dtype: x.dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let (_, of) = self.sizes(&inputs[0].shape, &inputs[1].shape)?;
        let (x, upstream) = (self.of.layout.nchw(&inputs[0]), self.of.layout.nchw(&inputs[1]));
        if !takes_native(queue, computes(queue, x.dtype)) {
            return tiles::weight_gradient(queue, &of, &x, &upstream, &outputs[0]);
        }
        call(queue, self.name(), || {
            if x.dtype == DType::F64 {
                let (x, upstream, lens) = (Dense::of(&x), Dense::of(&upstream), of.lens());
                // SAFETY: dense float64 tensors of these sizes.
                let (x, upstream) = unsafe { (slice(x.address, lens[0]), slice(upstream.address, lens[2])) };
                return write(&outputs[0], |to| native::backward_filter_f64(&of, x, upstream, to));
            }
            let (x, upstream) = (Singles::of(&x), Singles::of(&upstream));
            write_singles(&outputs[0], |to| native::backward_filter(&of, x.get(), upstream.get(), to))
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, upstream, dy) = (b.inputs[0], b.inputs[1], b.dy()?);
        let reversed = self.of.reversed(&b.shape(x), &b.shape(dy))?;
        b.each([&|b| b.one(reversed.clone(), &[upstream, dy]), &|b| b.one(self.of.clone(), &[x, dy])])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, upstream) = (&inputs[0], &inputs[1]);
        let (shape, sizes) = self.sizes(&x.shape, &upstream.shape).expect("a legal call");
        let mut out = Array::from_fn(&shape, x.dtype, |_| 0.0);
        let strides = crate::view::dense_strides(&shape);
        crate::reference::for_each_index(&upstream.shape, |index| {
            let [n, f, y, w] = self.of.layout.sizes(index);
            for_taps(&sizes, [f, y, w], |channel, [v, u], tap| {
                let at: usize = tap.iter().zip(&strides).map(|(&i, &stride)| i * stride as usize).sum();
                out.data[at] += upstream.at(index) * x.at(&self.of.layout.index([n, channel, v, u]));
            });
        });
        vec![out]
    }
}

/// For the list of operators.
pub static WEIGHT_GRADIENT: Entry = Entry {
    name: "convolution_weight_gradient",
    summary: "The gradient of a convolution with respect to its weight.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |(of, x, weight): (Convolution, [usize; 4], [usize; 4])| {
            let shape: Shape = of.layout.shape(x).into_iter().collect();
            let sizes = of.sizes("case", &shape, &weight.into_iter().collect()).expect("a legal case");
            let inputs = vec![Input::new(&shape), Input::new(&of.out_shape(&sizes))];
            Case::new(ConvolutionWeightGradient { of, kernel: [weight[2], weight[3]] }, inputs)
        };
        samples().into_iter().map(case).collect()
    },
    tolerance: 16.0,
};
