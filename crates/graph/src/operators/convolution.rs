//! Convolution of images, optionally with what follows it fused in, and its gradients.

mod fused;
mod gradients;
pub(crate) mod tiles;

pub use fused::Fused;
pub(crate) use gradients::transposed;
pub use gradients::{ConvolutionWeightGradient, WEIGHT_GRADIENT};

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::image::{
    ImageLayout, PaddingAlgorithm, Singles, expect_image, expect_positive, paddings, write, write_singles,
};
use crate::layout::{Dense, call, check, computes, expect_dtype, expect_inputs, takes_native};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::prepared::{Form, Preparation, Prepared, may_prepare};
use crate::queue::{Queue, is_host_device};
use crate::reference::Array;
use crate::vendor::try_vendor;
use crate::view::{Shape, View};
use openmps_host::native::Activation;
use openmps_host::native::convolution as native;
use openmps_host::native::memory::slice;
use openmps_runtime::Device;
use openmps_runtime::vendor::graph::{Operation, Window};
use openmps_runtime::vendor::{Family, VendorCall};
use openmps_tile::{DType, dtype};

/// The window of a convolution, as MPSGraph has it.
pub(crate) fn window(sizes: &native::Convolution) -> Window {
    let [top, bottom, left, right] = sizes.padding;
    Window {
        size: sizes.kernel,
        strides: sizes.stride,
        dilations: sizes.dilation,
        before: [top, left],
        after: [bottom, right],
    }
}

/// Multiplications of a convolution.
pub(crate) fn work(sizes: &native::Convolution) -> usize {
    sizes.lens()[2] * (sizes.channels / sizes.groups) * sizes.kernel[0] * sizes.kernel[1]
}

/// Inputs: image (batch, channels, height, width in `layout`), weight (filters, channels / groups, kernel height, kernel width), and
/// what `fused` asks for. Output: (batch, filters, output height, output width in `layout`), of any strides.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Steps between outputs, vertically and horizontally.
    pub strides: [usize; 2],
    /// (vertical, horizontal) or (top, bottom, left, right).
    pub paddings: Vec<usize>,
    /// Whether `paddings` is used or computed.
    pub padding_algorithm: PaddingAlgorithm,
    /// Steps between a filter's taps.
    pub dilations: [usize; 2],
    /// Independent groups of channels and filters.
    pub groups: usize,
    /// The images' layout. The weight's never changes.
    pub layout: ImageLayout,
    /// What is done to each result before it is stored: addends and an activation.
    pub fused: Fused,
}

impl Default for Convolution {
    fn default() -> Self {
        Convolution {
            strides: [1, 1],
            paddings: vec![0, 0],
            padding_algorithm: PaddingAlgorithm::Explicit,
            dilations: [1, 1],
            groups: 1,
            layout: ImageLayout::Nchw,
            fused: Fused::default(),
        }
    }
}

impl Convolution {
    pub(super) fn sizes(&self, operator: &'static str, x: &Shape, weight: &Shape) -> Result<native::Convolution> {
        expect_image(operator, "input", x)?;
        expect_image(operator, "weight", weight)?;
        expect_positive(operator, "strides", &self.strides)?;
        expect_positive(operator, "dilations", &self.dilations)?;
        expect_positive(operator, "groups", &[self.groups])?;
        expect_positive(operator, "kernel", &weight[2..])?;
        let [batch, channels, height, width] = self.layout.sizes(x);
        let (input, kernel) = ([height, width], [weight[2], weight[3]]);
        if channels != weight[1] * self.groups || !weight[0].is_multiple_of(self.groups) {
            let expected = format!("(a multiple of {0}, {channels} / {0}, height, width)", self.groups);
            return Err(Error::Shape { operator, what: "weight", got: weight.clone(), expected });
        }
        let padding = paddings(operator, self.padding_algorithm, &self.paddings, [input, kernel, self.strides])?;
        let same = self.padding_algorithm == PaddingAlgorithm::Same;
        let sizes = native::Convolution {
            batch,
            channels,
            input,
            filters: weight[0],
            kernel,
            stride: self.strides,
            padding,
            dilation: if same { [1, 1] } else { self.dilations },
            groups: self.groups,
        };
        if sizes.output().contains(&0) {
            let expected = format!("at least as large as the kernel {kernel:?} after padding {padding:?}");
            return Err(Error::Shape { operator, what: "input", got: x.clone(), expected });
        }
        Ok(sizes)
    }

    fn vendor_call(&self, sizes: &native::Convolution, x: &View, inputs: &[View], out: &View) -> Option<VendorCall> {
        let window = window(sizes);
        let (mut graph, nodes) = self.fused.graph(x, inputs, self.layout)?;
        let depthwise = sizes.groups > 1 && sizes.groups == sizes.channels;
        let (family, operation) = if depthwise {
            (Family::DepthwiseConvolution, Operation::DepthwiseConvolution { window })
        } else {
            (Family::Convolution, Operation::Convolution { window, groups: sizes.groups })
        };
        let y = graph.add(operation, &nodes[..2])?;
        let y = self.fused.add(&mut graph, y, &nodes[2..], out.dtype)?;
        graph.finish(family, 2 * work(sizes), y, out)
    }

    fn out_shape(&self, sizes: &native::Convolution) -> [usize; 4] {
        let [height, width] = sizes.output();
        self.layout.shape([sizes.batch, sizes.filters, height, width])
    }
}

impl Operator for Convolution {
    fn name(&self) -> &'static str {
        "convolution"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2 + self.fused.inputs())?;
        let (x, weight) = (&inputs[0], &inputs[1]);
        expect_dtype(self.name(), "input", x.dtype, dtype::FLOATS)?;
        expect_dtype(self.name(), "weight", weight.dtype, &[x.dtype])?;
        let sizes = self.sizes(self.name(), &x.shape, &weight.shape)?;
        let shape: Shape = self.out_shape(&sizes).into_iter().collect();
        self.fused.check(self.name(), inputs, x.dtype, sizes.filters, &shape)?;
        Ok(vec![Meta { dtype: x.dtype, shape }])
    }

    fn arithmetic(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        let sizes = self.sizes(self.name(), &inputs[0].shape, &inputs[1].shape);
        2 * sizes.map_or(0, |sizes| work(&sizes) as u64)
    }

    fn includes(&self) -> Vec<&'static str> {
        self.fused.includes()
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let sizes = self.sizes(self.name(), &inputs[0].shape, &inputs[1].shape)?;
        let (x, out) = (self.layout.nchw(&inputs[0]), self.layout.nchw(&outputs[0]));
        if try_vendor(queue, self.name(), || self.vendor_call(&sizes, &x, inputs, &out))? {
            return Ok(());
        }
        if !takes_native(queue, computes(queue, out.dtype)) {
            let call =
                tiles::TiledConvolution { operator: self.name(), of: &sizes, transposed: false, fused: &self.fused };
            return tiles::run(queue, &call, [&x, &inputs[1], &out], &self.fused.views(inputs, self.layout));
        }
        call(queue, self.name(), || {
            if out.dtype == DType::F64 {
                let (x, weight, lens) = (Dense::of(&x), Dense::of(&inputs[1]), sizes.lens());
                // SAFETY: dense float64 tensors of these sizes.
                let (x, weight) = unsafe { (slice(x.address, lens[0]), slice(weight.address, lens[1])) };
                return write(&out, |to| native::forward_f64(&sizes, x, weight, to));
            }
            let (x, weight) = (Singles::of(&x), Singles::of(&inputs[1]));
            let operands = self.fused.operands(inputs, self.layout);
            let epilogue = self.fused.epilogue(&operands);
            write_singles(&out, |to| native::forward(&sizes, x.get(), weight.get(), to, &epilogue))
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        if self.fused != Fused::default() {
            return Err(Error::NoGradient { operator: "a convolution with an epilogue" });
        }
        let (x, weight, dy) = (b.inputs[0], b.inputs[1], b.dy()?);
        let kernel = [b.shape(weight)[2], b.shape(weight)[3]];
        let reversed = self.reversed(&b.shape(x), &b.shape(weight))?;
        b.each([&|b| b.one(reversed.clone(), &[dy, weight]), &|b| {
            b.one(ConvolutionWeightGradient { of: self.clone(), kernel }, &[x, dy])
        }])
    }

    fn prepares(&self, device: &Device, inputs: &[Meta]) -> Option<Preparation> {
        let sizes = self.sizes(self.name(), &inputs.first()?.shape, &inputs.get(1)?.shape).ok()?;
        let order = native::FilterOrder::kept(&sizes).filter(|_| is_host_device(device) && may_prepare(inputs))?;
        Some(Preparation { input: 1, form: Form::Filters { order, groups: sizes.groups } })
    }

    fn run_prepared(&self, queue: &Queue, prepared: &Prepared, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let filters = prepared.filters(self.name(), queue)?;
        let sizes = self.sizes(self.name(), &inputs[0].shape, &inputs[1].shape)?;
        call(queue, self.name(), || {
            let x = Singles::of(&self.layout.nchw(&inputs[0]));
            let operands = self.fused.operands(inputs, self.layout);
            let (epilogue, out) = (self.fused.epilogue(&operands), self.layout.nchw(&outputs[0]));
            write_singles(&out, |to| native::forward_packed(&sizes, x.get(), filters, to, &epilogue))
        })
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, weight) = (&inputs[0], &inputs[1]);
        let sizes = self.sizes(self.name(), &x.shape, &weight.shape).expect("a legal call");
        vec![Array::from_fn(&self.out_shape(&sizes), x.dtype, |index| {
            let [n, f, y, w] = self.layout.sizes(index);
            let mut sum = 0.0;
            for_taps(&sizes, [f, y, w], |channel, [v, u], tap| {
                sum += x.at(&self.layout.index([n, channel, v, u])) * weight.at(&tap);
            });
            self.fused.reference(sum, inputs, f, index)
        })]
    }
}

/// Calls `each(input channel, input position, weight index)` for every tap of output (filter, row, column) that is inside the input.
pub(crate) fn for_taps(
    sizes: &native::Convolution,
    [f, y, w]: [usize; 3],
    mut each: impl FnMut(usize, [usize; 2], [usize; 4]),
) {
    let own = sizes.channels / sizes.groups;
    let group = f / (sizes.filters / sizes.groups);
    for c in 0..own {
        for i in 0..sizes.kernel[0] {
            for j in 0..sizes.kernel[1] {
                let v = (y * sizes.stride[0] + i * sizes.dilation[0]).wrapping_sub(sizes.padding[0]);
                let u = (w * sizes.stride[1] + j * sizes.dilation[1]).wrapping_sub(sizes.padding[2]);
                if v < sizes.input[0] && u < sizes.input[1] {
                    each(group * own + c, [v, u], [f, c, i, j]);
                }
            }
        }
    }
}

/// Convolutions with the sizes of their inputs, for cases: (operator, NCHW input, weight).
pub(super) fn samples() -> Vec<(Convolution, [usize; 4], [usize; 4])> {
    let with = |strides, paddings: &[usize], dilations, groups| Convolution {
        strides,
        paddings: paddings.to_vec(),
        dilations,
        groups,
        ..Convolution::default()
    };
    let algorithm = |padding_algorithm, strides| Convolution { padding_algorithm, strides, ..Convolution::default() };
    vec![
        (with([1, 1], &[0, 0], [1, 1], 1), [1, 1, 1, 1], [1, 1, 1, 1]),
        (with([1, 1], &[0, 0], [1, 1], 1), [2, 5, 7, 9], [11, 5, 1, 1]),
        (with([1, 1], &[0, 0], [1, 1], 1), [2, 17, 1, 1], [13, 17, 1, 1]),
        (with([1, 1], &[0, 0], [1, 1], 2), [2, 6, 5, 5], [4, 3, 1, 1]),
        (with([1, 1], &[1, 1], [1, 1], 1), [1, 3, 8, 11], [7, 3, 3, 3]),
        (with([1, 1], &[1, 1], [1, 1], 1), [2, 13, 21, 23], [9, 13, 3, 3]),
        (with([2, 2], &[1, 1], [1, 1], 1), [2, 3, 17, 15], [8, 3, 3, 3]),
        (with([1, 2], &[0, 1, 2, 3], [1, 1], 1), [1, 2, 9, 10], [3, 2, 3, 4]),
        (with([1, 1], &[2, 2], [2, 3], 1), [1, 4, 13, 14], [5, 4, 3, 3]),
        (with([3, 2], &[2, 1], [2, 1], 3), [2, 6, 12, 13], [9, 2, 3, 5]),
        (with([1, 1], &[1, 1], [1, 1], 5), [2, 5, 9, 19], [5, 1, 3, 3]),
        (with([2, 1], &[2, 2], [1, 1], 4), [1, 4, 11, 21], [4, 1, 5, 5]),
        (with([2, 2], &[1, 1], [1, 1], 3), [1, 3, 10, 9], [6, 1, 3, 3]),
        (with([1, 1], &[0, 1], [1, 1], 1), [3, 10, 1, 20], [6, 10, 1, 3]),
        (with([1, 1], &[1, 1], [1, 1], 1), [0, 3, 5, 5], [2, 3, 3, 3]),
        (with([1, 1], &[1, 1], [1, 1], 1), [1, 3, 1, 1], [9, 3, 3, 3]),
        (with([2, 1], &[1, 0, 2, 1], [1, 2], 2), [2, 40, 7, 9], [24, 20, 3, 2]),
        (with([3, 3], &[0, 0], [1, 1], 1), [1, 18, 8, 7], [17, 18, 2, 2]),
        (with([1, 1], &[1, 1], [1, 1], 1), [1, 2, 23, 25], [9, 2, 3, 3]),
        (with([1, 1], &[1, 1], [1, 1], 2), [1, 2, 24, 27], [2, 1, 3, 3]),
        (algorithm(PaddingAlgorithm::Same, [2, 2]), [1, 2, 7, 8], [3, 2, 3, 3]),
        (algorithm(PaddingAlgorithm::Valid, [1, 1]), [1, 2, 7, 8], [3, 2, 4, 2]),
        (Convolution { layout: ImageLayout::Nhwc, ..with([1, 1], &[1, 1], [1, 1], 1) }, [2, 4, 6, 7], [5, 4, 3, 3]),
    ]
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "convolution",
    summary: "Two-dimensional convolution: strides, padding, dilation, groups, fused scale, bias, residual and activation.",
    dtypes: dtype::FLOATS,
    cases: || {
        let mut cases: Vec<Case> = samples()
            .into_iter()
            .map(|(of, x, weight)| {
                let x = of.layout.shape(x);
                Case::new(of, vec![Input::new(&x), Input::new(&weight)])
            })
            .collect();
        let activations = [
            Activation::Relu,
            Activation::Relu6,
            Activation::LeakyRelu { slope: 0.125 },
            Activation::HardSigmoid { slope: 0.2, offset: 0.5 },
            Activation::HardSwish,
            Activation::Sigmoid,
            Activation::Swish { beta: 1.0 },
            Activation::Gelu,
            Activation::GeluTanh,
        ];
        for (i, activation) in activations.into_iter().enumerate() {
            let after = (i % 2 == 1).then_some((0.5, 0.25));
            let fused = Fused { scale: i % 3 == 0, bias: true, residual: i > 3, activation, after };
            let (paddings, kernel) = if i % 2 == 0 { (vec![0, 0], 1) } else { (vec![1, 1], 3) };
            let of = Convolution { paddings, fused, ..Convolution::default() };
            let mut inputs = vec![Input::new(&[2, 3, 6, 7]), Input::new(&[5, 3, kernel, kernel])];
            inputs.extend((0..fused.inputs()).map(|_| Input::new(&[5])));
            if fused.residual {
                inputs.pop();
                inputs.push(Input::new(&[2, 5, 6, 7]));
            }
            let typed = |input: Input| input.typed(DType::F32);
            cases.push(Case::new(of, inputs.into_iter().map(typed).collect()));
        }
        cases
    },
    // Winograd's transforms of 3x3 filters lose three bits.
    tolerance: 64.0,
};
