//! Transposed convolution of images: every input pixel spreads a filter over the output.

use super::convolution::{self, Convolution, Fused, for_taps, tiles, transposed, window, work};
use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::image::{ImageLayout, PaddingAlgorithm, expect_image, expect_positive, paddings};
use crate::layout::{call, check, computes, expect_dtype, takes_native};
use crate::operator::{Meta, Operator};
use crate::operators::convolution::ConvolutionWeightGradient;
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::vendor::try_vendor;
use crate::view::{Shape, View, dense_strides};
use openmps_host::native::convolution as native;
use openmps_runtime::vendor::graph::Operation;
use openmps_runtime::vendor::{Family, VendorCall};
use openmps_tile::{DType, dtype};

/// Inputs: image (batch, channels, height, width in `layout`), weight (channels, filters / groups, kernel height, kernel width), and
/// what `fused` asks for. Output: (batch, filters, output height, output width in `layout`), of any strides.
#[derive(Clone, Debug)]
pub struct ConvolutionTranspose {
    /// Steps between the places of neighbouring input pixels.
    pub strides: [usize; 2],
    /// What is cut off: (vertical, horizontal) or (top, bottom, left, right).
    pub paddings: Vec<usize>,
    /// Whether `paddings` is used or computed.
    pub padding_algorithm: PaddingAlgorithm,
    /// Steps between a filter's taps.
    pub dilations: [usize; 2],
    /// Independent groups of channels and filters.
    pub groups: usize,
    /// Rows and columns added at the bottom and the right of the output; less than the strides.
    pub output_padding: [usize; 2],
    /// The output's height and width, instead of `output_padding`.
    pub output_size: Option<[usize; 2]>,
    /// The images' layout. The weight's never changes.
    pub layout: ImageLayout,
    /// What is done to each result before it is stored: addends and an activation.
    pub fused: Fused,
}

impl Default for ConvolutionTranspose {
    fn default() -> Self {
        ConvolutionTranspose {
            strides: [1, 1],
            paddings: vec![0, 0],
            padding_algorithm: PaddingAlgorithm::Explicit,
            dilations: [1, 1],
            groups: 1,
            output_padding: [0, 0],
            output_size: None,
            layout: ImageLayout::Nchw,
            fused: Fused::default(),
        }
    }
}

impl Convolution {
    /// The transposed convolution, without anything fused, that maps this one's output back to its input: of an upstream gradient and the same weight it
    /// makes the gradient with respect to the input.
    pub fn reversed(&self, x: &Shape, weight: &Shape) -> Result<ConvolutionTranspose> {
        let of = self.sizes(self.name(), x, weight)?;
        Ok(ConvolutionTranspose {
            strides: of.stride,
            paddings: of.padding.to_vec(),
            dilations: of.dilation,
            groups: of.groups,
            output_size: Some(of.input),
            layout: self.layout,
            ..ConvolutionTranspose::default()
        })
    }
}

impl ConvolutionTranspose {
    /// The convolution that this one reverses.
    fn sizes(&self, x: &Shape, weight: &Shape) -> Result<native::Convolution> {
        let operator = self.name();
        expect_image(operator, "input", x)?;
        expect_image(operator, "weight", weight)?;
        expect_positive(operator, "strides", &self.strides)?;
        expect_positive(operator, "dilations", &self.dilations)?;
        expect_positive(operator, "groups", &[self.groups])?;
        expect_positive(operator, "kernel", &weight[2..])?;
        let [batch, channels, height, width] = self.layout.sizes(x);
        if channels != weight[0] || !channels.is_multiple_of(self.groups) || height == 0 || width == 0 {
            let expected = format!("{} channels in {} groups, and pixels", weight[0], self.groups);
            return Err(Error::Shape { operator, what: "input", got: x.clone(), expected });
        }
        let (input, kernel) = ([height, width], [weight[2], weight[3]]);
        let same = self.padding_algorithm == PaddingAlgorithm::Same;
        let dilation = if same { [1, 1] } else { self.dilations };
        let padding = paddings(operator, self.padding_algorithm, &self.paddings, [input, kernel, self.strides])?;
        let mut output = [0; 2];
        for axis in 0..2 {
            let full = (input[axis] - 1) * self.strides[axis] + dilation[axis] * (kernel[axis] - 1) + 1;
            let cut = padding[2 * axis] + padding[2 * axis + 1];
            let size = full.saturating_add(self.output_padding[axis]).checked_sub(cut);
            output[axis] = self.output_size.map_or(size.unwrap_or(0), |size| size[axis]);
        }
        let of = native::Convolution {
            batch,
            channels: weight[1] * self.groups,
            input: output,
            filters: channels,
            kernel,
            stride: self.strides,
            padding,
            dilation,
            groups: self.groups,
        };
        if of.output() != input || output.contains(&0) {
            let expected = format!("a size that a convolution with {padding:?} and strides maps to {input:?}");
            return Err(Error::Attribute { operator, attribute: "output size", got: format!("{output:?}"), expected });
        }
        Ok(of)
    }

    /// The convolution, without anything fused, that maps this one's output back to its input: what gradients are made of.
    pub fn reversed(&self, x: &Shape, weight: &Shape) -> Result<Convolution> {
        let of = self.sizes(x, weight)?;
        Ok(Convolution {
            strides: of.stride,
            paddings: of.padding.to_vec(),
            padding_algorithm: PaddingAlgorithm::Explicit,
            dilations: of.dilation,
            groups: of.groups,
            layout: self.layout,
            fused: Fused::default(),
        })
    }

    fn vendor_call(&self, of: &native::Convolution, x: &View, inputs: &[View], out: &View) -> Option<VendorCall> {
        let window = window(of);
        let size = [x.shape[2], x.shape[3]];
        let full = |axis: usize| of.padded(axis, size[axis]) - (window.before[axis] + window.after[axis]);
        let extra = [of.input[0].checked_sub(full(0))?, of.input[1].checked_sub(full(1))?];
        let (mut graph, nodes) = self.fused.graph(x, inputs, self.layout)?;
        let operation = Operation::ConvolutionTranspose { window, groups: of.groups, extra };
        let y = graph.add(operation, &nodes[..2])?;
        let y = self.fused.add(&mut graph, y, &nodes[2..], out.dtype)?;
        graph.finish(Family::ConvolutionTranspose, 2 * work(of), y, out)
    }

    fn out_shape(&self, of: &native::Convolution) -> [usize; 4] {
        self.layout.shape([of.batch, of.channels, of.input[0], of.input[1]])
    }
}

impl Operator for ConvolutionTranspose {
    fn name(&self) -> &'static str {
        "convolution_transpose"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let [x, weight, ..] = inputs else {
            return Err(crate::layout::expect_inputs(self.name(), inputs, 2).expect_err("fewer than two inputs"));
        };
        expect_dtype(self.name(), "input", x.dtype, dtype::FLOATS)?;
        expect_dtype(self.name(), "weight", weight.dtype, &[x.dtype])?;
        let of = self.sizes(&x.shape, &weight.shape)?;
        let shape: Shape = self.out_shape(&of).into_iter().collect();
        self.fused.check(self.name(), inputs, x.dtype, of.channels, &shape)?;
        Ok(vec![Meta { dtype: x.dtype, shape }])
    }

    fn arithmetic(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        // A product and a sum for each of the places that an element is spread to.
        let taps: usize = inputs[1].shape.iter().skip(1).product();
        2 * taps as u64 * inputs[0].count()
    }

    fn includes(&self) -> Vec<&'static str> {
        self.fused.includes()
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let of = self.sizes(&inputs[0].shape, &inputs[1].shape)?;
        let (x, out) = (self.layout.nchw(&inputs[0]), self.layout.nchw(&outputs[0]));
        if try_vendor(queue, self.name(), || self.vendor_call(&of, &x, inputs, &out))? {
            return Ok(());
        }
        if !takes_native(queue, computes(queue, out.dtype)) {
            let call = tiles::TiledConvolution { operator: self.name(), of: &of, transposed: true, fused: &self.fused };
            return tiles::run(queue, &call, [&x, &inputs[1], &out], &self.fused.views(inputs, self.layout));
        }
        call(queue, self.name(), || {
            let operands = self.fused.operands(inputs, self.layout);
            transposed(&of, &x, &inputs[1], &out, &self.fused.epilogue(&operands))
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        if self.fused != Fused::default() {
            return Err(Error::NoGradient { operator: "a transposed convolution with an epilogue" });
        }
        let (x, weight, dy) = (b.inputs[0], b.inputs[1], b.dy()?);
        let kernel = [b.shape(weight)[2], b.shape(weight)[3]];
        let of = self.reversed(&b.shape(x), &b.shape(weight))?;
        b.each([&|b| b.one(of.clone(), &[dy, weight]), &|b| {
            b.one(ConvolutionWeightGradient { of: of.clone(), kernel }, &[dy, x])
        }])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, weight) = (&inputs[0], &inputs[1]);
        let of = self.sizes(&x.shape, &weight.shape).expect("a legal call");
        let shape = self.out_shape(&of);
        let mut sums = Array::from_fn(&shape, x.dtype, |_| 0.0);
        let strides = dense_strides(&shape);
        crate::reference::for_each_index(&x.shape, |index| {
            let [n, f, y, w] = self.layout.sizes(index);
            for_taps(&of, [f, y, w], |channel, [v, u], tap| {
                let at = self.layout.index([n, channel, v, u]);
                let at: usize = at.iter().zip(&strides).map(|(&i, &stride)| i * stride as usize).sum();
                sums.data[at] += x.at(index) * weight.at(&tap);
            });
        });
        vec![Array::from_fn(&shape, x.dtype, |index| {
            self.fused.reference(sums.at(index), inputs, self.layout.sizes(index)[1], index)
        })]
    }
}

/// The gradient of a convolution with respect to its input.
fn as_gradient((of, x, weight): (Convolution, [usize; 4], [usize; 4])) -> Case {
    let x: Shape = of.layout.shape(x).into_iter().collect();
    let weight: Shape = weight.into_iter().collect();
    let metas = [&x, &weight].map(|shape| Meta { dtype: DType::F32, shape: shape.clone() });
    let out = of.infer(&metas).expect("a legal case").remove(0);
    let operator = of.reversed(&x, &weight).expect("a legal case");
    Case::new(operator, vec![Input::new(&out.shape), Input::new(&weight)])
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "convolution_transpose",
    summary: "Two-dimensional transposed convolution: strides, padding, dilation, groups, output padding or size.",
    dtypes: dtype::FLOATS,
    cases: || {
        let with = |strides, paddings: &[usize], groups| ConvolutionTranspose {
            strides,
            paddings: paddings.to_vec(),
            groups,
            ..ConvolutionTranspose::default()
        };
        let samples: Vec<(ConvolutionTranspose, [usize; 4], [usize; 4])> = vec![
            (with([2, 2], &[0, 0], 1), [1, 3, 5, 7], [3, 4, 2, 2]),
            (with([2, 2], &[0, 0], 2), [2, 6, 4, 9], [6, 2, 2, 2]),
            (with([3, 3], &[0, 0], 1), [1, 2, 3, 4], [2, 1, 3, 3]),
            (with([1, 1], &[1, 1], 1), [2, 3, 6, 5], [3, 4, 3, 3]),
            (with([2, 2], &[1, 1], 1), [1, 4, 7, 6], [4, 3, 4, 4]),
            (with([2, 3], &[0, 1, 2, 0], 2), [1, 4, 5, 6], [4, 3, 3, 5]),
            (with([2, 2], &[0, 0], 1), [0, 3, 5, 7], [3, 4, 2, 2]),
            (with([2, 3], &[1, 0], 2), [2, 34, 4, 3], [34, 10, 3, 4]),
            (with([3, 1], &[0, 0], 1), [1, 5, 1, 1], [5, 9, 2, 1]),
            (ConvolutionTranspose { output_padding: [1, 0], ..with([2, 2], &[1, 1], 1) }, [1, 3, 5, 5], [3, 2, 3, 3]),
            (
                ConvolutionTranspose { output_size: Some([10, 9]), ..with([2, 2], &[1, 1], 1) },
                [1, 3, 5, 5],
                [3, 2, 3, 3],
            ),
            (
                ConvolutionTranspose { dilations: [2, 1], layout: ImageLayout::Nhwc, ..with([2, 2], &[1, 1], 1) },
                [1, 3, 5, 5],
                [3, 2, 3, 3],
            ),
        ];
        let mut cases: Vec<Case> = samples
            .into_iter()
            .map(|(of, x, weight)| {
                let x = of.layout.shape(x);
                Case::new(of, vec![Input::new(&x), Input::new(&weight)])
            })
            .collect();
        cases.extend(convolution::samples().into_iter().map(as_gradient));
        let fused = ConvolutionTranspose { fused: Fused::bias(), ..with([2, 2], &[0, 0], 1) };
        let inputs: [&[usize]; 3] = [&[1, 3, 5, 7], &[3, 4, 2, 2], &[4]];
        let typed = inputs.map(|dims| Input::new(dims).typed(DType::F32));
        cases.push(Case::new(fused, typed.to_vec()));
        cases
    },
    tolerance: 16.0,
};
