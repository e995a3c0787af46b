//! What may follow a convolution in the same pass: factors and addends of channels, a residual, an activation.

use crate::error::Result;
use crate::image::{ImageLayout, Singles};
use crate::layout::{expect_dtype, expect_inputs, expect_shape};
use crate::operator::Meta;
use crate::operators::elementwise::{self, Elementwise, SQRT_2_OVER_PI};
use crate::reference::Array;
use crate::vendor::VendorGraph;
use crate::view::{Shape, View};
use openmps_host::native::{Activation, Epilogue};
use openmps_runtime::vendor::graph::{Binary, Operation, Tensor as Node, Unary};
use openmps_tile::DType;
use std::f64::consts::FRAC_1_SQRT_2;

/// What is applied to every output element y of channel c: `after.0 * activation(scale[c] * y + bias[c] + residual) + after.1`.
/// Each part that is present adds an input, in this order: scale, bias (both of shape (channels)), residual (the output's shape).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fused {
    /// There is a factor for each channel.
    pub scale: bool,
    /// There is an addend for each channel.
    pub bias: bool,
    /// A tensor of the output's shape is added.
    pub residual: bool,
    /// The activation.
    pub activation: Activation,
    /// The last factor and addend.
    pub after: Option<(f32, f32)>,
}

impl Fused {
    /// Only a bias.
    pub fn bias() -> Fused {
        Fused { bias: true, ..Fused::default() }
    }

    /// What follows, by name.
    pub(crate) fn includes(&self) -> Vec<&'static str> {
        let before = [(self.scale, "scale"), (self.bias, "bias"), (self.residual, "residual")];
        let before = before.into_iter().filter(|(there, _)| *there).map(|(_, name)| name);
        before.chain(self.activation.name()).chain(self.after.map(|_| "affine")).collect()
    }

    pub(super) fn inputs(&self) -> usize {
        usize::from(self.scale) + usize::from(self.bias) + usize::from(self.residual)
    }

    fn is_identity(&self) -> bool {
        self.inputs() == 0 && self.activation == Activation::None && self.after.is_none()
    }

    /// Checks the inputs after the first two; `out` is the output's shape.
    pub(crate) fn check(
        &self,
        operator: &'static str,
        inputs: &[Meta],
        dtype: DType,
        channels: usize,
        out: &Shape,
    ) -> Result<()> {
        expect_inputs(operator, inputs, 2 + self.inputs())?;
        if dtype == DType::F64 && !self.is_identity() {
            return expect_dtype(operator, "input", dtype, &[DType::F16, DType::BF16, DType::F32]);
        }
        let parts = [(self.scale, "scale"), (self.bias, "bias"), (self.residual, "residual")];
        let present = parts.into_iter().filter(|(there, _)| *there);
        for ((_, what), meta) in present.zip(&inputs[2..]) {
            expect_dtype(operator, what, meta.dtype, &[dtype])?;
            let expected: &[usize] = if what == "residual" { out } else { &[channels] };
            expect_shape(operator, what, &meta.shape, expected)?;
        }
        Ok(())
    }

    /// The dense float32 forms of the optional inputs, in their order.
    pub(crate) fn operands(&self, inputs: &[View], layout: ImageLayout) -> Vec<Singles> {
        self.views(inputs, layout).iter().map(Singles::of).collect()
    }

    /// The optional inputs in their order, a residual in NCHW order.
    pub(crate) fn views(&self, inputs: &[View], layout: ImageLayout) -> Vec<View> {
        let nchw = |(i, view): (usize, &View)| {
            if self.residual && i + 1 == self.inputs() { layout.nchw(view) } else { view.clone() }
        };
        inputs[2..].iter().enumerate().map(nchw).collect()
    }

    /// A graph whose nodes are the image, the weight and the optional inputs.
    pub(crate) fn graph(&self, x: &View, inputs: &[View], layout: ImageLayout) -> Option<(VendorGraph, Vec<Node>)> {
        let rest = self.views(inputs, layout);
        let views: Vec<&View> = [x, &inputs[1]].into_iter().chain(&rest).collect();
        VendorGraph::new(&views)
    }

    /// What follows the convolution's result `y`, in float32 and rounded once.
    pub(crate) fn add(&self, graph: &mut VendorGraph, y: Node, rest: &[Node], dtype: DType) -> Option<Node> {
        if self.is_identity() {
            return Some(y);
        }
        let mut x = graph.cast(y, DType::F32)?;
        let mut rest = rest.iter();
        let per_channel = |graph: &mut VendorGraph, node: &Node, binary: Binary, x: Node| {
            let node = graph.cast(*node, DType::F32)?;
            let node = graph.along_channels(node)?;
            graph.add(Operation::Binary(binary), &[x, node])
        };
        if self.scale {
            x = per_channel(graph, rest.next()?, Binary::Multiplication, x)?;
        }
        if self.bias {
            x = per_channel(graph, rest.next()?, Binary::Addition, x)?;
        }
        if self.residual {
            let residual = graph.cast(*rest.next()?, DType::F32)?;
            x = graph.add(Operation::Binary(Binary::Addition), &[x, residual])?;
        }
        x = activate(graph, self.activation, x)?;
        if let Some((factor, addend)) = self.after {
            x = graph.with_number(Binary::Multiplication, x, f64::from(factor))?;
            x = graph.with_number(Binary::Addition, x, f64::from(addend))?;
        }
        graph.cast(x, dtype)
    }

    pub(crate) fn epilogue<'a>(&self, operands: &'a [Singles]) -> Epilogue<'a> {
        let mut rest = operands.iter().map(Singles::get);
        let mut take = |there: bool| if there { rest.next() } else { None };
        Epilogue {
            scale: take(self.scale),
            bias: take(self.bias),
            residual: take(self.residual),
            activation: self.activation,
            after: self.after,
        }
    }

    /// The reference of it all for element `index` (in NCHW order) of the output.
    pub(crate) fn reference(&self, y: f64, inputs: &[Array], channel: usize, index: &[usize]) -> f64 {
        let mut rest = inputs[2..].iter();
        let mut take = |there: bool| if there { rest.next() } else { None };
        let scaled = take(self.scale).map_or(y, |scale| y * scale.at(&[channel]));
        let biased = take(self.bias).map_or(scaled, |bias| scaled + bias.at(&[channel]));
        let x = take(self.residual).map_or(biased, |residual| biased + residual.at(index));
        let formula = |activation| (Elementwise::Activation(activation).row().reference)(&[x], &[]);
        let active = match self.activation {
            Activation::None => x,
            Activation::Relu => x.max(0.0),
            Activation::Relu6 => x.clamp(0.0, 6.0),
            Activation::LeakyRelu { slope } => x.max(x * f64::from(slope)),
            Activation::HardSigmoid { slope, offset } => (x * f64::from(slope) + f64::from(offset)).clamp(0.0, 1.0),
            Activation::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Activation::Swish { beta } => x / (1.0 + (-x * f64::from(beta)).exp()),
            Activation::Gelu => formula(elementwise::Activation::Gelu),
            Activation::GeluTanh => formula(elementwise::Activation::GeluTanh),
        };
        self.after.map_or(active, |(factor, addend)| f64::from(factor) * active + f64::from(addend))
    }
}

/// An activation of operations that MPSGraph has.
fn activate(graph: &mut VendorGraph, activation: Activation, x: Node) -> Option<Node> {
    use Binary::{Addition, Maximum, Minimum, Multiplication};
    let clamp = |graph: &mut VendorGraph, x: Node, most: f64| {
        let x = graph.with_number(Maximum, x, 0.0)?;
        graph.with_number(Minimum, x, most)
    };
    match activation {
        Activation::None => Some(x),
        Activation::Relu => graph.add(Operation::Relu, &[x]),
        Activation::Relu6 => clamp(graph, x, 6.0),
        Activation::LeakyRelu { slope } => {
            let scaled = graph.with_number(Multiplication, x, f64::from(slope))?;
            graph.add(Operation::Binary(Maximum), &[x, scaled])
        }
        Activation::HardSigmoid { slope, offset } => {
            let scaled = graph.with_number(Multiplication, x, f64::from(slope))?;
            let shifted = graph.with_number(Addition, scaled, f64::from(offset))?;
            clamp(graph, shifted, 1.0)
        }
        Activation::HardSwish => {
            let shifted = graph.with_number(Addition, x, 3.0)?;
            let part = clamp(graph, shifted, 6.0)?;
            let part = graph.with_number(Multiplication, part, 1.0 / 6.0)?;
            graph.add(Operation::Binary(Multiplication), &[x, part])
        }
        Activation::Sigmoid => graph.add(Operation::Sigmoid, &[x]),
        Activation::Swish { beta } => {
            let scaled = graph.with_number(Multiplication, x, f64::from(beta))?;
            let part = graph.add(Operation::Sigmoid, &[scaled])?;
            graph.add(Operation::Binary(Multiplication), &[x, part])
        }
        Activation::Gelu => {
            let scaled = graph.with_number(Multiplication, x, FRAC_1_SQRT_2)?;
            let part = graph.add(Operation::Unary(Unary::Erf), &[scaled])?;
            half_of_one_more(graph, x, part)
        }
        Activation::GeluTanh => {
            let square = graph.add(Operation::Unary(Unary::Square), &[x])?;
            let part = graph.with_number(Multiplication, square, SQRT_2_OVER_PI * 0.044715)?;
            let part = graph.with_number(Addition, part, SQRT_2_OVER_PI)?;
            let part = graph.add(Operation::Binary(Multiplication), &[x, part])?;
            let part = graph.add(Operation::Unary(Unary::Tanh), &[part])?;
            half_of_one_more(graph, x, part)
        }
    }
}

/// `x (1 + part) / 2`
fn half_of_one_more(graph: &mut VendorGraph, x: Node, part: Node) -> Option<Node> {
    let part = graph.with_number(Binary::Addition, part, 1.0)?;
    let part = graph.with_number(Binary::Multiplication, part, 0.5)?;
    graph.add(Operation::Binary(Binary::Multiplication), &[x, part])
}
